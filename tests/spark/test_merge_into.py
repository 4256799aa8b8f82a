"""MERGE INTO and df.mergeInto, beside an evaluation of the standard's rules in plain Python."""

from __future__ import annotations

import random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, expr, lit

from indextables import Table
from indextables.errors import MatchedTwiceError, SchemaError, UnknownColumnError
from indextables.log.files import vectors_by_path

COLUMNS = ("id", "name", "n", "p")
TYPES = "id bigint, name string, n int, p int"
FIRST = 3
"""The version that has the rows which every statement begins with."""
Row = tuple


@pytest.fixture(scope="module", params=["vector", "rewrite"])
def table(spark, request):
    """A partitioned table of two splits a partition, and a column that was renamed."""
    name = f"indextables.merged_{request.param}"
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(
        f"CREATE TABLE {name} (id bigint, label string, n int DEFAULT 42, p int) USING indextables "
        f"PARTITIONED BY (p) TBLPROPERTIES ('spark.indextables.deletionVectors.mode' = "
        f"'{request.param}')"
    )
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN label TO name")
    for part in (ROWS[:5], ROWS[5:]):
        spark.createDataFrame(part, TYPES).coalesce(1).writeTo(name).append()
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


ROWS = [
    (1, "red fox", 10, 1), (2, "blue", None, 1), (3, None, 5, 2), (4, "red", -7, 2), (5, "b", 1, 1),
    (6, "fox", None, None), (7, "a red one", 3, 1), (8, "x", 10, 2), (None, "nobody", 0, None),
]  # fmt: skip


def restored(spark, table):
    spark.sql(f"RESTORE INDEXTABLES {table} TO VERSION {FIRST}")


def rows(spark, table):
    return sorted((tuple(r) for r in spark.sql(f"SELECT * FROM {table}").collect()), key=repr)


def sourced(spark, source, types=TYPES):
    spark.createDataFrame(source, types).createOrReplaceTempView("merge_source")


# --- the reference -----------------------------------------------------------------------------


def less(a, b):
    return a is not None and b is not None and a < b


def same(a, b):
    return a is not None and a == b


def found(word):
    return lambda t, s: t[1] is not None and word in t[1].split()


ON = [
    ("t.id = s.id", lambda t, s: same(t[0], s[0])),
    ("s.id = t.id AND t.p = s.p", lambda t, s: same(t[0], s[0]) and same(t[3], s[3])),
    ("t.id <=> s.id", lambda t, s: t[0] == s[0]),
    ("t.id = s.id AND t.name indexquery 'red'",
     lambda t, s: same(t[0], s[0]) and found("red")(t, s)),
    ("t.id = s.id + 1 AND CASE WHEN s.n > 3 THEN true ELSE t.n IS NULL END",
     lambda t, s: s[0] is not None and same(t[0], s[0] + 1) and (less(3, s[2]) or t[2] is None)),
    ("FALSE", lambda t, s: False),
]  # fmt: skip
MATCHED = [
    (None, lambda t, s: True),
    ("t.n < s.n", lambda t, s: less(t[2], s[2])),
    ("t.name indexquery 'fox'", found("fox")),
    ("s.name IS NULL OR t.p IN (1, 3)", lambda t, s: s[1] is None or t[3] in (1, 3)),
]
NOT_MATCHED = [
    (None, lambda s: True),
    ("s.n > 3", lambda s: less(3, s[2])),
    ("s.p BETWEEN 1 AND 2 AND s.name IS NOT NULL", lambda s: s[3] in (1, 2) and s[1] is not None),
]
BY_SOURCE = [
    (None, lambda t: True),
    ("t.n > 3", lambda t: less(3, t[2])),
    ("t.name indexquery 'red'", lambda t: found("red")(t, None)),
]
UPDATES = [
    ("UPDATE SET *", lambda t, s: s),
    ("UPDATE SET n = t.n + s.n, name = upper(s.name)",
     lambda t, s: (t[0], s[1] and s[1].upper(),
                   None if None in (t[2], s[2]) else t[2] + s[2], t[3])),
    ("UPDATE SET t.p = s.p, n = DEFAULT", lambda t, s: (t[0], t[1], 42, s[3])),
    ("DELETE", None),
]  # fmt: skip
INSERTS = [
    ("INSERT *", lambda s: s),
    ("INSERT (id, name) VALUES (s.id * 2, concat(s.name, '!'))",
     lambda s: (s[0] and s[0] * 2, s[1] and s[1] + "!", 42, None)),
    ("INSERT (p, n, id) VALUES (s.p, 0, s.id)", lambda s: (s[0], None, 0, s[3])),
]  # fmt: skip
SOURCE_UPDATES = [
    ("UPDATE SET n = coalesce(t.n, 0) - 1", lambda t: (t[0], t[1], (t[2] or 0) - 1, t[3])),
    ("DELETE", None),
]


class TwiceError(Exception):
    pass


def reference(target, source, on, matched, not_matched, by_source):
    """The rows after a MERGE; None is what DELETE makes of a row."""
    result = []
    checks = matched and not (
        len(matched) == 1 and matched[0][0][0] is None and matched[0][1] is None
    )
    seen = [False] * len(source)
    for t in target:
        pairs = [s for at, s in enumerate(source) if on(t, s) and not seen.__setitem__(at, True)]
        if len(pairs) > 1 and checks:
            raise TwiceError
        new = t
        if pairs:
            for (_, holds), change in matched:
                if holds(t, pairs[0]):
                    new = None if change is None else change(t, pairs[0])
                    break
        else:
            for (_, holds), change in by_source:
                if holds(t):
                    new = None if change is None else change(t)
                    break
        if new is not None:
            result.append(new)
    for s in (s for at, s in enumerate(source) if not seen[at]):
        for (_, holds), make in not_matched:
            if holds(s):
                result.append(make(s))
                break
    return sorted(result, key=repr)


def drawn(draw: random.Random):
    """A MERGE: its text, its source and its parts for the reference."""

    def clauses(conditions, actions, most):
        return [
            (draw.choice(conditions), draw.choice(actions)) for _ in range(draw.randint(0, most))
        ]

    # What Table.merge can do as well.
    on, plain = draw.choice(ON), draw.random() < 0.3
    if plain:
        on = draw.choice(ON[:2])
        update, insert = draw.choice([*UPDATES[::3], None]), draw.choice([INSERTS[0], None])
        parts = ([(MATCHED[0], update)] if update else [],
                 [(NOT_MATCHED[0], insert)] if insert or not update else [], [])  # fmt: skip
        parts = (parts[0], [(c, a or INSERTS[0]) for c, a in parts[1]], [])
    while not plain:
        parts = (
            clauses(MATCHED, UPDATES, 2), clauses(NOT_MATCHED, INSERTS, 2),
            clauses(BY_SOURCE, SOURCE_UPDATES, 2) if draw.random() < 0.4 else [],
        )  # fmt: skip
        # Spark refuses a clause without a condition that is not the last of its kind.
        if any(parts) and all(c[0] is not None for part in parts for c, _ in part[:-1]):
            break
    ids = draw.choices([*range(1, 12), None], k=draw.randint(0, 6))
    if draw.random() < 0.8:
        ids = sorted(set(ids), key=repr)
    words = ["red", None, "fox", "new one"]
    source = [
        (i, draw.choice(words), draw.choice([None, 1, 4, 9]), draw.choice([None, 1, 2, 3]))
        for i in ids
    ]
    text = f"ON {on[0]}"
    for part, kind in zip(parts, ("MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"), strict=True):
        for (condition, _), (action, _) in part:
            also = f" AND {condition}" if condition else ""
            text += f" WHEN {kind}{also} THEN {action}"
    rules = [[(condition, action[1]) for condition, action in part] for part in parts]
    arguments = {
        "on": ["id"] if on is ON[0] else ["p", "id"],
        "when_matched": {0: "update", 3: "delete"}[UPDATES.index(parts[0][0][1])]
        if parts[0]
        else "ignore",
        "when_not_matched": "insert" if parts[1] else "ignore",
    } if plain else None  # fmt: skip
    return text, source, on[1], rules, arguments


def check_random(spark, table, seed):
    text, source, on, parts, arguments = drawn(random.Random(seed))
    restored(spark, table)
    sourced(spark, source)
    statement = f"MERGE INTO {table} AS t USING merge_source AS s {text}"
    try:
        expected = reference(ROWS, source, on, *parts)
    except TwiceError:
        with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
            spark.sql(statement)
        if arguments:
            with pytest.raises(MatchedTwiceError):
                merged(spark, table, source, arguments)
        assert rows(spark, table) == sorted(ROWS, key=repr)
        return
    spark.sql(statement)
    assert rows(spark, table) == expected, f"{seed}: {statement} {source}"
    if arguments:
        restored(spark, table)
        merged(spark, table, source, arguments)
        assert rows(spark, table) == expected, f"{seed}: {arguments} {source}"


def merged(spark, table, source, arguments):
    """The same by Table.merge."""
    data = spark.createDataFrame(source, TYPES).toArrow()
    Table.open(location(spark, table)).merge(data, **arguments)
    spark.sql(f"REFRESH TABLE {table}")


@pytest.mark.parametrize("seed", range(2))
def test_random_statements(spark, table, seed):
    check_random(spark, table, seed)


@pytest.mark.long
@pytest.mark.parametrize("batch", range(20))
def test_many_random_statements(spark, table, batch):
    for seed in range(1_000 + 10 * batch, 1_010 + 10 * batch):
        check_random(spark, table, seed)


# The ordinary run has the forms once; the rows that a statement leaves, it has in both modes.
one_of_both = pytest.mark.parametrize(
    "table", ["vector", pytest.param("rewrite", marks=pytest.mark.long)], indirect=True
)


# --- forms -------------------------------------------------------------------------------------


def test_one_commit_that_reports_what_it_did(spark, table):
    restored(spark, table)
    before = Table.open(location(spark, table)).version
    sourced(spark, [(1, "new", 1, 1), (2, "gone", 2, 1), (90, "first", 3, 3)])
    done = spark.sql(
        f"MERGE INTO {table} USING merge_source s ON merged_x.id = s.id "
        "WHEN MATCHED AND s.name = 'gone' THEN DELETE WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *".replace("merged_x", table.split(".")[1])
    ).first()
    assert done.message == "1 rows updated, 1 deleted, 1 inserted"
    assert (done.num_affected_rows, done.version) == (3, before + 1)
    marked = vectors_by_path(Table.open(location(spark, table)).snapshot().entries)
    assert bool(marked) == table.endswith("vector")
    assert (
        spark.sql(f"SELECT count(*) FROM {table} WHERE name indexquery 'first OR new'").first()[0]
        == 2
    )


def location(spark, table):
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    return next(r.data_type for r in described if r.col_name == "Location")


@one_of_both
def test_parameters_ctes_subqueries_and_paths(spark, table):
    restored(spark, table)
    uri = location(spark, table)
    spark.sql(
        f"WITH s AS (SELECT * FROM VALUES (1, 'a'), (70, 'b') AS v(id, name)) "
        f"MERGE INTO indextables.`{uri}` AS t USING s ON t.id = s.id AND t.n = ? "
        "WHEN MATCHED THEN UPDATE SET name = concat(s.name, ?) "
        "WHEN NOT MATCHED AND s.id > ? THEN INSERT (id, name) VALUES (s.id, ?)",
        args=[10, "!", 5, "given"],
    )
    found = {
        r.id: r.name for r in spark.sql(f"SELECT * FROM {table} WHERE id IN (1, 70)").collect()
    }
    assert found == {1: "a!", 70: "given"}
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT max(id) AS id FROM {table} WHERE n > :low) s "
        "ON t.id = s.id WHEN MATCHED THEN DELETE",
        args={"low": 20},
    )
    assert spark.sql(f"SELECT count(*) FROM {table} WHERE id = 70").first()[0] == 0


@one_of_both
def test_bad_statements_change_nothing(spark, table):
    restored(spark, table)
    version = Table.open(location(spark, table)).version
    sourced(spark, [(1, "x", "y")], "id bigint, name string, n string")
    using = f"MERGE INTO {table} t USING merge_source s ON t.id = s.id "
    cases = [
        ("WHEN MATCHED THEN UPDATE SET *", UnknownColumnError, "p"),
        ("WHEN MATCHED THEN UPDATE SET n = s.n", SchemaError, "CAST"),
        ("WHEN MATCHED THEN UPDATE SET none = 1", UnknownColumnError, "none"),
        ("WHEN MATCHED THEN UPDATE SET n = s.none", PySparkException, "none"),
        ("WHEN MATCHED THEN INSERT *", PySparkException, "INSERT"),
    ]
    for text, error, match in cases:
        with pytest.raises(error, match=match):
            spark.sql(using + text)
    assert Table.open(location(spark, table)).version == version


@one_of_both
def test_schema_evolution(spark, table):
    name = table + "_evolved"
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} AS SELECT * FROM {table} VERSION AS OF {FIRST}")
    sourced(spark, [(1, "new", "x"), (50, "more", "y")], "id bigint, name string, extra string")
    spark.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {name} t USING merge_source s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    found = spark.sql(f"SELECT id, name, n, p, extra FROM {name} WHERE id IN (1, 2, 50)").collect()
    assert sorted(map(tuple, found)) == [
        (1, "new", 10, 1, "x"), (2, "blue", None, 1, None), (50, "more", 42, None, "y"),
    ]  # fmt: skip
    assert spark.sql(f"SELECT id FROM {name} WHERE extra indexquery 'y'").first().id == 50
    spark.sql(f"DROP TABLE {name}")


@one_of_both
def test_data_frames(spark, table):
    restored(spark, table)
    source = spark.createDataFrame([(1, "new", 1, 1), (2, "b", 2, 1), (90, "c", 3, 3)], TYPES)
    name = table.split(".")[1]
    (
        source.alias("s")
        .mergeInto(table, col(f"{name}.id") == col("s.id"))
        .whenMatched(col("s.name") == "b").delete()
        .whenMatched().update({"name": expr("concat(s.name, '?')"), "n": lit(5)})
        .whenNotMatched().insertAll()
        .whenNotMatchedBySource(col(f"{name}.id") > 6).delete()
        .merge()
    )  # fmt: skip
    left = {r[0]: r for r in rows(spark, table)}
    assert left[1] == (1, "new?", 5, 1)
    assert left[90] == (90, "c", 3, 3)
    assert set(left) == {1, 3, 4, 5, 6, None, 90}
    twice = spark.createDataFrame([(1, "x", 1, 1), (1, "y", 1, 1)], TYPES).alias("s")
    with pytest.raises(PySparkException) as caught:
        twice.mergeInto(table, expr(f"{name}.id = s.id")).whenMatched().updateAll().merge()
    assert caught.value.getCondition() == "MERGE_CARDINALITY_VIOLATION"


def test_tables_of_other_sources_stay_with_spark(spark, tmp_path):
    spark.sql(f"CREATE TABLE plain_target (id int) USING parquet LOCATION '{tmp_path}/p'")
    try:
        with pytest.raises(PySparkException, match="MERGE"):
            spark.sql(
                "MERGE INTO plain_target t USING (SELECT 1 AS id) s ON t.id = s.id "
                "WHEN MATCHED THEN DELETE"
            )
    finally:
        spark.sql("DROP TABLE plain_target")


def test_constraints_not_null_and_structs(spark):
    name = "indextables.merged_strict"
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(
        f"CREATE TABLE {name} (id bigint NOT NULL, n int, s struct<a: int, b: string>, "
        "CONSTRAINT small CHECK (n < 100)) USING indextables "
        "TBLPROPERTIES ('spark.indextables.deletionVectors.mode' = 'vector')"
    )
    spark.sql(f"INSERT INTO {name} VALUES (1, 1, struct(1, 'x')), (2, 2, NULL), (3, 3, NULL)")
    using = (
        f"MERGE INTO {name} t USING (SELECT 1 AS id, 500 AS n UNION SELECT 2, 5) s ON t.id = s.id "
    )
    for text in ("UPDATE SET n = s.n", "UPDATE SET id = CASE WHEN s.n > 0 THEN NULL ELSE 1 END"):
        with pytest.raises(PySparkException):
            spark.sql(f"{using} WHEN MATCHED THEN {text}")
    done = spark.sql(
        f"{using} WHEN MATCHED AND s.n > 100 THEN UPDATE SET s.a = 7, n = s.n - 490 "
        "WHEN MATCHED THEN DELETE".replace("s.a = 7", "t.s.a = 7")
    )
    assert done.first().message == "1 rows updated, 1 deleted, 0 inserted"
    left = spark.sql(f"SELECT id, n, s.a, s.b FROM {name} ORDER BY id").collect()
    assert [tuple(r) for r in left] == [
        (1, 10, 7, "x"), (3, 3, None, None),
    ]  # fmt: skip
    spark.sql(f"DROP TABLE {name}")
