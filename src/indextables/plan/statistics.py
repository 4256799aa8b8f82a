"""Values that the log keeps as text, read back as what they were.

Partition values, minima and maxima are strings in the log, whoever wrote it. They are read by the
column's declared type and never by what they look like, because `"9" < "10"` for numbers and not
for text. What cannot be read is unknown, and unknown decides nothing.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.predicate.temporal import as_instant, as_local, parse_moment

Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
"""One yes or no for each file."""
_Array: TypeAlias = Any

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_EPOCH = datetime.date(1970, 1, 1)
_DIGITS = re.compile(r"[+-]?\d+")
_EXACT = Context(prec=100)  # Python's own context rounds to 28 digits


@dataclass(frozen=True, slots=True)
class Decoded:
    """Typed values, null where the text is absent or unreadable; `is_known` where it was read."""

    values: _Array
    is_known: Flags


def decode(texts: _Array, kind: Any, *, zone: datetime.tzinfo | None = None) -> Decoded:
    """Read an array of strings as values of a type.

    A timestamp that names no time zone is meant in `zone`; without one it stays unknown.

    >>> decode(pa.array(["7", "x", None]), pa.int32()).values.to_pylist()
    [7, None, None]
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return Decoded(texts, flags(pc.is_valid(texts)))
    readable = _readable(kind)
    if readable is None:
        return Decoded(pa.nulls(len(texts), kind), np.zeros(len(texts), np.bool_))
    kind = readable
    values = _cast(texts, kind)
    if values is None:
        values = _read_distinct(texts, kind, lambda text: _read(text, kind, zone))
    return Decoded(values, flags(pc.is_valid(values)))


def _readable(kind: Any) -> Any:
    """The type a text is read as: wide enough for every value of `kind`."""
    if pa.types.is_integer(kind):
        return None if pa.types.is_uint64(kind) else pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64() if kind.bit_width == 64 else pa.float32()
    if pa.types.is_decimal(kind):
        return pa.decimal256(76, kind.scale)
    if pa.types.is_date(kind):
        return pa.date32()
    return kind if pa.types.is_boolean(kind) or pa.types.is_timestamp(kind) else None


def flags(answer: _Array) -> Flags:
    """An Arrow array without nulls as numpy flags."""
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    found: Flags = np.asarray(answer.to_numpy(zero_copy_only=False), np.bool_)
    return found


def _cast(texts: _Array, kind: pa.DataType) -> _Array | None:
    """The quick way, for texts that are all in the usual spelling."""
    try:
        if pa.types.is_timestamp(kind) and _all_digits(texts):
            return _from_microseconds(texts, kind)
        return pc.cast(texts, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _all_digits(texts: _Array) -> bool:
    return pc.all(pc.match_substring_regex(texts, r"\A-?\d{9,18}\z")).as_py() is True


def _from_microseconds(texts: _Array, kind: Any) -> _Array:
    micros = pc.cast(pc.cast(texts, pa.int64()), pa.timestamp("us", tz=kind.tz))
    return pc.cast(micros, kind)


def _read_distinct(
    texts: _Array, kind: pa.DataType, read: Callable[[str], object | None]
) -> _Array:
    """The patient way: each distinct text once."""
    encoded = pc.dictionary_encode(texts)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    distinct: _Array = encoded.dictionary
    read_values = pa.array([read(text) for text in distinct.to_pylist()], kind)
    return pc.take(read_values, encoded.indices)


def _read(text: str, kind: Any, zone: datetime.tzinfo | None) -> Any:
    text = text.strip()
    if pa.types.is_integer(kind):
        number = _number(text)
        if number is None or not number.is_finite() or not -(2**63) <= number < 2**63:
            return None
        return int(number) if number == number.to_integral_value() else None
    if pa.types.is_decimal(kind):
        number = _number(text)
        if number is None or not number.is_finite() or abs(number) >= Decimal(10) ** 38:
            return None
        rounded = number.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
        return rounded if rounded == number else None
    if pa.types.is_floating(kind):
        try:
            return float(text)
        except ValueError:
            return None
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}.get(text.lower())
    if pa.types.is_date(kind):
        return _date(text)
    return _timestamp(text, kind, zone)


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _date(text: str) -> datetime.date | None:
    """ISO, a timestamp at midnight, or a number of days, as older writers put it."""
    if _DIGITS.fullmatch(text):
        # Four digits could be a year as well.
        return None if len(text) == 4 else _after(_EPOCH, days=int(text))
    moment = parse_moment(text)
    if isinstance(moment, datetime.datetime):
        return moment.date() if moment.time() == datetime.time() else None
    return moment


def _timestamp(text: str, kind: Any, zone: datetime.tzinfo | None) -> Any:
    """ISO, or a number of microseconds; a short number may be days of a column that was a date."""
    if _DIGITS.fullmatch(text):
        if len(text) <= 8:
            return None
        start = datetime.datetime(1970, 1, 1, tzinfo=None if kind.tz is None else datetime.UTC)
        return _after(start, microseconds=int(text))
    moment = parse_moment(text)
    if moment is None:
        return None
    if kind.tz is None:
        is_local = not isinstance(moment, datetime.datetime) or moment.tzinfo is None
        return as_local(moment, datetime.UTC) if is_local else None
    if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
        return as_instant(moment, datetime.UTC)
    return None if zone is None else as_instant(moment, zone)


def _after(start: Any, **amount: int) -> Any:
    try:
        return start + datetime.timedelta(**amount)
    except OverflowError:
        return None


def lookup(files: pa.Table, column: str, key: str) -> _Array:
    """The texts of one key of a map column, null where it is absent."""
    if column not in files.schema.names:
        return pa.nulls(files.num_rows, pa.string())
    texts = pc.map_lookup(files.column(column), pa.scalar(key), "first")
    return pc.cast(texts, pa.string())
