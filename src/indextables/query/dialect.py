"""Spark's SQL for DuckDB, where sqlglot's translation is not exact.

sqlglot knows both dialects. Left for here: what depends on types (decimals, dates with intervals,
casts), functions that DuckDB has under other names, and functions that would take all memory.
A function that neither knows is an error: DuckDB's own functions are not part of the dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from indextables.errors import EmbeddedQueryError
from indextables.predicate.search_names import SearchDialect
from indextables.query.numbers import Division, translated_number
from indextables.query.texts import array_repeat, translated_text
from indextables.query.times import translated_time
from indextables.statements.search_calls import ONE_COLUMN, SNIPPET

_parser: Any = SearchDialect.Parser


class SparkDialect(SearchDialect):
    """Spark's SQL since version 4: a cast that fails is an error."""

    class Parser(_parser):  # type: ignore[misc]
        STRICT_CAST = True


# Functions that sqlglot leaves as they are and that mean the same to DuckDB, or have another name.
_SAME = frozenset(
    ["bin", "date_part", "datepart", "make_date", "map_concat", "map_entries", "map_values", "now",
     "octet_length", "url_decode", "url_encode"]
)  # fmt: skip
_RENAMED = {"btrim": "trim", "every": "bool_and", "some": "bool_or", "std": "stddev"}


@dataclass(frozen=True)
class EngineSql:
    """A query for the engine, and the divisions of decimals that it calls."""

    sql: str
    divisions: frozenset[Division] = frozenset()


def engine_sql(tree: Any) -> EngineSql:
    """A parsed and annotated query as the engine reads it.

    >>> from sqlglot import parse_one
    >>> engine_sql(parse_one("SELECT dayofweek(day), isnan(x)", dialect="spark")).sql
    'SELECT (DAYOFWEEK(CAST(day AS DATE)) + 1), COALESCE(ISNAN(x), FALSE)'
    """
    divisions: set[Division] = set()
    # Inner parts first: what replaces an outer one has its arguments inside.
    for node in reversed(list(tree.walk())):
        new = _translated(node, divisions)
        if new is not node:
            new.type = node.type
            if node is tree:
                tree = new
            else:
                node.replace(new)
    return EngineSql(tree.sql(dialect="duckdb"), frozenset(divisions))


def _translated(node: Any, divisions: set[Division]) -> Any:
    _refuse(node)
    match node:
        case exp.Anonymous():
            return _call(node)
        case exp.Group():
            return _grouped(node)
        case exp.Any() if not isinstance(node.parent, exp.Binary):
            return exp.Anonymous(this="BOOL_OR", expressions=[node.this.copy()])
        case exp.CountIf():
            # The engine's own is null where no row has a value.
            hit = exp.Case().when(node.this.copy(), exp.Literal.number(1))
            return exp.Count(this=hit)
    new = translated_number(node, divisions)
    if new is node:
        new = translated_text(node)
    return translated_time(node) if new is node else new


def _refuse(node: Any) -> None:
    match node:
        case exp.TableSample():
            raise EmbeddedQueryError("TABLESAMPLE is not known here. Use LIMIT, or a condition.")
        case exp.Lateral() if node.args.get("outer"):
            raise EmbeddedQueryError("LATERAL VIEW OUTER is not known here.")
        case exp.Format():
            raise _unknown("format_string")
        case exp.ExplodeOuter() | exp.PosexplodeOuter():
            raise _unknown("explode_outer")


def _unknown(name: str) -> EmbeddedQueryError:
    return EmbeddedQueryError(
        f"The function {name} is not known here. Spark's other functions work in Spark only."
    )


# --- functions by name ----------------------------------------------------------------------


def _is_null(value: Any) -> Any:
    return exp.paren(exp.Is(this=exp.paren(value), expression=exp.null()))


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
    "array_repeat": (2, array_repeat),
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


# --- clauses --------------------------------------------------------------------------------


def _grouped(node: Any) -> Any:
    """`GROUP BY a, b WITH ROLLUP` is `GROUP BY ROLLUP (a, b)`."""
    for key in ("rollup", "cube"):
        for grouping in node.args.get(key) or []:
            if not grouping.expressions:
                grouping.set("expressions", node.expressions)
                node.set("expressions", [])
    return node
