"""Maintenance through spark.sql: statements of ours, and DELETE and UPDATE of our tables."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from indextables import Table
from indextables.errors import (
    ExpressionError,
    IndexTablesError,
    NotAPartitionError,
    StatementError,
)

ROWS = pa.table(
    {
        "id": pa.array(range(6), pa.int64()),
        "month": pa.array([1, 1, 2, 2, 3, 3], pa.int32()),
        "body": [f"word{n} common" for n in range(6)],
    }
)


@pytest.fixture
def uri(spark, tmp_path):
    uri = str(tmp_path / "docs")
    table = Table.create(uri, ROWS.schema, partition_by=["month"])
    table.append(ROWS)
    spark.sql("DROP TABLE IF EXISTS kept")
    spark.sql(f"CREATE TABLE kept USING indextables LOCATION '{uri}'")
    yield uri
    spark.sql("DROP TABLE IF EXISTS kept")


def one(spark, sql):
    (row,) = spark.sql(sql).collect()
    return row


def ids(spark, source="kept"):
    return sorted(row.id for row in spark.sql(f"SELECT id FROM {source}").collect())


def targets(uri):
    return ["kept", f"indextables.`{uri}`", f"'{uri}'"]


@pytest.mark.parametrize("at", range(3))
def test_delete_any_condition_by_any_name(spark, uri, at):
    target = targets(uri)[at]
    row = one(spark, f"DELETE FROM {target} WHERE body indexquery 'word1 OR word4' OR id = 2;")
    assert (row.status, row.num_affected_rows) == ("success", 3)
    assert ids(spark) == [0, 3, 5]
    row = one(spark, f"UPDATE {target} SET body = concat(body, ' fresh'), month = 9 WHERE id > 3")
    assert (row.status, row.num_affected_rows) == ("success", 1)
    found = spark.sql("SELECT id, month FROM kept WHERE body indexquery 'fresh'").collect()
    assert [tuple(row) for row in found] == [(5, 9)]


def test_delete_with_what_only_spark_can_fold(spark, uri):
    spark.sql("DELETE FROM kept WHERE id < 1 + 1")
    assert ids(spark) == [2, 3, 4, 5]
    spark.sql("DELETE FROM kept WHERE id = :id", args={"id": 3})
    assert ids(spark) == [2, 4, 5]
    spark.sql("DELETE FROM kept AS k WHERE k.id = 4")
    assert ids(spark) == [2, 5]


def test_times_are_meant_in_the_sessions_zone(spark, tmp_path):
    import datetime

    moments = [datetime.datetime(2024, 1, 1, hour, tzinfo=datetime.UTC) for hour in (0, 5, 12)]
    uri = str(tmp_path / "times")
    rows = pa.table({"t": pa.array(moments, pa.timestamp("us", "UTC"))})
    Table.create(uri, rows.schema).append(rows)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        row = one(spark, f"DELETE FROM indextables.`{uri}` WHERE t < '2024-01-01 10:00:00'")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert row.num_affected_rows == 1


def test_other_tables_are_sparks(spark, uri):
    spark.sql("DROP TABLE IF EXISTS other")
    spark.sql("CREATE TABLE other (id bigint) USING parquet")
    try:
        for sql in ("DELETE FROM other WHERE id = 1", "UPDATE other SET id = 1",
                    "DELETE FROM no_such_table WHERE id = 1"):  # fmt: skip
            with pytest.raises(PySparkException):
                spark.sql(sql)
    finally:
        spark.sql("DROP TABLE other")


def test_what_update_refuses_is_a_sentence(spark, uri):
    with pytest.raises(ExpressionError, match="is not a struct"):
        spark.sql("UPDATE kept SET body.length = length(body)")
    with pytest.raises(PySparkException, match="UNRESOLVED_ROUTINE"):
        spark.sql("UPDATE kept SET id = lengthy(body)")
    with pytest.raises(StatementError, match="There is no table no_such_table"):
        spark.sql("CHECKPOINT INDEXTABLES no_such_table")
    assert ids(spark) == list(range(6))


def test_statements_run_on_executors_and_give_frames(spark, uri):
    checks = spark.sql("VERIFY INDEXTABLES kept").collect()
    assert [(row.check, row.status) for row in checks] == [
        ("log", "OK"), ("files", "OK"), ("checksums", "OK"), ("index", "OK"), ("rows", "OK"),
    ]  # fmt: skip
    sizes = spark.sql("DESCRIBE INDEXTABLES COMPONENT SIZES kept WHERE month >= 2")
    sizes.createOrReplaceTempView("sizes")
    total = one(spark, "SELECT count(DISTINCT split_path) AS n, sum(size_bytes) AS s FROM sizes")
    assert total.n == 2
    assert total.s > 0
    spark.catalog.dropTempView("sizes")
    warmed = one(spark, "PREWARM INDEXTABLES CACHE kept ON FIELDS (body) WHERE month = 1")
    assert (warmed.status, warmed.splits_prewarmed) == ("success", 1)
    purged = one(spark, "PURGE INDEXTABLE kept OLDER THAN 7 DAYS DRY RUN")
    assert (purged.metrics.status, purged.metrics.orphaned_files_found) == ("DRY_RUN", 0)
    dropped = one(spark, "DROP INDEXTABLES PARTITIONS FROM kept WHERE month > 2")
    assert (dropped.status, dropped.partitions_dropped) == ("success", 1)
    assert ids(spark) == [0, 1, 2, 3]
    truncated = one(spark, "TRUNCATE INDEXTABLES TIME TRAVEL kept")
    assert (truncated.status, truncated.versions_deleted) == ("SUCCESS", 2)
    repaired = one(
        spark,
        f"REPAIR INDEXFILES TRANSACTION LOG '{uri}/_transaction_log' "
        f"AT LOCATION '{uri}-new/_transaction_log' FROM SPLITS",
    )
    assert repaired.status == "SUCCESS"
    with pytest.raises(NotAPartitionError, match="not a partition column"):
        spark.sql("DROP INDEXTABLES PARTITIONS FROM kept WHERE id = 1")


def test_the_words_of_delta_lake(spark, uri, tmp_path):
    for target in targets(uri):
        assert one(spark, f"DESCRIBE HISTORY {target} LIMIT 1").operation == "APPEND"
        assert one(spark, f"DESCRIBE DETAIL {target}").numRecords == 6
    spark.table("kept").cache()
    spark.sql("DELETE FROM kept WHERE id < 3")
    assert one(spark, "OPTIMIZE kept WHERE month = 2").metrics.status == "no_action"
    assert one(spark, "VACUUM kept RETAIN 7 DAYS DRY RUN").metrics.dry_run is True
    assert one(spark, "RESTORE TABLE kept TO VERSION AS OF 1").restored_version == 1
    assert ids(spark) == list(range(6))  # the cached rows were forgotten
    spark.catalog.uncacheTable("kept")
    # Other tables, and names that are Spark's own.
    spark.sql("CREATE OR REPLACE TEMP VIEW history AS SELECT 1 AS kept_column, 2 AS other")
    assert dict(spark.sql("DESCRIBE HISTORY other").collect())["col_name"] == "other"
    for sql, reason in (
        ("OPTIMIZE history", "is a view, not a table"),
        (f"VACUUM '{tmp_path}/nothing'", "is not an index table"),
        ("DESCRIBE DETAIL missing", "There is no table missing"),
        ("RESTORE parquet.`/x` TO VERSION AS OF 1", "There is no table"),
    ):
        with pytest.raises(IndexTablesError, match=reason):
            spark.sql(sql)
