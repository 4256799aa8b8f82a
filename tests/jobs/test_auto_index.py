"""Automatic indexing: in the commit of the data, in tiers, within its budget, harming nobody."""

from __future__ import annotations

import itertools
import math
import threading
from concurrent.futures import FIRST_COMPLETED, wait

import pytest
from racing import race_processes
from table_processes import SCHEMA as RACE_SCHEMA
from table_processes import append_many, delete_many, replace_many, serial
from table_processes import rows as race_rows
from xref_tables import (
    QUICK,
    SCHEMA,
    XREF,
    auto,
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
from indextables import config as keys
from indextables.errors import InvalidValueError, XRefError
from indextables.jobs import crossreference_build
from indextables.jobs import crossreference_build as auto_index
from indextables.jobs.crossreference_build import FAN_OUT
from indextables.log.actions import Add
from indextables.log.snapshot import cover_of, coverage
from indextables.log.transaction import Operation


@pytest.fixture
def make(tmp_path):
    def create(partition_by=(), **settings) -> Table:
        config = {**QUICK, **auto(**settings)}
        return Table.create(tmp_path / "t", SCHEMA, partition_by=partition_by, config=config)

    return create


def operation(table):
    return table.log.actions(table.version).commit_info.operation


# --- when and what -----------------------------------------------------------------------------


def test_xrefs_are_in_the_commit_of_the_data(make):
    table = make()
    grow(table, 0, 2)
    assert sizes(table) == []
    grow(table, 2, 1)
    assert table.version == 3
    assert operation(table) == Operation.APPEND.value
    kinds = {type(a).__name__ for a in table.log.actions(3).actions}
    assert {"Add", "AddXRef", "Protocol"} <= kinds
    (made,) = table.snapshot().xrefs.values()
    assert set(made.source_split_paths) == set(table.snapshot().files["path"].to_pylist())
    assert "crossReferenceIndex" in table.snapshot().protocol.writer_features
    check_found(table, [0, 1, 2])
    assert xref_files(table) == named_xrefs(table)


def test_tiers(make, monkeypatch):
    table = make()
    with counted_reads(monkeypatch) as read:
        grow(table, 0, 3 * FAN_OUT)
    # Three by three, each split read once; the fourth makes one of all.
    assert read == [3] * FAN_OUT
    assert sizes(table) == [3 * FAN_OUT]
    assert xref_actions(table) == [("remove", "replaced")] * (FAN_OUT - 1) + [("add", 3 * FAN_OUT)]
    check_found(table, list(range(3 * FAN_OUT)))
    assert xref_files(table) == named_xrefs(table)


def test_n_appends_read_n_splits_and_link_n_log_n(make, monkeypatch):
    table = make()
    linked = []
    merge = crossreference_build.merge_xrefs

    def counting(store, parts, *, keep, config):
        linked.append(len(keep))
        return merge(store, parts, keep=keep, config=config)

    monkeypatch.setattr(crossreference_build, "merge_xrefs", counting)
    appends = 60
    with counted_reads(monkeypatch) as read:
        grow(table, 0, appends)
    assert sum(read) == appends
    assert sum(linked) <= appends * math.ceil(math.log(appends / 3, FAN_OUT))
    assert coverage(table.snapshot()).covered == appends
    assert len(sizes(table)) <= (FAN_OUT - 1) * 3


def test_keys(make):
    table = make(enabled=False)
    grow(table, 0, 5)
    assert sizes(table) == []
    table.append(rows(5), config=auto(maxSourceSplits=4, enabled=True))
    assert keys.XREF_AUTO_INDEX.name == XREF + "autoIndex.enabled"
    assert sizes(table) == [4]
    assert keys.XREF_MAX_SOURCE_SPLITS.default == 1024
    table.append(rows(6), config=auto(minSplitsToTrigger=4, enabled=True))
    assert sizes(table) == [4]
    assert keys.XREF_MIN_SPLITS_TO_TRIGGER.default == 10
    table.append(rows(7), config=auto(minSplitsToTrigger=4, maxSourceSplits=4, enabled=True))
    assert sizes(table) == [4, 4]
    check_found(table, list(range(8)))


def test_table_properties_decide(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, properties={k: str(v) for k, v in auto().items()})
    grow(Table.open(tmp_path / "t"), 0, 3)
    assert sizes(table) == [3]


def test_deletes_mask_at_once_and_rebuild_when_it_pays(make):
    table = make(minSplitsToTrigger=8)
    grow(table, 0, 8)
    table.delete(where="id = 0")
    assert xref_actions(table) == []  # one of eight: masked
    check_found(table, list(range(1, 8)))
    table.delete(where="id = 1")
    assert xref_actions(table) == [("remove", "source_changed"), ("add", 6)]
    check_found(table, list(range(2, 8)))
    assert xref_files(table) == named_xrefs(table)


def test_rebuilding_can_be_switched_off(make):
    assert keys.XREF_REBUILD_ON_SOURCE_CHANGE.default is True
    table = make(rebuildOnSourceChange=False)
    grow(table, 0, 3)
    table.overwrite(rows(9))
    assert sizes(table) == [3]
    check_found(table, [9])
    # What is new is indexed all the same.
    grow(table, 10, 2)
    assert sizes(table) == [3, 3]
    check_found(table, [9, 10, 11])


def test_overwrite_removes_what_covers_nothing(make):
    table = make()
    grow(table, 0, 3)
    table.overwrite(rows(9))
    assert xref_actions(table) == [("remove", "source_changed")]
    check_found(table, [9])


def test_merge_replaces_xrefs_in_its_commit(make):
    """Scenario D, by the way: the merged split joins what is left."""
    table = make(partition_by=["day"], minSplitsToTrigger=5)
    for number, day in enumerate("abbcd"):
        grow(table, number, 1, day)
    assert sizes(table) == [5]
    table.merge_splits(where="day = 'b'")
    assert operation(table) == Operation.MERGE.value
    assert xref_actions(table) == [("remove", "source_changed"), ("add", 4)]
    assert coverage(table.snapshot()).percent == 100
    check_found(table, list(range(5)))


def test_dropped_partitions(make):
    table = make(partition_by=["day"])
    grow(table, 0, 2, "a")
    grow(table, 2, 2, "b")
    grow(table, 4, 1, "c")
    assert sizes(table) == [3]
    table.drop_partitions(where="day IN ('a', 'b')")
    assert coverage(table.snapshot()).covered == 0
    check_found(table, [4])


def test_without_upgrades_nothing_is_indexed(tmp_path):
    config = {**auto(), "spark.indextables.protocol.autoUpgrade": False}
    table = Table.create(tmp_path / "t", SCHEMA, config=config)
    grow(table, 0, 4)
    assert sizes(table) == []
    assert xref_files(table) == set()
    check_found(table, list(range(4)))


# --- it never harms ----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [XRefError("broken"), ValueError("a bug"), MemoryError()])
def test_a_failing_build_does_not_fail_the_commit(make, monkeypatch, caplog, error):
    table = make()
    grow(table, 0, 2)

    def fail(*_args, **_options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(crossreference_build, "build_xref", fail)
        assert table.append(rows(2)).version == 3
    assert "XRef" in caplog.text
    assert sizes(table) == []
    check_found(table, [0, 1, 2])
    grow(table, 3, 1)  # the next write makes up for it
    assert sizes(table) == [4]


def test_a_failing_plan_does_not_fail_the_commit(make, monkeypatch, caplog):
    table = make()

    def fail(*_args, **_options):
        raise ZeroDivisionError

    monkeypatch.setattr(auto_index, "plan_automatic", fail)
    grow(table, 0, 3)
    assert "without new XRefs" in caplog.text
    check_found(table, [0, 1, 2])


def test_a_slow_build_is_left_behind_and_cleans_up(make, monkeypatch, caplog):
    table = make(timeoutMs=1_000)
    assert keys.XREF_AUTO_INDEX_TIMEOUT.default == 60_000
    grow(table, 0, 2)
    go_on, cleaned = threading.Event(), threading.Event()
    build, discard = crossreference_build.build_xref, auto_index._discard_late

    def slow(*args, **options):
        assert go_on.wait(60)
        return build(*args, **options)

    def noted(log, done):
        discard(log, done)
        cleaned.set()

    monkeypatch.setattr(crossreference_build, "build_xref", slow)
    monkeypatch.setattr(auto_index, "_discard_late", noted)
    table.append(rows(2))  # comes back although nobody lets the build go on
    assert not go_on.is_set()
    assert "timeoutMs" in caplog.text
    assert table.version == 3
    assert sizes(table) == []
    go_on.set()
    assert cleaned.wait(60)
    assert xref_files(table) == set()
    check_found(table, [0, 1, 2])


def test_what_is_ready_in_time_is_kept_and_only_the_rest_is_left_behind(make, monkeypatch, caplog):
    table = make(minSplitsToTrigger=4, maxSourceSplits=2)
    grow(table, 0, 3)
    go_on, cleaned = threading.Event(), threading.Event()
    calls = itertools.count()
    build, discard = crossreference_build.build_xref, auto_index._discard_late

    def first_is_slow(*args, **options):
        if not next(calls):
            assert go_on.wait(60)
        return build(*args, **options)

    def noted(log, done):
        discard(log, done)
        cleaned.set()

    with monkeypatch.context() as patch:
        patch.setattr(crossreference_build, "build_xref", first_is_slow)
        patch.setattr(auto_index, "_discard_late", noted)
        # The time is over as soon as one of them is ready.
        patch.setattr(auto_index, "wait", lambda them, timeout: wait(them, 60, FIRST_COMPLETED))
        table.append(rows(3))
        assert sizes(table) == [2]
        assert "for 2 of 4 splits" in caplog.text
        go_on.set()
        assert cleaned.wait(60)
    assert xref_files(table) == named_xrefs(table)
    grow(table, 4, 2)  # two are left over from before
    assert sizes(table) == [2, 2, 2]
    check_found(table, list(range(6)))


def test_a_build_that_would_be_late_covers_what_it_has_read(make, monkeypatch, caplog):
    table = make()
    monkeypatch.setattr(auto_index, "_READING_SHARE", 0)  # no time but for the first split
    grow(table, 0, 3)
    assert sizes(table) == [1]
    assert "1 of 3 splits" in caplog.text
    grow(table, 3, 2)
    assert sizes(table) == [1, 1, 1]
    check_found(table, list(range(5)))
    monkeypatch.undo()
    grow(table, 5, 1)
    assert coverage(table.snapshot()).covered == 6
    check_found(table, list(range(6)))
    assert xref_files(table) == named_xrefs(table)


# --- others at the same time -------------------------------------------------------------------

OTHERS = {
    "an append that indexes the same splits": (
        lambda other: other.append(rows(50)), [0, 1, 2, 50],
    ),
    "the command": (lambda other: other.index_crossreferences(), [0, 1, 2]),
    "an overwrite": (lambda other: other.overwrite(rows(50)), [2, 50]),
    "a delete": (lambda other: other.delete(where="id = 0"), [1, 2]),
    "a merge": (lambda other: other.merge_splits(), [0, 1, 2]),
    "dropping all": (lambda other: other.drop_crossreferences(), [0, 1, 2]),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS)
def test_somebody_commits_between_build_and_commit(make, monkeypatch, case):
    act, ids = case
    table = make()
    grow(table, 0, 2)
    other = Table.open(table.uri, config=QUICK | auto())
    intervene(table, monkeypatch, lambda: act(other))
    table.append(rows(2))
    check_found(table, ids)
    cover = cover_of(table.snapshot())
    assert (cover.live == cover.owned).all(), "a split is covered twice"
    assert xref_files(table) == named_xrefs(table)


def test_a_tier_that_somebody_replaced_is_left_out_and_the_data_are_in(make, monkeypatch):
    table = make()
    grow(table, 0, 3 * FAN_OUT - 1)
    other = Table.open(table.uri, config=QUICK | auto())
    intervene(table, monkeypatch, lambda: other.index_crossreferences(force_rebuild=True))
    table.append(rows(99))
    assert xref_actions(table) == []
    assert [type(a).__name__ for a in table.log.actions(table.version).actions][-1] == Add.__name__
    check_found(table, [*range(3 * FAN_OUT - 1), 99])
    assert xref_files(table) == named_xrefs(table)


def run(task, uri, config, start, times):
    return task(uri, config, start, times)


def test_writers_that_index_are_serial(tmp_path):
    """Appends, replacements, deletes and their XRefs race in processes: rows are as if serial."""
    config = {XREF + "autoIndex.minSplitsToTrigger": 1, XREF + "query.minSplitsForXRef": 1}
    uri = str(tmp_path / "t")
    table = Table.create(uri, RACE_SCHEMA, config=config)
    table.append(race_rows([0, 10, 20], 2))
    work = [
        (append_many, uri, config, 1_000, 8),
        (append_many, uri, config, 2_000, 8),
        (replace_many, uri, config, 3_000, 3),
        (delete_many, uri, config, 0, 3),
    ]
    events = [("append", 1, [0, 10, 20], 2)]
    events += [event for found in race_processes(run, work) for event in found]
    table = Table.open(uri, config=config)
    found = {r["id"]: r["day"] for r in table.scan(columns=["id", "day"]).to_pylist()}
    assert found == serial(events)
    for number in found:
        hits = table.scan(columns=["id"], where=f"text indexquery 'word{number}'")
        assert hits["id"].to_pylist() == [number]
    assert sizes(table)
    assert xref_files(table) == named_xrefs(table)


def test_parallelism_can_be_left_to_the_machine(make):
    key = keys.XREF_BUILD_PARALLELISM
    assert [keys.Config({key.name: value})[key] for value in ("auto", "AUTO", "3", 0)] == [
        0,
        0,
        3,
        0,
    ]
    with pytest.raises(InvalidValueError):
        keys.Config({key.name: "automatic"})
