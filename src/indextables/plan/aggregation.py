"""Aggregates computed where the rows are: COUNT, SUM, MIN and MAX, by groups; and facets.

A group is a column, or a value computed from columns (`computed`).

A task returns one row for each group of its splits, and the engine combines the rows of all tasks.
So every result here has to be one that combines exactly; what might not is refused when it is
planned (`supported`), or computed in a wider type and checked.

Facets are how often each value of a column occurs among the rows of a query, many columns in one
pass; a histogram counts the rows of equal parts of a column's values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import SchemaError, SumOverflowError, TooManyValuesError
from indextables.plan.buckets import buckets_of
from indextables.plan.computed import Call, Value, columns_of, compute, renamed
from indextables.plan.execute import run_scan
from indextables.plan.scan import plan_scan
from indextables.plan.view import TableView
from indextables.predicate import Predicate
from indextables.schema import column_field
from indextables.schema.conformity import one_spelling

Function = Literal["count_rows", "count", "sum", "min", "max"]

_MOST_DIGITS = 38
_WHOLE_SUM = pa.decimal128(38, 0)
_COMBINED = {"count_rows": "sum", "count": "sum", "sum": "sum", "min": "min", "max": "max"}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One function of one column; `count_rows` has none."""

    function: Function
    column: str | None


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What a query computes: its groups, then its aggregates."""

    groups: tuple[str | Value, ...]
    aggregates: tuple[Aggregate, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that have to be read."""
        named = [a.column for a in self.aggregates if a.column is not None]
        grouped = [
            name
            for group in self.groups
            for name in ([group] if isinstance(group, str) else columns_of(group))
        ]
        return tuple(dict.fromkeys([*grouped, *named]))

    def renamed(self, name: Callable[[str], str]) -> Aggregation:
        """The same aggregation over renamed columns."""
        aggregates = (replace(a, column=a.column and name(a.column)) for a in self.aggregates)
        groups = (name(g) if isinstance(g, str) else renamed(g, name) for g in self.groups)
        return Aggregation(tuple(groups), tuple(aggregates))

    def names(self) -> list[str]:
        """The columns of the result, by position."""
        return [*(f"g{i}" for i in range(len(self.groups))), *self._names()]

    def _names(self) -> list[str]:
        return [f"a{i}" for i in range(len(self.aggregates))]

    def compute(self, tables: Iterable[pa.Table]) -> pa.Table:
        """One row a group over all these rows; one row at all where there are no groups."""
        return self.combine(self.partials(tables))

    def partials(self, tables: Iterable[pa.Table]) -> list[pa.Table]:
        """The aggregates of each of these tables that has rows, for `combine`."""
        return [self._partial(table) for table in tables if table.num_rows]

    def combine(self, parts: Sequence[pa.Table]) -> pa.Table:
        """The aggregates of all rows from those of their parts."""
        if not parts:
            return self._nothing()
        together = pa.concat_tables(parts)
        if len(parts) > 1 or not self.groups:
            functions = [
                (name, _COMBINED[a.function])
                for name, a in zip(self._names(), self.aggregates, strict=True)
            ]
            together = self._grouped(together, list(self._keys()), functions)
        return self._shaped(self._narrowed(together))

    def _keys(self) -> dict[str, str | Value]:
        """The columns of Arrow's GROUP BY: a struct is grouped by its fields."""
        keys: dict[str, str | Value] = {}
        for i, group in enumerate(self.groups):
            if isinstance(group, Call) and group.function == "struct":
                keys |= {f"g{i}.{j}": part for j, part in enumerate(group.arguments)}
            else:
                keys[f"g{i}"] = group
        return keys

    def _shaped(self, table: pa.Table) -> pa.Table:
        """The columns of the result, structs of several keys among them."""
        if all(name in table.column_names for name in self.names()):
            return table
        columns: dict[str, Any] = {name: table[name] for name in self._names()}
        for i, group in enumerate(self.groups):
            if isinstance(group, Call) and group.function == "struct":
                struct: Any = group.kind
                parts = [table[f"g{i}.{j}"].combine_chunks() for j in range(struct.num_fields)]
                columns[f"g{i}"] = pa.StructArray.from_arrays(parts, fields=list(struct))
            else:
                columns[f"g{i}"] = table[f"g{i}"]
        return pa.table({name: columns[name] for name in self.names()})

    def _narrowed(self, table: pa.Table) -> pa.Table:
        """Sums of whole numbers as 64 bits, which is what Spark makes of them."""
        for name, aggregate in zip(self._names(), self.aggregates, strict=True):
            if aggregate.function == "sum" and table[name].type == _WHOLE_SUM:
                try:
                    column = table[name].cast(pa.int64())
                except pa.ArrowInvalid:
                    raise SumOverflowError(str(aggregate.column)) from None
                table = table.set_column(table.column_names.index(name), name, column)
        return table

    def _partial(self, table: pa.Table) -> pa.Table:
        if not self.groups:
            row = zip(self._names(), self.aggregates, strict=True)
            return pa.table({name: _single(aggregate, table) for name, aggregate in row})
        computed: dict[Value, Any] = {}
        columns = {key: _key(value, table, computed) for key, value in self._keys().items()}
        functions: list[tuple[str, str]] = []
        for name, aggregate in zip(self._names(), self.aggregates, strict=True):
            columns[name] = self._input(aggregate, table)
            functions.append((name, _COMBINED[aggregate.function]))
        return self._grouped(pa.table(columns), list(self._keys()), functions)

    def _input(self, aggregate: Aggregate, table: pa.Table) -> Any:
        """A column whose sum, minimum or maximum is the aggregate."""
        if aggregate.column is None:
            return pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)
        column = table[aggregate.column]
        if aggregate.function == "count":
            return pc.cast(pc.is_valid(column), pa.int64())
        if aggregate.function == "sum":
            return column.cast(sum_type(column.type))
        return column

    def _grouped(
        self, table: pa.Table, groups: list[str], functions: Sequence[tuple[str, str]]
    ) -> pa.Table:
        every: Any = [(name, function, _KEEP_NULLS) for name, function in functions]
        done = table.group_by(groups, use_threads=False).aggregate(every)
        result = {name: done[name] for name in groups}
        for name, function in functions:
            column = done[f"{name}_{function}"]
            result[name] = column.cast(table[name].type)
        return pa.table(result)

    def _nothing(self) -> pa.Table:
        if self.groups:
            return pa.table({name: pa.nulls(0) for name in self.names()})
        empty = [
            pa.array([0 if a.function in ("count", "count_rows") else None])
            for a in self.aggregates
        ]
        return pa.table(dict(zip(self._names(), empty, strict=True)))


def _key(value: str | Value, table: pa.Table, computed: dict[Value, Any]) -> Any:
    """The key that rows are grouped by; Spark has one zero and one NaN."""
    if isinstance(value, str):
        return table[value]
    return one_spelling(compute(value, table, computed))


def _single(aggregate: Aggregate, table: pa.Table) -> Any:
    """An aggregate of all rows as an array of one value."""
    if aggregate.column is None:
        return pa.array([table.num_rows], pa.int64())
    column: Any = table[aggregate.column]
    if aggregate.function == "count":
        return pa.array([len(column) - column.null_count], pa.int64())
    if aggregate.function == "sum":
        return pa.array([_exact_sum(column)], sum_type(column.type))
    # Python's years end with 9999, so values stay in Arrow.
    end: Any = pc.min_max(column, options=_KEEP_NULLS)[aggregate.function]
    return pa.repeat(end, 1)


def _exact_sum(column: Any) -> Any:
    """The sum in its wide type. Where 64 bits are enough, there is no need for a wider column."""
    if pa.types.is_integer(column.type):
        ends: Any = pc.min_max(column).as_py()
        largest = max(abs(ends["min"] or 0), abs(ends["max"] or 0))
        if largest * len(column) < 2**63:
            return pc.sum(column, options=_KEEP_NULLS).as_py()
    return pc.sum(column.cast(sum_type(column.type)), options=_KEEP_NULLS).as_py()


# A sum, minimum or maximum of nothing but nulls is null.
_KEEP_NULLS = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)


def sum_type(value_type: Any) -> pa.DataType:
    """A type in which sums of a column cannot overflow; too large a result is then noticed."""
    if pa.types.is_decimal(value_type):
        return pa.decimal128(value_type.precision + 10, value_type.scale)
    return pa.float64() if pa.types.is_floating(value_type) else _WHOLE_SUM


def result_type(function: Function, value_type: Any) -> pa.DataType:
    """The type of an aggregate of a column in Spark."""
    if function in ("count", "count_rows"):
        return pa.int64()
    if function == "sum":
        return pa.int64() if pa.types.is_integer(value_type) else sum_type(value_type)
    result: pa.DataType = value_type
    return result


def supported(function: Function, value_type: Any) -> bool:
    """Whether an aggregate of a column is computed exactly as Spark does."""
    types = pa.types
    if function in ("count", "count_rows"):
        return True
    if function == "sum":
        if types.is_decimal(value_type):
            return bool(value_type.precision + 10 <= _MOST_DIGITS)
        return bool(types.is_floating(value_type) or types.is_integer(value_type))
    # Spark orders NaN above all numbers, Arrow leaves it out.
    return groupable(value_type) and not types.is_boolean(value_type)


def groupable(value_type: Any) -> bool:
    """Whether Arrow's groups of a column are Spark's. NaN and -0.0 make floats differ."""
    types = pa.types
    return (
        types.is_integer(value_type)
        or types.is_string(value_type)
        or types.is_date(value_type)
        or types.is_timestamp(value_type)
        or types.is_boolean(value_type)
        or types.is_decimal(value_type)
    )


# --- facets ----------------------------------------------------------------------------------

MOST_GROUPS = 1_000_000
"""Different groups that are counted in memory."""
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 64


class RunningAggregation:
    """An aggregation of rows that come piece by piece, combined from time to time.

    Args:
        aggregation: What is computed.
        too_many: The error for more than `MOST_GROUPS` groups.
    """

    def __init__(self, aggregation: Aggregation, too_many: Callable[[], Exception]) -> None:
        self._aggregation = aggregation
        self._too_many = too_many
        self._parts: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Add some rows."""
        self._parts += self._aggregation.partials([rows])
        if len(self._parts) >= _PARTS_AT_ONCE:
            self._parts = [self.combined()]

    def combined(self) -> pa.Table:
        """The aggregates of all rows so far."""
        table = self._aggregation.combine(self._parts)
        if table.num_rows > MOST_GROUPS:
            raise self._too_many()
        return table


def _counts(columns: tuple[str, ...], counted: str) -> RunningAggregation:
    """How many rows have each value of one group of columns."""
    advice = "Count a column with fewer, narrow the search, or GROUP BY it in SQL."
    return RunningAggregation(
        Aggregation(columns, (Aggregate("count_rows", None),)),
        lambda: TooManyValuesError(counted, MOST_GROUPS, advice),
    )


def facet_counts(
    view: TableView, predicate: Predicate, groups: Sequence[tuple[str, ...]], *, top: int | None
) -> list[pa.Table]:
    """The most frequent values of each group of columns, as stored, and last how often each occurs.

    The names of the result's columns are for the caller to set.
    """
    columns = tuple(dict.fromkeys(name for group in groups for name in group))
    for name in columns:
        data_type = column_field(view.schema, name).type
        if not (groupable(data_type) or pa.types.is_floating(data_type)):
            raise SchemaError(
                f"Values of '{view.names.shown_name(name)}' are not counted: {data_type} is not a "
                "single value. Name a column of texts, numbers, dates or times."
            )
    counts = [_counts(g, " and ".join(f"'{view.names.shown_name(n)}'" for n in g)) for g in groups]
    for piece in run_scan(plan_scan(view, predicate=predicate, columns=columns)):
        rows = pa.table({name: one_spelling(piece[name]) for name in columns})
        for facet in counts:
            facet.add(rows)
    return [
        _most_frequent(
            facet.combined(), [column_field(view.schema, name).type for name in group], top
        )
        for group, facet in zip(groups, counts, strict=True)
    ]


def _most_frequent(counted: pa.Table, types: Sequence[pa.DataType], top: int | None) -> pa.Table:
    """Values and counts under names of their own: a column may be called as counts are."""
    fields = [pa.field(str(at), data_type) for at, data_type in enumerate([*types, pa.int64()])]
    counted = counted.rename_columns([f.name for f in fields]).cast(pa.schema(fields))
    order: Any = [(fields[-1].name, "descending"), *((f.name, "ascending") for f in fields[:-1])]
    return counted.take(pc.sort_indices(counted, sort_keys=order)[:top])


def value_histogram(
    view: TableView, predicate: Predicate, column: str, interval: object, *, zone: str
) -> pa.Table:
    """How many rows have a value in each part of a column, from the first such part to the last.

    The names of the result's columns are for the caller to set.
    """
    data_type = column_field(view.schema, column).type
    buckets = buckets_of(data_type, interval, zone)
    title = f"The histogram of '{view.names.shown_name(column)}'"
    counted = _counts((column,), title)
    for piece in run_scan(plan_scan(view, predicate=predicate, columns=(column,))):
        counted.add(pa.table({column: buckets.starts(piece[column].combine_chunks())}))
    frequencies = counted.combined()
    frequencies = frequencies.filter(pc.is_valid(frequencies[0]))
    if not frequencies.num_rows:
        empty = buckets.starts(pa.array([], data_type))
        return pa.table([empty, pa.array([], pa.int64())], ["start", "count"])
    ends: Mapping[str, Any] = pc.min_max(frequencies[0])
    starts = buckets.between(ends["min"], ends["max"], _MOST_PARTS)
    if starts is None:
        raise TooManyValuesError(title, _MOST_PARTS, "Take a longer interval or a narrower search.")
    # A start that only the rows have, where clocks changed within an hour, is not lost.
    every: Any = pc.unique(pa.chunked_array([starts, *frequencies[0].chunks]))
    places = pc.index_in(every, frequencies[0].combine_chunks())
    counts: Any = frequencies[1]
    result = pa.table({"start": every, "count": counts.take(places).fill_null(0)})
    return result.take(pc.sort_indices(result, sort_keys=[("start", "ascending")]))
