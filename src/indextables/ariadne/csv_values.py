"""Values of csv files that Spark and Arrow read alike: texts as numbers, days and times."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.schema import TIMESTAMP, TIMESTAMP_NTZ

NUMBERS: frozenset[pa.DataType] = frozenset(
    (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
)

_LONGEST_NUMBER = 300
_EARLIEST_DAY = pa.scalar(datetime.date(1900, 1, 1))
_DATE = "dddd-dd-dd"
_TIMES = ("dddd-dd-dd?dd:dd:dd", *(f"dddd-dd-dd?dd:dd:dd.{'d' * n}" for n in range(1, 7)))


class NotPlain(Exception):  # noqa: N818 - nothing is wrong with such a file
    """Spark may see something else in this file than Arrow does; the text says why."""


def typed(text: Any, kind: pa.DataType) -> Any:
    """Texts as values of a type, if Java's parsers and Arrow's say the same about all of them."""
    if kind == pa.string() or text.null_count == len(text):
        return text.cast(kind)
    if kind in NUMBERS:
        return _numbers(text, kind)
    if kind == pa.bool_():
        return _booleans(text)
    if kind == pa.date32():
        _check_form(text, (_DATE,))
        return _not_early(text.cast(kind))
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        _check_form(text, _TIMES)
        # Arrow refuses 24:00:00, seconds of 60 and days that are none; a time without a zone is
        # one of UTC when it gets one.
        return _not_early(text.cast(TIMESTAMP_NTZ)).cast(kind)
    raise ValueError(f"Values of the type {kind} are not read here.")


def _numbers(text: Any, kind: pa.DataType) -> Any:
    lengths, data = _content(text)
    # From "-" to "9" there are also "." and "/": Arrow refuses both in a whole number, and the
    # second in all. Without the check it takes blanks and hexadecimal digits, Java "+" and "1f".
    if data.min() < ord("-") or data.max() > ord("9"):
        raise NotPlain(f"There is something else than a plain number of the type {kind}.")
    if pa.types.is_integer(kind):
        return text.cast(kind)
    found = text.cast(kind)
    if lengths.max() > _LONGEST_NUMBER or not pc.all(pc.is_finite(found)).as_py():
        raise NotPlain("There is a number with very many digits.")
    return found


def _booleans(text: Any) -> Any:
    lower: Any = pc.ascii_lower(text)
    is_true: Any = pc.equal(lower, pa.scalar("true"))
    is_false: Any = pc.equal(lower, pa.scalar("false"))
    if not pc.all(pc.or_(is_true, is_false)).as_py():
        raise NotPlain("There is something else than true and false.")
    return is_true


def _check_form(text: Any, forms: Sequence[str]) -> None:
    """All values have the form for their length: `d` is a digit, `?` a blank or a `T`."""
    lengths, data = _content(text)
    lengths = lengths[lengths > 0]
    starts = np.cumsum(lengths) - lengths
    left = len(lengths)
    for form in forms:
        if not left:
            return
        chosen = starts[lengths == len(form)]
        if len(chosen) == len(starts):
            values = data.reshape(-1, len(form))
        else:
            values = data[chosen[:, None] + np.arange(len(form))]
        low = np.frombuffer(form.replace("d", "0").encode(), np.uint8)
        span = np.array([9 if c == "d" else 0 for c in form], np.uint8)
        # Bytes below `low` wrap around to large ones.
        fits = values - low <= span
        if (at := form.find("?")) >= 0:
            fits[:, at] = (values[:, at] == ord(" ")) | (values[:, at] == ord("T"))
        if not fits.all():
            break
        left -= len(chosen)
    if left:
        raise NotPlain("There is a date or time of another form.")


def _not_early(times: Any) -> Any:
    # Calendars and zones have a history, of which each library tells its own.
    if pc.less(pc.min(times), _EARLIEST_DAY.cast(times.type)).as_py():
        raise NotPlain("There is a day before 1900.")
    return times


def _content(text: Any) -> tuple[Any, Any]:
    """The lengths of the values, 0 for null, and the bytes of all of them."""
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    return np.diff(ends), np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
