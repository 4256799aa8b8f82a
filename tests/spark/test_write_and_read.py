"""Writing a DataFrame and reading it back, through each door."""

from __future__ import annotations

import datetime
import decimal
import functools
from zoneinfo import ZoneInfo

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from indextables import Table
from indextables.errors import (
    ConfigError,
    IndexTablesError,
    NotATableError,
    SchemaError,
    TableExistsError,
    VersionNotFoundError,
)

ROWS = 30
TYPES = """
    id bigint, b tinyint, s smallint, i int, f float, d double, flag boolean, content string,
    raw binary, day date, at timestamp, local timestamp_ntz, price decimal(12, 3),
    tags array<string>, nested struct<x: int, y: string>, named map<string, int>
"""


def frame(spark, rows=ROWS):
    return spark.range(rows).select(
        "id",
        F.concat(F.lit("red fox "), F.col("id").cast("string")).alias("content"),
        (F.col("id") % 3).cast("int").alias("part"),
    )


def test_every_type_comes_back_as_it_was(door, tmp_path):
    rows = [
        (1, 1, 2, 3, 1.5, 2.5, True, "text", b"\x00\x01", datetime.date(2024, 2, 29),
         datetime.datetime(2024, 1, 1, 12, 0, 0, 123456), datetime.datetime(1999, 12, 31, 23, 59),
         decimal.Decimal("12.345"), ["a", None], (7, "y"), {"k": 1}),
        tuple([2] + [None] * 15),
    ]  # fmt: skip
    original = door.createDataFrame(rows, TYPES)
    original.write.format("indextables").save(str(tmp_path / "t"))
    back = door.read.format("indextables").load(str(tmp_path / "t"))
    assert back.schema == original.schema
    assert back.orderBy("id").collect() == original.orderBy("id").collect()


def test_modes(door, tmp_path):
    path = str(tmp_path / "t")
    write = lambda mode, rows: (  # noqa: E731
        frame(door, rows).write.format("indextables").mode(mode).save(path)
    )
    count = lambda: door.read.format("indextables").load(path).count()  # noqa: E731
    write("append", 3)
    assert count() == 3
    write("append", 2)
    assert count() == 5
    write("ignore", 7)
    assert count() == 5
    with pytest.raises(TableExistsError):
        write("error", 7)
    assert count() == 5
    write("overwrite", 4)
    assert count() == 4
    assert Table.open(path).version == 2


def test_partitions_and_dynamic_overwrite(door, tmp_path):
    path = str(tmp_path / "t")
    frame(door).write.format("indextables").partitionBy("part").save(path)
    assert Table.open(path).snapshot().partition_columns == ("part",)
    (
        door.createDataFrame([(100, "new", 1)], "id bigint, content string, part int")
        .write.format("indextables").mode("overwrite")
        .option("partitionOverwriteMode", "dynamic").save(path)
    )  # fmt: skip
    rows = door.read.format("indextables").load(path)
    assert {r.part: r["count"] for r in rows.groupBy("part").count().collect()} == {
        0: 10, 1: 1, 2: 10,
    }  # fmt: skip
    with pytest.raises(SchemaError, match="partitioned by part"):
        frame(door).write.format("indextables").mode("append").partitionBy("id").save(path)


def test_replace_where(door, tmp_path):
    path = str(tmp_path / "t")
    frame(door).write.format("indextables").save(path)
    new = door.createDataFrame([(7, "seven", 1)], "id bigint, content string, part int")
    write = new.write.format("indextables").mode("overwrite")
    write.option("replaceWhere", "id BETWEEN 5 AND 9").save(path)
    rows = door.read.format("indextables").load(path)
    assert rows.count() == ROWS - 5 + 1
    assert rows.where("id = 7").collect()[0].content == "seven"
    with pytest.raises((IndexTablesError, PySparkException), match="do not meet the condition"):
        write.option("replaceWhere", "id > 1000").save(path)
    assert door.read.format("indextables").load(path).count() == ROWS - 5 + 1


def test_a_rejected_schema_lists_the_differences(door, tmp_path):
    path = str(tmp_path / "t")
    frame(door).write.format("indextables").save(path)
    other = frame(door).withColumnRenamed("content", "contents")
    with pytest.raises(SchemaError, match="'contents'") as caught:
        other.write.format("indextables").mode("append").save(path)
    assert "content string" in str(caught.value)
    assert ".option('mergeSchema', True)" in str(caught.value)
    other.write.format("indextables").mode("append").option("mergeSchema", "true").save(path)
    assert door.read.format("indextables").load(path).columns == [
        "id", "content", "part", "contents",
    ]  # fmt: skip


def test_time_travel_and_several_paths(door, tmp_path):
    path = str(tmp_path / "t")
    for rows in (3, 4):
        frame(door, rows).write.format("indextables").mode("append").save(path)
    read = door.read.format("indextables")
    assert read.option("versionAsOf", 0).load(path).count() == 3
    other = str(tmp_path / "u")
    frame(door, 2).write.format("indextables").save(other)
    assert door.read.format("indextables").load([path, other]).count() == 9
    first = Table.open(path).history()["timestamp"].to_pylist()[-1]
    at = door.read.format("indextables").option("timestampAsOf", first.isoformat())
    assert at.load(path).count() == 3


def test_a_missing_table_is_one_sentence(door, tmp_path):
    with pytest.raises(NotATableError, match="is not an index table"):
        door.read.format("indextables").load(str(tmp_path / "nothing"))


def test_a_failed_task_leaves_nothing_visible(door, tmp_path):
    path = tmp_path / "t"
    frame(door).write.format("indextables").save(str(path))
    bad = door.range(10, numPartitions=2).select(
        "id",
        F.when(F.col("id") == 9, F.raise_error(F.lit("stop here")))
        .otherwise(F.lit("x")).alias("content"),
        F.lit(1).alias("part"),
    )  # fmt: skip
    with pytest.raises(PySparkException):
        bad.write.format("indextables").mode("append").save(str(path))
    assert Table.open(str(path)).version == 0
    assert door.read.format("indextables").load(str(path)).count() == ROWS


def test_a_failed_first_write_leaves_no_table(door, tmp_path):
    bad = door.range(3).select(F.raise_error(F.lit("stop here")).cast("string").alias("x"))
    with pytest.raises(PySparkException):
        bad.write.format("indextables").save(str(tmp_path / "t"))
    assert not Table.exists(str(tmp_path / "t"))


@pytest.fixture(scope="module")
def filtered(spark, tmp_path_factory):
    """A partitioned table, and what its rows are under a condition."""
    path = str(tmp_path_factory.mktemp("filtered") / "t")
    original = frame(spark)
    original.write.format("indextables").partitionBy("part").save(path)
    return path, functools.cache(lambda text: sorted(original.where(text).collect()))


CONDITIONS = [
    "id = 5", "content LIKE 'red fox 1%'", "NOT (id < 3)", "id > 5.5", "content = 'red fox 7'",
    "part IN (1, 2)", "part IS NULL", "id < 3 OR content LIKE '%9'", "content RLIKE '5$'",
]  # fmt: skip


@pytest.mark.parametrize(
    ("door", "condition"),
    [
        *(("bridge", condition) for condition in CONDITIONS),
        *(
            pytest.param("public", condition, marks=pytest.mark.long if number % 2 else ())
            for number, condition in enumerate(CONDITIONS)
        ),
    ],
    indirect=["door"],
)
def test_filters_give_what_spark_gives(door, filtered, condition):
    path, expected = filtered
    found = door.read.format("indextables").load(path).where(condition)
    assert sorted(found.collect()) == expected(condition)


def test_the_names_of_the_scala_product(door, tmp_path):
    path = str(tmp_path / "t")
    name = "io.indextables.spark.core.IndexTables4SparkTableProvider"
    frame(door).write.format(name).save(path)
    assert door.read.format("io.indextables.provider.IndexTablesProvider").load(path).count() == 30


def test_typemap_options_reach_the_table(door, tmp_path):
    path = str(tmp_path / "t")
    write = frame(door).write.format("indextables")
    write.option("spark.indextables.indexing.typemap.content", "string").save(path)
    assert Table.open(path).search("content:fox").num_rows == 0
    assert Table.open(path).count(where="content = 'red fox 7'") == 1


def test_filters_of_one_query_are_not_those_of_the_next(door, tmp_path):
    path = str(tmp_path / "t")
    frame(door).write.format("indextables").save(path)
    rows = door.read.format("indextables").load(path)
    assert (rows.where("id < 3").count(), rows.where("id < 9").count(), rows.count()) == (3, 9, 30)
    assert rows.where("id < 3").unionAll(rows.where("id > 25")).count() == 7


def test_a_time_without_a_zone_is_the_session_s(door, tmp_path):
    path = str(tmp_path / "t")
    door.range(1).write.format("indextables").save(path)
    now = datetime.datetime.now(datetime.UTC)
    ahead = now.astimezone(ZoneInfo("Asia/Tokyo")).replace(tzinfo=None) + datetime.timedelta(0, 1)
    zone = door.conf.get("spark.sql.session.timeZone")
    door.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        reader = door.read.format("indextables").option("timestampAsOf", str(ahead))
        assert reader.load(path).count() == 1
        with pytest.raises(VersionNotFoundError):
            reader.option("timestampAsOf", f"{now:%Y-%m-%d %H:%M:%S}").load(path)
        with pytest.raises(ConfigError, match="a version or of a time"):
            reader.option("versionAsOf", "0").load(path)
    finally:
        door.conf.set("spark.sql.session.timeZone", zone)


def test_for_each_batch_of_a_stream(spark, tmp_path):
    """Spark clones the session for it; the clone knows index tables as the session does."""
    source, path, found = str(tmp_path / "source"), str(tmp_path / "t"), []
    spark.sql("SELECT 1 AS id, 'red fox' AS content, 'd1' AS day").write.parquet(source)

    def store(batch, _number):
        batch.write.format("indextables").partitionBy("day").save(path)
        query = f"SELECT id FROM indextables.`{path}` WHERE content indexquery 'fox'"
        found.extend(batch.sparkSession.sql(query).collect())

    stream = spark.readStream.schema("id int, content string, day string").parquet(source)
    started = stream.writeStream.foreachBatch(store).trigger(availableNow=True)
    started.option("checkpointLocation", str(tmp_path / "state")).start().awaitTermination()
    assert [row.id for row in found] == [1]
    assert Table.open(path).snapshot().partition_columns == ("day",)
