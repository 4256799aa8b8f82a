"""Rows of large values are read a few at a time, whatever the condition."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indextables import Table
from indextables.plan import execute
from indextables.split.format import rows
from indextables.split.write import writer

SIZE = 200_000
ROWS = 60


@pytest.fixture
def table(tmp_path, monkeypatch):
    # Everything a hundred times smaller than it is: row groups, pieces, and pieces ahead.
    monkeypatch.setattr(writer, "ROW_GROUP_BYTES", SIZE * 3)
    monkeypatch.setattr(rows, "BYTES_AT_ONCE", SIZE * 3)
    monkeypatch.setattr(execute, "_BYTES_AHEAD", SIZE * 9)
    monkeypatch.setattr(execute, "_SMALL_PIECE", SIZE)
    made = pa.table(
        {
            "id": range(ROWS),
            "same": [b"x" * SIZE] * ROWS,
            "text": [f"word{n} " + "y" * (n % 3) for n in range(ROWS)],
        }
    )
    table = Table.create(
        tmp_path / "t",
        made.schema,
        config={"spark.indextables.cache.disk.path": str(tmp_path / "c")},
    )
    table.append(made)
    return table, made


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, range(ROWS)),
        ("id >= 7", range(7, ROWS)),
        ("text indexquery 'word3 OR word50 OR word51'", [3, 50, 51]),
        ("id in (1, 20, 40) or text indexquery 'word59'", [1, 20, 40, 59]),
    ],
)
def test_a_stream_holds_a_few_large_values_at_once(table, where, expected):
    opened, _ = table
    before, peak, found = pa.total_allocated_bytes(), 0, []
    for batch in opened.scan_batches(where=where):
        peak = max(peak, pa.total_allocated_bytes() - before)
        found += batch.column("id").to_pylist()
        assert set(batch.column("same").to_pylist()) == {b"x" * SIZE}
    assert found == list(expected)
    assert peak < SIZE * 30, "half of the rows and more were in memory at once"


def test_columns_that_are_small_are_read_in_large_pieces(table):
    opened, made = table
    batches = list(opened.scan_batches(columns=["id"]))
    assert pa.Table.from_batches(batches).column("id") == made.column("id")
    assert opened.scan(columns=["same"], limit=5).num_rows == 5
    assert pc.sum(opened.scan(columns=["id"], where="id < 50")["id"]).as_py() == 49 * 25
