from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from faulty_store import FaultyStore
from logs import add, append, memory_store, metadata, new_log, paths, remove

from indextables.config import Config
from indextables.errors import (
    CommitError,
    CommitStateUnknownError,
    ConcurrentDeleteDeleteError,
    RetriesExhaustedError,
    TableExistsError,
    UnsafePathError,
    UnsupportedFeatureError,
    UnsupportedProtocolError,
)
from indextables.log.actions import Add, CommitInfo, Metadata, Protocol, Remove
from indextables.log.files import mapping_hash
from indextables.log.layout import version_path
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog

FAST = {"spark.indextables.transaction.retry.baseDelayMs": 0}


def test_a_new_table_has_protocol_4_and_its_metadata_in_version_0():
    log = new_log()
    kinds = [type(a) for a in log.actions(0).actions]
    assert kinds == [CommitInfo, Protocol, Metadata]
    snapshot = log.snapshot()
    assert (snapshot.version, snapshot.num_files) == (0, 0)
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (4, 4)
    assert snapshot.schema.names == ["id", "body", "day"]


def test_creating_a_table_twice_is_refused():
    log = new_log()
    with pytest.raises(TableExistsError):
        TransactionLog.create(log.store, metadata())


@pytest.mark.parametrize("fault", ["after", "lost_response"])
def test_a_commit_whose_answer_was_lost_is_recognised_as_ones_own(fault):
    store = FaultyStore(memory_store())
    log = new_log(store)
    store.inject("put_if_absent", fault, path="01.json")
    committed = append(log, add("day=1/a.split"))
    assert committed.version == 1
    assert paths(TransactionLog(store).snapshot()) == {"day=1/a.split"}
    assert append(log).version == 2


def test_an_error_before_the_effect_is_tried_again_at_the_same_version():
    store = FaultyStore(memory_store())
    log = new_log(store)
    store.inject("put_if_absent", "before", path="01.json")
    assert append(log).version == 1


def test_a_store_that_stays_silent_gives_an_unknown_state():
    store = FaultyStore(memory_store())
    log = new_log(store, {"spark.indextables.transaction.retry.maxAttempts": 3})
    log.snapshot()
    for _ in range(3):
        store.inject("put_if_absent", "before", path="01.json")
    with pytest.raises(CommitStateUnknownError, match="txnId") as caught:
        append(log)
    assert caught.value.version == 1
    assert append(log).version == 1


def test_losing_every_attempt_gives_up_with_the_count():
    log = new_log(options={"spark.indextables.transaction.retry.maxAttempts": 4})
    rival = TransactionLog(log.store)
    pauses = []

    def overtake(phase):
        if phase == "before_put":
            append(rival)

    loser = TransactionLog(log.store, config=log.config, observer=overtake)
    loser._committer.sleep = pauses.append
    with pytest.raises(RetriesExhaustedError, match="after 4 attempts"):
        append(loser)
    assert len(pauses) == 3, "nobody waits after the last attempt"


def test_the_table_says_how_often_a_commit_is_tried():
    name = "spark.indextables.transaction.retry.maxAttempts"
    log = TransactionLog.create(memory_store(), metadata("day", **{name: "2"}))
    rival = TransactionLog(log.store)
    loser = TransactionLog(
        log.store, observer=lambda phase: append(rival) if phase == "before_put" else None
    )
    loser._committer.sleep = lambda _seconds: None
    with pytest.raises(RetriesExhaustedError, match="after 2 attempts"):
        append(loser)


def test_pauses_double_up_to_the_limit_with_jitter():
    options = {
        "spark.indextables.transaction.retry.baseDelayMs": 100,
        "spark.indextables.transaction.retry.maxDelayMs": 500,
    }
    config = Config(options)
    committer = TransactionLog(memory_store(), config=config)._committer
    committer.jitter = lambda low, high: 1.0
    assert [committer._pause_s(n, config) for n in (1, 2, 3, 4, 100)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    committer.jitter = lambda low, high: low
    assert committer._pause_s(1, config) == pytest.approx(0.075)


def test_two_jobs_that_remove_the_same_file_never_both_win():
    log = new_log()
    append(log, add("day=1/a.split"))
    other = TransactionLog(log.store)
    remove(other, "day=1/a.split")
    with pytest.raises(ConcurrentDeleteDeleteError, match=r"a\.split"):
        remove(log, "day=1/a.split")


def test_a_name_is_used_once():
    log = new_log()
    append(log, add("day=1/a.split"))
    for actions in ([add("day=1/a.split")], [add("b.split"), add("b.split")],
                    [Remove(path="day=1/a.split"), add("day=1/a.split")]):  # fmt: skip
        with pytest.raises(CommitError, match="twice"):
            append(log, *actions)
    # A name that was removed may come back, as in a restore.
    remove(log, "day=1/a.split")
    append(log, add("day=1/a.split", size=77))
    assert log.snapshot().files["size"].to_pylist() == [77]


@pytest.mark.parametrize(
    "path",
    ["../a", "a/../../b", "/etc/passwd", "s3://other/a", "file:/a", "C:\\a", "a\\b", "", "a/",
     "a//b", "./a", "a\x00b", "_transaction_log/0.json"],
)  # fmt: skip
def test_paths_that_leave_the_table_are_never_committed(path):
    log = new_log()
    with pytest.raises(UnsafePathError):
        append(log, Add(path=path))
    with pytest.raises(UnsafePathError):
        remove(log, path)


def test_timestamps_rise_when_the_clock_goes_backwards():
    clock = iter([5_000, 4_000, 4_000, 9_000])
    log = new_log()
    log = TransactionLog(log.store, now_ms=lambda: next(clock))
    log._committer.now_ms = log.now_ms
    start = log.snapshot().timestamp
    stamps = [append(log).snapshot.timestamp for _ in range(3)]
    assert stamps == [start + 1, start + 2, start + 3]


def test_mappings_are_stored_once_and_restored():
    mapping = '[{"name":"id","type":"i64"}]'
    log = new_log()
    append(log, add(doc_mapping_json=mapping))
    append(log, add(doc_mapping_json='[{"type":"i64","name":"id"}]'))
    reference = mapping_hash(mapping)
    for version in (1, 2):
        assert all(
            a.doc_mapping_json is None and a.doc_mapping_ref == reference
            for a in log.actions(version).actions
            if isinstance(a, Add)
        )
    assert sum(isinstance(a, Metadata) for a in log.actions(2).actions) == 0
    files = TransactionLog(log.store).snapshot().files
    assert files["docMappingJson"].to_pylist() == [mapping, mapping]


def test_an_old_table_keeps_inline_mappings_unless_it_may_be_upgraded():
    for upgrade in (True, False):
        store = memory_store()
        old = Protocol(min_reader_version=2, min_writer_version=2)
        config = Config(FAST, {"spark.indextables.protocol.autoUpgrade": upgrade})
        log = TransactionLog.create(store, metadata("day"), protocol=old, config=config)
        append(log, add(doc_mapping_json="[]"))
        snapshot = TransactionLog(store).snapshot()
        assert snapshot.protocol.min_reader_version == (4 if upgrade else 2)
        assert snapshot.files["docMappingJson"].to_pylist() == ["[]"]
        inline = [a.doc_mapping_json for a in log.actions(1).actions if isinstance(a, Add)]
        assert inline == ([None] if upgrade else ["[]"])


@pytest.mark.parametrize("upgrade", [True, False])
@pytest.mark.parametrize("automatic", [True, False])
def test_an_avro_state_is_written_only_where_the_protocol_has_it(upgrade, automatic):
    store = memory_store()
    old = Protocol(min_reader_version=3, min_writer_version=3)
    keys = {"protocol.autoUpgrade": upgrade, "checkpoint.interval": 1 if automatic else 100}
    config = Config({f"spark.indextables.{k}": v for k, v in keys.items()})
    log = TransactionLog.create(store, metadata("day"), protocol=old, config=config)
    append(log, add())
    if not automatic:
        log.checkpoint()
    files = {meta.path.split("/")[1] for meta in store.list()}
    snapshot = TransactionLog(store).snapshot()
    assert snapshot.num_files == 1
    assert any(name.startswith("state-v") for name in files) == upgrade
    assert any(".checkpoint.json" in name for name in files) != upgrade
    assert snapshot.protocol.min_reader_version == (4 if upgrade else 3)


def test_newer_protocols_are_refused_clearly():
    log = new_log()
    log.commit(
        Transaction(
            operation=Operation.PROTOCOL,
            actions=[Protocol(min_reader_version=4, min_writer_version=5)],
        )
    )
    assert log.snapshot().protocol.min_writer_version == 5
    with pytest.raises(UnsupportedProtocolError, match="requires writer version 5"):
        append(log)
    unchecked = Config({"spark.indextables.protocol.checkEnabled": False})
    append(TransactionLog(log.store, config=unchecked))
    log = new_log()
    newer = Protocol(min_reader_version=5, min_writer_version=5)
    log.commit(Transaction(operation=Operation.PROTOCOL, actions=[newer]))
    with pytest.raises(UnsupportedProtocolError, match="requires reader version 5"):
        TransactionLog(log.store).snapshot()


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_unknown_features_are_refused(role):
    log = new_log()
    protocol = replace(log.snapshot().protocol, **{f"{role}_features": ("timeMachine",)})
    log.commit(Transaction(operation=Operation.PROTOCOL, actions=[protocol]))
    with pytest.raises(UnsupportedFeatureError, match="timeMachine"):
        append(log)
    if role == "reader":
        with pytest.raises(UnsupportedFeatureError):
            log.snapshot()
    else:
        log.snapshot()


def test_an_upgrade_never_lowers():
    log = new_log()
    lower = Protocol(min_reader_version=2, min_writer_version=2)
    assert not log.commit(Transaction(operation=Operation.PROTOCOL, actions=[lower])).changed
    assert log.snapshot().protocol.min_reader_version == 4


def test_transforms_are_applied_again_on_every_retry():
    log = new_log()
    rival = TransactionLog(log.store)
    overtaken = []

    def overtake(phase):
        if phase == "before_put" and not overtaken:
            overtaken.append(True)
            append(rival, add("day=1/rival.split"))

    def remove_all(snapshot):
        return [Remove(path=p) for p in paths(snapshot)]

    append(log, add("day=1/a.split"))
    loser = TransactionLog(log.store, config=log.config, observer=overtake)
    committed = loser.commit(Transaction(operation=Operation.OVERWRITE, transform=remove_all))
    assert committed.attempts == 2
    assert paths(log.snapshot()) == set()


def test_threads_of_one_process_share_a_log():
    log = new_log(options={"spark.indextables.transaction.retry.maxAttempts": 1000})
    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(lambda _: append(log).version, range(64)))
    assert sorted(versions) == list(range(1, 65))
    assert log.snapshot().num_files == 64


def test_a_plain_table_is_written_when_compression_is_off():
    for enabled in (True, False):
        log = new_log(options={"spark.indextables.transaction.compression.enabled": enabled})
        append(log)
        assert log.store.get(version_path(1)).startswith(b"\x1f\x8b" if enabled else b"{")


def test_table_properties_configure_commits():
    store = memory_store()
    table = replace(
        metadata("day"),
        configuration={"spark.indextables.transaction.compression.enabled": "false", "x": "y"},
    )
    log = TransactionLog.create(store, table)
    append(log)
    assert store.get(version_path(1)).startswith(b"{")
