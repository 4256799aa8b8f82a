"""Changing rows: the splits that hold some of them are written anew.

Rows that move to another partition, because a partition column changes, are written there.
"""

from __future__ import annotations

import numpy as np

from indextables.config import Config, known_keys
from indextables.jobs.assignments import Assignments
from indextables.jobs.commit_write import Target, Written, commit_replacement, scope_of
from indextables.jobs.progress import progress
from indextables.jobs.rewrite import Removal
from indextables.jobs.write_splits import SplitSink
from indextables.log.files import with_paths
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.execute import Environment, mapping_of
from indextables.plan.scan import plan_scan
from indextables.plan.split_rows import SplitRows
from indextables.predicate import Predicate

_PIECE = 65_536


def update_rows(
    log: TransactionLog,
    snapshot: Snapshot,
    predicate: Predicate,
    assignments: Assignments,
    *,
    config: Config,
) -> Written:
    """Give the rows of a condition new values."""
    plan = plan_scan(snapshot, predicate=predicate)
    settings = config.over(known_keys(snapshot.metadata.configuration))
    environment = Environment.of(log.store, snapshot, settings)
    touched: list[str] = []
    changed = 0
    with (
        progress("Rewriting splits", len(plan.tasks)) as advance,
        SplitSink(
            log.store,
            schema=snapshot.schema,
            partition_columns=snapshot.partition_columns,
            mapping=environment.context.mapping,
            config=settings,
        ) as sink,
    ):
        for task in plan.tasks:
            rows = environment.rows(task)
            matching = rows.matching()
            if matching is None or len(matching):
                touched.append(task.path)
                changed += _rewrite(rows, matching, sink, snapshot, assignments)
            advance(1)
        rewritten = tuple(sink.finish())
    return commit_replacement(
        log,
        snapshot,
        target=Target(snapshot.schema, mapping_of(snapshot), None),
        adds=[],
        removal=Removal(with_paths(snapshot.entries, touched), rewritten, changed),
        rows=changed,
        scope=scope_of(predicate, snapshot),
        parameters={"where": str(predicate), "set": str(assignments)},
        config=config,
    )


def _rewrite(
    rows: SplitRows,
    matching: np.ndarray[tuple[int], np.dtype[np.int64]] | None,
    sink: SplitSink,
    snapshot: Snapshot,
    assignments: Assignments,
) -> int:
    """Write all rows of a split, those that match with new values; gives how many match."""
    chosen = np.ones(rows.total, dtype=np.bool_)
    if matching is not None:
        chosen[:] = False
        chosen[matching] = True
    for start in range(0, rows.total, _PIECE):
        numbers = np.arange(start, min(start + _PIECE, rows.total))
        mask = chosen[start : start + _PIECE]
        for some, is_changed in ((numbers[~mask], False), (numbers[mask], True)):
            if len(some):
                piece = rows.searcher.read_rows(some, snapshot.schema.names)
                piece = assignments.apply(piece) if is_changed else piece
                for batch in piece.to_batches():
                    sink.write(batch)
    return int(chosen.sum())
