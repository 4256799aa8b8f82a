"""Changing rows: the splits that hold some of them are written anew.

Rows that move to another partition, because a partition column changes, are written there.
"""

from __future__ import annotations

import numpy as np

from indextables.config import Config
from indextables.jobs.assignments import Assignments
from indextables.jobs.commit_write import Target, Written, commit_replacement, scope_of
from indextables.jobs.rewrite import PIECE, rewrite_splits
from indextables.jobs.write_splits import SplitSink
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.column_names import names_of
from indextables.plan.split_rows import SplitRows
from indextables.predicate import Predicate
from indextables.split.memory_index import Rows


def update_rows(
    log: TransactionLog,
    snapshot: Snapshot,
    predicate: Predicate,
    assignments: Assignments,
    *,
    config: Config,
) -> Written:
    """Give the rows of a condition new values."""

    target = Target.of(snapshot)

    def write(rows: SplitRows, matching: Rows, sink: SplitSink) -> None:
        _rewrite(rows, matching, sink, target, assignments)

    removal = rewrite_splits(log, snapshot, predicate, write, config=config)
    return commit_replacement(
        log,
        snapshot,
        target=target,
        adds=[],
        removal=removal,
        rows=removal.rows,
        scope=scope_of(predicate, snapshot),
        parameters={
            "where": str(names_of(snapshot).shown_predicate(predicate)),
            "set": str(assignments),
        },
        config=config,
    )


def _rewrite(
    rows: SplitRows, matching: Rows, sink: SplitSink, target: Target, assignments: Assignments
) -> None:
    """Write all rows of a split, those that match with new values."""
    chosen = np.zeros(rows.total, dtype=np.bool_)
    chosen[matching] = True
    for start in range(0, rows.total, PIECE):
        numbers = np.arange(start, min(start + PIECE, rows.total))
        mask = chosen[start : start + PIECE]
        for some, is_changed in ((numbers[~mask], False), (numbers[mask], True)):
            if len(some):
                piece = rows.searcher.read_rows(some, target.schema.names)
                if is_changed:  # by an expression that has the names of users
                    changed = assignments.apply(piece.rename_columns(target.shown.names))
                    piece = target.checked(changed).rename_columns(target.schema.names)
                for batch in piece.to_batches():
                    sink.write(batch)
