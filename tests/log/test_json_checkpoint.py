"""JSON checkpoints in one file, in parts, and in the shapes of older writers."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace

import orjson
import pytest
from checkpoint_cases import (
    RUNNER,
    add,
    config,
    content,
    memory_store,
    metadata,
    snapshot_of,
    snapshots,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indextables.errors import (
    CorruptLogError,
    LogError,
    LogTooLargeError,
    StorageError,
    UnsafePathError,
)
from indextables.log.actions import Skip
from indextables.log.checkpoint.json_checkpoint import load_json_checkpoint, write_json_checkpoint
from indextables.log.layout import LOG_DIRECTORY, checkpoint_part_path, checkpoint_path

MANY = snapshot_of([add(f"splits/{n}.split") for n in range(10)])


def written(snapshot, store=None, **options):
    store = store or memory_store()
    return store, write_json_checkpoint(store, snapshot, config=config(**options))


def load(store, version, **options):
    return load_json_checkpoint(store, version, config=config(**options), runner=RUNNER)


def parts(store) -> list[str]:
    return [m.path for m in store.list(LOG_DIRECTORY) if m.path != checkpoint_path(1)]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(snapshots(), st.booleans(), st.sampled_from([1, 3, 50_000]))
def test_round_trip(snapshot, compress, per_part):
    store, _ = written(
        snapshot, transaction_compression_enabled=compress, checkpoint_actionsPerPart=per_part
    )
    found = load(store, snapshot.version)
    assert content(found) == content(snapshot)
    assert found.entries.schema == snapshot.entries.schema


def test_one_file():
    store, pointer = written(MANY)
    assert (pointer.format, pointer.parts, pointer.size, pointer.num_files) == (
        "json",
        None,
        12,
        10,
    )
    assert parts(store) == []
    text = gzip.decompress(store.get(checkpoint_path(1)))
    first, *rest = [orjson.loads(line) for line in text.splitlines()]
    assert first["commitInfo"]["operation"] == "CHECKPOINT"
    assert first["commitInfo"]["timestamp"] == MANY.timestamp
    assert [next(iter(line)) for line in rest] == ["protocol", "metaData", *["add"] * 10]


def test_compression_can_be_switched_off():
    store, _ = written(MANY, transaction_compression_enabled=False)
    assert store.get(checkpoint_path(1)).startswith(b'{"commitInfo"')
    store, _ = written(MANY, transaction_compression_enabled=False, checkpoint_actionsPerPart=5)
    assert all(store.get(path).startswith(b'{"') for path in parts(store))


def test_several_parts():
    store, pointer = written(MANY, checkpoint_actionsPerPart=5)
    assert (pointer.format, pointer.parts) == ("json-multipart", 3)
    document = orjson.loads(gzip.decompress(store.get(checkpoint_path(1))))
    assert (document["version"], document["numActions"]) == (1, 12)
    assert document["checkpointId"] == pointer.checkpoint_id
    expected = [checkpoint_part_path(1, pointer.checkpoint_id, n) for n in (1, 2, 3)]
    assert [f"{LOG_DIRECTORY}/{name}" for name in document["parts"]] == expected == parts(store)
    assert content(load(store, 1)) == content(MANY)


def test_as_many_actions_as_a_part_may_have():
    assert written(MANY, checkpoint_actionsPerPart=12)[1].format == "json"
    assert written(MANY, checkpoint_actionsPerPart=11)[1].parts == 2


def test_a_checkpoint_that_exists_stays():
    store, _ = written(MANY)
    before = store.get(checkpoint_path(1))
    written(snapshot_of([add("other")]), store)
    assert store.get(checkpoint_path(1)) == before


def test_a_partial_snapshot_is_no_checkpoint():
    with pytest.raises(ValueError, match="lacks files"):
        written(replace(MANY, unread=lambda _keep: MANY))


def test_expired_skips_are_dropped():
    skips = [
        Skip(path=p, skip_timestamp=1, reason="r", operation="o", retry_after=after)
        for p, after in [("expired", 5), ("waiting", 10**15)]
    ]
    store, _ = written(snapshot_of(skips))
    assert set(load(store, 1).skips) == {"waiting"}


# --- shapes of others ------------------------------------------------------------------------

OBJECT = {
    "protocol": {"minReaderVersion": 2, "minWriterVersion": 2},
    "metaData": metadata(key="v").to_json()["metaData"],
    "add": [{"path": "a.split", "size": 3, "docMappingJson": "[1]"}, {"path": "b.split"}],
}


@pytest.mark.parametrize(
    "data",
    [
        orjson.dumps(OBJECT),
        gzip.compress(orjson.dumps(OBJECT)),
        b"\x01\x01" + gzip.compress(orjson.dumps(OBJECT)),
        orjson.dumps(OBJECT, option=orjson.OPT_INDENT_2),
        orjson.dumps({**OBJECT, "skip": None, "version": 4}),
        b"\n".join(
            orjson.dumps(line)
            for line in [
                {"protocol": OBJECT["protocol"]},
                {"metaData": OBJECT["metaData"]},
                {"add": {"path": "gone.split"}},
                {"remove": {"path": "gone.split"}},
                *({"add": body} for body in OBJECT["add"]),
            ]
        ),
    ],
)
def test_other_shapes(data):
    store = memory_store()
    store.put(checkpoint_path(4), data)
    found = load(store, 4)
    assert set(found.entries["path"].to_pylist()) == {"a.split", "b.split"}
    assert found.protocol.min_reader_version == 2
    assert found.metadata.configuration["key"] == "v"
    assert found.timestamp == store.head(checkpoint_path(4)).modified_ms
    assert [*found.mappings.values()] == ["[1]"]


def test_parts_given_as_a_number():
    store, pointer = written(MANY, checkpoint_actionsPerPart=5)
    store.put(
        checkpoint_path(1),
        orjson.dumps({"version": 1, "checkpointId": pointer.checkpoint_id, "parts": 3}),
    )
    assert load(store, 1).num_files == 10


# --- damage ----------------------------------------------------------------------------------

BAD = {
    "empty": b"",
    "no json": b"hello}",
    "a list": b"[1]\n",
    "no metadata": b'{"protocol":{"minReaderVersion":1,"minWriterVersion":1}}\n',
    "cut off": orjson.dumps(OBJECT)[:-4],
    "strange part": b'{"checkpointId":"a","parts":["../../secret"]}\n',
    "part of another version": (
        b'{"checkpointId":"a","parts":["00000000000000000009.checkpoint.a.00001.json"]}\n'
    ),
    "part that is not text": b'{"checkpointId":"a","parts":[7]}\n',
    "missing part": b'{"checkpointId":"a","parts":1}\n',
    "no parts": b'{"checkpointId":"a","parts":"x"}\n',
    "checksums do not fit": (
        b'{"parts":["00000000000000000001.checkpoint.a.00001.json"],"partChecksums":[]}\n'
    ),
    "an add without a path": orjson.dumps({**OBJECT, "add": [{"size": 1}]}),
    "an add that is none": orjson.dumps({**OBJECT, "add": ["x"]}),
    "a size that is not a number": orjson.dumps({**OBJECT, "add": [{"path": "a", "size": "x"}]}),
    "a size beyond all": orjson.dumps({**OBJECT, "add": [{"path": "a", "size": 2**64 - 1}]}),
    "values that are no text": orjson.dumps(
        {**OBJECT, "add": [{"path": "a", "minValues": {"x": 1}}]}
    ),
    "values that are no map": orjson.dumps(
        {**OBJECT, "add": [{"path": "a", "partitionValues": [1]}]}
    ),
    "a mapping that is not text": orjson.dumps(
        {**OBJECT, "add": [{"path": "a", "docMappingJson": 5}]}
    ),
    "a wrong version": orjson.dumps({**OBJECT, "add": [{"path": "a", "addedAtVersion": "x"}]}),
}


@pytest.mark.parametrize("case", BAD)
def test_damage(case):
    store = memory_store()
    store.put(checkpoint_path(1), BAD[case])
    with pytest.raises(CorruptLogError):
        load(store, 1)


def test_paths_that_leave_the_table():
    store = memory_store()
    store.put(checkpoint_path(1), orjson.dumps({**OBJECT, "add": [{"path": "../a"}]}))
    with pytest.raises(UnsafePathError):
        load(store, 1)


@pytest.mark.parametrize("per_part", [5, 50_000])
@pytest.mark.parametrize("compress", [True, False])
def test_no_flipped_byte_gives_another_snapshot(per_part, compress):
    store, _ = written(
        MANY, checkpoint_actionsPerPart=per_part, transaction_compression_enabled=compress
    )
    rng = random.Random(5)
    for path in (checkpoint_path(1), *parts(store)):
        data = store.get(path)
        for _ in range(200):
            broken = bytearray(data)
            if rng.random() < 0.3:
                del broken[rng.randrange(len(broken)) :]
            else:
                broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
            store.put(path, bytes(broken))
            try:
                found = load(store, 1)
            except LogError:
                continue
            # Bits that gzip does not use (its header's time and system) change nothing.
            assert content(found) == content(MANY)
        store.put(path, data)


def test_a_lost_part():
    store, _ = written(MANY, checkpoint_actionsPerPart=5)
    store.delete(parts(store)[1:2])
    with pytest.raises(CorruptLogError, match="missing"):
        load(store, 1)


def test_parts_of_another_checkpoint():
    store, _ = written(MANY, checkpoint_actionsPerPart=5)
    first, second, _ = parts(store)
    store.put(second, store.get(first))
    with pytest.raises(CorruptLogError):
        load(store, 1)


def test_a_bomb():
    store = memory_store()
    store.put(checkpoint_path(1), gzip.compress(b" " * 10_000_000 + b"{}\n"))
    with pytest.raises(LogTooLargeError):
        load(store, 1, transaction_maxFileSize=1_000_000)


def test_a_read_that_takes_too_long():
    class Slow:
        def map(self, function, tasks, *, timeout_s=None, ended=None):
            assert timeout_s == 7
            raise TimeoutError

    store, _ = written(MANY, checkpoint_actionsPerPart=5)
    with pytest.raises(StorageError, match="longer than 7 seconds"):
        load_json_checkpoint(
            store, 1, config=config(checkpoint_read_timeoutSeconds=7), runner=Slow()
        )


def test_failed_writes_are_tried_again(monkeypatch):
    store = memory_store()
    left = [2]
    real = store.put_if_absent

    def flaky(path, data):
        if left[0]:
            left[0] -= 1
            raise StorageError("down")
        real(path, data)

    monkeypatch.setattr(store, "put_if_absent", flaky)
    written(MANY, store)
    assert load(store, 1).num_files == 10
