"""How often each value of a column occurs among the rows of a query; many columns in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import SchemaError, TooManyValuesError
from indextables.plan.aggregation import Aggregate, Aggregation, groupable
from indextables.plan.buckets import buckets_of
from indextables.plan.execute import run_scan
from indextables.plan.scan import plan_scan
from indextables.plan.view import TableView
from indextables.predicate import Predicate
from indextables.schema import column_field

_COUNTED = (Aggregate("count_rows", None),)
_MOST_VALUES = 1_000_000
"""Different values that are counted in memory."""
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 64


class _Counts:
    """The counts of one group of columns, combined from time to time."""

    def __init__(self, columns: tuple[str, ...], what: str) -> None:
        self._aggregation = Aggregation(columns, _COUNTED)
        self._what = what
        self._parts: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        self._parts += self._aggregation.partials([rows])
        if len(self._parts) >= _PARTS_AT_ONCE:
            self._parts = [self.combined()]

    def combined(self) -> pa.Table:
        found = self._aggregation.combine(self._parts)
        if found.num_rows > _MOST_VALUES:
            raise TooManyValuesError(
                self._what,
                _MOST_VALUES,
                "Count a column with fewer, narrow the search, or GROUP BY it in SQL.",
            )
        return found


def facet_counts(
    view: TableView, predicate: Predicate, groups: Sequence[tuple[str, ...]], *, top: int | None
) -> list[pa.Table]:
    """The most frequent values of each group of columns, as stored, and last how often each occurs.

    The names of the result's columns are for the caller to set.
    """
    columns = tuple(dict.fromkeys(name for group in groups for name in group))
    for name in columns:
        kind = column_field(view.schema, name).type
        if not (groupable(kind) or pa.types.is_floating(kind)):
            raise SchemaError(
                f"Values of '{view.names.shown_name(name)}' are not counted: {kind} is not a "
                "single value. Name a column of texts, numbers, dates or times."
            )
    counts = [_Counts(g, " and ".join(f"'{view.names.shown_name(n)}'" for n in g)) for g in groups]
    for piece in run_scan(plan_scan(view, predicate=predicate, columns=columns)):
        rows = pa.table({name: _one_nan(piece[name]) for name in columns})
        for one in counts:
            one.add(rows)
    return [
        _most_frequent(
            one.combined(), [column_field(view.schema, name).type for name in group], top
        )
        for group, one in zip(groups, counts, strict=True)
    ]


def _one_nan(column: Any) -> Any:
    """Floats as SQL groups them: NaN is one value, and -0.0 is 0.0."""
    if not pa.types.is_floating(column.type):
        return column
    nan: Any = pa.scalar(float("nan"), column.type)
    return pc.add(pc.if_else(pc.is_nan(column), nan, column), pa.scalar(0, column.type))


def _most_frequent(counted: pa.Table, types: Sequence[pa.DataType], top: int | None) -> pa.Table:
    """Values and counts under names of their own: a column may be called as counts are."""
    fields = [pa.field(str(at), kind) for at, kind in enumerate([*types, pa.int64()])]
    counted = counted.rename_columns([f.name for f in fields]).cast(pa.schema(fields))
    order: Any = [(fields[-1].name, "descending"), *((f.name, "ascending") for f in fields[:-1])]
    return counted.take(pc.sort_indices(counted, sort_keys=order)[:top])


def value_histogram(
    view: TableView, predicate: Predicate, column: str, interval: object, *, zone: str
) -> pa.Table:
    """How many rows have a value in each part of a column, from the first such part to the last.

    The names of the result's columns are for the caller to set.
    """
    kind = column_field(view.schema, column).type
    buckets = buckets_of(kind, interval, zone)
    what = f"The histogram of '{view.names.shown_name(column)}'"
    counted = _Counts((column,), what)
    for piece in run_scan(plan_scan(view, predicate=predicate, columns=(column,))):
        counted.add(pa.table({column: buckets.starts(piece[column].combine_chunks())}))
    found = counted.combined()
    found = found.filter(pc.is_valid(found[0]))
    if not found.num_rows:
        empty = buckets.starts(pa.array([], kind))
        return pa.table([empty, pa.array([], pa.int64())], ["start", "count"])
    ends: Mapping[str, Any] = pc.min_max(found[0])
    starts = buckets.between(ends["min"], ends["max"], _MOST_PARTS)
    if starts is None:
        raise TooManyValuesError(what, _MOST_PARTS, "Take a longer interval or a narrower search.")
    # A start that only the rows have, where clocks changed within an hour, is not lost.
    every: Any = pc.unique(pa.chunked_array([starts, *found[0].chunks]))
    places = pc.index_in(every, found[0].combine_chunks())
    counts: Any = found[1]
    result = pa.table({"start": every, "count": counts.take(places).fill_null(0)})
    return result.take(pc.sort_indices(result, sort_keys=[("start", "ascending")]))
