"""Arrow schemas of other kinds, brought to the types that Spark has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indextables.errors import SchemaError
from indextables.schema.types import (
    FIELD_METADATA,
    MAX_DECIMAL_PRECISION,
    NAMES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Type,
    is_list,
    map_of,
    refuse_duplicates,
    repeated_names,
)


def normalize(schema: pa.Schema) -> pa.Schema:
    """The table schema for rows of an Arrow schema. Every problem is named in one error.

    Dictionaries become their values, views and large types the plain ones, unsigned integers the
    next wider signed one, timestamps microseconds. What could lose information is refused.
    """
    refuse_duplicates(schema.names)
    problems: list[str] = []
    fields = [_normalize_field(f, f.name, problems) for f in schema]
    if problems:
        raise SchemaError(
            "These columns cannot be stored in an index table; cast or drop them:\n  "
            + "\n  ".join(problems)
        )
    return pa.schema(fields)


def _normalize_field(field: pa.Field[Any], path: str, problems: list[str]) -> pa.Field[Any]:
    kept = {k: v for k, v in (field.metadata or {}).items() if k == FIELD_METADATA}
    kind = normalize_type(field.type, path, problems)
    return pa.field(field.name, kind, nullable=field.nullable, metadata=kept or None)


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


def normalize_type(kind: Type, path: str, problems: list[str]) -> Type:
    types = pa.types
    if kind in NAMES:
        return kind
    if kind in _DIRECT:
        return _DIRECT[kind]
    if isinstance(kind, pa.BaseExtensionType):
        return normalize_type(kind.storage_type, path, problems)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return normalize_type(kind.value_type, path, problems)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return TIMESTAMP if kind.tz else TIMESTAMP_NTZ
    if types.is_decimal(kind):
        if 0 < kind.precision <= MAX_DECIMAL_PRECISION and 0 <= kind.scale <= kind.precision:
            return pa.decimal128(kind.precision, kind.scale)
        problems.append(f"'{path}': {kind} (Spark's decimals have 1 to 38 digits)")
    elif types.is_map(kind):
        key = normalize_type(kind.key_type, f"{path}.key", problems)
        value = normalize_type(kind.item_type, f"{path}.value", problems)
        return map_of(
            pa.field("key", key, nullable=False),
            pa.field("value", value, nullable=kind.item_field.nullable),
        )
    elif is_list(kind):
        element = normalize_type(kind.value_type, f"{path}.element", problems)
        return pa.list_(pa.field("element", element, nullable=kind.value_field.nullable))
    elif types.is_struct(kind):
        names = [f.name for f in kind.fields]
        if repeated := repeated_names(names):
            problems.append(f"'{path}': the struct has {', '.join(repeated)} more than once")
        return pa.struct([_normalize_field(f, f"{path}.{f.name}", problems) for f in kind.fields])
    elif types.is_null(kind):
        problems.append(f"'{path}': null (a column of nulls only has no type; cast it to one)")
    else:
        problems.append(f"'{path}': {kind} (Spark has no such type)")
    return pa.string()
