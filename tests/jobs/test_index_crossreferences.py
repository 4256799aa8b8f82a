"""INDEX CROSSREFERENCES as a job: the scenarios, on local disk and on S3, and its conflicts."""

from __future__ import annotations

import os
import pickle
import time
import uuid

import pytest
from logs import xref
from racing import race_threads
from xref_tables import (
    OFF,
    QUICK,
    SCHEMA,
    XREF,
    check_found,
    counted_reads,
    grow,
    intervene,
    named_xrefs,
    rows,
    sizes,
    xref_actions,
    xref_files,
)

from indextables import Table
from indextables.config import XREF_BUILD_PARALLELISM
from indextables.errors import (
    ConcurrentIndexError,
    NotAPartitionError,
    ObjectNotFoundError,
    SplitFileError,
    UpgradeRefusedError,
)
from indextables.log.snapshot import coverage
from indextables.log.transaction import Operation, Transaction
from indextables.runner import LocalRunner

LIMIT = XREF + "autoIndex.maxSourceSplits"
CONFIG = {**OFF, **QUICK, LIMIT: 6}


@pytest.fixture(params=["local", "s3"])
def table(request, tmp_path) -> Table:
    """A table that is not indexed by the way, of one split a row."""
    if request.param == "local":
        return Table.create(tmp_path / "t", SCHEMA, config=CONFIG)
    server = request.getfixturevalue("s3")
    disk = {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}
    uri = f"{server.uri}/{uuid.uuid4().hex}"
    return Table.create(uri, SCHEMA, config=CONFIG | disk, storage_options=server.options)


@pytest.fixture
def local(tmp_path) -> Table:
    return Table.create(tmp_path / "t", SCHEMA, partition_by=["day"], config=CONFIG)


def done(found) -> list[tuple[str, int]]:
    """The rows of the command in short."""
    return [(row["action"], row["source_splits_count"]) for row in found.to_pylist()]


# --- the scenarios -----------------------------------------------------------------------------


def test_scenarios_a_to_d(table, monkeypatch):
    # A: nothing is there.
    grow(table, 0, 3)
    found = table.index_crossreferences()
    assert done(found) == [("created", 3)]
    (row,) = found.to_pylist()
    assert row["partition"] == ""
    assert row["table_path"] == table.uri
    assert {row["xref_path"]} == xref_files(table) == set(table.snapshot().xrefs)
    assert row["total_terms"] > 0
    assert row["xref_size_bytes"] > 0
    assert xref_actions(table) == [("add", 3)]
    assert done(table.index_crossreferences()) == [("unchanged", 3)]

    # B: two more, and there is room: one commit replaces it. Only the new ones are read.
    grow(table, 3, 2)
    before = table.version
    with counted_reads(monkeypatch) as read:
        assert done(table.index_crossreferences()) == [("rebuilt", 5)]
    assert read == [2]
    assert table.version == before + 1
    assert xref_actions(table) == [("remove", "replaced"), ("add", 5)]

    # C: two more do not fit. The one that is there stays.
    grow(table, 5, 2)
    assert done(table.index_crossreferences()) == [("unchanged", 5), ("created", 2)]
    assert xref_actions(table) == [("add", 2)]
    check_found(table, list(range(7)))

    # D: rows of three splits are deleted: what is left and what is new becomes one.
    table.delete(where="id < 3")
    table.append(rows(9))
    assert done(table.index_crossreferences()) == [("unchanged", 2), ("rebuilt", 3)]
    assert xref_actions(table) == [("remove", "source_changed"), ("add", 3)]
    assert coverage(table.snapshot()).percent == 100
    check_found(table, [3, 4, 5, 6, 9])
    assert xref_files(table) == named_xrefs(table), "an XRef that nobody names was left behind"


def test_d_sources_are_gone_and_another_came(table):
    grow(table, 0, 5)
    table.index_crossreferences()
    table.delete(where="id IN (1, 2)")
    table.append(rows(12))
    assert done(table.index_crossreferences()) == [("rebuilt", 4)]
    assert xref_actions(table) == [("remove", "source_changed"), ("add", 4)]
    check_found(table, [0, 3, 4, 12])


def test_overwrite_leaves_nothing_of_the_old_one(local):
    grow(local, 0, 4)
    local.index_crossreferences()
    local.overwrite(rows(10))
    assert done(local.index_crossreferences()) == [("rebuilt", 1)]
    local.delete(where="true")
    assert done(local.index_crossreferences()) == [("rebuilt", 0)]
    assert local.crossreferences().num_rows == 0
    assert done(local.index_crossreferences()) == []


def test_more_splits_than_one_may_cover(local):
    grow(local, 0, 14)
    assert done(local.index_crossreferences()) == [("created", 6), ("created", 6), ("created", 2)]
    assert {x.max_source_splits for x in local.snapshot().xrefs.values()} == {6}
    check_found(local, list(range(14)))


def test_partitions(local):
    grow(local, 0, 2, "a")
    grow(local, 2, 2, "b")
    found = local.index_crossreferences(where="day = 'b'")
    assert done(found) == [("created", 2)]
    assert found["partition"].to_pylist() == ["day = 'b'"]
    assert str(coverage(local.snapshot())) == "Coverage: 2/4 (50.00%)"
    assert done(local.index_crossreferences(where="day = 'c'")) == []
    assert done(local.index_crossreferences(where="day = 'b'")) == [("unchanged", 2)]
    assert done(local.index_crossreferences()) == [("rebuilt", 4)]
    check_found(local, [0, 1, 2, 3])


@pytest.mark.parametrize("where", ["id = 1", "day = 'a' OR id > 3", "body indexquery 'fox'"])
def test_a_condition_on_rows_is_refused(local, where):
    with pytest.raises(NotAPartitionError):
        local.index_crossreferences(where=where)


def test_force_rebuild_reads_every_split(local, monkeypatch):
    grow(local, 0, 3)
    local.index_crossreferences()
    old = set(local.snapshot().xrefs)
    with counted_reads(monkeypatch) as read:
        assert done(local.index_crossreferences(force_rebuild=True)) == [("rebuilt", 3)]
    assert read == [3]
    assert xref_actions(local) == [("remove", "replaced"), ("add", 3)]
    assert old.isdisjoint(local.snapshot().xrefs)


def test_a_dry_run_changes_nothing(local):
    grow(local, 0, 8)
    before = local.version
    found = local.index_crossreferences(dry_run=True)
    assert done(found) == [("created", 6), ("created", 2)]
    assert found["xref_path"].null_count == 2
    assert (local.version, xref_files(local)) == (before, set())
    local.index_crossreferences()
    grow(local, 8, 1)
    found = local.index_crossreferences(dry_run=True)
    assert done(found) == [("unchanged", 6), ("rebuilt", 3)]
    assert found["xref_path"].null_count == 2
    assert found["build_duration_ms"].to_pylist() == [0, 0]


def test_drop(local):
    grow(local, 0, 8)
    local.index_crossreferences()
    assert local.drop_crossreferences() == 2
    assert xref_actions(local) == [("remove", "explicit")] * 2
    assert local.crossreferences().num_rows == 0
    before = local.version
    assert local.drop_crossreferences() == 0
    assert local.version == before
    check_found(local, list(range(8)))


# --- the log -----------------------------------------------------------------------------------


def test_the_first_xref_adds_the_writer_feature(local):
    grow(local, 0, 1)
    assert "crossReferenceIndex" not in local.snapshot().protocol.writer_features
    local.index_crossreferences()
    protocol = local.snapshot().protocol
    assert "crossReferenceIndex" in protocol.writer_features
    assert "crossReferenceIndex" not in protocol.reader_features
    assert (protocol.min_reader_version, protocol.min_writer_version) == (4, 4)


def test_without_upgrades_the_command_is_refused(tmp_path, local):
    grow(local, 0, 2)
    strict = Table.open(
        local.uri, config=CONFIG | {"spark.indextables.protocol.autoUpgrade": False}
    )
    with pytest.raises(UpgradeRefusedError, match="autoUpgrade"):
        strict.index_crossreferences()
    assert xref_files(local) == set()
    local.index_crossreferences()  # upgrades; then the other may as well
    grow(local, 2, 1)
    assert done(strict.index_crossreferences()) == [("rebuilt", 3)]


def test_ids_are_bare_in_the_log_and_both_spellings_are_read(local):
    grow(local, 0, 1)
    local.index_crossreferences()
    (made,) = local.snapshot().xrefs.values()
    assert not made.xref_id.startswith("xref-")
    assert made.path.endswith(f"/xref-{made.xref_id}.split")
    foreign = xref("xref-abc", "gone.split")
    local.log.store.put(foreign.path, b"")
    local.log.commit(Transaction(operation=Operation.XREF, actions=[foreign]))
    assert set(local.refresh().crossreferences()["xrefId"].to_pylist()) == {made.xref_id, "abc"}


def test_listing(local):
    grow(local, 0, 3)
    local.index_crossreferences()
    local.delete(where="id = 1")
    (row,) = local.crossreferences().to_pylist()
    assert (row["sourceSplitCount"], row["liveSplitCount"]) == (3, 2)
    assert row["size"] == local.log.store.head(row["path"]).size
    assert row["footerEndOffset"] <= row["size"]
    past = Table.open(local.uri, version=local.version - 1, config=CONFIG)
    assert past.crossreferences()["liveSplitCount"].to_pylist() == [3]


def test_checkpoints_keep_xrefs(local):
    grow(local, 0, 3)
    local.index_crossreferences()
    local.checkpoint()
    assert Table.open(local.uri).crossreferences().equals(local.crossreferences())


def test_purge_keeps_xrefs_of_retained_versions(local, tmp_path):
    grow(local, 0, 2)
    local.index_crossreferences()
    local.index_crossreferences(force_rebuild=True)
    assert len(xref_files(local)) == 2
    orphan = tmp_path / "t/_xrefsplits/abcd/xref-1.split"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"x")
    old = time.time() - 40 * 86_400
    for file in (tmp_path / "t").rglob("*"):
        os.utime(file, (old, old))
    assert local.purge().files_deleted == 1
    assert xref_files(local) == named_xrefs(local)
    # When no retained version names the first one any more, it goes.
    local.checkpoint()
    for version in (tmp_path / "t/_transaction_log").glob("*.json"):
        version.unlink()
    assert Table.open(local.uri).purge().files_deleted == 1
    assert xref_files(local) == set(local.snapshot().xrefs)


# --- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
def test_a_damaged_xref_is_built_from_its_splits(local, tmp_path, monkeypatch, damage):
    grow(local, 0, 3)
    local.index_crossreferences()
    (path,) = xref_files(local)
    file = tmp_path / "t" / path
    data = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 4] ^= 255
        file.write_bytes(data)
    grow(local, 3, 1)
    with counted_reads(monkeypatch) as read:
        assert done(local.index_crossreferences()) == [("rebuilt", 4)]
    assert read[-1] == 4
    check_found(local, [0, 1, 2, 3])
    assert xref_files(local) <= named_xrefs(local)


def test_a_missing_split_is_named_and_the_other_xrefs_are_built(local, tmp_path):
    grow(local, 0, 8)
    bad = local.snapshot().files["path"].to_pylist()[7]
    (tmp_path / "t" / bad).unlink()
    with pytest.raises(ObjectNotFoundError, match=bad.rpartition("/")[2]):
        local.index_crossreferences()
    assert sizes(local) == [6]
    assert xref_files(local) == named_xrefs(local)


def test_a_damaged_split_harms_nobody_else(local, tmp_path):
    grow(local, 0, 4)
    bad = local.snapshot().files["path"].to_pylist()[3]
    (tmp_path / "t" / bad).write_bytes(bytes((tmp_path / "t" / bad).stat().st_size))
    local.index_crossreferences()
    for number in range(3):
        # The damaged one may hold anything, so it has to be read, and says what it is.
        with pytest.raises(SplitFileError):
            local.scan(where=f"body indexquery 'word{number}'")


# --- where it runs -----------------------------------------------------------------------------


class Elsewhere:
    """A runner whose tasks and results are pickled, as on a cluster."""

    def __init__(self):
        self.calls = []

    def map(self, function, tasks, *, timeout_s=None, ended=None):
        self.calls.append(len(tasks))
        sent = pickle.loads(pickle.dumps([(function, task) for task in tasks]))
        found = LocalRunner(4).map(lambda pair: pair[0](pair[1]), sent, timeout_s=timeout_s)
        return pickle.loads(pickle.dumps(found))


def test_xrefs_are_built_by_the_runner_several_at_once(table):
    grow(table, 0, 14)
    runner = Elsewhere()
    found = table.index_crossreferences(runner=runner)
    assert done(found) == [("created", 6), ("created", 6), ("created", 2)]
    assert runner.calls == [3]
    check_found(table, list(range(14)))


def test_parallelism_is_limited(local):
    grow(local, 0, 14)
    few = Table.open(local.uri, config=CONFIG | {XREF_BUILD_PARALLELISM.name: 2})
    runner = Elsewhere()
    few.index_crossreferences(runner=runner)
    assert runner.calls == [2, 1]


# --- others at the same time -------------------------------------------------------------------


def test_two_commands_at_once_cover_every_split_once(local):
    grow(local, 0, 8)
    tables = [Table.open(local.uri, config=CONFIG) for _ in range(3)]
    race_threads(lambda table: table.index_crossreferences(), [[t] for t in tables])
    assert sizes(local) == [6, 2]
    assert coverage(local.refresh().snapshot()).covered == 8
    assert xref_files(local) == named_xrefs(local)
    check_found(local, list(range(8)))


OTHERS = {
    "an append": (lambda other: other.append(rows(50)), [0, 1, 2, 3, 50], [4]),
    "an overwrite": (lambda other: other.overwrite(rows(50)), [50], [1]),
    "a delete": (lambda other: other.delete(where="id = 2"), [0, 1, 3], [4]),
    "another command": (lambda other: other.index_crossreferences(), [0, 1, 2, 3], [4]),
}


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS)
def test_somebody_commits_while_xrefs_are_built(local, monkeypatch, case):
    act, ids, covered = case
    grow(local, 0, 4)
    other = Table.open(local.uri, config=CONFIG)
    intervene(local, monkeypatch, lambda: act(other))
    local.index_crossreferences()
    assert sizes(local) == covered
    check_found(local, ids)
    assert xref_files(local) == named_xrefs(local)


def test_a_command_that_always_loses_says_so(local, monkeypatch):
    grow(local, 0, 4)
    other = Table.open(local.uri, config=CONFIG)
    commit = local.log.commit

    def late(transaction):
        other.index_crossreferences(force_rebuild=True)
        return commit(transaction)

    monkeypatch.setattr(local.log, "commit", late)
    with pytest.raises(ConcurrentIndexError, match="INDEX CROSSREFERENCES again"):
        local.index_crossreferences(force_rebuild=True)
    assert xref_files(local) == named_xrefs(local)


def test_adding_one_split_at_a_time_keeps_segments_bounded(tmp_path, monkeypatch):
    from indextables.jobs import crossreference_build

    monkeypatch.setattr(crossreference_build, "_MAX_SEGMENTS", 4)
    table = Table.create(tmp_path / "t", SCHEMA, config={**OFF, **QUICK})
    with counted_reads(monkeypatch) as read:
        for number in range(10):
            grow(table, number, 1)
            table.index_crossreferences()
    # After four segments everything is read once, then splits are linked again.
    assert read == [1, 1, 1, 1, 5, 1, 1, 1, 9, 1]
    check_found(table, list(range(10)))
