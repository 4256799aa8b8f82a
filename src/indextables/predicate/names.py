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
from indextables.schema import is_collated, is_text


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
        same_name = _matches(".".join(parts[:length]), names)
        if len(same_name) == 1:
            below = _below(schema.field(same_name[0]).type, parts[length:], is_column=True)
            if below is not None:
                return same_name[0], below
    return None


def _below(
    data_type: pa.DataType, path: tuple[str, ...], *, is_column: bool = False
) -> tuple[str, ...] | None:
    while pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        data_type = data_type.value_type
    if not path:
        return path
    if pa.types.is_map(data_type):
        deeper = _below(data_type.item_type, path[1:])
        return None if deeper is None else (path[0], *deeper)
    if not pa.types.is_struct(data_type):
        # A text may be JSON, which the mapping decides; other values have nothing inside.
        return path if is_column and is_text(data_type) else None
    fields = _matches(path[0], [f.name for f in data_type])
    if len(fields) != 1:
        return None
    deeper = _below(data_type.field(fields[0]).type, path[1:])
    return None if deeper is None else (fields[0], *deeper)


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
        candidates = _matches(part, [f.name for f in fields])
        if len(candidates) != 1:
            shown = ".".join(map(sql_name, parts))
            available = [".".join(map(sql_name, [*path, f.name])) for f in fields]
            if not candidates and path and not fields:
                available = schema.names
            raise UnknownColumnError(shown, available=available, candidates=candidates)
        path.append(candidates[0])
        data_type = next(f for f in fields if f.name == candidates[0]).type
        fields = list(data_type) if pa.types.is_struct(data_type) else []
    return Column(tuple(path)), data_type


def column_type(column: Column, schema: pa.Schema) -> pa.DataType:
    """The type of a column that is already in the schema's spelling."""
    data_type: pa.DataType = schema.field(column.root).type
    for name in column.path[1:]:
        assert isinstance(data_type, pa.StructType)
        data_type = data_type.field(name).type
    return data_type


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
