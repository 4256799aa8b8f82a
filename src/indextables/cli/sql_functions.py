"""Parts of Spark's SQL that the embedded engine knows under other names, or reads differently.

The engine's SQL is close to Postgres', which is what the query is written in for it. Here are the
places where that is not close enough: patterns of times, parts of dates, positions in a text, and
clauses that the engine would pass over without a word.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres

from indextables.errors import EmbeddedQueryError

_PARTS: dict[type[exp.Expr], str] = {
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Second: "second",
    exp.DayOfMonth: "day",
    exp.DayOfYear: "doy",
    exp.WeekOfYear: "week",
    exp.Quarter: "quarter",
}
_DIRECTIVE = re.compile(r"(%-?[YymbBdjHIMSpaAf])(?:strict)?")
_FRACTION = re.compile(r"(?<![A-Za-z])S{3}(?![A-Za-z])")
_QUOTED = re.compile(r"'([^']*)'")


BOUNDED = "indextables_bounded"
"""The function of the engine that returns its first argument, a number that is not too large."""

_written: Any = Postgres.Generator


class _Engine(Postgres):
    class Generator(_written):  # type: ignore[misc]
        # The engine knows QUALIFY and semi joins. Written as subqueries they would take ORDER BY
        # and LIMIT inside.
        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            kind: write for kind, write in _written.TRANSFORMS.items() if kind is not exp.Select
        }


def engine_sql(tree: Any) -> str:
    """A parsed query as the engine reads it.

    >>> from sqlglot import parse_one
    >>> engine_sql(parse_one("SELECT hour(at), date_format(at, 'MM/yy')", dialect="spark"))
    "SELECT DATE_PART('hour', at), TO_CHAR(CAST(at AS TIMESTAMP(6)), '%m/%y')"
    """
    copy = tree.copy()
    # Inner parts first: what replaces an outer one has its arguments inside.
    for node in reversed(list(copy.walk())):
        new = _translated(node)
        if new is not node:
            node.replace(new)
    text: str = copy.sql(dialect=_Engine)
    return text


def _translated(node: Any) -> Any:
    match node:
        case exp.TableSample():
            raise EmbeddedQueryError("TABLESAMPLE is not known here. Use LIMIT, or a condition.")
        case exp.Except() | exp.Intersect() if not node.args.get("distinct"):
            # The engine would drop every row that is on the other side, however often it is here.
            name = node.key.upper()
            raise EmbeddedQueryError(
                f"{name} ALL is not known here. Use {name}, or number equal rows with row_number()."
            )
        case exp.In() if node.args.get("query") and _unknown_matters(node):
            return _in_with_nulls(node)
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            # To the engine, AND and OR bind more tightly than IS DISTINCT FROM.
            return exp.paren(type(node)(this=_held(node.this), expression=_held(node.expression)))
        case exp.CountIf():
            # As the sum of a CASE it would be null where there are no rows.
            hit = exp.Case().when(node.this, exp.Literal.number(1))
            return exp.Count(this=hit)
        case exp.Anonymous() if node.name.lower() in ("isnull", "isnotnull"):
            (value,) = node.expressions
            null = exp.paren(exp.Is(this=_held(value), expression=exp.null()))
            return null if node.name.lower() == "isnull" else exp.paren(exp.not_(null))
        case exp.Repeat():
            node.set("times", _bounded(node.args["times"], _bytes_of(node.this)))
            return node
        case exp.Pad():
            node.set("expression", _bounded(node.expression, exp.Literal.number(4)))
            return node
        case exp.Anonymous() if node.name.lower() == "array_repeat":
            node.expressions[1].replace(_bounded(node.expressions[1], exp.Literal.number(8)))
            return node
        case exp.GenerateSeries():
            start = exp.cast(node.args["start"].copy(), "bigint")
            node.set("end", _bounded(node.args["end"], exp.Literal.number(8), start))
            return node
        case exp.Group():
            return _grouped(node)
        case exp.TimeToStr():
            inner = node.this.this if isinstance(node.this, exp.TimeStrToTime) else node.this
            # Without digits it would be nanoseconds, which only last until 2262.
            moment = exp.cast(inner, exp.DataType.build("timestamp(6)", dialect="postgres"))
            return exp.func("TO_CHAR", moment, _pattern(node))
        case exp.StrToTime():
            pattern = _pattern(node)
            if re.search("%-?[HI]", pattern.name) and not re.search("%-?M", pattern.name):
                raise EmbeddedQueryError(
                    f"A pattern with hours needs minutes too here: {node.sql('spark')}."
                )
            return exp.func("TO_TIMESTAMP", node.this, pattern)
        case exp.TsOrDsToDate() if node.args.get("format"):
            return exp.Anonymous(this="TO_DATE", expressions=[node.this, _pattern(node)])
        case exp.DayOfWeek():
            return _day_of_week(node.this)
        case exp.Extract() if node.name.upper() in ("DOW", "DAYOFWEEK"):
            return _day_of_week(node.expression)
        case exp.Substring():
            return _substring(node)
        case exp.IsNan():
            found = exp.Anonymous(this="ISNAN", expressions=[node.this])
            return exp.Coalesce(this=found, expressions=[exp.false()])
        case exp.ArrayContains():
            return exp.Anonymous(this="ARRAY_HAS", expressions=[node.this, node.expression])
        case _ if type(node) in _PARTS:
            return _part(_PARTS[type(node)], node.this)
        case _:
            return node


def _bounded(count: Any, width: Any, start: Any = None) -> Any:
    """A count of things that the engine makes; its process would end where memory does."""
    if isinstance(count, exp.Anonymous) and count.name == BOUNDED:
        return count
    wide = exp.cast(count.copy(), "bigint")
    start = exp.cast(exp.Literal.number(0), "bigint") if start is None else start
    return exp.Anonymous(this=BOUNDED, expressions=[wide, exp.cast(width, "bigint"), start])


def _bytes_of(text: Any) -> Any:
    return exp.Anonymous(this="OCTET_LENGTH", expressions=[exp.cast(text.copy(), "varchar")])


def _held(node: Any) -> Any:
    return exp.paren(node) if isinstance(node, exp.Binary | exp.Not | exp.Predicate) else node


def _unknown_matters(node: Any) -> bool:
    """Whether a null result of IN has to be told from false, where the engine does not do that.

    It does in `WHERE x NOT IN (…)` and beside AND. Elsewhere it forgets nulls, which makes no
    difference until there is a NOT around them, or a CASE.
    """
    negated, place = False, node.parent
    while isinstance(place, exp.Connector | exp.Paren | exp.Not):
        negated = negated or isinstance(place, exp.Not)
        place = place.parent
    if not isinstance(place, exp.Where | exp.Having):
        return isinstance(place, exp.Case | exp.If | exp.Is | exp.Binary)
    above = node.parent
    if isinstance(above, exp.Not):
        above = above.parent
    while isinstance(above, exp.And):
        above = above.parent
    return negated and above is not place


def _in_with_nulls(node: Any) -> Any:
    """`x IN (query)` with the three results that it has in SQL."""
    query = node.args["query"].this
    alias = exp.TableAlias(this=exp.to_identifier("listed"), columns=[exp.to_identifier("value")])
    source = exp.Subquery(this=query.copy(), alias=alias)
    some_null = exp.Exists(this=exp.select("1").from_(source).where("value IS NULL"))
    value_null = exp.Is(this=_held(node.this.copy()), expression=exp.null())
    unknown = exp.or_(exp.and_(value_null, exp.Exists(this=query.copy())), some_null)
    found = exp.Case().when(node.copy(), exp.true()).when(unknown, exp.null())
    return exp.paren(found.else_(exp.false()))


def _part(name: str, moment: Any) -> Any:
    plain = moment.this if isinstance(moment, exp.TsOrDsToDate) else moment
    return exp.Anonymous(this="DATE_PART", expressions=[exp.Literal.string(name), plain])


def _day_of_week(moment: Any) -> Any:
    """Sunday is 1 in Spark and 0 in the engine."""
    return exp.paren(exp.Add(this=_part("dow", moment), expression=exp.Literal.number(1)))


def _pattern(node: Any) -> Any:
    """A pattern for times. sqlglot made directives of Spark's letters; the engine has most."""
    given = node.args["format"]
    if not given.is_string:
        raise EmbeddedQueryError(f"A pattern must be a text in quotes in {node.sql('spark')}.")
    found = _FRACTION.sub("%3f", given.name.replace("%f", "%6f"))
    found = _DIRECTIVE.sub(r"\1", found)
    unknown = re.search(r"[A-Za-z]", re.sub(r"%-?[A-Za-z]|%[36]f", "", _QUOTED.sub("", found)))
    if unknown:
        raise EmbeddedQueryError(
            f"The pattern in {node.sql('spark')} has letters that are not known here: use y, M, d, "
            "D, E, H, h, m, s, SSS, SSSSSS and a."
        )
    return exp.Literal.string(_QUOTED.sub(r"\1", found))


def _substring(node: Any) -> Any:
    """Spark counts from the end where a position is negative, and takes zero for one."""
    start, count = node.args.get("start"), node.args.get("length")
    number = start.this if isinstance(start, exp.Neg) else start
    if not isinstance(number, exp.Literal) or not number.is_int:
        return node
    place: Any
    if isinstance(start, exp.Neg):
        length = exp.Anonymous(this="CHARACTER_LENGTH", expressions=[node.this.copy()])
        place = exp.Sub(this=length, expression=exp.Literal.number(int(number.name) - 1))
    elif number.name == "0":
        place = exp.Literal.number(1)
    else:
        return node
    return exp.Anonymous(
        this="SUBSTR", expressions=[node.this, place, *([] if count is None else [count])]
    )


def _grouped(node: Any) -> Any:
    """`GROUP BY a, b WITH ROLLUP` is `GROUP BY ROLLUP (a, b)`."""
    for key in ("rollup", "cube"):
        for grouping in node.args.get(key) or []:
            if not grouping.expressions:
                grouping.set("expressions", node.expressions)
                node.set("expressions", [])
    return node
