"""Schemas between Spark and Arrow, for both directions of a table."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from indextables.errors import SchemaError
from indextables.schema import from_json, refuse_hidden, to_json
from indextables.spark.search_mapping import without_mappings


def spark_schema(schema: pa.Schema) -> StructType:
    """A table's schema as Spark has it."""
    return StructType.fromJson(_json(to_json(schema)))


def table_schema(schema: StructType) -> pa.Schema:
    """The schema of a table for rows of a DataFrame. Every column may be null, as Spark's are."""
    refuse_hidden(schema.names)
    for field in schema.fields:
        _refuse_collations(field.name, field.dataType)
    nullable = _nullable(without_mappings(schema.fields))
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


def _refuse_collations(name: str, kind: Any) -> None:
    """Splits, statistics and indexes compare texts by their bytes, which a collation does not."""
    if kind.typeName() == "string" and kind.simpleString() != "string":
        raise SchemaError(
            f"Column '{name}' is a {kind.simpleString()}, and an index table compares texts by "
            "their bytes. Declare it as STRING, or cast it to that."
        )
    parts = (getattr(kind, part, None) for part in ("elementType", "keyType", "valueType"))
    for inner in (*(f.dataType for f in getattr(kind, "fields", ())), *parts):
        if inner is not None:
            _refuse_collations(name, inner)


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
