"""A schema as Spark writes it in JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
import pyarrow as pa

from indextables.errors import SchemaError
from indextables.schema.normal import normalize
from indextables.schema.types import (
    CHARACTERS,
    DECIMAL,
    FIELD_METADATA,
    NAMES,
    SIMPLE,
    Type,
    map_of,
    refuse_duplicates,
)


def from_json(text: str | bytes) -> pa.Schema:
    """Read a `schemaString` of the log.

    >>> from_json('{"type":"struct","fields":[{"name":"id","type":"long","nullable":false}]}')
    id: int64 not null
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SchemaError(f"The schema is no JSON: {error}. It should be Spark's.") from None
    if not isinstance(document, dict) or document.get("type") != "struct":
        raise SchemaError('The schema is no Spark schema: it must be {"type":"struct",…}.')
    try:
        schema = pa.schema(_fields_from_json(document, ""))
    except SchemaError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SchemaError(
            f"The schema is no Spark schema: {type(error).__name__} {error}. A field is "
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


def _type_from_json(kind: Any, path: str) -> Type:
    if isinstance(kind, str):
        if kind in SIMPLE:
            return SIMPLE[kind]
        if (match := DECIMAL.fullmatch(kind)) is not None:
            return pa.decimal128(int(match[1] or 10), int(match[2] or 0))
        if CHARACTERS.fullmatch(kind):
            return pa.string()
    elif isinstance(kind, dict):
        if kind.get("type") == "struct":
            return pa.struct(_fields_from_json(kind, f"{path}."))
        if kind.get("type") == "array":
            element = _type_from_json(kind["elementType"], f"{path}.element")
            return pa.list_(
                pa.field("element", element, nullable=bool(kind.get("containsNull", True)))
            )
        if kind.get("type") == "map":
            return map_of(
                pa.field("key", _type_from_json(kind["keyType"], f"{path}.key"), nullable=False),
                pa.field(
                    "value",
                    _type_from_json(kind["valueType"], f"{path}.value"),
                    nullable=bool(kind.get("valueContainsNull", True)),
                ),
            )
        if kind.get("type") == "udt" and "sqlType" in kind:
            return _type_from_json(kind["sqlType"], path)
    raise SchemaError(f"Column '{path}' has the type {kind!r}, which no index table can hold.")


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
                "metadata": orjson.loads((f.metadata or {}).get(FIELD_METADATA, b"{}")),
            }
            for f in fields
        ],
    }


def _type_to_json(kind: Type) -> Any:
    if kind in NAMES:
        return NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return {
            "type": "array",
            "elementType": _type_to_json(kind.value_type),
            "containsNull": kind.value_field.nullable,
        }
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _type_to_json(kind.key_type),
            "valueType": _type_to_json(kind.item_type),
            "valueContainsNull": kind.item_field.nullable,
        }
    return _struct_to_json(kind.fields)


def type_name(kind: Type) -> str:
    """A type as Spark's SQL would call it, for messages.

    >>> type_name(pa.list_(pa.int32()))
    'array<integer>'
    """
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{f.name}:{type_name(f.type)}' for f in kind.fields)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return NAMES.get(kind, str(kind))
