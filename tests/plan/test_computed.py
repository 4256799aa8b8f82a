"""Values computed from columns: parts of dates beyond Arrow's years, and errors only where due."""

from __future__ import annotations

import datetime
import random

import pyarrow as pa
import pytest

from indextables.errors import ComputedOverflowError
from indextables.plan.aggregation import Aggregate, Aggregation
from indextables.plan.computed import (
    Call,
    ColumnValue,
    Constant,
    NotComputedError,
    call,
    columns_of,
    compute,
    renamed,
)

N = ColumnValue("n", pa.int64())
D = ColumnValue("d", pa.date32())
X = ColumnValue("x", pa.float64())


def test_parts_of_dates():
    pick = random.Random(1)
    days = [datetime.date.fromordinal(pick.randrange(1, 3_650_000)) for _ in range(2_000)]
    table = pa.table({"d": pa.array([*days, None], pa.date32())})
    for name, part in {
        "year": lambda d: d.year,
        "quarter": lambda d: (d.month + 2) // 3,
        "month": lambda d: d.month,
        "day": lambda d: d.day,
        "day_of_year": lambda d: d.timetuple().tm_yday,
        "day_of_week": lambda d: d.isoweekday() % 7 + 1,
        "weekday": lambda d: d.weekday(),
        "week": lambda d: d.isocalendar().week,
        "year_of_week": lambda d: d.isocalendar().year,
    }.items():
        assert compute(call(name, [D]), table).to_pylist() == [*map(part, days), None], name
    # Arrow's years have sixteen bits.
    far = pa.table({"d": pa.array([100_000_000, -100_000_000]).cast(pa.int32()).cast(pa.date32())})
    assert compute(call("year", [D]), far).to_pylist() == [275_760, -271_821]


def test_what_is_not_chosen_is_not_computed():
    large = call("multiply", [N, Constant(2**62, pa.int64())])
    small = call("<", [N, Constant(2, pa.int64())])
    table = pa.table({"n": [1, 5, None]})
    with pytest.raises(ComputedOverflowError, match="multiply"):
        compute(large, table)
    chosen = call("case", [small, large, Constant(-1, pa.int64())])
    assert compute(chosen, table).to_pylist() == [2**62, -1, -1]
    assert compute(chosen, table.slice(1)).to_pylist() == [-1, -1]
    with pytest.raises(NotComputedError):
        call("and", [small, call("=", [large, N])])  # Spark may not compute its right side
    wrapped = call("multiply", [N, Constant(2**62, pa.int64())], option="wrap")
    assert compute(wrapped, table).to_pylist() == [2**62, 2**62, None]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("divide", [X, Constant(0.0, pa.float64())]), ("divide", [X, X]), ("divide", [N, X]),
        ("remainder", [N, Constant(None, pa.int64())]), ("year", [N]), ("nonsense", [N]),
        ("floor", [D]), ("=", [N, X]), ("case", [N, N, N]),
    ],
)  # fmt: skip
def test_what_cannot_be_had_exactly_is_refused(function, arguments):
    with pytest.raises(NotComputedError):
        call(function, arguments)


def test_groups_of_structs_and_floats():
    table = pa.table({"n": [1, 5, 9, 1], "x": [0.0, -0.0, float("nan"), 0.0]})
    struct = Call("struct", (N, call("add", [N, N])), pa.struct({"a": pa.int64(), "b": pa.int64()}))
    count = Aggregate("count_rows", None)
    grouped = Aggregation((struct,), (count,))
    parts = [*grouped.partials([table]), *grouped.partials([table.slice(2)])]
    assert sorted((row["g0"]["b"], row["a0"]) for row in grouped.combine(parts).to_pylist()) == [
        (2, 3), (10, 1), (18, 2),
    ]  # fmt: skip
    zeros = Aggregation((call("add", [X, Constant(-0.0, pa.float64())]),), (count,))
    assert sorted(zeros.compute([table])["a0"].to_pylist()) == [1, 3]


def test_columns_are_found_and_renamed():
    value = call("add", [N, call("to_long", [ColumnValue("m", pa.int32())])])
    assert list(columns_of(value)) == ["n", "m"]
    assert list(columns_of(renamed(value, str.upper))) == ["N", "M"]
    assert str(value) == "add(n, to_long(m))"
