"""The index proposes rows, their values decide."""

from __future__ import annotations

import pyarrow as pa
import pytest

from indextables import Table

TEXTS = ["a b", "b a", "A b", "a b c", "a", "", None, " a b", "a-b", "42", "!", "a b a b"]
CONDITIONS = {
    "body = 'a b'": [0],
    "body <> 'a b'": [1, 2, 3, 4, 5, 7, 8, 9, 10, 11],
    "NOT (body = 'a b')": [1, 2, 3, 4, 5, 7, 8, 9, 10, 11],
    "body <=> 'a b'": [0],
    "NOT (body <=> 'a b')": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    "body IN ('a b', 'A b', '!')": [0, 2, 10],
    "body NOT IN ('a b', NULL)": [],
    "body = '' OR body = '!'": [5, 10],
    "body = 'a b' OR n = 9": [0, 9],
}
SEARCHES = {
    "body = 'a b' AND body indexquery 'a'": [0],
    "body indexquery 'a' AND NOT (body = 'a b')": [1, 2, 3, 4, 7, 8, 11],
    "NOT (body indexquery 'a')": [5, 6, 9, 10],
    "NOT (body indexquery 'a' AND n < 3)": [3, 4, 5, 6, 7, 8, 9, 10, 11],
    "NOT (body = 'a b' OR body indexquery 'c')": [1, 2, 4, 5, 7, 8, 9, 10, 11],
    "body indexquery 'a' AND NULL": [],
    "body indexquery '42' OR NULL": [9],
    "NOT (body indexquery 'a' OR NULL)": [],
}


@pytest.fixture(scope="module", params=["text", "string", "whitespace"])
def table(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("split_rows")
    prefix = "spark.indextables."
    options = {prefix + "cache.disk.path": str(folder / "cache")}
    mapping = {"body": "string"} if request.param == "string" else {}
    if request.param == "whitespace":
        options[prefix + "indexing.tokenizer.body"] = "whitespace"
    schema = pa.schema([("n", pa.int64()), ("body", pa.string())])
    made = Table.create(folder / "t", schema, mapping=mapping, config=options)
    made.append(pa.table({"n": list(range(len(TEXTS))), "body": TEXTS}))
    return made, request.param


@pytest.mark.parametrize("where", CONDITIONS)
def test_equality_is_exact_whatever_the_mapping(where, table):
    made, _ = table
    check(made, where, CONDITIONS[where])


@pytest.mark.parametrize("where", SEARCHES)
@pytest.mark.parametrize("table", ["text"], indirect=True)
def test_searches_among_conditions(where, table):
    made, _ = table
    check(made, where, SEARCHES[where])


def check(table, where, expected):
    assert table.scan(where=where)["n"].to_pylist() == expected
    assert table.count(where=where) == len(expected)
