"""Planning a scan: from the live files of a snapshot to the splits that have to be read.

Everything here happens on the driver, on whole columns of the snapshot: partition values, then
statistics, then cross-references. Each stage may only keep too much.

What a plan does and why, in words.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import SchemaError, UnknownColumnError
from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import names_of
from indextables.plan.skipping import FileStatistics, partition_only
from indextables.plan.statistics import Flags
from indextables.plan.tasks import TASK_COLUMNS, SplitTasks, split_tasks
from indextables.plan.view import TableView
from indextables.predicate import (
    TRUE,
    And,
    Compare,
    In,
    Not,
    Or,
    Predicate,
    Search,
    conjunction,
    conjuncts,
    walk,
)
from indextables.schema import ROW_IDENTITY
from indextables.split.mapping import TableMapping
from indextables.xref.route import Router, Verdict

logger = logging.getLogger(__name__)

_NETWORK = re.compile(r"[0-9A-Fa-f:.]+/\d{1,3}|[\d.]*\*[\d.*]*")
_STATISTICS = ("minValues", "maxValues", "stats")


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
    tasks: SplitTasks
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
    chosen = checked_columns(snapshot, columns)
    by_partition: list[Predicate] = []
    by_statistics: list[Predicate] = []
    _warn_of_networks(view, predicate)
    for part in conjuncts(predicate):
        decided = partition_only(part, snapshot.partition_columns)
        (by_partition if decided else by_statistics).append(part)
    needed = list(TASK_COLUMNS)
    if not all(isinstance(part, Search) for part in by_statistics):
        needed += _STATISTICS
    files = snapshot.entries.select(needed)
    stages = [_stage("table", files)]
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
    tasks = split_tasks(snapshot, files, predicate)
    return ScanPlan(view, predicate, chosen, limit, tasks, tuple(stages), verdict)


def _warn_of_networks(view: TableView, predicate: Predicate) -> None:
    """Say that addresses are compared with a network as text, which finds nothing."""
    for leaf in walk(predicate):
        if not isinstance(leaf, (Compare, In)):
            continue
        for value in (leaf.value,) if isinstance(leaf, Compare) else leaf.values:
            if not isinstance(value, str) or not _NETWORK.fullmatch(value):
                continue
            field = view.mapping.by_name.get(leaf.column.root)
            if field is not None and field.kind == "ip":
                logger.warning(
                    "Comparisons of addresses are those of text, and no address is '%s'. Write "
                    "%s indexquery '%s' to find those of the network.",
                    value,
                    view.names.shown_name(field.name),
                    value,
                )


def route_files(router: Router, predicate: Predicate, files: pa.Table) -> tuple[pa.Table, Verdict]:
    """The files that cross-references do not rule out."""
    routing = router.route(predicate, files)
    if routing.keep.all():
        return files, routing.verdict
    return files.filter(pa.array(routing.keep)), routing.verdict


def _keep(predicate: Predicate, files: pa.Table, snapshot: Snapshot) -> Flags:
    if not files.num_rows:
        return np.zeros(0, dtype=np.bool_)
    if files.num_rows == snapshot.entries.num_rows:
        return FileStatistics.of(snapshot).keep(predicate)
    parts = frozenset(snapshot.partition_columns)
    return FileStatistics(files, snapshot.schema, parts).keep(predicate)


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
    ways = dict.fromkeys(_access(one, plan.view.mapping) for one in plan.tasks.used)
    lines.append(f"  read       {len(plan.tasks):>8,} splits  {'; '.join(ways)}".rstrip())
    if plan.view.elsewhere is not None:
        lines.append(f"  source     {plan.view.elsewhere}")
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
