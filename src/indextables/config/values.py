"""How the values of keys are written: sizes, durations, true and false."""

from __future__ import annotations

import re

from indextables.errors import InvalidValueError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_DURATION_UNITS = {
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_BOOLEANS = {"true": True, "yes": True, "1": True, "on": True} | dict.fromkeys(
    ("false", "no", "0", "off"), False
)


def parse_size(value: object, *, name: str = "size") -> int:
    """Read a number of bytes: `123`, `"100M"`, `"1.5G"`; K, M, G and T are powers of 1,024.

    >>> parse_size("1.5G")
    1610612736
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(str(value))
    if match is None:
        raise InvalidValueError(name, value, 'a size in bytes such as 1048576, "100M" or "1.5G"')
    return int(float(match[1]) * _SIZE_UNITS[match[2].upper()])


def parse_duration_ms(value: object, *, name: str = "duration") -> int:
    """Read a duration as milliseconds: `500`, `"500"`, `"5s"`, `"2 hours"`, `"30 days"`.

    >>> parse_duration_ms("2 hours")
    7200000
    """
    match = _DURATION.fullmatch(str(value))
    if match is None or match[2].lower() not in _DURATION_UNITS or isinstance(value, bool):
        raise InvalidValueError(name, value, 'milliseconds, or "5s", "2 hours" …')
    return int(float(match[1]) * _DURATION_UNITS[match[2].lower()])


def parse_boolean(value: object, *, name: str = "flag") -> bool:
    """Read true or false.

    >>> parse_boolean("TRUE")
    True
    """
    found = value if isinstance(value, bool) else _BOOLEANS.get(str(value).strip().lower())
    if found is None:
        raise InvalidValueError(name, value, "true or false")
    return found
