"""Conditions that have to be computed: functions, arithmetic, columns beside columns.

The oracle is Python over the rows of a table in several layouts.
"""

from __future__ import annotations

import datetime
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables as it
from indextables.errors import UnknownColumnError, UnsupportedPredicateError

UTC = datetime.UTC
WORDS = ("fox", "Lazy dog", "red fox", "", "Été", None)
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "n": pa.int64(),
        "m": pa.int64(),
        "body": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
    }
)


def rows(count=300):
    chance = random.Random(7)
    for number in range(count):
        day = chance.choice([None, datetime.date(2023, 12, 31), datetime.date(2024, 2, 3)])
        yield {
            "id": number,
            "n": chance.choice([None, *range(-3, 4)]),
            "m": chance.choice([None, *range(-3, 4)]),
            "body": chance.choice(WORDS),
            "at": datetime.datetime(2024, 1, 1, tzinfo=UTC) + datetime.timedelta(hours=number),
            "day": day,
        }


ROWS = list(rows())


@pytest.fixture(scope="module")
def table():
    """Four splits a partition, deleted rows, renamed columns, cross-references."""
    table = it.Table.create("memory://computed-conditions", SCHEMA, partition_by=["day"])
    for start in range(0, 300, 75):
        table.append(pa.Table.from_pylist(ROWS[start : start + 75], SCHEMA))
    table.append(pa.Table.from_pylist([{**ROWS[0], "id": 1_000}], SCHEMA))
    table.delete(where="id = 1000")
    table.rename_column("m", "the m")
    table.rename_column("day", "d")
    table.index_crossreferences()
    return table


def known(*values):
    return all(value is not None for value in values)


# What is written, and what it means; None is unknown.
CONDITIONS = {
    "lower(body) = 'red fox'": lambda r: r["body"] and r["body"].lower() == "red fox",
    "upper(body) LIKE '%DOG'": lambda r: r["body"] and r["body"].upper().endswith("DOG"),
    "body RLIKE '^[a-z]'": lambda r: (
        r["body"] and r["body"][0].islower() and r["body"][0].isascii()
    ),
    "n > `the m`": lambda r: known(r["n"], r["m"]) and r["n"] > r["m"],
    "n + `THE M` = 2": lambda r: known(r["n"], r["m"]) and r["n"] + r["m"] == 2,
    "NOT (n = `the m`)": lambda r: known(r["n"], r["m"]) and r["n"] != r["m"],
    "n <> 0 AND 6 % n = 0": lambda r: r["n"] and 6 % abs(r["n"]) == 0,
    "coalesce(n, `the m`, 3) = 3": lambda r: (
        next(v for v in (r["n"], r["m"], 3) if v is not None) == 3
    ),
    "n IN (`the m`, 1)": lambda r: known(r["n"]) and (r["n"] == 1 or r["n"] == r["m"]),
    "CASE WHEN n > 0 THEN body = 'fox' ELSE `the m` > 0 END": lambda r: (
        r["body"] == "fox" if r["n"] is not None and r["n"] > 0 else (r["m"] or 0) > 0
    ),
    "body indexquery 'fox' OR length(body) = 4": lambda r: (
        "fox" in (r["body"] or "") or len(r["body"] or "") == 4
    ),
    "body indexquery 'fox' AND id % 10 < 3": lambda r: (
        "fox" in (r["body"] or "") and r["id"] % 10 < 3
    ),
    "NOT body indexquery 'fox' AND abs(n) = 2": lambda r: (
        "fox" not in (r["body"] or "") and r["n"] in (-2, 2)
    ),
    "year(d) = 2024": lambda r: r["day"] and r["day"].year == 2024,
    "NOT (year(d) = 2024)": lambda r: r["day"] and r["day"].year != 2024,
    "year(d) = 2023 OR n = id - 1": lambda r: (
        (r["day"] and r["day"].year == 2023) or r["n"] == r["id"] - 1
    ),
    "day(d) = n": lambda r: r["day"] and r["day"].day == r["n"],
    "hour(at) = 5 AND n IS NOT NULL": lambda r: r["at"].hour == 5 and known(r["n"]),
    "at < timestamp'2024-01-02 00:00:00Z' - interval 4 hours": lambda r: r["id"] < 20,
    "1 + 1 = 2 AND id < 5": lambda r: r["id"] < 5,
    "id < 2 * 3 + 1": lambda r: r["id"] < 7,
    "body LIKE concat('red', '%')": lambda r: (r["body"] or "").startswith("red"),
    "d = date_add(date'2024-02-01', 2)": lambda r: r["day"] == datetime.date(2024, 2, 3),
    "at <= now() AND d <= current_date()": lambda r: known(r["day"]),
    "at > now() - interval 1 day": lambda r: False,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_verb_finds_the_same_rows(condition, table):
    expected = [row["id"] for row in ROWS if CONDITIONS[condition](row)]
    assert sorted(table.scan(columns=["id"], where=condition)["id"].to_pylist()) == expected
    assert table.count(where=condition) == len(expected)
    best = table.search("fox OR dog OR été OR *", where=condition, limit=None)
    assert sorted(best["id"].to_pylist()) == expected
    if "now()" not in condition:  # which moves on
        asked = table.sql(f"SELECT id FROM t WHERE {condition}", t=table)
        assert sorted(asked["id"].to_pylist()) == expected
        shown = str(table.view.names.shown_predicate(table.view.condition(condition)))
        assert table.count(where=shown) == len(expected)


def test_it_is_computed_in_the_order_of_the_rows():
    count = 300_000
    numbers = pa.array(range(count), pa.int64())
    big = it.write_table("memory://many-computed", pa.table({"a": numbers, "b": numbers}))
    found = big.scan(columns=["a"], where="(a * 7 + b) % 11 = 3")["a"].to_pylist()
    assert sorted(found) == [n for n in range(count) if n * 8 % 11 == 3]


def test_partition_columns_choose_files(table):
    plan = table.explain(where="year(d) = 2024")
    assert "partitions" in plan.splitlines()[4]
    assert int(plan.splitlines()[4].split()[1]) == 4
    folded = table.explain(where="id >= 100 + 125 AND d = date_sub(date'2024-02-04', 1)")
    assert "id >= 225 AND d = DATE '2024-02-03'" in folded


def test_rows_change_by_what_is_computed():
    table = it.Table.create("memory://computed-changes", SCHEMA, partition_by=["day"])
    table.append(pa.Table.from_pylist(ROWS, SCHEMA))
    gone = {row["id"] for row in ROWS if row["body"] and len(row["body"]) > 4}
    assert table.delete(where="length(body) > 4").rows_removed == len(gone)
    left = [row for row in ROWS if row["id"] not in gone]
    changed = {row["id"] for row in left if known(row["n"], row["m"]) and row["n"] < row["m"]}
    table.update({"body": "concat(substr(body, 1, 1), '-', cast(n as string))"}, where="n < m")
    found = {row["id"]: row["body"] for row in table.scan(columns=["id", "body"]).to_pylist()}
    assert found == {
        row["id"]: row["body"]
        if row["id"] not in changed
        else None
        if row["body"] is None
        else f"{row['body'][:1]}-{row['n']}"
        for row in left
    }
    assert table.drop_partitions(where="month(day) = 2").partitions == 1
    assert table.count(where="month(day) = 2") == 0


@pytest.mark.parametrize(
    ("condition", "error", "said"),
    [
        ("lower(nope) = 'x'", UnknownColumnError, "no column 'nope'"),
        ("hash(n) = 1", UnsupportedPredicateError, "function HASH is not supported"),
        ("length(body)", UnsupportedPredicateError, "not true or false"),
        ("max(n) = 1", UnsupportedPredicateError, "must be about one row"),
        ("n = (SELECT 1)", UnsupportedPredicateError, "must be about one row"),
        ("row_number() OVER (ORDER BY n) = 1", UnsupportedPredicateError, "must be about one row"),
        ("explode(array(1, 2)) = 1", UnsupportedPredicateError, "must be about one row"),
        ("n = explode(array(1, 2))", UnsupportedPredicateError, "must be about one row"),
        ("rand() < n", UnsupportedPredicateError, "for each row or moment"),
        ("CASE WHEN indexquery(body, 'a') THEN true END", UnsupportedPredicateError, "of its own"),
        ("cast(body AS INT) = 1", UnsupportedPredicateError, "Could not convert"),
        ("isnan(1.5)", UnsupportedPredicateError, "names no column"),
        ("concat(body, ')) OR ((1=1') = 'x' --", None, None),
    ],
)
def test_what_is_no_condition_of_one_row(condition, error, said, table):
    if error is None:
        assert table.count(where=condition) == 0
        return
    with pytest.raises(error, match=said):
        table.count(where=condition)


def test_times_are_computed_in_utc_only(table):
    assert table.count(where="hour(at) = 5", timezone="Etc/UTC") == 13
    assert table.count(where="n + 1 = 2", timezone="Asia/Tokyo") > 0
    with pytest.raises(UnsupportedPredicateError, match="computed in UTC, not in Asia/Tokyo"):
        table.count(where="hour(at) = 5", timezone="Asia/Tokyo")


def test_a_search_index_computes_them_of_the_rows_in_its_source(tmp_path):
    source, index = tmp_path / "source", str(tmp_path / "index")
    source.mkdir()
    rows = {"id": [1, 2, 3], "n": [1, 2, 3], "body": ["Red fox", "lazy dog", "fox"]}
    pq.write_table(pa.table(rows), source / "a.parquet")
    table = it.SearchIndex.create(index, source=str(source), format="parquet", columns=["body"])
    late = {"id": [4], "n": [1], "body": ["late fox"]}
    pq.write_table(pa.table(late), source / "b.parquet")  # not in the index yet
    found = table.scan(columns=["id"], where="n + 1 > id AND lower(body) LIKE '%fox'")
    assert sorted(found["id"].to_pylist()) == [1, 3]
    assert table.count(where="body indexquery 'fox' AND n % 2 = 1") == 3
    assert table.search("fox", where="length(body) > 4")["id"].to_pylist() == [1, 4]
