"""The page about errors lists each of them, with its cause and what to do."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from indextables import errors

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
ROW = re.compile(r"^\| `(\w+Error)` \| (.+) \| (.+) \|$", re.MULTILINE)


def test_every_error_has_a_cause_and_a_remedy():
    defined = [
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.IndexTablesError)
    ]
    listed = [name for name, _, _ in ROW.findall(PAGE)]
    assert sorted(listed) == sorted(defined)
    assert all(len(cause) > 10 and len(remedy) > 10 for _, cause, remedy in ROW.findall(PAGE))


def test_keys_on_the_page_exist():
    from indextables.config import KEYS

    named = set(re.findall(r"`(spark\.indextables\.[\w.]+)`", PAGE))
    known = {key.name for key in KEYS.values()}
    assert named and named <= known


def test_branches_are_those_of_the_code():
    tree = PAGE.partition("IndexTablesError\n")[2].partition("```")[0]
    for name, builtin in re.findall(r"── (\w+Error) *(?:\((\w+)\))?", tree):
        kind = getattr(errors, name)
        bases = {base.__name__ for base in kind.__bases__}
        assert builtin in (*bases, ""), name
