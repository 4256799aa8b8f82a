"""Statement forms: a line that a reader understands is the grammar that the parser follows.

::

    INVALIDATE [INDEXTABLES] TRANSACTION ! LOG CACHE [FOR [TABLE] <table>]

- A word is a keyword in any case; `A|B` is either; `INDEXTABLES` is also `TANTIVY4SPARK`.
- `[…]` may be left out. If it holds keywords only, they set a flag: `[DRY RUN]` sets `dry_run`.
- `{[A] [B]}` are options in any order, each at most once.
- `<name:kind>` takes a value. Kinds are the functions of `_KINDS`; without one, the name is it.
- `_CLAUSES` are kinds that take SQL text, up to a keyword that follows in the form.
- After `!` the statement is certainly ours, and what does not fit is an error. Before it, what
  does not fit is another product's statement.

The assignments of UPDATE … SET stay text, for an engine that computes them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlglot import TokenType
from sqlglot.errors import TokenError

from indextables.errors import ExpressionError
from indextables.predicate.literals import quoted_name
from indextables.predicate.spark_tokens import join_strings, tokenize

_SYNONYMS = {"INDEXTABLES": ("INDEXTABLES", "TANTIVY4SPARK"), "DESCRIBE": ("DESCRIBE", "DESC")}
_PIECE = re.compile(r"<(\w+)(?::(\w+))?>|[\[\]{}!]|[A-Z0-9|]+")


@dataclass(frozen=True, slots=True)
class Word:
    """A token of a statement: a `word`, a back-ticked `name`, a `string`, a `symbol`."""

    kind: Literal["word", "name", "string", "symbol"]
    text: str
    start: int
    end: int
    sql: str = field(default="", repr=False, compare=False)


def words_of(sql: str) -> list[Word] | None:
    """The tokens without comments and final semicolons; None if a quote is never closed."""
    try:
        tokens = join_strings(sql, tokenize(sql))
    except TokenError:
        return None
    words: list[Word] = []
    for token in tokens:
        start, end = token.start, token.end + 1
        raw = sql[start:end]
        if token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
            words.append(Word("string", token.text, start, end, sql))
        elif token.token_type is TokenType.IDENTIFIER:
            words.append(Word("name", token.text, start, end, sql))
        elif raw[:1].isalnum() or raw[:1] == "_":
            # sqlglot takes some pairs of keywords for one token.
            words.extend(
                Word("word", part[0], start + part.start(), start + part.end(), sql)
                for part in re.finditer(r"\S+", raw)
            )
        else:
            words.append(Word("symbol", raw, start, end, sql))
    while words and words[-1].text == ";" and words[-1].kind == "symbol":
        words.pop()
    return words


@dataclass(frozen=True, slots=True)
class Target:
    """The table of a statement: a path in quotes, or the parts of a name."""

    path: str | None = None
    name: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.path is not None:
            return self.path
        return ".".join(part if part.isidentifier() else quoted_name(part) for part in self.name)


@dataclass(frozen=True, slots=True)
class Failure:
    """The furthest place where a form did not fit."""

    at: int
    expected: str


@dataclass(slots=True)
class _Attempt:
    """One form held against one statement."""

    words: Sequence[Word]
    keywords: frozenset[str] = frozenset()
    ours: bool = False
    furthest: Failure = field(default_factory=lambda: Failure(-1, ""))

    def fail(self, at: int, expected: str) -> None:
        if at > self.furthest.at:
            self.furthest = Failure(at, expected)
        elif at == self.furthest.at and expected not in self.furthest.expected.split(" or "):
            self.furthest = Failure(at, f"{self.furthest.expected} or {expected}")


# --- elements --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Keyword:
    spellings: tuple[str, ...]

    @property
    def shown(self) -> str:
        return self.spellings[0]


@dataclass(frozen=True, slots=True)
class _Value:
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class _Option:
    elements: tuple[_Element, ...]

    @property
    def flag(self) -> str | None:
        words = [e.shown.lower() for e in self.elements if isinstance(e, _Keyword)]
        return "_".join(words) if len(words) == len(self.elements) else None


@dataclass(frozen=True, slots=True)
class _AnyOrder:
    elements: tuple[_Element, ...]


class _Cut:
    pass


_Element = _Keyword | _Value | _Option | _AnyOrder | _Cut
_Found = tuple[int, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Form:
    """A form, ready to be held against statements."""

    text: str
    elements: tuple[_Element, ...]

    @property
    def shown(self) -> str:
        """The form as documentation shows it."""
        return re.sub(r"<(\w+):\w+>", r"<\1>", re.sub(r" !|[{}]", "", self.text))

    @property
    def first(self) -> tuple[str, ...]:
        """The spellings of the first word."""
        assert isinstance(self.elements[0], _Keyword), self.text
        return self.elements[0].spellings

    def match(self, words: Sequence[Word]) -> Mapping[str, Any] | Failure | None:
        """The values of a statement; where it fails; None if it is another statement."""
        attempt = _Attempt(words, frozenset(_keywords(self.elements)))
        for at, values in _sequence(self.elements, attempt, 0):
            if at == len(words):
                return values
            attempt.fail(at, "the end of the statement")
        return attempt.furthest if attempt.ours else None


@functools.cache
def form(text: str) -> Form:
    """Read a form.

    >>> form("COMPACT INDEXTABLES ! <table>").match(words_of("compact indextables a.b"))
    {'table': Target(path=None, name=('a', 'b'))}
    """
    pieces = list(_PIECE.finditer(text))
    elements, unread = _read(pieces)
    assert not unread, text
    return Form(text, elements)


def _read(
    pieces: Sequence[re.Match[str]],
) -> tuple[tuple[_Element, ...], Sequence[re.Match[str]]]:
    elements: list[_Element] = []
    while pieces:
        piece, pieces = pieces[0], pieces[1:]
        if piece[0] in "]}":
            break
        if piece[0] in "[{":
            inner, pieces = _read(pieces)
            elements.append(_Option(inner) if piece[0] == "[" else _AnyOrder(inner))
        elif piece[0] == "!":
            elements.append(_Cut())
        elif piece[1]:
            elements.append(_Value(piece[1], piece[2] or piece[1]))
        else:
            spellings = [s for word in piece[0].split("|") for s in _SYNONYMS.get(word, (word,))]
            elements.append(_Keyword(tuple(spellings)))
    return tuple(elements), pieces


def _keywords(elements: Sequence[_Element]) -> Iterator[str]:
    for element in elements:
        if isinstance(element, _Keyword):
            yield from element.spellings
        elif isinstance(element, _Option | _AnyOrder):
            yield from _keywords(element.elements)


# --- matching: every way to fit, the longest options first -------------------------------------


def _sequence(elements: Sequence[_Element], attempt: _Attempt, at: int) -> Iterator[_Found]:
    if not elements:
        yield at, {}
        return
    first, following = elements[0], elements[1:]
    for after, values in _matched(first, attempt, at):
        for end, more in _sequence(following, attempt, after):
            yield end, {**values, **more}


def _matched(element: _Element, attempt: _Attempt, at: int) -> Iterator[_Found]:
    words = attempt.words
    match element:
        case _Cut():
            attempt.ours = True
            yield at, {}
        case _Keyword(spellings=spellings):
            word = words[at] if at < len(words) else None
            if word is not None and word.kind == "word" and word.text.upper() in spellings:
                yield at + 1, {}
            else:
                attempt.fail(at, element.shown)
        case _Option(elements=elements):
            for end, values in _sequence(elements, attempt, at):
                yield end, {**values, **({element.flag: True} if element.flag else {})}
            yield at, {}
        case _AnyOrder(elements=elements):
            for number, option in enumerate(elements):
                remaining = _AnyOrder(elements[:number] + elements[number + 1 :])
                for after, values in _matched(option, attempt, at):
                    if after > at:
                        for end, more in _matched(remaining, attempt, after):
                            yield end, {**values, **more}
            yield at, {}
        case _Value(name=name, kind=kind) if kind in _CLAUSES:
            ends = [
                end
                for end in range(at + 1, len(words) + 1)
                if end == len(words)
                or (words[end].kind == "word" and words[end].text.upper() in attempt.keywords)
            ]
            for end in ends:  # the shortest first: what may follow it does
                yield end, {name: words[at].sql[words[at].start : words[end - 1].end]}
            if not ends:
                attempt.fail(at, _CLAUSES[kind])
        case _Value(name=name, kind=kind):
            read, expected = _KINDS[kind]
            value, end = read(words, at)
            if end > at:
                yield end, {name: value}
            else:
                attempt.fail(at, expected)


# --- values ----------------------------------------------------------------------------------


def _table(words: Sequence[Word], at: int) -> tuple[Target | None, int]:
    if at < len(words) and words[at].kind == "string":
        return Target(path=words[at].text), at + 1
    parts: list[str] = []
    end = at
    while end < len(words) and words[end].kind in ("word", "name"):
        parts.append(words[end].text)
        end += 1
        if end + 1 >= len(words) or words[end].text != "." or words[end].kind != "symbol":
            return Target(name=tuple(parts)), end
        end += 1
    return None, at


def _alias(words: Sequence[Word], at: int) -> tuple[str | None, int]:
    if at < len(words) and (
        words[at].kind == "name"
        or (words[at].kind == "word" and words[at].text.upper() not in ("AS", "SET", "WHERE"))
    ):
        return words[at].text, at + 1
    return None, at


def _number(words: Sequence[Word], at: int) -> tuple[int | None, int]:
    # More digits than any version or count has are a mistake, and slow to convert.
    if (
        at < len(words)
        and words[at].kind in ("word", "string")
        and re.fullmatch(r"[0-9]{1,18}", words[at].text)
    ):
        return int(words[at].text), at + 1
    return None, at


def _text(words: Sequence[Word], at: int) -> tuple[str | None, int]:
    if at < len(words) and words[at].kind == "string":
        return words[at].text, at + 1
    return None, at


def _size(words: Sequence[Word], at: int) -> tuple[str | None, int]:
    # The statement decides what it means: 100M, 1.5G, a number of bytes.
    if at < len(words) and words[at].kind in ("word", "string"):
        return words[at].text, at + 1
    return None, at


def _hours(words: Sequence[Word], at: int) -> tuple[int | None, int]:
    number, end = _number(words, at)
    unit = words[end].text.upper() if number is not None and end < len(words) else ""
    if number is None or unit not in _HOURS or number > _MOST:
        return None, at
    return number * _HOURS[unit], end + 1


def _names(words: Sequence[Word], at: int) -> tuple[tuple[str, ...] | None, int]:
    if at >= len(words) or words[at].text != "(":
        return None, at
    names: list[str] = []
    end = at
    while end < len(words) and words[end].text in ("(", ",") and words[end].kind == "symbol":
        part, after = _text(words, end + 1)
        if part is None:
            target, after = _table(words, end + 1)
            part = ".".join(target.name) if target is not None else None
        if part is None:
            return None, at
        names.append(part)
        end = after
    closed = end < len(words) and words[end].text == ")"
    return (tuple(names), end + 1) if closed else (None, at)


def _options(words: Sequence[Word], at: int) -> tuple[tuple[tuple[str, str], ...] | None, int]:
    """Names and values in parentheses, as Spark's OPTIONS has them: with or without `=`."""
    options: list[tuple[str, str]] = []
    end = at
    while end < len(words) and words[end].text == ("," if options else "("):
        begin = end + 1
        name, end = _text(words, begin)
        if name is None:
            target, end = _table(words, begin)
            name = None if target is None else ".".join(target.name)
        if end < len(words) and words[end].text == "=" and words[end].kind == "symbol":
            end += 1
        if name is None or end >= len(words) or words[end].kind not in ("string", "word"):
            return None, at
        options.append((name, words[end].text))
        end += 1
    closed = bool(options) and end < len(words) and words[end].text == ")"
    return (tuple(options), end + 1) if closed else (None, at)


_MOST = 10**9  # more is a mistake, and no date
_HOURS = {"HOUR": 1, "HOURS": 1, "DAY": 24, "DAYS": 24}
_CLAUSES = {"condition": "a condition", "assignments": "assignments, such as n = 1"}
_KINDS = {
    "table": (_table, "a path in quotes or the name of a table"),
    "alias": (_alias, "an alias"),
    "number": (_number, "a whole number"),
    "text": (_text, "a text in quotes"),
    "size": (_size, "a size such as 100M or 5G"),
    "hours": (_hours, "a number of HOURS or DAYS"),
    "names": (_names, "names in parentheses"),
    "options": (_options, "names and values in parentheses, such as (name 'value')"),
}


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
    assignments: list[Assigned] = []
    for at, word in enumerate(words):
        if word.kind == "symbol":
            depth += (word.text in _OPEN) - (word.text in _CLOSE)
        is_end = at + 1 == len(words)
        if is_end or (depth == 0 and word.kind == "symbol" and word.text == ","):
            assignments.append(_assigned(text, words[begin : at + 1 if is_end else at]))
            begin = at + 1
    return assignments


def _assigned(text: str, words: list[Word]) -> Assigned:
    equals = next((at for at, w in enumerate(words) if w.kind == "symbol" and w.text == "="), 0)
    name, value = words[:equals], words[equals + 1 :]
    dots = all(w.kind == "symbol" and w.text == "." for w in name[1::2])
    names = all(w.kind in ("word", "name") for w in name[::2])
    if not value or len(name) % 2 == 0 or not dots or not names:
        raise ExpressionError(text, "SET takes assignments, such as n = n + 1")
    return Assigned(tuple(w.text for w in name[::2]), text[value[0].start : value[-1].end])
