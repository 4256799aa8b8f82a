"""Groups of expressions are computed where the rows are, and are those of Spark's own GROUP BY."""

from __future__ import annotations

import math
import random
from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables import Table

DRIVER = "spark.indextables.read.driver.maxRows"
ZONES = ("Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "+05:45", "UTC")
SWITCHES = (1_711_846_800, 1_729_990_800, 1_710_046_800, 1_730_610_000, 1_712_415_600)
UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
EXPRESSIONS = [
    *(f"date_trunc('{unit}', ts)" for unit in UNITS), "date_trunc('MM', ts)",
    *(f"{part}({c})" for part in ("year", "quarter", "month", "day", "dayofyear", "dayofweek",
                                  "weekday", "weekofyear") for c in ("ts", "n", "d")),
    *(f"{part}({c})" for part in ("hour", "minute", "second") for c in ("ts", "n")),
    "extract(YEAROFWEEK FROM ts)", "to_date(ts)", "CAST(n AS DATE)", "CAST(ts AS BIGINT)",
    *(f"trunc({c}, '{u}')" for u in ("week", "MON", "quarter", "yy") for c in ("d", "ts")),
    "floor(id / 10)", "floor(i / 10)", "ceil(id / 7)", "floor(y * 2)", "id % 10", "i % 3",
    "pmod(id, 7)", "pmod(i, -3)", "y % 2.5D", "id + 1", "i * 2", "id - i", "y / 3D",
    "unix_micros(ts) % 1000", "CASE WHEN id > 5 THEN 'x' WHEN i < 0 THEN s END",
    "if(i > 1, d, NULL)",
    "s IS NULL", "s = 'a'", "x > 1.5D", "x = double('NaN')", "x <= 0D AND s >= 'b'",
    "id > 0 OR s IS NULL", "NOT (i = 1)",
    "indextables_histogram(y, 10)", "indextables_histogram(id, 7, 2)",
    "indextables_date_histogram(ts, '15m')", "indextables_date_histogram(ts, '7h', '1h')",
    "indextables_range(x, 'low', NULL, 1D, 'high', 1D, NULL)",
]  # fmt: skip
WINDOWS = ["window(ts, '5 minutes')", "window(ts, '1 hour', '1 hour', '15 minutes')",
           "window(n, '90 minutes')", "window(ts, '5 minutes').start"]  # fmt: skip


def rows(count: int, seed: int) -> pa.Table:
    pick = random.Random(seed)

    def some(values, share=0.05):
        return [None if pick.random() < share else one for one in values]

    near = [
        (pick.choice(SWITCHES) + pick.randrange(-90_000, 90_000)) * 10**6 + pick.randrange(10**6)
        for _ in range(count)
    ]
    for at in range(0, count, 7):
        near[at] = pick.randrange(-5 * 10**15, 10**16)
    # Times beyond Python's years, and beyond Arrow's.
    near[:4] = [2**62, -(2**62), 253_402_300_800_000_000, -(2**63) + 4 * 10**16]
    special = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1e300]
    x = [pick.choice(special) if n % 5 == 0 else pick.uniform(-9, 9) for n in range(count)]
    return pa.table(
        {
            "id": pa.array([pick.randrange(-60, 60) for _ in range(count)], pa.int64()),
            "i": pa.array(some(pick.randrange(-9, 9) for _ in range(count)), pa.int32()),
            "x": pa.array(some(x), pa.float64()),
            "y": pa.array(some(pick.uniform(-40, 40) for _ in range(count)), pa.float64()),
            "s": pa.array(some(pick.choice("abcä") for _ in range(count)), pa.string()),
            "ts": pa.array(some(near), pa.timestamp("us", "UTC")),
            "n": pa.array(some(near), pa.timestamp("us")),
            "d": pa.array(some(t // (86_400 * 10**6) for t in near), pa.date32()),
            "body": ["fox" if n % 3 else "fox and dog" for n in range(count)],
        }
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("groups") / "t")
    config = {"spark.indextables.mergeOnWrite.enabled": "false"}
    data = rows(900, 3)
    table = Table.create(place, data.schema, config=config)
    for at in range(3):
        table.append(data.slice(at * 300, 300))
    return place


@pytest.fixture(scope="module")
def plain(spark, place):
    """The same rows, of which Spark reads every one."""
    pq.write_table(Table.open(place).scan(), f"{place}.parquet")
    return spark.read.parquet(f"{place}.parquet")


def values_of(column):
    """Values that equal themselves: times as numbers, because Python's years end with 9999."""
    if pa.types.is_struct(column.type):
        return list(zip(*map(values_of, column.combine_chunks().flatten()), strict=True))
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    if not pa.types.is_floating(column.type):
        return column.to_pylist()
    # There is one NaN, and one zero.
    numbers = column.to_pylist()
    return [n if n is None else "NaN" if math.isnan(n) else n + 0.0 for n in numbers]


def rows_of(frame):
    return sorted(map(repr, zip(*map(values_of, frame.toArrow().columns), strict=True)))


def groups(table, names):
    """How many rows each group has, and the sum of their ids."""
    counts = [table[name].to_pylist() for name in ("c", "s")]
    values = zip(*(values_of(table[name]) for name in names), strict=True)
    return {g: cs for g, *cs in zip(values, *counts, strict=True)}


def expected(table, names):
    found = defaultdict(lambda: [0, 0])
    values = zip(*(values_of(table[name]) for name in names), strict=True)
    for g, number in zip(values, table["id"].to_pylist(), strict=True):
        found[g][0] += 1
        found[g][1] += number
    return dict(found)


def is_pushed(frame):
    """Whether the scan returns groups, and Spark at most adds up those of several tasks."""
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    return "Aggregate [" not in plan or "agg_func_0" in plan


def searched(place):
    """All rows, found by a search."""
    return f"(SELECT * FROM indextables.`{place}` WHERE body indexquery 'fox')"


def compare(spark, place, plain, expressions):
    names = [f"g{n}" for n in range(len(expressions))]
    chosen = [f"{e} AS {n}" for e, n in zip(expressions, names, strict=True)]
    by_rows = plain.selectExpr("id", *chosen).toArrow()
    ours = spark.sql(
        f"SELECT {', '.join(chosen)}, count(*) AS c, sum(id) AS s FROM {searched(place)} "
        f"GROUP BY {', '.join(expressions)}"
    )
    assert is_pushed(ours), expressions
    assert groups(ours.toArrow(), names) == expected(by_rows, names), expressions


@pytest.mark.parametrize("zone", ["America/Havana"], indirect=True)
def test_groups_are_those_of_spark(spark, place, plain, zone):
    for at in range(0, len(EXPRESSIONS), 16):
        compare(spark, place, plain, EXPRESSIONS[at : at + 16])


@pytest.mark.long
@pytest.mark.parametrize("zone", ZONES, indirect=True)
def test_groups_are_those_of_spark_one_by_one(spark, place, plain, zone):
    for expression in EXPRESSIONS:
        compare(spark, place, plain, [expression])


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_windows_and_pairs(spark, place, plain, zone):
    for expressions in ([WINDOWS[0], "s"], [WINDOWS[1]], [WINDOWS[2], "year(n)"], [WINDOWS[3]]):
        compare(spark, place, plain, expressions)


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_tasks_return_groups_that_spark_adds_up(spark, place, plain, zone):
    spark.conf.set(DRIVER, "0")
    try:
        mixed = ["date_trunc('hour', ts)", WINDOWS[0], "floor(y / 3D)", "y / 3D", "s"]
        compare(spark, place, plain, mixed)
    finally:
        spark.conf.unset(DRIVER)


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_what_is_not_computed_here_is_left_to_spark(spark, place, plain, zone):
    ours = spark.sql(f"SELECT * FROM {searched(place)}")
    for query in (
        # Wrapped, offered and refused; the aggregates of the others are never offered.
        "SELECT floor(CAST(id AS DECIMAL(9, 2)) / 10), if(i > 1, s, NULL), count(*) FROM {t} "
        "GROUP BY 1, 2",
        "SELECT year(ts), count(DISTINCT s), approx_count_distinct(i), "
        "percentile_approx(id, 0.5) FROM {t} GROUP BY 1",
        "SELECT upper(s), date_trunc('hour', n), date_trunc('nonsense', ts), count(*) FROM {t} "
        "GROUP BY ROLLUP (1, 2), 3",
        "SELECT y, sum(c) FROM (SELECT year(t2) AS y, count(*) AS c FROM (SELECT ts AS t2, id FROM "
        "{t}) WHERE id <> 7 GROUP BY 1) GROUP BY 1",
    ):
        answers = [rows_of(spark.sql(query, t=frame)) for frame in (ours, plain)]
        assert answers[0] == answers[1], query


def test_a_view_keeps_the_time_zone_that_it_was_made_with(spark, place, plain):
    before = spark.conf.get("spark.sql.session.timeZone")
    plain.createOrReplaceTempView("plain_rows")
    query = "SELECT hour(ts) AS h, date_trunc('day', ts) AS d FROM {}"
    frames = []
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        for at, source in enumerate((searched(place), "plain_rows")):
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v{at} AS {query.format(source)}")
            frames.append(spark.sql(query.format(source)))
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        views = [spark.table("v0"), spark.table("v1")]
        for ours, theirs in (frames, views):
            counted = [one.groupBy("h", "d").count() for one in (ours, theirs)]
            assert is_pushed(counted[0])
            assert rows_of(counted[0]) == rows_of(counted[1])
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        for name in ("plain_rows", "v0", "v1"):
            spark.catalog.dropTempView(name)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_overflow_is_an_error_or_wraps_around(spark, place, plain, ansi):
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    query = "SELECT {0} AS g, count(*) FROM {1} GROUP BY {0}"
    plain.createOrReplaceTempView("plain_rows")
    try:
        for expression in (
            "id * 9223372036854775807", "i * 2147483647", "floor(x)",
            "CASE WHEN id < -1000 THEN id * 9223372036854775807 ELSE 1 END",
        ):  # fmt: skip
            outcomes = []
            for source in (searched(place), "plain_rows"):
                try:
                    found = spark.sql(query.format(expression, source)).collect()
                    outcomes.append(sorted(map(repr, found)))
                except Exception as error:
                    outcomes.append("ARITHMETIC_OVERFLOW" in str(error))
            assert outcomes[0] == outcomes[1], expression
            assert (outcomes[0] is True) == (ansi == "true" and "CASE" not in expression)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.catalog.dropTempView("plain_rows")


def test_no_wrapper_is_left_in_a_plan(spark, place):
    """Without the rule that unwraps, nothing is wrapped: a worker has no class of it."""
    query = f"SELECT hour(ts), count(*) FROM {searched(place)}"
    methods = spark._jsparkSession.experimental()
    known = methods.extraOptimizations()
    refused = spark.sql(f"{query} GROUP BY hour(ts), CAST(id AS DECIMAL(9, 2)) + id")
    assert "indextables_group" not in refused._jdf.queryExecution().toString()
    assert is_pushed(spark.sql(f"{query} GROUP BY 1"))
    getattr(methods, "extraOptimizations_$eq")(known.empty())
    try:
        assert not is_pushed(spark.sql(f"{query} GROUP BY 1"))
    finally:
        getattr(methods, "extraOptimizations_$eq")(known)
