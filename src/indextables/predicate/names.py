"""Names of columns and fields, found in a schema.

SQL names come as parts (`user.name`, or `` `a.b` `` for one part with a dot). Search fields come as
text with dots and need the schema to tell where the column's name ends. Either is looked up in its
exact case first and then in any case, as Spark does.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from indextables.errors import UnknownColumnError, UnsupportedPredicateError
from indextables.predicate.literals import sql_name
from indextables.predicate.tree import (
    And,
    Column,
    Constant,
    IsNull,
    Not,
    Or,
    Predicate,
    Search,
    columns,
    walk,
)
from indextables.schema import is_collated


def split_path(field: str) -> tuple[str, ...]:
    """The parts of a search field; `\\.` is a dot inside a part.

    >>> split_path("user.first\\\\.name")
    ('user', 'first.name')
    """
    parts, escaped = [""], False
    for c in field:
        if escaped:
            parts[-1] += c if c in ".\\" else "\\" + c
            escaped = False
        elif c == "\\":
            escaped = True
        elif c == ".":
            parts.append("")
        else:
            parts[-1] += c
    if escaped:
        parts[-1] += "\\"
    return tuple(parts)


def join_path(parts: Sequence[str]) -> str:
    """The search field of some parts.

    >>> join_path(["user", "first.name"])
    'user.first\\\\.name'
    """
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in parts)


def resolve_field(field: str, schema: pa.Schema) -> tuple[str, tuple[str, ...]] | None:
    """The column that a search field names and the path below it, or `None`.

    The longest column name wins, so a column called `a.b` is found although `a` exists too. Below
    a struct the path must exist; inside text, which may be JSON, and below maps it is unknown
    before looking; numbers and the like have nothing below.

    >>> resolve_field("Meta.user.id", pa.schema([("meta", pa.string())]))
    ('meta', ('user', 'id'))
    """
    parts, names = split_path(field), schema.names
    longest = 1 if len(parts) == 1 else 1 + max((name.count(".") for name in names), default=0)
    for length in range(min(longest, len(parts)), 0, -1):
        # An unescaped dot may be part of a column's name as well.
        found = _matches(".".join(parts[:length]), names)
        if len(found) == 1:
            below = _below(schema.field(found[0]).type, parts[length:], is_column=True)
            if below is not None:
                return found[0], below
    return None


def _below(
    kind: pa.DataType, path: tuple[str, ...], *, is_column: bool = False
) -> tuple[str, ...] | None:
    while pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    if not path:
        return path
    if pa.types.is_map(kind):
        rest = _below(kind.item_type, path[1:])
        return None if rest is None else (path[0], *rest)
    if not pa.types.is_struct(kind):
        # A text may be JSON, which the mapping decides; other values have nothing inside.
        return path if is_column and _is_text(kind) else None
    found = _matches(path[0], [f.name for f in kind])
    if len(found) != 1:
        return None
    rest = _below(kind.field(found[0]).type, path[1:])
    return None if rest is None else (found[0], *rest)


def _is_text(kind: pa.DataType) -> bool:
    return (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def escaped_field(parts: Sequence[str]) -> str:
    """The search field of a path.

    >>> escaped_field(["user", "first.name"])
    'user.first\\\\.name'
    """
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in parts)


def resolve_column(parts: Sequence[str], schema: pa.Schema) -> tuple[Column, pa.DataType]:
    """The column that SQL name parts mean, in the schema's spelling, and its type.

    >>> resolve_column(["USER", "name"], pa.schema([("user", pa.struct([("name", pa.string())]))]))
    (Column(path=('user', 'name')), DataType(string))
    """
    fields: list[pa.Field[pa.DataType]] = list(schema)
    path: list[str] = []
    for part in parts:
        found = _matches(part, [f.name for f in fields])
        if len(found) != 1:
            shown = ".".join(map(sql_name, parts))
            available = [".".join(map(sql_name, [*path, f.name])) for f in fields]
            if not found and path and not fields:
                available = schema.names
            raise UnknownColumnError(shown, available=available, candidates=found)
        path.append(found[0])
        kind = next(f for f in fields if f.name == found[0]).type
        fields = list(kind) if pa.types.is_struct(kind) else []
    return Column(tuple(path)), kind


def column_type(column: Column, schema: pa.Schema) -> pa.DataType:
    """The type of a column that is already in the schema's spelling."""
    kind: pa.DataType = schema.field(column.root).type
    for name in column.path[1:]:
        assert isinstance(kind, pa.StructType)
        kind = kind.field(name).type
    return kind


def refuse_collated(predicate: Predicate, schema: pa.Schema) -> None:
    """Refuse to compare texts that have a collation of Spark's: rows are compared by bytes here.

    Searches and tests for null do not compare, so they stay.
    """
    collated = {field.name for field in schema if is_collated(field)}
    if not collated:
        return
    for node in walk(predicate):
        if isinstance(node, And | Or | Not | Constant | IsNull | Search):
            continue
        for column in columns(node):
            if column.root in collated:
                raise UnsupportedPredicateError(
                    str(node),
                    f"the column '{column.root}' has a collation, by which only Spark compares; "
                    "search it, or ask Spark",
                )


def _matches(name: str, names: Sequence[str]) -> list[str]:
    """The one exact match, else all that differ in case only."""
    if name in names:
        return [name]
    return [other for other in names if other.lower() == name.lower()]
