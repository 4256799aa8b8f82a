"""Planning a scan: from the live files of a snapshot to the splits that have to be read.

Everything here happens on the driver, on whole columns of the snapshot: partition values, then
statistics, then cross-references. Each stage may only keep too much. `explain_scan` says in words
what a plan does and why.

The splits of a plan stay columns until they are run (`SplitTasks`): a plan of a million splits is a
filtered Arrow table and a handful of predicates. A `SplitTask`, the object that reads a split, is
made when it is asked for. In a task, conditions on partition columns are already decided: they are
evaluated on whole columns, and splits with the same answers share one predicate.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CorruptLogError, SchemaError, UnknownColumnError
from indextables.log.files import VECTOR, vectors_by_path
from indextables.log.snapshot import Snapshot
from indextables.log.vectors import DeletionVector
from indextables.plan.column_names import names_of
from indextables.plan.skipping import FileStatistics, partition_only
from indextables.plan.statistics import Flags, decode, flags, lookup
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
    walk,
)
from indextables.schema import ROW_IDENTITY
from indextables.split.mapping import TableMapping
from indextables.split.row_filter import evaluate
from indextables.xref.route import Router, Verdict

logger = logging.getLogger(__name__)

_FACTS = (
    "path", "size", "footerStartOffset", "footerEndOffset", "numRecords",
    "hotcacheStartOffset", "hotcacheLength", "modificationTime",
)  # fmt: skip
TASK_COLUMNS = (*_FACTS, "partitionValues", VECTOR)
"""What tasks are made of."""
_ROWS_AT_ONCE = 4096
_ANSWERS = (FALSE, TRUE, NULL)


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
    vector: DeletionVector | None = None
    """Which of its rows are deleted; `num_records` counts the others."""
    opening: tuple[int, int] | None = None
    """Where the sections lie that every search of the split needs."""
    modified: int | None = None
    """When it was written, in milliseconds."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitTasks(Sequence[SplitTask]):
    """The splits to read, in the order of the log."""

    files: pa.Table
    partition_schema: pa.Schema
    predicates: tuple[Predicate, ...]
    """The different predicates; `choices` says which of them each split has."""
    choices: np.ndarray[Any, np.dtype[np.intp]]

    def __len__(self) -> int:
        return int(self.files.num_rows)

    @overload
    def __getitem__(self, index: int) -> SplitTask: ...
    @overload
    def __getitem__(self, index: slice) -> SplitTasks: ...
    def __getitem__(self, index: int | slice) -> SplitTask | SplitTasks:
        if isinstance(index, slice):
            return self.chosen(np.arange(len(self))[index])
        at = range(len(self))[index]
        return next(iter(self.chosen(np.array([at]))))

    def __iter__(self) -> Iterator[SplitTask]:
        for start in range(0, len(self), _ROWS_AT_ONCE):
            files = self.files.slice(start, _ROWS_AT_ONCE)
            values = partition_values(files, self.partition_schema)
            choices = self.choices[start : start + _ROWS_AT_ONCE].tolist()
            vectors = vectors_by_path(files)
            facts = [files[name].to_pylist() for name in _FACTS]
            for at, fact in enumerate(zip(*facts, strict=True)):
                path, size, begin, end, rows, hot, length, modified = fact
                partition = {name: column[at] for name, column in values.items()}
                predicate = self.predicates[choices[at]]
                vector = None
                if path in vectors:
                    vector = DeletionVector.from_json(vectors[path], path=path)
                opening = None if hot is None or length is None else (hot, hot + length)
                yield SplitTask(
                    path, size, begin, end, rows, partition, predicate, vector, opening, modified
                )

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the splits."""
        paths: Any = self.files["path"]
        return tuple(paths.to_pylist())

    @property
    def has_vectors(self) -> bool:
        """Whether rows of some split are deleted."""
        return self.files[VECTOR].null_count < len(self)

    @property
    def total_bytes(self) -> int:
        """The bytes of these splits."""
        return pc.sum(self.files["size"]).as_py() or 0

    @property
    def num_records(self) -> int | None:
        """How many rows they hold, if the log says so of each of them."""
        column: Any = self.files["numRecords"]
        return None if column.null_count else pc.sum(column).as_py() or 0

    @property
    def used(self) -> tuple[Predicate, ...]:
        """The predicates that splits are left with."""
        return tuple(self.predicates[n] for n in np.unique(self.choices))

    def with_paths_of(self, others: SplitTasks) -> SplitTasks:
        """Those of these splits that are among the others, too."""
        mask = pc.is_in(self.files["path"], value_set=others.files["path"].combine_chunks())
        return self.chosen(np.flatnonzero(np.asarray(mask)))

    def chosen(self, rows: np.ndarray[Any, np.dtype[np.intp]]) -> SplitTasks:
        """Some of the splits, by their places."""
        files = self.files.take(pa.array(rows))
        return SplitTasks(files, self.partition_schema, self.predicates, self.choices[rows])


def split_tasks(snapshot: Snapshot, files: pa.Table, predicate: Predicate) -> SplitTasks:
    """A task for each of these files in which a row may match."""
    names = snapshot.partition_columns
    schema = pa.schema([snapshot.schema.field(name) for name in names])
    kept = files.select(TASK_COLUMNS)
    rows: Any = kept["numRecords"]
    is_empty = flags(pc.fill_null(pc.equal(rows, pa.scalar(0)), False))
    if is_empty.any():
        kept = kept.filter(pa.array(~is_empty))
    predicates, choices = _bound(predicate, kept, schema)
    can_match = np.array([choice not in (FALSE, NULL) for choice in predicates])[choices]
    if not can_match.all():
        kept, choices = kept.filter(pa.array(can_match)), choices[can_match]
    return SplitTasks(kept, schema, predicates, choices)


def _bound(
    predicate: Predicate, files: pa.Table, schema: pa.Schema
) -> tuple[tuple[Predicate, ...], np.ndarray[Any, np.dtype[np.intp]]]:
    """What is left of a predicate in each file: the different ones, and a choice for each file."""
    leaves = list(dict.fromkeys(_decided(predicate, schema.names)))
    if not leaves or not files.num_rows:
        return (predicate,), np.zeros(files.num_rows, np.intp)
    rows = pa.table(partition_values(files, schema))
    predicates, choices = [predicate], np.zeros(files.num_rows, np.intp)
    for leaf in leaves:
        # Three ways on for each predicate so far, of which those are kept that a file takes.
        ways = choices * len(_ANSWERS) + _answers(evaluate(leaf, rows))
        used = np.flatnonzero(np.bincount(ways))
        predicates = [
            bind(predicates[way // len(_ANSWERS)], {leaf: _ANSWERS[way % len(_ANSWERS)]})
            for way in used.tolist()
        ]
        choices = np.searchsorted(used, ways)
    return tuple(predicates), choices


def _answers(answers: Any) -> np.ndarray[Any, np.dtype[np.int8]]:
    """The places of answers in `_ANSWERS`."""
    numbers = pc.fill_null(pc.cast(answers, pa.int8()), _ANSWERS.index(NULL))
    return np.asarray(numbers)


def _decided(node: Predicate, partition_columns: Sequence[str]) -> Iterator[Predicate]:
    """The conditions on partition columns."""
    match node:
        case And(children=children) | Or(children=children):
            for child in children:
                yield from _decided(child, partition_columns)
        case Not(child=child):
            yield from _decided(child, partition_columns)
        case Search() | Constant():
            return
        case _:
            if all(column.root in partition_columns for column in columns(node)):
                yield node


def bind(node: Predicate, answers: Mapping[Predicate, Predicate]) -> Predicate:
    """The predicate with the answers of conditions in their place."""
    match node:
        case And(children=children):
            return conjunction(*(bind(child, answers) for child in children))
        case Or(children=children):
            return disjunction(*(bind(child, answers) for child in children))
        case Not(child=child):
            return negation(bind(child, answers))
        case _:
            return answers.get(node, node)


def partition_values(files: pa.Table, schema: pa.Schema) -> dict[str, Any]:
    """The typed partition values of files, an array for each column."""
    return {field.name: _typed(files, field) for field in schema}


def _typed(files: pa.Table, field: Any) -> Any:
    texts: Any = lookup(files, "partitionValues", field.name)
    decoded = decode(texts, field.type)
    unread = ~decoded.is_known & np.asarray(pc.is_valid(texts))
    if unread.any():
        at = int(np.flatnonzero(unread)[0])
        problem = f"its partition value {texts[at].as_py()!r} is not a value of {field}"
        raise CorruptLogError(files["path"][at].as_py(), problem)
    return decoded.values


# --- from a predicate to the splits ----------------------------------------------------------

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
    available = snapshot.schema.names
    if columns is None:
        return tuple(available)
    if not columns:
        raise SchemaError(
            "columns is empty. Name at least one; count() returns how many rows match."
        )
    for name in columns:
        if name not in available and name not in ROW_IDENTITY:
            raise UnknownColumnError(name, available=available)
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
    ways = dict.fromkeys(_access(predicate, plan.view.mapping) for predicate in plan.tasks.used)
    lines.append(f"  read       {len(plan.tasks):>8,} splits  {'; '.join(ways)}".rstrip())
    if plan.view.elsewhere is not None:
        lines.append(f"  source     {plan.view.elsewhere}")
    return "\n".join(lines)


def _share(part: int, total: int) -> str:
    return f"({100 * part / max(1, total):.0f} %)"


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
