"""Logs that lost their versions, or became another table's, under somebody who has them open."""

from __future__ import annotations

from dataclasses import replace

import pytest
from logs import add, append, memory_store, metadata, new_log, paths, remove

from indextables.config import TRANSACTION_CACHE_TTL, Config
from indextables.errors import (
    CommitStateUnknownError,
    ConcurrentAppendError,
    MetadataChangedError,
    NotATableError,
    StorageError,
)
from indextables.jobs.history import truncate_history
from indextables.log import reader as log_history
from indextables.log import reader as log_reader
from indextables.log.actions import Remove
from indextables.log.cache import LogCache
from indextables.log.layout import version_path
from indextables.log.transaction import Operation, Transaction, everything
from indextables.log.transaction_log import TransactionLog


def _truncated(log: TransactionLog, appends: int = 3) -> None:
    for _ in range(appends):
        append(log)
    truncate_history(log, dry_run=False, config=Config())


def _planned(log: TransactionLog, operation: Operation = Operation.APPEND, **parts) -> Transaction:
    snapshot = log.snapshot()
    return Transaction(
        operation=operation, read_version=snapshot.version, read_snapshot=snapshot, **parts
    )


def _drop(log: TransactionLog) -> None:
    log.store.delete([meta.path for meta in log.store.list()])


def test_a_truncation_is_seen_by_who_has_the_log_open():
    log = new_log()
    append(log)
    reader = TransactionLog(log.store)
    assert reader.snapshot().version == 1
    _truncated(log)
    assert reader.snapshot().version == 4
    assert paths(reader.snapshot()) == paths(log.snapshot())


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_commit_after_a_truncation_is_not_lost(is_planned):
    log = new_log()
    append(log)
    slow, mine = TransactionLog(log.store), add("day=1/mine.split")
    transaction = _planned(slow, actions=[mine])
    _truncated(log)
    if not is_planned:
        transaction = Transaction(operation=Operation.APPEND, actions=[mine])
    assert slow.commit(transaction).version == 5
    assert mine.path in paths(TransactionLog(log.store).snapshot())


def test_a_truncation_while_a_commit_is_under_way():
    log = new_log()
    append(log)
    phases: list[str] = []

    def observer(phase: str) -> None:
        phases.append(phase)
        if phases.count("before_put") == 1 and phase == "before_put":
            _truncated(log)

    slow = TransactionLog(log.store, config=log.config, observer=observer)
    committed = append(slow, add("day=1/mine.split"))
    assert (committed.version, committed.attempts) == (5, 2)
    assert "day=1/mine.split" in paths(TransactionLog(log.store).snapshot())


def test_a_truncation_at_the_very_moment_of_a_commit_is_not_taken_for_success(monkeypatch):
    log = new_log()
    append(log)
    slow = TransactionLog(log.store, config=log.config)
    put = slow.store.put_if_absent

    def truncated_first(path: str, data: bytes) -> None:
        monkeypatch.undo()
        _truncated(log)
        put(path, data)

    monkeypatch.setattr(slow.store, "put_if_absent", truncated_first)
    with pytest.raises(CommitStateUnknownError):
        append(slow, add("day=1/mine.split"))
    assert append(slow, add("day=1/next.split")).version == 5


def test_what_a_truncation_hides_is_still_checked_for_conflicts():
    log = new_log()
    append(log, add("day=1/old.split"))
    slow = TransactionLog(log.store)
    gone = Remove(path="day=1/old.split")
    narrow = _planned(slow, Operation.REWRITE, actions=[gone])
    wide = _planned(slow, Operation.REWRITE, actions=[gone], read_scope=everything)
    _truncated(log)
    with pytest.raises(ConcurrentAppendError):
        slow.commit(wide)
    assert slow.commit(narrow).version == 5


@pytest.mark.parametrize("appends", [0, 1, 4])
def test_a_table_made_anew_is_read_as_it_is_and_not_written_by_mistake(appends):
    log = new_log()
    append(log)
    old = TransactionLog(log.store, config=log.config)
    old.snapshot()
    transaction = _planned(old, actions=[add("day=1/mine.split")])
    _drop(log)
    new = TransactionLog.create(log.store, metadata("day"), config=log.config)
    for _ in range(appends):
        append(new)
    assert old.snapshot().version == appends
    assert paths(old.snapshot()) == paths(new.snapshot())
    # The tables of these tests have one id; a table that a user makes has one of its own.
    other = TransactionLog(log.store, config=log.config)
    _drop(log)
    renamed = replace(metadata("day"), id="table-2")
    TransactionLog.create(log.store, renamed, config=log.config)
    with pytest.raises(MetadataChangedError, match="identity"):
        other.commit(transaction)
    assert not paths(TransactionLog(log.store).snapshot())


def test_a_dropped_table_is_no_table():
    log = new_log(memory_store())
    append(log)
    _drop(log)
    with pytest.raises(NotATableError):
        log.snapshot()
    with pytest.raises(NotATableError):
        append(log)
    assert not list(log.store.list())


@pytest.mark.parametrize("known", [False, True], ids=["new", "behind"])
def test_a_truncation_between_a_listing_and_the_reading(monkeypatch, known):
    """What was listed is gone, and that is no damage."""
    log = new_log()
    reading = TransactionLog(log.store)
    if known:
        reading.snapshot()
    for _ in range(5):
        append(log)
    listed = log_reader.list_log_after if known else log_reader.list_log

    def truncated_after(store, *version):
        monkeypatch.undo()
        found = listed(store, *version)
        _truncated(log)
        return found

    monkeypatch.setattr(log_reader, listed.__name__, truncated_after)
    assert paths(reading.snapshot()) == paths(log.snapshot())


@pytest.mark.parametrize("put_fails", [False, True])
def test_a_log_that_cannot_be_read_after_the_put_leaves_the_commit_in_doubt(monkeypatch, put_fails):
    """Any other error says that the commit failed, and then its splits are deleted."""
    log = new_log(options={"spark.indextables.transaction.retry.maxAttempts": 2})
    append(log)
    mine = add("day=1/mine.split")
    put = log.store.put_if_absent

    def put_and_lose_the_log(path: str, data: bytes) -> None:
        monkeypatch.undo()
        put(path, data)
        if put_fails:
            log.store.put(path, data[:-9])  # what a reader sees for now
            raise StorageError("The answer was lost.", path=path)
        log.store.delete([version_path(1)])
        log.store.put(version_path(3), b"{}")

    monkeypatch.setattr(log.store, "put_if_absent", put_and_lose_the_log)
    with pytest.raises(CommitStateUnknownError):
        append(log, mine)


def test_a_table_made_anew_can_be_written_to_when_the_old_snapshot_is_forgotten():
    """The mark of the old file may live longer than the snapshot that it belongs to."""
    old, clock = new_log(), [0.0]
    log = TransactionLog(
        old.store, config=old.config, cache=LogCache(old.config, timer=lambda: clock[0])
    )
    log.snapshot()
    ttl_s = old.config[TRANSACTION_CACHE_TTL] / 1000
    clock[0] = ttl_s - 1
    log.newest()
    clock[0] = ttl_s + 1
    _drop(old)
    TransactionLog.create(old.store, replace(metadata("day"), id="table-2"))
    assert append(log).version == 1


def test_a_removal_on_a_state_without_a_version_file_is_not_in_doubt(monkeypatch):
    """Nobody truncated: whoever does writes a newer checkpoint first."""
    log = new_log()
    append(log, add("day=1/a.split"), add("day=1/b.split"))
    log.checkpoint()
    log.store.delete([version_path(0), version_path(1)])
    slow = TransactionLog(log.store, config=log.config)
    put = slow.store.put_if_absent

    def followed(path: str, data: bytes) -> None:
        monkeypatch.undo()
        put(path, data)
        append(TransactionLog(log.store))

    monkeypatch.setattr(slow.store, "put_if_absent", followed)
    assert remove(slow, "day=1/a.split").version == 2
    assert "day=1/a.split" not in paths(slow.snapshot())


def test_the_history_is_what_a_truncation_left_of_it(monkeypatch):
    log = new_log()
    append(log)
    listed = log_history.list_log

    def truncated_after(store):
        found = listed(store)
        _truncated(log)
        return found

    monkeypatch.setattr(log_history, "list_log", truncated_after)
    assert TransactionLog(log.store).history() == []
