"""Proposals of the index for SQL conditions never miss a row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from indextables.plan.split_rows import count_proposed, propose
from indextables.predicate import Column, Compare, In, IsNull, StartsWith

LONG = "z" * 70_000
TABLE = pa.table(
    {
        "code": ["C:\\x (1)", "b", "", None, LONG, "b"],
        "body": ["Hello World", "world hello", "...", None, LONG, "other"],
        "ip": ["10.0.0.1", "::ffff:10.0.0.1", "x", None, "", "10.0.0.2"],
        "n": [1, 2, 3, 4, 5, 6],
    }
)
OPTIONS = {"indexing.typemap.code": "string", "indexing.typemap.ip": "ip"}
CODE, BODY, IP, N = (Column((name,)) for name in TABLE.schema.names)
CASES = [
    (Compare("=", CODE, "b"), [1, 5]),
    (Compare("=", CODE, "C:\\x (1)"), [0]),
    (Compare("=", CODE, ""), [2]),
    (Compare("=", CODE, "B"), []),
    (Compare("=", CODE, LONG), None),
    (Compare("=", BODY, "Hello World"), [0, 1]),
    (Compare("=", BODY, "..."), None),
    (Compare("=", IP, "10.0.0.1"), [0, 1]),
    (Compare("=", IP, " 10.0.0.2 "), [5]),
    (Compare("=", IP, "x"), None),
    (Compare("<>", CODE, "b"), None),
    (Compare("=", N, 3), None),
    (In(CODE, ("b", "")), [1, 2, 5]),
    (In(CODE, ("b", LONG)), None),
    (StartsWith(CODE, "C:"), None),
    (StartsWith(CODE, ""), None),
    (StartsWith(BODY, "Hello"), None),
    (IsNull(CODE), None),
]


@pytest.mark.parametrize(("predicate", "expected"), CASES, ids=lambda p: str(p)[:40])
def test_proposals(make, predicate, expected):
    searcher = make(TABLE, OPTIONS)
    found = propose(predicate, searcher)
    assert (None if found is None else found.tolist()) == expected
    assert count_proposed(predicate, searcher) == (None if expected is None else len(expected))


def test_a_prefix_is_proposed_unless_a_value_is_too_long_for_the_index(make):
    short = make(TABLE.filter(pa.array([True] * 4 + [False, True])), OPTIONS)
    assert propose(StartsWith(CODE, "C:"), short).tolist() == [0]
    assert propose(StartsWith(CODE, "B"), short).tolist() == []
    assert make(TABLE, OPTIONS).split.info.too_long == ("code",)


def test_a_long_value_of_whole_text_is_found_by_rows_only(make):
    searcher = make(TABLE, OPTIONS | {"indexing.tokenLength.code": "1"})
    assert propose(Compare("=", CODE, "C:\\x (1)"), searcher) is None
    assert np.array_equal(propose(Compare("=", CODE, "b"), searcher), [1, 5])
