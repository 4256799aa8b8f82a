"""Retention: every gate, as a table of cases, and a whole table cleaned up for real."""

from __future__ import annotations

import os
import random

import pytest
from checkpoint_cases import RUNNER, add, config, content, memory_store, snapshot_of, versions

from indextables.errors import LogError, StorageError
from indextables.log.actions import Remove
from indextables.log.checkpoint.avro_state import load_state, read_state_manifest
from indextables.log.checkpoint.checkpoints import write_state
from indextables.log.checkpoint.json_checkpoint import write_json_checkpoint
from indextables.log.layout import (
    LOG_DIRECTORY,
    MANIFEST_DIRECTORY,
    LogListing,
    checkpoint_part_path,
    checkpoint_path,
    encode_actions,
    list_log,
    state_path,
    version_path,
)
from indextables.log.retention import (
    CleanupPlan,
    ExpiredFile,
    apply_cleanup,
    plan_log_cleanup,
    plan_manifests,
    plan_versions_and_checkpoints,
)
from indextables.log.snapshot import empty_snapshot
from indextables.storage import ObjectMeta, open_store

HOUR = 3_600_000
DAY = 24 * HOUR
NOW = 1_000 * DAY


def meta(path: str, age: int) -> ObjectMeta:
    return ObjectMeta(path, 1, NOW - age, None)


def listing(*, files=None, json=None, states=None, parts=None) -> LogListing:
    """Each a dictionary from version to age."""
    return LogListing(
        versions={v: meta(version_path(v), a) for v, a in (files or {}).items()},
        checkpoints={v: meta(checkpoint_path(v), a) for v, a in (json or {}).items()},
        states={v: meta(state_path(v), a) for v, a in (states or {}).items()},
        parts={v: [meta(checkpoint_part_path(v, "ab", 1), a)] for v, a in (parts or {}).items()},
    )


def plan(log, *, unreadable=(), dependent=(), **options) -> dict[str, set[int]]:
    found = plan_versions_and_checkpoints(
        log,
        now_ms=NOW,
        config=config(**options),
        is_readable=lambda ref: ref.version not in unreadable,
        stands_alone=lambda ref: ref.version not in dependent,
    )

    def numbers(files):
        names = (f.path.removeprefix(f"{LOG_DIRECTORY}/").removeprefix("state-v") for f in files)
        return {int(name[:20]) for name in names}

    assert all(f.reason for g in (found.version_files, found.states) for f in g)
    return {
        "files": numbers(found.version_files),
        "json": numbers(found.json_checkpoints),
        "states": numbers(found.states),
    }


def every(first: int, last: int, age: int) -> dict[int, int]:
    return dict.fromkeys(range(first, last + 1), age)


# Each: the log, options, and what goes: (version files, JSON checkpoints, states).
OLD = 31 * DAY
CASES = {
    "nothing there": ({}, {}, ((), (), ())),
    "young files stay": ({"files": every(0, 20, DAY), "states": {10: HOUR}}, {}, ((), (), ())),
    "old files below the checkpoint go": (
        {"files": every(0, 20, OLD), "states": {10: OLD}}, {}, (range(10), (), ()),
    ),
    "at the limit they stay": (
        {"files": every(0, 20, 30 * DAY), "states": {10: OLD}}, {}, ((), (), ()),
    ),
    "without a checkpoint all stay": ({"files": every(0, 20, OLD)}, {}, ((), (), ())),
    "the checkpoint of the current version does not take its file": (
        {"files": every(0, 10, OLD), "states": {10: OLD}}, {}, (range(10), (), ()),
    ),
    "a JSON checkpoint counts as well": (
        {"files": every(0, 20, OLD), "json": {10: OLD}}, {}, (range(10), (), ()),
    ),
    "the log retention is configured": (
        {"files": every(0, 20, 2 * HOUR), "states": {10: HOUR}},
        {"logRetention_duration": "1 hour"},
        (range(10), (), ()),
    ),
    "purge.txLogRetentionHours wins": (
        {"files": every(0, 20, 2 * HOUR), "states": {10: HOUR}},
        {"logRetention_duration": "1 hour", "purge_txLogRetentionHours": 3},
        ((), (), ()),
    ),
    "purge.txLogRetentionHours wins in the other direction": (
        {"files": every(0, 20, 2 * HOUR), "states": {10: HOUR}},
        {"purge_txLogRetentionHours": 1},
        (range(10), (), ()),
    ),
    "a clock that went backwards": (
        {"files": every(0, 20, -OLD), "states": {5: -OLD, 6: -OLD, 10: -OLD},
         "json": {3: -OLD, 4: -OLD}},
        {"logRetention_duration": 0, "state_retention_hours": 0, "state_retention_versions": 1,
         "checkpointRetention_duration": 0},
        ((), (), ()),
    ),
    # A checkpoint at 90, and retained versions that are rebuilt from older files.
    "retained versions keep what they are built from": (
        {"files": {**every(0, 50, 47 * DAY), **every(51, 100, 7 * DAY)}, "states": {90: HOUR}},
        {}, ((), (), ()),
    ),
    "a checkpoint below the oldest retained version is its base": (
        {"files": {**every(0, 50, 47 * DAY), **every(51, 100, 7 * DAY)},
         "states": {40: 47 * DAY, 90: HOUR}},
        {}, (range(40), (), ()),
    ),
    "the base stays although its own time is over": (
        {"files": {**every(41, 50, 47 * DAY), **every(51, 100, 20 * DAY)},
         "states": {40: 47 * DAY, 80: 20 * DAY, 85: 20 * DAY, 90: 19 * DAY, 95: 18 * DAY}},
        {}, ((), (), (85,)),
    ),
    "the next base takes over": (
        {"files": {**every(0, 55, 47 * DAY), **every(56, 100, 7 * DAY)},
         "states": {40: 47 * DAY, 50: 47 * DAY, 55: 40 * DAY, 90: HOUR}},
        {}, (range(55), (), (40, 50)),
    ),
    # States.
    "states past both gates go": (
        {"files": every(0, 20, DAY), "states": {5: 9 * DAY, 6: 8 * DAY, 10: 8 * DAY, 11: DAY}},
        {"logRetention_duration": "60 days"}, ((), (), (5, 6)),
    ),
    "one more is kept by number": (
        {"files": every(0, 20, DAY), "states": {5: 9 * DAY, 6: 8 * DAY, 10: 8 * DAY, 11: DAY}},
        {"logRetention_duration": "60 days", "state_retention_versions": 3}, ((), (), (5,)),
    ),
    "all are kept by time": (
        {"files": every(0, 20, DAY), "states": {5: 9 * DAY, 6: 8 * DAY, 10: 8 * DAY, 11: DAY}},
        {"state_retention_hours": 300}, ((), (), ()),
    ),
    "the newest state never goes": (
        {"files": every(0, 20, DAY), "states": {5: 99 * DAY}},
        {"state_retention_hours": 0, "state_retention_versions": 1}, ((), (), ()),
    ),
    "a state that readers used a moment ago": (
        {"files": every(0, 20, DAY), "states": {5: 9 * DAY, 6: 9 * DAY, 10: HOUR}},
        {"state_retention_versions": 1}, ((), (), (5,)),
    ),
    "states without versions, as the Scala product leaves them": (
        {"files": {0: DAY}, "states": every(1, 9, 20 * DAY)}, {}, ((), (), range(1, 8)),
    ),
    "a state that bridges a gap in the versions is needed": (
        {"files": {**every(0, 4, DAY), **every(11, 20, DAY)},
         "states": {10: 9 * DAY, 15: 8 * DAY, 18: 8 * DAY, 19: 8 * DAY}},
        {}, ((), (), (15,)),
    ),
    "a few states stay so that bases can follow": (
        {"files": {v: (40 - v) * DAY for v in range(0, 41)},
         "states": {v: (40 - v) * DAY for v in range(1, 41)}},
        {}, (range(10), (), {*range(1, 32)} - {10, 18, 26}),
    ),
    # JSON checkpoints.
    "JSON checkpoints go after two hours": (
        {"files": every(0, 20, DAY), "json": {5: 4 * HOUR, 6: 3 * HOUR, 7: HOUR}},
        {}, ((), (5,), ()),
    ),
    "their retention is configured": (
        {"files": every(0, 20, DAY), "json": {5: 4 * HOUR, 6: 3 * HOUR, 7: HOUR}},
        {"checkpointRetention_duration": "30 minutes"}, ((), (5, 6), ()),
    ),
    "the newest checkpoint of all never goes": (
        {"files": every(0, 20, DAY), "json": {5: 9 * DAY}, "states": {3: 9 * DAY}},
        {}, ((), (), ()),
    ),
    "a newer state supersedes a JSON checkpoint": (
        {"files": every(0, 20, DAY), "json": {5: 9 * DAY}, "states": {6: 8 * DAY}},
        {}, ((), (5,), ()),
    ),
    "a state of the same version does so as well": (
        {"files": every(0, 20, DAY), "json": {5: 9 * DAY}, "states": {5: 8 * DAY}},
        {}, ((), (5,), ()),
    ),
    "parts go with their checkpoint": (
        {"files": every(0, 20, DAY), "json": {5: 4 * HOUR, 7: 3 * HOUR},
         "parts": {5: 4 * HOUR, 7: 3 * HOUR}},
        {}, ((), (5,), ()),
    ),
    "parts of nobody go when they are old": (
        {"files": every(0, 20, DAY), "json": {7: 9 * HOUR, 8: 8 * HOUR},
         "parts": {5: 4 * HOUR, 6: HOUR}},
        {}, ((), (5, 7), ()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_gates(case):
    log, options, expected = CASES[case]
    found = plan(listing(**log), **options)
    assert found == dict(zip(("files", "json", "states"), map(set, expected), strict=True))


def test_an_unreadable_checkpoint_covers_nothing():
    log = listing(files=every(0, 20, OLD), states={5: OLD, 10: OLD})
    assert plan(log, unreadable={10})["files"] == set(range(5))
    assert plan(log, unreadable={5, 10})["files"] == set()


def test_an_unreadable_newest_checkpoint_spares_older_ones():
    log = listing(files=every(0, 20, DAY), states=every(5, 12, 9 * DAY))
    options = {"state_retention_versions": 1}
    assert plan(log, **options)["states"] == set(range(5, 12))
    assert plan(log, unreadable={12, 11}, **options)["states"] == set(range(5, 10))


def test_an_unreadable_base_is_none():
    log = listing(
        files={**every(0, 50, 47 * DAY), **every(51, 100, 7 * DAY)},
        states={20: 47 * DAY, 40: 47 * DAY, 90: HOUR},
    )
    options = {"state_retention_hours": 10_000}
    assert plan(log, **options)["files"] == set(range(40))
    assert plan(log, unreadable={40}, **options)["files"] == set(range(20))


def test_nothing_goes_while_a_state_needs_older_files():
    """Incremental states of the Scala product have their metadata from version 0."""
    log = listing(files={0: OLD}, states=every(1, 9, OLD))
    assert plan(log) != {"files": set(), "json": set(), "states": set()}
    assert plan(log, dependent={9}) == {"files": set(), "json": set(), "states": set()}
    assert plan(log, dependent={8}) == {"files": set(), "json": set(), "states": set()}
    assert plan(log, dependent={1})["states"] == set(range(1, 8))


def test_no_checkpoint_is_loaded_when_nothing_is_old():
    def refuse(_ref):
        raise AssertionError("loaded for nothing")

    log = listing(files=every(0, 20, DAY), states={10: HOUR})
    found = plan_versions_and_checkpoints(
        log, now_ms=NOW, config=config(), is_readable=refuse, stands_alone=refuse
    )
    assert len(found) == 0


# --- any log ---------------------------------------------------------------------------------


def readable(log: LogListing) -> set[int]:
    """The versions that can be rebuilt from this log."""
    bases = {-1, *log.checkpoints, *log.states}
    found = set(bases) - {-1}
    for base in bases:
        version = base + 1
        while version in log.versions:
            found.add(version)
            version += 1
    return found


@pytest.mark.parametrize("seed", range(300))
def test_a_retained_version_stays_readable(seed):
    rng = random.Random(seed)
    last = rng.randint(1, 60)
    span = rng.choice([HOUR, 3 * DAY, 80 * DAY])
    ages = sorted((rng.randint(0, span) for _ in range(last + 1)), reverse=True)
    start = rng.choice([0, 0, rng.randint(0, last)])
    log = listing(
        files={v: ages[v] for v in range(start, last + 1) if rng.random() < 0.97},
        states={v: max(ages[v] - 5, 0) for v in range(last) if rng.random() < 0.2},
        json={v: max(ages[v] - 5, 0) for v in range(last) if rng.random() < 0.1},
    )
    retention = rng.choice([HOUR, 7 * DAY, 30 * DAY])
    going = plan(
        log,
        logRetention_duration=retention,
        state_retention_hours=rng.choice([0, 24, 168]),
        state_retention_versions=rng.choice([1, 2]),
    )
    after = LogListing(
        versions={v: m for v, m in log.versions.items() if v not in going["files"]},
        checkpoints={v: m for v, m in log.checkpoints.items() if v not in going["json"]},
        states={v: m for v, m in log.states.items() if v not in going["states"]},
    )
    retained = {v for v, m in log.versions.items() if NOW - m.modified_ms <= retention}
    assert retained & readable(log) <= readable(after)
    assert (log.latest in readable(log)) <= (log.latest in readable(after))


def test_a_log_in_use_does_not_grow_for_ever():
    """A version a day, a checkpoint every third, cleaned up every day for a year."""
    files, states = {}, {}
    for day in range(400):
        files[day] = day
        if day % 3 == 0:
            states[day] = day
        log = listing(
            files={v: (day - d) * DAY for v, d in files.items()},
            states={v: (day - d) * DAY for v, d in states.items()},
        )
        going = plan(log)
        files = {v: d for v, d in files.items() if v not in going["files"]}
        states = {v: d for v, d in states.items() if v not in going["states"]}
        assert set(range(max(0, day - 30), day + 1)) <= readable(
            listing(files=dict.fromkeys(files, 0), states=dict.fromkeys(states, 0))
        )
    assert len(files) <= 30 + 8 + 3
    assert len(states) <= 2 + 3 + 6


# --- manifests -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "named", "hours", "goes"),
    [
        (2 * HOUR, set(), 1, True),
        (HOUR, set(), 1, False),
        (2 * HOUR, {"m"}, 1, False),
        (2 * HOUR, None, 1, False),
        (2 * HOUR, set(), 3, False),
        (-2 * HOUR, set(), 0, False),
        (1, set(), 0, True),
    ],
)
def test_manifests(age, named, hours, goes):
    found = plan_manifests(
        [meta("m", age)],
        now_ms=NOW,
        config=config(state_gc_minManifestAgeHours=hours),
        named=lambda: named,
    )
    assert [file.path for file in found] == (["m"] if goes else [])


# --- for real --------------------------------------------------------------------------------


class Table:
    """A table on disk, so that files can be given any age."""

    def __init__(self, folder):
        self.folder = folder
        self.store = open_store(folder)
        self.snapshot = empty_snapshot("x")
        self.snapshots = {}

    def commit(self, *actions, state=False, compact=False):
        number = self.snapshot.version + 1
        first = snapshot_of()
        head = [first.protocol, first.metadata] if number == 0 else []
        (version,) = versions([*head, *actions], first=number)
        self.store.put(version_path(number), encode_actions(version.actions, compress=True))
        before, self.snapshot = self.snapshot, self.snapshot.advance([version])
        if state:
            base = None
            if before.version >= 0 and before.version in list_log(self.store).states:
                base = read_state_manifest(self.store, before.version, config=config())
            write_state(
                self.store, self.snapshot, config=config(), runner=RUNNER, base=base,
                changed=[version], compact=compact,
            )  # fmt: skip

    def age(self, path: str, age_ms: int) -> None:
        moment = (NOW - age_ms) / 1000
        os.utime(self.folder / path, (moment, moment))

    def age_all(self, age_ms: int) -> None:
        for found in list(self.store.list(LOG_DIRECTORY)):
            self.age(found.path, age_ms)

    def plan(self, **options) -> CleanupPlan:
        return plan_log_cleanup(
            self.store, list_log(self.store), now_ms=NOW, config=config(**options)
        )

    def paths(self) -> set[str]:
        return {m.path for m in self.store.list(LOG_DIRECTORY)}


@pytest.fixture
def table(tmp_path) -> Table:
    table = Table(tmp_path)
    table.commit(*(add(f"{n}.split") for n in range(20)), state=True)
    table.commit(add("a"), state=True)
    table.commit(Remove(path="3.split"), state=True)
    table.commit(add("b"), state=True, compact=True)
    table.commit(add("c"), state=True)
    table.age_all(40 * DAY)
    return table


def test_a_table_is_cleaned_up_and_reads_the_same(table):
    plan = table.plan()
    assert {f.path for f in plan.version_files} == {version_path(v) for v in range(4)}
    assert {f.path for f in plan.states} == {state_path(v) for v in range(3)}
    assert len(plan.manifests) == 2  # version 3 was compacted; its manifest and 4's stay
    before = table.paths()
    deleted = apply_cleanup(table.store, plan, failure_policy="fail")
    assert deleted == len(plan) == 4 + 3 + 2
    assert len(table.paths()) == len(before) - deleted
    assert not (table.folder / state_path(0)).parent.exists()
    for version in (3, 4):
        load_state(table.store, version, config=config(), runner=RUNNER)
    found = load_state(table.store, 4, config=config(), runner=RUNNER)
    assert content(found) == content(table.snapshot)
    assert len(table.plan()) == 0


def test_manifests_that_newer_states_name_stay(tmp_path):
    table = Table(tmp_path)
    table.commit(*(add(f"{n}.split") for n in range(20)), state=True)
    for name in "abc":
        table.commit(add(name), state=True)
    table.age_all(40 * DAY)
    plan = table.plan(state_retention_versions=1)
    assert len(plan.states) == 3
    assert plan.manifests == ()


def test_an_orphan_goes_when_it_is_old(table):
    orphan = f"{MANIFEST_DIRECTORY}/manifest-{'0' * 32}.avro"
    table.store.put(orphan, b"left behind")
    table.age(orphan, HOUR // 2)
    assert orphan not in {f.path for f in table.plan().manifests}
    table.age(orphan, 2 * HOUR)
    assert orphan in {f.path for f in table.plan().manifests}


def test_a_state_that_cannot_be_read_protects_all_manifests(table):
    table.store.put(state_path(3), b"damaged")
    table.age(state_path(3), 40 * DAY)
    plan = table.plan()
    assert plan.states and plan.manifests == ()


def test_a_damaged_manifest_keeps_the_versions(table):
    """The newest state is there, but not whole: older states and all versions stay."""
    newest = read_state_manifest(table.store, 4, config=config())
    path = f"{LOG_DIRECTORY}/{newest.manifests[-1].path}"
    table.store.put(path, b"damaged")
    table.age(path, 40 * DAY)
    plan = table.plan(state_retention_versions=1)
    assert {f.path for f in plan.version_files} == {version_path(v) for v in range(3)}
    assert state_path(3) not in {f.path for f in plan.states}


def test_legacy_manifests_in_state_folders(table):
    """They are manifests like others, wherever they lie."""
    legacy = state_path(1).replace("_manifest.avro", "manifest-ab.avro")
    table.store.put(legacy, b"x")
    table.age(legacy, 40 * DAY)
    assert legacy in {f.path for f in table.plan().manifests}


def test_json_checkpoints_in_parts(tmp_path):
    table = Table(tmp_path)
    for name in "abcd":
        table.commit(add(name))
        write_json_checkpoint(
            table.store, table.snapshot, config=config(checkpoint_actionsPerPart=1)
        )
    table.age_all(3 * HOUR)
    plan = table.plan()
    apply_cleanup(table.store, plan, failure_policy="fail")
    log = list_log(table.store)
    assert set(log.checkpoints) == set(log.parts) == {3}
    names = [f.path for f in plan.json_checkpoints]
    assert max(map(names.index, map(checkpoint_path, range(3)))) < min(
        n for n, name in enumerate(names) if name.count(".") == 4
    )


class Refusing:
    """A store that cannot delete some objects."""

    def __init__(self, store, *paths):
        self.store = store
        self.refused = set(paths)
        self.order = []

    def delete(self, paths):
        if self.refused & set(paths):
            raise StorageError("forbidden", path=next(iter(self.refused)))
        self.order += paths
        self.store.delete(paths)

    def __getattr__(self, name):
        return getattr(self.store, name)


def test_failures_are_logged_or_raised(table, caplog):
    store = Refusing(table.store, version_path(1))
    plan = table.plan()
    with pytest.raises(StorageError, match="forbidden"):
        apply_cleanup(store, plan, failure_policy="fail")
    assert apply_cleanup(store, plan, failure_policy="continue") == len(plan) - 1
    assert version_path(1) in caplog.text
    assert version_path(1) in table.paths()


def test_no_manifest_goes_while_a_state_that_should_go_is_there(table):
    store = Refusing(table.store, state_path(2))
    apply_cleanup(store, table.plan(), failure_policy="continue")
    load_state(table.store, 2, config=config(), runner=RUNNER)


def test_states_go_before_manifests(table):
    store = Refusing(table.store)
    apply_cleanup(store, table.plan(), failure_policy="continue")
    states = [n for n, path in enumerate(store.order) if "state-v" in path]
    manifests = [n for n, path in enumerate(store.order) if path.startswith(MANIFEST_DIRECTORY)]
    assert max(states) < min(manifests)


def test_a_state_written_since_the_plan_keeps_its_manifests(table):
    plan = table.plan()
    first = read_state_manifest(table.store, 2, config=config())
    snapshot = load_state(table.store, 2, config=config(), runner=RUNNER)
    new = versions([], first=3)
    store = memory_store()
    write_state(
        store, snapshot.advance(new), config=config(), runner=RUNNER, base=first, changed=new
    )
    table.store.put(state_path(5), store.get(state_path(3)))
    apply_cleanup(table.store, plan, failure_policy="fail")
    # What lies there as state 5 is damaged, so nobody can tell what it names: all stay.
    assert {f.path for f in plan.manifests} <= table.paths()

    table.store.delete([state_path(5)])
    late = versions([], [], [], first=3)
    write_state(
        table.store, snapshot.advance(late), config=config(), runner=RUNNER, base=first,
        changed=late,
    )  # fmt: skip
    apply_cleanup(table.store, plan, failure_policy="fail")
    load_state(table.store, 5, config=config(), runner=RUNNER)


def test_a_log_without_anything():
    store = memory_store()
    plan = plan_log_cleanup(store, list_log(store), now_ms=NOW, config=config())
    assert (len(plan), apply_cleanup(store, plan, failure_policy="fail")) == (0, 0)


def test_a_plan_says_why():
    file = ExpiredFile("a", "old")
    assert len(CleanupPlan(version_files=(file,), manifests=(file,))) == 2


def test_the_table_without_its_state_fails(table):
    """That the tests above could fail: without the base nothing can be read."""
    apply_cleanup(table.store, table.plan(), failure_policy="fail")
    table.store.delete([state_path(4)])
    with pytest.raises((LogError, FileNotFoundError)):
        load_state(table.store, 4, config=config(), runner=RUNNER)
