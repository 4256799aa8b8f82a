"""Conditions that choose whole partitions: known from the log alone, no row is read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from indextables.errors import CorruptLogError, NotAPartitionError
from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import names_of
from indextables.plan.skipping import FileStatistics
from indextables.predicate import Predicate, columns, searches


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
    verdict = FileStatistics.of(snapshot).judge(predicate)
    # A condition that is neither true nor surely not: a value that is not of its column's type.
    doubtful = np.flatnonzero(verdict.keep & ~verdict.whole)
    if len(doubtful):
        path = files["path"][int(doubtful[0])].as_py()
        raise CorruptLogError(path, "its partition values are not of their columns' types")
    return files.filter(pa.array(verdict.keep))
