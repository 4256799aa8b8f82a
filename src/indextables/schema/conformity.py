"""Rows of another schema: what the table's schema becomes, and the rows in it.

Rows are brought to a table's schema where nothing is lost. Rows that were written before a column
was added hold the default that it was added with. The metadata of a field has it under Spark's own
key, as Spark's SQL spells a literal; a later `SET DEFAULT` changes another key. A split that was
written before such a column does not have it, and readers fill the value in (`missing_defaults`).
What an index, its statistics or a cross-reference say of a column that a split does not have means
nothing there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import SchemaError, first_line
from indextables.schema.types import (
    FIELD_METADATA,
    MAX_DECIMAL_PRECISION,
    Rows,
    Type,
    dimension_of,
    has_variant,
    is_list,
    is_text,
    is_variant,
    map_of,
    normalize,
    normalize_type,
    refuse_duplicates,
    refuse_hidden,
    type_name,
)


def evolve(table: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The schema of a table after rows of another schema are added to it.

    New columns are added and are null in older rows. Types widen as Delta's do: byte to short to
    integer to long, float to double, decimals to more digits. Everything else is refused, all
    differences in one error.
    """
    refuse_hidden(name for name in new.names if name not in table.names)
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
    fields = {f.name: f for f in table}
    return normalize(
        pa.schema(
            fields[f.name] if pa.types.is_null(f.type) and f.name in fields else f for f in new
        )
    )


def _merge_fields(
    table: list[pa.Field[Any]], new: list[pa.Field[Any]], parent: str, problems: list[str]
) -> list[pa.Field[Any]]:
    arriving = {f.name: f for f in new}
    merged = []
    for field in table:
        arrived = arriving.pop(field.name, None)
        if arrived is None:
            if not field.nullable:
                problems.append(f"'{parent}{field.name}' is missing and may not be null")
            merged.append(field)
            continue
        data_type = _merge_types(field.type, arrived.type, f"{parent}{field.name}", problems)
        merged.append(field.with_type(data_type))
    spelled = {f.name.lower(): f.name for f in table}
    for name, arrived in arriving.items():
        if (similar := spelled.get(name.lower())) is not None:
            problems.append(f"'{parent}{name}' differs from the column '{parent}{similar}' in case")
        # It is null in older rows, whatever the table has for it that these rows come from.
        merged.append(with_existence_default(arrived.with_nullable(True), None))
    return merged


def as_floats(values: Any, data_type: Any = None) -> Any:
    """Numbers as floats, of 64 bits if no type is given. Arrow makes others of many decimals.

    >>> tenths = pa.array([Decimal("0.3")])
    >>> tenths.cast(pa.float64()).to_pylist(), as_floats(tenths).to_pylist()
    ([0.30000000000000004], [0.3])
    """
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())
    return values.cast(data_type or pa.float64())


def one_spelling(values: Any) -> Any:
    """Values whose bits are equal where SQL says that they are: one NaN, and zero without a sign.

    >>> one_spelling(pa.array([-0.0, 1.5])).to_pylist()
    [0.0, 1.5]
    """
    data_type = values.type
    if not pa.types.is_floating(data_type):
        return values
    unsigned = pc.add(values, pa.scalar(0, data_type))
    return pc.if_else(pc.is_nan(values), pa.scalar(math.nan, data_type), unsigned)


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
    if (
        not (is_variant(table) or is_variant(new))
        and types.is_struct(table)
        and types.is_struct(new)
    ):
        return pa.struct(_merge_fields(table.fields, new.fields, f"{path}.", problems))
    if types.is_list(table) and types.is_list(new):
        element = _merge_types(table.value_type, new.value_type, f"{path}.element", problems)
        return pa.list_(table.value_field.with_type(element))
    if types.is_map(table) and types.is_map(new):
        key = _merge_types(table.key_type, new.key_type, f"{path}.key", problems)
        value = _merge_types(table.item_type, new.item_type, f"{path}.value", problems)
        return map_of(table.key_field.with_type(key), table.item_field.with_type(value))
    if (wider := _wider(table, new)) is not None:
        return wider
    problems.append(f"'{path}' is {type_name(table)} in the table and {type_name(new)} in the rows")
    return table


def conform(rows: Rows, schema: pa.Schema) -> Rows:
    """Bring rows to a table's schema: its order, its types; a missing column becomes null.

    Only casts that lose nothing are made. Every problem is named in one error.
    """
    if rows.schema.equals(schema):
        return rows
    refuse_duplicates(rows.schema.names)
    problems = [
        f"'{n}' is not a column of the table" for n in rows.schema.names if n not in schema.names
    ]
    columns = []
    for field in schema:
        if field.name not in rows.schema.names:
            column: Any = nulls(rows.num_rows, field.type)
        else:
            column = rows.column(field.name)
            try:
                column = _cast(column, field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                problems.append(
                    f"'{field.name}' cannot become {type_name(field.type)}: {first_line(error)}"
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


def nulls(count: int, data_type: Type) -> pa.Array[Any]:
    """Nulls whose parts are not null where the type says so, as of a variant.

    Arrow refuses to cast those of `pa.nulls`, even to their own type.
    """
    if not pa.types.is_struct(data_type):
        return pa.nulls(count, data_type)
    return pa.array([None], data_type).take(np.zeros(count, np.int64))


def with_whole_variants(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose variants have no null inside of them.

    Where a variant is null, Spark leaves its parts null as well, which Parquet refuses in a column
    that says they are not.
    """
    for at, field in enumerate(batch.schema):
        if not has_variant(field):
            continue
        column: Any = batch.column(at)
        if is_variant(field.type):
            parts = [pc.fill_null(part, pa.scalar(b"")) for part in column.flatten()]
            fields = list(field.type.fields)
            column = pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null())
        else:
            column = pa.array(column.to_pylist(), field.type)
        batch = batch.set_column(at, field, column)
    return batch


def refuse_invalid_text(batch: pa.RecordBatch, *, first_row: int) -> None:
    """Refuse texts that are not UTF-8, which Spark can hold; `first_row` is the batch's number.

    Parquet, Tantivy and every reader of a table take text for UTF-8.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            row = _first_invalid(column)
            shown = _bytes_in(column.slice(row, 1)).hex(" ")
            raise SchemaError(
                f"Row {first_row + row:,} has a value in column '{name}' that is not valid UTF-8 "
                f"text: the bytes {shown[:59]}. Store bytes in a BINARY column, or replace what is "
                "invalid (in Spark: make_valid_utf8)."
            ) from None


def refuse_other_dimensions(batch: pa.RecordBatch, schema: pa.Schema, *, first_row: int) -> None:
    """Refuse vectors that have more or fewer numbers than their column declares."""
    for field in schema:
        dimension = dimension_of(field)
        if dimension is None or field.name not in batch.schema.names:
            continue
        lengths: Any = pc.list_value_length(batch.column(field.name))
        wrong: Any = pc.index(pc.not_equal(lengths, pa.scalar(dimension, lengths.type)), True)
        if (row := wrong.as_py()) >= 0:
            raise SchemaError(
                f"Row {first_row + row:,} has a vector of {lengths[row]} numbers in column "
                f"'{field.name}', whose vectors have {dimension}. Write vectors of that length, or "
                "null."
            )


def _first_invalid(column: Any) -> int:
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            # Taken, because a slice of a nested column still has all its values.
            column.take(pa.array(range(low, middle))).validate(full=True)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _bytes_in(column: Any) -> bytes:
    """The first text in a column that is not UTF-8."""
    data_type = column.type
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        for value in column.cast(pa.large_binary()).to_pylist():
            if value is not None and value != value.decode(errors="replace").encode():
                return bytes(value)
        return b""
    if pa.types.is_struct(data_type):
        parts = column.flatten()
    elif pa.types.is_map(data_type):
        parts = [column.keys, column.items]
    else:
        parts = [column.flatten()] if is_list(data_type) else []
    return next((content for part in parts if (content := _bytes_in(part))), b"")


def _cast(column: Any, target: Type) -> Any:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    if column.type.equals(target):
        return column
    if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(target):
        # A cast between naive and zoned would silently read local times as UTC.
        if bool(column.type.tz) != bool(target.tz):
            raise pa.ArrowInvalid("a timestamp without time zone is not a point in time")
        return column.cast(target)
    if not _is_kin(column.type, target):
        expected = "text" if pa.types.is_string(target) else type_name(target)
        raise pa.ArrowInvalid(f"{column.type} is not {expected}")
    if lost := list(_lost_fields(column.type, target)):
        raise pa.ArrowInvalid(f"it has no {', '.join(lost)}")
    if pa.types.is_nested(target) and _may_lose_digits(column.type, target):
        raise pa.ArrowInvalid("numbers inside it could lose digits as float")
    cast = column.cast(target)
    if has_variant(pa.field("", target)):  # a field that is new has nulls as of `pa.nulls`
        return pa.array(cast.to_pylist(), target)
    if pa.types.is_float64(column.type) and target == pa.float32():
        back = cast.cast(column.type)
        same = pc.or_(pc.equal(back, column), pc.is_nan(column))
        if pc.all(same).as_py() is False:
            raise pa.ArrowInvalid("some numbers would lose digits")
    return cast


def _decoded(column: Any) -> Any:
    """The values of a dictionary. Arrow takes nothing from views, which is what Polars has."""
    data_type = normalize_type(column.type.value_type, "", [])
    chunks: list[Any] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    plain = [chunk.dictionary.cast(data_type).take(chunk.indices) for chunk in chunks]
    return pa.chunked_array(plain, data_type) if isinstance(column, pa.ChunkedArray) else plain[0]


def _is_kin(source: Type, target: Type) -> bool:
    """Whether values of a type can be values of another one without being read as something else.

    Arrow would make a number of a text, a date of a time, and a truth of any number.
    """
    types = pa.types
    if types.is_dictionary(source) or types.is_run_end_encoded(source):
        return _is_kin(source.value_type, target)
    if types.is_null(source):
        return True
    if types.is_string(target):
        return _holds_text(source)
    if source.equals(target):
        return True
    if types.is_boolean(target) or types.is_date(target):
        return source.id == target.id or (types.is_date(target) and types.is_date(source))
    if types.is_timestamp(target):
        same_clock = types.is_timestamp(source) and bool(source.tz) == bool(target.tz)
        return same_clock or (types.is_date(source) and target.tz is None)
    if types.is_integer(target) or types.is_floating(target):
        return types.is_integer(source) or types.is_floating(source)
    if types.is_decimal(target):
        return types.is_decimal(source) or types.is_integer(source)
    if is_list(target):
        return is_list(source) and _is_kin(source.value_type, target.value_type)
    if types.is_map(target) and types.is_map(source):
        return _is_kin(source.key_type, target.key_type) and _is_kin(
            source.item_type, target.item_type
        )
    if types.is_struct(target) and types.is_struct(source):
        fields = {f.name: f.type for f in target.fields}
        return all(_is_kin(f.type, fields.get(f.name, f.type)) for f in source.fields)
    return True


def _lost_fields(source: Type, target: Type) -> Iterator[str]:
    """Nested fields that a cast would drop without a word."""
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        kept = {f.name: f.type for f in target.fields}
        for field in source.fields:
            if field.name not in kept:
                yield f"'{field.name}'"
            else:
                yield from _lost_fields(field.type, kept[field.name])
    elif is_list(source) and is_list(target):
        yield from _lost_fields(source.value_type, target.value_type)
    elif pa.types.is_map(source) and pa.types.is_map(target):
        yield from _lost_fields(source.item_type, target.item_type)


def _holds_text(data_type: Type) -> bool:
    if pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type):
        return _holds_text(data_type.value_type)
    return is_text(data_type) or pa.types.is_null(data_type)


def _may_lose_digits(source: Type, target: Type) -> bool:
    """Whether a cast makes floats of doubles somewhere inside; only flat ones are compared."""
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        fields = {f.name: f.type for f in target.fields}
        return any(
            _may_lose_digits(f.type, fields[f.name]) for f in source.fields if f.name in fields
        )
    if is_list(source) and is_list(target):
        return _may_lose_digits(source.value_type, target.value_type)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _may_lose_digits(source.key_type, target.key_type) or _may_lose_digits(
            source.item_type, target.item_type
        )
    return bool(pa.types.is_float64(source) and pa.types.is_float32(target))


# --- defaults of columns that were added -----------------------------------------------------

EXISTS_DEFAULT = "EXISTS_DEFAULT"
CURRENT_DEFAULT = "CURRENT_DEFAULT"
"""What Spark writes to later rows that do not name the column."""
_KEY = EXISTS_DEFAULT.encode()
_LITERAL = re.compile(
    r"""\s*(?: CAST\(\s*(?P<cast>.+?)\s+AS\s+(?P<type>[\w ]+)(?:\([\d,\s]+\))?\s*\)
    | (?:DATE|TIMESTAMP_NTZ|TIMESTAMP_LTZ|TIMESTAMP)\s*'(?P<moment>[^']*)'
    | X'(?P<bytes>[0-9A-Fa-f]*)' | '(?P<text>(?:[^'\\]|\\.|'')*)'
    | (?P<number>[+-]?[\d.]+(?:[eE][+-]?\d+)?)(?:Y|S|L|F|D|BD)? | (?P<word>true|false|null) )\s*""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))|''", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


def default_texts(schema: pa.Schema) -> dict[str, str]:
    """The columns whose default rows have that are older than the column, as it is spelled."""
    texts = {}
    for field in schema:
        text = (field.metadata or {}).get(FIELD_METADATA, b"")
        literal = orjson.loads(text).get(EXISTS_DEFAULT) if _KEY in text else None
        if literal is not None:
            texts[field.name] = str(literal)
    return texts


def missing_defaults(schema: pa.Schema, stored: Container[str]) -> dict[str, Any]:
    """What rows have in columns that their split does not have, as Arrow scalars; never null.

    >>> field = with_existence_default(pa.field("n", pa.int64()), pa.scalar(7))
    >>> missing_defaults(pa.schema([field, ("m", pa.int64())]), stored=["m"])
    {'n': <pyarrow.Int64Scalar: 7>}
    """
    texts = {name: text for name, text in default_texts(schema).items() if name not in stored}
    values = {name: read_literal(text, schema.field(name).type) for name, text in texts.items()}
    return {name: value for name, value in values.items() if value is not None}


def with_default(field: pa.Field[Any], value: Any) -> pa.Field[Any]:
    """A field with a value in older rows, and in later ones that do not name it."""
    return _with(
        field, {EXISTS_DEFAULT: spark_literal(value), CURRENT_DEFAULT: spark_literal(value)}
    )


def with_existence_default(field: pa.Field[Any], value: Any) -> pa.Field[Any]:
    """A field whose older rows have a value; with None they are null."""
    return _with(field, {EXISTS_DEFAULT: None if value is None else spark_literal(value)})


def _with(field: pa.Field[Any], changed: Mapping[str, str | None]) -> pa.Field[Any]:
    metadata: dict[Any, Any] = dict(field.metadata or {})
    entries = orjson.loads(metadata.pop(FIELD_METADATA, b"{}")) | changed
    entries = {key: value for key, value in entries.items() if value is not None}
    if entries:
        metadata[FIELD_METADATA] = orjson.dumps(entries)
    return field.with_metadata(metadata) if metadata else field.remove_metadata()


def can_be_default(data_type: Any) -> bool:
    """Whether values of a type are single ones, which have a literal."""
    types = pa.types
    return bool(
        types.is_string(data_type) or types.is_binary(data_type) or types.is_boolean(data_type)
        or types.is_integer(data_type) or types.is_floating(data_type)
        or types.is_decimal(data_type) or types.is_date(data_type) or types.is_timestamp(data_type)
    )  # fmt: skip


def spark_literal(value: Any) -> str:
    """A scalar as Spark's SQL spells it; instants are in UTC, whatever a session's zone is.

    >>> spark_literal(pa.scalar("it's")), spark_literal(pa.scalar(1.5))
    ("'it\\\\'s'", "CAST('1.5' AS DOUBLE)")
    """
    types, data_type = pa.types, value.type
    if not value.is_valid:
        return "NULL"
    if types.is_string(data_type):
        escaped = value.as_py().replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if types.is_binary(data_type):
        return f"X'{value.as_py().hex().upper()}'"
    if types.is_boolean(data_type):
        return str(value.as_py()).lower()
    if types.is_floating(data_type):
        return f"CAST('{value.as_py()!r}' AS {'DOUBLE' if data_type.bit_width == 64 else 'FLOAT'})"
    if types.is_decimal(data_type):
        return f"{value.as_py():f}BD"
    if types.is_date(data_type):
        return f"DATE '{np.datetime64(value.cast(pa.int32()).as_py(), 'D')}'"
    if types.is_timestamp(data_type):
        text = str(np.datetime64(value.cast(pa.int64()).as_py(), "us")).replace("T", " ")
        return f"TIMESTAMP '{text}Z'" if data_type.tz else f"TIMESTAMP_NTZ '{text}'"
    return str(value.as_py())


def read_literal(text: str, data_type: pa.DataType) -> Any:
    """The scalar of a type that a literal of Spark's means; None if it is NULL.

    >>> read_literal("1.50BD", pa.decimal128(10, 2)), read_literal("NULL", pa.string())
    (<pyarrow.Decimal128Scalar: Decimal('1.50')>, None)
    """
    match = _LITERAL.fullmatch(text)
    try:
        if match is not None and can_be_default(data_type):
            if (inner := match["cast"]) is not None:
                # The column may be wider by now than its default was.
                is_float = match["type"].strip().upper() == "FLOAT" and data_type == pa.float64()
                value = read_literal(inner, pa.float32() if is_float else data_type)
                return value.cast(data_type) if is_float and value is not None else value
            if (match["word"] or "").lower() == "null":
                return None
            return pa.array([_python(match, data_type)], data_type)[0]
    except (pa.ArrowException, ValueError, ArithmeticError):
        pass
    raise SchemaError(
        f"The default {text} of a column that was added later cannot be read as "
        f"{type_name(data_type)}. Older rows have it and cannot be read either; drop the column."
    )


def _python(match: re.Match[str], data_type: Any) -> Any:
    types = pa.types
    if match["bytes"] is not None:
        return bytes.fromhex(match["bytes"])
    if match["moment"] is not None:
        unit: Any = "D" if types.is_date(data_type) else "us"
        moment = np.datetime64(match["moment"].strip().removesuffix("Z").replace(" ", "T"), unit)
        return int(moment.astype(np.int64))
    plain = match["word"] or match["number"]
    if plain is None:
        plain = _ESCAPED.sub(_unescaped, match["text"])
    if types.is_boolean(data_type):
        return {"true": True, "false": False}[plain.lower()]
    if types.is_integer(data_type):
        return int(plain)
    if types.is_floating(data_type):
        return float(plain)
    return Decimal(plain) if types.is_decimal(data_type) else plain


def _unescaped(match: re.Match[str]) -> str:
    if match[1] is not None:
        return chr(int(match[1], 16))
    return "'" if match[2] is None else _ESCAPES.get(match[2], match[2])
