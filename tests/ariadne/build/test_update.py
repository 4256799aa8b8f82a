"""Updates: what they read, what they keep, and what survives races and crashes."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from indextables import config as keys
from indextables.ariadne import Index, IndexCatalog
from indextables.ariadne.build import tasks, update
from indextables.ariadne.store import index_rows
from indextables.ariadne.store.place import DeltaPlace
from indextables.errors import AriadneArgumentError, StorageError

DDL = "id INT, name STRING, at BIGINT, items ARRAY<STRUCT<k: INT>>"
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("at", pa.int64()),
        ("items", pa.list_(pa.struct([("k", pa.int32())]))),
    ]
)
STRANGE = ["a b", "hash#x", "pct%41", "ünï"]


def write(path, ids, *, name="n", at=0):
    rows = [{"id": i, "name": f"{name}{i}", "at": at + i, "items": [{"k": i * 10}]} for i in ids]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
    return str(path)


@pytest.fixture
def files(tmp_path):
    """Three files with ids 0 to 2, 10 to 12, 20 to 22."""
    (tmp_path / "data").mkdir()
    return [
        write(tmp_path / "data" / f"{STRANGE[n]}.parquet", range(n * 10, n * 10 + 3))
        for n in range(3)
    ]


@pytest.fixture
def index(storage, files):
    made = Index("t", DDL)
    made.add_file(*files)
    return made


def located(index, **values):
    return {os.path.basename(f) for f in index.locate_files(values)}  # noqa: PTH119


def rows_of(index):
    return {row["filename"]: row for row in index._place.main.read().to_pylist()}


def versions(index):
    return DeltaTable(f"{index.storage_path}/index").version()


class Killed(BaseException):
    """Nobody catches it, as nobody catches a kill."""


# --- what is read, and when ------------------------------------------------------------------


def test_an_update_indexes_what_is_new_and_then_has_nothing_to_do(index, files, tmp_path):
    index.add_index("id")
    assert set(index.data().pending) == set(files)
    assert index.locate_files({"id": [11]}) == set(files)
    done = index.update()
    assert (done.indexed, done.batches, dict(done.failed)) == (3, 1, {})
    assert not index.data().pending
    version = versions(index)
    again = index.update()
    assert (again.indexed, again.extended, again.batches) == (0, 0, 0)
    assert versions(index) == version
    assert index.locate_files({"id": [11]}) == {files[1]}
    assert index.locate_files({"id": [99]}) == set()
    fourth = write(tmp_path / "data" / "new.parquet", [30])
    index.add_file(fourth)
    assert index.locate_files({"id": [11]}) == {files[1], fourth}
    assert index.update().indexed == 1
    assert index.locate_files({"id": [30, 11]}) == {files[1], fourth}
    sizes = [os.stat(f).st_size for f in (*files, fourth)]  # noqa: PTH116
    assert IndexCatalog.describe("t").total_indexed_file_size == sum(sizes)
    found = rows_of(index)
    assert [found[f]["file_size"] for f in (*files, fourth)] == sizes
    assert {row["row_count"] for row in found.values()} == {3, 1}


def test_new_columns_are_filled_in_without_reading_what_is_known(
    index, files, tmp_path, monkeypatch
):
    index.add_index("id")
    index.update()
    before = rows_of(index)
    read = []
    run = tasks.run

    def spy(spark, plan, rows, **more):
        read.append(([t.declaration.name for t in plan.targets], sorted(plan.files)))
        return run(spark, plan, rows, **more)

    monkeypatch.setattr(tasks, "run", spy)
    index.add_computed_index("big", "upper(name)")
    index.add_bloom_index("name")
    index.add_exploded_field_index("items", "k", "k")
    new = write(tmp_path / "data" / "new.parquet", [30])
    index.add_file(new)
    assert index.locate_files({"big": ["N11"]}) == {*files, new}
    for condition in ("big = 'N11'", "big LIKE 'x%' AND k = 7", "k IS NULL", "NOT (big <> 'a')"):
        assert index.locate_files(where=condition) == {*files, new}, condition
    done = index.update()
    assert (done.indexed, done.extended) == (1, 3)
    assert read == [
        (["id", "big", "k", "name"], [new]),
        (["big", "k", "name"], sorted(files)),
    ]
    assert not index.data().pending
    assert located(index, big=["N11"], id=[11], k=[110], name=["n11"]) == {"hash#x.parquet"}
    assert located(index, big=["N11"], id=[12]) == {"hash#x.parquet"}
    assert located(index, big=["N11"], id=[1]) == set()
    after = rows_of(index)
    assert all(after[f]["id"] == before[f]["id"] for f in files)


def test_every_kind_is_filled_in_later(index, files):
    index.add_index("id")
    index.update()
    index.add_bloom_index("name", 0.0001)
    assert index.update().extended == 3
    index.add_temporal_index("at", "id")
    index.add_computed_index("big", "upper(name)")
    assert index.update().extended == 3
    index.add_exploded_field_index("items", "k", "k")
    assert index.update().extended == 3
    other = Index("other", DDL)
    other.add_file(*files)
    other.add_index("id")
    other.update()
    other.add_range_index("at")
    other.add_text_index("name")
    assert other.update().extended == 3
    for found in (index, other):
        assert not found.data().pending
        assert located(found, id=[11]) == {"hash#x.parquet"}
    assert located(index, name=["n11"], at=[11], big=["N11"], k=[110]) == {"hash#x.parquet"}
    for wrong in ({"name": ["n"]}, {"at": [99]}, {"big": ["n11"]}, {"k": [11]}):
        assert located(index, **wrong) == set()
    assert located(other, at=[11], name=["n11"]) == {"hash#x.parquet"}
    assert located(other, at=[15]) == located(other, name=["n15"]) == set()


def test_ranges_come_from_footers_and_no_row_is_read(index, files, monkeypatch):
    monkeypatch.setattr(tasks, "run", None)
    index.add_range_index("id")
    index.add_range_index("at")
    index.update()
    found = rows_of(index)[files[1]]
    assert found["range_id"] == {"min": 10, "max": 12}
    assert found["range_at"] == {"min": 10, "max": 12}
    assert (found["row_count"], found["nulls_id"]) == (3, 0)
    assert located(index, id=[11]) == {"hash#x.parquet"}


def test_columns_may_be_found_by_their_numbers(spark, storage, tmp_path):
    from pyspark.sql.types import LongType, StructField, StructType

    field = pa.field("old", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([[7]], schema=pa.schema([field])), tmp_path / "x.parquet")
    column = StructField("new", LongType(), True, {"parquet.field.id": 1})
    index = Index("t", StructType([column]))
    index.add_file(str(tmp_path / "x.parquet"))
    index.add_range_index("new")
    index.update()
    assert index.locate_files({"new": [7]}) == set()
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    try:
        for _ in range(2):
            assert len(index.locate_files({"new": [7]})) == 1
            index.update()
        assert not index.data().pending
        assert index.locate_files(where="new IS NULL") == set()
    finally:
        spark.conf.unset("spark.sql.parquet.fieldId.read.enabled")


def test_footers_and_rows_give_the_same(index, files, tmp_path, monkeypatch):
    write(tmp_path / "data" / "empty.parquet", [])
    null = pa.table({"id": pa.array([None, None], pa.int32())})
    pq.write_table(null, tmp_path / "data" / "null.parquet")
    index.add_file(str(tmp_path / "data"))
    index.add_range_index("id")
    index.update()
    footers = rows_of(index)
    other = Index("other", DDL)
    other.add_file(str(tmp_path / "data"))
    other.add_range_index("id")
    monkeypatch.setattr(update, "footers_suffice", lambda *_: False)
    other.update()
    rows = rows_of(other)
    assert len(rows) == 5
    for name, row in rows.items():
        for column in ("range_id", "nulls_id", "row_count", "built"):
            assert footers[name][column] == row[column], (name, column)


@pytest.mark.parametrize("pad", ["", "#"], ids=["of one size", "of many sizes"])
def test_files_with_strange_names_are_read(storage, tmp_path, pad):
    index = Index("t", "id INT, name STRING", "csv")
    index.add_index("id")
    names = [*STRANGE, "st*r", "[a]{b}", "q?", "back\\slash"]
    for number, name in enumerate(names):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"{number + 10},a{pad * number}\n{number + 30},b\n")
        index.add_file(str(path))
    assert index.update().indexed == len(names)
    assert index.update().indexed == 0
    for number, name in enumerate(names):
        assert located(index, id=[number + 30]) == {f"{name}.csv"}
    assert located(index, id=[99]) == set()


def test_a_file_that_changes_while_it_is_read_stays_pending(index, files, monkeypatch):
    index.add_index("id")
    batches = update.batches

    def earlier(found):
        for batch in batches(found):
            yield {n: replace(m, size=m.size + k) for k, (n, m) in enumerate(batch.items(), 1)}

    monkeypatch.setattr(update, "batches", earlier)
    assert index.update().indexed == 3
    assert set(index.data().pending) == set(files)
    monkeypatch.undo()
    assert index.update().indexed == 3
    assert not index.data().pending


def test_folders_and_patterns_are_followed(storage, tmp_path):
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    one = write(folder / "1.parquet", [1])
    index = Index("t", DDL)
    index.add_index("id")
    index.add_file(str(tmp_path / "deep"), str(tmp_path / "p*.parquet"))
    index.update()
    two = write(tmp_path / "p2.parquet", [2])
    three = write(folder / "3.parquet", [3])
    assert index.locate_files({"id": [1]}) == {one, two, three}
    assert index.update().indexed == 2
    assert index.locate_files({"id": [3]}) == {three}
    with pytest.raises(AriadneArgumentError, match="registered folder"):
        index.delete_files(three)
    os.unlink(three)  # noqa: PTH108
    assert index.locate_files({"id": [3]}) == set()
    assert index.update().removed == 1
    index.delete_files(str(tmp_path / "deep"))
    assert set(rows_of(index)) == {two}


def test_a_rewritten_file_is_noticed_at_once(spark, index, files):
    index.add_index("id")
    index.update()
    assert index.locate_files({"id": [77]}) == set()
    write(files[0], [77])
    assert index.locate_files({"id": [77]}) == {files[0]}
    assert index.locate_files({"id": [11]}) == {files[0], files[1]}
    spark.conf.set(keys.ARIADNE_CHECK_FILES.name, "false")
    try:
        assert index.locate_files({"id": [77]}) == set()
    finally:
        spark.conf.unset(keys.ARIADNE_CHECK_FILES.name)
    assert index.update().indexed == 1
    assert index.locate_files({"id": [77]}) == {files[0]}
    assert index.locate_files({"id": [0]}) == set()


def test_values_read_under_other_settings_are_not_believed(spark, storage, tmp_path):
    (tmp_path / "x.csv").write_text("2024-01-01 00:30:00\n")
    index = Index("t", "at TIMESTAMP", "csv")
    index.add_computed_index("day", "cast(date_trunc('day', at) as string)")
    index.add_file(str(tmp_path / "x.csv"))
    index.update()
    assert not index.data().pending
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert index.data().pending
        assert index.update().indexed == 1
        assert not index.data().pending
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert index.data().pending
    index.update()
    spark.conf.set("spark.sql.json.enablePartialResults", "false")
    try:
        assert index.data().pending
    finally:
        spark.conf.unset("spark.sql.json.enablePartialResults")
    assert not index.data().pending


def test_values_read_with_other_options_or_columns_are_not_believed(spark, storage, tmp_path):
    (tmp_path / "x.csv").write_text("1;5\n")
    Index("t", "a STRING, b STRING", "csv").add_file(str(tmp_path / "x.csv"))
    Index("t").add_index("a")
    Index("t").update()
    one = spark.createDataFrame([("1",)], "a STRING")
    index = Index("t", read_options={"sep": ";"})
    assert index.join(one, "a").collect() == [("1", "5")]
    assert index.update().indexed == 1
    assert index.update().indexed == 0
    # Columns of csv files are told apart by their order alone.
    index = Index("t", "b STRING, a STRING", allow_schema_mismatch=True)
    five = spark.createDataFrame([("5",)], "a STRING")
    assert index.join(five, "a").collect() == [("5", "1")]
    assert index.update().indexed == 1
    assert index.locate_files({"a": ["1"]}) == set()


def test_columns_of_another_case_are_not_believed(spark, storage, tmp_path):
    pq.write_table(pa.table({"A": [1]}), tmp_path / "x.parquet")
    index = Index("t", "a BIGINT")
    index.add_file(str(tmp_path / "x.parquet"))
    index.add_index("a")
    one = spark.createDataFrame([(1,)], "a BIGINT")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        index.update()
        assert not index.data().pending
        assert index.join(one, "a").collect() == []
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert index.join(one, "a").collect() == [(1,)]
    index.update()
    assert not index.data().pending
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert len(index.locate_files(where="a IS NULL")) == 1
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_rows_that_only_other_columns_would_drop_are_indexed(spark, storage, tmp_path, kind):
    lines = {"csv": "5,zz\n1,2\n", "json": '{"a": 5, "b": "zz"}\n{"a": 1, "b": 2}\n'}
    (tmp_path / "x").write_text(lines[kind])
    index = Index("t", "a INT, b INT", kind, read_options={"Mode": "dropMalformed"})
    index.add_file(str(tmp_path / "x"))
    index.add_index("a")
    index.add_index("b")
    index.update()
    five = spark.createDataFrame([(5,)], "a INT")
    assert index.join(five, "a").collect() == [], "Spark reads b as well"
    assert index.select("a").join(five, "a").collect() == [(5,)]
    assert spark.sql("SELECT a FROM ariadne.t WHERE a = 5").collect() == [(5,)]


def test_options_of_parquet_files_count_too(index, files):
    index.add_index("id")
    index.update()
    other = Index("t", read_options={"datetimeRebaseMode": "CORRECTED"})
    assert set(other.data().pending) == set(files)
    other.update()
    other.add_computed_index("big", "upper(name)")
    assert other.update().extended == 3


def test_empty_files_null_columns_and_empty_arrays_are_indexed(storage, tmp_path):
    write(tmp_path / "empty.parquet", [])
    nulls = pa.Table.from_pylist([dict.fromkeys(SCHEMA.names)] * 2, SCHEMA)
    pq.write_table(nulls, tmp_path / "nulls.parquet")
    bare = pa.Table.from_pylist([{"id": 5, "items": []}, {"id": 6, "items": [None]}], SCHEMA)
    pq.write_table(bare, tmp_path / "bare.parquet")
    index = Index("t", DDL)
    index.add_file(str(tmp_path / "*.parquet"))
    index.add_index("id")
    index.add_exploded_field_index("items", "k", "k")
    index.add_bloom_index("name")
    index.add_temporal_index("at", "id")
    assert index.update().indexed == 3
    assert not index.data().pending
    assert index.update().batches == 0
    found = {os.path.basename(n): row for n, row in rows_of(index).items()}  # noqa: PTH119
    assert [found[f"{n}.parquet"]["row_count"] for n in ("empty", "nulls", "bare")] == [0, 2, 2]
    assert found["nulls.parquet"]["nulls_id"] == 2
    assert all(row["k"] == [] for row in found.values())
    assert located(index, id=[5]) == {"bare.parquet"}
    assert located(index, k=[1]) == set()


# --- files that cannot be read ---------------------------------------------------------------


def test_one_bad_file_harms_no_other_and_stays_a_candidate(index, files, tmp_path):
    bad = tmp_path / "data" / "bad.parquet"
    bad.write_bytes(b"PAR1 this is no parquet PAR1")
    gone = str(tmp_path / "data" / "gone.parquet")
    index.add_file(str(bad), gone)
    index.add_index("id")
    done = index.update()
    assert done.indexed == 3
    assert set(done.failed) == {str(bad), gone}
    assert done.failed[gone] == "the file is not there"
    assert rows_of(index)[str(bad)]["failure"] == done.failed[str(bad)]
    assert index.locate_files({"id": [11]}) == {files[1], str(bad), gone}
    assert index.data().missing == (gone,)
    version = versions(index)
    assert set(index.update().failed) == {str(bad), gone}
    assert versions(index) == version
    write(bad, [50])
    write(gone, [60])
    assert index.update().indexed == 2
    assert index.locate_files({"id": [60]}) == {gone}


# --- large values ----------------------------------------------------------------------------


@pytest.fixture
def tiny_limit(spark, storage):
    spark.conf.set(keys.ARIADNE_LARGE_INDEX_LIMIT.name, "1")
    spark.conf.set(keys.ARIADNE_AUTO_BLOOM_FPR.name, "0.001")
    yield
    spark.conf.unset(keys.ARIADNE_LARGE_INDEX_LIMIT.name)
    spark.conf.unset(keys.ARIADNE_AUTO_BLOOM_FPR.name)


def test_many_values_are_rows_of_a_large_table(index, files, tiny_limit, tmp_path):
    single = write(tmp_path / "data" / "single.parquet", [11])
    index.add_file(single)
    index.add_index("id")
    index.add_index("name")
    index.update()
    assert Index("t").metadata.auto_bloom == ("id", "name")
    found = rows_of(index)
    assert found[files[0]]["id"] is None
    assert found[files[0]]["distinct_id"] == 3
    assert found[files[0]]["auto_bloom_id"]
    assert found[single]["id"] == [11]
    assert found[single]["large_id"] is None
    large = DeltaTable(f"{index.storage_path}/large_indexes/id").to_pyarrow_table()
    assert sorted(set(large.column("filename").to_pylist())) == sorted(files)
    assert large.num_rows == 9
    for _ in range(2):
        assert index.locate_files({"id": [11]}) == {files[1], single}
        assert index.locate_files({"id": [11], "name": ["n11"]}) == {files[1], single}
        assert index.locate_files({"id": [11], "name": ["n1"]}) == set()
        assert index.locate_files({"id": [99]}) == set()
        index.compact()
        index.vacuum(0)
    compacted = DeltaTable(f"{index.storage_path}/large_indexes/id")
    assert len(compacted.file_uris()) == 1
    assert {r["MaxValues"] for r in index.stats().collect()} == {3}
    write(files[0], [1, 77])
    index.update()
    index.compact()
    assert index.locate_files({"id": [77]}) == {files[0]}
    assert index.locate_files({"id": [2]}) == set()
    index.delete_files(files[0], files[1], "/never/there")
    assert not index.has_file(files[0])
    rest = DeltaTable(f"{index.storage_path}/large_indexes/id").to_pyarrow_table()
    assert set(rest.column("filename").to_pylist()) == {files[2]}
    sizes = [os.stat(f).st_size for f in (files[2], single)]  # noqa: PTH116
    assert IndexCatalog.describe("t").total_indexed_file_size == sum(sizes)


def test_no_large_tables_by_default(index):
    index.add_index("id")
    index.update()
    assert Index("t").metadata.auto_bloom == ()
    assert not any("large_indexes" in m.path for m in index._place.store.list())
    index.delete_files("/never/there")


def test_files_that_spark_cuts_are_joined_again(spark, storage, tmp_path):
    lines = [f"{n},name {n % 7},{n % 1000}\n" for n in range(30_000)]
    (tmp_path / "big.csv").write_text("".join(lines))
    (tmp_path / "small.csv").write_text("5,x,1\n")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "100000")
    spark.conf.set("spark.sql.files.openCostInBytes", "1000")
    try:
        index = Index("t", "id INT, name STRING, k INT", "csv")
        index.add_file(str(tmp_path / "*.csv"))
        index.add_index("name")
        index.add_bloom_index("id")
        index.add_range_index("k")
        assert index.update().indexed == 2
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")
    found = rows_of(index)[str(tmp_path / "big.csv")]
    assert found["row_count"] == 30_000
    assert sorted(found["name"]) == [f"name {n}" for n in range(7)]
    assert found["range_k"] == {"min": 0, "max": 999}
    assert located(index, id=[29_999]) == {"big.csv"}
    assert located(index, name=["x"]) == {"small.csv"}


def test_shuffling_gives_the_same(spark, index, files):
    index.add_index("id")
    index.add_text_index("name")
    index.add_temporal_index("at", "id")
    spark.conf.set(keys.ARIADNE_INDEX_REPARTITION_COUNT.name, "3")
    try:
        index.update()
    finally:
        spark.conf.unset(keys.ARIADNE_INDEX_REPARTITION_COUNT.name)
    other = Index("other", DDL)
    other.add_file(*files)
    other.add_index("id")
    other.add_text_index("name")
    other.add_temporal_index("at", "id")
    other.update()
    one, two = rows_of(index), rows_of(other)
    assert one.keys() == two.keys()
    for name, row in one.items():
        assert row["text_name"] == two[name]["text_name"]
        for column in ("id", "at"):
            assert sorted(map(str, row[column])) == sorted(map(str, two[name][column]))


# --- staging, crashes, races -----------------------------------------------------------------


def test_batches_are_merged_every_so_many(spark, index, monkeypatch):
    monkeypatch.setattr(tasks, "_BATCH_FILES", 1)
    merged = []
    consolidate = index_rows.consolidate

    def spy(*arguments):
        merged.append(consolidate(*arguments).batches)
        return index_rows.Consolidated(merged[-1], 0)

    monkeypatch.setattr(index_rows, "consolidate", spy)
    index.add_index("id")
    spark.conf.set(keys.ARIADNE_STAGING_THRESHOLD.name, "2")
    spark.conf.set(keys.ARIADNE_AUTO_COMPACT_THRESHOLD.name, "3")
    try:
        done = index.update()
    finally:
        spark.conf.unset(keys.ARIADNE_STAGING_THRESHOLD.name)
        spark.conf.unset(keys.ARIADNE_AUTO_COMPACT_THRESHOLD.name)
    assert done.batches == 3
    assert merged == [2, 1]
    assert index.metadata.batches_since_compact == 0
    assert len(DeltaTable(f"{index.storage_path}/index").file_uris()) == 1
    assert located(index, id=[11]) == {"hash#x.parquet"}


@pytest.mark.parametrize(
    "point", ["after the job", "after large", "after staging", "in merge", "before cleaning"]
)
def test_a_kill_in_the_middle_loses_nothing(index, files, tiny_limit, monkeypatch, point):
    monkeypatch.setattr(tasks, "_BATCH_FILES", 2)
    index.add_index("id")

    def kill(*_a, **_k):
        raise Killed

    with monkeypatch.context() as patch:
        if point == "after the job":
            patch.setattr(DeltaPlace, "commit", kill)
        elif point == "after large":
            commit = DeltaPlace.commit
            patch.setattr(
                DeltaPlace,
                "commit",
                lambda self, *a, **k: kill() if "staging" in self.uri else commit(self, *a, **k),
            )
        elif point == "after staging":
            patch.setattr(update._Update, "_consolidate_if", kill)
        elif point == "in merge":
            patch.setattr(DeltaPlace, "upsert", kill)
        else:
            patch.setattr(index_rows, "_remove", kill)
        with pytest.raises(Killed):
            index.update()
    fresh = Index("t")
    assert fresh.locate_files({"id": [11]}) >= {files[1]}
    fresh.update()
    assert not fresh.data().pending
    assert fresh.locate_files({"id": [11]}) == {files[1]}
    assert fresh.locate_files({"id": [1, 22]}) == {files[0], files[2]}
    assert len(rows_of(fresh)) == 3
    fresh.vacuum(0)
    assert not list(fresh._place.store.list("staging"))
    fresh.compact()
    assert fresh.locate_files({"id": [11]}) == {files[1]}


@pytest.mark.parametrize("merged", [True, False], ids=["by another update", "damaged"])
def test_a_batch_that_vanishes_while_it_is_read(index, monkeypatch, merged):
    """Its log goes first when it was merged; rows that go alone are damage."""
    index.add_index("id")

    def kill(*_a):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(index_rows, "_remove", kill)
        index.update()
    place, read = index._place, DeltaPlace.rows
    (batch,) = index_rows.staged_batches(place)

    def vanish(self, *a, **k):
        if "/staging/" in self.uri:
            objects = [meta.path for meta in place.store.list(f"staging/{batch}")]
            place.store.delete([o for o in objects if merged or "_delta_log" not in o])
        return read(self, *a, **k)

    monkeypatch.setattr(DeltaPlace, "rows", vanish)
    if merged:
        assert index.update().batches == 0
    else:
        with pytest.raises(StorageError, match="Cannot use the Delta table"):
            index.update()


def test_two_updates_at_once_lose_nothing(spark, index, files, tiny_limit, monkeypatch):
    monkeypatch.setattr(tasks, "_BATCH_FILES", 1)
    index.add_index("id")
    index.add_range_index("at")
    index.update()
    write(files[0], [5, 6])
    index.add_index("name")
    start, errors = threading.Barrier(2), []

    def run():
        try:
            mine = Index("t")
            start.wait()
            mine.update()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert not index.data().pending
    assert len(rows_of(index)) == 3
    assert all(set(row["built"]) == {"id", "range_at", "name"} for row in rows_of(index).values())
    assert index.locate_files({"id": [5], "name": ["n5"]}) == {files[0]}
    assert index.locate_files({"id": [11], "name": ["n11"]}) == {files[1]}
    assert index.locate_files({"id": [0]}) == set()


def test_a_declaration_made_while_an_update_runs_is_kept(index, monkeypatch):
    index.add_index("id")
    run = tasks.run

    def meanwhile(*arguments, **more):
        Index("t").add_bloom_index("name")
        return run(*arguments, **more)

    monkeypatch.setattr(tasks, "run", meanwhile)
    index.update()
    assert index.indexes == {"id", "name"}
    monkeypatch.setattr(tasks, "run", run)
    assert index.update().extended == 3


def test_junk_where_a_table_should_be_is_left_alone_and_nothing_is_known(index, files, storage):
    index.add_index("id")
    junk = storage / "indexes" / "t" / "index"
    junk.mkdir(parents=True)
    (junk / "x").write_text("junk")
    assert index.locate_files({"id": [1]}) == set(files)
    assert (junk / "x").read_text() == "junk"


def test_tables_of_the_scala_project_are_read_and_rebuilt(index, files, storage):
    from deltalake import write_deltalake

    index.add_index("id")
    index.add_bloom_index("name")
    old = pa.table(
        {
            "filename": [f"file://{files[0]}"],
            "id": pa.array([[7]], pa.list_(pa.int32())),
            "bloom_name": [b"guava"],
            "file_size": [1],
        }
    )
    write_deltalake(f"{index.storage_path}/index", old)
    write_deltalake(f"{index.storage_path}/staging", old)
    assert set(index.data().pending) == set(files)
    done = index.update()
    assert (done.indexed, done.removed) == (3, 1)
    assert set(rows_of(index)) == set(files)
    assert not (storage / "indexes" / "t" / "staging").exists()
    assert index.locate_files({"id": [11], "name": ["n11"]}) == {files[1]}


# --- any store, any reader -------------------------------------------------------------------


def test_an_index_can_live_in_an_object_store(spark, storage, files, s3, tiny_limit):
    settings = {
        "spark.ariadne.storagePath": f"{s3.uri}/ariadne {os.getpid()}",
        "spark.hadoop.fs.s3a.access.key": s3.options["aws_access_key_id"],
        "spark.hadoop.fs.s3a.secret.key": s3.options["aws_secret_access_key"],
        "spark.hadoop.fs.s3a.endpoint": s3.options["aws_endpoint"],
        "spark.hadoop.fs.s3a.endpoint.region": s3.options["aws_region"],
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        index = Index("t", DDL)
        index.add_file(*files)
        index.add_index("id")
        index.update()
        assert index.locate_files({"id": [11]}) == {files[1]}
        write(files[1], [40])
        index.update()
        assert index.locate_files({"id": [11]}) == set()
        assert IndexCatalog.list() == ["t"]
        assert Index.remove("t")
        assert IndexCatalog.list() == []
    finally:
        for name in list(settings)[1:]:
            spark.conf.unset(name)


def test_people_can_look_inside(index, capsys, caplog, spark):
    index.add_index("id")
    index.add_bloom_index("name")
    assert index.stats().count() == 0
    spark.conf.set(keys.ARIADNE_DEBUG.name, "true")
    try:
        with caplog.at_level("INFO", logger="indextables.ariadne"):
            index.update()
    finally:
        spark.conf.unset(keys.ARIADNE_DEBUG.name)
    assert "Consolidated 1 batches of t" in caplog.text
    index.print_index()
    index.print_metadata()
    shown = capsys.readouterr().out
    assert "[10, 11, 12]" in shown
    assert json.loads(shown[shown.index("{\n") :])["indexes"] == ["id"]
    row = index.stats().collect()[0].asDict()
    assert (row["Column"], row["FileCount"], row["MinValues"], row["MaxValues"]) == ("id", 3, 3, 3)


def test_statistics_cover_every_kind_of_index(storage, tmp_path):
    texts = {"a": ["one two", "two three", None], "b": ["four", "four", "four"]}
    for name, values in texts.items():
        table = pa.table(
            {"id": [1, 2, 3], "b": ["x", "y", None], "r": [1.5, None, 2.5], "t": values}
        )
        pq.write_table(table, tmp_path / f"{name}.parquet")
    index = Index("all", "id BIGINT, b STRING, r DOUBLE, t STRING")
    index.add_file(*(str(tmp_path / f"{name}.parquet") for name in texts))
    index.add_index("id")
    index.add_bloom_index("b")
    index.add_range_index("r")
    index.update()
    index.add_text_index("t")
    found = {row["Column"]: row for row in index.stats().collect()}
    assert set(found) == {"id", "b", "r"}  # the words are declared, and not built yet
    index.update()
    found = {row["Column"]: row.asDict() for row in index.stats().collect()}
    assert set(found) == {"id", "b", "r", "t"}
    assert {row["FileCount"] for row in found.values()} == {2}
    bounds = {name: (row["MinValues"], row["MaxValues"]) for name, row in found.items()}
    assert bounds == {"id": (3, 3), "b": (2, 2), "r": (None, None), "t": (1, 3)}
    assert (found["t"]["MedianValues"], found["r"]["AvgValues"]) == (2.0, None)


def test_a_package_that_is_not_there_is_no_fault_of_files(index, monkeypatch):
    from pyspark.errors import PySparkImportError

    def without_pandas(*_args, **_more):
        raise PySparkImportError(
            errorClass="PACKAGE_NOT_INSTALLED",
            messageParameters={"package_name": "Pandas", "minimum_version": "2.2.0"},
        )

    monkeypatch.setattr(tasks, "run", without_pandas)
    index.add_index("id")
    with pytest.raises(PySparkImportError, match="Pandas"):
        index.update()
    assert not rows_of_any(index)


def rows_of_any(index):
    table = index._place.main.read()
    return [] if table is None else table.to_pylist()
