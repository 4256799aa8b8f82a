"""What a search query asks, as a tree: the part of a predicate that an index answers.

Every node may name a `field`; `None` means the field or fields of the `Search` that holds the
query. A field is text as the user wrote it, possibly a path into JSON such as `user.name`, with a
dot inside a key escaped as `\\.`. `indextables.predicate.names.resolve_field` turns it into a
column and the rest of the path, once the schema is known. Words are raw text: the evaluation of the
tree runs the field's own analyzer on them.

A search is true or false, never null: a row whose field is null has no words.

A query is read character by character: a cursor, words, quotes, and errors with a position. One
word is a term, a pattern with placeholders, or a fuzzy term. The size of a regular expression with
its repetitions written out is computed before an engine sees it: `((a{0,20}){0,20}){0,20}` is 23
characters and 8,000 letters, and engines may take minutes to find that it is too much.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn, TypeAlias

from indextables.errors import QuerySyntaxError


def _position() -> Any:
    """The position in the query, for messages; equality of nodes ignores it."""
    return dataclasses.field(default=0, compare=False, repr=False, kw_only=True)


class Placeholder(enum.Enum):
    """A placeholder in a wildcard pattern."""

    MANY = "*"
    """Any run of characters, the empty one too."""
    ONE = "?"
    """Exactly one character."""


@dataclass(frozen=True, slots=True)
class Term:
    """One word, or several after analysis (`wi-fi`): then all of them, as a phrase."""

    field: str | None
    text: str
    at: int = _position()


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words in order, moved apart by at most `slop`; with `prefix` the last word is a beginning."""

    field: str | None
    text: str
    slop: int = 0
    prefix: bool = False
    at: int = _position()


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A term that matches literal text with placeholders between.

    `parts` never has two strings in a row, nor an empty string: `da*a` is
    `("da", Placeholder.MANY, "a")`, and `a\\*b*` is `("a*b", Placeholder.MANY)`.
    """

    field: str | None
    parts: tuple[str | Placeholder, ...]
    at: int = _position()

    @property
    def prefix(self) -> str:
        """The literal text before the first placeholder."""
        first = self.parts[0]
        return first if isinstance(first, str) else ""

    @property
    def is_prefix(self) -> bool:
        """Whether this is literal text and one final `*`, as in `data*`."""
        return len(self.parts) == 2 and self.parts[1] is Placeholder.MANY and bool(self.prefix)


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """A term at most `distance` edits away; a swap of two neighbours is one edit."""

    field: str | None
    text: str
    distance: int
    at: int = _position()


@dataclass(frozen=True, slots=True)
class Range:
    """Values between two bounds, as raw text; `None` is an open end."""

    field: str | None
    lower: str | None
    upper: str | None
    include_lower: bool = True
    include_upper: bool = True
    at: int = _position()


@dataclass(frozen=True, slots=True)
class TermSet:
    """Any of several exact terms: `field: IN [a b c]`."""

    field: str | None
    values: tuple[str, ...]
    at: int = _position()


@dataclass(frozen=True, slots=True)
class Exists:
    """The field has a value: `field:*`."""

    field: str | None
    at: int = _position()


@dataclass(frozen=True, slots=True)
class Regex:
    """A term that the whole pattern matches: `/regex/`."""

    field: str | None
    pattern: str
    at: int = _position()


@dataclass(frozen=True, slots=True)
class All:
    """Every row."""


@dataclass(frozen=True, slots=True)
class Boolean:
    """All of `must`, none of `must_not`; any of `should` when `must` is empty.

    Beside `must`, `should` only raises the score. The parser never leaves `must` and `should` both
    empty: it puts `All` into `must`, because an index answers a bare negation with nothing.
    """

    must: tuple[SearchNode, ...] = ()
    should: tuple[SearchNode, ...] = ()
    must_not: tuple[SearchNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Boost:
    """The same rows, the score multiplied."""

    child: SearchNode
    factor: float


FieldNode: TypeAlias = Term | Phrase | Wildcard | Fuzzy | Range | TermSet | Exists | Regex
"""The nodes that have a field."""

SearchNode: TypeAlias = FieldNode | All | Boolean | Boost


def walk(query: SearchNode) -> Iterator[SearchNode]:
    """Every node of a search query, parents first."""
    left = [query]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, Boolean):
            left += (*node.must, *node.should, *node.must_not)[::-1]
        elif isinstance(node, Boost):
            left.append(node.child)


def largest_boost(query: SearchNode) -> float:
    """The largest factor that a part of a query is multiplied by.

    >>> largest_boost(Boost(Boolean(must=(Boost(Term(None, "a"), 3.0), Term(None, "b"))), 2.0))
    6.0
    """
    match query:
        case Boost(child=child, factor=factor):
            return factor * largest_boost(child)
        case Boolean(must=must, should=should):
            return max(map(largest_boost, (*must, *should)), default=1.0)
        case _:
            return 1.0


def fields(query: SearchNode) -> tuple[str | None, ...]:
    """The fields a query names, each once, in order; `None` for the search's own.

    >>> fields(Boolean(must=(Term(None, "a"), Term("title", "b"), Exists("title"))))
    (None, 'title')
    """
    named = (n.field for n in walk(query) if not isinstance(n, (All, Boolean, Boost)))
    return tuple(dict.fromkeys(named))


def map_leaves(query: SearchNode, change: Callable[[FieldNode], SearchNode]) -> SearchNode:
    """The query with what `change` returns in the place of every node that has a field.

    >>> map_leaves(Boost(Term(None, "a"), 2.0), lambda node: replace(node, field="title"))
    Boost(child=Term(field='title', text='a'), factor=2.0)
    """
    match query:
        case All():
            return query
        case Boost(child=child, factor=factor):
            return Boost(map_leaves(child, change), factor)
        case Boolean(must=must, should=should, must_not=must_not):
            parts = (must, should, must_not)
            return Boolean(*(tuple(map_leaves(node, change) for node in part) for part in parts))
        case _:
            return change(query)


def over_fields(
    query: SearchNode,
    names: Sequence[str] | Mapping[str, float],
    *,
    fits: Callable[[FieldNode], bool] = lambda _: True,
) -> SearchNode:
    """The query with every node that names no field asked of each of these fields that it fits.

    Fields may have weights, by which the scores of their words are multiplied.

    >>> print(over_fields(Term(None, "a"), ["x", "y"]))
    Boolean(must=(), should=(Term(field='x', text='a'), Term(field='y', text='a')), must_not=())
    """
    only = next(iter(names)) if len(names) == 1 else None
    if isinstance(names, Mapping) and only is not None and names[only] != 1:
        only = None

    def spread(node: FieldNode) -> SearchNode:
        if node.field is not None:
            return node
        if type(node) is Term and only is not None:  # what most are
            return Term(only, node.text, at=node.at)
        every = tuple(replace(node, field=name) for name in names)
        each = every if len(every) == 1 else tuple(filter(fits, every)) or every
        parts = tuple(_weighted(one, names) for one in each)
        return parts[0] if len(parts) == 1 else Boolean(should=parts)

    return map_leaves(query, spread)


def _weighted(node: FieldNode, names: Sequence[str] | Mapping[str, float]) -> SearchNode:
    weight = names[node.field or ""] if isinstance(names, Mapping) else 1.0
    return node if weight == 1 else Boost(node, weight)


# --- characters and words of a query ---------------------------------------------------------

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
    """Where a text has a lone surrogate, which is not a character and in no index.

    On a command line, bytes that are not UTF-8 become lone surrogates.
    """
    half = _HALF.search(text)
    return None if half is None else half.start()


def in_quotes(text: str) -> str:
    r"""A text as the search syntax has it in quotes; `Scanner.quoted` reads it again.

    >>> print(in_quotes('a "b"'))
    "a \"b\""
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


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
        """Skip blanks."""
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
        start, characters = self.at, []
        while (c := self.peek()) and not c.isspace() and c not in ends:
            escaped = c == "\\" and self.peek(1) != "" and not self.peek(1).isalnum()
            self.at += escaped
            characters.append(Character(self.peek(), escaped))
            self.at += 1
        if not characters:
            self.fail(
                f"{self.peek()!r} has no meaning here" if self.peek() else "a word is missing"
            )
        if self.peek() and self.peek() in '([{"':
            self.fail(
                f"{self.peek()!r} is inside the word "
                f"{self.text[start : self.at]!r}; put a blank or a backslash before it"
            )
        return characters

    def quoted(self) -> str:
        """Consume a text in quotes."""
        start, quote, text = self.at, self.peek(), ""
        self.at += 1
        while self.peek() != quote:
            if not self.peek():
                self.fail(f"the quote {quote} is never closed", start)
            if self.peek() == "\\" and self.peek(1) and not self.peek(1).isalnum():
                self.at += 1
            text += self.peek()
            self.at += 1
        self.at += 1
        return text


MAX_DISTANCE = 2
"""The largest distance that an index supports."""

MAX_PATTERN = 1_000
"""The longest pattern or fuzzy term: a longer one exceeds the index's automaton."""

_DEFAULT_DISTANCE = 1


def read_word(
    field: str | None, characters: Sequence[Character], *, fail: Callable[[str], NoReturn]
) -> SearchNode:
    """The node of one word.

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
    description: str, characters: Sequence[Character], fail: Callable[[str], NoReturn]
) -> None:
    if len(characters) > MAX_PATTERN:
        fail(f"{description} of {len(characters):,} characters is longer than {MAX_PATTERN:,}")


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
