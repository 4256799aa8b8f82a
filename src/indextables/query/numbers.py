"""Numbers of Spark's SQL for the engine: exact divisions of decimals, casts, NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from indextables.query.types import digits_of, is_a, is_decimal

DOUBLE_TEXT, FLOAT_TEXT = "indextables_double_text", "indextables_float_text"
"""The functions of the engine that write numbers as Java does."""

FLOATS = (exp.DType.DOUBLE, exp.DType.FLOAT)


@dataclass(frozen=True)
class Division:
    """An exact division of decimals: the scales of its operands, and the type of its result."""

    left: int
    right: int
    precision: int
    scale: int

    @property
    def name(self) -> str:
        """The function of the engine."""
        return f"indextables_divide_{self.left}_{self.right}_{self.precision}_{self.scale}"


def translated_number(node: Any, divisions: set[Division]) -> Any:
    """A node about numbers as the engine reads it; any other node as it is."""
    match node:
        case exp.Div() if is_decimal(node):
            return _divided(node.left.copy(), node.right.copy(), node, divisions)
        case exp.Avg() | exp.Filter() | exp.Window() if _is_average(node):
            return _average(node, divisions)
        case exp.Cast() | exp.TryCast():
            return _cast(node)
        case exp.IsNan():
            return exp.Coalesce(this=node.copy(), expressions=[exp.false()])
        case exp.Nanvl():
            nan = exp.Anonymous(this="ISNAN", expressions=[node.this.copy()])
            other = exp.cast(node.expression.copy(), "double")
            return exp.Case().when(nan, other).else_(node.this.copy())
        case exp.Sign():
            return exp.cast(node.copy(), "double")
        case exp.Quantile():
            value = exp.cast(node.this.copy(), "double")
            return exp.Anonymous(this="QUANTILE_CONT", expressions=[value, node.args["quantile"]])
        case _:
            return node


def _divided(left: Any, right: Any, node: Any, divisions: set[Division]) -> Any:
    """Exact division, which the engine does not have."""
    (_, left_scale), (_, right_scale) = digits_of(left) or (38, 0), digits_of(right) or (38, 0)
    precision, scale = digits_of(node) or (38, 6)
    division = Division(left_scale, right_scale, precision, scale)
    divisions.add(division)
    operands = [exp.cast(side, f"decimal(38, {digits})")
                for side, digits in ((left, left_scale), (right, right_scale))]  # fmt: skip
    return exp.Anonymous(this=division.name, expressions=operands)


def _is_average(node: Any) -> bool:
    """Whether an average of decimals, with all that is around it."""
    if isinstance(node.parent, exp.Filter | exp.Window) and node.arg_key == "this":
        return False
    return is_decimal(_aggregate(node)) and isinstance(_aggregate(node), exp.Avg)


def _aggregate(node: Any) -> Any:
    return _aggregate(node.this) if isinstance(node, exp.Filter | exp.Window) else node


def _average(node: Any, divisions: set[Division]) -> Any:
    """The sum by the count. A filter or a window around the average is around both."""
    average = _aggregate(node)
    values = average.this
    argument = values.expressions[0] if isinstance(values, exp.Distinct) else values
    _, scale = digits_of(argument) or (38, 0)

    def with_aggregate(aggregate: Any) -> Any:
        if node is average:
            return aggregate
        copy = node.copy()
        _aggregate(copy).replace(aggregate)
        return copy

    precision, more = digits_of(average) or (38, scale + 4)
    division = Division(scale, 0, precision, more)
    divisions.add(division)
    total = with_aggregate(exp.Sum(this=values.copy()))
    count = with_aggregate(exp.Count(this=values.copy()))
    operands = [exp.cast(total, f"decimal(38, {scale})"), exp.cast(count, "decimal(38, 0)")]
    return exp.Anonymous(this=division.name, expressions=operands)


def _cast(node: Any) -> Any:
    source, target = node.this, node.to.this
    if target in exp.DataType.INTEGER_TYPES and (is_decimal(source) or is_a(source, *FLOATS)):
        node.set("this", exp.Anonymous(this="TRUNC", expressions=[source.copy()]))
    elif target in exp.DataType.TEXT_TYPES and is_a(source, *FLOATS):
        return number_text(source)
    elif target in exp.DataType.TEXT_TYPES and is_a(source, exp.DType.TIMESTAMPTZ):
        node.set("this", exp.cast(source.copy(), exp.DType.TIMESTAMP))
    elif target == exp.DType.TIMESTAMP:  # to_timestamp: Spark's TIMESTAMP has a zone
        node.set("to", exp.DType.TIMESTAMPTZ.into_expr())
    return node


def number_text(value: Any) -> Any:
    name = FLOAT_TEXT if is_a(value, exp.DType.FLOAT) else DOUBLE_TEXT
    return exp.Anonymous(this=name, expressions=[exp.cast(value.copy(), "double")])
