"""Every job killed at every request: the table is as it was, or as the job would have left it."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from faulty_store import Crash, FaultyStore, SimulatedCrash

from indextables import Table
from indextables.config import Config
from indextables.errors import VersionNotFoundError
from indextables.jobs.history import purge
from indextables.jobs.repair import repair_log
from indextables.log import vectors
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store

SCHEMA = pa.schema({"id": pa.int64(), "day": pa.string(), "body": pa.string()})


def rows(*ids: int, day: str) -> pa.Table:
    return pa.table(
        {"id": ids, "day": [day] * len(ids), "body": [f"word{i}" for i in ids]}, schema=SCHEMA
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "t"
    table = Table.create(folder, SCHEMA, partition_by=["day"])
    table.append(rows(1, 2, day="a"))
    table.append(rows(3, 4, day="b"))
    table.overwrite(rows(5, 6, day="a"), where="day = 'a'")
    table.checkpoint()
    table.append(rows(7, day="c"))
    then = time.time() - 3 * 86_400
    for file in folder.rglob("*"):
        if file.is_file():
            os.utime(file, (then, then))
    return folder


def _table(store, config) -> Table:
    return Table.of_log(TransactionLog(store, config=Config(config)))


JOBS = {
    "drop": (lambda t: t.drop_partitions(where="day = 'a'"), {(3, 4, 7)}),
    "delete": (lambda t: t.delete(where="body indexquery 'word5 OR word3'"), {(4, 6, 7)}),
    "update": (lambda t: t.update("id = id + 10", where="id >= 6"), {(3, 4, 5, 16, 17)}),
    "mark, delete": (lambda t: t.delete(where="body indexquery 'word5 OR word3'"), {(4, 6, 7)}),
    "mark, update": (lambda t: t.update("id = id + 10", where="id >= 6"), {(3, 4, 5, 16, 17)}),
    "mark, merge": (
        lambda t: t.merge(rows(4, 6, 8, day="b"), on="id", when_matched="update"),
        {(3, 4, 5, 6, 7, 8)},
    ),
    "truncate": (lambda t: t.truncate_time_travel(), {(3, 4, 5, 6, 7)}),
    "purge": (
        lambda t: purge(
            t.log, retention_hours=48, log_retention_hours=24, dry_run=False, config=Config()
        ),
        {(3, 4, 5, 6, 7)},
    ),
    "checkpoint": (lambda t: t.checkpoint(), {(3, 4, 5, 6, 7)}),
}
BEFORE = (3, 4, 5, 6, 7)


WRITES = {"put", "put_if_absent", "put_if_match", "put_file", "delete"}


@pytest.mark.parametrize("name", JOBS)
def test_killed_around_every_write(name, original, tmp_path, monkeypatch):
    """What a kill between two reads leaves behind is what one before the next write does."""
    job, after = JOBS[name]
    config = {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}
    if name.startswith("mark"):
        config["spark.indextables.deletionVectors.mode"] = "vector"
        monkeypatch.setattr(vectors, "MOST_INLINE", 0)  # each is in a file

    def run(folder, crash):
        shutil.copytree(original, folder)
        store = FaultyStore(open_store(folder), crash=crash)
        try:
            job(_table(store, config))
        except SimulatedCrash:
            return store, {BEFORE} | after
        return store, after

    # A process keeps what it reads of manifests: until it reads no less, operations are fewer.
    before = 0
    for attempt in range(5):
        store, allowed = run(tmp_path / f"whole{attempt}", None)
        _check(tmp_path / f"whole{attempt}", allowed, config)
        if len(store.operations) == before:
            break
        before = len(store.operations)
    writes = [n for n, (operation, _) in enumerate(store.operations) if operation in WRITES]
    assert writes
    for nth, after_effect in itertools.product(writes, (False, True)):
        folder = tmp_path / f"{nth}-{after_effect}"
        store, allowed = run(folder, Crash(nth, after_effect=after_effect))
        assert store.crashed
        _check(folder, allowed, config)


def _check(folder, allowed, config) -> None:
    found = Table.open(folder, config=config)
    assert tuple(sorted(found.scan()["id"].to_pylist())) in allowed
    for version in found.history()["version"].to_pylist():
        try:
            old = Table.open(folder, version=version, config=config)
        except VersionNotFoundError:
            continue
        assert old.count() == old.scan().num_rows
    found.append(rows(9, day="z"))
    assert found.count(where="body indexquery 'word9'") == 1
    # Nothing that a version needs is among the leftovers, and purge removes them all.
    before, now = found.count(), time.time() - 3 * 86_400
    for file in folder.rglob("*"):
        if file.is_file():
            os.utime(file, (now, now))
    purge(
        TransactionLog(open_store(folder)),
        retention_hours=24,
        log_retention_hours=10_000,
        dry_run=False,
        config=Config(),
    )
    named = set[str]()
    for version in found.history()["version"].to_pylist():
        with contextlib.suppress(VersionNotFoundError):
            old = Table.open(folder, version=version, config=config)
            assert old.count() == old.scan().num_rows
            named |= old.snapshot().vector_files
    there = {str(file.relative_to(folder)) for file in folder.rglob("deletion_vector_*.bin")}
    assert there == named
    assert found.count() == before


def test_a_killed_repair_leaves_the_source_alone(original, tmp_path):
    before = {p: p.read_bytes() for p in original.rglob("*") if p.is_file()}
    for nth in range(20):
        target = FaultyStore(open_store(tmp_path / f"{nth}"), crash=Crash(nth))
        try:
            repair_log(open_store(original), target, config=Config())
        except SimulatedCrash:
            continue
        break
    else:
        pytest.fail("the repair never ended")
    assert nth > 1
    assert {p: p.read_bytes() for p in original.rglob("*") if p.is_file()} == before
