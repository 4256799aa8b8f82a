"""The transaction log of one table: snapshots out, commits in.

::

    log = TransactionLog.create(store, metadata)
    log.commit(Transaction(operation=Operation.APPEND, actions=[Add(path="a.split", size=1)]))
    log.snapshot().files

A commit that succeeded stays successful whatever happens after it: checkpoints and clean-up come
afterwards, and their failures are logged.

Files that a job could not process are recorded with a reason, left alone by jobs until a cooldown
is over, and stay readable all the time: nothing is removed because a merge failed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    LogError,
    NotATableError,
    ObjectNotFoundError,
    StorageError,
    VersionGapError,
)
from indextables.log.actions import (
    DEFAULT_PROTOCOL,
    Metadata,
    Protocol,
    Skip,
    check_readable,
    has_avro_state,
)
from indextables.log.cache import CacheStats, LogCache, tracked
from indextables.log.checkpoint.avro_state import KeepManifest
from indextables.log.checkpoint.checkpoints import write_checkpoint
from indextables.log.checkpoint.last_checkpoint import LastCheckpoint
from indextables.log.commit import Committed, Committer, Observer
from indextables.log.delta_mirror import Mirror, is_mirrored
from indextables.log.files import with_paths, without_paths
from indextables.log.layout import LOG_DIRECTORY, list_log, list_states
from indextables.log.reader import HistoryEntry, LogReader, history, version_at
from indextables.log.retention import CleanupPlan, apply_cleanup, plan_log_cleanup
from indextables.log.snapshot import Snapshot, VersionActions
from indextables.log.transaction import Operation, Transaction
from indextables.runner import LocalRunner, Runner, beside
from indextables.storage import Store

logger = logging.getLogger(__name__)

_HOUR_MS = 3_600_000


def skip_actions(
    snapshot: Snapshot,
    reasons: Mapping[str, str],
    *,
    operation: str,
    now_ms: int,
    cooldown_hours: int,
) -> list[Skip]:
    """Actions that record these paths as skipped; each counts how often in a row it was."""
    live = snapshot.contains(reasons)
    rows = with_paths(snapshot.entries, live).select(["path", "partitionValues", "size"])
    rows_by_path = {row["path"]: row for row in rows.to_pylist(maps_as_pydicts="strict")}
    return [
        Skip(
            path=path,
            skip_timestamp=now_ms,
            reason=reason,
            operation=operation,
            partition_values=rows_by_path[path]["partitionValues"],
            size=rows_by_path[path]["size"],
            retry_after=now_ms + cooldown_hours * _HOUR_MS,
            skip_count=snapshot.skips[path].skip_count + 1 if path in snapshot.skips else 1,
        )
        for path, reason in reasons.items()
        if path in live
    ]


def in_cooldown(snapshot: Snapshot, *, now_ms: int) -> dict[str, int]:
    """Paths that jobs leave alone now, each with the time of the next try."""
    return {
        path: skip.retry_after
        for path, skip in snapshot.skips.items()
        if skip.retry_after is not None and skip.retry_after > now_ms
    }


def without_cooldown(snapshot: Snapshot, files: pa.Table, *, now_ms: int) -> pa.Table:
    """The files a job may take now."""
    left = without_paths(files, in_cooldown(snapshot, now_ms=now_ms))
    if left.num_rows < files.num_rows:
        logger.info(
            "%s: %d files in cooldown are left alone", snapshot.uri, files.num_rows - left.num_rows
        )
    return left


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class TransactionLog:
    """One table's log. Safe to share between threads.

    `cache` may be shared by several logs of the same table; `runner` reads many version files;
    `observer` is called with the phases of a commit.
    """

    def __init__(
        self,
        store: Store,
        *,
        config: Config | None = None,
        cache: LogCache | None = None,
        runner: Runner | None = None,
        observer: Observer | None = None,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self.store = store
        self.config = config or Config()
        self.now_ms = now_ms
        self._cache = tracked(cache or LogCache(self.config), store.identity)
        self._observer = observer or (lambda _phase: None)
        self._reader = LogReader(store, config=self.config, cache=self._cache, runner=runner)
        self.mirror = Mirror(store, self._reader, now_ms)
        self._committer = Committer(
            store,
            self._reader,
            self.config,
            observer=self._observer,
            now_ms=now_ms,
            prepare=self.mirror.prepare,
        )

    @classmethod
    def create(
        cls,
        store: Store,
        metadata: Metadata,
        *,
        protocol: Protocol | None = None,
        config: Config | None = None,
        cache: LogCache | None = None,
    ) -> TransactionLog:
        """A new table: its version 0 is the protocol and the metadata."""
        log = cls(store, config=config, cache=cache)
        actions = [metadata] if protocol is None else [protocol, metadata]
        log.commit(Transaction(operation=Operation.CREATE, actions=actions))
        return log

    def age_now_ms(self) -> int:
        """The time that ages of files are taken at: the store's, or this machine's if earlier."""
        return min(self.now_ms(), self.store.clock_ms())

    # --- reading -----------------------------------------------------------------------------

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
        keep_manifest: KeepManifest | None = None,
    ) -> Snapshot:
        """The table now, at a version, or at a time.

        `keep_manifest` decides by the partition bounds of a manifest whether its files can matter;
        the snapshot may then lack others (`partial`). Such a snapshot answers the question that it
        was made for and nothing else: it is neither kept nor committed on. `completed` reads the
        rest of it, without reading the log again.
        """
        if timestamp_ms is not None:
            version = version_at(self.store, self._reader, timestamp_ms, now_ms=self.now_ms())
        if version is None:
            snapshot = self._reader.latest(keep_manifest=keep_manifest)
        else:
            snapshot = self._reader.at(version)
        check_readable(snapshot.protocol, uri=self.store.uri, config=self.config)
        return snapshot

    def exists(self) -> bool:
        """Whether there is a table."""
        try:
            self.snapshot()
        except NotATableError:
            return False
        return True

    def after(self, version: int) -> Snapshot:
        """A version that this log committed, or a newer one that it knows by now.

        What follows a commit, such as a merge, may have made further versions.
        """
        latest = self._cache.latest()
        if latest is not None and latest[0].version >= version:
            return latest[0]
        return self.snapshot(version=version)

    def completed(
        self, snapshot: Snapshot, *, keep_manifest: KeepManifest | None = None
    ) -> Snapshot:
        """A partial snapshot with the files that it lacks: all, or those of some manifests."""
        if snapshot.unread is None:
            return snapshot
        complete = snapshot.unread(keep_manifest)
        if not complete.partial:
            self._cache.remember_latest(complete)
            self._reader.recognise(complete)
        return complete

    def newest(self) -> Snapshot:
        """The newest snapshot the store has, however stale a reader may be."""
        return self._reader.newest()

    def history(self, *, limit: int | None = None) -> list[HistoryEntry]:
        """The retained versions, newest first."""
        return history(self.store, self._reader, limit=limit)

    def actions(self, version: int) -> VersionActions:
        """What one version file says."""
        return self._reader.read_version(version)

    def cache_stats(self) -> dict[str, CacheStats]:
        """Hits and misses by cache."""
        return self._cache.stats()

    def invalidate(self) -> None:
        """Forget everything cached; the next read asks the store."""
        self._cache.invalidate()

    # --- writing -----------------------------------------------------------------------------

    def commit(self, transaction: Transaction) -> Committed:
        """Commit, then write a checkpoint and clean up if they are due."""
        committed = self._committer.commit(transaction)
        self._cache.remember_latest(committed.snapshot)
        mirrored = self._mirrored(committed)
        self._reader.recognise(committed.snapshot)
        if committed.changed:
            self._after_commit(committed)
        mirrored()
        return committed

    def catch_up_mirror(self, snapshot: Snapshot) -> None:
        """Write the versions that the Delta mirror lacks, if the table has one."""
        if not is_mirrored(snapshot.metadata):
            return
        try:
            self.mirror.catch_up(snapshot)
        except (StorageError, LogError) as error:  # its own readers see an older version meanwhile
            logger.warning("The Delta mirror of %s is behind: %s", self.store.uri, error)

    def record_skips(self, reasons: Mapping[str, str], *, operation: str) -> Committed | None:
        """Record files that a job could not process, each with its reason."""
        if not reasons:
            return None
        config = self._effective()
        if not config[keys.SKIPPED_FILES_TRACKING]:
            return None
        return self.commit(
            Transaction(
                operation=Operation.SKIP,
                transform=lambda snapshot: skip_actions(
                    snapshot,
                    reasons,
                    operation=operation,
                    now_ms=self.now_ms(),
                    cooldown_hours=config[keys.SKIPPED_FILES_COOLDOWN],
                ),
            )
        )

    def checkpoint(self, *, force_compaction: bool = False) -> LastCheckpoint:
        """Write a checkpoint of the newest version now."""
        return self._write_checkpoint(self.newest(), force_compaction=force_compaction)

    def plan_cleanup(self) -> CleanupPlan:
        """The log files whose time is over."""
        return plan_log_cleanup(
            self.store, list_log(self.store), now_ms=self.now_ms(), config=self._effective()
        )

    def cleanup(self) -> CleanupPlan:
        """Delete the log files whose time is over."""
        plan = self.plan_cleanup()
        if not len(plan):
            return plan
        config = self._effective()
        plan = plan_log_cleanup(
            self.store, list_log(self.store), now_ms=self.age_now_ms(), config=config
        )
        policy = config[keys.CLEANUP_FAILURE_POLICY]
        apply_cleanup(self.store, plan, failure_policy=policy, config=config)
        return plan

    def _effective(self) -> Config:
        return self.config.over_properties(self._reader.latest().metadata.configuration)

    def _mirrored(self, committed: Committed) -> Callable[[], None]:
        """Mirror a version, beside what follows where the store is far; the result waits for it."""
        version, snapshot = committed.version_actions, committed.snapshot
        if version is None:
            return lambda: None

        def write() -> None:
            try:
                self.mirror.write(version, snapshot)
            except (StorageError, LogError) as error:  # the next commit catches up, or says why not
                logger.warning(
                    "Version %d of %s is committed, but not mirrored: %s",
                    snapshot.version,
                    self.store.uri,
                    error,
                )

        self._observer("before_mirror")
        is_far = is_mirrored(snapshot.metadata) and self.store.local_path(LOG_DIRECTORY) is None
        return beside(write) if is_far else write

    def _after_commit(self, committed: Committed) -> None:
        snapshot = committed.snapshot
        config = self.config.over_properties(snapshot.metadata.configuration)
        due = snapshot.version > 0 and snapshot.version % config[keys.CHECKPOINT_INTERVAL] == 0
        if not (config[keys.CHECKPOINT_ENABLED] and due):
            return
        self._observer("before_checkpoint")
        try:
            self._write_checkpoint(snapshot, force_compaction=False)
            if config[keys.CLEANUP_ENABLED]:
                self.cleanup()
        except Exception as error:
            # Never raised: a caller who sees an error writes the same rows again.
            logger.warning(
                "Version %d of %s is committed, but what follows a commit failed: %s",
                snapshot.version,
                self.store.uri,
                error,
            )

    def _write_checkpoint(self, snapshot: Snapshot, *, force_compaction: bool) -> LastCheckpoint:
        config = self.config.over_properties(snapshot.metadata.configuration)
        if config[keys.STATE_FORMAT] != "json" and not has_avro_state(snapshot.protocol):
            # Readers of an older protocol do not know Avro states, and versions go after a while.
            if config[keys.PROTOCOL_AUTO_UPGRADE]:
                raised = Transaction(operation=Operation.PROTOCOL, actions=[DEFAULT_PROTOCOL])
                snapshot = self.commit(raised).snapshot
            else:
                config = Config({keys.STATE_FORMAT.name: "json"}).over(config)
        return write_checkpoint(
            self.store,
            snapshot,
            config=config,
            runner=LocalRunner(config[keys.STATE_READ_PARALLELISM]),
            read_versions=self._versions_if_there,
            states=[v for v in list_states(self.store) if v <= snapshot.version],
            force_compaction=force_compaction,
            manifest_cache=self._cache.manifests,
        )

    def _versions_if_there(self, first: int, last: int) -> list[VersionActions] | None:
        try:
            return self._reader.read_versions(first, last)
        except (VersionGapError, ObjectNotFoundError):
            return None
