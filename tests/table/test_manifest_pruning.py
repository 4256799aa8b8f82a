"""A condition on partitions opens only the manifests of the log that can matter."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from faulty_store import FaultyStore
from logs import memory_store

from indextables import Table
from indextables.config import Config
from indextables.errors import PredicateSyntaxError, UnknownColumnError
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int32())])
DAYS = 6
SETTINGS = {
    "spark.indextables.state.entriesPerManifest": 2,
    "spark.indextables.checkpoint.enabled": False,
}


def made():
    """Six days of two splits, a manifest each; after the checkpoint, one more split of a day."""
    store = FaultyStore(memory_store())
    table = Table.create(store.uri, SCHEMA, partition_by=["day"], config=SETTINGS)
    for number in range(2 * DAYS):
        day = f"d{number % DAYS}"
        table.append(pa.table({"id": [number], "day": [day], "n": [1]}, schema=SCHEMA))
    table.log.checkpoint(force_compaction=True)
    table.append(pa.table({"id": [100], "day": ["d3"], "n": [1]}, schema=SCHEMA))
    return store


@pytest.fixture(scope="module")
def store():
    return made()


@pytest.fixture
def fresh():
    return made()


def opened(store):
    log = TransactionLog(store, config=Config(SETTINGS))
    log.invalidate()  # this process has read its manifests before
    return Table.of_log(log)


def manifests_read(store, work):
    before = store.count("get", "manifests/")
    found = work()
    return found, store.count("get", "manifests/") - before


@pytest.mark.parametrize(
    ("where", "rows", "manifests"),
    [
        ("day = 'd2'", 2, 1),
        ("day = 'd3'", 3, 1),
        ("day IN ('d0', 'd5') AND n = 1", 4, 2),
        ("day > 'd4'", 2, 1),
        ("NOT (day < 'd4')", 4, 2),
        ("day = 'nowhere'", 0, 0),
        ("n = 1", 13, 6),
    ],
)
def test_only_manifests_that_can_match_are_read(store, where, rows, manifests):
    assert manifests_read(store, lambda: opened(store).count(where=where)) == (rows, manifests)
    table = opened(store)
    found, read = manifests_read(store, lambda: table.scan(where=where))
    assert (found.num_rows, read) == (rows, manifests)
    # What was read in part is not the table: the next question sees all of it.
    assert table.count() == 2 * DAYS + 1
    assert table.snapshot().num_files == 2 * DAYS + 1


def test_opening_a_table_reads_no_manifest(store, monkeypatch):
    monkeypatch.setattr("indextables.table.table.open_store", lambda *_: store)
    (table, read) = manifests_read(store, lambda: Table.open(store.uri, config=SETTINGS))
    assert read == 0
    assert table.count(where="day = 'd1'") == 2
    assert table.version == 2 * DAYS + 1
    assert table.count(where="id >= 0") == 2 * DAYS + 1


def test_mistakes_are_the_same(store):
    with pytest.raises(UnknownColumnError):
        opened(store).count(where="dya = 'd1'")
    with pytest.raises(PredicateSyntaxError):
        opened(store).count(where="day = ")


def test_a_commit_after_a_question_in_part_builds_on_the_whole_table(fresh):
    table = opened(fresh)
    assert table.count(where="day = 'd2'") == 2
    table.delete(where="day = 'd3' AND id = 100")
    assert table.count() == opened(fresh).count() == 2 * DAYS
    table.log.checkpoint()
    assert opened(fresh).count() == 2 * DAYS


def test_a_change_of_metadata_after_the_checkpoint_prunes_nothing(fresh):
    """Its bounds may mean other columns than the condition."""
    table = opened(fresh)
    changed = replace(table.snapshot().metadata, description="another table, almost")
    table.log.commit(Transaction(operation=Operation.METADATA, actions=[changed]))
    found = manifests_read(fresh, lambda: opened(fresh).count(where="day = 'd2'"))
    assert found == (2, DAYS)
