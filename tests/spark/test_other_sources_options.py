"""What code written for other sources says: options, names in another case, buckets, schemas."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from indextables import Table
from indextables.errors import ConfigError, SchemaError, StorageOptionError


@pytest.fixture
def frame(spark):
    return spark.createDataFrame([(1, "a", "x"), (2, "b", "y")], "id long, p string, body string")


def test_partition_columns_follow_the_sessions_case(door, frame, tmp_path):
    uri = str(tmp_path / "t")
    frame.write.format("indextables").partitionBy("P").save(uri)
    frame.write.format("indextables").partitionBy("P").mode("append").save(uri)
    assert Table.open(uri).snapshot().partition_columns == ("p",)
    door.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(SchemaError, match="P"):
            frame.write.format("indextables").partitionBy("P").save(str(tmp_path / "u"))
        with pytest.raises(SchemaError, match="partitioned by p, not by P"):
            frame.write.format("indextables").partitionBy("P").mode("append").save(uri)
    finally:
        door.conf.unset("spark.sql.caseSensitive")


def test_partition_columns_of_a_name_follow_the_sessions_case(spark, frame):
    for name in ("indextables.cased", "cased"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        try:
            frame.write.format("indextables").partitionBy("P").saveAsTable(name)
            assert [row.partition for row in spark.sql(f"SHOW PARTITIONS {name}").collect()] == [
                "p=a", "p=b",
            ]  # fmt: skip
            spark.sql(f"DROP TABLE {name}")
            spark.sql(f"CREATE TABLE {name} (id long, p int) USING indextables PARTITIONED BY (P)")
            assert spark.table(name).columns == ["id", "p"]
        finally:
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_overwriting_the_schema(door, frame, tmp_path):
    uri = str(tmp_path / "t")
    writer = frame.write.format("indextables").partitionBy("p")
    writer.option("spark.indextables.indexing.typemap.body", "string").save(uri)
    new = door.createDataFrame([("1", 2.5, None)], "id string, score double, body string")
    with pytest.raises(SchemaError):
        new.write.format("indextables").mode("overwrite").save(uri)
    replaced = new.write.format("indextables").mode("overwrite").option("overwriteSchema", "true")
    replaced.option("spark.indextables.indexing.typemap.body", "text").save(uri)
    table = Table.open(uri)
    assert table.scan().to_pylist() == [{"id": "1", "score": 2.5, "body": None}]
    assert table.snapshot().partition_columns == ()
    old = door.read.format("indextables").option("versionAsOf", 0).load(uri)
    assert old.schema["id"].dataType.simpleString() == "bigint"
    assert sorted(row.p for row in old.collect()) == ["a", "b"]
    again = new.selectExpr("id", "score AS s", "'red fox' AS body")
    again.write.format("indextables").mode("append").option("mergeSchema", "true").save(uri)
    assert door.read.format("indextables").load(uri).count() == 2
    assert table.refresh().count(where="body indexquery 'fox'") == 1
    back = frame.write.format("indextables").mode("overwrite").option("overwriteSchema", True)
    back.partitionBy("p").save(uri)
    assert Table.open(uri).snapshot().partition_columns == ("p",)
    assert Table.open(uri).count(where="p = 'a'") == 1
    for wrong in ({"mode": "append"}, {"mode": "overwrite", "replaceWhere": "id = 1"},
                  {"mode": "overwrite", "partitionOverwriteMode": "dynamic"},
                  {"mode": "overwrite", "mergeSchema": "true"}):  # fmt: skip
        with pytest.raises(ConfigError, match="overwriteSchema"):
            frame.write.format("indextables").save(uri, overwriteSchema="true", **wrong)


@pytest.mark.parametrize(
    "name", ["reshaped", pytest.param("indextables.reshaped", marks=pytest.mark.long)]
)
def test_overwriting_the_schema_of_a_name(spark, frame, name):
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    try:
        frame.write.format("indextables").saveAsTable(name, compression="snappy")
        new = frame.selectExpr("id AS n")
        writer = new.write.format("indextables").mode("overwrite").option("overwriteSchema", "true")
        writer.saveAsTable(name)
        assert spark.table(name).columns == ["n"]
        new.write.format("indextables").mode("append").saveAsTable(name, header="true")
        assert spark.table(name).count() == 4
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_options_of_other_sources(door, frame, tmp_path, caplog):
    uri = str(tmp_path / "t")
    options = {"compression": "snappy", "header": "true", "inferSchema": "true"}
    frame.write.format("indextables").options(**options).save(uri)
    assert door.read.format("indextables").options(**options).load(uri).count() == 2
    assert "'compression' is an option for files of other formats" in caplog.text
    for name in ("pathGlobFilter", "recursiveFileLookup", "modifiedAfter", "readChangeFeed"):
        with pytest.raises(ConfigError, match=f"{name}.*no meaning for an index table"):
            door.read.format("indextables").option(name, "1").load(uri)
    with pytest.raises(ConfigError, match=r"maxRecordsPerFile.*targetSplitSize"):
        frame.write.format("indextables").mode("append").option("maxRecordsPerFile", 1).save(uri)
    with pytest.raises(StorageOptionError, match=r"'acess_key'.*index tables do not have it"):
        door.read.format("indextables").option("acess_key", "1").load(uri)


def test_create_table_of_the_catalog_api(spark, frame, tmp_path):
    uri = str(tmp_path / "t")
    frame.write.format("indextables").save(uri)
    spark.sql("DROP TABLE IF EXISTS made")
    made = spark.catalog.createTable("made", path=uri, source="indextables")
    try:
        assert made.columns == ["id", "p", "body"]
        assert spark.table("made").count() == 2
        spark.sql("DROP TABLE made")
        other = str(tmp_path / "u")
        spark.catalog.createTable(
            "made", path=other, source="indextables", schema=frame.schema, description="few",
            compression="snappy",
        )  # fmt: skip
        frame.writeTo("made").append()
        assert Table.open(other).count() == 2
        with pytest.raises(PySparkException, match="ALREADY_EXISTS"):
            spark.catalog.createTable("made", path=uri, source="indextables")
    finally:
        spark.sql("DROP TABLE IF EXISTS made")


NAMES = ["cut", pytest.param("indextables.cut", marks=pytest.mark.long)]


def test_a_path_takes_no_buckets(frame, tmp_path):
    writer = frame.write.format("indextables")
    for cut in (writer.bucketBy(2, "id"), frame.write.format("indextables").clusterBy("id")):
        with pytest.raises(ConfigError, match=r"A path takes no (bucketBy|clusterBy)"):
            cut.save(str(tmp_path / "t"))


@pytest.mark.parametrize("name", NAMES)
def test_declared_buckets_are_kept_and_shown(spark, frame, name):
    """Spark's formats lay rows out by them; here they are kept, follow renames, and say no more."""

    def layout():
        columns = spark.catalog.listColumns(name)
        return [c.name for c in columns if c.isBucket], [c.name for c in columns if c.isCluster]

    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(
        f"CREATE TABLE {name} (id long, p string, body string) USING indextables "
        "PARTITIONED BY (p) CLUSTERED BY (id) SORTED BY (body) INTO 4 BUCKETS"
    )
    frame.write.insertInto(name)
    spark.sql(f"INSERT OVERWRITE {name} PARTITION (p = 'c') SELECT 3, 'z'")
    assert layout() == (["id"], [])
    shown = spark.sql(f"SHOW CREATE TABLE {name}").first()[0]
    assert "PARTITIONED BY (p, sorted_bucket(id, 4, body))" in shown
    assert "declaredLayout" not in shown
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN id TO number")
    assert layout() == (["number"], [])
    assert sorted(spark.table(name).toPandas()["number"]) == [1, 2, 3]
    spark.sql(f"ALTER TABLE {name} DROP COLUMN body")
    assert layout() == ([], [])
    with pytest.raises(PySparkException, match="this one has partitions"):
        spark.sql(f"ALTER TABLE {name} CLUSTER BY (number)")
    spark.sql(f"DROP TABLE {name}")
    spark.sql(f"CREATE TABLE {name} (id long, p string) USING indextables CLUSTER BY (p)")
    assert layout() == ([], ["p"])
    spark.sql(f"ALTER TABLE {name} CLUSTER BY (ID)")
    assert layout() == ([], ["id"])
    spark.sql(f"ALTER TABLE {name} CLUSTER BY NONE")
    assert layout() == ([], [])
    spark.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize("name", NAMES)
def test_save_as_table_declares_buckets(spark, frame, name):
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    for cut, described in (
        (lambda writer: writer.bucketBy(2, "id"), "bucket(2, id)"),
        (lambda writer: writer.bucketBy(3, "id", "p").sortBy("body"),
         "sorted_bucket(id, p, 3, body)"),
    ):  # fmt: skip
        cut(frame.write.format("indextables").mode("overwrite")).saveAsTable(name)
        assert described in spark.sql(f"SHOW CREATE TABLE {name}").first()[0]
        assert spark.table(name).count() == 2
    cut(frame.write.format("indextables").mode("append")).saveAsTable(name)
    assert spark.table(name).count() == 4
    frame.write.format("indextables").mode("overwrite").saveAsTable(name)
    assert "bucket" not in spark.sql(f"SHOW CREATE TABLE {name}").first()[0]
    spark.sql(f"DROP TABLE {name}")


def test_options_of_a_table_in_a_local_folder_are_kept(spark):
    """As of Spark's formats: what the format does not have says nothing to it."""
    spark.sql("DROP TABLE IF EXISTS with_options")
    spark.sql(
        "CREATE TABLE with_options (a string) USING indextables OPTIONS (b '2', password 'secret')"
    )
    spark.sql("INSERT INTO with_options VALUES ('x')")
    assert spark.table("with_options").count() == 1
    spark.sql("DROP TABLE with_options")


@pytest.mark.filterwarnings("ignore:.*has no effect")
def test_options_of_the_scala_product(door, frame, tmp_path):
    uri = str(tmp_path / "t")
    options = {
        "read.defaultLimit": "1", "read.mode": "fast", "aws.accessKey": "AK",
        "indexWriter.threads": "2", "optimizeWrite.enabled": "true",
        "indexing.tokenizer.en_stem": "body", "indexing.defaultStringKind": "string",
        "indexing.typemap.text": "body",
    }  # fmt: skip
    named = {f"spark.indextables.{name}": value for name, value in options.items()}
    frame.write.format("indextables").options(**named).save(uri)
    assert door.read.format("indextables").options(**named).load(uri).count() == 2
    fields = Table.open(uri).view.mapping.by_name
    assert (fields["p"].kind, fields["body"].tokenizer) == ("string", "en_stem")
    with pytest.raises(ConfigError, match="no JVM to ask"):
        door.read.format("indextables").load(
            uri, **{"spark.indextables.aws.credentialsProviderClass": "com.example.Provider"}
        )
