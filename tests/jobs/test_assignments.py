"""Expressions of UPDATE … SET: computed as Spark does in ANSI mode, or refused."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from indextables.errors import ExpressionError
from indextables.jobs.assignments import parse_assignments

SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        pa.field("k", pa.int64(), nullable=False),
        ("s", pa.string()),
        ("x", pa.float64()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("l", pa.timestamp("us")),
        ("c", pa.decimal128(10, 2)),
        ("b", pa.bool_()),
        ("st", pa.struct([("a", pa.int64())])),
    ]
)
DAY = datetime.date(2024, 1, 1)
ROWS = pa.table(
    {
        "n": [1, None],
        "k": [3, -4],
        "s": [" a'b ", None],
        "x": [1.5, 2.0],
        "d": [DAY, DAY],
        "t": [datetime.datetime(2024, 1, 1)] * 2,
        "l": [datetime.datetime(2024, 1, 1)] * 2,
        "c": [Decimal("1.00"), Decimal("2.50")],
        "b": [True, None],
        "st": [{"a": 1}, None],
    },
    schema=SCHEMA,
)


def computed(text, **options):
    change = parse_assignments(text, SCHEMA, **options)
    found = change.apply(ROWS)
    assert found.schema == ROWS.schema
    return {name: found[name].to_pylist() for name in change.expressions}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n = n + 1, k = k * 2", {"n": [2, None], "k": [6, -8]}),
        ("n = k, k = n + 5", None),  # null into a column that takes none
        ("N = 7", {"n": [7, 7]}),
        ("k = k % 3", {"k": [0, -1]}),
        ("k = -k", {"k": [-3, 4]}),
        ("k = -(k - 1)", {"k": [-2, 5]}),
        ("x = k / 2", {"x": [1.5, -2.0]}),
        ("x = x * 2.0", {"x": [3.0, 4.0]}),
        ("x = k / 2.5D", {"x": [1.2, -1.6]}),
        ("x = c / 3", {"x": [0.333333, 0.833333]}),
        ("x = 0.3", {"x": [0.3, 0.3]}),
        ("x = x * 0.3", {"x": [1.5 * 0.3, 2.0 * 0.3]}),
        ("x = -23917162700.1", {"x": [-23917162700.1] * 2}),
        ("s = upper('straße')", {"s": ["STRASSE"] * 2}),
        ("s = lower('ΟΔΟΣ İ')", {"s": ["οδος i\u0307"] * 2}),
        ("s = upper(concat(s, 'ß'))", {"s": [" A'B SS", None]}),
        ("x = n", {"x": [1.0, None]}),
        ("c = c + 1.25", {"c": [Decimal("2.25"), Decimal("3.75")]}),
        ("c = 2", {"c": [Decimal("2.00")] * 2}),
        ("s = NULL", {"s": [None, None]}),
        (r"s = 'it\'s'", {"s": ["it's"] * 2}),
        ("s = trim(s) || '!'", {"s": ["a'b!", None]}),
        ("s = concat(upper(s), lower('X'))", {"s": [" A'B x", None]}),
        ("s = coalesce(s, 'none')", {"s": [" a'b ", "none"]}),
        ("x = coalesce(n, x, 0)", {"x": [1.0, 2.0]}),
        ("s = k", {"s": ["3", "-4"]}),
        ("d = '2024-02-03'", {"d": [datetime.date(2024, 2, 3)] * 2}),
        ("d = DATE '2024-02-03'", {"d": [datetime.date(2024, 2, 3)] * 2}),
        ("l = '2024-02-03 04:05:06'", {"l": [datetime.datetime(2024, 2, 3, 4, 5, 6)] * 2}),
        ("b = false, st = NULL", {"b": [False, False], "st": [None, None]}),
        ({"n": "n * 3", "s": "'x'"}, {"n": [3, None], "s": ["x", "x"]}),
    ],
)
def test_computed(text, expected):
    if expected is None:
        with pytest.raises(ExpressionError, match="must not be null"):
            computed(text)
    else:
        assert computed(text) == expected


def test_all_expressions_see_the_old_values():
    swapped = computed("x = k, k = k + 1")
    assert swapped == {"x": [3.0, -4.0], "k": [4, -3]}


def test_times_are_meant_in_the_zone():
    found = computed("t = '2024-01-01 09:00:00'", timezone="Asia/Tokyo")["t"][0]
    assert found == datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("k = NULL", "'k' must not be null"),
        ("n = n / 0", "divides by zero"),
        ("n = n % 0", "divides by zero"),
        ("n = 99999999999", "does not fit 'n'"),
        ("k = k * 9223372036854775807", "overflow"),
        ("k = 123456789012345678901234567890", "too large|does not fit"),
        ("n = 1.5", "does not fit 'n'"),
        ("st.a = 1", "only whole columns"),
        ("zz = 1", "no column 'zz'"),
        ("n = zz", "no column 'zz'"),
        ("s = hash(s)", "The function HASH is not supported without Spark"),
        ("n = (SELECT 1)", "it must be about one row"),
        ("n = max(n)", "it must be about one row"),
        ("n = rand()", "another one for each row"),
        ("n = length(indexquery(s, 'a'))", "a search is a condition of its own"),
        ("n = length(zz)", "no column 'zz'"),
        ("n = CAST(s AS INT)", "Could not convert"),
        ("n = n > 3", "boolean cannot be stored in 'n'"),
        ("s = x", "double cannot be stored in 's'"),
        ("d = t", "timestamp cannot be stored in 'd'"),
        ("b = 1", "cannot be stored in 'b'"),
        ("n = s", "string cannot be stored in 'n'"),
        ("n = n + s", "arithmetic needs numbers"),
        ("s = upper(n)", "needs text"),
        ("s = coalesce(s, 1)", "different types"),
        ("x = x % 2", "% needs whole numbers"),
        ("d = 'nope'", "cannot be cast to DATE"),
        ("n", "SET takes assignments"),
        ("n = 1, n = 2", "twice"),
        ("n = 1 WHERE k = 1", "nothing else"),
        ("n = 1; DROP TABLE t", "nothing else"),
        ("n = 'never closed", "not SQL"),
        ("n = = 1", "not SQL"),
        ("n = n" + " + 1" * 3000, "nested too deep"),
        ("n = " + "(" * 3000 + "n" + ")" * 3000, "nested too deep"),
        ({"n": "1, k = 2"}, "one expression"),
        ("1 = n", "a column is expected here|not SQL"),
    ],
)
def test_refused(text, reason):
    with pytest.raises(ExpressionError, match=reason):
        computed(text)
