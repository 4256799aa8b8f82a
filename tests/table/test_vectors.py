"""Rows that are marked as deleted, on every path that returns rows or counts."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import indextables as it
from indextables import Table
from indextables.errors import (
    ConcurrentRowChangeError,
    DamagedVectorError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from indextables.jobs import row_changes
from indextables.log import actions
from indextables.log.files import vectors_by_path

MARK = {"spark.indextables.deletionVectors.mode": "vector"}
REWRITE = {"spark.indextables.deletionVectors.mode": "rewrite"}
ROWS = 400


def rows(count: int = ROWS, start: int = 0) -> pa.Table:
    ids = list(range(start, start + count))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "body": [f"common {'even' if i % 2 == 0 else 'odd'} word{i % 10}" for i in ids],
            "n": pa.array([None if i % 5 == 0 else i for i in ids], pa.int64()),
            "day": [f"d{i % 2}" for i in ids],
        }
    )


def made(tmp_path, name="t", *, config=MARK, partition_by=(), splits=2):
    uri = str(tmp_path / name)
    table = Table.create(uri, rows(1).schema, partition_by=partition_by)
    for at in range(splits):
        table.append(rows(ROWS // splits, at * (ROWS // splits)))
    return Table.open(uri, config=config)


def ids(found) -> list[int]:
    return sorted(found["id"].to_pylist())


@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_every_path_leaves_deleted_rows_out(tmp_path, partition_by):
    table = made(tmp_path, partition_by=partition_by)
    files = table.snapshot().num_files
    before = {m.path for m in table.log.store.list() if m.path.endswith(".split")}
    done = table.delete(where="body indexquery 'word3' OR id < 4")
    dead = {i for i in range(ROWS) if i % 10 == 3 or i < 4}
    left = [i for i in range(ROWS) if i not in dead]
    assert done.rows_removed == len(dead)
    assert done.files_added == done.files_removed == done.bytes_added == 0
    assert {m.path for m in table.log.store.list() if m.path.endswith(".split")} == before
    assert table.snapshot().num_files == files
    for seen in (table, Table.open(table.uri)):
        assert vectors_by_path(seen.snapshot().entries)
        assert ids(seen.scan()) == left
        assert ids(seen.scan(where="NOT body indexquery 'even'")) == [i for i in left if i % 2]
        assert ids(seen.scan(where="id >= 0")) == left
        assert ids(seen.scan(where="body = 'common odd word3'")) == []
        assert ids(seen.scan(where="n IS NULL")) == [i for i in left if i % 5 == 0]
        assert seen.scan(limit=10).num_rows == 10
        assert ids(seen.scan(limit=5, where="id < 8")) == left[:4] == [4, 5, 6, 7][: len(left[:4])]
        assert seen.count() == len(left)
        assert seen.count(where="body indexquery 'even'") == sum(i % 2 == 0 for i in left)
        assert seen.count(where="n IS NOT NULL") == sum(i % 5 != 0 for i in left)
        assert seen.count(where="n > -1") == sum(i % 5 != 0 for i in left)
        assert seen.count(where="day = 'd1'") == sum(i % 2 for i in left)
        assert ids(seen.search("common", limit=None)) == left
        best = seen.search("common", limit=7)
        assert best.num_rows == 7
        assert not set(ids(best)) & dead
        assert seen.search("word3", limit=5).num_rows == 0
        assert ids(seen.search("common", limit=9, where="id < 10")) == [4, 5, 6, 7, 8, 9]
        assert set(ids(seen.search("common", limit=5, where="id < 10"))) < {4, 5, 6, 7, 8, 9}
        assert seen.search("even", limit=2, snippets=["body"]).num_rows == 2
        assert (
            ids(pa.concat_tables(pa.Table.from_batches([b]) for b in seen.scan_batches())) == left
        )
        assert duckdb.from_arrow(seen.to_arrow()).aggregate("count(*)").fetchall() == [(len(left),)]
        assert ids(pa.RecordBatchReader.from_stream(seen).read_all()) == left
        found = it.sql("SELECT count(*) AS c, min(id) AS a, sum(id) AS s FROM t", t=seen)
        assert found.to_pylist() == [{"c": len(left), "a": left[0], "s": sum(left)}]
        assert all(check.passed for check in seen.verify())


def test_rows_are_named_by_split_and_number(tmp_path):
    table = made(tmp_path)
    table.delete(where="id = 0")
    named = table.scan(columns=["id", "_split", "_row"], where="id < 3 OR id = 200")
    assert sorted(zip(*named.select(["id", "_row"]).to_pydict().values(), strict=True)) == [
        (1, 1), (2, 2), (200, 0),
    ]  # fmt: skip
    assert len(set(named["_split"].to_pylist())) == 2
    everything = table.scan(columns=["_row", "id"])
    assert all(i % 200 == r for r, i in zip(*everything.to_pydict().values(), strict=True))
    best = table.search("common", limit=3, columns=["_split", "_row", "id"])
    assert [i % 200 for i in best["id"].to_pylist()] == best["_row"].to_pylist()
    told = it.sql("SELECT _row, _split, id FROM t WHERE id = 201", t=table).to_pylist()
    assert [(row["_row"], row["id"]) for row in told] == [(1, 201)]
    joined = it.sql(
        "SELECT a._row AS x, b._row AS y FROM t a JOIN t b ON a.id = b.id + 200 WHERE b.id = 7",
        t=table,
    )
    assert joined.to_pylist() == [{"x": 7, "y": 7}]
    assert "_row" not in table.scan().column_names
    assert "_row" not in it.sql("SELECT * FROM t WHERE _row = 5", t=table).column_names
    ranked = it.sql("SELECT _row, _score FROM t WHERE body indexquery 'word5' LIMIT 3", t=table)
    assert ranked.num_rows == 3


def test_updates_overwrites_merges_and_old_versions(tmp_path):
    table = made(tmp_path)
    first = table.version
    table.update({"n": "n + 1000"}, where="body indexquery 'word7'")
    marked = table.version
    now = {r["id"]: r["n"] for r in table.scan().to_pylist()}
    assert len(now) == ROWS
    assert all((n or 0) > 1000 for i, n in now.items() if i % 10 == 7)
    table.overwrite(rows(10).slice(0, 4), where="id < 10")
    assert ids(table.scan(where="id < 20")) == [0, 1, 2, 3, *range(10, 20)]
    table.delete(where="id BETWEEN 0 AND 1")
    table.delete(where="id BETWEEN 1 AND 250")
    last = table.version
    left = list(range(251, ROWS))
    assert ids(table.scan()) == left
    table.checkpoint()
    assert ids(Table.open(table.uri).scan()) == left
    assert Table.open(table.uri, version=first).count() == ROWS
    assert Table.open(table.uri, version=first).count(where="n > 1000") == 0
    assert Table.open(table.uri, version=marked).count(where="n > 1000") == 40
    merged = table.merge_splits(target_size="100M")
    assert merged.files_removed > 0
    assert not vectors_by_path(table.snapshot().entries)
    assert ids(table.scan()) == left
    assert table.log.actions(table.version).commit_info.operation_metrics["rows"] == len(left)
    for version, expected in ((marked, ROWS), (last, len(left)), (first, ROWS)):
        table.restore(version=version)
        assert table.count() == table.scan().num_rows == expected
        assert all(check.passed for check in table.verify())


def test_a_merge_takes_one_split_of_many_deleted_rows(tmp_path):
    table = made(tmp_path, splits=1)
    table.delete(where="id < 60")
    assert table.merge_splits(target_size="100M").files_removed == 0
    table.delete(where="id < 100")
    assert table.merge_splits(target_size="100M").files_removed == 1
    assert ids(table.scan()) == list(range(100, ROWS))
    assert not vectors_by_path(table.snapshot().entries)


def test_scores_are_those_of_the_rows_again_after_a_merge(tmp_path):
    table, other = made(tmp_path, splits=1), made(tmp_path, "other", splits=1, config=REWRITE)
    for one in (table, other):
        one.delete(where="body indexquery 'even' AND id > 50")
    found = [one.search("even word4", limit=20) for one in (table, other)]
    assert ids(found[0]) == ids(found[1])
    table.merge_splits(target_size="100M")
    found = [one.search("even word4", limit=20) for one in (table, other)]
    assert found[0].to_pylist() == found[1].to_pylist()


def test_a_whole_split_is_removed_and_deleting_again_does_nothing(tmp_path):
    table = made(tmp_path)
    table.delete(where="id < 150")
    version = table.version
    assert table.delete(where="id < 100").rows_removed == 0
    assert table.version == version
    table.delete(where="id < 200")
    assert table.snapshot().num_files == 1
    assert table.count() == 200
    table.delete(where="id >= 0")
    assert table.snapshot().num_files == table.count() == 0


def test_auto_marks_in_large_splits_of_which_few_rows_go(tmp_path):
    table = made(tmp_path, config={"spark.indextables.deletionVectors.minSplitSize": "1K"})
    table.delete(where="id < 20")
    assert len(vectors_by_path(table.snapshot().entries)) == 1
    table.delete(where="id < 60")
    assert not vectors_by_path(table.snapshot().entries)
    patient = {
        "spark.indextables.deletionVectors.minSplitSize": "1K",
        "spark.indextables.deletionVectors.maxDeletedShare": 0.5,
    }
    table = made(tmp_path, "patient", config=patient)
    table.delete(where="id < 60")
    assert len(vectors_by_path(table.snapshot().entries)) == 1
    small = made(tmp_path, "small", config={})
    small.delete(where="id < 2")
    assert not vectors_by_path(small.snapshot().entries)
    assert small.count() == ROWS - 2
    bound = {**MARK, "spark.indextables.protocol.autoUpgrade": False}
    old = made(tmp_path, "old", config=bound)
    old.delete(where="id < 2")
    assert not vectors_by_path(old.snapshot().entries)


def test_an_older_reader_refuses(tmp_path, monkeypatch):
    table = made(tmp_path)
    table.delete(where="id = 1")
    monkeypatch.setattr(
        actions, "READER_FEATURES", actions.READER_FEATURES - {actions.DELETION_VECTORS}
    )
    with pytest.raises(UnsupportedFeatureError, match="deletionVectors"):
        Table.open(table.uri).scan()


def scattered(table) -> None:
    """Delete rows so that the vector is too large for the log."""
    chosen = np.unique(np.random.default_rng(5).integers(0, 30_000, 4_000))
    table.delete(where=f"id IN ({', '.join(map(str, chosen))})")


def large(tmp_path):
    uri = str(tmp_path / "large")
    ids_ = pa.array(range(30_000), pa.int64())
    Table.create(uri, pa.schema({"id": pa.int64()})).append(pa.table({"id": ids_}))
    return Table.open(uri, config={**MARK, "spark.indextables.purge.retentionCheckEnabled": False})


def vector_paths(table) -> list[str]:
    return [m.path for m in table.log.store.list() if "deletion_vector" in m.path]


def test_files_of_vectors_are_kept_as_long_as_a_version_needs_them(tmp_path):
    table = large(tmp_path)
    scattered(table)
    (first,) = vector_paths(table)
    marked, left = table.version, table.count()
    table.delete(where="id < 5000")
    assert len(vector_paths(table)) == 2
    table.merge_splits()
    table.purge(older_than_hours=0)
    assert first in vector_paths(table)
    assert Table.open(table.uri, version=marked).scan().num_rows == left
    table.restore(version=marked)
    assert table.scan().num_rows == table.count() == left
    table.truncate_time_travel()
    table.purge(older_than_hours=0)
    assert vector_paths(table) == [first]
    assert table.scan().num_rows == left


def test_a_vector_that_is_damaged_or_missing_is_an_error_with_its_name(tmp_path):
    table = large(tmp_path)
    scattered(table)
    (path,) = vector_paths(table)
    place = tmp_path / "large" / path
    whole = place.read_bytes()
    marked = table.version
    for damage in (lambda: place.write_bytes(whole[:900] + b"x" + whole[901:]), place.unlink):
        damage()
        from indextables.log import vectors

        vectors._kept.clear()
        for ask in (
            lambda: Table.open(table.uri).scan(),
            lambda: Table.open(table.uri).count(where="id > 5 OR id IS NULL AND id < 9"),
            lambda: Table.open(table.uri, config=MARK).delete(where="id = 29999"),
        ):
            with pytest.raises(DamagedVectorError, match=r"deletion vector of .*splits/"):
                ask()
        failed = [check for check in Table.open(table.uri).verify() if not check.passed]
        assert failed
        assert "deletion vector" in failed[0].message
    table.restore(version=marked - 1)
    assert table.scan().num_rows == 30_000
    with pytest.raises(VersionNotFoundError, match="purged"):
        table.restore(version=marked)


@pytest.mark.parametrize("from_splits", [False, True])
def test_repair_keeps_deleted_rows_deleted(tmp_path, from_splits):
    table = made(tmp_path)
    table.delete(where="id < 10")
    if from_splits:
        table.checkpoint()
    Table.repair(table.uri, str(tmp_path / "new"), from_splits=from_splits)
    log = tmp_path / "t" / "_transaction_log"
    log.rename(tmp_path / "old")
    (tmp_path / "new" / "_transaction_log").rename(log)
    again = Table.open(table.uri)
    assert again.count() == again.scan().num_rows == ROWS - 10
    assert all(check.passed for check in again.verify())


def between(monkeypatch, work):
    """Run `work` after rows were chosen and before the commit."""
    original = row_changes._take_out

    def chosen(*args, **kwargs):
        found = original(*args, **kwargs)
        monkeypatch.setattr(row_changes, "_take_out", original)
        work()
        return found

    monkeypatch.setattr(row_changes, "_take_out", chosen)


def test_two_deletions_of_one_split_both_win(tmp_path, monkeypatch):
    table, other = made(tmp_path, splits=1), None
    other = Table.open(table.uri, config=MARK)
    between(monkeypatch, lambda: other.delete(where="id BETWEEN 5 AND 20"))
    table.delete(where="id BETWEEN 10 AND 30")
    assert ids(table.scan()) == [*range(5), *range(31, ROWS)]
    between(monkeypatch, lambda: other.delete(where="id = 100"))
    table.update({"n": "7"}, where="id = 101")
    assert table.scan(where="id = 101")["n"].to_pylist() == [7]
    assert table.count(where="id = 100") == 0
    between(monkeypatch, lambda: other.delete(where="id = 110"))
    with pytest.raises(ConcurrentRowChangeError, match="again"):
        table.update({"n": "7"}, where="id IN (110, 111)")
    assert table.refresh().count(where="id = 111 AND n = 7") == 0
    assert all(check.passed for check in table.verify())
    splits = {m.path for m in table.log.store.list() if m.path.endswith(".split")}
    named = set()
    for version in range(table.version + 1):
        entries = Table.open(table.uri, version=version).snapshot().entries
        named |= set(entries["path"].to_pylist())
    assert splits == named  # what was written for the lost update is gone


def test_renamed_and_dropped_columns(tmp_path):
    table = made(tmp_path)
    table.delete(where="id < 10")
    table.rename_column("n", "m")
    table.drop_columns("day")
    table.delete(where="m < 20 OR body indexquery 'word9'")
    left = [i for i in range(10, ROWS) if not (i % 10 == 9 or (i % 5 and i < 20))]
    assert ids(table.scan()) == left
    assert table.scan().column_names == ["id", "body", "m"]
    table.merge_splits(target_size="100M")
    assert ids(table.scan()) == left


def test_many_small_splits_with_vectors_are_searched_as_one_index(tmp_path):
    """Linked indexes hold deleted rows, too."""
    table = made(tmp_path, splits=20)
    gone = ", ".join(str(i) for i in range(0, ROWS, 7))
    table.delete(where=f"id IN ({gone})")
    left = [i for i in range(ROWS) if i % 7]
    odd = [i for i in left if i % 2]
    for _ in range(2):
        assert ids(table.scan(where="body indexquery 'odd'")) == odd
        assert table.count(where="body indexquery 'odd'") == len(odd)
        assert table.count(where="body indexquery 'odd' AND id < 100") == sum(i < 100 for i in odd)
        assert ids(table.search("odd", limit=None)) == odd
        assert not set(ids(table.search("odd", limit=9))) - set(odd)
        assert table.search("odd", limit=len(odd) + 5).num_rows == len(odd)
        table.delete(where="id = 1")
        odd = [i for i in odd if i != 1]


def test_in_a_bucket_with_cross_references_and_prewarmed(s3, tmp_path):
    prefix = "spark.indextables."
    config = {
        **MARK,
        f"{prefix}cache.disk.path": str(tmp_path / "cache"),
        f"{prefix}xref.query.minSplitsForXRef": 1,
        f"{prefix}purge.retentionCheckEnabled": False,
    }
    uri = f"{s3.uri}/vectors"
    table = Table.create(uri, rows(1).schema, storage_options=s3.options)
    for start in range(0, ROWS, 100):
        table.append(rows(100, start))
    table = Table.open(uri, config=config, storage_options=s3.options)
    table.index_crossreferences()
    table.delete(where="body indexquery 'word3' OR id < 150")
    left = [i for i in range(150, ROWS) if i % 10 != 3]
    assert table.snapshot().xrefs
    table.prewarm()
    for seen in (table, Table.open(uri, config=config, storage_options=s3.options)):
        assert ids(seen.scan()) == left
        assert seen.count(where="body indexquery 'word3'") == 0
        assert ids(seen.scan(where="body indexquery 'word4'")) == [i for i in left if i % 10 == 4]
        assert seen.search("common", limit=9).num_rows == 9
    # A cross-reference that is built now reads splits with deleted rows.
    table.drop_crossreferences()
    table.index_crossreferences()
    assert ids(table.scan(where="body indexquery 'word4'")) == [i for i in left if i % 10 == 4]
    assert all(check.passed for check in table.verify())
    table.merge_splits()
    table.purge(older_than_hours=0)
    assert ids(table.scan()) == left


def test_writes_merge_splits_of_many_deleted_rows(tmp_path):
    merging = {**MARK, "spark.indextables.mergeOnWrite.enabled": True}
    table = made(tmp_path, config=merging)
    table.delete(where="id < 100")
    assert vectors_by_path(table.snapshot().entries)
    table.append(rows(10, ROWS))
    assert not vectors_by_path(table.refresh().snapshot().entries)
    assert ids(table.scan()) == list(range(100, ROWS + 10))


def test_what_users_see_of_marked_rows(tmp_path):
    """`describe`, the report, the page of a table, statements and the history name them."""
    from indextables.cli.app import app
    from indextables.report import data
    from indextables.report.page import page
    from indextables.serve.tables import facts
    from indextables.statements.describe import describe_log, describe_state

    table = made(tmp_path, splits=1, partition_by=("day",))
    table.rename_column("n", "number")
    table.append(rows(4_000, 1_000).rename_columns(["id", "body", "number", "day"]))
    assert facts("t", table)["deleted_rows"] == facts("t", table)["vector_files"] == 0
    table.delete(where="body indexquery 'word3 OR word7' AND id >= 1000")
    table.delete(where="id = 2")
    dead = sum(i % 10 in (3, 7) for i in range(1_000, 5_000)) + 1
    seen = facts("t", table)
    assert (seen["rows"], seen["deleted_rows"]) == (ROWS + 4_000 - dead, dead)
    assert seen["vector_files"] == 1, "the other vector is in the log"
    from typer.testing import CliRunner

    told = CliRunner().invoke(app, ["describe", table.uri, "--json"]).stdout
    assert f'"deleted_rows":{dead},"vector_files":1' in told
    assert f"deleted_rows  {dead}".split() in [
        line.split() for line in CliRunner().invoke(app, ["describe", table.uri]).stdout.split("\n")
    ]
    report = data.gather(table, config={})
    assert sum(split.deleted for split in report.splits) == dead
    assert f"<dd>{dead:,}</dd>" in page(report)
    state = describe_state(table.log, table_path=table.uri).to_pylist()[0]
    assert (state["num_deleted_rows"], state["num_vector_files"]) == (dead, 1)
    newest = describe_log(table.log).to_pylist()[0:3]
    (vector,) = (dict(r["deletion_vector"]) for r in newest if r["action_type"] == "add")
    assert (vector["storageType"], vector["cardinality"]) == ("i", "1")
    (last, before, *_) = table.history().to_pylist()
    assert (last["operation"], last["filesAdded"], last["filesRemoved"]) == ("DELETE", 0, 0)
    assert last["filesMarked"] == before["filesMarked"] == 1
    assert dict(last["metrics"])["rowsMarked"] == "1"
    assert dict(before["metrics"])["rowsMarked"] == str(dead - 1)


@pytest.mark.parametrize("config", [MARK, REWRITE])
def test_the_history_names_statements_as_delta_does(tmp_path, config):
    table = made(tmp_path, config=config, partition_by=("day",))
    table.delete(where="id = 5")
    table.update("n = 7", where="id = 6")
    table.merge(rows(2, 399), on=["id"])
    table.drop_partitions(where="day = 'd1'")
    names = table.history()["operation"].to_pylist()[:4]
    assert names == ["DROP PARTITIONS", "MERGE", "UPDATE", "DELETE"]
    changes = table.changes(from_version=table.version - 3, to_version=table.version - 1)
    kinds = changes.sort_by("_commit_version")["_change_type"].to_pylist()
    assert sorted(kinds[1:3]) == ["update_postimage", "update_preimage"] and kinds[0] == "delete"


def test_a_stream_reads_rows_that_restore_brings_back(tmp_path):
    from indextables.spark.streams import Offset, StreamLog

    table = made(tmp_path, splits=1)
    version, identity = table.version, table.metadata().id
    table.delete(where="id < 3")
    table.restore(version=version)
    log = StreamLog(table.log, identity, ignore_deletes=True, ignore_changes=True)
    units = log.units(Offset(identity, version + 1), table.version)
    assert [unit.at.version for unit in units] == [version + 2], "the deletion has no new rows"


def test_partition_columns_alone_are_read_of_the_rows_that_are_left(tmp_path):
    table = made(tmp_path, partition_by=["day"])
    table.delete(where="id < 40 AND id IN (1, 2, 3)")
    left = [f"d{i % 2}" for i in range(ROWS) if i not in (1, 2, 3)]
    assert sorted(table.scan(columns=["day"])["day"].to_pylist()) == sorted(left)
    counted = table.facets(by=["day"])["day"].to_pydict()
    assert dict(zip(counted["day"], counted["count"], strict=True)) == {"d0": 199, "d1": 198}
