"""Functions that the engine does not have: searches of values, exact divisions, bounds."""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import Config
from indextables.errors import EmbeddedQueryError, IndexTablesError
from indextables.predicate import Column, Search
from indextables.predicate.search_syntax import parse_search
from indextables.query.dialect import BOUNDED, DOUBLE_TEXT, FLOAT_TEXT, Division
from indextables.query.relations import SEARCH_FUNCTION
from indextables.split.mapping_options import build_mapping
from indextables.split.search import search_rows
from indextables.split.snippet import snippets
from indextables.statements.search_calls import SNIPPET

_MOST_MADE = 256 << 20
_VALUE = "value"
_EXACT = decimal.Context(prec=80)


def register_functions(
    connection: Any,
    divisions: Iterable[Division],
    failures: list[IndexTablesError],
    *,
    searches_values: bool,
) -> None:
    """Give a connection the functions that a query may call."""

    def register(name: str, work: Callable[..., Any], arguments: list[str], result: str) -> None:
        @functools.wraps(work)  # the engine counts its parameters
        def call(*columns: Any) -> Any:
            try:
                return work(*columns)
            except IndexTablesError as error:
                failures.append(error)
                raise

        connection.create_function(
            name, call, arguments, result, type="arrow", null_handling="special"
        )

    register(BOUNDED, _bounded, ["BIGINT"] * 3, "BIGINT")
    register(DOUBLE_TEXT, _double_texts, ["DOUBLE"], "VARCHAR")
    register(FLOAT_TEXT, _float_texts, ["DOUBLE"], "VARCHAR")
    for division in divisions:
        operands = [f"DECIMAL(38, {division.left})", f"DECIMAL(38, {division.right})"]
        result = f"DECIMAL({division.precision}, {division.scale})"
        register(division.name, _divider(division), operands, result)
    if searches_values:
        register(SEARCH_FUNCTION, _search_values, ["VARCHAR", "VARCHAR"], "BOOLEAN")
        register(SNIPPET, _snippets_of_values, ["VARCHAR", "VARCHAR"], "VARCHAR")


def _bounded(counts: Any, widths: Any, starts: Any) -> Any:
    """Refuse numbers by which the engine would make more bytes than a batch may have."""
    each = pc.multiply(
        pc.abs(pc.subtract(pc.cast(counts, pa.float64()), pc.cast(starts, pa.float64()))),
        pc.cast(widths, pa.float64()),
    )
    made = pc.sum(each).as_py() or 0
    if made > _MOST_MADE:
        raise EmbeddedQueryError(
            f"A function of the query would make {made:,.0f} bytes at once. Make texts, "
            "lists and series shorter, or take fewer rows."
        )
    return counts


def _divider(division: Division) -> Callable[[Any, Any], Any]:
    unit = Decimal(1).scaleb(-division.scale)
    kind = pa.decimal128(division.precision, division.scale)

    def divided(left: Decimal | None, right: Decimal | None) -> Decimal | None:
        if left is None or not right:
            return None
        return _EXACT.divide(left, right).quantize(unit, decimal.ROUND_HALF_UP, _EXACT)

    def divide(lefts: Any, rights: Any) -> Any:
        pairs = zip(lefts.to_pylist(), rights.to_pylist(), strict=True)
        return pa.array([divided(*pair) for pair in pairs], kind)

    return divide


def double_text(value: float) -> str:
    """A double as Java writes it.

    >>> [double_text(x) for x in (1.0, 1e10, -0.0, 0.00012, float("nan"))]
    ['1.0', '1.0E10', '-0.0', '1.2E-4', 'NaN']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    fraction = "".join(map(str, digits[1:])) or "0"
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{power}"


def _double_texts(values: Any) -> Any:
    texts = [None if value is None else double_text(value) for value in values.to_pylist()]
    return pa.array(texts, pa.string())


def _float_texts(values: Any) -> Any:
    # As few digits as tell it from other floats of 32 bits.
    shortest = [None if v is None else float(str(np.float32(v))) for v in values.to_pylist()]
    return _double_texts(pa.array(shortest, pa.float64()))


# A value that is not a column of an index table is searched as a column of a new one would be.


def _search_values(values: Any, queries: Any) -> Any:
    rows, search, mapping = _searched(values, queries)
    return pa.array(search_rows(search, rows, mapping), pa.bool_())


def _snippets_of_values(values: Any, queries: Any) -> Any:
    rows, search, mapping = _searched(values, queries)
    texts = rows.column(0).to_pylist()
    marked = snippets(texts, search, _VALUE, mapping=mapping, schema=rows.schema)
    return pa.array(marked, pa.string())


def _searched(values: Any, queries: Any) -> tuple[pa.Table, Search, Any]:
    rows = pa.table({_VALUE: pc.cast(values, pa.string())})
    text = queries[0].as_py() if len(queries) else "*"
    query = parse_search(text, schema=rows.schema, max_length=len(text), max_depth=150)
    return rows, Search(Column((_VALUE,)), query, text), build_mapping(rows.schema, Config())
