"""From words, phrases and patterns to Tantivy queries.

Words pass the field's analyzer; several words where one was written are a phrase. What a pattern
or a range of words may match in a vocabulary is limited, because somebody will search for `*`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from indextables.errors import QueryError, TooManyExpansionsError
from indextables.predicate import Fuzzy, Jolly, Phrase, Range, Regex, Term, TermSet, Wildcard
from indextables.predicate.search import FieldNode
from indextables.split.analyzer import Analyzer, Word
from indextables.split.edit_distance import count_within
from indextables.split.engine import balanced
from indextables.split.index_searcher import IndexSearcher
from indextables.split.mapping import FieldMapping
from indextables.split.slop import rows_decide

DEFAULT_MAX_EXPANSIONS = 100_000

_Occur = tantivy.Occur
_ANY = r"(?s:.)"


@dataclass(frozen=True, kw_only=True)
class WordCompiler:
    """Compiles questions about words for one index."""

    schema: tantivy.Schema
    searcher: IndexSearcher
    max_expansions: int = DEFAULT_MAX_EXPANSIONS
    term_counts: dict[str, int] = field(default_factory=dict)
    """How many different words a field has, where that is known."""
    pairwise: bool = False
    """Add scores two at a time, so that their sum does not depend on who is added first."""

    def words(self, target: FieldMapping, node: FieldNode) -> tantivy.Query | None:
        """The query for a question to a field of words; `None` if the rows must be asked."""
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
                query = self._regex(target, pattern, shown=f"/{pattern}/")
                self._count_matches(target, pattern, shown=f"/{pattern}/")
                return query
            case Fuzzy(text=text, distance=distance):
                words = target.analyzer.words(text)
                return self.all(self._fuzzy(target, word.text, distance) for word in words)
            case TermSet(values=values):
                return self._set(target, values)
            case Range():
                return None if target.kind != "text" else self._word_range(target, node)
            case _:
                return None

    def term(self, target: FieldMapping, word: str) -> tantivy.Query:
        """One word, as the analyzer gave it."""
        return tantivy.Query.term_query(self.schema, target.field, word, index_option=target.record)

    def all(self, queries: Iterable[tantivy.Query]) -> tantivy.Query:
        """All of several queries; nothing if there are none."""
        known = list(queries)
        if not known:
            return tantivy.Query.empty_query()
        if self.pairwise:
            return balanced([(0, q) for q in known], functools.partial(pair, _Occur.Must))[1]
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
            return self.all(self.term(target, word.text) for word in words)
        if target.record != "position" or rows_decide(words, slop):
            return None
        return self.near(target, words, slop) if slop else self._phrase(target, words)

    def _phrase(self, target: FieldMapping, words: list[Word], slop: int = 0) -> tantivy.Query:
        places: list[str | tuple[int, str]] = [
            (w.position - words[0].position, w.text) for w in words
        ]
        return tantivy.Query.phrase_query(self.schema, target.field, places, slop=slop)

    def near(self, target: FieldMapping, words: list[Word], slop: int) -> tantivy.Query:
        """All of the words, each neighbour of the phrase near enough: exact for two of them.

        The score is that of the words. Tantivy's score of a phrase with a slop depends on which
        word is the rarer one in a segment.
        """
        texts = dict.fromkeys(word.text for word in words)
        clauses = [self.term(target, text) for text in texts]
        if target.record == "position":
            clauses += [
                tantivy.Query.boost_query(self._phrase(target, [one, two], slop), 0.0)
                for one, two in itertools.pairwise(words)
                if one.text != two.text
            ]
        return self.all(clauses)

    def _phrase_prefix(
        self, target: FieldMapping, words: list[Word], *, slop: int
    ) -> tantivy.Query | None:
        if not words:
            return tantivy.Query.empty_query()
        if len(words) == 1 or target.analyzer.is_ngram:
            last = self._wildcard(target, Wildcard(None, (words[-1].text, Jolly.MANY)))
            return self.all([*(self.term(target, w.text) for w in words[:-1]), last])
        if target.record != "position" or slop:
            return None
        # Tantivy's own phrase prefix stops at fifty words and would lose rows.
        found = self._matching_terms(target, prefix=words[-1].text)
        self._check_count(target, f"{words[-1].text}*", len(found))
        choices = [
            self._sequence(target, [*words[:-1], Word(term, words[-1].position, 0, 0)])
            for term in found
        ]
        clauses = [(_Occur.Should, choice) for choice in choices if choice is not None]
        if not clauses:
            return tantivy.Query.empty_query()
        # One score for every ending, so that a split's vocabulary does not decide.
        return constant(tantivy.Query.boolean_query(clauses))

    def _wildcard(self, target: FieldMapping, node: Wildcard) -> tantivy.Query:
        lower = target.analyzer.lower
        pattern = wildcard_pattern(target.analyzer, node)
        shown = "".join(part if isinstance(part, str) else part.value for part in node.parts)
        query = self._regex(target, pattern, shown=shown)
        self._count_matches(target, pattern, prefix=lower(node.prefix), shown=shown)
        return query

    def _regex(self, target: FieldMapping, pattern: str, *, shown: str) -> tantivy.Query:
        try:
            return tantivy.Query.regex_query(self.schema, target.field, pattern)
        except ValueError as error:
            reason = str(error).strip().splitlines()[-1].removeprefix("error: ").rstrip("'")
            raise QueryError(
                f"The pattern {shown!r} on '{target.name}' is wrong: {reason}."
            ) from None

    def _fuzzy(self, target: FieldMapping, word: str, distance: int) -> tantivy.Query:
        if self._may_be_many(target):
            found = count_within(self._matching_terms(target), word, distance)
            self._check_count(target, f"{word}~{distance}", found)
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
        return constant(tantivy.Query.boolean_query(clauses))

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
        terms = self.searcher.terms(target.field, prefix)
        return sorted(term for term in terms if keep is None or keep(term))

    def _count_matches(
        self, target: FieldMapping, pattern: str, *, shown: str, prefix: str = ""
    ) -> None:
        """Refuse a pattern that matches too many words. A small vocabulary needs no counting.

        RE2 matches in linear time, whatever the pattern is; Python's engine backtracks.
        """
        if not self._may_be_many(target):
            return
        terms = pa.array(self._matching_terms(target, prefix=prefix), pa.string())
        spelled = pattern.replace("\0", r"\x00")  # RE2 takes a NUL only by its number
        try:
            matched: Any = pc.match_substring_regex(terms, rf"\A(?:{spelled})\z")
        except pa.ArrowInvalid:
            return  # a spelling that only Tantivy knows; it compiles the pattern within its limits
        self._check_count(target, shown, matched.true_count)

    def _may_be_many(self, target: FieldMapping) -> bool:
        known = self.term_counts.get(target.field)
        return known is None or known > self.max_expansions

    def _check_count(self, target: FieldMapping, shown: str, found: int) -> None:
        if found > self.max_expansions:
            raise TooManyExpansionsError(
                shown, field=target.name, found=found, limit=self.max_expansions
            )


def pair(occur: tantivy.Occur, left: tantivy.Query, right: tantivy.Query) -> tantivy.Query:
    """Two queries in one."""
    return tantivy.Query.boolean_query([(occur, left), (occur, right)])


def constant(query: tantivy.Query) -> tantivy.Query:
    """The same rows, all with the score 1."""
    return tantivy.Query.const_score_query(query, 1.0)


def wildcard_pattern(analyzer: Analyzer, node: Wildcard) -> str:
    """The regular expression that matches the words a wildcard means.

    >>> wildcard_pattern(Analyzer("default"), Wildcard(None, ("Da", Jolly.ONE, "a", Jolly.MANY)))
    'da(?s:.)a(?s:.)*'
    """
    return "".join(
        escape(analyzer.lower(part))
        if isinstance(part, str)
        else f"{_ANY}*"
        if part is Jolly.MANY
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
