"""A second opinion on searches: one row at a time, in plain Python, without Tantivy.

It knows text (`default`, `whitespace`), whole strings and integers, single or in lists, which is
enough to check the boolean logic, analysis, phrases, patterns and distances of the real evaluator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from indextables.predicate import (
    All,
    Boolean,
    Boost,
    Exists,
    Fuzzy,
    Phrase,
    Placeholder,
    Range,
    Regex,
    SearchNode,
    Term,
    TermSet,
    Wildcard,
)

Row = dict[str, Any]


class Oracle:
    """`kinds` maps a column to default, whitespace, raw or int."""

    def __init__(self, kinds: dict[str, str], columns: Iterable[str]) -> None:
        self.kinds = kinds
        self.columns = list(columns)

    def matches(self, node: SearchNode, row: Row) -> bool:
        match node:
            case All():
                return True
            case Boost(child=child):
                return self.matches(child, row)
            case Boolean(must=must, should=should, must_not=must_not):
                if any(self.matches(n, row) for n in must_not):
                    return False
                if must:
                    return all(self.matches(n, row) for n in must)
                return any(self.matches(n, row) for n in should)
            case _:
                names = self.columns if node.field is None else [node.field]
                return any(self.leaf(node, name, row[name]) for name in names)

    def leaf(self, node: Any, name: str, value: Any) -> bool:
        values = [v for v in (value if isinstance(value, list) else [value]) if v is not None]
        if isinstance(node, Exists):
            return bool(values)
        if self.kinds[name] == "int":
            return any(_integer(node, v) for v in values)
        words: list[tuple[int, str]] = []
        start = 0
        for text in values:
            found = self.analyze(name, text)
            words += [(start + i, word) for i, word in enumerate(found)]
            # A phrase does not run from one value into the next.
            start += len(found) + 1
        if isinstance(node, Range) and self.kinds[name] == "raw":
            return any(_between(node, v, str) for v in values)
        return self.words(node, name, words)

    def analyze(self, name: str, text: str) -> list[str]:
        match self.kinds[name]:
            case "raw":
                return [text]
            case "whitespace":
                return text.split()
            case _:
                return [w.lower() for w in re.findall(r"[^\W_]+", text)]

    def lower(self, name: str, text: str) -> str:
        return text.lower() if self.kinds[name] == "default" else text

    def words(self, node: Any, name: str, words: list[tuple[int, str]]) -> bool:
        have = [word for _, word in words]
        match node:
            case Term(text=text):
                return _phrase(self.analyze(name, text), words, 0)
            case Phrase(text=text, slop=slop, prefix=False):
                return _phrase(self.analyze(name, text), words, slop)
            case Phrase(text=text):
                *first, last = self.analyze(name, text) or [None]
                return last is not None and any(
                    _phrase([*first, w], words, 0) for w in have if w.startswith(last)
                )
            case Wildcard(parts=parts):
                pattern = "".join(
                    (".*" if p is Placeholder.MANY else ".")
                    if isinstance(p, Placeholder)
                    else re.escape(self.lower(name, p))
                    for p in parts
                )
                return any(re.fullmatch(pattern, w, re.DOTALL) for w in have)
            case Regex(pattern=pattern):
                return any(re.fullmatch(pattern, w) for w in have)
            case Fuzzy(text=text, distance=limit):
                wanted = self.analyze(name, text)
                return bool(wanted) and all(
                    any(distance(w, h) <= limit for h in have) for w in wanted
                )
            case TermSet(values=values):
                return any(_phrase(self.analyze(name, v), words, 0) for v in values)
            case Range():
                return any(_between(node, w, lambda t: self.lower(name, t)) for w in have)
        raise AssertionError(node)


def _phrase(wanted: list[str], words: list[tuple[int, str]], slop: int) -> bool:
    """Every word at a place of its own, and no two of them moved by amounts that differ by more."""
    if not wanted:
        return False

    def choose(chosen: list[int], moves: list[int]) -> bool:
        if moves and max(moves) - min(moves) > slop:
            return False
        at = len(chosen)
        return at == len(wanted) or any(
            choose([*chosen, place], [*moves, place - at])
            for place, word in words
            if word == wanted[at] and place not in chosen
        )

    return choose([], [])


def _between(node: Range, word: str, lower: Any) -> bool:
    data = word.encode()
    low = None if node.lower is None else lower(node.lower).encode()
    high = None if node.upper is None else lower(node.upper).encode()
    above = low is None or data > low or (node.include_lower and data == low)
    below = high is None or data < high or (node.include_upper and data == high)
    return above and below


def _integer(node: Any, value: int) -> bool:
    def number(text: str) -> int | None:
        return int(text) if re.fullmatch(r"-?\d+", text) else None

    match node:
        case Term(text=text) | Phrase(text=text):
            return number(text) == value
        case TermSet(values=values):
            return value in [number(v) for v in values]
        case Range(lower=lower, upper=upper):
            low = None if lower is None else number(lower)
            high = None if upper is None else number(upper)
            if (low is None) != (lower is None) or (high is None) != (upper is None):
                return False
            above = low is None or value > low or (node.include_lower and value == low)
            return above and (
                high is None or value < high or (node.include_upper and value == high)
            )
        case _:
            return False


def distance(a: str, b: str) -> int:
    """Edits between two words; a swap of neighbours is one."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            best = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                best = min(best, rows[i - 2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]
