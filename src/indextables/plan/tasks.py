"""The splits that a plan reads, as columns until they are run.

A plan of a million splits is a filtered Arrow table and a handful of predicates. One task, the
object that reads a split, is made when it is asked for. In a task, conditions on partition columns
are already decided: they are evaluated on whole columns, and splits with the same answers share
one predicate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CorruptLogError
from indextables.log.files import VECTOR, vectors_by_path
from indextables.log.snapshot import Snapshot
from indextables.log.vectors import DeletionVector
from indextables.plan.statistics import decode, flags, lookup
from indextables.predicate import (
    FALSE,
    NULL,
    TRUE,
    And,
    Constant,
    Not,
    Or,
    Predicate,
    Search,
    columns,
    conjunction,
    disjunction,
    negation,
)
from indextables.split.row_filter import evaluate

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
            return self._chosen(np.arange(len(self))[index])
        at = range(len(self))[index]
        return next(iter(self._chosen(np.array([at]))))

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
        return self._chosen(np.flatnonzero(np.asarray(mask)))

    def _chosen(self, rows: np.ndarray[Any, np.dtype[np.intp]]) -> SplitTasks:
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
    can_match = np.array([one not in (FALSE, NULL) for one in predicates])[choices]
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
        taken = np.flatnonzero(np.bincount(ways))
        predicates = [
            bind(predicates[way // len(_ANSWERS)], {leaf: _ANSWERS[way % len(_ANSWERS)]})
            for way in taken.tolist()
        ]
        choices = np.searchsorted(taken, ways)
    return tuple(predicates), choices


def _answers(found: Any) -> np.ndarray[Any, np.dtype[np.int8]]:
    """The places of answers in `_ANSWERS`."""
    numbers = pc.fill_null(pc.cast(found, pa.int8()), _ANSWERS.index(NULL))
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
            (column,) = columns(node)
            if column.root in partition_columns:
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
        raise CorruptLogError(
            files["path"][at].as_py(), f"its partition value {texts[at].as_py()!r} is no {field}"
        )
    return decoded.values
