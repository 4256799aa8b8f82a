"""Values that are computed from columns, as Spark computes them: what rows are grouped by.

A value is a small tree of functions whose arguments have been checked, so that computing it differs
from Spark in nothing: integers overflow with an error or wrap around, floats are rounded down as
Java does, times have the zone that the query was analyzed with. What cannot be had exactly is
refused when the tree is made (`call`), and then the engine computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import ComputedOverflowError
from indextables.plan.buckets import TimeBuckets, Unit, local_times

_LONG, _INT, _DOUBLE, _FLAG, _DATE = (
    pa.int64(), pa.int32(), pa.float64(), pa.bool_(), pa.date32(),
)  # fmt: skip
_TIME = pa.timestamp("us", "UTC")
_LOCAL = pa.timestamp("us")
_MICROS = 1_000_000
_DAY = 86_400 * _MICROS
_LIMITS = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True, repr=False)
class ColumnValue:
    """The value of a column."""

    name: str
    kind: pa.DataType

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, repr=False)
class Constant:
    """The same value in every row; None is null."""

    value: Any
    kind: pa.DataType

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True, repr=False)
class Call:
    """A function of other values. `option` is a time zone, a unit, or whether overflow wraps."""

    function: str
    arguments: tuple[Value, ...]
    kind: pa.DataType
    option: str | None = None

    def __repr__(self) -> str:
        parts = [*map(str, self.arguments), *([self.option] if self.option else [])]
        return f"{self.function}({', '.join(parts)})"


Value = ColumnValue | Constant | Call


class NotComputedError(Exception):
    """A value that only the engine can compute."""


def columns_of(value: Value) -> Iterator[str]:
    """The columns that a value is computed from."""
    match value:
        case ColumnValue(name=name):
            yield name
        case Call(arguments=arguments):
            for argument in arguments:
                yield from columns_of(argument)


def renamed(value: Value, name: Callable[[str], str]) -> Value:
    """The same value over renamed columns."""
    match value:
        case ColumnValue():
            return replace(value, name=name(value.name))
        case Call():
            return replace(value, arguments=tuple(renamed(v, name) for v in value.arguments))
        case _:
            return value


def compute(value: Value, table: pa.Table, done: dict[Value, Any] | None = None) -> Any:
    """The value in each row, as an array of its type.

    Args:
        value: What to compute.
        table: The rows.
        done: Values of the same rows that were computed before; parts are often the same.

    Raises:
        ComputedOverflowError: A number does not fit into its type.
    """
    done = {} if done is None else done
    if value not in done:
        done[value] = _computed(value, table, done)
    return done[value]


def _computed(value: Value, table: pa.Table, done: dict[Value, Any]) -> Any:
    match value:
        case ColumnValue(name=name):
            column: Any = table[name].combine_chunks()
            return column if column.type.equals(value.kind) else column.cast(value.kind)
        case Constant(value=constant, kind=kind):
            scalar: Any = pa.scalar(constant, kind)
            return pa.repeat(scalar, table.num_rows)
        case Call(function="case"):
            return _case(value, table, done)
        case Call(function=function, arguments=arguments):
            try:
                return _FUNCTIONS[function](
                    value, *(compute(one, table, done) for one in arguments)
                )
            except pa.ArrowInvalid:
                raise ComputedOverflowError(str(value)) from None


def _case(value: Call, table: pa.Table, done: dict[Value, Any]) -> Any:
    """The result of the first condition that is true; no other one is computed, nor its error."""
    *pairs, otherwise = value.arguments
    positions, undecided = np.arange(table.num_rows), table
    places, parts = [], []
    for condition, result in zip(pairs[::2], pairs[1::2], strict=True):
        holds = np.asarray(compute(condition, undecided, done).fill_null(False))
        if holds.any():
            places.append(positions[holds])
            parts.append(compute(result, undecided.filter(pa.array(holds))))
            positions = positions[~holds]
            undecided, done = undecided.filter(pa.array(~holds)), {}
    if not parts:
        return compute(otherwise, table, done)
    places.append(positions)
    parts.append(compute(otherwise, undecided))
    order = np.argsort(np.concatenate(places), kind="stable")
    together: Any = pa.concat_arrays(parts)
    return together.take(pa.array(order))


# --- what there is --------------------------------------------------------------------------------


def call(function: str, arguments: Sequence[Value], *, option: str | None = None) -> Value:
    """A function of values, if it can be computed exactly.

    Raises:
        NotComputedError: Only the engine can.
    """
    data_type = (
        _RESULTS[function]([one.kind for one in arguments], arguments)
        if (function in _RESULTS)
        else None
    )
    if data_type is None:
        raise NotComputedError(function)
    return Call(function, tuple(arguments), data_type, option)


def can_fail(value: Value) -> bool:
    """Whether computing a value may fail, so that it must only be computed if it is needed."""
    if not isinstance(value, Call):
        return False
    checked = value.function in _CHECKED and value.option is None
    return (checked and pa.types.is_integer(value.kind)) or any(map(can_fail, value.arguments))


def _is_time(data_type: Any) -> bool:
    return pa.types.is_timestamp(data_type)


def _same(kinds: Sequence[Any]) -> bool:
    return all(data_type.equals(kinds[0]) for data_type in kinds)


def _number(kinds: Sequence[Any], _: Sequence[Value]) -> Any:
    allowed = pa.types.is_integer(kinds[0]) or kinds[0].equals(_DOUBLE)
    return kinds[0] if allowed and _same(kinds) else None


def _divided(kinds: Sequence[Any], values: Sequence[Value]) -> Any:
    """Zero is an error or null, by the mode of the session; a constant is neither."""
    by = values[1]
    if not isinstance(by, Constant) or not by.value:
        return None
    return _number(kinds, values)


def _whole(kinds: Sequence[Any], _: Sequence[Value]) -> Any:
    return _LONG if kinds[0].equals(_DOUBLE) or kinds[0].equals(_LONG) else None


def _compared(kinds: Sequence[Any], _: Sequence[Value]) -> Any:
    types, data_type = pa.types, kinds[0]
    fits = (
        types.is_integer(data_type) or types.is_string(data_type) or types.is_date(data_type)
        or types.is_timestamp(data_type) or types.is_boolean(data_type) or data_type.equals(_DOUBLE)
    )  # fmt: skip
    return _FLAG if fits and _same(kinds) else None


def _flags(kinds: Sequence[Any], values: Sequence[Value]) -> Any:
    fits = all(map(pa.types.is_boolean, kinds)) and not any(map(can_fail, values[1:]))
    return _FLAG if fits else None


def _chosen(kinds: Sequence[Any], _: Sequence[Value]) -> Any:
    """Conditions and results in turns, then the result without a condition."""
    results = [*kinds[1:-1:2], kinds[-1]]
    fits = all(map(pa.types.is_boolean, kinds[:-1:2])) and _same(results)
    return results[0] if fits else None


def _of(test: Callable[[Any], bool], data_type: pa.DataType) -> Callable[..., Any]:
    return lambda kinds, _: data_type if test(kinds[0]) else None


def _kept(test: Callable[[Any], bool]) -> Callable[..., Any]:
    return lambda kinds, _: kinds[0] if test(kinds[0]) else None


_CHECKED = ("add", "subtract", "multiply", "floor", "ceil")
_PARTS = ("year", "quarter", "month", "day", "day_of_year", "day_of_week", "weekday", "week",
          "year_of_week")  # fmt: skip
_RESULTS: dict[str, Callable[[Sequence[Any], Sequence[Value]], Any]] = {
    **dict.fromkeys(("add", "subtract", "multiply"), _number),
    **dict.fromkeys(("divide", "remainder", "pmod"), _divided),
    **dict.fromkeys(("floor", "ceil"), _whole),
    **dict.fromkeys(("=", "<", "<=", ">", ">="), _compared),
    **dict.fromkeys(("and", "or", "not"), _flags),
    **dict.fromkeys(("is_null", "is_not_null"), lambda _kinds, _values: _FLAG),
    "case": _chosen,
    **dict.fromkeys(_PARTS, _of(pa.types.is_date, _INT)),
    **dict.fromkeys(("hour", "minute", "second"), _of(_is_time, _INT)),
    "date_trunc": _kept(_is_time),
    "trunc": _kept(pa.types.is_date),
    "micros": _of(_is_time, _LONG),
    "time_of_micros": _of(pa.types.is_int64, _TIME),
    "local_of_micros": _of(pa.types.is_int64, _LOCAL),
    "seconds": _of(lambda data_type: data_type.equals(_TIME), _LONG),
    "to_date": _of(_is_time, _DATE),
    "to_long": _of(pa.types.is_integer, _LONG),
    "to_double": _of(lambda k: pa.types.is_integer(k) or pa.types.is_floating(k), _DOUBLE),
}


# --- how it is computed ---------------------------------------------------------------------------


def _arithmetic(name: str) -> Callable[..., Any]:
    def computed(value: Call, left: Any, right: Any) -> Any:
        wraps = value.option == "wrap" or not pa.types.is_integer(value.kind)
        return getattr(pc, name if wraps else f"{name}_checked")(left, right)

    return computed


def _numbers(values: Any) -> Any:
    """Whole numbers, times and dates as numbers of 64 bits; zero where there is none."""
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return np.asarray(values.cast(pa.int64()).fill_null(0))


def _back(numbers: Any, like: Any, data_type: pa.DataType) -> Any:
    """An array of a type from numbers, null where another one is."""
    nulls = np.asarray(like.is_null())
    stored = (
        pa.int32() if data_type.equals(_DATE) else pa.int64() if _is_time(data_type) else data_type
    )
    return pa.array(numbers.astype(stored.to_pandas_dtype()), stored, mask=nulls).cast(data_type)


def _remainder(value: Call, left: Any, right: Any) -> Any:
    if pa.types.is_floating(left.type):
        remainder = np.fmod(_floats(left), _floats(right))
        return pa.array(remainder, mask=np.asarray(left.is_null()))
    return _back(np.fmod(_numbers(left), _numbers(right)), left, value.kind)


def _pmod(value: Call, left: Any, right: Any) -> Any:
    by = _floats(right) if pa.types.is_floating(left.type) else _numbers(right)
    remainder = np.fmod(_floats(left) if pa.types.is_floating(left.type) else _numbers(left), by)
    remainder = np.where(remainder < 0, np.fmod(remainder + by, by), remainder)
    return (
        pa.array(remainder, mask=np.asarray(left.is_null()))
        if pa.types.is_floating(left.type)
        else _back(remainder, left, value.kind)
    )


def _floats(values: Any) -> Any:
    return np.asarray(values.fill_null(0.0), dtype=np.float64)


def _rounded(to_whole: Callable[[Any], Any]) -> Callable[..., Any]:
    def computed(value: Call, values: Any) -> Any:
        if pa.types.is_integer(values.type):
            return values
        integers = to_whole(_floats(values))
        inside = (integers >= -(2.0**63)) & (integers < 2.0**63)
        if value.option is None and not inside.all():
            raise pa.ArrowInvalid("out of range")
        numbers = np.where(inside, integers, 0).astype(np.int64)
        numbers[integers >= 2.0**63] = _LIMITS.max
        numbers[integers < -(2.0**63)] = _LIMITS.min
        return _back(numbers, values, _LONG)

    return computed


def _comparison(name: str) -> Callable[..., Any]:
    """To Spark NaN is equal to itself and greater than every other number."""

    def computed(_: Call, left: Any, right: Any) -> Any:
        chosen = getattr(pc, name)(left, right)
        if not pa.types.is_floating(left.type):
            return chosen
        left_is_nan, right_is_nan = pc.is_nan(left), pc.is_nan(right)
        ranked = getattr(pc, name)(left_is_nan.cast(pa.int8()), right_is_nan.cast(pa.int8()))
        return pc.if_else(pc.or_(left_is_nan, right_is_nan), ranked, chosen)

    return computed


def _part(name: str) -> Callable[..., Any]:
    def computed(_: Call, values: Any) -> Any:
        return _back(_PART_OF[name](_numbers(values)), values, _INT)

    return computed


def _starts(days: Any, unit: str) -> Any:
    """The first day of the months or years of some days. Years are not limited, as Arrow's are."""
    return days.astype("M8[D]").astype(f"M8[{unit}]").astype("M8[D]").astype(np.int64)


def _months(days: Any) -> Any:
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def _weekday(days: Any) -> Any:
    return np.mod(days + 3, 7)  # 1970 began on a Thursday; Monday is 0


def _thursday(days: Any) -> Any:
    """The day that decides to which year a week belongs."""
    return days - _weekday(days) + 3


_PART_OF: dict[str, Callable[[Any], Any]] = {
    "year": lambda d: _months(d) // 12 + 1970,
    "quarter": lambda d: np.mod(_months(d), 12) // 3 + 1,
    "month": lambda d: np.mod(_months(d), 12) + 1,
    "day": lambda d: d - _starts(d, "M") + 1,
    "day_of_year": lambda d: d - _starts(d, "Y") + 1,
    "day_of_week": lambda d: np.mod(_weekday(d) + 1, 7) + 1,
    "weekday": _weekday,
    "week": lambda d: (_thursday(d) - _starts(_thursday(d), "Y")) // 7 + 1,
    "year_of_week": lambda d: _months(_thursday(d)) // 12 + 1970,
}
_TRUNCATED: dict[str, Callable[[Any], Any]] = {
    "week": lambda d: d - _weekday(d),
    "month": lambda d: _starts(d, "M"),
    "quarter": lambda d: (_months(d) // 3 * 3).astype("M8[M]").astype("M8[D]").astype(np.int64),
    "year": lambda d: _starts(d, "Y"),
}


def _local(value: Call, times: Any) -> Any:
    """What clocks show at some times, in microseconds."""
    if times.type.tz is None or value.option is None:
        return _numbers(times)
    return _numbers(local_times(times, value.option))


def _clock(unit: int, many: int) -> Callable[..., Any]:
    def computed(value: Call, times: Any) -> Any:
        return _back(np.mod(_local(value, times) // (unit * _MICROS), many), times, _INT)

    return computed


def _date_trunc(value: Call, times: Any) -> Any:
    unit, _, zone = (value.option or "").partition(" ")
    requested: Any = unit
    kept: Unit = requested
    return TimeBuckets(1, kept, zone or "UTC").starts(times)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _arithmetic(name) for name in ("add", "subtract", "multiply")},
    "divide": lambda _, left, right: pc.divide(left, right),
    "remainder": _remainder,
    "pmod": _pmod,
    "floor": _rounded(np.floor),
    "ceil": _rounded(np.ceil),
    "=": _comparison("equal"),
    "<": _comparison("less"),
    "<=": _comparison("less_equal"),
    ">": _comparison("greater"),
    ">=": _comparison("greater_equal"),
    "and": lambda _, left, right: pc.and_kleene(left, right),
    "or": lambda _, left, right: pc.or_kleene(left, right),
    "not": lambda _, flags: pc.invert(flags),
    "is_null": lambda _, values: values.is_null(),
    "is_not_null": lambda _, values: values.is_valid(),
    **{name: _part(name) for name in _PARTS},
    "hour": _clock(3_600, 24),
    "minute": _clock(60, 60),
    "second": _clock(1, 60),
    "date_trunc": _date_trunc,
    "trunc": lambda v, days: _back(_TRUNCATED[v.option or ""](_numbers(days)), days, _DATE),
    "micros": lambda _, times: times.cast(_LONG),
    "time_of_micros": lambda _, numbers: numbers.cast(_TIME),
    "local_of_micros": lambda _, numbers: numbers.cast(_LOCAL),
    "seconds": lambda _, times: _back(_numbers(times) // _MICROS, times, _LONG),
    "to_date": lambda v, times: _back(_local(v, times) // _DAY, times, _DATE),
    "to_long": lambda _, numbers: numbers.cast(_LONG),
    "to_double": lambda _, numbers: numbers.cast(_DOUBLE, safe=False),
}
