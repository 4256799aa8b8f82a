"""Literals of Spark SQL as Python values: numbers, text, typed literals and casts of literals."""

from __future__ import annotations

import datetime
import struct
from decimal import Context, Decimal, InvalidOperation

from sqlglot import exp

from indextables.predicate.temporal import (
    FarInstant,
    FarLocal,
    as_instant,
    as_local,
    parse_moment,
    time_zone,
)
from indextables.predicate.tree import Value

_INTEGERS = frozenset(("TINYINT", "SMALLINT", "INT", "BIGINT"))
_TEXTS = frozenset(("TEXT", "VARCHAR", "CHAR"))
_EXACT = Context(prec=80)
_INSTANTS = frozenset(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"))


class NotALiteralError(ValueError):
    """An expression that is no literal; the message ends a sentence."""


def literal_value(node: exp.Expr, *, timezone: str) -> Value | None:
    """The value of a literal, `None` for NULL.

    >>> import sqlglot
    >>> literal_value(sqlglot.parse_one("-5.50", read="spark"), timezone="UTC")
    Decimal('-5.50')
    """
    match node:
        case exp.Paren():
            return literal_value(node.this, timezone=timezone)
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal(is_string=True) | exp.RawString() | exp.National():
            return str(node.this)
        case exp.Literal():
            return _number(str(node.this))
        case exp.Neg():
            value = literal_value(node.this, timezone=timezone)
            if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
                # A minus would round a decimal to the digits of Python's context.
                return value.copy_negate() if isinstance(value, Decimal) else -value
            raise NotALiteralError("'-' must stand before a number")
        case exp.HexString():
            digits = str(node.this)
            return bytes.fromhex("0" * (len(digits) % 2) + digits)
        case exp.Cast():
            value = literal_value(node.this, timezone=timezone)
            return None if value is None else _cast(value, node.to, timezone)
        case exp.Column() | exp.Dot():
            raise NotALiteralError("a literal must stand where a column's name does")
        case _:
            raise NotALiteralError(f"{node.sql('spark')!r} is neither a column nor a literal")


def _number(text: str) -> Value:
    if text.isdigit():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _cast(value: Value, to: exp.DataType, timezone: str) -> Value:
    kind = str(to.this.name)
    try:
        if kind in _INTEGERS and isinstance(value, (int, str)):
            return int(value)
        if kind == "DOUBLE" and isinstance(value, (int, float, Decimal, str)):
            return float(value)
        if kind == "FLOAT" and isinstance(value, (int, float, Decimal, str)):
            narrow: float = struct.unpack("f", struct.pack("f", float(value)))[0]
            return narrow
        if kind == "DECIMAL" and isinstance(value, (int, Decimal, str)):
            return _decimal(Decimal(value), to)
        if kind == "BOOLEAN" and isinstance(value, bool):
            return value
        if kind in _TEXTS and isinstance(value, str) and not to.expressions:
            return value
        if kind == "BINARY" and isinstance(value, (bytes, str)):
            return value.encode() if isinstance(value, str) else value
        if kind == "DATE" or kind in _INSTANTS or kind == "TIMESTAMPNTZ":
            return _moment(value, kind, timezone)
    except (ValueError, OverflowError, InvalidOperation, struct.error):
        pass
    raise NotALiteralError(f"{value!r} cannot be cast to {to.sql('spark')} without loss")


def _decimal(value: Decimal, to: exp.DataType) -> Decimal:
    sizes = [int(size.name) for size in to.expressions]
    precision, scale = [*sizes, 0][:2] if sizes else (10, 0)
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if rounded != value or rounded.adjusted() >= precision - scale:
        raise InvalidOperation
    return rounded


def _moment(value: Value, kind: str, timezone: str) -> Value:
    moment = parse_moment(value) if isinstance(value, str) else value
    if not isinstance(moment, (datetime.date, FarInstant, FarLocal)):
        raise ValueError
    zone = time_zone(timezone)
    if kind == "TIMESTAMPNTZ":
        return as_local(moment, zone)
    if kind in _INSTANTS:
        return as_instant(moment, zone)
    if isinstance(moment, datetime.date) and not isinstance(moment, datetime.datetime):
        return moment
    local = as_local(moment, zone)
    if not isinstance(local, datetime.datetime) or local.time() != datetime.time():
        raise ValueError
    return local.date()
