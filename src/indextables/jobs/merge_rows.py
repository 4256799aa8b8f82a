"""Merging rows into a table by their keys, in this process: what matches changes, the rest is new.

The keys of the rows choose splits and rows, as a condition does. Keys of those are joined with the
rows; null equals nothing. New rows, and the names of the rows that they replace, then go through
the write job of a MERGE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import SchemaError, UnknownColumnError
from indextables.jobs.write_target import Target
from indextables.plan.execute import Environment
from indextables.plan.scan import plan_scan
from indextables.plan.tasks import SplitTask
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Column, Compare, In, Predicate, conjunction
from indextables.schema import ROW, ROW_ACTION, SPLIT, conform
from indextables.split.row_numbers import RowNumbers

WhenMatched = Literal["update", "delete", "ignore"]
WhenNotMatched = Literal["insert", "ignore"]

_MOST_VALUES = 1_000
"""More values than these are looked for by their least and greatest."""
_AT = "_indextables_at"
_PIECE = 65_536
_NO_ROWS = np.zeros(0, dtype=np.int64)


def merge_batches(
    view: TableView,
    target: Target,
    source: pa.Table,
    *,
    on: Sequence[str],
    when_matched: WhenMatched,
    when_not_matched: WhenNotMatched,
) -> Iterator[pa.RecordBatch]:
    """The rows that a merge by the columns `on` writes, with the names of those that they replace.

    `source` has the names of columns that users see.
    """
    _check_keys(on, source.schema, view)
    environment = Environment.of(view)
    found = list(_matches(view, target, source, on, environment))
    if when_matched != "ignore":
        for task, numbers, at in found:
            for start in range(0, len(numbers), _PIECE):
                some = slice(start, start + _PIECE)
                rows = source.take(at[some])
                if when_matched == "update":
                    searcher = environment.searcher(task)
                    rows = _completed(rows, target, view, searcher, numbers[some])
                yield from _named(rows, target, when_matched, task.path, numbers[some])
    if when_not_matched == "insert":
        matched = [at for _, _, at in found]
        new = np.setdiff1d(np.arange(source.num_rows), np.concatenate(matched or [_NO_ROWS]))
        yield from _named(source.take(new), target, "insert")


def _matches(
    view: TableView,
    target: Target,
    source: pa.Table,
    on: Sequence[str],
    environment: Environment,
) -> Iterator[tuple[SplitTask, RowNumbers, RowNumbers]]:
    """Rows of each split and the rows of the source that match them, pair by pair."""
    stored = dict(zip(target.shown.names, target.schema.names, strict=True))
    names = [stored[name] for name in on]
    wanted = pa.schema([target.shown.field(name).with_nullable(True) for name in on])
    keys = conform(source.select(list(on)), wanted).rename_columns(names)
    keyed = _comparable(keys).append_column(_AT, pa.array(np.arange(source.num_rows), pa.int64()))
    predicate = conjunction(*(_among(name, keys[name]) for name in names))
    for task in plan_scan(view, predicate=predicate).tasks:
        rows = environment.rows(task)
        numbers = rows.matching()
        if numbers is None:
            numbers = np.arange(rows.total)
        if len(numbers):
            here = _comparable(rows.searcher.read_rows(numbers, names))
            here = here.append_column(ROW, pa.array(numbers, pa.int64()))
            pairs = here.join(keyed, keys=names, join_type="inner")
            if pairs.num_rows:
                yield task, np.asarray(pairs[ROW]), np.asarray(pairs[_AT])


def _comparable(keys: pa.Table) -> pa.Table:
    """Keys of which equal ones have equal bits: Arrow joins by those."""
    for at, field in enumerate(keys.schema):
        if pa.types.is_floating(field.type):
            column: Any = keys.column(at)
            nan = pa.scalar(float("nan"), field.type)
            unsigned = pc.add(column, pa.scalar(0.0, field.type))  # -0.0 becomes 0.0
            keys = keys.set_column(at, field, pc.if_else(pc.is_nan(column), nan, unsigned))
    return keys


def _check_keys(on: Sequence[str], incoming: pa.Schema, view: TableView) -> None:
    if not on:
        raise SchemaError("on is empty. Name the columns whose values make rows the same.")
    for name in on:
        if name not in view.names.shown.names:
            raise UnknownColumnError(name, available=view.names.shown.names)
        if name not in incoming.names:
            raise UnknownColumnError(name, available=incoming.names)
        if pa.types.is_nested(view.names.shown.field(name).type):
            raise SchemaError(f"'{name}' holds lists or structs, which cannot be keys of a merge.")


def _among(name: str, values: pa.ChunkedArray[Any]) -> Predicate:
    """A condition that all rows with one of these values meet."""
    column = Column((name,))
    if not (pa.types.is_integer(values.type) or pa.types.is_string(values.type)):
        return TRUE
    different: list[Any] = pc.unique(values).drop_null().to_pylist()
    if len(different) <= _MOST_VALUES:
        return In(column, tuple(different))
    low, high = min(different), max(different)
    return conjunction(Compare(">=", column, low), Compare("<=", column, high))


def _completed(
    rows: pa.Table, target: Target, view: TableView, searcher: Any, numbers: RowNumbers
) -> pa.Table:
    """The rows with the old values of columns that they lack."""
    old = view.names.shown.names
    lacking = [name for name in old if name not in rows.column_names]
    if lacking:
        kept = searcher.read_rows(numbers, view.names.stored_names(lacking))
        for name, column in zip(lacking, kept.columns, strict=True):
            rows = rows.append_column(target.shown.field(name).with_nullable(True), column)
    return rows


def _named(
    rows: pa.Table,
    target: Target,
    what: str,
    path: str | None = None,
    numbers: RowNumbers | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows in the table's columns, with the names of those that they replace."""
    count = rows.num_rows
    full = conform(rows, pa.schema([f.with_nullable(True) for f in target.shown]))
    identity: Any = pa.repeat(pa.scalar(path, pa.string()), count)
    places: Any = pa.nulls(count, pa.int64()) if numbers is None else pa.array(numbers)
    action: Any = pa.repeat("delete" if what == "delete" else "write", count)
    full = full.append_column(SPLIT, identity).append_column(ROW, places)
    yield from full.append_column(ROW_ACTION, action).to_batches(max_chunksize=_PIECE)
