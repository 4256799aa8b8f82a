"""Packing splits into groups."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.jobs.merge_groups import (
    Candidate,
    candidates_of,
    plan_merges,
    without_large_splits,
)
from indextables.log.actions import Add
from indextables.log.files import files_from_adds

MB = 1 << 20


def splits(*sizes, partition=(), first=0):
    return [
        Candidate(first + i, f"{partition}{first + i}", size, first + i, partition)
        for i, size in enumerate(sizes)
    ]


def sizes(groups):
    return [sorted((s.size for s in g.sources), reverse=True) for g in groups]


def test_the_example_of_the_specification_without_its_overflow():
    found = plan_merges(splits(800, 600, 500, 400, 200, 100), target_size=1024, max_sources=10)
    assert sizes(found) == [[800, 200], [600, 400], [500, 100]]


def test_oldest_groups_come_first_and_oldest_splits_in_each():
    files = [*splits(9, 9, partition=(("p", "b"),), first=10), *splits(9, 9, first=3)]
    first, second = plan_merges(files, target_size=100, max_sources=10)
    assert [s.added_at for s in first.sources] == [3, 4]
    assert [s.added_at for s in second.sources] == [10, 11]


def test_large_splits_are_left_alone():
    files = splits(50, 40, 10)
    assert sizes(plan_merges(files, target_size=100, max_sources=9)) == [[50, 40, 10]]
    assert sizes(plan_merges(files, target_size=100, max_sources=9, max_share=0.45)) == [[40, 10]]
    assert plan_merges(splits(100, 1), target_size=100, max_sources=9) == []


def naive(files, target, limit):
    """First-fit decreasing as one writes it down."""
    bins = []
    for size in sorted((f.size for f in files), reverse=True):
        for packed in bins:
            if sum(packed) + size <= target and len(packed) < limit:
                packed.append(size)
                break
        else:
            bins.append([size])
    return sorted(b for b in bins if len(b) > 1)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from("ab")), max_size=40),
    st.integers(1, 100),
    st.integers(2, 6),
)
def test_packing_is_first_fit_decreasing(drawn, target, limit):
    files = [
        Candidate(i, str(i), size, i % 7, (("p", part),)) for i, (size, part) in enumerate(drawn)
    ]
    groups = plan_merges(files, target_size=target, max_sources=limit)
    assert all(g.size <= target and 2 <= len(g.sources) <= limit for g in groups)
    assert all(len({s.partition for s in g.sources}) == 1 for g in groups)
    assert max(Counter(p for g in groups for p in g.paths).values(), default=1) == 1
    assert [g.age for g in groups] == sorted(g.age for g in groups)
    for part in "ab":
        mine = [g for g in groups if g.sources[0].partition == (("p", part),)]
        here = [f for f in files if f.partition == (("p", part),) and f.size < target]
        assert sorted(sizes(mine)) == naive(here, target, limit)


@pytest.mark.parametrize(
    ("drawn", "kept"),
    [
        ((8, 1, 1), [[1, 1]]),
        ((8, 2, 2), [[8, 2, 2]]),
        ((8, 3, 0), []),
        ((1716, 1715), [[1716, 1715]]),
        ((900, 20, 11), [[20, 11]]),
    ],
)
def test_large_splits_wait_until_the_others_are_half_as_large(drawn, kept):
    groups = plan_merges(splits(*drawn), target_size=10_000, max_sources=10)
    assert sizes(without_large_splits(groups)) == kept


def test_automatic_merges_write_a_row_as_often_as_the_table_grows_by_half():
    files, written, number = [], 0, 0
    for number in range(256):
        files = [*files, *splits(1, first=number)]
        for group in without_large_splits(plan_merges(files, target_size=10**6, max_sources=1000)):
            files = [f for f in files if f not in group.sources]
            files += [Candidate(0, f"m{number}", group.size, number, ())]
            written += group.size
    assert sum(f.size for f in files) == 256
    assert written <= 256 * 14  # log 256 / log 1.5
    assert len(files) <= 9


def test_candidates_of_files():
    adds = [
        Add(path="a", size=5, partition_values={"q": "1", "p": None}),
        Add(path="b", size=6),
    ]
    first, second = candidates_of(files_from_adds([(add, 3, 4) for add in adds]))
    assert first == Candidate(0, "a", 5, 3, (("q", "1"),))
    assert second.partition == ()
