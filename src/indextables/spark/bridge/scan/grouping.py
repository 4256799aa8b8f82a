"""Expressions of GROUP BY, as a rule of ours wraps them (`jvm/groups.py`), as values of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from indextables.errors import IndexTablesError
from indextables.plan.buckets import zone_of_arrow
from indextables.plan.computed import (
    Call,
    ColumnValue,
    Constant,
    NotComputedError,
    Value,
    call,
)

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
"""The classes of expressions that may be values of ours."""

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
    known = units.get(str(value.value).lower()) if isinstance(value, Constant) else None
    if known is None:  # null in every row
        raise NotComputedError
    return known


def _constant(node: dict[str, Any]) -> Constant:
    name, value = node["dataType"], node["value"]
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise NotComputedError
    if value is None:
        return Constant(None, kind)
    if pa.types.is_integer(kind):
        return Constant(int(value), kind)
    if pa.types.is_floating(kind):
        return Constant(float(value.replace("Infinity", "inf")), kind)
    if pa.types.is_string(kind):
        return Constant(value, kind)
    if pa.types.is_boolean(kind):
        return Constant(str(value).lower() == "true", kind)
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
