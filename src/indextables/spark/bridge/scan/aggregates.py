"""Aggregations as Spark's planner offers them, and the schema of what a scan then returns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.snapshot import Snapshot
from indextables.plan.aggregation import (
    Aggregate,
    Aggregation,
    Function,
    groupable,
    result_type,
    supported,
)
from indextables.plan.column_names import names_of
from indextables.plan.computed import NotComputedError, Value
from indextables.plan.statistics import decode, lookup
from indextables.schema import is_collated
from indextables.spark.bridge.jvm.groups import WRAPPER
from indextables.spark.bridge.jvm.handles import JavaObject
from indextables.spark.bridge.scan.grouping import wrapped_value

_FUNCTIONS: dict[str, Function] = {
    "CountStar": "count_rows",
    "Count": "count",
    "Sum": "sum",
    "Min": "min",
    "Max": "max",
}


def parse_aggregation(
    aggregation: JavaObject, schema: pa.Schema, conf: JavaObject
) -> Aggregation | None:
    """What an aggregation of the JVM asks; None if something in it is not ours to answer.

    A sum that is too large is an error here. Without Spark's ANSI mode it would wrap around, and
    then only Spark knows where.
    """
    groups = [_group(one, schema) for one in aggregation.groupByExpressions()]
    if not groups and not len(aggregation.aggregateExpressions()):
        return None  # one row without a column, which no rows of a scan can say
    if None in groups:
        return None
    aggregates = []
    for function in aggregation.aggregateExpressions():
        one = _aggregate(function, schema)
        if one is None:
            return None
        aggregates.append(one)
    sums = [one.column for one in aggregates if one.function == "sum" and one.column is not None]
    if any(pa.types.is_integer(schema.field(n).type) for n in sums) and not conf.ansiEnabled():
        return None
    return Aggregation(tuple(group for group in groups if group), tuple(aggregates))


def _group(expression: JavaObject, schema: pa.Schema) -> str | Value | None:
    """What rows are grouped by; None if only Spark can compute it."""
    name = column_name(expression)
    if name is not None:
        known = name in schema.names and groupable(schema.field(name).type)
        return name if known and not is_collated(schema.field(name)) else None
    if expression.getClass().getSimpleName() != "UserDefinedScalarFunc":
        return None
    columns = [column_name(one) for one in expression.children()]
    if expression.name() != WRAPPER or not all(n in schema.names for n in columns):
        return None
    fields = [schema.field(str(n)) for n in columns]
    if any(map(is_collated, fields)):
        return None
    try:
        return wrapped_value(expression.canonicalName(), fields)
    except NotComputedError:
        return None


def is_ordered(field: pa.Field[Any]) -> bool:
    """Whether the least and the greatest of a column are ours to find."""
    return supported("min", field.type) and not is_collated(field)


def averages_too_much(aggregation: JavaObject, snapshot: Snapshot) -> bool:
    """Whether an average of longs is asked whose sum may not be a long.

    Spark would make a sum and a count of it. By itself it adds the numbers of an average as
    doubles.
    """
    for function in aggregation.aggregateExpressions():
        if function.getClass().getSimpleName() == "Avg":
            shown = column_name(function.column())
            if shown not in names_of(snapshot).shown.names:
                continue
            name = names_of(snapshot).stored_name(shown)
            if pa.types.is_int64(snapshot.schema.field(name).type) and not _sum_is_below(
                2**63, name, snapshot
            ):
                return True
    return False


def sums_fit_their_columns(aggregation: Aggregation, snapshot: Snapshot) -> bool:
    """Whether sums of decimals have no more digits than their columns.

    Spark combines sums of parts, and first brings each to the column's own type.
    """
    for one in aggregation.aggregates:
        if one.function == "sum" and one.column is not None:
            column_type: Any = snapshot.schema.field(one.column).type
            if pa.types.is_decimal(column_type) and not _sum_is_below(
                10 ** (column_type.precision - column_type.scale), one.column, snapshot
            ):
                return False
    return True


def _sum_is_below(limit: int, name: str, snapshot: Snapshot) -> bool:
    """Whether all values of a column together are surely smaller than this, in either direction."""
    files, column_type = snapshot.entries, snapshot.schema.field(name).type
    rows = files["numRecords"]
    largest: Any = 0
    for bounds in ("minValues", "maxValues"):
        decoded = decode(lookup(files, bounds, name), column_type)
        if not decoded.is_known.all():  # a partition column has none either
            return False
        largest = max(
            [largest, *(abs(one) for one in decoded.values.to_pylist() if one is not None)]
        )
    return rows.null_count == 0 and bool(largest * (pc.sum(rows).as_py() or 0) < limit)


def _aggregate(function: JavaObject, schema: pa.Schema) -> Aggregate | None:
    ours = _FUNCTIONS.get(function.getClass().getSimpleName())
    if ours is None:
        return None
    if ours == "count_rows":
        return Aggregate(ours, None)
    if ours in ("count", "sum") and function.isDistinct():
        return None
    name = column_name(function.column())
    if name not in schema.names or not supported(ours, schema.field(name).type):
        return None
    if ours in ("min", "max") and is_collated(schema.field(name)):
        return None
    return Aggregate(ours, name)


def column_name(expression: JavaObject) -> str | None:
    """The column that an expression is, if it is one and no field of a struct."""
    if expression.getClass().getSimpleName() != "FieldReference":
        return None
    parts = list(expression.fieldNames())
    return parts[0] if len(parts) == 1 else None


def aggregate_schema(aggregation: Aggregation, schema: pa.Schema) -> pa.Schema:
    """The columns of an aggregation's result, in the types that Spark expects."""
    fields = [
        schema.field(group).with_name(out).with_nullable(True).remove_metadata()
        if isinstance(group, str)
        else pa.field(out, group.kind)
        for group, out in zip(aggregation.groups, aggregation.names(), strict=False)
    ]
    outs = aggregation.names()[len(aggregation.groups) :]
    for out, one in zip(outs, aggregation.aggregates, strict=True):
        column_type = None if one.column is None else schema.field(one.column).type
        fields.append(pa.field(out, result_type(one.function, column_type)))
    return pa.schema(fields)
