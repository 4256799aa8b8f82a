"""A literal in the column's type: the folded comparison means what the written one does."""

from __future__ import annotations

import datetime
import math
import operator
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import LiteralError, QueryError
from indextables.predicate import Column, Compare
from indextables.predicate.coercion import compare, is_in
from indextables.predicate.literals import parse_moment, time_zone
from indextables.split.row_filter import evaluate

A = Column(("a",))
NEVER, ALWAYS = "(a IS NULL AND NULL)", "(a IS NOT NULL OR NULL)"
utc = datetime.UTC
I8, I64, U8, F32, F64 = pa.int8(), pa.int64(), pa.uint8(), pa.float32(), pa.float64()
DEC = pa.decimal128(5, 2)
TS, NTZ, TS_S = pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.timestamp("s", tz="UTC")

CASES = [
    # integers
    (I64, "=", "5", "a = 5"),
    (I64, "=", " 5 ", "a = 5"),
    (I64, "=", "5.0", "a = 5"),
    (I64, "=", 5.0, "a = 5"),
    (I64, "=", Decimal("5.5"), NEVER),
    (I64, "=", "5.5", NEVER),
    (I64, "<>", Decimal("5.5"), ALWAYS),
    (I64, "<=>", Decimal("5.5"), "FALSE"),
    (I64, ">", Decimal("5.5"), "a >= 6"),
    (I64, ">=", Decimal("5.5"), "a >= 6"),
    (I64, "<", Decimal("5.5"), "a <= 5"),
    (I64, "<=", Decimal("-5.5"), "a <= -6"),
    (I8, "<", 128, ALWAYS),
    (I8, "<", -129, NEVER),
    (I8, ">", 128, NEVER),
    (I8, ">=", -129, ALWAYS),
    (I8, "=", 128, NEVER),
    (I8, "=", -129, NEVER),
    (I8, "<>", -129, ALWAYS),
    (I8, "<>", 128, ALWAYS),
    (I8, "<=>", 128, "FALSE"),
    (I8, "<", Decimal("127.5"), ALWAYS),
    (I8, "<=", 127, "a <= 127"),
    (U8, ">", -1, ALWAYS),
    (U8, "=", 255, "a = 255"),
    (I64, "<", math.nan, ALWAYS),
    (I64, ">", math.nan, NEVER),
    (I64, ">", -math.inf, ALWAYS),
    (I64, "=", math.inf, NEVER),
    # decimals
    (DEC, "=", 1, "a = 1.00"),
    (DEC, "=", "1.5", "a = 1.50"),
    (DEC, "=", 0.1, "a = 0.10"),
    (DEC, "=", Decimal("1.005"), NEVER),
    (DEC, ">", Decimal("1.005"), "a >= 1.01"),
    (DEC, "<", Decimal("-1.005"), "a <= -1.01"),
    (DEC, ">", Decimal("999.99"), "a > 999.99"),
    (DEC, ">", 1000, NEVER),
    (DEC, "<", Decimal("999.995"), ALWAYS),
    (DEC, ">", math.nan, NEVER),
    # floats
    (F64, "=", 1, "a = 1.0"),
    (F64, "=", Decimal("0.1"), "a = 0.1"),
    (F64, "=", "1e3", "a = 1000.0"),
    (F64, "=", "NaN", "a = 'NaN'"),
    (F64, "<", "Infinity", "a < 'Infinity'"),
    (F64, "=", -0.0, "a = 0.0"),
    (F64, ">", Decimal("1e400"), "a > 'Infinity'"),
    (F32, "=", Decimal("0.5"), "a = 0.5"),
    (F32, "=", Decimal("0.1"), NEVER),
    (F32, ">", Decimal("0.1"), "a >= 0.10000000149011612"),
    (F32, "<", Decimal("0.1"), "a <= 0.09999999403953552"),
    (F32, "<", 1e300, "a <= 3.4028234663852886e+38"),
    (F32, ">", 1e300, "a >= 'Infinity'"),
    (F32, "<", -1e300, "a <= '-Infinity'"),
    (F32, ">", 1e-60, "a >= 1.401298464324817e-45"),
    # booleans, text, bytes
    (pa.bool_(), "=", "TRUE", "a = TRUE"),
    (pa.bool_(), "=", "no", "a = FALSE"),
    (pa.string(), "=", "5", "a = '5'"),
    (pa.large_string(), "<", "x", "a < 'x'"),
    (pa.dictionary(pa.int8(), pa.string()), "=", "x", "a = 'x'"),
    (pa.binary(), "=", "é", "a = X'C3A9'"),
    (pa.binary(), "=", b"\0", "a = X'00'"),
    # dates and timestamps
    (pa.date32(), "=", "2024-1-5", "a = DATE '2024-01-05'"),
    (pa.date32(), "=", "2024-01-05 00:00:00", "a = DATE '2024-01-05'"),
    # Spark takes the day of a text alone, but not of a timestamp.
    (pa.date32(), "=", "2024-01-05 10:00:00", "a = DATE '2024-01-05'"),
    (pa.date32(), "<", "2024-01-05T23:00:00-05:00", "a < DATE '2024-01-05'"),
    (pa.date32(), "=", datetime.datetime(2024, 1, 5, 10), NEVER),
    (pa.date32(), ">", datetime.datetime(2024, 1, 5, 10), "a >= DATE '2024-01-06'"),
    (pa.date32(), ">", datetime.datetime(2024, 1, 5), "a > DATE '2024-01-05'"),
    (pa.date32(), "<", datetime.datetime(9999, 12, 31, 10), ALWAYS),
    (TS, "=", "2024-01-05", "a = TIMESTAMP '2024-01-05 00:00:00Z'"),
    (TS, "=", datetime.date(2024, 1, 5), "a = TIMESTAMP '2024-01-05 00:00:00Z'"),
    (TS, "=", "2024-01-05T10:00:00.5", "a = TIMESTAMP '2024-01-05 10:00:00.500000Z'"),
    (TS, "=", "2024-01-05 10:00:00 Europe/Berlin", "a = TIMESTAMP '2024-01-05 09:00:00Z'"),
    (NTZ, "=", "2024-01-05T10:00:00Z", "a = TIMESTAMP_NTZ '2024-01-05 10:00:00'"),
    (NTZ, "=", datetime.date(2024, 1, 5), "a = TIMESTAMP_NTZ '2024-01-05 00:00:00'"),
    (TS_S, "=", "2024-01-05T10:00:00.5Z", NEVER),
    (TS_S, ">", "2024-01-05T10:00:00.5Z", "a >= TIMESTAMP '2024-01-05 10:00:01Z'"),
    # nulls
    (I64, "=", None, "NULL"),
    (I64, "<=>", None, "a IS NULL"),
    (pa.null(), "=", 5, "NULL"),
    (pa.null(), "<=>", 5, "FALSE"),
]


@pytest.mark.parametrize(("kind", "op", "literal", "expected"), CASES)
def test_compare(kind, op, literal, expected):
    assert str(compare(op, A, kind, literal)) == expected


REFUSED = [
    (I64, "abc", "not a number"),
    (I64, "1_000", "not a number"),
    (I64, "", "not a number"),
    (I64, True, "a boolean is not a number"),
    (I64, datetime.date(2024, 1, 5), "write a number"),
    (pa.bool_(), 1, "TRUE or FALSE"),
    (pa.bool_(), "maybe", "TRUE or FALSE"),
    (pa.string(), 5, "in quotes"),
    (pa.binary(), 5, "bytes"),
    (pa.date32(), "yesterday", "neither a date"),
    (pa.date32(), "2024-02-30", "neither a date"),
    (pa.date32(), 19_000, "DATE"),
    (TS, "2024-01-05T10:00:00.1234567Z", "microseconds"),
    (TS, 5, "TIMESTAMP"),
    (pa.list_(I64), 5, "only IS NULL"),
    (pa.struct([("x", I64)]), "x", "only IS NULL"),
    (pa.time64("us"), "10:00", "only IS NULL"),
]


@pytest.mark.parametrize(("kind", "literal", "reason"), REFUSED)
def test_refused(kind, literal, reason):
    with pytest.raises(LiteralError, match=reason) as caught:
        compare("=", A, kind, literal)
    assert "column 'a' of type" in str(caught.value)


@pytest.mark.parametrize(
    ("literals", "expected"),
    [
        ([1, "2", Decimal("3.0")], "a IN (1, 2, 3)"),
        ([1, Decimal("1.5"), 999], "a = 1"),
        ([Decimal("1.5")], NEVER),
        ([1, None, 1], "a IN (1, NULL)"),
        ([None], "NULL"),
        ([Decimal("1.5"), None], "NULL"),
    ],
)
def test_in(literals, expected):
    assert str(is_in(A, I8, literals)) == expected


NUMBERS = st.sampled_from(
    [
        0,
        1,
        -1,
        127,
        128,
        -128,
        -129,
        2**53 + 1,
        10**30,
        0.5,
        -0.5,
        126.5,
        127.5,
        0.1,
        1e-60,
        1e39,
        Decimal("0.005"),
        Decimal("-0.005"),
        Decimal("999.99"),
        Decimal("999.995"),
        Decimal("0.1"),
    ]
)
COLUMN_VALUES = {
    I8: [-128, -1, 0, 1, 126, 127],
    DEC: [Decimal(v) for v in ("-999.99", "-0.01", "0.00", "0.01", "0.10", "999.99")],
    F32: [0.0, 0.10000000149011612, 0.09999999403953552, 0.5, 3.4028234663852886e38, 1.0, -1.0],
}
OPERATIONS = {
    "=": operator.eq,
    "<=>": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.mark.parametrize("kind", COLUMN_VALUES, ids=str)
@given(literal=NUMBERS, op=st.sampled_from(list(OPERATIONS)))
def test_folding_is_exact_arithmetic(kind, literal, op):
    values = COLUMN_VALUES[kind]
    table = pa.table({"a": pa.array([*values, None], kind)})
    # Beside a double, and in a column of floats, both sides are doubles.
    read = float if isinstance(literal, float) or kind == F32 else Fraction
    wanted = Fraction(read(literal))
    expected = [OPERATIONS[op](Fraction(read(Fraction(value))), wanted) for value in values]
    found = evaluate(compare(op, A, kind, literal), table).to_pylist()
    assert found == [*expected, False if op == "<=>" else None]


LARGE = [*(2**53 + n for n in range(-2, 6)), 2**63 - 1, 2**63 - 513, -(2**63), -(2**53) - 1, 0]
DOUBLES = [*map(float, LARGE), math.nextafter(2.0**53, 0), 2.0**64, -1e300, 5e-324, 0.1]
WIDE = pa.decimal128(38, 2)


@pytest.mark.parametrize("kind", [I64, WIDE], ids=str)
@pytest.mark.parametrize("op", OPERATIONS)
def test_doubles_are_compared_as_doubles(kind, op):
    """To Spark several whole numbers above 2**53 are equal to one double."""
    values = LARGE if kind == I64 else [Decimal(n) + Decimal("0.01") for n in LARGE]
    rows = pa.table({"a": pa.array([*values, None], kind)})
    for literal in DOUBLES:
        expected = [OPERATIONS[op](float(value), literal) for value in values]
        found = evaluate(compare(op, A, kind, literal), rows).to_pylist()
        assert found == [*expected, False if op == "<=>" else None], literal


@pytest.mark.parametrize("kind", [I64, WIDE], ids=str)
def test_lists_with_a_double_are_lists_of_doubles(kind):
    rows = pa.table({"a": pa.array([*LARGE, None]).cast(kind)})
    one = 2.0**53
    for literals in ([one, 0], [2**53 + 1, 0.5], [one, None], [-one, one, 0, None]):
        wanted = {float(n) for n in literals if n is not None}
        missed = None if None in literals else False
        expected = [True if float(n) in wanted else missed for n in LARGE]
        assert evaluate(is_in(A, kind, literals), rows).to_pylist() == [*expected, None], literals


def test_time_zones():
    berlin = compare("=", A, TS, "2024-03-31T02:30:00", timezone="Europe/Berlin")
    # The hour that does not exist is read as Java does, an hour later.
    assert isinstance(berlin, Compare)
    assert berlin.value == datetime.datetime(2024, 3, 31, 1, 30, tzinfo=utc)
    moment = datetime.datetime(2024, 1, 5, 10, tzinfo=utc)
    assert str(compare("=", A, NTZ, moment, timezone="+02:00")) == (
        "a = TIMESTAMP_NTZ '2024-01-05 12:00:00'"
    )
    # The zone of a text is passed over, as Spark does.
    assert str(compare("=", A, NTZ, "2024-01-05T10:00:00Z", timezone="+02:00")) == (
        "a = TIMESTAMP_NTZ '2024-01-05 10:00:00'"
    )
    with pytest.raises(QueryError, match="Unknown time zone 'Mars'"):
        time_zone("Mars")
    with pytest.raises(QueryError, match="Unknown time zone"):
        time_zone("../../etc/passwd")


@pytest.mark.parametrize("text", ["2024", "2024-06"])
def test_short_dates(text):
    assert parse_moment(text) == datetime.date(2024, int(text[5:] or 1), 1)


@pytest.mark.parametrize(
    "text", ["", "x", "24-01-01", "2024-01-01T", "2024-01-01T25:00", "2024/1/1"]
)
def test_no_moments(text):
    assert parse_moment(text) is None


def test_timestamps_beyond_the_calendar_are_microseconds():
    """The usual "valid to" ends in UTC's year 10000 when it is meant in Los Angeles."""
    moment = "9999-12-31 23:59:59"
    found = compare("<", Column(("at",)), TS, moment, timezone="America/Los_Angeles")
    assert found == Compare("<", Column(("at",)), 253_402_329_599_000_000)
    assert str(found) == "`at` < TIMESTAMP '10000-01-01 07:59:59.000000Z'"
    found = compare("=", Column(("at",)), TS, "0001-01-01", timezone="+09:00")
    assert found == Compare("=", Column(("at",)), -62_135_629_200_000_000)
    with pytest.raises(LiteralError, match="years 1 to 9999"):  # a coarser unit has other numbers
        compare("<", Column(("at",)), pa.timestamp("ms", "UTC"), moment, timezone="-08:00")
