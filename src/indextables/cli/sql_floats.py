"""NaN and minus zero in aggregates and windows, where the engine has another opinion than Spark.

To Spark, NaN is the largest number and minus zero is zero. The engine agrees in comparisons and in
keys of groups and joins; its MIN and MAX of groups pass NaN over or keep it, depending on what they
saw first, and its DISTINCT and its windows tell the two zeros apart.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlglot import exp

from indextables.cli.sql_relations import Sources, column_type_of


def mend_floats(scope: Any, sources: Sources) -> None:
    """Write aggregates and windows of floats so that the engine gives what Spark gives."""
    grouped = scope.expression.args.get("group") is not None
    for call in list(scope.find_all(exp.Min, exp.Max, exp.Distinct, exp.Window)):
        match call:
            case exp.Window():
                order = call.args.get("order")
                keys = [key.this for key in order.expressions] if order else []
                _without_minus_zero([*(call.args.get("partition_by") or []), *keys], sources)
            case exp.Distinct():
                if isinstance(call.parent, exp.AggFunc):
                    _without_minus_zero(list(call.expressions), sources)
            case _ if grouped and not isinstance(call.parent, exp.Window):
                if _may_be_float(call, sources):
                    call.replace(_by_order(call))


def _without_minus_zero(values: list[Any], sources: Sources) -> None:
    for value in values:
        kind = column_type_of(value, sources)
        if kind is not None and pa.types.is_floating(kind):
            value.replace(exp.Add(this=value.copy(), expression=exp.Literal.number("0.0")))


def _by_order(call: Any) -> Any:
    """The engine's order of floats is Spark's."""
    down = isinstance(call, exp.Max)
    key = exp.Ordered(this=call.this.copy(), desc=down, nulls_first=False)
    values = exp.Order(this=call.this.copy(), expressions=[key])
    return exp.Anonymous(this="FIRST_VALUE", expressions=[values])


def _may_be_float(node: Any, sources: Sources) -> bool:
    kinds = [column_type_of(column, sources) for column in node.find_all(exp.Column)]
    return any(kind is None or pa.types.is_floating(kind) for kind in kinds)
