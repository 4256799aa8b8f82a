"""Every shape of an aggregate that Spark's optimizer may offer to a scan, beside Parquet."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from indextables import Table

DRIVER = "spark.indextables.read.driver.maxRows"
ROWS = """
    SELECT * FROM VALUES
      (1, 'a', 'red fox', 1.50BD, 2.5D, true,  DATE'2024-01-01', TIMESTAMP'2024-01-01 10:00:00'),
      (2, 'a', 'red dog', NULL, DOUBLE('NaN'), false, NULL, TIMESTAMP'2024-01-02 10:00:00'),
      (3, 'b', NULL,      -7.25BD, -0.0D, NULL,  DATE'2024-01-03', NULL),
      (4, 'b', 'lazy fox', 9.75BD, 0.0D, true,  DATE'2024-01-03', TIMESTAMP'2024-01-02 10:00:00'),
      (NULL, NULL, 'data', 0.00BD, NULL, false, DATE'2024-01-01', TIMESTAMP'2024-01-01 10:00:00')
    AS t(n, part, text, price, d, flag, day, at)
"""
# `{t}` is the table. Spark prunes, folds and rewrites these in its own ways before it offers them.
SHAPES = [
    # Aggregates that nobody looks at: the row remains, its columns do not.
    "SELECT agg IS NOT NULL FROM (SELECT collect_list(n) AS agg FROM {t})",
    "SELECT 1 FROM (SELECT count(*) FROM {t})",
    "SELECT 1 FROM (SELECT sum(n) AS s, max(text) FROM {t})",
    "SELECT count(*) FROM (SELECT max(n) FROM {t})",
    "SELECT count(*) FROM (SELECT DISTINCT part FROM {t})",
    "SELECT count(*) FROM (SELECT part, sum(n) FROM {t} GROUP BY part)",
    "SELECT 1 FROM (SELECT max(n) FROM {t} WHERE part = 'none')",
    "SELECT 1 FROM {t} HAVING true",
    "SELECT 1 FROM {t} HAVING count(*) >= 0",
    "SELECT EXISTS (SELECT max(n) FROM {t})",
    # Groups alone, constant ones and repeated ones.
    "SELECT 1 FROM {t} GROUP BY part",
    "SELECT DISTINCT part, flag FROM {t}",
    "SELECT part FROM {t} GROUP BY part, part",
    "SELECT 'x' FROM {t} GROUP BY 'x'",
    "SELECT count(*) FROM {t} GROUP BY 'x'",
    "SELECT count(n), count(n), count(NULL), sum(n), max(part), min(d) FROM {t}",
    "SELECT part, count(n) FILTER (WHERE flag), count(DISTINCT day) FROM {t} GROUP BY part",
    "SELECT count(*), sum(n), min(text), max(day), avg(price) FROM {t} WHERE n > 99",
]
MORE_SHAPES = [
    "SELECT 1 FROM {t} HAVING count(*) < 0",
    "SELECT 7 IN (SELECT max(n) FROM {t})",
    "SELECT (SELECT max(n) FROM {t}), 1",
    "SELECT part FROM {t} GROUP BY part",
    "SELECT count(*) FROM {t} GROUP BY part, 'x', NULL",
    "SELECT part, flag, count(*), grouping(part) FROM {t} GROUP BY ROLLUP(part, flag)",
    "SELECT part, count(*) FROM {t} GROUP BY GROUPING SETS ((part), ())",
    "SELECT part, count(*) FROM {t} GROUP BY CUBE(part)",
    "SELECT DISTINCT d FROM {t}",
    "SELECT d, count(*) FROM {t} GROUP BY d",
    "SELECT upper(part), count(*) FROM {t} GROUP BY upper(part)",
    "SELECT n % 2, count(*), sum(n) FROM {t} GROUP BY n % 2",
    "SELECT n + 1, sum(n) + n FROM {t} GROUP BY n",
    "SELECT day, at, count(*) FROM {t} GROUP BY day, at",
    "SELECT price, count(*) FROM {t} GROUP BY price",
    # Counts of everything and of nothing.
    "SELECT count(*), count(1), count(NULL), count(n), count(part), count(d) FROM {t}",
    "SELECT count(n, part), count(DISTINCT n, part) FROM {t}",
    "SELECT count(n), count(n), sum(n), sum(n) FROM {t}",
    "SELECT count(DISTINCT part), count(DISTINCT n), sum(DISTINCT n), count(part) FROM {t}",
    "SELECT part, count(DISTINCT flag), count(DISTINCT day) FROM {t} GROUP BY part",
    "SELECT min(DISTINCT n), max(DISTINCT part), avg(DISTINCT n) FROM {t}",
    # Filters of single aggregates, and expressions in and around them.
    "SELECT count(*) FILTER (WHERE n > 1), sum(n) FILTER (WHERE part = 'a') FROM {t}",
    "SELECT count(*) FILTER (WHERE false), max(n) FILTER (WHERE n IS NULL) FROM {t}",
    "SELECT part, count(n) FILTER (WHERE flag) FROM {t} GROUP BY part",
    "SELECT sum(n + 1), sum(-n), max(length(text)), min(abs(price)), sum(1), max(1) FROM {t}",
    "SELECT sum(n) / count(n), -min(n), coalesce(max(price), 0) FROM {t}",
    "SELECT sum(CASE WHEN flag THEN n ELSE 0 END), count_if(flag), any_value(1) FROM {t}",
    "SELECT max(struct(n, part)), min(array(n)), max_by(part, n), bool_and(flag) FROM {t}",
    # All types.
    "SELECT min(d), max(d), sum(d), avg(d) FROM {t} WHERE n < 2",
    "SELECT min(d), max(d) FROM {t}",
    "SELECT min(flag), max(flag), min(day), max(day), min(text), max(text) FROM {t}",
    "SELECT CAST(min(at) AS string), CAST(max(at) AS string) FROM {t}",
    "SELECT sum(price), avg(price), min(price), max(price), avg(n), avg(d) FROM {t} WHERE n <> 2",
    "SELECT part, avg(price), avg(n), sum(price) FROM {t} GROUP BY part",
    "SELECT round(stddev(n), 9), round(var_pop(n), 9), approx_count_distinct(n) FROM {t}",
    # Nothing is left.
    "SELECT count(*), sum(n), min(text), max(day), avg(price) FROM {t} WHERE n > 99",
    "SELECT count(*), sum(n), min(text) FROM {t} WHERE part = 'none'",
    "SELECT count(*), max(n) FROM {t} WHERE false",
    "SELECT 1 FROM (SELECT max(n) FROM {t} WHERE part = 'none')",
    "SELECT part, count(*), sum(n) FROM {t} WHERE n > 99 GROUP BY part",
    "SELECT part FROM {t} WHERE part = 'none' GROUP BY part",
    # Conditions that are ours, that are the log's, and that are Spark's.
    "SELECT count(*), max(n) FROM {t} WHERE text LIKE 'red%'",
    "SELECT count(*), max(n) FROM {t} WHERE part = 'a'",
    "SELECT part, count(*), max(n) FROM {t} WHERE part = 'a' GROUP BY part",
    "SELECT part, max(part), count(part) FROM {t} GROUP BY part",
    "SELECT max(part), min(part), count(part) FROM {t}",
    "SELECT count(*), max(n) FROM {t} WHERE reverse(text) LIKE 'xof%'",
    "SELECT part, max(n) FROM {t} WHERE rand() < 2 GROUP BY part",
    # Under and over other operators.
    "SELECT count(*) FROM (SELECT * FROM {t} LIMIT 3)",
    "SELECT max(n) FROM (SELECT n FROM {t} ORDER BY n LIMIT 2)",
    "SELECT sum(c) FROM (SELECT part, count(*) AS c FROM {t} GROUP BY part)",
    "SELECT max(m) FROM (SELECT max(n) AS m FROM {t} UNION ALL SELECT min(n) FROM {t})",
    "SELECT part, s FROM (SELECT part, sum(n) AS s FROM {t} GROUP BY part) WHERE s > 2",
    "SELECT part, sum(n) AS s FROM {t} GROUP BY part ORDER BY s DESC NULLS LAST, part LIMIT 2",
    "SELECT part FROM {t} GROUP BY part ORDER BY part LIMIT 1",
    "SELECT x.part, count(*) FROM {t} x JOIN {t} y ON x.part = y.part GROUP BY x.part",
    "SELECT n, sum(n) OVER (PARTITION BY part) FROM {t}",
    "SELECT c.part, c.k FROM (SELECT part, count(*) k FROM {t} GROUP BY part) c "
    "JOIN (SELECT part, max(n) FROM {t} GROUP BY part) m ON c.part = m.part",
]


@pytest.fixture(scope="module")
def places(spark, tmp_path_factory):
    """The same rows as Parquet and as an index table, in the layouts that are planned apart."""
    folder = tmp_path_factory.mktemp("shapes")
    rows = spark.sql(ROWS).toArrow()
    made = {}
    for name, kept, partitions in (
        ("flat", rows, []),
        ("parted", rows, ["part"]),
        ("empty", rows.slice(0, 0), []),
    ):
        parquet, index = f"{folder}/{name}.parquet", f"{folder}/{name}"
        table = Table.create(index, rows.schema, partition_by=partitions)
        for part in (kept.slice(0, 2), kept.slice(2)):
            table.append(part)
        spark.sql(ROWS).limit(kept.num_rows).coalesce(1).write.partitionBy(*partitions).parquet(
            parquet
        )
        made[name] = (f"parquet.`{parquet}`", f"indextables.`{index}`")
    return made


@pytest.mark.usefixtures("compiled_plans")
@pytest.mark.parametrize(
    ("layout", "on_driver", "shapes"),
    [
        ("parted", True, SHAPES),
        ("empty", True, SHAPES[:8]),
        *(
            pytest.param(layout, on_driver, SHAPES + MORE_SHAPES, marks=pytest.mark.long)
            for layout in ("flat", "parted", "empty")
            for on_driver in (True, False)
        ),
    ],
)
def test_an_aggregate_answers_as_on_parquet(spark, places, layout, on_driver, shapes):
    parquet, index = places[layout]
    if not on_driver:
        spark.conf.set(DRIVER, "0")
    try:
        wrong = []
        for shape in shapes:
            expected, found = (_answer(spark, shape.format(t=t)) for t in (parquet, index))
            if found != expected:
                wrong.append(f"{shape}: {found} instead of {expected}")
        assert not wrong, "\n".join(wrong)
    finally:
        spark.conf.unset(DRIVER)


def _answer(spark, query):
    try:
        return sorted(repr(tuple(row)) for row in spark.sql(query).collect())
    except PySparkException as error:
        return f"{query} {error}"[:1000]
