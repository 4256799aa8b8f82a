"""Timestamps near the ends of the calendar, which Python's datetime cannot hold in every zone."""

from __future__ import annotations

import pytest

from indextables import Table

ZONE = "spark.sql.session.timeZone"
ROWS = """
    SELECT * FROM VALUES
      (1, TIMESTAMP'2024-01-01 00:00:00', TIMESTAMP_NTZ'2024-01-01 00:00:00', 'a'),
      (2, TIMESTAMP'9999-12-31 23:59:59', TIMESTAMP_NTZ'9999-12-31 23:59:59', 'a'),
      (3, TIMESTAMP'0001-01-01 00:00:00', TIMESTAMP_NTZ'0001-01-01 00:00:00', 'b'),
      (4, NULL, NULL, 'b')
    AS t(id, at, clock, part)
"""
LITERALS = ("9999-12-31 23:59:59", "0001-01-01 00:00:00", "9999-12-31 23:59:59Z",
            "0001-01-01 00:00:00Z", "9999-12-31", "2024-01-01")  # fmt: skip


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo"])
def test_the_ends_of_the_calendar_as_on_parquet(spark, tmp_path, zone):
    path = str(tmp_path / "t")
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, zone)
    try:
        rows = spark.sql(ROWS).coalesce(1)
        rows.write.format("indextables").partitionBy("part").save(path)
        rows.localCheckpoint().createOrReplaceTempView("ends")
        conditions = [
            f"{column} {op} {kind}'{literal}'"
            for column, kind in (("at", "TIMESTAMP"), ("clock", "TIMESTAMP_NTZ"))
            for op, literal in zip(("=", "<", ">=", "<=", "<=>", ">"), LITERALS, strict=True)
        ]
        conditions += [
            "at IN (TIMESTAMP'9999-12-31 23:59:59', TIMESTAMP'2024-01-01', NULL)",
            "at BETWEEN DATE'0001-01-01' AND DATE'9999-12-31'",
            "at = '9999-12-31 23:59:59'",
            "CAST(at AS DATE) = DATE'9999-12-31'",
        ]
        assert len(conditions) % 4 == 0
        named = ", ".join(f"count(*) FILTER (WHERE {c}) AS c{n}" for n, c in enumerate(conditions))
        expected = spark.sql(f"SELECT {named} FROM ends").collect()[0]
        for start in range(0, len(conditions), 4):  # one job for four
            some = dict(enumerate(conditions))
            found = spark.sql(" UNION ALL ".join(
                f"SELECT {n}, id FROM indextables.`{path}` WHERE {some[n]}"
                for n in range(start, start + 4)
            )).collect()  # fmt: skip
            for n in range(start, start + 4):
                assert sum(row[0] == n for row in found) == expected[n], some[n]
        end = "at = TIMESTAMP '9999-12-31 23:59:59'"
        set_ = "clock = TIMESTAMP_NTZ '9999-12-31 23:59:59', at = TIMESTAMP '9999-12-31 23:59:59'"
        spark.sql(f"UPDATE indextables.`{path}` SET {set_} WHERE id = 1")
        assert Table.open(path).update(set_, where="id = 4", timezone=zone).rows == 1
        assert spark.sql(f"SELECT id FROM indextables.`{path}` WHERE {end}").count() == 3
        assert Table.open(path).delete(where=f"{end} AND id = 4", timezone=zone).rows_removed == 1
        spark.sql(f"DELETE FROM indextables.`{path}` WHERE {end}")
        left = spark.read.format("indextables").load(path).select("id")
        assert [row.id for row in left.collect()] == [3]
    finally:
        spark.conf.set(ZONE, before)


def test_old_days_are_no_matter_of_the_session(spark, tmp_path):
    """Spark's own reader moves days before 1582 if it is told that files are old."""
    path, mode = str(tmp_path / "t"), "spark.sql.parquet.datetimeRebaseModeInRead"
    rows = "SELECT id, DATE'1500-03-01' AS day, TIMESTAMP_NTZ'1500-03-01 12:00:00' AS at"
    spark.sql(f"{rows} FROM range(5)").write.format("indextables").save(path)
    spark.conf.set("spark.indextables.read.driver.maxRows", "0")
    try:
        for value in ("LEGACY", "EXCEPTION"):
            spark.conf.set(mode, value)
            frame = spark.read.format("indextables").load(path)
            assert "ParquetScan" in frame._jdf.queryExecution().toString()
            found = frame.where("day < DATE'1500-03-02'").distinct().select("day", "at")
            assert {tuple(map(str, row)) for row in found.collect()} == {
                ("1500-03-01", "1500-03-01 12:00:00")
            }
    finally:
        spark.conf.unset(mode)
        spark.conf.unset("spark.indextables.read.driver.maxRows")
