"""Staged rows over those of the index, and the Delta tables underneath, without Spark."""

from __future__ import annotations

import io
import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from indextables.ariadne.build.fold import Target, row_batch
from indextables.ariadne.declarations import STAGING, Bloom, Regular
from indextables.ariadne.metadata import FIXED_SCHEMA, STAGED_SCHEMA, Metadata
from indextables.ariadne.store import index_rows, large_values
from indextables.ariadne.store.index_rows import consolidate, overlay, staged_batches, unfinished
from indextables.ariadne.store.place import Context, DataFile, DeltaPlace, IndexPlace, data_files
from indextables.config import Config
from indextables.errors import StorageError, StorageMigrationError

A, B = Target(Regular("a"), pa.int64()), Target(Bloom("b"), pa.string())


def staged(*rows, targets=(A,), minute=0, extends=False):
    schema = pa.schema([*FIXED_SCHEMA, *(f for t in targets for f in t.schema), *STAGED_SCHEMA])
    names = [t.schema.names[0] for t in targets]
    common = {
        "built": names,
        "settings": "",
        STAGING[0]: datetime(2024, 1, 1, 0, minute, tzinfo=UTC),
        STAGING[1]: str(minute),
        STAGING[2]: "extends" if extends else None,
    }
    return pa.Table.from_batches([row_batch([{**common, **row} for row in rows], schema)])


def values(*numbers):
    return pa.array(numbers, pa.int64())


@pytest.fixture
def place(tmp_path):
    return IndexPlace(Context(None, str(tmp_path), Config(), {}), "t")


def stage(place, name, rows):
    place.staging(name).append(rows)


def stage_large(place, name, identity, minute=0):
    """A file whose values, the minute and the next, are in the large table."""
    rows = large_values.value_rows(name, values(minute, minute + 1))
    sink = io.BytesIO()
    stats = large_values.write_values(rows, sink)
    place.store.put(f"large_indexes/a/{identity}-0.parquet", sink.getvalue())
    file = DataFile(f"{identity}-0.parquet", sink.tell(), stats)
    place.large("a").commit([file], large_values.value_schema(pa.int64()))
    row = {"filename": name, "etag": "1", "large_a": identity}
    stage(place, identity, staged(row, minute=minute))


def stored_values(place):
    rows = place.large("a").read().to_pylist()
    return sorted((row["filename"], row["value"]) for row in rows)


def found(place):
    return {row["filename"]: row for row in place.main.read().to_pylist()}


def test_a_row_replaces_and_another_one_extends():
    first, _ = overlay(
        None,
        staged({"filename": "x", "etag": "1", "a": values(1)}, {"filename": "y", "a": values(2)}),
    )
    more = staged(
        {"filename": "x", "etag": "1", "bloom_b": b"f", "nulls_b": 3}, targets=(B,), extends=True
    )
    second, dropped = overlay(first, more)
    rows = {row["filename"]: row for row in second.to_pylist()}
    assert dropped == 0
    assert (rows["x"]["a"], rows["x"]["bloom_b"], rows["x"]["nulls_b"]) == ([1], b"f", 3)
    assert rows["x"]["built"] == ["a", "bloom_b"]
    assert (rows["y"]["a"], rows["y"]["bloom_b"], rows["y"]["built"]) == ([2], None, ["a"])
    third, _ = overlay(second, staged({"filename": "x", "etag": "2", "a": values(9)}))
    rows = {row["filename"]: row for row in third.to_pylist()}
    assert (rows["x"]["a"], rows["x"]["bloom_b"], rows["x"]["built"]) == ([9], None, ["a"])


@pytest.mark.parametrize(
    "change",
    [{"etag": "2"}, {"file_size": 5}, {"modification_time": 5}, {"failure": "no"},
     {"settings": "zone"}, {"filename": "other"}],
    ids=str,
)  # fmt: skip
def test_a_row_of_another_file_is_not_extended(change):
    row = {"filename": "x", "etag": "1", "a": values(1), **change}
    current, _ = overlay(None, staged(row))
    more = staged({"filename": "x", "etag": "1", "bloom_b": b"f"}, targets=(B,), extends=True)
    after, dropped = overlay(current, more)
    assert dropped == 1
    assert after.column("built").to_pylist() == [["a"]]


def test_types_that_do_not_agree_are_named():
    current, _ = overlay(None, staged({"filename": "x", "a": values(1)}))
    other = Target(Regular("a"), pa.string())
    with pytest.raises(StorageMigrationError, match="somewhere"):
        overlay(current, staged({"filename": "x"}, targets=(other,)), uri="somewhere")


def test_the_newest_batch_wins_and_nothing_is_left_over(place):
    stage(place, "zz", staged({"filename": "x", "a": values(1)}, minute=1))
    stage(place, "aa", staged({"filename": "x", "a": values(2)}, minute=2))
    stage(place, "mm", staged({"filename": "y", "a": values(3)}, minute=0))
    place.store.put("staging/never-committed/rows.parquet", b"x")
    done = consolidate(place, lambda names: {*names} - {"unregistered"})
    assert (done.batches, done.dropped) == (3, 0)
    rows = found(place)
    assert {name: row["a"] for name, row in rows.items()} == {"x": [2], "y": [3]}
    assert not set(STAGING) & set(rows["x"])
    assert staged_batches(place) == []
    assert unfinished(place, before_ms=0) == []
    assert unfinished(place, before_ms=2**60) == ["staging/never-committed/rows.parquet"]


def test_rows_of_files_that_left_meanwhile_are_not_taken(place):
    stage(place, "1", staged({"filename": "x", "a": values(1)}, {"filename": "y", "a": values(2)}))
    consolidate(place, lambda names: {*names} & {"y"})
    assert set(found(place)) == {"y"}


def test_writers_at_once_all_succeed(tmp_path):
    place = DeltaPlace(f"{tmp_path}/table with space")
    start, errors = threading.Barrier(4), []

    def write(writer):
        try:
            start.wait()
            for number in range(3):
                rows = pa.table({"filename": [f"{writer}", "shared"], "n": [number, number]})
                place.upsert("filename", lambda _table, rows=rows: rows)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    rows = place.read().to_pylist()
    assert sorted(row["filename"] for row in rows) == ["0", "1", "2", "3", "shared"]
    assert {row["n"] for row in rows} == {2}


def test_a_failure_is_no_lost_race_because_of_a_word_in_its_path(tmp_path):
    place = DeltaPlace(f"{tmp_path}/conflict already exists")
    place.append(pa.table({"filename": ["a"]}))
    for file in Path(place.uri).glob("*.parquet"):
        file.unlink()
    for use in (place.read, lambda: place.delete("filename", ["a"])):
        with pytest.raises(StorageError, match="Cannot use the Delta table") as caught:
            use()
        assert "\n" not in str(caught.value)
        assert "\x1b" not in str(caught.value)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="Cannot use the Delta table"):
        DeltaPlace(f"{tmp_path}/file").append(pa.table({"filename": ["a"]}))


def test_what_is_no_table_is_none(tmp_path):
    (tmp_path / "junk").write_text("x")
    place = DeltaPlace(str(tmp_path))
    assert place.open() is None
    assert place.read() is None
    place.delete("filename", ["it's"])
    place.compact()
    assert place.vacuum(0) == []


def test_a_batch_that_others_merged_meanwhile_does_not_come_back(place, monkeypatch):
    """Its large values went when a newer row of the file took its place."""
    upsert = DeltaPlace.upsert

    def overtaken(self, *arguments):
        monkeypatch.setattr(DeltaPlace, "upsert", upsert)
        consolidate(place, set)
        stage_large(place, "x", "two", 2)
        consolidate(place, set)
        return upsert(self, *arguments)

    stage_large(place, "x", "one", 1)
    monkeypatch.setattr(DeltaPlace, "upsert", overtaken)
    consolidate(place, set)
    live = {meta["path"] for meta in data_files(place.large("a").open())}
    assert f"{found(place)['x']['large_a']}-0.parquet" in live


def test_a_column_that_nobody_here_has_heard_of_is_taken_over(place):
    """Another process declared it, read it, and staged it a moment ago."""
    stage(place, "1", staged({"filename": "x", "etag": "1", "a": values(1)}, minute=1))
    new = Target(Regular("new"), pa.int64())
    row = {"filename": "x", "etag": "1", "new": values(7)}
    stage(place, "2", staged(row, targets=(new,), minute=2, extends=True))
    consolidate(place, set)
    assert found(place)["x"]["new"] == [7]
    assert found(place)["x"]["a"] == [1]


def test_files_that_leave_take_nothing_along(place, monkeypatch):
    """Neither out of compacted data files, nor of those that another update wrote meanwhile."""
    place.metadata.create(Metadata("parquet", "{}"))
    for minute, name in enumerate("xyz"):
        stage_large(place, name, f"first-{name}", minute)
    consolidate(place, set)
    index_rows.compact(place)
    stage_large(place, "x", "again", 5)
    index_rows.remove_rows(place, ["x"])
    assert stored_values(place) == [("x", 5), ("x", 6), ("y", 1), ("y", 2), ("z", 2), ("z", 3)]
    consolidate(place, set)
    monkeypatch.setattr(large_values, "_ORPHAN_MS", -1)  # a day later
    index_rows.compact(place)
    assert stored_values(place) == [("x", 5), ("x", 6), ("y", 1), ("y", 2), ("z", 2), ("z", 3)]
