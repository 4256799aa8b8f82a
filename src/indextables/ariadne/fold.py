"""Folding the rows of files into one index row a file, in one pass.

A `FileFold` sees the rows of one file batch by batch and keeps, for every declaration at once, the
distinct values, the filter's hashes, the bounds, the newest times, the words, the nulls. At the end
it gives either the finished index row, or, when Spark read the file in several tasks, its state
in parts (`partials`) that another fold takes in (`merge`).

An array is never exploded into rows: Spark hands over the arrays of the field, and only their
elements are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.column_fold import LargeSink, Target, column_fold


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
        `repeated` tells of how many rows of the file each of these is one.
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


def _list_of(kind: Any, values: Any) -> Any:
    """A list array with one list."""
    if values is None:
        return pa.array([[]], kind)
    offsets = pa.array([0, len(values)], pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=kind)


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


def _lists(cells: Sequence[Any], kind: Any) -> Any:
    full = [cell for cell in cells if cell is not None]
    values = pa.concat_arrays(full).cast(kind.value_type) if full else pa.array([], kind.value_type)
    lengths = np.array([0, *(0 if c is None else len(c) for c in cells)])
    mask = pa.array([cell is None for cell in cells])
    return pa.ListArray.from_arrays(
        pa.array(np.cumsum(lengths), pa.int32()), values, type=kind, mask=mask
    )


def _plain(cell: Any) -> Any:
    if isinstance(cell, dict):
        return {name: _plain(value) for name, value in cell.items()}
    return cell
