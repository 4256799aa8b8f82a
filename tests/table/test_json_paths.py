"""Paths into JSON and nested columns: what they lead to, what is compared, and what is refused."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

import indextables as it
from indextables.errors import QueryError, UnknownColumnError, UnknownFieldError
from indextables.predicate import Search
from indextables.predicate.search_syntax import parse_search
from indextables.split.mapping_options import build_mapping
from indextables.split.search.evaluate import search_rows

PREFIX = "spark.indextables."

DOCS = [
    '{"status": 500, "user": {"name": "ann"}}',
    '{"status": "900 is a text"}',
    '{"status": {"code": 600}}',
    '{"status": 2.5, "delta": -7}',
    '{"id": 12345678901234567891, "status": [404, 503]}',
    '{"id": 12345678901234567890, "ok": true}',
    '{"note": "first line\\nspark and 5 words", "at": "2024-01-15"}',
    "no json at all",
]
ROWS = pa.table(
    {
        "id": range(8),
        "title": ["spark"] * 8,
        "doc": DOCS,
        "s": pa.array(
            [{"n": i, "d": datetime.date(2024, 1, 15 + i), "t": f"w{i}"} for i in range(8)]
        ),
        "m": pa.array([[("k", f"v{i}")] for i in range(8)], pa.map_(pa.string(), pa.string())),
        "a.b": [f"dot{i}" for i in range(8)],
    }
)
MAPPING = {"doc": "json"}

ANSWERS = {
    "doc.status:>=500": [0, 4],
    "doc.status:[400 TO 450]": [4],
    "doc.status:600": [],
    "doc.status.code:600": [2],
    "doc.status:500": [0],
    "doc.status:500.0": [0],
    "doc.status:900": [1],
    "doc.status:*": [0, 1, 2, 3, 4],
    "doc.user:ann": [],
    "doc.user.name:ann": [0],
    "doc.user:*": [0],
    "doc.status:[\"8\" TO text]": [1],
    "doc:5": [6],
    "doc:2.5": [3],
    "doc:7": [],
    "doc:\\-7": [3],
    "doc:-7": [3],
    "doc:2*": [6],
    "doc:/[0-9]+/": [1, 6],
    "doc:true": [5],
    "doc:spark": [6],
    "doc:\"and 5\"": [6],
    "doc:\"json at\"": [7],
    "doc:12345678901234567891": [4],
    "doc.id:12345678901234567890": [5],
    "doc.id:>12345678901234567890": [4],
    "doc.id:[12345678901234567890 TO 12345678901234567891]": [4, 5],
    "doc: IN [500 600 ann]": [0, 2],
    "s:3": [3],
    "s.n:3": [3],
    "s.n:>=6": [6, 7],
    "s:15": [],
    "s:2024\\-01\\-15": [0],
    "s.d:2024-01-16": [1],
    "s.d:>=2024-01-21": [6, 7],
    "s.t:w4": [4],
    "m.k:v5": [5],
    "m.x:v5": [],
}  # fmt: skip


@pytest.fixture(scope="module", params=[1, 4])
def table(request, config, tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("json") / "table")
    options = {**config, f"{PREFIX}xref.query.minSplitsForXRef": 1}
    made = it.Table.create(uri, ROWS.schema, mapping=MAPPING, config=options)
    for start in range(0, 8, 8 // request.param):
        made.append(ROWS.slice(start, 8 // request.param))
    made.index_crossreferences()
    return made


@pytest.mark.parametrize("query", ANSWERS)
def test_what_a_query_finds(table, query):
    expected = ANSWERS[query]
    quoted = query.replace("\\", "\\\\").replace("'", "''")
    where = f"_indexall indexquery '{quoted}'"
    assert table.scan(where=where)["id"].to_pylist() == expected
    assert table.count(where=where) == len(expected)
    assert table.count(where=f"NOT {where}") == 8 - len(expected)
    found = table.search(query, limit=None)
    assert sorted(found["id"].to_pylist()) == expected
    config = it.config.Config({f"{PREFIX}indexing.typemap.doc": "json"})
    mapping = build_mapping(ROWS.schema, config)
    search = Search(None, parse_search(query, schema=ROWS.schema), query)
    assert np.flatnonzero(search_rows(search, ROWS, mapping)).tolist() == expected


@pytest.mark.parametrize("query", ["title.typo:spark", "id.foo:>3", "s.n.x:1", "m.k.z:v", "s.zz:1"])
def test_a_path_below_a_value_is_refused(table, query):
    for ask in (
        lambda: table.search(query),
        lambda: table.count(where=f"_indexall indexquery '{query}'"),
    ):
        with pytest.raises(UnknownFieldError, match=query.partition(":")[0]):
            ask()


def test_a_path_stands_left_of_indexquery_and_in_fields(table):
    def ids(where):
        return table.scan(where=where)["id"].to_pylist()

    assert ids("doc.user.name indexquery 'ann'") == [0]
    assert ids("doc.status indexquery '>=500'") == [0, 4]
    assert ids("doc.status.code indexquery '600'") == [2]
    assert ids("s.t indexquery 'w4'") == [4]
    assert ids("m.k indexquery 'v5'") == [5]
    assert ids("`a.b` indexquery 'dot3'") == [3]
    assert table.search("ann", fields=["doc.user.name"])["id"].to_pylist() == [0]
    assert table.search("dot3 w4", fields=["a.b", "s.t"], limit=None).num_rows == 2
    assert table.search("ann", fields=["doc.status"]).num_rows == 0
    with pytest.raises(UnknownColumnError):
        table.search("ann", fields=["nowhere.user"])
    with pytest.raises(QueryError):
        table.search("ann", fields=["title.user"])
    with pytest.raises(QueryError):
        table.scan(where="title.user indexquery 'ann'")


def test_a_snippet_shows_values(table):
    (shown,) = table.search("doc:spark", snippets=["doc"])["_snippet_doc"].to_pylist()
    assert "<b>spark</b> and 5 words" in shown
