"""Deletion vectors: Delta's bytes, and every way in which they can be wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from logs import memory_store

from indextables.errors import DamagedVectorError
from indextables.log.vectors import (
    DeletionVector,
    StoredVector,
    is_vector_file,
    store_vectors,
    vector_files,
)

# As Delta's own readers test it.
GOLDEN = DeletionVector("i", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 44, 6)


def read(store, descriptor, total=1 << 40):
    return StoredVector(store, descriptor, "a.split").rows(total=total).tolist()


def test_the_example_of_delta_reads():
    assert read(memory_store(), GOLDEN) == [3, 4, 7, 11, 18, 29]
    made = store_vectors(memory_store(), {"a": np.array([3, 4, 7, 11, 18, 29])})
    assert made == {"a": GOLDEN}
    assert DeletionVector.from_json(GOLDEN.to_json(), path="a.split") == GOLDEN


def test_small_ones_are_inline_and_the_others_share_a_file():
    store = memory_store()
    rng = np.random.default_rng(1)
    rows = {
        "one": np.array([7]),
        "far": np.array([1, (1 << 33) + 5]),
        "many": np.unique(rng.integers(0, 1 << 20, 20_000)),
        "more": np.unique(rng.integers(0, 1 << 20, 9_000)),
        "range": np.arange(100_000),
    }
    made = store_vectors(store, rows)
    assert {path for path, v in made.items() if v.file is None} == {"one", "far", "range"}
    assert [m.path for m in store.list()] == [made["many"].file] == [made["more"].file]
    assert is_vector_file(made["many"].file)
    assert vector_files([v.to_json() for v in made.values()]) == {made["many"].file}
    for path, numbers in rows.items():
        assert read(store, made[path]) == numbers.tolist()
        assert made[path].cardinality == len(numbers)
        assert DeletionVector.from_json(made[path].to_json(), path=path) == made[path]


def test_what_is_wrong_is_named():
    store = memory_store()
    many = store_vectors(store, {"a": np.arange(0, 90_000, 3)})["a"]
    cases = {
        "magic": replace(GOLDEN, path_or_inline="0" * 55),
        "alphabet": replace(GOLDEN, path_or_inline="~" * 55),
        "shorter": replace(GOLDEN, size=45),
        "names 6 rows": replace(GOLDEN, cardinality=5),
        "missing": replace(many, path_or_inline="0" * 20),
        "file is shorter": replace(many, offset=2),
        "bytes at that place": replace(many, offset=0),
        "not letters and digits": replace(many, path_or_inline="../" + many.path_or_inline),
    }
    for reason, descriptor in cases.items():
        with pytest.raises(DamagedVectorError, match=reason) as caught:
            read(store, descriptor)
        assert "RESTORE" in str(caught.value)
    with pytest.raises(DamagedVectorError, match="names row 29, and the split has 20 rows"):
        read(store, GOLDEN, total=20)
    data = bytearray(store.get(many.file))
    data[300] ^= 1
    store.put(many.file, bytes(data))
    with pytest.raises(DamagedVectorError, match="checksum"):
        StoredVector(store, many, "a.split").read()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {**GOLDEN.to_json(), "storageType": "x"},
        {**GOLDEN.to_json(), "cardinality": "6"},
        {**GOLDEN.to_json(), "sizeInBytes": -1},
    ],
)
def test_a_descriptor_that_makes_no_sense(body):
    with pytest.raises(DamagedVectorError):
        DeletionVector.from_json(body, path="a.split")
