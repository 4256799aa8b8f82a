"""Types: Spark's, Arrow's, and a schema as Spark writes it, with two names for a column.

Arrow schemas of other kinds are brought to the types that Spark has.

Splits, statistics, partition values, cross-references and mappings hold a column under its *stored*
name, and the log's schema lists columns by it. A column that was renamed carries its *shown* name
in the metadata of its field. So a rename rewrites no split, and everything below the edges of the
product (`indextables.plan.column_names`) knows one name only. Stored names are never used twice:
where a column was renamed or dropped, a new one gets a name of its own.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import orjson
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
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        # By this mark Spark distinguishes a variant from other structs.
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
NAMES = {kind: name for name, kind in SIMPLE.items()}
DECIMAL = re.compile(r"decimal(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?")
CHARACTERS = re.compile(r"(?:var)?char\(\s*\d+\s*\)|string collate \w+")
FIELD_METADATA = b"spark.metadata"

_COLLATIONS = b'"__COLLATIONS"'
DIMENSION = "indextables.dimension"
"""How many numbers each vector of a column has, in the metadata of its field."""

SPLIT, ROW = "_split", "_row"
ROW_IDENTITY: dict[str, pa.DataType] = {SPLIT: pa.string(), ROW: pa.int64()}
"""Columns that name a row of one version of a table: its split, and its number in there."""
ROW_ACTION = "_indextables_action"
"""A column of rows that a MERGE writes: "write" it, or only "delete" or "keep" the one it names."""
SCORE = "_score"
"""How well a row matches a search."""
HIDDEN = (SCORE, "_indexall", *ROW_IDENTITY)
"""Columns that every index table has beside its own, in any case."""
METADATA = "_metadata"
"""What Spark's file formats call the column about a row's file; a table may have another one."""

MAX_LEVELS = 80
"""Parquet's readers and JSON's end soon after so many levels of nesting."""
Type: TypeAlias = Any
"""An Arrow type. The stubs of pyarrow do not know what nested types have."""
Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def map_of(key: pa.Field[Any], value: pa.Field[Any]) -> Type:
    build: Any = pa.map_
    return build(key, value)


def is_variant(data_type: Type) -> bool:
    """Whether a type is Spark's VARIANT: two binaries that only Spark's functions understand.

    >>> is_variant(VARIANT), is_variant(pa.struct([("value", pa.binary())]))
    (True, False)
    """
    return pa.types.is_struct(data_type) and any(
        b"variant" in (f.metadata or {}) for f in data_type.fields
    )


def has_variant(field: pa.Field[Any]) -> bool:
    """Whether a column is a VARIANT, or has one inside."""
    return is_variant(field.type) or any(map(has_variant, inner_fields(field.type)))


def is_text(data_type: Type) -> bool:
    """Whether values are texts, whatever the layout of the column."""
    return (
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_string_view(data_type)
    )


def is_bytes(data_type: Type) -> bool:
    """Whether values are bytes, whatever the layout of the column."""
    return (
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
        or pa.types.is_binary_view(data_type)
    )


def is_list(data_type: Type) -> bool:
    types = pa.types
    return (
        types.is_list(data_type)
        or types.is_large_list(data_type)
        or types.is_fixed_size_list(data_type)
        or types.is_list_view(data_type)
        or types.is_large_list_view(data_type)
    )


def is_collated(field: pa.Field[Any]) -> bool:
    """Whether texts of a column, or inside it, are compared by a collation of Spark's.

    Splits hold and statistics compare their bytes; what is equal only Spark can say.
    """
    if _COLLATIONS in (field.metadata or {}).get(FIELD_METADATA, b""):
        return True
    return any(is_collated(inner) for inner in inner_fields(field.type))


def dimension_of(field: pa.Field[Any]) -> int | None:
    """How many numbers each vector of a column has, if that is declared.

    >>> dimension_of(normalize(pa.schema([("v", pa.list_(pa.float32(), 3))])).field("v"))
    3
    """
    if not is_list(field.type) or not pa.types.is_floating(field.type.value_type):
        return None
    if pa.types.is_fixed_size_list(field.type):
        return int(field.type.list_size)
    text = (field.metadata or {}).get(FIELD_METADATA, b"{}")
    declared = orjson.loads(text).get(DIMENSION) if DIMENSION.encode() in text else None
    return declared if isinstance(declared, int) else None


def inner_fields(data_type: Type) -> list[pa.Field[Any]]:
    """The fields of a nested type; none of any other."""
    if pa.types.is_map(data_type):
        return [data_type.key_field, data_type.item_field]
    if is_list(data_type):
        return [data_type.value_field]
    return (
        list(data_type.fields)
        if pa.types.is_struct(data_type) and not is_variant(data_type)
        else []
    )


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


def normalize(schema: pa.Schema) -> pa.Schema:
    """The table schema for rows of an Arrow schema. Every problem is named in one error.

    Dictionaries become their values, views and large types the plain ones, unsigned integers the
    next wider signed one, timestamps microseconds. What could lose information is refused.
    """
    refuse_duplicates(schema.names)
    _refuse_deep(schema)
    problems: list[str] = []
    fields = [_normalize_field(f, f.name, problems) for f in schema]
    if problems:
        raise SchemaError(
            "These columns cannot be stored in an index table; cast or drop them:\n  "
            + "\n  ".join(problems)
        )
    return pa.schema(fields)


def _refuse_deep(schema: pa.Schema) -> None:
    """Refuse types that could be written, and that no reader of Parquet would take back."""
    deeper = [(field, field.name, 0) for field in schema]
    while deeper:
        field, column, levels = deeper.pop()
        if levels > MAX_LEVELS:
            raise SchemaError(
                f"The column '{column}' is nested deeper than {MAX_LEVELS} levels, which readers "
                "of Parquet refuse (a list or a map counts twice). Flatten it, or store it as "
                "JSON text."
            )
        levels += 1 if pa.types.is_struct(field.type) else 2
        deeper += [(inner, column, levels) for inner in inner_fields(field.type)]


def _normalize_field(field: pa.Field[Any], path: str, problems: list[str]) -> pa.Field[Any]:
    kept = {k: v for k, v in (field.metadata or {}).items() if k == FIELD_METADATA}
    if pa.types.is_fixed_size_list(field.type) and (dimension := dimension_of(field)) is not None:
        entries = orjson.loads(kept.get(FIELD_METADATA, b"{}"))
        kept[FIELD_METADATA] = orjson.dumps({**entries, DIMENSION: dimension})
    data_type = normalize_type(field.type, path, problems)
    return pa.field(field.name, data_type, nullable=field.nullable, metadata=kept or None)


_DIRECT: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def normalize_type(data_type: Type, path: str, problems: list[str]) -> Type:
    types = pa.types
    if data_type in NAMES:
        return data_type
    if is_variant(data_type):
        return VARIANT
    if data_type in _DIRECT:
        return _DIRECT[data_type]
    if isinstance(data_type, pa.BaseExtensionType):
        return normalize_type(data_type.storage_type, path, problems)
    if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        return normalize_type(data_type.value_type, path, problems)
    if types.is_fixed_size_binary(data_type):
        return pa.binary()
    if types.is_timestamp(data_type):
        return TIMESTAMP if data_type.tz else TIMESTAMP_NTZ
    if types.is_decimal(data_type):
        if (
            0 < data_type.precision <= MAX_DECIMAL_PRECISION
            and 0 <= data_type.scale <= data_type.precision
        ):
            return pa.decimal128(data_type.precision, data_type.scale)
        problems.append(f"'{path}': {data_type} (Spark's decimals have 1 to 38 digits)")
    elif types.is_map(data_type):
        key = normalize_type(data_type.key_type, f"{path}.key", problems)
        value = normalize_type(data_type.item_type, f"{path}.value", problems)
        return map_of(
            pa.field("key", key, nullable=False),
            pa.field("value", value, nullable=data_type.item_field.nullable),
        )
    elif is_list(data_type):
        element = normalize_type(data_type.value_type, f"{path}.element", problems)
        return pa.list_(pa.field("element", element, nullable=data_type.value_field.nullable))
    elif types.is_struct(data_type):
        names = [f.name for f in data_type.fields]
        if repeated := repeated_names(names):
            problems.append(f"'{path}': the struct has {', '.join(repeated)} more than once")
        return pa.struct(
            [_normalize_field(f, f"{path}.{f.name}", problems) for f in data_type.fields]
        )
    elif types.is_null(data_type):
        problems.append(f"'{path}': null (a column of nulls only has no type; cast it to one)")
    else:
        problems.append(f"'{path}': {data_type} (Spark has no such type)")
    return pa.string()


def from_json(text: str | bytes) -> pa.Schema:
    """Read a `schemaString` of the log.

    >>> from_json('{"type":"struct","fields":[{"name":"id","type":"long","nullable":false}]}')
    id: int64 not null
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SchemaError(f"The schema is not JSON: {error}. It should be Spark's.") from None
    if not isinstance(document, dict) or document.get("type") != "struct":
        raise SchemaError('The schema is not a Spark schema: it must be {"type":"struct",…}.')
    try:
        schema = pa.schema(_fields_from_json(document, ""))
    except SchemaError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SchemaError(
            f"The schema is not a Spark schema: {type(error).__name__} {error}. A field is "
            '{"name":…,"type":…,"nullable":…}.'
        ) from None
    refuse_duplicates(schema.names)
    return schema


def _fields_from_json(document: Mapping[str, Any], parent: str) -> list[pa.Field[Any]]:
    fields = []
    for entry in document.get("fields") or ():
        path = f"{parent}{entry['name']}"
        metadata = entry.get("metadata") or None
        fields.append(
            pa.field(
                entry["name"],
                _type_from_json(entry["type"], path),
                nullable=bool(entry.get("nullable", True)),
                metadata={FIELD_METADATA: orjson.dumps(metadata)} if metadata else None,
            )
        )
    return fields


def _type_from_json(spark_type: Any, path: str) -> Type:
    if isinstance(spark_type, str):
        if spark_type in SIMPLE:
            return SIMPLE[spark_type]
        if spark_type == "variant":
            return VARIANT
        if (match := DECIMAL.fullmatch(spark_type)) is not None:
            return pa.decimal128(int(match[1] or 10), int(match[2] or 0))
        if CHARACTERS.fullmatch(spark_type):
            return pa.string()
    elif isinstance(spark_type, dict):
        if spark_type.get("type") == "struct":
            return pa.struct(_fields_from_json(spark_type, f"{path}."))
        if spark_type.get("type") == "array":
            element = _type_from_json(spark_type["elementType"], f"{path}.element")
            return pa.list_(
                pa.field("element", element, nullable=bool(spark_type.get("containsNull", True)))
            )
        if spark_type.get("type") == "map":
            return map_of(
                pa.field(
                    "key", _type_from_json(spark_type["keyType"], f"{path}.key"), nullable=False
                ),
                pa.field(
                    "value",
                    _type_from_json(spark_type["valueType"], f"{path}.value"),
                    nullable=bool(spark_type.get("valueContainsNull", True)),
                ),
            )
        if spark_type.get("type") == "udt" and "sqlType" in spark_type:
            return _type_from_json(spark_type["sqlType"], path)
    raise SchemaError(
        f"Column '{path}' has the type {spark_type!r}, which no index table can hold."
    )


def to_json(schema: pa.Schema) -> str:
    """Write a schema as Spark does, for the log.

    >>> to_json(pa.schema([pa.field("n", pa.int32())]))
    '{"type":"struct","fields":[{"name":"n","type":"integer","nullable":true,"metadata":{}}]}'
    """
    return orjson.dumps(_struct_to_json(normalize(schema))).decode()


def _struct_to_json(fields: Iterable[pa.Field[Any]]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": f.name,
                "type": _type_to_json(f.type),
                "nullable": f.nullable,
                "metadata": field_metadata(f),
            }
            for f in fields
        ],
    }


def _type_to_json(data_type: Type) -> Any:
    if data_type in NAMES:
        return NAMES[data_type]
    if is_variant(data_type):
        return "variant"
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_list(data_type):
        return {
            "type": "array",
            "elementType": _type_to_json(data_type.value_type),
            "containsNull": data_type.value_field.nullable,
        }
    if pa.types.is_map(data_type):
        return {
            "type": "map",
            "keyType": _type_to_json(data_type.key_type),
            "valueType": _type_to_json(data_type.item_type),
            "valueContainsNull": data_type.item_field.nullable,
        }
    return _struct_to_json(data_type.fields)


def type_name(data_type: Type) -> str:
    """A type as Spark's SQL would call it, for messages.

    >>> type_name(pa.list_(pa.int32()))
    'array<integer>'
    """
    if is_variant(data_type):
        return "variant"
    if pa.types.is_list(data_type):
        return f"array<{type_name(data_type.value_type)}>"
    if pa.types.is_map(data_type):
        return f"map<{type_name(data_type.key_type)},{type_name(data_type.item_type)}>"
    if pa.types.is_struct(data_type):
        return f"struct<{','.join(f'{f.name}:{type_name(f.type)}' for f in data_type.fields)}>"
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    return NAMES.get(data_type, str(data_type))


# --- the two names of a column ---------------------------------------------------------------

SHOWN_NAME = "indextables.name"
"""The key in the metadata of a field of the log's schema."""


def shown_name(field: pa.Field[Any]) -> str:
    """The name that users have for a stored column."""
    return str(field_metadata(field).get(SHOWN_NAME, field.name))


def shown_field(field: pa.Field[Any]) -> pa.Field[Any]:
    """A stored column as users see it."""
    metadata = field_metadata(field)
    if SHOWN_NAME not in metadata:
        return field
    return _with_metadata(field, metadata, None).with_name(metadata[SHOWN_NAME])


def shown_schema(schema: pa.Schema) -> pa.Schema:
    """A stored schema as users see it.

    >>> stored = stored_schema(pa.schema([("b", pa.int64())]), {"b": "a"})
    >>> stored.names, shown_schema(stored).names
    (['a'], ['b'])
    """
    return pa.schema([shown_field(field) for field in schema])


def stored_schema(shown: pa.Schema, stored: Mapping[str, str]) -> pa.Schema:
    """The log's schema for columns that users see, by the stored name of each."""
    fields = []
    for field in shown:
        name = stored[field.name]
        different = field.name if field.name != name else None
        fields.append(_with_metadata(field, field_metadata(field), different).with_name(name))
    return pa.schema(fields)


def new_stored_name(shown: str) -> str:
    """A name for a new column of a table that may have had another one of its name."""
    return f"{shown}_{uuid.uuid4().hex[:12]}"


def field_metadata(field: pa.Field[Any]) -> dict[str, Any]:
    """The metadata that Spark keeps of a column."""
    text = (field.metadata or {}).get(FIELD_METADATA)
    entries: dict[str, Any] = orjson.loads(text) if text else {}
    return entries


def _with_metadata(
    field: pa.Field[Any], metadata: Mapping[str, Any], shown: str | None
) -> pa.Field[Any]:
    kept = {key: value for key, value in metadata.items() if key != SHOWN_NAME}
    if shown is not None:
        kept[SHOWN_NAME] = shown
    if kept == metadata:
        return field
    kept_metadata: dict[Any, Any] = {
        k: v for k, v in (field.metadata or {}).items() if k != FIELD_METADATA
    }
    if kept:
        kept_metadata[FIELD_METADATA] = orjson.dumps(kept)
    return field.with_metadata(kept_metadata) if kept_metadata else field.remove_metadata()
