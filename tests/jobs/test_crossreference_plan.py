"""Which XRefs to build: the scenarios of the command, and the tiers of automatic indexing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import add, append, new_log, paths, remove, xref

from indextables.jobs.crossreference_build import (
    FAN_OUT,
    CrossReferencePlan,
    plan_automatic,
    plan_index,
    removals,
)
from indextables.log.snapshot import (
    Coverage,
    Snapshot,
    VersionActions,
    cover_of,
    coverage,
)
from indextables.log.transaction import Operation, Transaction


def table(names, *xrefs) -> Snapshot:
    """A table with these splits; each XRef is (name, sources)."""
    log = new_log()
    if names:
        append(log, *(add(name, day=name[0]) for name in names))
    if xrefs:
        actions = [xref(name, *sources) for name, sources in xrefs]
        log.commit(Transaction(operation=Operation.XREF, actions=actions))
    return log.snapshot()


def shown(plan: CrossReferencePlan):
    """A plan in short: (action, reason, removed XRefs, [(read, linked)]) each."""
    return [
        (
            one.action,
            one.reason,
            sorted(x.xref_id for x in one.removes),
            [("".join(b.read), "".join(b.linked)) for b in one.builds],
        )
        for one in plan.replacements
    ], sorted(x.xref_id for x in plan.unchanged)


# What is live, XRefs, the limit, the scope: what the command does.
SCENARIOS = {
    "A: nothing is there": (
        "abcde", [], 10, None, [("created", "replaced", [], [("abcde", "")])], [],
    ),
    "A: more than one XRef may cover": (
        "abcde", [], 2, None,
        [("created", "replaced", [], [(s, "")]) for s in ("ab", "cd", "e")], [],
    ),
    "B: there is room": (
        "abcde", [("x", "abc")], 5, None,
        [("rebuilt", "replaced", ["x"], [("de", "abc")])], [],
    ),
    "B: the largest that has room": (
        "abcdefg", [("x", "abc"), ("y", "de"), ("z", "f")], 4, None,
        [("rebuilt", "replaced", ["x"], [("g", "abc")])], ["y", "z"],
    ),
    "C: at the limit": (
        "abcde", [("x", "abc")], 3, None, [("created", "replaced", [], [("de", "")])], ["x"],
    ),
    "C: not enough room for all": (
        "abcde", [("x", "abc")], 4, None, [("created", "replaced", [], [("de", "")])], ["x"],
    ),
    "B and C: whole groups of their own, the rest where there is room": (
        "abcdefg", [("x", "ab")], 3, None,
        [("created", "replaced", [], [("cde", "")]), ("created", "replaced", [], [("fg", "")])],
        ["x"],
    ),
    "B and C: the rest fits": (
        "abcdefg", [("x", "abc")], 4, None, [("created", "replaced", [], [("defg", "")])], ["x"],
    ),
    "D: sources were merged": (
        "adeB", [("x", "abcde")], 10, None,
        [("rebuilt", "source_changed", ["x"], [("adeB", "")])], [],
    ),
    "D: few are gone: the others are linked": (
        "abcdE", [("x", "abcdz")], 10, None,
        [("rebuilt", "source_changed", ["x"], [("E", "abcd")])], [],
    ),
    "D: two stale XRefs become one": (
        "aefB", [("x", "abc"), ("y", "defg")], 10, None,
        [("rebuilt", "source_changed", ["x", "y"], [("efaB", "")])], [],
    ),
    "D: two stale XRefs do not fit in one": (
        "abefgB", [("x", "abc"), ("y", "defg")], 4, None,
        [("rebuilt", "source_changed", ["y"], [("efgB", "")]),
         ("rebuilt", "source_changed", ["x"], [("ab", "")])], [],
    ),
    "D: a stale one beside a good one": (
        "abcB", [("x", "abc"), ("y", "de")], 10, None,
        [("rebuilt", "source_changed", ["y"], [("B", "")])], ["x"],
    ),
    "D: nothing is left": (
        "", [("x", "abc")], 10, None, [("rebuilt", "source_changed", ["x"], [])], [],
    ),
    "D: everything was overwritten": (
        "DE", [("x", "abc")], 10, None,
        [("rebuilt", "source_changed", ["x"], [("DE", "")])], [],
    ),
    "nothing to do": ("abc", [("x", "abc")], 10, None, [], ["x"]),
    "an empty table": ("", [], 10, None, [], []),
    "two XRefs cover the same": (
        "abc", [("x", "abc"), ("y", "ab")], 10, None, [("rebuilt", "replaced", ["y"], [])], ["x"],
    ),
    "the limit was lowered: a good one stays": ("abcd", [("x", "abcd")], 2, None, [], ["x"]),
    "the limit was lowered: a stale one is cut": (
        "abcd", [("x", "abcde")], 3, None,
        [("rebuilt", "source_changed", ["x"], [("abc", ""), ("d", "")])], [],
    ),
    "a partition: only its splits": (
        "abcd", [], 10, "bc", [("created", "replaced", [], [("bc", "")])], [],
    ),
    "a partition: any XRef has room for it": (
        "abcd", [("x", "a")], 10, "bc", [("rebuilt", "replaced", ["x"], [("bc", "a")])], [],
    ),
    "a partition: XRefs of others are not its concern": (
        "abcd", [("x", "a"), ("y", "bz")], 10, "cd",
        [("rebuilt", "replaced", ["x"], [("cd", "a")])], [],
    ),
    "a partition: a stale XRef keeps its other splits": (
        "abcd", [("x", "abz")], 10, "bc",
        [("rebuilt", "source_changed", ["x"], [("abc", "")])], [],
    ),
    "a partition: nothing to do": ("abcd", [("x", "ab")], 10, "a", [], ["x"]),
}  # fmt: skip

FORCED = {
    "everything anew, from the splits": (
        "abcde", [("x", "abc"), ("y", "d")], 3, None,
        [("rebuilt", "replaced", ["x", "y"], [("abc", ""), ("de", "")])],
    ),
    "nothing was there": (
        "abcde", [], 3, None,
        [("created", "replaced", [], [("abc", "")]), ("created", "replaced", [], [("de", "")])],
    ),
    "a partition and what its XRefs cover beside it": (
        "abcde", [("x", "abc"), ("y", "d")], 9, "c",
        [("rebuilt", "replaced", ["x"], [("abc", "")])],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCENARIOS.values(), ids=SCENARIOS)
def test_scenarios_of_the_command(case):
    names, xrefs, limit, scope, expected, unchanged = case
    assert planned(names, xrefs, limit, scope) == (expected, unchanged)


@pytest.mark.parametrize("case", FORCED.values(), ids=FORCED)
def test_forced(case):
    names, xrefs, limit, scope, expected = case
    assert planned(names, xrefs, limit, scope, force=True) == (expected, [])


def planned(names, xrefs, limit, scope, **options):
    cover = cover_of(table(names, *xrefs))
    mask = None if scope is None else np.array([p in scope for p in cover.paths.to_pylist()])
    return shown(plan_index(cover, max_splits=limit, scope=mask, **options))


# Live, XRefs, the limit, the least: what a commit does by the way.
AUTOMATIC = {
    "too few": ("abc", [], 100, 4, []),
    "enough": ("abcd", [], 100, 4, [("created", "replaced", [], [("abcd", "")])]),
    "what is new stands beside what is there": (
        "abcdefgh", [("x", "abcd")], 100, 4, [("created", "replaced", [], [("efgh", "")])],
    ),
    "a tier is full": (
        "abcdefgh", [("x", "ab"), ("y", "cd"), ("z", "ef")], 100, 2,
        [("rebuilt", "replaced", ["x", "y", "z"], [("gh", "abcdef")])],
    ),
    "a tier is full but one may not cover all": (
        "abcdefgh", [("x", "ab"), ("y", "cd"), ("z", "ef")], 5, 2,
        [("rebuilt", "replaced", ["x"], [("gh", "ab")])],
    ),
    "whole groups, and a rest that is too small": (
        "abcdefg", [], 3, 2,
        [("created", "replaced", [], [("abc", "")]), ("created", "replaced", [], [("def", "")])],
    ),
    "a quarter is gone": (
        "abc", [("x", "abcd")], 100, 10, [("rebuilt", "source_changed", ["x"], [("abc", "")])],
    ),
    "less than a quarter is gone": ("abcd", [("x", "abcde")], 100, 10, []),
    "sources were merged: the new split joins though it is alone": (
        "adeB", [("x", "abcde")], 100, 10,
        [("rebuilt", "source_changed", ["x"], [("Bade", "")])],
    ),
    "all are gone": ("D", [("x", "abc")], 100, 10, [("rebuilt", "source_changed", ["x"], [])]),
    "nothing": ("ab", [("x", "ab")], 100, 1, []),
}  # fmt: skip


@pytest.mark.parametrize("case", AUTOMATIC.values(), ids=AUTOMATIC)
def test_automatic(case):
    names, xrefs, limit, least, expected = case
    plan = plan_automatic(
        cover_of(table(names, *xrefs)), max_splits=limit, min_splits=least, rebuild_stale=True
    )
    found, _ = shown(plan)
    assert [(a, r, x, [tuple("".join(sorted(s)) for s in b) for b in builds])
            for a, r, x, builds in found] == expected  # fmt: skip


def test_stale_xrefs_stay_where_rebuilding_is_off():
    cover = cover_of(table("aB", ("x", "abcd"), ("y", "ef")))
    off = plan_automatic(cover, max_splits=100, min_splits=2, rebuild_stale=False)
    assert off == CrossReferencePlan()
    one = plan_automatic(cover, max_splits=100, min_splits=1, rebuild_stale=False)
    assert shown(one)[0] == [("created", "replaced", [], [("B", "")])]


def applied(snapshot: Snapshot, plan: CrossReferencePlan, number: int) -> Snapshot:
    actions = []
    for i, one in enumerate(plan.replacements):
        actions += removals(one.removes, reason=one.reason, timestamp=0)
        actions += [xref(f"{number}-{i}-{j}", *b.splits) for j, b in enumerate(one.builds)]
    return snapshot.advance([VersionActions(snapshot.version + 1, actions, number)])


@pytest.mark.parametrize("least", [1, 10])
def test_n_appends_cost_n_log_n(least):
    """Every split is read once; it is linked once for each tier at the most."""
    appends, limit = 600, 1024
    snapshot, read, linked, most = table(""), 0, 0, 0
    for number in range(appends):
        new = [add(f"s{number}")]
        snapshot = snapshot.advance([VersionActions(snapshot.version + 1, new, number)])
        plan = plan_automatic(
            cover_of(snapshot), max_splits=limit, min_splits=least, rebuild_stale=True
        )
        for one in plan.replacements:
            for build in one.builds:
                read += len(build.read)
                linked += len(build.linked)
        snapshot = applied(snapshot, plan, number)
        most = max(most, len(snapshot.xrefs))
    tiers = math.log(appends / least, FAN_OUT)
    assert read == coverage(snapshot).covered >= appends - least
    assert linked <= appends * tiers
    assert most <= (FAN_OUT - 1) * (tiers + 1)
    # The command, run after every append, would have read or linked about n²/2.
    assert read + linked < appends**2 / 10


@given(st.data())
def test_plans_are_sound(data):
    """Whatever is live and covered: nothing is covered twice, limits hold, and the command
    leaves nothing uncovered and nothing stale."""
    names = "abcdefghijklmnop"
    live = data.draw(st.sets(st.sampled_from(names)))
    sources = data.draw(st.lists(st.sets(st.sampled_from(names), min_size=1), max_size=4))
    limit = data.draw(st.integers(1, 8))
    xrefs = [(f"x{i}", sorted(s)) for i, s in enumerate(sources)]
    snapshot = _snapshot(sorted(live), xrefs)
    cover = cover_of(snapshot)
    force = data.draw(st.booleans())
    scope = np.array([data.draw(st.booleans()) for _ in cover.paths], dtype=bool)
    for plan in (
        plan_index(cover, max_splits=limit, force=force),
        plan_index(cover, max_splits=limit, force=force, scope=scope),
        plan_automatic(
            cover, max_splits=limit, min_splits=data.draw(st.integers(1, 5)), rebuild_stale=True
        ),
    ):
        builds = [b for one in plan.replacements for b in one.builds]
        built = [s for b in builds for s in b.splits]
        assert len(built) == len(set(built))
        assert set(built) <= live
        assert all(0 < len(b.splits) <= limit for b in builds)
        assert all(
            part in one.removes
            for one in plan.replacements
            for build in one.builds
            for part in build.parts
        )
        for build in builds:
            named = {s for part in build.parts for s in part.source_split_paths}
            assert set(build.linked) <= named
        removed = [x.path for one in plan.replacements for x in one.removes]
        assert len(removed) == len(set(removed))
        after = applied(snapshot, plan, 1)
        assert coverage(after).covered >= coverage(snapshot).covered
    after = applied(snapshot, plan_index(cover, max_splits=limit, force=force), 1)
    assert coverage(after).covered == len(live)
    assert all(set(x.source_split_paths) <= live for x in after.xrefs.values())
    # Done again, there is nothing left to do.
    assert not plan_index(cover_of(after), max_splits=limit).replacements


def _snapshot(names, xrefs) -> Snapshot:
    actions = [add(name) for name in names] + [xref(name, *sources) for name, sources in xrefs]
    return EMPTY.advance([VersionActions(1, actions, 1)])


EMPTY = table("")


def test_coverage():
    snapshot = table("abcd", ("x", "abz"), ("y", "b"))
    assert coverage(snapshot) == Coverage(active=2, covered=2, total=4)
    cover = cover_of(snapshot)
    assert cover.paths.take(cover.uncovered).to_pylist() == ["c", "d"]


def test_coverage_follows_the_log():
    log = new_log()
    append(log, add("a"), add("b"))
    log.commit(Transaction(operation=Operation.XREF, actions=[xref("x", "a", "b")]))
    remove(log, "a")
    assert coverage(log.snapshot()) == Coverage(1, 1, 1)
    assert paths(log.snapshot()) == {"b"}
