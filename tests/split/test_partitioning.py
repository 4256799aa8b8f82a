from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import SchemaError
from indextables.log.layout import check_paths
from indextables.split.row_hash import row_hashes, shared_hash
from indextables.split.write.partitioning import (
    check_partition_columns,
    partition_folder,
    partition_text,
    split_by_partition,
)
from indextables.storage.store import check_path

UTC = dt.UTC


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array([1, None, -5], pa.int32()), ["1", None, "-5"]),
        (pa.array(["a", "", None]), ["a", "", None]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([dt.date(2024, 1, 5)]), ["2024-01-05"]),
        (pa.array([dt.datetime(2024, 1, 5, 1, 2, 3, 4, UTC)], pa.timestamp("us", "UTC")),
         ["2024-01-05T01:02:03.000004Z"]),
        (pa.array([dt.datetime(2024, 1, 5, 1, 2, 3)], pa.timestamp("us")),
         ["2024-01-05T01:02:03.000000"]),
        (pa.array([Decimal("1.50")], pa.decimal128(5, 2)), ["1.50"]),
        (pa.array([0.1, 1e300], pa.float64()), ["0.1", "1e+300"]),
    ],
)  # fmt: skip
def test_values_are_spelled_exactly(array, texts):
    assert partition_text(array).to_pylist() == texts


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "", None, "x/y"]), st.integers(0, 2) | st.none()),
        max_size=50,
    )
)
def test_every_row_lands_once_in_its_partition_and_in_order(keys):
    batch = pa.record_batch(
        {
            "k": pa.array([k for k, _ in keys], pa.string()),
            "row": pa.array(range(len(keys)), pa.int64()),
            "n": pa.array([n for _, n in keys], pa.int64()),
        }
    )
    found = {}
    for values, rows in split_by_partition(batch, ["k", "n"]):
        key = (values.get("k"), values.get("n"))
        assert key not in found
        assert rows.schema.names == ["row"]
        found[key] = rows["row"].to_pylist()
    expected: dict = {}
    for row, (k, n) in enumerate(keys):
        expected.setdefault((k, None if n is None else str(n)), []).append(row)
    assert found == expected
    assert list(found) == list(expected)


@given(st.text(), st.text(min_size=1))
def test_folders_stay_inside_the_table(value, name):
    folder = partition_folder({name: value}, [name])
    check_paths([f"{folder}/splits/s.split"], where="test")
    assert folder.count("/") == 0


@pytest.mark.parametrize("days", [-719_163, 2_932_897])
@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_moments_that_nobody_can_read_back_are_refused(kind, days):
    def moments(day: int) -> pa.RecordBatch:
        if pa.types.is_date(kind):
            values = pa.array([day, None], pa.int32()).cast(kind)
        else:
            values = pa.array([day * 86_400_000_000, None], pa.int64()).cast(kind)
        return pa.record_batch({"at": values, "n": pa.array([1, 2])})

    with pytest.raises(SchemaError, match="'at' holds a moment outside the years 1 to 9999"):
        list(split_by_partition(moments(days), ["at"]))
    inside = moments(days + 1 if days < 0 else days - 1)
    assert len(list(split_by_partition(inside, ["at"]))) == 2


def test_a_column_that_begins_with_a_dot_is_no_hidden_folder():
    folder = partition_folder({".d": ".x", "n": "1"}, [".d", "n"])
    assert folder == "%2Ed=.x/n=1"
    assert check_path(folder) == folder


def test_folders_of_different_values_differ():
    values = ["a", "A", "a/b", "a%2Fb", "", " ", "__", "é", "a=b", "..", "."]
    assert len({partition_folder({"c": v}, ["c"]) for v in values}) == len(values)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["nope"], "Available columns: id, day, tags"),
        (["day", "day"], "named twice"),
        (["tags"], "cannot be a partition column"),
        (["id", "day", "tags"], "At least one column"),
    ],
)
def test_bad_partition_columns(columns, message):
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("tags", pa.list_(pa.string()))])
    with pytest.raises(SchemaError, match=message):
        check_partition_columns(columns, schema)


def test_a_partition_value_hashes_as_the_stored_value_does():
    moment = dt.datetime(2024, 3, 31, 1, 2, 3, 456_789)
    columns = {
        "s": pa.array(["a/b é"]),
        "empty": pa.array([""]),
        "i8": pa.array([-7], pa.int8()),
        "i64": pa.array([2**62]),
        "flag": pa.array([True]),
        "day": pa.array([dt.date(1, 1, 1)]),
        "utc": pa.array([moment], pa.timestamp("us", "UTC")),
        "plain": pa.array([moment], pa.timestamp("us")),
        "f32": pa.array([0.1], pa.float32()),
        "f64": pa.array([-0.0]),
        "nan": pa.array([float("nan")]),
        "huge": pa.array([float("inf")]),
        "dec": pa.array([Decimal("-12.30")], pa.decimal128(10, 2)),
        "none": pa.array([None], pa.int32()),
    }
    rows = pa.table({"id": pa.array([1])} | columns)
    for name, column in columns.items():
        text = partition_text(column)[0].as_py()
        shared = shared_hash({name: text}, rows.schema)
        assert row_hashes(rows.drop_columns([name]), shared) == row_hashes(rows), name
