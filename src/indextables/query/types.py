"""The types of a query's expressions, where Spark and the engine decide differently by type.

sqlglot infers them from the columns of relations. What it leaves out is here: columns that are
written without their table, and the digits of decimals, which Spark defines for every operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.resolver import Resolver
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.schema import MappingSchema

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
        whole, _, fraction = node.name.partition(".")
        return None if "e" in node.name.lower() else (len(whole.lstrip("0")) + len(fraction) or 1,
                                                      len(fraction))  # fmt: skip
    kind = node.type
    if kind is None:
        return None
    if is_decimal(node):
        given = [int(p.name) for p in kind.expressions]
        return (given[0], given[1] if len(given) > 1 else 0) if given else (10, 0)
    whole_digits = _DIGITS_OF_INTEGERS.get(kind.this)
    return None if whole_digits is None else (whole_digits, 0)


def is_decimal(node: Any) -> bool:
    return node.type is not None and node.type.this == exp.DType.DECIMAL


def is_a(node: Any, *kinds: Any) -> bool:
    return node.type is not None and node.type.this in kinds


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    names = {
        "boolean": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int",
        "int64": "bigint", "float32": "float", "float64": "double", "date": "date",
        "string": "string", "large_string": "string", "string_view": "string", "binary": "binary",
    }  # fmt: skip
    return next(
        (n for what, n in names.items() if getattr(pa.types, f"is_{what}")(kind)), "unknown"
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
    """A type within 38 digits; of those behind the point six stay, before others go."""
    if precision > _MOST_DIGITS:
        whole = precision - scale
        scale = max(_MOST_DIGITS - whole, min(scale, 6))
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
            kind = _decimal(p1 - s1 + s2 + scale, scale)
        case exp.Mul():
            kind = _decimal(p1 + p2 + 1, s1 + s2)
        case exp.Mod():
            kind = _decimal(min(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))
        case _:
            kind = _decimal(max(s1, s2) + max(p1 - s1, p2 - s2) + 1, max(s1, s2))
    return annotator._set_type(node, kind)


def _sum_or_average(annotator: Any, node: Any) -> Any:
    argument = node.this
    if isinstance(argument, exp.Distinct):
        argument = argument.expressions[0]
    if is_decimal(argument):
        precision, scale = digits_of(argument) or (_MOST_DIGITS, 0)
        more = 4 if isinstance(node, exp.Avg) else 0
        kind: Any = exp.DataType.build(
            f"decimal({min(precision + (more or 10), _MOST_DIGITS)}, "
            f"{min(scale + more, _MOST_DIGITS)})",
            dialect="spark",
        )
    elif isinstance(node, exp.Avg) or is_a(argument, exp.DType.DOUBLE, exp.DType.FLOAT):
        kind = exp.DType.DOUBLE
    else:
        kind = exp.DType.BIGINT
    return annotator._set_type(node, kind)


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
