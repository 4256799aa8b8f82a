"""Rows that a caller hands over, as batches of the table's schema."""

from __future__ import annotations

from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

from indextables.errors import SchemaError
from indextables.jobs.write_target import as_reader, check_fits
from indextables.schema import conform


def test_the_index_of_a_frame_is_no_column():
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=["x", "y", "z"])
    assert as_reader(frame[frame["a"] > 1]).read_all().to_pydict() == {"a": [2, 3]}


def test_batches_are_taken_one_by_one():
    taken = []

    def batches():
        for n in range(3):
            taken.append(n)
            yield pa.record_batch({"a": [n]})

    reader = as_reader(batches())
    assert taken == [0], "only the first, for its schema"
    assert conform(next(iter(reader)), reader.schema).to_pydict() == {"a": [0]}
    assert len(taken) < 3


def test_nulls_are_of_any_type():
    table = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    rows = pa.table({"a": pa.nulls(1), "b": pa.nulls(1)})
    check_fits(rows.schema, table)
    assert conform(rows, table).to_pydict() == {"a": [None], "b": [None]}


# What Arrow would cast without a word, and what is lost.
LOSSY = {
    "a number is no truth": (pa.array([5]), pa.bool_()),
    "a text is not a number": (pa.array(["01"]), pa.int64()),
    "a time is no date": (pa.array([1], pa.timestamp("us")), pa.date32()),
    "a number is no time": (pa.array([1]), pa.timestamp("us")),
    "digits of a double": (pa.array([0.1]), pa.float32()),
    "digits of a fraction": (pa.array([1.25]), pa.decimal128(4, 1)),
    "texts in an array": (pa.array([["1"]]), pa.list_(pa.int64())),
    "numbers in a struct": (pa.array([{"x": 5}]), pa.struct([("x", pa.bool_())])),
}
KEPT = {
    "a double that fits": (pa.array([0.5, float("nan"), None]), pa.float32(), "[0.5, nan, None]"),
    "a whole double": (pa.array([2.0]), pa.int32(), "[2]"),
    "a small integer": (pa.array([7]), pa.int8(), "[7]"),
    "an integer": (pa.array([7]), pa.decimal128(20, 1), "[Decimal('7.0')]"),
    "a decimal": (pa.array([Decimal("1.50")]), pa.decimal128(4, 1), "[Decimal('1.5')]"),
    "a category": (pa.array(["x"]).dictionary_encode(), pa.string(), "['x']"),
    "a view": (pa.array(["x"], pa.string_view()), pa.string(), "['x']"),
}


@pytest.mark.parametrize("case", LOSSY)
def test_nothing_is_lost_silently(case):
    values, kind = LOSSY[case]
    rows = pa.table({"a": values})
    with pytest.raises(SchemaError, match="'a' cannot become"):
        conform(rows, pa.schema([("a", kind)]))


@pytest.mark.parametrize("case", KEPT)
def test_what_fits_is_taken(case):
    values, kind, expected = KEPT[case]
    rows = pa.table({"a": values})
    fitting = conform(rows, pa.schema([("a", kind)]))
    assert repr(fitting["a"].to_pylist()) == expected
