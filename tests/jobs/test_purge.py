from __future__ import annotations

import contextlib
import os
import time

import pyarrow as pa
import pytest

from indextables.config import Config
from indextables.errors import ConfigError, SplitsPurgedError
from indextables.jobs.history import purge
from indextables.log.layout import PURGE_LOCK
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store
from indextables.storage.local import LocalStore
from indextables.table import Table

SCHEMA = pa.schema({"id": pa.int64(), "day": pa.string(), "body": pa.string()})
NO_FLOOR = Config({"spark.indextables.purge.retentionCheckEnabled": False})
DAYS = 86_400


def rows(*ids: int, day: str = "a") -> pa.Table:
    return pa.table(
        {"id": list(ids), "day": [day] * len(ids), "body": [f"word{i}" for i in ids]}, schema=SCHEMA
    )


def age(path, days: float) -> None:
    then = time.time() - days * DAYS
    for file in path.rglob("*"):
        if file.is_file():
            os.utime(file, (then, then))


def splits(path) -> set[str]:
    return {str(p.relative_to(path)) for p in path.rglob("*.split")}


@pytest.fixture
def table(tmp_path) -> Table:
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["day"])
    table.append(rows(1, 2))
    table.append(rows(3, day="b"))
    return table


def run(tmp_path, hours=None, dry_run=False, config=None):
    log = TransactionLog(open_store(tmp_path / "t"))
    return purge(log, retention_hours=hours, dry_run=dry_run, config=config or Config())


def orphan(tmp_path, name="day=a/splits/split-orphan.split"):
    path = tmp_path / "t" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 10)
    return path


def test_only_old_splits_that_nobody_names_go(table, tmp_path):
    live = splits(tmp_path / "t")
    old = orphan(tmp_path)
    xref = orphan(tmp_path, "_xrefsplits/abcd/xref-1.split")
    foreign = orphan(tmp_path, "notes.txt")
    age(tmp_path / "t", 8)
    young = orphan(tmp_path, "day=b/splits/split-young.split")
    found = run(tmp_path)
    assert found.files_deleted == 2
    assert found.bytes_deleted == 20
    assert not old.exists()
    assert not xref.exists()
    assert foreign.exists()
    assert young.exists()
    assert splits(tmp_path / "t") - {str(young.relative_to(tmp_path / "t"))} == live
    assert sorted(Table.open(tmp_path / "t").scan()["id"].to_pylist()) == [1, 2, 3]


def test_a_dry_run_deletes_nothing(table, tmp_path):
    path = orphan(tmp_path)
    age(tmp_path / "t", 8)
    found = run(tmp_path, dry_run=True)
    assert [m.path for m in found.orphans] == ["day=a/splits/split-orphan.split"]
    assert found.files_deleted == 0
    assert path.exists()


def test_removed_splits_stay_while_a_retained_version_names_them(table, tmp_path):
    before = splits(tmp_path / "t")
    table.overwrite(rows(9))
    age(tmp_path / "t", 8)
    run(tmp_path)
    assert before <= splits(tmp_path / "t")
    assert Table.open(tmp_path / "t", version=2).count() == 3


def test_what_only_a_checkpoint_names_stays(table, tmp_path):
    table.checkpoint()
    log = tmp_path / "t" / "_transaction_log"
    for version in log.glob("*.json"):
        version.unlink()
    age(tmp_path / "t", 8)
    assert run(tmp_path).files_deleted == 0
    assert Table.open(tmp_path / "t").count() == 3


def test_several_runs_do_not_corrupt_step_by_step(table, tmp_path):
    for round_ in range(12):
        table.overwrite(rows(round_))
        age(tmp_path / "t", 40)
        run(tmp_path)
        assert table.scan()["id"].to_pylist() == [round_]
        assert (
            Table.open(tmp_path / "t").scan(where=f"body indexquery 'word{round_}'").num_rows == 1
        )
    assert len(splits(tmp_path / "t")) < 12


def test_a_retention_that_is_too_short_is_refused(table, tmp_path):
    with pytest.raises(ConfigError, match="at least 24 hours"):
        run(tmp_path, hours=23)
    with pytest.raises(ConfigError, match="negative"):
        run(tmp_path, hours=-1, config=NO_FLOOR)
    path = orphan(tmp_path)
    age(tmp_path / "t", 0.1)
    assert run(tmp_path, hours=1, config=NO_FLOOR).files_deleted == 1
    assert not path.exists()


def test_the_default_retention_and_the_limit_are_configured(table, tmp_path):
    for n in range(5):
        orphan(tmp_path, f"day=a/splits/split-{n}.split")
    age(tmp_path / "t", 3)
    assert run(tmp_path).files_deleted == 0
    few = Config({"spark.indextables.purge.defaultRetentionHours": 48,
                  "spark.indextables.purge.maxFilesToDelete": 2})  # fmt: skip
    assert run(tmp_path, config=few).files_deleted == 2


def test_one_listing_and_no_request_per_file_but_the_deletes(table, tmp_path):
    from faulty_store import FaultyStore

    for n in range(30):
        orphan(tmp_path, f"day=a/splits/split-{n}.split")
    age(tmp_path / "t", 8)
    store = FaultyStore(open_store(tmp_path / "t"))
    purge(TransactionLog(store), retention_hours=None, dry_run=False, config=Config())
    assert [p for o, p in store.operations if o == "list"].count("") == 1
    assert store.count("delete", ".split") == 1
    assert not [p for o, p in store.operations if o in ("head", "get") and p.endswith(".split")]


def test_the_table_has_the_verb(table, tmp_path):
    orphan(tmp_path)
    age(tmp_path / "t", 8)
    assert len(table.purge(dry_run=True).orphans) == 1
    assert table.purge(older_than_hours=24 * 9).files_deleted == 0
    assert table.purge().files_deleted == 1
    with pytest.raises(ConfigError, match="read-only"):
        Table.open(tmp_path / "t", version=1).purge()


# --- leftovers, checksum files, retention of the log, restores ---------------------------------


def test_leftovers_of_killed_local_writers_go_when_they_are_old(table, tmp_path):
    old = orphan(tmp_path, "day=a/splits/.tmp-0123")
    in_log = orphan(tmp_path, "_transaction_log/.tmp-4567")
    lock = orphan(tmp_path, "_transaction_log/.lock-89")
    age(tmp_path / "t", 8)
    young = orphan(tmp_path, "day=a/splits/.tmp-young")
    dry = run(tmp_path, dry_run=True)
    assert len(dry.leftovers) == 2
    assert old.exists()
    found = run(tmp_path)
    assert (found.files_deleted, found.bytes_deleted) == (2, 20)
    assert not old.exists()
    assert not in_log.exists()
    assert lock.exists()
    assert young.exists()


def test_checksum_files_go_with_their_split(table, tmp_path):
    name = next(iter(splits(tmp_path / "t")))
    kept = orphan(tmp_path, f"{name}.crc")
    gone = orphan(tmp_path, "day=a/splits/split-orphan.split.crc")
    age(tmp_path / "t", 8)
    assert run(tmp_path).files_deleted == 1
    assert kept.exists()
    assert not gone.exists()


def test_xrefs_that_a_retained_version_names_stay(table, tmp_path):
    from indextables.log.actions import AddXRef, RemoveXRef
    from indextables.log.transaction import Operation, Transaction

    def xref(name):
        path = f"_xrefsplits/abcd/{name}.split"
        return orphan(tmp_path, path), AddXRef(
            path=path, xref_id=name, source_split_paths=(), source_split_count=0, size=10,
            total_terms=0, footer_start_offset=0, footer_end_offset=10, created_time=0,
            build_duration_ms=0, max_source_splits=10,
        )  # fmt: skip

    (old, first), (new, second) = xref("xref-1"), xref("xref-2")
    log = TransactionLog(open_store(tmp_path / "t"))
    log.commit(Transaction(operation=Operation.XREF, actions=[first]))
    gone = RemoveXRef(path=first.path, xref_id="xref-1", deletion_timestamp=0, reason="replaced")
    log.commit(Transaction(operation=Operation.XREF, actions=[second, gone]))
    age(tmp_path / "t", 8)
    assert run(tmp_path).files_deleted == 0
    log.checkpoint()
    age(tmp_path / "t", 8)
    found = purge(
        TransactionLog(open_store(tmp_path / "t")), retention_hours=None, log_retention_hours=24,
        dry_run=False, config=Config(),
    )  # fmt: skip
    assert [meta.path for meta in found.orphans] == [first.path]
    assert new.exists()
    assert not old.exists()


def test_a_log_retention_expires_versions_and_then_their_splits(table, tmp_path):
    table.overwrite(rows(9))
    table.checkpoint()
    age(tmp_path / "t", 3)
    before = splits(tmp_path / "t")
    assert table.purge(older_than_hours=48).files_deleted == 0
    dry = table.purge(older_than_hours=48, log_retention_hours=24, dry_run=True)
    assert (len(dry.orphans), len(dry.log_files.version_files), dry.log_files_deleted) == (2, 3, 0)
    assert splits(tmp_path / "t") == before
    done = table.purge(older_than_hours=48, log_retention_hours=24)
    assert done.orphans == dry.orphans
    assert (done.files_deleted, done.log_files_deleted) == (2, 3)
    assert table.scan()["id"].to_pylist() == [9]
    with pytest.raises(ConfigError, match="at least 24 hours"):
        table.purge(log_retention_hours=1)


@pytest.mark.parametrize("staleness", [0, 600_000])
def test_what_a_restore_brings_back_meanwhile_stays(table, tmp_path, staleness):
    """The restore commits after the purge has computed what is retained."""
    from indextables.jobs import history as job

    table.overwrite(rows(9))
    table.checkpoint()
    age(tmp_path / "t", 3)
    reader = Table.open(tmp_path / "t", version=2)
    old = reader.snapshot()
    real = job._delete

    def restored_first(log, orphans):
        from indextables.jobs.history import restore

        restore(table.log, old)
        return real(log, orphans)

    job._delete = restored_first
    try:
        stale = {"spark.indextables.transaction.cache.maxStalenessMs": staleness}
        purger = Table.open(tmp_path / "t", config=stale)
        done = purger.purge(older_than_hours=48, log_retention_hours=24)
    finally:
        job._delete = real
    assert done.files_deleted == 0
    assert sorted(Table.open(tmp_path / "t").scan()["id"].to_pylist()) == [1, 2, 3]


def test_one_listing_of_the_table_and_none_of_the_log(table, tmp_path):
    from faulty_store import FaultyStore

    table.checkpoint()
    for n in range(3):
        orphan(tmp_path, f"day=a/splits/split-{n}.split")
    age(tmp_path / "t", 8)
    store = FaultyStore(open_store(tmp_path / "t"))
    log = TransactionLog(store)
    log.snapshot()
    store.operations.clear()
    assert purge(log, retention_hours=None, dry_run=False, config=Config()).files_deleted == 3
    assert [p for o, p in store.operations if o == "list"] == [""]


def test_a_version_file_that_cannot_be_deleted_keeps_its_splits(table, tmp_path):
    from faulty_store import FaultyStore

    table.overwrite(rows(9))
    table.checkpoint()
    age(tmp_path / "t", 3)
    store = FaultyStore(open_store(tmp_path / "t"))
    for _ in range(9):
        store.inject("delete", "before", path="_transaction_log/")
    log = TransactionLog(store)
    done = purge(
        log, retention_hours=48, log_retention_hours=24, dry_run=False, config=Config()
    )  # fmt: skip
    assert done.log_files_deleted < len(done.log_files)
    kept = Table.open(tmp_path / "t").history()["version"].to_pylist()
    assert len(kept) > 1
    for version in kept:
        for action in TransactionLog(open_store(tmp_path / "t")).actions(version).actions:
            assert action.kind != "add" or (tmp_path / "t" / action.path).exists()


def test_more_objects_than_a_store_lists_or_deletes_at_once(s3):
    """Ages come from objects: the clock of the log is set ahead, the store's cannot be."""
    import uuid
    from concurrent.futures import ThreadPoolExecutor

    uri = f"{s3.uri}/{uuid.uuid4().hex}"
    table = Table.create(uri, SCHEMA, partition_by=["day"], storage_options=s3.options)
    table.append(rows(1, 2))
    store = open_store(uri, s3.options)
    names = [f"day=a/splits/split-{n}.split" for n in range(1_050)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, b"x"), names))
    now = time.time_ns() // 1_000_000
    early = purge(TransactionLog(store), retention_hours=None, dry_run=False, config=Config())
    assert early.files_deleted == 0
    later = TransactionLog(store)
    later.age_now_ms = lambda: now + 8 * DAYS * 1000
    assert purge(later, retention_hours=None, dry_run=False, config=Config()).files_deleted == 1_050
    assert table.count() == 2
    assert sum(meta.path.endswith(".split") for meta in store.list()) == 1


# --- clocks --------------------------------------------------------------------------------------


def test_a_purge_whose_clock_is_ahead_takes_ages_from_the_store(table, tmp_path):
    young = orphan(tmp_path)
    log = TransactionLog(
        open_store(tmp_path / "t"), now_ms=lambda: time.time_ns() // 1_000_000 + 8 * DAYS * 1000
    )
    assert purge(log, retention_hours=None, dry_run=False, config=Config()).files_deleted == 0
    assert young.exists()


def test_files_are_dated_by_the_file_system(tmp_path, monkeypatch):
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 8 * DAYS * 10**9)
    store = open_store(tmp_path / "t")
    store.put("a", b"x")
    assert abs(store.head("a").modified_ms - real() // 10**6) < DAYS * 1000
    assert abs(store.clock_ms() - real() // 10**6) < DAYS * 1000
    assert [meta.path for meta in store.list()] == ["a"]


@pytest.mark.parametrize("job", ["append", "merge", "delete", "index"])
def test_a_write_whose_files_were_purged_is_not_acknowledged(table, tmp_path, job):
    """A clock that was set between the write and the commit makes new files look old."""
    writer = Table.open(tmp_path / "t")
    before = sorted(writer.scan()["id"].to_pylist())

    def interfere(phase):
        if phase == "before_put":
            writer.log._committer.observer = lambda _phase: None
            age(tmp_path / "t", 8)
            run(tmp_path)

    writer.log._committer.observer = interfere
    jobs = {
        "append": lambda: writer.append(rows(4)),
        "delete": lambda: writer.delete(where="id = 1"),
        "index": writer.index_crossreferences,
    }
    if job == "merge":  # one group that fails is reported, and does not end the others
        Table.open(tmp_path / "t").append(rows(5))
        before.append(5)
        assert writer.merge_splits().files_added == 0
    else:
        with pytest.raises(SplitsPurgedError, match="a purge deleted them as old files"):
            jobs[job]()
    assert sorted(Table.open(tmp_path / "t").scan()["id"].to_pylist()) == before
    assert all(check.passed for check in Table.open(tmp_path / "t").verify())


def test_a_purge_waits_for_a_commit_and_a_commit_for_a_purge(table, tmp_path):
    import threading

    store = open_store(tmp_path / "t")
    order = []

    def purging():
        with open_store(tmp_path / "t").commits_held(PURGE_LOCK, alone=True):
            order.append("purge")

    with (
        store.commits_held(PURGE_LOCK, alone=False) as first,
        open_store(tmp_path / "t").commits_held(PURGE_LOCK, alone=False) as second,
    ):
        assert first
        assert second
        thread = threading.Thread(target=purging)
        thread.start()
        thread.join(0.1)
        order.append("commits")
    thread.join()
    assert order == ["commits", "purge"]
    assert not list((tmp_path / "t" / "_transaction_log").glob(".lock*"))


def test_commits_and_purges_do_their_work_while_they_hold_the_lock(table, tmp_path, monkeypatch):
    done = []

    def recorded(name, label):
        original = getattr(LocalStore, name)

        def call(self, *arguments, **options):
            done.append(label)
            return original(self, *arguments, **options)

        monkeypatch.setattr(LocalStore, name, call)

    held = LocalStore.commits_held

    @contextlib.contextmanager
    def holding(self, path, *, alone):
        with held(self, path, alone=alone) as yes:
            done.append(f"alone {alone}")
            yield yes
            done.append("released")

    monkeypatch.setattr(LocalStore, "commits_held", holding)
    recorded("put_if_absent", "commit")
    Table.open(tmp_path / "t").append(rows(4))
    assert done == ["alone False", "commit", "released"]
    (tmp_path / "t" / "splits").mkdir(exist_ok=True)
    (tmp_path / "t" / "splits" / "split-old.split").write_text("x")
    age(tmp_path / "t", 8)
    done.clear()
    recorded("delete", "delete")
    assert run(tmp_path).files_deleted == 1
    start = done.index("alone True")
    assert "delete" in done[start : done.index("released", start)]


def test_a_commit_of_the_future_does_not_hide_the_table_of_now(table, tmp_path):
    ahead = Table.open(tmp_path / "t")
    real = ahead.log.now_ms
    ahead.log._committer.now_ms = lambda: real() + 4_000 * DAYS * 1000
    ahead.append(rows(10))
    Table.open(tmp_path / "t").append(rows(11))
    now = real()
    fresh = TransactionLog(open_store(tmp_path / "t"))
    stamps = [entry.timestamp for entry in fresh.history()][::-1]
    assert stamps[3] > now
    assert fresh.snapshot(timestamp_ms=now).version == 4
    assert fresh.snapshot(timestamp_ms=now + 60_000).version == 4
    for version, stamp in enumerate(stamps):  # a stamp of the history still means its version
        assert fresh.snapshot(timestamp_ms=stamp).version == version


# --- links ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", ["day=x", "day=x/splits", "_xrefsplits"])
def test_what_lies_behind_a_link_is_not_deleted(table, tmp_path, behind):
    """A folder of this table leads into another one, whose splits this log does not name."""
    other = Table.create(tmp_path / "other", SCHEMA, partition_by=["day"])
    other.append(rows(7))
    (tmp_path / "other" / "notes.split").write_text("keep")
    link = tmp_path / "t" / behind
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "other", target_is_directory=True)
    age(tmp_path / "t", 8)
    age(tmp_path / "other", 8)
    before = sorted((tmp_path / "other").rglob("*"))
    found = run(tmp_path)
    assert found.files_deleted == 0
    store = open_store(tmp_path / "t")
    listed = [meta.path for meta in store.list() if meta.path.startswith(behind)]
    assert listed
    store.delete(listed)  # as DROP and the clean-up after a failed write do
    assert sorted((tmp_path / "other").rglob("*")) == before
    assert other.count() == 1


def test_a_link_that_is_a_file_goes_and_its_target_stays(table, tmp_path):
    target = tmp_path / "elsewhere"
    target.write_text("keep")
    (tmp_path / "t" / "old.split").symlink_to(target)
    store = open_store(tmp_path / "t")
    store.delete(["old.split"])
    assert target.read_text() == "keep"
    assert not (tmp_path / "t" / "old.split").is_symlink()
