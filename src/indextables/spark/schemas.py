"""Schemas between Spark and Arrow, for both directions of a table.

A column that is not searched in the default way carries its mapping in the metadata of its schema
field. Spark keeps that with the column through views, joins, renames and caches. When a search is
resolved, the mappings of the columns it looks at become one more argument of the call
(`bridge.search_functions`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from indextables.config import Config
from indextables.schema import from_json, refuse_hidden, to_json
from indextables.split.mapping import FieldMapping, TableMapping
from indextables.split.mapping_options import build_mapping
from indextables.statements.search_functions import unique_names

MAPPING_KEY = "indextables.mapping"
"""The key of a mapping in the metadata of a column of a DataFrame."""


def spark_schema(schema: pa.Schema) -> StructType:
    """A table's schema as Spark has it."""
    return StructType.fromJson(orjson.loads(to_json(schema)))


def table_schema(schema: StructType, *, declared: bool = False) -> pa.Schema:
    """Return the schema of a table for rows of a DataFrame, or for columns that were `declared`.

    Columns of a DataFrame may be null, whatever it says of them; a declared NOT NULL is kept.
    """
    refuse_hidden(schema.names)
    nullable = _nullable(without_mappings(schema.fields))
    if declared:
        for field, original in zip(nullable.fields, schema.fields, strict=True):
            field.nullable = original.nullable
    return from_json(nullable.json())


def worker_schema(schema: StructType, *, large: bool = False) -> pa.Schema:
    """The Arrow schema in which Spark takes rows from Python.

    `large` texts have offsets of 64 bits, which the driver's JVM expects if a setting says so.
    """
    # Named only where it is asked for: not every version has it.
    types: Any = {"prefers_large_types": True} if large else {}
    arrow: pa.Schema = to_arrow_schema(with_plain_texts(schema), **types, **_IN_UTC)
    return arrow


# Before Spark 4.2 there was no other time zone.
_IN_UTC: Any = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def _nullable(data_type: Any) -> Any:
    """The same type in which everything may be null."""
    if isinstance(data_type, StructType):
        return StructType(
            [StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in data_type.fields]
        )
    if isinstance(data_type, ArrayType):
        return ArrayType(_nullable(data_type.elementType), True)
    if isinstance(data_type, MapType):
        return MapType(_nullable(data_type.keyType), _nullable(data_type.valueType), True)
    assert isinstance(data_type, DataType)
    return data_type


def with_plain_texts(data_type: Any) -> Any:
    """The same type with texts for CHAR(n) and VARCHAR(n), which Arrow does not have.

    A session may want them as types of their own: `spark.sql.preserveCharVarcharTypeInfo`.
    """
    if isinstance(data_type, StructType):
        fields = data_type.fields
        return StructType(
            [
                StructField(f.name, with_plain_texts(f.dataType), f.nullable, f.metadata)
                for f in fields
            ]
        )
    if isinstance(data_type, ArrayType):
        return ArrayType(with_plain_texts(data_type.elementType), data_type.containsNull)
    if isinstance(data_type, MapType):
        return MapType(
            with_plain_texts(data_type.keyType),
            with_plain_texts(data_type.valueType),
            data_type.valueContainsNull,
        )
    return StringType() if isinstance(data_type, CharType | VarcharType) else data_type


# --- how columns are searched, in their metadata ---------------------------------------------


def with_mappings(schema: pa.Schema, mapping: str | None) -> StructType:
    """A table's schema in Spark, in which columns carry their mappings (a `docMappingJson`)."""
    text = to_json(schema)
    carried = {} if mapping is None else _not_default(text, mapping)
    types = StructType.fromJson(orjson.loads(text))
    return StructType([_with(f, carried.get(f.name)) for f in types.fields])


def without_mappings(fields: Iterable[StructField]) -> StructType:
    """The schema of rows that are written to another table, which has a mapping of its own."""
    return StructType([_with(f, None) for f in fields])


def with_unique_names(schema: StructType) -> StructType:
    """The same columns, of which no two have one name."""
    columns = zip(unique_names(schema.names), schema.fields, strict=True)
    return StructType([StructField(n, f.dataType, True, f.metadata) for n, f in columns])


def mapping_in(metadata: Mapping[str, object]) -> FieldMapping | None:
    """The mapping in the metadata of a column."""
    text = metadata.get(MAPPING_KEY)
    return TableMapping.from_json(text).fields[0] if isinstance(text, str) else None


def _with(column: StructField, mapping: str | None) -> StructField:
    metadata = {k: v for k, v in (column.metadata or {}).items() if k != MAPPING_KEY}
    if mapping is not None:
        metadata[MAPPING_KEY] = mapping
    return StructField(column.name, column.dataType, column.nullable, metadata)


@functools.lru_cache(maxsize=64)
def _not_default(schema: str, mapping: str) -> dict[str, str]:
    """The mappings of columns that are not the default of their type, as JSON."""
    default = build_mapping(from_json(schema), Config()).by_name
    by_column = {}
    for field in TableMapping.from_json(mapping).fields:
        mapped = replace(field, field="", fast=False)
        default_mapped = (
            replace(default[field.name], field="", fast=False) if field.name in default else mapped
        )
        if mapped != default_mapped or (field.synonyms and field.name in default):
            by_column[field.name] = TableMapping((mapped,)).to_json(with_synonyms=True)
    return by_column
