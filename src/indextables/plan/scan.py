"""Planning a scan: from the live files of a snapshot to the splits that have to be read.

Everything here happens on the driver, on whole columns of the snapshot: partition values, then
statistics, then cross-references. Each stage may only keep too much. What is left becomes tasks,
one a split, in which conditions on partition columns are already decided.

A predicate as one split sees it: partition columns are constants there.

What a plan does and why, in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CorruptLogError, SchemaError, UnknownColumnError
from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import names_of
from indextables.plan.skipping import keep_mask, partition_only
from indextables.plan.statistics import Flags, decode, lookup
from indextables.plan.view import TableView
from indextables.predicate import (
    FALSE,
    NULL,
    TRUE,
    And,
    Compare,
    Constant,
    In,
    Not,
    Or,
    Predicate,
    Search,
    columns,
    conjunction,
    conjuncts,
    disjunction,
    negation,
)
from indextables.schema import ROW_IDENTITY
from indextables.split.mapping import TableMapping
from indextables.split.row_filter import evaluate
from indextables.xref.route import Router, Verdict


def bind_partition(predicate: Predicate, partition: Mapping[str, Any]) -> Predicate:
    """The predicate with every condition on partition columns decided.

    `partition` holds Arrow scalars. Searches stay as they are.
    """
    match predicate:
        case And(children=children):
            return conjunction(*(bind_partition(child, partition) for child in children))
        case Or(children=children):
            return disjunction(*(bind_partition(child, partition) for child in children))
        case Not(child=child):
            return negation(bind_partition(child, partition))
        case Search() | Constant():
            return predicate
        case _:
            (column,) = columns(predicate)
            if column.root not in partition:
                return predicate
            value = partition[column.root]
            row = pa.table({column.root: pa.repeat(value, 1)})
            answer = evaluate(predicate, row)[0].as_py()
            return {True: TRUE, False: FALSE, None: NULL}[answer]


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
    tasks = tuple(possible(split_tasks(snapshot, files, predicate)))
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
    columns = ["path", "size", "footerStartOffset", "footerEndOffset", "numRecords"]
    rows = zip(*(files[name].to_pylist() for name in columns), partitions, strict=True)
    for path, size, start, end, count, partition in rows:
        if count == 0:
            continue
        key = tuple(partition.values())
        simple = bound.get(key)
        if simple is None:
            simple = bind_partition(predicate, partition)
            bound[key] = simple = FALSE if simple == NULL else simple
        tasks.append(SplitTask(path, size, start, end, count, partition, simple))
    return tasks


def possible(tasks: Sequence[SplitTask]) -> list[SplitTask]:
    """The tasks whose partition does not deny their predicate."""
    return [t for t in tasks if not isinstance(t.predicate, Constant) or t.predicate != FALSE]


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
    if not columns:
        return [{}] * files.num_rows
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


_WHY = {
    "table": "live splits of the version",
    "partitions": "kept by partition values",
    "statistics": "kept by minimum, maximum and null counts",
    "xrefs": "kept by cross-references",
}


def explain_scan(plan: ScanPlan) -> str:
    """The stages of a plan, and how each split will be read."""
    snapshot = plan.snapshot
    names = names_of(snapshot)
    where = names.shown_predicate(plan.predicate)
    lines = [
        f"Scan of {snapshot.uri} at version {snapshot.version}",
        f"  where    {where if plan.predicate != TRUE else '(everything)'}",
        f"  columns  {', '.join(names.shown_names(plan.columns))}",
    ]
    if plan.limit is not None:
        lines.append(f"  limit    {plan.limit:,}")
    first = plan.stages[0]
    for stage in plan.stages:
        splits, size = _share(stage.splits, first.splits), _share(stage.bytes, first.bytes)
        kept = f"{stage.splits:>8,} splits {splits:>7}  {stage.bytes:>15,} bytes {size:>7}"
        lines.append(f"  {stage.name:<11}{kept}  {_WHY[stage.name]}")
    if plan.routing is not None:
        lines.append(f"  routing    {plan.routing}")
    ways = dict.fromkeys(_access(task.predicate, plan.view.mapping) for task in plan.tasks)
    lines.append(f"  read       {len(plan.tasks):>8,} splits  {'; '.join(ways)}".rstrip())
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"({100 * part / max(1, whole):.0f} %)"


def _access(predicate: Predicate, mapping: TableMapping) -> str:
    if predicate == TRUE:
        return "Parquet columns, no index needed"
    if _exact(predicate):
        return "the index decides, then Parquet columns of the matching rows"
    if _proposes(predicate, mapping):
        return "the index proposes rows, their values decide"
    return "no index helps: Parquet columns of the condition, then of the matching rows"


def _exact(node: Predicate) -> bool:
    match node:
        case Search():
            return True
        case And(children=children) | Or(children=children):
            return all(_exact(child) for child in children)
        case Not(child=child):
            return _exact(child)
        case _:
            return False


def _proposes(node: Predicate, mapping: TableMapping) -> bool:
    match node:
        case And(children=children):
            return any(_proposes(child, mapping) for child in children)
        case Or(children=children):
            return all(_proposes(child, mapping) for child in children)
        case Compare(op="=", column=column, value=str()) | In(column=column):
            field = mapping.by_name.get(column.root)
            return field is not None and field.kind in ("text", "string") and bool(field.field)
        case _:
            return _exact(node)
