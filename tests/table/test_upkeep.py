"""Updates, upkeep and long readers of one table at the same time."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from racing import race_processes, race_threads
from upkeep_processes import SCHEMA, read_many, tidy_many, update_many

from indextables import Table
from indextables.errors import ConcurrentAppendError, ConflictError


def rows(ids, day=0):
    texts = [f"word{i} common" for i in ids]
    return pa.table({"id": list(ids), "day": [day] * len(ids), "text": texts}, schema=SCHEMA)


def run(task, uri, config, times):
    return task(uri, config, times)


@pytest.mark.parametrize("race", [race_threads, race_processes])
def test_no_update_is_lost_or_done_twice(race, tmp_path, config):
    uri = str(tmp_path / "table")
    table = Table.create(uri, SCHEMA, config=config)
    for start in (0, 10):
        table.append(rows(range(start, start + 10)))
    work = [
        (update_many, uri, config, 4),
        (update_many, uri, config, 4),
        (tidy_many, uri, config, 6),
        (read_many, uri, config, 8),
    ]
    *_, read = race(run, work)
    assert read == 20
    found = Table.open(uri, config=config).scan()
    assert sorted(found["id"].to_pylist()) == list(range(20))
    assert set(found["day"].to_pylist()) == {8}
    assert all(check.passed for check in Table.open(uri, config=config).verify())


def age(folder, days):
    for file in folder.rglob("*"):
        if file.is_file():
            then = file.stat().st_mtime - days * 86_400
            os.utime(file, (then, then))


def test_a_purge_leaves_a_long_reader_its_splits(tmp_path, config):
    """The reader's version is older than everything; its version file is retained."""
    folder = tmp_path / "table"
    table = Table.create(folder, SCHEMA, config=config)
    for start in range(0, 50, 10):
        table.append(rows(range(start, start + 10)))
    reader = Table.open(folder, config=config).scan_batches()
    first = reader.read_next_batch()
    table.overwrite(rows([99]))
    table.merge_splits()
    table.checkpoint()
    age(folder, 8)
    assert table.purge().files_deleted == 0
    rest = sum(batch.num_rows for batch in reader)
    assert first.num_rows + rest == 50


def test_an_update_against_other_writers(tmp_path, config, monkeypatch):
    folder = tmp_path / "table"
    mine = Table.create(folder, SCHEMA, config=config)
    mine.append(rows(range(10)))
    other = Table.open(folder, config=config)

    def against(act, error):
        commit = mine.log.commit

        def late(transaction):
            monkeypatch.setattr(mine.log, "commit", commit)
            act()
            return commit(transaction)

        monkeypatch.setattr(mine.log, "commit", late)
        before = sum(1 for _ in folder.rglob("*.split"))
        if error is None:
            mine.update("day = 5", where="id = 3")
            return
        with pytest.raises(error):
            mine.update("day = 5", where="id = 3")
        # What the loser had written is gone again.
        added = sum(1 for _ in folder.rglob("*.split")) - before
        assert added == 1

    against(lambda: other.delete(where="id = 4"), ConflictError)
    against(lambda: other.append(rows([3])), ConcurrentAppendError)
    against(lambda: other.append(rows([77])), None)  # no row of it can be meant
    assert mine.count(where="day = 5") == 2
    assert mine.count() == 11


def test_drop_partitions_takes_along_what_others_added_meanwhile(tmp_path, config, monkeypatch):
    folder = tmp_path / "table"
    mine = Table.create(folder, SCHEMA, partition_by=["day"], config=config)
    mine.append(rows([1, 2], day=1))
    mine.append(rows([3], day=2))
    other = Table.open(folder, config=config)
    commit = mine.log.commit

    def late(transaction):
        other.append(rows([4], day=1))
        other.merge_splits()
        return commit(transaction)

    monkeypatch.setattr(mine.log, "commit", late)
    dropped = mine.drop_partitions(where="day = 1")
    assert (dropped.partitions, dropped.files_removed) == (1, 1)
    assert Table.open(folder, config=config).scan()["id"].to_pylist() == [3]
