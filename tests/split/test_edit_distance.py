from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa
import pytest
from conftest import query
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import TooManyExpansionsError
from indextables.predicate import Range
from indextables.split.format.index import IndexSearcher, Vocabulary
from indextables.split.search.compile import in_range
from indextables.split.search.engine import count_within


def distance(a: str, b: str) -> int:
    """Optimal string alignment, letter by letter."""
    d = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            same = a[i - 1] == b[j - 1]
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (not same))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                d[i, j] = min(d[i, j], d[i - 2, j - 2] + 1)
    return d[len(a), len(b)]


word = st.text("abcé", max_size=5)


@given(st.lists(word, max_size=20, unique=True), word, st.integers(0, 2))
def test_counts_what_a_loop_counts(words, text, most):
    assert count_within(words, text, most) == sum(distance(w, text) <= most for w in words)


@given(
    st.lists(st.text("abé\U0001f600", max_size=6), max_size=30),
    st.one_of(st.none(), st.text("abé", max_size=3)),
    st.one_of(st.none(), st.text("abé", max_size=3)),
    st.booleans(),
    st.booleans(),
)
def test_a_vocabulary_is_cut_in_columns_as_word_by_word(words, low, high, with_low, with_high):
    vocabulary = Vocabulary.of(words)
    ordered = sorted(words, key=str.encode)
    assert vocabulary.of_length(1, 3).to_pylist() == [w for w in ordered if 1 <= len(w) <= 3]
    node = Range(None, low, high, include_lower=with_low, include_upper=with_high)
    found = vocabulary.between(
        None if low is None else low.encode(),
        None if high is None else high.encode(),
        with_low=with_low,
        with_high=with_high,
    )
    assert found.to_pylist() == [w for w in ordered if in_range(node, str)(w)]
    pattern = "a(?s:.)*b?"
    expected = sum(bool(re.fullmatch(pattern, w)) for w in words)
    assert [vocabulary.count_matches(pattern) for _ in range(2)] == [expected] * 2


def test_words_are_listed_once_for_an_open_index(make, monkeypatch):
    table = pa.table({"a": ["spark sparks fox"] * 3, "b": ["spar shark dog", "data", None]})
    listed = []
    terms = IndexSearcher.terms
    monkeypatch.setattr(
        IndexSearcher,
        "terms",
        lambda self, field, prefix="": listed.append(field) or terms(self, field, prefix),
    )
    split = make(table)
    # Fewer than the words of a field, so that they have to be counted.
    tight = replace(split, context=replace(split.context, max_expansions=2))
    for _ in range(3):
        assert tight.search(query("spark~1 AND fox~1")).tolist() == [0, 1, 2]
        assert tight.search(query("/spark?/")).tolist() == [0, 1, 2]
        assert tight.search(query("a:[fox TO fox]")).tolist() == [0, 1, 2]
        with pytest.raises(TooManyExpansionsError):
            tight.search(query("a:/.*/"))
    assert sorted(listed) == ["f0", "f1"]
