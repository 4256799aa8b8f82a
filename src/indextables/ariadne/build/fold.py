"""Folding the rows of files into one index row a file, in one pass.

A `FileFold` takes the rows of one file batch by batch and keeps, for every declaration at once, the
distinct values, the filter's hashes, the bounds, the newest times, the words, the nulls. At the end
it returns either the finished index row or, when Spark read the file in several tasks, its state in
parts (`partials`) that another fold takes in (`merge`).

There is one class for each kind of index, all with the same methods: `add` takes a batch of rows,
`parts` returns the state in pieces for `merge`, `finish` returns the cells of the index row,
`close` frees temporary files.

An array is never exploded into rows: Spark returns the arrays of the field, and only their elements
are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.declarations import VALUE_KINDS, Declaration
from indextables.ariadne.metadata import columns_of
from indextables.ariadne.values import bloom
from indextables.ariadne.values.hashing import Distinct, DistinctHashes, hash_values, unique
from indextables.ariadne.values.words import WordList

_PART = 1 << 17
"""Values in one row of partial results."""


@dataclass(frozen=True, slots=True)
class Target:
    """One declaration with the types it is folded in."""

    declaration: Declaration
    value_type: Any
    time: Any = None

    @property
    def schema(self) -> pa.Schema:
        """The columns it fills in an index row."""
        return columns_of(self.declaration, self.value_type, self.time)

    @property
    def partial(self) -> pa.DataType:
        """The type of its partial results."""
        match self.declaration.kind:
            case "bloom":
                element: Any = pa.uint64()
            case "temporal":
                element = pa.struct(
                    [pa.field("value", self.value_type), pa.field("max_ts", self.time)]
                )
            case _:
                element = self.value_type
        return pa.list_(pa.field("element", element))


class LargeSink(Protocol):
    """Takes the values of a file that has too many; returns their identity, number and filter."""

    def __call__(
        self, column: str, filename: str, values: Distinct, /
    ) -> tuple[str, int, bytes | None]: ...


class _Values:
    """A regular, computed or exploded index column."""

    def __init__(self, target: Target, limit: int) -> None:
        self._target = target
        self._values = Distinct(target.value_type, limit=limit)
        self.nulls = 0

    def add(self, column: Any, _time: Any) -> None:
        if self._target.declaration.kind == "exploded":
            self.nulls += column.null_count
            column = column.flatten()
        self.nulls += column.null_count
        self._values.add(column)

    def parts(self) -> Iterator[Any]:
        for piece in self._values.pieces():
            yield from _cut(piece)

    def merge(self, part: Any, nulls: int) -> None:
        self.nulls += nulls
        self._values.add(part)

    def finish(self, filename: str, large: LargeSink) -> list[Any]:
        if not self._values.is_large:
            distinct = self._values.array()
            return [distinct, self.nulls, len(distinct), None, None]
        name = self._target.declaration.name
        identity, count, filter_ = large(name, filename, self._values)
        return [None, self.nulls, count, identity, filter_]

    def close(self) -> None:
        self._values.close()


class _Bloom:
    def __init__(self, fpr: float) -> None:
        self._fpr = fpr
        self._hashes = DistinctHashes()
        self._repeats = True
        self.nulls = 0

    def add(self, column: Any, _time: Any) -> None:
        self.nulls += column.null_count
        column = column.drop_null()
        if self._repeats:
            # Where nearly every value is new, looking for repeated ones saves no hashing.
            distinct = unique(column)
            self._repeats = len(distinct) < 0.9 * len(column)
            column = distinct
        self._hashes.add(hash_values(column))

    def parts(self) -> Iterator[Any]:
        # A null among the hashes says that there are too many of them.
        distinct = self._hashes.array()
        yield from _cut(pa.array([None] if self._hashes.too_many else distinct, pa.uint64()))

    def merge(self, part: Any, nulls: int) -> None:
        self.nulls += nulls
        self._hashes.too_many |= part.null_count > 0
        self._hashes.add(np.asarray(part.drop_null()))

    def finish(self, _filename: str, _large: LargeSink) -> list[Any]:
        distinct = self._hashes.array()
        filter_ = None if self._hashes.too_many else bloom.build(distinct, self._fpr)
        return [filter_, self.nulls]

    def close(self) -> None:
        return None


class _Range:
    def __init__(self, target: Target) -> None:
        self._bounds: Any = pa.array([], target.value_type)
        self.nulls = 0

    def add(self, column: Any, _time: Any) -> None:
        self.nulls += column.null_count
        self._take(column)

    def _take(self, column: Any) -> None:
        self._bounds = pa.concat_arrays([self._bounds, *bounds(column)])
        if len(self._bounds) > 1024:
            self._bounds = pa.concat_arrays(bounds(self._bounds))

    def parts(self) -> Iterator[Any]:
        yield self._bounds

    def merge(self, part: Any, nulls: int) -> None:
        self.nulls += nulls
        self._take(part)

    def finish(self, _filename: str, _large: LargeSink) -> list[Any]:
        ends = bounds(self._bounds)
        low, high = (ends[0][0], ends[-1][0]) if ends else (None, None)
        return [{"min": low, "max": high}, self.nulls]

    def close(self) -> None:
        return None


def bounds(column: Any) -> list[Any]:
    """The least and the greatest value, as arrays of one; none if all are null.

    Spark's order: NaN is greater than every number.
    """
    column = column.drop_null()
    if not len(column):
        return []
    ends: Any = pc.min_max(column)
    low, high = pa.array([ends["min"]], column.type), pa.array([ends["max"]], column.type)
    if pa.types.is_floating(column.type):
        is_nan = pc.is_nan(column)
        if pc.any(is_nan).as_py():
            high = pa.array([float("nan")], column.type)
            low = high if pc.all(is_nan).as_py() else low
    return [low, high]


class _Temporal:
    """Values with their newest time. More than `limit` are dropped: nothing is known then."""

    def __init__(self, target: Target, limit: int) -> None:
        self._type: Any = target.partial
        self._limit = limit
        self._newest = pa.table(
            {"value": pa.array([], target.value_type), "max_ts": pa.array([], target.time)}
        )
        self._waiting: list[pa.Table] = []
        self._given_up = False
        self.nulls = 0

    def add(self, column: Any, time: Any) -> None:
        self.nulls += column.null_count
        self._take(pa.table({"value": column, "max_ts": time}).filter(column.is_valid()))

    def _take(self, rows: pa.Table) -> None:
        if self._given_up:
            return
        self._waiting.append(_newest(rows))
        if sum(t.num_rows for t in self._waiting) >= max(1 << 16, self._newest.num_rows):
            self._settle()

    def _settle(self) -> None:
        self._newest = _newest(pa.concat_tables([self._newest, *self._waiting]))
        self._waiting = []
        if self._newest.num_rows > self._limit:
            self._given_up = True
            self._newest = self._newest.slice(0, 0)

    def parts(self) -> Iterator[Any]:
        self._settle()
        if self._given_up:
            yield pa.array([None], self._type.value_type)
            return
        yield from _cut(self._newest.to_struct_array().combine_chunks())

    def merge(self, part: Any, nulls: int) -> None:
        self.nulls += nulls
        if part.null_count:
            self._given_up = True
        elif len(part):
            self._take(pa.table(dict(zip(("value", "max_ts"), part.flatten(), strict=True))))

    def finish(self, _filename: str, _large: LargeSink) -> list[Any]:
        self._settle()
        if self._given_up:
            return [None, self.nulls]
        return [self._newest.to_struct_array().combine_chunks(), self.nulls]

    def close(self) -> None:
        return None


def _newest(rows: pa.Table) -> pa.Table:
    times: Any = rows.column("max_ts")
    if not pa.types.is_floating(times.type):
        latest = rows.group_by("value").aggregate([("max_ts", "max")])
        return latest.rename_columns(["value", "max_ts"]).cast(rows.schema)
    # Spark's order again, in which NaN is the newest; Arrow passes over it.
    is_nan: Any = pc.is_nan(times)
    groups = rows.append_column("nan", is_nan).group_by("value")
    latest = groups.aggregate([("max_ts", "max"), ("nan", "any")])
    has_nan: Any = latest.column("nan_any")
    newest: Any = latest.column("max_ts_max")
    nan = pa.scalar(float("nan"), times.type)
    newest = pc.if_else(pc.fill_null(has_nan, False), nan, newest)
    return pa.table([latest.column("value"), newest], schema=rows.schema)


class _Text:
    """Words of a file. State in parts are the texts themselves: words are not split twice."""

    def __init__(self, *, partial: bool) -> None:
        self._words = WordList()
        self._texts: Distinct | None = Distinct(pa.string(), limit=0) if partial else None
        self.nulls = 0

    def add(self, column: Any, _time: Any) -> None:
        self.nulls += column.null_count
        if self._texts is None:
            self._words.add(column.drop_null())
        else:
            self._texts.add(column)

    def parts(self) -> Iterator[Any]:
        assert self._texts is not None
        for piece in self._texts.pieces():
            yield from _cut(piece)

    def merge(self, part: Any, nulls: int) -> None:
        self.nulls += nulls
        self._words.add(part)

    def finish(self, _filename: str, _large: LargeSink) -> list[Any]:
        return [self._words.finish(), self.nulls]

    def close(self) -> None:
        if self._texts is not None:
            self._texts.close()


def _cut(values: Any) -> Iterator[Any]:
    for start in range(0, len(values), _PART):
        yield values.slice(start, _PART)


def column_fold(target: Target, *, limit: int, partial: bool) -> Any:
    """The empty state of a column."""
    match target.declaration.kind:
        case "bloom":
            return _Bloom(target.declaration.fpr)  # type: ignore[union-attr]
        case "range":
            return _Range(target)
        case "temporal":
            return _Temporal(target, limit)
        case "text":
            return _Text(partial=partial)
        case kind:
            assert kind in VALUE_KINDS
            return _Values(target, limit)


class FileFold:
    """The state of one file, for all declarations."""

    def __init__(self, targets: Sequence[Target], *, limit: int, partial: bool = False) -> None:
        self._targets = targets
        self._columns = [column_fold(t, limit=limit, partial=partial) for t in targets]
        self.rows = 0

    def add(
        self, rows: int, columns: Sequence[Any], times: Sequence[Any], *, repeated: Any = None
    ) -> None:
        """Take in rows: one array a declaration, and the times of the temporal ones.

        Instead of an array there is None for a declaration whose values come another time.
        `repeated` says how many rows of the file each of these stands for.
        """
        self.rows += rows
        for state, column, time in zip(self._columns, columns, times, strict=True):
            if column is not None:
                state.add(column, time)
                if repeated is not None and column.null_count:
                    of_nulls: Any = pc.sum(repeated.filter(column.is_null()))
                    state.nulls += of_nulls.as_py() - column.null_count

    def partials(self) -> Iterator[pa.RecordBatch]:
        """The state, in batches of one row with a bounded number of values each."""
        schema = partial_schema(self._targets)
        streams = [state.parts() for state in self._columns]
        counts: list[Any] = [self.rows, *(state.nulls for state in self._columns)]
        while True:
            parts = [next(stream, None) for stream in streams]
            if all(part is None for part in parts) and counts[0] is None:
                return
            lists = [
                _list_of(t.partial, part) for t, part in zip(self._targets, parts, strict=True)
            ]
            numbers = [pa.array([n], pa.int64()) for n in counts]
            yield pa.RecordBatch.from_arrays([*numbers, *lists], schema=schema)
            counts = [None] * len(counts)

    def merge(self, batch: pa.RecordBatch) -> None:
        """Take in one batch of `partials` of another fold of the same file."""
        count = len(self._columns)
        self.rows += batch.column(0)[0].as_py() or 0
        for number, state in enumerate(self._columns):
            nulls = batch.column(1 + number)[0].as_py() or 0
            part: Any = batch.column(1 + count + number)
            state.merge(part.flatten(), nulls)

    def finish(self, filename: str, large: LargeSink) -> dict[str, Any]:
        """The columns of the index row. Arrays are Arrow arrays."""
        row: dict[str, Any] = {"row_count": self.rows}
        for target, state in zip(self._targets, self._columns, strict=True):
            names = target.schema.names
            row.update(zip(names, state.finish(filename, large), strict=True))
        return row

    def close(self) -> None:
        """Free temporary files."""
        for state in self._columns:
            state.close()


def partial_schema(targets: Sequence[Target]) -> pa.Schema:
    """The columns of partial results: counts first, then one list a declaration."""
    numbers = [pa.field("rows", pa.int64())]
    numbers += [pa.field(f"nulls{n}", pa.int64()) for n in range(len(targets))]
    return pa.schema([*numbers, *(pa.field(f"c{n}", t.partial) for n, t in enumerate(targets))])


def _list_of(data_type: Any, values: Any) -> Any:
    """A list array with one list."""
    if values is None:
        return pa.array([[]], data_type)
    offsets = pa.array([0, len(values)], pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=data_type)


def row_batch(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Index rows as a record batch; a column that a row lacks is null."""
    columns = []
    for field in schema:
        cells = [row.get(field.name) for row in rows]
        if any(isinstance(cell, pa.Array) for cell in cells):
            columns.append(_lists(cells, field.type))
        else:
            columns.append(pa.array([_plain(cell) for cell in cells], field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _lists(cells: Sequence[Any], data_type: Any) -> Any:
    full = [cell for cell in cells if cell is not None]
    values = (
        pa.concat_arrays(full).cast(data_type.value_type)
        if full
        else pa.array([], data_type.value_type)
    )
    lengths = np.array([0, *(0 if c is None else len(c) for c in cells)])
    mask = pa.array([cell is None for cell in cells])
    return pa.ListArray.from_arrays(
        pa.array(np.cumsum(lengths), pa.int32()), values, type=data_type, mask=mask
    )


def _plain(cell: Any) -> Any:
    if isinstance(cell, dict):
        return {name: _plain(value) for name, value in cell.items()}
    return cell
