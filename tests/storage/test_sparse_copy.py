"""Which blocks of a sparse copy are there, whatever is in its holes."""

from __future__ import annotations

import errno
import os
import random
import zlib

import pytest

from indextables.storage import sparse_copy
from indextables.storage.sparse_copy import SparseCopy

COUNT = 300


def copy_of(path, blocks: list[bytes], block: int) -> SparseCopy:
    return SparseCopy(
        path,
        shown="x",
        block=block,
        checksums=[zlib.crc32(data) for data in blocks],
        recover=lambda error, attempt: False,
        filled=lambda path, written: None,
    )


@pytest.mark.parametrize("holes", ["known", "unknown"])
@pytest.mark.parametrize("block", [100, 4_096, 16_384])
def test_blocks_that_were_written_are_there_and_no_others(tmp_path, monkeypatch, block, holes):
    if holes == "unknown":

        def refuse(*_):
            raise OSError(errno.EINVAL, "no holes here")

        monkeypatch.setattr(sparse_copy.os, "lseek", refuse)
    chance = random.Random(block)
    for turn in range(20):
        blocks = [chance.randbytes(block) for _ in range(COUNT - 1)] + [chance.randbytes(7)]
        path = tmp_path / str(turn)
        with path.open("wb") as file:
            file.truncate(sum(map(len, blocks)))
        there = set(chance.sample(range(COUNT), chance.choice([0, 1, 5, 150, 299, COUNT])))
        with copy_of(path, blocks, block).opened() as copy:
            for at in chance.sample(range(COUNT), 3):  # what Tantivy needs to open a file
                copy.write_spot(at * block + 1, blocks[at][1:5])
            copy.write({number: blocks[number] for number in there})
        fresh = copy_of(path, blocks, block)
        asked = set(chance.sample(range(COUNT), chance.choice([1, 40, COUNT])))
        with fresh.opened() as copy:
            assert copy.missing(asked) == sorted(asked - there)
        assert {number for number in asked if fresh.there[number]} == asked & there
        content = path.read_bytes()
        assert all(content[n * block :].startswith(blocks[n]) for n in there)


def test_holes_are_not_read(tmp_path, monkeypatch):
    block = 16_384
    blocks = [bytes([number % 251 + 1]) * block for number in range(COUNT)]
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(block * COUNT)
    with copy_of(path, blocks, block).opened() as copy:
        copy.write({5: blocks[5], 200: blocks[200]})
    read = []
    pread = os.pread
    monkeypatch.setattr(
        sparse_copy.os, "pread", lambda file, size, at: read.append(at) or pread(file, size, at)
    )
    with copy_of(path, blocks, block).opened() as copy:
        assert copy.missing(range(COUNT)) == [n for n in range(COUNT) if n not in (5, 200)]
    assert {5 * block, 200 * block} <= set(read) and len(read) < 10
