"""The search functions where Spark evaluates them: every type, exact answers, never null."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PythonException
from pyspark.sql import functions as f

import indextables as it
from indextables import errors
from indextables.spark import functions, sql_entry


@pytest.fixture(scope="module", autouse=True)
def enabled(spark):
    sql_entry.install(spark)
    functions.register(spark)


@pytest.fixture(scope="module")
def docs(spark, enabled):
    rows = [(1, "Apache Spark", "red"), (2, "a lazy dog", "Spark"), (3, None, None)]
    frame = spark.createDataFrame(rows, "id int, content string, title string")
    # In one partition, as the function of a search starts a task's Python in each.
    return frame.coalesce(1).cache()


def ids(frame):
    return sorted(row[0] for row in frame.collect())


def matches(frame, *columns):
    """The answers of one column, or a list of them for each of several; one job for all."""
    found = frame.select(*(column.alias(f"m{n}") for n, column in enumerate(columns))).collect()
    assert all(isinstance(m, bool) for row in found for m in row), "true or false, never null"
    each = [[row[n] for row in found] for n in range(len(columns))]
    return each if len(columns) > 1 else each[0]


def test_indexquery_in_the_select_list_and_in_filters(docs):
    assert matches(docs, it.indexquery("content", "spark")) == [True, False, False]
    assert matches(
        docs,
        it.indexquery(docs.content, "spark OR dog"),
        ~it.indexquery("content", "spark"),
        it.indexquery("content", "NOT spark"),
    ) == [[True, True, False], [False, True, True], [False, True, True]]
    assert ids(docs.where(it.indexquery("content", "spark") | (f.col("id") == 3))) == [1, 3]
    assert ids(docs.where(it.indexquery(f.lower("content"), "spark"))) == [1]


def test_indexqueryall(docs):
    assert ids(docs.where(it.indexqueryall("spark"))) == [1, 2]
    assert matches(docs, it.indexqueryall("spark")) == [True, True, False]
    assert ids(docs.where(it.indexqueryall("red AND spark"))) == [1]
    assert ids(docs.where(it.indexqueryall("title:spark"))) == [2]
    assert ids(docs.where(it.indexqueryall("spark", "content"))) == [1]
    assert ids(docs.where(it.indexqueryall("spark", "title", docs.id))) == [2]
    assert ids(docs.where(it.indexquery("_indexall", "spark"))) == [1, 2]
    assert docs.withColumn("m", it.indexqueryall("spark")).columns == [*docs.columns, "m"]
    assert docs.select("*", it.indexqueryall("spark").alias("m")).columns == [*docs.columns, "m"]


def test_queries_that_name_fields(docs):
    assert ids(docs.where(it.indexquery("content", "title:spark"))) == [2]
    assert ids(docs.where(it.indexquery("content", "dog AND title:spark"))) == [2]
    assert ids(docs.where(it.indexquery("content", "content:dog"))) == [2]
    with pytest.raises(AnalysisException, match="nowhere"):
        docs.where(it.indexquery("content", "nowhere:x"))


def test_under_an_outer_join(spark, docs):
    left = spark.range(1, 5)
    joined = left.join(docs.withColumnRenamed("id", "doc"), left.id == f.col("doc"), "left")
    assert ids(joined.where(it.indexquery("content", "spark"))) == [1]
    assert ids(joined.where(it.indexquery("content", "spark") == f.lit(False))) == [2, 3, 4]


NOW = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
TYPES = [
    ("tinyint", 5, "5", "6"),
    ("smallint", 5, "[5 TO 7]", "{5 TO 7]"),
    ("int", -5, ">-6", "<-5"),
    ("bigint", 2**60, str(2**60), str(2**60 + 1)),
    ("float", 0.5, "0.5", "0.6"),
    ("double", 1.5, "[1 TO 2]", "[2 TO 3]"),
    ("decimal(20,2)", Decimal("12.30"), "12.30", "12.31"),
    ("boolean", True, "true", "false"),
    ("date", datetime.date(2024, 5, 6), "2024-05-06", "2024-05-07"),
    ("timestamp", NOW, "[2024-05-06 TO 2024-05-07]", "[2024-05-07 TO *]"),
    ("timestamp_ntz", NOW.replace(tzinfo=None), "[2024-05-06 TO 2024-05-07]", "[2024-05-07 TO *]"),
    ("string", "red fox", "fox", "wolf"),
    ("varchar(20)", "red fox", '"red fox"', '"fox red"'),
    ("array<string>", ["red", "lazy fox"], "lazy", "wolf"),
    ("array<int>", [1, 2], "2", "3"),
    ("struct<a:string,b:int>", ("red fox", 7), "fox", "wolf"),
    ("map<string,string>", {"k": "red fox"}, "fox", "wolf"),
    ("array<struct<a:string>>", [("red fox",)], "fox", "wolf"),
]


@pytest.mark.parametrize(("kind", "value", "yes", "no"), TYPES, ids=[t[0] for t in TYPES])
def test_columns_of_every_type(spark, kind, value, yes, no):
    plain = "string" if kind.startswith("varchar") else kind
    frame = spark.createDataFrame([(value,), (None,)], f"v {plain}").coalesce(1)
    assert matches(
        frame, it.indexquery("v", yes), it.indexquery("v", no), it.indexqueryall(yes)
    ) == [[True, False], [False, False], [True, False]]


def test_a_column_of_nulls_and_columns_no_table_can_hold(spark):
    frame = spark.sql(
        "SELECT NULL AS nothing, INTERVAL '1' DAY AS span, CAST('fox' AS BINARY) AS raw, 'fox' AS t"
    )
    assert matches(frame, it.indexquery("nothing", "fox")) == [False]
    assert matches(frame, it.indexqueryall("fox")) == [True]
    assert matches(frame.drop("t"), it.indexqueryall("fox")) == [False]


def test_many_rows_in_several_batches(spark):
    frame = spark.range(30_000).select("id", f.concat(f.lit("word"), f.col("id") % 1000).alias("w"))
    assert frame.where(it.indexquery("w", "word7")).count() == 30
    assert frame.where(it.indexquery("w", "word99*")).count() == 30 * 11
    assert frame.limit(0).where(it.indexquery("w", "word7")).count() == 0
    assert frame.where("id < 0").select(it.indexqueryall("word7")).count() == 0


def test_snippets_are_escaped_html(docs, spark):
    frame = spark.createDataFrame([("<i>red</i> fox",), (None,)], "v string")
    shown = [row[0] for row in frame.select(it.snippet("v", "RED")).collect()]
    assert shown == ["&lt;i&gt;<b>red</b>&lt;/i&gt; fox", ""]
    named = docs.where("id = 1").select(it.snippet("content", "title:spark OR nothing")).first()[0]
    assert named == "Apache <b>Spark</b>"


@pytest.mark.parametrize(
    "make",
    [
        lambda query: it.indexquery("content", query),
        it.indexqueryall,
        lambda query: it.snippet("content", query),
    ],
)
def test_mistakes_are_found_when_the_column_is_made(docs, make):
    with pytest.raises(errors.QuerySyntaxError, match="Cannot parse"):
        make("((")
    for wrong in (docs.title, None, 3):
        with pytest.raises(errors.SearchCallError, match="takes the query as text"):
            make(wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.call_function("indexquery", f.col("content"), f.col("title")), "in quotes"),
        (lambda: f.call_function("indexquery", f.col("content")), "exactly 2 arguments"),
        (lambda: f.call_function("indexquery", f.col("content"), f.lit(None)), "no null"),
        (
            lambda: f.call_function("indexquery", f.col("content"), f.lit("title:x")),
            "cannot look at the field 'title'",
        ),
        (lambda: f.call_function("indexqueryall", f.lit("x")), "exactly 1 argument"),
        (lambda: f.call_function("indexqueryall", f.col("id"), f.lit("x")), "searches rows"),
        (lambda: f.call_function("snippet", f.col("id"), f.lit("x")), "words of a text"),
    ],
)
def test_what_bypasses_the_checks_fails_and_is_never_true(docs, call, message):
    # What the types tell is refused before a task begins.
    with pytest.raises((PythonException, IllegalArgumentException), match=message):
        docs.select(call()).collect()


def test_registering_twice_and_in_a_new_session(spark):
    functions.register(spark)
    other = type(spark).newSession.__wrapped__(spark)  # ours would enable it
    functions.register(other)
    for name in ("indexquery", "tantivy4spark_indexquery"):
        assert other.sql(f"SELECT {name}('red fox', 'fox')").first()[0] is True
    assert other.sql("SELECT snippet('red fox', 'fox')").first()[0] == "red <b>fox</b>"


def test_a_function_of_the_user_stays(spark):
    other = spark.newSession()
    other.udf.register("snippet", lambda text: "mine")
    functions.register(other)
    assert other.sql("SELECT snippet('x')").first()[0] == "mine"


def test_equal_searches_make_equal_plans(docs):
    cached = docs.where(it.indexquery("content", "spark")).cache()
    try:
        cached.count()
        again = docs.where(it.indexquery("content", "spark"))
        plan = again._jdf.queryExecution().optimizedPlan().toString()
        assert plan.startswith("InMemoryRelation")
    finally:
        cached.unpersist()
