"""Going back to an earlier version, as a new commit: nothing that happened since is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow.compute as pc

from indextables.errors import ObjectNotFoundError, VersionNotFoundError
from indextables.log.actions import Action
from indextables.log.commit import Committed
from indextables.log.files import adds_from_files, paths_of, removes_for, without_paths
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.runner import LocalRunner

_CHECKS_AT_ONCE = 16


def restore(log: TransactionLog, target: Snapshot) -> Committed:
    """Make the table what it was at `target`. Splits that purge removed cannot come back."""

    def plan(newest: Snapshot) -> Sequence[Action]:
        back = without_paths(target.entries, paths_of(newest.entries))
        gone = without_paths(newest.entries, paths_of(target.entries))
        _check_there(log, target, paths_of(back))
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
