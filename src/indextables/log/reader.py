"""From the files of a log to a snapshot, and to the history of its versions.

A snapshot is a checkpoint plus the version files after it. `_last_checkpoint` says where to start
looking and nothing more: when it is missing, damaged or behind, listings find the rest. A damaged
checkpoint is passed over for an older one, in the end for the versions alone. A damaged version
file is an error unless a checkpoint covers it, because nothing else has its content.

The history says when each version was committed, by what, and which one was current at a time.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from indextables import config as keys
from indextables.cells import utc_time
from indextables.config import Config
from indextables.errors import (
    LogError,
    NotATableError,
    ObjectNotFoundError,
    StorageError,
    VersionGapError,
    VersionNotFoundError,
)
from indextables.log.actions import Add, AddXRef, Metadata, Remove
from indextables.log.cache import LogCache
from indextables.log.checkpoint.avro_state import KeepManifest
from indextables.log.checkpoint.checkpoints import CheckpointRef, load_checkpoint
from indextables.log.checkpoint.last_checkpoint import read_last_checkpoint
from indextables.log.layout import (
    LOG_DIRECTORY,
    LogListing,
    check_paths,
    decode_actions,
    list_log,
    list_log_after,
    version_path,
)
from indextables.log.snapshot import Snapshot, VersionActions, empty_snapshot
from indextables.log.transaction import marked_paths
from indextables.runner import LocalRunner, Runner
from indextables.storage import Store

logger = logging.getLogger(__name__)

# After so many new versions found one by one, a listing is cheaper.
_PROBES = 3
_AT_ONCE = 1000
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class ReadVersion:
    """The task of reading one version file; picklable, so that any runner can do it."""

    store: Store
    version: int
    limit: int

    def __call__(self) -> VersionActions:
        path = version_path(self.version)
        actions = decode_actions(self.store.get(path), where=path, limit=self.limit)
        named = [a.path for a in actions if isinstance(a, Add | Remove | AddXRef)]
        check_paths(named, where=path)
        version = VersionActions(self.version, tuple(actions), 0)
        if version.commit_info is None:  # another writer's file: its age is all we have
            modified = self.store.head(path).modified_ms
            version = VersionActions(self.version, version.actions, modified)
        return version


def _run(task: ReadVersion) -> VersionActions:
    return task()


class LogReader:
    """Reads one log. Safe to share between threads."""

    def __init__(
        self, store: Store, *, config: Config, cache: LogCache, runner: Runner | None = None
    ) -> None:
        self._store = store
        self._config = config
        self._cache = cache
        self._runner = runner or LocalRunner(config[keys.CHECKPOINT_PARALLELISM])

    # --- snapshots ---------------------------------------------------------------------------

    def latest(self, *, keep_manifest: KeepManifest | None = None) -> Snapshot:
        """The newest snapshot; from the cache where it is recent enough."""
        if not self._config[keys.TRANSACTION_USE_OPTIMIZED]:
            return self.replay(None)
        cached = self._cache.latest()
        if cached is not None and cached[1] < self._config[keys.TRANSACTION_MAX_STALENESS]:
            return cached[0]
        if cached is not None:
            snapshot = self.refresh(cached[0])
        else:
            snapshot = self.load(None, keep_manifest=keep_manifest)
        if not snapshot.partial:
            self._cache.remember_latest(snapshot)
            self.recognise(snapshot)
        return snapshot

    def newest(self) -> Snapshot:
        """The newest snapshot of the store, whatever staleness is tolerated."""
        if not self._config[keys.TRANSACTION_USE_OPTIMIZED]:
            return self.replay(None)
        cached = self._cache.latest()
        return self.refresh(cached[0]) if cached is not None else self.load(None)

    def at(self, version: int) -> Snapshot:
        """The snapshot of a version."""
        if not self._config[keys.TRANSACTION_USE_OPTIMIZED]:
            return self.replay(version)
        try:
            return self._cache.snapshots[version]
        except KeyError:
            snapshot = self.load(version)
        self._cache.snapshots[version] = snapshot
        return snapshot

    def refresh(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot brought up to date. Costs two requests when nothing is new."""
        if not self.is_there(snapshot):
            self.forget()
            return self.load(None)
        newer: list[VersionActions] = []
        version = snapshot.version + 1
        while len(newer) < _PROBES:
            try:
                newer.append(self.read_version(version))
            except ObjectNotFoundError:
                break
            version += 1
        else:
            listing = list_log_after(self._store, version)
            try:
                newer += self.read_versions(version, max(listing.versions, default=-1))
            except VersionGapError:
                return self.load(None)
        return snapshot.advance(newer)

    def is_there(self, snapshot: Snapshot, *, newest: int | None = None) -> bool:
        """Whether the log still goes on after this snapshot, up to a version that is known.

        Its newest version file stays as long as the log does. Where it is gone, later ones may be
        gone as well: the history was truncated, or the table was dropped. Where it is another one,
        so is the table. Then the snapshot may be used neither to read nor to commit.
        """
        version = snapshot.version
        try:
            etag = self._store.head(version_path(version)).etag
        except ObjectNotFoundError:
            # The Scala product has versions that exist as a state only. As long as no checkpoint is
            # newer, nothing was truncated: that begins with one.
            listing = list_log_after(self._store, version)
            bases = (*listing.states, *listing.checkpoints)
            return max(bases, default=-1) == version or listing.latest == newest
        return self._cache.is_same_file(version, etag)

    def recognise(self, snapshot: Snapshot) -> None:
        """Look at a snapshot's version file once, to tell it from another one of its name later."""
        if not self._cache.has_seen(snapshot.version):
            with contextlib.suppress(StorageError):
                self.is_there(snapshot)

    def forget(self) -> None:
        """Forget what was read of a log that was replaced."""
        self._cache.forget_versions()

    def load(self, version: int | None, *, keep_manifest: KeepManifest | None = None) -> Snapshot:
        """A snapshot from the store, without the snapshot caches."""
        for _ in range(_LOOKS - 1):
            try:
                return self._load(version, keep_manifest)
            except (VersionGapError, ObjectNotFoundError):
                continue  # perhaps a truncation deleted what was just listed
        return self._load(version, keep_manifest)

    def _load(self, version: int | None, keep_manifest: KeepManifest | None) -> Snapshot:
        hint = read_last_checkpoint(self._store)
        if hint is not None and (version is None or hint.version <= version):
            nearby = list_log_after(self._store, hint.version)
            if hint.version in nearby.states or hint.version in nearby.checkpoints:
                try:
                    return self._build(nearby, version, keep_manifest, whole=False)
                except VersionNotFoundError:
                    pass  # perhaps the listing is behind
                except (LogError, ObjectNotFoundError) as error:
                    logger.warning("Reading the whole log of %s: %s", self._store.uri, error)
        return self._build(list_log(self._store), version, keep_manifest, whole=True)

    def replay(self, version: int | None) -> Snapshot:
        """The snapshot from version files alone: no checkpoint, no cache. The reference."""
        listing = list_log(self._store)
        if not listing.versions:
            raise self.not_a_table()
        last = max(listing.versions)
        target = last if version is None else version
        if target not in listing.versions:
            raise self._not_found(f"version {target}", listing)
        if 0 not in listing.versions:
            raise self._not_found("version 0, from which to replay all others", listing)
        lost = next((v for v in range(target) if v not in listing.versions), None)
        if lost is not None:
            raise VersionGapError(self._store.uri, missing=lost, found=target)
        tasks = [self._task(v) for v in range(target + 1)]
        return empty_snapshot(self._store.uri).advance(self._read(tasks))

    def _build(
        self,
        listing: LogListing,
        version: int | None,
        keep_manifest: KeepManifest | None,
        *,
        whole: bool,
    ) -> Snapshot:
        if listing.latest < 0:
            return self._build_unlisted(version)
        target = listing.latest if version is None else version
        if target > listing.latest or target < 0:
            raise self._not_found(f"version {target}", listing)
        if target in listing.versions:
            # Before anything is read: the table may be replaced meanwhile.
            self._cache.is_same_file(target, listing.versions[target].etag)
        damage: Exception | None = None
        for ref in _checkpoints_up_to(listing, target):
            try:
                base = self._load_checkpoint(ref, keep_manifest)
            except (LogError, ObjectNotFoundError) as error:
                logger.warning("Passing over checkpoint %d: %s", ref.version, error)
                damage = error
                continue
            try:
                later = self.read_versions(base.version + 1, target)
                if base.partial and any(isinstance(a, Metadata) for v in later for a in v.actions):
                    # The checkpoint's columns may be others than those that are asked for now.
                    base = self._load_checkpoint(ref, None)
                return base.advance(later)
            except VersionGapError:
                if version is None or target in listing.versions or 0 in listing.versions:
                    raise
                # Retention removed the versions between old checkpoints.
                raise self._not_found(f"version {target}", listing) from None
        if not whole:
            raise damage or self.not_a_table()
        if 0 not in listing.versions:
            raise damage or self._not_found(f"version {target}", listing)
        return empty_snapshot(self._store.uri).advance(self.read_versions(0, target))

    def not_a_table(self) -> NotATableError:
        """The error of a place without a log."""
        log = self._store.local_path(LOG_DIRECTORY)
        return NotATableError(
            self._store.uri,
            is_file=log is not None and log.parent.is_file(),
            is_missing=log is not None and not log.parent.exists(),
        )

    def _build_unlisted(self, version: int | None) -> Snapshot:
        """A snapshot without a listing, which may be behind: version 0 is read by its name."""
        try:
            first = empty_snapshot(self._store.uri).advance([self.read_version(0)])
        except ObjectNotFoundError:
            raise self.not_a_table() from None
        if version is None:
            return self.refresh(first)
        return first.advance(self.read_versions(1, version))

    def _load_checkpoint(self, ref: CheckpointRef, keep_manifest: KeepManifest | None) -> Snapshot:
        return load_checkpoint(
            self._store,
            ref,
            config=self._config,
            runner=LocalRunner(self._config[keys.STATE_READ_PARALLELISM]),
            manifest_cache=self._cache.manifests,
            keep_manifest=keep_manifest,
        )

    # --- version files -----------------------------------------------------------------------

    def read_version(self, version: int) -> VersionActions:
        """The actions of a version; ObjectNotFoundError where there is no such file."""
        try:
            return self._cache.versions[version]
        except KeyError:
            version_actions = self._task(version)()
        self._cache.versions[version] = version_actions
        return version_actions

    def read_versions(self, first: int, last: int) -> list[VersionActions]:
        """Versions first to last, each one there, in order; those not cached in parallel."""
        versions: list[VersionActions] = []
        # Piece by piece: a stray file may have a number that no log ever reaches.
        for start in range(first, last + 1, _AT_ONCE):
            versions += self._read_some(range(start, min(start + _AT_ONCE, last + 1)), last=last)
        return versions

    def _read_some(self, versions: range, *, last: int) -> list[VersionActions]:
        cached = ((v, self._cache.versions.get(v)) for v in versions)
        read = {version: actions for version, actions in cached if actions is not None}
        missing = [v for v in versions if v not in read]
        try:
            for actions in self._read([self._task(v) for v in missing]):
                self._cache.versions[actions.version] = actions
                read[actions.version] = actions
        except ObjectNotFoundError as error:
            lost = next(v for v in missing if error.path.endswith(version_path(v)))
            raise VersionGapError(self._store.uri, missing=lost, found=last) from error
        return [read[version] for version in versions]

    def _task(self, version: int) -> ReadVersion:
        return ReadVersion(self._store, version, self._config[keys.TRANSACTION_MAX_FILE_SIZE])

    def _read(self, tasks: Sequence[ReadVersion]) -> list[VersionActions]:
        timeout = self._config[keys.CHECKPOINT_READ_TIMEOUT] if len(tasks) > 1 else None
        try:
            return self._runner.map(_run, tasks, timeout_s=timeout)
        except TimeoutError as error:
            raise StorageError(
                f"Reading {len(tasks)} version files of '{self._store.uri}' took longer than "
                f"{timeout} seconds. Write a checkpoint, or raise "
                f"{keys.CHECKPOINT_READ_TIMEOUT.name}.",
                path=self._store.uri,
            ) from error

    def _not_found(self, missing: str, listing: LogListing) -> VersionNotFoundError:
        return VersionNotFoundError(
            self._store.uri, missing, earliest=earliest_readable(listing), latest=listing.latest
        )


def _checkpoints_up_to(listing: LogListing, version: int) -> list[CheckpointRef]:
    """Checkpoints not newer than the version, newest first; a state before a JSON one."""
    refs = [CheckpointRef(v, "avro") for v in listing.states if v <= version]
    refs += [CheckpointRef(v, "json") for v in listing.checkpoints if v <= version]
    return sorted(refs, key=lambda ref: (-ref.version, ref.kind))


def earliest_readable(listing: LogListing) -> int | None:
    """The oldest version that can be rebuilt: version 0, or the oldest checkpoint."""
    bases = [*listing.states, *listing.checkpoints]
    if 0 in listing.versions:
        bases.append(0)
    return min(bases, default=None)


# --- the history of versions -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One version in the table's history."""

    version: int
    timestamp: int
    operation: str | None
    parameters: dict[str, Any]
    metrics: dict[str, Any]
    transaction_id: str | None
    files_added: int
    files_removed: int
    files_marked: int = 0
    """Files of which rows were marked as deleted: neither added nor removed."""


def history(store: Store, reader: LogReader, *, limit: int | None = None) -> list[HistoryEntry]:
    """The retained versions, newest first. Versions that exist as states only have no operation."""
    listing = list_log(store)
    newest_first = sorted({*listing.versions, *listing.states}, reverse=True)[:limit]
    entries = []
    for version in newest_first:
        if version in listing.versions:
            with contextlib.suppress(ObjectNotFoundError):  # truncated since it was listed
                entries.append(_entry(reader.read_version(version)))
        else:
            at = listing.states[version].modified_ms
            entries.append(HistoryEntry(version, at, None, {}, {}, None, 0, 0))
    return entries


def _entry(version: VersionActions) -> HistoryEntry:
    info, marked = version.commit_info, marked_paths(version)
    changed = [a for a in version.actions if getattr(a, "path", None) not in marked]
    return HistoryEntry(
        version=version.version,
        timestamp=version.timestamp,
        operation=info.operation if info else None,
        parameters=dict(info.operation_parameters or {}) if info else {},
        metrics=dict(info.operation_metrics or {}) if info else {},
        transaction_id=info.txn_id if info else None,
        files_added=sum(isinstance(a, Add) for a in changed),
        files_removed=sum(isinstance(a, Remove) for a in changed),
        files_marked=len(marked),
    )


def version_at(store: Store, reader: LogReader, timestamp_ms: int, *, now_ms: int) -> int:
    """The newest version that was committed at or before a time.

    Our timestamps rise with the versions, so a binary search reads a handful of files. A version
    of another writer counts with the age of its object. Retention leaves gaps between old
    checkpoints: what was current in one of them cannot be told any more.

    A writer whose clock was far ahead stamps its version, and so all later ones, with a time that
    has not come. For a time up to now, such versions count with the age of their objects. For a
    time that has not come either, the version with exactly that stamp is meant, or the newest.
    """
    listing = list_log(store)
    if listing.latest < 0:
        raise reader.not_a_table()
    earliest = earliest_readable(listing)
    if earliest is None:
        raise VersionNotFoundError(
            store.uri, f"version of {utc_time(timestamp_ms)}", earliest=None, latest=listing.latest
        )
    there = sorted({*listing.versions, *listing.states, *listing.checkpoints})
    there = there[there.index(earliest) :]

    def stamp(version: int) -> int:
        return _timestamp(reader, listing, version)

    later = bisect.bisect_right(there, timestamp_ms, key=stamp)
    if timestamp_ms > now_ms:
        exact = later and stamp(there[later - 1]) == timestamp_ms
        return there[later - 1] if exact else there[-1]
    if later < len(there) and stamp(there[-1]) > now_ms:
        ahead = bisect.bisect_right(there, now_ms, key=stamp)
        stored = [_stored_ms(listing, version) for version in there[ahead:]]
        # A table that was copied has its objects in any order.
        rising = list(itertools.accumulate(reversed(stored), min))[::-1]
        passed = bisect.bisect_right(rising, timestamp_ms)
        later = ahead + passed if passed else later
    moment = utc_time(timestamp_ms)
    problem = None if later else f"version as old as {moment}"
    newest = there[later - 1]
    in_gap = 0 < later < len(there) and there[later] > newest + 1
    if in_gap and stamp(newest) < timestamp_ms:
        problem = f"version of {moment} any more"
    if problem:
        raise VersionNotFoundError(store.uri, problem, earliest=earliest, latest=listing.latest)
    return newest


def _stored_ms(listing: LogListing, version: int) -> int:
    groups = (listing.versions, listing.states, listing.checkpoints)
    return min(group[version].modified_ms for group in groups if version in group)


def _timestamp(reader: LogReader, listing: LogListing, version: int) -> int:
    if version in listing.versions:
        return reader.read_version(version).timestamp
    return reader.at(version).timestamp
