"""Indexes as tables of SQL."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException

SCHEMA = pa.schema([("Id", pa.int32()), ("name", pa.string()), ("at", pa.int64())])
DDL = "Id INT, name STRING, at BIGINT"
FILES = {
    "a b#": [(1, "ann", 1), (2, "bob", 1), (3, None, 1)],
    "c": [(1, "anna", 5), (4, "dora", 2), (9, "zoe fox", 2)],
    "d": [(None, "nobody", 3), (None, "none", 4)],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, rows in FILES.items():
        table = pa.Table.from_pylist(
            [dict(zip(SCHEMA.names, r, strict=True)) for r in rows], SCHEMA
        )
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


@pytest.fixture
def people(spark, storage, files):
    from indextables.ariadne import Index

    index = Index("people", DDL)
    index.add_file(str(files))
    index.add_index("Id")
    index.add_computed_index("initial", "substr(name, 1, 1)")
    index.add_text_index("name")
    index.update()
    return index


def rows(frame):
    return sorted(map(tuple, frame.collect()), key=str)


def plan(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_tables_are_listed_and_described(spark, people):
    assert [tuple(r)[:2] for r in spark.sql("SHOW TABLES IN ariadne").collect()] == [
        ("default", "people")
    ]
    described = spark.sql("DESCRIBE ariadne.people").collect()
    assert [(r.col_name, r.data_type) for r in described][:3] == [
        ("Id", "int"), ("name", "string"), ("at", "bigint"),
    ]  # fmt: skip


def test_conditions_leave_files_out_and_rows_are_right(spark, people):
    every = [row for found in FILES.values() for row in found]
    assert rows(spark.sql("SELECT * FROM ariadne.people")) == sorted(every, key=str)
    for condition, count, kept in (
        ("Id = 4", 1, 1),
        ("Id IN (1, 77)", 2, 2),
        ("Id > 3", 2, 1),
        ("Id IS NULL", 2, 1),
        ("Id = 4 OR Id = 2", 2, 2),
        ("Id = 77", 0, 0),
        ("name = 'ann'", 1, 3),
        ("indexquery(name, 'fox')", 1, 1),
    ):
        frame = spark.sql(f"SELECT at FROM ariadne.default.people WHERE {condition}")
        assert frame.count() == count, condition
        assert f"files {kept} of 3" in plan(frame), condition


def test_a_union_of_many_scans(spark, people):
    """Spark asks for the hash of a child where there are more than four."""
    ids = [row[0] for found in FILES.values() for row in found]
    union = " UNION ALL ".join(f"SELECT Id FROM ariadne.people WHERE Id = {n}" for n in range(1, 6))
    assert rows(spark.sql(union)) == sorted((n,) for n in ids if n is not None and 0 < n < 6)


def test_columns_are_pruned(spark, people):
    frame = spark.sql("SELECT name FROM ariadne.people")
    assert "at#" not in plan(frame)
    assert frame.columns == ["name"]


def test_names_that_are_no_table(spark, people, storage):
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM ariadne.nobody")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM ariadne.elsewhere.people")
    (storage / "indexes" / "partial").mkdir()
    (storage / "indexes" / "partial" / "junk").write_text("x")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM ariadne.partial")
    with pytest.raises(PySparkException, match="read only"):
        spark.sql("DROP TABLE ariadne.people")
    with pytest.raises(PySparkException, match="read only"):
        spark.sql("CREATE TABLE ariadne.new (a INT)")


def test_joins_are_right_and_send_their_keys(spark, people):
    found = [(4, 1, "x"), (9, 2, "y"), (77, 4, "z")]
    other = spark.createDataFrame(found, "Id INT, CustomerId INT, q STRING")
    other.createOrReplaceTempView("q")
    joined = spark.sql("SELECT p.Id, q.q FROM ariadne.people p JOIN q ON p.Id = q.Id")
    assert rows(joined) == [(4, "x"), (9, "y")]
    other = spark.sql("SELECT p.Id, q.q FROM q JOIN ariadne.people p ON q.CustomerId = p.Id")
    assert rows(other) == [(1, "x"), (1, "x"), (2, "y"), (4, "z")]
    left = spark.sql("SELECT q.q, p.name FROM q LEFT JOIN ariadne.people p ON p.Id = q.Id")
    assert rows(left) == [("x", "dora"), ("y", "zoe fox"), ("z", None)]
    also = spark.sql(
        "SELECT p.name FROM ariadne.people p JOIN q ON p.Id = q.CustomerId AND p.at > 1 "
        "WHERE p.name LIKE 'a%'"
    )
    assert rows(also) == [("anna",)]
    filtered = spark.sql(
        "SELECT p.name FROM ariadne.people p JOIN q ON p.Id = q.Id WHERE q.q = 'x'"
    )
    assert rows(filtered) == [("dora",)]
    assert "dynamicpruning" in plan(filtered)


def test_a_temporal_index_shows_the_newest_rows(spark, storage, files):
    from indextables.ariadne import Index

    index = Index("latest", DDL)
    index.add_file(str(files))
    index.add_temporal_index("Id", "at")
    index.update()
    with pytest.raises(PySparkException, match=r"whole name: ariadne\.default\.`latest`"):
        spark.sql("SELECT * FROM ariadne.latest")
    newest = spark.sql("SELECT * FROM ariadne.default.latest")
    gone = (1, "ann", 1)
    every = [row for found in FILES.values() for row in found]
    assert rows(newest) == sorted((row for row in every if row != gone), key=str)
    one = spark.sql("SELECT name FROM ariadne.default.latest WHERE Id = 1")
    assert rows(one) == [("anna",)]
    assert "files 2 of 3" in plan(one)
    # The older row is not promoted when the newer one is filtered out.
    assert rows(spark.sql("SELECT * FROM ariadne.default.latest WHERE name = 'ann'")) == []
    keys = spark.createDataFrame([(1,)], "Id INT")
    keys.createOrReplaceTempView("one")
    joined = spark.sql("SELECT name FROM ariadne.default.latest JOIN one USING (Id)")
    assert rows(joined) == [("anna",)]
    assert rows(spark.sql("SELECT name FROM ariadne.all_rows.latest WHERE Id = 1")) == [
        ("ann",), ("anna",),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_files_of_text(spark, storage, tmp_path, kind):
    from indextables.ariadne import Index

    place = tmp_path / "x y.txt"
    lines = {"csv": "n;t\n1;a b\n2;\n", "json": '{"n": 1, "t": "a b"}\n{"n": 2}\n'}
    place.write_text(lines[kind])
    options = {"header": "true", "sep": ";"} if kind == "csv" else None
    index = Index(kind, "n INT, t STRING", kind, read_options=options)
    index.add_file(str(place))
    index.add_index("n")
    index.update()
    assert rows(spark.sql(f"SELECT t, n FROM ariadne.{kind} WHERE n < 3")) == [
        ("a b", 1),
        (None, 2),
    ]
    assert rows(spark.sql(f"SELECT t FROM ariadne.{kind} WHERE n = 5")) == []


def test_columns_that_must_not_be_null_may_be(spark, storage, tmp_path):
    from indextables.ariadne import Index

    ddl = "a INT NOT NULL, b STRING NOT NULL"
    (tmp_path / "x.csv").write_text("1,\n,y\n")
    index = Index("t", ddl, "csv")
    index.add_file(str(tmp_path / "x.csv"))
    index.add_index("a")
    index.update()
    assert spark.sql("SELECT * FROM ariadne.t WHERE b IS NULL").collect() == [(1, None)]
    assert spark.sql("SELECT * FROM ariadne.t WHERE a IS NULL").collect() == [(None, "y")]
    assert spark.table("ariadne.t").schema == spark.read.schema(ddl).csv(str(tmp_path)).schema


def test_index_columns_do_not_hide_columns_of_the_files(spark, storage, tmp_path):
    """In SQL a name is a column of the files, even if an index column has it too."""
    from indextables.ariadne import Index

    items = pa.array([[{"k": 1}], []], pa.list_(pa.struct([("k", pa.int32())])))
    table = {"id": pa.array([1, 2], pa.int32()), "name": ["ann", "bob"], "items": items}
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    index = Index("hidden", "id INT, name STRING, items ARRAY<STRUCT<k: INT>>")
    index.add_file(str(tmp_path / "x.parquet"))
    index.add_computed_index("name", "upper(name)")
    index.add_exploded_field_index("items", "k", "id")
    index.update()
    assert rows(spark.sql("SELECT id FROM ariadne.hidden WHERE name = 'ann'")) == [(1,)]
    assert rows(spark.sql("SELECT name FROM ariadne.hidden WHERE id = 2")) == [("bob",)]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_columns_of_paths_are_joined_and_not_shown_as_null(spark, storage, tmp_path, kind):
    from indextables.ariadne import Index

    for day in (3, 4):
        place = tmp_path / "data" / f"day={day}"
        place.mkdir(parents=True)
        if kind == "csv":
            (place / "x.csv").write_text(f"{day}0\n")
        else:
            pq.write_table(pa.table({"n": pa.array([day * 10], pa.int32())}), place / "x.parquet")
    base = str(tmp_path / "data")
    index = Index("days", "n INT, day INT", kind, read_options={"basePath": base})
    index.add_file(base)
    index.add_range_index("day")
    index.update()
    keys = spark.createDataFrame([(4,)], "day INT")
    assert rows(index.join(keys, "day")) == [(4, 40)]
    with pytest.raises(PySparkException, match="'basePath'"):
        spark.sql("SELECT * FROM ariadne.days")
