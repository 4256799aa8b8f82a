"""One word of the search syntax: a term, a pattern with placeholders, or a fuzzy term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from indextables.predicate.search import Fuzzy, Jolly, SearchNode, Term, Wildcard
from indextables.predicate.search_scanner import Character, literal_text

MAX_DISTANCE = 2
"""More edits than this no index answers."""

MAX_PATTERN = 1_000
"""A longer pattern or fuzzy term would be an automaton that no index takes."""

_DEFAULT_DISTANCE = 1


def read_word(
    field: str | None, characters: Sequence[Character], *, fail: Callable[[str], NoReturn]
) -> SearchNode:
    """What one word asks for.

    >>> read_word("body", [Character(c) for c in "spark~2"], fail=print)
    Fuzzy(field='body', text='spark', distance=2)
    """
    tilde = max((i for i, c in enumerate(characters) if c.is_special("~")), default=0)
    tail = characters[tilde + 1 :]
    if tilde > 0 and all(c.text in "0123456789." and not c.escaped for c in tail):
        return _fuzzy(field, characters[:tilde], literal_text(tail), fail)
    parts = _parts(characters)
    if any(isinstance(part, Jolly) for part in parts):
        _check_length("a pattern", characters, fail)
        return Wildcard(field, parts)
    return Term(field, literal_text(characters))


def _fuzzy(
    field: str | None, word: Sequence[Character], distance: str, fail: Callable[[str], NoReturn]
) -> SearchNode:
    edits = int(distance) if distance.isdigit() else _DEFAULT_DISTANCE if not distance else -1
    if not 0 <= edits <= MAX_DISTANCE:
        fail(
            f"the distance ~{distance} of a fuzzy term must be 1 or {MAX_DISTANCE}; write \\~ for "
            "the character itself"
        )
    if any(c.is_special("*") or c.is_special("?") for c in word):
        fail("a term cannot be fuzzy and hold a wildcard at once")
    _check_length("a fuzzy term", word, fail)
    text = literal_text(word)
    return Fuzzy(field, text, edits) if edits else Term(field, text)


def _check_length(
    what: str, characters: Sequence[Character], fail: Callable[[str], NoReturn]
) -> None:
    if len(characters) > MAX_PATTERN:
        fail(f"{what} of {len(characters):,} characters is longer than {MAX_PATTERN:,}")


def _parts(characters: Sequence[Character]) -> tuple[str | Jolly, ...]:
    parts: list[str | Jolly] = []
    for c in characters:
        if c.is_special("*"):
            if not parts or parts[-1] is not Jolly.MANY:
                parts.append(Jolly.MANY)
        elif c.is_special("?"):
            parts.append(Jolly.ONE)
        elif parts and isinstance(last := parts[-1], str):
            parts[-1] = last + c.text
        else:
            parts.append(c.text)
    return tuple(parts)
