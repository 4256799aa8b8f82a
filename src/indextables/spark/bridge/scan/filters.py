"""Catalyst's filters, and conditions of statements that change rows, as predicates.

Filters arrive as trees of the JVM. The JSON of all of them is one call, where walking them would be
dozens. A column compared with a literal, a text condition, a search, and AND, OR and NOT of those
become a `Predicate` with the same three-valued meaning. Everything else stays with Spark.

Conditions of statements that replace or delete rows arrive as V2 expressions, whose literals are
Spark's internal values: a date is a number of days. A condition that is not understood is refused,
because nothing else evaluates it.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from indextables.errors import (
    PredicateSyntaxError,
    QueryError,
    QuerySyntaxError,
    UnsupportedPredicateError,
)
from indextables.predicate import (
    FALSE,
    NULL,
    TRUE,
    Column,
    Compare,
    Contains,
    EndsWith,
    IsNull,
    Like,
    Operator,
    Predicate,
    Search,
    StartsWith,
    conjunction,
    disjunction,
    negation,
)
from indextables.predicate.coercion import compare, constant_compare, is_in
from indextables.predicate.literals import (
    FarInstant,
    Moment,
    as_instant,
    moment_of,
    time_zone,
)
from indextables.predicate.names import refuse_collated, resolve_column
from indextables.predicate.search_names import SEVERAL_COLUMNS
from indextables.predicate.search_syntax import parse_search
from indextables.predicate.spark_tokens import ALL_FIELDS
from indextables.predicate.sql_text import parse_predicate
from indextables.schema import is_collated
from indextables.spark.bridge.jvm.handles import JavaObject, Jvm
from indextables.statements.search_calls import SEARCH_FUNCTIONS


class NotUnderstoodError(Exception):
    """A part of a filter that only Spark can evaluate."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a Catalyst tree, as its JSON says it."""

    class_name: str
    fields: dict[str, Any]
    children: tuple[Node, ...]


def parse_tree(text: str) -> Node:
    """A tree from the JSON of a Catalyst expression, which lists nodes parents first."""
    nodes = iter(json.loads(text))

    def take() -> Node:
        fields = next(nodes)
        children = tuple(take() for _ in range(fields["num-children"]))
        return Node(fields["class"].rpartition(".")[2], fields, children)

    return take()


def parse_filters(java: Jvm, filters: JavaObject) -> tuple[Node, ...]:
    """The trees of a Seq of filters. As children of one expression they are one JSON."""
    return parse_tree(java.find(_OF_MANY)(filters).toJSON()).children


def has_floats(tree: Node) -> bool:
    """Whether a type in a tree is a floating-point one."""
    fields = repr(tree.fields)
    return "'double'" in fields or "'float'" in fields or any(map(has_floats, tree.children))


_OF_MANY = "org.apache.spark.sql.catalyst.expressions.Coalesce"
_COMPARISONS: dict[str, tuple[Operator, Operator]] = {
    # The operator, and the one that means the same with the sides swapped.
    "EqualTo": ("=", "="),
    "EqualNullSafe": ("<=>", "<=>"),
    "GreaterThan": (">", "<"),
    "GreaterThanOrEqual": (">=", "<="),
    "LessThan": ("<", ">"),
    "LessThanOrEqual": ("<=", ">="),
}
_TEXT: dict[str, Callable[[Column, str], Predicate]] = {
    "StartsWith": StartsWith,
    "EndsWith": EndsWith,
    "Contains": Contains,
}


@dataclass(frozen=True, slots=True)
class Translator:
    """Translates filters on one table."""

    schema: pa.Schema
    timezone: str
    max_query_length: int
    max_query_depth: int

    def translate(self, filters: JavaObject, trees: Sequence[Node]) -> list[Predicate | None]:
        """The predicates that filters of the JVM mean; None where only Spark knows.

        A search whose query does not parse is an error, not a thing for Spark.
        """
        predicates = []
        for number, tree in enumerate(trees):
            try:
                predicate = (
                    self._long_list(filters.apply(number))
                    if tree.class_name == "InSet"
                    else self.predicate(tree)
                )
            except NotUnderstoodError:
                predicate = None
            predicates.append(predicate)
        return predicates

    def _compared(self, node: Node) -> tuple[Column, pa.DataType]:
        """A column whose values are compared, which is Spark's to do where it has a collation."""
        column, column_type = self._column(node)
        if is_collated(self.schema.field(column.root)):
            raise NotUnderstoodError
        return column, column_type

    def predicate(self, node: Node) -> Predicate:
        """The predicate of a node of boolean type."""
        match node.class_name:
            case "And":
                return conjunction(*map(self.predicate, node.children))
            case "Or":
                return disjunction(*map(self.predicate, node.children))
            case "Not":
                return negation(self.predicate(node.children[0]))
            case "IsNull":
                return IsNull(self._column(node.children[0])[0])
            case "IsNotNull":
                return negation(IsNull(self._column(node.children[0])[0]))
            case "In":
                column, column_type = self._compared(node.children[0])
                values = [self._literal(child) for child in node.children[1:]]
                return self._coerced(
                    lambda: is_in(column, column_type, values, timezone=self.timezone)
                )
            case "Like":
                column, _ = self._text_column(node.children[0])
                escape = node.fields.get("escapeChar")
                if not isinstance(escape, str) or len(escape) != 1:
                    raise NotUnderstoodError
                return Like(column, self._text(node.children[1]), escape)
            case "PythonUDF":
                return self._search(node)
            case "Literal":
                value = self._literal(node)
                return NULL if value is None else TRUE if value is True else FALSE
            case "AttributeReference" | "GetStructField":
                column, column_type = self._column(node)
                if not pa.types.is_boolean(column_type):
                    raise NotUnderstoodError
                return Compare("=", column, True)
            case name if name in _COMPARISONS:
                return self._comparison(node)
            case name if name in _TEXT:
                column, _ = self._text_column(node.children[0])
                return _TEXT[name](column, self._text(node.children[1]))
            case _:
                raise NotUnderstoodError

    def _comparison(self, node: Node) -> Predicate:
        plain, swapped = _COMPARISONS[node.class_name]
        left, right = node.children
        operator = plain
        if left.class_name == "Literal":
            left, right, operator = right, left, swapped
        column, column_type = self._compared(left)
        value = self._literal(right)
        return self._coerced(
            lambda: compare(operator, column, column_type, value, timezone=self.timezone)
        )

    def _coerced(self, make: Callable[[], Predicate]) -> Predicate:
        try:
            return make()
        except (QueryError, ArithmeticError):
            raise NotUnderstoodError from None

    def _search(self, node: Node) -> Predicate:
        if node.fields["name"].lower() not in SEARCH_FUNCTIONS or len(node.children) < 2:
            raise NotUnderstoodError
        target, query, *named = node.children
        if named and named[-1].class_name == "Literal":
            named.pop()  # mappings for Spark; the table has its own
        if len(named) > 1:
            raise NotUnderstoodError
        if named:
            self._check_named(named[0])
        text = self._literal(query)
        if not isinstance(text, str):
            raise NotUnderstoodError
        columns: tuple[Column, ...] = ()
        if node.fields["name"].lower() == SEVERAL_COLUMNS:
            column, columns = None, self._several(target)
        else:
            column = self._searched(target)
        try:
            parsed = parse_search(
                text,
                schema=self.schema,
                max_length=self.max_query_length,
                max_depth=self.max_query_depth,
            )
        except QuerySyntaxError as error:
            shown = f"column '{column.root}'" if column else "several columns"
            raise QuerySyntaxError(
                text, error.reason, position=error.position, field=shown
            ) from error
        return Search(column, parsed, text, columns)

    def _searched(self, target: Node) -> Column | None:
        """The column that is searched; None for all of them."""
        if target.class_name == "CreateNamedStruct":
            # A view that shows all columns has no hidden one; there the row stands for it.
            if self._check_named(target) != set(self.schema.names):
                raise NotUnderstoodError
            return None
        if target.class_name != "AttributeReference":
            raise NotUnderstoodError
        return None if target.fields["name"] == ALL_FIELDS else self._column(target)[0]

    def _several(self, target: Node) -> tuple[Column, ...]:
        """The columns of a search of some; the query names none of them by the struct's names."""
        if target.class_name != "CreateNamedStruct":
            raise NotUnderstoodError
        return tuple(self._column(column)[0] for column in target.children[1::2])

    def _check_named(self, struct: Node) -> set[str]:
        """The columns of a struct, which have to be those of this table under their own names."""
        if struct.class_name != "CreateNamedStruct":
            raise NotUnderstoodError
        names, columns = struct.children[::2], struct.children[1::2]
        named = set()
        for name, column in zip(names, columns, strict=True):
            path = self._column(column)[0].path
            if self._literal(name) != ".".join(path):
                raise NotUnderstoodError
            named.add(".".join(path))
        return named

    def _column(self, node: Node) -> tuple[Column, pa.DataType]:
        path: list[str] = []
        while node.class_name == "GetStructField":
            path.append(node.fields["name"] or "")
            node = node.children[0]
        if node.class_name != "AttributeReference" or node.fields["name"] not in self.schema.names:
            raise NotUnderstoodError
        column_type: Any = self.schema.field(node.fields["name"]).type
        for name in reversed(path):
            index = column_type.get_field_index(name) if pa.types.is_struct(column_type) else -1
            if index < 0:
                raise NotUnderstoodError
            column_type = column_type.field(index).type
        return Column((node.fields["name"], *reversed(path))), column_type

    def _text_column(self, node: Node) -> tuple[Column, pa.DataType]:
        column, column_type = self._compared(node)
        if not pa.types.is_string(column_type):
            raise NotUnderstoodError
        return column, column_type

    def _text(self, node: Node) -> str:
        value = self._literal(node)
        if not isinstance(value, str):
            raise NotUnderstoodError
        return value

    def _literal(self, node: Node) -> Any:
        if node.class_name != "Literal":
            raise NotUnderstoodError
        value, data_type = node.fields["value"], node.fields["dataType"]
        if value is None:
            return None
        read = _READERS.get(data_type) if isinstance(data_type, str) else None
        if read is not None:
            return read(value)
        if data_type == "timestamp":
            return self._instant(value)
        if isinstance(data_type, str) and data_type.startswith("decimal"):
            return Decimal(value)
        raise NotUnderstoodError

    def _instant(self, text: str) -> datetime.datetime | FarInstant:
        """A timestamp, which Spark spells in the session's time zone."""
        try:
            moment = datetime.datetime.fromisoformat(text)
            local = moment.replace(tzinfo=time_zone(self.timezone))
        except ValueError:  # our errors about time zones are such, too
            raise NotUnderstoodError from None
        if local.utcoffset() != local.replace(fold=1).utcoffset():
            raise NotUnderstoodError  # the hour that a clock shows twice
        return as_instant(local, datetime.UTC)

    def _long_list(self, filter_: Any) -> Predicate | None:
        """Lists of more than ten values, whose JSON is empty; as SQL they are complete."""
        if filter_.nodeName() != "InSet" or filter_.child().nodeName() != "AttributeReference":
            return None
        name = filter_.child().name()
        column_type = self.schema.field(name).type if name in self.schema.names else None
        if column_type is None or not (
            pa.types.is_integer(column_type) or pa.types.is_string(column_type)
        ):
            return None
        try:
            return parse_predicate(filter_.sql(), self.schema)
        except (PredicateSyntaxError, QueryError):
            return None


def _single(text: str) -> float:
    # The text is the shortest that means this float; as a double it would be another number.
    return float(np.float32(text))


def _boolean(text: str) -> bool:
    return text == "true"


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise NotUnderstoodError from None


def _local_moment(text: str) -> Moment:
    return moment_of(int(text))


_READERS: dict[str, Callable[[str], Any]] = {
    "boolean": _boolean,
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "float": _single,
    "double": float,
    "string": str,
    "date": _day,
    "timestamp_ntz": _local_moment,
}


# --- conditions of statements that change rows -----------------------------------------------

_SWAPPED: dict[str, Operator] = {
    "=": "=", "<=>": "<=>", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=",
}  # fmt: skip
_V2_TEXT: dict[str, Callable[[Column, str], Predicate]] = {
    "STARTS_WITH": StartsWith,
    "ENDS_WITH": EndsWith,
    "CONTAINS": Contains,
}


def condition(predicate: JavaObject, schema: pa.Schema) -> Predicate:
    """The condition of a statement on a table with this schema."""
    try:
        translated = _translate(predicate, schema)
    except (KeyError, TypeError, ValueError) as error:
        raise UnsupportedPredicateError(
            predicate.toString(),
            "rows to replace or delete are chosen by columns compared with literals",
        ) from error
    refuse_collated(translated, schema)
    return translated


def _translate(node: JavaObject, schema: pa.Schema) -> Predicate:
    name, children = node.name(), list(node.children())
    match name:
        case "AND":
            return conjunction(*(_translate(child, schema) for child in children))
        case "OR":
            return disjunction(*(_translate(child, schema) for child in children))
        case "NOT":
            return negation(_translate(children[0], schema))
        case "ALWAYS_TRUE":
            return TRUE
        case "ALWAYS_FALSE":
            return FALSE
        case "IS_NULL" | "IS_NOT_NULL":
            return _null_test(children[0], schema, is_null=name == "IS_NULL")
        case "IN":
            column, data_type = column_of(children[0], schema)
            return is_in(column, data_type, [_literal(child) for child in children[1:]])
        case name if name in _V2_TEXT:
            return _V2_TEXT[name](column_of(children[0], schema)[0], str(_literal(children[1])))
        case _:
            return _comparison(name, children, schema)


def _null_test(child: JavaObject, schema: pa.Schema, *, is_null: bool) -> Predicate:
    if _is_literal(child):
        return TRUE if (_literal(child) is None) == is_null else FALSE
    test = IsNull(column_of(child, schema)[0])
    return test if is_null else negation(test)


def _comparison(name: str, children: list[JavaObject], schema: pa.Schema) -> Predicate:
    operator: Operator = name  # type: ignore[assignment]
    _SWAPPED[operator]
    left, right = children
    if _is_literal(left) and _is_literal(right):
        return constant_compare(operator, _literal(left), _literal(right)) or NULL
    if _is_literal(left):
        left, right, operator = right, left, _SWAPPED[operator]
    column, column_type = column_of(left, schema)
    return compare(operator, column, column_type, _literal(right))


def column_of(node: JavaObject, schema: pa.Schema) -> tuple[Column, pa.DataType]:
    """The column that a reference means; `ValueError` if it is something else."""
    if node.getClass().getSimpleName() != "FieldReference":
        raise ValueError("no column")
    return resolve_column(list(node.fieldNames()), schema)


def _is_literal(node: JavaObject) -> bool:
    return bool(node.getClass().getSimpleName() == "LiteralValue")


def _literal(node: JavaObject) -> Any:
    if not _is_literal(node):
        raise ValueError("no literal")
    value = node.value()
    if value is None:
        return None
    type_name = node.dataType().typeName()
    if type_name == "date":
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=value)
    if type_name in ("timestamp", "timestamp_ntz"):
        return moment_of(value, datetime.UTC if type_name == "timestamp" else None)
    if type_name.startswith("decimal"):
        return Decimal(value.toString())
    if type_name.startswith(("string", "char", "varchar")):
        return value if isinstance(value, str) else value.toString()
    if type_name in ("boolean", "byte", "short", "integer", "long", "float", "double", "binary"):
        return value
    raise ValueError(type_name)
