"""SQL text through an enabled session: searches anywhere, statements, everything else untouched."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.functions import expr

from indextables import Table, enable, errors
from indextables.spark import functions, sql_entry

DOCS = [
    (1, "apache spark makes machine learning easy", "data frames", "a", "2024-01-01", 10),
    (2, "sql and dataframe with spark", "database", "a", "2024-01-01", 9),
    (3, "deep neural networks", "apache", "b", "2024-02-01", 11),
    (4, "error OR exception in 'quotes'", "spark", "b", "2024-02-01", 12),
    (5, None, None, None, "2024-12-31", None),
]
COLUMNS = "id int, content string, title string, category string, timestamp string, hour int"


@pytest.fixture(scope="module", autouse=True)
def docs(spark):
    sql_entry.install(spark)
    functions.register(spark)
    rows = spark.createDataFrame(DOCS, COLUMNS)
    typed = rows.withColumn("timestamp", f.to_timestamp("timestamp"))
    # In one partition, as the function of a search starts a task's Python in each.
    typed = typed.withColumn("date", f.to_date("timestamp")).coalesce(1).cache()
    names = ("documents", "articles", "events", "logs")
    for name in names:
        typed.createOrReplaceTempView(name)
    spark.sql("SELECT id, id AS product_id FROM documents").createOrReplaceTempView("orders")
    spark.sql("SELECT id, title AS name FROM documents").createOrReplaceTempView("products")
    spark.sql("SELECT id AS product_id, content FROM documents").createOrReplaceTempView("reviews")
    yield typed
    for name in (*names, "orders", "products", "reviews"):
        spark.catalog.dropTempView(name)
    typed.unpersist()


def ids(frame):
    return sorted(row[0] for row in frame.collect())


# --- the examples of seed 003 §9.2 and §9.8 ----------------------------------------------------

EXAMPLES = [
    ("SELECT * FROM documents WHERE content indexquery 'machine learning';", [1]),
    ("SELECT * FROM documents\nWHERE content indexquery 'spark AND (sql OR dataframe)';", [2]),
    ("SELECT * FROM documents WHERE content indexquery '\"apache spark\"'", [1]),
    ("SELECT * FROM documents WHERE title indexquery 'data*'", [1, 2]),
    (
        "SELECT * FROM events WHERE timestamp indexquery '[2024-01-01 TO 2024-12-31]'",
        [1, 2, 3, 4, 5],
    ),
    ("SELECT * FROM events WHERE timestamp indexquery '[2024-01-15 TO 2024-02-15]'", [3, 4]),
    (
        "SELECT * FROM articles "
        "WHERE content indexquery '(machine AND learning) OR (deep AND neural)'",
        [1, 3],
    ),
    ("SELECT * FROM documents WHERE _indexall indexquery 'apache spark'", [1, 2, 3, 4]),
    ("SELECT * FROM documents WHERE indexqueryall('apache spark')", [1, 2, 3, 4]),
    (
        "SELECT * FROM documents "
        "WHERE _indexall indexquery '(deep OR sql) AND (apache OR database)'",
        [2, 3],
    ),
    (
        "SELECT * FROM logs WHERE date = '2024-02-01' AND _indexall indexquery 'error OR warning'",
        [4],
    ),
    (
        "SELECT * FROM events WHERE date = '2024-01-01' AND hour >= 10 "
        "AND message_or(content) indexquery 'spark OR exception'",
        [1],
    ),
    (
        "SELECT orders.id, products.name, reviews.content FROM orders "
        "JOIN products ON orders.product_id = products.id "
        "JOIN reviews ON products.id = reviews.product_id "
        "WHERE reviews.content indexquery 'machine AND easy'",
        [1],
    ),
    (
        "SELECT COUNT(*) AS count, category FROM articles "
        "WHERE content indexquery 'spark' GROUP BY category",
        [2],
    ),
    (
        "SELECT id, title, content, "
        "ROW_NUMBER() OVER (PARTITION BY category ORDER BY timestamp DESC) AS rank "
        "FROM articles WHERE content indexquery 'spark AND easy' ORDER BY rank",
        [1],
    ),
    ("SELECT * FROM documents WHERE tantivy4spark_indexquery('content', 'machine learning')", [1]),
    ("SELECT * FROM documents WHERE tantivy4spark_indexqueryall('apache spark')", [1, 2, 3, 4]),
]


@pytest.mark.parametrize(("sql", "expected"), EXAMPLES, ids=[sql[:60] for sql, _ in EXAMPLES])
def test_examples_of_the_seed(spark, sql, expected):
    assert ids(spark.sql(sql.replace("message_or(content)", "content"))) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("tantivy4spark_indexquery('content', 'machine learning')", [1]),
        ("_indexall indexquery 'apache' AND id < 3", [1]),
        pytest.param("content indexquery 'machine learning'", [1], marks=pytest.mark.long),
        pytest.param(
            "tantivy4spark_indexqueryall('apache spark')", [1, 2, 3, 4], marks=pytest.mark.long
        ),
    ],
)
def test_expr_filter_and_where(docs, condition, expected):
    assert ids(docs.filter(expr(condition))) == expected
    assert ids(docs.filter(condition)) == expected
    assert ids(docs.where(condition)) == expected
    assert ids(docs.selectExpr("id", f"({condition}) AS m").where("m")) == expected
    assert ids(docs.selectExpr(["id", f"{condition} AS m"]).where("m")) == expected
    assert ids(docs.select("id", expr(condition).alias("m")).where("m")) == expected
    assert ids(docs.withColumn("m", expr(condition)).where("m")) == expected


# --- anywhere in a statement -------------------------------------------------------------------

ANYWHERE = {
    "a CTE": "WITH c AS (SELECT * FROM documents WHERE content indexquery 'spark') "
    "SELECT id FROM c WHERE title INDEXQUERY 'data*'",
    "a subquery": "SELECT id FROM (SELECT * FROM documents) q WHERE q.content indexquery 'spark'",
    "IN": "SELECT id FROM documents WHERE id IN "
    "(SELECT id FROM articles WHERE content indexquery 'spark')",
    "a join condition": "SELECT a.id FROM documents a JOIN articles b "
    "ON a.id = b.id AND a.content indexquery 'spark'",
    "CASE": "SELECT id FROM documents "
    "WHERE CASE WHEN content indexquery 'spark' THEN true ELSE false END",
    "HAVING": "SELECT id FROM documents GROUP BY id, content HAVING content indexquery 'spark'",
    "a window": "SELECT id FROM (SELECT id, content indexquery 'spark' AS m, "
    "row_number() OVER (PARTITION BY content indexquery 'spark' ORDER BY id) AS n "
    "FROM documents) WHERE m",
    "UNION": "SELECT id FROM documents WHERE content indexquery 'apache' UNION ALL "
    "SELECT id FROM documents WHERE content indexquery 'sql'",
    "a qualified back-ticked name": "SELECT id FROM documents d "
    "WHERE `d`.`content` IndexQuery 'spark'",
    "NOT": "SELECT id FROM documents WHERE NOT content NOT indexquery 'spark'",
    "OR of two": "SELECT id FROM documents "
    "WHERE content indexquery 'apache' OR content indexquery 'dataframe'",
    "comments": "SELECT id /* content indexquery 'no' */ FROM documents "
    "-- content indexquery '((('\nWHERE content indexquery 'spark'",
    "an expression": "SELECT id FROM documents WHERE lower(content) indexquery 'spark'",
    "FILTER": "SELECT explode(collect_list(id) FILTER (WHERE content indexquery 'spark')) "
    "FROM documents",
    "a lateral view of the row": "SELECT id FROM documents WHERE "
    "content indexquery 'spark' AND indexqueryall('data* OR database')",
}


@pytest.mark.parametrize("place", ANYWHERE)
def test_anywhere(spark, place):
    assert ids(spark.sql(ANYWHERE[place])) == [1, 2]


def test_all_fields_in_subqueries_and_joins(spark):
    sql = (
        "SELECT d.id FROM (SELECT * FROM documents WHERE _indexall indexquery 'apache') d "
        "JOIN orders o ON d.id = o.id"
    )
    assert ids(spark.sql(sql)) == [1, 3]
    # Qualified, the row is that of one relation.
    sql = "SELECT d.id FROM documents d JOIN products p ON d.id = p.id WHERE {} indexquery 'apache'"
    assert ids(spark.sql(sql.format("d._indexall"))) == [1, 3]
    assert ids(spark.sql(sql.format("p._indexall"))) == [3]


def test_all_fields_under_an_outer_join(spark):
    sql = (
        "SELECT o.id, indexqueryall('NOT sql') FROM orders o "
        "LEFT JOIN (SELECT id AS x, content FROM documents WHERE id < 3) d ON o.id = d.x "
    )
    assert dict(tuple(r) for r in spark.sql(sql).collect())[1] is True


def test_all_fields_where_no_row_can_be_seen(spark):
    for sql in (
        "SELECT 1 FROM documents d JOIN orders o ON d._indexall indexquery 'x'",
        "SELECT id FROM documents GROUP BY id HAVING indexqueryall('x')",
    ):
        with pytest.raises(errors.SearchCallError, match="search in a subquery"):
            spark.sql(sql)


def test_text_is_never_touched(spark):
    sql = """SELECT 'a indexquery \\'((\\'' AS a, "x indexquery 'y'" AS b, 1 AS indexquery"""
    assert tuple(spark.sql(sql).first()) == ("a indexquery '(('", "x indexquery 'y'", 1)


def test_columns_and_aliases_named_like_the_operator(spark):
    frame = spark.sql("SELECT id AS indexquery, content AS indexqueryall FROM documents")
    assert frame.columns == ["indexquery", "indexqueryall"]
    frame.createOrReplaceTempView("odd")
    sql = "SELECT indexquery FROM odd WHERE indexqueryall indexquery 'spark' AND indexquery > 1"
    assert ids(spark.sql(sql)) == [2]
    with_cte = "WITH indexquery(a) AS (SELECT 1) SELECT a FROM indexquery"
    assert ids(spark.sql(with_cte)) == [1]


def test_queries_that_name_other_fields(spark, docs):
    sql = "SELECT id FROM documents WHERE content indexquery 'title:spark OR machine'"
    assert ids(spark.sql(sql)) == [1, 4]
    sql = (
        "SELECT d.id FROM documents d JOIN documents e ON d.id = e.id "
        "WHERE d.content indexquery 'title:spark OR machine'"
    )
    assert ids(spark.sql(sql)) == [1, 4]
    assert ids(docs.filter("_indexall indexquery 'title:spark OR content:machine'")) == [1, 4]
    with pytest.raises(AnalysisException, match="nowhere"):
        spark.sql("SELECT id FROM documents WHERE content indexquery 'nowhere:spark'")


def test_arguments_and_frames(spark, docs):
    named = "SELECT id FROM documents WHERE content indexquery :q AND id < :n"
    assert ids(spark.sql(named, args={"q": "spark", "n": 2})) == [1]
    placed = "SELECT id FROM documents WHERE id < ? AND content indexquery ?"
    assert ids(spark.sql(placed, args=[2, "spark"])) == [1]
    assert ids(spark.sql(placed, [2, "spark"])) == [1]
    formatted = "SELECT id FROM {frame} WHERE content indexquery {query} AND id < {n}"
    assert ids(spark.sql(formatted, frame=docs, query="spark", n=2)) == [1]
    plain = "SELECT id FROM {frame} WHERE id < :n"
    assert ids(spark.sql(plain, args={"n": 2}, frame=docs)) == [1]
    assert ids(spark.sql(sqlQuery="SELECT 7")) == [7]
    with pytest.raises(errors.QuerySyntaxError):
        spark.sql(named, args={"q": "(((", "n": 2})


def test_views(spark):
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW found AS SELECT * FROM documents "
        "WHERE content indexquery 'spark' AND indexqueryall('data* OR database')"
    )
    assert ids(spark.sql("SELECT id FROM found")) == [1, 2]
    assert ids(spark.table("found").where("title indexquery 'data'")) == [1]
    spark.sql("CACHE TABLE kept AS SELECT id FROM documents WHERE content indexquery 'sql'")
    assert ids(spark.table("kept")) == [2]
    spark.sql("UNCACHE TABLE kept")


def test_a_persistent_view_keeps_working(spark):
    spark.sql("CREATE TABLE rows_of_view USING parquet AS SELECT id, content FROM documents")
    spark.sql(
        "CREATE VIEW lasting AS SELECT id, content FROM rows_of_view "
        "WHERE content indexquery 'spark' AND _indexall indexquery 'sql'"
    )
    try:
        assert ids(spark.sql("SELECT id FROM lasting")) == [2]
        other = enable(spark.newSession())
        assert ids(other.sql("SELECT id FROM lasting")) == [2]
        assert ids(other.sql("SELECT id FROM lasting WHERE content indexquery 'dataframe'")) == [2]
        shown = spark.sql("SHOW CREATE TABLE lasting").first()[0]
        assert "indexquery(content" in shown
    finally:
        spark.sql("DROP VIEW lasting")
        spark.sql("DROP TABLE rows_of_view")


def test_other_objects_of_the_session_know_it_too(spark):
    active = SparkSession.getActiveSession()
    sql = "SELECT id FROM documents WHERE content indexquery 'sql'"
    assert ids(active.sql(sql)) == [2]
    assert ids(spark.table("documents").sparkSession.sql(sql)) == [2]


def test_a_session_that_is_not_enabled_is_left_alone(spark, docs):
    other = type(spark).newSession.__wrapped__(spark)  # ours would enable it
    with pytest.raises(ParseException):
        other.sql("SELECT 1 WHERE 'a' indexquery 'b'")
    with pytest.raises(ParseException):
        other.sql("FLUSH INDEXTABLES SEARCHER CACHE")
    with pytest.raises(ParseException):
        other.range(3).filter("id indexquery '3'")


def test_installing_twice_wraps_once(spark):
    before = type(spark).sql
    sql_entry.install(spark)
    assert type(spark).sql is before


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("content indexquery '((spark'", errors.QuerySyntaxError, "Cannot parse the search query"),
        ("content indexquery 'a AND AND b'", errors.QuerySyntaxError, "on content"),
        ("indexqueryall('title:')", errors.QuerySyntaxError, "Cannot parse the search query"),
        ("indexquery(content)", errors.SearchCallError, "requires exactly 2 arguments"),
        ("indexquery(content, title)", errors.SearchCallError, "in quotes or a parameter"),
        ("nothing indexquery 'x'", AnalysisException, "nothing"),
        ("tantivy4spark_indexquery('nothing', 'x')", AnalysisException, "nothing"),
        ("content indexquery title", ParseException, "indexquery"),
    ],
)
def test_errors_come_at_once_and_disturb_nothing(spark, docs, sql, error, message):
    with pytest.raises(error, match=message):
        spark.sql(f"SELECT * FROM documents WHERE {sql}")
    with pytest.raises(error, match=message):
        docs.filter(sql)
    assert ids(docs.filter("content indexquery 'sql'")) == [2]


def test_snippets(spark):
    sql = "SELECT id, snippet(content) FROM documents WHERE content indexquery 'quotes AND error'"
    assert [tuple(r) for r in spark.sql(sql).collect()] == [
        (4, "<b>error</b> OR exception in &#x27;<b>quotes</b>&#x27;")
    ]


# --- statements --------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path, spark):
    # Not the cache of whoever runs the tests.
    spark.conf.set("spark.indextables.cache.disk.path", str(tmp_path / "cache"))
    yield from _table(tmp_path)
    spark.conf.unset("spark.indextables.cache.disk.path")


def _table(tmp_path):
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "body": ["red fox", "lazy dog"]})
    table = Table.create(str(tmp_path / "docs-of-indexquery"), rows.schema)
    table.append(rows)
    yield table


def test_statements_give_frames(spark, table):
    rows = spark.sql("FLUSH TANTIVY4SPARK SEARCHER CACHE;").collect()
    assert [r.cache_type for r in rows] == [
        "split_cache",
        "location_registry",
        "tantivy_java_cache",
    ]
    assert {r.status for r in rows} == {"success"}
    frame = spark.sql(f"INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR '{table.uri}'")
    assert frame.columns == [
        "table_path", "result", "cache_hits_before", "cache_misses_before", "hit_rate_before",
    ]  # fmt: skip
    assert frame.count() == 1
    state = spark.sql(f"CHECKPOINT INDEXTABLES '{table.uri}'")
    state.createOrReplaceTempView("written")
    assert spark.sql("SELECT status FROM written WHERE num_files = 1").first().status == "SUCCESS"
    assert spark.sql(f"DESCRIBE INDEXTABLES STATE '{table.uri}'").first().format == "avro-state"
    log = spark.sql(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{table.uri}' INCLUDE ALL")
    assert log.where("action_type = 'add'").select("num_records").first()[0] == 2
    empty = spark.sql(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{table.uri}' LIMIT 0")
    assert (empty.count(), empty.columns) == (0, log.columns)
    assert spark.sql("DESCRIBE INDEXTABLES DISK CACHE").first().executor_id == "driver"
    assert spark.sql("FLUSH INDEXTABLES DISK CACHE").first().status == "success"
    restored = spark.sql(f"RESTORE INDEXTABLES indextables.`{table.uri}` TO VERSION 0").first()
    assert (restored.restored_version, restored.version, restored.num_files) == (0, 2, 0)


def test_the_path_of_a_statement_may_be_a_value(spark, table):
    row = spark.sql("CHECKPOINT INDEXTABLES {path}", path=table.uri).first()
    assert (row.table_path, row.status) == (table.uri, "SUCCESS")


def test_statements_on_names(spark, tmp_path):
    spark.sql("CREATE TABLE named_docs (id INT, body STRING) USING indextables")
    try:
        spark.sql("INSERT INTO named_docs VALUES (1, 'red fox')")
        for name in ("named_docs", "default.NAMED_DOCS", "spark_catalog.default.`named_docs`"):
            row = spark.sql(f"CHECKPOINT INDEXTABLES {name}").first()
            assert (row.status, row.num_files) == ("SUCCESS", 1)
        spark.sql(
            "CREATE VIEW found_docs AS SELECT id FROM named_docs "
            "WHERE body indexquery 'fox' AND indexqueryall('red')"
        )
        assert ids(spark.sql("SELECT * FROM found_docs")) == [1]
        with pytest.raises(errors.StatementError, match="is a view"):
            spark.sql("CHECKPOINT INDEXTABLES found_docs")
    finally:
        spark.sql("DROP VIEW IF EXISTS found_docs")
        spark.sql("DROP TABLE named_docs")


SAME = [
    ("content indexquery 'spark'", [1, 2]),
    ("_indexall indexquery 'apache'", [1, 3]),
    ("content indexquery 'title:spark OR machine'", [1, 4]),
    ("tantivy4spark_indexquery('title', 'data*')", [1, 2]),
    ("NOT indexqueryall('spark')", [3, 5]),
    ("content indexquery 'spark' OR title indexquery 'spark'", [1, 2, 4]),
]


@pytest.fixture(scope="module")
def place_of_docs(docs, tmp_path_factory):
    place = str(tmp_path_factory.mktemp("same") / "table")
    docs.write.format("indextables").save(place)
    return place


@pytest.mark.parametrize(
    ("door", "condition", "expected"),
    [
        *(("bridge", *one) for one in SAME),
        *(
            pytest.param("public", *one, marks=pytest.mark.long if number % 2 else ())
            for number, one in enumerate(SAME)
        ),
    ],
    indirect=["door"],
)
def test_an_index_table_answers_like_its_rows(door, docs, place_of_docs, condition, expected):
    table = door.read.format("indextables").load(place_of_docs)
    table.createOrReplaceTempView("of_table")
    assert ids(docs.filter(condition)) == expected
    assert ids(table.filter(condition)) == expected
    assert ids(table.filter(expr(condition))) == expected
    assert ids(door.sql(f"SELECT * FROM of_table WHERE {condition}")) == expected
    assert ids(table.selectExpr("id", f"{condition} AS m").where("m")) == expected
    with_cte = f"WITH c AS (SELECT * FROM of_table) SELECT id FROM c WHERE {condition}"
    assert ids(door.sql(with_cte)) == expected


def test_invalidate_all(spark):
    row = spark.sql("INVALIDATE TRANSACTION LOG CACHE").first()
    assert row.table_path == "GLOBAL"


@pytest.mark.parametrize("mode", ["EXTENDED", "FORMATTED", ""])
def test_explain_shows_no_credentials_of_a_statement(spark, mode):
    plan = spark.sql(
        f"EXPLAIN {mode} CREATE TABLE hidden_keys (id LONG) USING indextables OPTIONS "
        "(aws_access_key_id 'AKIA-ID', 'aws_secret_access_key' = 'a (secret)', region 'eu-west-1') "
        "LOCATION 's3://bucket/table'"
    ).first()[0]
    assert "CreateTable" in plan and "AKIA-ID" not in plan and "a (secret)" not in plan
    assert "eu-west-1" in plan or mode == "FORMATTED"


def test_environment_tells_no_secret(spark):
    spark.conf.set("spark.my.password", "hush")
    try:
        rows = spark.sql("DESCRIBE INDEXTABLES ENVIRONMENT").collect()
    finally:
        spark.conf.unset("spark.my.password")
    values = {r.property_name: r.property_value for r in rows}
    assert values["spark.my.password"] == "***REDACTED***"
    assert "hush" not in str(rows)
    assert values["pyspark"]


@pytest.fixture(scope="module")
def plain_rows(spark):
    spark.sql("CREATE TABLE plain_rows USING parquet AS SELECT 1 AS id")
    yield
    spark.sql("DROP TABLE plain_rows")


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("CHECKPOINT INDEXTABLES documents", errors.StatementError, "is a view"),
        ("CHECKPOINT INDEXTABLES no_such_table", errors.StatementError, "There is no table"),
        ("CHECKPOINT INDEXTABLES plain_rows", errors.StatementError, "not an index table"),
        ("CHECKPOINT INDEXTABLES ''", errors.StatementError, "empty"),
        (
            "RESTORE INDEXTABLES '/no/such' TO VERSION 1",
            errors.NotATableError,
            "not an index table",
        ),
        ("FLUSH INDEXTABLES EVERYTHING", errors.StatementSyntaxError, "SEARCHER or DISK"),
        ("MERGE SPLITS documents", errors.StatementError, "is a view"),
    ],
)
def test_statements_that_cannot_be_carried_out(spark, plain_rows, sql, error, message):
    with pytest.raises(error, match=message):
        spark.sql(sql)


@pytest.mark.parametrize(
    "statement",
    ["CHECKPOINT INDEXTABLES", "MERGE SPLITS", "TRUNCATE INDEXTABLES TIME TRAVEL"],
)
def test_a_schedule_notices_a_missing_path(spark, tmp_path, statement):
    with pytest.raises(errors.NotATableError, match="not an index table"):
        spark.sql(f"{statement} '{tmp_path}/nothing'")


def test_a_field_is_a_column_never_a_function_without_parentheses_or_a_variable(spark):
    """Spark resolves `user` or `current_date` to a function where no column has that name."""
    me = spark.sql("SELECT user").first()[0]
    spark.sql("DECLARE OR REPLACE VARIABLE field_of_nobody STRING DEFAULT 'spark'")
    for field, word in (("user", me), ("current_date", "2*"), ("field_of_nobody", "spark")):
        with pytest.raises(IllegalArgumentException, match=f"'{field}'.*is not a column"):
            spark.sql(f"SELECT id FROM documents WHERE content indexquery '{field}:{word}'")
    spark.sql("SELECT id, title AS user FROM documents").createOrReplaceTempView("with_user")
    found = spark.sql("SELECT id FROM with_user WHERE user indexquery 'user:apache'")
    assert ids(found) == [3]
    inner = "SELECT 1 FROM orders o WHERE o.id = d.id AND d.content indexquery 'title:data'"
    found = spark.sql(f"SELECT id FROM documents d WHERE EXISTS ({inner})")
    assert ids(found) == [1]  # a column of the outer query has no references in the inner one


@pytest.mark.parametrize(
    "expression, reason",
    [
        ("hour indexquery 'abc'", "The field 'hour' cannot be 'abc' .* Write a number"),
        ("content indexquery 'hour:abc'", "The field 'hour' cannot be 'abc'"),
        ("content indexquery 'content.x:abc'", "no field 'content.x'"),
        ("coalesce(hour, 1) indexquery 'abc'", r"The field '\(the searched column\)' cannot be"),
        ("indexqueryall('hour:abc')", "The field 'hour' cannot be 'abc'"),
        ("search((content, hour), 'hour:abc', mode => 'query')", "The field 'hour' cannot be"),
        ("snippet(hour, 'abc')", "shows words of a text, not of int32"),
    ],
)
def test_what_no_row_can_answer_is_refused_on_the_driver_in_one_sentence(spark, expression, reason):
    with pytest.raises(IllegalArgumentException, match=reason):
        spark.sql(f"SELECT id, {expression} FROM documents")  # without an action
