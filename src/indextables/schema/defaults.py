"""What rows hold in a column that was added after them: the default that it was added with.

The metadata of a field has it under Spark's own key, as Spark's SQL spells a literal; a later
`SET DEFAULT` changes another key. A split that was written before such a column does not have it,
and whoever reads the split's rows fills the value in (`missing_defaults`). Whatever an index, its
statistics or a cross-reference say of a column that a split does not have means nothing there.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from indextables.errors import SchemaError
from indextables.schema.types import FIELD_METADATA, type_name

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
    found = {}
    for field in schema:
        text = (field.metadata or {}).get(FIELD_METADATA, b"")
        literal = orjson.loads(text).get(EXISTS_DEFAULT) if _KEY in text else None
        if literal is not None:
            found[field.name] = str(literal)
    return found


def missing_defaults(schema: pa.Schema, here: Container[str]) -> dict[str, Any]:
    """What rows have in columns that their split does not have, as Arrow scalars; never null.

    >>> field = with_existence_default(pa.field("n", pa.int64()), pa.scalar(7))
    >>> missing_defaults(pa.schema([field, ("m", pa.int64())]), here=["m"])
    {'n': <pyarrow.Int64Scalar: 7>}
    """
    texts = {name: text for name, text in default_texts(schema).items() if name not in here}
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
    known = orjson.loads(metadata.pop(FIELD_METADATA, b"{}")) | changed
    known = {key: value for key, value in known.items() if value is not None}
    if known:
        metadata[FIELD_METADATA] = orjson.dumps(known)
    return field.with_metadata(metadata) if metadata else field.remove_metadata()


def can_be_default(kind: Any) -> bool:
    """Whether values of a type are single ones, which have a literal."""
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_binary(kind) or types.is_boolean(kind)
        or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        or types.is_date(kind) or types.is_timestamp(kind)
    )  # fmt: skip


def spark_literal(value: Any) -> str:
    """A scalar as Spark's SQL spells it; instants are in UTC, whatever a session's zone is.

    >>> spark_literal(pa.scalar("it's")), spark_literal(pa.scalar(1.5))
    ("'it\\\\'s'", "CAST('1.5' AS DOUBLE)")
    """
    types, kind = pa.types, value.type
    if not value.is_valid:
        return "NULL"
    if types.is_string(kind):
        escaped = value.as_py().replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if types.is_binary(kind):
        return f"X'{value.as_py().hex().upper()}'"
    if types.is_boolean(kind):
        return str(value.as_py()).lower()
    if types.is_floating(kind):
        return f"CAST('{value.as_py()!r}' AS {'DOUBLE' if kind.bit_width == 64 else 'FLOAT'})"
    if types.is_decimal(kind):
        return f"{value.as_py():f}BD"
    if types.is_date(kind):
        return f"DATE '{np.datetime64(value.cast(pa.int32()).as_py(), 'D')}'"
    if types.is_timestamp(kind):
        text = str(np.datetime64(value.cast(pa.int64()).as_py(), "us")).replace("T", " ")
        return f"TIMESTAMP '{text}Z'" if kind.tz else f"TIMESTAMP_NTZ '{text}'"
    return str(value.as_py())


def read_literal(text: str, kind: pa.DataType) -> Any:
    """The scalar of a type that a literal of Spark's means; None if it is NULL.

    >>> read_literal("1.50BD", pa.decimal128(10, 2)), read_literal("NULL", pa.string())
    (<pyarrow.Decimal128Scalar: Decimal('1.50')>, None)
    """
    found = _LITERAL.fullmatch(text)
    try:
        if found is not None and can_be_default(kind):
            if (inner := found["cast"]) is not None:
                # The column may be wider by now than its default was.
                is_float = found["type"].strip().upper() == "FLOAT" and kind == pa.float64()
                value = read_literal(inner, pa.float32() if is_float else kind)
                return value.cast(kind) if is_float and value is not None else value
            if (found["word"] or "").lower() == "null":
                return None
            return pa.array([_python(found, kind)], kind)[0]
    except (pa.ArrowException, ValueError, ArithmeticError):
        pass
    raise SchemaError(
        f"The default {text} of a column that was added later cannot be read as "
        f"{type_name(kind)}. Older rows have it, so they cannot be read either; drop the column."
    )


def _python(found: re.Match[str], kind: Any) -> Any:
    types = pa.types
    if found["bytes"] is not None:
        return bytes.fromhex(found["bytes"])
    if found["moment"] is not None:
        unit: Any = "D" if types.is_date(kind) else "us"
        moment = np.datetime64(found["moment"].strip().removesuffix("Z").replace(" ", "T"), unit)
        return int(moment.astype(np.int64))
    plain = found["word"] or found["number"]
    if plain is None:
        plain = _ESCAPED.sub(_unescaped, found["text"])
    if types.is_boolean(kind):
        return {"true": True, "false": False}[plain.lower()]
    if types.is_integer(kind):
        return int(plain)
    if types.is_floating(kind):
        return float(plain)
    return Decimal(plain) if types.is_decimal(kind) else plain


def _unescaped(found: re.Match[str]) -> str:
    if found[1] is not None:
        return chr(int(found[1], 16))
    return "'" if found[2] is None else _ESCAPES.get(found[2], found[2])
