from __future__ import annotations

from logs import add, append, new_log, paths, remove

from indextables.log.transaction_log import TransactionLog, in_cooldown, without_cooldown

A, B = "day=1/a.split", "day=1/b.split"
HOUR = 3_600_000


def table(options=None, now=1_000):
    log = new_log(options=options)
    append(log, add(A, size=7), add(B))
    log.now_ms = lambda: now
    return log


def test_a_skipped_file_is_left_alone_for_a_while_and_stays_readable():
    log = table()
    log.record_skips({A: "Corrupted index footer"}, operation="merge")
    snapshot = TransactionLog(log.store).snapshot()
    skip = snapshot.skips[A]
    assert (skip.reason, skip.operation, skip.skip_count) == ("Corrupted index footer", "merge", 1)
    assert (skip.size, skip.partition_values) == (7, {"day": "1"})
    assert skip.retry_after == 1_000 + 24 * HOUR
    assert paths(snapshot) == {A, B}
    assert in_cooldown(snapshot, now_ms=1_000) == {A: skip.retry_after}
    assert paths_of(without_cooldown(snapshot, snapshot.entries, now_ms=1_000)) == [B]
    later = skip.retry_after
    assert in_cooldown(snapshot, now_ms=later) == {}
    assert set(paths_of(without_cooldown(snapshot, snapshot.entries, now_ms=later))) == {A, B}


def paths_of(files):
    return files["path"].to_pylist()


def test_skips_in_a_row_are_counted_by_whoever_records_them():
    log = table()
    for writer in (log, TransactionLog(log.store), TransactionLog(log.store)):
        writer.record_skips({A: "again"}, operation="merge")
    assert TransactionLog(log.store).snapshot().skips[A].skip_count == 3


def test_the_cooldown_is_configured():
    log = table({"spark.indextables.skippedFiles.cooldownDuration": 2})
    log.record_skips({A: "r"}, operation="merge")
    assert log.snapshot().skips[A].retry_after == 1_000 + 2 * HOUR


def test_tracking_can_be_switched_off():
    log = table({"spark.indextables.skippedFiles.trackingEnabled": False})
    before = log.snapshot().version
    assert log.record_skips({A: "r"}, operation="merge") is None
    assert log.snapshot().version == before


def test_files_that_are_gone_are_not_recorded_and_a_removed_file_loses_its_skip():
    log = table()
    assert not log.record_skips({"day=1/never.split": "r"}, operation="merge").changed
    log.record_skips({A: "r"}, operation="merge")
    remove(log, A)
    assert log.snapshot().skips == {}


def test_skips_survive_checkpoints_until_they_expire():
    for state in ("avro", "json"):
        log = table({"spark.indextables.state.format": state})
        log.record_skips({A: "r"}, operation="merge")
        log.now_ms = lambda: 10**15
        log.checkpoint()
        assert A not in TransactionLog(log.store).snapshot().skips, "it expired long ago"
        log = table({"spark.indextables.state.format": state}, now=10**15)
        log.record_skips({A: "r"}, operation="merge")
        log.checkpoint()
        assert TransactionLog(log.store).snapshot().skips[A].retry_after == 10**15 + 24 * HOUR


def test_files_in_cooldown_are_counted_in_the_log(caplog):
    log = table()
    log.record_skips({A: "r"}, operation="merge")
    snapshot = log.snapshot()
    with caplog.at_level("INFO"):
        left = without_cooldown(snapshot, snapshot.entries, now_ms=log.now_ms())
    assert left.num_rows == snapshot.num_files - 1
    assert "1 files in cooldown are left alone" in caplog.text
