"""SQL text to a predicate: Spark's dialect, the part of it that a table can answer.

A condition compares columns with literals and combines the comparisons. sqlglot cuts and parses
the text; this module resolves names, hands literals to `coercion` and builds the tree. Everything
else that is SQL, such as arithmetic or a comparison of two columns, is an `Expression` where the
caller can compute one, and refused by name elsewhere.
"""

from __future__ import annotations

import datetime
import functools
import re
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError, TokenError

from indextables.config import INDEXQUERY_MAX_DEPTH, INDEXQUERY_MAX_LENGTH
from indextables.errors import (
    EmbeddedQueryError,
    PredicateSyntaxError,
    UnknownColumnError,
    UnsupportedPredicateError,
)
from indextables.predicate.coercion import (
    NotALiteralError,
    compare,
    constant_compare,
    is_in,
    literal_value,
)
from indextables.predicate.literals import time_zone
from indextables.predicate.names import (
    escaped_field,
    refuse_collated,
    resolve_column,
    resolve_field,
)
from indextables.predicate.search import half_character
from indextables.predicate.search_names import SearchDialect, is_search_name, search_call
from indextables.predicate.search_syntax import check_fields, parse_search
from indextables.predicate.spark_tokens import ALL_FIELDS, join_strings, rewrite_operators, tokenize
from indextables.predicate.tree import (
    NULL,
    Column,
    Constant,
    Contains,
    EndsWith,
    Expression,
    IsNull,
    Operator,
    Predicate,
    Search,
    StartsWith,
    Value,
    conjunction,
    disjunction,
    like,
    negation,
)
from indextables.schema import is_text

_COMPARISONS: dict[type[exp.Expr], Operator] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.NullSafeNEQ: "<=>",
}
_FLIPPED: dict[Operator, Operator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TEXT_FUNCTIONS: dict[type[exp.Expr], type[StartsWith | EndsWith | Contains]] = {
    exp.StartsWith: StartsWith,
    exp.EndsWith: EndsWith,
    exp.Contains: Contains,
}
_REMEMBERED_LENGTH = 4_096
_SEARCH_FUNCTIONS = ("indexquery", "tantivy4spark_indexquery")
_SEARCH_ALL_FUNCTIONS = ("indexqueryall", "tantivy4spark_indexqueryall")
_OF_A_MOMENT = (
    exp.Rand, exp.Randn, exp.Uuid, exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime,
    exp.CurrentDatetime, exp.Localtimestamp, exp.Localtime,
)  # fmt: skip
_NOT_OF_ONE_ROW = (
    *_OF_A_MOMENT, exp.AggFunc, exp.Window, exp.Query, exp.UDTF, exp.Lambda, exp.Star,
    exp.Placeholder, exp.Parameter,
)  # fmt: skip
_NOT_COMPUTED = {*_SEARCH_FUNCTIONS, *_SEARCH_ALL_FUNCTIONS, "snippet"}
_MOMENT = re.compile(r"current_|now\s*\(|curdate", re.IGNORECASE)
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


def parse_predicate(
    sql: str,
    schema: pa.Schema,
    *,
    timezone: str = "UTC",
    max_query_length: int = INDEXQUERY_MAX_LENGTH.default,
    max_query_depth: int = INDEXQUERY_MAX_DEPTH.default,
    expressions: bool = False,
) -> Predicate:
    """Parse a condition against the columns of a schema.

    With `expressions`, a part that is more than a column and literals becomes an `Expression`.

    >>> schema = pa.schema([("n", pa.int64()), ("title", pa.string())])
    >>> print(parse_predicate("3 < N AND title indexquery 'spark'", schema))
    (n > 3 AND title indexquery 'spark')
    """
    # Long ones, lists of keys mostly, are not worth the memory, and moments pass.
    is_kept = len(sql) <= _REMEMBERED_LENGTH and not _MOMENT.search(sql)
    parse = _parsed if is_kept else _parsed.__wrapped__
    predicate = parse(
        sql,
        schema,
        timezone=timezone,
        max_query_length=max_query_length,
        max_query_depth=max_query_depth,
        expressions=expressions,
    )
    refuse_collated(predicate, schema)
    return predicate


@functools.lru_cache(maxsize=512)  # a condition that is asked again is not parsed again
def _parsed(
    sql: str,
    schema: pa.Schema,
    *,
    timezone: str,
    max_query_length: int,
    max_query_depth: int,
    expressions: bool,
) -> Predicate:
    if (at := half_character(sql)) is not None:
        raise PredicateSyntaxError(sql, f"{sql[at]!r} is not a character; write it in UTF-8.")
    reader = _Reader(schema, timezone, max_query_length, max_query_depth, expressions)
    try:
        rewritten = rewrite_operators(sql)
        tokens = join_strings(rewritten, tokenize(rewritten))
        parsed = SearchDialect().parser().parse_into(exp.Condition, tokens, rewritten)
        if len(parsed) != 1 or parsed[0] is None:
            raise PredicateSyntaxError(sql, "write one condition, such as n > 3.")
        return reader.predicate(at_this_moment(parsed[0], timezone) if expressions else parsed[0])
    except TokenError as error:
        reason = "a quote, a back-tick or a comment is never closed."
        raise PredicateSyntaxError(sql, reason) from error
    except SqlglotError as error:
        raise PredicateSyntaxError(sql, _reason(error)) from error
    except RecursionError:
        raise PredicateSyntaxError(sql, "it is nested too deep.") from None


def at_this_moment(node: exp.Expr, timezone: str) -> exp.Expr:
    """An expression in which now is one moment for all rows."""
    now = datetime.datetime.now(datetime.UTC)

    def literal(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.CurrentTimestamp):
            return exp.cast(exp.Literal.string(now.isoformat()), "timestamp", dialect="spark")
        if isinstance(part, exp.CurrentDate) and not part.this:
            day = now.astimezone(time_zone(timezone)).date()
            return exp.cast(exp.Literal.string(day.isoformat()), "date", dialect="spark")
        return part

    return node.transform(literal)


def row_operands(
    node: exp.Expr, schema: pa.Schema, *, timezone: str
) -> tuple[dict[str, Column], str | None]:
    """The columns that an expression reads, by their names, or why it cannot be computed."""
    operands: dict[str, Column] = {}
    left = [node]
    while left:
        part = left.pop()
        is_search = isinstance(part, exp.Anonymous) and part.name.lower() in _NOT_COMPUTED
        if isinstance(part, _NOT_OF_ONE_ROW) or is_search_name(part) or is_search:
            return {}, _reason_against(part)
        if not _is_path(part):
            left.extend(part.iter_expressions())
            continue
        assert isinstance(part, (exp.Column, exp.Dot))
        column, _ = resolve_column([one.name for one in part.parts], schema)
        operands[column.root] = Column((column.root,))
        if timezone not in _UTC and pa.types.is_timestamp(schema.field(column.root).type):
            reason = f"times are computed in UTC, not in {timezone}; compare '{column}' "
            return {}, reason + "with literals"
    return operands, None


def _reason(error: SqlglotError) -> str:
    if isinstance(error, ParseError) and error.errors:
        first = error.errors[0]
        near = str(first.get("highlight") or "").strip()
        described = str(first.get("description") or "").strip(". ")
        if described.startswith("Required keyword"):
            described = "Something is missing"
        near_text = f" near {near!r}" if near else ""
        return f"{described}{near_text}. A name that is a word of SQL needs back-ticks."
    return "it is not a condition in Spark's SQL."


@dataclass(frozen=True, slots=True)
class _Reader:
    schema: pa.Schema
    timezone: str
    max_query_length: int
    max_query_depth: int
    expressions: bool

    def predicate(self, node: exp.Expr) -> Predicate:
        try:
            return self.plain(node)
        except UnsupportedPredicateError:
            if not self.expressions:
                raise
            return self.computed(node)

    def plain(self, node: exp.Expr) -> Predicate:
        """A predicate of columns and literals, and of parts that may be computed."""
        if node.args.get("negate"):
            node = node.copy()
            node.set("negate", None)
            return negation(self.predicate(node))
        if isinstance(node, exp.Paren):
            return self.predicate(node.this)
        if isinstance(node, exp.And):
            return conjunction(*map(self.predicate, node.flatten()))
        if isinstance(node, exp.Or):
            return disjunction(*map(self.predicate, node.flatten()))
        if isinstance(node, exp.Not):
            return negation(self.predicate(node.this))
        if isinstance(node, exp.Boolean):
            return Constant(bool(node.this))
        if isinstance(node, exp.Null):
            return NULL
        if type(node) in _COMPARISONS:
            return self.comparison(node)
        if isinstance(node, exp.Between):
            if node.args.get("symmetric"):
                raise _unsupported(node, "SYMMETRIC is not Spark's SQL")
            return conjunction(
                self.against(">=", node.this, node.args["low"]),
                self.against("<=", node.this, node.args["high"]),
            )
        if isinstance(node, exp.In):
            return self.is_in(node)
        if isinstance(node, exp.Is):
            return self.is_(node)
        if isinstance(node, (exp.Like, exp.Escape)):
            return self.like(node)
        if type(node) in _TEXT_FUNCTIONS:
            column = self.text_column(node, node.this)
            text = self.text(node, node.args["expression"])
            return NULL if text is None else _TEXT_FUNCTIONS[type(node)](column, text)
        if is_search_name(node):
            return self.named_search(node)
        if isinstance(node, exp.Anonymous):
            return self.function(node)
        if isinstance(node, (exp.Column, exp.Dot)):
            column, data_type = self.column(node)
            if not pa.types.is_boolean(data_type):
                raise _unsupported(node, f"the column is of type {data_type}, not BOOLEAN")
            return compare("=", column, data_type, True)
        raise _unsupported(node, "it is not a comparison of a column with a literal")

    # --- what only an engine computes

    def computed(self, node: exp.Expr) -> Predicate:
        operands = self.operands(node, node)
        if not operands:
            raise _unsupported(node, "it names no column")
        return Expression(node.sql(dialect="spark", comments=False), tuple(operands.items()))

    def operands(self, condition: exp.Expr, part: exp.Expr) -> dict[str, Column]:
        """The columns that an expression reads, by their names. It must be about one row."""
        columns, reason = row_operands(part, self.schema, timezone=self.timezone)
        if reason is not None:
            raise _unsupported(condition, reason)
        return columns

    # --- names

    def column(self, node: exp.Expr) -> tuple[Column, pa.DataType]:
        if not isinstance(node, (exp.Column, exp.Dot)):
            raise _unsupported(node, "a column is expected here")
        return resolve_column([part.name for part in node.parts], self.schema)

    def text_column(self, node: exp.Expr, name: exp.Expr) -> Column:
        column, data_type = self.column(name)
        if pa.types.is_dictionary(data_type):
            data_type = data_type.value_type
        if not is_text(data_type):
            raise _unsupported(node, f"'{column}' is of type {data_type}, not text")
        return column

    def text(self, node: exp.Expr, literal: exp.Expr) -> str | None:
        value = self.literal(node, literal)
        if value is not None and not isinstance(value, str):
            raise _unsupported(node, "a text in quotes is expected on the right")
        return value

    def literal(self, node: exp.Expr, literal: exp.Expr) -> Value | None:
        try:
            return literal_value(literal, timezone=self.timezone)
        except NotALiteralError as error:
            if self.expressions and not self.operands(node, literal):
                return self.constant(literal)
            raise _unsupported(node, str(error)) from None

    def constant(self, node: exp.Expr) -> Value | None:
        """The value of an expression without columns, such as `date_sub(current_date(), 7)`."""
        import indextables

        try:
            result = indextables.sql(
                f"SELECT ({node.sql(dialect='spark', comments=False)}) AS value"
            )
        except EmbeddedQueryError as error:
            raise _unsupported(node, str(error).rstrip(".")) from None
        value = result.column(0)[0].as_py()
        if not isinstance(value, Value | None):
            raise _unsupported(node, f"a {result.schema.types[0]} cannot be compared here")
        if isinstance(value, datetime.datetime) and self.timezone not in _UTC:
            raise _unsupported(node, f"times are computed in UTC, not in {self.timezone}")
        return value

    # --- comparisons

    def comparison(self, node: exp.Expr) -> Predicate:
        op = _COMPARISONS[type(node)]
        left, right = node.this, node.expression
        if not _is_name(left) and _is_name(right):
            left, right, op = right, left, _FLIPPED.get(op, op)
        if _is_name(left) and _is_name(right):
            raise _unsupported(node, "it compares two columns")
        predicate: Predicate | None
        if _is_name(left):
            predicate = self.against(op, left, right)
        else:
            predicate = constant_compare(op, self.literal(node, left), self.literal(node, right))
            if predicate is None:
                raise _unsupported(node, "it compares two literals of different types")
        return negation(predicate) if isinstance(node, exp.NullSafeNEQ) else predicate

    def against(self, op: Operator, name: exp.Expr, literal: exp.Expr) -> Predicate:
        column, data_type = self.column(name)
        value = self.literal(literal.parent or literal, literal)
        return compare(op, column, data_type, value, timezone=self.timezone)

    def is_in(self, node: exp.In) -> Predicate:
        if not node.expressions or node.args.get("query") or node.args.get("unnest"):
            raise _unsupported(node, "IN needs a list of literals")
        column, data_type = self.column(node.this)
        values = [self.literal(node, literal) for literal in node.expressions]
        return is_in(column, data_type, values, timezone=self.timezone)

    def is_(self, node: exp.Is) -> Predicate:
        inner = node.this
        if isinstance(node.expression, exp.Boolean):
            column, data_type = self.column(inner)
            return compare("<=>", column, data_type, bool(node.expression.this))
        if not isinstance(node.expression, exp.Null):
            raise _unsupported(node, "IS takes NULL, TRUE or FALSE")
        return IsNull(self.column(inner)[0])

    def like(self, node: exp.Expr) -> Predicate:
        escape: str | None = "\\"
        inner = node
        if isinstance(node, exp.Escape):
            escape = self.text(node, node.expression)
            inner = node.this
            if not isinstance(inner, exp.Like) or escape is None or len(escape) != 1:
                raise _unsupported(node, "ESCAPE takes one character after LIKE")
            if inner.args.get("negate"):
                inner = inner.copy()
                inner.set("negate", None)
                return negation(self.like(exp.Escape(this=inner, expression=node.expression)))
        column = self.text_column(node, inner.this)
        if isinstance(inner.expression, (exp.Any, exp.All, exp.Tuple)):
            raise _unsupported(node, "LIKE takes one pattern; combine several with OR or AND")
        pattern = self.text(node, inner.expression)
        return NULL if pattern is None else like(column, pattern, escape=escape or "\\")

    # --- functions

    def function(self, node: exp.Anonymous) -> Predicate:
        name, arguments = node.name.lower(), node.expressions
        if name in ("isnull", "isnotnull") and len(arguments) == 1:
            is_null = IsNull(self.column(arguments[0])[0])
            return is_null if name == "isnull" else negation(is_null)
        if name in _SEARCH_FUNCTIONS and len(arguments) == 2:
            return self.search(node, self.searched(node, arguments[0]), arguments[1])
        if name in _SEARCH_ALL_FUNCTIONS and len(arguments) == 1:
            return self.search(node, None, arguments[0])
        raise _unsupported(node, f"the function {node.name} is not supported here")

    def searched(self, node: exp.Expr, name: exp.Expr) -> Column | None:
        """The column of a search; its name may be given as text."""
        if isinstance(name, (exp.Column, exp.Dot)):
            if name.sql().lower() == ALL_FIELDS:
                return None
            try:
                return self.column(name)[0]
            except UnknownColumnError:
                # Not a column to SQL, but perhaps a path into JSON.
                field = resolve_field(escaped_field([p.name for p in name.parts]), self.schema)
                if field is None:
                    raise
                return Column((field[0], *field[1]))
        text = self.text(node, name)
        if text is None:
            raise _unsupported(node, "the column of a search cannot be NULL")
        if text.lower() == ALL_FIELDS:
            return None
        field = resolve_field(text, self.schema)
        if field is None:
            raise UnknownColumnError(text, available=self.schema.names)
        return Column((field[0], *field[1]))

    def named_search(self, node: exp.Expr) -> Predicate:
        call = search_call(node, max_length=self.max_query_length, max_depth=self.max_query_depth)
        check_fields(call.query, call.text, self.schema)
        resolved = [self.searched(node, column) for column in call.columns or ()]
        if None in resolved or not resolved:
            return Search(None, call.query, call.text)
        columns = tuple(column for column in resolved if column is not None)
        if len(columns) == 1:
            return Search(columns[0], call.query, call.text, kind=call.kind)
        return Search(None, call.query, call.text, columns, call.kind)

    def search(self, node: exp.Expr, column: Column | None, literal: exp.Expr) -> Predicate:
        text = self.text(node, literal)
        if text is None:
            raise _unsupported(node, "a search query cannot be NULL")
        query = parse_search(
            text,
            field=ALL_FIELDS if column is None else str(column),
            schema=self.schema,
            max_length=self.max_query_length,
            max_depth=self.max_query_depth,
        )
        return Search(column, query, text)


def _is_name(node: exp.Expr) -> bool:
    return isinstance(node, (exp.Column, exp.Dot))


def _is_path(node: exp.Expr) -> bool:
    """A column or a field in one, not a field of something that is computed."""
    while isinstance(node, exp.Dot):
        node = node.this
    return isinstance(node, exp.Column)


def _reason_against(part: exp.Expr) -> str:
    if isinstance(part, _OF_A_MOMENT):
        return "it is another one for each row or moment; write a literal"
    if isinstance(part, (exp.AggFunc, exp.Window, exp.Query, exp.UDTF)):
        return (
            "it must be about one row; aggregates, windows, subqueries and functions that return "
            "several rows are for `Table.sql`"
        )
    if isinstance(part, (exp.Lambda, exp.Star, exp.Placeholder, exp.Parameter)):
        return f"{part.sql(dialect='spark')} is not computed here"
    return "a search is a condition of its own; combine it with AND, OR and NOT"


def _unsupported(node: exp.Expr, reason: str) -> UnsupportedPredicateError:
    return UnsupportedPredicateError(node.sql(dialect="spark"), reason)
