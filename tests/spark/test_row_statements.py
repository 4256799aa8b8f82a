"""DELETE and UPDATE with what only Spark computes: each beside a plain evaluation in Python."""

from __future__ import annotations

import datetime
import functools

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from indextables import Table
from indextables.errors import ConcurrentAppendError, ConcurrentDeleteReadError

COLUMNS = ("id", "name", "n", "p", "at")
NOON = datetime.datetime(2024, 1, 1, 12)
ROWS = [
    # Some are the same twice, some values and partitions are null.
    (1, "a", 10, 1, NOON), (2, "A", None, 1, NOON), (2, "A", None, 1, NOON),
    (3, None, 5, 2, None), (4, "Red Fox", -7, 2, NOON + datetime.timedelta(hours=5)),
    (5, "b", 10, None, NOON), (6, None, None, None, None), (7, "a", 3, 1, NOON),
    (8, "red", 10, 2, NOON), (8, "red", 10, 2, NOON), (9, "zebra", 0, None, NOON),
]  # fmt: skip


# Both catalogs lead to the same code, so the second one tries some of the statements.
TABLES = ("indextables.rows_changed", "rows_changed")


@pytest.fixture(scope="module")
def made(spark):
    """Makes a partitioned table of several splits, once; its third version is the first."""

    @functools.cache
    def make(name):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        # One of them marks rows as deleted, the other one rewrites splits.
        mode = "vector" if "." in name else "rewrite"
        spark.sql(
            f"CREATE TABLE {name} (id bigint NOT NULL, name string, n int DEFAULT 42, p int, "
            "at timestamp) USING indextables PARTITIONED BY (p) "
            "TBLPROPERTIES ('spark.indextables.indexing.typemap.name' = 'string', "
            f"'spark.indextables.deletionVectors.mode' = '{mode}')"
        )
        types = "id bigint, name string, n int, p int, at timestamp"
        for part in (ROWS[:4], ROWS[4:8], ROWS[8:]):
            spark.createDataFrame(part, types).coalesce(1).writeTo(name).append()
        return name

    yield make
    for name in TABLES:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture(params=TABLES)
def table(made, request):
    """The table in each catalog."""
    return made(request.param)


def restored(spark, table):
    spark.sql(f"RESTORE INDEXTABLES {table} TO VERSION 3")


def rows(spark, table):
    found = [tuple(row) for row in spark.sql(f"SELECT * FROM {table}").collect()]
    return sorted(found, key=repr)


def upper(text):
    return None if text is None else text.upper()


DELETES = [
    ("upper(name) = 'A'", None, lambda r: upper(r["name"]) == "A"),
    ("id + 1 = 3", None, lambda r: r["id"] == 2),
    ("CASE WHEN n IS NULL THEN p = 1 ELSE n > 5 END", None,
     lambda r: r["p"] == 1 if r["n"] is None else r["n"] > 5),
    ("length(name) > 1 OR n % 2 = 1", None,
     lambda r: (r["name"] is not None and len(r["name"]) > 1)
     or (r["n"] is not None and abs(r["n"]) % 2 == 1 and r["n"] > 0)),
    ("n NOT IN (SELECT max(n) FROM {t})", None, lambda r: r["n"] not in (None, 10)),
    ("n IN (SELECT n FROM {t} WHERE p = 2 AND n IS NOT NULL)", None,
     lambda r: r["n"] in (5, -7, 10)),
    ("EXISTS (SELECT 1 FROM {t} AS o WHERE o.id = x.id AND o.n = 3)", None, lambda r: r["id"] == 7),
    ("id > (SELECT avg(id) FROM {t})", None, lambda r: r["id"] > 5),
    ("n + :more = 12", {"more": 2}, lambda r: r["n"] == 10),
    ("upper(name) = ? AND abs(id) = ?", ["RED", 8], lambda r: r["id"] == 8),
    ("x.name indexquery 'red' AND length(x.name) = 3", None, lambda r: r["name"] == "red"),
    ("nullif(n, 10) IS NULL AND year(at) = 2024", None,
     lambda r: r["n"] in (None, 10) and r["at"] is not None),
    ("hour(at) = 17 OR upper(name) = NULL", None,
     lambda r: r["at"] is not None and r["at"].hour == 17),
]  # fmt: skip


def both(statements):
    numbers = range(len(statements))
    cases = [(TABLES[0], n) for n in numbers] + [(TABLES[1], n) for n in numbers[::3]]
    return pytest.mark.parametrize(("table", "number"), cases, indirect=["table"])


one_of_both = pytest.mark.parametrize(
    "table", [TABLES[0], pytest.param(TABLES[1], marks=pytest.mark.long)], indirect=True
)


@both(DELETES)
def test_delete_with_any_expression(spark, table, number):
    condition, args, oracle = DELETES[number]
    restored(spark, table)
    alias = ("", " x", " AS x")[2 if "x." in condition else number % 2]
    sql = f"DELETE FROM {table}{alias} WHERE {condition.format(t=table)}"
    spark.sql(sql, args=args)
    kept = [row for row in ROWS if not oracle(dict(zip(COLUMNS, row, strict=True)))]
    assert 0 < len(kept) < len(ROWS)
    assert rows(spark, table) == sorted(kept, key=repr)


UPDATES = [
    ("name = upper(name) || '!', n = length(name)", "id > 2 AND length(name) > 0", None,
     lambda r: r["id"] > 2 and r["name"] is not None,
     lambda r: {"name": r["name"].upper() + "!", "n": len(r["name"])}),
    ("n = DEFAULT, id = id * 2", "id % 2 = 0", None,
     lambda r: r["id"] % 2 == 0, lambda r: {"n": 42, "id": r["id"] * 2}),
    ("n = (SELECT max(n) FROM {t}), p = if(p = 1, 2, p + 10)", None, None,
     lambda r: True, lambda r: {"n": 10, "p": None if r["p"] is None else
                                2 if r["p"] == 1 else r["p"] + 10}),
    ("x.p = CASE WHEN x.n > 4 THEN 7 END, n = :n", "x.name IN (SELECT name FROM {t} WHERE id = 1)",
     {"n": 1}, lambda r: r["name"] == "a",
     lambda r: {"p": 7 if r["n"] > 4 else None, "n": 1}),
    ("name = concat(?, id), n = id, id = n + ?", "n BETWEEN ? AND 9 AND sqrt(n) > 0",
     ["row ", 100, 1], lambda r: r["n"] is not None and 1 <= r["n"] <= 9,
     lambda r: {"name": f"row {r['id']}", "n": r["id"], "id": r["n"] + 100}),
    ("at = at + INTERVAL 1 DAY, n = n", "date(at) = DATE '2024-01-01' AND n = 10", None,
     lambda r: r["at"] is not None and r["n"] == 10,
     lambda r: {"at": r["at"] + datetime.timedelta(days=1)}),
]  # fmt: skip


@both(UPDATES)
def test_update_with_any_expression(spark, table, number):
    assigned, condition, args, oracle, changes = UPDATES[number]
    restored(spark, table)
    alias = " AS x" if "x." in assigned else ""
    where = f" WHERE {condition.format(t=table)}" if condition else ""
    (done,) = spark.sql(
        f"UPDATE {table}{alias} SET {assigned.format(t=table)}{where}", args=args
    ).collect()
    expected, changed = [], 0
    for row in ROWS:
        named = dict(zip(COLUMNS, row, strict=True))
        if oracle(named):
            changed += 1
            named |= changes(dict(named))
        expected.append(tuple(named.values()))
    assert rows(spark, table) == sorted(expected, key=repr)
    assert (done.status, done.num_affected_rows) == ("success", changed)
    assert spark.sql(f"SELECT 1 FROM {table} WHERE name indexquery 'zebra'").count() == (
        1 if "upper" not in assigned else 0
    )


@one_of_both
def test_the_zone_of_the_session_counts(spark, table):
    restored(spark, table)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        (done,) = spark.sql(f"DELETE FROM {table} WHERE hour(at) = 2").collect()  # 17 in UTC
        assert done.num_affected_rows == 1
        spark.sql(f"UPDATE {table} SET n = hour(at) WHERE at = TIMESTAMP '2024-01-01 21:00:00'")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert {row[2] for row in rows(spark, table) if row[4] is not None} == {21}


@one_of_both
def test_a_function_in_python(spark, table):
    restored(spark, table)
    spark.udf.register(
        "is_red", lambda text: text is not None and text.startswith("red"), "boolean"
    )
    spark.sql(f"DELETE FROM {table} WHERE is_red(name)")
    assert len(rows(spark, table)) == len(ROWS) - 2


def test_no_row_matches(spark, table):
    restored(spark, table)
    version = spark.sql(f"DESCRIBE INDEXTABLES TRANSACTION LOG {table} INCLUDE ALL").count()
    for sql in (f"DELETE FROM {table} WHERE upper(name) = 'x'",
                f"UPDATE {table} SET n = hash(id) WHERE upper(name) = 'x'"):  # fmt: skip
        (done,) = spark.sql(sql).collect()
        assert (done.status, done.num_affected_rows) == ("no_action", 0)
    assert spark.sql(f"DESCRIBE INDEXTABLES TRANSACTION LOG {table} INCLUDE ALL").count() == version
    assert rows(spark, table) == sorted(ROWS, key=repr)


@one_of_both
def test_what_is_wrong_changes_nothing(spark, table):
    restored(spark, table)
    for sql in (
        f"DELETE FROM {table} WHERE upper(nam) = 'A'",
        f"DELETE FROM {table} WHERE upper(name) = 'A' LIMIT 1",
        f"DELETE FROM {table} WHERE upper(name)",
        f"UPDATE {table} SET nope = upper(name)",
        f"UPDATE {table} SET n = upper(name)",  # text is not stored as a number
        f"UPDATE {table} SET id = nullif(id, 1)",  # NOT NULL
        f"UPDATE {table} SET n = 1 / (id - 1)",
        f"UPDATE {table} SET n = DEFAULT + 1",
        f"UPDATE {table} SET n = explode(array(1, 2))",
        f"UPDATE {table} SET n = inline(array(struct(1)))",
        f"UPDATE {table} SET n = hash(1), N = hash(2)",
        f"UPDATE {table} SET n = hash(1), x.y = 1",
    ):
        with pytest.raises(Exception) as raised:
            spark.sql(sql)
        assert isinstance(raised.value, (PySparkException, ValueError)), sql
    assert rows(spark, table) == sorted(ROWS, key=repr)


@one_of_both
def test_with_in_front(spark, table):
    restored(spark, table)
    spark.sql(
        f"WITH few AS (SELECT id FROM {table} WHERE p = 2) "
        f"DELETE FROM {table} WHERE id IN (SELECT id FROM few)"
    )
    assert {row[0] for row in rows(spark, table)} == {1, 2, 5, 6, 7, 9}
    spark.sql(
        f"WITH few AS (SELECT id FROM {table} WHERE p = 1) "
        f"UPDATE {table} SET n = (SELECT count(*) FROM few) WHERE id IN (SELECT id FROM few)"
    )
    assert {(row[0], row[2]) for row in rows(spark, table) if row[3] == 1} == {
        (1, 4), (2, 4), (7, 4),
    }  # fmt: skip


def test_lengths_and_defaults_hold_as_in_insert(spark):
    spark.sql("DROP TABLE IF EXISTS declared")
    spark.sql("CREATE TABLE declared (c CHAR(4), v VARCHAR(3), n INT NOT NULL, "
              "d INT DEFAULT 7, s STRUCT<a: INT>) USING indextables")  # fmt: skip
    try:
        spark.sql("INSERT INTO declared VALUES ('ab', 'xyz', 1, 2, struct(1)), "
                  "(NULL, NULL, 2, NULL, NULL)")  # fmt: skip
        spark.sql("UPDATE declared SET c = 'q', d = DEFAULT, v = DEFAULT WHERE n = 1")
        spark.sql("UPDATE declared SET v = repeat('z', n), s = named_struct('a', n) WHERE n = 2")
        found = spark.sql("SELECT * FROM declared ORDER BY n").collect()
        assert [tuple(row) for row in found] == [
            ("q   ", None, 1, 7, (1,)), (None, "zz", 2, None, (2,)),
        ]  # fmt: skip
        for wrong in ("c = 'too long'", "v = 'long'", "v = repeat('z', 4)", "n = NULL",
                      "n = nullif(n, 1)", "n = DEFAULT", "n = n + 2147483647"):  # fmt: skip
            with pytest.raises((PySparkException, ValueError)):
                spark.sql(f"UPDATE declared SET {wrong}")
        assert spark.sql("SELECT * FROM declared ORDER BY n").collect() == found
    finally:
        spark.sql("DROP TABLE declared")


@one_of_both
def test_rows_have_names_in_a_version(spark, table):
    restored(spark, table)
    found = spark.sql(f"SELECT _split, _row, id FROM {table}").collect()
    assert len({(row._split, row._row) for row in found}) == len(ROWS)
    assert len({row._split for row in found}) > 3
    one = next(row for row in found if row.id == 9)
    picked = spark.sql(
        f"SELECT id FROM {table} WHERE _split = '{one._split}' AND _row = {one._row}"
    )
    assert [row.id for row in picked.collect()] == [9]
    counted = spark.sql(f"SELECT _split, count(*) AS n, max(_row) AS last FROM {table} GROUP BY 1")
    assert {(row._split, row.n) for row in counted.collect()} == {
        (split, sum(row._split == split for row in found)) for split in {r._split for r in found}
    }
    assert all(row.last == row.n - 1 for row in counted.collect())
    scored = spark.sql(
        f"SELECT id, _score, _split, _row FROM {table} WHERE name indexquery 'zebra'"
    ).collect()
    assert [(row.id, row._split, row._row) for row in scored] == [(9, one._split, one._row)]
    spark.conf.set("spark.indextables.read.driver.maxRows", "0")
    try:  # by tasks
        again = spark.sql(f"SELECT _row, _split, id FROM {table} WHERE id > 1").collect()
        assert {(row._split, row._row, row.id) for row in again} == {
            tuple(row) for row in found if row.id > 1
        }
    finally:
        spark.conf.unset("spark.indextables.read.driver.maxRows")
    assert "_row" not in spark.sql(f"SELECT * FROM {table}").columns


@pytest.fixture
def disturbed(spark, tmp_path, monkeypatch):
    """A table in which another writer commits between the query and the commit."""
    from indextables.jobs import row_changes

    uri = str(tmp_path / "t")
    data = pa.table({"id": [1, 2, 3], "p": ["x", "y", "z"]})
    Table.create(uri, data.schema, partition_by=["p"]).append(data)
    original = row_changes.take_out_numbered

    def disturb(other):
        def between(*args, **kwargs):
            monkeypatch.setattr(row_changes, "take_out_numbered", original)
            other(Table.open(uri))
            return original(*args, **kwargs)

        monkeypatch.setattr(row_changes, "take_out_numbered", between)

    return uri, disturb


@pytest.mark.parametrize("sql", ["DELETE FROM '{}' WHERE ", "UPDATE '{}' SET id = abs(id) WHERE "])
def test_concurrent_writers(spark, disturbed, sql):
    uri, disturb = disturbed
    statement = sql.format(uri) + "upper(p) = 'X'"
    disturb(lambda table: table.append(pa.table({"id": [9], "p": ["w"]})))
    with pytest.raises(ConcurrentAppendError):
        spark.sql(statement)
    # Rows of another split may go; a subquery may have seen them.
    disturb(lambda table: table.delete(where="id = 2"))
    subquery = f" AND 1 = (SELECT min(id) FROM indextables.`{uri}`)"
    with pytest.raises(ConcurrentDeleteReadError):
        spark.sql(statement + subquery)
    disturb(lambda table: table.delete(where="id = 3"))
    spark.sql(statement)
    left = Table.open(uri).scan()["id"].to_pylist()
    assert sorted(left) == ([9] if sql.startswith("DELETE") else [1, 9])


# --- fields of structs -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nested(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("nested") / "t")
    spark.sql(
        f"CREATE TABLE indextables.`{path}` "
        "(id int, s struct<a: bigint, `B c`: struct<d: string, e: int>>, l array<struct<x: int>>)"
    )
    spark.sql(f"""INSERT INTO indextables.`{path}` VALUES
        (1, named_struct('a', 1, 'B c', named_struct('d', 'x', 'e', 10)),
         array(named_struct('x', 1))),
        (2, named_struct('a', NULL, 'B c', NULL), NULL), (3, NULL, NULL)""")
    return path


@pytest.mark.parametrize(
    ("assignments", "args", "expected"),
    [
        ("s.a = 7", None, [(7, ("x", 10)), (7, None), (7, None)]),
        ("s.a = id + 1, id = 9", None, [(2, ("x", 10)), (3, None), (4, None)]),
        ("S.`b c`.E = s.a", None, [(1, ("x", 1)), (None, (None, None)), (None, (None, None))]),
        ("s.`B c`.d = :d, s.a = :a", {"a": 5, "d": "y"},
         [(5, ("y", 10)), (5, ("y", None)), (5, ("y", None))]),
        ("s.`B c`.d = ?, s.a = ?", ["y", 5], [(5, ("y", 10)), (5, ("y", None)), (5, ("y", None))]),
        ("t.s.a = upper(t.s.`B c`.d) IS NULL", None, "DATATYPE|CAST|cast|INCOMPATIBLE"),
        ("s.a = 1, s.a = 2", None, "twice"),
        ("s = NULL, s.a = 2", None, "twice"),
        ("s.nope = 1", None, "nope"),
        ("l.x = 1", None, "struct"),
        ("s.a = DEFAULT", None, "DEFAULT"),
    ],
)  # fmt: skip
def test_fields_of_structs_are_assigned(spark, nested, assignments, args, expected):
    table = f"indextables.`{nested}`"
    spark.sql(f"RESTORE INDEXTABLES {table} TO VERSION 1")
    text = f"UPDATE {table} AS t SET {assignments}"
    if isinstance(expected, str):
        with pytest.raises(Exception, match=expected):
            spark.sql(text, args=args).collect()
        return
    spark.sql(text, args=args).collect()
    found = spark.sql(f"SELECT s.a, s.`B c` FROM {table} ORDER BY l IS NULL, s.a, id").collect()
    plain = [(row[0], None if row[1] is None else tuple(row[1])) for row in found]
    assert sorted(plain, key=repr) == sorted(expected, key=repr)
    assert spark.sql(f"SELECT l[0].x FROM {table} WHERE l IS NOT NULL").collect()[0][0] == 1


@pytest.mark.parametrize(
    ("text", "args", "left"),
    [
        ("DELETE FROM IDENTIFIER('indextables.' || :t) WHERE upper(name) = :n", {"n": "A"}, 7),
        ("DELETE FROM IDENTIFIER(?) WHERE length(name) = ?", ["TABLE", 3], 9),
        ("DELETE FROM IDENTIFIER(:full)", {}, 0),
        ("UPDATE IDENTIFIER(:full) AS x SET name = upper(x.name) WHERE id + 1 = 3", {}, 11),
    ],
)
@pytest.mark.parametrize("table", TABLES[:1], indirect=True)
def test_a_table_may_be_named_by_an_expression(spark, table, text, args, left):
    restored(spark, table)
    own = {"t": table.partition(".")[2], "full": table}
    if isinstance(args, list):
        given = [table, *args[1:]]
    else:
        given = {name: own[name] for name in own if f":{name}" in text} | args
    spark.sql(text, args=given).collect()
    assert len(rows(spark, table)) == left


def test_values_are_stored_as_insert_stores_them(spark):
    """Where Spark cuts, rounds or wraps around, it is Spark that computes."""
    name, ansi = "stored_values", "spark.sql.ansi.enabled"
    spark.sql(f"CREATE TABLE {name} (i int, m decimal(9,2), x double, s string) USING indextables")
    try:
        spark.sql(f"INSERT INTO {name} VALUES (5, 10.00, 2.7, 'straße')")
        spark.sql(f"UPDATE {name} SET i = x, m = m / 3")
        spark.sql(f"UPDATE {name} SET x = 0.3, s = upper(s)")
        found = [tuple(map(str, row)) for row in spark.sql(f"SELECT * FROM {name}").collect()]
        assert found == [("2", "3.33", "0.3", "STRASSE")]
        spark.conf.set(ansi, "false")
        spark.sql(f"UPDATE {name} SET i = 2147483647")
        spark.sql(f"UPDATE {name} SET i = i + 1, x = x / 0")
        assert spark.sql(f"SELECT i, x FROM {name}").collect() == [(-2147483648, None)]
    finally:
        spark.conf.set(ansi, "true")
        spark.sql(f"DROP TABLE {name}")
