"""Searches that could never match: an error with the expected form, or a common spelling taken."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import indextables as it
from indextables.errors import QueryError, SearchValueError, UnknownFieldError

UTC = datetime.UTC
ROWS = pa.table(
    {
        "id": [0, 1, 2],
        "title": ["abc", "spark 5", "maybe"],
        "n": [5, 50, None],
        "f": [1.5, 2.0, None],
        "b": [True, False, None],
        "d": [datetime.date(2023, 5, 24), datetime.date(2023, 5, 25), None],
        "ts": pa.array(
            [
                datetime.datetime(2015, 1, 31, tzinfo=UTC),
                datetime.datetime(2023, 5, 25, 12, tzinfo=UTC),
                None,
            ],
            pa.timestamp("us", "UTC"),
        ),
        "ip": ["10.0.0.1", "::1", None],
        "l": pa.array([[1, 2], [3], None], pa.list_(pa.int64())),
        "s": pa.array([{"n": 1}, {"n": 2}, None], pa.struct([("n", pa.int64())])),
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def table(config, tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("mistakes") / "table")
    made = it.Table.create(uri, ROWS.schema, mapping={"ip": "ip"}, config=config)
    made.append(ROWS)
    return made


MISTAKES = {
    "n:abc": "a number such as 42",
    "n:5*": "a number such as 42",
    "n:5~1": "a number such as 42",
    "n:/5/": "a number such as 42",
    "n:[1 TO x]": "a number such as 42",
    "n: IN [1 two]": "a number such as 42",
    "f:1,5": "a number such as 42",
    "b:maybe": "true or false",
    "d:2023-05": "a date such as 2024-01-31",
    "d:2023-02-30": "a date such as 2024-01-31",
    "d:1422748813": "a date such as 2024-01-31",
    "ts:yesterday": "a time such as 2024-01-31T12:00:00Z",
    "ts:>=2023": "a time such as",
    "ip:home": "an address such as 10.0.0.1",
    "ip:[10.0.0.1 TO x]": "an address such as 10.0.0.1",
    "l:abc": "a number such as 42",
    "s.n:abc": "a number such as 42",
    "title:spark AND NOT n:abc": "a number such as 42",
}


@pytest.mark.parametrize("query", MISTAKES)
def test_a_mistake_is_refused_with_the_expected_form(table, query):
    for ask in (
        lambda: table.search(query),
        lambda: table.count(where=f"_indexall indexquery '{query}'"),
        lambda: table.scan(where=f"NOT (_indexall indexquery '{query}')"),
    ):
        with pytest.raises(SearchValueError) as caught:
            ask()
        assert MISTAKES[query] in str(caught.value)


def test_the_position_of_the_mistake(table):
    with pytest.raises(SearchValueError, match="at position 11") as caught:
        table.search("title:x n:>abc")
    assert caught.value.position == 11
    for query, position in {
        "title:abc AND n:abc": 16,
        "title:(abc OR 7) n:7 n:[1 TO abc]": 29,
        'title:abc n: IN [5 abc "7"]': 19,
        'title:abc (x OR n:"abc"^2)': 19,
    }.items():
        with pytest.raises(SearchValueError, match=f"at position {position} ") as caught:
            table.search(query)
        assert caught.value.position == position
    with pytest.raises(SearchValueError):
        table.scan(where="n indexquery 'abc'")


def test_spellings_that_are_common(table):
    for query, expected in {
        "ts:>=2023/05/25": [1],
        "ts:2023/05/25": [1],
        "ts:[2015/01/01 TO 2015/12/31]": [0],
        "d:2023/05/25": [1],
        "ts:<1422748813000": [0],
        "ts:<1422748813": [0],
        "ts:1685016000": [1],
        "ts:1685016000000": [1],
        "ts:1685016000000000": [1],
        "ts:1685016000000000000": [1],
        "ts:>1685016000": [],
        "ts:>=1685016000": [1],
        "b:TRUE": [0],
        "n:5.0": [0],
        "n:5.5": [],
        "ip:10.0.0.0/8": [0],
        "ip:10.*.*.*": [0],
        "l:3": [1],
        "n:*": [0, 1],
    }.items():
        assert table.scan(where=f"_indexall indexquery '{query}'")["id"].to_pylist() == expected, (
            query
        )
        assert sorted(table.search(query, limit=None)["id"].to_pylist()) == expected, query


def test_a_word_without_a_field_is_asked_of_the_fields_that_it_fits(table):
    assert table.scan(where="_indexall indexquery 'abc'")["id"].to_pylist() == [0]
    assert table.search("abc", fields=["title", "n"])["id"].to_pylist() == [0]
    assert sorted(table.search("5", fields=["title", "n"])["id"].to_pylist()) == [0, 1]
    with pytest.raises(SearchValueError):
        table.search("abc", fields=["n"])


@pytest.mark.parametrize(
    ("query", "position"),
    [("titel:x", 0), ("title:x AND (b:true OR titel:y)", 23), ("a titel:x", 2)],
)
def test_an_unknown_field_is_named_with_its_position(table, query, position):
    for ask in (
        lambda: table.search(query),
        lambda: table.count(where=f"title indexquery '{query}'"),
    ):
        with pytest.raises(UnknownFieldError, match=f"'titel' at position {position}") as caught:
            ask()
        assert caught.value.position == position
        assert isinstance(caught.value, QueryError)


def test_a_network_is_not_an_address(table, caplog):
    """Equality is that of text in every engine, so a condition that was meant otherwise says so."""
    for condition in (
        "ip = '10.0.0.0/8'",
        "NOT ip IN ('::1', '10.0.*.*')",
        "ip <=> '::/0' OR n = 5",
    ):
        caplog.clear()
        table.scan(where=condition)
        (said,) = [r.getMessage() for r in caplog.records if "those of text" in r.getMessage()]
        assert "ip indexquery '" in said
    caplog.clear()
    table.scan(where="ip = '10.0.0.1' AND ip indexquery '10.0.0.0/8'")
    table.scan(where="title = '1/2'")
    assert not [r for r in caplog.records if "those of text" in r.getMessage()]


def test_a_mistake_in_a_table_of_many_columns_lists_those_that_are_meant():
    wide = it.Table.create(
        "memory://many-columns", pa.schema([(f"c{n}", "int8") for n in range(999)])
    )
    for ask in (
        lambda: wide.scan(where="c77x = 1"),
        lambda: wide.scan(columns=["c77x"]),
        lambda: wide.scan(where="_indexall indexquery 'c77x:1'"),
        lambda: wide.set_properties({"spark.indextables.search.fields": "c77x"}),
    ):
        with pytest.raises(it.errors.IndexTablesError, match=r"c77\b.* and 989 others") as caught:
            ask()
        assert len(str(caught.value)) < 500
