"""Equal parts of a column's values, as Spark cuts them: an hour of times, ten of numbers.

One unit of time is a part of the calendar of a time zone, as in `date_trunc('hour', ts)`. Several
are of a fixed length that is counted from 1970 in UTC, as in `window(ts, '5 minutes')`.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import IntervalError
from indextables.predicate.literals import time_zone

Unit = Literal["millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"]

_NAMES: dict[Unit, tuple[str, ...]] = {
    "millisecond": ("ms", "millisecond", "milliseconds"),
    "second": ("s", "sec", "second", "seconds"),
    "minute": ("m", "min", "minute", "minutes"),
    "hour": ("h", "hour", "hours"),
    "day": ("d", "day", "days"),
    "week": ("w", "week", "weeks"),
    "month": ("M", "mon", "month", "months"),
    "quarter": ("q", "quarter", "quarters"),
    "year": ("y", "year", "years"),
}
_UNITS = {name: unit for unit, names in _NAMES.items() for name in names}
_MICROS: dict[Unit, int] = {
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_DAY = _MICROS["day"]
_SHORTEST_DAYS: dict[Unit, int] = {"month": 28, "quarter": 90, "year": 365}
_INTERVAL = re.compile(r"\s*(\d{1,9})?\s*([A-Za-z]+)\s*")
_LARGEST = 2**62
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MOST_DIGITS = 18
_BEYOND = int(np.datetime64("2038", "us").astype(np.int64))
_CYCLE = 146_097 * _DAY
_FAR = 7_000 * 365 * _DAY


@dataclass(frozen=True, slots=True)
class NumberBuckets:
    """Numbers from one multiple of a width to the next, `floor(n / width) * width`."""

    width: Decimal

    def starts(self, values: Any) -> Any:
        """Where the part of each value starts. NaN and the infinite ones have none: null."""
        if pa.types.is_floating(values.type):
            width = float(self.width)
            starts = pc.multiply(pc.floor(pc.divide(values.cast(pa.float64()), width)), width)
            # Added to zero, -0.0 is 0.0: one part, not two.
            return pc.add(pc.if_else(pc.is_finite(starts), starts, None), 0.0)
        scale = max(getattr(values.type, "scale", 0), -int(self.width.as_tuple().exponent), 0)
        try:
            step = int(self.width.scaleb(scale))
            if scale > _MOST_DIGITS or step > _LARGEST:
                raise pa.ArrowInvalid("more digits than 64 bits hold")
            starts = _multiples(_unscaled(values, scale), step)
        except pa.ArrowInvalid:
            raise IntervalError(
                str(self.width), f"its parts have more than {_MOST_DIGITS} digits"
            ) from None
        if not scale:
            return starts
        unit = pa.scalar(Decimal(1).scaleb(-scale), pa.decimal128(scale + 1, scale))
        return pc.multiply(starts.cast(pa.decimal128(19, 0)), unit)

    def between(self, first: Any, last: Any, most: int) -> pa.Array[Any] | None:
        """The starts from one to another; None if there are more than so many."""
        # From the multiples themselves: sums of a width drift where it is not exact.
        begin, end = (round(Decimal(one.as_py()) / self.width) for one in (first, last))
        if end - begin >= most:
            return None
        starts = [i * self.width for i in range(begin, end + 1)]
        if pa.types.is_floating(first.type):
            return pa.array([i * float(self.width) for i in range(begin, end + 1)], first.type)
        return pa.array(starts).cast(first.type)


def _multiples(numbers: Any, step: int) -> Any:
    """The greatest multiple of a step that is not above each number; an error if 64 bits end."""
    down: Any = pc.divide(numbers, step)
    remainder: Any = pc.subtract(numbers, pc.multiply(down, step))
    # Arrow rounds a quotient towards zero.
    below = pc.less(remainder, pa.scalar(0, pa.int64()))
    return pc.multiply_checked(pc.subtract(down, below.cast(pa.int64())), step)


def _unscaled(values: Any, scale: int) -> Any:
    """Numbers as whole multiples of a decimal digit."""
    if not pa.types.is_decimal(values.type):
        return pc.multiply_checked(values.cast(pa.int64()), 10**scale)
    exact = values.cast(pa.decimal128(38, scale))
    factor = pa.scalar(Decimal(10) ** scale, pa.decimal128(scale + 1, 0))
    return pc.multiply(exact.cast(pa.decimal128(36 - scale, scale)), factor).cast(pa.int64())


@dataclass(frozen=True, slots=True)
class TimeBuckets:
    """Times from one start of a unit to the next."""

    count: int
    unit: Unit
    zone: str

    def starts(self, values: Any) -> Any:
        """Where the part of each time starts, in the column's own type."""
        data_type = values.type
        if pa.types.is_date(data_type):
            return self._of_local(values.cast(pa.timestamp("us"))).cast(data_type)
        values = values.cast(pa.timestamp("us", data_type.tz))
        if self.count > 1:
            return self._fixed(values)
        return _by_cycles(values, self._of_time)

    def _of_time(self, values: Any) -> Any:
        if values.type.tz is None:
            return self._of_local(values)
        starts = self._of_zone(values.cast(pa.timestamp("us", self.zone))).cast(pa.int64())
        return _after_2037(values, starts, self.zone, self._beyond).cast(values.type)

    def between(self, first: Any, last: Any, most: int) -> pa.Array[Any] | None:
        """The starts from one to another; None if there are more than so many."""
        data_type = first.type
        times = pa.timestamp("us", getattr(data_type, "tz", None))
        ends = [one.cast(times).value for one in (first, last)]
        # Steps that are never longer than a part miss none; those that hit one twice are dropped.
        micros = _MICROS.get(self.unit) or _SHORTEST_DAYS[self.unit] * _DAY
        step = self.count * micros
        if (ends[1] - ends[0]) // step >= most:
            return None
        steps: Any = pa.array(np.arange(ends[0], ends[1] + 1, step), pa.int64())
        starts: pa.Array[Any] = pc.unique(self.starts(steps.cast(times).cast(data_type)))
        return starts

    def _of_local(self, local: Any) -> Any:
        return self._fixed(local) if self.count > 1 else pc.floor_temporal(local, 1, self.unit)

    def _fixed(self, times: Any) -> Any:
        step = self.count * _MICROS[self.unit]
        return _multiples(times.cast(pa.int64()), step).cast(times.type)

    def _of_zone(self, times: Any) -> Any:
        """As java.time truncates: the offset of the time is kept where the start can have it."""
        local: Any = pc.local_timestamp(times)
        starts: Any = pc.floor_temporal(local, 1, self.unit)
        offset = pc.subtract(local.cast(pa.int64()), times.cast(pa.int64()))
        kept = pc.subtract(starts.cast(pa.int64()), offset).cast(times.type)
        is_kept: Any = pc.equal(pc.local_timestamp(kept), starts)
        # Where clocks go back, the earlier time; where they skip the start, as much later.
        first: Any = pc.assume_timezone(
            starts, self.zone, ambiguous="earliest", nonexistent="earliest"
        )
        before = pc.subtract(pc.local_timestamp(first).cast(pa.int64()), first.cast(pa.int64()))
        moved = pc.subtract(starts.cast(pa.int64()), before).cast(times.type)
        return pc.if_else(is_kept, kept, moved)

    def _beyond(self, time: int) -> int:
        """One time after 2037, for which Arrow has no time zones but zoneinfo has their rules."""
        zone = zoneinfo.ZoneInfo(self.zone)
        local = _clocks(time, zone)
        naive: Any = pa.scalar(local.replace(tzinfo=None), pa.timestamp("us"))
        start = pc.floor_temporal(naive, 1, self.unit).as_py().replace(tzinfo=zone)
        later = start.replace(fold=1)
        if start.utcoffset() != local.utcoffset() == later.utcoffset():
            start = later if _exists(later) else start
        return _micros_of(start.astimezone(datetime.UTC) - _EPOCH)


def local_times(values: Any, zone: str) -> Any:
    """What clocks of a zone show at some times, as times without a zone."""

    def beyond(time: int) -> int:
        local = _clocks(time, zoneinfo.ZoneInfo(zone))
        return time + _micros_of(local.utcoffset() or datetime.timedelta())

    def shown(times: Any) -> Any:
        local: Any = pc.local_timestamp(times.cast(pa.timestamp("us", zone)))
        return _after_2037(times, local.cast(pa.int64()), zone, beyond).cast(local.type)

    return _by_cycles(values, shown)


def _by_cycles(values: Any, cut: Callable[[Any], Any]) -> Any:
    """What a function makes of times in any year; it is asked for years from -9000 to 9000.

    Python's years end with 9999 and Arrow's have sixteen bits. The calendar, its weeks and the
    rules of time zones repeat every 400 years.
    """
    micros = values.cast(pa.int64())
    ends: Any = pc.min_max(micros).as_py()
    if ends["min"] is None or (ends["min"] >= -_FAR and ends["max"] <= _FAR):
        return cut(values)
    numbers = np.asarray(micros.fill_null(0))
    later = (np.maximum(numbers, _FAR) - _FAR) // _CYCLE + (numbers > _FAR)
    earlier = (-_FAR - np.minimum(numbers, -_FAR)) // _CYCLE + (numbers < -_FAR)
    moved = pa.array((later - earlier) * _CYCLE)
    moved_starts = cut(pc.subtract(micros, moved).cast(values.type))
    return pc.add(moved_starts.cast(pa.int64()), moved).cast(moved_starts.type)


def _after_2037(values: Any, starts: Any, zone: str, beyond: Callable[[int], int]) -> Any:
    """Times as numbers, with those after 2037 computed again: Arrow's time zones end there."""
    micros = values.cast(pa.int64())
    late: Any = pc.greater_equal(micros, pa.scalar(_BEYOND))
    if zone[:1] in "+-" or not pc.any(late).as_py():
        return starts
    anew = [beyond(time.value) for time in values.filter(late)]
    return pc.replace_with_mask(starts, late.fill_null(False), pa.array(anew, pa.int64()))


def _clocks(time: int, zone: zoneinfo.ZoneInfo) -> datetime.datetime:
    return (_EPOCH + datetime.timedelta(microseconds=time)).astimezone(zone)


def _micros_of(length: datetime.timedelta) -> int:
    return length // datetime.timedelta(microseconds=1)


def _exists(time: datetime.datetime) -> bool:
    """Whether clocks ever show this time."""
    return time.astimezone(datetime.UTC).astimezone(time.tzinfo).replace(tzinfo=None, fold=0) == (
        time.replace(tzinfo=None, fold=0)
    )


def buckets_of(data_type: Any, interval: object, zone: str) -> NumberBuckets | TimeBuckets:
    """The parts of a column of this type.

    Args:
        data_type: The column's type: numbers, dates or times.
        interval: A width of numbers, or a length of time such as `1h`, `5 minutes` or `1 month`.
        zone: The time zone whose hours and days are meant.

    Raises:
        IntervalError: The interval is none, or does not fit the type.
    """
    types = pa.types
    if types.is_date(data_type) or types.is_timestamp(data_type):
        buckets = _time_buckets(interval, zone_of_arrow(zone))
        if types.is_date(data_type) and _MICROS.get(buckets.unit, _DAY) < _DAY:
            raise IntervalError(interval, "a date has no hours; take a day or more")
        return buckets
    if not (
        types.is_integer(data_type) or types.is_floating(data_type) or types.is_decimal(data_type)
    ):
        raise IntervalError(interval, f"a column of type {data_type} has neither numbers nor times")
    if isinstance(interval, bool) or not isinstance(interval, (int, float, Decimal, str)):
        raise IntervalError(interval, "numbers have a width, such as 10 or 0.5")
    try:
        width = Decimal(str(interval))
    except ArithmeticError:
        raise IntervalError(interval, "numbers have a width, such as 10 or 0.5") from None
    if not width.is_finite() or not 0 < width < _LARGEST:
        raise IntervalError(interval, "a width is greater than 0")
    return NumberBuckets(width.normalize() if width != width.to_integral() else Decimal(int(width)))


def zone_of_arrow(name: str) -> str:
    """A zone as Arrow spells it: a region, or an offset with minutes."""
    parsed = time_zone(name)
    if isinstance(parsed, zoneinfo.ZoneInfo):
        return parsed.key
    minutes = (parsed.utcoffset(None) or datetime.timedelta()) // datetime.timedelta(minutes=1)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def _time_buckets(interval: object, zone: str) -> TimeBuckets:
    match = _INTERVAL.fullmatch(interval) if isinstance(interval, str) else None
    name = match[2] if match else ""
    unit = _UNITS.get(name) or _UNITS.get(name.lower())
    if match is None or unit is None:
        lengths = ", ".join(f"1{names[0]} ({unit})" for unit, names in _NAMES.items())
        raise IntervalError(interval, f"times have a length; there are {lengths}")
    count = int(match[1] or 1)
    if not count:
        raise IntervalError(interval, "a length is greater than 0")
    if count > 1 and unit in _SHORTEST_DAYS:
        raise IntervalError(interval, f"{unit}s differ in length; take 1 {unit}, or days")
    if count > 1 and count * _MICROS[unit] > _LARGEST:
        raise IntervalError(interval, "it is longer than all times together")
    return TimeBuckets(count, unit, zone)
