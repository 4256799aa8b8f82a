"""The versions of a table: going back to one, forgetting old ones, deleting what none needs.

Going back to an earlier version is a new commit: nothing that happened since is forgotten.

A truncation forgets all versions but the newest. A checkpoint of the newest version is written,
read back and compared; only then everything below it goes. The splits of older versions stay until
a purge: no version names them any more.

A purge deletes expired log files, then splits that no retained version names. One listing of the
table says what there is and how old it is. What is retained is computed once, from all version
files and all checkpoints that stay. A split that is younger than the retention is never deleted: a
write that is under way has stored it and will name it when it commits. Ages are taken by the clock
of the store. Before each batch of deletes the newest version is read again, because a restore may
have brought an old split back. Files that left a Delta mirror stay as long as Delta's readers count
on them. On a local disk, whose times are those of some machine, commits wait meanwhile; one whose
files went is refused.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    ConfigError,
    CorruptLogError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from indextables.jobs.progress import progress
from indextables.log.actions import Action, Add, AddXRef
from indextables.log.checkpoint import checkpoints_at, load_checkpoint, read_state_manifest
from indextables.log.commit import Committed
from indextables.log.delta_mirror import is_mirrored, named_files
from indextables.log.files import (
    adds_from_files,
    contents_of,
    paths_of,
    removes_for,
    vectors_by_path,
    without_paths,
)
from indextables.log.layout import LOG_DIRECTORY, PURGE_LOCK, LogListing, list_log
from indextables.log.retention import CleanupPlan, ExpiredFile, apply_cleanup, plan_log_cleanup
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.log.vectors import is_vector_file, vector_files
from indextables.runner import LocalRunner
from indextables.storage import ObjectMeta, Store

_CHECKS_AT_ONCE = 16


def restore(log: TransactionLog, target: Snapshot) -> Committed:
    """Make the table what it was at `target`. Splits that purge removed cannot come back."""

    def plan(newest: Snapshot) -> Sequence[Action]:
        same = {path for path, _ in contents_of(target.entries) & contents_of(newest.entries)}
        back = without_paths(target.entries, same)
        removed = without_paths(newest.entries, same)
        _check_there(
            log, target, [*paths_of(back), *sorted(vector_files(vectors_by_path(back).values()))]
        )
        actions: list[Action] = list(removes_for(removed, timestamp=log.now_ms(), data_change=True))
        # Also of merged splits, whose rows were no change of data when they were merged.
        actions += [replace(add, data_change=True) for add in adds_from_files(back)]
        if target.metadata != newest.metadata:
            actions.append(target.metadata)
        return actions

    return log.commit(
        Transaction(
            operation=Operation.RESTORE,
            transform=plan,
            parameters={"version": target.version},
            metrics={"rows": pc.sum(target.entries["numRecords"]).as_py() or 0},
        )
    )


def _check_there(log: TransactionLog, target: Snapshot, paths: Sequence[str]) -> None:
    def missing(path: str) -> bool:
        try:
            log.store.head(path)
        except ObjectNotFoundError:
            return True
        return False

    are_missing = LocalRunner(_CHECKS_AT_ONCE).map(missing, paths)
    lost = [path for path, is_missing in zip(paths, are_missing, strict=True) if is_missing]
    if lost:
        raise VersionNotFoundError(
            log.store.uri,
            f"version {target.version} any more: {len(lost):,} of its splits were purged "
            f"({lost[0]}{', …' if lost[1:] else ''})",
            earliest=log.history()[-1].version,
            latest=log.snapshot().version,
        )


@dataclass(frozen=True, slots=True)
class Truncated:
    """What was forgotten; in a dry run, what would be."""

    checkpoint_version: int
    versions: int
    checkpoints: int
    files_preserved: int
    dry_run: bool


def truncate_history(log: TransactionLog, *, dry_run: bool, config: Config) -> Truncated:
    """Make the newest version the only one."""
    if dry_run:
        newest = log.snapshot()
        plan = _below(list_log(log.store), newest.version)
        return _result(plan, newest, newest.version, dry_run=True)
    newest = log.snapshot()
    version = log.checkpoint().version
    if version != newest.version:
        newest = log.snapshot(version=version)
    listing = list_log(log.store)
    _check_stands_alone(log, listing, newest, config)
    plan = _below(listing, version)
    policy = config[keys.CLEANUP_FAILURE_POLICY]
    apply_cleanup(log.store, plan, failure_policy=policy, config=config)
    log.invalidate()
    return _result(plan, newest, version, dry_run=False)


def _below(listing: LogListing, version: int) -> CleanupPlan:
    """All versions and checkpoints below a version, oldest first. Manifests are purge's."""
    reason = f"older than the checkpoint of version {version}"
    json = [listing.checkpoints[v] for v in sorted(listing.checkpoints) if v < version]
    json += [part for v in sorted(listing.parts) if v < version for part in listing.parts[v]]
    return CleanupPlan(
        version_files=tuple(
            ExpiredFile(listing.versions[v].path, reason)
            for v in sorted(listing.versions)
            if v < version
        ),
        json_checkpoints=tuple(ExpiredFile(meta.path, reason) for meta in json),
        states=tuple(
            ExpiredFile(listing.states[v].path, reason)
            for v in sorted(listing.states)
            if v < version
        ),
        known_states=frozenset(listing.states),
    )


def _check_stands_alone(
    log: TransactionLog, listing: LogListing, newest: Snapshot, config: Config
) -> None:
    """Read the whole checkpoint, because what is deleted on its account cannot be restored."""
    version = newest.version
    runner = LocalRunner(config[keys.STATE_READ_PARALLELISM])
    for ref in checkpoints_at(listing, version):
        held = load_checkpoint(log.store, ref, config=config, runner=runner)
        if (
            ref.kind == "avro"
            and read_state_manifest(log.store, version, config=config).metadata is None
        ):
            reason = f"the state of version {version} takes its schema from an older version"
            raise CorruptLogError(log.store.uri, f"{reason}; append to the table and try again")
        if _content(held) != _content(newest):
            reason = f"the checkpoint of version {version} is not what its version files say"
            raise CorruptLogError(log.store.uri, f"{reason}; nothing was deleted")


def _content(snapshot: Snapshot) -> tuple[object, ...]:
    metadata = snapshot.metadata
    return (
        contents_of(snapshot.entries),
        set(snapshot.xrefs),
        snapshot.protocol,
        (metadata.id, metadata.schema_string, metadata.partition_columns),
    )


def _result(plan: CleanupPlan, newest: Snapshot, version: int, *, dry_run: bool) -> Truncated:
    return Truncated(
        checkpoint_version=version,
        versions=len(plan.version_files),
        checkpoints=len(plan.json_checkpoints) + len(plan.states),
        files_preserved=newest.num_files,
        dry_run=dry_run,
    )


# --- purging ---------------------------------------------------------------------------------

SAFE_HOURS = 24
_HOUR_MS = 3_600_000
_DELETE_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge found and deleted. In a dry run nothing was.

    `leftovers` are files that killed writers never finished, where the store shows such.
    """

    orphans: tuple[ObjectMeta, ...]
    leftovers: tuple[ObjectMeta, ...]
    log_files: CleanupPlan
    log_files_deleted: int
    files_deleted: int
    bytes_deleted: int
    retention_hours: float
    dry_run: bool
    duration_ms: int


def remove_table(store: Store) -> None:
    """Delete all files of a table or an index."""
    files = [meta.path for meta in store.list()]
    # The log goes last: until then it is whole or visibly gone.
    files.sort(key=lambda path: path.startswith(f"{LOG_DIRECTORY}/"))
    store.delete(files)


def purge(
    log: TransactionLog,
    *,
    retention_hours: float | None,
    log_retention_hours: int | None = None,
    dry_run: bool,
    config: Config,
) -> Purged:
    """Delete expired log files and orphaned splits, or say which would go."""
    started = time.monotonic()
    if retention_hours is None:
        retention_hours = config[keys.PURGE_RETENTION_HOURS]
    _check_hours(retention_hours, config)
    if log_retention_hours is not None:
        _check_hours(log_retention_hours, config)
        config = Config({keys.PURGE_LOG_RETENTION_HOURS.name: log_retention_hours}).over(config)
    # A dry run changes nothing, so it does not ask the store, which takes writing to it.
    now_ms = log.now_ms() if dry_run else log.age_now_ms()
    older_than_ms = now_ms - int(retention_hours * _HOUR_MS)
    newest = log.newest()
    if not dry_run:
        log.catch_up_mirror(newest)

    in_log, splits = _listed(log)
    listing = LogListing().take(in_log)
    expired = plan_log_cleanup(log.store, listing, now_ms=now_ms, config=config, objects=in_log)
    log_deleted = 0 if dry_run else _clean_log(log, expired, config)
    if not dry_run and log_deleted < len(expired):
        listing, expired_paths = list_log(log.store), set()
    else:
        expired_paths = {f.path for f in (*expired.version_files, *expired.json_checkpoints)}
        expired_paths |= {file.path for file in expired.states}

    named = _named_paths(log, listing, expired_paths) | _live(newest)
    if is_mirrored(newest.metadata):
        expired_ms = now_ms - config[keys.DELTA_TOMBSTONES]
        named |= named_files(log.store, removed_after_ms=expired_ms)
    old = (meta for meta in splits if meta.modified_ms <= older_than_ms)
    orphans = [
        m for m in old if m.path.removesuffix(".crc") not in named and log.store.owns(m.path)
    ]
    orphans = orphans[: config[keys.PURGE_MAX_FILES]]
    if not dry_run:
        orphans = _delete(log, orphans)
    leftovers = log.store.sweep(older_than_ms=older_than_ms, dry_run=dry_run)
    deleted = [] if dry_run else [*orphans, *leftovers]
    return Purged(
        orphans=tuple(orphans),
        leftovers=tuple(leftovers),
        log_files=expired,
        log_files_deleted=log_deleted,
        files_deleted=len(deleted),
        bytes_deleted=sum(meta.size for meta in deleted),
        retention_hours=retention_hours,
        dry_run=dry_run,
        duration_ms=int((time.monotonic() - started) * 1000),
    )


def _check_hours(hours: float, config: Config) -> None:
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not math.isfinite(hours):
        raise ConfigError(f"A retention is a number of hours, not {hours!r}.")
    if hours < 0:
        raise ConfigError(f"A retention of {hours} hours is negative.")
    if hours < SAFE_HOURS and config[keys.PURGE_RETENTION_CHECK]:
        raise ConfigError(
            f"A retention of {hours:g} hours could delete what a running write is about to commit, "
            f"or what a long query reads. Use at least {SAFE_HOURS} hours, or, if nobody uses the "
            f"table now, set {keys.PURGE_RETENTION_CHECK.name} to false."
        )


def _listed(log: TransactionLog) -> tuple[list[ObjectMeta], list[ObjectMeta]]:
    """The log's files, and all splits, vectors and cross-references with their checksum files."""
    in_log, splits = [], []
    for meta in log.store.list():
        if meta.path.startswith(LOG_DIRECTORY + "/"):
            in_log.append(meta)
        elif meta.path.endswith((".split", ".split.crc")) or is_vector_file(meta.path):
            splits.append(meta)
    return in_log, splits


def unused_files(log: TransactionLog, snapshot: Snapshot) -> list[ObjectMeta]:
    """The splits, vectors and cross-references in the store that a version does not name."""
    _, files = _listed(log)
    live = _live(snapshot)
    return [meta for meta in files if meta.path.removesuffix(".crc") not in live]


def _clean_log(log: TransactionLog, expired: CleanupPlan, config: Config) -> int:
    policy = config[keys.CLEANUP_FAILURE_POLICY]
    deleted = apply_cleanup(log.store, expired, failure_policy=policy, config=config)
    if deleted:
        log.invalidate()  # no reader of this process may see deleted versions
    return deleted


def _named_paths(log: TransactionLog, listing: LogListing, expired: set[str]) -> set[str]:
    """Every path that a retained version file or checkpoint names.

    A checkpoint that cannot be read may name anything, so then nothing may be deleted, unless the
    versions before it are all there to say the same.
    """
    versions = sorted(v for v, meta in listing.versions.items() if meta.path not in expired)
    checkpoints = {
        version
        for group in (listing.states, listing.checkpoints)
        for version, meta in group.items()
        if meta.path not in expired
    }
    named: set[str] = set()
    for version in versions:
        for action in log.actions(version).actions:
            if isinstance(action, Add | AddXRef):
                named.add(action.path)
            if isinstance(action, Add):
                named |= vector_files([action.deletion_vector])
    for version in sorted(checkpoints):
        snapshot = log.snapshot(version=version)
        if snapshot.version != version:
            raise CorruptLogError(log.store.uri, f"version {version} reads as {snapshot.version}")
        named |= _live(snapshot)
    return named


def _live(snapshot: Snapshot) -> set[str]:
    vectors = vector_files(vectors_by_path(snapshot.entries).values())
    return {*paths_of(snapshot.entries), *snapshot.xrefs, *vectors}


def _delete(log: TransactionLog, orphans: Sequence[ObjectMeta]) -> list[ObjectMeta]:
    """Delete what is still an orphan; returns what was deleted."""
    deleted: list[ObjectMeta] = []
    version, live = -1, set[str]()
    size = sum(meta.size for meta in orphans)
    with progress("Deleting", len(orphans), "files", table=log.store.uri, size=size) as advance:
        for start in range(0, len(orphans), _DELETE_AT_ONCE):
            batch = orphans[start : start + _DELETE_AT_ONCE]
            with log.store.commits_held(PURGE_LOCK, alone=True):
                newest = log.newest()
                if newest.version != version:
                    version, live = newest.version, _live(newest)
                batch = [meta for meta in batch if meta.path.removesuffix(".crc") not in live]
                log.store.delete([meta.path for meta in batch])
            deleted += batch
            advance(len(batch), sum(meta.size for meta in batch))
    return deleted
