"""Bucket functions by their names in SQL, beside the same in Spark's own expressions."""

from __future__ import annotations

import datetime

import pytest

ROWS = "indextables.`{}`"


@pytest.fixture(scope="module")
def place(spark, tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("buckets") / "logs")
    rows = [
        (
            i,
            datetime.datetime(2024, 3, 30) + datetime.timedelta(minutes=7 * i),
            f"w{i % 3} disk",
            i / 4,
        )
        for i in range(200)
    ]
    rows += [
        (None, None, "w1 disk", None),
        (-7, datetime.datetime(1969, 12, 31, 23, 59), "w1", -0.5),
    ]
    frame = spark.createDataFrame(rows, "n long, ts timestamp, body string, x double")
    frame.write.format("indextables").save(path)
    return path


@pytest.mark.parametrize(
    ("ours", "spark_has"),
    [
        ("indextables_date_histogram(ts, '15m')", "window(ts, '15 minutes').start"),
        ("indextables_date_histogram(ts, '2d')", "window(ts, '2 days').start"),
        (
            "indextables_date_histogram(ts, '90s', '30s')",
            "window(ts, '90 seconds', '90 seconds', '30 seconds').start",
        ),
        ("indextables_histogram(n, 10)", "floor(n / 10D) * 10D"),
        ("indextables_histogram(x, 0.5, 0.25)", "floor((x - 0.25D) / 0.5D) * 0.5D + 0.25D"),
        (
            "indextables_range(n, 'few', NULL, 50, 'some', 50, 100, 'many', 100, NULL)",
            "CASE WHEN n < 50 THEN 'few' WHEN n < 100 THEN 'some' WHEN n >= 100 THEN 'many' END",
        ),
    ],
)
@pytest.mark.parametrize("where", ["true", "body indexquery 'w1 AND disk'"])
def test_parts_are_those_of_sparks_expressions(spark, place, ours, spark_has, where):
    query = f"SELECT {{}} AS part, count(*), sum(n) FROM {ROWS.format(place)} WHERE {where}"
    found = spark.sql(query.format(ours) + " GROUP BY part").collect()
    # A window leaves out rows without a time.
    known = " AND ts IS NOT NULL" if "window" in spark_has else ""
    expected = spark.sql(query.format(spark_has) + known + f" GROUP BY {spark_has}").collect()
    if known:
        found = [row for row in found if row.part is not None]
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert found


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("indextables_date_histogram(ts, '1 fortnight')", "such as 15m"),
        ("indextables_date_histogram(ts, '0m')", "such as 15m"),
        ("indextables_histogram(n, 0)", "greater than 0"),
    ],
)
def test_mistakes_are_sentences(spark, place, call, says):
    with pytest.raises(Exception, match=says):
        spark.sql(f"SELECT {call} FROM {ROWS.format(place)}").collect()
