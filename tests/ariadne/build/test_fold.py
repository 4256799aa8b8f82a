"""Folding rows, without Spark: against what plain Python says, whole and in parts."""

from __future__ import annotations

import datetime
import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.ariadne.build import fold
from indextables.ariadne.build.fold import FileFold, Target, row_batch
from indextables.ariadne.declarations import Bloom, Exploded, Range, Regular, Temporal, Text
from indextables.ariadne.metadata import FIXED_SCHEMA
from indextables.ariadne.values import bloom, hashing
from indextables.ariadne.values.hashing import Distinct, DistinctHashes, hash_values
from indextables.ariadne.values.words import build as words

TARGETS = [
    Target(Regular("v"), pa.string()),
    Target(Bloom("b"), pa.int64()),
    Target(Range("r"), pa.float64()),
    Target(Temporal("k", "t"), pa.int32(), pa.int64()),
    Target(Exploded("xs", "id", "x"), pa.int32()),
    Target(Text("w"), pa.string()),
]
VALUES = [
    st.none() | st.text(max_size=3),
    st.none() | st.integers(-5, 5),
    st.none() | st.floats(),
    st.none() | st.integers(0, 3),
    st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3),
    st.none() | st.sampled_from(["Spark and SQL", "sql", "a b", ""]),
    st.none() | st.integers(0, 9),
]
TYPES = [
    pa.string(), pa.int64(), pa.float64(), pa.int32(), pa.list_(pa.field("element", pa.int32())),
    pa.string(), pa.int64(),
]  # fmt: skip


def add(state, rows):
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(TYPES)]
    times = [columns[6] if isinstance(t.declaration, Temporal) else None for t in TARGETS]
    state.add(len(rows), columns[:6], times)


def no_large(*_):
    raise AssertionError


def plain(row):
    return {n: c.to_pylist() if isinstance(c, pa.Array) else c for n, c in row.items()}


@given(st.lists(st.lists(st.tuples(*VALUES), max_size=6), max_size=4))
def test_a_fold_knows_what_the_rows_hold(batches):
    rows = [row for batch in batches for row in batch]
    whole = FileFold(TARGETS, limit=1000)
    joined = FileFold(TARGETS, limit=1000)
    for batch in batches:
        add(whole, batch)
        part = FileFold(TARGETS, limit=1000, partial=True)
        add(part, batch)
        for state in part.partials():
            joined.merge(state)
    for state in (whole, joined):
        found = plain(state.finish("f", no_large))
        assert found["row_count"] == len(rows)
        strings = {row[0] for row in rows} - {None}
        assert sorted(found["v"]) == sorted(strings)
        assert found["distinct_v"] == len(strings)
        assert found["nulls_v"] == sum(row[0] is None for row in rows)
        keys = pa.array(sorted({row[1] for row in rows} - {None}), pa.int64())
        assert found["bloom_b"] == bloom.build(hash_values(keys), 0.01)
        assert bounds(found["range_r"]) == expected_bounds([row[2] for row in rows])
        assert {(e["value"], e["max_ts"]) for e in found["k"]} == newest(rows)
        elements = [e for row in rows for e in row[4] or [] if e is not None]
        assert sorted(found["x"]) == sorted(set(elements))
        texts = pa.array([row[5] for row in rows if row[5] is not None], pa.string())
        assert found["text_w"] == words(texts)


def newest(rows):
    found: dict[int, int | None] = {}
    for row in rows:
        if row[3] is not None:
            times = [t for t in (found.get(row[3]), row[6]) if t is not None]
            found[row[3]] = max(times) if times else None
    return set(found.items())


def shown(number):
    return None if number is None else "nan" if math.isnan(number) else number + 0.0


def bounds(pair):
    return tuple(shown(p.as_py() if isinstance(p, pa.Scalar) else p) for p in pair.values())


def expected_bounds(numbers):
    order = sorted((n for n in numbers if n is not None), key=lambda n: (math.isnan(n), n))
    return (shown(order[0]), shown(order[-1])) if order else (None, None)


def test_rows_become_columns_of_their_types():
    schema = pa.schema([*FIXED_SCHEMA, *(f for t in TARGETS for f in t.schema)])
    state = FileFold(TARGETS, limit=1000)
    add(state, [("a", 1, 2.5, 3, [4], "x y", 9), (None,) * 7])
    full = {"filename": "f", "built": ["v"], **state.finish("f", no_large)}
    batch = row_batch([full, {"filename": "g", "failure": "no"}], schema)
    assert batch.schema.equals(schema)
    first, second = batch.to_pylist()
    assert first["v"] == ["a"]
    assert first["range_r"] == {"min": 2.5, "max": 2.5}
    assert first["k"] == [{"value": 3, "max_ts": 9}]
    assert second["v"] is None
    assert second["failure"] == "no"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.date32(), [datetime.date(2024, 1, 2), None, datetime.date(1999, 1, 1)]),
        (pa.timestamp("us", tz="UTC"), [datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)]),
        (pa.decimal128(20, 3), [None]), (pa.binary(), [b"\xff", b"a"]), (pa.bool_(), [True]),
        (pa.string(), ["é", "z", "a"]),
    ],
)  # fmt: skip
def test_bounds_keep_their_type(kind, values):
    target = Target(Range("r"), kind)
    state = FileFold([target], limit=10)
    state.add(len(values), [pa.array(values, kind)], [None])
    row = row_batch([state.finish("f", no_large)], target.schema).to_pylist()[0]
    known = [v for v in values if v is not None]
    assert row["range_r"] == {"min": min(known, default=None), "max": max(known, default=None)}


@pytest.mark.parametrize("rows", [1, 3])
def test_values_beyond_the_limit_go_to_the_sink(rows):
    seen = []

    def sink(column, filename, values):
        seen.append((column, filename, sorted(v for p in values.pieces() for v in p.to_pylist())))
        return "id", 3, b"filter"

    state = FileFold([Target(Regular("v"), pa.int64())], limit=2)
    for start in range(0, 3, rows):
        state.add(rows, [pa.array(range(start, start + rows), pa.int64())], [None])
    found = state.finish("f", sink)
    assert seen == [("v", "f", [0, 1, 2])]
    assert found == {
        "row_count": 3, "v": None, "nulls_v": 0, "distinct_v": 3, "large_v": "id",
        "auto_bloom_v": b"filter",
    }  # fmt: skip


def test_too_many_temporal_values_are_given_up_and_stay_so():
    target = Target(Temporal("k", "t"), pa.int32(), pa.int64())
    part = FileFold([target], limit=2, partial=True)
    part.add(3, [pa.array([1, 2, 3], pa.int32())], [pa.array([1, 1, 1])])
    joined = FileFold([target], limit=2)
    for state in part.partials():
        joined.merge(state)
    joined.add(1, [pa.array([1], pa.int32())], [pa.array([5])])
    assert joined.finish("f", no_large)["k"] is None


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_a_time_that_is_no_number_is_the_newest(kind):
    state = FileFold([Target(Temporal("k", "t"), pa.int32(), kind)], limit=9)
    times = [float("nan"), 1.0, None, 2.0, 3.0, None]
    state.add(6, [pa.array([1, 1, 1, 2, 2, 3], pa.int32())], [pa.array(times, kind)])
    found = state.finish("f", no_large)["k"].to_pylist()
    assert [repr(pair["max_ts"]) for pair in found] == ["nan", "3.0", "None"]


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.string(), pa.list_(pa.field("element", pa.int32()))], ids=str
)
def test_values_move_to_files_when_memory_is_full(monkeypatch, kind):
    monkeypatch.setattr(hashing, "_MAX_ROWS", 50)
    monkeypatch.setattr(hashing, "_WAIT", 16)

    def value(number):
        return {pa.int64(): number, pa.string(): f"v{number}"}.get(kind, [number, number + 1])

    values = Distinct(kind, limit=10)
    for start in range(0, 400, 20):
        values.add(pa.array([value(n % 300) for n in range(start, start + 20)], kind))
    assert values.is_large
    with pytest.raises(ValueError, match="pieces"):
        values.array()
    pieces = list(values.pieces())
    assert len(pieces) > 1
    found = [str(v) for piece in pieces for v in piece.to_pylist()]
    assert sorted(found) == sorted(str(value(n)) for n in range(300))
    tops = [hash_values(piece).view(np.int64) for piece in pieces]
    assert all(a.max() < b.min() for a, b in itertools.pairwise(tops))
    values.close()


def test_more_hashes_than_a_filter_is_worth_are_given_up(monkeypatch):
    monkeypatch.setattr(hashing, "MAX_HASHES", 100)
    hashes = DistinctHashes()
    for start in range(0, 300, 50):
        hashes.add(np.arange(start % 100, start % 100 + 50, dtype=np.uint64))
    assert not hashes.too_many
    assert set(hashes.array()) == set(range(100))
    target = Target(Bloom("b"), pa.int64())
    part = FileFold([target], limit=10, partial=True)
    part.add(200, [pa.array(range(200), pa.int64())], [None])
    joined = FileFold([target], limit=10)
    for state in part.partials():
        joined.merge(state)
    assert joined.finish("f", no_large)["bloom_b"] is None


def test_a_state_comes_in_bounded_parts(monkeypatch):
    monkeypatch.setattr(fold, "_PART", 10)
    part = FileFold(TARGETS[:2], limit=1000, partial=True)
    part.add(35, [pa.array(map(str, range(35))), pa.array(range(35))], [None, None])
    batches = list(part.partials())
    assert len(batches) == 4
    joined = FileFold(TARGETS[:2], limit=1000)
    for batch in batches:
        joined.merge(batch)
    found = joined.finish("f", no_large)
    assert found["row_count"] == 35
    assert found["distinct_v"] == 35
