"""Changing rows of a table: splits that hold some of them are written anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from indextables.config import Config, known_keys
from indextables.jobs.progress import progress
from indextables.jobs.write_splits import SplitSink
from indextables.log.actions import Add
from indextables.log.files import with_paths
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.execute import Environment, router_of
from indextables.plan.scan import plan_scan
from indextables.plan.split_rows import SplitRows
from indextables.predicate import Predicate
from indextables.split.memory_index import Rows

PIECE = 65_536
"""Rows that are read at once."""
Write = Callable[[SplitRows, Rows, SplitSink], None]
"""Writes what becomes of a split, given the numbers of the rows that match."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Files to remove, splits that take the rows they keep, and how many rows go."""

    files: pa.Table
    rewritten: tuple[Add, ...]
    rows: int


def rewrite_splits(
    log: TransactionLog, snapshot: Snapshot, predicate: Predicate, write: Write, *, config: Config
) -> Removal:
    """Replace the splits that hold rows of a condition by what `write` makes of each."""
    config = config.over(known_keys(snapshot.metadata.configuration))
    router = router_of(log.store, snapshot, config)
    plan = plan_scan(snapshot, predicate=predicate, router=router)
    environment = Environment.of(log.store, snapshot, config)
    touched: list[str] = []
    changed = 0
    with (
        progress("Rewriting splits", len(plan.tasks)) as advance,
        SplitSink(
            log.store,
            schema=snapshot.schema,
            partition_columns=snapshot.partition_columns,
            mapping=environment.context.mapping,
            config=config,
        ) as sink,
    ):
        for task in plan.tasks:
            rows = environment.rows(task)
            matching = rows.matching()
            if matching is None:
                matching = np.arange(rows.total)
            if len(matching):
                touched.append(task.path)
                changed += len(matching)
                write(rows, matching, sink)
            advance(1)
        return Removal(with_paths(snapshot.entries, touched), tuple(sink.finish()), changed)


def remove_rows(
    log: TransactionLog, snapshot: Snapshot, predicate: Predicate, *, config: Config
) -> Removal:
    """Find the rows of a condition and write what remains of their splits."""

    def write(rows: SplitRows, matching: Rows, sink: SplitSink) -> None:
        keep = np.setdiff1d(np.arange(rows.total), matching, assume_unique=True)
        for start in range(0, len(keep), PIECE):
            piece = rows.searcher.read_rows(keep[start : start + PIECE], snapshot.schema.names)
            for batch in piece.to_batches():
                sink.write(batch)

    return rewrite_splits(log, snapshot, predicate, write, config=config)
