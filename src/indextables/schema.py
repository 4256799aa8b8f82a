"""The columns of a table: Spark's schema JSON and Arrow's schema, the same thing in two spellings.

The log keeps a schema as Spark writes it (`schemaString`); rows are Arrow. Every Spark type has
one Arrow type here, and Arrow input of another kind is brought to it when nothing is lost
(`normalize`) or refused with a sentence. `evolve` says what a table's schema becomes when rows of
another schema arrive, and `conform` brings those rows to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import SchemaError

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
MAX_DECIMAL_PRECISION = 38

_SIMPLE: dict[str, pa.DataType] = {
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
_NAMES = {kind: name for name, kind in _SIMPLE.items()}
_DECIMAL = re.compile(r"decimal(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?")
_CHARACTERS = re.compile(r"(?:var)?char\(\s*\d+\s*\)|string collate \w+")
_FIELD_METADATA = b"spark.metadata"

Type: TypeAlias = Any
"""An Arrow type. The stubs of pyarrow do not know what nested types have."""
Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


# --- Spark's JSON ----------------------------------------------------------------------------


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
    schema = pa.schema(_fields_from_json(document, ""))
    _refuse_duplicates(schema.names)
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
                metadata={_FIELD_METADATA: orjson.dumps(metadata)} if metadata else None,
            )
        )
    return fields


def _type_from_json(kind: Any, path: str) -> Type:
    if isinstance(kind, str):
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if (match := _DECIMAL.fullmatch(kind)) is not None:
            return pa.decimal128(int(match[1] or 10), int(match[2] or 0))
        if _CHARACTERS.fullmatch(kind):
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
            return _map(
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
                "metadata": orjson.loads((f.metadata or {}).get(_FIELD_METADATA, b"{}")),
            }
            for f in fields
        ],
    }


def _type_to_json(kind: Type) -> Any:
    if kind in _NAMES:
        return _NAMES[kind]
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
    return _NAMES.get(kind, str(kind))


def _map(key: pa.Field[Any], value: pa.Field[Any]) -> Type:
    build: Any = pa.map_
    return build(key, value)


# --- Arrow input -----------------------------------------------------------------------------


def normalize(schema: pa.Schema) -> pa.Schema:
    """The table schema for rows of an Arrow schema. Every problem is named in one error.

    Dictionaries become their values, views and large types the plain ones, unsigned integers the
    next wider signed one, timestamps microseconds. What could lose information is refused.
    """
    _refuse_duplicates(schema.names)
    problems: list[str] = []
    fields = [_normalize_field(f, f.name, problems) for f in schema]
    if problems:
        raise SchemaError(
            "These columns cannot be stored in an index table; cast or drop them:\n  "
            + "\n  ".join(problems)
        )
    return pa.schema(fields)


def _normalize_field(field: pa.Field[Any], path: str, problems: list[str]) -> pa.Field[Any]:
    kept = {k: v for k, v in (field.metadata or {}).items() if k == _FIELD_METADATA}
    kind = _normalize_type(field.type, path, problems)
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


def _normalize_type(kind: Type, path: str, problems: list[str]) -> Type:
    types = pa.types
    if kind in _NAMES:
        return kind
    if kind in _DIRECT:
        return _DIRECT[kind]
    if isinstance(kind, pa.BaseExtensionType):
        return _normalize_type(kind.storage_type, path, problems)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _normalize_type(kind.value_type, path, problems)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return TIMESTAMP if kind.tz else TIMESTAMP_NTZ
    if types.is_decimal(kind):
        if 0 < kind.precision <= MAX_DECIMAL_PRECISION and 0 <= kind.scale <= kind.precision:
            return pa.decimal128(kind.precision, kind.scale)
        problems.append(f"'{path}': {kind} (Spark's decimals have 1 to 38 digits)")
    elif types.is_map(kind):
        key = _normalize_type(kind.key_type, f"{path}.key", problems)
        value = _normalize_type(kind.item_type, f"{path}.value", problems)
        return _map(
            pa.field("key", key, nullable=False),
            pa.field("value", value, nullable=kind.item_field.nullable),
        )
    elif _is_list(kind):
        element = _normalize_type(kind.value_type, f"{path}.element", problems)
        return pa.list_(pa.field("element", element, nullable=kind.value_field.nullable))
    elif types.is_struct(kind):
        names = [f.name for f in kind.fields]
        if repeated := _repeated(names):
            problems.append(f"'{path}': the struct has {', '.join(repeated)} more than once")
        return pa.struct([_normalize_field(f, f"{path}.{f.name}", problems) for f in kind.fields])
    elif types.is_null(kind):
        problems.append(f"'{path}': null (a column of nulls only has no type; cast it to one)")
    else:
        problems.append(f"'{path}': {kind} (Spark has no such type)")
    return pa.string()


def _is_list(kind: Type) -> bool:
    types = pa.types
    return (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _repeated(names: Iterable[str]) -> list[str]:
    return [f"'{name}'" for name, count in Counter(names).items() if count > 1]


def _refuse_duplicates(names: Iterable[str]) -> None:
    if repeated := _repeated(names):
        raise SchemaError(
            f"Duplicate column names: {', '.join(repeated)}. Every column needs a name of its own."
        )


# --- evolution -------------------------------------------------------------------------------


def evolve(table: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The schema of a table after rows of another schema are added to it.

    New columns are added and are null in older rows. Types widen as Delta's do: byte to short to
    integer to long, float to double, decimals to more digits. Everything else is refused, all
    differences in one error.
    """
    problems: list[str] = []
    fields = _merge_fields(list(table), list(_typed(new, table)), "", problems)
    if problems:
        raise SchemaError(
            "The rows do not fit the table's schema:\n  " + "\n  ".join(problems) + "\n"
            "Cast the columns, or write the rows to another table."
        )
    return pa.schema(fields)


def _typed(new: pa.Schema, table: pa.Schema) -> pa.Schema:
    """A column of nulls only takes the type that the table has for it."""
    known = {f.name: f for f in table}
    return normalize(
        pa.schema(known[f.name] if pa.types.is_null(f.type) and f.name in known else f for f in new)
    )


def _merge_fields(
    table: list[pa.Field[Any]], new: list[pa.Field[Any]], parent: str, problems: list[str]
) -> list[pa.Field[Any]]:
    arriving = {f.name: f for f in new}
    merged = []
    for field in table:
        other = arriving.pop(field.name, None)
        if other is None:
            if not field.nullable:
                problems.append(f"'{parent}{field.name}' is missing and may not be null")
            merged.append(field)
            continue
        kind = _merge_types(field.type, other.type, f"{parent}{field.name}", problems)
        merged.append(field.with_type(kind))
    spelled = {f.name.lower(): f.name for f in table}
    for name, other in arriving.items():
        if (known := spelled.get(name.lower())) is not None:
            problems.append(f"'{parent}{name}' differs from the column '{parent}{known}' in case")
        merged.append(other.with_nullable(True))
    return merged


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def _wider(left: Type, right: Type) -> Type | None:
    if left in _INTEGERS and right in _INTEGERS:
        return max(left, right, key=_INTEGERS.index)
    if {left, right} == {pa.float32(), pa.float64()}:
        return pa.float64()
    if pa.float64() in (left, right) and {left, right} & set(_INTEGERS[:3]):
        return pa.float64()
    if pa.types.is_decimal(left) and pa.types.is_decimal(right):
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        return pa.decimal128(precision, scale) if precision <= MAX_DECIMAL_PRECISION else None
    return None


def _merge_types(table: Type, new: Type, path: str, problems: list[str]) -> Type:
    types = pa.types
    if table.equals(new):
        return table
    if types.is_struct(table) and types.is_struct(new):
        return pa.struct(_merge_fields(table.fields, new.fields, f"{path}.", problems))
    if types.is_list(table) and types.is_list(new):
        element = _merge_types(table.value_type, new.value_type, f"{path}.element", problems)
        return pa.list_(table.value_field.with_type(element))
    if types.is_map(table) and types.is_map(new):
        key = _merge_types(table.key_type, new.key_type, f"{path}.key", problems)
        value = _merge_types(table.item_type, new.item_type, f"{path}.value", problems)
        return _map(table.key_field.with_type(key), table.item_field.with_type(value))
    if (wider := _wider(table, new)) is not None:
        return wider
    problems.append(f"'{path}' is {type_name(table)} in the table and {type_name(new)} in the rows")
    return table


# --- rows ------------------------------------------------------------------------------------


def conform(rows: Rows, schema: pa.Schema) -> Rows:
    """Bring rows to a table's schema: its order, its types; a missing column becomes null.

    Only casts that lose nothing are made. Every problem is named in one error.
    """
    if rows.schema.equals(schema):
        return rows
    _refuse_duplicates(rows.schema.names)
    problems = [
        f"'{n}' is no column of the table" for n in rows.schema.names if n not in schema.names
    ]
    columns = []
    for field in schema:
        if field.name not in rows.schema.names:
            column: Any = pa.nulls(rows.num_rows, field.type)
        else:
            column = rows.column(field.name)
            try:
                column = _cast(column, field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                problems.append(
                    f"'{field.name}' cannot become {type_name(field.type)}: "
                    f"{str(error).splitlines()[0]}"
                )
                continue
        if not field.nullable and column.null_count:
            problems.append(f"'{field.name}' has {column.null_count} nulls and may have none")
        columns.append(column)
    if problems:
        raise SchemaError(
            "The rows do not fit the table's schema:\n  "
            + "\n  ".join(problems)
            + f"\nThe table has {', '.join(schema.names)}."
        )
    return type(rows).from_arrays(columns, schema=schema)


def _cast(column: Any, kind: Type) -> Any:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    if column.type.equals(kind):
        return column
    if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(kind):
        # A cast between naive and zoned would silently read local times as UTC.
        if bool(column.type.tz) != bool(kind.tz):
            raise pa.ArrowInvalid("a timestamp without time zone is no point in time")
        return column.cast(kind)
    if not _is_kin(column.type, kind):
        wanted = "text" if pa.types.is_string(kind) else type_name(kind)
        raise pa.ArrowInvalid(f"{column.type} is no {wanted}")
    if lost := list(_lost_fields(column.type, kind)):
        raise pa.ArrowInvalid(f"it has no {', '.join(lost)}")
    cast = column.cast(kind)
    if pa.types.is_floating(column.type) and kind == pa.float32():
        back = cast.cast(column.type)
        same = pc.or_(pc.equal(back, column), pc.is_nan(column))
        if pc.all(same).as_py() is False:
            raise pa.ArrowInvalid("some numbers would lose digits")
    return cast


def _decoded(column: Any) -> Any:
    """The values of a dictionary. Arrow takes nothing from views, which is what Polars has."""
    kind = _normalize_type(column.type.value_type, "", [])
    chunks: list[Any] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    plain = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in chunks]
    return pa.chunked_array(plain, kind) if isinstance(column, pa.ChunkedArray) else plain[0]


def _is_kin(given: Type, kind: Type) -> bool:
    """Whether values of a type can be values of another one without being read as something else.

    Arrow would make a number of a text, a date of a time, and a truth of any number.
    """
    types = pa.types
    if types.is_dictionary(given) or types.is_run_end_encoded(given):
        return _is_kin(given.value_type, kind)
    if types.is_null(given):
        return True
    if types.is_string(kind):
        return _holds_text(given)
    if given.equals(kind):
        return True
    if types.is_boolean(kind) or types.is_date(kind):
        return given.id == kind.id or (types.is_date(kind) and types.is_date(given))
    if types.is_timestamp(kind):
        same_clock = types.is_timestamp(given) and bool(given.tz) == bool(kind.tz)
        return same_clock or (types.is_date(given) and kind.tz is None)
    if types.is_integer(kind) or types.is_floating(kind):
        return types.is_integer(given) or types.is_floating(given)
    if types.is_decimal(kind):
        return types.is_decimal(given) or types.is_integer(given)
    if _is_list(kind):
        return _is_list(given) and _is_kin(given.value_type, kind.value_type)
    if types.is_map(kind) and types.is_map(given):
        return _is_kin(given.key_type, kind.key_type) and _is_kin(given.item_type, kind.item_type)
    if types.is_struct(kind) and types.is_struct(given):
        known = {f.name: f.type for f in kind.fields}
        return all(_is_kin(f.type, known.get(f.name, f.type)) for f in given.fields)
    return True


def _lost_fields(given: Type, kind: Type) -> Iterator[str]:
    """Nested fields that a cast would drop without a word."""
    if pa.types.is_struct(given) and pa.types.is_struct(kind):
        kept = {f.name: f.type for f in kind.fields}
        for field in given.fields:
            if field.name not in kept:
                yield f"'{field.name}'"
            else:
                yield from _lost_fields(field.type, kept[field.name])
    elif _is_list(given) and _is_list(kind):
        yield from _lost_fields(given.value_type, kind.value_type)
    elif pa.types.is_map(given) and pa.types.is_map(kind):
        yield from _lost_fields(given.item_type, kind.item_type)


def _holds_text(kind: Type) -> bool:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _holds_text(kind.value_type)
    return (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_null(kind)
    )
