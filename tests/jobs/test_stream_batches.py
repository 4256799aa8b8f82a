"""Batches of a stream: each is in the table once, whatever was tried before."""

from __future__ import annotations

import contextlib
import itertools

import pyarrow as pa
import pytest
from faulty_store import Crash, FaultyStore, SimulatedCrash

from indextables import Table
from indextables.config import Config
from indextables.errors import OtherCheckpointError, UnsupportedFeatureError
from indextables.jobs.repair import repair_log
from indextables.jobs.write_job import plan_write
from indextables.log.actions import STREAMS, Txn
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store

SCHEMA = pa.schema({"n": pa.int64()})


def write(log, batch: int, values, *, kind="append", stream="s"):
    log.invalidate()
    job = plan_write(log, SCHEMA, settings=Config(), kind=kind)
    output = job.store(pa.table({"n": values}, schema=SCHEMA).to_batches())
    return job.commit(log, [output], batch=Txn(app_id=stream, version=batch, last_updated=1))


def splits(log) -> int:
    return sum(m.path.endswith(".split") for m in log.store.list())


@pytest.fixture
def log(tmp_path) -> TransactionLog:
    return TransactionLog(open_store(tmp_path / "t"))


def rows(log) -> list[int]:
    return sorted(Table.open(log.store.uri).scan()["n"].to_pylist())


def test_a_batch_is_written_once(log):
    assert write(log, 0, [1, 2]).rows == 2  # makes the table
    assert write(log, 0, [1, 2]).rows == 0
    assert write(log, 1, [3]).version == 1
    assert write(log, 0, [1, 2]).version == 1
    assert write(log, 0, [9], stream="other").version == 2
    assert rows(log) == [1, 2, 3, 9]
    assert splits(log) == 3, "splits of a batch that is there are deleted"
    assert STREAMS in log.snapshot().protocol.writer_features
    assert STREAMS not in log.snapshot().protocol.reader_features


def test_an_empty_batch_is_noted_only_if_it_is_the_first(log):
    write(log, 0, [])
    assert write(log, 1, []).version == 0
    assert write(log, 2, [5]).version == 1
    assert rows(log) == [5]


def test_complete_mode_replaces_all_rows_once(log):
    write(log, 0, [1], kind="overwrite")
    write(log, 1, [2, 3], kind="overwrite")
    write(log, 1, [2, 3], kind="overwrite")
    assert (rows(log), log.snapshot().version) == ([2, 3], 1)
    write(log, 2, [], kind="overwrite")
    assert rows(log) == []


def test_two_attempts_at_once_write_it_once(log):
    """The first attempt wins between the plan of the second one and its commit."""
    write(log, 0, [1])
    job = plan_write(log, SCHEMA, settings=Config(), kind="append")
    output = job.store(pa.table({"n": [2]}, schema=SCHEMA).to_batches())
    other = TransactionLog(open_store(log.store.uri))
    once = []

    def first(phase: str) -> None:
        if phase == "before_put" and not once:
            once.append(phase)
            write(other, 1, [2])

    log._committer.observer = first
    done = job.commit(log, [output], batch=Txn(app_id="s", version=1))
    assert once and done.rows == 0
    assert rows(log) == [1, 2]
    assert splits(log) == 2


@pytest.mark.parametrize("form", ["avro", "json"])
def test_checkpoints_truncation_restore_and_repair_keep_it(log, form, tmp_path):
    write(log, 0, [1])
    write(log, 1, [2])
    table = Table.open(log.store.uri, config={"spark.indextables.state.format": form})
    table.checkpoint()
    table.truncate_time_travel()
    fresh = TransactionLog(open_store(log.store.uri))
    assert fresh.snapshot().txns["s"].version == 1
    assert write(fresh, 1, [2]).rows == 0
    write(fresh, 2, [3])
    Table.open(log.store.uri).restore(version=fresh.snapshot().version - 1)
    assert write(fresh, 2, [3]).rows == 0, "what was restored was meant to go"
    target = open_store(tmp_path / "repaired")
    repair_log(fresh.store, target, config=Config())
    assert TransactionLog(target).snapshot().txns["s"].version == 2


def test_a_checkpoint_of_another_table_is_refused(log):
    with pytest.raises(OtherCheckpointError, match="batch 4"):
        write(log, 4, [1])
    assert not log.exists() and splits(log) == 0
    write(log, 0, [1])
    with pytest.raises(OtherCheckpointError, match="checkpointLocation"):
        write(log, 7, [1], stream="another")
    assert rows(log) == [1] and splits(log) == 1


def test_a_table_that_may_not_be_upgraded(log):
    Table.create(log.store.uri, SCHEMA)
    Table.open(log.store.uri).set_properties({"spark.indextables.protocol.autoUpgrade": "false"})
    with pytest.raises(UnsupportedFeatureError, match=STREAMS):
        write(log, 0, [1])
    assert splits(log) == 0


@pytest.mark.parametrize("kind", ["append", "overwrite"])
def test_killed_around_every_write_of_a_batch(tmp_path, kind):
    """A stream is killed at any phase of a batch and runs the batch again: it is there once."""
    writes = {"put", "put_if_absent", "put_if_match", "put_file", "delete"}
    expected = {"append": [1, 2, 3], "overwrite": [3]}[kind]

    def run(folder, crash, first):
        if not first:
            write(TransactionLog(open_store(folder)), 0, [1, 2], kind=kind)
        store = FaultyStore(open_store(folder), crash=crash)
        batch, values = (0, expected) if first else (1, [3])
        with contextlib.suppress(SimulatedCrash):
            write(TransactionLog(store), batch, values, kind=kind)
        if crash is not None:
            assert store.crashed
            write(TransactionLog(open_store(folder)), batch, values, kind=kind)
        log = TransactionLog(open_store(folder))
        assert rows(log) == expected
        assert log.snapshot().txns["s"].version == batch
        assert log.snapshot().version == batch
        return store

    for first in (True, False):
        whole = run(tmp_path / f"whole-{first}", None, first)
        phases = [n for n, (operation, _) in enumerate(whole.operations) if operation in writes]
        assert len(phases) >= 2
        for nth, after_effect in itertools.product(phases, (False, True)):
            folder = tmp_path / f"{first}-{nth}-{after_effect}"
            run(folder, Crash(nth, after_effect=after_effect), first)
