"""Texts and lists of Spark's SQL for the engine, none longer than memory bears."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from indextables.query.numbers import FLOATS, number_text
from indextables.query.types import is_a

BOUNDED = "indextables_bounded"
"""The function of the engine that returns its first argument, a number that is not too large."""


def translated_text(node: Any) -> Any:
    """A node about texts or lists as the engine reads it; any other node as it is."""
    match node:
        case exp.Concat() | exp.ConcatWs() | exp.DPipe():
            for part in [*node.expressions, node.args.get("this"), node.args.get("expression")]:
                if isinstance(part, exp.Expr) and is_a(part, *FLOATS):
                    part.replace(number_text(part))
            return node
        case exp.Like() | exp.ILike() if not isinstance(node.parent, exp.Escape):
            return _with_escape(node)
        case exp.Substring():
            return _substring(node)
        case exp.SubstringIndex():
            return _substring_index(node.this, node.args["delimiter"], node.args["count"])
        case exp.Left() | exp.Right():
            node.set("expression", _not_negative(node.expression))
            return node
        case exp.Repeat():
            node.set("times", _bounded(node.args["times"], _bytes_of(node.this)))
            return node
        case exp.Space():
            times = _bounded(node.this, exp.Literal.number(1))
            return exp.Repeat(this=exp.Literal.string(" "), times=times)
        case exp.Pad():
            length = _bounded(node.expression, exp.Literal.number(4))
            node.set("expression", exp.cast(length, "int"))
            return node
        case exp.GenerateSeries():
            start = exp.cast(node.args["start"].copy(), "bigint")
            node.set("end", _bounded(node.args["end"], exp.Literal.number(8), start))
            return node
        case exp.ArrayContains():
            # The engine's own is false for a list that is null.
            is_null = exp.Is(this=node.this.copy(), expression=exp.null())
            return exp.Case().when(is_null, exp.null()).else_(node.copy())
        case _:
            return node


def array_repeat(value: Any, count: Any) -> Any:
    """A list of one value many times."""
    one = exp.Anonymous(this="LIST_VALUE", expressions=[value.copy()])
    size = _bounded(count, exp.Literal.number(8))
    return exp.Anonymous(this="LIST_RESIZE", expressions=[one, size, value])


def _bounded(count: Any, width: Any, start: Any = None) -> Any:
    """A count of things that the engine makes; its process would end where memory does."""
    if isinstance(count, exp.Anonymous) and count.name == BOUNDED:
        return count
    wide = exp.cast(count.copy(), "bigint")
    start = exp.cast(exp.Literal.number(0), "bigint") if start is None else start
    return exp.Anonymous(this=BOUNDED, expressions=[wide, exp.cast(width, "bigint"), start])


def _bytes_of(text: Any) -> Any:
    return exp.Anonymous(this="STRLEN", expressions=[exp.cast(text.copy(), "varchar")])


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


def _substring_index(text: Any, delimiter: Any, count: Any) -> Any:
    """All before a delimiter, counted from the start, or behind one, counted from the end."""
    zero = exp.Literal.number(0)

    def joined(first: Any, last: Any) -> Any:
        parts = exp.Anonymous(this="STR_SPLIT", expressions=[text.copy(), delimiter.copy()])
        chosen = exp.Anonymous(this="LIST_SLICE", expressions=[parts, first, last])
        return exp.Anonymous(this="ARRAY_TO_STRING", expressions=[chosen, delimiter.copy()])

    before = joined(exp.Literal.number(1), count.copy())
    behind = joined(count.copy(), exp.Literal.number(-1))
    return (
        exp.Case()
        .when(exp.GT(this=count.copy(), expression=zero.copy()), before)
        .when(exp.LT(this=count.copy(), expression=zero.copy()), behind)
        .else_(exp.Left(this=text.copy(), expression=zero))
    )


def _not_negative(number: Any) -> Any:
    if isinstance(number, exp.Literal):
        return number
    floor = exp.Case().when(
        exp.LT(this=number.copy(), expression=exp.Literal.number(0)), exp.Literal.number(0)
    )
    return floor.else_(number.copy())
