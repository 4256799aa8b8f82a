"""How far a match may be off: letters of a word, words of a phrase.

How many words of a vocabulary lie within an edit distance of one word, counted in columns.

Phrases whose words may move: decided by the positions of the words, as Lucene defines it.

A word of a text that stands for a word of the phrase has moved by its place in the text minus its
place in the phrase. The phrase is found if every word has a place of its own and no two moves
differ by more than the slop. So neighbours that changed places need a slop of 2.

Tantivy agrees for two different words. For more, its searches with and without scores differ, and a
word that is asked for twice may be one word of the text; there it only proposes rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from indextables.split.analyzer import Analyzer
from indextables.split.text_steps import Word


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


def is_near(wanted: Sequence[Word], words: Iterable[tuple[int, str]], slop: int) -> bool:
    """Whether words at their places in a text hold those of a phrase, moved by at most the slop.

    >>> phrase = Analyzer("default").words("a b c")
    >>> [is_near(phrase, enumerate("acb"), slop) for slop in (1, 2)]
    [False, True]
    """
    places: dict[str, list[int]] = defaultdict(list)
    needed = Counter(word.text for word in wanted)
    for position, text in words:
        if text in needed:
            places[text].append(position)
    if any(len(places[text]) < count for text, count in needed.items()):
        return False
    ordered = sorted(wanted, key=lambda word: word.position)
    moves = {place - word.position for word in ordered for place in places[word.text]}
    return any(_fits(ordered, places, move, slop) for move in moves)


def _fits(wanted: Sequence[Word], places: dict[str, list[int]], move: int, slop: int) -> bool:
    """Whether every word has a place of its own with a move between this one and so much more.

    Words that are asked for twice take the first free place in turn, which is the best they can do:
    what they may take begins and ends in the order of the phrase.
    """
    taken: dict[str, int] = {}
    for word in wanted:
        first = word.position + move
        here = places[word.text]
        at = max(bisect_left(here, first), taken.get(word.text, -1) + 1)
        if at == len(here) or here[at] > first + slop:
            return False
        taken[word.text] = at
    return True


def positions(analyzer: Analyzer, values: Iterable[str]) -> list[tuple[int, str]]:
    """The words of a row's values with their places, as the index counts them.

    >>> positions(Analyzer("default"), ["a b", "", "c"])
    [(0, 'a'), (1, 'b'), (4, 'c')]
    """
    found: list[tuple[int, str]] = []
    start = 0
    for value in values:
        words = analyzer.words(value)
        found += [(start + word.position, word.text) for word in words]
        start += (words[-1].position + 1 if words else 0) + 1
    return found
