"""Keys of a query in the type of an indexed column, as Spark's `=` would compare them.

Spark casts both sides of `column = key` to a common type. An index holds the column's own values,
so the cast is undone: each key becomes the one value of the column that equals it, or nothing if
no value can. Where several values of the column equal one key (the texts `1`, `01` and `1.0` all
equal the number 1), or where Spark's rules depend on a setting, nothing is known and every file
stays a candidate. No key is ever rounded into a match or out of one.

    >>> keys = as_type(pa.array([1.0, 2.5]), pa.int32())
    >>> keys.values.to_pylist(), keys.is_unknown.tolist()
    ([1, None], [False, False])
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.plan.statistics import Flags
from indextables.schema.conformity import as_floats

_WHOLE = r"^[+-]?[0-9]{1,18}$"
_NUMBER = r"^[+-]?[0-9]{1,300}(\.[0-9]{0,300})?([eE][+-]?[0-9]{1,3})?$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_LONG_DIGITS = 20
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class ConvertedKeys:
    """Keys in a column's type, in the order of the query's."""

    values: Any
    """The value of the column that equals the key; null if no value can."""
    is_unknown: Flags
    """Keys that may equal any value, or several."""


def as_type(keys: Any, data_type: Any) -> ConvertedKeys:
    """The keys as values of a column of this type. A null key equals nothing."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.cast(keys.type.value_type)
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    converted = _convert(keys, data_type)
    if converted is None:
        values: Any = pa.nulls(len(keys), data_type)
        converted = ConvertedKeys(values, np.ones(len(keys), np.bool_))
    return ConvertedKeys(converted.values, converted.is_unknown & ~_flags(keys.is_null()))


def _convert(keys: Any, data_type: Any) -> ConvertedKeys | None:
    key_type = keys.type
    if pa.types.is_null(key_type):
        return _converted(pa.nulls(len(keys), data_type))
    family, column_family = _family(key_type), _family(data_type)
    if family is None or column_family is None:
        return _converted(keys) if key_type == data_type else None
    if family == column_family == "nested":
        return _converted(keys) if key_type == data_type else None
    if family == column_family and family in ("text", "bytes", "flag", "day"):
        return _converted(keys.cast(data_type))
    if family == column_family == "moment":
        same = (key_type.tz is None) == (data_type.tz is None)
        return (
            _converted(keys.cast(data_type, safe=False))
            if same and data_type.unit == "us"
            else None
        )
    convert = _CONVERSIONS.get((family, column_family))
    return None if convert is None else convert(keys, data_type)


def _family(data_type: Any) -> str | None:
    tests: tuple[tuple[str, Callable[[Any], bool]], ...] = (
        ("whole", pa.types.is_integer),
        ("float", pa.types.is_floating),
        ("decimal", pa.types.is_decimal),
        ("text", lambda k: pa.types.is_string(k) or pa.types.is_large_string(k)),
        ("bytes", lambda k: pa.types.is_binary(k) or pa.types.is_large_binary(k)),
        ("flag", pa.types.is_boolean),
        ("day", pa.types.is_date32),
        ("moment", pa.types.is_timestamp),
        ("nested", pa.types.is_nested),
    )
    return next((name for name, test in tests if test(data_type)), None)


def _converted(values: Any) -> ConvertedKeys:
    return ConvertedKeys(values, np.zeros(len(values), np.bool_))


def _flags(answer: Any) -> Flags:
    return np.asarray(pc.fill_null(answer, False), np.bool_)


def _where(mask: Any, values: Any) -> Any:
    """The values where the mask holds, null elsewhere."""
    return pc.if_else(pa.array(mask), values, pa.scalar(None, values.type))


# --- to whole numbers ------------------------------------------------------------------------


def _whole_to_whole(keys: Any, data_type: Any) -> ConvertedKeys:
    numbers = keys.cast(pa.int64())
    limit = 2 ** (data_type.bit_width - 1)
    fits = _flags(pc.and_(pc.greater_equal(numbers, -limit), pc.less_equal(numbers, limit - 1)))
    return _converted(_where(fits, numbers).cast(data_type))


def _float_to_whole(keys: Any, data_type: Any) -> ConvertedKeys:
    # From here on a float of the key's width equals several whole numbers.
    limit = 2.0**53 if keys.type == pa.float64() else 2.0**24
    numbers = np.asarray(pc.fill_null(keys.cast(pa.float64()), np.nan))
    with np.errstate(invalid="ignore"):
        is_sure = np.abs(numbers) < limit
        is_unknown = np.isfinite(numbers) & ~is_sure
        is_whole = is_sure & (np.trunc(numbers) == numbers)
    integers = pa.array(np.where(is_whole, numbers, 0).astype(np.int64))
    return ConvertedKeys(_whole_to_whole(_where(is_whole, integers), data_type).values, is_unknown)


def _decimal_to_whole(keys: Any, data_type: Any) -> ConvertedKeys | None:
    decimals = _decimal_to_decimal(keys, pa.decimal128(_LONG_DIGITS, 0))
    if decimals is None:
        return None
    # A decimal of 20 digits may be more than 64 bits.
    low, high = (pa.scalar(n).cast(pa.decimal128(20, 0)) for n in (-(2**63), 2**63 - 1))
    fits = _flags(
        pc.and_(pc.greater_equal(decimals.values, low), pc.less_equal(decimals.values, high))
    )
    return _whole_to_whole(_where(fits, decimals.values).cast(pa.int64()), data_type)


def _text_to_whole(keys: Any, data_type: Any) -> ConvertedKeys:
    texts = _trimmed(keys)
    is_number = _flags(pc.match_substring_regex(texts, _WHOLE))
    plain = pc.replace_substring_regex(_where(is_number, texts), r"^\+", "")
    return ConvertedKeys(_whole_to_whole(plain.cast(pa.int64()), data_type).values, ~is_number)


# --- to floats -------------------------------------------------------------------------------


def _whole_to_float(keys: Any, data_type: Any) -> ConvertedKeys:
    numbers = np.asarray(pc.fill_null(keys.cast(pa.int64()), 0))
    values = pa.array(numbers.astype(np.float64))
    if data_type == pa.float64():
        return _converted(_where(_flags(keys.is_valid()), values))
    is_sure = np.abs(numbers) <= 2**24
    return ConvertedKeys(
        _where(_flags(keys.is_valid()) & is_sure, values).cast(data_type), ~is_sure
    )


def _float_to_float(keys: Any, data_type: Any) -> ConvertedKeys:
    if keys.type.bit_width <= data_type.bit_width:
        return _converted(keys.cast(data_type))
    return _converted(_where(_is_single(keys), keys).cast(data_type, safe=False))


def _is_single(doubles: Any) -> Flags:
    """Which doubles are floats of 32 bits too."""
    numbers = np.asarray(pc.fill_null(doubles.cast(pa.float64()), 0.0))
    with np.errstate(over="ignore"):
        singles = numbers.astype(np.float32).astype(np.float64)
    return np.asarray((singles == numbers) | np.isnan(numbers))


def _decimal_to_float(keys: Any, data_type: Any) -> ConvertedKeys:
    return _float_to_float(as_floats(keys), data_type)


def _text_to_float(keys: Any, data_type: Any) -> ConvertedKeys:
    texts = _trimmed(keys)
    is_number = _flags(pc.match_substring_regex(texts, _NUMBER))
    plain = pc.replace_substring_regex(_where(is_number, texts), r"^\+", "")
    doubles = plain.cast(pa.float64())
    if data_type == pa.float64():
        return ConvertedKeys(doubles, ~is_number)
    # Whether such text is read as 32 or 64 bits depends on a setting of Spark.
    is_sure = is_number & _is_single(doubles)
    return ConvertedKeys(_where(is_sure, doubles).cast(data_type, safe=False), ~is_sure)


# --- to decimals -----------------------------------------------------------------------------


def _whole_to_decimal(keys: Any, data_type: Any) -> ConvertedKeys | None:
    return _decimal_to_decimal(keys.cast(pa.decimal128(_LONG_DIGITS, 0)), data_type)


def _decimal_to_decimal(keys: Any, data_type: Any) -> ConvertedKeys | None:
    key_type = keys.type
    scale = max(key_type.scale, data_type.scale)
    before = max(key_type.precision - key_type.scale, data_type.precision - data_type.scale)
    if before + scale > _MOST_DIGITS:
        return None  # Spark rounds both sides then
    wide = keys.cast(pa.decimal128(_MOST_DIGITS, scale))
    cut = wide.cast(pa.decimal128(_MOST_DIGITS, data_type.scale), safe=False)
    is_exact = _flags(pc.equal(cut.cast(pa.decimal128(_MOST_DIGITS, scale)), wide))
    with decimal.localcontext(prec=2 * _MOST_DIGITS):
        top = decimal.Decimal(10) ** (data_type.precision - data_type.scale)
        top -= decimal.Decimal(10) ** -data_type.scale
    fits = _flags(pc.less_equal(pc.abs(cut), pa.scalar(top, cut.type)))
    return _converted(_where(is_exact & fits, cut).cast(data_type))


# --- to the rest -----------------------------------------------------------------------------


def _text_to_day(keys: Any, data_type: Any) -> ConvertedKeys:
    texts = _trimmed(keys)
    is_day = _flags(pc.match_substring_regex(texts, _DAY))
    moments = pc.strptime(_where(is_day, texts), "%Y-%m-%d", "s", error_is_null=True)
    # 2024-02-30 becomes another day.
    is_day = is_day & _flags(pc.equal(pc.strftime(moments, "%Y-%m-%d"), texts))
    return ConvertedKeys(_where(is_day, moments.cast(data_type)), ~is_day)


def _text_to_flag(keys: Any, _kind: Any) -> ConvertedKeys:
    texts = pc.utf8_lower(_trimmed(keys))
    is_true, is_false = (_flags(pc.equal(texts, pa.scalar(word))) for word in ("true", "false"))
    return ConvertedKeys(_where(is_true | is_false, pa.array(is_true)), ~(is_true | is_false))


def _trimmed(keys: Any) -> Any:
    return pc.utf8_trim(keys.cast(pa.string()), " ")


_CONVERSIONS: dict[tuple[str, str], Callable[[Any, Any], ConvertedKeys | None]] = {
    ("whole", "whole"): _whole_to_whole,
    ("float", "whole"): _float_to_whole,
    ("decimal", "whole"): _decimal_to_whole,
    ("text", "whole"): _text_to_whole,
    ("whole", "float"): _whole_to_float,
    ("float", "float"): _float_to_float,
    ("decimal", "float"): _decimal_to_float,
    ("text", "float"): _text_to_float,
    ("whole", "decimal"): _whole_to_decimal,
    ("decimal", "decimal"): _decimal_to_decimal,
    ("text", "day"): _text_to_day,
    ("text", "flag"): _text_to_flag,
}
