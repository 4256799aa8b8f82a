"""Planning a scan: from the live files of a snapshot to the splits that have to be read.

Everything here happens on the driver, on whole columns of the snapshot: partition values, then
statistics, then cross-references. Each stage may only keep too much. What is left becomes tasks,
one a split, in which conditions on partition columns are already decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CorruptLogError, SchemaError, UnknownColumnError
from indextables.log.snapshot import Snapshot
from indextables.plan.bind import bind_partition
from indextables.plan.skipping import keep_mask, partition_only
from indextables.plan.statistics import Flags, decode, lookup
from indextables.plan.view import TableView
from indextables.predicate import FALSE, NULL, TRUE, Predicate, conjunction, conjuncts
from indextables.schema import ROW_IDENTITY
from indextables.xref.route import Router, Verdict


@dataclass(frozen=True, slots=True)
class SplitTask:
    """One split to read. `partition` holds the values of partition columns as Arrow scalars."""

    path: str
    size: int
    footer_start: int | None
    footer_end: int | None
    num_records: int | None
    partition: dict[str, Any]
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of planning kept."""

    name: str
    splits: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The splits to read, the columns to return, and how planning got there."""

    view: TableView
    predicate: Predicate
    columns: tuple[str, ...]
    limit: int | None
    tasks: tuple[SplitTask, ...]
    stages: tuple[Stage, ...] = field(default=())
    routing: Verdict | None = None
    """What the cross-references said, if they were asked."""

    @property
    def snapshot(self) -> Snapshot:
        """The version that is read."""
        return self.view.snapshot


def plan_scan(
    view: TableView,
    *,
    predicate: Predicate = TRUE,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    route: bool = True,
) -> ScanPlan:
    """Plan which splits of a table a predicate needs; without `route`, no XRef is asked."""
    snapshot = view.snapshot
    files = snapshot.entries
    chosen = checked_columns(snapshot, columns)
    stages = [_stage("table", files)]
    by_partition: list[Predicate] = []
    by_statistics: list[Predicate] = []
    for part in conjuncts(predicate):
        decided = partition_only(part, snapshot.partition_columns)
        (by_partition if decided else by_statistics).append(part)
    for name, parts in (("partitions", by_partition), ("statistics", by_statistics)):
        part = conjunction(*parts)
        if part != TRUE:
            keep = _keep(part, files, snapshot)
            files = files if keep.all() else files.filter(pa.array(keep))
        stages.append(_stage(name, files))
    verdict = None
    if route:
        files, verdict = route_files(view.router, predicate, files)
        if verdict.consulted:
            stages.append(_stage("xrefs", files))
    tasks = tuple(t for t in split_tasks(snapshot, files, predicate) if t.predicate != FALSE)
    return ScanPlan(view, predicate, chosen, limit, tasks, tuple(stages), verdict)


def route_files(router: Router, predicate: Predicate, files: pa.Table) -> tuple[pa.Table, Verdict]:
    """The files that cross-references do not rule out."""
    routing = router.route(predicate, files)
    if routing.keep.all():
        return files, routing.verdict
    return files.filter(pa.array(routing.keep)), routing.verdict


def split_tasks(snapshot: Snapshot, files: pa.Table, predicate: Predicate) -> list[SplitTask]:
    """A task for each of these files."""
    partitions = _partitions(snapshot, files)
    bound: dict[tuple[Any, ...], Predicate] = {}
    tasks = []
    rows = files.select(["path", "size", "footerStartOffset", "footerEndOffset", "numRecords"])
    for row, partition in zip(rows.to_pylist(), partitions, strict=True):
        if row["numRecords"] == 0:
            continue
        key = tuple(partition.values())
        if key not in bound:
            simple = bind_partition(predicate, partition)
            bound[key] = FALSE if simple == NULL else simple
        tasks.append(
            SplitTask(
                row["path"], row["size"], row["footerStartOffset"], row["footerEndOffset"],
                row["numRecords"], partition, bound[key],
            )
        )  # fmt: skip
    return tasks


def _keep(predicate: Predicate, files: pa.Table, snapshot: Snapshot) -> Flags:
    if not files.num_rows:
        return np.zeros(0, dtype=np.bool_)
    return keep_mask(
        predicate,
        files,
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
    )


def _partitions(snapshot: Snapshot, files: pa.Table) -> list[dict[str, Any]]:
    """The typed partition values of each file."""
    columns = {}
    for name in snapshot.partition_columns:
        texts: Any = lookup(files, "partitionValues", name)
        decoded = decode(texts, snapshot.schema.field(name).type)
        unread = ~decoded.is_known & np.asarray(pc.is_valid(texts))
        if unread.any():
            at = int(np.flatnonzero(unread)[0])
            raise CorruptLogError(
                files["path"][at].as_py(),
                f"its partition value {texts[at].as_py()!r} is no {snapshot.schema.field(name)}",
            )
        columns[name] = decoded.values
    return [{name: values[i] for name, values in columns.items()} for i in range(files.num_rows)]


def checked_columns(snapshot: Snapshot, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns that are asked for, all of them if none is named; unknown ones are refused."""
    known = snapshot.schema.names
    if columns is None:
        return tuple(known)
    if not columns:
        raise SchemaError("columns is empty. Name at least one; count() tells how many rows match.")
    for name in columns:
        if name not in known and name not in ROW_IDENTITY:
            raise UnknownColumnError(name, available=known)
    return tuple(columns)


def _stage(name: str, files: pa.Table) -> Stage:
    return Stage(name, files.num_rows, pc.sum(files["size"]).as_py() or 0)
