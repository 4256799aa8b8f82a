"""LIKE patterns: taken apart, and simplified where they are a prefix, a suffix or an infix."""

from __future__ import annotations

import enum
import re

from indextables.errors import UnsupportedPredicateError
from indextables.predicate.tree import (
    Column,
    Compare,
    Contains,
    EndsWith,
    Like,
    Predicate,
    StartsWith,
)


class Wild(enum.Enum):
    """A placeholder of LIKE."""

    MANY = "%"
    ONE = "_"


def pattern_parts(pattern: str, *, escape: str = "\\") -> tuple[str | Wild, ...]:
    """Literal runs and placeholders, in order. As in Spark, only `%`, `_` and the escape character
    itself may be escaped.

    >>> pattern_parts("50\\\\%_a%")
    ('50%', <Wild.ONE: '_'>, 'a', <Wild.MANY: '%'>)
    """
    parts: list[str | Wild] = []
    characters = iter(pattern)
    for c in characters:
        if c != escape and c in "%_":
            parts.append(Wild(c))
            continue
        literal = next(characters, "") if c == escape else c
        if c == escape and literal not in ("%", "_", escape):
            reason = f"the escape character {escape!r} must precede %, _ or itself"
            raise UnsupportedPredicateError(f"LIKE {pattern!r}", reason)
        if parts and isinstance(last := parts[-1], str):
            parts[-1] = last + literal
        else:
            parts.append(literal)
    return tuple(parts)


def like(column: Column, pattern: str, *, escape: str = "\\") -> Predicate:
    """The predicate of a LIKE, in its simplest form.

    >>> print(repr(like(Column(("a",)), "spark%")))
    StartsWith(column=Column(path=('a',)), text='spark')
    """
    match pattern_parts(pattern, escape=escape):
        case ():
            return Compare("=", column, "")
        case (str() as text,):
            return Compare("=", column, text)
        case (Wild.MANY,):
            return StartsWith(column, "")
        case (str() as text, Wild.MANY):
            return StartsWith(column, text)
        case (Wild.MANY, str() as text):
            return EndsWith(column, text)
        case (Wild.MANY, Wild.MANY):
            return Contains(column, "")
        case (Wild.MANY, str() as text, Wild.MANY):
            return Contains(column, text)
        case _:
            return Like(column, pattern, escape)


def pattern_regex(pattern: str, *, escape: str = "\\") -> str:
    """The same as an RE2 regular expression that matches the whole text, new lines included."""
    wild = {Wild.MANY: ".*", Wild.ONE: "."}
    parts = pattern_parts(pattern, escape=escape)
    body = "".join(_quoted(part) if isinstance(part, str) else wild[part] for part in parts)
    return rf"(?s)\A{body}\z"


def _quoted(text: str) -> str:
    # RE2 takes a NUL only by its number.
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text).replace("\0", r"\x00")
