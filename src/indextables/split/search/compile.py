"""From a bound query to a Tantivy query: booleans, words, phrases and patterns.

Tantivy's own parser is never used: it answers `a AND NOT b` with nothing and has no wildcards. A
leaf that the index cannot answer exactly compiles to `None`, and the rows are asked (`evaluate`).

Words pass the field's analyzer; several words where one was written are a phrase. What a pattern
or a range of words may match in a vocabulary is limited, because users do search for `*`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast
from zoneinfo import ZoneInfo

import pyarrow as pa
import tantivy

from indextables.config import MAX_EXPANSIONS
from indextables.errors import QueryError, TooManyExpansionsError
from indextables.predicate import (
    Exists,
    Fuzzy,
    Phrase,
    Placeholder,
    Range,
    Regex,
    Term,
    TermSet,
    Wildcard,
)
from indextables.predicate.search import FieldNode
from indextables.split.analyzer import Analyzer
from indextables.split.ip_address import parse_ranges, show_address
from indextables.split.mapping import FieldMapping
from indextables.split.search.engine import QueryBuilder, balanced, count_within, rows_decide
from indextables.split.search.query import LEAF_LEVELS, Boosted, Combined, Every, Leaf, Query
from indextables.split.search.typed import UTC, clip, intervals, words_decide
from indextables.split.text_steps import Word

if TYPE_CHECKING:
    from indextables.split.format.index import IndexSearcher

_KEPT_WORDS = 8_192

_Occur = tantivy.Occur
_ANY = r"(?s:.)"


@dataclass(frozen=True, kw_only=True)
class WordCompiler:
    """Compiles questions about words for one index."""

    schema: tantivy.Schema
    searcher: IndexSearcher
    max_expansions: int = MAX_EXPANSIONS.default
    term_counts: dict[str, int] = field(default_factory=dict)
    """How many different words a field has, where that is known."""
    pairwise: bool = False
    """Add scores two at a time, so that their sum does not depend on the order."""

    @functools.cached_property
    def build(self) -> QueryBuilder:
        """Builds queries for the index."""
        return QueryBuilder(self.schema, self.searcher)

    def words(self, target: FieldMapping, node: FieldNode) -> tantivy.Query | None:
        """The query for a question to a field of words; `None` if only the rows can decide."""
        match node:
            case Term(text=text):
                return self._sequence(target, target.analyzer.query_words(text))
            case Phrase(text=text, slop=slop, prefix=False):
                return self._sequence(target, target.analyzer.query_words(text), slop=slop)
            case Phrase(text=text, slop=slop):
                return self._phrase_prefix(target, target.analyzer.query_words(text), slop=slop)
            case Wildcard():
                return self._wildcard(target, node)
            case Regex(pattern=pattern):
                with self._pattern_errors(target, f"/{pattern}/"):
                    query = self.build.regex(target, pattern)
                self._count_matches(target, pattern, shown=f"/{pattern}/")
                return query
            case Fuzzy(text=text, distance=distance):
                words = target.analyzer.query_words(text)
                return self.all(self._fuzzy(target, word.text, distance) for word in words)
            case TermSet(values=values):
                return self._set(target, values)
            case Range():
                return None if target.kind != "text" else self._word_range(target, node)
            case _:
                return None

    def term(self, target: FieldMapping, word: str) -> tantivy.Query:
        """One word, as the analyzer gave it."""
        return self.build.term(target, word)

    def all(self, queries: Iterable[tantivy.Query]) -> tantivy.Query:
        """All of several queries; nothing if there are none."""
        all_queries = list(queries)
        if not all_queries:
            return self.build.nothing()
        if len(all_queries) == 1:
            return all_queries[0]
        if self.pairwise:
            return balanced([(0, q) for q in all_queries], functools.partial(pair, _Occur.Must))[1]
        return self.build.combined([(_Occur.Must, query) for query in all_queries])

    def _sequence(
        self, target: FieldMapping, words: list[Word], *, slop: int = 0
    ) -> tantivy.Query | None:
        """Words in order. Pieces of words have no order: all of them must be there."""
        if len(words) == 1:
            return self.term(target, words[0].text)
        if not words or target.analyzer.is_ngram:
            return self.all(self.term(target, word.text) for word in words)
        if target.record != "position" or rows_decide(words, slop):
            return None
        return self.near(target, words, slop) if slop else self._phrase(target, words)

    def _phrase(self, target: FieldMapping, words: list[Word], slop: int = 0) -> tantivy.Query:
        places = [(w.position - words[0].position, w.text) for w in words]
        return self.build.phrase(target, places, slop=slop)

    def near(self, target: FieldMapping, words: list[Word], slop: int) -> tantivy.Query:
        """All of the words, each neighbour of the phrase near enough: exact for two of them.

        The score is that of the words. Tantivy's score of a phrase with a slop depends on which
        word is the rarer one in a segment.
        """
        texts = dict.fromkeys(word.text for word in words)
        clauses = [self.term(target, text) for text in texts]
        if target.record == "position":
            clauses += [
                self.build.boosted(self._phrase(target, [one, following], slop), 0.0)
                for one, following in itertools.pairwise(words)
                if one.text != following.text
            ]
        return self.all(clauses)

    def _phrase_prefix(
        self, target: FieldMapping, words: list[Word], *, slop: int
    ) -> tantivy.Query | None:
        if not words:
            return self.build.nothing()
        if len(words) == 1 or target.analyzer.is_ngram:
            last = self._wildcard(target, Wildcard(None, (words[-1].text, Placeholder.MANY)))
            return self.all([*(self.term(target, w.text) for w in words[:-1]), last])
        if target.record != "position" or slop:
            return None
        # Tantivy's own phrase prefix stops at fifty words and would lose rows.
        matching = sorted(self.searcher.terms(target.field, words[-1].text))
        self._check_count(target, f"{words[-1].text}*", len(matching))
        choices = [
            self._sequence(target, [*words[:-1], Word(term, words[-1].position, 0, 0)])
            for term in matching
        ]
        clauses = [(_Occur.Should, choice) for choice in choices if choice is not None]
        if not clauses:
            return self.build.nothing()
        # One score for every ending, so that a split's vocabulary does not decide.
        return self.build.constant(self.build.combined(clauses))

    def _wildcard(self, target: FieldMapping, node: Wildcard) -> tantivy.Query:
        lower = target.analyzer.lower
        pattern = wildcard_pattern(target.analyzer, node)
        shown = "".join(part if isinstance(part, str) else part.value for part in node.parts)
        prefix = lower(node.prefix)
        with self._pattern_errors(target, shown):
            query = self.build.wildcard(target, pattern, prefix=prefix)
        self._count_matches(target, pattern, prefix=prefix, shown=shown)
        return query

    @contextlib.contextmanager
    def _pattern_errors(self, target: FieldMapping, shown: str) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            reason = str(error).strip().splitlines()[-1].removeprefix("error: ").rstrip("'")
            raise QueryError(
                f"The pattern {shown!r} on '{target.name}' is wrong: {reason}."
            ) from None

    def _fuzzy(self, target: FieldMapping, word: str, distance: int) -> tantivy.Query:
        if self._may_be_many(target):
            vocabulary = self.searcher.vocabulary(target.field)
            near = vocabulary.of_length(len(word) - distance, len(word) + distance)
            if len(near) > self.max_expansions:
                count = count_within(cast("list[str]", near.to_pylist()), word, distance)
                self._check_count(target, f"{word}~{distance}", count)
        return self.build.fuzzy(target, word, distance)

    def _set(self, target: FieldMapping, values: tuple[str, ...]) -> tantivy.Query | None:
        singles, clauses = [], []
        for value in values:
            words = target.analyzer.query_words(value)
            if len(words) == 1:
                singles.append(words[0].text)
            elif words:
                sequence = self._sequence(target, words)
                if sequence is None:
                    return None
                clauses.append((_Occur.Should, sequence))
        if singles:
            query = self.build.term_set(target, singles)
            clauses.append((_Occur.Should, query))
        if not clauses:
            return self.build.nothing()
        return self.build.constant(self.build.combined(clauses))

    def _word_range(self, target: FieldMapping, node: Range) -> tantivy.Query:
        lower = target.analyzer.lower
        words = self.searcher.vocabulary(target.field).between(
            None if node.lower is None else lower(node.lower).encode(),
            None if node.upper is None else lower(node.upper).encode(),
            with_low=node.include_lower,
            with_high=node.include_upper,
        )
        shown = f"[{node.lower or '*'} TO {node.upper or '*'}]"
        self._check_count(target, shown, len(words))
        return self.build.term_set(target, cast("list[str]", words.to_pylist()))

    # --- expansion ---

    def _count_matches(
        self, target: FieldMapping, pattern: str, *, shown: str, prefix: str = ""
    ) -> None:
        """Refuse a pattern that matches too many words. A small vocabulary needs no counting."""
        if not self._may_be_many(target):
            return
        vocabulary = self.searcher.vocabulary(target.field, prefix)
        if len(vocabulary.words) <= self.max_expansions:
            return
        spelled = pattern.replace("\0", r"\x00")  # RE2 takes a NUL only by its number
        try:
            count = vocabulary.count_matches(spelled)
        except pa.ArrowInvalid:
            return  # a spelling that only Tantivy knows; it compiles the pattern within its limits
        self._check_count(target, shown, count)

    def _may_be_many(self, target: FieldMapping) -> bool:
        count = self.term_counts.get(target.field)
        return count is None or count > self.max_expansions

    def _check_count(self, target: FieldMapping, shown: str, count: int) -> None:
        if count > self.max_expansions:
            raise TooManyExpansionsError(
                shown, field=target.name, found=count, limit=self.max_expansions
            )


def pair(occur: tantivy.Occur, left: tantivy.Query, right: tantivy.Query) -> tantivy.Query:
    """Two queries in one."""
    return QueryBuilder.combined([(occur, left), (occur, right)])


def wildcard_pattern(analyzer: Analyzer, node: Wildcard) -> str:
    """The regular expression that matches the words a wildcard means.

    >>> parts = ("Da", Placeholder.ONE, "a", Placeholder.MANY)
    >>> wildcard_pattern(Analyzer("default"), Wildcard(None, parts))
    'da(?s:.)a(?s:.)*'
    """
    return "".join(
        escape(analyzer.lower(part))
        if isinstance(part, str)
        else f"{_ANY}*"
        if part is Placeholder.MANY
        else _ANY
        for part in node.parts
    )


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


@dataclass(frozen=True, kw_only=True)
class Compiler(WordCompiler):
    """Compiles for one index. `types` are those of the columns."""

    types: Callable[[str], pa.DataType]
    zone: ZoneInfo = UTC
    compiled_words: dict[tuple[str, str], tantivy.Query] | None = None
    """Queries for words by field and text, of an index to which they need not be named again."""

    def compile(self, query: Query) -> tantivy.Query | None:
        """The Tantivy query for exactly the same rows, or `None` if only the rows can decide."""
        compiled = self._compile(query)
        return None if compiled is None else compiled[1]

    def _compile(self, query: Query) -> tuple[int, tantivy.Query] | None:
        """The query and how many levels it is nested, as `query.levels` counts them."""
        match query:
            case Every():
                return LEAF_LEVELS, self._scored(self.build.everything())
            case Leaf():
                leaf = self.leaf(query)
                return None if leaf is None else (LEAF_LEVELS, leaf)
            case Boosted(child=child, factor=factor):
                inner = self._compile(child)
                if inner is None:
                    return None
                return inner[0] + 1, self.build.boosted(inner[1], factor)
            case Combined():
                return self._combined(query)

    def _combined(self, query: Combined) -> tuple[int, tantivy.Query] | None:
        if not query.must and not query.should:
            return LEAF_LEVELS, self.build.nothing()
        groups = []
        deepest = 0
        for occur, children in (
            (_Occur.Must, query.must),
            (_Occur.Should, query.should),
            (_Occur.MustNot, query.must_not),
        ):
            compiled_children = []
            for child in children:
                compiled = self._compile(child)
                if compiled is None:
                    return None
                compiled_children.append(compiled)
            if self.pairwise and occur is not _Occur.MustNot and len(compiled_children) > 1:
                compiled_children = [balanced(compiled_children, functools.partial(pair, occur))]
            deepest = max([deepest, *(levels for levels, _ in compiled_children)])
            groups += [(occur, child) for _, child in compiled_children]
        return deepest + 1, self.build.combined(groups)

    def word(self, query: Query) -> tuple[str, str] | None:
        """The field of the index and the word, if a query asks for one word and nothing else."""
        if not isinstance(query, Leaf) or query.field.kind not in ("text", "string"):
            return None
        if type(query.node) is not Term or query.path or not query.field.field:
            return None
        words = query.field.analyzer.query_words(query.node.text)
        return (query.field.field, words[0].text) if len(words) == 1 else None

    def leaf(self, leaf: Leaf) -> tantivy.Query | None:
        """The Tantivy query of one leaf."""
        if type(leaf.node) is Term and leaf.field.kind == "text" and leaf.field.field:
            return None if leaf.path else self._word(leaf.field, leaf.node.text)
        if self._asks_nothing(leaf):
            return self.build.nothing()
        if leaf.path or not leaf.field.field:
            return None
        if isinstance(leaf.node, Exists):
            # NaN and text that is not an address have a value, but none in the index.
            fast = leaf.field.fast and leaf.field.kind not in ("f64", "ip")
            return self._scored(self.build.exists(leaf.field)) if fast else None
        if leaf.field.kind == "json" and not words_decide(leaf.node, leaf.field.analyzer):
            return None
        if leaf.field.has_words:
            return self.words(leaf.field, leaf.node)
        return self._ip(leaf) if leaf.field.kind == "ip" else self._typed(leaf)

    def _word(self, target: FieldMapping, text: str) -> tantivy.Query | None:
        """The query of one word, as most leaves are; an earlier search may have compiled it."""
        cached = (
            None if self.compiled_words is None else self.compiled_words.get((target.field, text))
        )
        if cached is not None:
            return cached
        words = target.analyzer.query_words(text)
        compiled = self._sequence(target, words)
        if self.compiled_words is not None and compiled is not None and len(words) == 1:
            if len(self.compiled_words) >= _KEPT_WORDS:
                self.compiled_words.clear()
            self.compiled_words[target.field, text] = compiled
        return compiled

    def _scored(self, query: tantivy.Query) -> tantivy.Query:
        """A query that may match all documents of a segment, with the score 1.

        Tantivy leaves out such a part of a query, and its score with it, where it sees it is one.
        """
        return self.build.constant(query) if self.pairwise else query

    def _asks_nothing(self, leaf: Leaf) -> bool:
        """Whether no value of the column's type can match, so that it need not be read."""
        if leaf.path or leaf.field.has_words or isinstance(leaf.node, Exists):
            return False
        if leaf.field.kind == "ip":
            return not parse_ranges(leaf.node)
        return not intervals(leaf.node, self._type(leaf), self.zone)

    def _type(self, leaf: Leaf) -> pa.DataType:
        data_type = self.types(leaf.field.name)
        while pa.types.is_list(data_type):
            data_type = data_type.value_type
        return data_type

    def candidates(self, leaf: Leaf) -> tantivy.Query | None:
        """A query for a leaf that finds all its rows and perhaps more; `None` if there is none."""
        if not leaf.field.field or not leaf.field.has_words:
            return None
        node = leaf.node
        if leaf.path and isinstance(node, (Exists, Range)):
            return None
        if isinstance(node, (Term, Phrase)):
            words = leaf.field.analyzer.query_words(node.text)
            slop = node.slop if isinstance(node, Phrase) else 0
            exact = leaf.field.record == "position" and not leaf.path
            if isinstance(node, Phrase) and node.prefix:
                words = words[:-1]
                exact = exact and not slop
            elif exact and rows_decide(words, slop) and not leaf.field.analyzer.is_ngram:
                return self.near(leaf.field, words, slop)
            if exact:
                return self.words(leaf.field, node)
            if not words:
                return None
            return self.all(self.term(leaf.field, word.text) for word in words)
        return self.words(leaf.field, node)

    def _ip(self, leaf: Leaf) -> tantivy.Query:
        target = leaf.field
        clauses = [
            (
                _Occur.Should,
                self.build.between(
                    target,
                    tantivy.FieldType.IpAddr,
                    show_address(low),
                    show_address(high),
                    use_inverted_index=not target.fast,
                ),
            )
            for low, high in parse_ranges(leaf.node)
        ]
        return self.build.constant(self.build.combined(clauses))

    def _typed(self, leaf: Leaf) -> tantivy.Query | None:
        target, data_type = leaf.field, self._type(leaf)
        clauses = []
        for interval in intervals(leaf.node, data_type, self.zone) or ():
            if target.kind == "f64":
                query = self.build.between(
                    target,
                    tantivy.FieldType.Float,
                    interval.low + 0.0,
                    interval.high + 0.0,
                    include_lower=interval.include_low,
                    include_upper=interval.include_high,
                )
            else:
                clipped = clip(interval)
                if clipped is None:
                    continue
                query = self.build.between(
                    target, tantivy.FieldType.Integer, clipped.low, clipped.high
                )
            clauses.append((_Occur.Should, query))
        return self.build.constant(self.build.combined(clauses))
