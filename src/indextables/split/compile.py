"""From a bound query to a Tantivy query.

Tantivy's own parser is never used: it answers `a AND NOT b` with nothing and knows no wildcards.
Words pass the field's analyzer; several words where one was written are a phrase. A leaf that the
index cannot answer exactly compiles to `None`, and the rows are asked (`rowwise`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

import pyarrow as pa
import tantivy

from indextables.errors import QueryError, TooManyExpansionsError
from indextables.predicate import (
    Exists,
    Fuzzy,
    Jolly,
    Phrase,
    Range,
    Regex,
    Term,
    TermSet,
    Wildcard,
)
from indextables.split.analyzer import Word
from indextables.split.ip_address import parse_ranges, show_address
from indextables.split.mapping import FieldMapping
from indextables.split.query import Boosted, Combined, Every, Leaf, Query
from indextables.split.typed import UTC, clip, intervals

DEFAULT_MAX_EXPANSIONS = 100_000

_Occur = tantivy.Occur
_ANY = r"(?s:.)"


@dataclass(frozen=True)
class Compiler:
    """Compiles for one index. `types` are those of the columns."""

    schema: tantivy.Schema
    searcher: tantivy.Searcher
    types: Callable[[str], pa.DataType]
    zone: ZoneInfo = UTC
    max_expansions: int = DEFAULT_MAX_EXPANSIONS
    term_counts: dict[str, int] = field(default_factory=dict)
    pairwise: bool = False
    """Add scores two at a time, so that their sum does not depend on who is added first."""

    def compile(self, query: Query) -> tantivy.Query | None:
        """The Tantivy query for exactly the same rows, or `None` if the rows must be asked."""
        match query:
            case Every():
                return tantivy.Query.all_query()
            case Leaf():
                return self.leaf(query)
            case Boosted(child=child, factor=factor):
                inner = self.compile(child)
                return None if inner is None else tantivy.Query.boost_query(inner, factor)
            case Combined():
                return self._combined(query)

    def _combined(self, query: Combined) -> tantivy.Query | None:
        if not query.must and not query.should:
            return tantivy.Query.empty_query()
        groups = []
        for occur, children in (
            (_Occur.Must, query.must),
            (_Occur.Should, query.should),
            (_Occur.MustNot, query.must_not),
        ):
            compiled = [self.compile(child) for child in children]
            known = [child for child in compiled if child is not None]
            if len(known) < len(compiled):
                return None
            if self.pairwise and occur is not _Occur.MustNot and len(known) > 1:
                known = [functools.reduce(functools.partial(_pair, occur), known)]
            groups += [(occur, child) for child in known]
        return tantivy.Query.boolean_query(groups)

    def leaf(self, leaf: Leaf) -> tantivy.Query | None:
        """The Tantivy query of one leaf."""
        if leaf.path or not leaf.field.field:
            return None
        if isinstance(leaf.node, Exists):
            # NaN and text that is no address have a value, but none in the index.
            fast = leaf.field.fast and leaf.field.kind not in ("f64", "ip")
            return tantivy.Query.exists_query(leaf.field.field) if fast else None
        if leaf.field.has_words:
            return self._words(leaf)
        return self._ip(leaf) if leaf.field.kind == "ip" else self._typed(leaf)

    def candidates(self, leaf: Leaf) -> tantivy.Query | None:
        """A query for a leaf that finds all its rows and perhaps more; `None` if there is none."""
        if not leaf.field.field or not leaf.field.has_words:
            return None
        node = leaf.node
        if leaf.path and isinstance(node, (Exists, Range)):
            return None
        if isinstance(node, (Term, Phrase)) and (leaf.field.record != "position" or leaf.path):
            words = leaf.field.analyzer.words(node.text)
            if isinstance(node, Phrase) and node.prefix:
                words = words[:-1]
            if not words:
                return None
            return self._all(self._term(leaf.field, word.text) for word in words)
        return self._words(Leaf(leaf.field, node))

    # --- words ---

    def _words(self, leaf: Leaf) -> tantivy.Query | None:
        target, node = leaf.field, leaf.node
        match node:
            case Term(text=text):
                return self._sequence(target, target.analyzer.words(text))
            case Phrase(text=text, slop=slop, prefix=False):
                return self._sequence(target, target.analyzer.words(text), slop=slop)
            case Phrase(text=text, slop=slop):
                return self._phrase_prefix(target, target.analyzer.words(text), slop=slop)
            case Wildcard():
                return self._wildcard(target, node)
            case Regex(pattern=pattern):
                return self._regex(target, pattern, shown=f"/{pattern}/")
            case Fuzzy(text=text, distance=distance):
                words = target.analyzer.words(text)
                return self._all(self._fuzzy(target, word.text, distance) for word in words)
            case TermSet(values=values):
                return self._set(target, values)
            case Range():
                return None if target.kind != "text" else self._word_range(target, node)
            case _:
                return None

    def _term(self, target: FieldMapping, word: str) -> tantivy.Query:
        return tantivy.Query.term_query(self.schema, target.field, word, index_option=target.record)

    def _all(self, queries: Iterable[tantivy.Query]) -> tantivy.Query:
        known = list(queries)
        if not known:
            return tantivy.Query.empty_query()
        if self.pairwise:
            return functools.reduce(functools.partial(_pair, _Occur.Must), known)
        return (
            known[0]
            if len(known) == 1
            else tantivy.Query.boolean_query([(_Occur.Must, query) for query in known])
        )

    def _sequence(
        self, target: FieldMapping, words: list[Word], *, slop: int = 0
    ) -> tantivy.Query | None:
        """Words in order. Pieces of words have no order: all of them must be there."""
        if len(words) <= 1 or target.analyzer.is_ngram:
            return self._all(self._term(target, word.text) for word in words)
        if target.record != "position":
            return None
        places: list[str | tuple[int, str]] = [
            (w.position - words[0].position, w.text) for w in words
        ]
        return tantivy.Query.phrase_query(self.schema, target.field, places, slop=slop)

    def _phrase_prefix(
        self, target: FieldMapping, words: list[Word], *, slop: int
    ) -> tantivy.Query | None:
        if not words:
            return tantivy.Query.empty_query()
        if len(words) == 1 or target.analyzer.is_ngram:
            last = self._wildcard(target, Wildcard(None, (words[-1].text, Jolly.MANY)))
            return self._all([*(self._term(target, w.text) for w in words[:-1]), last])
        if target.record != "position":
            return None
        # Tantivy's own phrase prefix stops at fifty words and would lose rows.
        found = self._matching_terms(target, prefix=words[-1].text)
        self._check_count(target, f"{words[-1].text}*", len(found))
        choices = [
            self._sequence(target, [*words[:-1], Word(term, words[-1].position, 0, 0)], slop=slop)
            for term in found
        ]
        clauses = [(_Occur.Should, choice) for choice in choices if choice is not None]
        if not clauses:
            return tantivy.Query.empty_query()
        # One score for every ending, so that a split's vocabulary does not decide.
        return _constant(tantivy.Query.boolean_query(clauses))

    def _wildcard(self, target: FieldMapping, node: Wildcard) -> tantivy.Query:
        lower = target.analyzer.lower
        pattern = "".join(
            escape(lower(part))
            if isinstance(part, str)
            else f"{_ANY}*"
            if part is Jolly.MANY
            else _ANY
            for part in node.parts
        )
        shown = "".join(part if isinstance(part, str) else part.value for part in node.parts)
        self._count_matches(target, pattern, prefix=lower(node.prefix), shown=shown)
        return self._regex(target, pattern, shown=shown)

    def _regex(self, target: FieldMapping, pattern: str, *, shown: str) -> tantivy.Query:
        try:
            return tantivy.Query.regex_query(self.schema, target.field, pattern)
        except ValueError as error:
            reason = str(error).strip().splitlines()[-1].removeprefix("error: ").rstrip("'")
            raise QueryError(
                f"The pattern {shown!r} on '{target.name}' is wrong: {reason}."
            ) from None

    def _fuzzy(self, target: FieldMapping, word: str, distance: int) -> tantivy.Query:
        return tantivy.Query.fuzzy_term_query(
            self.schema, target.field, word, distance=distance, transposition_cost_one=True
        )

    def _set(self, target: FieldMapping, values: tuple[str, ...]) -> tantivy.Query | None:
        singles, clauses = [], []
        for value in values:
            words = target.analyzer.words(value)
            if len(words) == 1:
                singles.append(words[0].text)
            elif words:
                sequence = self._sequence(target, words)
                if sequence is None:
                    return None
                clauses.append((_Occur.Should, sequence))
        if singles:
            query = tantivy.Query.term_set_query(self.schema, target.field, singles)
            clauses.append((_Occur.Should, query))
        if not clauses:
            return tantivy.Query.empty_query()
        return _constant(tantivy.Query.boolean_query(clauses))

    def _word_range(self, target: FieldMapping, node: Range) -> tantivy.Query:
        lower = target.analyzer.lower
        inside = in_range(node, lower)
        found = self._matching_terms(target, inside)
        shown = f"[{node.lower or '*'} TO {node.upper or '*'}]"
        self._check_count(target, shown, len(found))
        return tantivy.Query.term_set_query(self.schema, target.field, found)

    # --- expansion ---

    def _matching_terms(
        self,
        target: FieldMapping,
        keep: Callable[[str], object] | None = None,
        *,
        prefix: str = "",
    ) -> list[str]:
        terms = self.searcher.terms_with_prefix(target.field, prefix)
        return sorted(term for term, _ in terms if keep is None or keep(term))

    def _count_matches(
        self, target: FieldMapping, pattern: str, *, prefix: str, shown: str
    ) -> None:
        """Refuse a pattern that matches too many words. A small vocabulary needs no counting."""
        known = self.term_counts.get(target.field)
        if known is not None and known <= self.max_expansions:
            return
        found = self._matching_terms(target, re.compile(pattern).fullmatch, prefix=prefix)
        self._check_count(target, shown, len(found))

    def _check_count(self, target: FieldMapping, shown: str, found: int) -> None:
        if found > self.max_expansions:
            raise TooManyExpansionsError(
                shown, field=target.name, found=found, limit=self.max_expansions
            )

    # --- values ---

    def _ip(self, leaf: Leaf) -> tantivy.Query:
        target = leaf.field
        clauses = [
            (
                _Occur.Should,
                tantivy.Query.range_query(
                    self.schema,
                    target.field,
                    tantivy.FieldType.IpAddr,
                    show_address(low),
                    show_address(high),
                    use_inverted_index=not target.fast,
                ),
            )
            for low, high in parse_ranges(leaf.node)
        ]
        return _constant(tantivy.Query.boolean_query(clauses))

    def _typed(self, leaf: Leaf) -> tantivy.Query | None:
        target, kind = leaf.field, self.types(leaf.field.name)
        while pa.types.is_list(kind):
            kind = kind.value_type
        clauses = []
        for wanted in intervals(leaf.node, kind, self.zone) or ():
            if target.kind == "f64":
                query = tantivy.Query.range_query(
                    self.schema,
                    target.field,
                    tantivy.FieldType.Float,
                    wanted.low + 0.0,
                    wanted.high + 0.0,
                    include_lower=wanted.include_low,
                    include_upper=wanted.include_high,
                )
            else:
                clipped = clip(wanted)
                if clipped is None:
                    continue
                query = tantivy.Query.range_query(
                    self.schema, target.field, tantivy.FieldType.Integer, clipped.low, clipped.high
                )
            clauses.append((_Occur.Should, query))
        return _constant(tantivy.Query.boolean_query(clauses))


def _pair(occur: tantivy.Occur, left: tantivy.Query, right: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.boolean_query([(occur, left), (occur, right)])


def _constant(query: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.const_score_query(query, 1.0)


@functools.lru_cache(maxsize=1_024)
def escape(text: str) -> str:
    """Text as a regular expression that matches only itself.

    >>> escape("a.b")
    'a\\\\.b'
    """
    return re.sub(
        r"[^\w\s]", lambda match: "\\" + match[0] if match[0].isascii() else match[0], text
    )


def in_range(node: Range, lower: Callable[[str], str]) -> Callable[[str], bool]:
    """Whether a word lies between the bounds, in the order of its UTF-8 bytes."""
    low = None if node.lower is None else lower(node.lower).encode()
    high = None if node.upper is None else lower(node.upper).encode()

    def inside(word: str) -> bool:
        data = word.encode()
        if low is not None and (data < low or (data == low and not node.include_lower)):
            return False
        return high is None or data < high or (data == high and node.include_upper)

    return inside
