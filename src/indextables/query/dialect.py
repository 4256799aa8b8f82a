"""Spark's SQL for DuckDB, where sqlglot's translation is not exact.

sqlglot knows both dialects. Left for here: what depends on types (decimals, dates with intervals,
casts), functions that DuckDB has under other names, and functions that would take all memory.
A function that neither knows is an error: DuckDB's own functions are not part of the dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from indextables.errors import EmbeddedQueryError
from indextables.query.types import digits_of, is_a, is_decimal
from indextables.statements.search_calls import ONE_COLUMN, SNIPPET

BOUNDED = "indextables_bounded"
"""The function of the engine that returns its first argument, a number that is not too large."""

DOUBLE_TEXT = "indextables_double_text"
"""The function of the engine that writes a double as Java does."""

_spark_parser: Any = Spark.Parser


class SparkDialect(Spark):
    """Spark's SQL since version 4: a cast that fails is an error."""

    class Parser(_spark_parser):  # type: ignore[misc]
        STRICT_CAST = True


# Functions that sqlglot leaves as they are and that mean the same to DuckDB, or have another name.
_SAME = frozenset(
    ["bin", "date_part", "datepart", "make_date", "map_concat", "map_entries", "map_values", "now",
     "octet_length", "url_decode", "url_encode"]
)  # fmt: skip
_RENAMED = {"btrim": "trim", "every": "bool_and", "some": "bool_or", "std": "stddev"}
_DIRECTIVE = re.compile(r"(%-?[YymbBdjHIMSpaAf])(?:strict)?")
_FRACTION = re.compile(r"(?<![A-Za-z])S{3}(?![A-Za-z])")
_QUOTED = re.compile(r"'([^']*)'")
_UNITS = {"MM": "month", "MON": "month", "YY": "year", "YYYY": "year", "DD": "day"}
_WHOLE = exp.DataType.INTEGER_TYPES
_TEXTS = exp.DataType.TEXT_TYPES
_FLOATS = (exp.DType.DOUBLE, exp.DType.FLOAT)


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


@dataclass
class EngineSql:
    """A query for the engine, and the divisions of decimals that it calls."""

    sql: str = ""
    divisions: set[Division] = field(default_factory=set)


def engine_sql(tree: Any) -> EngineSql:
    """A parsed and annotated query as the engine reads it.

    >>> from sqlglot import parse_one
    >>> engine_sql(parse_one("SELECT dayofweek(day), isnan(x)", dialect="spark")).sql
    'SELECT (DAYOFWEEK(CAST(day AS DATE)) + 1), COALESCE(ISNAN(x), FALSE)'
    """
    result = EngineSql()
    # Inner parts first: what replaces an outer one has its arguments inside.
    for node in reversed(list(tree.walk())):
        new = _translated(node, result)
        if new is not node:
            new.type = node.type
            if node is tree:
                tree = new
            else:
                node.replace(new)
    result.sql = tree.sql(dialect="duckdb")
    return result


def _translated(node: Any, result: EngineSql) -> Any:
    match node:
        case exp.TableSample():
            raise EmbeddedQueryError("TABLESAMPLE is not known here. Use LIMIT, or a condition.")
        case exp.Format():
            raise _unknown("format_string")
        case exp.Anonymous():
            return _call(node)
        case exp.Div() if is_decimal(node):
            return _divided(node.left.copy(), node.right.copy(), node, result)
        case exp.Avg() | exp.Filter() | exp.Window() if _is_average(node):
            return _average(node, result)
        case exp.Cast() | exp.TryCast():
            return _cast(node)
        case exp.Concat() | exp.ConcatWs() | exp.DPipe():
            for part in [*node.expressions, node.args.get("this"), node.args.get("expression")]:
                if isinstance(part, exp.Expr) and is_a(part, *_FLOATS):
                    part.replace(_double_text(part))
            return node
        case exp.Add() | exp.Sub() if _is_date_with_days(node):
            return exp.cast(exp.paren(node.copy()), "date")
        case exp.TsOrDsAdd() | exp.AddMonths():
            return exp.cast(exp.paren(node.copy()), "date")
        case exp.DateTrunc():
            unit = node.args["unit"].name.upper()
            node.set("unit", exp.Literal.string(_UNITS.get(unit, unit)))
            return exp.cast(node.copy(), "date")
        case exp.Like() | exp.ILike() if not isinstance(node.parent, exp.Escape):
            return _with_escape(node)
        case exp.Repeat():
            node.set("times", _bounded(node.args["times"], _bytes_of(node.this)))
            return node
        case exp.Space():
            return exp.Repeat(
                this=exp.Literal.string(" "), times=_bounded(node.this, exp.Literal.number(1))
            )
        case exp.Pad():
            length = _bounded(node.expression, exp.Literal.number(4))
            node.set("expression", exp.cast(length, "int"))
            return node
        case exp.Nanvl():
            nan = exp.Anonymous(this="ISNAN", expressions=[node.this.copy()])
            return (
                exp.Case()
                .when(nan, exp.cast(node.expression.copy(), "double"))
                .else_(node.this.copy())
            )
        case exp.CountIf():
            # The engine's own is null where no row has a value.
            hit = exp.Case().when(node.this.copy(), exp.Literal.number(1))
            return exp.Count(this=hit)
        case exp.GenerateSeries():
            start = exp.cast(node.args["start"].copy(), "bigint")
            node.set("end", _bounded(node.args["end"], exp.Literal.number(8), start))
            return node
        case exp.Group():
            return _grouped(node)
        case exp.TimeToStr():
            node.set("format", _pattern(node))
            return node
        case exp.StrToTime():
            node.set("format", _pattern(node))
            return exp.cast(node.copy(), exp.DType.TIMESTAMPTZ)
        case exp.TsOrDsToDate() if node.args.get("format"):
            return exp.cast(exp.func("STRPTIME", node.this, _pattern(node)), "date")
        case exp.TsOrDsToDate():
            return exp.cast(node.this.copy(), "date")
        case exp.DayOfWeek():
            return exp.paren(exp.Add(this=node.copy(), expression=exp.Literal.number(1)))
        case exp.Extract() if node.name.upper() in ("DOW", "DAYOFWEEK"):
            return exp.paren(exp.Add(this=node.copy(), expression=exp.Literal.number(1)))
        case exp.Substring():
            return _substring(node)
        case exp.Left() | exp.Right():
            node.set("expression", _not_negative(node.expression))
            return node
        case exp.IsNan():
            return exp.Coalesce(this=node.copy(), expressions=[exp.false()])
        case exp.ArrayContains():
            # The engine's own is false for a list that is null.
            is_null = exp.Is(this=node.this.copy(), expression=exp.null())
            return exp.Case().when(is_null, exp.null()).else_(node.copy())
        case exp.Sign():
            return exp.cast(node.copy(), "double")
        case exp.Quantile():
            value = exp.cast(node.this.copy(), "double")
            return exp.Anonymous(this="QUANTILE_CONT", expressions=[value, node.args["quantile"]])
        case _:
            return node


def _unknown(name: str) -> EmbeddedQueryError:
    return EmbeddedQueryError(
        f"The function {name} is not known here. Spark's other functions work in Spark only."
    )


# --- functions by name ----------------------------------------------------------------------


def _is_null(value: Any) -> Any:
    return exp.paren(exp.Is(this=exp.paren(value), expression=exp.null()))


def _array_repeat(value: Any, count: Any) -> Any:
    one = exp.Anonymous(this="LIST_VALUE", expressions=[value.copy()])
    size = _bounded(count, exp.Literal.number(8))
    return exp.Anonymous(this="LIST_RESIZE", expressions=[one, size, value])


def _pmod(value: Any, divisor: Any) -> Any:
    rest = exp.paren(exp.Mod(this=exp.paren(value), expression=exp.paren(divisor.copy())))
    again = exp.paren(exp.Add(this=rest, expression=exp.paren(divisor.copy())))
    return exp.paren(exp.Mod(this=again, expression=exp.paren(divisor)))


def _weekday(day: Any) -> Any:
    return exp.paren(exp.Sub(this=exp.Anonymous(this="ISODOW", expressions=[exp.cast(day, "date")]),
                             expression=exp.Literal.number(1)))  # fmt: skip


_FORMS: dict[str, tuple[int, Callable[..., Any]]] = {
    "isnull": (1, _is_null),
    "isnotnull": (1, lambda value: exp.paren(exp.not_(_is_null(value)))),
    "array_repeat": (2, _array_repeat),
    "pmod": (2, _pmod),
    "weekday": (1, _weekday),
}


def _call(node: Any) -> Any:
    name = node.name.lower()
    if name in _FORMS:
        count, form = _FORMS[name]
        if len(node.expressions) != count:
            raise EmbeddedQueryError(f"{name} takes {count} arguments: {node.sql('spark')}.")
        return form(*(argument.copy() for argument in node.expressions))
    if name in _RENAMED:
        return exp.Anonymous(this=_RENAMED[name], expressions=node.expressions)
    if name not in (*_SAME, *ONE_COLUMN, SNIPPET):
        raise _unknown(node.name)
    return node


# --- numbers --------------------------------------------------------------------------------


def _divided(left: Any, right: Any, node: Any, result: EngineSql) -> Any:
    """Exact division, which the engine does not have."""
    (_, left_scale), (_, right_scale) = digits_of(left) or (38, 0), digits_of(right) or (38, 0)
    precision, scale = digits_of(node) or (38, 6)
    division = Division(left_scale, right_scale, precision, scale)
    result.divisions.add(division)
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


def _average(node: Any, result: EngineSql) -> Any:
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
    result.divisions.add(division)
    total = with_aggregate(exp.Sum(this=values.copy()))
    count = with_aggregate(exp.Count(this=values.copy()))
    operands = [exp.cast(total, f"decimal(38, {scale})"), exp.cast(count, "decimal(38, 0)")]
    return exp.Anonymous(this=division.name, expressions=operands)


def _cast(node: Any) -> Any:
    source, target = node.this, node.to.this
    if target in _WHOLE and (is_decimal(source) or is_a(source, *_FLOATS)):
        node.set("this", exp.Anonymous(this="TRUNC", expressions=[source.copy()]))
    elif target in _TEXTS and is_a(source, *_FLOATS):
        return _double_text(source)
    elif target in _TEXTS and is_a(source, exp.DType.TIMESTAMPTZ):
        node.set("this", exp.cast(source.copy(), exp.DType.TIMESTAMP))
    elif target == exp.DType.TIMESTAMP:  # to_timestamp: Spark's TIMESTAMP has a zone
        node.set("to", exp.DType.TIMESTAMPTZ.into_expr())
    return node


def _double_text(value: Any) -> Any:
    return exp.Anonymous(this=DOUBLE_TEXT, expressions=[exp.cast(value.copy(), "double")])


# --- sizes ----------------------------------------------------------------------------------


def _bounded(count: Any, width: Any, start: Any = None) -> Any:
    """A count of things that the engine makes; its process would end where memory does."""
    if isinstance(count, exp.Anonymous) and count.name == BOUNDED:
        return count
    wide = exp.cast(count.copy(), "bigint")
    start = exp.cast(exp.Literal.number(0), "bigint") if start is None else start
    return exp.Anonymous(this=BOUNDED, expressions=[wide, exp.cast(width, "bigint"), start])


def _bytes_of(text: Any) -> Any:
    return exp.Anonymous(this="STRLEN", expressions=[exp.cast(text.copy(), "varchar")])


# --- texts ----------------------------------------------------------------------------------


def _with_escape(node: Any) -> Any:
    """In Spark a backslash takes the meaning of a wildcard away, unless ESCAPE says otherwise."""
    pattern = node.expression
    if isinstance(pattern, exp.Any | exp.All | exp.Tuple):
        return node
    if pattern.is_string and "\\" not in pattern.name:
        return node
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _substring(node: Any) -> Any:
    """Spark takes position zero for one, and a negative length for zero."""
    start, length = node.args.get("start"), node.args.get("length")
    if isinstance(start, exp.Literal):
        if start.name == "0":
            node.set("start", exp.Literal.number(1))
    elif start is not None and not isinstance(start, exp.Neg):
        zero = exp.EQ(this=start.copy(), expression=exp.Literal.number(0))
        node.set("start", exp.Case().when(zero, exp.Literal.number(1)).else_(start.copy()))
    if length is not None:
        node.set("length", _not_negative(length))
    return node


def _not_negative(number: Any) -> Any:
    if isinstance(number, exp.Literal):
        return number
    floor = exp.Case().when(
        exp.LT(this=number.copy(), expression=exp.Literal.number(0)), exp.Literal.number(0)
    )
    return floor.else_(number.copy())


# --- times ----------------------------------------------------------------------------------


def _is_date_with_days(node: Any) -> bool:
    step = node.expression
    unit = str(step.args.get("unit") or "") if isinstance(step, exp.Interval) else ""
    return is_a(node.this, exp.DType.DATE) and unit.upper().rstrip("S") in (
        "DAY", "WEEK", "MONTH", "QUARTER", "YEAR",
    )  # fmt: skip


def _pattern(node: Any) -> Any:
    """A pattern for times. sqlglot made directives of Spark's letters; the engine has most."""
    given = node.args["format"]
    if not given.is_string:
        raise EmbeddedQueryError(f"A pattern must be a text in quotes in {node.sql('spark')}.")
    found = _FRACTION.sub("%g", given.name)
    found = _DIRECTIVE.sub(r"\1", found)
    unknown = re.search(r"[A-Za-z]", re.sub(r"%-?[A-Za-z]", "", _QUOTED.sub("", found)))
    if unknown:
        raise EmbeddedQueryError(
            f"The pattern in {node.sql('spark')} has letters that are not known here: use y, M, d, "
            "D, E, H, h, m, s, SSS, SSSSSS and a."
        )
    return exp.Literal.string(_QUOTED.sub(r"\1", found))


# --- clauses --------------------------------------------------------------------------------


def _grouped(node: Any) -> Any:
    """`GROUP BY a, b WITH ROLLUP` is `GROUP BY ROLLUP (a, b)`."""
    for key in ("rollup", "cube"):
        for grouping in node.args.get(key) or []:
            if not grouping.expressions:
                grouping.set("expressions", node.expressions)
                node.set("expressions", [])
    return node
