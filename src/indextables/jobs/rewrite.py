"""Taking rows out of a table: splits that hold some of them are written anew without them."""

from __future__ import annotations

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
from indextables.plan.execute import Environment
from indextables.plan.scan import plan_scan
from indextables.predicate import Predicate

_PIECE = 65_536


@dataclass(frozen=True, slots=True)
class Removal:
    """Files to remove, splits that take the rows they keep, and how many rows go."""

    files: pa.Table
    rewritten: tuple[Add, ...]
    rows: int


def remove_rows(
    log: TransactionLog, snapshot: Snapshot, predicate: Predicate, *, config: Config
) -> Removal:
    """Find the rows of a condition and write what remains of their splits."""
    plan = plan_scan(snapshot, predicate=predicate)
    config = config.over(known_keys(snapshot.metadata.configuration))
    environment = Environment.of(log.store, snapshot, config)
    touched: list[str] = []
    removed = 0
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
            if matching is None or len(matching):
                touched.append(task.path)
                removed += rows.total if matching is None else len(matching)
                if matching is not None:
                    keep = np.setdiff1d(np.arange(rows.total), matching, assume_unique=True)
                    for start in range(0, len(keep), _PIECE):
                        piece = rows.searcher.read_rows(
                            keep[start : start + _PIECE], snapshot.schema.names
                        )
                        for batch in piece.to_batches():
                            sink.write(batch)
            advance(1)
        return Removal(with_paths(snapshot.entries, touched), tuple(sink.finish()), removed)
