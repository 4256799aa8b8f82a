"""Jobs that meet what others did a moment before or after their commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

from indextables.config import Config
from indextables.errors import ConcurrentAppendError
from indextables.jobs.history import restore
from indextables.jobs.repair import repair_log
from indextables.storage import open_store
from indextables.table import Table

SCHEMA = pa.schema({"id": pa.int64(), "_day": pa.string()})


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "_day": ["a"] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path) -> Table:
    elsewhere = {"spark.indextables.xref.storage.directory": "xrefs"}
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["_day"], properties=elsewhere)
    table.append(rows(1, 2))
    table.append(rows(3, 4))
    return table


def test_a_delete_does_not_overlook_merged_rows_that_a_restore_brings_back(
    table, tmp_path, monkeypatch
):
    table.merge_splits()
    merged = table.snapshot()
    table.overwrite(rows(3))
    deleter = Table.open(tmp_path / "t")
    commit = deleter.log.commit

    def restored_first(transaction):
        restore(table.log, merged)
        return commit(transaction)

    monkeypatch.setattr(deleter.log, "commit", restored_first)
    with pytest.raises(ConcurrentAppendError):
        deleter.delete(where="id >= 3")
    assert sorted(table.refresh().scan()["id"].to_pylist()) == [1, 2, 3, 4]


def test_a_write_is_told_of_its_commit_though_the_version_is_truncated_at_once(
    table, tmp_path, monkeypatch
):
    commit = table.log.commit

    def truncated_after(transaction):
        committed = commit(transaction)
        other = Table.open(tmp_path / "t")
        other.append(rows(6))
        other.truncate_time_travel()
        return committed

    monkeypatch.setattr(table.log, "commit", truncated_after)
    assert table.append(rows(5)).version == 3
    assert sorted(Table.open(tmp_path / "t").scan()["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]


def test_a_log_is_rebuilt_from_splits_and_nothing_else_whatever_folders_are_called(table, tmp_path):
    table.index_crossreferences()
    source, target = open_store(tmp_path / "t"), open_store(tmp_path / "new")
    repaired = repair_log(source, target, config=Config(), from_splits=True)
    assert (repaired.total_splits, repaired.valid_splits) == (2, 2)
