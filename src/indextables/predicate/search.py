"""What a search query asks, as a tree: the part of a predicate that an index answers.

Every node may name a `field`; `None` means the field or fields of the `Search` that holds the
query. A field is text as the user wrote it, possibly a path into JSON such as `user.name`, with a
dot inside a key escaped as `\\.`. `indextables.predicate.names.resolve_field` turns it into a
column and the rest of the path, once the schema is known. Words are raw text: whoever evaluates
the tree runs the field's own analyzer on them.

A search is true or false, never null: a row whose field is null has no words.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias


def _position() -> Any:
    """Where the query says it, for messages: nodes that ask the same are equal anywhere."""
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
    match query:
        case All():
            return query
        case Boost(child=child, factor=factor):
            return Boost(over_fields(child, names, fits=fits), factor)
        case Boolean(must=must, should=should, must_not=must_not):
            return Boolean(
                tuple(over_fields(child, names, fits=fits) for child in must),
                tuple(over_fields(child, names, fits=fits) for child in should),
                tuple(over_fields(child, names, fits=fits) for child in must_not),
            )
        case _ if query.field is not None:
            return query
        case _:
            every = tuple(_asked_of(query, name) for name in names)
            each = every if len(every) == 1 else tuple(filter(fits, every)) or every
            parts = tuple(_weighted(node, names) for node in each)
            return parts[0] if len(parts) == 1 else Boolean(should=parts)


def _asked_of(node: FieldNode, name: str) -> FieldNode:
    if type(node) is Term:  # what most are; `replace` takes ten times as long
        return Term(name, node.text, at=node.at)
    return replace(node, field=name)


def _weighted(node: FieldNode, names: Sequence[str] | Mapping[str, float]) -> SearchNode:
    weight = names[node.field or ""] if isinstance(names, Mapping) else 1.0
    return node if weight == 1 else Boost(node, weight)
