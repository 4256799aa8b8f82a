"""Reading rows of a remote split: only the needed bytes, asked for together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from conftest import query

from indextables.errors import DamagedSplitError
from indextables.split.search import SplitFile
from indextables.storage.local import LocalStore

ROWS = 40_000
TABLE = pa.table(
    {
        "id": range(ROWS),
        "body": [f"row {i} of many" for i in range(ROWS)],
        "a.b": [f"x{i}" for i in range(ROWS)],
        "a": pa.array([{"b": i} for i in range(ROWS)]),
        "list": [[i, i + 1] for i in range(ROWS)],
    }
)


class Remote(LocalStore):
    """A store that has no local files and counts."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.calls: list[list[tuple[int, int]]] = []

    def local_path(self, path):
        return None

    def get_range(self, path, start, end):
        self.calls.append([(start, end)])
        data = (super().local_path(path)).read_bytes()
        return data[start:end]

    def get_ranges(self, path, ranges):
        self.calls.append(list(ranges))
        data = (super().local_path(path)).read_bytes()
        return [data[start:end] for start, end in ranges]


@pytest.fixture
def remote(make, tmp_path):
    searcher = make(TABLE, batch=10_000)
    split = searcher.split
    store = Remote(str(tmp_path))
    far = SplitFile(store, split.path, split.size, split.footer_start, split.footer_end)
    return replace(searcher, split=far)


def test_scattered_rows_are_one_request_for_their_chunks(remote):
    _ = remote.split.footer
    remote.split.store.calls.clear()
    rows = np.array([39_999, 5, 20_000])
    table = remote.read_rows(rows, ["id", "body"])
    assert table.equals(TABLE.select(["id", "body"]).take(rows))
    (ranges,) = remote.split.store.calls
    assert len(ranges) == 6
    assert sum(end - start for start, end in ranges) < remote.split.size / 4


@pytest.mark.parametrize("name", TABLE.schema.names)
def test_any_column_comes_back(remote, name):
    rows = np.array([0, 8_191, 8_192, 39_999])
    assert remote.read_rows(rows, [name]).column(name).to_pylist() == (
        TABLE.column(name).take(pa.array(rows)).to_pylist()
    )


def test_everything_comes_back_in_pieces(remote):
    pieces = list(remote.split.rows.batches(TABLE.schema.names, groups_at_once=2))
    assert [first for first, _ in pieces] == [0, 16_384, 32_768]
    assert pa.concat_tables(t for _, t in pieces).equals(TABLE)
    counts = list(remote.split.rows.batches([], groups_at_once=2))
    assert [table.num_rows for _, table in counts] == [16_384, 16_384, 7_232]


def test_the_index_is_fetched_without_the_rows(remote):
    assert remote.search(query("20000", "body")).tolist() == [20_000]
    first = min(s.offset for s in remote.split.info.sections)
    assert all(start >= first for ranges in remote.split.store.calls for start, _ in ranges)


def test_a_short_answer_is_no_data(remote, monkeypatch):
    _ = remote.split.footer
    monkeypatch.setattr(Remote, "get_ranges", lambda self, path, ranges: [b"" for _ in ranges])
    with pytest.raises(DamagedSplitError, match="rows cannot be read"):
        remote.read_rows(np.array([1]), ["id"])
