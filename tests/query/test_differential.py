"""Queries at random, answered without Spark and by Spark: the same rows, of the same types."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import indextables as it
from indextables.errors import EmbeddedQueryError

sys.path.insert(0, str(Path(__file__).parent))

from random_queries import Queries, first_table, second_table
from same_rows import difference

# Whole queries that were once wrong, or that engines like to get wrong.
CASES = " ".join(["straße", "ΟΔΟΣ", "αΣ", "İx", "\ufb00i", "\u01c6u", "o-neil", "a\tb", "\u0149"])
KNOWN = [
    f"SELECT upper(concat(s, '{CASES}')) AS a, lower(concat(s, '{CASES}')) AS b FROM one",
    f"SELECT initcap(concat('{CASES}', s)) AS a, initcap(' {CASES}  x') AS b FROM one",
    "SELECT s ILIKE 'ÜN%' AS a, concat(s, 'ΟΔΟΣ') ILIKE '%οδος' AS b, g ILIKE upper(g) AS c, "
    "s NOT ILIKE 'r!%' ESCAPE '!' AS e, s ILIKE 'A\\\\_B' AS f FROM one",
    "SELECT avg(d) AS a, avg(amount) AS b FROM one JOIN two ON one.g = two.g",
    "SELECT g, avg(d) FILTER (WHERE n > 0) AS a, sum(d) / count(d) AS b FROM one GROUP BY g",
    "SELECT id, avg(d) OVER (PARTITION BY g ORDER BY id ROWS 2 PRECEDING) AS a FROM one",
    "SELECT d / 0.7 AS a, d / n AS b, d % 3 AS c, n / 3 AS e, b / d AS f FROM one WHERE n <> 0 "
    "AND d <> 0",
    "SELECT avg(a) AS b FROM (SELECT d / 3 AS a FROM one) s",
    "WITH c AS (SELECT g, avg(d) AS a FROM one GROUP BY g) SELECT max(a) / 7 AS b FROM c",
    "SELECT id FROM one t WHERE n IN (SELECT k FROM two u WHERE u.g = t.g) OR id = 3",
    "SELECT n FROM one EXCEPT ALL SELECT k FROM two",
    "SELECT g FROM one INTERSECT ALL SELECT g FROM two",
    "SELECT CAST(x AS STRING) AS a, concat('<', x, '>') AS b, CAST(d AS INT) AS c FROM one",
    "SELECT pmod(n, 3) AS a, n % 3 AS b, n div 2 AS c, nanvl(x, 1D) AS e FROM one",
    "SELECT dayofweek(day) AS a, weekday(day) AS b, trunc(day, 'YEAR') AS c, trunc(day, 'MM') AS e,"
    " date_trunc('HOUR', at) AS f, date_add(day, id) AS g FROM one",
    "SELECT substring(s, n) AS a, substring(s, n, 2) AS b, left(s, n) AS c, right(s, n) AS e "
    "FROM one",
    "SELECT substring_index(s, ' ', 1) AS a, substring_index(s, 'o', -1) AS b, "
    "substring_index(s, 'o', 5) AS c, substring_index(s, 'o', -5) AS e, "
    "substring_index(s, 'x', 0) AS f FROM one",
    "SELECT any(flag) AS a, max(CAST(CAST(x AS FLOAT) AS STRING)) AS b FROM one GROUP BY id",
    "SELECT lpad(s, 3, 'xy') AS a, rpad(s, 6, 'xy') AS b, repeat(s, 2) AS c FROM one",
    "SELECT x, count(*) AS n, min(x) AS a, max(x) AS b FROM one GROUP BY x",
    "SELECT sum(n) AS a, sum(b) AS c, sum(d) AS e, sum(x) AS f, sum(id) + 1 AS h FROM one",
    "SELECT s LIKE 'a\\\\_b' AS a, s LIKE '%\\\\%' AS b, s LIKE 'a|_b' ESCAPE '|' AS c FROM one",
    "SELECT count_if(n > 1) AS a, count_if(n > 1) FILTER (WHERE id > 99) AS b FROM one",
]


@pytest.fixture(scope="module")
def answers(spark):
    """Two functions of a query: our rows, and Spark's."""
    tables = {"one": first_table(), "two": second_table()}
    for name, rows in tables.items():
        spark.createDataFrame(rows).createOrReplaceTempView(name)
    one = it.write_table("memory://differential-one", tables["one"].slice(0, 7))
    one.append(tables["one"].slice(7))
    # An index table and an Arrow table.
    yield (
        lambda query: it.sql(query, one=one, two=tables["two"]),
        lambda query: spark.sql(query).toArrow(),
    )
    for name in tables:
        spark.catalog.dropTempView(name)


def compared(answers, query):
    ours, theirs = answers
    wanted = theirs(query)
    try:
        return difference(ours(query), wanted, ordered="FROM one t ORDER BY" in query)
    except EmbeddedQueryError as error:
        return str(error)


def test_known_queries_have_the_rows_that_they_have_in_spark(answers):
    wrong = {query: what for query in KNOWN if (what := compared(answers, query))}
    assert not wrong


def check(answers, seeds):
    wrong = {}
    for seed in seeds:
        query = Queries(seed).query()
        if what := compared(answers, query):
            wrong[seed, query] = what
    assert not wrong


def test_a_few_random_queries_have_the_rows_that_they_have_in_spark(answers):
    check(answers, range(12))


@pytest.mark.long
def test_many_random_queries_have_the_rows_that_they_have_in_spark(answers):
    check(answers, range(12, 1_000))
