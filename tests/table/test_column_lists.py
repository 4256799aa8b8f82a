"""Whatever columns are asked for, a scan has the rows that it has with all columns.

Splits hold no partition columns, and older ones no columns that were added later. Where none of the
wanted columns is stored, Arrow's tables have no columns, and easily forget how many rows they have.
"""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import indextables as it

CONDITIONS = [
    None,
    "day = 'd1'",
    "h IS NULL",
    "h = 1 OR body indexquery 'cat'",
    "body indexquery 'fox' AND id > 50",
    "NOT (body indexquery 'sun')",
    "extra IS NULL",
    "extra indexquery 'late'",
]
COLUMNS = ["day", "h", "extra", "_split", "_row", "id"]


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> it.Table:
    """Partitioned, with rows that are marked as deleted, and splits that lack a column."""
    words = ["fox", "dog", "cat", "sun"]
    every = [
        {"id": n, "day": f"d{n % 2}", "h": (None, 1)[n % 3 == 1], "body": words[n % 4]}
        for n in range(120)
    ]
    schema = pa.schema({"id": pa.int64(), "day": "string", "h": pa.int32(), "body": "string"})
    config = {"spark.indextables.deletionVectors.mode": "vector"}
    place = str(tmp_path_factory.mktemp("lists") / "t")
    table = it.Table.create(place, schema, partition_by=["day", "h"], config=config)
    table.append(pa.Table.from_pylist(every[:80], schema))
    table.add_columns(pa.schema({"extra": pa.string()}))
    table.append(pa.Table.from_pylist([row | {"extra": "late"} for row in every[80:]]))
    table.delete(where="id IN (0, 1, 2, 3, 84, 85)")
    return table


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_list_of_columns_has_the_same_rows(table, condition):
    whole = table.scan(where=condition)
    assert whole.num_rows == table.count(where=condition) > 0
    names = [*whole.column_names, "_split", "_row"]
    rows = table.scan(columns=names, where=condition)
    for size in (1, 2):
        for columns in itertools.combinations(COLUMNS, size):
            found = table.scan(columns=list(columns), where=condition)
            expected = rows.select(list(columns))
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))
            limited = table.scan(columns=list(columns), where=condition, limit=7)
            assert limited.num_rows == min(7, whole.num_rows)
