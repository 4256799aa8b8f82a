"""A predicate as a question to an XRef: which terms a split must have for a row of it to match.

Every rule may keep extra splits; none may drop one that matches. AND is an intersection of splits
and OR a union. NOT, ranges and whatever an XRef cannot know are `EVERYTHING`: a split that has the
word may have rows without it. `NOTHING` is answered only where no row of any table could match.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from indextables.errors import QueryError
from indextables.predicate import (
    And,
    Compare,
    Condition,
    Constant,
    Exists,
    Expression,
    FieldNode,
    Fuzzy,
    In,
    Not,
    Or,
    Phrase,
    Placeholder,
    Predicate,
    Range,
    Regex,
    Search,
    StartsWith,
    Term,
    TermSet,
    Wildcard,
    normalise,
)
from indextables.split.format import number_texts, path_key, truth_text, value_texts
from indextables.split.ip_address import parse_address, parse_ranges
from indextables.split.mapping import FieldMapping
from indextables.split.search import (
    Boosted,
    Combined,
    Every,
    Leaf,
    Query,
    SearchContext,
    clip,
    intervals,
    may_propose,
    wildcard_pattern,
)
from indextables.xref.fields import TermField, pair_field, pairs, path_field, term_field

MAX_VALUES = 10_000
"""A longer IN list is not asked."""
MAX_SPAN = 512
"""A longer range of whole numbers, days or addresses is not asked value by value."""


@dataclass(frozen=True, slots=True)
class Everything:
    """Any split may match."""


@dataclass(frozen=True, slots=True)
class HasAny:
    """The split has one of these terms."""

    field: TermField
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HasMatch:
    """The split has a term that a whole regular expression matches."""

    field: TermField
    pattern: str


@dataclass(frozen=True, slots=True)
class HasNear:
    """The split has a term at most so many edits away."""

    field: TermField
    term: str
    distance: int


@dataclass(frozen=True, slots=True)
class AllOf:
    """The split satisfies all of these."""

    children: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The split satisfies one of these; none of none."""

    children: tuple[Question, ...]


TermQuestion: TypeAlias = HasAny | HasMatch | HasNear
Question: TypeAlias = Everything | TermQuestion | AllOf | AnyOf

EVERYTHING = Everything()
NOTHING = AnyOf(())


def ask(predicate: Predicate, context: SearchContext) -> Question:
    """The question that a split must answer for one of its rows to meet the predicate."""
    question = _Asker(context).predicate(normalise(predicate))
    return _with_defaults(question, context.defaults) if context.defaults else question


def _with_defaults(question: Question, defaults: Collection[str]) -> Question:
    """The same question, whose fields say whether rows have a value that their split lacks."""
    match question:
        case AllOf(children=children) | AnyOf(children=children):
            return replace(
                question, children=tuple(_with_defaults(child, defaults) for child in children)
            )
        case HasAny(field=field) | HasMatch(field=field) | HasNear(field=field):
            return replace(question, field=replace(field, has_default=field.column in defaults))
        case Everything():
            return question


def all_of(children: Iterable[Question]) -> Question:
    """The intersection, flat."""
    parts = tuple(dict.fromkeys(child for child in children if child != EVERYTHING))
    if NOTHING in parts:
        return NOTHING
    return parts[0] if len(parts) == 1 else AllOf(parts) if parts else EVERYTHING


def any_of(children: Iterable[Question]) -> Question:
    """The union, flat."""
    parts = tuple(dict.fromkeys(child for child in children if child != NOTHING))
    if EVERYTHING in parts:
        return EVERYTHING
    return parts[0] if len(parts) == 1 else AnyOf(parts)


def levels(question: Question) -> int:
    """How deeply a question is nested."""
    match question:
        case AllOf(children=children) | AnyOf(children=children):
            return 1 + max(map(levels, children), default=0)
        case _:
            return 1


def term_questions(question: Question) -> Iterator[TermQuestion]:
    """The leaves that ask about terms."""
    match question:
        case AllOf(children=children) | AnyOf(children=children):
            for child in children:
                yield from term_questions(child)
        case HasAny() | HasMatch() | HasNear():
            yield question
        case Everything():
            pass


@dataclass(frozen=True, slots=True)
class _Asker:
    context: SearchContext

    def predicate(self, node: Predicate) -> Question:
        match node:
            case And(children=children):
                return all_of([*map(self.predicate, children), *self.spans(children)])
            case Or(children=children):
                return any_of(map(self.predicate, children))
            case Constant(value=value):
                return EVERYTHING if value else NOTHING
            case Search():
                return self.search(node)
            case Not() | Expression():
                return EVERYTHING
            case _:
                return self.condition(node)

    # --- SQL conditions ----------------------------------------------------------------------

    def condition(self, node: Condition) -> Question:
        mapped = self.mapped(node)
        if mapped is None:
            return EVERYTHING
        match node:
            case Compare(op="=" | "<=>", value=value):
                return self.equal(mapped, (value,))
            case In(values=values):
                return self.equal(mapped, values)
            case StartsWith(text=text) if text and mapped.kind == "string":
                return self.pattern(mapped, Wildcard(None, (text, Placeholder.MANY)))
            case _:
                return EVERYTHING

    def mapped(self, node: Condition) -> FieldMapping | None:
        """The mapping of a condition's column, if it is a column of plain values."""
        if node.column.path[1:]:
            return None
        mapped = self.context.mapping.by_name.get(node.column.root)
        return None if mapped is None or mapped.kind == "json" else mapped

    def equal(self, mapped: FieldMapping, values: Sequence[Any]) -> Question:
        data_type = self.context.schema.field(mapped.name).type
        field = term_field(mapped, data_type)
        if field is None or len(values) > MAX_VALUES or pa.types.is_nested(data_type):
            return EVERYTHING
        if mapped.kind == "text":
            return any_of(self.equal_text(field, mapped, str(value)) for value in values)
        if mapped.kind == "string" and any(_is_long(value, mapped) for value in values):
            return EVERYTHING
        if mapped.kind == "ip" and any(parse_address(str(value)) is None for value in values):
            return EVERYTHING
        try:
            texts = value_texts(pa.array(values, data_type), mapped).to_pylist()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return EVERYTHING  # a literal of another type, which was not coerced
        return HasAny(field, tuple(dict.fromkeys(texts)))

    def equal_text(self, field: TermField, mapped: FieldMapping, text: str) -> Question:
        """A value has all the words of an equal one. A text without words says nothing."""
        words = [word.text for word in mapped.analyzer.words(text)]
        if not words or (mapped.analyzer.is_whole and _is_long(text, mapped)):
            return EVERYTHING
        return all_of(HasAny(field, (word,)) for word in words)

    def spans(self, children: Sequence[Predicate]) -> Iterator[Question]:
        """Two bounds of one column, as BETWEEN has them, if few values lie between."""
        bounds: dict[str, dict[str, int]] = {}
        for node in children:
            if not isinstance(node, Compare) or node.op not in ("<", "<=", ">", ">="):
                continue
            mapped, number = self.mapped(node), _as_integer(node.value)
            if mapped is None or number is None:
                continue
            ends = bounds.setdefault(mapped.name, {})
            if node.op[0] == "<":
                high = number - (node.op == "<")
                ends["high"] = min(high, ends.get("high", high))
            else:
                low = number + (node.op == ">")
                ends["low"] = max(low, ends.get("low", low))
        for name, ends in bounds.items():
            mapped = self.context.mapping.by_name[name]
            field = term_field(mapped, self.context.schema.field(name).type)
            if field is not None and field.meaning in ("int", "date") and len(ends) == 2:
                yield _between(field, ends["low"], ends["high"])

    # --- searches ----------------------------------------------------------------------------

    def search(self, search: Search) -> Question:
        try:
            query = self.context.resolved(search)
        except QueryError:
            return EVERYTHING  # the reader of the rows raises the error
        return self.query(query)

    def query(self, query: Query) -> Question:
        match query:
            case Every():
                return EVERYTHING
            case Boosted(child=child):
                return self.query(child)
            case Combined(must=must, should=should):
                # Beside `must`, `should` only scores. `must_not` is about rows, not splits.
                return all_of(map(self.query, must)) if must else any_of(map(self.query, should))
            case Leaf():
                return self.leaf(query)

    def leaf(self, leaf: Leaf) -> Question:
        mapped = leaf.field
        data_type = self.context.schema.field(mapped.name).type
        field = term_field(mapped, data_type)
        if field is None or isinstance(leaf.node, Exists):
            return EVERYTHING
        if mapped.has_words:
            words = self.words(leaf, field) if may_propose(leaf, data_type) else EVERYTHING
            return all_of([words, self.below(leaf)]) if leaf.path else words
        if leaf.path:
            return EVERYTHING
        if mapped.kind == "ip":
            ranges = parse_ranges(leaf.node)
            return any_of(_between(field, low, high) for low, high in ranges)
        return self.typed(leaf, field, data_type)

    def typed(self, leaf: Leaf, field: TermField, data_type: pa.DataType) -> Question:
        while pa.types.is_list(data_type):
            data_type = data_type.value_type
        ranges = intervals(leaf.node, data_type, self.context.zone)
        if ranges is None or field.meaning.startswith("decimal"):
            return EVERYTHING
        if field.meaning == "float":
            if any(i.low != i.high for i in ranges):
                return EVERYTHING
            texts = value_texts(pa.array([float(i.low) for i in ranges], pa.float64()), leaf.field)
            return HasAny(field, tuple(texts.to_pylist())) if ranges else NOTHING
        clipped = [i for i in map(clip, ranges) if i is not None]
        return any_of(_between(field, int(i.low), int(i.high)) for i in clipped)

    def words(self, leaf: Leaf, field: TermField) -> Question:
        mapped, node = leaf.field, leaf.node
        match node:
            case Term(text=text) | Phrase(text=text, prefix=False):
                return self.sequence(leaf, field, text)
            case Phrase(text=text):
                *words, last = [w.text for w in mapped.analyzer.query_words(text)] or [""]
                if not last:
                    return self.no_words(leaf)
                ending = self.pattern(mapped, Wildcard(None, (last, Placeholder.MANY)))
                return all_of([*(HasAny(field, (word,)) for word in words), ending])
            case TermSet(values=values):
                return any_of(self.sequence(leaf, field, value) for value in values)
            case Wildcard():
                return self.pattern(mapped, node)
            case Regex(pattern=pattern):
                return HasMatch(field, pattern)
            case Fuzzy(text=text, distance=distance):
                words = [w.text for w in mapped.analyzer.query_words(text)]
                if not words:
                    return self.no_words(leaf)
                return all_of(HasNear(field, word, distance) for word in words)
            case Range() | _:
                return EVERYTHING

    def below(self, leaf: Leaf) -> Question:
        """What a leaf asks of the values below its path: words of texts, or equal values.

        Nothing is concluded from a question without terms: a split without a path list may hold
        values of other types.
        """
        field, key, node = path_field(leaf.field), path_key(leaf.path), leaf.node
        words = leaf.field.analyzer.query_words
        if field is None:
            return EVERYTHING
        match node:
            case Term(text=text) | Phrase(text=text, prefix=False):
                texts: tuple[str, ...] = (text,)
            case TermSet(values=values):
                texts = values
            case Wildcard():
                pattern = wildcard_pattern(leaf.field.analyzer, node)
                return HasMatch(field, f"{key}w(?:{pattern})")
            case Regex(pattern=pattern):
                return HasMatch(field, f"{key}w(?:{pattern})")
            case Fuzzy(text=text, distance=distance):
                near = [HasNear(field, f"{key}w{w.text}", distance) for w in words(text)]
                return all_of(near)
            case _:
                return EVERYTHING
        choices = [
            all_of(HasAny(field, (f"{key}w{w.text}",)) for w in in_path)
            for text in texts
            if (in_path := words(text))
        ]
        typed = tuple(key + term for term in _typed_terms(node))
        if typed:
            choices.append(HasAny(field, typed))
        return any_of(choices) if choices else EVERYTHING

    def sequence(self, leaf: Leaf, field: TermField, text: str) -> Question:
        words = [w.text for w in leaf.field.analyzer.query_words(text)]
        if not words:
            return self.no_words(leaf)
        return all_of([*(HasAny(field, (word,)) for word in words), *self.pairs(leaf, text)])

    def pairs(self, leaf: Leaf, text: str) -> Iterator[Question]:
        """The neighbours in a phrase, for XRefs that know pairs. Words that may move have none."""
        field = pair_field(leaf.field)
        moves = isinstance(leaf.node, Phrase) and leaf.node.slop
        if field is not None and not moves:
            for pair in pairs(leaf.field.analyzer.query_words(text)):
                yield HasAny(field, (pair,))

    def no_words(self, leaf: Leaf) -> Question:
        """Nothing matches no words, except values inside a column that are compared by type."""
        return EVERYTHING if leaf.field.kind == "json" else NOTHING

    def pattern(self, mapped: FieldMapping, node: Wildcard) -> Question:
        field = term_field(mapped, self.context.schema.field(mapped.name).type)
        if field is None or _is_long("".join(p for p in node.parts if isinstance(p, str)), mapped):
            return EVERYTHING
        return HasMatch(field, wildcard_pattern(mapped.analyzer, node))


def _typed_terms(node: FieldNode) -> list[str]:
    """The terms of numbers and truth values that a node may mean."""
    numbers = [i.low for i in intervals(node, pa.float64()) or () if i.low == i.high]
    truths = [i.low for i in intervals(node, pa.bool_()) or () if i.low == i.high]
    return [*number_texts(numbers), *(truth_text(bool(truth)) for truth in truths)]


def _between(field: TermField, low: int, high: int) -> Question:
    if high - low >= MAX_SPAN:
        return EVERYTHING
    return HasAny(field, tuple(map(str, range(low, high + 1)))) if low <= high else NOTHING


def _as_integer(value: object) -> int | None:
    """A whole number or a day as the number that stands for it in a list of values."""
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return (value - datetime.date(1970, 1, 1)).days
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_long(text: object, mapped: FieldMapping) -> bool:
    """Whether a whole value is too long for an index, which then knows nothing about it."""
    return len(str(text).encode()) > mapped.token_length
