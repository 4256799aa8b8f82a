"""Keeping a search index in order: merging its splits, checking and opening them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_logs import DeltaLog, field
from deltalake import DeltaTable, write_deltalake
from faulty_store import Crash, FaultyStore, SimulatedCrash

import indextables as it
from indextables.config import Config
from indextables.errors import SearchIndexError, SourceRowsError
from indextables.jobs import merge_groups as merge_groups_module
from indextables.lake import refresh as refresh_module
from indextables.lake.source import ParquetFolder
from indextables.log.actions import Add
from indextables.log.files import adds_from_files
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store

QUERIES = [
    "body indexquery 'fox'",
    "NOT body indexquery 'dog'",
    "body indexquery '\"red fox\"' AND n > 2",
    "body IS NULL OR n = 7",
    "p = 'a' AND body indexquery 'fox OR word3'",
    "tag = 'b'",
    "n < 5",
    "n indexquery '[2 TO 5]' OR tag indexquery 'c'",
    "NOT n indexquery '>4'",
    "p indexquery 'b' AND n indexquery '3'",
    "body LIKE 'red%' OR tag IN ('a', 'c')",
]


def rows_of(number: int, *, partition: str | None = None, rows: int = 4) -> pa.Table:
    words = ["red fox", "lazy dog", None, "fox and dog"]
    table = pa.table(
        {
            "n": range(number, number + rows),
            "body": [None if (w := words[k % 4]) is None else f"{w} word{number}"
                     for k in range(rows)],
            "tag": ["abc"[number % 3]] * rows,
        }
    )  # fmt: skip
    if partition is not None:
        table = table.append_column("p", pa.array([partition] * rows))
    return table


def put(folder, name: str, rows: pa.Table, **options) -> None:
    file = folder / "source" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file, **options)


def over(folder, **arguments) -> it.SearchIndex:
    arguments = {"format": "parquet", "columns": ["n", "body", "tag", "p"]} | arguments
    return it.SearchIndex.create(folder / "index", source=folder / "source", **arguments)


def entries(index: it.SearchIndex) -> list[Add]:
    return adds_from_files(index._log.snapshot().entries)


def answers(index: it.SearchIndex) -> list[object]:
    found: list[object] = []
    for where in QUERIES:
        found.append(sorted(map(repr, index.scan(where=where).to_pylist())))
        found.append(index.count(where=where))
    ranked = index.search("fox OR word5", limit=None, snippets=["body"])
    found.append(sorted(map(repr, ranked.to_pylist())))
    found.append(index.search("fox", where="n > 3", limit=3)["_score"].to_pylist())
    found.append([index.count(), index.scan(columns=["n"]).num_rows])
    return found


def small_files(folder, count: int = 6) -> None:
    for number in range(count):
        put(folder, f"p={'ab'[number % 2]}/{number}.parquet", rows_of(number), row_group_size=3)


def test_a_merge_changes_no_answer(tmp_path):
    small_files(tmp_path)
    index = over(tmp_path)
    before, described = answers(index), index.describe()
    merged = index.merge_splits()
    assert (merged.status, merged.files_removed, merged.files_added) == ("success", 6, 2)
    assert answers(index) == before
    # Another process reads the same from the log, and nothing has to be indexed again.
    again = it.SearchIndex.open(index.uri)
    assert answers(again) == before
    after = again.describe()
    assert {k: after[k] for k in ("files_indexed", "files_not_indexed", "source_files")} == {
        k: described[k] for k in ("files_indexed", "files_not_indexed", "source_files")
    }
    done = again.refresh()
    assert (done.files_indexed, done.files_removed) == (0, 0)
    assert again.merge_splits().status == "no_action"
    # Merged splits are merged again with what came later.
    put(tmp_path, "p=a/late.parquet", rows_of(7))
    flat = answers(again)
    again.refresh()
    assert answers(again) == flat
    assert again.merge_splits().files_removed == 2
    assert answers(again) == flat
    assert "7 of 7 files" in again.explain()


def test_rows_are_not_read_for_a_merge(tmp_path, monkeypatch):
    small_files(tmp_path)
    index = over(tmp_path)
    (tmp_path / "source").rename(tmp_path / "away")
    coverage = it.SearchIndex.open(index.uri, source=tmp_path / "away")._coverage
    # The files are listed at their new place and not there when the merge runs.
    monkeypatch.setattr(index, "_coverage", coverage)
    held = merge_groups_module.run_merges

    def without_source(tasks, runner, ended=None):
        (tmp_path / "away").rename(tmp_path / "hidden")
        try:
            return held(tasks, runner)
        finally:
            (tmp_path / "hidden").rename(tmp_path / "away")

    monkeypatch.setattr("indextables.jobs.merge_splits.run_merges", without_source)
    assert index.merge_splits().files_added == 2


def test_statistics_and_lists_are_those_of_all_files(tmp_path):
    small_files(tmp_path)
    index = over(tmp_path)
    index.merge_splits()
    for add in entries(index):
        assert add.tags is not None
        assert len(add.companion_source_files or ()) == 3
    text = index.explain(where="n > 1000")
    assert re.search(r"\n  read +0 splits", text)
    assert index.count(where="n > 1000") == 0
    assert index.count(where="tag IS NULL") == 0


def test_a_file_that_left_is_dropped_by_the_merge(tmp_path):
    small_files(tmp_path)
    index = over(tmp_path)
    (tmp_path / "source/p=a/0.parquet").unlink()
    merged = index.merge_splits()
    assert merged.status == "success"
    paths = [p for a in entries(index) for p in a.companion_source_files or ()]
    assert set(paths) == {f"p={'ab'[n % 2]}/{n}.parquet" for n in range(1, 6)}
    before = answers(index)
    # One of several files of a split: its rows are dead at once, and dropped by the next merge.
    (tmp_path / "source/p=b/3.parquet").unlink()
    assert index.count() == 16
    assert index.count(where="body indexquery 'word3'") == 0
    assert index.search("word3").num_rows == 0
    assert answers(index) != before
    assert index.describe()["files_indexed"] == 4
    index.merge_splits()
    paths = [p for a in entries(index) for p in a.companion_source_files or ()]
    assert "p=b/3.parquet" not in paths
    assert index.describe()["files_not_indexed"] == 0
    fresh = it.SearchIndex.create(
        tmp_path / "fresh", source=tmp_path / "source", format="parquet",
        columns=["n", "body", "tag", "p"],
    )  # fmt: skip
    assert answers(index) == answers(fresh)


def test_few_rows_that_left_stay_dead(tmp_path):
    """Below a share of rows the other files are not indexed again."""
    for number in range(10):
        put(tmp_path, f"{number}.parquet", rows_of(number, partition="a"))
    index = over(tmp_path)
    index.merge_splits()
    (tmp_path / "source/4.parquet").unlink()
    done = index.refresh()
    assert (done.files_indexed, done.files_removed) == (0, 0)
    assert index.count() == 36
    assert index.count(where="body indexquery 'word4'") == 0
    (tmp_path / "source/5.parquet").unlink()
    (tmp_path / "source/6.parquet").unlink()
    done = index.refresh()
    assert (done.files_indexed, done.files_removed) == (7, 1)
    assert index.count(where="body indexquery 'fox'") == 14


def test_deletion_vectors_of_merged_files(tmp_path):
    log = DeltaLog(tmp_path / "source", features=("deletionVectors",))
    plain = [field("n", "long"), field("body", "string"), field("tag", "string")]
    adds = [log.add(f"{k}.parquet", rows_of(k)) for k in range(3)]
    log.commit(log.protocol, log.metadata(plain), *adds)
    index = over(tmp_path, format="delta", columns=["body", "tag"])
    index.merge_splits()
    log.commit(log.remove(adds[1]), log.add("1.parquet", dead=(0, 3)))
    assert index.describe()["files_not_indexed"] == 0
    assert sorted(index.scan(where="body indexquery 'fox'")["n"].to_pylist()) == [0, 2, 3, 5]
    assert index.count() == 10
    assert index.count(where="body indexquery 'word1'") == 1
    assert index.count(version=0, where="body indexquery 'word1'") == 3


def test_columns_that_only_some_files_have(tmp_path):
    put(tmp_path, "0.parquet", rows_of(0, partition="a"))
    put(tmp_path, "1.parquet", rows_of(1, partition="a").append_column("x", pa.array([1.5] * 4)))
    index = over(tmp_path)
    order = [("n", "ascending"), ("tag", "ascending")]
    before = index.scan().sort_by(order).to_pylist()
    assert index.merge_splits().files_added == 1
    assert index.scan().sort_by(order).to_pylist() == before
    assert index.count(where="x IS NULL") == 4
    assert index.count(where="x = 1.5 AND body indexquery 'fox'") == 2


def test_a_file_of_a_merged_split_is_lost(tmp_path):
    write_deltalake(tmp_path / "source", rows_of(0))
    write_deltalake(tmp_path / "source", rows_of(1), mode="append")
    index = over(tmp_path, format="delta", columns=["body"])
    index.merge_splits()
    lost = next(
        f for f in (tmp_path / "source").glob("*.parquet") if pq.read_table(f)["n"][0].as_py() == 1
    )
    lost.unlink()
    # What is in the other files is answered.
    assert index.scan(where="body indexquery 'word0 AND lazy'")["n"].to_pylist() == [1]
    with pytest.raises(SourceRowsError, match=lost.name):
        index.scan(where="body indexquery 'word1'")


def test_empty_files_are_merged_too(tmp_path):
    small_files(tmp_path)
    for name in ("p=a/00.parquet", "p=a/empty.parquet", "p=b/3-empty.parquet"):
        put(tmp_path, name, rows_of(0).slice(0, 0))
    index = over(tmp_path)
    before = answers(index)
    assert index.merge_splits().files_removed == 9
    assert answers(index) == before
    (tmp_path / "source/p=a/empty.parquet").unlink()
    assert answers(index) == before
    assert all(check.passed for check in index.verify())


@pytest.mark.parametrize("merged", [False, True])
def test_a_file_whose_pages_are_damaged(tmp_path, merged):
    """Who needs its rows is told which file it is; the others are answered."""
    for number in range(3):
        put(tmp_path, f"{number}.parquet", rows_of(number, rows=2_000, partition="a"))
    index = over(tmp_path, columns=["n", "body"])
    if merged:
        index.merge_splits()
    damaged = tmp_path / "source/1.parquet"
    stat, data = damaged.stat(), bytearray(damaged.read_bytes())
    data[200:-1_500] = bytes(len(data) - 1_700)
    damaged.write_bytes(data)
    os.utime(damaged, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # nobody noticed
    assert index.describe()["files_not_indexed"] == 0
    assert index.count(where="body indexquery 'word1'") == 1_500
    assert index.scan(where="body indexquery 'word2 AND lazy'").num_rows == 500
    assert index.search("word0", limit=3).num_rows == 3
    with pytest.raises(SourceRowsError, match=r"1\.parquet"):
        index.scan(where="body indexquery 'word1'")
    checks = {check.name: check for check in index.verify()}
    assert checks["checksums"].passed
    assert "1.parquet" in checks["rows"].message + checks["index"].message


def test_a_source_that_is_rewritten_while_it_is_indexed(tmp_path, monkeypatch):
    """Files that go in the middle of a refresh are named; the next one indexes the new files."""
    for number in range(3):
        write_deltalake(tmp_path / "source", rows_of(number), mode="append")
    index = over(tmp_path, format="delta", columns=["body"], refresh=False)
    real = refresh_module._tasks

    def before_a_rewrite(*arguments):
        tasks = real(*arguments)
        table = DeltaTable(tmp_path / "source")
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        return tasks

    monkeypatch.setattr(refresh_module, "_tasks", before_a_rewrite)
    done = index.refresh()
    monkeypatch.undo()
    assert len(done.failed) == 3 and "missing" in done.failed[0]
    assert index.count(where="body indexquery 'fox'") == 6
    done = index.refresh()
    assert (done.files_indexed, done.failed) == (1, ())
    assert index.count(where="body indexquery 'fox'") == 6
    assert index.search("word2", limit=None).num_rows == 3


def test_an_index_that_was_made_again_under_an_open_handle(tmp_path):
    write_deltalake(tmp_path / "source", rows_of(0))
    index = over(tmp_path, format="delta", columns=["body"])
    other = it.SearchIndex.open(index.uri)
    assert other.count(where="body indexquery 'fox'") == 2
    index.drop()
    # The source is dropped and made again too, with as many rows in files of the same names.
    shutil.rmtree(tmp_path / "source")
    write_deltalake(tmp_path / "source", rows_of(4))
    over(tmp_path, format="delta", columns=["tag"])
    assert other.columns == ("tag",)
    assert other.scan(where="tag indexquery 'b'")["n"].to_pylist() == [4, 5, 6, 7]


def test_a_merge_that_is_killed_changes_nothing(tmp_path, monkeypatch):
    small_files(tmp_path)
    index = over(tmp_path)
    before, version = answers(index), index.describe()["index_version"]
    real, seen = refresh_module.merge_indexes, []

    def dying(*arguments, **keywords):
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **keywords)

    monkeypatch.setattr(refresh_module, "merge_indexes", dying)
    with pytest.raises(KeyboardInterrupt):
        index.merge_splits()
    monkeypatch.undo()
    assert it.SearchIndex.open(index.uri).describe()["index_version"] == version
    assert answers(index) == before
    assert index.merge_splits().files_added == 2
    assert answers(index) == before


def test_a_refresh_and_a_merge_at_once(tmp_path, monkeypatch):
    small_files(tmp_path)
    index = over(tmp_path)
    other = it.SearchIndex.open(index.uri)
    real = refresh_module.merge_indexes

    def during(*arguments, **keywords):
        written = real(*arguments, **keywords)
        monkeypatch.setattr(refresh_module, "merge_indexes", real)
        (tmp_path / "source/p=a/0.parquet").unlink()
        put(tmp_path, "p=a/new.parquet", rows_of(8))
        other.refresh()
        return written

    monkeypatch.setattr(refresh_module, "merge_indexes", during)
    merged = index.merge_splits(where="p = 'a'")
    assert len(merged.conflicts) == 1  # the other writer removed one of the splits
    flat = answers(over_flat(tmp_path, "n", "body", "tag", "p"))
    assert answers(index) == flat
    index.merge_splits()
    assert answers(index) == flat


def over_flat(folder, *columns: str) -> it.SearchIndex:
    """An index that covers no file."""
    return it.SearchIndex.create(
        folder / "flat", source=folder / "source", format="parquet", columns=columns, refresh=False
    )


def test_where_and_limits(tmp_path):
    small_files(tmp_path)
    index = over(tmp_path)
    assert index.merge_splits(where="p = 'a'").files_removed == 3
    assert index.merge_splits(max_source_splits=2).files_removed == 2
    with pytest.raises(it.IndexTablesError, match="partition"):
        index.merge_splits(where="n > 2")


def test_a_split_covers_so_many_files_at_the_most(tmp_path, monkeypatch):
    small_files(tmp_path, 12)
    index = over(tmp_path)
    monkeypatch.setattr(refresh_module, "MOST_PARTS", 4)
    before = answers(index)
    index.merge_splits()
    assert sorted(len(add.companion_source_files or ()) for add in entries(index)) == [2, 2, 4, 4]
    assert index.merge_splits().status == "no_action"
    assert answers(index) == before
    # The size of a split counts the rows that it is of.
    monkeypatch.undo()
    with pytest.raises(it.IndexTablesError, match="1MB"):
        index.merge_splits(target_size=1000)


def test_crossreferences(tmp_path):
    """They rule out splits by the words of indexed columns, and say nothing of other columns."""
    for number in range(12):
        put(tmp_path, f"p={number % 6}/{number}.parquet", rows_of(number))
    conditions = [w for w in QUERIES if "tag indexquery" not in w and "p indexquery" not in w]

    def answers(index: it.SearchIndex) -> list[object]:
        found: list[object] = [
            sorted(map(repr, index.scan(where=where).to_pylist())) for where in conditions
        ]
        return [*found, *(index.count(where=where) for where in conditions)]

    asked = {"spark.indextables.xref.query.minSplitsForXRef": 1}
    index = over(tmp_path, columns=["body", "n"], config=asked)
    before = answers(index)
    assert index.index_crossreferences(dry_run=True)["action"].to_pylist() == ["created"]
    assert not index._log.snapshot().xrefs
    index.index_crossreferences()
    assert len(index._log.snapshot().xrefs) == 1
    put(tmp_path, "p=0/late.parquet", rows_of(3))

    def check(where: str, splits: int) -> None:
        flat = over_flat(tmp_path, "body", "n")
        assert sorted(index.scan(where=where)["n"].to_pylist()) == sorted(
            flat.scan(where=where)["n"].to_pylist()
        )
        flat.drop()
        assert f"-> {splits} splits" in index.explain(where=where)

    check("body indexquery 'word3'", 2)  # and a file without a split
    check("body indexquery 'word3 OR word4'", 3)
    check("body indexquery 'word3' AND tag = 'a'", 2)
    assert index.count(where="tag = 'a'") == 20  # not indexed, and not null either
    assert index.count(where="tag = 'a' AND n = 3 AND body indexquery 'fox'") == 3
    (tmp_path / "source/p=0/late.parquet").unlink()
    assert answers(index) == before
    (tmp_path / "source/p=3/3.parquet").unlink()
    index.refresh()
    index.merge_splits()
    assert index.count(where="body indexquery 'word3'") == 0
    index.index_crossreferences()
    fresh = over_flat(tmp_path, "body", "n")
    assert answers(index) == answers(fresh)
    assert index.drop_crossreferences() == 1
    assert answers(index) == answers(fresh)
    with pytest.raises(SearchIndexError, match="REFRESH"):
        it.Table.open(index.uri).index_crossreferences()


def test_refreshes_merge_by_themselves(tmp_path):
    index = None
    for number in range(6):
        put(tmp_path, f"{number}.parquet", rows_of(number, partition="a"))
        if index is None:
            index = over(
                tmp_path,
                properties={
                    "spark.indextables.mergeOnWrite.enabled": "true",
                    "spark.indextables.mergeOnWrite.minBatchesToTrigger": "1",
                },
            )
        else:
            index.refresh()
    assert index is not None
    assert index._log.snapshot().num_files < 4
    assert index.count(where="body indexquery 'fox'") == 12


# --- checking and opening ------------------------------------------------------------------------


def test_verify(tmp_path):
    small_files(tmp_path)
    index = over(tmp_path)
    index.merge_splits(where="p = 'a'")
    put(tmp_path, "p=b/late.parquet", rows_of(9))
    (tmp_path / "source/p=a/0.parquet").unlink()
    checks = {check.name: check for check in index.verify()}
    assert all(check.passed for check in checks.values()), checks
    assert checks["index"].checked == 4
    # A source file that changed under its name and kept its size is not the one indexed.
    split = next(add for add in entries(index) if len(add.companion_source_files) == 1)
    file = tmp_path / "index" / split.path
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    checks = {check.name: check for check in index.verify()}
    assert not checks["checksums"].passed
    assert split.path in checks["checksums"].message


def test_verify_after_files_left_whose_texts_are_still_there(tmp_path):
    """Rows of a file that left cannot be read any more, and the index still has their words."""
    for number in range(8):
        put(tmp_path, f"{number}.parquet", rows_of(0, partition="a"))
    index = over(tmp_path)
    index.merge_splits()
    (tmp_path / "source/3.parquet").unlink()
    assert not [check.message for check in index.verify() if not check.passed]
    # Written again under its name, as by a job that was killed and begins anew.
    put(tmp_path, "4.parquet", rows_of(0, partition="a"))
    index.merge_splits()
    index.refresh()
    assert index.describe()["files_not_indexed"] == 0
    assert not [check.message for check in index.verify() if not check.passed]
    assert index.count(where="body indexquery 'fox'") == 14


def test_a_turn_that_is_killed_around_every_write(tmp_path):
    """Files are written, also again under their names; the index is refreshed and merged."""
    source = tmp_path / "source"

    def turn(index: str, crash: Crash | None = None) -> FaultyStore:
        for number in (6, 11):
            put(tmp_path, f"{number}.parquet", rows_of(number, partition="a"))
        (source / "0.parquet").unlink(missing_ok=True)
        store = FaultyStore(open_store(tmp_path / index), crash=crash)
        log = TransactionLog(store, config=Config({"spark.indextables.read.parallelism": 1}))
        opened = it.SearchIndex(log, ParquetFolder(open_store(source)))
        with contextlib.suppress(SimulatedCrash):
            opened.refresh()
            opened.merge_splits()
        return store

    def check(index: str) -> None:
        opened = it.SearchIndex.open(tmp_path / index)
        found = sorted(opened.scan(where="body indexquery 'fox'")["n"].to_pylist())
        assert found == sorted(n for number in range(1, 12) for n in (number, number + 3))
        assert sorted(opened.search("fox", limit=None)["n"].to_pylist()) == found
        assert not [check.message for check in opened.verify() if not check.passed]

    for number in range(11):
        put(tmp_path, f"{number}.parquet", rows_of(number, partition="a"))
    over(tmp_path).merge_splits()  # of whose rows few enough will be of files that left
    shutil.copytree(tmp_path / "index", tmp_path / "whole")
    whole = turn("whole")
    check("whole")
    writes = [
        nth for nth, (operation, _) in enumerate(whole.operations)
        if operation in ("put", "put_if_absent", "put_if_match", "put_file", "delete")
    ]  # fmt: skip
    assert len(writes) > 3
    for nth in writes:  # a kill after a write is one before the next one
        index = f"killed-{nth}"
        shutil.copytree(tmp_path / "index", tmp_path / index)
        assert turn(index, Crash(nth)).crashed
        check(index)
        turn(index)
        check(index)


def test_verify_names_a_source_file_that_cannot_be_read(tmp_path):
    write_deltalake(tmp_path / "source", rows_of(0))
    index = over(tmp_path, format="delta", columns=["body"])
    next((tmp_path / "source").glob("*.parquet")).unlink()
    checks = {check.name: check for check in index.verify()}
    assert checks["checksums"].passed
    assert "missing" in checks["rows"].message


def test_prewarm(tmp_path):
    small_files(tmp_path)
    index = over(tmp_path)
    put(tmp_path, "p=b/late.parquet", rows_of(9))
    done = index.prewarm()
    assert (done.splits, dict(done.failed)) == (6, {})
    assert index.prewarm(where="p = 'a'").splits == 3
    index.merge_splits()
    assert index.prewarm(fields=["body"]).splits == 2


def test_versions_after_a_merge(tmp_path):
    write_deltalake(tmp_path / "source", rows_of(0))
    for number in range(1, 4):
        write_deltalake(tmp_path / "source", rows_of(number), mode="append")
    index = over(tmp_path, format="delta", columns=["body"])
    index.merge_splits()
    assert [index.count(version=v) for v in range(4)] == [4, 8, 12, 16]
    assert index.count(version=1, where="body indexquery 'fox'") == 4
    assert "2 of 2 files" in index.explain(version=1)
    DeltaTable(tmp_path / "source").optimize.compact()
    assert index.count(where="body indexquery 'fox'") == 8
    index.refresh()
    assert index.count(where="body indexquery 'fox'") == 8
    assert index._log.snapshot().num_files == 1
