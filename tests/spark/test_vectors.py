"""Rows that are marked as deleted, through every way in which Spark reads a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from indextables import Table
from indextables.log.files import vectors_by_path

ROWS = 3_000
DEAD = {i for i in range(ROWS) if i < 100 or i % 10 == 3 or i >= ROWS - 50}
LEFT = [i for i in range(ROWS) if i not in DEAD]


@pytest.fixture(scope="module", params=[(), ("p",)], ids=["flat", "partitioned"])
def table(spark, tmp_path_factory, request):
    uri = str(tmp_path_factory.mktemp("vectors") / "t")
    data = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "body": [f"common word{i % 10}" for i in range(ROWS)],
            "n": pa.array([None if i % 7 == 0 else i for i in range(ROWS)], pa.int32()),
            "p": [i % 2 for i in range(ROWS)],
        }
    )
    made = Table.create(
        uri,
        data.schema,
        partition_by=request.param,
        properties={"spark.indextables.deletionVectors.mode": "vector"},
    )
    for start in range(0, ROWS, 1_000):
        made.append(data.slice(start, 1_000))
    spark.sql(f"DELETE FROM indextables.`{uri}` WHERE id < 100 OR body indexquery 'word3'")
    spark.sql(f"DELETE FROM indextables.`{uri}` WHERE abs(id) >= {ROWS - 50}")
    assert vectors_by_path(Table.open(uri).snapshot().entries)
    return uri


@pytest.mark.parametrize(
    ("door", "driver_rows"),
    [
        ("bridge", "0"),
        ("bridge", "10000"),
        ("public", "0"),
        pytest.param("public", "10000", marks=pytest.mark.long),  # not a setting of this door
    ],
    indirect=["door"],
)
def test_every_way_of_reading(door, table, driver_rows):
    spark = door
    reader = spark.read.format("indextables")
    frame = reader.option("spark.indextables.read.driver.maxRows", driver_rows).load(table)
    assert sorted(r.id for r in frame.select("id").collect()) == LEFT
    assert frame.count() == len(LEFT)
    assert frame.where("id > 5").count() == len(LEFT)
    assert frame.where("n IS NULL").count() == sum(i % 7 == 0 for i in LEFT)
    frame.createOrReplaceTempView("marked")
    total = spark.sql("SELECT count(*), count(n), min(id), max(id), sum(id), min(n) FROM marked")
    numbers = [i for i in LEFT if i % 7]
    assert tuple(total.first()) == (
        len(LEFT), len(numbers), min(LEFT), max(LEFT), sum(LEFT), min(numbers),
    )  # fmt: skip
    groups = spark.sql("SELECT p, count(*), max(id) FROM marked GROUP BY p ORDER BY p").collect()
    assert [tuple(g) for g in groups] == [
        (p, len(some), max(some)) for p in (0, 1) if (some := [i for i in LEFT if i % 2 == p])
    ]
    found = spark.sql("SELECT id FROM marked WHERE body indexquery 'word3 OR word4'").collect()
    assert sorted(r.id for r in found) == [i for i in LEFT if i % 10 == 4]
    assert spark.sql("SELECT * FROM marked ORDER BY id DESC LIMIT 3").first().id == max(LEFT)
    assert len(spark.sql("SELECT * FROM marked LIMIT 20").collect()) == 20
    assert spark.sql("SELECT count(*) FROM marked WHERE id NOT IN (SELECT 150)").first()[0] == (
        len(LEFT) - 1
    )


def test_ranked_rows_and_row_identity(spark, table):
    ranked = spark.sql(
        f"SELECT id, _score, _split, _row FROM indextables.`{table}` "
        "WHERE body indexquery 'common' ORDER BY _score DESC LIMIT 12"
    ).collect()
    assert len({(r._split, r._row) for r in ranked}) == 12
    assert not {r.id for r in ranked} & DEAD
    named = spark.sql(
        f"SELECT _split, _row, id FROM indextables.`{table}` WHERE id < 300"
    ).collect()
    assert len({(r._split, r._row) for r in named}) == len(named)
    (one,) = [r for r in named if r.id == 251]
    again = spark.sql(
        f"SELECT id FROM indextables.`{table}` WHERE _split = '{one._split}' AND _row = {one._row}"
    )
    assert [r.id for r in again.collect()] == [251]
    assert "_row" not in spark.table(f"indextables.`{table}`").columns
    past = spark.sql(f"SELECT count(*) FROM indextables.`{table}` VERSION AS OF 3")
    assert past.first()[0] == ROWS


def test_scans_of_splits_without_deleted_rows_stay_with_sparks_reader(spark, tmp_path):
    """A vector sends a scan to Python tasks only if the scan reads its split."""
    uri = str(tmp_path / "t")
    data = pa.table({"id": pa.array(range(40), pa.int64()), "p": [i % 4 for i in range(40)]})
    made = Table.create(
        uri, data.schema, partition_by=["p"],
        properties={"spark.indextables.deletionVectors.mode": "vector"},
    )  # fmt: skip
    made.append(data.slice(0, 20))
    made.append(data.slice(20))
    made.delete(where="id = 4")
    frame = spark.read.format("indextables").option("spark.indextables.read.driver.maxRows", "0")
    frame = frame.load(uri)

    def plan(rows):
        return rows._jdf.queryExecution().executedPlan().toString()

    for where, clean, wanted in (
        ("p = 1", True, range(1, 40, 4)), ("id >= 20", True, range(20, 40)),
        ("p = 0", False, range(0, 40, 4)), ("true", False, range(40)),
    ):  # fmt: skip
        rows = frame.where(where)
        assert ("ParquetScan" in plan(rows)) == clean, where
        assert sorted(r.id for r in rows.collect()) == [i for i in wanted if i != 4]
    joined = frame.alias("a").join(frame.where("p = 1").alias("b"), "p")
    assert joined.count() == 100
