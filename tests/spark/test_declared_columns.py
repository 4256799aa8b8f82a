"""What CREATE and ALTER TABLE say of columns, and statements about partitions."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from indextables import Table
from indextables.errors import UnsupportedPredicateError


@pytest.fixture(params=["indextables.declared", "declared"])
def name(spark, request):
    """A name in each catalog."""
    spark.sql(f"DROP TABLE IF EXISTS {request.param}")
    yield request.param
    spark.sql(f"DROP TABLE IF EXISTS {request.param}")


def rows(spark, query):
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=repr)


def test_char_varchar_not_null_and_default_are_kept_and_enforced(spark, name):
    spark.sql(
        f"CREATE TABLE {name} (c CHAR(4), v VARCHAR(3) COMMENT 'short', n INT NOT NULL, "
        "d INT DEFAULT 7) USING indextables"
    )
    spark.sql(f"INSERT INTO {name} (c, v, n) VALUES ('ab', 'abc', 1)")
    assert rows(spark, f"SELECT concat('[', c, ']'), v, n, d FROM {name} WHERE c = 'ab'") == [
        ("[ab  ]", "abc", 1, 7)
    ]
    assert rows(spark, f"SELECT n FROM {name} WHERE c indexquery 'ab'") == [(1,)]
    described = {row[0]: (row[1], row[2]) for row in spark.sql(f"DESCRIBE {name}").collect()}
    assert described["c"] == ("char(4)", None)
    assert described["v"] == ("varchar(3)", "short")
    for values, condition in (
        ("('abcde', 'a', 1)", "EXCEED_LIMIT_LENGTH"),
        ("('a', 'abcd', 1)", "EXCEED_LIMIT_LENGTH"),
        ("('a', 'a', NULL)", "NOT_NULL_ASSERT_VIOLATION"),
    ):
        with pytest.raises(PySparkException, match=condition):
            spark.sql(f"INSERT INTO {name} (c, v, n) VALUES {values}")
    assert rows(spark, f"SELECT count(*) FROM {name}") == [(1,)]


def test_columns_change_and_old_rows_stay_readable(spark, name):
    spark.sql(f"CREATE TABLE {name} (v VARCHAR(3), n INT NOT NULL, p INT) USING indextables "
              "PARTITIONED BY (p)")  # fmt: skip
    spark.sql(f"INSERT INTO {name} VALUES ('abc', 1, 1)")
    for change in (
        "ALTER COLUMN v TYPE VARCHAR(10)",
        "ALTER COLUMN n TYPE BIGINT",
        "ALTER COLUMN n COMMENT 'a number'",
        "ALTER COLUMN n DROP NOT NULL",
        "ADD COLUMN x STRING AFTER v",
        "ALTER COLUMN x FIRST",
        "ALTER COLUMN x SET DEFAULT 'later'",
    ):
        spark.sql(f"ALTER TABLE {name} {change}")
    spark.sql(f"INSERT INTO {name} (v, n, p) VALUES ('longer', 5000000000, 1), ('null', NULL, 2)")
    assert spark.table(name).columns == ["x", "v", "n", "p"]
    assert rows(spark, f"SELECT * FROM {name}") == [
        ("later", "longer", 5_000_000_000, 1),
        ("later", "null", None, 2),
        (None, "abc", 1, 1),
    ]
    assert rows(spark, f"SELECT n FROM {name} WHERE n > 0 AND x IS NULL") == [(1,)]
    assert rows(spark, f"SELECT v FROM {name} WHERE x indexquery 'later' AND p = 2") == [("null",)]
    assert ("n", "bigint", "a number") in rows(spark, f"DESCRIBE {name}")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("ALTER COLUMN n TYPE STRING", "'n' is integer and cannot become string"),
        ("ALTER COLUMN p TYPE BIGINT", "a partition column stays what it is"),
        ("ADD COLUMN y INT DEFAULT 3", "null in the rows that are there"),
        ("ADD COLUMN y INT NOT NULL", "leave out NOT NULL"),
        ("ADD COLUMN s.y INT", "s.y"),
        ("RENAME COLUMN s.a TO b", "field inside a column"),
        ("DROP COLUMN p", "'p' is a partition column"),
    ],
)
def test_a_change_of_columns_that_cannot_be_made_is_one_sentence(spark, change, sentence):
    spark.sql("DROP TABLE IF EXISTS fixed")
    spark.sql("CREATE TABLE fixed (v STRING, n INT, s STRUCT<a: INT>, p INT) USING indextables "
              "PARTITIONED BY (p)")  # fmt: skip
    spark.sql("INSERT INTO fixed VALUES ('a', 1, NULL, 1)")
    with pytest.raises(PySparkException, match=sentence):
        spark.sql(f"ALTER TABLE fixed {change}")
    spark.sql("DROP TABLE fixed")


def test_collated_texts_are_compared_by_spark_and_searched_by_the_index(spark, tmp_path):
    path = tmp_path / "collated"
    for kind, place in (("parquet", tmp_path / "peer"), ("indextables", path)):
        spark.sql(f"DROP TABLE IF EXISTS {kind}_collated")
        spark.sql(
            f"CREATE TABLE {kind}_collated (s STRING COLLATE UTF8_LCASE, b STRING, "
            f"a ARRAY<STRING COLLATE UNICODE_CI>) USING {kind} LOCATION '{place}'"
        )
        spark.sql(
            f"INSERT INTO {kind}_collated VALUES ('Abc', 'Abc', array('Q', 'q')), "
            "('aBC', 'aBC', NULL), ('x', 'x', array('y')), (NULL, 'z', NULL)"
        )
    long_list = ", ".join(f"'k{number}'" for number in range(12))
    for query in (
        "SELECT b FROM {} WHERE s = 'ABC'",
        "SELECT b FROM {} WHERE s > 'ABA' AND s IS NOT NULL",
        "SELECT b FROM {} WHERE s LIKE 'aB%' OR s IS NULL",
        f"SELECT b FROM {{}} WHERE s IN ({long_list}, 'ABC')",
        "SELECT b FROM {} WHERE startswith(s, 'AB')",
        "SELECT b FROM {} WHERE array_contains(a, 'Q')",
        "SELECT lower(s), count(*) FROM {} GROUP BY s",
        "SELECT lower(min(s)), lower(max(s)), count(DISTINCT s) FROM {}",
        "SELECT l.b, r.b FROM {} l JOIN {} r ON l.s = r.s",
    ):
        ours, theirs = (
            rows(spark, query.replace("{}", f"{k}_collated")) for k in ("indextables", "parquet")
        )
        assert ours == theirs, query
    assert rows(spark, "SELECT b FROM indextables_collated WHERE s indexquery 'abc'") == [
        ("Abc",),
        ("aBC",),
    ]
    table = Table.open(str(path))
    assert table.count(where="s IS NULL OR s indexquery 'x'") == 2
    with pytest.raises(UnsupportedPredicateError, match="has a collation"):
        table.count(where="b = 'z' OR s = 'abc'")
    for kind in ("parquet", "indextables"):
        spark.sql(f"DROP TABLE {kind}_collated")


def test_a_collated_column_is_no_partition(spark):
    with pytest.raises(PySparkException, match="has a collation"):
        spark.sql(
            "CREATE TABLE refused (a INT, s STRING COLLATE UTF8_LCASE) USING indextables "
            "PARTITIONED BY (s)"
        )


def test_partitions_are_listed_dropped_and_truncated(spark, name):
    spark.sql(
        f"CREATE TABLE {name} (a INT, day DATE, lang STRING) USING indextables "
        "PARTITIONED BY (day, lang)"
    )
    spark.sql(
        f"INSERT INTO {name} VALUES (1, DATE '2024-01-01', 'de'), (2, DATE '2024-01-02', 'en'), "
        "(3, NULL, 'en'), (4, DATE '2024-01-02', 'a/b')"
    )
    assert len(rows(spark, f"SHOW PARTITIONS {name}")) == 4
    assert rows(spark, f"SHOW PARTITIONS {name} PARTITION (lang = 'en')") == [
        ("day=2024-01-02/lang=en",),
        ("day=null/lang=en",),
    ]
    spark.sql(f"ALTER TABLE {name} DROP PARTITION (day = DATE '2024-01-01', lang = 'de')")
    spark.sql(f"TRUNCATE TABLE {name} PARTITION (day = DATE '2024-01-02')")
    assert rows(spark, f"SELECT a FROM {name}") == [(3,)]
    with pytest.raises(PySparkException, match="PARTITIONS_NOT_FOUND"):
        spark.sql(f"ALTER TABLE {name} DROP PARTITION (day = DATE '2024-01-01', lang = 'de')")
    with pytest.raises(PySparkException, match="INSERT them"):
        spark.sql(f"ALTER TABLE {name} ADD PARTITION (day = DATE '2024-01-01', lang = 'de')")
    spark.sql(f"TRUNCATE TABLE {name}")
    assert rows(spark, f"SHOW PARTITIONS {name}") == []


@pytest.mark.parametrize(
    "kind", ["INT", "BIGINT", "DOUBLE", "DECIMAL(10,2)", "TIMESTAMP", "TIMESTAMP_NTZ", "BOOLEAN"]
)
def test_partitions_of_any_type_are_dropped_by_their_value(spark, kind):
    value = {"TIMESTAMP": "TIMESTAMP '2024-01-02 03:04:05'", "BOOLEAN": "true",
             "TIMESTAMP_NTZ": "TIMESTAMP_NTZ '2024-01-02 03:04:05'"}.get(kind, "12")  # fmt: skip
    spark.sql("DROP TABLE IF EXISTS typed_partitions")
    spark.sql(f"CREATE TABLE typed_partitions (a INT, p {kind}) USING indextables "
              "PARTITIONED BY (p)")  # fmt: skip
    spark.sql(f"INSERT INTO typed_partitions VALUES (1, {value}), (2, NULL)")
    spark.sql(f"ALTER TABLE typed_partitions DROP PARTITION (p = {value})")
    assert rows(spark, "SELECT a FROM typed_partitions") == [(2,)]
    spark.sql("DROP TABLE typed_partitions")


def test_a_table_like_another_and_under_another_name(spark):
    for one in ("original", "copied", "renamed"):
        spark.sql(f"DROP TABLE IF EXISTS {one}")
    spark.sql("CREATE TABLE original (v VARCHAR(5), p INT) USING indextables PARTITIONED BY (p) "
              "TBLPROPERTIES ('spark.indextables.indexing.typemap.v' = 'string')")  # fmt: skip
    spark.sql("INSERT INTO original VALUES ('A b', 1)")
    spark.sql("CREATE TABLE copied LIKE original")
    assert spark.table("copied").columns == ["v", "p"]
    created = spark.sql("SHOW CREATE TABLE copied").collect()[0][0]
    assert "USING indextables" in created and "typemap.v" in created
    assert rows(spark, "SELECT * FROM copied") == []
    spark.sql("INSERT INTO copied SELECT * FROM original")
    assert rows(spark, "SELECT v FROM copied WHERE v indexquery '\"A b\"'") == [("A b",)]
    spark.sql("ALTER TABLE original RENAME TO renamed")
    assert rows(spark, "SELECT v FROM renamed WHERE v = 'A b'") == [("A b",)]
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("original")
    spark.sql("INSERT INTO renamed VALUES ('c', 2)")
    assert rows(spark, "SELECT count(*) FROM renamed") == [(2,)]
    for one in ("copied", "renamed"):
        spark.sql(f"DROP TABLE {one}")


def test_not_null_is_kept_in_plain_python(spark, tmp_path):
    spark.sql(f"CREATE TABLE indextables.`{tmp_path}/t` (n INT NOT NULL, s STRING)")
    table = Table.open(str(tmp_path / "t"))
    assert table.schema.field("n").nullable is False
    table.append(pa.table({"n": pa.array([1], pa.int32()), "s": ["a"]}))
    assert rows(spark, f"SELECT * FROM indextables.`{tmp_path}/t`") == [(1, "a")]
