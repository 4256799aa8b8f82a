"""Types of columns as a person writes them on a command line: Spark's names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from indextables.errors import SchemaError
from indextables.schema import TIMESTAMP, TIMESTAMP_NTZ

_SIMPLE: dict[str, pa.DataType] = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
    "TIMESTAMPLTZ": TIMESTAMP,
}
_KNOWN = (
    "string, boolean, byte, short, int, long, float, double, decimal(p,s), date, timestamp, "
    "timestamp_ntz, binary, array<…>, map<…,…>, struct<name:…>"
)


def column_type(text: str) -> pa.DataType:
    """The Arrow type for a Spark type's name.

    >>> column_type("bigint"), column_type("array<string>")
    (DataType(int64), ListType(list<element: string>))
    """
    try:
        parsed = parse_one(text, into=exp.DataType, dialect="spark")
    except SqlglotError:
        raise _unknown(text) from None
    kind: pa.DataType = _arrow(parsed, text)
    return kind


def _arrow(node: Any, text: str) -> Any:
    if not isinstance(node, exp.DataType):
        raise _unknown(text)
    name = getattr(node.this, "value", str(node.this))
    inner = node.expressions
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name == "DECIMAL":
        try:
            digits = [int(p.name) for p in inner]
            return pa.decimal128(digits[0] if digits else 10, digits[1] if len(digits) > 1 else 0)
        except ValueError:
            raise SchemaError(f"'{text}' is no type: decimals have 1 to 38 digits.") from None
    if name == "ARRAY" and len(inner) == 1:
        return pa.list_(pa.field("element", _arrow(inner[0], text)))
    if name == "MAP" and len(inner) == 2:
        return pa.map_(_arrow(inner[0], text), _arrow(inner[1], text))
    if name == "STRUCT" and inner:
        return pa.struct([pa.field(f.name, _arrow(f.args.get("kind"), text)) for f in inner])
    raise _unknown(text)


def _unknown(text: str) -> SchemaError:
    return SchemaError(f"'{text}' is no type of a column. Types: {_KNOWN}.")
