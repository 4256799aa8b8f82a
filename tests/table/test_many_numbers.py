"""Thousands of numbers in one search: one question to each column, and the same rows."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest

from indextables import Table
from indextables.split.open_split import SplitSource

ROWS = 400
START = datetime.date(2024, 1, 1)
TABLE = pa.table(
    {
        "body": ["word"] * ROWS,
        "id": pa.array(range(ROWS), pa.int64()),
        "small": pa.array([None if i % 7 == 0 else i % 100 for i in range(ROWS)], pa.int8()),
        "x": pa.array([float("nan") if i % 9 == 0 else i / 2 for i in range(ROWS)], pa.float64()),
        "f": pa.array([i / 10 for i in range(ROWS)], pa.float32()),
        "d": pa.array([decimal.Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(9, 2)),
        "day": pa.array([START + datetime.timedelta(i) for i in range(ROWS)], pa.date32()),
        "many": pa.array([[i, -i] for i in range(ROWS)], pa.list_(pa.int32())),
    }
)
NUMBERS = [*range(0, 300, 3), "12.5", "0.3", "-0", "1e2", "-20", 10**30, "2024-03-01"]


def has_any(row, texts):
    wanted = {decimal.Decimal(str(t)) for t in texts if "-" not in str(t)[1:]}
    singles = {float(pa.scalar(float(t), pa.float32()).as_py()) for t in wanted}
    return (
        any(decimal.Decimal(n) in wanted for n in (row["id"], row["small"]) if n is not None)
        or (row["x"] == row["x"] and decimal.Decimal(row["x"]) in wanted)
        or row["f"] in singles
        or row["d"] in wanted
        or any(decimal.Decimal(n) in wanted for n in row["many"])
        or row["day"].isoformat() in map(str, texts)
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    config = {"spark.indextables.cache.disk.path": str(tmp_path_factory.mktemp("cache"))}
    table = Table.create(tmp_path_factory.mktemp("numbers") / "t", TABLE.schema, config=config)
    table.append(TABLE)
    return table


@pytest.mark.parametrize("excluded", [True, False])
def test_many_numbers_are_one_question_to_each_column(table, monkeypatch, excluded):
    rows = TABLE.to_pylist()
    hits = {row["id"] for row in rows if has_any(row, NUMBERS)}
    assert 0 < len(hits) < ROWS
    expected = {row["id"] for row in rows} - hits if excluded else hits
    quoted = [f'"{n}"' if "-" in str(n) else str(n) for n in NUMBERS]
    query = "word " + " ".join(f"NOT {n}" for n in quoted) if excluded else " OR ".join(quoted)
    read = []
    real = SplitSource.column
    monkeypatch.setattr(
        SplitSource, "column", lambda self, name, rows: read.append(name) or real(self, name, rows)
    )
    found = table.scan(where=f"_indexall indexquery '{query}'", columns=["id"])
    assert set(found["id"].to_pylist()) == expected
    assert len(read) == len(set(read)) <= TABLE.num_columns
    one = table.scan(where=f"id indexquery '{' '.join(quoted[:100])}'", columns=["id"])
    assert set(one["id"].to_pylist()) == set(range(0, 300, 3))
    if excluded:
        read.clear()
        assert set(table.search(query, limit=ROWS)["id"].to_pylist()) == expected
        assert len(read) <= 3 * TABLE.num_columns
