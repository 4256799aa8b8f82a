"""One kernel of bloom filters for two formats, with the bits that stored filters have."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pyarrow as pa
import pytest

from indextables.ariadne.values import bloom
from indextables.ariadne.values.hashing import hash_values
from indextables.bloom import WORDS, bits_of, blocks_of, filled_blocks, masks_of
from indextables.split.format.container import Section
from indextables.xref.container import (
    BloomFilters,
    BloomWriter,
    hashes,
    possible,
)

USERS = pa.array([f"user-{number}" for number in range(200)])

# Written when each format had a kernel of its own.
ARIADNE = bytes.fromhex(
    "41424631010000000c00000000000000a84072021320f01794008340cc021019e88004cc06a1138818135846740a11"
    "81"
)
ARIADNE_OF_200 = "d5b8503629aa0c817ee8922aa6c9070017e5b71f0ff86051ff4512514a06ced0"
XREF = bytes.fromhex(
    "0da6f396b8a94fc0015e07a5093a0b24944fc02a437079608d21fb9c364943ab2004020a0800089802c01004028800"
    "a00080028c100108040005c80061000020ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
    "ffff55aa923f"
)
SECTION = Section("bloom", "bloom-k-0", 0, 100, 100, 558161692)
FILTERS = BloomFilters("k", "bloom-k-0", base=0, splits=3, blocks=1)


def test_ariadne_writes_the_bytes_that_it_always_wrote():
    assert bloom.build(hash_values(USERS.slice(0, 12)), 0.1) == ARIADNE
    large = bloom.build(hash_values(USERS), 0.01)
    assert hashlib.sha256(large).hexdigest() == ARIADNE_OF_200


def test_ariadne_reads_old_bytes():
    answer = bloom.probe(bloom.Filters.of([ARIADNE]), hash_values(USERS))[0]
    assert answer[:12].all()
    assert not answer[12:].all()
    assert bloom.value_count(ARIADNE) == 12


def test_an_xref_writes_the_bytes_that_it_always_wrote(tmp_path):
    writer = BloomWriter(tmp_path / "filters", "k", splits=3, values=20, bits=10)
    writer.add(0, hashes(USERS.slice(0, 20)))
    writer.add(1, hashes(USERS.slice(20, 5)))
    sink = io.BytesIO()
    assert writer.write(sink, documents=3) == (SECTION, FILTERS)
    assert sink.getvalue() == XREF


@pytest.mark.parametrize(("value", "splits"), [("user-3", [0, 2]), ("user-22", [1, 2])])
def test_an_xref_reads_old_bytes(value, splits):
    mask = possible(
        [FILTERS], {"bloom-k-0": SECTION}, lambda start, end: XREF[start:end], [value],
        documents=3, path="old",
    )  # fmt: skip
    assert set(np.flatnonzero(mask)) >= set(splits)
    assert not mask.all()


def test_any_order_of_hashes_fills_the_same_blocks():
    random = np.random.default_rng(3)
    values = random.integers(0, 2**64, 500, np.uint64)
    blocks = filled_blocks(values, 7)
    assert (blocks == filled_blocks(np.sort(values), 7)).all()
    assert not filled_blocks(values[:0], 7).any()
    masks = masks_of(values)
    assert ((blocks[blocks_of(values, 7)] & masks) == masks).all()
    assert (np.bitwise_count(masks) == 1).all()
    assert all((masks[:, word] == bits_of(values, word)).all() for word in range(WORDS))
