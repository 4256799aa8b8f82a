"""Dates and times of Spark's SQL for the engine."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from indextables.errors import EmbeddedQueryError
from indextables.query.types import is_a

_DIRECTIVE = re.compile(r"(%-?[YymbBdjHIMSpaAf])(?:strict)?")
_FRACTION = re.compile(r"(?<![A-Za-z])S{3}(?![A-Za-z])")
_QUOTED = re.compile(r"'([^']*)'")
_UNITS = {"MM": "month", "MON": "month", "YY": "year", "YYYY": "year", "DD": "day"}


def translated_time(node: Any) -> Any:
    """A node about dates and times as the engine reads it; any other node as it is."""
    match node:
        case exp.Add() | exp.Sub() if _is_date_with_days(node):
            return exp.cast(exp.paren(node.copy()), "date")
        case exp.TsOrDsAdd() | exp.AddMonths():
            return exp.cast(exp.paren(node.copy()), "date")
        case exp.DateTrunc():
            unit = node.args["unit"].name.upper()
            node.set("unit", exp.Literal.string(_UNITS.get(unit, unit)))
            return exp.cast(node.copy(), "date")
        case exp.TimeToStr():
            node.set("format", _pattern(node))
            return node
        case exp.StrToTime():
            node.set("format", _pattern(node))
            return exp.cast(node.copy(), exp.DType.TIMESTAMPTZ)
        case exp.StrToUnix() if is_a(node.this, *exp.DataType.TEMPORAL_TYPES):
            seconds = exp.Anonymous(this="EPOCH", expressions=[node.this.copy()])
            return exp.cast(exp.Floor(this=seconds), "bigint")
        case exp.TimestampFromParts():
            return exp.cast(node.copy(), exp.DType.TIMESTAMPTZ)
        case exp.TsOrDsToDate() if node.args.get("format"):
            return exp.cast(exp.func("STRPTIME", node.this, _pattern(node)), "date")
        case exp.TsOrDsToDate():
            return exp.cast(node.this.copy(), "date")
        case exp.DayOfWeek():
            return _from_one(node)
        case exp.Extract() if node.name.upper() in ("DOW", "DAYOFWEEK"):
            return _from_one(node)
        case _:
            return node


def _from_one(node: Any) -> Any:
    """Sunday is 1 in Spark and 0 in the engine."""
    return exp.paren(exp.Add(this=node.copy(), expression=exp.Literal.number(1)))


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
