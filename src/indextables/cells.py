"""Values as text that is safe to print.

A table can hold anything, terminal escape sequences and direction overrides included. Whatever is
shown to a user passes `printable` first.
"""

from __future__ import annotations

import datetime
import decimal
import html
import re
from typing import Any

import orjson

# Control characters of both ranges, and the marks that reorder text or hide it.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_NAMES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def printable(text: str, *, keep_newlines: bool = False) -> str:
    r"""The text with everything a terminal would act on made visible.

    >>> printable("a\x1b[31mred\n")
    'a\\x1b[31mred\\n'
    """

    def escape(match: re.Match[str]) -> str:
        character = match[0]
        if keep_newlines and character == "\n":
            return character
        if character in _NAMES:
            return _NAMES[character]
        code = ord(character)
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

    return _UNSAFE.sub(escape, text)


def cell(value: Any) -> str:
    """A value of a row as one line of text.

    >>> cell(1234567890.125), cell(None), cell({"a": [1, None]}), cell(b"ab")
    ('1234567890.125', 'null', '{"a":[1,null]}', '0x6162')
    >>> cell(datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC))
    '2024-01-31 12:00:00Z'
    """
    match value:
        case None:
            return "null"
        case str():
            return printable(value)
        case bool():
            return "true" if value else "false"
        case bytes():
            return "0x" + value.hex()
        case datetime.datetime():
            return _moment(value)
        case list() | dict() | tuple():
            return printable(to_json(value).decode())
        case _:
            return printable(str(value))


def utc_time(milliseconds: int) -> str:
    """A time since 1970, as text.

    >>> utc_time(1_580_428_800_000)
    '2020-01-31 00:00:00Z'
    """
    try:
        return _moment(_EPOCH + datetime.timedelta(milliseconds=milliseconds))
    except OverflowError:
        return f"{milliseconds:,} milliseconds after 1970"


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _moment(value: datetime.datetime) -> str:
    """A time as short as it is exact."""
    precision = "milliseconds" if value.microsecond % 1000 == 0 else "microseconds"
    precision = "seconds" if value.microsecond == 0 else precision
    return value.isoformat(sep=" ", timespec=precision).replace("+00:00", "Z")


def python_values(column: Any) -> list[Any]:
    """The values of an Arrow column, maps as dictionaries where they can be.

    >>> import pyarrow as pa
    >>> kind = pa.map_(pa.string(), pa.int64())
    >>> python_values(pa.array([[("a", 1)]], kind)), python_values(pa.array([[("a", 1)] * 2], kind))
    ([{'a': 1}], [[('a', 1), ('a', 1)]])
    """
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    except (KeyError, TypeError):  # a key twice, or one that is nested: a list of pairs
        values = column.to_pylist()
    except OverflowError:  # Python has no years beyond 9999
        import pyarrow as pa

        values = column.cast(pa.string()).to_pylist()
    return values


def to_json(value: Any) -> bytes:
    """JSON for programs: exact integers, ISO times, decimals as text, binary as hexadecimal.

    >>> to_json({"at": datetime.date(2024, 1, 31), "price": decimal.Decimal("1.10")})
    b'{"at":"2024-01-31","price":"1.10"}'
    """
    return orjson.dumps(_plain(value), default=_as_text_or_number, option=orjson.OPT_NON_STR_KEYS)


def _plain(value: Any) -> Any:
    """The value without lone surrogates, which are not Unicode text, with keys that JSON takes."""
    if isinstance(value, dict):
        return {_key(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, str) and _SURROGATE.search(value):
        return value.encode("utf-8", "replace").decode()
    return value


def _key(key: Any) -> Any:
    return _as_text_or_number(key) if isinstance(key, decimal.Decimal | bytes) else _plain(key)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _as_text_or_number(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return str(value)


def marked_parts(snippet: str) -> list[tuple[str, bool]]:
    """A snippet as pieces of plain text, each with whether it was found; its HTML is not trusted.

    >>> marked_parts("a &lt; <b>fox</b>")
    [('a < ', False), ('fox', True)]
    """
    pieces = snippet.replace("</b>", "<b>").split("<b>")
    return [(html.unescape(piece), at % 2 == 1) for at, piece in enumerate(pieces) if piece]


_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size(count: float) -> str:
    """A number of bytes in a readable unit.

    >>> size(999), size(1_234_567)
    ('999 B', '1.23 MB')
    """
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.3g} {_UNITS[unit]}"
