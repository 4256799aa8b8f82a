"""Logs that the Scala product wrote, read as it would read them, and written to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest
from logs import add, append, paths

from indextables.config import Config
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="the logs written by the Scala product are not on this machine"
)
TABLES = json.loads((GOLDEN / "expected.json").read_text()) if GOLDEN.is_dir() else {}


@pytest.mark.parametrize("name", TABLES)
def test_the_newest_snapshot_is_what_the_product_wrote(name):
    expected = TABLES[name]
    snapshot = TransactionLog(open_store(GOLDEN / name)).snapshot()
    files = snapshot.files
    assert snapshot.version == expected["version"]
    assert files.num_rows == snapshot.num_files == expected["num_files"]
    assert pc.sum(files["numRecords"]).as_py() == expected["num_records"]
    assert snapshot.total_bytes == expected["total_size"]
    assert snapshot.schema.names == expected["columns"]
    assert list(snapshot.partition_columns) == expected["partitionColumns"]
    partitions = {json.dumps(dict(v)) for v in files["partitionValues"].to_pylist()}
    assert sorted(partitions) == expected["partitions"]
    assert files["docMappingJson"].null_count == 0


@pytest.mark.parametrize("name", TABLES)
def test_every_state_is_a_version_to_travel_to(name):
    log = TransactionLog(open_store(GOLDEN / name))
    for version in range(TABLES[name]["version"] + 1):
        assert log.snapshot(version=version).version == version
    assert len(log.history()) == TABLES[name]["version"] + 1


@pytest.mark.parametrize("name", TABLES)
def test_the_next_commit_follows_and_nothing_is_lost(name, tmp_path):
    shutil.copytree(GOLDEN / name, tmp_path / "t")
    store = open_store(tmp_path / "t")
    log = TransactionLog(store, config=Config({"spark.indextables.checkpoint.interval": 2}))
    before = paths(log.snapshot())
    new = [add(f"splits/new-{n}.split") for n in range(5)]
    versions = [append(log, one).version for one in new]
    assert versions == [TABLES[name]["version"] + n for n in range(1, 6)]
    expected = before | {a.path for a in new}
    assert paths(TransactionLog(store).snapshot()) == paths(log.snapshot()) == expected
    assert TransactionLog(store).snapshot().schema.names == TABLES[name]["columns"]
