"""Names and values as Spark SQL text, in the one spelling that reads back the same.

Dates and timestamps are read from text as Spark reads them, in the session's time zone.
"""

from __future__ import annotations

import datetime
import math
import re
import zoneinfo
from decimal import Decimal
from typing import TypeAlias

import numpy as np

from indextables.errors import QueryError

_MOMENT = re.compile(
    r"""\s*(?P<year>\d{4}) (?:-(?P<month>\d{1,2}) (?:-(?P<day>\d{1,2})
    (?P<time>[ T](?P<hour>\d{1,2}) :(?P<minute>\d{1,2}) (?: :(?P<second>\d{1,2})
    (?:\.(?P<fraction>\d{0,9}))? )? \s*(?P<zone>[A-Za-z+-][\w/+:-]*)? )? )? )?\s*""",
    re.VERBOSE,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)


class FarInstant(int):
    """Microseconds since 1970 of an instant that a `datetime` cannot hold.

    9999-12-31 in Los Angeles ends in UTC's year 10000. Arrow takes the number for a timestamp.
    """


class FarLocal(int):
    """The same of a timestamp without a time zone."""


Moment: TypeAlias = datetime.date | datetime.datetime | FarInstant | FarLocal


def time_zone(name: str) -> datetime.tzinfo:
    """A zone by its region or its offset.

    >>> time_zone("+05:30").utcoffset(None)
    datetime.timedelta(seconds=19800)
    """
    if not isinstance(name, str):
        raise QueryError(f"A time zone is a text such as 'Europe/Berlin', not {name!r}.")
    if name.upper() in ("Z", "UTC", "GMT", "ETC/UTC"):
        return datetime.UTC
    if (offset := _OFFSET.fullmatch(name)) is not None:
        delta = datetime.timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        if delta <= datetime.timedelta(hours=18):
            return datetime.timezone(-delta if offset[1] == "-" else delta)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise QueryError(
            f"Unknown time zone {name!r}. Use a region such as Europe/Berlin or an offset such as "
            "+02:00."
        ) from None


def parse_moment(text: str) -> datetime.date | datetime.datetime | None:
    """A date, or a timestamp (aware if the text names a zone), or `None` if it is neither.

    >>> parse_moment("2024-1-5"), parse_moment("2024-01-05T10:00:00.5Z")
    (datetime.date(2024, 1, 5), datetime.datetime(2024, 1, 5, 10, 0, 0, 500000, \
tzinfo=datetime.timezone.utc))
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    try:
        day = datetime.date(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
        if match["time"] is None:
            return day
        fraction = (match["fraction"] or "").ljust(9, "0")
        if fraction[6:].strip("0"):
            return None
        zone = None if match["zone"] is None else time_zone(match["zone"])
        return datetime.datetime(
            day.year,
            day.month,
            day.day,
            int(match["hour"]),
            int(match["minute"]),
            int(match["second"] or 0),
            int(fraction[:6]),
            tzinfo=zone,
        )
    except (ValueError, QueryError):
        return None


def as_instant(moment: Moment, zone: datetime.tzinfo) -> datetime.datetime | FarInstant:
    """A point in time, in UTC; what names no zone is meant in `zone`, a date is its midnight.

    >>> as_instant(datetime.datetime(9999, 12, 31, 23), time_zone("-08:00"))
    253402326000000000
    """
    if isinstance(moment, FarInstant):
        return moment
    if isinstance(moment, FarLocal):
        end = datetime.datetime.max if moment > 0 else datetime.datetime.min
        return FarInstant(moment - _offset(end, zone))
    if not isinstance(moment, datetime.datetime):
        moment = datetime.datetime.combine(moment, datetime.time())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    try:
        return moment.astimezone(datetime.UTC)
    except OverflowError:
        plain = moment.replace(tzinfo=None)
        return FarInstant(_micros(plain) - _offset(plain, moment.tzinfo))


def as_local(moment: Moment, zone: datetime.tzinfo) -> datetime.datetime | FarLocal:
    """The local time in `zone`: a timestamp without a time zone."""
    if isinstance(moment, FarLocal):
        return moment
    if isinstance(moment, FarInstant):
        end = datetime.datetime.max if moment > 0 else datetime.datetime.min
        local = moment_of(moment + _offset(end, zone))
        assert not isinstance(local, FarInstant)
        return local
    if not isinstance(moment, datetime.datetime):
        return datetime.datetime.combine(moment, datetime.time())
    if moment.tzinfo is None:
        return moment
    try:
        return moment.astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        plain = moment.replace(tzinfo=None)
        return FarLocal(_micros(plain) - _offset(plain, moment.tzinfo) + _offset(plain, zone))


def moment_of(
    micros: int, zone: datetime.tzinfo | None = None
) -> datetime.datetime | FarInstant | FarLocal:
    """The moment so many microseconds after 1970: an instant in UTC, or local without a zone."""
    try:
        start = datetime.datetime(1970, 1, 1, tzinfo=zone)
        return start + datetime.timedelta(microseconds=micros)
    except OverflowError:
        return FarLocal(micros) if zone is None else FarInstant(micros)


def _micros(moment: datetime.datetime) -> int:
    return (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)


def _offset(local: datetime.datetime, zone: datetime.tzinfo | None) -> int:
    """How many microseconds a zone is ahead of UTC at the end of the calendar where `local` is."""
    offset = None if zone is None else zone.utcoffset(local.replace(tzinfo=zone))
    return (offset or datetime.timedelta()) // datetime.timedelta(microseconds=1)


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Words with a meaning of their own where a column may stand. Quoting too many is harmless.
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "all and anti any array as asc at between binary both by case cast collate column "
        "constraint create cross cube current current_date current_time current_timestamp "
        "current_user date default delete desc distinct distribute div drop else end escape "
        "except exists explain extract false fetch fieldmatch filter first for foreign from full "
        "function glob grouping group having if ilike in indexquery indexqueryall inner insert "
        "intersect interval into is join lateral leading left like limit list map minus "
        "natural next not null offset on only or order outer over overlaps overlay partition "
        "pivot position primary qualify range references regexp replace right rlike row rows "
        "select semi session_user set show similar some sort struct substring table "
        "tablesample textsearch then time timestamp timestamp_ltz timestamp_ntz to trailing "
        "trim true try_cast union unique unknown unnest unpivot update use using values when where "
        "window with within xor alter grant notnull partitioned_by returning revoke "
        "rollback serdeproperties uncache",
    )
)
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\u0000"}
_ESCAPED = re.compile(r"[\\'\n\r\t\0]")


def sql_name(name: str) -> str:
    """One part of a column's name, in back-ticks where it needs them.

    >>> sql_name("title"), sql_name("a.b"), sql_name("select"), sql_name("tick`s")
    ('title', '`a.b`', '`select`', '`tick``s`')
    """
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _WORDS:
        return name
    return quoted_name(name)


def quoted_name(name: str) -> str:
    """One part of a name in back-ticks, whether or not it needs them.

    >>> quoted_name("tick`s")
    '`tick``s`'
    """
    return "`" + name.replace("`", "``") + "`"


def sql_text(text: str) -> str:
    """A string literal.

    >>> print(sql_text("O'Brien\\\\s"))
    'O\\'Brien\\\\s'
    """
    return "'" + _ESCAPED.sub(lambda match: _ESCAPES[match[0]], text) + "'"


def sql_literal(value: object) -> str:
    """A value as a literal.

    >>> sql_literal(True), sql_literal(Decimal("1.50")), sql_literal(datetime.date(2024, 1, 15))
    ('TRUE', '1.50', "DATE '2024-01-15'")
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case float() if not math.isfinite(value):
            # Spark has no literal for these; a string compared with a number is cast.
            return "'NaN'" if math.isnan(value) else "'Infinity'" if value > 0 else "'-Infinity'"
        case FarInstant() | FarLocal():
            zone = "Z" if isinstance(value, FarInstant) else ""
            type_name = "TIMESTAMP" if isinstance(value, FarInstant) else "TIMESTAMP_NTZ"
            text = str(np.datetime64(int(value), "us")).replace("T", " ")
            return f"{type_name} '{text}{zone}'"
        case int() | float():
            return repr(value)
        case Decimal():
            return format(value, "f")
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime.datetime() if value.tzinfo is not None:
            utc = value.astimezone(datetime.UTC).replace(tzinfo=None)
            return f"TIMESTAMP '{utc.isoformat(sep=' ')}Z'"
        case datetime.datetime():
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return sql_text(str(value))


def like_text(text: str) -> str:
    """Text with LIKE's placeholders escaped.

    >>> print(like_text("50%_a"))
    50\\%\\_a
    """
    return re.sub(r"[\\%_]", r"\\\g<0>", text)
