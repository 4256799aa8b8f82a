"""Spark's types and their Arrow types, and what all who handle them share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from indextables.errors import SchemaError

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
MAX_DECIMAL_PRECISION = 38

SIMPLE: dict[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
}
NAMES = {kind: name for name, kind in SIMPLE.items()}
DECIMAL = re.compile(r"decimal(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?")
CHARACTERS = re.compile(r"(?:var)?char\(\s*\d+\s*\)|string collate \w+")
FIELD_METADATA = b"spark.metadata"

_COLLATIONS = b'"__COLLATIONS"'

SPLIT, ROW = "_split", "_row"
ROW_IDENTITY: dict[str, pa.DataType] = {SPLIT: pa.string(), ROW: pa.int64()}
"""Columns that name a row of one version of a table: its split, and its number in there."""
HIDDEN = ("_score", "_indexall", *ROW_IDENTITY)
"""Columns that every index table has beside its own, in any case."""

Type: TypeAlias = Any
"""An Arrow type. The stubs of pyarrow do not know what nested types have."""
Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def map_of(key: pa.Field[Any], value: pa.Field[Any]) -> Type:
    build: Any = pa.map_
    return build(key, value)


def is_list(kind: Type) -> bool:
    types = pa.types
    return (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def is_collated(field: pa.Field[Any]) -> bool:
    """Whether texts of a column, or inside it, are compared by a collation of Spark's.

    Splits hold and statistics compare their bytes; what is equal only Spark can say.
    """
    if _COLLATIONS in (field.metadata or {}).get(FIELD_METADATA, b""):
        return True
    return any(is_collated(inner) for inner in inner_fields(field.type))


def inner_fields(kind: Type) -> list[pa.Field[Any]]:
    """The fields of a nested type; none of any other."""
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if is_list(kind):
        return [kind.value_field]
    return list(kind.fields) if pa.types.is_struct(kind) else []


def column_field(schema: pa.Schema, name: str) -> pa.Field[Any]:
    """A column of a table's result, which may be null; one that names rows is none of its own."""
    if name in ROW_IDENTITY and name not in schema.names:
        return pa.field(name, ROW_IDENTITY[name])
    return schema.field(name).with_nullable(True)


def repeated_names(names: Iterable[str]) -> list[str]:
    return [f"'{name}'" for name, count in Counter(names).items() if count > 1]


def refuse_duplicates(names: Iterable[str]) -> None:
    if repeated := repeated_names(names):
        raise SchemaError(
            f"Duplicate column names: {', '.join(repeated)}. Every column needs a name of its own."
        )


def refuse_hidden(names: Iterable[str]) -> None:
    """Refuse new columns with the names of those that every table has."""
    for name in names:
        if name.lower() in HIDDEN:
            raise SchemaError(
                f"'{name}' is a hidden column that every index table has. Give yours another name."
            )
