"""The pointer: a hint that may be anything, and never goes backwards."""

from __future__ import annotations

import threading

import orjson
import pytest
from checkpoint_cases import memory_store
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import ObjectExistsError, StorageError
from indextables.log.checkpoint.last_checkpoint import (
    LastCheckpoint,
    advance_last_checkpoint,
    read_last_checkpoint,
)
from indextables.log.layout import LAST_CHECKPOINT, checkpoint_path, state_path
from indextables.storage import open_store

FULL = LastCheckpoint(
    version=42,
    size=15000,
    size_in_bytes=104857600,
    num_files=15000,
    created_time=1704067200000,
    parts=3,
    checkpoint_id="abc",
    format="json-multipart",
    state_dir=None,
)


def pointer(version: int, **fields) -> LastCheckpoint:
    return LastCheckpoint(version, 1, 1, 1, 1, format="avro-state", **fields)


def test_round_trip_and_names():
    store = memory_store()
    advance_last_checkpoint(store, FULL)
    assert read_last_checkpoint(store) == FULL
    assert {*orjson.loads(store.get(LAST_CHECKPOINT))} == {
        "version", "size", "sizeInBytes", "numFiles", "createdTime", "parts", "checkpointId",
        "format", "checksum",
    }  # fmt: skip


HINTS = {
    b'{"version":7}': 7,
    b'{"version":7,"parts":null,"format":"avro-state","stateDir":"state-v7"}': 7,
    b'{"version":7,"whatever":{}}': 7,
    b"": None,
    b"{": None,
    b"[]": None,
    b"null": None,
    b"{}": None,
    b'{"version":-1}': None,
    b'{"version":"7"}': None,
    b'{"version":true}': None,
    b'{"version":7.0}': None,
    b'{"version":7,"format":1}': None,
    b'{"version":7,"size":-4}': None,
    b'{"version":100000000000000000000}': None,
    b'{"version":7,"checksum":"12345678"}': None,
    b'{"version":7,"checksum":5}': None,
    b'{"version":7}' + b" " * 70_000: None,
    b"\xff\xfe": None,
}


@pytest.mark.parametrize("text", HINTS)
def test_hints(text):
    store = memory_store()
    store.put(LAST_CHECKPOINT, text)
    found = read_last_checkpoint(store)
    assert (found and found.version) == HINTS[text]


def test_missing():
    assert read_last_checkpoint(memory_store()) is None


@given(st.data())
def test_a_flipped_bit_never_gives_another_pointer(data):
    store = memory_store()
    advance_last_checkpoint(store, FULL)
    broken = bytearray(store.get(LAST_CHECKPOINT))
    broken[data.draw(st.integers(0, len(broken) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    store.put(LAST_CHECKPOINT, bytes(broken))
    # A bit in the checksum's name leaves a pointer without one: it is then what it was.
    assert read_last_checkpoint(store) in (None, FULL)


def test_never_backwards():
    store = memory_store()
    for version in (5, 9, 7):
        store.put(state_path(version), b"x")
        advance_last_checkpoint(store, pointer(version))
    assert read_last_checkpoint(store) == pointer(9)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (b"garbage", 5),
        (b'{"version":999999}', 5),  # names a checkpoint that is not there
        (b'{"version":999999,"format":"avro-state"}', 5),
        (b'{"version":8}', 8),  # there as JSON
        (b'{"version":9,"format":"avro-state"}', 9),  # there as a state
    ],
)
def test_a_wrong_pointer_does_not_stand_for_ever(before, expected):
    store = memory_store()
    store.put(checkpoint_path(8), b"x")
    store.put(state_path(9), b"x")
    store.put(LAST_CHECKPOINT, before)
    advance_last_checkpoint(store, pointer(5))
    found = read_last_checkpoint(store)
    assert found is not None and found.version == expected


def test_racing_writers(tmp_path):
    store = open_store(tmp_path)
    versions = list(range(24))
    for version in versions:
        store.put(state_path(version), b"x")
    seen: list[int] = []
    barrier = threading.Barrier(4)

    def write(mine: list[int]) -> None:
        barrier.wait()
        for version in mine:
            advance_last_checkpoint(store, pointer(version))
            found = read_last_checkpoint(store)
            assert found is not None and found.version >= version
            seen.append(found.version)

    threads = [threading.Thread(target=write, args=(versions[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read_last_checkpoint(store)
    assert found is not None and found.version == 23
    assert len(seen) == 24


def test_a_writer_that_loses_every_race_says_so(monkeypatch):
    store = memory_store()

    def lose(path, data, etag):
        raise ObjectExistsError(path)

    monkeypatch.setattr(store, "put_if_match", lose)
    with pytest.raises(StorageError, match="nothing needs to be done"):
        advance_last_checkpoint(store, pointer(1))
