"""Tantivy's queries: built, with what they read of an index, and run so that none ends the process.

The one place where queries are made for the indexes of splits. An index in a remote store is not
copied whole: what a query reads must be named before it runs, because Tantivy would read zeros
where nothing was fetched. Each function here returns a query of Tantivy and names the postings and
positions that Tantivy reads for it, or more. Queries that only hold others, or that are answered
from fast fields, read nothing themselves; they are in this module as well, so that no other one
needs Tantivy's constructors.

Tantivy walks a query by recursion, about 8 KB of stack for each level of nesting, and an overflow
ends the process without a message. So queries are kept flat: sums of two are balanced trees, and a
query that is nested deeply runs in a thread with a stack of its own.

Distances are here as well: how many words lie within an edit distance of one word (`words_within`,
counted in columns), and whether a phrase whose words may move is found (`is_near`, by positions, as
Lucene defines it). A word of a text that stands for a word of the phrase has moved by its place in
the text minus its place in the phrase. The phrase is found if every word has a place of its own and
no two moves differ by more than the slop; so neighbours that changed places need a slop of 2.
Tantivy agrees for two different words. For more, its searches with and without scores differ, and a
word that is asked for twice may be one word of the text; there it only proposes rows.
"""

from __future__ import annotations

import contextvars
import heapq
import re
import threading
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import tantivy

from indextables.split.analyzer import Analyzer
from indextables.split.format.term_dictionary import Beginning, Need, Pattern, Words
from indextables.split.mapping import ROW_FIELD, FieldMapping
from indextables.split.text_steps import Word

Item = TypeVar("Item")
Result = TypeVar("Result")

FEW_LEVELS = 24
"""So many levels fit into every stack that runs Python, 256 KB included."""
_STACK = 64 << 20
"""For the deepest query that the parser lets through, many times over; untouched pages are free."""
_starting = threading.Lock()


def with_stack(levels: int, call: Callable[[], Result]) -> Result:
    """Call a function that passes a query with this many nested levels to Tantivy."""
    if levels <= FEW_LEVELS:
        return call()
    answer: Future[Result] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            answer.set_result(context.run(call))
        except BaseException as error:  # raised again in the caller's thread
            answer.set_exception(error)

    thread = threading.Thread(target=work, name="indextables-deep-query", daemon=True)
    with _starting:  # the size is a setting of the process
        before = threading.stack_size(_STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return answer.result()


def balanced(
    items: Sequence[tuple[int, Item]], pair: Callable[[Item, Item], Item]
) -> tuple[int, Item]:
    """Join items two at a time into a tree as flat as their own levels allow.

    The shape depends on the levels only, so that sums of scores are always the same.

    >>> balanced([(0, "a"), (0, "b"), (0, "c"), (2, "D")], lambda x, y: f"({x}{y})")
    (3, '(D(c(ab)))')
    """
    first = items[0][0]
    if all(levels == first for levels, _ in items):  # then simple alternation is the same
        queue = [item for _, item in items]
        for at in range(0, 2 * (len(items) - 1), 2):
            queue.append(pair(queue[at], queue[at + 1]))
        return first + (len(items) - 1).bit_length(), queue[-1]
    heap = [(levels, order, item) for order, (levels, item) in enumerate(items)]
    heapq.heapify(heap)
    order = len(heap)
    while len(heap) > 1:
        one, two = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (max(one[0], two[0]) + 1, order, pair(one[2], two[2])))
        order += 1
    return heap[0][0], heap[0][2]


# --- building queries ------------------------------------------------------------------------

Clauses = Sequence[tuple[tantivy.Occur, tantivy.Query]]

_LITERAL = re.compile(r"\w+")
_NOT_LITERAL = ("|", "(?")


@dataclass(frozen=True, slots=True)
class Near:
    """The words within an edit distance of one."""

    text: str
    distance: int

    def __call__(self, words: Sequence[str]) -> Sequence[str]:
        return words_within(words, self.text, self.distance)


class Searched(Protocol):
    """An index that is told what queries for it read."""

    def name(self, need: Need) -> None: ...


@dataclass(frozen=True, slots=True)
class QueryBuilder:
    """Builds queries for one index."""

    schema: tantivy.Schema
    searcher: Searched

    def term(self, target: FieldMapping, word: str) -> tantivy.Query:
        """One word, as the analyzer made it."""
        self.searcher.name(Words(target.field, (word,)))
        # A word alone needs no positions, which Tantivy would read if they were asked for.
        option = "basic" if target.record == "basic" else "freq"
        return tantivy.Query.term_query(self.schema, target.field, word, index_option=option)

    def number(self, field: str, value: int) -> tantivy.Query:
        """One number of an indexed field without a column."""
        self.searcher.name(Words(field, (value.to_bytes(8, "big"),)))
        return tantivy.Query.term_query(self.schema, field, value, index_option="basic")

    def row(self, number: int) -> tantivy.Query:
        """The documents that carry a number, by its column."""
        field_type = tantivy.FieldType.Unsigned
        return tantivy.Query.range_query(self.schema, ROW_FIELD, field_type, number, number)

    def address(self, target: FieldMapping, shown: str) -> tantivy.Query:
        """One IP address, as it is shown."""
        self.searcher.name(Beginning(target.field))  # Tantivy has its own form of it in the index
        return tantivy.Query.term_query(self.schema, target.field, shown)

    def phrase(
        self, target: FieldMapping, places: Sequence[tuple[int, str]], *, slop: int = 0
    ) -> tantivy.Query:
        """Words at places that are relative to each other."""
        words = tuple(dict.fromkeys(word for _, word in places))
        self.searcher.name(Words(target.field, words, positions=True))
        return tantivy.Query.phrase_query(self.schema, target.field, list(places), slop=slop)

    def term_set(self, target: FieldMapping, words: Sequence[str]) -> tantivy.Query:
        """Any of some words."""
        self.searcher.name(Words(target.field, tuple(words)))
        return tantivy.Query.term_set_query(self.schema, target.field, list(words))

    def wildcard(self, target: FieldMapping, pattern: str, *, prefix: str) -> tantivy.Query:
        """Words of a pattern of letters and placeholders."""
        query = tantivy.Query.regex_query(self.schema, target.field, pattern)
        self.searcher.name(Beginning(target.field, prefix, Pattern(pattern)))
        return query

    def regex(self, target: FieldMapping, pattern: str) -> tantivy.Query:
        """Words of a regular expression. No other engine says which, so only its beginning helps.

        A pattern that is wrong is a `ValueError`.
        """
        query = tantivy.Query.regex_query(self.schema, target.field, pattern)
        self.searcher.name(Beginning(target.field, literal_beginning(pattern)))
        return query

    def fuzzy(self, target: FieldMapping, word: str, distance: int) -> tantivy.Query:
        """Words within an edit distance; swapping two letters is one edit."""
        self.searcher.name(Beginning(target.field, "", Near(word, distance)))
        return tantivy.Query.fuzzy_term_query(
            self.schema, target.field, word, distance=distance, transposition_cost_one=True
        )

    def between(
        self, target: FieldMapping, field_type: Any, low: Any, high: Any, **options: Any
    ) -> tantivy.Query:
        """Values in a range: of fast fields in their column, of others in all their postings."""
        if not target.fast:
            self.searcher.name(Beginning(target.field))
        return tantivy.Query.range_query(
            self.schema, target.field, field_type, low, high, **options
        )

    # --- nothing but fast fields, or other queries ---

    @staticmethod
    def exists(target: FieldMapping) -> tantivy.Query:
        """Any value of a fast field."""
        return tantivy.Query.exists_query(target.field)

    @staticmethod
    def everything() -> tantivy.Query:
        """Every document."""
        return tantivy.Query.all_query()

    @staticmethod
    def nothing() -> tantivy.Query:
        """No document."""
        return tantivy.Query.empty_query()

    @staticmethod
    def combined(clauses: Clauses) -> tantivy.Query:
        """Several queries."""
        return tantivy.Query.boolean_query(list(clauses))

    @staticmethod
    def boosted(query: tantivy.Query, factor: float) -> tantivy.Query:
        """The same rows with scores times a factor."""
        return tantivy.Query.boost_query(query, factor)

    @staticmethod
    def constant(query: tantivy.Query) -> tantivy.Query:
        """The same rows, all with the score 1."""
        return tantivy.Query.const_score_query(query, 1.0)


def literal_beginning(pattern: str) -> str:
    """Text that every match of a regular expression begins with; perhaps less than there is.

    >>> literal_beginning("abc.*"), literal_beginning("abc*"), literal_beginning("ab|cd")
    ('abc', 'ab', '')
    """
    beginning = _LITERAL.match(pattern)
    if beginning is None or any(sign in pattern for sign in _NOT_LITERAL):
        return ""
    is_repeated = pattern[beginning.end() : beginning.end() + 1] in ("*", "?", "{")
    return beginning[0][:-1] if is_repeated else beginning[0]


# --- distances -------------------------------------------------------------------------------


def count_within(words: Sequence[str], text: str, distance: int) -> int:
    """How many words are within a distance.

    >>> count_within(["spark", "sprak", "spar", "sparks", "shark", "stork"], "spark", 1)
    5
    """
    return len(words_within(words, text, distance))


def words_within(words: Sequence[str], text: str, distance: int) -> list[str]:
    """The words that become `text` by inserting, removing, replacing or swapping characters.

    >>> words_within(["spark", "sprak", "spar", "stork"], "spark", 1)
    ['spark', 'sprak', 'spar']
    """
    empty = [""] if "" in words and len(text) <= distance else []
    near = [word for word in words if abs(len(word) - len(text)) <= distance and word]
    if not near:
        return empty
    longest = max(map(len, near))
    letters = np.array(near, dtype=f"<U{longest}").view(np.uint32).reshape(len(near), longest)
    goal = np.array([text], dtype=f"<U{max(1, len(text))}").view(np.uint32)
    # cost[i][j]: from the first i letters of each word to the first j of the text.
    cost = np.zeros((longest + 1, len(text) + 1, len(near)), dtype=np.int16)
    cost[:, 0] = np.arange(longest + 1)[:, None]
    cost[0] = np.arange(len(text) + 1)[:, None]
    for i in range(1, longest + 1):
        for j in range(1, len(text) + 1):
            same = letters[:, i - 1] == goal[j - 1]
            best = np.minimum(cost[i - 1, j] + 1, cost[i, j - 1] + 1)
            best = np.minimum(best, cost[i - 1, j - 1] + ~same)
            if i > 1 and j > 1:
                swapped = (letters[:, i - 1] == goal[j - 2]) & (letters[:, i - 2] == goal[j - 1])
                best = np.where(swapped, np.minimum(best, cost[i - 2, j - 2] + 1), best)
            cost[i, j] = best
    lengths = np.array([len(word) for word in near])
    total = cost[lengths, len(text), np.arange(len(near))]
    return empty + [near[i] for i in np.flatnonzero(total <= distance)]


def rows_decide(words: Sequence[Word], slop: int) -> bool:
    """Whether the positions in the rows must be looked at."""
    return slop > 0 and len(words) > 1 and (len(words) > 2 or words[0].text == words[1].text)


def is_near(phrase: Sequence[Word], words: Iterable[tuple[int, str]], slop: int) -> bool:
    """Whether words at their places in a text hold those of a phrase, moved by at most the slop.

    >>> phrase = Analyzer("default").words("a b c")
    >>> [is_near(phrase, enumerate("acb"), slop) for slop in (1, 2)]
    [False, True]
    """
    places: dict[str, list[int]] = defaultdict(list)
    needed = Counter(word.text for word in phrase)
    for position, text in words:
        if text in needed:
            places[text].append(position)
    if any(len(places[text]) < count for text, count in needed.items()):
        return False
    # The rarest word leaves the fewest places to look at; equal ones stay in their order.
    ordered = sorted(phrase, key=lambda word: (len(places[word.text]), word.position))
    rarest = ordered[0]
    reached: int | None = None
    for place in places[rarest.text]:
        high = place - rarest.position
        low = high - slop if reached is None else max(high - slop, reached + 1)
        reached = high
        moves = {move for word in ordered for move in _moves(word, places[word.text], low, high)}
        if any(_fits(ordered, places, move, slop) for move in moves):
            return True
    return False


def _moves(word: Word, where: list[int], low: int, high: int) -> Iterator[int]:
    """How far a word of a phrase may have moved, within bounds, to be at one of its places."""
    first = bisect_left(where, low + word.position)
    for position in where[first : bisect_right(where, high + word.position)]:
        yield position - word.position


def _fits(phrase: Sequence[Word], places: dict[str, list[int]], move: int, slop: int) -> bool:
    """Whether every word has a place of its own with a move between this one and so much more.

    Words that are asked for twice take the first free place in turn, which is the best they can do:
    what they may take begins and ends in the order of the phrase.
    """
    used: dict[str, int] = {}
    for word in phrase:
        first = word.position + move
        where = places[word.text]
        at = max(bisect_left(where, first), used.get(word.text, -1) + 1)
        if at == len(where) or where[at] > first + slop:
            return False
        used[word.text] = at
    return True


def positions(analyzer: Analyzer, values: Iterable[str]) -> list[tuple[int, str]]:
    """The words of a row's values with their places, as the index counts them.

    >>> positions(Analyzer("default"), ["a b", "", "c"])
    [(0, 'a'), (1, 'b'), (4, 'c')]
    """
    word_places: list[tuple[int, str]] = []
    start = 0
    for value in values:
        words = analyzer.words(value)
        word_places += [(start + word.position, word.text) for word in words]
        start += (words[-1].position + 1 if words else 0) + 1
    return word_places
