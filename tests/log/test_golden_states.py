"""Tables that the Scala product wrote, read through their states."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
import pytest
from checkpoint_cases import RUNNER, config, content, memory_store

from indextables.log.checkpoint.avro_state import load_state, read_state_manifest
from indextables.log.checkpoint.checkpoints import write_checkpoint
from indextables.log.checkpoint.last_checkpoint import read_last_checkpoint
from indextables.log.snapshot import VersionActions
from indextables.storage import Store, open_store

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
if not (GOLDEN / "expected.json").exists():
    pytest.skip("the golden tables are not here", allow_module_level=True)
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())


@pytest.fixture(params=EXPECTED)
def table(request) -> str:
    return request.param


def test_there_are_nine():
    assert len(EXPECTED) == 9


def test_the_newest_state(table):
    expected = EXPECTED[table]
    store = open_store(GOLDEN / table)
    snapshot = load_state(store, expected["version"], config=config(), runner=RUNNER)
    state = read_state_manifest(store, expected["version"], config=config())
    assert snapshot.version == expected["version"]
    assert snapshot.num_files == expected["num_files"]
    assert snapshot.total_bytes == expected["total_size"]
    assert pc.sum(snapshot.files["numRecords"]).as_py() == expected["num_records"]
    assert snapshot.schema.names == expected["columns"]
    assert list(snapshot.partition_columns) == expected["partitionColumns"]
    assert state.num_files == expected["manifest_numFiles"]
    assert len(state.tombstones) == expected["tombstones"]
    assert sum(info.num_entries for info in state.manifests) == expected["entries"]
    values = snapshot.files["partitionValues"].to_pylist(maps_as_pydicts="strict")
    assert sorted({json.dumps(v) for v in values}) == sorted(expected["partitions"])
    assert snapshot.files["docMappingJson"].null_count == 0
    assert snapshot.protocol.min_reader_version == 4
    assert not snapshot.partial


def test_every_state_and_the_pointer(table):
    store = open_store(GOLDEN / table)
    pointer = read_last_checkpoint(store)
    assert pointer is not None and pointer.version == EXPECTED[table]["version"]
    assert pointer.num_files == EXPECTED[table]["num_files"]
    for version in range(1, EXPECTED[table]["states"] + 1):
        snapshot = load_state(store, version, config=config(), runner=RUNNER)
        assert snapshot.num_files == read_state_manifest(store, version, config=config()).num_files


def copied(table: str) -> Store:
    store = memory_store()
    original = open_store(GOLDEN / table)
    for meta in original.list():
        store.put(meta.path, original.get(meta.path))
    return store


@pytest.mark.parametrize("change", ["append", "nothing known"])
def test_our_state_on_top_of_theirs(table, change):
    """Their manifests are named by ours where the numbers add up, and nothing gets lost."""
    from checkpoint_cases import add

    store = copied(table)
    version = EXPECTED[table]["version"]
    old = load_state(store, version, config=config(), runner=RUNNER)
    new = [VersionActions(version + 1, (add("splits/new.split"),), old.timestamp + 1)]
    snapshot = old.advance(new)
    write_checkpoint(
        store,
        snapshot,
        config=config(),
        runner=RUNNER,
        read_versions=lambda _first, _last: new if change == "append" else None,
        states=range(1, version + 1),
    )
    assert content(load_state(store, version + 1, config=config(), runner=RUNNER)) == content(
        snapshot
    )
    theirs = {i.path for i in read_state_manifest(store, version, config=config()).manifests}
    ours = {i.path for i in read_state_manifest(store, version + 1, config=config()).manifests}
    assert (theirs < ours) == (change == "append")
