"""Conditions that choose whole partitions, and removing the partitions they choose.

Whether a partition meets such a condition is known from the log alone. Nothing is rewritten: the
splits leave the table in one commit and stay on the disk, for time travel, until a purge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CorruptLogError, NotAPartitionError
from indextables.jobs.crossreference_build import commit_indexed
from indextables.log.actions import Action
from indextables.log.files import removes_for
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.column_names import names_of
from indextables.plan.skipping import judge
from indextables.plan.view import refuse_search_index
from indextables.predicate import Predicate, columns, searches


@dataclass(frozen=True, slots=True)
class Dropped:
    """What left the table. Nothing did where no partition met the condition."""

    version: int
    partitions: int
    files_removed: int
    bytes_removed: int


def check_partition_condition(predicate: Predicate, snapshot: Snapshot) -> None:
    """Refuse a condition that is about more than partition columns."""
    names = names_of(snapshot)
    others = [
        ".".join((names.shown_name(column.root), *column.path[1:]))
        for column in columns(predicate)
        if len(column.path) > 1 or column.root not in snapshot.partition_columns
    ]
    if others or searches(predicate):
        raise NotAPartitionError(
            others[0] if others else "a search",
            partition_columns=names.shown_names(snapshot.partition_columns),
        )


def files_of_partitions(snapshot: Snapshot, predicate: Predicate) -> pa.Table:
    """The live files of the partitions that meet a condition."""
    files = snapshot.entries
    verdict = judge(
        predicate, files, schema=snapshot.schema, partition_columns=snapshot.partition_columns
    )
    # A condition that is neither true nor surely not: a value that is not of its column's type.
    doubtful = np.flatnonzero(verdict.keep & ~verdict.whole)
    if len(doubtful):
        path = files["path"][int(doubtful[0])].as_py()
        raise CorruptLogError(path, "its partition values are not of their columns' types")
    return files.filter(pa.array(verdict.keep))


def drop_partitions(log: TransactionLog, predicate: Predicate) -> Dropped:
    """Remove the partitions that meet a condition, with all that is in them at the commit."""
    snapshot = log.snapshot()
    refuse_search_index(snapshot.metadata, uri=log.store.uri)
    if not snapshot.partition_columns:
        raise NotAPartitionError(None, partition_columns=())
    check_partition_condition(predicate, snapshot)
    gone = snapshot.entries.slice(0, 0)

    def plan(newest: Snapshot) -> Sequence[Action]:
        nonlocal gone
        check_partition_condition(predicate, newest)
        gone = files_of_partitions(newest, predicate)
        return removes_for(gone, timestamp=log.now_ms(), data_change=True)

    committed = commit_indexed(
        log,
        Transaction(
            operation=Operation.REWRITE,
            transform=plan,
            parameters={
                "where": str(names_of(snapshot).shown_predicate(predicate)),
                "drop": "partitions",
            },
        ),
    )
    values = gone["partitionValues"].to_pylist()
    return Dropped(
        version=committed.version,
        partitions=len({tuple(sorted(pairs or ())) for pairs in values}),
        files_removed=gone.num_rows,
        bytes_removed=pc.sum(gone["size"]).as_py() or 0,
    )
