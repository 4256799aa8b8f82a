"""Aggregations as Spark's planner offers them, and the schema of what a scan then returns.

Expressions of GROUP BY arrive wrapped by an optimizer rule (`jvm/groups.py`) and become the values
of `plan/computed.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import IndexTablesError
from indextables.log.snapshot import Snapshot
from indextables.plan.aggregation import (
    Aggregate,
    Aggregation,
    Function,
    groupable,
    result_type,
    supported,
)
from indextables.plan.buckets import zone_of_arrow
from indextables.plan.column_names import names_of
from indextables.plan.computed import (
    Call,
    ColumnValue,
    Constant,
    NotComputedError,
    Value,
    call,
)
from indextables.plan.statistics import decode, lookup
from indextables.schema import is_collated
from indextables.spark.bridge.jvm.groups import WRAPPER
from indextables.spark.bridge.jvm.handles import JavaObject
from indextables.spark.bridge.scan.description import null_counts

_FUNCTIONS: dict[str, Function] = {
    "CountStar": "count_rows",
    "Count": "count",
    "Sum": "sum",
    "Min": "min",
    "Max": "max",
}


def parse_aggregation(aggregation: JavaObject, schema: pa.Schema) -> Aggregation | None:
    """What an aggregation of the JVM asks; None if something in it is not ours to answer."""
    groups = [_group(parsed, schema) for parsed in aggregation.groupByExpressions()]
    if not groups and not len(aggregation.aggregateExpressions()):
        return None  # one row without a column, which no rows of a scan can say
    if None in groups:
        return None
    aggregates = []
    for function in aggregation.aggregateExpressions():
        parsed = _aggregate(function, schema)
        if parsed is None:
            return None
        aggregates.append(parsed)
    return Aggregation(tuple(group for group in groups if group), tuple(aggregates))


def _group(expression: JavaObject, schema: pa.Schema) -> str | Value | None:
    """What rows are grouped by; None if only Spark can compute it."""
    name = column_name(expression)
    if name is not None:
        can_be_grouped = name in schema.names and groupable(schema.field(name).type)
        return name if can_be_grouped and not is_collated(schema.field(name)) else None
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


def whole_sums_fit(aggregation: Aggregation, snapshot: Snapshot) -> bool:
    """Whether sums of whole numbers surely have 64 bits.

    What a larger one becomes is for Spark: an error, null (`try_sum`) or, without the ANSI mode, a
    number that wraps around. It does not tell a source which.
    """
    return all(
        _sum_is_below(2**63, name, snapshot)
        for name, column_type in _sums(aggregation, snapshot)
        if pa.types.is_integer(column_type)
    )


def sums_fit_their_columns(aggregation: Aggregation, snapshot: Snapshot) -> bool:
    """Whether sums of decimals have no more digits than their columns.

    Spark combines sums of parts, and first brings each to the column's own type.
    """
    return all(
        _sum_is_below(10 ** (column_type.precision - column_type.scale), name, snapshot)
        for name, column_type in _sums(aggregation, snapshot)
        if pa.types.is_decimal(column_type)
    )


def _sums(aggregation: Aggregation, snapshot: Snapshot) -> Iterator[tuple[str, Any]]:
    for aggregate in aggregation.aggregates:
        if aggregate.function == "sum" and aggregate.column is not None:
            yield aggregate.column, snapshot.schema.field(aggregate.column).type


def _sum_is_below(limit: int, name: str, snapshot: Snapshot) -> bool:
    """Whether all values of a column together are surely smaller than this, in either direction."""
    files, column_type = snapshot.entries, snapshot.schema.field(name).type
    rows = files["numRecords"]
    if rows.null_count:
        return False
    largest: Any = 0
    is_partition = name in snapshot.partition_columns
    for bounds in ("partitionValues",) if is_partition else ("minValues", "maxValues"):
        decoded = decode(lookup(files, bounds, name), column_type)
        if not decoded.is_known.all():
            if pa.types.is_integer(column_type) and column_type.bit_width < 64:
                largest = 2 ** (column_type.bit_width - 1)
                break
            if not _are_null(files.filter(pa.array(~decoded.is_known)), name):
                return False
        largest = max(
            [largest, *(abs(one) for one in decoded.values.to_pylist() if one is not None)]
        )
    return bool(largest * (pc.sum(rows).as_py() or 0) < limit)


def _are_null(files: pa.Table, name: str) -> bool:
    """Whether some splits surely have only nulls in a column."""
    rows: list[Any] = files["numRecords"].to_pylist()
    counted = zip(null_counts(files), rows, strict=True)
    return all((nulls or {}).get(name, -1) >= count for nulls, count in counted)


def _aggregate(function: JavaObject, schema: pa.Schema) -> Aggregate | None:
    aggregate = _FUNCTIONS.get(function.getClass().getSimpleName())
    if aggregate is None:
        return None
    if aggregate == "count_rows":
        return Aggregate(aggregate, None)
    if aggregate in ("count", "sum") and function.isDistinct():
        return None
    name = column_name(function.column())
    if name not in schema.names or not supported(aggregate, schema.field(name).type):
        return None
    if aggregate in ("min", "max") and is_collated(schema.field(name)):
        return None
    return Aggregate(aggregate, name)


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
    for out, aggregate in zip(outs, aggregation.aggregates, strict=True):
        column_type = None if aggregate.column is None else schema.field(aggregate.column).type
        fields.append(pa.field(out, result_type(aggregate.function, column_type)))
    return pa.schema(fields)


# --- expressions of GROUP BY -----------------------------------------------------------------

_CALLS = {
    "Add": "add", "Subtract": "subtract", "Multiply": "multiply", "Divide": "divide",
    "Remainder": "remainder", "Pmod": "pmod", "Floor": "floor", "Ceil": "ceil",
    "EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">",
    "GreaterThanOrEqual": ">=", "And": "and", "Or": "or", "Not": "not", "IsNull": "is_null",
    "IsNotNull": "is_not_null", "Year": "year", "Quarter": "quarter", "Month": "month",
    "DayOfMonth": "day", "DayOfYear": "day_of_year", "DayOfWeek": "day_of_week",
    "WeekDay": "weekday", "WeekOfYear": "week", "YearOfWeek": "year_of_week",
    "UnixMicros": "micros", "MicrosToTimestamp": "time_of_micros",
}  # fmt: skip
_CLOCKS = {"Hour": "hour", "Minute": "minute", "Second": "second"}
_CHECKED = ("add", "subtract", "multiply")

CLASSES = frozenset((
    *_CALLS, *_CLOCKS, "AttributeReference", "Literal", "Cast", "TruncTimestamp", "TruncDate",
    "CaseWhen", "If", "PreciseTimestampConversion", "CreateNamedStruct", "KnownNullable",
    "KnownNotNull",
))  # fmt: skip
"""The classes of expressions that can become values of `plan.computed`."""

_KINDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(),
    "long": pa.int64(), "double": pa.float64(), "string": pa.string(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    "week": "week",
}
_TIME_UNITS = {
    **_UNITS,
    **dict.fromkeys(("day", "dd"), "day"),
    **{unit: unit for unit in ("hour", "minute", "second")},
}


def wrapped_value(text: str, columns: Sequence[pa.Field[Any]]) -> Value:
    """The value of a wrapped expression over these columns.

    Raises:
        NotComputedError: Only Spark can compute it.
    """
    tree, modes = json.loads(text)
    return _Reader(iter(tree), iter(modes), columns).value()


class _Reader:
    def __init__(
        self, nodes: Iterator[dict[str, Any]], modes: Iterator[str], columns: Sequence[Any]
    ) -> None:
        self._nodes = nodes
        self._modes = modes
        self._columns = columns

    def value(self) -> Value:
        """The next node, its children included; parents come first."""
        node, mode = next(self._nodes), next(self._modes)
        children = tuple(self.value() for _ in range(node["num-children"]))
        name = node["class"].rpartition(".")[2]
        if name in _CALLS:
            function = _CALLS[name]
            if mode not in ("", "ANSI", "LEGACY"):
                raise NotComputedError(name)
            wraps = function in _CHECKED and mode == "LEGACY"
            if function in ("floor", "ceil"):
                wraps = not node.get("failOnError", False)
            return call(function, children, option="wrap" if wraps else None)
        if name in _CLOCKS:
            return call(_CLOCKS[name], children, option=_zone(node))
        match name:
            case "BoundReference":
                field = self._columns[node["ordinal"]]
                return ColumnValue(field.name, field.type)
            case "Literal":
                return _constant(node)
            case "Cast":
                return _cast(node, children[0])
            case "TruncTimestamp":
                unit = _unit(children[0], _TIME_UNITS)
                return call("date_trunc", children[1:], option=f"{unit} {_zone(node)}")
            case "TruncDate":
                return call("trunc", children[:1], option=_unit(children[1], _UNITS))
            case "CaseWhen":
                return _case(children)
            case "If":
                return call("case", children)
            case "KnownNullable" | "KnownNotNull":
                return children[0]
            case "PreciseTimestampConversion":
                return _precise(node, children[0])
            case "CreateNamedStruct":
                return _struct(children)
        raise NotComputedError(name)


def _zone(node: dict[str, Any]) -> str:
    try:
        return zone_of_arrow(node["timeZoneId"])
    except (IndexTablesError, KeyError, TypeError, ValueError):
        raise NotComputedError from None


def _unit(value: Value, units: dict[str, str]) -> str:
    unit = units.get(str(value.value).lower()) if isinstance(value, Constant) else None
    if unit is None:  # null in every row
        raise NotComputedError
    return unit


def _constant(node: dict[str, Any]) -> Constant:
    name, value = node["dataType"], node["value"]
    data_type = _KINDS.get(name) if isinstance(name, str) else None
    if data_type is None:
        raise NotComputedError
    if value is None:
        return Constant(None, data_type)
    if pa.types.is_integer(data_type):
        return Constant(int(value), data_type)
    if pa.types.is_floating(data_type):
        return Constant(float(value.replace("Infinity", "inf")), data_type)
    if pa.types.is_string(data_type):
        return Constant(value, data_type)
    if pa.types.is_boolean(data_type):
        return Constant(str(value).lower() == "true", data_type)
    raise NotComputedError


def _cast(node: dict[str, Any], child: Value) -> Value:
    target = _KINDS.get(node["dataType"]) if isinstance(node["dataType"], str) else None
    if target is None:
        raise NotComputedError
    types = pa.types
    if target.equals(child.kind):
        return child
    if types.is_date(target) and types.is_timestamp(child.kind):
        return call("to_date", [child], option=_zone(node) if child.kind.tz else None)
    if types.is_int64(target) and types.is_timestamp(child.kind):
        return call("seconds", [child])
    if types.is_int64(target) and types.is_integer(child.kind):
        return call("to_long", [child])
    if types.is_float64(target):
        return call("to_double", [child])
    raise NotComputedError


def _case(children: tuple[Value, ...]) -> Value:
    if len(children) % 2:
        return call("case", children)
    return call("case", [*children, Constant(None, children[1].kind)])


def _precise(node: dict[str, Any], child: Value) -> Value:
    functions = {
        "long": "micros",
        "timestamp": "time_of_micros",
        "timestamp_ntz": "local_of_micros",
    }
    function = functions.get(str(node["toType"]))
    if function is None:
        raise NotComputedError
    return call(function, [child])


def _struct(children: tuple[Value, ...]) -> Value:
    """A struct whose fields are grouped by; it is never null."""
    names, values = children[::2], children[1::2]
    if not values or not all(isinstance(name, Constant) for name in names):
        raise NotComputedError
    fields = [
        pa.field(str(name.value), value.kind)
        for name, value in zip(names, values, strict=True)
        if isinstance(name, Constant)
    ]
    if any(pa.types.is_nested(value.kind) for value in values):
        raise NotComputedError
    return Call("struct", values, pa.struct(fields))
