"""Statements of ours as data, and the parser that makes them.

A statement is one class: its forms are its grammar, its fields are what the forms take. `execute`
has one function for each. What fits no form goes to Spark unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import ClassVar

from indextables.errors import StatementSyntaxError
from indextables.sql.forms import Failure, Target, form, words_of

__all__ = [
    "STATEMENTS",
    "Checkpoint",
    "DescribeDiskCache",
    "DescribeEnvironment",
    "DescribeLog",
    "DescribeState",
    "FlushDiskCache",
    "FlushSearcherCache",
    "InvalidateLogCache",
    "Restore",
    "Statement",
    "Target",
    "may_be_ours",
    "parse",
]


@dataclass(frozen=True, slots=True)
class Statement:
    """What all statements have in common: their forms."""

    FORMS: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class FlushSearcherCache(Statement):
    """Close all open indexes and forget the copies of splits on the disks."""

    FORMS = ("FLUSH INDEXTABLES ! SEARCHER CACHE",)


@dataclass(frozen=True, slots=True)
class FlushDiskCache(Statement):
    """Forget the copies of splits on the disks."""

    FORMS = ("FLUSH INDEXTABLES ! DISK CACHE",)


@dataclass(frozen=True, slots=True)
class DescribeDiskCache(Statement):
    """What the disks hold."""

    FORMS = ("DESCRIBE INDEXTABLES DISK ! CACHE",)


@dataclass(frozen=True, slots=True)
class InvalidateLogCache(Statement):
    """Forget what is known of one log, or of all."""

    FORMS = (
        "INVALIDATE INDEXTABLES ! TRANSACTION LOG CACHE [FOR [TABLE] <table>]",
        "INVALIDATE TRANSACTION LOG ! CACHE [FOR [TABLE] <table>]",
    )
    table: Target | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint(Statement):
    """Write a checkpoint of the newest version."""

    FORMS = ("CHECKPOINT|COMPACT INDEXTABLES ! <table>",)
    table: Target


@dataclass(frozen=True, slots=True)
class DescribeState(Statement):
    """The newest checkpoint of a table."""

    FORMS = ("DESCRIBE INDEXTABLES STATE ! <table>",)
    table: Target


@dataclass(frozen=True, slots=True)
class DescribeLog(Statement):
    """The actions in a table's log."""

    FORMS = ("DESCRIBE INDEXTABLES TRANSACTION LOG ! <table> [INCLUDE ALL] [LIMIT <limit:number>]",)
    table: Target
    include_all: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeEnvironment(Statement):
    """Versions, configuration and hosts, without secrets."""

    FORMS = ("DESCRIBE INDEXTABLES ENVIRONMENT !",)


@dataclass(frozen=True, slots=True)
class Restore(Statement):
    """Make a table what it was at a version."""

    FORMS = ("RESTORE INDEXTABLES ! <table> TO VERSION <version:number>",)
    table: Target
    version: int


STATEMENTS: tuple[type[Statement], ...] = (
    FlushSearcherCache, FlushDiskCache, DescribeDiskCache, InvalidateLogCache, Checkpoint,
    DescribeState, DescribeLog, DescribeEnvironment, Restore,
)  # fmt: skip


# Almost all statements are Spark's and need not be cut into tokens.
_FIRST_WORDS = re.compile(
    "|".join({first for kind in STATEMENTS for text in kind.FORMS for first in form(text).first}),
    re.IGNORECASE,
)


def may_be_ours(sql: str) -> bool:
    """Whether the text has a word that a statement of ours begins with."""
    return _FIRST_WORDS.search(sql) is not None


def parse(sql: str) -> Statement | None:
    """The statement, or None if it is none of ours and Spark should read it.

    >>> parse("invalidate tantivy4spark transaction log cache for db.`my docs`;")
    InvalidateLogCache(table=Target(path=None, name=('db', 'my docs')))
    >>> parse("SELECT 1") is None
    True
    """
    words = words_of(sql) if may_be_ours(sql) else None
    if not words:
        return None
    failures: list[tuple[Failure, str]] = []
    for kind in STATEMENTS:
        for text in kind.FORMS:
            found = form(text).match(words)
            if isinstance(found, Failure):
                failures.append((found, form(text).shown))
            elif found is not None:
                known = {f.name for f in fields(kind)}
                return kind(**{name: v for name, v in found.items() if name in known})
    if not failures:
        return None
    furthest = max(failure.at for failure, _ in failures)
    best = [(failure, shown) for failure, shown in failures if failure.at == furthest]
    place = words[furthest] if furthest < len(words) else None
    raise StatementSyntaxError(
        sql,
        position=place.start if place else words[-1].end,
        found=sql[place.start : place.end] if place else None,
        expected=list(dict.fromkeys(failure.expected for failure, _ in best)),
        forms=[shown for _, shown in best],
    )
