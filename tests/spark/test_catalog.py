"""Tables by name: in the catalog `indextables`, and bare names in Spark's own."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import (
    IllegalArgumentException,
    PySparkException,
    UnsupportedOperationException,
)
from pyspark.sql import functions as F  # noqa: N812

from indextables import Table
from indextables.errors import ConfigError, NotATableError, SchemaError

DAY = datetime.date(2024, 1, 1)


CATALOGS = ("indextables.docs", "docs")


@pytest.fixture(params=CATALOGS)
def name(spark, request):
    """A table of each catalog."""
    spark.sql(f"DROP TABLE IF EXISTS {request.param}")
    spark.sql(
        f"CREATE TABLE {request.param} (id bigint, content string, day date) USING indextables "
        "PARTITIONED BY (day) TBLPROPERTIES ('spark.indextables.indexing.typemap.content' = 'text',"
        " 'team' = 'search')"
    )
    yield request.param
    spark.sql(f"DROP TABLE IF EXISTS {request.param}")


# The same code stands behind both catalogs once they have found the table.
one_of_both = pytest.mark.parametrize(
    "name", [CATALOGS[1], pytest.param(CATALOGS[0], marks=pytest.mark.long)], indirect=True
)


def rows(spark, query):
    return [tuple(row) for row in spark.sql(query).collect()]


def test_insert_and_search(spark, name):
    spark.sql(f"INSERT INTO {name} VALUES (1, 'red fox', DATE '2024-01-01'), (2, 'dog', NULL)")
    spark.sql(f"INSERT INTO {name} (content, id) VALUES ('blue fox', 3)")
    assert rows(spark, f"SELECT * FROM {name} WHERE content indexquery 'red'") == [
        (1, "red fox", DAY)
    ]
    assert sorted(rows(spark, f"SELECT id FROM {name} WHERE content indexquery 'fox'")) == [
        (1,),
        (3,),
    ]
    ((score,),) = rows(spark, f"SELECT _score FROM {name} WHERE content indexquery 'red'")
    assert score > 0


def test_insert_overwrite(spark, name):
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a', DATE '2024-01-01'), (2, 'b', DATE '2024-01-02')")
    spark.sql(f"INSERT OVERWRITE {name} PARTITION (day = DATE '2024-01-01') SELECT 9, 'new'")
    assert sorted(rows(spark, f"SELECT id FROM {name}")) == [(2,), (9,)]
    spark.sql(f"INSERT INTO {name} REPLACE WHERE id = 9 SELECT 9, 'again', DATE '2024-01-03'")
    assert rows(spark, f"SELECT content FROM {name} WHERE id = 9") == [("again",)]
    spark.sql(f"INSERT OVERWRITE {name} VALUES (5, 'all', NULL)")
    assert rows(spark, f"SELECT id FROM {name}") == [(5,)]
    assert sorted(rows(spark, f"SELECT id FROM {name} VERSION AS OF 1")) == [(1,), (2,)]


@one_of_both
def test_the_version_of_a_time(spark, name):
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a', DATE '2024-01-01')")
    with pytest.raises(PySparkException, match="no version as old as"):
        spark.sql(f"SELECT * FROM {name} TIMESTAMP AS OF '2001-01-01'").collect()
    newest = rows(spark, f"SELECT id FROM {name} TIMESTAMP AS OF '2101-01-01 00:00:00'")
    assert newest == [(1,)]
    of_expression = f"SELECT id FROM {name} TIMESTAMP AS OF now() + INTERVAL 1 DAY"
    assert rows(spark, f"{of_expression} WHERE content indexquery 'a'") == [(1,)]


@one_of_both
def test_delete_and_truncate(spark, name):
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a', NULL), (2, 'b', DATE '2024-01-02')")
    spark.sql(f"DELETE FROM {name} WHERE day = DATE '2024-01-02'")
    assert rows(spark, f"SELECT id FROM {name}") == [(1,)]
    with pytest.raises(PySparkException):
        spark.sql(f"DELETE FROM {name} WHERE length(contents) = 1")
    spark.sql(f"TRUNCATE TABLE {name}")
    assert rows(spark, f"SELECT count(*) FROM {name}") == [(0,)]


def test_describe_and_show(spark, name):
    described = {row[0]: row[1] for row in rows(spark, f"DESCRIBE {name}")}
    assert (described["id"], described["content"], described["day"]) == ("bigint", "string", "date")
    assert ("team", "search") in rows(spark, f"SHOW TBLPROPERTIES {name}")
    assert [row[0] for row in rows(spark, f"SHOW COLUMNS IN {name}")] == ["id", "content", "day"]
    where = "indextables" if "." in name else "default"
    assert "docs" in [row[1] for row in rows(spark, f"SHOW TABLES IN {where}")]
    assert "USING indextables" in rows(spark, f"SHOW CREATE TABLE {name}")[0][0]


@one_of_both
def test_alter_table(spark, name):
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a', NULL)")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN extra string")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('owner2' = 'me')")
    spark.sql(f"INSERT INTO {name} VALUES (2, 'b', NULL, 'more words')")
    assert sorted(rows(spark, f"SELECT id, extra FROM {name}")) == [(1, None), (2, "more words")]
    assert rows(spark, f"SELECT id FROM {name} WHERE extra indexquery 'words'") == [(2,)]
    assert ("owner2", "me") in rows(spark, f"SHOW TBLPROPERTIES {name}")
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('owner2')")
    assert ("owner2", "me") not in rows(spark, f"SHOW TBLPROPERTIES {name}")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("DROP COLUMN content", "not all can be dropped"),
        ("SET LOCATION '/elsewhere'", "stays where it is"),
        ("SET TBLPROPERTIES ('indextables.mapping' = '[]')", "describes the index"),
        (
            "SET TBLPROPERTIES ('a' = 'c', 'spark.indextables.search.fields' = 'nope')",
            "'nope', which is not a column of the table",
        ),
    ],
)
def test_a_change_that_cannot_be_made_is_one_sentence(spark, change, sentence):
    spark.sql("CREATE TABLE IF NOT EXISTS unchanged (content string) USING indextables")
    with pytest.raises(UnsupportedOperationException, match=sentence) as caught:
        spark.sql(f"ALTER TABLE unchanged {change}")
    assert len(str(caught.value).splitlines()) == 1
    spark.sql("ALTER TABLE unchanged SET TBLPROPERTIES ('a' = 'b')")


def test_a_new_column_keeps_its_comment(spark, name):
    spark.sql(f"ALTER TABLE {name} ADD COLUMN extra string COMMENT 'more'")
    assert ("extra", "string", "more") in rows(spark, f"DESCRIBE {name}")


def test_whether_a_table_exists(spark, name):
    assert spark.catalog.tableExists(name)
    for table in ("indextables.nothing", "nothing", "indextables.`/no/thing`"):
        assert not spark.catalog.tableExists(table)


@pytest.mark.parametrize("name", ["indextables.nothing", "nothing"])
@pytest.mark.parametrize(
    ("rest", "sentence"),
    [
        ("USING indextables", "has no columns"),
        ("(id bigint) USING indextables PARTITIONED BY (days(id))", "by columns, not by days"),
        ("(_score float) USING indextables", "a hidden column that every index table has"),
    ],
)
def test_what_cannot_be_created_is_one_sentence(spark, name, rest, sentence):
    with pytest.raises(IllegalArgumentException, match=sentence):
        spark.sql(f"CREATE TABLE {name} {rest}")
    assert not spark.catalog.tableExists(name)


def test_a_temporary_view_of_a_path(spark, tmp_path):
    uri = str(tmp_path / "docs")
    table = Table.create(uri, mapping={"code": "string"}, data=pa.table({"code": ["a-1", "b-2"]}))
    made = f"VIEW of_path USING indextables OPTIONS (path '{uri}'"
    spark.sql(f"CREATE TEMPORARY {made})")
    spark.sql(f"CREATE GLOBAL TEMP {made}, versionAsOf 0)")
    search = "SELECT code FROM {} WHERE code indexquery '{}'"
    plan = spark.sql(search.format("of_path", "a-1"))._jdf.queryExecution().toString()
    assert "ArrowEvalPython" not in plan  # the index answers
    table.append(pa.table({"code": ["c-3"]}))
    assert rows(spark, search.format("of_path", "c-3")) == [("c-3",)]
    assert rows(spark, search.format("of_path", "c")) == []
    assert rows(spark, search.format("global_temp.of_path", "c-3")) == []
    assert rows(spark, search.format("global_temp.of_path", "a-1")) == [("a-1",)]
    with pytest.raises(PySparkException, match="ALREADY_EXISTS"):
        spark.sql(f"CREATE TEMPORARY {made}, versionAsOf 0)")
    spark.sql(f"CREATE OR REPLACE TEMP {made}, versionAsOf 0)")
    assert rows(spark, "SELECT count(*) FROM of_path") == [(2,)]
    for columns in ("code STRING", "other INT"):
        with pytest.raises(SchemaError, match="has columns of its own"):
            spark.sql(f"CREATE TEMP VIEW v ({columns}) USING indextables OPTIONS (path '{uri}')")
    with pytest.raises(ConfigError, match="'path' is not specified"):
        spark.sql("CREATE TEMP VIEW v USING indextables")
    spark.sql("CREATE TEMP VIEW without_path (e INT, f STRING) USING indextables")
    assert spark.table("without_path").columns == ["e", "f"]
    assert rows(spark, "SELECT * FROM without_path") == []
    spark.catalog.dropTempView("without_path")
    spark.catalog.dropTempView("of_path")
    spark.catalog.dropGlobalTempView("of_path")


def test_create_twice(spark, name):
    with pytest.raises(PySparkException, match="already exists"):
        spark.sql(f"CREATE TABLE {name} (id bigint) USING indextables")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} (id bigint) USING indextables")


@pytest.mark.parametrize("table", ["indextables.saved", "saved"])
def test_the_dataframe_writers(spark, table):
    frame = spark.range(5).selectExpr("id", "cast(id AS string) s")
    count = lambda: spark.table(table).count()  # noqa: E731
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    frame.write.format("indextables").saveAsTable(table)
    assert count() == 5
    frame.write.insertInto(table)
    assert count() == 10
    frame.writeTo(table).append()
    assert count() == 15
    frame.write.format("indextables").mode("append").saveAsTable(table)
    assert count() == 20
    frame.limit(1).writeTo(table).overwrite(F.col("id") < 3)
    assert count() == 9
    frame.writeTo(table).overwritePartitions()
    assert count() == 5
    assert spark.read.option("versionAsOf", 1).table(table).count() in (5, 10)
    spark.sql(f"DROP TABLE {table}")
    frame.writeTo(table).using("indextables").partitionedBy("s").create()
    assert count() == 5
    spark.sql(f"DROP TABLE {table}")


def test_a_table_elsewhere(spark, tmp_path):
    place = str(tmp_path / "external")
    spark.sql(f"CREATE TABLE indextables.away (id int) USING indextables LOCATION '{place}'")
    spark.sql("INSERT INTO indextables.away VALUES (1)")
    assert Table.open(place).count() == 1
    spark.sql("DROP TABLE indextables.away")
    assert Table.open(place).count() == 1


@pytest.mark.parametrize("name", ["indextables.named", "named"])
def test_a_table_that_is_there_gets_a_name_and_no_rows(spark, tmp_path, name):
    place = str(tmp_path / "there")
    Table.create(place, pa.schema([("id", pa.int64())])).append(pa.table({"id": [0, 1, 2]}))
    create = f"CREATE TABLE {name} {{}} USING indextables LOCATION '{place}' {{}}"
    for columns, more in (("(id int)", ""), ("(id bigint, x int)", ""), ("", "AS SELECT 7L AS id"),
                          ("(id bigint COMMENT 'c')", ""), ("(id bigint)", "COMMENT 'other'"),
                          ("(id bigint)", "TBLPROPERTIES ('k' = 'v')"),
                          ("(id bigint)", "PARTITIONED BY (id)")):  # fmt: skip
        with pytest.raises(PySparkException, match="leave out the columns and the query"):
            spark.sql(create.format(columns, more))
    assert Table.open(place).count() == 3
    for columns in ("", "(id bigint)"):  # what it says is so
        spark.sql(create.format(columns, ""))
        assert rows(spark, f"SELECT count(*) FROM {name}") == [(3,)]
        spark.sql(f"DROP TABLE {name}")
        assert Table.open(place).count() == 3


def test_namespaces(spark):
    spark.sql("CREATE NAMESPACE IF NOT EXISTS indextables.lab")
    spark.sql("CREATE TABLE indextables.lab.t USING indextables AS SELECT 1 AS a, 'x' AS b")
    assert rows(spark, "SELECT * FROM indextables.lab.t") == [(1, "x")]
    assert ("lab",) in rows(spark, "SHOW NAMESPACES IN indextables")
    assert rows(spark, "SHOW TABLES IN indextables.lab") == [("lab", "t", False)]
    spark.sql("DROP TABLE indextables.lab.t")


def test_other_tables_of_sparks_catalog_are_untouched(spark):
    spark.sql("DROP TABLE IF EXISTS plain")
    spark.sql("CREATE TABLE plain (a int) USING parquet")
    spark.sql("INSERT INTO plain VALUES (1)")
    assert rows(spark, "SELECT * FROM plain") == [(1,)]
    spark.sql("ALTER TABLE plain ADD COLUMN b int")
    spark.sql("DROP TABLE plain")
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM plain")


def test_paths_are_not_dropped(spark, tmp_path):
    place = str(tmp_path / "t")
    Table.create(place, pa.schema([("id", pa.int64())]))
    with pytest.raises(PySparkException, match="delete the folder itself"):
        spark.sql(f"DROP TABLE indextables.`{place}`")


def test_names_outlive_the_session(spark):
    # A session without a metastore begins with an empty catalog and what the warehouse holds.
    warehouse = spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")
    table = pa.table({"a": [1], "b": ["red fox"]})
    Table.create(f"{warehouse}/lasting", table.schema).append(table)
    assert rows(spark, "SELECT count(*) FROM lasting") == [(1,)]
    spark.sql("DROP TABLE lasting")
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM lasting")


def test_tables_of_an_earlier_session_are_listed(spark):
    warehouse = spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")

    def names(listed):
        if listed == "listTables":
            return [table.name for table in spark.catalog.listTables()]
        return [row[1] for row in rows(spark, listed)]

    # Each of them finds a table that no other one has told the catalog of.
    for listed in ("SHOW TABLES", "show tables in default", "listTables"):
        path = f"{warehouse}/of_yesterday"
        Table.create(path, pa.schema([("id", pa.int64())])).append(pa.table({"id": [1, 2]}))
        assert names(listed).count("of_yesterday") == 1
        assert rows(spark, "SELECT count(*) FROM of_yesterday") == [(2,)]
        if listed == "SHOW TABLES":
            spark.sql("INSERT INTO of_yesterday VALUES (3)")
            assert Table.open(path).count() == 3
        spark.sql("DROP TABLE of_yesterday")
        assert "of_yesterday" not in names("SHOW TABLES")
        with pytest.raises(NotATableError):
            Table.open(path).count()


def test_a_table_that_was_given_its_place_in_the_warehouse_keeps_its_files(spark):
    warehouse = spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")
    path = f"{warehouse}/placed"
    spark.sql(f"CREATE TABLE placed (id bigint) USING indextables LOCATION '{path}'")
    spark.sql("SHOW TABLES").collect()
    spark.sql("DROP TABLE placed")
    assert Table.open(path).count() == 0
    spark.sql("DROP TABLE placed")  # found in the warehouse, and so Spark's to keep


def test_the_place_of_a_table_is_spelled_as_spark_does(spark, tmp_path):
    spark.sql(f"CREATE TABLE spelled (id int) USING indextables LOCATION '{tmp_path}/a b'")
    created = spark.sql("SHOW CREATE TABLE spelled").first()[0]
    assert f"LOCATION 'file:{tmp_path}/a b'" in created
    spark.sql("DROP TABLE spelled")
    spark.sql(created)  # and is understood
    assert spark.table("spelled").columns == ["id"]
    spark.sql("DROP TABLE spelled")


@one_of_both
def test_unknown_keys_are_no_properties(spark, name):
    wrong = "TBLPROPERTIES ('spark.indextables.checkpoint.intervall' = '5')"
    spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('spark.indextables.checkpoint.interval' = '5')"
    )
    for statement in (
        f"CREATE TABLE unknown_key (id int) USING indextables {wrong}",
        f"ALTER TABLE {name} SET {wrong}",
    ):
        with pytest.raises(Exception, match=r"checkpoint\.intervall.*checkpoint\.interval\b"):
            spark.sql(statement)


@pytest.mark.parametrize("name", ["replaced", "indextables.replaced"])
def test_a_table_is_replaced_in_one_commit(spark, name):
    spark.sql(
        f"CREATE TABLE {name} USING indextables TBLPROPERTIES (team = 'search') "
        "AS SELECT * FROM VALUES (1, 'fox'), (2, 'dog') AS v(id, body)"
    )
    place = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Location'").first()[1]
    assert Table.open(place).version == 0
    # A query that fails leaves what was there, in its tasks and before.
    failing = "SELECT raise_error('no') AS id FROM range(3)"
    for query in (failing, "SELECT NULL AS id", "SELECT nothing AS id"):
        with pytest.raises(Exception, match=r"no|void|nothing"):
            spark.sql(f"CREATE OR REPLACE TABLE {name} USING indextables AS {query}")
    assert sorted(rows(spark, f"SELECT * FROM {name}")) == [(1, "fox"), (2, "dog")]
    assert Table.open(place).version == 0
    # It may read what it replaces.
    query = f"SELECT id + 10L AS n, upper(body) AS text FROM {name} WHERE body indexquery 'fox'"
    spark.sql(f"CREATE OR REPLACE TABLE {name} USING indextables PARTITIONED BY (n) AS {query}")
    assert rows(spark, f"SELECT text, n FROM {name}") == [("FOX", 11)]
    table = Table.open(place)
    assert (table.version, table.partition_columns) == (1, ("n",))
    assert "team" not in table.properties
    assert Table.open(place, version=0).count(where="body indexquery 'dog'") == 1
    spark.table(name).write.format("indextables").mode("overwrite").saveAsTable(name)
    spark.sql(f"CREATE OR REPLACE TABLE {name} (id INT NOT NULL) USING indextables")
    assert rows(spark, f"SELECT * FROM {name}") == []
    assert Table.open(place).version == 3
    spark.sql(f"INSERT INTO {name} VALUES (7)")
    assert rows(spark, f"SELECT * FROM {name}") == [(7,)]
    # A new one that fails is not there.
    with pytest.raises(Exception, match="no"):
        spark.sql(f"CREATE TABLE {name}_new USING indextables AS {failing}")
    assert not spark.catalog.tableExists(f"{name}_new")
    assert not Table.exists(f"{place}_new")
    spark.sql(f"CREATE TABLE {name}_new USING indextables AS SELECT 1 AS id")
    spark.sql(f"DROP TABLE {name}_new")
    spark.sql(f"DROP TABLE {name}")


def test_our_statements_refresh_what_spark_cached(spark):
    spark.sql("CREATE TABLE kept_rows USING indextables AS SELECT * FROM VALUES (1), (2) AS v(id)")
    spark.catalog.cacheTable("kept_rows")
    found = []
    for statement in (
        "UPDATE kept_rows SET id = 5 WHERE id = 1",
        "DELETE FROM kept_rows WHERE id = 2",
        "RESTORE INDEXTABLES kept_rows TO VERSION 0",
    ):
        spark.sql(statement)
        found.append(sorted(rows(spark, "SELECT id FROM kept_rows")))
    assert found == [[(2,), (5,)], [(5,)], [(1,), (2,)]]
    assert spark.catalog.isCached("kept_rows")
    spark.sql("DROP TABLE kept_rows")


def shown_by_spark(spark):
    """What Spark's pages and event log say of the last statement."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    last = executions.apply(executions.size() - 1)
    nodes = store.planGraph(last.executionId()).allNodes()
    return "\n".join(
        [last.physicalPlanDescription(), *(nodes.apply(at).desc() for at in range(nodes.size()))]
    )


def test_options_of_a_table_reach_its_store(spark, s3):
    """CREATE TABLE … OPTIONS (…) LOCATION goes where the options say, in every later statement."""
    given = ", ".join(f"'{name}' '{value}'" for name, value in s3.options.items())
    place = f"{s3.uri}/options-of-a-table"
    # The name of a column may look like that of a secret.
    mapped = "'spark.indextables.indexing.typemap.keycode' 'string'"
    columns = "(id INT, keycode STRING) USING indextables"
    try:
        spark.sql(f"CREATE TABLE optioned {columns} OPTIONS ({given}, {mapped}) LOCATION '{place}'")
        shown = shown_by_spark(spark)
        assert "aws_region" in shown and "aws_access_key_id" in shown
        assert s3.options["aws_access_key_id"] not in shown
        assert s3.options["aws_secret_access_key"] not in shown
        spark.sql("INSERT INTO optioned VALUES (1, 'a b'), (2, 'a')")
        found = spark.sql("SELECT id FROM optioned WHERE keycode indexquery 'a'").collect()
        assert [row.id for row in found] == [2]
        stored = Table.open(place, storage_options=s3.options)
        assert stored.count() == 2
        logged = stored.snapshot().metadata.configuration
        assert not any(name.removeprefix("option.") in s3.options for name in logged)
        assert not any("access_key" in name for name in logged)
        assert not {s3.options[name] for name in s3.options if "key" in name} & {*logged.values()}
    finally:
        spark.sql("DROP TABLE IF EXISTS optioned")
    with pytest.raises(IllegalArgumentException, match="does not keep the OPTIONS"):
        spark.sql(f"CREATE TABLE indextables.x {columns} OPTIONS ({given}) LOCATION '{place}'")


@one_of_both
def test_statements_that_delete_leave_alone_what_lies_behind_a_link(spark, name, tmp_path):
    """A folder of the table and one of its log lead into another table."""
    other = Table.create(tmp_path / "other", pa.schema([("id", pa.int64())]))
    for number in range(3):
        other.append(pa.table({"id": [number]}))
    other.checkpoint()
    for number in range(2):
        spark.sql(f"INSERT INTO {name} VALUES ({number}, 'a', DATE '2024-01-01')")
    described = {row[0]: row[1] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()}
    place = Path(described["Location"].removeprefix("file:"))
    before = {file: file.read_bytes() for file in other_files(tmp_path)}
    (place / "day=2024-01-09").symlink_to(tmp_path / "other", target_is_directory=True)
    (place / "_transaction_log" / "state-v00000000000000000000").symlink_to(
        tmp_path / "other" / "_transaction_log", target_is_directory=True
    )
    (place / "_transaction_log" / "manifests").symlink_to(
        tmp_path / "other" / "_transaction_log", target_is_directory=True
    )
    spark.sql(
        f"REPAIR INDEXFILES TRANSACTION LOG '{place}/_transaction_log' "
        f"AT LOCATION '{tmp_path}/repaired/_transaction_log'"
    )
    spark.sql(f"TRUNCATE INDEXTABLES TIME TRAVEL {name}")
    spark.sql(f"TRUNCATE TABLE {name}")
    spark.sql(f"PURGE INDEXTABLE {name} OLDER THAN 1 DAYS")
    spark.sql(f"DROP TABLE {name}")
    # A new manifest may lie there: links are followed to write, as they are to read.
    assert before.items() <= {f: f.read_bytes() for f in other_files(tmp_path)}.items()
    assert other.count() == 3


def other_files(folder):
    return [file for file in sorted((folder / "other").rglob("*")) if file.is_file()]
