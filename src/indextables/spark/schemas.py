"""Schemas between Spark and Arrow, for both directions of a table."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from indextables.schema import from_json, refuse_hidden, to_json
from indextables.spark.search_mapping import without_mappings


def spark_schema(schema: pa.Schema) -> StructType:
    """A table's schema as Spark has it."""
    return StructType.fromJson(_json(to_json(schema)))


def table_schema(schema: StructType, *, declared: bool = False) -> pa.Schema:
    """Return the schema of a table for rows of a DataFrame, or for columns that were `declared`.

    Columns of a DataFrame may be null, whatever it says of them; a declared NOT NULL is kept.
    """
    refuse_hidden(schema.names)
    nullable = _nullable(without_mappings(schema.fields))
    if declared:
        for field, given in zip(nullable.fields, schema.fields, strict=True):
            field.nullable = given.nullable
    return from_json(nullable.json())


def worker_schema(schema: StructType, *, large: bool = False) -> pa.Schema:
    """The Arrow schema in which Spark takes rows from Python.

    `large` texts have offsets of 64 bits, which the driver's JVM expects if a setting says so.
    """
    # Named only where it is asked for: not every version has it.
    types: Any = {"prefers_large_types": True} if large else {}
    arrow: pa.Schema = to_arrow_schema(schema, **types, **_IN_UTC)
    return arrow


# Before Spark 4.2 there was no other time zone.
_IN_UTC: Any = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def _json(text: str) -> dict[str, Any]:
    import orjson

    document: dict[str, Any] = orjson.loads(text)
    return document


def _nullable(kind: Any) -> Any:
    """The same type in which everything may be null."""
    if isinstance(kind, StructType):
        return StructType(
            [StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in kind.fields]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    assert isinstance(kind, DataType)
    return kind
