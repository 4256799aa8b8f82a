"""Statements whose parts have tests of their own, together: on S3, with XRefs, in old versions."""

from __future__ import annotations

import decimal
import uuid

import pytest
from pyspark.errors import PySparkException

from indextables import Table
from indextables.log.files import vectors_by_path


@pytest.fixture
def made(spark, s3):
    """Makes tables on the S3 server, in Spark's own catalog."""
    names = []

    def make(columns, rest=""):
        name = f"remote_{len(names)}"
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        options = ", ".join(f"'{key}' '{value}'" for key, value in s3.options.items())
        place = f"{s3.uri}/{uuid.uuid4().hex}"
        spark.sql(f"CREATE TABLE {name} ({columns}) USING indextables OPTIONS ({options}) "
                  f"{rest} LOCATION '{place}'")  # fmt: skip
        names.append(name)
        return name, place

    yield make
    for name in names:
        spark.sql(f"DROP TABLE {name}")


def rows(spark, query):
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=repr)


CHANGES = (
    "ALTER COLUMN id TYPE BIGINT",
    "ALTER COLUMN x TYPE DOUBLE",
    "ALTER COLUMN d TYPE DECIMAL(12,2)",
    "ADD COLUMN extra STRING COMMENT 'new'",
    "ALTER COLUMN id COMMENT 'key'",
)
LARGE = 3_000_000_000
QUESTIONS = {
    "SELECT id, extra FROM {} WHERE id > 1": [(2, None), (LARGE, "e")],
    "SELECT id FROM {} WHERE x = 1.5D OR x IS NULL OR d > 100": [(1,), (2,), (LARGE,)],
    "SELECT id FROM {} WHERE x > 1.25 AND d = 1.25": [(1,)],
    "SELECT count(*), min(id), max(id), max(x), sum(d) FROM {}": [
        (3, 1, LARGE, 1e300, decimal.Decimal("1234567898.37"))
    ],
}
ON_DRIVER = "spark.indextables.read.driver.maxRows"


def changed_columns(spark, name):
    """Two rows, wider columns, and one row that only those hold."""
    spark.sql(f"INSERT INTO {name} (id, x, d) VALUES (1, 1.5, 1.25), (2, NULL, 7.00)")
    for change in CHANGES:
        spark.sql(f"ALTER TABLE {name} {change}")
    spark.sql(f"INSERT INTO {name} (id, x, d, extra) VALUES ({LARGE}, 1e300, 1234567890.12, 'e')")
    comments = {row[0]: row[2] for row in spark.sql(f"DESCRIBE {name}").collect()}
    assert (comments["id"], comments["extra"]) == ("key", "new")


def test_columns_of_a_table_on_s3_change(spark, s3, made):
    name, place = made("id INT, x FLOAT, d DECIMAL(5,2), v VARCHAR(4), c CHAR(3), "
                       "s STRING COLLATE UTF8_LCASE")  # fmt: skip
    changed_columns(spark, name)
    spark.sql(f"INSERT INTO {name} (id, v, c, s) VALUES (0, 'ab', 'x', 'Abc')")
    with pytest.raises(PySparkException, match="EXCEED_LIMIT_LENGTH"):
        spark.sql(f"INSERT INTO {name} (id, v) VALUES (9, 'abcde')")
    for question, answer in QUESTIONS.items():
        assert rows(spark, question.format(f"(SELECT * FROM {name} WHERE id > 0)")) == answer
    assert rows(
        spark, f"SELECT id, length(c) FROM {name} WHERE c = 'x  ' AND s = 'aBC' AND extra IS NULL"
    ) == [(0, 3)]
    assert rows(spark, f"SELECT id FROM {name} WHERE s indexquery 'abc'") == [(0,)]
    table = Table.open(place, storage_options=s3.options)
    assert table.count(where="id >= 2 AND d > 1.25") == 2
    assert table.count(where="x > 1e200 OR s IS NOT NULL") == 2


def test_native_scans_of_splits_from_before_a_column_was_widened(spark, tmp_path):
    name = f"indextables.`{tmp_path}/t`"
    spark.sql(f"CREATE TABLE {name} (id INT, x FLOAT, d DECIMAL(5,2))")
    changed_columns(spark, name)
    spark.conf.set(ON_DRIVER, "0")
    try:
        for question, answer in QUESTIONS.items():
            assert rows(spark, question.format(name)) == answer, question
    finally:
        spark.conf.unset(ON_DRIVER)


def test_partitions_and_rows_change_on_s3_with_xrefs(spark, s3, made):
    mapping = "TBLPROPERTIES ('spark.indextables.indexing.typemap.name' = 'string')"
    name, place = made("id BIGINT, name STRING, p INT", f"PARTITIONED BY (p) {mapping}")
    spark.sql(f"INSERT INTO {name} SELECT id, if(id % 10 = 0, 'a', 'b'), int(id / 10) "
              "FROM VALUES (0), (1), (10), (11), (20), (21), (30), (31) AS v(id)")  # fmt: skip
    table = Table.open(place, storage_options=s3.options)
    spark.sql(f"INDEX CROSSREFERENCES FOR {name}")
    spark.conf.set("spark.indextables.xref.query.minSplitsForXRef", "1")
    try:
        spark.sql(f"UPDATE {name} SET name = concat(name, '!') WHERE upper(name) = 'A' AND p > 1")
        assert rows(spark, f"SELECT id FROM {name} WHERE name = 'a!'") == [(20,), (30,)]
        assert rows(spark, f"SELECT id FROM {name} WHERE name = 'a'") == [(0,), (10,)]
        spark.sql(f"DELETE FROM {name} WHERE length(name) = 2 AND id % 20 = 0")
        assert rows(spark, f"SELECT id FROM {name} WHERE name indexquery '\"a!\"'") == [(30,)]
        assert rows(spark, f"SHOW PARTITIONS {name}") == [(f"p={p}",) for p in range(4)]
        spark.sql(f"ALTER TABLE {name} DROP PARTITION (p = 3)")
        spark.sql(f"TRUNCATE TABLE {name} PARTITION (p = 2)")
        assert rows(spark, f"SELECT id FROM {name}") == [(0,), (1,), (10,), (11,)]
        assert rows(spark, f"SELECT id FROM {name} WHERE name = 'b'") == [(1,), (11,)]
        assert table.count(where="name = 'a!'") == 0
        assert not [check for check in table.verify() if check.problems]
    finally:
        spark.conf.unset("spark.indextables.xref.query.minSplitsForXRef")


def test_where_rows_lie_after_a_merge_and_before_it_in_one_query(spark, tmp_path):
    place = f"{tmp_path}/t"
    spark.sql(f"CREATE TABLE indextables.`{place}` (id BIGINT, name STRING)")
    for number in range(3):
        spark.sql(f"INSERT INTO indextables.`{place}` VALUES ({number}, 'n{number}')")
    spark.sql(f"MERGE SPLITS '{place}'")
    now, then = f"indextables.`{place}`", f"indextables.`{place}` VERSION AS OF 3"
    (answer,) = rows(
        spark,
        f"SELECT count(DISTINCT n._split), count(DISTINCT o._split), max(n._row), max(o._row), "
        f"count(*), sum(int(n._split = o._split)) FROM {now} n JOIN {then} o ON n.id = o.id",
    )
    assert answer == (1, 3, 2, 0, 3, 0)
    ((split, row),) = rows(spark, f"SELECT _split, _row FROM {now} WHERE name indexquery 'n2'")
    assert rows(spark, f"SELECT id FROM {now} WHERE _split = '{split}' AND _row = {row}") == [(2,)]
    ((old, first),) = rows(spark, f"SELECT _split, _row FROM {then} WHERE id = 2")
    assert (old != split, first) == (True, 0)
    assert rows(spark, f"SELECT id FROM {then} WHERE _split = '{old}'") == [(2,)]
    assert rows(spark, f"SELECT id FROM {now} WHERE _split = '{old}'") == []


def test_a_table_on_s3_is_merged_into_and_flows_to_another_one(spark, s3, made, tmp_path):
    """MERGE with deletion vectors, what it changed, and a stream from bucket to bucket."""
    marks = "TBLPROPERTIES ('spark.indextables.deletionVectors.mode' = 'vector')"
    name, place = made("id BIGINT, body STRING, p STRING", f"PARTITIONED BY (p) {marks}")
    target = f"{s3.uri}/{uuid.uuid4().hex}"

    def flow():
        reader = spark.readStream.format("indextables").options(**s3.options, ignoreChanges=True)
        reader = reader.option("startingVersion", 0).option("where", "body indexquery 'fox'")
        writer = reader.load(place).writeStream.format("indextables").options(**s3.options)
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start(target)
        assert query.awaitTermination(120) and query.exception() is None

    spark.sql(
        f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'red fox', 'a b'), "
        "(2, 'dog', 'a b'), (3, 'x', NULL), (5, 'stays', 'a b')"
    )
    flow()
    spark.sql(
        f"MERGE INTO {name} t USING VALUES (1, 'old'), (2, 'new fox'), (4, 'a fox') AS s(id, body) "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET body = s.body "
        "WHEN NOT MATCHED THEN INSERT (id, body, p) VALUES (s.id, s.body, 'é/=')"
    )
    table = Table.open(place, storage_options=s3.options)
    assert vectors_by_path(table.snapshot().entries)
    changed = f"SELECT id, body, p, _change_type FROM {name} CHANGES FROM VERSION {table.version}"
    assert rows(spark, changed) == sorted(
        [(1, "red fox", "a b", "update_preimage"), (1, "old", "a b", "update_postimage"),
         (2, "dog", "a b", "update_preimage"), (2, "new fox", "a b", "update_postimage"),
         (4, "a fox", "é/=", "insert")], key=repr)  # fmt: skip
    flow()
    (tmp_path / "c/commits/1").unlink()  # Spark died before it noted the batch
    (tmp_path / "c/commits/.1.crc").unlink(missing_ok=True)
    flow()
    streamed = Table.open(target, storage_options=s3.options)
    assert sorted(streamed.scan(where="body indexquery 'fox'")["id"].to_pylist()) == [1, 2, 4]
    assert streamed.count() == 3


def test_defaults_variants_and_computed_groups_on_s3(spark, s3, made, tmp_path):
    """A default in old splits, VARIANT in a MERGE, GROUP BY of expressions, a stream, files."""
    marks = "TBLPROPERTIES ('spark.indextables.deletionVectors.mode' = 'vector')"
    name, place = made("id BIGINT, ts TIMESTAMP_NTZ, v VARIANT", marks)
    spark.sql(
        f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, TIMESTAMP_NTZ'2024-01-01 00:00:00' + "
        "make_dt_interval(0, id * 10), parse_json('{\"a\": ' || id || '}') FROM range(4)"
    )
    spark.sql(f"ALTER TABLE {name} ADD COLUMN note STRING DEFAULT 'red fox'")
    spark.sql(
        f"MERGE INTO {name} t USING VALUES (1, '{{\"a\": [7]}}'), (9, '9') AS s(id, v) "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = parse_json(s.v) WHEN NOT MATCHED THEN "
        "INSERT (id, ts, v) VALUES (s.id, TIMESTAMP_NTZ'2024-01-02 03:00:00', parse_json(s.v))"
    )
    spark.sql(f"INSERT INTO {name} VALUES (10, NULL, NULL, 'a dog')")
    table = Table.open(place, storage_options=s3.options)
    assert vectors_by_path(table.snapshot().entries)
    variants = [(0, '{"a":0}'), (1, '{"a":[7]}'), (2, '{"a":2}'), (3, '{"a":3}'), (9, "9")]
    sizes = set(table.snapshot().entries["size"].to_pylist())
    fox = f"FROM {name} WHERE note indexquery 'fox'"
    by_day = f"SELECT string(date_trunc('day', ts)) d, count(*), max(id) {fox} GROUP BY d"
    days = [("2024-01-01 00:00:00", 3, 2), ("2024-01-02 00:00:00", 2, 9)]
    assert rows(spark, f"SELECT id, to_json(v) {fox}") == variants
    assert rows(spark, by_day) == days
    assert rows(spark, f"SELECT length(note) n, count(*) FROM {name} GROUP BY n") == [
        (5, 1),
        (7, 5),
    ]
    files = rows(spark, f"SELECT DISTINCT _metadata.file_path, _metadata.file_size FROM {name}")
    assert all(path.startswith(f"{place}/") for path, _ in files)
    assert {size for _, size in files} == sizes
    spark.conf.set(ON_DRIVER, "0")  # in tasks
    try:
        assert rows(spark, f"SELECT variant_get(v, '$.a', 'int') {fox} AND id = 3") == [(3,)]
        assert rows(spark, by_day) == days
    finally:
        spark.conf.unset(ON_DRIVER)
    assert table.count(where="note = 'red fox'") == 5
    reader = spark.readStream.format("indextables").options(**s3.options, ignoreChanges=True)
    reader = reader.option("startingVersion", 0).option("where", "note indexquery 'fox'")
    writer = reader.load(place).selectExpr("id", "note").writeStream.format("indextables")
    writer = writer.option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "t"))
    assert query.awaitTermination(120) and query.exception() is None
    streamed = Table.open(str(tmp_path / "t")).scan(columns=["id", "note"])
    assert set(streamed["note"].to_pylist()) == {"red fox"}
    assert {0, 1, 2, 3, 9} == set(streamed["id"].to_pylist())
