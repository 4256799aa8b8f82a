"""XRefs by the log's own verbs."""

from __future__ import annotations

import pytest
from logs import add, append, new_log, xref

from indextables.errors import XRefError


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
