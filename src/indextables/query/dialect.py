"""Spark's SQL for DuckDB, where sqlglot's translation is not exact.

sqlglot knows both dialects. Left for here: what depends on types (exact divisions of decimals,
dates with intervals, casts, NaN), functions that DuckDB has under other names, and functions of
texts and lists that would take all memory. A function that neither of them supports is an error:
DuckDB's own functions are not part of the dialect.

sqlglot infers types from the columns of relations. What it leaves out is here as well: columns that
are written without their table, and the digits of decimals, which Spark defines for every operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.resolver import Resolver
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.schema import MappingSchema

from indextables.errors import EmbeddedQueryError
from indextables.predicate.search_names import SearchDialect
from indextables.statements.search_calls import ONE_COLUMN, SNIPPET

_MOST_DIGITS = 38
_DIGITS_OF_INTEGERS = {
    exp.DType.TINYINT: 3, exp.DType.SMALLINT: 5, exp.DType.INT: 10, exp.DType.BIGINT: 20,
}  # fmt: skip


def annotate(tree: Any, relations: Mapping[str, pa.Schema]) -> None:
    """Set `type` on the nodes of a query whose tables are relations."""
    columns: dict[str, object] = {
        name: {field.name: _type_name(field.type) for field in schema}
        for name, schema in relations.items()
    }
    schema = MappingSchema(columns, dialect="spark", normalize=False)
    qualified = _qualify(tree, schema)
    try:
        annotate_types(tree, schema, expression_metadata=_METADATA, dialect="spark")
    finally:
        for column in qualified:
            column.set("table", None)


def digits_of(node: Any) -> tuple[int, int] | None:
    """Precision and scale of a decimal, or of an integer beside one; None for other types."""
    if isinstance(node, exp.Paren | exp.Neg):
        return digits_of(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        integer, _, fraction = node.name.partition(".")
        return None if "e" in node.name.lower() else (len(integer.lstrip("0")) + len(fraction) or 1,
                                                      len(fraction))  # fmt: skip
    sql_type = node.type
    if sql_type is None:
        return None
    if is_decimal(node):
        parameters = [int(p.name) for p in sql_type.expressions]
        precision, scale = (*parameters, 0)[:2] if parameters else (10, 0)
        return precision, scale
    whole_digits = _DIGITS_OF_INTEGERS.get(sql_type.this)
    return None if whole_digits is None else (whole_digits, 0)


def is_decimal(node: Any) -> bool:
    return node.type is not None and node.type.this == exp.DType.DECIMAL


def is_a(node: Any, *kinds: Any) -> bool:
    return node.type is not None and node.type.this in kinds


def _type_name(data_type: pa.DataType) -> str:
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision}, {data_type.scale})"
    if pa.types.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    names = {
        "boolean": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int",
        "int64": "bigint", "float32": "float", "float64": "double", "date": "date",
        "string": "string", "large_string": "string", "string_view": "string", "binary": "binary",
    }  # fmt: skip
    return next(
        (n for check, n in names.items() if getattr(pa.types, f"is_{check}")(data_type)), "unknown"
    )


def _qualify(tree: Any, schema: MappingSchema) -> list[Any]:
    """Write columns with their table, for as long as types are inferred."""
    qualified = []
    for scope in traverse_scope(tree):
        resolver = Resolver(scope, schema)
        for column in scope.columns:
            if column.table or not isinstance(column.this, exp.Identifier):
                continue
            try:
                table = resolver.get_table(column)
            except SqlglotError:  # the engine says that it is ambiguous
                continue
            if table is not None:
                column.set("table", table)
                qualified.append(column)
    return qualified


# --- Spark's rules for decimals -------------------------------------------------------------


def _decimal(precision: int, scale: int) -> exp.DataType:
    """A type within 38 digits: those behind the point are cut off first, down to six."""
    if precision > _MOST_DIGITS:
        before_point = precision - scale
        scale = max(_MOST_DIGITS - before_point, min(scale, 6))
    return exp.DataType.build(f"decimal({min(precision, _MOST_DIGITS)}, {scale})", dialect="spark")


def _binary(annotator: Any, node: Any) -> Any:
    left, right = digits_of(node.left), digits_of(node.right)
    if not left or not right or not (is_decimal(node.left) or is_decimal(node.right)):
        if isinstance(node, exp.Div):
            return annotator._set_type(node, exp.DType.DOUBLE)
        return annotator._annotate_binary(node)
    (p1, s1), (p2, s2) = left, right
    match node:
        case exp.Div():
            scale = max(6, s1 + p2 + 1)
            result_type = _decimal(p1 - s1 + s2 + scale, scale)
        case exp.Mul():
            result_type = _decimal(p1 + p2 + 1, s1 + s2)
        case exp.Mod():
            result_type = _decimal(min(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))
        case _:
            result_type = _decimal(max(s1, s2) + max(p1 - s1, p2 - s2) + 1, max(s1, s2))
    return annotator._set_type(node, result_type)


def _sum_or_average(annotator: Any, node: Any) -> Any:
    argument = node.this
    if isinstance(argument, exp.Distinct):
        argument = argument.expressions[0]
    if is_decimal(argument):
        precision, scale = digits_of(argument) or (_MOST_DIGITS, 0)
        more = 4 if isinstance(node, exp.Avg) else 0
        result_type: Any = exp.DataType.build(
            f"decimal({min(precision + (more or 10), _MOST_DIGITS)}, "
            f"{min(scale + more, _MOST_DIGITS)})",
            dialect="spark",
        )
    elif isinstance(node, exp.Avg) or is_a(argument, exp.DType.DOUBLE, exp.DType.FLOAT):
        result_type = exp.DType.DOUBLE
    else:
        result_type = exp.DType.BIGINT
    return annotator._set_type(node, result_type)


def _literal(annotator: Any, node: Any) -> Any:
    if node.is_string or node.is_int or "e" in node.name.lower():
        return annotator._annotate_literal(node)
    precision, scale = digits_of(node) or (1, 0)
    return annotator._set_type(node, _decimal(max(precision, scale), scale))


_METADATA: Any = {
    **Spark.EXPRESSION_METADATA,
    **{kind: {"annotator": _binary} for kind in (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)},
    exp.Sum: {"annotator": _sum_or_average},
    exp.Avg: {"annotator": _sum_or_average},
    exp.Literal: {"annotator": _literal},
}


DOUBLE_TEXT, FLOAT_TEXT = "indextables_double_text", "indextables_float_text"
"""The functions of the engine that write numbers as Java does."""
UPPER, LOWER, INITCAP = "indextables_upper", "indextables_lower", "indextables_initcap"
"""The functions of the engine that write texts in capitals and in small letters as Spark does."""
REPLACE, REGEXP_REPLACE = "indextables_replace", "indextables_regexp_replace"
"""The functions of the engine that replace parts of texts as Spark does, within bounds."""
SEARCH_FUNCTION = "indexquery"
"""The function of the engine that searches values."""
MAPPED_SEARCH, MAPPED_SNIPPET = "indextables_search_values", "indextables_snippet_values"
"""The same for values of a column with a mapping of its own, which is the third argument."""
_CASES = {exp.Upper: UPPER, exp.Lower: LOWER, exp.Initcap: INITCAP}

_SHORT = 16
"""Literals of up to this many characters need no check of their length."""

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
            as_double = exp.cast(node.expression.copy(), "double")
            return exp.Case().when(nan, as_double).else_(node.this.copy())
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


# --- texts and lists -------------------------------------------------------------------------

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
        case exp.Upper() | exp.Lower() | exp.Initcap():
            return exp.Anonymous(this=_CASES[type(node)], expressions=[node.this.copy()])
        case exp.ILike():
            sides = {name: _lowered(node.args[name]) for name in ("this", "expression")}
            like = exp.Like(**{**node.args, **sides})
            return like if isinstance(node.parent, exp.Escape) else _with_escape(like)
        case exp.Like() if not isinstance(node.parent, exp.Escape):
            return _with_escape(node)
        case exp.Substring():
            return _substring(node)
        case exp.SubstringIndex():
            return _substring_index(node.this, node.args["delimiter"], node.args["count"])
        case exp.Left() | exp.Right():
            node.set("expression", _not_negative(node.expression))
            return node
        case exp.Replace():
            return _replaced(node)
        case exp.RegexpReplace():
            return _regexp_replaced(node)
        case exp.ArrayToString() if not _is_short(node.expression):
            size = exp.Anonymous(this="LEN", expressions=[node.this.copy()])
            is_bounded = exp.Is(
                this=_bounded(size, _bytes_of(node.expression)), expression=exp.null()
            )
            separator = exp.Case().when(exp.not_(is_bounded), node.expression.copy())
            node.set("expression", separator)
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
    single = exp.Anonymous(this="LIST_VALUE", expressions=[value.copy()])
    size = _bounded(count, exp.Literal.number(8))
    return exp.Anonymous(this="LIST_RESIZE", expressions=[single, size, value])


def _bounded(count: Any, width: Any, start: Any = None) -> Any:
    """A count of things that the engine makes; its process would end where memory does."""
    if isinstance(count, exp.Anonymous) and count.name == BOUNDED:
        return count
    wide = exp.cast(count.copy(), "bigint")
    start = exp.cast(exp.Literal.number(0), "bigint") if start is None else start
    return exp.Anonymous(this=BOUNDED, expressions=[wide, exp.cast(width, "bigint"), start])


def _bytes_of(text: Any) -> Any:
    return exp.Anonymous(this="STRLEN", expressions=[exp.cast(text.copy(), "varchar")])


def _as_text(value: Any) -> Any:
    """A value where a function takes a text: numbers are written as Spark writes them."""
    if value.is_string:
        return value.copy()
    return number_text(value) if is_a(value, *FLOATS) else exp.cast(value.copy(), "varchar")


def _is_short(text: Any) -> bool:
    return isinstance(text, exp.Literal) and len(text.name) <= _SHORT


def _replaced(node: Any) -> Any:
    """The engine's own function where no text becomes longer, or ours, which looks before."""
    old, new = node.expression, node.args.get("replacement") or exp.Literal.string("")
    node.set("replacement", new)
    is_literal = isinstance(old, exp.Literal) and isinstance(new, exp.Literal)
    if is_literal and len(new.name.encode()) <= len(old.name.encode()):
        return node
    return exp.Anonymous(
        this=REPLACE, expressions=[_as_text(part) for part in (node.this, old, new)]
    )


def _regexp_replaced(node: Any) -> Any:
    """All matches, by a replacement in which `$1` is the first group."""
    replacement, start = node.args.get("replacement"), node.args.get("position")
    if replacement is None:
        raise EmbeddedQueryError("regexp_replace takes a text, a pattern and a replacement.")
    text, *parts = (_as_text(part) for part in (node.this, node.expression, replacement))
    if start is None:
        return exp.Anonymous(this=REGEXP_REPLACE, expressions=[text, *parts])
    one = exp.Literal.number(1)
    length = exp.Sub(this=exp.paren(start.copy()), expression=one.copy())
    before = exp.Substring(this=text, start=one, length=length)
    behind = exp.Substring(this=text.copy(), start=start.copy())
    replaced = exp.Anonymous(this=REGEXP_REPLACE, expressions=[behind, *parts])
    return exp.paren(exp.DPipe(this=before, expression=replaced))


def _lowered(text: Any) -> Any:
    """A text or pattern in small letters; each text of a list."""
    text = text.copy()
    literals = [one for one in text.find_all(exp.Literal) if one.is_string]
    if not literals or not isinstance(text, exp.Literal | exp.Any | exp.All | exp.Tuple):
        return exp.Anonymous(this=LOWER, expressions=[text])
    for literal in literals:
        literal.set("this", literal.name.lower())
    return text


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


# --- dates and times -------------------------------------------------------------------------

_DIRECTIVE = re.compile(r"(%-?[YymbBdjHIMSpaAf])(?:strict)?")
_FRACTION = re.compile(r"(?<![A-Za-z])S{3}(?![A-Za-z])")
_QUOTED = re.compile(r"'([^']*)'")
_UNITS = {"MM": "month", "MON": "month", "YY": "year", "YYYY": "year", "DD": "day"}


_TIMES = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ)
_PART_OF_DATE = re.compile(r"\s*(\d{4})(?:-(\d\d?))?\s*")


def _whole_dates(sides: list[Any]) -> None:
    """Texts for times: `'2024'` and `'2024-06'` are the first days of a year and a month."""
    for side in sides:
        if side.is_string and (part := _PART_OF_DATE.fullmatch(side.name)):
            side.set("this", f"{part[1]}-{part[2] or 1:0>2}-01")


def translated_time(node: Any) -> Any:
    """A node about dates and times as the engine reads it; any other node as it is."""
    match node:
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE() | exp.NullSafeEQ(
        ) | exp.Between() | exp.In():  # fmt: skip
            sides = list(node.iter_expressions())
            if any(is_a(side, *_TIMES) for side in sides):
                _whole_dates(sides)
            return node
        case exp.Cast() | exp.TryCast() if node.to.this in _TIMES:
            _whole_dates([node.this])
            return node
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
    pattern = node.args["format"]
    if not pattern.is_string:
        raise EmbeddedQueryError(f"A pattern must be a text in quotes in {node.sql('spark')}.")
    translated = _FRACTION.sub("%g", pattern.name)
    translated = _DIRECTIVE.sub(r"\1", translated)
    unknown = re.search(r"[A-Za-z]", re.sub(r"%-?[A-Za-z]", "", _QUOTED.sub("", translated)))
    if unknown:
        raise EmbeddedQueryError(
            f"The pattern in {node.sql('spark')} has letters that are not supported "
            "without Spark: use y, M, d, D, E, H, h, m, s, SSS, SSSSSS and a."
        )
    return exp.Literal.string(_QUOTED.sub(r"\1", translated))


# --- the whole query -------------------------------------------------------------------------

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
        case exp.CTE() if node.parent and node.parent.args.get("recursive"):
            return _recursive(node)
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
            raise EmbeddedQueryError(
                "TABLESAMPLE is not supported without Spark. Use LIMIT, or a condition."
            )
        case exp.Lateral() if node.args.get("outer"):
            raise EmbeddedQueryError("LATERAL VIEW OUTER is not supported without Spark.")
        case exp.Format():
            raise _unknown("format_string")
        case exp.ExplodeOuter() | exp.PosexplodeOuter():
            raise _unknown("explode_outer")


def _unknown(name: str) -> EmbeddedQueryError:
    return EmbeddedQueryError(f"The function {name} is not supported without Spark.")


# --- functions by name ----------------------------------------------------------------------


def _is_null(value: Any) -> Any:
    return exp.paren(exp.Is(this=exp.paren(value), expression=exp.null()))


def _pmod(value: Any, divisor: Any) -> Any:
    remainder = exp.paren(exp.Mod(this=exp.paren(value), expression=exp.paren(divisor.copy())))
    again = exp.paren(exp.Add(this=remainder, expression=exp.paren(divisor.copy())))
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
    if name not in (*_SAME, *ONE_COLUMN, SNIPPET, MAPPED_SEARCH, MAPPED_SNIPPET):
        raise _unknown(node.name)
    return node


# --- clauses --------------------------------------------------------------------------------

BOUNDED_STEPS = "indextables_bounded_steps"
"""The function of the engine that is true for a row of a recursion, until there are too many."""


def _recursive(node: Any) -> Any:
    """Each row that a step of a recursion returns is counted: the engine itself has no limit."""
    if isinstance(node.this, exp.SetOperation):
        step = node.this.expression
        if not any(table.name == node.alias for table in step.find_all(exp.Table)):
            return node  # a plain union beside a recursion
        rows = (step if isinstance(step, exp.Query) else exp.select("*").from_(step)).copy()
        counted = exp.Anonymous(this=BOUNDED_STEPS, expressions=[exp.Literal.number(0)])
        step.replace(exp.select("*").from_(rows.subquery("step")).where(counted))
    return node


def _grouped(node: Any) -> Any:
    """`GROUP BY a, b WITH ROLLUP` is `GROUP BY ROLLUP (a, b)`."""
    for key in ("rollup", "cube"):
        for grouping in node.args.get(key) or []:
            if not grouping.expressions:
                grouping.set("expressions", node.expressions)
                node.set("expressions", [])
    return node
