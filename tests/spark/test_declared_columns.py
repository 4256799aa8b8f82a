"""What CREATE and ALTER TABLE say of columns, and statements about partitions."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from indextables import Table
from indextables.errors import UnsupportedPredicateError

CATALOGS = ("indextables.declared", "declared")


@pytest.fixture(params=CATALOGS)
def name(spark, request):
    """A name in each catalog."""
    spark.sql(f"DROP TABLE IF EXISTS {request.param}")
    yield request.param
    spark.sql(f"DROP TABLE IF EXISTS {request.param}")


# Both catalogs lead to the same code.
one_of_both = pytest.mark.parametrize(
    "name", [CATALOGS[1], pytest.param(CATALOGS[0], marks=pytest.mark.long)], indirect=True
)


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


def test_char_and_varchar_are_types_where_a_session_wants_them_so(spark, tmp_path):
    table = f"indextables.`{tmp_path}/t`"
    spark.sql(f"CREATE TABLE {table} (c CHAR(4), v VARCHAR(3), l ARRAY<VARCHAR(2)>)")
    spark.sql(f"INSERT INTO {table} VALUES ('ab', 'abc', array('x'))")
    ways = {"driver": {}, "native": {"driver.maxRows": "0"},
            "tasks": {"driver.maxRows": "0", "nativeScan.enabled": "false"}}  # fmt: skip
    spark.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    try:
        for way, settings in ways.items():
            for key, value in settings.items():
                spark.conf.set(f"spark.indextables.read.{key}", value)
            found = spark.sql(f"SELECT * FROM {table} WHERE v = 'abc' AND c = 'ab  '")
            kinds = [kind for _, kind in found.dtypes]
            assert kinds == ["char(4)", "varchar(3)", "array<varchar(2)>"], way
            assert rows(spark, f"SELECT * FROM {table}") == [("ab  ", "abc", ["x"])], way
            assert found.collect() == [("ab  ", "abc", ["x"])], way
            groups = f"SELECT c, max(v) FROM {table} GROUP BY c"
            assert rows(spark, groups) == [("ab  ", "abc")], way
    finally:
        spark.conf.unset("spark.sql.preserveCharVarcharTypeInfo")
        for key in ways["tasks"]:
            spark.conf.unset(f"spark.indextables.read.{key}")


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


@pytest.fixture(scope="module")
def fixed(spark):
    """The schema of a table that no statement here can change."""
    spark.sql("DROP TABLE IF EXISTS fixed")
    spark.sql("CREATE TABLE fixed (v STRING, n INT, s STRUCT<a: INT>, p INT) USING indextables "
              "PARTITIONED BY (p)")  # fmt: skip
    spark.sql("INSERT INTO fixed VALUES ('a', 1, NULL, 1)")
    yield spark.table("fixed").schema
    spark.sql("DROP TABLE fixed")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("ALTER COLUMN n TYPE STRING", "'n' is integer and cannot become string"),
        ("ALTER COLUMN p TYPE BIGINT", "a partition column keeps its type"),
        ("ADD COLUMN y ARRAY<INT> DEFAULT array(1)", "is not a single value"),
        ("ADD COLUMN y VARCHAR(2) DEFAULT 'abc'", "EXCEED_LIMIT_LENGTH"),
        ("ADD COLUMN y INT NOT NULL", "leave out NOT NULL"),
        ("ADD COLUMN s.y INT DEFAULT 3", "leave out DEFAULT"),
        ("ADD COLUMN s.y INT NOT NULL", "leave out DEFAULT and NOT NULL"),
        ("ADD COLUMN s.y INT FIRST", "cannot become"),
        ("RENAME COLUMN s.a TO b", "field inside a column"),
        ("DROP COLUMN p", "'p' is a partition column"),
    ],
)
def test_a_change_of_columns_that_cannot_be_made_is_one_sentence(spark, fixed, change, sentence):
    with pytest.raises(PySparkException, match=sentence):
        spark.sql(f"ALTER TABLE fixed {change}")
    assert spark.table("fixed").schema == fixed


ADDED = (
    "i INT DEFAULT 3",
    "s STRING DEFAULT 'brown fox'",
    "d DATE DEFAULT DATE'2024-02-29'",
    "t TIMESTAMP DEFAULT TIMESTAMP'2024-02-29 12:00:00'",
    "z TIMESTAMP_NTZ DEFAULT TIMESTAMP_NTZ'2024-02-29 12:00:00'",
    "m DECIMAL(10, 2) DEFAULT 1.5",
    "f DOUBLE DEFAULT 1e-3",
    "r FLOAT DEFAULT 0.1",
    "b BOOLEAN DEFAULT true",
    "c CHAR(4) DEFAULT 'ab'",
    "l BIGINT DEFAULT 1 + 1",
    "k TINYINT DEFAULT -1",
    "e STRING DEFAULT NULL",
)
WAYS = {
    "driver": {},
    "native": {"read.driver.maxRows": "0"},
    "tasks": {"read.driver.maxRows": "0", "read.nativeScan.enabled": "false"},
}


@pytest.fixture(scope="module")
def grown(spark):
    """An index table to which columns with defaults were added; what its Parquet peer answers."""
    columns = [text.split()[0] for text in ADDED]
    for kind in ("parquet", "indextables"):
        name = f"grown_{kind}"
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"CREATE TABLE {name} (id INT, p INT) USING {kind} PARTITIONED BY (p)")
        spark.sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 2)")
        # Parquet keeps partition columns last.
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(ADDED)})")
        spark.sql(f"ALTER TABLE {name} ALTER COLUMN i SET DEFAULT 4")
        spark.sql(f"INSERT INTO {name} (id, p) VALUES (4, 1)")
        nulls = ", ".join("NULL" for _ in columns)
        spark.sql(f"INSERT INTO {name} (id, {', '.join(columns)}, p) VALUES (5, {nulls}, 2)")
    spark.sql("ALTER TABLE grown_indextables RENAME COLUMN l TO l2")
    columns.remove("l")
    questions = [
        f"SELECT id, {', '.join(columns)}, p FROM {{}}",
        "SELECT count(i), sum(i), min(s), max(d), count(e) FROM {}",
        "SELECT s, count(*), avg(f) FROM {} GROUP BY s",
        "SELECT id FROM {} WHERE i = 3 AND s = 'brown fox' AND d >= DATE'2024-01-01'",
        "SELECT id FROM {} WHERE i <> 3 OR b IS NULL",
        "SELECT id, c FROM {} WHERE c = 'ab' AND p = 2",
        "SELECT a.id FROM {} a JOIN (SELECT 3 AS i) b ON a.i = b.i WHERE a.m = 1.5",
    ]
    yield {question: rows(spark, question.format("grown_parquet")) for question in questions}
    for kind in ("parquet", "indextables"):
        spark.sql(f"DROP TABLE grown_{kind}")


@pytest.mark.parametrize("way", WAYS)
def test_a_column_with_a_default_has_it_in_older_rows_as_on_parquet(spark, grown, way):
    settings = {f"spark.indextables.{key}": value for key, value in WAYS[way].items()}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        for question, expected in grown.items():
            assert rows(spark, question.format("grown_indextables")) == expected, question
        assert rows(spark, "SELECT id, l2 FROM grown_indextables WHERE l2 = 2") == [
            (1, 2), (2, 2), (3, 2), (4, 2)
        ]  # fmt: skip
        assert rows(spark, "SELECT id FROM grown_indextables WHERE s indexquery 'fox'") == [
            (1,), (2,), (3,), (4,)
        ]  # fmt: skip
    finally:
        for key in settings:
            spark.conf.unset(key)


def test_an_added_instant_is_the_same_in_every_zone(spark, grown):
    instant = "SELECT DISTINCT unix_micros(t) FROM grown_indextables WHERE id < 4"
    before = rows(spark, instant)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.indextables.read.driver.maxRows", "0")
    try:
        assert rows(spark, instant) == before
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.unset("spark.indextables.read.driver.maxRows")


@one_of_both
def test_not_null_with_a_default_and_rows_that_change(spark, name):
    spark.sql(f"CREATE TABLE {name} (id INT) USING indextables")
    spark.sql(f"INSERT INTO {name} VALUES (1), (2), (3)")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN n INT NOT NULL DEFAULT 7")
    spark.sql(f"UPDATE {name} SET n = n + id WHERE upper(string(n)) = '7' AND id = 2")
    spark.sql(f"MERGE INTO {name} t USING (SELECT 3 AS id) s ON t.id = s.id "
              "WHEN MATCHED AND t.n = 7 THEN DELETE")  # fmt: skip
    spark.sql(f"INSERT INTO {name} (id) VALUES (4)")
    assert rows(spark, f"SELECT * FROM {name}") == [(1, 7), (2, 9), (4, 7)]
    assert rows(spark, f"SELECT * FROM {name} VERSION AS OF 1") == [(1,), (2,), (3,)]
    with pytest.raises(PySparkException, match="NOT_NULL"):
        spark.sql(f"INSERT INTO {name} VALUES (5, NULL)")


def test_a_default_of_bytes_is_read_by_python(spark):
    spark.sql("CREATE OR REPLACE TABLE bytes_added (id INT) USING indextables")
    spark.sql("INSERT INTO bytes_added VALUES (1)")
    spark.sql("ALTER TABLE bytes_added ADD COLUMN y BINARY DEFAULT X'00FF'")
    spark.conf.set("spark.indextables.read.driver.maxRows", "0")
    try:
        assert rows(spark, "SELECT * FROM bytes_added") == [(1, b"\x00\xff")]
    finally:
        spark.conf.unset("spark.indextables.read.driver.maxRows")
        spark.sql("DROP TABLE bytes_added")


@one_of_both
def test_fields_are_added_to_structs(spark, name):
    spark.sql(f"CREATE TABLE {name} (id INT, s STRUCT<a: INT>, l ARRAY<STRUCT<x: INT>>) "
              "USING indextables")  # fmt: skip
    spark.sql(f"INSERT INTO {name} VALUES (1, struct(1), array(struct(1)))")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN s.c STRING")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN l.element.y INT")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN s.a TYPE BIGINT")
    spark.sql(f"INSERT INTO {name} VALUES (2, struct(5000000000, 'red fox'), array(struct(2, 3)))")
    for key in ("read.driver.maxRows", "read.nativeScan.enabled"):
        assert rows(spark, f"SELECT id, s.a, s.c, l[0].y FROM {name}") == [
            (1, 1, None, None), (2, 5_000_000_000, "red fox", 3)
        ]  # fmt: skip
        assert rows(spark, f"SELECT id FROM {name} WHERE indexqueryall('s.c:fox')") == [(2,)]
        spark.conf.set(f"spark.indextables.{key}", "0" if "Rows" in key else "false")
    for key in ("read.driver.maxRows", "read.nativeScan.enabled"):
        spark.conf.unset(f"spark.indextables.{key}")


def test_variants_are_stored_and_read_back(spark):
    spark.sql("DROP TABLE IF EXISTS variants")
    spark.sql("CREATE TABLE variants (id INT, v VARIANT, s STRUCT<w: VARIANT>, l ARRAY<VARIANT>) "
              "USING indextables")  # fmt: skip
    spark.sql("""
        INSERT INTO variants VALUES
          (1, parse_json('{"a": 1, "b": ["x", null]}'), named_struct('w', parse_json('"fox"')),
           array(parse_json('1.5'), NULL)),
          (2, NULL, NULL, NULL), (3, parse_json('null'), named_struct('w', NULL), array())
    """)
    question = "SELECT id, to_json(v), to_json(s.w), to_json(get(l, 0)) FROM variants WHERE {}"
    try:
        for settings in WAYS.values():
            for key, value in settings.items():
                spark.conf.set(f"spark.indextables.{key}", value)
            assert rows(spark, question.format("v:a::int = 1")) == [
                (1, '{"a":1,"b":["x",null]}', '"fox"', "1.5")
            ]
            assert rows(spark, question.format("id = 3")) == [(3, "null", None, None)]
            assert rows(spark, "SELECT count(*), count(v) FROM variants") == [(3, 2)]
            assert rows(spark, "SELECT id FROM variants WHERE v IS NULL") == [(2,)]
            assert rows(spark, "SELECT id FROM variants WHERE indexqueryall('fox')") == []
            for key in settings:
                spark.conf.unset(f"spark.indextables.{key}")
        spark.sql("UPDATE variants SET v = parse_json('[7]') WHERE id = 2")
        spark.sql("DELETE FROM variants WHERE v:a::int = 1")
        spark.sql("MERGE SPLITS variants")
        assert rows(spark, "SELECT id, to_json(v) FROM variants") == [(2, "[7]"), (3, "null")]
        assert ("v", "variant", None) in rows(spark, "DESCRIBE variants")
    finally:
        for key in WAYS["tasks"]:
            spark.conf.unset(f"spark.indextables.{key}")
        spark.sql("DROP TABLE variants")


def test_a_variant_is_null_in_the_rows_before_it(spark):
    spark.sql("DROP TABLE IF EXISTS older")
    spark.sql("CREATE TABLE older (id INT, s STRUCT<a: INT>) USING indextables")
    spark.sql("INSERT INTO older VALUES (1, named_struct('a', 5)), (2, NULL)")
    spark.sql("ALTER TABLE older ADD COLUMNS (v VARIANT, n STRUCT<w: VARIANT>)")
    spark.sql("ALTER TABLE older ADD COLUMN s.w VARIANT")
    spark.sql("INSERT INTO older VALUES (3, NULL, parse_json('[3]'), NULL)")
    query = "SELECT id, to_json(s), to_json(v), n FROM older"
    expected = [(1, '{"a":5}', None, None), (2, None, None, None), (3, None, "[3]", None)]
    for settings in WAYS.values():
        for key, value in settings.items():
            spark.conf.set(f"spark.indextables.{key}", value)
        try:
            assert rows(spark, query) == expected
        finally:
            for key in settings:
                spark.conf.unset(f"spark.indextables.{key}")
    changed = spark.sql("SELECT id, to_json(v) FROM older CHANGES FROM VERSION 0")
    assert sorted(map(tuple, changed.collect())) == [(1, None), (2, None), (3, "[3]")]
    spark.sql("UPDATE older SET v = parse_json('7') WHERE id = 1")
    assert rows(spark, query)[0] == (1, '{"a":5}', "7", None)
    spark.sql("DROP TABLE older")


def test_nested_columns_with_nulls_and_local_times(spark):
    spark.sql("DROP TABLE IF EXISTS inner_values")
    spark.sql("CREATE TABLE inner_values (id INT, m MAP<INT, ARRAY<STRING>>, "
              "t MAP<STRING, STRUCT<t: TIMESTAMP_NTZ>>, a ARRAY<TIMESTAMP_NTZ>) "
              "USING indextables")  # fmt: skip
    spark.sql(
        """
        INSERT INTO inner_values VALUES
          (1, map(1, array('a', NULL), 2, NULL), map('k', named_struct('t', TIMESTAMP_NTZ'2024-01-01
           00:00:00'), 'n', NULL), array(NULL, TIMESTAMP_NTZ'0001-01-01 00:00:00')),
          (2, map(), NULL, array()), (3, NULL, map('k', named_struct('t', NULL)), NULL)
    """.replace("\n           00", " 00")
    )
    question = "SELECT id, string(m), string(t), string(a) FROM inner_values"
    expected = [
        (1, "{1 -> [a, null], 2 -> null}", "{k -> {2024-01-01 00:00:00}, n -> null}",
         "[null, 0001-01-01 00:00:00]"),
        (2, "{}", None, "[]"),
        (3, None, "{k -> {null}}", None),
    ]  # fmt: skip
    for settings in WAYS.values():
        for key, value in settings.items():
            spark.conf.set(f"spark.indextables.{key}", value)
        try:
            assert rows(spark, question) == expected
            condition = "t['k'].t > TIMESTAMP_NTZ'2023-01-01 00:00:00'"
            assert rows(spark, f"SELECT id FROM inner_values WHERE {condition}") == [(1,)]
        finally:
            for key in settings:
                spark.conf.unset(f"spark.indextables.{key}")
    spark.sql("DROP TABLE inner_values")


@pytest.mark.parametrize(
    "kind", ["INTERVAL DAY TO SECOND", "INTERVAL YEAR TO MONTH", "ARRAY<INTERVAL DAY>"]
)
def test_types_that_are_not_stored_are_refused(spark, kind):
    with pytest.raises(PySparkException, match=r"Column 'c.*no index table can hold"):
        spark.sql(f"CREATE TABLE refused (id INT, c {kind}) USING indextables")


@one_of_both
def test_analyze_table_has_nothing_to_do(spark, name):
    spark.sql(f"CREATE TABLE {name} (id INT, p INT) USING indextables PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO {name} VALUES (1, 1)")
    for rest in ("COMPUTE STATISTICS", "COMPUTE STATISTICS FOR ALL COLUMNS"):
        found = spark.sql(f"ANALYZE TABLE {name} {rest}")
        assert found.columns == [] and found.count() == 0
    for text in (f"MSCK REPAIR TABLE {name}", f"msck repair table {name} sync partitions",
                 f"REPAIR TABLE {name}", f"ALTER TABLE {name} RECOVER PARTITIONS"):  # fmt: skip
        assert spark.sql(text).collect() == []
    for text in ("ANALYZE TABLE IDENTIFIER(:t) COMPUTE STATISTICS", "REPAIR TABLE IDENTIFIER(:t)"):
        assert spark.sql(text, args={"t": name}).collect() == []
    assert rows(spark, f"SHOW PARTITIONS {name}") == [("p=1",)]
    for text in ("ANALYZE TABLE nowhere COMPUTE STATISTICS", "MSCK REPAIR TABLE nowhere"):
        with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.sql(text)
    spark.sql(f"CREATE TABLE {name}_2 (id INT) USING indextables")
    with pytest.raises(PySparkException, match="MSCK REPAIR TABLE is not allowed") as refused:
        spark.sql(f"MSCK REPAIR TABLE {name}_2")
    assert refused.value.getCondition() == "NOT_A_PARTITIONED_TABLE"
    spark.sql(f"DROP TABLE {name}_2")


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
    with pytest.raises(PySparkException, match="PARTITIONS_NOT_FOUND"):
        spark.sql(f"TRUNCATE TABLE {name} PARTITION (day = DATE '2024-01-01', lang = 'de')")
    with pytest.raises(PySparkException, match="leave out LOCATION"):
        spark.sql(
            f"ALTER TABLE {name} ADD PARTITION (day = DATE '2024-01-01', lang = 'de') LOCATION 'x'"
        )
    spark.sql(f"TRUNCATE TABLE {name}")
    assert rows(spark, f"SHOW PARTITIONS {name}") == []


@pytest.mark.parametrize(
    ("name", "format_"),
    [(CATALOGS[1], "parquet"), *((one, "indextables") for one in CATALOGS)],
    indirect=["name"],
)
def test_a_partition_is_added_as_on_parquet(spark, name, format_):
    spark.sql(
        f"CREATE TABLE {name} (a INT, n DOUBLE, t TIMESTAMP) USING {format_} PARTITIONED BY (n, t)"
    )
    first, second, third = (
        f"(n = {n}, t = TIMESTAMP '{year}-01-01 10:00:00')"
        for n, year in ((1.5, 2024), (2, 2025), (3, 2024))
    )
    spark.sql(f"ALTER TABLE {name} ADD PARTITION {first} PARTITION {third}")
    with pytest.raises(PySparkException, match="PARTITIONS_ALREADY_EXIST"):
        spark.sql(f"ALTER TABLE {name} ADD PARTITION {first}")
    spark.sql(f"ALTER TABLE {name} ADD IF NOT EXISTS PARTITION {first}")
    listed = f"SHOW PARTITIONS {name}"
    assert [one[0][:5] for one in rows(spark, listed)] == ["n=1.5", "n=3.0"]
    assert rows(spark, f"SELECT * FROM {name}") == []
    # A partition that has rows is the same as the one that was declared.
    spark.sql(f"INSERT INTO {name} VALUES (1, 1.5, TIMESTAMP '2024-01-01 10:00:00')")
    assert len(rows(spark, listed)) == 2
    spark.sql(f"TRUNCATE TABLE {name} PARTITION {first}")
    assert len(rows(spark, listed)) == 2
    assert len(rows(spark, f"DESCRIBE {name} PARTITION {first}")) >= 3
    spark.sql(f"ALTER TABLE {name} PARTITION {first} RENAME TO PARTITION {second}")
    spark.sql(f"ALTER TABLE {name} DROP PARTITION {third}")
    assert [one[0][:5] for one in rows(spark, listed)] == ["n=2.0"]
    with pytest.raises(PySparkException, match="PARTITIONS_NOT_FOUND"):
        spark.sql(f"ALTER TABLE {name} DROP PARTITION {third}")


@pytest.mark.parametrize(
    ("name", "format_"),
    [(CATALOGS[1], "parquet"), *((one, "indextables") for one in CATALOGS)],
    indirect=["name"],
)
def test_a_partition_is_renamed_as_on_parquet(spark, name, format_):
    spark.sql(
        f"CREATE TABLE {name} (a INT, lang STRING, day DATE) USING {format_} "
        "PARTITIONED BY (lang, day)"
    )
    spark.sql(
        f"INSERT INTO {name} VALUES (1, 'de', DATE '2024-01-01'), (2, 'en', DATE '2024-01-02'), "
        "(3, 'de', DATE '2024-01-01')"
    )
    old = "PARTITION (lang = 'de', day = '2024-01-01')"
    rename = f"ALTER TABLE {name} {old} RENAME TO"
    with pytest.raises(PySparkException, match="PARTITIONS_ALREADY_EXIST"):
        spark.sql(f"{rename} PARTITION (lang = 'en', day = '2024-01-02')")
    spark.sql(f"{rename} PARTITION (lang = 'a/b', day = '2024-03-01')")
    moved = datetime.date(2024, 3, 1)
    assert rows(spark, f"SELECT * FROM {name} WHERE lang = 'a/b'") == [
        (1, "a/b", moved),
        (3, "a/b", moved),
    ]
    assert rows(spark, f"SELECT a FROM {name} WHERE day < '2024-02-01'") == [(2,)]
    with pytest.raises(PySparkException, match="PARTITIONS_NOT_FOUND"):
        spark.sql(f"{rename} PARTITION (lang = 'fr', day = '2024-01-01')")


def test_partitions_of_any_type_are_dropped_by_their_value(spark):
    values = {
        "INT": "12", "BIGINT": "12", "DOUBLE": "12", "DECIMAL(10,2)": "12", "BOOLEAN": "true",
        "TIMESTAMP": "TIMESTAMP '2024-01-02 03:04:05'",
        "TIMESTAMP_NTZ": "TIMESTAMP_NTZ '2024-01-02 03:04:05'",
    }  # fmt: skip
    columns = [f"p{number}" for number in range(len(values))]
    declared = ", ".join(f"{n} {kind}" for n, kind in zip(columns, values, strict=True))
    spark.sql("DROP TABLE IF EXISTS typed_partitions")
    spark.sql(f"CREATE TABLE typed_partitions (a INT, {declared}) USING indextables "
              f"PARTITIONED BY ({', '.join(columns)})")  # fmt: skip
    # The last rows differ from the first one in a single column each.
    every = list(values.values())
    others = [[*every[:n], "NULL", *every[n + 1 :]] for n in range(len(every))]
    lines = [f"({n}, {', '.join(line)})" for n, line in enumerate([every, *others])]
    spark.sql(f"INSERT INTO typed_partitions VALUES {', '.join(lines)}")
    wanted = ", ".join(f"{n} = {value}" for n, value in zip(columns, every, strict=True))
    spark.sql(f"ALTER TABLE typed_partitions DROP PARTITION ({wanted})")
    left = rows(spark, "SELECT a FROM typed_partitions")
    assert left == [(n,) for n in range(1, len(lines))]
    # The last partition moves to where the dropped one was, and back.
    last = ", ".join(f"{n} = {value}" for n, value in zip(columns, others[-1], strict=True))
    for old, new in ((last, wanted), (wanted, last)):
        spark.sql(f"ALTER TABLE typed_partitions PARTITION ({old}) RENAME TO PARTITION ({new})")
    assert rows(spark, "SELECT a FROM typed_partitions") == left
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
    assert "LOCATION" not in created  # its place follows from its name
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
