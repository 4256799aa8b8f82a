from __future__ import annotations

import pickle

import pytest
from faulty_store import FaultyStore
from logs import add, append, memory_store, metadata, new_log, paths, remove

from indextables.config import Config
from indextables.errors import (
    CorruptLogError,
    LogTooLargeError,
    NotATableError,
    StorageError,
    UnsafePathError,
    VersionGapError,
    VersionNotFoundError,
)
from indextables.log.actions import Add
from indextables.log.layout import (
    LAST_CHECKPOINT,
    checkpoint_path,
    encode_actions,
    state_path,
    version_path,
)
from indextables.log.reader import ReadVersion
from indextables.log.snapshot import VersionActions, empty_snapshot
from indextables.log.transaction_log import TransactionLog

SLOW = Config({"spark.indextables.transaction.useOptimized": False})
EVERY_2 = {"spark.indextables.checkpoint.interval": 2}


def table(versions: int = 7, options=None) -> TransactionLog:
    log = new_log(options=options or EVERY_2)
    for number in range(1, versions + 1):
        if number % 3 == 0:
            remove(log, f"day=1/f{number - 2}.split")
        else:
            append(log, add(f"day=1/f{number}.split", size=number))
    return log


@pytest.mark.parametrize("state", ["avro", "json"])
def test_every_version_reads_the_same_with_and_without_checkpoints(state):
    log = table(23, EVERY_2 | {"spark.indextables.state.format": state})
    fast, slow = TransactionLog(log.store), TransactionLog(log.store, config=SLOW)
    for version in range(24):
        one, other = fast.snapshot(version=version), slow.snapshot(version=version)
        assert paths(one) == paths(other)
        assert one.timestamp == other.timestamp
        assert one.files.sort_by("path").equals(other.files.sort_by("path"))


def test_a_refresh_reads_one_version_and_lists_nothing():
    store = FaultyStore(memory_store())
    log = new_log(store)
    append(log)
    reader = TransactionLog(store)
    reader.snapshot()
    append(log)
    before = len(store.operations)
    assert reader.snapshot().version == 2
    assert [o for o, _ in store.operations[before:]] == ["head", "get", "get", "head"]
    before = len(store.operations)
    reader.snapshot()
    assert [o for o, _ in store.operations[before:]] == ["head", "get"]


def test_tolerated_staleness_asks_nobody():
    store = FaultyStore(memory_store())
    log = new_log(store)
    stale = Config({"spark.indextables.transaction.cache.maxStalenessMs": 60_000})
    reader = TransactionLog(store, config=stale)
    assert reader.snapshot().version == 0
    append(log)
    before = len(store.operations)
    assert reader.snapshot().version == 0
    assert len(store.operations) == before
    reader.invalidate()
    assert reader.snapshot().version == 1


def test_cache_counters_are_real():
    log = table()
    reader = TransactionLog(log.store)
    reader.snapshot()
    assert reader.cache_stats()["latest"].hits == 0
    assert reader.cache_stats()["latest"].misses == 1
    reader.snapshot()
    assert reader.cache_stats()["latest"].hits == 1
    reader.snapshot(version=3)
    reader.snapshot(version=3)
    assert reader.cache_stats()["snapshots"].hits == 1
    reader.invalidate()
    assert all(stats.entries == 0 for stats in reader.cache_stats().values())
    off = TransactionLog(
        log.store, config=Config({"spark.indextables.transaction.cache.enabled": False})
    )
    off.snapshot()
    off.snapshot()
    assert all(stats.hits == 0 for stats in off.cache_stats().values())


def test_a_cached_snapshot_lives_as_long_as_its_ttl():
    from indextables.log.cache import LogCache

    now = [0.0]
    config = Config({"spark.indextables.transaction.cache.ttl.ms": "10s"})
    cache = LogCache(config, timer=lambda: now[0])
    log = table()
    reader = TransactionLog(log.store, config=config, cache=cache)
    reader.snapshot()
    now[0] = 9
    reader.snapshot()
    now[0] = 20
    reader.snapshot()
    assert (cache.stats()["latest"].hits, cache.stats()["latest"].misses) == (1, 2)


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pointer", [None, b"", b"{", b'{"version": 9999}', b'{"version": 2}', b"[]"]
)
def test_the_pointer_is_only_a_hint(pointer):
    log = table()
    if pointer is None:
        log.store.delete([LAST_CHECKPOINT])
    else:
        log.store.put(LAST_CHECKPOINT, pointer)
    assert paths(TransactionLog(log.store).snapshot()) == paths(log.snapshot())


@pytest.mark.parametrize("state", ["avro", "json"])
@pytest.mark.parametrize("damage", ["delete", "truncate", "garbage", "empty"])
def test_a_bad_checkpoint_is_passed_over(state, damage):
    log = table(options=EVERY_2 | {"spark.indextables.state.format": state})
    expected = paths(log.snapshot())
    for version in (6, 4, 2):
        path = state_path(version) if state == "avro" else checkpoint_path(version)
        good = log.store.get(path)
        match damage:
            case "delete":
                log.store.delete([path])
            case "truncate":
                log.store.put(path, good[: len(good) // 2])
            case "garbage":
                log.store.put(path, b"garbage" * 10)
            case "empty":
                log.store.put(path, b"")
        assert paths(TransactionLog(log.store).snapshot()) == expected


def test_a_damaged_version_is_an_error_that_names_it():
    log = table()
    log.store.put(version_path(7), b"{")
    with pytest.raises(CorruptLogError, match=version_path(7)):
        TransactionLog(log.store).snapshot()
    # A version that a checkpoint covers is not needed for the newest snapshot.
    log = table()
    log.store.put(version_path(3), b"{")
    assert TransactionLog(log.store).snapshot().version == 7
    with pytest.raises(CorruptLogError):
        TransactionLog(log.store).snapshot(version=3)


def test_a_gap_is_an_error_only_where_no_checkpoint_covers_it():
    log = table()
    log.store.delete([version_path(3)])
    assert TransactionLog(log.store).snapshot().version == 7
    with pytest.raises(VersionGapError, match="Version 3"):
        TransactionLog(log.store).snapshot(version=3)
    log = table(options={"spark.indextables.checkpoint.enabled": False})
    log.store.delete([version_path(3)])
    with pytest.raises(VersionGapError, match="Version 3") as caught:
        TransactionLog(log.store).snapshot()
    assert caught.value.missing == 3


@pytest.mark.parametrize("optimized", [True, False])
@pytest.mark.parametrize("stray", [version_path(10**20 - 1), state_path(10**20 - 1)])
def test_a_stray_file_with_an_absurd_number_is_an_error_at_once(stray, optimized):
    log = table()
    open_before = TransactionLog(log.store)
    open_before.snapshot()
    log.store.put(stray, log.store.get(version_path(1)))
    options = {"spark.indextables.transaction.useOptimized": optimized}
    if optimized or stray.endswith(".json"):
        with pytest.raises(VersionGapError, match=r"Version 8 of .* is missing"):
            TransactionLog(log.store, config=Config(options)).snapshot()
    assert open_before.snapshot().version == 7


@pytest.mark.parametrize("version", [8, -1, 10**6])
def test_a_version_that_never_was(version):
    with pytest.raises(VersionNotFoundError, match="Versions 0 to 7"):
        table().snapshot(version=version)


def test_what_is_no_table():
    for config in (Config(), SLOW):
        with pytest.raises(NotATableError, match="_transaction_log"):
            TransactionLog(memory_store(), config=config).snapshot()


def test_a_bomb_and_a_path_that_leaves_the_table_are_refused():
    import gzip

    log = table()
    log.store.put(version_path(8), gzip.compress(b" " * (4 << 20)))
    small = Config({"spark.indextables.transaction.maxFileSize": "1M"})
    with pytest.raises(LogTooLargeError):
        TransactionLog(log.store, config=small).snapshot()
    log.store.put(version_path(8), encode_actions([Add(path="../../etc/passwd")], compress=True))
    with pytest.raises(UnsafePathError, match="etc/passwd"):
        TransactionLog(log.store).snapshot()


# --- time and order ------------------------------------------------------------------------------


def test_time_travel_by_timestamp():
    log = new_log()
    log._committer.now_ms = lambda: 0
    stamps = [log.snapshot().timestamp] + [append(log).snapshot.timestamp for _ in range(12)]
    log.now_ms = lambda: stamps[-1]  # a quick machine commits more often than once a millisecond
    for version, stamp in enumerate(stamps):
        assert log.snapshot(timestamp_ms=stamp).version == version
    assert log.snapshot(timestamp_ms=stamps[-1] + 10**9).version == 12
    with pytest.raises(VersionNotFoundError, match="as old as"):
        log.snapshot(timestamp_ms=stamps[0] - 1)
    with pytest.raises(VersionNotFoundError, match="no version as old as 1969-12-31 23:59:59Z"):
        log.snapshot(timestamp_ms=-1000)


def test_a_version_that_never_was_is_said_once(caplog):
    log = new_log(options={"spark.indextables.checkpoint.interval": 3})
    for _ in range(4):
        append(log)
    with pytest.raises(VersionNotFoundError, match="no version 99"):
        TransactionLog(log.store).snapshot(version=99)
    assert not caplog.records


def test_time_travel_beside_the_gaps_that_retention_leaves():
    log = new_log(options={"spark.indextables.checkpoint.interval": 3})
    for _ in range(8):
        append(log)
    stamps = [log.actions(version).timestamp for version in range(9)]
    log.store.delete([version_path(version) for version in range(6)])
    log = TransactionLog(log.store)
    for version in (3, 6, 7, 8):
        assert log.snapshot(timestamp_ms=stamps[version]).version == version
    for wanted in ({"timestamp_ms": stamps[4]}, {"timestamp_ms": stamps[0]}, {"version": 4}):
        with pytest.raises(VersionNotFoundError, match="Versions 3 to 8"):
            log.snapshot(**wanted)


def test_history_is_newest_first_with_what_was_done():
    log = table()
    entries = log.history()
    assert [e.version for e in entries] == list(range(7, -1, -1))
    assert entries[0].operation == "APPEND"
    assert (entries[1].files_added, entries[1].files_removed) == (0, 1)
    assert entries[-1].operation == "CREATE TABLE"
    assert len(log.history(limit=3)) == 3


def test_versions_apply_in_order_however_they_were_read():
    """The last action of a path wins, by version, in whatever order versions are read."""

    def version(number, *actions):
        return VersionActions(number, actions, 0)

    one = version(100, add("f1", size=100))
    two = version(101, add("f1", size=101))
    three = version(102, add("f1", size=102))
    start = empty_snapshot("memory://x")
    snapshot = start.advance(sorted([three, one, two], key=lambda v: v.version))
    assert snapshot.files["size"].to_pylist() == [102]
    assert snapshot.files["addedAtVersion"].to_pylist() == [102]


def test_reading_versions_is_a_list_of_picklable_tasks():
    log = table()
    seen = []

    class Recorder:
        def map(self, function, tasks, *, timeout_s=None, ended=None):
            seen.extend(tasks)
            return [function(pickle.loads(pickle.dumps(task))) for task in reversed(tasks)][::-1]

    reader = TransactionLog(log.store, config=SLOW, runner=Recorder())
    assert paths(reader.snapshot()) == paths(log.snapshot())
    assert [type(t) for t in seen] == [ReadVersion] * 8


def test_a_parallel_read_that_takes_too_long_is_an_error():
    class Never:
        def map(self, function, tasks, *, timeout_s=None, ended=None):
            assert timeout_s == 7
            raise TimeoutError

    config = Config(SLOW.as_options(), {"spark.indextables.checkpoint.read.timeoutSeconds": 7})
    with pytest.raises(StorageError, match="longer than 7 seconds"):
        TransactionLog(table().store, config=config, runner=Never()).snapshot()


def test_stale_listings_cost_nothing_but_age():
    inner = memory_store()
    log = new_log(inner)
    for _ in range(5):
        append(log)
    store = FaultyStore(inner)
    reader = TransactionLog(store)
    store.inject("list", "stale")
    assert reader.snapshot().version in (4, 5)
    assert reader.snapshot().version == 5


def test_many_changes_are_folded_and_nothing_is_lost():
    snapshot = empty_snapshot("memory://x").advance([VersionActions(0, (metadata("day"),), 0)])
    expected = set()
    for number in range(1, 30):
        added = [add() for _ in range(400)]
        expected |= {a.path for a in added}
        snapshot = snapshot.advance([VersionActions(number, added, number)])
    assert len(snapshot.changes) < 6_000
    assert paths(snapshot) == expected


def test_manifests_that_cannot_match_are_not_opened():
    from functools import partial

    from indextables.plan.skipping import bounds_may_match
    from indextables.predicate.sql_text import parse_predicate

    store = FaultyStore(memory_store())
    log = new_log(store, {"spark.indextables.state.entriesPerManifest": 10})
    append(log, *(add(day=f"2024-{month:02d}") for month in range(1, 13) for _ in range(10)))
    log.checkpoint(force_compaction=True)
    append(log, add(day="2024-03"), add(day="2024-09"))
    full = TransactionLog(store).snapshot()
    condition = parse_predicate("day = '2024-03' OR day > '2024-11'", full.schema)
    may_match = partial(bounds_may_match, condition, schema=full.schema, partition_columns=["day"])

    def keep(_metadata):
        return may_match

    log.invalidate()  # manifests are shared within a process
    before = store.count("get", "manifests/")
    pruned = TransactionLog(store).snapshot(keep_manifest=keep)
    assert pruned.partial
    assert store.count("get", "manifests/") - before == 2, "one for March, one for December"
    wanted = {p for p in paths(full) if "2024-03" in p or "2024-12" in p}
    assert wanted <= paths(pruned) < paths(full)
    # A partial snapshot never becomes what others see.
    reader = TransactionLog(store)
    reader.snapshot(keep_manifest=keep)
    assert paths(reader.snapshot()) == paths(full)


def test_a_manifest_is_read_once_by_all_logs_of_a_process():
    store = FaultyStore(memory_store())
    log = new_log(store, {"spark.indextables.state.entriesPerManifest": 10})
    append(log, *(add(day=f"2024-{month:02d}") for month in range(1, 13) for _ in range(5)))
    log.checkpoint(force_compaction=True)
    first = TransactionLog(store).snapshot()
    before = store.count("get", "manifests/")
    again = TransactionLog(store).snapshot()
    assert store.count("get", "manifests/") == before
    assert again.entries.equals(first.entries)
    off = Config({"spark.indextables.transaction.cache.enabled": False})
    assert TransactionLog(store, config=off).snapshot().entries.equals(first.entries)
    assert store.count("get", "manifests/") > before
    TransactionLog(store).invalidate()
    before = store.count("get", "manifests/")
    TransactionLog(store).snapshot()
    assert store.count("get", "manifests/") > before
