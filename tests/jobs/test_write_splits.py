"""Rows in any order make one split for each partition, in bounded memory."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from indextables import Table
from indextables import config as keys
from indextables.errors import SplitWriteError
from indextables.jobs import write_splits
from indextables.split.write import WaitingRows

PARTS = 30
ROWS = 600


@pytest.fixture
def config(tmp_path):
    (tmp_path / "temporary").mkdir()
    return {
        keys.WRITE_MAX_OPEN_SPLITS.name: 4,
        keys.CACHE_DISK_PATH.name: str(tmp_path / "cache"),
        keys.WRITER_TEMP_DIRECTORY.name: str(tmp_path / "temporary"),
    }


def rows(order):
    rng = random.Random(1)
    parts = [rng.choice([None, *range(PARTS - 1)]) for _ in range(ROWS)]
    if order == "sorted":
        parts.sort(key=lambda part: (part is None, part))
    bodies = [f"word{n % 7} of row{n}" for n in range(ROWS)]
    return pa.table({"id": range(ROWS), "part": pa.array(parts, pa.int32()), "body": bodies})


@pytest.mark.parametrize("order", ["unsorted", "sorted"])
@pytest.mark.parametrize("waiting", [64 << 20, 8_000])
def test_every_partition_has_one_split(tmp_path, config, monkeypatch, order, waiting):
    spilled, most = [], []
    spill = WaitingRows.spill

    def noted(self):
        most.append(self.bytes_in_memory)
        spilled.append(spill(self))

    monkeypatch.setattr(write_splits, "_WAITING_BYTES", waiting)
    monkeypatch.setattr(WaitingRows, "spill", noted)
    data = rows(order)
    table = Table.create(tmp_path / "t", data.schema, partition_by=["part"], config=config)
    written = table.append(iter(data.to_batches(max_chunksize=100)))
    assert (written.files_added, written.rows) == (PARTS, ROWS)
    plain = Table.create(tmp_path / "plain", data.schema, config=config)
    plain.append(data)
    for where in (None, "body indexquery 'word3'", "part = 7", "part is null AND id > 100"):
        found, expected = (t.scan(where=where).sort_by("id") for t in (table, plain))
        assert found == expected, where
    for part in (0, 7, PARTS - 2):
        ids = table.scan(where=f"part = {part}")["id"].to_pylist()
        assert ids == sorted(ids), "rows of a partition keep their order"
    if order == "unsorted":
        assert bool(spilled) == (waiting < 1 << 20)
    assert max(most, default=0) <= waiting + 8_000, "a batch more than what may wait"
    assert not list((tmp_path / "temporary").iterdir())


def test_rows_that_wait_on_disk_go_when_a_write_fails(tmp_path, config, monkeypatch):
    monkeypatch.setattr(write_splits, "_WAITING_BYTES", 100)
    data = rows("unsorted")
    table = Table.create(tmp_path / "t", data.schema, partition_by=["part"], config=config)

    def broken():
        yield from data.to_batches(max_chunksize=50)
        assert list((tmp_path / "temporary").glob("*/*.arrow")), "nothing waits on disk"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        table.append(broken())
    assert not list((tmp_path / "temporary").iterdir())

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa.ipc, "new_stream", full)
    with pytest.raises(SplitWriteError, match="No space left"):
        table.append(data)
    assert table.count() == 0 and not list((tmp_path / "temporary").iterdir())
