"""Conditions of statements that replace or delete rows, as Spark's V2 predicates spell them.

Unlike filters of a scan these arrive as V2 expressions, whose literals are Spark's internal values:
a date is a number of days. A condition that is not understood is refused, because nothing
else evaluates it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from indextables.errors import UnsupportedPredicateError
from indextables.predicate import (
    FALSE,
    NULL,
    TRUE,
    Column,
    Contains,
    EndsWith,
    IsNull,
    Operator,
    Predicate,
    StartsWith,
    conjunction,
    disjunction,
    negation,
)
from indextables.predicate.coercion import compare, constant_compare, is_in
from indextables.predicate.literals import moment_of
from indextables.predicate.names import refuse_collated, resolve_column
from indextables.spark.bridge.jvm.handles import JavaObject

_SWAPPED: dict[str, Operator] = {
    "=": "=", "<=>": "<=>", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=",
}  # fmt: skip
_TEXT: dict[str, Callable[[Column, str], Predicate]] = {
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
            column, kind = column_of(children[0], schema)
            return is_in(column, kind, [_literal(child) for child in children[1:]])
        case name if name in _TEXT:
            return _TEXT[name](column_of(children[0], schema)[0], str(_literal(children[1])))
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
