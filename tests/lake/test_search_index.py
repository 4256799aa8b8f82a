"""A search index over Delta tables and Parquet folders: what sources can be like, and bad input."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import json
import math
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_logs import DeltaLog, field
from deltalake import DeltaTable, write_deltalake

import indextables as it
from benchmarks.counting import counted
from indextables.errors import (
    ConfigError,
    EmbeddedQueryError,
    LakeError,
    MetadataChangedError,
    NotATableError,
    SchemaError,
    SearchIndexError,
    SourceMissingError,
    SourceRowsError,
    SourceVersionError,
    TableExistsError,
    UnknownColumnError,
    UnknownFieldError,
    UnsupportedSourceError,
)
from indextables.lake import refresh as refresh_module
from indextables.lake.pages import read_parquet_footer
from indextables.lake.rows import SourceColumns, SourceRows
from indextables.storage import open_store

ROWS = pa.table(
    {"id": [1, 2, 3, 4], "body": ["red fox", "lazy dog", None, "fox and dog"]},
    schema=pa.schema([("id", pa.int64()), ("body", pa.string())]),
)
PLAIN = [field("id", "long"), field("body", "string")]


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


def over_delta(folder, **arguments) -> it.SearchIndex:
    arguments = {"columns": ["body"]} | arguments
    return it.SearchIndex.create(
        folder / "index", source=folder / "source", format="delta", **arguments
    )


def over_folder(folder, **arguments) -> it.SearchIndex:
    return it.SearchIndex.create(
        folder / "index", source=folder / "source", format="parquet", **arguments
    )


def put(folder, name: str, rows: pa.Table, **options) -> None:
    file = folder / "source" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file, **options)


# --- Delta ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("counted", [True, False])
def test_rows_in_a_deletion_vector_are_dead(tmp_path, counted):
    log = DeltaLog(tmp_path / "source", features=("deletionVectors",))
    first = log.add("a.parquet", ROWS, counted=counted)
    log.commit(log.protocol, log.metadata(PLAIN), first)
    index = over_delta(tmp_path)
    assert index.count() == 4
    # A vector changes no file: the index still covers it.
    marked = log.add("a.parquet", dead=(0, 2))
    log.commit(log.remove(first), marked)
    assert index.describe()["files_not_indexed"] == 0
    assert ids(index.scan()) == [2, 4]
    assert index.count() == 2
    assert ids(index.scan(where="body indexquery 'fox'")) == [4]
    assert index.count(where="body indexquery 'fox'") == 1
    assert ids(index.search("fox OR dog")) == [2, 4]
    assert index.count(where="body IS NULL") == 0
    assert index.count(where="body IS NOT NULL") == 2
    assert index.refresh().files_indexed == 0
    # The same for a file that is not indexed.
    log.commit(log.add("dir with%20/b.parquet", ROWS, dead=(3,)))
    assert index.describe()["files_not_indexed"] == 1
    assert ids(index.scan(where="body indexquery 'fox'")) == [1, 4]
    assert index.count(where="NOT body indexquery 'fox'") == 3
    assert index.count() == 5
    assert ids(index.search("fox")) == [1, 4]
    index.refresh()
    assert ids(index.search("fox")) == [1, 4]
    assert ids(index.scan(version=0)) == [1, 2, 3, 4]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping(tmp_path, mode):
    log = DeltaLog(tmp_path / "source", features=("columnMapping",))
    one, two = (
        {"type": "struct", "fields": [field("city", "string", f"col-{n}", n)]} for n in (9, 11)
    )
    names = [
        field("id", "long", "col-1", 1), field("body", "string", "col-2", 2),
        field("day", "date", "col-3", 3), field("at", one, "col-4", 4),
        field("tags", {"type": "array", "elementType": two, "containsNull": True}, "col-5", 5),
    ]  # fmt: skip

    def stored(name: str, kind: pa.DataType, number: int) -> pa.Field:
        # Found by name these are other columns, found by id the names do not matter.
        shown = name if mode == "name" else f"any-{number}"
        return pa.field(shown, kind, metadata={"PARQUET:field_id": str(number)})

    inner, items = (
        pa.struct([stored(f"col-{n - 1}", pa.string(), n - 1), stored(f"col-{n}", pa.string(), n)])
        for n in (9, 11)
    )
    schema = pa.schema([
        stored("col-1", pa.int64(), 1), stored("col-2", pa.string(), 2), stored("col-4", inner, 4),
        stored("col-5", pa.list_(items), 5), stored("body", pa.string(), 77),
    ])  # fmt: skip
    old, new = inner[0].name, inner[1].name
    rows = pa.table(
        [
            [1, 2, 3],
            ["red fox", "dog", "fox"],
            [{old: "gone", new: "Rome"}, None, {old: None, new: "Oslo"}],
            [[{items[0].name: "x", items[1].name: "Bern"}, None], None, []],
            ["never", "shown", "fox"],
        ],
        schema=schema,
    )
    day = {"col-3": "2024-05-06"}
    log.commit(
        log.protocol,
        log.metadata(names, partition_by=("day",), mode=mode),
        log.add("a.parquet", rows, partition=day),
    )
    index = over_delta(tmp_path, columns=["body", "at"])
    for _ in range(2):
        found = index.scan(where="body indexquery 'fox'")
        assert found.to_pylist() == [
            {
                "id": 1, "body": "red fox", "day": datetime.date(2024, 5, 6),
                "at": {"city": "Rome"}, "tags": [{"city": "Bern"}, None],
            },
            {
                "id": 3, "body": "fox", "day": datetime.date(2024, 5, 6),
                "at": {"city": "Oslo"}, "tags": [],
            },
        ]  # fmt: skip
        assert ids(index.scan(where="at indexquery 'at.city:oslo'")) == [3]
        assert index.count(where="at indexquery 'gone'") == 0
        assert index.count(where="day = DATE '2024-05-06'") == 3
        # Renamed: a column that is searched, and one that takes its name.
        log.commit(log.add("b.parquet", rows.slice(1, 1), partition=day))
        assert index.count(where="body indexquery 'dog'") == 2
        log.commit(log.remove(log.add("b.parquet", partition=day)))
    # The column is dropped, and another one takes its name: its values are none of the old ones.
    names[1] = field("body", "string", "col-22", 22)
    log.commit(log.metadata(names, partition_by=("day",), mode=mode))
    assert index.count(where="body indexquery 'fox'") == 0
    assert index.refresh().files_indexed == 1
    assert index.count(where="body indexquery 'fox'") == 0
    # Renamed: the index was not made for this name, and says so.
    names[1] = field("text", "string", "col-2", 2)
    log.commit(log.metadata(names, partition_by=("day",), mode=mode))
    assert index.count(where="text = 'dog'") == 1
    assert ids(index.scan(where="at indexquery 'at.city:oslo'")) == [3]
    with pytest.raises((UnknownColumnError, UnknownFieldError), match="body"):
        index.count(where="body indexquery 'fox'")


def test_types_are_widened(tmp_path):
    log = DeltaLog(tmp_path / "source", features=("typeWidening", "timestampNtz"))
    old = pa.table(
        {
            "id": pa.array([1, 2], pa.int8()),
            "body": ["red fox", "dog"],
            "x": pa.array([1.5, math.nan], pa.float32()),
            "day": [datetime.date(2024, 1, 2), None],
        }
    )
    fields = [
        field("id", "byte"), field("body", "string"), field("x", "float"), field("day", "date"),
    ]  # fmt: skip
    log.commit(log.protocol, log.metadata(fields), log.add("a.parquet", old))
    index = over_delta(tmp_path, columns=["id", "body", "x"])
    fields = [
        field("id", "long"), field("body", "string"), field("x", "double"),
        field("day", "timestamp_ntz"),
    ]  # fmt: skip
    log.commit(log.metadata(fields))
    for _ in range(2):
        assert index.scan(where="id < 3000000000").num_rows == 2
        assert index.scan(where="x > 100").num_rows == 1  # NaN is greater than every number
        assert index.scan(where="body indexquery 'fox'").to_pylist() == [
            {"id": 1, "body": "red fox", "x": 1.5, "day": datetime.datetime(2024, 1, 2)}
        ]
        assert ids(index.search("id:[2 TO 9]")) == [2]
        index.refresh()


def test_an_unknown_reader_feature_is_named(tmp_path):
    log = DeltaLog(tmp_path / "source", features=("deletionVectors",))
    log.commit(log.protocol, log.metadata(PLAIN), log.add("a.parquet", ROWS))
    index = over_delta(tmp_path)
    log.features.append("rowsInverted")
    log.commit(log.protocol)
    with pytest.raises(UnsupportedSourceError, match="rowsInverted"):
        index.count()


def test_a_delta_table_that_was_dropped_and_made_again(tmp_path):
    write_deltalake(tmp_path / "source", ROWS)
    index = over_delta(tmp_path)
    shutil.rmtree(tmp_path / "source")
    with pytest.raises(SourceMissingError, match="open the index with source="):
        index.search("fox")
    write_deltalake(tmp_path / "source", ROWS.slice(1))
    assert ids(index.search("fox")) == [4]
    assert index.refresh().files_removed == 1
    assert ids(index.search("fox")) == [4]


def test_a_checkpoint_of_the_second_kind(tmp_path):
    """Its actions are in a file of its own and in a sidecar; older versions are gone."""
    log = DeltaLog(tmp_path / "source", features=("v2Checkpoint",))
    adds = [log.add(f"{n}.parquet", ROWS) for n in range(3)]
    log.commit(log.protocol, log.metadata(PLAIN), adds[0])
    log.commit(adds[1])
    folder = tmp_path / "source/_delta_log"
    (folder / "_sidecars").mkdir()
    kinds: dict = {
        "path": pa.string(), "partitionValues": pa.map_(pa.string(), pa.string()),
        "size": pa.int64(), "modificationTime": pa.int64(), "dataChange": pa.bool_(),
        "stats": pa.string(),
    }  # fmt: skip
    live = [{**add["add"], "partitionValues": [], "dataChange": False} for add in adds[:2]]
    sidecar = folder / "_sidecars/a.parquet"
    pq.write_table(pa.table({"add": pa.array(live, pa.struct(kinds))}), sidecar)
    size = {"sizeInBytes": sidecar.stat().st_size, "modificationTime": 1}
    actions = [
        {"checkpointMetadata": {"version": 1}}, log.protocol, log.metadata(PLAIN),
        {"sidecar": {"path": sidecar.name, **size}},
    ]  # fmt: skip
    name = f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (folder / name).write_text("\n".join(map(json.dumps, actions)))
    (folder / f"{0:020}.json").unlink()
    log.commit(adds[2])
    index = over_delta(tmp_path)
    assert index.describe()["source_version"] == "version 2"
    assert ids(index.search("fox", limit=None)) == [1, 1, 1, 4, 4, 4]
    assert index.count(version=1) == 8


def test_a_binary_partition_column_is_named(tmp_path):
    log = DeltaLog(tmp_path / "source")
    fields = [*PLAIN, field("key", "binary")]
    added = log.add("a.parquet", ROWS, partition={"key": "\u0001"})
    log.commit(log.protocol, log.metadata(fields, partition_by=("key",)), added)
    with pytest.raises(UnsupportedSourceError, match="partition column 'key' is binary"):
        over_delta(tmp_path)


def test_versions_of_a_delta_table(tmp_path):
    write_deltalake(tmp_path / "source", ROWS.slice(0, 2))
    index = over_delta(tmp_path)
    write_deltalake(tmp_path / "source", ROWS.slice(2), mode="append")
    DeltaTable(tmp_path / "source").optimize.compact()
    index.refresh()
    assert [index.count(version=v) for v in (0, 1, None)] == [2, 4, 4]
    assert ids(index.search("fox", version=0)) == [1]
    assert "0 of 1 files" in index.explain(version=0)
    with pytest.raises(SourceVersionError, match="no version 9"):
        index.count(version=9)


def test_a_source_that_moved(tmp_path):
    write_deltalake(tmp_path / "source", ROWS)
    index = over_delta(tmp_path)
    (tmp_path / "source").rename(tmp_path / "moved")
    moved = it.SearchIndex.open(index.uri, source=tmp_path / "moved")
    assert ids(moved.search("fox")) == [1, 4]
    assert moved.refresh().files_indexed == 0
    assert it.SearchIndex.open(index.uri).source == str(tmp_path / "moved")


# --- Parquet folders -----------------------------------------------------------------------------


def test_a_file_is_not_a_source(tmp_path):
    put(tmp_path, "a.parquet", ROWS)
    place = tmp_path / "source/a.parquet"
    for source_format in ("parquet", "delta"):
        with pytest.raises(SourceMissingError, match="It is a file: name the folder"):
            it.SearchIndex.create(tmp_path / "index", source=place, format=source_format)


def test_files_of_a_folder_come_and_go(tmp_path):
    put(tmp_path, "a.parquet", ROWS)
    put(tmp_path, "_temporary/b.parquet", ROWS)
    put(tmp_path, ".hidden/b.parquet", ROWS)
    index = over_folder(tmp_path, columns=["body"])
    assert ids(index.search("fox")) == [1, 4]
    put(tmp_path, "a.parquet", ROWS.slice(3))  # another file under the same name
    assert ids(index.search("fox")) == [4]
    assert ids(index.scan(where="body indexquery 'dog'")) == [4]
    put(tmp_path, "b.parquet", ROWS)
    assert ids(index.scan(where="body indexquery 'dog'")) == [2, 4, 4]
    done = index.refresh()
    assert (done.files_indexed, done.files_removed, done.failed) == (2, 1, ())
    (tmp_path / "source/a.parquet").unlink()
    assert ids(index.scan(where="body indexquery 'dog'")) == [2, 4]
    (tmp_path / "source/b.parquet").unlink()
    with pytest.raises(SourceMissingError):
        index.count()


def test_files_of_other_writers(tmp_path):
    moment = datetime.datetime(1500, 1, 1)  # before what nanoseconds reach
    put(
        tmp_path,
        "old.parquet",
        pa.table({"id": [1], "body": ["red fox"], "at": pa.array([moment], pa.timestamp("us"))}),
        use_deprecated_int96_timestamps=True,
    )
    put(
        tmp_path,
        "new.parquet",
        pa.table(
            {
                "body": pa.array(["fox", "dog"], pa.large_string()).dictionary_encode(),
                "id": pa.array([2, 3], pa.uint16()),
                "more": pa.array([1.0, math.nan]),
                "none": pa.nulls(2),
            }
        ),
    )
    # As delta-rs writes them; rows of more than one group are taken one by one.
    views = pa.table(
        {
            "id": range(100, 300),
            "body": pa.array(["cat"] * 199 + ["cow"], pa.string_view()),
            "words": pa.array([["x"]] * 200, pa.list_(pa.string_view())),
        }
    )
    put(tmp_path, "views.parquet", views, row_group_size=150)
    put(tmp_path, "empty.parquet", ROWS.slice(0, 0))
    index = over_folder(tmp_path)
    for _ in range(2):
        found = index.scan(where="body indexquery 'fox'").sort_by("id").to_pylist()
        zoned = moment.replace(tzinfo=datetime.UTC)
        assert found == [
            {"id": 1, "body": "red fox", "at": zoned, "more": None, "words": None},
            {"id": 2, "body": "fox", "at": None, "more": 1.0, "words": None},
        ]
        cow = index.scan(where="body indexquery 'cow'").to_pylist()
        assert cow == [{"id": 299, "body": "cow", "at": None, "more": None, "words": ["x"]}]
        assert ids(index.scan(where="more > 5")) == [3]
        assert index.count() == 203
        index.refresh()
    put(tmp_path, "bad.parquet", pa.table({"id": ["text"], "body": ["fox"]}))
    with pytest.raises(SchemaError, match="id"):
        index.count()


@pytest.mark.parametrize(("kind", "three"), [("double", "3"), ("string", "'3'")])
def test_a_searched_column_of_another_kind_is_not_null(tmp_path, kind, three):
    """It is not searched any more, so splits hold nothing of it, and say so of no row."""
    log = DeltaLog(tmp_path / "source", features=("typeWidening",))
    rows = ROWS if kind == "double" else ROWS.set_column(0, "id", pa.array(list("1234")))
    first = log.add("a.parquet", ROWS)
    log.commit(log.protocol, log.metadata([field("id", "integer"), field("body", "string")]), first)
    index = over_delta(tmp_path, columns=["id", "body"])
    fields = [field("id", kind), field("body", "string")]
    log.commit(log.metadata(fields), log.remove(first), log.add("b.parquet", rows))
    for _ in range(3):
        assert index.count(where="id IS NOT NULL") == 4
        assert index.count(where="id IS NULL") == 0
        assert index.scan(where=f"id > {three}")["body"].to_pylist() == ["fox and dog"]
        assert index.facets(by=["id"])["id"].num_rows == 4
        assert [check.message for check in index.verify() if not check.passed] == []
        index.refresh()


def test_a_search_for_all_rows_of_files_that_are_not_indexed(tmp_path):
    put(tmp_path, "a.parquet", ROWS)
    index = over_folder(tmp_path)
    put(tmp_path, "b.parquet", ROWS)
    for where in ("body indexquery '*'", "_indexall indexquery '*'"):
        assert index.count(where=where) == 8
        assert index.scan(where=where).num_rows == 8
        assert index.count(where=f"{where} AND id < 3") == 4
        assert index.count(where=f"NOT {where}") == 0
    assert index.facets("*", by=["id"])["id"]["count"].to_pylist() == [2] * 4
    assert (
        index.sql("SELECT count(*) AS n FROM this WHERE body indexquery '*'")["n"][0].as_py() == 8
    )


@pytest.mark.parametrize("merged", [False, True])
def test_columns_that_are_stored_only(tmp_path, merged):
    for name in ("a", "b"):
        put(tmp_path, f"{name}.parquet", ROWS)
    config = {"spark.indextables.indexing.storeonlyfields": "id"}
    index = over_folder(tmp_path, config=config)
    if merged:
        index.merge_splits()
    assert index.count(where="id IS NOT NULL") == 8
    assert ids(index.scan(where="id > 3")) == [4, 4]
    assert [check.message for check in index.verify() if not check.passed] == []


def test_a_partition_column_that_files_have_too(tmp_path):
    """The value of the folder counts, as in Spark, whatever its type in the file is."""
    for day, stored in (("1", pa.array([7, 7, 7, 7])), ("2", pa.array(["x", "y", "1", None]))):
        put(tmp_path, f"day={day}/a.parquet", ROWS.append_column("day", stored))
    index = over_folder(tmp_path, columns=["body", "day"])
    for _ in range(2):
        assert index.scan(columns=["day"], where="day = '2' AND id < 3").num_rows == 2
        assert sorted(index.scan()["day"].to_pylist()) == ["1"] * 4 + ["2"] * 4
        assert index.scan(where="body indexquery 'fox' AND day = '1'").num_rows == 2
        assert index.facets(by=["day"])["day"]["count"].to_pylist() == [4, 4]
        index.merge_splits()
    put(tmp_path, "day=3/new.parquet", ROWS.append_column("day", pa.array([8, 8, 8, 8])))
    assert set(index.search("fox", limit=None)["day"].to_pylist()) == {"1", "2", "3"}


def test_names_that_partition_folders_cannot_have(tmp_path):
    put(tmp_path / "a", "_indexall=1/a.parquet", ROWS)
    with pytest.raises(SchemaError, match="'_indexall' is a hidden column"):
        over_folder(tmp_path / "a")
    put(tmp_path / "b", "Body=1/a.parquet", ROWS)
    with pytest.raises(UnsupportedSourceError, match="'Body=…' and its column 'body' differ"):
        over_folder(tmp_path / "b")


def test_half_floats(tmp_path):
    halves = pa.array([1.5, None, math.inf, -2.0], pa.float16())
    put(tmp_path, "a.parquet", ROWS.append_column("x", halves))
    index = over_folder(tmp_path, columns=["body", "x"])
    assert index.schema.field("x").type == pa.float32()
    assert ids(index.scan(where="x > 1")) == [1, 3]


def test_a_damaged_file_is_named_and_the_others_are_indexed(tmp_path):
    put(tmp_path, "a.parquet", ROWS)
    put(tmp_path, "b.parquet", ROWS)
    broken = tmp_path / "source/b.parquet"
    broken.write_bytes(broken.read_bytes()[:-60])
    index = over_folder(tmp_path, columns=["body"], refresh=False)
    done = index.refresh()
    assert done.files_indexed == 1
    assert len(done.failed) == 1
    assert "b.parquet" in done.failed[0]
    with pytest.raises(SourceRowsError, match=r"b\.parquet"):
        index.search("fox")
    broken.unlink()
    assert ids(index.search("fox")) == [1, 4]


def test_a_file_that_is_lost(tmp_path):
    write_deltalake(tmp_path / "source", ROWS)
    index = over_delta(tmp_path)
    next((tmp_path / "source").glob("*.parquet")).unlink()
    with pytest.raises(SourceRowsError, match="missing"):
        index.scan(where="body indexquery 'fox'")


def test_a_file_that_is_replaced_while_it_is_indexed(tmp_path, monkeypatch):
    put(tmp_path, "a.parquet", ROWS)
    index = over_folder(tmp_path, refresh=False)
    indexed = refresh_module._indexed

    def slowly(task):
        written = indexed(task)
        put(tmp_path, "a.parquet", ROWS.slice(3))
        return written

    monkeypatch.setattr(refresh_module, "_indexed", slowly)
    assert "replaced" in index.refresh().failed[0]
    monkeypatch.undo()
    assert ids(index.search("fox")) == [4]
    index.refresh()
    assert ids(index.search("fox")) == [4]


def test_a_ranking_by_columns_of_a_lost_file(tmp_path):
    put(tmp_path, "a.parquet", ROWS)
    put(tmp_path, "b.parquet", ROWS)
    index = over_folder(tmp_path, columns=["body"])
    table = index.table()
    (tmp_path / "source/b.parquet").unlink()
    with pytest.raises(SourceRowsError, match=r"b\.parquet' cannot be read: it is missing"):
        table.search("fox", rank_by="_score * id")
    assert ids(index.search("fox", rank_by="_score * id")) == [1, 4]


def test_different_partition_folders(tmp_path):
    put(tmp_path, "day=1/a.parquet", ROWS)
    put(tmp_path, "b.parquet", ROWS)
    with pytest.raises(UnsupportedSourceError, match="different partition folders"):
        over_folder(tmp_path)


# --- the index itself ----------------------------------------------------------------------------


def test_many_files_are_searched_together(tmp_path):
    for number in range(12):
        put(tmp_path, f"p={number % 3}/{number}.parquet", ROWS)
    index = over_folder(tmp_path, columns=["body", "p"])
    put(tmp_path, "p=1/late.parquet", ROWS)
    assert index.count(where="body indexquery 'fox'") == 26
    assert index.count(where="body indexquery 'fox' AND p = '1'") == 10
    assert index.count(where="p indexquery '1'") == 20
    assert index.search("fox", limit=None).num_rows == 26
    assert index.search("fox", where="p = '2' AND id > 1", limit=None)["id"].to_pylist() == [4] * 4
    assert index.sql("SELECT p, count(*) AS c FROM this WHERE body indexquery 'dog' "
                     "GROUP BY p ORDER BY p").to_pylist() == [
        {"p": "0", "c": 8}, {"p": "1", "c": 10}, {"p": "2", "c": 8},
    ]  # fmt: skip
    text = index.explain(where="body indexquery 'fox'")
    assert "12 of 13 files" in text
    assert "1 with" in text
    snippet = index.search("fox", snippets=["body"], limit=1)["_snippet_body"][0].as_py()
    assert "<b>fox</b>" in snippet


def test_an_interrupted_refresh_keeps_what_it_committed(tmp_path, monkeypatch):
    for number in range(5):
        put(tmp_path, f"{number}.parquet", ROWS)
    index = over_folder(tmp_path, columns=["body"], refresh=False)
    monkeypatch.setattr(refresh_module, "_FILES_OF_PORTION", 2)
    real, done = refresh_module.index_file, []

    def dying(task):
        done.append(task.file.path)
        if len(done) > 3:
            raise KeyboardInterrupt
        return real(task)

    monkeypatch.setattr(refresh_module, "index_file", dying)
    with pytest.raises(KeyboardInterrupt):
        index.refresh()
    monkeypatch.undo()
    assert index.describe()["files_indexed"] == 2
    assert index.count(where="body indexquery 'fox'") == 10
    assert index.refresh().files_indexed == 3


def test_two_refreshes_at_once(tmp_path, monkeypatch):
    put(tmp_path, "a.parquet", ROWS)
    index = over_folder(tmp_path, columns=["body"], refresh=False)
    real, other = refresh_module._commit, it.SearchIndex.open(index.uri)

    def after_another(*arguments):
        monkeypatch.setattr(refresh_module, "_commit", real)
        other.refresh()
        return real(*arguments)

    monkeypatch.setattr(refresh_module, "_commit", after_another)
    index.refresh()
    assert index.describe()["splits_not_needed"] == 1
    assert ids(index.search("fox")) == [1, 4]
    assert index.count(where="body indexquery 'fox'") == 2
    assert index.refresh().files_removed == 1
    assert ids(index.search("fox")) == [1, 4]


def test_columns_of_two_refreshes_at_once(tmp_path, monkeypatch):
    """One that began earlier and ends later does not take away what the other one saw."""
    put(tmp_path, "a.parquet", ROWS)
    index = over_folder(tmp_path, columns=["body"], refresh=False)
    real, other = refresh_module._commit, it.SearchIndex.open(index.uri)

    def after_another(*arguments):
        monkeypatch.setattr(refresh_module, "_commit", real)
        put(tmp_path, "b.parquet", ROWS.append_column("extra", pa.array([1, 2, 3, 4])))
        other.refresh()
        return real(*arguments)

    monkeypatch.setattr(refresh_module, "_commit", after_another)
    index.refresh()
    for again in (index, it.SearchIndex.open(index.uri)):
        assert again.schema.names == ["id", "body", "extra"]
        assert ids(again.scan(where="extra > 2")) == [3, 4]
    index.refresh()
    assert index.count(where="extra IS NULL") == 4


def test_a_refresh_of_an_index_that_was_made_again(tmp_path, monkeypatch):
    put(tmp_path, "a.parquet", ROWS)
    put(tmp_path / "other", "b.parquet", ROWS.rename_columns(["id", "text"]))
    index = over_folder(tmp_path, columns=["body"], refresh=False)
    real = refresh_module._commit

    def after_another(*arguments):
        monkeypatch.setattr(refresh_module, "_commit", real)
        it.SearchIndex.open(index.uri).drop()
        it.SearchIndex.create(
            index.uri, source=tmp_path / "other/source", format="parquet", columns=["text"]
        )
        return real(*arguments)

    monkeypatch.setattr(refresh_module, "_commit", after_another)
    with pytest.raises(MetadataChangedError, match="identity"):
        index.refresh()
    again = it.SearchIndex.open(index.uri)
    assert (again.source, again.columns) == (str(tmp_path / "other/source"), ("text",))
    assert again.describe()["splits_not_needed"] == 0
    assert ids(again.search("fox")) == [1, 4]


def test_an_index_is_not_a_table(tmp_path):
    put(tmp_path, "a.parquet", ROWS)
    index = over_folder(tmp_path, columns=["body"])
    with pytest.raises(SearchIndexError, match=r"SearchIndex\.open"):
        it.Table.open(index.uri).scan()
    with pytest.raises(SearchIndexError):
        it.Table.open(index.uri).append(pa.table({"body": ["x"]}))
    it.Table.create(tmp_path / "table", data=ROWS)
    with pytest.raises(LakeError, match=r"Table\.open"):
        it.SearchIndex.open(tmp_path / "table")
    with pytest.raises(TableExistsError):
        over_folder(tmp_path)


QUESTIONS = [
    "scan", "scan_batches", "to_pandas", "to_polars", "search", "explain_score", "facets",
    "histogram", "analyze", "complete", "suggest", "correct_query", "more_like_this", "sql",
    "count", "explain", "verify", "prewarm",
]  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_takes_what_that_of_a_table_takes(name):
    verbs = getattr(it.SearchIndex, name), getattr(it.Table, name)
    ours, theirs = (dict(inspect.signature(verb).parameters) for verb in verbs)
    ours.pop("version", None)
    assert list(ours.values()) == list(theirs.values())


def test_bad_arguments(tmp_path):
    put(tmp_path, "a.parquet", ROWS)
    with pytest.raises(UnknownColumnError, match="boddy"):
        over_folder(tmp_path, columns=["boddy"])
    with pytest.raises(SchemaError, match=r"columns=\['body'\]"):
        over_folder(tmp_path, columns="body")
    with pytest.raises(SchemaError, match="None of the columns id"):
        over_folder(tmp_path, columns=["id"])
    with pytest.raises(ConfigError, match="delta, iceberg, parquet"):
        it.SearchIndex.create(tmp_path / "index", source=tmp_path / "source", format="orc")
    with pytest.raises(SourceMissingError, match="no Delta source"):
        over_delta(tmp_path)
    with pytest.raises(SourceMissingError, match="no Parquet source"):
        it.SearchIndex.create(tmp_path / "index", source=tmp_path / "none", format="parquet")
    index = over_folder(tmp_path, columns=["body"])
    with pytest.raises(SearchIndexError, match="no versions"):
        index.count(version=1)


def test_only_the_chosen_columns_are_searched(tmp_path):
    put(tmp_path, "a.parquet", ROWS.append_column("title", pa.array(["fox"] * 4)))
    index = over_folder(tmp_path, columns=["body"], mapping={"body": "text"})
    assert ids(index.search("fox")) == [1, 4]
    assert index.count(where="title = 'fox'") == 4
    with pytest.raises(it.IndexTablesError, match="title"):
        index.search("title:fox")


def test_on_s3(s3, tmp_path):
    root = f"s3://tables/{tmp_path.name}-lake"
    options = dict(s3.options)
    write_deltalake(
        f"{root}/source",
        ROWS,
        partition_by=[],
        storage_options={k: str(v) for k, v in options.items()},
    )
    index = it.SearchIndex.create(
        f"{root}/index", source=f"{root}/source", format="delta", columns=["body"],
        storage_options=options,
    )  # fmt: skip
    assert ids(index.search("fox")) == [1, 4]
    assert ids(index.scan(where="body indexquery 'dog' AND id > 2")) == [4]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_few_rows_of_large_row_groups(tmp_path, compression, version):
    """Only the pages of the wanted rows are decoded; whatever a file is like, rows are the same."""
    random = np.random.default_rng(5)
    numbers = np.arange(6_000)
    rows = pa.table(
        {
            "id": numbers,
            "body": [None if n % 7 == 0 else f"text {n} {random.random()}" for n in numbers],
            "few": [None if n % 5 == 0 else f"value {n % 3}" for n in numbers],
            "x": [None if n % 11 == 0 else n / 3 for n in numbers],
            "flag": [n % 2 == 0 for n in numbers],
            "list": [[int(n)] * (n % 3) for n in numbers],
            "needed": pa.array([f"needed {n}" for n in numbers]),
        }
    )
    rows = rows.cast(rows.schema.set(6, pa.field("needed", pa.string(), nullable=False)))
    # Values change from repeated ones to others: the dictionary is given up in the middle.
    put(
        tmp_path, "a.parquet", rows, compression=compression, data_page_version=version,
        data_page_size=2_000, write_batch_size=50, row_group_size=4_000,
        dictionary_pagesize_limit=9_000, write_page_checksum=compression != "gzip",
    )  # fmt: skip
    file = open_store(tmp_path / "source")
    footer = read_parquet_footer(file, "a.parquet", (tmp_path / "source/a.parquet").stat().st_size)
    reader = SourceRows(file, "a.parquet", footer, footer.schema, SourceColumns())
    for _ in range(8):
        wanted = random.choice(6_000, random.integers(1, 9), replace=False)
        assert (
            reader.read_rows(wanted, rows.schema.names).to_pylist() == rows.take(wanted).to_pylist()
        )
    thin = [record for record in footer._records.values() if record is not None]
    # Pages of the newer kind are read whole.
    assert bool(thin) == (version == "1.0")


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("has_index", [True, False])
def test_few_rows_of_a_remote_file(compression, version, has_index):
    """The pages of the wanted rows are fetched, if the file says where they are."""
    random = np.random.default_rng(6)
    numbers = np.arange(9_000)
    rows = pa.table(
        {
            "id": numbers,
            "body": [None if n % 7 == 0 else f"{n} {random.bytes(20).hex()}" for n in numbers],
            "few": [f"value {n % 3} {'x' * 40}" if n < 4_500 else f"{n} {'y' * 60}"
                    for n in numbers],
            "x": [None if n % 11 == 0 else n / 3 for n in numbers],
            "list": [[int(n)] * (n % 3) for n in numbers],
        }
    )  # fmt: skip
    store = open_store(f"memory://few-rows-{compression}-{version}-{has_index}")
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows, sink, compression=compression, data_page_version=version, data_page_size=2_000,
        write_batch_size=50, row_group_size=5_000, dictionary_pagesize_limit=9_000,
        write_page_index=has_index,
    )  # fmt: skip
    data = sink.getvalue().to_pybytes()
    store.put("a.parquet", data)
    footer = read_parquet_footer(store, "a.parquet", len(data))
    reader = SourceRows(store, "a.parquet", footer, footer.schema, SourceColumns())
    for _ in range(8):
        wanted = random.choice(9_000, random.integers(1, 9), replace=False)
        assert (
            reader.read_rows(wanted, rows.schema.names).to_pylist() == rows.take(wanted).to_pylist()
        )
    assert any(footer._records.values()) == has_index
    # Numbers of rows that are not those of the pages are noticed, and the column is read whole.
    for key, record in footer._records.items():
        if record is not None:
            moved = record.values.copy()
            moved[-2:] += (1, -1)
            footer._records[key] = dataclasses.replace(record, values=moved)
    wanted = np.array([4_998, 8_999])
    assert reader.read_rows(wanted, ["body"]).to_pylist() == [
        {"body": rows["body"][n].as_py()} for n in wanted
    ]


def test_a_row_of_a_bucket_costs_its_pages(s3, tmp_path):
    """Requests and bytes of a needle, in a file as Spark and delta-rs write it."""
    random = np.random.default_rng(7)
    count = 20_000
    rows = pa.table(
        {
            "id": np.arange(count),
            "body": [f"w{n} {random.bytes(100).hex()}" for n in range(count)],
            "more": [random.bytes(60).hex() for _ in range(count)],
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows, sink, compression="none", use_dictionary=False, write_page_index=True,
        data_page_size=20_000, write_batch_size=50,
    )  # fmt: skip
    data = sink.getvalue().to_pybytes()
    root = f"s3://tables/{tmp_path.name}-pages"
    with counted(dict(s3.options)) as (options, traffic):
        open_store(f"{root}/source", options).put("a.parquet", data)
        index = it.SearchIndex.create(
            f"{root}/index", source=f"{root}/source", format="parquet", columns=["body"],
            storage_options=options,
        )  # fmt: skip
        assert index.search("w5")["id"].to_pylist() == [5]  # what is opened once
        for needle in (77, 19_999):
            traffic.clear()
            found = index.scan(where=f"body indexquery 'w{needle}'")
            assert found.to_pylist() == rows.slice(needle, 1).to_pylist()
            source = [one for one in traffic.requests if "a.parquet" in one]
            read = sum(int(one.rsplit(" ", 1)[1]) for one in source)
            assert read < len(data) / 20
            assert len(source) <= 3  # a page of each column; no footer, no index of pages


def test_following_a_source(tmp_path):
    write_deltalake(tmp_path / "source", ROWS)
    index = over_delta(tmp_path)
    followed = index.follow(every=0)
    for total in (8, 12):
        write_deltalake(tmp_path / "source", ROWS, mode="append")
        assert next(followed).files_indexed == 1
        assert index.count() == total
        assert index.describe()["files_not_indexed"] == 0


def test_an_index_is_dropped_without_its_source(tmp_path):
    put(tmp_path, "a.parquet", ROWS)
    with pytest.raises(SearchIndexError, match="same folder"):
        it.SearchIndex.create(tmp_path, source=tmp_path / "source", format="parquet")
    index = over_folder(tmp_path)
    index.drop()
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["a.parquet"]
    with pytest.raises(NotATableError):
        it.SearchIndex.open(index.uri)


def test_sql_takes_a_search_index_and_versions_of_its_source(tmp_path):
    write_deltalake(tmp_path / "source", ROWS)
    index = over_delta(tmp_path)
    more = pa.table({"id": [5], "body": ["a fox"]}, schema=ROWS.schema)
    write_deltalake(tmp_path / "source", more, mode="append")
    query = "SELECT id FROM docs {} WHERE body indexquery 'fox'"
    assert ids(it.sql(query.format(""), docs=index)) == [1, 4, 5]
    assert ids(it.sql(query.format("VERSION AS OF 0"), docs=index)) == [1, 4]
    assert ids(index.sql("SELECT id FROM this VERSION AS OF 0")) == [1, 2, 3, 4]
    both = "SELECT a.id FROM docs a JOIN docs VERSION AS OF 0 b ON a.id = b.id + 1"
    assert ids(it.sql(both, docs=index)) == [2, 3, 4, 5]
    with pytest.raises(SourceVersionError):
        it.sql(query.format("VERSION AS OF 7"), docs=index)
    with pytest.raises(EmbeddedQueryError, match="Pass the index itself"):
        it.sql(query.format("VERSION AS OF 0"), docs=index.table())
