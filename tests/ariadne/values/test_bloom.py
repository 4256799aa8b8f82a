"""Bloom filters never miss, and say "perhaps" as rarely as they were asked to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.ariadne.values.bloom import Filters, blocks_for, build, may_hold_any, probe
from indextables.ariadne.values.hashing import hash_values

hashes_strategy = st.lists(st.integers(0, 2**64 - 1), max_size=50).map(
    lambda numbers: np.array(numbers, np.uint64)
)


@given(st.lists(hashes_strategy, max_size=5), st.floats(0.0001, 0.5))
def test_what_is_in_is_found(contents, fpr):
    filters = Filters.of(build(hashes, fpr) for hashes in contents)
    for number, hashes in enumerate(contents):
        assert probe(filters, hashes)[number].all()
        assert may_hold_any(filters, hashes)[number] == bool(len(hashes))


@pytest.mark.parametrize("fpr", [0.5, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("count", [1_000, 30_000])
def test_the_rate_of_false_answers_is_the_one_asked_for(fpr, count):
    inside = hash_values(pa.array(range(count)))
    outside = hash_values(pa.array(range(10**9, 10**9 + 300_000)))
    answers = probe(Filters.of([build(inside, fpr)]), outside)
    assert answers.mean() <= 1.5 * fpr


@pytest.mark.parametrize(
    "stored",
    [None, b"", b"ABF1", b"ABF2" + bytes(44), build(np.arange(9, dtype=np.uint64), 0.1)[:-1]],
)
def test_bytes_of_an_unknown_kind_may_hold_anything(stored):
    known = build(np.array([1], np.uint64), 0.01)
    filters = Filters.of([stored, known])
    assert probe(filters, np.array([7, 8], np.uint64)).tolist()[0] == [True, True]
    assert may_hold_any(filters, np.array([7], np.uint64)).tolist()[0]


def test_an_empty_filter_holds_nothing():
    filters = Filters.of([build(np.array([], np.uint64), 0.01)])
    assert not probe(filters, hash_values(pa.array(range(1000)))).any()


def test_filters_grow_with_the_number_of_values():
    assert blocks_for(0, 0.01) == 1
    assert 9.5 < blocks_for(10**6, 0.01) * 256 / 10**6 < 11


@pytest.mark.parametrize("fpr", [0.0, 1.0, -0.1])
def test_a_rate_that_is_none_is_refused(fpr):
    with pytest.raises(ValueError, match="between 0 and 1"):
        blocks_for(10, fpr)


def test_probing_many_filters_at_once_is_probing_each(monkeypatch):
    monkeypatch.setattr("indextables.ariadne.values.bloom._PAIRS", 64)
    contents = [hash_values(pa.array(range(n * 10, n * 10 + 20))) for n in range(12)]
    stored = [build(one, 0.05) for one in contents] + [None]
    wanted = hash_values(pa.array(range(140)))
    together = probe(Filters.of(stored), wanted)
    for number, one in enumerate(stored):
        assert together[number].tolist() == probe(Filters.of([one]), wanted)[0].tolist()
    assert may_hold_any(Filters.of(stored), wanted[:3]).tolist() == together[:, :3].any(1).tolist()
