from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indextables.split.search.distances import count_within


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
