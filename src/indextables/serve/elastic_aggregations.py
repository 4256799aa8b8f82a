"""Aggregations in Elasticsearch's form: counts of values and times, and figures of a column.

One pass over the rows counts all buckets of a request, those inside others too: a level is a path
of bucket aggregations, and its groups are their keys together. What is kept in memory grows with
the number of groups, not with that of the rows.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.cells import python_values
from indextables.errors import QueryError
from indextables.plan.aggregation import (
    MOST_GROUPS,
    Aggregate,
    Aggregation,
    RunningAggregation,
    groupable,
)
from indextables.plan.buckets import NumberBuckets, TimeBuckets, buckets_of
from indextables.plan.execute import run_scan
from indextables.plan.scan import plan_scan
from indextables.schema.conformity import as_floats, one_spelling
from indextables.serve.elastic_query import (
    Question,
    UnsupportedError,
    column_name,
    moment_of,
    number_of,
    spelled_value,
)

_MOST_BUCKETS = 65_536
"""Buckets of an answer, as in Elasticsearch."""
_MOST_PARTS = 10_000
"""Parts of one histogram."""
_MOST_DEEP = 8
_CALENDAR = {"minute": "1m", "hour": "1h", "day": "1d", "week": "1w", "month": "1 month",
             "quarter": "1 quarter", "year": "1 year", "1M": "1 month", "1q": "1 quarter",
             "1y": "1 year"}  # fmt: skip
_METRICS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("stats", "min", "max", "avg", "sum", "value_count"), frozenset()),
    "cardinality": frozenset({"precision_threshold"}),  # counts are exact here
    "extended_stats": frozenset({"sigma"}),
    "percentiles": frozenset({"percents"}),
}
"""Figures of a column, and what may be said of them beside the column."""
_PERCENTS = (1, 5, 25, 50, 75, 95, 99)


def aggregations(aggs: Any, question: Question) -> dict[str, Any]:
    """Results by the names of aggregations."""
    root = _Level.root(aggs, question)
    view = question.table.view
    named = {view.names.stored_name(column): column for column in root.columns()}
    levels = list(root.all())
    plan = plan_scan(view, predicate=question.stored, columns=tuple(named))
    for piece in run_scan(plan):
        rows = {shown: piece[stored].combine_chunks() for stored, shown in named.items()}
        for level in levels:
            level.add(rows)
    return _Answer().inside(root, ())


_NAN = math.nan
"""The one that keys have: another one would not be equal to it."""


def _one_key(value: Any) -> Any:
    return _NAN if isinstance(value, float) and math.isnan(value) else value


def _sort_key(key: Any) -> tuple[bool, Any]:
    """Where a key is in order; what is not a number comes last."""
    return (key is _NAN, 0 if key is _NAN else key)


# --- what is asked -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Metric:
    """A figure of a column."""

    name: str
    kind: str
    column: str
    options: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, kind: str, options: Any, schema: pa.Schema) -> _Metric:
        column = _column(name, kind, options, schema)
        if unknown := sorted(set(options) - {"field"} - _METRICS[kind]):
            raise UnsupportedError(f"[{kind}] of [{name}] with [{unknown[0]}] is not supported")
        type_ = schema.field(column).type
        types = pa.types
        is_number = types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_)
        has_ends = is_number or types.is_temporal(type_) or types.is_boolean(type_)
        fits = {"value_count": True, "cardinality": groupable(type_) or is_number,
                "min": has_ends, "max": has_ends}.get(kind, is_number)  # fmt: skip
        if not fits:
            raise UnsupportedError(f"Field [{column}] of {type_} is not supported for [{kind}]")
        metric = cls(name, kind, column, options)
        metric.percents()
        metric.sigma()
        return metric

    def percents(self) -> list[float]:
        """The percentiles that are asked for."""
        listed = self.options.get("percents", _PERCENTS)
        try:
            percents = [float(percent) for percent in listed]
        except (TypeError, ValueError):
            percents = [-1.0]
        if not percents or not all(0 <= percent <= 100 for percent in percents):
            raise UnsupportedError(f"[percents] of [{self.name}] are numbers from 0 to 100")
        return percents

    def sigma(self) -> float:
        """How many standard deviations bounds are away."""
        sigma = self.options.get("sigma", 2)
        try:
            factor = float(sigma)
        except (TypeError, ValueError):
            factor = -1.0
        if not 0 <= factor < math.inf:
            raise UnsupportedError(f"[sigma] of [{self.name}] is a number of 0 or more")
        return factor

    @property
    def of_values(self) -> bool:
        """Whether it takes the different values, not only sums and ends."""
        return self.kind in ("cardinality", "percentiles")


def _column(name: str, kind: str, options: Any, schema: pa.Schema) -> str:
    if not isinstance(options, dict) or not isinstance(options.get("field"), str):
        raise UnsupportedError(f"[{kind}] of [{name}] needs a [field]")
    return column_name(options["field"], schema)


@dataclass(frozen=True, slots=True)
class _Terms:
    """Buckets of the values of a column."""

    allowed: ClassVar[set[str]] = {"field", "size", "min_doc_count", "order", "missing",
                                   "shard_size"}  # fmt: skip
    column: str
    size: int
    least: int
    order: tuple[str, bool]
    """What buckets are ordered by, and whether descending."""
    missing: Any

    @classmethod
    def of(cls, column: str, options: Mapping[str, Any], schema: pa.Schema) -> _Terms:
        type_: Any = schema.field(column).type
        if not (groupable(type_) or pa.types.is_floating(type_)):
            raise UnsupportedError(f"Field [{column}] of {type_} is not supported for [terms]")
        missing = options.get("missing")
        if missing is not None:
            try:
                missing = pa.scalar(str(missing)).cast(type_)
            except pa.ArrowException:
                raise UnsupportedError(f"[missing] is not a value of [{column}]") from None
        size, least = number_of(options, "size", 10), number_of(options, "min_doc_count", 1)
        return cls(column, size, least, _order(options.get("order")), missing)

    def keys(self, values: Any) -> Any:
        values = one_spelling(values)
        return values if self.missing is None else pc.fill_null(values, self.missing)

    def all_keys(self, present: list[Any]) -> list[Any]:
        return present

    def shown(self, groups: pa.Table) -> pa.Table:
        """The groups of one level that an answer has, if they are not ordered by a figure."""
        by, descending = self.order
        if by not in ("_count", "_key") or groups.num_rows <= self.size:
            return groups
        direction = "descending" if descending else "ascending"
        order: Any = [("a0", direction), ("g0", "ascending")] if by == "_count" else [
            ("g0", direction)]  # fmt: skip
        groups = groups.filter(pc.greater_equal(groups["a0"], pa.scalar(self.least)))
        return groups.take(pc.sort_indices(groups, sort_keys=order)[: self.size])

    def key(self, value: Any) -> dict[str, Any]:
        return _key(value)


def _order(order: Any) -> tuple[str, bool]:
    first = order[0] if isinstance(order, list) and order else order
    if isinstance(order, list) and order[1:] not in ([], [{"_key": "asc"}]):
        raise UnsupportedError("[order] of [terms] has one name, and [_key] [asc] after it")
    if first in (None, {}):
        return ("_count", True)
    if not isinstance(first, dict) or len(first) != 1:
        raise UnsupportedError("[order] of [terms] is an object with one name")
    name, direction = next(iter(first.items()))
    if direction not in ("asc", "desc"):
        raise UnsupportedError(f"[order] of [terms] is [asc] or [desc], not [{direction}]")
    return ("_key" if name == "_term" else name, direction == "desc")


@dataclass(frozen=True, slots=True)
class _Parts:
    """Buckets of equal parts of a column's times or numbers."""

    dates: ClassVar[set[str]] = {"field", "calendar_interval", "fixed_interval", "interval",
                                 "min_doc_count", "time_zone", "format", "extended_bounds",
                                 "offset", "order"}  # fmt: skip
    numbers: ClassVar[set[str]] = {"field", "interval", "min_doc_count", "extended_bounds"}
    column: str
    least: int
    buckets: NumberBuckets | TimeBuckets
    bounds: Any
    """Where the first and the last bucket start at the latest and the earliest."""
    in_millis: bool
    type_: Any

    @classmethod
    def of(cls, column: str, options: Mapping[str, Any], schema: pa.Schema, kind: str) -> _Parts:
        type_ = schema.field(column).type
        times = pa.types.is_timestamp(type_) or pa.types.is_date(type_)
        if times != (kind == "date_histogram"):
            raise UnsupportedError(f"Field [{column}] of {type_} is not supported for [{kind}]")
        if options.get("order", {"_key": "asc"}) not in ({"_key": "asc"}, {"_term": "asc"}):
            raise UnsupportedError(f"[{kind}] is ordered by [_key], ascending")
        if str(options.get("offset") or "0").strip("+-smhd0"):
            raise UnsupportedError(f"[{kind}] with [offset] is not supported")
        named = ("calendar_interval", "fixed_interval", "interval")
        intervals = [options[name] for name in named if name in options]
        if len(intervals) != 1 or not isinstance(intervals[0], str if times else str | int | float):
            raise UnsupportedError(f"[{kind}] needs one interval")
        interval = _CALENDAR.get(intervals[0], intervals[0]) if times else intervals[0]
        buckets = buckets_of(type_, interval, str(options.get("time_zone", "UTC")))
        bounds = options.get("extended_bounds")
        if bounds is not None:
            bounds = _bounds(bounds, type_, buckets)
        format_ = options.get("format")
        if format_ not in (None, "epoch_millis", "strict_date_optional_time", "date_time"):
            raise UnsupportedError(f"[{kind}] with [format] of [{format_}] is not supported")
        least = number_of(options, "min_doc_count", 0)
        return cls(column, least, buckets, bounds, format_ == "epoch_millis", type_)

    def keys(self, values: Any) -> Any:
        return self.buckets.starts(values)

    def all_keys(self, present: list[Any]) -> list[Any]:
        """The buckets that have rows, and if they are wanted those between and around them."""
        if self.least > 0 or (not present and self.bounds is None):
            return sorted(present)
        ends = pa.array(present, self.keys(pa.array([], self.type_)).type)
        if self.bounds is not None:
            ends = pa.concat_arrays([ends, self.bounds])
        both: Mapping[str, Any] = pc.min_max(ends)
        starts = self.buckets.between(both["min"], both["max"], _MOST_PARTS)
        if starts is None:
            raise _too_many(f"[{self.column}] has more than {_MOST_PARTS:,} parts")
        return sorted({*python_values(starts), *present})

    def key(self, value: Any) -> dict[str, Any]:
        shown = _key(value)
        return {**shown, "key_as_string": str(shown["key"])} if self.in_millis else shown


def _bounds(extended: Any, type_: Any, buckets: NumberBuckets | TimeBuckets) -> Any:
    if not isinstance(extended, dict) or set(extended) - {"min", "max"}:
        raise UnsupportedError("[extended_bounds] has [min] and [max]")
    named = [extended[end] for end in ("min", "max") if extended.get(end) is not None]
    ends = [moment_of(end, type_, "extended_bounds") for end in named]
    try:
        starts = buckets.starts(pa.array(ends, type_))
    except (pa.ArrowException, OverflowError):
        raise UnsupportedError(f"[extended_bounds] of [{extended}] are not values") from None
    array = starts.combine_chunks() if isinstance(starts, pa.ChunkedArray) else starts
    if array.null_count:
        raise UnsupportedError(f"[extended_bounds] of [{extended}] are not values")
    if len(array) == 2 and array[0].as_py() > array[1].as_py():
        raise UnsupportedError(f"[extended_bounds] of [{extended}] end before they begin")
    return array if len(array) else None


# --- what is counted -----------------------------------------------------------------------------


def _counted(groups: int, functions: list[tuple[str, str]]) -> RunningAggregation:
    """How many rows each group has, and figures of them."""
    names = tuple(f"k{i}" for i in range(groups))
    aggregates = [Aggregate("count_rows", None)]
    aggregates += [Aggregate(function, name) for function, name in functions]  # type: ignore[arg-type]
    return RunningAggregation(
        Aggregation(names, tuple(aggregates)),
        lambda: _too_many(f"there are more than {MOST_GROUPS:,} groups"),
    )


def _too_many(reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"too many buckets: {reason}. Narrow the search, or take a longer interval."
    )


@dataclass
class _Level:
    """Bucket aggregations inside each other, and the figures of their buckets."""

    path: tuple[tuple[str, _Terms | _Parts], ...]
    metrics: list[_Metric] = field(default_factory=list)
    inner: list[_Level] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._figures: RunningAggregation | None = None
        self._values: dict[str, RunningAggregation] = {}

    @classmethod
    def root(cls, aggs: Any, question: Question) -> _Level:
        root = cls(())
        root._read(aggs, question.table.schema)
        return root

    def _read(self, aggs: Any, schema: pa.Schema) -> None:
        if not isinstance(aggs, dict):
            raise UnsupportedError("[aggs] is an object")
        if len(self.path) > _MOST_DEEP:
            raise UnsupportedError(f"[aggs] are nested more than {_MOST_DEEP} deep")
        for name, definition in aggs.items():
            if not isinstance(definition, dict):
                raise UnsupportedError(f"aggregation [{name}] is an object")
            inner = definition.get("aggs", definition.get("aggregations"))
            kinds = [key for key in definition if key not in ("aggs", "aggregations", "meta")]
            supported = [*_METRICS, "terms", "date_histogram", "histogram"]
            if len(kinds) != 1 or kinds[0] not in supported:
                raise UnsupportedError(
                    f"Unknown aggregation type {kinds} of [{name}]; there are: "
                    f"{', '.join(sorted(supported))}"
                )
            kind, options = kinds[0], definition[kinds[0]]
            if kind in _METRICS:
                if inner:
                    raise UnsupportedError(f"[{kind}] of [{name}] has no aggregations inside")
                self.metrics.append(_Metric.of(name, kind, options, schema))
                continue
            level = _Level((*self.path, (name, _bucketing(name, kind, options, schema))))
            level._read(inner or {}, schema)
            level._check_order()
            self.inner.append(level)
        functions = [f for m in self.metrics for f in _functions(m)]
        self._figures = _counted(len(self.path), list(dict.fromkeys(functions)))
        for metric in self.metrics:
            if metric.of_values:
                self._values[metric.name] = _counted(len(self.path) + 1, [])

    def _check_order(self) -> None:
        bucketing = self.bucketing
        if not isinstance(bucketing, _Terms):
            return
        name, _, _ = bucketing.order[0].partition(".")
        name = name.partition("[")[0]
        if name not in ("_count", "_key", *(metric.name for metric in self.metrics)):
            raise UnsupportedError(f"[order] by [{bucketing.order[0]}]: there is none inside")

    @property
    def bucketing(self) -> _Terms | _Parts:
        return self.path[-1][1]

    def all(self) -> Iterator[_Level]:
        yield self
        for level in self.inner:
            yield from level.all()

    def columns(self) -> set[str]:
        names = {bucketing.column for _, bucketing in self.path}
        names |= {metric.column for metric in self.metrics}
        return names.union(*(level.columns() for level in self.inner))

    def add(self, rows: Mapping[str, Any]) -> None:
        """Count some rows, by column."""
        keys = {f"k{i}": b.keys(rows[b.column]) for i, (_, b) in enumerate(self.path)}
        inputs: dict[str, Any] = dict(keys)
        for metric in self.metrics:
            inputs.update(_inputs(metric, rows[metric.column]))
        if not inputs:  # of all rows nothing is asked
            return
        table = pa.table(inputs)
        for name in keys:
            table = table.filter(pc.is_valid(table[name]))
        assert self._figures is not None
        self._figures.add(table)
        for metric in self.metrics:
            if metric.of_values:
                last = f"k{len(keys)}"
                values = table.select(list(keys)).append_column(last, table[f"v:{metric.column}"])
                self._values[metric.name].add(values.filter(pc.is_valid(values[last])))

    def groups(self) -> tuple[dict[tuple[Any, ...], dict[tuple[str, str], Any]], int]:
        """The figures of each group by its keys, and how many rows all groups have.

        Of many values those that are not shown are left out here: they are in Arrow's memory still.
        """
        assert self._figures is not None
        table = self._figures.combined()
        rows = int(pc.sum(table["a0"]).as_py() or 0) if len(self.path) == 1 else 0
        if len(self.path) == 1 and isinstance(self.bucketing, _Terms):
            table = self.bucketing.shown(table)
        return _by_keys(table, len(self.path), self._functions()), rows

    def _functions(self) -> list[tuple[str, str]]:
        functions = list(dict.fromkeys(f for m in self.metrics for f in _functions(m)))
        return [("count_rows", ""), *functions]

    def values(self, metric: _Metric) -> dict[tuple[Any, ...], list[tuple[Any, int]]]:
        """The different values of each group and how often each occurs."""
        depth = len(self.path)
        values: dict[tuple[Any, ...], list[tuple[Any, int]]] = {}
        counted = _by_keys(self._values[metric.name].combined(), depth + 1, [("count_rows", "")])
        for keys, counts in counted.items():
            values.setdefault(keys[:depth], []).append((keys[depth], counts["count_rows", ""]))
        return values


def _by_keys(
    table: pa.Table, depth: int, functions: list[tuple[str, str]]
) -> dict[tuple[Any, ...], dict[tuple[str, str], Any]]:
    keys = [list(map(_one_key, python_values(table[f"g{i}"]))) for i in range(depth)]
    columns = [python_values(table[f"a{i}"]) for i in range(len(functions))]
    return {
        tuple(one[at] for one in keys): {
            function: column[at] for function, column in zip(functions, columns, strict=True)
        }
        for at in range(table.num_rows)
    }


def _bucketing(name: str, kind: str, options: Any, schema: pa.Schema) -> _Terms | _Parts:
    column = _column(name, kind, options, schema)
    allowed = {"terms": _Terms.allowed, "date_histogram": _Parts.dates, "histogram": _Parts.numbers}
    if unknown := sorted(set(options) - allowed[kind]):
        raise UnsupportedError(f"[{kind}] with [{unknown[0]}] is not supported")
    if kind == "terms":
        return _Terms.of(column, options, schema)
    try:
        return _Parts.of(column, options, schema, kind)
    except QueryError as error:  # an interval that does not fit
        raise UnsupportedError(f"[{kind}] of [{name}]: {error}") from None


def _functions(metric: _Metric) -> list[tuple[str, str]]:
    column = metric.column
    ends = [("min", f"v:{column}"), ("max", f"v:{column}")]
    counted, sums = [("count", f"v:{column}")], [("sum", f"f:{column}")]
    squares = [("sum", f"q:{column}")]
    return {
        "value_count": counted, "min": ends[:1], "max": ends[1:], "sum": sums,
        "avg": counted + sums, "stats": counted + ends + sums,
        "extended_stats": counted + ends + sums + squares,
    }.get(metric.kind, [])  # fmt: skip


def _inputs(metric: _Metric, values: Any) -> dict[str, Any]:
    """The columns that a figure is made of: values, as floats, and their squares."""
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    inputs = {f"v:{metric.column}": values}
    if metric.kind in ("sum", "avg", "stats", "extended_stats"):
        floats: Any = (
            as_floats(values)
            if pa.types.is_decimal(values.type)
            else values.cast(pa.float64(), safe=False)
        )
        inputs[f"f:{metric.column}"] = floats
        if metric.kind == "extended_stats":
            inputs[f"q:{metric.column}"] = pc.multiply(floats, floats)
    return inputs


# --- what is answered ----------------------------------------------------------------------------

Figures = Mapping[tuple[str, str], Any]


class _Answer:
    """The tree of buckets, made from the groups of all levels."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[tuple[Any, ...], dict[tuple[str, str], Any]]] = {}
        self._below: dict[int, dict[tuple[Any, ...], list[Any]]] = {}
        self._values: dict[tuple[int, str], dict[tuple[Any, ...], list[tuple[Any, int]]]] = {}
        self._rows: dict[int, int] = {}
        self._buckets = 0

    def inside(self, level: _Level, keys: tuple[Any, ...]) -> dict[str, Any]:
        """The figures and buckets of one group of a level."""
        figures = self._of(level).get(keys, {})
        results = {m.name: self._figure(level, m, keys, figures) for m in level.metrics}
        for inner in level.inner:
            results[inner.path[-1][0]] = self._bucketed(inner, keys)
        return results

    def _of(self, level: _Level) -> dict[tuple[Any, ...], dict[tuple[str, str], Any]]:
        if id(level) not in self._groups:
            self._groups[id(level)], self._rows[id(level)] = level.groups()
            below: dict[tuple[Any, ...], list[Any]] = {}
            for keys in self._groups[id(level)] if level.path else ():
                below.setdefault(keys[:-1], []).append(keys[-1])
            self._below[id(level)] = below
        return self._groups[id(level)]

    def _bucketed(self, level: _Level, above: tuple[Any, ...]) -> dict[str, Any]:
        groups, bucketing = self._of(level), level.bucketing
        present = self._below[id(level)].get(above, [])

        def count(key: Any) -> int:
            return int(groups.get((*above, key), {}).get(("count_rows", ""), 0))

        kept = [k for k in bucketing.all_keys(present) if count(k) >= bucketing.least]
        counts = {}
        if isinstance(bucketing, _Terms):
            kept = self._ordered(level, above, kept, count)[: bucketing.size]
            every = sum(map(count, present)) if above else self._rows[id(level)]
            remaining = every - sum(map(count, kept))
            counts = {"doc_count_error_upper_bound": 0, "sum_other_doc_count": remaining}
        self._buckets += len(kept)
        if self._buckets > _MOST_BUCKETS:
            raise _too_many(f"an answer has at most {_MOST_BUCKETS:,}")
        buckets = [
            {**bucketing.key(k), "doc_count": count(k), **self.inside(level, (*above, k))}
            for k in kept
        ]
        return {**counts, "buckets": buckets}

    def _ordered(
        self, level: _Level, above: tuple[Any, ...], keys: list[Any], count: Callable[[Any], int]
    ) -> list[Any]:
        assert isinstance(level.bucketing, _Terms)
        name, descending = level.bucketing.order
        by_key = sorted(keys, key=_sort_key)
        if name == "_key":
            return by_key[::-1] if descending else by_key
        if name == "_count":
            return sorted(by_key, key=lambda key: -count(key) if descending else count(key))
        metric, part = _metric_of_order(name)
        chosen = next(m for m in level.metrics if m.name == metric)

        def value(key: Any) -> float:
            group = (*above, key)
            figure = self._figure(level, chosen, group, self._of(level)[group])
            number = _ordering_value(figure, part)
            if number is None:  # comes last
                return math.inf
            return -number if descending else number

        return sorted(by_key, key=value)

    def _figure(
        self, level: _Level, metric: _Metric, keys: tuple[Any, ...], figures: Figures
    ) -> dict[str, Any]:
        if metric.of_values:
            place = (id(level), metric.name)
            if place not in self._values:
                self._values[place] = level.values(metric)
            values = self._values[place].get(keys, [])
            if metric.kind == "cardinality":
                return {"value": len(values)}
            return {"values": _percentiles(values, metric.percents())}
        return _figure(metric, figures)


def _figure(metric: _Metric, figures: Figures) -> dict[str, Any]:
    column = metric.column
    count = int(figures.get(("count", f"v:{column}")) or 0)
    total = figures.get(("sum", f"f:{column}"))
    low, high = (_number(figures.get((end, f"v:{column}"))) for end in ("min", "max"))
    average = total / count if count and total is not None else None
    match metric.kind:
        case "value_count":
            return {"value": count}
        case "sum":
            return {"value": total or 0.0}
        case "avg":
            return {"value": average}
        case "min" | "max":
            return {"value": low if metric.kind == "min" else high}
    statistics = {"count": count, "min": low, "max": high, "avg": average, "sum": total or 0.0}
    if metric.kind == "stats":
        return statistics
    squares = figures.get(("sum", f"q:{column}"))
    if average is None or squares is None:
        return {**statistics, "sum_of_squares": None, "variance": None, "std_deviation": None,
                "std_deviation_bounds": {"upper": None, "lower": None}}  # fmt: skip
    variance = max(squares / count - average * average, 0.0)
    deviation = math.sqrt(variance)
    away = deviation * metric.sigma()
    bounds = {"upper": average + away, "lower": average - away}
    return {**statistics, "sum_of_squares": squares, "variance": variance,
            "std_deviation": deviation, "std_deviation_bounds": bounds}  # fmt: skip


def _percentiles(values: list[tuple[Any, int]], percents: list[float]) -> dict[str, Any]:
    """Exact ones, between two values in proportion."""
    if not values:
        return {str(share): None for share in percents}
    ordered = sorted((float(value), count) for value, count in values)
    numbers = np.array([value for value, _ in ordered])
    last = np.cumsum([count for _, count in ordered]) - 1
    percentiles = {}
    for percent in percents:
        rank = percent / 100 * last[-1]
        low, high = numbers[np.searchsorted(last, [math.floor(rank), math.ceil(rank)])]
        percentiles[str(percent)] = float(low + (high - low) * (rank - math.floor(rank)))
    return percentiles


def _metric_of_order(name: str) -> tuple[str, str]:
    """The figure that buckets are ordered by, and its part: `1`, `1.avg` or `1[50.0]`."""
    metric, _, part = name.partition("[") if "[" in name else name.partition(".")
    return metric, part.removesuffix("]")


def _ordering_value(figure: Mapping[str, Any], part: str) -> float | None:
    values = {**figure, **figure.get("values", {}), **(figure.get("std_deviation_bounds") or {})}
    short = part.removeprefix("std_deviation_bounds_")
    value = values.get(short or "value", values.get(f"{short}.0"))
    if not isinstance(value, int | float | None):
        raise UnsupportedError(f"[order] by [{part}]: it is not a number")
    if value is None and (short or "value") not in values and f"{short}.0" not in values:
        raise UnsupportedError(f"[order] needs a part of the figure, one of: {', '.join(values)}")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, datetime.date):
        return _millis(value)
    return value if value is None or isinstance(value, int) else float(value)


def _key(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"key": int(value), "key_as_string": str(value).lower()}
    if isinstance(value, datetime.date):
        return {"key": _millis(value), "key_as_string": spelled_value(value)}
    return {"key": value}


def _millis(value: Any) -> int:
    moment: datetime.datetime = value
    if not isinstance(value, datetime.datetime):
        moment = datetime.datetime.combine(value, datetime.time())
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    return round(zoned.timestamp() * 1000)
