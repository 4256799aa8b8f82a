"""Typed comparison: what the words of a query mean for numbers, dates and their like.

A word of a query is text; for a typed column it is an interval of values, because a date covers a
whole day of a timestamp. Whole numbers, decimals (by their unscaled value), booleans, dates (days)
and timestamps (microseconds) are integers, and every question about them is one closed interval.
Floats keep their open ends. Text that is not a value of the type matches nothing; where it is asked
of that field only, `query` refuses it.

The index of a JSON column holds the text of every leaf of a row, cut into words: 2.5 is `2` and
`5`. But numbers, truth values and dates are compared as values, whatever their text. So a question
whose words may come from one of those is decided by the rows, leaf by leaf.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.predicate import FieldNode, Phrase, Range, Term, TermSet, Wildcard
from indextables.split.analyzer import Analyzer
from indextables.split.leaves import ArrowColumn

UTC = ZoneInfo("UTC")

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_SLASHED = re.compile(r"\d{4}/\d{2}/\d{2}")
_SINCE_1970 = re.compile(r"[0-9]{9,19}")
_EPOCH = datetime.datetime(1970, 1, 1)
_DAY = 86_400_000_000
_BOOLEANS = {"true": 1, "false": 0}
_BOUNDS: dict[pa.DataType, tuple[int, int]] = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
}
_INT64 = _BOUNDS[pa.int64()]
_FEW = 8
"""More values than these are looked up in a table of them."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Values from `low` to `high`. Integers are always inclusive."""

    low: int | float
    high: int | float
    include_low: bool = True
    include_high: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether no value can be inside."""
        return self.low > self.high


def intervals(
    node: FieldNode, data_type: pa.DataType, zone: ZoneInfo = UTC
) -> list[Interval] | None:
    """What a node asks of values of a type; `None` if it asks for words instead.

    >>> intervals(Range(None, "2.5", "10", include_upper=False), pa.int32())
    [Interval(low=3, high=9, include_low=True, include_high=True)]
    """
    match node:
        case Term(text=text) | Phrase(text=text):
            ranges = [_value(text, data_type, zone)]
        case TermSet(values=values):
            ranges = [_value(text, data_type, zone) for text in values]
        case Range():
            ranges = [_range(node, data_type, zone)]
        case _:
            return None
    return [interval for interval in ranges if interval is not None and not interval.is_empty]


def _value(text: str, data_type: pa.DataType, zone: ZoneInfo) -> Interval | None:
    """The values that one word means, possibly an empty interval."""
    text = text.strip()
    if pa.types.is_boolean(data_type):
        truth = _BOOLEANS.get(text.lower())
        return None if truth is None else Interval(truth, truth)
    if pa.types.is_date(data_type) or pa.types.is_timestamp(data_type):
        return _moment(text, data_type, zone)
    if not _NUMBER.fullmatch(text):
        return None
    if pa.types.is_floating(data_type):
        with np.errstate(over="ignore"):
            number = float(np.float32(text)) if data_type == pa.float32() else float(text)
        return Interval(number, number)
    exact = decimal.Decimal(text)
    if not exact:
        return Interval(0, 0)
    if exact.adjusted() > 100:
        # Larger than every value: only its sign matters, in a range.
        large = math.inf if exact > 0 else -math.inf
        return Interval(large, large)
    if exact.adjusted() < -100:
        # Between zero and its neighbour, so it is not a value itself.
        return Interval(1, 0) if exact > 0 else Interval(0, -1)
    with decimal.localcontext() as context:
        # No digit is rounded away.
        context.prec = 250 + len(text)
        scaled = exact.scaleb(data_type.scale if pa.types.is_decimal(data_type) else 0)
        return Interval(
            int(scaled.to_integral_value(decimal.ROUND_CEILING)),
            int(scaled.to_integral_value(decimal.ROUND_FLOOR)),
        )


def is_value(text: str, data_type: pa.DataType) -> bool:
    """Whether a text is a value of a type, in one of its spellings."""
    return _value(text, data_type, UTC) is not None


def _since_1970(digits: str) -> Interval:
    """Seconds, milliseconds, microseconds or nanoseconds, by their size, as microseconds.

    A second covers all its microseconds, as a date covers its day.
    """
    number = int(digits)
    if len(digits) > 17:
        return Interval(number // 1_000, number // 1_000)
    length = 1_000_000 if len(digits) < 12 else 1_000 if len(digits) < 15 else 1
    return Interval(number * length, number * length + length - 1)


def _moment(text: str, data_type: pa.DataType, zone: ZoneInfo) -> Interval | None:
    if _SLASHED.match(text):
        text = text.replace("/", "-", 2)
    try:
        if pa.types.is_timestamp(data_type) and _SINCE_1970.fullmatch(text):
            return _since_1970(text)
        if _DATE.fullmatch(text):
            day = datetime.date.fromisoformat(text)
            if pa.types.is_date(data_type):
                number = (day - _EPOCH.date()).days
                return Interval(number, number)
            start = datetime.datetime.combine(day, datetime.time())
            if day == datetime.date.max:
                return Interval(
                    _micros(start, data_type, zone), _micros(start, data_type, zone) + _DAY - 1
                )
            after = start + datetime.timedelta(days=1)
            # In a zone with summer time a day may have 23 or 25 hours.
            return Interval(_micros(start, data_type, zone), _micros(after, data_type, zone) - 1)
        if pa.types.is_date(data_type):
            return None
        moment = _micros(datetime.datetime.fromisoformat(text), data_type, zone)
        return Interval(moment, moment)
    except (ValueError, OverflowError):
        return None


def _micros(moment: datetime.datetime, data_type: Any, zone: ZoneInfo) -> int:
    if data_type.tz is None:
        plain = moment.replace(tzinfo=None)
    else:
        aware = moment if moment.tzinfo else moment.replace(tzinfo=zone)
        offset = aware.utcoffset() or datetime.timedelta()
        plain = aware.replace(tzinfo=None) - offset
    return (plain - _EPOCH) // datetime.timedelta(microseconds=1)


def _range(node: Range, data_type: pa.DataType, zone: ZoneInfo) -> Interval | None:
    low = None if node.lower is None else _value(node.lower, data_type, zone)
    high = None if node.upper is None else _value(node.upper, data_type, zone)
    if (low is None and node.lower is not None) or (high is None and node.upper is not None):
        return None
    if pa.types.is_floating(data_type):
        return Interval(
            -math.inf if low is None else low.low,
            math.inf if high is None else high.high,
            low is None or node.include_lower,
            high is None or node.include_upper,
        )
    # A word may mean a whole day: an exclusive bound leaves all of it out.
    return Interval(
        -math.inf if low is None else low.low if node.include_lower else low.high + 1,
        math.inf if high is None else high.high if node.include_upper else high.low - 1,
    )


def is_numeric(node: Range) -> bool:
    """Whether the bounds of a range are numbers."""
    bounds = [bound.strip() for bound in (node.lower, node.upper) if bound is not None]
    return all(_NUMBER.fullmatch(bound) for bound in bounds)


def clip(interval: Interval, limits: tuple[int, int] = _INT64) -> Interval | None:
    """A closed interval of integers within limits, or `None` if nothing is left."""
    low = limits[0] if interval.low <= limits[0] else interval.low
    high = limits[1] if interval.high >= limits[1] else interval.high
    return Interval(int(low), int(high)) if low <= high else None


def matches(values: ArrowColumn, ranges: list[Interval]) -> npt.NDArray[np.bool_]:
    """Which values lie in one of the intervals; null and NaN never do."""
    result = np.zeros(len(values), dtype=np.bool_)
    if len(ranges) > _FEW:
        points = [interval.low for interval in ranges if interval.low == interval.high]
        result |= _among(values, points)
        ranges = [interval for interval in ranges if interval.low != interval.high]
    for interval in ranges:
        inside = (
            _in_float_interval(values, interval)
            if pa.types.is_floating(values.type)
            else _in_integer_interval(values, interval)
        )
        if inside is not None:
            result |= np.asarray(pc.fill_null(inside, False))
    return result


def _among(values: ArrowColumn, points: list[int | float]) -> npt.NDArray[np.bool_]:
    """Which values are one of many, all compared at once."""
    data_type = values.type
    if pa.types.is_decimal(data_type):
        limit = 10**data_type.precision - 1
        members = [_bound(p, data_type).as_py() for p in points if -limit <= p <= limit]
        is_member: Any = pc.is_in(values, value_set=pa.array(members, data_type))
        return np.asarray(pc.fill_null(is_member, False))
    if pa.types.is_floating(data_type):
        return np.isin(values.to_numpy(zero_copy_only=False), np.array(points, np.float64))
    values = _as_integers(values)
    low, high = _BOUNDS[values.type]
    members = [int(p) for p in points if low <= p <= high]
    is_member = pc.is_in(values, value_set=pa.array(members, values.type))
    return np.asarray(pc.fill_null(is_member, False))


def _as_integers(values: ArrowColumn) -> ArrowColumn:
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    return values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values


def _in_float_interval(values: ArrowColumn, interval: Interval) -> ArrowColumn:
    above = pc.greater_equal if interval.include_low else pc.greater
    below = pc.less_equal if interval.include_high else pc.less
    low, high = (pa.scalar(bound, values.type) for bound in (interval.low, interval.high))
    return pc.and_(above(values, low), below(values, high))


def _in_integer_interval(values: ArrowColumn, interval: Interval) -> ArrowColumn | None:
    data_type = values.type
    if pa.types.is_decimal(data_type):
        limit = 10**data_type.precision - 1
        clipped = clip(interval, (-limit, limit))
    else:
        values = _as_integers(values)
        clipped = clip(interval, _BOUNDS[values.type])
    if clipped is None:
        return None
    low, high = (_bound(bound, values.type) for bound in (clipped.low, clipped.high))
    if clipped.low == clipped.high:
        return pc.equal(values, low)
    return pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))


def _bound(number: int | float, data_type: Any) -> Any:
    if pa.types.is_decimal(data_type):
        with decimal.localcontext() as context:
            context.prec = 100
            return pa.scalar(decimal.Decimal(int(number)).scaleb(-data_type.scale), data_type)
    return pa.scalar(int(number), data_type)


_OF_VALUES = frozenset("0123456789truefalsnizd")
"""What the words of values are made of: 1e5, true, false, nan, inf, 12Z."""


def words_decide(node: FieldNode, analyzer: Analyzer) -> bool:
    """Whether no number, truth value or date can hold the words of a question."""
    if analyzer.is_ngram:
        return False
    match node:
        case Term(text=text) | Phrase(text=text, slop=0):
            return _has_a_word(text, analyzer)
        case TermSet(values=values):
            return all(_has_a_word(text, analyzer) for text in values)
        case Wildcard(parts=parts):
            return any(_is_word(part) for part in parts if isinstance(part, str))
        case _:
            return False


def _has_a_word(text: str, analyzer: Analyzer) -> bool:
    words = analyzer.query_words(text)
    if not words:  # a stop word of a custom list may be a value
        return not could_be_value(text, pa.null())
    return any(_is_word(word.text) for word in words)


def _is_word(text: str) -> bool:
    return not _OF_VALUES.issuperset(text.lower())


def values_have_words(node: FieldNode, data_type: pa.DataType, analyzer: Analyzer) -> bool:
    """Whether every leaf that matches also has the question's words in the index.

    A number equals `42.0` without holding that text. Patterns never match a value.
    """
    match node:
        case Term(text=text) | Phrase(text=text):
            texts: Sequence[str] = (text,)
        case TermSet(values=values):
            texts = values
        case _:
            return True
    return all(_has_one_spelling(t, analyzer) or not could_be_value(t, data_type) for t in texts)


def could_be_value(text: str, data_type: pa.DataType) -> bool:
    """Whether a text means a number or another value that a column of a type may hold."""
    kinds: list[pa.DataType] = [pa.float64(), pa.bool_()]
    if not pa.types.is_string(data_type):
        kinds.append(pa.timestamp("us"))  # JSON has no dates
    return any(intervals(Term(None, text), each) for each in kinds)


def _has_one_spelling(text: str, analyzer: Analyzer) -> bool:
    """Whether a value has one word in the index, and this text the same one."""
    if not analyzer.lowercases or analyzer.is_ngram or not analyzer.query_words(text):
        return False  # 5.00 would be one word, and a stop word is none
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) <= 4:
        return str(int(digits)) == digits
    return text in ("true", "false")
