"""Few small files are read by the driver, and only where Spark would see the same in them."""

from __future__ import annotations

import datetime
import decimal
import io
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from indextables.ariadne.files.rows import _File, _rows
from indextables.config import ARIADNE_DRIVER_READ_LIMIT
from indextables.storage import open_store

LIMIT = ARIADNE_DRIVER_READ_LIMIT.name
DDL = (
    "id BIGINT, small TINYINT, part INT, ratio FLOAT, amount DOUBLE, ok BOOLEAN, name STRING, "
    "raw BINARY, price DECIMAL(10, 2), day DATE, ts TIMESTAMP, local TIMESTAMP_NTZ"
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("part", pa.int32()),
        ("ratio", pa.float32()),
        ("amount", pa.float64()),
        ("ok", pa.bool_()),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
    ]
)
EPOCH = datetime.datetime(2024, 3, 31, 1, 30)


def some_rows(random, count):
    """Rows with every kind of value; one of eight cells is null."""
    special = [0.0, -0.0, float("nan"), float("inf"), 0.1, -1e300]
    numbers = random.integers(-9, 9, count).tolist()
    moments = [EPOCH + datetime.timedelta(hours=n, microseconds=n) for n in numbers]
    columns = {
        "id": numbers,
        "small": numbers,
        "part": numbers,
        "ratio": random.choice(special[:5], count).tolist(),
        "amount": random.choice(special, count).tolist(),
        "ok": [n > 0 for n in numbers],
        "name": [f"nämé {n}" for n in numbers],
        "raw": [bytes([0, 255, n + 9]) for n in numbers],
        "price": [decimal.Decimal(n) / 4 for n in numbers],
        "day": [m.date() for m in moments],
        "ts": [m.replace(tzinfo=datetime.UTC) for m in moments],
        "local": moments,
    }
    holes = random.random((len(columns), count)) < 1 / 8
    return pa.table(
        {
            name: pa.array(values, SCHEMA.field(name).type, mask=hole)
            for (name, values), hole in zip(columns.items(), holes, strict=True)
        }
    )


@pytest.fixture
def make(spark, storage, tmp_path):
    """An index over files with these tables, and all their rows as Spark reads them."""
    from indextables.ariadne import Index

    def made(*tables, ddl=DDL, write=pq.write_table, columns=("id",), **more):
        folder = tmp_path / "files"
        folder.mkdir()
        for number, table in enumerate(tables):
            write(table, folder / f"{number} ü#.parquet", **more)
        index = Index("few", ddl)
        index.add_file(str(folder))
        for column in columns:
            index.add_index(column)
        assert not index.update().failed
        return index, spark.read.schema(ddl).parquet(str(folder))

    return made


def shown(frame):
    return sorted(map(repr, frame.collect()))


def is_local(frame):
    """Whether the driver read the files."""
    return not frame.inputFiles()


@pytest.mark.parametrize(
    "key",
    [
        "name",
        *(pytest.param(key, marks=pytest.mark.long) for key in ("small", "price", "local")),
    ],
)
def test_rows_are_those_that_spark_reads(key, spark, make):
    random = np.random.default_rng(len(key))
    index, whole = make(*(some_rows(random, n) for n in (40, 0, 25)), columns=[key])
    some = whole.select(key).distinct().limit(6)
    keys = spark.createDataFrame(some.toArrow(), some.schema)
    for how in ("inner", "right"):
        joined = index.join(keys, key, how)
        assert is_local(joined)
        assert shown(joined) == shown(whole.join(keys, key, how))
    joined = index.join(keys, key, "left")
    assert not is_local(joined), "every row is wanted"
    assert shown(joined) == shown(whole.join(keys, key, "left"))


def test_the_limit_is_about_all_files_together(spark, make):
    random = np.random.default_rng(1)
    index, whole = make(some_rows(random, 40), some_rows(random, 40))
    keys = spark.createDataFrame([(1,), (2,)], "id BIGINT")
    sizes = sum(f.stat().st_size for f in (index_files(index)))
    for limit, local in ((sizes, True), (sizes - 1, False), (0, False)):
        spark.conf.set(LIMIT, str(limit))
        try:
            joined = index.join(keys, "id")
            assert is_local(joined) is local, limit
            assert shown(joined) == shown(whole.join(keys, "id"))
        finally:
            spark.conf.unset(LIMIT)


def index_files(index):
    from pathlib import Path

    return [Path(file) for file in index.locate_files({"id": [1, 2]})]


def test_computed_columns_are_made_of_them(spark, make):
    index, whole = make(some_rows(np.random.default_rng(2), 30))
    index.add_computed_index("twice", "id * 2")
    index.update()
    keys = spark.createDataFrame([(1,), (2,), (3,)], "id BIGINT")
    joined = index.join(keys, "id")
    assert is_local(joined)
    assert shown(joined) == shown(whole.withColumn("twice", whole.id * 2).join(keys, "id"))


def test_columns_that_must_not_be_null_may_be(spark, make):
    ddl = "id BIGINT NOT NULL, name STRING NOT NULL"
    index, whole = make(pa.table({"name": ["x", None, "y"], "id": [1, 2, None]}), ddl=ddl)
    keys = spark.createDataFrame([(1,), (2,)], "id BIGINT")
    joined = index.join(keys, "id")
    assert is_local(joined)
    assert shown(joined) == shown(whole.join(keys, "id"))
    assert joined.schema == whole.join(keys, "id").schema


def test_texts_may_be_stored_as_large_or_as_categories(spark, make):
    random = np.random.default_rng(6)
    large, category = some_rows(random, 30), some_rows(random, 30)
    large = large.set_column(6, "name", large.column("name").cast(pa.large_string()))
    category = category.set_column(6, "name", category.column("name").dictionary_encode())
    index, whole = make(large, category, columns=["name"])
    keys = spark.createDataFrame([("nämé 1",), ("nämé -3",)], "name STRING")
    joined = index.join(keys, "name")
    assert is_local(joined)
    assert shown(joined) == shown(whole.join(keys, "name"))


def of_int(table):
    return table.set_column(0, "id", table.column("id").cast(pa.int32()))


def upper(table):
    return table.rename_columns(["ID", *SCHEMA.names[1:]])


def older(table):
    days = pa.array([datetime.date(1582, 1, 1)] * table.num_rows)
    return table.set_column(9, "day", days)


def early(table):
    moment = datetime.datetime(1700, 1, 1, tzinfo=datetime.UTC)
    return table.set_column(10, "ts", pa.array([moment] * table.num_rows, SCHEMA.field("ts").type))


@pytest.mark.parametrize(
    ("change", "more"),
    [
        (lambda t: t.drop_columns(["price"]), {}),
        (of_int, {}),
        (upper, {}),
        (older, {}),
        (early, {}),
        (lambda t: t, {"use_deprecated_int96_timestamps": True}),
        (lambda t: t.append_column("ID", t.column("part")), {}),
    ],
    ids=["lacks", "narrow", "case", "calendar", "early", "int96", "twice"],
)
def test_other_files_are_read_by_spark(change, more, spark, make):
    random = np.random.default_rng(3)
    tables = [some_rows(random, 30), change(some_rows(random, 30))]
    spark.conf.set("spark.sql.caseSensitive", str("ID" in tables[1].column_names))
    try:
        index, whole = make(*tables, columns=["part"], **more)
        keys = spark.createDataFrame([(n,) for n in range(-9, 9)], "part INT")
        joined = index.join(keys, "part")
        assert not is_local(joined)
        assert shown(joined) == shown(whole.join(keys, "part"))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize("ddl", ["id BIGINT, `a.b` INT", "id BIGINT, a STRUCT<b: INT>"])
def test_odd_columns_are_read_by_spark(ddl, spark, make):
    kind = pa.int32() if "`" in ddl else pa.struct([("b", pa.int32())])
    cells = [1, 2] if "`" in ddl else [{"b": 1}, None]
    table = pa.table({"id": [1, 2], ("a.b" if "`" in ddl else "a"): pa.array(cells, kind)})
    index, whole = make(table, ddl=ddl)
    keys = spark.createDataFrame([(1,)], "id BIGINT")
    joined = index.join(keys, "id")
    assert not is_local(joined)
    assert shown(joined) == shown(whole.join(keys, "id"))


def test_files_that_are_not_indexed_are_read_by_spark(spark, make, tmp_path):
    table = some_rows(np.random.default_rng(4), 20)
    index, _ = make(table)
    pq.write_table(table, tmp_path / "files" / "new.parquet")
    keys = spark.createDataFrame([(1,)], "id BIGINT")
    whole = spark.read.schema(DDL).parquet(str(tmp_path / "files"))
    joined = index.join(keys, "id")
    assert not is_local(joined)
    assert shown(joined) == shown(whole.join(keys, "id"))


# --- one file --------------------------------------------------------------------------------


def a_file(table, keys, *, limit=16 << 20, folder="memory://driver-rows", schema=None):
    sink = io.BytesIO()
    pq.write_table(table, sink)
    open_store(folder).put("x.parquet", sink.getvalue())
    return _File(folder, "x.parquet", {}, schema or table.schema, tuple(keys), limit)


def test_files_of_any_store_are_read():
    table = some_rows(np.random.default_rng(5), 50)
    wanted = pa.array([1, 2, 3])
    found = _rows(a_file(table, [("id", wanted)]))
    expected = table.filter(pc.is_in(table.column("id"), wanted))
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    assert found.num_rows > 1


def test_texts_are_bounded_before_they_are_copied():
    long = "x" * 100_000
    table = pa.table({"id": pa.array([7] * 1_000), "text": [long] * 1_000})
    file = a_file(table, [("id", pa.array([7]))], limit=10_000_000)
    assert open_store(file.folder).head("x.parquet").size < 1_000_000
    assert _rows(file) is None, "a hundred megabytes of the same text"
    some = table.set_column(0, "id", pa.array(range(1_000)))
    assert _rows(a_file(some, [("id", pa.array([7]))], limit=10_000_000)).num_rows == 1


def test_a_file_much_smaller_than_its_rows_is_not_read():
    table = pa.table({"id": pa.array(np.zeros(1_000_000, np.int64))})
    plain = io.BytesIO()
    pq.write_table(table, plain, use_dictionary=False, compression="zstd")
    open_store("memory://driver-rows").put("x.parquet", plain.getvalue())
    file = _File("memory://driver-rows", "x.parquet", {}, table.schema, (), 100_000)
    assert len(plain.getvalue()) < 100_000
    assert _rows(file) is None


def test_a_damaged_or_missing_file_is_left_to_spark():
    table = pa.table({"id": [1]})
    file = a_file(table, [])
    store = open_store(file.folder)
    store.put("x.parquet", store.get("x.parquet")[:-9])
    assert _rows(file) is None
    store.delete(["x.parquet"])
    assert _rows(file) is None
    assert _rows(replace(file, folder="/nowhere", storage={"unknown": "option"})) is None
