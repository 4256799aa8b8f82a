"""What UPDATE … SET assigns: expressions of SQL, computed by Arrow with Spark's rules.

Literals, columns, arithmetic and a few functions of text. Overflow, division by zero and values
that do not fit their column are errors, as in Spark's ANSI mode; whole numbers divide to fractions.
The engine of `indextables.sql` computes what Arrow has no kernel for, and what neither supports is
refused by name, before any split is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from indextables.errors import EmbeddedQueryError, ExpressionError, UnknownColumnError, first_line
from indextables.predicate.coercion import NotALiteralError, literal_value
from indextables.predicate.literals import FarInstant, FarLocal, quoted_name
from indextables.predicate.names import resolve_column
from indextables.predicate.spark_tokens import join_strings, tokenize
from indextables.predicate.sql_text import at_this_moment, row_operands
from indextables.schema import type_name
from indextables.schema.conformity import as_floats
from indextables.split.row_filter import compute

_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "add_checked",
    exp.Sub: "subtract_checked",
    exp.Mul: "multiply_checked",
}


def _in_case(of_ascii: Callable[[Any], Any], convert: Callable[[str], str]) -> Callable[[Any], Any]:
    def converted(texts: Any) -> Any:
        if isinstance(texts, pa.Scalar):
            return pa.scalar(convert(texts.as_py()) if texts.is_valid else None, pa.string())
        if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
            return of_ascii(texts)
        encoded: Any = pc.dictionary_encode(texts)
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        different = [convert(text) for text in encoded.dictionary.to_pylist()]
        return pc.take(pa.array(different, pa.string()), encoded.indices)

    return converted


upper_case = _in_case(pc.ascii_upper, str.upper)
"""Texts in capitals, as Spark writes them: `STRASSE`. Arrow has one capital for each letter."""
lower_case = _in_case(pc.ascii_lower, str.lower)
"""Texts in small letters, as Spark writes them: a sigma that ends a word is another letter."""

_TEXT_FUNCTIONS: dict[type[exp.Expr], Callable[[Any], Any]] = {
    exp.Upper: upper_case,
    exp.Lower: lower_case,
    exp.Trim: lambda text: pc.utf8_trim(text, characters=" "),
}


@dataclass(frozen=True)
class Assignments:
    """New values for columns of the rows of an update."""

    expressions: Mapping[str, exp.Expr]
    schema: pa.Schema
    timezone: str
    by_engine: bool

    def apply(self, rows: pa.Table) -> pa.Table:
        """The rows with the new values; all expressions see the old ones."""
        evaluator = _Evaluator(rows, self.schema, self.timezone, self.by_engine)
        changed = {
            name: evaluator.stored(node, self.schema.field(name))
            for name, node in self.expressions.items()
        }
        for name, column in changed.items():
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(name), column)
        return rows

    @property
    def is_as_in_spark(self) -> bool:
        """Whether Spark is certain to store the same values.

        It rounds what is divided, cuts a fraction off for a column of whole numbers, and rounds for
        one of decimals or floats; here such values are errors, or have other digits.
        """
        evaluator = _Evaluator(self.schema.empty_table(), self.schema, self.timezone, False)
        return all(
            node.find(exp.Div, exp.Mod) is None
            and _stored_alike(evaluator.value(node), self.schema.field(name).type)
            for name, node in self.expressions.items()
        )

    def __str__(self) -> str:
        return ", ".join(f"{n} = {e.sql('spark')}" for n, e in self.expressions.items())


@dataclass(frozen=True)
class Constants:
    """The same new values for all rows of an update: those of the partition that they move to."""

    values: Mapping[str, pa.Scalar[Any]]

    def apply(self, rows: pa.Table) -> pa.Table:
        """The rows with the new values."""
        for name, value in self.values.items():
            at = rows.schema.get_field_index(name)
            column: Any = pa.repeat(value, rows.num_rows)  # type: ignore[call-overload]
            rows = rows.set_column(at, rows.schema.field(at), column)
        return rows

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.values.items())


def parse_assignments(
    text: str | Mapping[str, str],
    schema: pa.Schema,
    *,
    timezone: str = "UTC",
    by_engine: bool = True,
) -> Assignments:
    """Read `a = 1, b = b + 1`, or expressions by column.

    Without `by_engine`, what Arrow cannot compute is an error: Spark will compute it.

    >>> schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    >>> change = parse_assignments("n = n * 2, s = upper(s)", schema)
    >>> change.apply(pa.table({"n": [1, 2], "s": ["a", None]}, schema=schema)).to_pydict()
    {'n': [2, 4], 's': ['A', None]}
    """
    if isinstance(text, str):
        nodes = _parsed(text)
    else:
        quoted = [(quoted_name(name), value) for name, value in text.items()]
        nodes = [_only(_parsed(f"{name} = {value}"), value) for name, value in quoted]
        text = ", ".join(text.values())
    expressions: dict[str, exp.Expr] = {}
    for node in nodes:
        if not isinstance(node, exp.EQ):
            raise ExpressionError(text, "SET takes assignments, such as n = n + 1")
        name = _column(node.this, schema)
        if name in expressions:
            raise ExpressionError(text, f"it assigns the column {name!r} twice")
        expressions[name] = at_this_moment(node.expression, timezone)
    assignments = Assignments(expressions, schema, timezone, by_engine)
    # Without rows nothing is computed, but every name, function and type is checked.
    try:
        assignments.apply(schema.empty_table())
    except RecursionError:
        raise ExpressionError(text, "it is nested too deep") from None
    return assignments


def _parsed(text: str) -> list[exp.Expr]:
    sql = f"UPDATE t SET {text}"
    try:
        parsed = Spark().parser().parse(join_strings(sql, tokenize(sql)), sql)
    except RecursionError:
        raise ExpressionError(text, "it is nested too deep") from None
    except SqlglotError:
        raise ExpressionError(text, "it is not SQL") from None
    update = parsed[0] if len(parsed) == 1 else None
    # A clause after the assignments would be lost silently.
    clauses = {name for name, value in update.args.items() if value} if update else set()
    if not isinstance(update, exp.Update) or clauses != {"this", "expressions"}:
        raise ExpressionError(text, "SET takes assignments, such as n = n + 1, and nothing else")
    expressions: list[exp.Expr] = update.expressions
    return expressions


def _only(nodes: list[exp.Expr], text: str) -> exp.Expr:
    if len(nodes) != 1:
        raise ExpressionError(text, "it must be one expression")
    return nodes[0]


def _column(node: exp.Expr, schema: pa.Schema) -> str:
    if not isinstance(node, exp.Column | exp.Dot):
        raise ExpressionError(node.sql("spark"), "a column is expected here")
    parts = [part.name for part in node.parts]
    try:
        column, _ = resolve_column(parts, schema)
    except UnknownColumnError as error:
        raise ExpressionError(node.sql("spark"), str(error).rstrip(".")) from None
    if len(column.path) > 1:
        raise ExpressionError(node.sql("spark"), "only whole columns are read and assigned")
    return column.root


# --- computing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Evaluator:
    rows: pa.Table
    schema: pa.Schema
    timezone: str
    by_engine: bool

    def value(self, node: exp.Expr) -> Any:
        """An Arrow array, or a scalar that stands for every row."""
        try:
            return self._value(node)
        except pa.ArrowException as error:
            raise ExpressionError(node.sql("spark"), first_line(error)) from None

    def _value(self, node: exp.Expr) -> Any:
        match node:
            case exp.Paren():
                return self._value(node.this)
            case exp.Column() | exp.Dot():
                return self.rows[_column(node, self.schema)]
            case exp.Neg() if not isinstance(node.this, exp.Literal):
                return pc.negate_checked(_number(self._value(node.this), node))
            case exp.Div() | exp.Mod():
                left, right = _alike(self._value(node.this), self._value(node.expression), node)
                if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
                    return self._computed(node)  # Arrow cuts digits off where Spark rounds
                return _quotient(node, left, right)
            case exp.DPipe():
                return _joined([self._value(n) for n in node.flatten()], node)
            case exp.Concat():
                return _joined([self._value(n) for n in node.expressions], node)
            case exp.Coalesce():
                return _first([self._value(n) for n in (node.this, *node.expressions)], node)
        if type(node) in _ARITHMETIC:
            left, right = _alike(self._value(node.this), self._value(node.expression), node)
            return pc.call_function(_ARITHMETIC[type(node)], [left, right])
        if type(node) in _TEXT_FUNCTIONS and not node.args.get("expression"):
            return _TEXT_FUNCTIONS[type(node)](_text(self._value(node.this), node))
        return self._literal(node)

    def stored(self, node: exp.Expr, field: Any) -> Any:
        """The value in the type of its column, for every row."""
        value = self.value(node)
        sql_type = _moment(field.type)
        if sql_type and isinstance(value, pa.Scalar) and pa.types.is_string(value.type):
            value = self._literal(exp.cast(node, sql_type, dialect="spark"))
        return _stored(value, field, node, self.rows.num_rows)

    def _literal(self, node: exp.Expr) -> Any:
        try:
            value: Any = literal_value(node, timezone=self.timezone)
            if isinstance(value, (FarInstant, FarLocal)):
                zone = "UTC" if isinstance(value, FarInstant) else None
                return pa.scalar(int(value), pa.timestamp("us", zone))
            return pa.scalar(value)
        except NotALiteralError as error:
            if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
                raise ExpressionError(node.sql("spark"), str(error)) from None
            return self._computed(node)
        except OverflowError:
            raise ExpressionError(node.sql("spark"), "the number is too large") from None

    def _computed(self, node: exp.Expr) -> Any:
        """What Arrow has no kernel for, the engine of `indextables.sql` computes."""
        text = node.sql(dialect="spark", comments=False)
        if not self.by_engine:
            raise ExpressionError(text, "Arrow cannot compute it")
        try:
            operands, reason = row_operands(node, self.schema, timezone=self.timezone)
            if reason is not None:
                raise ExpressionError(text, reason)
            if not operands:
                return compute(text, pa.table({"_": [None]}))[0]
            columns = {name: self.rows[column.root] for name, column in operands.items()}
            return compute(text, pa.table(columns))
        except (EmbeddedQueryError, UnknownColumnError) as error:
            raise ExpressionError(text, str(error).rstrip(".")) from None


def _is_number(data_type: pa.DataType) -> bool:
    return (
        pa.types.is_integer(data_type)
        or pa.types.is_floating(data_type)
        or pa.types.is_decimal(data_type)
    )


def _number(value: Any, node: exp.Expr) -> Any:
    if pa.types.is_null(value.type):
        return value.cast(pa.int64())
    if not _is_number(value.type):
        reason = f"arithmetic needs numbers, and there is a {type_name(value.type)}"
        raise ExpressionError(node.sql("spark"), reason)
    return value


def _alike(left: Any, right: Any, node: exp.Expr) -> tuple[Any, Any]:
    """Two numbers of one type: a decimal beside a double becomes a double, as in Spark."""
    left, right = _number(left, node), _number(right, node)
    if pa.types.is_floating(left.type) != pa.types.is_floating(right.type):
        return as_floats(left), as_floats(right)
    return left, right


def _quotient(node: exp.Expr, left: Any, right: Any) -> Any:
    if pc.any(pc.equal(right, pa.scalar(0).cast(right.type))).as_py():
        raise ExpressionError(node.sql("spark"), "it divides by zero")
    integers = pa.types.is_integer(left.type) and pa.types.is_integer(right.type)
    if isinstance(node, exp.Mod):
        if not integers:
            raise ExpressionError(node.sql("spark"), "% needs whole numbers")
        return pc.subtract_checked(left, pc.multiply_checked(pc.divide_checked(left, right), right))
    if integers:
        left, right = left.cast(pa.float64()), right.cast(pa.float64())
    return pc.divide(left, right)


def _text(value: Any, node: exp.Expr) -> Any:
    if pa.types.is_null(value.type):
        return value.cast(pa.string())
    if not pa.types.is_string(value.type):
        reason = f"it needs text, and there is a {type_name(value.type)}"
        raise ExpressionError(node.sql("spark"), reason)
    return value


def _joined(values: Sequence[Any], node: exp.Expr) -> Any:
    return pc.binary_join_element_wise(*(_text(value, node) for value in values), "")


def _first(values: Sequence[Any], node: exp.Expr) -> Any:
    typed = [value for value in values if not pa.types.is_null(value.type)]
    if not typed:
        return values[0]
    if all(_is_number(value.type) for value in typed):
        for value in typed[1:]:
            typed[0] = _alike(typed[0], value, node)[0]
        data_type = typed[0].type
    else:
        data_type = typed[0].type
        if any(value.type != data_type for value in typed):
            raise ExpressionError(node.sql("spark"), "its values are of different types")
    return pc.coalesce(*(value.cast(data_type) for value in values))


# --- storing -------------------------------------------------------------------------------------


def _stored(value: Any, field: Any, node: exp.Expr, rows: int) -> Any:
    if not _fits(value.type, field.type):
        reason = f"{type_name(value.type)} cannot be stored in {field.name!r}, which is "
        raise ExpressionError(node.sql("spark"), reason + type_name(field.type))
    try:
        if pa.types.is_integer(value.type) and pa.types.is_decimal(field.type):
            value = value.cast(pa.decimal128(38, field.type.scale))  # wide enough
        is_float = pa.types.is_floating(field.type)
        value = as_floats(value, field.type) if is_float else value.cast(field.type)
    except pa.ArrowException as error:
        reason = f"a value does not fit {field.name!r} ({str(error).partition(chr(10))[0]})"
        raise ExpressionError(node.sql("spark"), reason) from None
    if isinstance(value, pa.Scalar):
        values: Any = pa.repeat  # its overloads do not know a scalar of any type
        value = values(value, rows)
    if not field.nullable and value.null_count:
        raise ExpressionError(node.sql("spark"), f"{field.name!r} must not be null")
    return value


def _moment(data_type: Any) -> str | None:
    """The type that a text in quotes is read as, if the column holds moments."""
    if pa.types.is_date(data_type):
        return "date"
    if pa.types.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    return None


def _stored_alike(value: Any, column: Any) -> bool:
    """Whether a value is stored as it is, or is an error in Spark as well."""
    types, value_type = pa.types, value.type
    if types.is_decimal(value_type):
        is_number = types.is_floating(column) or (
            types.is_decimal(column) and value_type.scale <= column.scale
        )
        return isinstance(value, pa.Scalar) and is_number
    if types.is_integer(value_type):
        return not types.is_floating(column)
    return not types.is_floating(value_type) or value_type.equals(column)


def _fits(value_type: Any, column: Any) -> bool:
    if (
        value_type.equals(column)
        or pa.types.is_null(value_type)
        or (_is_number(value_type) and _is_number(column))
    ):
        return True
    if pa.types.is_timestamp(value_type) and pa.types.is_timestamp(column):
        return bool((value_type.tz is None) == (column.tz is None))
    if pa.types.is_string(column):
        return (
            pa.types.is_integer(value_type)
            or pa.types.is_boolean(value_type)
            or pa.types.is_date(value_type)
        )
    return False
