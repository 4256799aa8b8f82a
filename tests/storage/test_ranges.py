from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from indextables.storage.store import coalesce, read_ranges

DATA = bytes(range(256))
ranges = st.lists(
    st.tuples(st.integers(0, 256), st.integers(0, 256)).map(lambda t: (min(t), max(t)))
)


@given(ranges)
def test_ranges_come_back_in_order(wanted: list[tuple[int, int]]) -> None:
    read = read_ranges(wanted, lambda blocks: [DATA[s:e] for s, e in blocks], shown="x")
    assert read == [DATA[s:e] for s, e in wanted]


@given(ranges, st.integers(0, 50))
def test_blocks_are_apart_and_cover(wanted: list[tuple[int, int]], gap: int) -> None:
    blocks = coalesce(wanted, gap=gap)
    assert sorted(r for _, _, members in blocks for r in members) == sorted(wanted)
    assert all(s <= low <= high <= e for s, e, members in blocks for low, high in members)
    assert all(a[1] + gap < b[0] for a, b in itertools.pairwise(blocks))
