"""Deleting what no retained version needs: expired log files, then splits that nobody names.

What is retained is computed once, from all version files and all checkpoints that are left. Ages
come from the objects themselves. A split that is younger than the retention is never deleted: a
write that is under way has stored it and will name it when it commits.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from indextables import config as keys
from indextables.config import Config
from indextables.errors import ConfigError, CorruptLogError
from indextables.jobs.progress import progress
from indextables.log.actions import Add, AddXRef
from indextables.log.expiry import CleanupPlan
from indextables.log.files import paths_of
from indextables.log.listing import list_log
from indextables.log.names import LOG_DIRECTORY
from indextables.log.transaction_log import TransactionLog
from indextables.storage import ObjectMeta

SAFE_HOURS = 24
_HOUR_MS = 3_600_000
_DELETE_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge found and deleted. In a dry run nothing was."""

    orphans: tuple[ObjectMeta, ...]
    log_files: CleanupPlan
    files_deleted: int
    bytes_deleted: int
    retention_hours: float
    dry_run: bool
    duration_ms: int


def purge(
    log: TransactionLog, *, retention_hours: float | None, dry_run: bool, config: Config
) -> Purged:
    """Delete expired log files and orphaned splits, or say which would go."""
    started = time.monotonic()
    hours = _checked_hours(retention_hours, config)
    expired = log.plan_cleanup() if dry_run else log.cleanup()
    gone = {
        file.path for file in (*expired.version_files, *expired.json_checkpoints, *expired.states)
    }
    orphans = _orphans(log, gone, older_than_ms=log.now_ms() - int(hours * _HOUR_MS))
    orphans = orphans[: config[keys.PURGE_MAX_FILES]]
    if not dry_run:
        with progress("Deleting splits", len(orphans)) as advance:
            for start in range(0, len(orphans), _DELETE_AT_ONCE):
                batch = orphans[start : start + _DELETE_AT_ONCE]
                log.store.delete([meta.path for meta in batch])
                advance(len(batch))
    return Purged(
        orphans=tuple(orphans),
        log_files=expired,
        files_deleted=0 if dry_run else len(orphans),
        bytes_deleted=0 if dry_run else sum(meta.size for meta in orphans),
        retention_hours=hours,
        dry_run=dry_run,
        duration_ms=int((time.monotonic() - started) * 1000),
    )


def _checked_hours(hours: float | None, config: Config) -> float:
    if hours is None:
        hours = config[keys.PURGE_RETENTION_HOURS]
    if hours < 0:
        raise ConfigError(f"A retention of {hours} hours is negative.")
    if hours < SAFE_HOURS and config[keys.PURGE_RETENTION_CHECK]:
        raise ConfigError(
            f"A retention of {hours:g} hours could delete splits that a running write is about to "
            f"commit. Use at least {SAFE_HOURS} hours, or, if nobody writes now, set "
            f"{keys.PURGE_RETENTION_CHECK.name} to false."
        )
    return hours


def _orphans(log: TransactionLog, gone: set[str], *, older_than_ms: int) -> list[ObjectMeta]:
    """Old splits and cross-references that no retained version names, in one listing."""
    named = _named_paths(log, gone)
    return [
        meta
        for meta in log.store.list()
        if meta.path.endswith(".split")
        and not meta.path.startswith(LOG_DIRECTORY + "/")
        and meta.modified_ms <= older_than_ms
        and meta.path not in named
    ]


def _named_paths(log: TransactionLog, gone: set[str]) -> set[str]:
    """Every path that a retained version or checkpoint names.

    A checkpoint that cannot be read may name anything, so then nothing may be deleted, unless the
    versions before it are all there to say the same.
    """
    listing = list_log(log.store)
    versions = sorted(v for v, meta in listing.versions.items() if meta.path not in gone)
    checkpoints = {
        version
        for group in (listing.states, listing.checkpoints)
        for version, meta in group.items()
        if meta.path not in gone
    }
    named: set[str] = set()
    for version in versions:
        for action in log.actions(version).actions:
            if isinstance(action, Add | AddXRef):
                named.add(action.path)
    for version in sorted({*checkpoints, log.snapshot().version}):
        snapshot = log.snapshot(version=version)
        if snapshot.version != version:
            raise CorruptLogError(log.store.uri, f"version {version} reads as {snapshot.version}")
        named.update(paths_of(snapshot.entries))
        named.update(snapshot.xrefs)
    return named
