"""The statistics of files: read back as values, and what they leave possible.

Partition values, minima and maxima are strings in the log, whichever product wrote it. They are
read by the column's declared type and never by what they look like, because `"9" < "10"` for
numbers and not for text. What cannot be read is unknown, and unknown decides nothing.

A `ValueRange` holds a lower and an upper bound of one column for each file. `versus` asks of a
literal whether a value of the file may be below it, equal to it, or above it. Every comparison is
made of these three answers; a bound that is not known answers yes.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.predicate import Compare, In, IsNull, Like, Predicate, StartsWith, Value
from indextables.predicate.literals import as_instant, as_local, parse_moment
from indextables.predicate.tree import pattern_parts
from indextables.schema import is_text

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


def decode(texts: _Array, data_type: Any, *, zone: datetime.tzinfo | None = None) -> Decoded:
    """Read an array of strings as values of a type.

    A timestamp that names no time zone is meant in `zone`; without one it stays unknown.

    >>> decode(pa.array(["7", "x", None]), pa.int32()).values.to_pylist()
    [7, None, None]
    """
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if is_text(data_type):
        return Decoded(texts, flags(pc.is_valid(texts)))
    readable = _readable(data_type)
    if readable is None:
        return Decoded(pa.nulls(len(texts), data_type), np.zeros(len(texts), np.bool_))
    data_type = readable
    values = _cast(texts, data_type)
    if values is None:
        values = _read_distinct(texts, data_type, lambda text: _read(text, data_type, zone))
    return Decoded(values, flags(pc.is_valid(values)))


def _readable(data_type: Any) -> Any:
    """The type a text is read as: wide enough for every value of the column."""
    if pa.types.is_integer(data_type):
        return None if pa.types.is_uint64(data_type) else pa.int64()
    if pa.types.is_floating(data_type):
        return pa.float64() if data_type.bit_width == 64 else pa.float32()
    if pa.types.is_decimal(data_type):
        return pa.decimal256(76, data_type.scale)
    if pa.types.is_date(data_type):
        return pa.date32()
    return data_type if pa.types.is_boolean(data_type) or pa.types.is_timestamp(data_type) else None


def flags(answer: _Array) -> Flags:
    """An Arrow array without nulls as numpy flags."""
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    array: Flags = np.asarray(answer.to_numpy(zero_copy_only=False), np.bool_)
    return array


def _cast(texts: _Array, data_type: pa.DataType) -> _Array | None:
    """The fast way, for texts that all have the usual format."""
    try:
        if pa.types.is_timestamp(data_type) and _all_digits(texts):
            return _from_microseconds(texts, data_type)
        return pc.cast(texts, data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _all_digits(texts: _Array) -> bool:
    return pc.all(pc.match_substring_regex(texts, r"\A-?\d{9,18}\z")).as_py() is True


def _from_microseconds(texts: _Array, data_type: Any) -> _Array:
    micros = pc.cast(pc.cast(texts, pa.int64()), pa.timestamp("us", tz=data_type.tz))
    return pc.cast(micros, data_type)


def _read_distinct(
    texts: _Array, data_type: pa.DataType, read: Callable[[str], object | None]
) -> _Array:
    """The slow way, for other texts: each distinct text once."""
    encoded = pc.dictionary_encode(texts)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    distinct: _Array = encoded.dictionary
    read_values = pa.array([read(text) for text in distinct.to_pylist()], data_type)
    return pc.take(read_values, encoded.indices)


def _read(text: str, data_type: Any, zone: datetime.tzinfo | None) -> Any:
    text = text.strip()
    if pa.types.is_integer(data_type):
        number = _number(text)
        if number is None or not number.is_finite() or not -(2**63) <= number < 2**63:
            return None
        return int(number) if number == number.to_integral_value() else None
    if pa.types.is_decimal(data_type):
        number = _number(text)
        if number is None or not number.is_finite() or abs(number) >= Decimal(10) ** 38:
            return None
        rounded = number.quantize(Decimal(1).scaleb(-data_type.scale), context=_EXACT)
        return rounded if rounded == number else None
    if pa.types.is_floating(data_type):
        try:
            return float(text)
        except ValueError:
            return None
    if pa.types.is_boolean(data_type):
        return {"true": True, "false": False}.get(text.lower())
    if pa.types.is_date(data_type):
        return _date(text)
    return _timestamp(text, data_type, zone)


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


def _timestamp(text: str, data_type: Any, zone: datetime.tzinfo | None) -> Any:
    """ISO, or a number of microseconds; a short number may be days of a column that was a date."""
    if _DIGITS.fullmatch(text):
        if len(text) <= 8:
            return None
        start = datetime.datetime(1970, 1, 1, tzinfo=None if data_type.tz is None else datetime.UTC)
        return _after(start, microseconds=int(text))
    moment = parse_moment(text)
    if moment is None:
        return None
    if data_type.tz is None:
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
    chunks = [_looked_up(chunk, key) for chunk in files.column(column).chunks]
    return pa.chunked_array(chunks, pa.string())


def _looked_up(maps: Any, key: str) -> Any:
    """The first value of a key in each map. Arrow's own `map_lookup` takes ten times as long."""
    offsets = np.asarray(maps.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    keys, values = (part.slice(first, last - first) for part in (maps.keys, maps.items))
    places = np.flatnonzero(flags(pc.equal(keys, pa.scalar(key)))) + first
    rows = np.searchsorted(offsets, places, side="right") - 1
    if maps.null_count:
        is_there = np.asarray(maps.is_valid().to_numpy(zero_copy_only=False))[rows]
        places, rows = places[is_there], rows[is_there]
    if len(rows) == len(maps) and (np.diff(rows) == 1).all():
        return values.take(pa.array(places - first)).cast(pa.string())
    chosen = np.full(len(maps), -1, np.int64)
    chosen[rows[::-1]] = places[::-1] - first  # of several, the first one stays
    return values.take(pa.array(chosen, mask=chosen < 0)).cast(pa.string())


_MANY_VALUES = 64
# UTF-16 orders these differently from UTF-8, and some writers compare UTF-16 units.
_FIRST_UNSURE = 0xD800
_UNSURE = r"[\x{E000}-\x{10FFFF}]"


class Possible(NamedTuple):
    """Whether a row of each file may make a condition true, false, null."""

    true: Flags
    false: Flags
    null: Flags


class Versus(NamedTuple):
    """Whether a value of each file may be below, equal to, above a literal."""

    below: Flags
    equal: Flags
    above: Flags


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The values of one column, file by file; `lower` and `upper` count where they are had."""

    lower: Any
    upper: Any
    has_lower: Flags
    has_upper: Flags
    may_be_prefix: Flags
    """The upper bound may be cut: the real one begins with it."""
    may_be_value: Flags
    may_be_null: Flags
    may_be_nan: Flags

    def versus(self, value: Value) -> Versus:
        """Compare every file with a literal."""
        if _is_nan(value):
            nothing = np.zeros_like(self.may_be_value)
            return Versus(self.may_be_value, self.may_be_nan & self.may_be_value, nothing)
        has_lower, has_upper = self.has_lower, self.has_upper
        if _is_unsure(value) or not (has_lower.any() or has_upper.any()):
            return Versus(self.may_be_value, self.may_be_value, self.may_be_value)
        extends = self.may_be_prefix & _is_prefix_of(self.upper, value)
        low_below = _compared("less", self.lower, value) | ~has_lower
        low_reaches = _compared("less_equal", self.lower, value) | ~has_lower
        high_above = _compared("greater", self.upper, value) | extends | ~has_upper
        high_reaches = _compared("greater_equal", self.upper, value) | extends | ~has_upper
        return Versus(
            low_below & self.may_be_value,
            low_reaches & high_reaches & self.may_be_value,
            (high_above | self.may_be_nan) & self.may_be_value,
        )

    def possible(self, node: Predicate) -> Possible:
        """The possible results of one condition on this column."""
        match node:
            case IsNull():
                return Possible(self.may_be_null, self.may_be_value, self.nothing())
            case Compare(op="<=>", value=value):
                below, equal, above = self.versus(value)
                return Possible(equal, below | above | self.may_be_null, self.nothing())
            case Compare(op=op, value=value):
                below, equal, above = self.versus(value)
                is_true = self.nothing()
                is_false = self.nothing()
                for flag, ops in ((below, "< <= <>"), (equal, "= <= >="), (above, "> >= <>")):
                    if op in ops.split():
                        is_true = is_true | flag
                    else:
                        is_false = is_false | flag
                return Possible(is_true, is_false, self.may_be_null)
            case In():
                return self.possible_in(node)
            case StartsWith(text=text):
                return self.possible_prefix(text)
            case Like(pattern=pattern, escape=escape):
                first = (*pattern_parts(pattern, escape=escape), "")[0]
                prefix = first if isinstance(first, str) else ""
                true = self.possible_prefix(prefix).true
                return Possible(true, self.may_be_value, self.may_be_null)
            case _:
                return Possible(self.may_be_value, self.may_be_value, self.may_be_null)

    def nothing(self) -> Flags:
        """No, for every file."""
        return np.zeros_like(self.may_be_value)

    def possible_in(self, node: In) -> Possible:
        """A list: any value may be met, and another one unless the file holds only one."""
        is_met, is_missed = self.nothing(), self.may_be_value
        if len(node.values) <= _MANY_VALUES:
            for value in node.values:
                below, equal, above = self.versus(value)
                is_met = is_met | equal
                is_missed = is_missed & (below | above)
        else:
            ordered: list[Any] = sorted((v for v in node.values if not _is_nan(v)), key=_order)
            low, high = self.versus(ordered[0]), self.versus(ordered[-1])
            is_met = (low.equal | low.above) & (high.equal | high.below)
            if len(ordered) < len(node.values):
                is_met = is_met | self.may_be_nan
        if node.has_null:
            return Possible(is_met, self.nothing(), is_missed | self.may_be_null)
        return Possible(is_met, is_missed, self.may_be_null)

    def possible_prefix(self, text: str) -> Possible:
        """Values that begin with a text lie together."""
        below, equal, above = self.versus(text)
        if _is_unsure(text):
            return Possible(self.may_be_value, self.may_be_value, self.may_be_null)
        lower_begins = _begins(self.lower, text) & self.has_lower
        upper_begins = _begins(self.upper, text) & self.has_upper
        is_true = (equal | above) & (below | equal | lower_begins)
        is_false = self.may_be_value & ~(lower_begins & upper_begins)
        if not text:
            is_true, is_false = self.may_be_value, self.nothing()
        return Possible(is_true & self.may_be_value, is_false, self.may_be_null)


def value_range(
    data_type: Any,
    lower: Decoded,
    upper: Decoded,
    *,
    truncation_length: int,
    may_be_value: Flags,
    may_be_null: Flags,
    may_be_nan: Flags,
) -> ValueRange:
    """A range from bounds as they were read, without those that cannot be trusted."""
    has_lower, has_upper = lower.is_known, upper.is_known
    may_be_prefix = np.zeros_like(has_lower)
    if pa.types.is_floating(data_type):
        may_be_nan = may_be_nan | _nan(upper.values) | _nan(lower.values)
        has_lower = has_lower & ~_nan(lower.values)
        has_upper = has_upper & ~_nan(upper.values)
    else:
        may_be_nan = np.zeros_like(has_lower)
    if pa.types.is_string(lower.values.type):
        may_be_prefix = _flags(
            pc.greater_equal(pc.utf8_length(upper.values), pa.scalar(truncation_length))
        )
        is_sure = ~_flags(pc.match_substring_regex(lower.values, _UNSURE)) & ~_flags(
            pc.match_substring_regex(upper.values, _UNSURE)
        )
        has_lower, has_upper = has_lower & is_sure, has_upper & is_sure
    in_order = np.ones_like(has_lower)
    if (has_lower & has_upper).any():
        in_order = ~_flags(pc.greater(lower.values, upper.values))
    return ValueRange(
        lower=lower.values,
        upper=upper.values,
        has_lower=has_lower & in_order,
        has_upper=has_upper & in_order,
        may_be_prefix=may_be_prefix,
        may_be_value=may_be_value,
        may_be_null=may_be_null,
        may_be_nan=may_be_nan,
    )


def _flags(answer: Any) -> Flags:
    return flags(pc.fill_null(answer, False))


def _compared(kernel: str, bounds: Any, value: Value) -> Flags:
    return _flags(getattr(pc, kernel)(bounds, pa.scalar(value, bounds.type)))


def _nan(values: Any) -> Flags:
    return _flags(pc.is_nan(values))


def _begins(bounds: Any, text: str) -> Flags:
    return _flags(pc.starts_with(bounds, text))


def _is_prefix_of(bounds: Any, value: Value) -> Flags:
    """Where the literal begins with the bound."""
    if not isinstance(value, str):
        return np.zeros(len(bounds), np.bool_)
    lengths: Any = pc.unique(pc.utf8_length(bounds))
    beginnings = [value[:n] for n in lengths.to_pylist() if n is not None and n <= len(value)]
    return _flags(pc.is_in(bounds, value_set=pa.array(beginnings, bounds.type)))


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _is_unsure(value: Value) -> bool:
    return isinstance(value, str) and any(ord(c) >= _FIRST_UNSURE for c in value)


def _order(value: Value) -> Any:
    """The sort key of values of one column; times may be with and without a zone."""
    if isinstance(value, datetime.datetime):
        start = datetime.datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return (value - start) // datetime.timedelta(microseconds=1)
    return value
