"""A search index over a table of another format, read and kept with Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import indextables as it
from indextables.spark.bridge.frames import driver_scans

ROWS = pa.table(
    {
        "id": [1, 2, 3, 4, 5],
        "day": ["a", "a", "b", "b", None],
        "body": ["red fox", "lazy dog", None, "fox and dog", "a fox, a fox"],
        "price": [1.5, 2.5, None, 4.0, 8.0],
    }
)


def ids(frame) -> list[int]:
    return sorted(row["id"] for row in frame.collect())


@pytest.fixture
def partitioned(tmp_path) -> it.SearchIndex:
    """An index over a partitioned Delta table, one of whose files it does not cover."""
    source = tmp_path / "source"
    write_deltalake(source, ROWS.slice(0, 4), partition_by=["day"])
    index = it.SearchIndex.create(
        tmp_path / "index", source=source, format="delta", columns=["body"]
    )
    write_deltalake(source, ROWS.slice(4), mode="append")
    return index


def test_an_index_is_read_as_a_table(door, partitioned):
    uri = partitioned.uri
    frame = door.read.format("indextables").load(uri)
    assert frame.columns == ["id", "day", "body", "price"]
    frame.createOrReplaceTempView("rows_of_index")
    name = "rows_of_index"
    if door.conf.get("spark.sql.catalog.indextables", None) is None and is_bridged(door):
        name = f"indextables.`{uri}`"

    def sql(text: str):
        return door.sql(text.replace("docs", name))

    assert ids(sql("SELECT * FROM docs")) == [1, 2, 3, 4, 5]
    assert sql("SELECT * FROM docs WHERE id = 4").collect()[0].asDict() == {
        "id": 4, "day": "b", "body": "fox and dog", "price": 4.0
    }  # fmt: skip
    assert ids(sql("SELECT id FROM docs WHERE body indexquery 'fox'")) == [1, 4, 5]
    assert ids(sql("SELECT id FROM docs WHERE body indexquery 'fox' AND day = 'b'")) == [4]
    assert ids(sql("SELECT id FROM docs WHERE body indexquery 'fox' AND price > 1.5")) == [4, 5]
    assert ids(sql("SELECT id FROM docs WHERE body indexquery 'fox' OR day = 'b'")) == [1, 3, 4, 5]
    assert ids(sql("SELECT id FROM docs WHERE NOT body indexquery 'fox'")) == [2, 3]
    assert ids(sql("SELECT id FROM docs WHERE body IS NULL")) == [3]
    assert sql("SELECT count(*) FROM docs").collect()[0][0] == 5
    assert sql("SELECT count(*) FROM docs WHERE body indexquery 'fox'").collect()[0][0] == 3
    groups = sql("SELECT day, count(*) c, sum(price) s, max(id) m FROM docs GROUP BY day")
    assert sorted(map(tuple, groups.collect()), key=str) == [
        ("a", 2, 4.0, 2), ("b", 2, 4.0, 4), (None, 1, 8.0, 5)
    ]  # fmt: skip
    # Where a search is not a condition, Spark evaluates it, as the table would.
    marks = sql("SELECT id, body indexquery 'fox' AS hit, CASE WHEN body indexquery 'dog' THEN 1 "
                "ELSE 0 END AS dog FROM docs")  # fmt: skip
    assert sorted((r.id, r.hit, r.dog) for r in marks.collect()) == [
        (1, True, 0), (2, False, 1), (3, False, 0), (4, True, 1), (5, True, 0)
    ]  # fmt: skip
    joined = sql("SELECT l.id FROM docs l JOIN docs r ON l.id = r.id WHERE r.body indexquery 'dog'")
    assert ids(joined) == [2, 4]
    # The source moves on, and the next query sees it.
    write_deltalake(partitioned.source, ROWS.slice(0, 1), mode="append")
    fresh = door.read.format("indextables").load(uri)
    assert fresh.count() == 6
    assert fresh.where("body indexquery 'fox'").count() == 4
    partitioned.refresh()
    assert door.read.format("indextables").load(uri).where("body indexquery 'fox'").count() == 4
    for version, rows in ((0, 4), (1, 5), (2, 6)):
        old = door.read.format("indextables").option("versionAsOf", version).load(uri)
        assert old.count() == rows


def is_bridged(spark) -> bool:
    from indextables.spark.bridge.sessions import bridge_of

    return bridge_of(spark) is not None


def test_the_best_rows_come_first(spark, partitioned):
    best = spark.sql(
        f"SELECT id, day, _score FROM indextables.`{partitioned.uri}` "
        "WHERE body indexquery 'fox' ORDER BY _score DESC LIMIT 2"
    )
    expected = partitioned.search("fox", limit=2)
    assert [r.id for r in best.collect()] == expected["id"].to_pylist()
    assert [r["_score"] for r in best.collect()] == pytest.approx(expected["_score"].to_pylist())
    assert driver_scans(best)
    every = spark.sql(
        f"SELECT id, _score FROM indextables.`{partitioned.uri}` WHERE body indexquery 'fox'"
    )
    assert {r.id: r["_score"] for r in every.collect()} == pytest.approx(
        dict(
            zip(*(partitioned.search("fox")[n].to_pylist() for n in ("id", "_score")), strict=True)
        )
    )
    plan = spark.sql(
        f"EXPLAIN SELECT id FROM indextables.`{partitioned.uri}` WHERE body indexquery 'fox'"
    ).collect()[0][0]
    assert "2 of 3 files" in plan


def test_tasks_read_the_source(spark, partitioned):
    """What the driver does not answer, Python tasks do: they get the source's files with them."""
    spark.conf.set("spark.indextables.read.driver.maxRows", 0)
    try:
        frame = spark.read.format("indextables").load(partitioned.uri)
        assert ids(frame) == [1, 2, 3, 4, 5]
        assert ids(frame.where("body indexquery 'fox' AND day IS NOT NULL")) == [1, 4]
        scored = frame.where("body indexquery 'fox'").selectExpr("id", "_score")
        assert ids(scored) == [1, 4, 5]
        assert frame.where("body indexquery 'fox'").agg({"price": "sum"}).collect()[0][0] == 13.5
        assert frame.where("body indexquery 'dog'").count() == 2
        assert ids(frame.orderBy("price").limit(2)) == [1, 3]
    finally:
        spark.conf.unset("spark.indextables.read.driver.maxRows")
