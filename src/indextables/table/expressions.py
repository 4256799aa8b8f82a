"""Expressions over rows: conditions as Arrow has them, and what rows are ranked by, as SQL.

Arrow does not show what an expression is made of, so neither statistics nor an index narrow it:
rows are read, then filtered by Arrow. A condition as text, or as a predicate of ours, is planned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from indextables.errors import EmbeddedQueryError, UnknownColumnError, UnsupportedPredicateError
from indextables.plan.view import TableView
from indextables.runner import check_stop
from indextables.schema import SCORE
from indextables.split.scoring import Hits, Read

_UNKNOWN = re.compile(r"No match for FieldRef\.(?:Nested\(FieldRef\.)?Name\((?P<name>.*?)\)")


def columns_of(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """The columns that an expression reads.

    >>> schema = pa.schema([("a", pa.int8()), ("b", pa.int8()), ("c", pa.int8())])
    >>> sorted(columns_of((pc.field("b") > 1) & pc.field("a").is_valid(), schema))
    ['a', 'b']
    """
    known: list[str] = []
    while True:
        try:
            pa.schema([schema.field(name) for name in known]).empty_table().filter(expression)
        except pa.ArrowInvalid as error:
            found = _UNKNOWN.search(str(error))
            name = found and found["name"]
            if name is None:
                raise UnsupportedPredicateError(str(expression), str(error)) from None
            if name not in schema.names or name in known:
                raise UnknownColumnError(name, available=schema.names) from None
            known.append(name)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise UnsupportedPredicateError(str(expression), str(error)) from None
        else:
            return known


def filtered(
    batches: Iterable[pa.RecordBatch],
    expression: pc.Expression,
    columns: Sequence[str],
    limit: int | None,
) -> Iterator[pa.RecordBatch]:
    """The rows that an expression keeps, some columns of them."""
    left = limit
    for batch in batches:
        if left == 0:
            return
        kept: Any = pa.Table.from_batches([batch]).filter(expression).select(list(columns))
        if left is not None:
            kept = kept.slice(0, left)
            left -= kept.num_rows
        yield from kept.to_batches()


_HIT, _VALUE = "_indextables_hit", "_indextables_value"
_RANKED = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean,
    pa.types.is_null,
)  # fmt: skip
"""Types of what rows are ranked by."""
_ROWS_AT_ONCE = 65_536


def rank_values(
    expression: str, view: TableView, hits: Hits, read: Read
) -> npt.NDArray[np.float64]:
    """The value of an expression of SQL for each hit, NaN where it is null.

    The engine of `indextables.sql` computes it. Of the hits, columns that it reads are in memory
    for some at a time.
    """
    import indextables

    shown = repr(expression if len(expression) <= 200 else f"{expression[:200]}…")
    hit, taken = _HIT, {name.lower() for name in view.names.shown.names}
    while hit in taken:
        hit += "_"
    select = f"SELECT `{hit}`, (\n{expression}\n) AS `{_VALUE}` FROM hits"
    try:
        found: Any = indextables.sql(select, hits=_HitRows(view, hits, read, hit))
    except EmbeddedQueryError as error:
        reason = str(error).replace(f', "{hit}"', "")
        if hit in reason:  # which is in no group
            reason = "it is an aggregate. Write one with OVER (…), or (SELECT max(…) FROM hits)."
        raise EmbeddedQueryError(f"rank_by={shown} cannot be computed: {reason}") from None
    if found.num_columns != 2 or found.num_rows != len(hits):
        raise EmbeddedQueryError(
            f"rank_by={shown} is not one expression that has a value for each row."
        )
    kind = found.schema.types[1]
    if not any(is_kind(kind) for is_kind in _RANKED):
        raise EmbeddedQueryError(
            f"rank_by={shown} is {kind}, not a number. Write an expression that is one, "
            "such as unix_timestamp(at) or length(name)."
        )
    values = np.full(len(hits), np.nan)
    numbers = found[1].cast(pa.float64()).to_numpy()  # a null is NaN
    values[found[0].to_numpy()] = numbers
    return values


class _HitRows(ds.Dataset):
    """Hits with their scores and columns, as the engine of SQL sees them."""

    def __init__(self, view: TableView, hits: Hits, read: Read, hit: str) -> None:
        # The base class is a handle on a data set of Arrow's own, which this is not.
        self.view, self.hits, self.read, self.hit = view, hits, read, hit
        fields: list[Any] = [f.with_nullable(True) for f in view.names.shown]
        fields += [pa.field(hit, pa.int64()), pa.field(SCORE, pa.float32())]
        self.columns = pa.schema(fields)

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    def scanner(  # type: ignore[override]
        self,
        *,
        columns: list[str] | None = None,
        filter: Any = None,  # noqa: A002
        **_: Any,
    ) -> ds.Scanner:
        names = self.columns.names if columns is None else columns
        schema = pa.schema([self.columns.field(name) for name in names])
        batches = self._batches(self.columns.names if filter is not None else names)
        if filter is not None:
            batches = (table.filter(filter) for table in batches)
        parts = (
            batch for table in batches for batch in table.select(names).cast(schema).to_batches()
        )
        return ds.Scanner.from_batches(pa.RecordBatchReader.from_batches(schema, parts))

    def _batches(self, names: Sequence[str]) -> Iterator[pa.Table]:
        stored = [name for name in names if name not in (self.hit, SCORE)]
        for start in range(0, len(self.hits), _ROWS_AT_ONCE):
            check_stop()
            places = np.arange(start, min(start + _ROWS_AT_ONCE, len(self.hits)))
            some = self.hits.take(places)
            rows: Any = pa.table({self.hit: places, SCORE: pa.array(some.scores, pa.float32())})
            if stored:
                own = self.view.names.stored_names(stored)
                read = self.read(own, some.splits, some.rows)
                for name, column in zip(stored, read.columns, strict=True):
                    rows = rows.append_column(name, column)
            yield rows
