"""Dates and timestamps as text, as Spark reads them, and the session's time zone."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from typing import TypeAlias

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
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    try:
        day = datetime.date(int(found["year"]), int(found["month"] or 1), int(found["day"] or 1))
        if found["time"] is None:
            return day
        fraction = (found["fraction"] or "").ljust(9, "0")
        if fraction[6:].strip("0"):
            return None
        zone = None if found["zone"] is None else time_zone(found["zone"])
        return datetime.datetime(
            day.year,
            day.month,
            day.day,
            int(found["hour"]),
            int(found["minute"]),
            int(found["second"] or 0),
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
    """What the clock shows in `zone`: a timestamp without a time zone."""
    if isinstance(moment, FarLocal):
        return moment
    if isinstance(moment, FarInstant):
        end = datetime.datetime.max if moment > 0 else datetime.datetime.min
        found = moment_of(moment + _offset(end, zone))
        assert not isinstance(found, FarInstant)
        return found
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
