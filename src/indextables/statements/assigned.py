"""The assignments of UPDATE … SET as text, for an engine that computes them."""

from __future__ import annotations

from dataclasses import dataclass

from indextables.errors import ExpressionError
from indextables.statements.forms import Word, words_of

_OPEN, _CLOSE = ("(", "[", "{"), (")", "]", "}")


@dataclass(frozen=True, slots=True)
class Assigned:
    """One assignment: the parts of a column's name, and its expression."""

    name: tuple[str, ...]
    value: str

    @property
    def is_default(self) -> bool:
        return self.value.upper() == "DEFAULT"


def split_assignments(text: str) -> list[Assigned]:
    """The assignments in their order.

    >>> split_assignments("a = f(1, 2), t.`b c` = DEFAULT")
    [Assigned(name=('a',), value='f(1, 2)'), Assigned(name=('t', 'b c'), value='DEFAULT')]
    """
    words = words_of(text) or []
    depth, begin = 0, 0
    found: list[Assigned] = []
    for at, word in enumerate(words):
        if word.kind == "symbol":
            depth += (word.text in _OPEN) - (word.text in _CLOSE)
        is_end = at + 1 == len(words)
        if is_end or (depth == 0 and word.kind == "symbol" and word.text == ","):
            found.append(_assigned(text, words[begin : at + 1 if is_end else at]))
            begin = at + 1
    return found


def _assigned(text: str, words: list[Word]) -> Assigned:
    equals = next((at for at, w in enumerate(words) if w.kind == "symbol" and w.text == "="), 0)
    name, value = words[:equals], words[equals + 1 :]
    dots = all(w.kind == "symbol" and w.text == "." for w in name[1::2])
    names = all(w.kind in ("word", "name") for w in name[::2])
    if not value or len(name) % 2 == 0 or not dots or not names:
        raise ExpressionError(text, "SET takes assignments, such as n = n + 1")
    return Assigned(tuple(w.text for w in name[::2]), text[value[0].start : value[-1].end])
