"""Aggregations in Elasticsearch's form: counts of values and times, and figures of a column.

The aggregations inside a bucket are those of a search that is narrowed to the bucket.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.cells import python_values
from indextables.serve.answers import column_stats
from indextables.serve.elastic_query import (
    Question,
    UnsupportedError,
    column_name,
    number_of,
    spelled_value,
)
from indextables.serve.requests import Filter, filter_sql

_MOST_BUCKETS = 200
"""Buckets of an aggregation that has others inside."""
_METRICS = {"stats", "min", "max", "avg", "sum", "value_count", "cardinality"}
_BUCKETS = {"terms", "date_histogram"}
_CALENDAR = {"minute": "1m", "hour": "1h", "day": "1d", "week": "1w", "month": "1 month",
             "quarter": "1 quarter", "year": "1 year", "1M": "1 month", "1q": "1 quarter",
             "1y": "1 year"}  # fmt: skip


def aggregations(wanted: Any, question: Question) -> dict[str, Any]:
    """Results by the names of aggregations."""
    if not isinstance(wanted, dict):
        raise UnsupportedError("[aggs] is an object")
    return {name: _aggregation(name, one, question) for name, one in wanted.items()}


def _aggregation(name: str, wanted: Any, question: Question) -> dict[str, Any]:
    if not isinstance(wanted, dict):
        raise UnsupportedError(f"aggregation [{name}] is an object")
    inner = wanted.get("aggs", wanted.get("aggregations"))
    kinds = [key for key in wanted if key not in ("aggs", "aggregations", "meta")]
    if len(kinds) != 1 or kinds[0] not in _METRICS | _BUCKETS:
        raise UnsupportedError(
            f"Unknown aggregation type {kinds} of [{name}]; there are: "
            f"{', '.join(sorted(_METRICS | _BUCKETS))}"
        )
    kind, options = kinds[0], wanted[kinds[0]]
    if not isinstance(options, dict) or not isinstance(options.get("field"), str):
        raise UnsupportedError(f"[{kind}] of [{name}] needs a [field]")
    column = column_name(options["field"], question.table.schema)
    if kind in _METRICS:
        if inner or set(options) - {"field"}:
            raise UnsupportedError(f"[{kind}] of [{name}] has a [field] and nothing else")
        return _metric(kind, column, question)
    found, conditions = (_terms if kind == "terms" else _dates)(column, options, question)
    if inner:
        buckets = found["buckets"]
        if len(buckets) > _MOST_BUCKETS:
            most = f"more than {_MOST_BUCKETS} buckets with others inside"
            raise UnsupportedError(f"[{name}] has {most}")
        for bucket, condition in zip(buckets, conditions, strict=True):
            bucket.update(aggregations(inner, question.within(condition)))
    return found


def _metric(kind: str, column: str, question: Question) -> dict[str, Any]:
    table, view = question.table, question.table.view
    type_ = table.schema.field(column).type
    if kind == "cardinality":
        condition = view.names.shown_predicate(question.stored)
        counted = table.facets(where=condition, by=[column], top=None)[column]
        return {"value": counted.num_rows - counted[column].null_count}
    summed = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    is_number = summed or pa.types.is_temporal(type_) or pa.types.is_boolean(type_)
    if kind != "value_count" and not (summed or (is_number and kind in ("min", "max"))):
        raise UnsupportedError(f"Field [{column}] of {type_} is not supported for [{kind}]")
    functions = ["count", "min", "max", *(["sum"] if summed else [])]
    if kind == "value_count":
        functions = ["count"]
    found = column_stats(view, question.stored, view.names.stored_name(column), functions)
    values: dict[str, Any] = {k: _metric_value(v) for k, v in found.items()}
    count, total = values["count"] or 0, values.get("sum")
    values["avg"] = total / count if count and total is not None else None
    if kind == "stats":
        stats = {k: values[k] for k in ("count", "min", "max", "avg")}
        return {**stats, "sum": total if total is not None else 0.0}
    if kind == "sum":
        return {"value": total if total is not None else 0.0}
    return {"value": count if kind == "value_count" else values[kind]}


def _metric_value(value: Any) -> Any:
    if isinstance(value, datetime.date):
        return _millis(value)
    return value if value is None or isinstance(value, int) else float(value)


def _terms(
    column: str, options: Mapping[str, Any], question: Question
) -> tuple[dict[str, Any], list[str]]:
    if unknown := sorted(set(options) - {"field", "size", "min_doc_count", "order"}):
        raise UnsupportedError(f"[terms] with [{unknown[0]}] is not supported")
    if options.get("order", {"_count": "desc"}) not in ({"_count": "desc"}, [{"_count": "desc"}]):
        raise UnsupportedError("[terms] is ordered by [_count], descending, and by nothing else")
    size, table = number_of(options, "size", 10), question.table
    least = number_of(options, "min_doc_count", 1)
    condition = table.view.names.shown_predicate(question.stored)
    counted = table.facets(where=condition, by=[column], top=None)[column]
    counted = counted.filter(pc.is_valid(counted[column]))
    counts: list[int] = [count for count in counted[-1].to_pylist() if count is not None]
    values = python_values(counted[column].slice(0, size))
    kept = [(v, c) for v, c in zip(values, counts[:size], strict=True) if c >= least]
    buckets = [{**_key(value), "doc_count": count} for value, count in kept]
    conditions = [
        filter_sql(Filter(column, (spelled_value(value),)), table.schema) for value, _ in kept
    ]
    rest = sum(counts) - sum(count for _, count in kept)
    found = {"doc_count_error_upper_bound": 0, "sum_other_doc_count": rest, "buckets": buckets}
    return found, conditions


def _dates(
    column: str, options: Mapping[str, Any], question: Question
) -> tuple[dict[str, Any], list[str]]:
    known = {"field", "calendar_interval", "fixed_interval", "interval", "min_doc_count",
             "time_zone", "format", "extended_bounds"}  # fmt: skip
    if unknown := sorted(set(options) - known):
        raise UnsupportedError(f"[date_histogram] with [{unknown[0]}] is not supported")
    names = ("calendar_interval", "fixed_interval", "interval")
    given = [options[name] for name in names if name in options]
    if len(given) != 1 or not isinstance(given[0], str):
        raise UnsupportedError("[date_histogram] needs one interval")
    table, least = question.table, number_of(options, "min_doc_count", 0)
    condition = table.view.names.shown_predicate(question.stored)
    parts = table.histogram(
        where=condition,
        column=column,
        interval=_CALENDAR.get(given[0], given[0]),
        timezone=str(options.get("time_zone", "UTC")),
    )
    starts, counts = (part.to_pylist() for part in parts.columns)
    ends = [*starts[1:], None]
    buckets, conditions = [], []
    for start, end, count in zip(starts, ends, counts, strict=True):
        if count is not None and count >= least:
            buckets.append({**_key(start), "doc_count": count})
            stop = None if end is None else spelled_value(end)
            one = Filter(column, start=spelled_value(start), end=stop)
            conditions.append(filter_sql(one, table.schema))
    return {"buckets": buckets}, conditions


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
