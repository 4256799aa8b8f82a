"""Merging splits of a table: what is merged, what fails alone, what follows a write."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from faulty_store import Crash, FaultyStore, SimulatedCrash

from indextables import Table
from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    CommitStateUnknownError,
    ConfigError,
    InvalidValueError,
    NotAPartitionError,
)
from indextables.jobs import merge_groups, merge_splits, write_splits
from indextables.jobs.merge_splits import EMPTY, OPTIMAL
from indextables.log.transaction_log import TransactionLog
from indextables.runner import LocalRunner
from indextables.storage import open_store

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int64()), ("body", pa.string())])
HOUR = 3_600_000


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    return {
        keys.CACHE_DISK_PATH.name: str(tmp_path / "cache"),
        keys.WRITER_TEMP_DIRECTORY.name: str(folder),
        keys.XREF_AUTO_INDEX.name: False,
    }


def rows(*ids, day=0):
    bodies = [f"word{i} common" for i in ids]
    return pa.table({"id": ids, "day": [day] * len(ids), "body": bodies}, SCHEMA)


@pytest.fixture
def table(tmp_path, config):
    """Four splits in each of two partitions."""
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["day"], config=config)
    for turn in range(4):
        for day in range(2):
            table.append(rows(10 * day + 2 * turn, 10 * day + 2 * turn + 1, day=day))
    return table


IDS = [*range(8), *range(10, 18)]


def ids(table, where=None):
    return sorted(table.refresh().scan(columns=["id"], where=where)["id"].to_pylist())


def files(table):
    return table.refresh().snapshot().files


def on_disk(table):
    root = Path(table.uri.removeprefix("file://"))
    return {str(p.relative_to(root)) for p in root.rglob("*.split")}


def named(table):
    found = set()
    for version in range(table.version + 1):
        found |= set(table.snapshot(version=version).files["path"].to_pylist())
    return found


def no_leftovers(table, config):
    assert on_disk(table) <= named(table)
    assert list(Path(config[keys.WRITER_TEMP_DIRECTORY.name]).iterdir()) == []


# --- what is merged ----------------------------------------------------------------------------


def test_each_partition_becomes_one_split(table, config):
    before = {r["path"]: r for r in files(table).to_pylist(maps_as_pydicts="strict")}
    merged = table.merge_splits()
    assert (merged.status, merged.files_removed, merged.files_added) == ("success", 8, 2)
    assert merged.bytes_removed == sum(r["size"] for r in before.values())
    after = files(table).to_pylist(maps_as_pydicts="strict")
    assert merged.bytes_added == sum(r["size"] for r in after)
    assert merged.version == table.version
    for row in after:
        day = row["partitionValues"]["day"]
        assert row["path"].startswith(f"day={day}/splits/split-")
        assert row["numRecords"] == 8
        assert row["numMergeOps"] == 1
        assert row["dataChange"] is False
        assert row["minValues"] == {"id": str(10 * int(day)), "body": f"word{10 * int(day)} common"}
        assert row["maxValues"]["id"] == str(10 * int(day) + 7)
        assert row["stats"] == '{"numRecords":8,"nullCount":{"id":0,"body":0}}'
    assert ids(table) == IDS
    assert ids(table, "body indexquery 'word13'") == [13]
    assert table.count(where="body indexquery 'common'") == 16
    no_leftovers(table, config)


def test_each_group_is_a_commit_that_changes_no_data(table):
    table.merge_splits()
    history = table.history(limit=2).to_pylist(maps_as_pydicts="strict")
    assert [h["operation"] for h in history] == ["MERGE SPLITS"] * 2
    assert [h["filesRemoved"] for h in history] == [4, 4]
    for version in (table.version, table.version - 1):
        actions = table.log.actions(version).actions
        assert {a.data_change for a in actions if a.kind in ("add", "remove")} == {False}


def test_merging_again_finds_nothing_or_what_is_new(table):
    table.merge_splits()
    again = table.merge_splits()
    assert (again.status, again.message, again.files_removed) == ("no_action", OPTIMAL, 0)
    table.append(rows(99, day=1))
    third = table.merge_splits()
    assert (third.files_removed, third.files_added) == (2, 1)
    assert max(files(table)["numMergeOps"].to_pylist()) == 2
    assert ids(table) == [*IDS, 99]


def test_older_versions_stay_readable(table):
    version = table.version
    table.merge_splits()
    past = table.snapshot(version=version)
    assert past.num_files == 8


def test_an_empty_table_and_a_single_split(tmp_path, config):
    table = Table.create(tmp_path / "empty", SCHEMA, config=config)
    merged = table.merge_splits()
    assert (merged.status, merged.message) == ("no_action", EMPTY)
    table.append(rows(1))
    assert table.merge_splits().message == OPTIMAL


def test_a_condition_chooses_partitions(table):
    merged = table.merge_splits(where="day = 1")
    assert merged.files_removed == 4
    days = [r["day"] for r in files(table)["partitionValues"].to_pylist(maps_as_pydicts="strict")]
    assert sorted(days) == ["0", "0", "0", "0", "1"]
    assert table.merge_splits(where="day > 5").status == "no_action"


def test_limits(table):
    assert table.merge_splits(max_groups=1).files_added == 1
    days = [r["day"] for r in files(table)["partitionValues"].to_pylist(maps_as_pydicts="strict")]
    assert days.count("0") == 1, "the oldest group comes first"
    merged = table.merge_splits(max_source_splits=2)
    assert (merged.files_added, merged.files_removed) == (2, 4)
    assert ids(table) == IDS


def test_limits_of_the_configuration(table):
    few = {keys.MERGE_MAX_SOURCE_SPLITS.name: 2}
    assert table.merge_splits(config=few).files_added == 4
    assert table.merge_splits(config={keys.MERGE_SKIP_THRESHOLD.name: 0.0}).status == "no_action"
    largest = max(files(table)["size"].to_pylist())
    assert largest < 1 << 20
    assert table.merge_splits(config={keys.MERGE_TARGET_SIZE.name: "1M"}).status == "success"


def test_a_group_is_never_larger_than_the_target(tmp_path, config):
    table = Table.create(tmp_path / "large", SCHEMA, config=config)
    random = pa.array([bytes([i % 256, i // 256]).hex() * 40 for i in range(5_000)])
    for turn in range(4):
        body = pa.compute.binary_join_element_wise(random, pa.scalar(str(turn)), "-")
        table.append(pa.table({"id": range(5_000), "day": [0] * 5_000, "body": body}, SCHEMA))
    sizes = files(table)["size"].to_pylist()
    target = max(1 << 20, int(2.5 * max(sizes)))
    expected = sum(sizes) > target
    assert table.merge_splits(target_size=target).files_added == (2 if expected else 1)
    assert max(files(table)["size"].to_pylist()) <= target
    assert table.count() == 20_000


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"target_size": 1 << 19}, ConfigError, "Target size must be at least 1MB: 524288"),
        ({"target_size": "1K"}, ConfigError, "Target size must be at least 1MB: 1K"),
        ({"target_size": "many"}, InvalidValueError, "a size in bytes"),
        ({"max_groups": 0}, ConfigError, "at least 1, not 0"),
        ({"max_source_splits": 1}, ConfigError, "at least 2 splits"),
        ({"where": "id = 1"}, NotAPartitionError, "'id'"),
        ({"where": "body indexquery 'x'"}, NotAPartitionError, "not a partition column"),
    ],
)
def test_what_is_refused(table, arguments, error, match):
    before = table.version
    with pytest.raises(error, match=match):
        table.merge_splits(**arguments)
    assert table.version == before


def test_a_table_opened_at_a_version_is_not_merged(table, config):
    with pytest.raises(ConfigError, match="read-only"):
        Table.open(table.uri, version=3, config=config).merge_splits()


# --- what fails --------------------------------------------------------------------------------


def break_rows(table, path):
    file = Path(table.uri.removeprefix("file://")) / path
    data = bytearray(file.read_bytes())
    data[20] ^= 0xFF  # in the first page of the first column
    file.write_bytes(data)


def first_of_day(table, day):
    found = files(table).to_pylist(maps_as_pydicts="strict")
    return min(
        (r["addedAtVersion"], r["path"]) for r in found if r["partitionValues"]["day"] == day
    )[1]


def test_a_source_that_cannot_be_read_costs_its_group_and_is_left_alone(
    tmp_path, config, table, caplog
):
    bad = first_of_day(table, "0")
    break_rows(table, bad)
    now = [table.log.now_ms()]
    log = TransactionLog(open_store(tmp_path / "t"), config=Config(config), now_ms=lambda: now[0])
    mine = Table.of_log(log)
    merged = mine.merge_splits()
    assert (merged.status, merged.files_added, merged.skipped) == ("partial_success", 1, (bad,))
    assert "1 groups failed" in merged.message
    assert bad in merged.message
    assert files(mine).num_rows == 5
    (skip,) = mine.snapshot().skips.values()
    assert (skip.path, skip.operation, skip.skip_count) == (bad, "merge", 1)
    assert skip.retry_after == now[0] + 24 * HOUR
    no_leftovers(mine, config)
    # The others of its group are merged without it, and it stays in the table.
    again = mine.merge_splits()
    assert (again.status, again.files_removed) == ("success", 3)
    assert bad in files(mine)["path"].to_pylist()
    assert mine.merge_splits().status == "no_action"
    # When the cooldown is over it is tried again, and counted.
    now[0] += 25 * HOUR
    assert mine.merge_splits().status == "error"
    assert mine.snapshot().skips[bad].skip_count == 2


def test_skips_can_be_switched_off(table):
    break_rows(table, first_of_day(table, "0"))
    off = {keys.SKIPPED_FILES_TRACKING.name: False}
    mine = Table.open(table.uri, config=table.log.config.as_options() | off)
    assert mine.merge_splits(where="day = 0").status == "error"
    assert mine.snapshot().skips == {}


def test_a_source_that_is_gone_or_short(table, tmp_path):
    root = tmp_path / "t"
    gone, short = first_of_day(table, "0"), first_of_day(table, "1")
    (root / gone).unlink()
    (root / short).write_bytes((root / short).read_bytes()[:-100])
    merged = table.merge_splits()
    assert merged.status == "error"
    assert merged.skipped == tuple(sorted((gone, short)))
    assert table.merge_splits().files_removed == 6


def test_a_crash_of_one_group_costs_that_group(table, config, monkeypatch):
    merge = merge_groups._merged

    def sometimes(task):
        if task.partition_values["day"] == "0":
            raise RuntimeError("out of luck")
        return merge(task)

    monkeypatch.setattr(merge_groups, "_merged", sometimes)
    merged = table.merge_splits()
    assert (merged.status, merged.files_added) == ("partial_success", 1)
    assert merged.failures == ("RuntimeError: out of luck",)
    assert merged.skipped == ()
    assert ids(table) == IDS
    no_leftovers(table, config)
    monkeypatch.setattr(merge_groups, "_merged", merge)
    assert table.merge_splits().files_removed == 4


def test_a_runner_that_fails_costs_its_batch(table):
    class Broken(LocalRunner):
        def map(self, function, tasks, *, timeout_s=None, ended=None):
            if len(tasks) == 1 and tasks[0].partition_values["day"] == "0":
                raise OSError("the cluster is gone")
            return super().map(function, tasks, timeout_s=timeout_s)

    one = {keys.MERGE_BATCH_SIZE.name: 1}
    merged = table.merge_splits(runner=Broken(2), config=one)
    assert (merged.status, merged.files_added) == ("partial_success", 1)
    assert "OSError: the cluster is gone" in merged.message
    assert ids(table) == IDS


class Meanwhile(LocalRunner):
    """Lets somebody act between merging and committing."""

    def __init__(self, act):
        super().__init__(2)
        self.act = act

    def map(self, function, tasks, *, timeout_s=None, ended=None):
        results = super().map(function, tasks, timeout_s=timeout_s)
        self.act()
        return results


@pytest.mark.parametrize(
    ("act", "groups", "expected"),
    [
        (lambda t: t.delete(where="id = 0"), 1, IDS[1:]),
        (lambda t: t.delete(where="day = 0"), 1, list(range(10, 18))),
        (lambda t: t.overwrite(rows(50)), 0, [50]),
        (lambda t: t.append(rows(50)), 2, [*IDS, 50]),
        (lambda t: t.merge_splits(where="day = 1"), 1, IDS),
        (lambda t: t.restore(version=2), 0, [0, 1, 10, 11]),
    ],
    ids=["delete", "delete all", "overwrite", "append", "merge", "restore"],
)
def test_a_group_that_changed_meanwhile_is_dropped(table, config, act, groups, expected):
    other = Table.open(table.uri, config=config)
    done = threading.Event()

    def once():
        if not done.is_set():
            done.set()
            act(other)

    merged = table.merge_splits(runner=Meanwhile(once))
    assert merged.files_added == groups
    assert len(merged.conflicts) == 2 - groups
    assert merged.status == {0: "no_action", 1: "partial_success", 2: "success"}[groups]
    assert ids(table) == expected
    no_leftovers(table, config)


def test_later_batches_look_at_the_table_again(table, config):
    other = Table.open(table.uri, config=config)
    turns = []

    class Counting(LocalRunner):
        def map(self, function, tasks, *, timeout_s=None, ended=None):
            turns.append(len(tasks))
            results = super().map(function, tasks, timeout_s=timeout_s)
            if len(turns) == 1:
                other.delete(where="day = 1")
            return results

    merged = table.merge_splits(runner=Counting(1), config={keys.MERGE_BATCH_SIZE.name: 1})
    assert turns == [1, 0], "nothing was merged that was gone before"
    assert (merged.files_added, len(merged.conflicts)) == (1, 1)
    assert ids(table) == list(range(8))


def test_a_commit_whose_fate_is_unknown_keeps_its_split(table, monkeypatch):
    def unknown(log, transaction, **_):
        raise CommitStateUnknownError(log.store.uri, version=9, transaction_id="x")

    monkeypatch.setattr(merge_splits, "commit_indexed", unknown)
    before = on_disk(table)
    merged = table.merge_splits()
    assert merged.status == "error"
    assert len(on_disk(table) - before) == 2


def test_a_store_that_fails_while_storing(tmp_path, config):
    store = FaultyStore(open_store(tmp_path / "t"))
    Table.create(tmp_path / "t", SCHEMA, config=config)
    log = TransactionLog(store, config=Config(config))
    table = Table.of_log(log)
    for n in range(3):
        table.append(rows(n))
    store.inject("put_file", "before")
    merged = table.merge_splits()
    assert merged.status == "error"
    assert merged.skipped == (), "no source is to blame"
    assert ids(table) == [0, 1, 2]
    assert table.merge_splits().files_removed == 3


@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("operation", ["put_file", "put_if_absent"])
def test_a_merge_that_is_killed_half_way(tmp_path, config, operation, after_effect):
    table = Table.create(tmp_path / "t", SCHEMA, config=config)
    for n in range(3):
        table.append(rows(n))
    crash = Crash(0, operation, after_effect=after_effect)
    store = FaultyStore(open_store(tmp_path / "t"), crash=crash)
    dying = Table.of_log(TransactionLog(store, config=Config(config)))
    with pytest.raises(SimulatedCrash):
        dying.merge_splits()
    committed = operation == "put_if_absent" and after_effect
    assert files(table).num_rows == (1 if committed else 3)
    assert ids(table) == [0, 1, 2]
    assert table.merge_splits().status == ("no_action" if committed else "success")
    assert ids(table, "body indexquery 'common'") == [0, 1, 2]


def test_parallelism_heap_and_folder(table, tmp_path, monkeypatch):
    seen = []
    folder = tmp_path / "elsewhere"
    folder.mkdir()

    class Watching(LocalRunner):
        def map(self, function, tasks, *, timeout_s=None, ended=None):
            seen.append((self.parallelism, [Config(t.settings) for t in tasks]))
            return super().map(function, tasks, timeout_s=timeout_s)

    monkeypatch.setattr(merge_groups, "LocalRunner", Watching)
    options = {
        keys.MERGE_PARALLELISM.name: 3,
        keys.MERGE_HEAP_SIZE.name: "20M",
        keys.MERGE_TEMP_DIRECTORY.name: str(folder),
    }
    table.merge_splits(config=options)
    ((parallelism, settings),) = seen
    assert parallelism == 3
    assert settings[0][keys.WRITER_HEAP_SIZE] == 20 << 20
    assert settings[0][keys.WRITER_TEMP_DIRECTORY] == str(folder)


# --- before a commit ---------------------------------------------------------------------------


def many_splits(count, start=0):
    return pa.concat_tables([rows(start + n, day=n % 2) for n in range(count)])


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_a_write_can_merge_its_splits_before_they_are_committed(
    tmp_path, config, verb, monkeypatch
):
    monkeypatch.setattr(write_splits, "_WAITING_BYTES", 1)
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["day"], config=config)
    # One open partition at a time: every row makes a split.
    tiny = {keys.WRITE_MAX_OPEN_SPLITS.name: 1}
    batches = [b for n in range(6) for b in rows(n, day=n % 2).to_batches()]
    assert getattr(table, verb)(iter(batches), config=tiny).files_added == 6
    merging = tiny | {keys.MERGE_PRECOMMIT.name: True}
    written = getattr(table, verb)(iter(batches), config=merging)
    assert (written.files_added, written.rows) == (2, 6)
    assert files(table).num_rows == (8 if verb == "append" else 2)
    adds = [a for a in table.log.actions(table.version).actions if a.kind == "add"]
    assert all(a.data_change for a in adds)
    assert on_disk(table) == named(table), "the small splits are gone"
    assert ids(table, "body indexquery 'word3'") == ([3, 3] if verb == "append" else [3])


def test_what_cannot_be_merged_is_committed_as_it_is(tmp_path, config, monkeypatch):
    table = Table.create(tmp_path / "t", SCHEMA, config=config)

    def broken(task):
        raise OSError("no space")

    monkeypatch.setattr(merge_groups, "_merged", broken)
    tiny = {keys.WRITE_MAX_SPLIT_SIZE.name: "1K", keys.MERGE_PRECOMMIT.name: True}
    batches = [b for n in range(3) for b in rows(*range(n * 70_000, (n + 1) * 70_000)).to_batches()]
    written = table.append(iter(batches), config=tiny)
    assert written.files_added > 1
    assert table.count() == 210_000


# --- after a write -----------------------------------------------------------------------------

ON = {keys.MERGE_ON_WRITE.name: True, keys.MERGE_ON_WRITE_CPU_FRACTION.name: 0.0}


def test_nothing_follows_a_write_by_default(table):
    assert files(table).num_rows == 8


def test_splits_are_merged_after_writes(tmp_path, config):
    table = Table.create(tmp_path / "t", SCHEMA, config=config | ON)
    counts = []
    for n in range(16):
        table.append(rows(n))
        counts.append(files(table).num_rows)
    assert max(counts) <= 5
    assert ids(table) == list(range(16))
    assert table.overwrite(rows(1)).rows == 1


def test_few_groups_do_not_trigger_a_merge(tmp_path, config, monkeypatch):
    patient = config | ON | {keys.MERGE_ON_WRITE_MIN_BATCHES.name: 2}
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["day"], config=patient)
    for n in range(6):
        table.append(rows(n))
    assert files(table).num_rows == 6, "many files, one group"
    table.append(rows(7, day=1))
    table.append(rows(8, day=1))
    assert files(table).num_rows == 2
    monkeypatch.setattr(merge_splits.os, "cpu_count", lambda: 100)
    wide = {keys.MERGE_ON_WRITE_CPU_FRACTION.name: 0.5}
    table.append(rows(9), config=wide)
    table.append(rows(10), config=wide)
    assert files(table).num_rows == 4


def test_the_target_of_merges_after_writes(tmp_path, config):
    table = Table.create(tmp_path / "t", SCHEMA, config=config)
    words = pa.array([f"{i * 7919 % 1000003:x}{i * 104729 % 999983:x}" for i in range(40_000)])
    for n in range(2):
        ids_ = pa.array(range(n * 40_000, (n + 1) * 40_000))
        table.append(pa.table([ids_, ids_, words], schema=SCHEMA))
    assert min(files(table)["size"].to_pylist()) > 1 << 19
    small = ON | {keys.MERGE_ON_WRITE_TARGET_SIZE.name: "1M"}
    table.append(rows(1), config=small)
    assert files(table).num_rows == 3
    table.append(rows(2), config=ON | {keys.MERGE_ON_WRITE_TARGET_SIZE.name: "100M"})
    assert files(table).num_rows == 1


def test_a_failure_after_a_write_never_fails_the_write(tmp_path, config, monkeypatch, caplog):
    table = Table.create(tmp_path / "t", SCHEMA, config=config | ON)
    table.append(rows(1))

    def broken(*_, **__):
        raise RuntimeError("no luck today")

    monkeypatch.setattr(merge_splits, "plan_groups", broken)
    assert table.append(rows(2)).rows == 1
    assert "no luck today" in caplog.text
    assert "is committed" in caplog.text
    assert ids(table) == [1, 2]


def test_a_second_merge_of_the_same_table_waits_for_the_next_write(tmp_path, config, monkeypatch):
    table = Table.create(tmp_path / "t", SCHEMA, config=config | ON)
    table.append(rows(1))
    plan = merge_splits.plan_groups
    turns = []

    def nested(*args, **kwargs):
        turns.append(1)
        if len(turns) == 1:  # another thread writes while this one merges
            Table.open(table.uri, config=config | ON).append(rows(3))
        return plan(*args, **kwargs)

    monkeypatch.setattr(merge_splits, "plan_groups", nested)
    table.append(rows(2))
    assert len(turns) == 1
    assert ids(table) == [1, 2, 3]


def test_purge_after_writes(tmp_path, config, monkeypatch):
    calls = []
    monkeypatch.setattr(merge_splits, "purge", lambda log, **given: calls.append(given))
    purging = config | {
        keys.PURGE_ON_WRITE.name: True,
        keys.PURGE_ON_WRITE_SPLIT_HOURS.name: 30,
        keys.PURGE_ON_WRITE_LOG_HOURS.name: 40,
    }
    table = Table.create(tmp_path / "t", SCHEMA, config=purging)
    for n in range(4):
        table.append(rows(n))
    assert calls == [], "neither a merge nor a number of writes"
    table.append(rows(5), config=ON)
    ((given),) = calls
    assert (given["retention_hours"], given["log_retention_hours"]) == (30, 40)
    assert given["dry_run"] is False
    off = {keys.PURGE_ON_WRITE_AFTER_MERGE.name: False}
    for n in range(6, 9):
        table.append(rows(n), config=ON | off)
    assert len(calls) == 1
    every = {keys.PURGE_ON_WRITE_AFTER_WRITES.name: 3}
    for n in range(10, 16):
        table.append(rows(n), config=every)
    assert len(calls) == 3


def test_a_purge_after_a_write_deletes_nothing_that_is_young(tmp_path, config):
    purging = config | ON | {keys.PURGE_ON_WRITE.name: True}
    table = Table.create(tmp_path / "t", SCHEMA, config=purging)
    for n in range(4):
        table.append(rows(n))
    assert on_disk(table) == named(table)
    assert ids(table) == list(range(4))
