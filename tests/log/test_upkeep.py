"""What follows a commit: checkpoints at their time, clean-up within its gates."""

from __future__ import annotations

import threading

import pytest
from faulty_store import FaultyStore
from logs import add, append, memory_store, new_log, paths, remove, xref

from indextables.config import Config
from indextables.errors import IndexTablesError
from indextables.log.layout import LAST_CHECKPOINT, list_log, version_path
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog

DAY = 86_400_000


@pytest.mark.parametrize(("interval", "states"), [(1, [1, 2, 3, 4]), (2, [2, 4]), (5, [])])
def test_a_checkpoint_is_written_every_so_many_versions(interval, states):
    log = new_log(options={"spark.indextables.checkpoint.interval": interval})
    for _ in range(4):
        append(log)
    assert sorted(list_log(log.store).states) == states


def test_checkpoints_can_be_switched_off_and_asked_for():
    off = {
        "spark.indextables.checkpoint.interval": 1,
        "spark.indextables.checkpoint.enabled": False,
    }
    log = new_log(options=off)
    append(log)
    assert not list_log(log.store).states
    assert log.checkpoint().version == 1
    assert sorted(list_log(log.store).states) == [1]


@pytest.mark.parametrize("state", ["avro", "json"])
@pytest.mark.parametrize("parts", [2, 10_000])
def test_a_checkpoint_stands_alone(state, parts):
    log = new_log(
        options={
            "spark.indextables.state.format": state,
            "spark.indextables.checkpoint.actionsPerPart": parts,
        }
    )
    full = add(
        "day=1/full.split", tags={"a": "b"}, time_range_start="2024-01-01T00:00:00Z",
        time_range_end="2024-01-02T00:00:00Z", delete_opstamp=4, num_merge_ops=2,
        split_tags=("x", "y"), stats='{"numRecords":1}', min_values={"id": "1"},
        max_values={"id": "9"}, has_footer_offsets=True, footer_start_offset=1,
        footer_end_offset=2, hotcache_start_offset=3, hotcache_length=4,
        uncompressed_size_bytes=99, doc_mapping_json='[{"name":"id"}]',
        extra={"fromTheFuture": [1, {"a": None}]},
    )  # fmt: skip
    append(log, full, add("day=1/gone.split"), add(day=None), add(day="a=b/ü"))
    remove(log, "day=1/gone.split")
    log.commit(Transaction(operation=Operation.XREF, actions=[xref("x")]))
    log.now_ms = lambda: 10**15
    log.record_skips({"day=1/full.split": "r"}, operation="merge")
    before = log.snapshot()
    log.checkpoint()
    versions = [version_path(v) for v in list_log(log.store).versions]
    log.store.delete(versions)
    after = TransactionLog(log.store).snapshot()
    assert after.files.sort_by("path").equals(before.files.sort_by("path"))
    for fact in ("version", "timestamp", "protocol", "metadata"):
        assert getattr(after, fact) == getattr(before, fact), fact
    assert dict(after.xrefs) == dict(before.xrefs)
    assert dict(after.skips) == dict(before.skips)


def old_table(options=None):
    """Twelve versions that are a hundred days old when the next commit happens."""
    log = new_log(options={"spark.indextables.checkpoint.interval": 4} | (options or {}))
    for _ in range(11):
        append(log)
    log.now_ms = log.age_now_ms = lambda: log.snapshot().timestamp + 100 * DAY
    return log


def test_expired_versions_go_after_a_checkpoint():
    log = old_table()
    append(log)
    left = sorted(list_log(log.store).versions)
    assert 0 < len(left) < 13
    assert left == list(range(left[0], 13)), "no gap"
    assert len(paths(TransactionLog(log.store).snapshot())) == 12


def test_clean_up_can_be_switched_off_and_asked_for():
    log = old_table({"spark.indextables.cleanup.enabled": False})
    append(log)
    assert sorted(list_log(log.store).versions) == list(range(13))
    assert log.plan_cleanup().version_files
    assert sorted(list_log(log.store).versions) == list(range(13)), "planning deletes nothing"
    log.cleanup()
    assert len(list_log(log.store).versions) < 13


def test_clean_up_that_fails_raises_or_goes_on_but_never_fails_a_commit():
    for policy in ("continue", "fail"):
        store = FaultyStore(memory_store())
        log = new_log(store, {"spark.indextables.checkpoint.interval": 4,
                              "spark.indextables.cleanup.failurePolicy": policy})  # fmt: skip
        for _ in range(11):
            append(log)
        log.now_ms = log.age_now_ms = lambda log=log: log.snapshot().timestamp + 100 * DAY
        store.inject("delete", "before")
        assert append(log).version == 12
        for _ in range(20):
            store.inject("delete", "before")
        if policy == "fail":
            with pytest.raises(IndexTablesError):
                log.cleanup()
        else:
            log.cleanup()


def test_a_checkpoint_that_fails_leaves_the_commit_standing():
    store = FaultyStore(memory_store())
    log = new_log(store, {"spark.indextables.checkpoint.interval": 1,
                          "spark.indextables.state.retry.maxAttempts": 1})  # fmt: skip
    store.inject("put", "before", path="manifests")
    assert append(log).version == 1
    assert not list_log(store).states
    assert append(log).version == 2
    assert sorted(list_log(store).states) == [2]


def test_the_emergency_format_writes_json_at_the_head():
    log = new_log(options={"spark.indextables.checkpoint.interval": 1})
    append(log)
    down = TransactionLog(log.store, config=Config({"spark.indextables.state.format": "json"}))
    append(down)
    down.checkpoint()
    assert b'"json"' in log.store.get(LAST_CHECKPOINT)
    assert TransactionLog(log.store).snapshot().num_files == 2


def test_parallelism_is_how_many_files_are_read_at_once():
    store = CountingStore(memory_store())
    log = new_log(store, {"spark.indextables.state.entriesPerManifest": 1})
    for _ in range(12):
        append(log)
    log.checkpoint(force_compaction=True)
    for key, path in (("checkpoint.parallelism", ".json"), ("state.read.parallelism", "manifests")):
        options = {f"spark.indextables.{key}": 3}
        if path == ".json":
            options["spark.indextables.transaction.useOptimized"] = False
        store.watch(path, together=3)
        TransactionLog(store, config=Config(options)).snapshot()
        assert store.most == 3, key


class CountingStore(FaultyStore):
    """Counts how many reads of some files are under way at once, and lets them wait for it."""

    def watch(self, path: str, *, together: int) -> None:
        self.path, self.most, self.now = path, 0, 0
        self.enough = threading.Event()
        self.together = together

    def get(self, path: str) -> bytes:
        if self.path not in path:
            return super().get(path)
        with self._mutex:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now >= self.together:
                self.enough.set()
        # Whoever comes first waits for the others; with fewer threads this times out.
        self.enough.wait(60)
        try:
            return super().get(path)
        finally:
            with self._mutex:
                self.now -= 1

    path = "never"
