"""The characters of a search query: a cursor, words, quotes, and errors with a position."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from indextables.errors import QuerySyntaxError

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
