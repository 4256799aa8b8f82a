"""Equal values have equal hashes, and others do not."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.ariadne.values.hashing import can_hash, hash_values

UTC = datetime.UTC
NOON = datetime.datetime(2024, 5, 6, 12, tzinfo=UTC)

EQUAL = {
    "integer widths": (pa.array([5, -1], pa.int8()), pa.array([5, -1], pa.int64())),
    "float widths": (pa.array([0.5, math.inf], pa.float32()), pa.array([0.5, math.inf])),
    "zero": (pa.array([0.0]), pa.array([-0.0])),
    "NaN": (pa.array([math.nan]), pa.array(np.array([0xFFF8000000000001], np.uint64).view("f8"))),
    "strings": (pa.array(["a", "ünï", ""]), pa.array(["a", "ünï", ""], pa.large_string())),
    "views": (pa.array(["a", "x" * 40]), pa.array(["a", "x" * 40], pa.string_view())),
    "dictionary": (pa.array(["a", "b", "a"]), pa.array(["a", "b", "a"]).dictionary_encode()),
    "zones": (
        pa.array([NOON], pa.timestamp("us", "UTC")),
        pa.array([NOON], pa.timestamp("us", "Asia/Tokyo")),
    ),
    "units": (pa.array([NOON], pa.timestamp("s", "UTC")), pa.array([NOON], pa.timestamp("us"))),
    "decimals": (
        pa.array([Decimal("1.50")], pa.decimal128(5, 2)),
        pa.array([Decimal("1.50")], pa.decimal128(38, 2)),
    ),
    "slices": (pa.array(["x", "yy", "zzz"])[1:], pa.array(["yy", "zzz"])),
    "struct with NaN": (
        pa.array([{"a": math.nan, "b": None}], pa.struct([("a", pa.float64()), ("b", pa.int32())])),
        pa.array([{"a": -math.nan, "b": None}], pa.struct([("a", "f8"), ("b", pa.int64())])),
    ),
    "lists": (
        pa.array([[1, 2], [], None], pa.list_(pa.int32())),
        pa.array([[1, 2], [], None], pa.large_list(pa.int64())),
    ),
}


@pytest.mark.parametrize("pair", EQUAL.values(), ids=EQUAL)
def test_equal_values_have_equal_hashes(pair):
    left, right = map(hash_values, pair)
    assert left.tolist() == right.tolist()


DIFFERENT = {
    "text": ["", "a", "b", "ab", "ba", "a\0", "\0a", "x" * 8, "x" * 9, "x" * 16, "x" * 17],
    "list": [[], [1], [2], [1, 2], [2, 1], [1, 1], [None], [None, None]],
    "struct": [{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": None, "b": 1}, {"a": 1, "b": None}],
    "binary": [b"", b"\0", b"\0\0", b"\1"],
    "bool": [True, False],
    "day": [datetime.date(1970, 1, 1), datetime.date(1970, 1, 2), datetime.date(1, 1, 1)],
    "decimal": [Decimal("1.00"), Decimal("-1.00"), Decimal("0.01"), Decimal(10) ** 30],
}


@pytest.mark.parametrize("values", DIFFERENT.values(), ids=DIFFERENT)
def test_different_values_have_different_hashes(values):
    assert len(set(hash_values(pa.array(values)).tolist())) == len(values)


@given(st.lists(st.text(max_size=30)))
def test_texts_collide_only_if_they_are_equal(texts):
    hashes = hash_values(pa.array(texts, pa.string()))
    assert len(set(hashes.tolist())) == len(set(texts))


@given(st.lists(st.text(max_size=20)), st.integers(0, 5))
def test_a_hash_depends_on_the_value_alone(texts, start):
    whole = pa.array(texts, pa.string())
    alone = [hash_values(pa.array([text])).item() for text in texts]
    assert hash_values(whole).tolist() == alone
    assert hash_values(whole[start:]).tolist() == alone[start:]
    assert hash_values(pa.chunked_array([whole[:start], whole[start:]])).tolist() == alone


def test_all_bits_are_used():
    hashes = hash_values(pa.array(range(100_000)))
    ones = [(hashes >> np.uint64(bit) & np.uint64(1)).mean() for bit in range(64)]
    assert min(ones) > 0.49
    assert max(ones) < 0.51


def test_maps_cannot_be_compared():
    assert not can_hash(pa.map_(pa.string(), pa.int32()))
    assert can_hash(pa.list_(pa.struct([("a", pa.date32())])))
    with pytest.raises(TypeError, match="cannot be compared"):
        hash_values(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())))
