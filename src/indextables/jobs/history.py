"""The versions of a table: going back to one, and forgetting those before the newest.

Going back to an earlier version, as a new commit: nothing that happened since is forgotten.

Forgetting all versions but the newest.

A checkpoint of the newest version is written, read back and compared; only then everything below
it goes. The splits of older versions stay until a purge: no version names them any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from indextables import config as keys
from indextables.config import Config
from indextables.errors import CorruptLogError, ObjectNotFoundError, VersionNotFoundError
from indextables.log.actions import Action
from indextables.log.checkpoint import checkpoints_at, load_checkpoint, read_state_manifest
from indextables.log.commit import Committed
from indextables.log.files import (
    adds_from_files,
    contents_of,
    paths_of,
    removes_for,
    vectors_by_path,
    without_paths,
)
from indextables.log.layout import LogListing, list_log
from indextables.log.retention import CleanupPlan, ExpiredFile, apply_cleanup
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.log.vectors import vector_files
from indextables.runner import LocalRunner

_CHECKS_AT_ONCE = 16


def restore(log: TransactionLog, target: Snapshot) -> Committed:
    """Make the table what it was at `target`. Splits that purge removed cannot come back."""

    def plan(newest: Snapshot) -> Sequence[Action]:
        same = {path for path, _ in contents_of(target.entries) & contents_of(newest.entries)}
        back = without_paths(target.entries, same)
        gone = without_paths(newest.entries, same)
        _check_there(
            log, target, [*paths_of(back), *sorted(vector_files(vectors_by_path(back).values()))]
        )
        actions: list[Action] = list(removes_for(gone, timestamp=log.now_ms(), data_change=True))
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

    gone = LocalRunner(_CHECKS_AT_ONCE).map(missing, paths)
    lost = [path for path, is_gone in zip(paths, gone, strict=True) if is_gone]
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
    """What is deleted on account of the checkpoint does not come back: read it as a whole."""
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
