"""Aggregates of parts, combined, are those of all rows; whole columns of numbers are scanned."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables import Table
from indextables.errors import SumOverflowError
from indextables.plan.aggregation import Aggregate, Aggregation

LONGS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9)
FUNCTIONS = ("count_rows", "count", "sum", "min", "max")
DRIVER = "spark.indextables.read.driver.maxRows"


@given(parts=st.lists(st.lists(st.tuples(st.integers(0, 2), LONGS), max_size=5), max_size=4))
def test_parts_make_the_whole(parts):
    functions = [Aggregate(f, None if f == "count_rows" else "n") for f in FUNCTIONS]
    tables = [
        pa.table({"g": pa.array([g for g, _ in p], pa.int32()),
                  "n": pa.array([n for _, n in p], pa.int64())})
        for p in parts
    ]  # fmt: skip
    rows = [row for part in parts for row in part]
    for groups in ((), ("g",)):
        expected = {}
        for g, n in rows:
            expected.setdefault(g if groups else 0, []).append(n)
        if not groups:
            expected.setdefault(0, [])
        aggregation = Aggregation(groups, tuple(functions))
        if any(not -(2**63) <= (_aggregates(n)[2] or 0) < 2**63 for n in expected.values()):
            with pytest.raises(SumOverflowError, match="sum of 'n'"):
                aggregation.compute(tables)
            continue
        found = aggregation.compute(tables).to_pylist()
        assert {row.get("g0", 0): list(row.values())[-5:] for row in found} == {
            g: _aggregates(numbers) for g, numbers in expected.items()
        }


def _aggregates(numbers):
    known = [n for n in numbers if n is not None]
    ends = (sum(known), min(known), max(known)) if known else (None, None, None)
    return [len(numbers), len(known), *ends]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("numbers") / "t")
    rows = pa.table(
        {
            "n": pa.array([2**62, 2**62, 2**62 - 9, None, -(2**63)] * 5_000, pa.int64()),
            "small": pa.array([i % 100 for i in range(25_000)], pa.int8()),
            "d": pa.array([i * 0.5 for i in range(25_000)]),
            "at": pa.array([4 * 10**17, -(10**17), None, 0, 1] * 5_000, pa.timestamp("us")),
            "flag": pa.array([True, False] * 12_500),
            "part": pa.array(["a", "b"] * 12_500),
        }
    )
    table = Table.create(place, rows.schema, partition_by=["part"])
    table.append(rows)
    table.append(rows.slice(0, 5))
    return place


NUMBERS = (
    "SELECT count(*), count(n), min(n), max(n), sum(small), avg(small), sum(d), count(flag), "
    "CAST(min(at) AS string), CAST(max(at) AS string) FROM {} WHERE "
)
CONDITIONS = ["true", "part = 'b'", "part = 'none'", "small < 50"]


@pytest.fixture(scope="module")
def numbers(spark, place):
    """What Spark makes of all rows under each condition."""
    plain = spark.read.format("indextables").load(place).localCheckpoint()
    plain.createOrReplaceTempView("numbers")
    return {w: spark.sql(NUMBERS.format("numbers") + w).collect() for w in CONDITIONS}


@pytest.mark.parametrize("where", CONDITIONS)
@pytest.mark.parametrize("on_driver", [True, False])
def test_numbers_are_aggregated_as_spark_does(spark, place, numbers, where, on_driver):
    if not on_driver:
        spark.conf.set(DRIVER, "0")
    try:
        found = spark.sql(NUMBERS.format(f"indextables.`{place}`") + where)
        assert found.collect() == numbers[where]
        here = where != "small < 50" and (on_driver or where == "part = 'none'")
        assert ("LocalTableScan" in _plan(found)) == here
        assert ("ParquetScan" in _plan(found)) == (where == "small < 50")
    finally:
        spark.conf.unset(DRIVER)


def _plan(frame):
    return frame._jdf.queryExecution().toString()


def test_what_becomes_of_a_sum_too_large_is_for_spark(spark, place):
    from pyspark.errors import PySparkException

    table = f"indextables.`{place}` WHERE part = 'a'"
    for query in (f"SELECT sum(n) FROM {table}", f"SELECT part, sum(n) FROM {table} GROUP BY part"):
        with pytest.raises(PySparkException) as refused:
            spark.sql(query).collect()
        assert refused.value.getCondition() == "ARITHMETIC_OVERFLOW"
    assert spark.sql(f"SELECT try_sum(n), try_sum(small) > 0 FROM {table}").collect() == [
        (None, True)
    ]
    assert spark.sql(f"SELECT part, try_sum(n) FROM {table} GROUP BY part").collect() == [
        ("a", None)
    ]
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        rows = Table.open(place).scan(columns=["n"], where="part = 'a'")
        total = sum(n for n in rows["n"].to_pylist() if n is not None)
        ((found,),) = spark.sql(f"SELECT sum(n) FROM {table}").collect()
        assert (found - total) % 2**64 == 0
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_sums_that_surely_fit_are_of_the_scan(spark, tmp_path, ansi):
    path = str(tmp_path / "t")
    rows = pa.table(
        {
            "year": pa.array([2024, 2025, 2025], pa.int64()),
            "n": pa.array([5, None, -9], pa.int64()),
            "none": pa.array([None] * 3, pa.int64()),
        }
    )
    table = Table.create(path, rows.schema, partition_by=["year"])
    table.append(rows)
    table.append(rows.slice(1, 1))  # a split in which n is null
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        found = spark.sql(f"SELECT sum(n), sum(none), sum(year) FROM indextables.`{path}`")
        assert found.collect() == [(-4, None, 2024 + 3 * 2025)]
        assert "HashAggregate" not in _plan(found).split("== Physical Plan ==")[1]
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize(("column", "is_pushed"), [("small", True), ("large", False)])
def test_averages_of_longs_are_pushed_where_their_sum_is_surely_one(
    spark, tmp_path, column, is_pushed
):
    path = str(tmp_path / "t")
    rows = pa.table({"small": [5, None, -9], "large": [2**62, 2**62, 7]})
    Table.create(path, rows.schema).append(rows)
    found = spark.sql(f"SELECT avg({column}) FROM indextables.`{path}`")
    known = [n for n in rows[column].to_pylist() if n is not None]
    assert found.collect()[0][0] == sum(map(float, known)) / len(known)
    assert ("partial_avg" not in _plan(found)) == is_pushed


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_sums_of_decimals_may_be_longer_than_the_column(spark, tmp_path, ansi):
    """Spark brings a sum of a part back to the column's own digits, where it may not fit."""
    path = str(tmp_path / "t")
    rows = pa.table(
        {
            "id": range(40),
            "text": ["red fox"] * 40,
            "g": [n % 2 for n in range(40)],
            "price": pa.array([Decimal("999.99")] * 40, pa.decimal128(5, 2)),
            "small": pa.array([Decimal("0.25")] * 40, pa.decimal128(5, 2)),
        }
    )
    table = Table.create(path, rows.schema)
    table.append(rows.slice(0, 20))
    table.append(rows.slice(20))
    spark.read.format("indextables").load(path).localCheckpoint().createOrReplaceTempView("prices")
    spark.conf.set(DRIVER, "0")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for query in (
            "SELECT avg(price), sum(price), avg(small), sum(small) FROM {} WHERE text LIKE '%fox'",
            "SELECT g, avg(price), count(*) FROM {} WHERE text LIKE '%fox' GROUP BY g ORDER BY g",
            "SELECT sum(price) FROM {}",
            "SELECT avg(price), sum(DISTINCT price) FROM {}",
            "SELECT g, sum(price), min(price) FROM {} GROUP BY g ORDER BY g",
        ):
            searched = query.replace("text LIKE '%fox'", "text indexquery 'fox'")
            expected = spark.sql(query.format("prices")).collect()
            assert spark.sql(query.format(f"indextables.`{path}`")).collect() == expected
            assert spark.sql(searched.format(f"indextables.`{path}`")).collect() == expected
        pushed = spark.sql(
            f"SELECT g, sum(small) FROM indextables.`{path}` WHERE text indexquery 'fox' GROUP BY g"
        )
        assert "aggregate" in _plan(pushed)
    finally:
        spark.conf.unset(DRIVER)
        spark.conf.unset("spark.sql.ansi.enabled")
