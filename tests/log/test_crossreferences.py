"""XRefs by the log's own verbs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from logs import add, append, new_log, xref

from indextables.errors import XRefError
from indextables.log.files import paths_of
from indextables.log.snapshot import cover_of


def test_xrefs_are_added_replaced_listed_and_removed():
    log = new_log()
    append(log, add("a.split"), add("b.split"))
    one, two = xref("1", "a.split"), xref("2", "a.split", "b.split")
    assert log.add_xref(one) == 2
    assert log.list_xrefs() == [one]
    assert log.replace_xref(one.path, two) == 3
    assert log.list_xrefs() == [two]
    assert log.remove_xref(two.path, "explicit") == 4
    assert log.list_xrefs() == []
    done = [
        [(a.kind, getattr(a, "reason", "")) for a in log.actions(v).actions[1:]] for v in (3, 4)
    ]
    assert done == [[("removeXRef", "replaced"), ("addXRef", "")], [("removeXRef", "explicit")]]


def test_an_xref_that_is_not_there_cannot_be_removed():
    log = new_log()
    append(log, add("a.split"))
    for work in (
        lambda: log.remove_xref("_xrefsplits/no", "explicit"),
        lambda: log.replace_xref("_xrefsplits/no", xref("1", "a.split")),
    ):
        with pytest.raises(XRefError, match="_xrefsplits/no"):
            work()
    assert log.snapshot().version == 1


@pytest.mark.parametrize("seed", range(5))
def test_what_is_covered_is_decided_without_folding_the_entries(seed):
    rng = random.Random(seed)
    log = new_log()
    append(log, *(add(f"{n}.split") for n in range(8)))
    log.add_xref(xref("1", "1.split", "3.split", "9.split"))
    base = log.snapshot()
    changes = {
        f"{n}.split": (add(f"{n}.split"), 5, 5) if rng.random() < 0.5 else None
        for n in rng.sample(range(12), rng.randrange(12))
    }
    snapshot = replace(base, base_files=base.entries, changes=changes)
    cover = cover_of(snapshot)
    assert "entries" not in snapshot.__dict__ or not changes
    assert cover.paths.to_pylist() == paths_of(snapshot.entries)
    again = cover_of(snapshot)
    assert cover.owner.tolist() == again.owner.tolist()
