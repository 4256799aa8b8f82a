"""Skipping leaves no matching row behind, and does leave files out where it can."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_predicates import COLUMNS, SCHEMA, predicates, rows

from examples import examples
from indextables.log.checkpoint.state_schema import PartitionBounds
from indextables.plan.skipping import (
    FileStatistics,
    bounds_may_match,
    judge,
    keep_mask,
    partition_only,
)
from indextables.plan.statistics import decode
from indextables.predicate import Column, IsNull, Not, Search, Term
from indextables.predicate.sql_text import parse_predicate
from indextables.split.row_filter import evaluate

TEXT_MAP = pa.map_(pa.string(), pa.string())
FILES = pa.schema(
    [
        ("path", pa.string()),
        ("partitionValues", TEXT_MAP),
        ("minValues", TEXT_MAP),
        ("maxValues", TEXT_MAP),
        ("numRecords", pa.int64()),
        ("stats", pa.string()),
    ]
)
EPOCH = datetime.datetime(1970, 1, 1)


def files(*entries: dict[str, Any]) -> pa.Table:
    """Log entries as the snapshot's table."""
    found = []
    for number, entry in enumerate(entries):
        maps = {
            name: None if entry.get(name) is None else list(entry[name].items())
            for name in ("partitionValues", "minValues", "maxValues")
        }
        stats = entry.get("stats")
        found.append(
            {
                "path": f"{number}.split",
                "numRecords": entry.get("numRecords"),
                "stats": None if stats is None else orjson.dumps(stats).decode(),
                **maps,
            }
        )
    return pa.Table.from_pylist(found, schema=FILES)


# --- random files ----------------------------------------------------------------------------

TRUNCATED = 3
PARTITIONED = ["i", "f", "s", "b", "d", "t", "u", "m"]


def spell(value: Any, style: int) -> str:
    """A value as one of the writers of the log spells it."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return str(value) if math.isfinite(value) else str(value).replace("inf", "Infinity")
        case datetime.datetime():
            naive = value.replace(tzinfo=None)
            zone = "" if value.tzinfo is None else "Z"
            micros = str((naive - EPOCH) // datetime.timedelta(microseconds=1))
            return [naive.isoformat() + zone, micros, naive.isoformat(sep=" ") + zone][style]
        case datetime.date():
            days = str((value - EPOCH.date()).days)
            return [value.isoformat(), days, f"{value.isoformat()}T00:00:00"][style]
        case Decimal():
            return format(value, "f")
        case _:
            return str(value)


def is_ambiguous(column: str, text: str) -> bool:
    """Whether a partition value could mean something else, so that it decides nothing.

    A text could be the mark of null itself, four digits a year, and a short number of microseconds
    the days of a column that once was a date.
    """
    if column in "tu":
        return re.fullmatch(r"-?\d{1,8}", text) is not None
    if column == "d":
        return re.fullmatch(r"-?\d{3,4}", text) is not None
    return text == "__HIVE_DEFAULT_PARTITION__"


def utf16(value: Any) -> Any:
    return value.encode("utf-16-be") if isinstance(value, str) else value


@st.composite
def written(draw: st.DrawFn) -> tuple[list[str], list[pa.Table], pa.Table]:
    """Some files: their partition columns, their rows, and what the log says of them."""
    partition_columns = draw(st.lists(st.sampled_from(PARTITIONED), max_size=2, unique=True))
    tables, entries = [], []
    for table in draw(st.lists(rows(max_size=4), min_size=1, max_size=3)):
        style = draw(st.integers(0, 2))
        order = draw(st.sampled_from([lambda value: value, utf16]))
        partition_values: dict[str, str] = {}
        for name in partition_columns:
            index = SCHEMA.get_field_index(name)
            value = table.column(name)[0].as_py() if table.num_rows else None
            constant = pa.array([value] * table.num_rows, SCHEMA.field(name).type)
            table = table.set_column(index, SCHEMA.field(name), constant)  # noqa: PLW2901
            if value is not None:
                partition_values[name] = spell(value, style)
            elif draw(st.booleans()):
                partition_values[name] = "__HIVE_DEFAULT_PARTITION__"
        low, high, nulls, nans = {}, {}, {}, {}
        for field in SCHEMA:
            if field.name in (*partition_columns, "st", "x") or draw(st.integers(0, 5)) == 0:
                continue
            values = table.column(field.name).to_pylist()
            known = [v for v in values if v is not None]
            numbers = [v for v in known if not (isinstance(v, float) and math.isnan(v))]
            if numbers:
                low[field.name] = spell(min(numbers, key=order), style)
                high[field.name] = spell(max(numbers, key=order), style)
                if pa.types.is_string(field.type):
                    low[field.name] = low[field.name][:TRUNCATED]
                    high[field.name] = high[field.name][:TRUNCATED]
            nulls[field.name] = len(values) - len(known)
            if len(known) > len(numbers):
                nans[field.name] = len(known) - len(numbers)
        stats = draw(
            st.sampled_from([None, {}, {"nullCount": nulls, "nanCount": nans}, {"nullCount": 5}])
        )
        tables.append(table)
        entries.append(
            {
                "partitionValues": partition_values,
                "minValues": draw(st.sampled_from([low, low, None])),
                "maxValues": draw(st.sampled_from([high, high, None])),
                "numRecords": draw(st.sampled_from([table.num_rows, None])),
                "stats": stats,
            }
        )
    return partition_columns, tables, files(*entries)


@examples(150, 10_000)
@given(written=written(), predicate=predicates())
def test_no_matching_row_is_left_behind(written, predicate):
    partition_columns, tables, log = written
    arguments = {
        "schema": SCHEMA,
        "partition_columns": partition_columns,
        "truncation_length": TRUNCATED,
    }
    keep = keep_mask(predicate, log, **arguments)
    verdict = judge(predicate, log, **arguments)
    for number, table in enumerate(tables):
        answers = evaluate(predicate, table).to_pylist()
        assert keep[number] or True not in answers
        assert verdict.keep[number] or True not in answers
        assert not verdict.all_match[number] or all(answers)
        if partition_only(predicate, partition_columns) and answers:
            partition_values = dict(log.column("partitionValues")[number].as_py())
            is_exact = not any(is_ambiguous(*item) for item in partition_values.items())
            assert not is_exact or bool(keep[number]) == (True in answers)
            assert not is_exact or bool(verdict.all_match[number]) == all(answers)


@examples(60, 5_000)
@given(written=written(), asked=st.lists(predicates(), min_size=2, max_size=4))
def test_statistics_that_are_kept_answer_as_those_that_are_read_again(written, asked):
    partition_columns, _, log = written
    arguments = {"schema": SCHEMA, "partition_columns": partition_columns}
    kept = FileStatistics(log, SCHEMA, frozenset(partition_columns))
    for predicate in (*asked, *asked):
        assert kept.keep(predicate).tolist() == keep_mask(predicate, log, **arguments).tolist()
        for mine, again in zip(
            kept.judge(predicate), judge(predicate, log, **arguments), strict=True
        ):
            assert mine.tolist() == again.tolist()


@examples(80, 5_000)
@given(written=written(), predicate=predicates())
def test_bounds_of_a_manifest_leave_no_file_behind(written, predicate):
    partition_columns, tables, _ = written
    bounds: dict[str, PartitionBounds] = {}
    for name in partition_columns:
        values = [t.column(name)[0].as_py() for t in tables if t.num_rows]
        numbers = [v for v in values if v is not None and not (isinstance(v, float) and v != v)]
        if numbers:
            bounds[name] = PartitionBounds(spell(min(numbers), 0), spell(max(numbers), 0))
    may_match = bounds_may_match(
        predicate, bounds, schema=SCHEMA, partition_columns=partition_columns
    )
    assert may_match or not any(True in evaluate(predicate, t).to_pylist() for t in tables)


# --- what is left out ------------------------------------------------------------------------

KINDS = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("m", pa.decimal128(10, 2)),
        ("b", pa.bool_()),
        ("x", pa.binary()),
        ("st", pa.struct([("k", pa.int64())])),
        ("p", pa.string()),
        ("day", pa.date32()),
    ]
)
LONG = "a" * 32


def bounds(low: Any, high: Any, name: str, **more: Any) -> dict[str, Any]:
    return {"minValues": {name: low}, "maxValues": {name: high}, "numRecords": 10, **more}


NO_NULLS: dict[str, Any] = {"stats": {"nullCount": {"f": 0, "n": 0}}}
DECIDED = [
    # integers are numbers, not text
    (bounds("9", "10", "n"), "n = 9", True),
    (bounds("9", "10", "n"), "n = 11", False),
    (bounds("9", "10", "n"), "n > 10", False),
    (bounds("9", "10", "n"), "n >= 10", True),
    (bounds("9", "10", "n"), "n < 9", False),
    (bounds("9", "10", "n"), "n IN (1, 2)", False),
    (bounds("9", "10", "n"), "n IN (1, 10)", True),
    (bounds("9", "10", "n"), "n BETWEEN 11 AND 12", False),
    (bounds("9", "9", "n"), "n <> 9", False),
    (bounds("9", "9", "n"), "NOT (n = 9)", False),
    (bounds("9", "10", "n"), "NOT (n = 9)", True),
    (bounds("9", "10", "n"), "NOT (n <= 10)", False),
    (bounds("9", "10", "n"), "n = 11 OR n = 9", True),
    (bounds("9", "10", "n"), "n = 9 AND n = 11", False),
    (bounds("9", "10", "n"), "n <=> 11", False),
    (bounds("9", "10", "n"), "NOT (n <=> 9)", True),
    (bounds("9", None, "n"), "n < 9", False),
    (bounds(None, "10", "n"), "n > 10", False),
    (bounds("x", "10", "n"), "n < 9", True),
    (bounds("10", "9", "n"), "n = 50", True),
    ({}, "n = 50", True),
    # text is text, also when it looks like numbers
    (bounds("10", "9", "s"), "s = '9'", True),
    (bounds("10", "9", "s"), "s = '95'", False),
    (bounds("b", "d", "s"), "s LIKE 'c%'", True),
    (bounds("b", "d", "s"), "s LIKE 'e%'", False),
    (bounds("b", "d", "s"), "s LIKE 'a%z'", False),
    (bounds("b", "d", "s"), "s LIKE '%a'", True),
    (bounds("ba", "bz", "s"), "s NOT LIKE 'b%'", False),
    (bounds("ba", "bz", "s"), "s NOT LIKE 'ba%'", True),
    # a long maximum may be cut
    (bounds("a", LONG, "s"), f"s = '{LONG}b'", True),
    (bounds("a", LONG, "s"), f"s > '{LONG}b'", True),
    (bounds("a", LONG, "s"), f"s LIKE '{LONG}b%'", True),
    (bounds("a", LONG, "s"), "s = 'b'", False),
    (bounds("a", LONG[1:], "s"), f"s = '{LONG}'", False),
    (bounds(LONG, LONG, "s"), f"s <> '{LONG}'", True),
    # orders of text disagree from U+E000 on
    (bounds("a", "\uff21", "s"), "s = '😀'", True),
    (bounds("a", "b", "s"), "s = '😀'", True),
    (bounds("a", "é", "s"), "s = 'z'", True),
    (bounds("a", "b", "s"), "s = 'é'", False),
    # NaN is not in the bounds and greater than all
    (bounds("1.0", "2.0", "f"), "f > 5", True),
    (bounds("1.0", "2.0", "f"), "f = 'NaN'", True),
    (bounds("1.0", "2.0", "f"), "f < 1", False),
    (bounds("1.0", "2.0", "f", **NO_NULLS), "f > 5", False),
    (bounds("1.0", "2.0", "f", **NO_NULLS), "f = 'NaN'", False),
    (bounds("1.0", "2.0", "f", **NO_NULLS), "f > 1.5", True),
    (bounds("1.0", "2.0", "f", stats={"nullCount": {"f": 0}, "nanCount": {"f": 1}}), "f > 5", True),
    (bounds("NaN", "NaN", "f", **NO_NULLS), "f > 5", True),
    (bounds("0.1", "0.1", "g", stats={"nullCount": {"g": 0}}), "g > 0.1", True),
    # every spelling of dates and timestamps
    (bounds("2024-01-01", "2024-01-31", "d"), "d = '2024-02-01'", False),
    (bounds("19723", "19753", "d"), "d = '2024-01-31'", True),
    (bounds("19723", "19753", "d"), "d = '2024-02-01'", False),
    (bounds("2024-01-01T00:00:00Z", "2024-01-02 00:00:00.0", "d"), "d > '2024-01-02'", False),
    (bounds("2024", "2024", "d"), "d = '1999-01-01'", True),
    (bounds("1704067200000000", "1704067200000001", "ts"), "ts > '2024-01-02'", False),
    (bounds("1704067200000000", "1704067200000001", "ts"), "ts >= '2024-01-01'", True),
    (bounds("2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5Z", "ts"), "ts > '2024-01-02'", False),
    (bounds("2024-01-01T00:00:00", "2024-01-01T00:00:00", "ts"), "ts > '2024-01-02'", True),
    (bounds("19723", "19753", "ts"), "ts > '2024-01-02'", True),
    # others
    (bounds("1.5", "2", "m"), "m > 2", False),
    (bounds("1.5", "2.005", "m"), "m > 2", True),
    (bounds("false", "false", "b"), "b", False),
    (bounds("false", "true", "b"), "b", True),
    (bounds("a", "b", "x"), "x = 'z'", True),
    (bounds("1", "2", "st.k"), "st.k = 5", True),
    (bounds("1", "2", "k"), "st.k = 5", True),
    # nulls
    (bounds("1", "2", "n", **NO_NULLS), "n IS NULL", False),
    (bounds("1", "2", "n"), "n IS NULL", True),
    (bounds("1", "2", "n", stats={"nullCount": {"n": 3}}), "n IS NULL", True),
    ({"numRecords": 10, "stats": {"nullCount": {"n": 10}}}, "n IS NOT NULL", False),
    ({"numRecords": 10, "stats": {"nullCount": {"n": 10}}}, "n = 5", False),
    ({"numRecords": 10, "stats": {"nullCount": {"n": 10}}}, "n <> 5", False),
    ({"numRecords": 10, "stats": {"nullCount": {"n": 10}}}, "n <=> 5", False),
    ({"numRecords": 10, "stats": {"nullCount": {"n": 9}}}, "n = 5", True),
    ({"numRecords": None, "stats": {"nullCount": {"n": 10}}}, "n = 5", True),
    ({"numRecords": 10, "stats": {"nullCount": {"st": 10}}}, "st IS NOT NULL", False),
    # searches and constants
    (bounds("1", "2", "n"), "s indexquery 'x'", True),
    (bounds("1", "2", "n"), "NOT s indexquery 'x'", True),
    (bounds("1", "2", "n"), "s indexquery 'x' AND n = 5", False),
    (bounds("1", "2", "n"), "s indexquery 'x' OR n = 5", True),
    ({}, "TRUE", True),
    ({}, "FALSE", False),
    ({}, "NULL", False),
    ({}, "NOT NULL", False),
    ({}, "NULL OR n = 1", True),
    # partitions
    ({"partitionValues": {"p": "10"}}, "p = '10'", True),
    ({"partitionValues": {"p": "10"}}, "p > '9'", False),
    ({"partitionValues": {"p": "a/b=c"}}, "p <> 'a/b=c'", False),
    ({"partitionValues": {"p": "ab"}}, "p LIKE '_b'", True),
    ({"partitionValues": {"p": "ab"}}, "p LIKE '%c'", False),
    ({"partitionValues": {}}, "p IS NULL", True),
    ({"partitionValues": None}, "p IS NOT NULL", False),
    ({"partitionValues": {}}, "p = 'a'", False),
    ({"partitionValues": {}}, "p <> 'a'", False),
    ({"partitionValues": {"day": "__HIVE_DEFAULT_PARTITION__"}}, "day IS NOT NULL", False),
    ({"partitionValues": {"p": "__HIVE_DEFAULT_PARTITION__"}}, "p IS NULL", True),
    ({"partitionValues": {"day": "2024-01-15"}}, "day = '2024-01-15'", True),
    ({"partitionValues": {"day": "19737"}}, "day = '2024-01-15'", True),
    ({"partitionValues": {"day": "19737"}}, "day > '2024-01-15'", False),
    ({"partitionValues": {"day": "2024-01-15T00:00:00.000Z"}}, "day <> '2024-01-15'", False),
    ({"partitionValues": {"day": "soon"}}, "day = '2024-01-15'", True),
    ({"partitionValues": {"day": "soon"}}, "NOT (day = '2024-01-15')", True),
    ({"partitionValues": {"p": "a"}, "minValues": {"n": "5"}}, "p = 'b' OR n = 4", False),
    ({"partitionValues": {"p": "a"}, "minValues": {"n": "5"}}, "p = 'a' AND NOT (n > 5)", True),
    ({"partitionValues": {"p": "a"}, "minValues": {"n": "5"}}, "NOT (p = 'a' OR n = 4)", False),
]


@pytest.mark.parametrize(("entry", "where", "kept"), DECIDED)
def test_decided(entry, where, kept):
    predicate = parse_predicate(where, KINDS)
    arguments: dict[str, Any] = {"schema": KINDS, "partition_columns": ["p", "day"]}
    log = files(entry)
    assert keep_mask(predicate, log, **arguments).tolist() == [kept]
    assert judge(predicate, log, **arguments).keep.tolist() == [kept]
    # Another file beside it changes nothing.
    beside = files({"minValues": {"n": "zz"}, "partitionValues": {"day": "x"}}, entry)
    assert keep_mask(predicate, beside, **arguments).tolist()[1] == kept


WHOLE = [
    ({"partitionValues": {"p": "a"}}, "p = 'a'", True),
    ({"partitionValues": {"p": "a"}}, "p IN ('a', 'b')", True),
    ({"partitionValues": {}}, "p <> 'a'", False),
    ({"partitionValues": {}}, "NOT (p <=> 'a')", True),
    ({"partitionValues": {"day": "soon"}}, "day IS NOT NULL", False),
    (bounds("1", "2", "n"), "n < 5", False),
    (bounds("1", "2", "n", **NO_NULLS), "n < 5", True),
    (bounds("1", "2", "n", **NO_NULLS), "n < 2", False),
    (bounds("1", "2", "n", **NO_NULLS), "n IS NOT NULL", True),
    (bounds("1", "2", "n", **NO_NULLS), "n IS NOT NULL AND s indexquery 'x'", False),
    ({}, "TRUE", True),
    ({}, "NULL", False),
]


@pytest.mark.parametrize(("entry", "where", "whole"), WHOLE)
def test_files_whose_rows_all_match(entry, where, whole):
    predicate = parse_predicate(where, KINDS)
    verdict = judge(predicate, files(entry), schema=KINDS, partition_columns=["p", "day"])
    assert verdict.all_match.tolist() == [whole]


def test_many_values_are_compared_as_one_range():
    log = files(bounds("1", "2", "n"), bounds("5000", "6000", "n"), {})
    predicate = parse_predicate(f"n IN ({', '.join(map(str, range(100, 900)))})", KINDS)
    keep = keep_mask(predicate, log, schema=KINDS, partition_columns=[])
    assert keep.tolist() == [False, False, True]


def test_no_files_and_missing_columns():
    predicate = parse_predicate("n = 1 AND p = 'x' AND s IS NULL", KINDS)
    arguments: dict[str, Any] = {"schema": KINDS, "partition_columns": ["p"]}
    assert keep_mask(predicate, files(), **arguments).tolist() == []
    bare = pa.table({"path": ["a"], "partitionValues": pa.array([[("p", "x")]], TEXT_MAP)})
    assert keep_mask(predicate, bare, **arguments).tolist() == [True]


def test_damaged_statistics_decide_nothing():
    log = files({"minValues": {"n": "1"}})
    broken = log.set_column(
        log.schema.get_field_index("stats"), "stats", pa.array(['{"nullCount": [}'])
    )
    predicate = parse_predicate("n IS NULL", KINDS)
    assert keep_mask(predicate, broken, schema=KINDS, partition_columns=[]).tolist() == [True]


BOUNDS = [
    ({"day": PartitionBounds("2024-01-01", "2024-01-31")}, "day = '2024-02-01'", False),
    ({"day": PartitionBounds("2024-01-01", "2024-01-31")}, "day = '2024-01-31'", True),
    ({"day": PartitionBounds("2024-01-01", "2024-01-31")}, "day IS NULL", True),
    ({"day": PartitionBounds("2024-01-01", "2024-01-31")}, "NOT (day < '2024-02-01')", False),
    ({"p": PartitionBounds("9", "10")}, "p = '95'", True),
    ({"p": PartitionBounds("a", "c")}, "p = 'd'", False),
    ({"p": PartitionBounds("a", "c")}, "p = 'd' OR n = 1", True),
    ({"p": PartitionBounds("a", None)}, "p = 'd'", True),
    ({"p": None}, "p = 'd'", True),
    ({}, "p = 'd'", True),
    (None, "p = 'd'", True),
]


@pytest.mark.parametrize(("bounds", "where", "kept"), BOUNDS)
def test_bounds_of_a_manifest(bounds, where, kept):
    predicate = parse_predicate(where, KINDS)
    found = bounds_may_match(predicate, bounds, schema=KINDS, partition_columns=["p", "day"])
    assert found is kept


def test_partition_only():
    day = IsNull(Column(("day",)))
    assert partition_only(Not(day), ["day", "p"])
    assert not partition_only(day, ["p"])
    assert not partition_only(Search(None, Term(None, "x"), "x"), ["p"])
    assert not partition_only(IsNull(Column(("p", "x"))), ["p"])
    assert all(not partition_only(IsNull(column), []) for column in COLUMNS)


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        (pa.int32(), ["7", " 8", "+9", "1.0", "1.5", "99999999999999999999", None], [7, 8, 9, 1]),
        (pa.float64(), ["1.5", "NaN", "1.0E10", "x"], [1.5, math.nan, 1e10]),
        (pa.bool_(), ["true", "FALSE", "maybe"], [True, False]),
        (pa.decimal128(5, 2), ["1.5", "1E+2", "1.005"], [Decimal("1.50"), Decimal("100.00")]),
        (pa.date32(), ["2024-01-15", "19737", "99999999999"], [datetime.date(2024, 1, 15)] * 2),
        (pa.uint64(), ["1"], []),
        (pa.binary(), ["1"], []),
    ],
    ids=str,
)
def test_decode(kind, texts, expected):
    found = decode(pa.array(texts, pa.string()), kind)
    known = [v for v in found.values.to_pylist() if v is not None]
    assert str(known) == str(expected)
    assert found.is_known.tolist() == [v is not None for v in found.values.to_pylist()]


def test_decimals_of_38_digits_are_read_exactly():
    digits = "9" * 28 + "." + "8" * 10
    # A text in another spelling makes all of them be read one by one.
    found = decode(pa.array([digits, f" {digits}", "x"]), pa.decimal128(38, 10))
    assert found.values.to_pylist() == [Decimal(digits), Decimal(digits), None]


SEPARATING = [
    ([("1", "2"), ("3", "4"), ("5", "6")], "n", True),
    ([("1", "9"), ("1", "8"), ("2", "9")], "n", False),
    ([("9", "10"), ("100", "200")], "n", True),  # as text the first one would begin last
    ([("1", "3"), ("3", "5")], "n", False),
    ([("1", "2"), ("3", "4"), ("5", None), (None, "6")], "n", False),
    ([("1", "2"), ("3", "4"), ("5", "6"), (None, None)], "n", True),
    ([("a", "b"), ("c", "d")], "s", True),
    ([("a", "c"), ("b", "d")], "s", False),
    ([("1.25", "2.5"), ("-3", "1.2")], "f", True),
    ([("1", "2")], "n", False),
    ([], "n", False),
    ([(None, None), (None, None)], "n", False),
]


@pytest.mark.parametrize(("ranges", "name", "separates"), SEPARATING)
def test_columns_whose_values_tell_files_apart(ranges, name, separates):
    entries = [
        {
            "minValues": {} if low is None else {name: low},
            "maxValues": {} if high is None else {name: high},
        }
        for low, high in ranges
    ]
    assert FileStatistics(files(*entries), KINDS, frozenset()).separates(name) is separates


@pytest.mark.parametrize(("values", "separates"), [("ab", True), ("aa", False), ("", False)])
def test_partition_values_tell_files_apart_where_they_differ(values, separates):
    log = files(*({"partitionValues": {"p": value}} for value in values))
    assert FileStatistics(log, KINDS, frozenset(["p"])).separates("p") is separates


def test_ranges_are_not_kept_without_end(monkeypatch):
    monkeypatch.setattr("indextables.plan.skipping._MOST_KEPT", 4)
    statistics = FileStatistics(files(bounds("1", "2", "n"), {}), KINDS, frozenset())
    for where in ("n = 1", "s = 'a'", "f = 2", "n = 1"):
        statistics.keep(parse_predicate(where, KINDS))
        assert len(statistics.ranges) <= 2
        assert len(statistics.answers) <= 2
