"""The words of a search query: characters, words, and the size of a pattern.

The characters of a search query: a cursor, words, quotes, and errors with a position.

One word of the search syntax: a term, a pattern with placeholders, or a fuzzy term.

How large a regular expression becomes when its repetitions are written out.

`((a{0,20}){0,20}){0,20}` is 23 characters and 8,000 letters. Engines compile what is written out,
and may take minutes to find that it is too much, so the size is computed before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from indextables.errors import QuerySyntaxError
from indextables.predicate.search import Fuzzy, Placeholder, SearchNode, Term, Wildcard

_HALF = re.compile("[\ud800-\udfff]")
ENDS_WORD = frozenset('()[]{}"^')


class Character(NamedTuple):
    """A character of a word; an escaped one means only itself."""

    text: str
    escaped: bool = False

    def is_special(self, text: str) -> bool:
        """Whether this is the given sign with its special meaning."""
        return self.text == text and not self.escaped


def literal_text(characters: Sequence[Character]) -> str:
    """The characters as they read, special ones too."""
    return "".join(c.text for c in characters)


def half_character(text: str) -> int | None:
    """Where a text has a lone surrogate, which is no character and in no index.

    Bytes that are no UTF-8 become such ones on a command line.
    """
    found = _HALF.search(text)
    return None if found is None else found.start()


class Scanner:
    """A place in the text of a query, moving forward."""

    def __init__(self, text: str, *, asked_field: str | None) -> None:
        self.text = text
        self.asked_field = asked_field
        self.at = 0

    def fail(self, reason: str, at: int | None = None) -> NoReturn:
        """Refuse the query, naming what is wrong and where."""
        position = self.at if at is None else at
        raise QuerySyntaxError(self.text, reason, position=position, field=self.asked_field)

    def peek(self, offset: int = 0) -> str:
        """The character here, or some further on; empty at the end."""
        return self.text[self.at + offset : self.at + offset + 1]

    def skip_blanks(self) -> None:
        """Move to what is not a blank."""
        while self.peek().isspace():
            self.at += 1

    def keyword(self, word: str) -> bool:
        """Whether an operator stands here: the word, then a blank, a parenthesis or the end."""
        after = self.peek(len(word))
        return self.text.startswith(word, self.at) and (
            after == "" or after.isspace() or after in "()"
        )

    def at_boundary(self) -> bool:
        """Whether an operand may end here."""
        return self.peek() in ("", ")") or self.peek().isspace()

    def word(self, ends: frozenset[str] = ENDS_WORD) -> list[Character]:
        """Consume characters up to a blank or a delimiter."""
        start, found = self.at, []
        while (c := self.peek()) and not c.isspace() and c not in ends:
            escaped = c == "\\" and self.peek(1) != "" and not self.peek(1).isalnum()
            self.at += escaped
            found.append(Character(self.peek(), escaped))
            self.at += 1
        if not found:
            self.fail(
                f"{self.peek()!r} has no meaning here" if self.peek() else "a word is missing"
            )
        if self.peek() and self.peek() in '([{"':
            self.fail(
                f"{self.peek()!r} stands inside the word "
                f"{self.text[start : self.at]!r}; put a blank or a backslash before it"
            )
        return found

    def quoted(self) -> str:
        """Consume a text in quotes."""
        start, quote, found = self.at, self.peek(), ""
        self.at += 1
        while self.peek() != quote:
            if not self.peek():
                self.fail(f"the quote {quote} is never closed", start)
            if self.peek() == "\\" and self.peek(1) and not self.peek(1).isalnum():
                self.at += 1
            found += self.peek()
            self.at += 1
        self.at += 1
        return found


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
    if any(isinstance(part, Placeholder) for part in parts):
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


def _parts(characters: Sequence[Character]) -> tuple[str | Placeholder, ...]:
    parts: list[str | Placeholder] = []
    for c in characters:
        if c.is_special("*"):
            if not parts or parts[-1] is not Placeholder.MANY:
                parts.append(Placeholder.MANY)
        elif c.is_special("?"):
            parts.append(Placeholder.ONE)
        elif parts and isinstance(last := parts[-1], str):
            parts[-1] = last + c.text
        else:
            parts.append(c.text)
    return tuple(parts)


MAX_REPEATED = 1_000
"""The most letters that repetitions may stand for; also the most states of Tantivy's automata."""

_TOKEN = re.compile(
    r"""
    (?P<escape>\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|u\{[^}]*\}|U\{[^}]*\}|.))
  | (?P<set>\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\])
  | (?P<open>\((?:\?(?:P?<\w+>|[a-zA-Z-]*:|[a-zA-Z-]+(?=\))))?)
  | (?P<close>\))
  | (?P<count>\{(?P<low>\d+)(?P<comma>,(?P<high>\d*))?\})
  | (?P<many>[*+?])
  | (?P<bar>\|)
  | (?P<one>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def repeated_size(pattern: str) -> int:
    """How many letters the counted repetitions of a pattern stand for; 0 without any.

    >>> repeated_size("spark|sql"), repeated_size("a{3}b"), repeated_size("((a{0,20}){0,20})+")
    (0, 3, 400)
    """
    # For each open group: the size of what it holds, of its last item, and whether it counts.
    sums, last = [0], [0]
    counted = [0]
    last_counted = [0]
    for token in _TOKEN.finditer(pattern):
        if token["open"]:
            for stack in (sums, last, counted, last_counted):
                stack.append(0)
        elif token["close"]:
            if len(sums) > 1:
                last.pop(), last_counted.pop()
                last[-1], last_counted[-1] = sums.pop(), counted.pop()
                sums[-1] += last[-1]
                counted[-1] += last_counted[-1]
        elif token["count"]:
            times = max(1, int((token["high"] or token["low"])[:9]))
            size = last[-1] * times
            sums[-1] += size - last[-1]
            counted[-1] += size - last_counted[-1] if times > 1 else 0
            last[-1] = last_counted[-1] = size
        elif not token["many"] and not token["bar"]:
            last[-1], last_counted[-1] = 1, 0
            sums[-1] += 1
    # Groups that are never closed are the engine's to refuse.
    return sum(counted)
