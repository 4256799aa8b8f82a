"""What Spark's optimizer is told of a scan, and which way a scan goes by cost."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from indextables.predicate import TRUE, Column
from indextables.predicate.coercion import is_in
from indextables.spark.bridge.scan import builder
from indextables.spark.bridge.scan.scans import _understood


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("estimates") / "t")
    rows = spark.range(30_000).selectExpr(
        "id AS n",
        "date_add(date'2024-01-01', CAST(id % 100 AS int)) AS day",
        "CASE WHEN id % 2 = 0 THEN 'rare' ELSE 'frequent' END AS mode",
        "concat('key', id) AS key",
        "repeat('long text ', 20) AS body",
        "IF(id % 3 = 0, NULL, id) AS holes",
    )
    rows.coalesce(2).write.format("indextables").save(path)
    spark.read.format("indextables").load(path).createOrReplaceTempView("estimated")
    return path


def optimized(frame):
    return frame._jdf.queryExecution().optimizedPlan()


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_few_columns_are_smaller_than_all(spark, table):
    narrow = optimized(spark.sql("SELECT n FROM estimated")).stats().sizeInBytes()
    wide = optimized(spark.sql("SELECT * FROM estimated")).stats().sizeInBytes()
    assert narrow * 5 < wide


def test_bounds_and_nulls_of_columns_reach_the_optimizer(spark, table):
    spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        stats = optimized(spark.sql("SELECT n, day, holes FROM estimated")).stats()
        found = {}
        attributes = stats.attributeStats().iterator()
        while attributes.hasNext():
            pair = attributes.next()
            one = pair._2()
            bounds = [getattr(one, name)() for name in ("min", "max", "nullCount")]
            found[pair._1().name()] = [b.get() if b.isDefined() else None for b in bounds]
        assert found["n"] == [0, 29_999, 0]
        assert found["day"][:2] == [19_723, 19_822]
        assert found["holes"][2] == 10_000
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")


@pytest.mark.parametrize(
    ("where", "way"),
    [
        ("mode = 'frequent'", "ParquetScan"),
        ("mode IN ('rare', 'other')", "ParquetScan"),
        ("key = 'key77'", "LocalTableScan"),
        ("key = 'key77' AND mode = 'frequent'", "LocalTableScan"),
        ("mode indexquery 'frequent'", "IndexTables"),
    ],
)
def test_equality_uses_the_index_only_where_it_narrows(spark, table, where, way):
    frame = spark.sql(f"SELECT n FROM estimated WHERE {where}")
    assert way in plan_of(frame)
    plain = spark.read.format("indextables").load(table)
    everything = {row.n: row for row in plain.select("n", "mode", "key").collect()}
    expected = {
        n
        for n, row in everything.items()
        if ("key77" not in where or row.key == "key77")
        and ("frequent" not in where or row.mode == "frequent")
        and ("rare" not in where or row.mode == "rare")
    }
    assert {row.n for row in frame.collect()} == expected
    assert not re.search("Py4J", plan_of(frame))


def test_of_frequent_values_one_split_is_asked(spark, table, monkeypatch):
    builder._proposed.cache.clear()
    asked = []
    counted = builder.count_proposed

    def count(condition, searcher):
        asked.append(searcher.split.path)
        return counted(condition, searcher)

    monkeypatch.setattr(builder, "count_proposed", count)
    plain = spark.read.format("indextables").load(table)
    frame = plain.where("mode = 'frequent'").select("n")
    assert "ParquetScan" in plan_of(frame)
    assert len(asked) == 1
    asked.clear()
    rare = plain.where("key IN ('key77', 'key29999')").select("n")
    assert "LocalTableScan" in plan_of(rare)
    assert len(asked) == len(set(asked)) == 2  # every split, and once
    assert {row.n for row in rare.collect()} == {77, 29_999}


@pytest.mark.parametrize(("key", "waits"), [("n", True), ("day", False)])
def test_a_scan_waits_for_keys_only_where_they_tell_splits_apart(
    spark, table, tmp_path, key, waits
):
    keys = spark.sql("SELECT 7L AS n, date'2024-01-08' AS day, 'x' AS v")
    keys.write.parquet(str(tmp_path / "keys"))
    small = spark.read.parquet(str(tmp_path / "keys")).where("v = 'x'").select(key)
    joined = spark.sql("SELECT n, day, holes FROM estimated").join(small, key)
    assert ("dynamicpruning" in plan_of(joined)) is waits
    assert joined.count() == (1 if key == "n" else 300)


class Keys:
    """A condition of Spark's for keys of a join; to fetch one of them is a mistake."""

    def __init__(self, keys):
        self.keys = keys

    def name(self):
        return "IN"

    def toString(self):  # noqa: N802
        return f"n IN ({', '.join(map(str, self.keys))})"

    def children(self):
        return [Reference(), *[None] * len(self.keys)]


class Reference:
    """A reference to the column `n`."""

    def getClass(self):  # noqa: N802
        return self

    def getSimpleName(self):  # noqa: N802
        return "FieldReference"

    def fieldNames(self):  # noqa: N802
        return ["n"]


def test_many_keys_of_a_join_are_not_fetched_one_by_one():
    schema = pa.schema([("n", pa.int64())])
    assert _understood(Keys([1] * 10_000), schema) == TRUE
    assert _understood(Keys([7]), schema) == is_in(Column(("n",)), pa.int64(), [7])
    assert _understood(Keys([-1, 20]), schema) == is_in(Column(("n",)), pa.int64(), [-1, 20])


def test_frequent_values_are_counted_in_one_split(spark, table, monkeypatch):
    asked = []
    original = builder._most_matching

    def counted(condition, searcher):
        asked.append(searcher.split.path)
        return original(condition, searcher)

    monkeypatch.setattr(builder, "_most_matching", counted)
    spark.conf.set("spark.indextables.read.driver.maxRows", "10")
    spark.conf.set("spark.indextables.read.driver.maxAggregatedRows", "100")
    try:
        frame = spark.read.format("indextables").load(table).where("mode = 'frequent'")
        assert "ParquetScan" in plan_of(frame)
    finally:
        spark.conf.unset("spark.indextables.read.driver.maxRows")
        spark.conf.unset("spark.indextables.read.driver.maxAggregatedRows")
    assert len(set(asked)) == 1


def test_what_an_index_proposes_is_counted_once_for_all_queries(spark, table, monkeypatch):
    asked = []
    original = builder.count_proposed

    def counted(condition, searcher):
        asked.append(searcher.split.path)
        return original(condition, searcher)

    monkeypatch.setattr(builder, "count_proposed", counted)
    frame = spark.read.format("indextables").load(table)
    few = [7, 8, 9, 29_999]
    for _ in range(3):
        found = frame.where(frame.key.isin([f"key{n}" for n in few])).select("n").orderBy("n")
        assert [n for (n,) in found.collect()] == few
    assert len(asked) == len(set(asked)) == 2
    asked.clear()
    for _ in range(2):
        assert (
            frame.where(frame.key.isin([f"key{n}" for n in range(0, 29_999, 200)])).count() == 150
        )
    assert len(asked) == 4  # a long list is not kept


def test_a_long_list_beside_other_conditions_of_one_scan(spark, table):
    frame = spark.read.format("indextables").load(table)
    days = [f"2024-02-{number:02}" for number in range(1, 16)]
    condition = frame.n.isin(list(range(0, 900, 3))) & (frame.mode == "rare")
    condition &= frame.day.cast("string").isin(days) & frame.n.cast("double").between(3.5, 600)
    wanted = [n for n in range(0, 900, 3) if n % 2 == 0 and 31 <= n % 100 < 46 and 3.5 <= n <= 600]
    assert [n for (n,) in frame.where(condition).select("n").orderBy("n").collect()] == wanted
