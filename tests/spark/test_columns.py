"""ALTER TABLE … RENAME COLUMN and DROP COLUMN, whichever way the rows are then read."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from indextables import Table
from indextables.spark.data_source import IndexTablesSource

TABLE = "renamed_columns"


@pytest.fixture
def path(spark, tmp_path):
    """A table of three splits, two partitions, more rows than the driver reads by itself."""
    spark.sql(f"DROP TABLE IF EXISTS {TABLE}")
    where = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE {TABLE} (id BIGINT, a STRING, b STRING, n INT, s STRUCT<x: INT, y: STRING>, "
        f"p STRING) USING indextables PARTITIONED BY (p) LOCATION '{where}' "
        "TBLPROPERTIES ('spark.indextables.indexing.typemap.b' = 'string')"
    )
    table = Table.open(where)
    assert table.version == 0
    for ids in (range(4500), range(4500, 6000)):
        lines = [
            {"id": i, "a": f"word{i % 10}", "b": f"tag-{i % 3}", "n": i % 7,
             "s": {"x": i, "y": f"y{i % 4}"}, "p": "low" if i < 3000 else "high"}
            for i in ids
        ]  # fmt: skip
        table.append(pa.Table.from_pylist(lines, table.schema))
    yield where
    spark.sql(f"DROP TABLE IF EXISTS {TABLE}")


def rows(spark, query):
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=repr)


def one(spark, query):
    return spark.sql(query).collect()[0][0]


WAYS = {
    "driver": {},
    "native": {"read.driver.maxRows": "0"},
    "tasks": {"read.driver.maxRows": "0", "read.nativeScan.enabled": "false"},
}


def test_every_way_of_reading_has_the_new_names(spark, path):
    # Two names are swapped, so a name that is not translated reads the other column.
    for change in ("a TO x", "b TO a", "x TO b", "n TO amount", "p TO part", "s TO inner"):
        spark.sql(f"ALTER TABLE {TABLE} RENAME COLUMN {change}")
    for settings in WAYS.values():
        for key, value in settings.items():
            spark.conf.set(f"spark.indextables.{key}", value)
        try:
            check_reads(spark)
        finally:
            for key in settings:
                spark.conf.unset(f"spark.indextables.{key}")
    assert rows(spark, f"SHOW PARTITIONS {TABLE}") == [("part=high",), ("part=low",)]
    assert rows(spark, f"SELECT a FROM {TABLE} VERSION AS OF 2 WHERE id = 17") == [("word7",)]
    again = spark.read.format("indextables").load(path)
    assert again.where("b = 'word4'").count() == 600


def check_reads(spark):
    assert [f.name for f in spark.table(TABLE).schema] == [
        "id", "b", "a", "amount", "inner", "part",
    ]  # fmt: skip
    assert rows(spark, f"SELECT b, a, amount, inner.y, part, id FROM {TABLE} WHERE id = 17") == [
        ("word7", "tag-2", 3, "y1", "low", 17)
    ]
    assert rows(spark, f"SELECT * FROM {TABLE} WHERE id = 17") == [
        (17, "word7", "tag-2", 3, (17, "y1"), "low")
    ]
    conditions = ("b = 'word4'", "b indexquery 'word4'", "_indexall indexquery 'word4'",
                  "_indexall indexquery 'b:word4'")  # fmt: skip
    query = " UNION ALL ".join(
        f"SELECT {n}, part, count(*) FROM {TABLE} WHERE {condition} GROUP BY part"
        for n, condition in enumerate(conditions)
    )
    assert rows(spark, query) == [
        (n, part, 300) for n in range(len(conditions)) for part in ("high", "low")
    ]
    numbers = {
        "count(*) FROM {} WHERE a indexquery 'tag-1'": 2000,
        "count(*) FROM {} WHERE b LIKE 'tag%'": 0,
        "count(*) FROM {} WHERE part = 'low' AND amount > 5": 428,
        "sum(amount) FROM {}": sum(i % 7 for i in range(6000)),
        "avg(amount) FROM {} WHERE amount = 3": 3,
    }
    query = " UNION ALL ".join(
        f"SELECT {n}, {text.format(TABLE)}" for n, text in enumerate(numbers)
    )
    assert rows(spark, query) == list(enumerate(numbers.values()))
    assert rows(spark, f"SELECT min(b), max(a), min(amount) FROM {TABLE}") == [
        ("word0", "tag-2", 0)
    ]
    assert rows(spark, f"SELECT a, count(*) FROM {TABLE} GROUP BY a") == [
        ("tag-0", 2000), ("tag-1", 2000), ("tag-2", 2000),
    ]  # fmt: skip
    query = f"SELECT b, id FROM {TABLE} WHERE inner.x < 40 ORDER BY b DESC, id LIMIT 2"
    assert spark.sql(query).collect() == [("word9", 9), ("word9", 19)]
    assert len(spark.sql(f"SELECT amount FROM {TABLE} ORDER BY amount DESC LIMIT 3").collect()) == 3
    scored = f"SELECT b, _score > 0 FROM {TABLE} WHERE b indexquery 'word4' ORDER BY _score DESC"
    assert rows(spark, f"{scored} LIMIT 1") == [("word4", True)]
    with pytest.raises(PySparkException, match="no field 'n'"):
        spark.sql(f"SELECT id FROM {TABLE} WHERE _indexall indexquery 'n:3'").collect()
    # Where Spark evaluates the search itself.
    assert rows(spark, f"SELECT a indexquery 'tag-2', b indexquery 'word7' FROM {TABLE} "
                       "WHERE id = 17") == [(True, True)]  # fmt: skip
    assert rows(spark, f"SELECT _indexall indexquery 'a:tag-2' FROM {TABLE} WHERE id = 17") == [
        (True,)
    ]
    joined = (f"SELECT count(*) FROM {TABLE} JOIN (SELECT 'word3' AS b, 3 AS amount) k "
              f"ON {TABLE}.b = k.b AND {TABLE}.amount = k.amount")  # fmt: skip
    assert one(spark, joined) == sum(i % 10 == 3 and i % 7 == 3 for i in range(6000))
    shown = spark.sql(f"SELECT id FROM {TABLE} WHERE b = 'word1'")._jdf.queryExecution()
    assert "b = 'word1'" in shown.toString() or "b#" in shown.toString()


def test_statements_that_write_have_the_new_names(spark, path):
    for change in ("a TO x", "b TO a", "x TO b", "p TO part"):
        spark.sql(f"ALTER TABLE {TABLE} RENAME COLUMN {change}")
    spark.sql(f"INSERT INTO {TABLE} (id, b, a, part) VALUES (-1, 'new', 'tag-9', 'low')")
    frame = spark.createDataFrame([(-2, "new", "tag-9", "other")], "id long, b string, a string, "
                                                                   "part string")  # fmt: skip
    frame.write.format("indextables").mode("append").save(path)
    assert rows(spark, f"SELECT id, a FROM {TABLE} WHERE b = 'new'") == [
        (-1, "tag-9"), (-2, "tag-9"),
    ]  # fmt: skip
    spark.sql(f"UPDATE {TABLE} SET b = upper(b) WHERE a indexquery 'tag-9'")
    spark.sql(f"UPDATE {TABLE} SET b = reverse(b), a = b WHERE a = 'tag-9' AND length(b) = 3")
    assert rows(spark, f"SELECT id, a, b FROM {TABLE} WHERE id < 0") == [
        (-1, "NEW", "WEN"), (-2, "NEW", "WEN"),
    ]  # fmt: skip
    spark.sql(f"DELETE FROM {TABLE} WHERE b = 'WEN' AND part = 'other'")
    spark.sql(f"DELETE FROM {TABLE} WHERE substr(b, 1, 1) = 'W' AND id % 2 = -1")
    assert one(spark, f"SELECT count(*) FROM {TABLE} WHERE id < 0") == 0
    spark.sql(f"ALTER TABLE {TABLE} DROP PARTITION (part = 'high')")
    assert one(spark, f"SELECT count(*) FROM {TABLE}") == 3000
    spark.sql(f"INSERT OVERWRITE {TABLE} PARTITION (part = 'low') (id, b) VALUES (1, 'only')")
    assert rows(spark, f"SELECT id, b, a, part FROM {TABLE}") == [(1, "only", None, "low")]
    spark.range(1).selectExpr("id", "'low' part").write.format("indextables").mode(
        "overwrite"
    ).option("replaceWhere", "part = 'low'").save(path)
    assert rows(spark, f"SELECT id, b, part FROM {TABLE}") == [(0, None, "low")]
    spark.sql(f"MERGE SPLITS {TABLE}")
    spark.sql("DROP TABLE IF EXISTS renamed_like")
    spark.sql(f"CREATE TABLE renamed_like LIKE {TABLE}")
    try:
        assert spark.table("renamed_like").columns == spark.table(TABLE).columns
        spark.sql(f"INSERT INTO renamed_like SELECT * FROM {TABLE}")
        assert rows(spark, "SELECT id, part FROM renamed_like") == [(0, "low")]
        created = one(spark, f"SHOW CREATE TABLE {TABLE}")
        assert "storedName" not in created and "indextables.name" not in created
        assert "part STRING" in created and "PARTITIONED BY (part)" in created
        assert "LOCATION" in created
    finally:
        spark.sql("DROP TABLE IF EXISTS renamed_like")
    frame = spark.createDataFrame([("x", 1)], "b string, fresh int")
    frame.write.format("indextables").mode("overwrite").option("overwriteSchema", "true").save(path)
    assert rows(spark, f"SELECT * FROM {TABLE}") == [("x", 1)]


def test_a_dropped_column_is_gone_and_its_name_is_free(spark, path):
    splits = set(Table.open(path).snapshot().entries["path"].to_pylist())
    spark.sql(f"ALTER TABLE {TABLE} DROP COLUMNS (a, s)")
    assert set(Table.open(path).snapshot().entries["path"].to_pylist()) == splits
    assert spark.table(TABLE).columns == ["id", "b", "n", "p"]
    assert one(spark, f"SELECT count(*) FROM {TABLE} WHERE _indexall indexquery 'word4'") == 0
    with pytest.raises(PySparkException, match="UNRESOLVED_COLUMN"):
        spark.sql(f"SELECT a FROM {TABLE}")
    spark.sql(f"ALTER TABLE {TABLE} DROP COLUMN IF EXISTS a")
    spark.sql(f"ALTER TABLE {TABLE} ADD COLUMN a STRING")
    assert one(spark, f"SELECT count(a) FROM {TABLE}") == 0
    assert one(spark, f"SELECT count(*) FROM {TABLE} WHERE a IS NULL AND id >= 0") == 6000
    spark.sql(f"INSERT INTO {TABLE} (id, a) VALUES (-1, 'word4')")
    for condition in ("a = 'word4'", "a indexquery 'word4'", "_indexall indexquery 'word4'"):
        assert rows(spark, f"SELECT id FROM {TABLE} WHERE {condition}") == [(-1,)], condition
    scored = f"SELECT id FROM {TABLE} WHERE a indexquery 'word4' ORDER BY _score DESC LIMIT 5"
    assert rows(spark, scored) == [(-1,)]
    for change, reason in (
        ("DROP COLUMN p", "partition column"),
        ("RENAME COLUMN n TO id", "already exists"),
        ("RENAME COLUMN n TO _score", "hidden column"),
    ):
        with pytest.raises(PySparkException, match=reason):
            spark.sql(f"ALTER TABLE {TABLE} {change}")


def test_the_public_data_source_has_the_new_names(spark, path):
    for change in ("a TO x", "b TO a", "x TO b", "p TO part"):
        spark.sql(f"ALTER TABLE {TABLE} RENAME COLUMN {change}")
    spark.sql(f"ALTER TABLE {TABLE} ALTER COLUMN n TYPE BIGINT")
    source = IndexTablesSource({"path": path})
    schema = source.schema()
    reader = source.reader(schema)
    read = [b for part in reader.partitions() for b in reader.read(part)]
    found = pa.Table.from_batches(read)
    assert found.num_rows == 6000
    assert set(found["b"].unique().to_pylist()) == {f"word{n}" for n in range(10)}
    writer = source.writer(schema, overwrite=True)
    writer.commit([writer.write(iter(read[:1]))])
    assert one(spark, f"SELECT count(DISTINCT b) FROM {TABLE} WHERE a LIKE 'tag%'") == 10


def test_the_new_name_may_be_an_identifier_clause(spark, path):
    spark.sql(f"ALTER TABLE {TABLE} RENAME COLUMN IDENTIFIER('a') TO IDENTIFIER('given name')")
    spark.sql(f"ALTER TABLE {TABLE} RENAME COLUMN b TO IDENTIFIER(:new)", args={"new": "tag"})
    assert spark.table(TABLE).columns[:3] == ["id", "given name", "tag"]
    with pytest.raises(PySparkException, match="Duplicate column names"):
        spark.sql(f"ALTER TABLE {TABLE} RENAME COLUMN tag TO IDENTIFIER('n')")
    assert one(spark, f"SELECT count(*) FROM {TABLE} WHERE `given name` indexquery 'word4'") == 600


def test_small_changes(spark, path):
    with pytest.raises(PySparkException, match="FIELD_ALREADY_EXISTS"):  # Spark, of any table
        spark.sql(f"ALTER TABLE {TABLE} RENAME COLUMN a TO A")
    Table.open(path).rename_column("a", "A")
    assert spark.table(TABLE).columns[1] == "A"
    spark.sql(f"INSERT INTO {TABLE} (id, a) VALUES (-1, 'word4')")
    assert one(spark, f"SELECT count(*) FROM {TABLE} WHERE a indexquery 'word4'") == 601
    # Fields inside columns stay.
    for change in ("RENAME COLUMN s.x TO z", "DROP COLUMN s.x"):
        with pytest.raises(PySparkException, match=r"'s\.x' is a field inside a column"):
            spark.sql(f"ALTER TABLE {TABLE} {change}")
    assert one(spark, f"SELECT max(s.x) FROM {TABLE}") == 5999


def test_random_changes_answer_as_parquet_does(spark, tmp_path):
    """The same statements, where Parquet has them; its table is made anew for the others."""
    chance = random.Random(7)
    mine, other = f"{TABLE}_random", "renamed_as_view"
    spark.sql(f"DROP TABLE IF EXISTS {mine}")
    spark.sql(f"CREATE TABLE {mine} (k INT, a STRING, b INT) USING indextables LOCATION "
              f"'{tmp_path / 'mine'}'")  # fmt: skip
    rows_of = pa.schema([("k", pa.int32()), ("a", pa.string()), ("b", pa.int32())]).empty_table()
    key = 0
    for _ in range(6):
        names = [n for n in rows_of.column_names if n != "k"]
        match chance.choice(["insert", "insert", "rename", "rename", "drop", "add"]):
            case "insert":
                new = []
                for _ in range(3):
                    key += 1
                    new.append({"k": key} | {
                        f.name: f"w{key % 3}" if pa.types.is_string(f.type) else key % 4
                        for f in rows_of.schema if f.name != "k"
                    })  # fmt: skip
                made = pa.Table.from_pylist(new, rows_of.schema)
                spark.createDataFrame(made).writeTo(mine).append()
                rows_of = pa.concat_tables([rows_of, made])
            case "rename" if names:
                old, new_name = chance.choice(names), chance.choice("abcd")
                if new_name not in rows_of.column_names:
                    spark.sql(f"ALTER TABLE {mine} RENAME COLUMN {old} TO {new_name}")
                    rows_of = rows_of.rename_columns(
                        [new_name if n == old else n for n in rows_of.column_names]
                    )
            case "drop" if len(names) > 1:
                gone = chance.choice(names)
                spark.sql(f"ALTER TABLE {mine} DROP COLUMN {gone}")
                rows_of = rows_of.drop_columns([gone])
            case "add":
                name = chance.choice([n for n in "abcde" if n not in names])
                spark.sql(f"ALTER TABLE {mine} ADD COLUMN {name} STRING")
                rows_of = rows_of.append_column(name, pa.nulls(len(rows_of), pa.string()))
        spark.createDataFrame(rows_of).createOrReplaceTempView(other)
        questions = ["SELECT * FROM {}"]
        for f in rows_of.schema:
            value = "'w1'" if pa.types.is_string(f.type) else "1"
            questions.append(
                f"SELECT {f.name}, count(*), max(k) FROM {{}} WHERE {f.name} = {value} OR k < 4 "
                f"GROUP BY {f.name}"
            )
        for question in questions:
            expected = rows(spark, question.format(other))
            assert rows(spark, question.format(mine)) == expected, question
    spark.sql(f"DROP TABLE {mine}")
