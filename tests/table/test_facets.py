"""Counts of values and of parts of values, beside the same counts of the rows themselves."""

from __future__ import annotations

import collections
import datetime
import itertools
import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import (
    ConfigError,
    IntervalError,
    QueryError,
    SchemaError,
    TooManyValuesError,
    UnknownColumnError,
)
from indextables.plan import aggregation

UTC = datetime.UTC
WORDS = ["error", "timeout", "disk", "ok"]


def _rows(count: int, seed: int) -> pa.Table:
    pick = random.Random(seed)
    start = datetime.datetime(2024, 3, 30, tzinfo=UTC)
    return pa.table(
        {
            "body": [" ".join(pick.choices(WORDS, k=3)) for _ in range(count)],
            "level": [pick.choice(["warn", "info", None, "WARN"]) for _ in range(count)],
            "n": [pick.choice([None, *range(-30, 30)]) for _ in range(count)],
            "x": [pick.choice([0.0, -0.0, math.nan, 1.5, -2.5, None]) for _ in range(count)],
            "price": pa.array(
                [Decimal(pick.randrange(-500, 500)) / 100 for _ in range(count)],
                pa.decimal128(9, 2),
            ),
            "ts": pa.array(
                [
                    start + datetime.timedelta(seconds=pick.randrange(3 * 86_400))
                    for _ in range(count)
                ],
                pa.timestamp("us", "UTC"),
            ),
            "day": pa.array(
                [
                    datetime.date(2024, 2, 20) + datetime.timedelta(pick.randrange(30))
                    for _ in range(count)
                ]
            ),
        }
    )


@pytest.fixture(scope="module", params=["one split", "partitions", "renamed and marked"])
def table(request) -> Table:
    uri = f"memory://facets-{request.param.replace(' ', '-')}"
    if request.param == "one split":
        return Table.create(uri, data=_rows(400, 0))
    if request.param == "partitions":
        made = Table.create(uri, data=_rows(300, 1), partition_by=["level"])
        made.append(_rows(200, 2))
        return made
    names = ["lvl" if name == "level" else name for name in _rows(1, 3).column_names]
    made = Table.create(uri, _rows(1, 3).rename_columns(names).schema)
    made.rename_column("lvl", "level")
    for seed in range(3, 6):
        made.append(_rows(150, seed))
    made.delete(where="n = 7")
    return made


def _same(value: object) -> object:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


@pytest.mark.parametrize("by", ["level", "n", "x", "price", "day", ("level", "n")])
@pytest.mark.parametrize("query", [None, "error AND timeout"])
def test_facets_count_values(table, by, query):
    names = [by] if isinstance(by, str) else list(by)
    where = "n < 20 OR n IS NULL"
    found = table.facets(query, by=[by, "body"], top=None, where=where)
    searched = where if query is None else f"({where}) AND body indexquery '{query}'"
    rows = table.scan(where=searched, columns=names).to_pylist()
    expected = collections.Counter(tuple(_same(row[name]) for name in names) for row in rows)
    counted = found[",".join(names)].to_pylist()
    assert {tuple(_same(c[name]) for name in names): c["count"] for c in counted} == expected
    assert len(counted) == len(expected)
    numbers = [c["count"] for c in counted]
    assert numbers == sorted(numbers, reverse=True)
    top = table.facets(query, by=[by], top=2, where=where)[",".join(names)]
    assert list(map(repr, top.to_pylist())) == list(map(repr, counted[:2]))
    assert found["body"]["count"].to_pylist() == sorted(found["body"]["count"].to_pylist())[::-1]


@pytest.mark.parametrize(
    ("column", "interval", "start"),
    [
        ("n", 7, lambda v: v // 7 * 7),
        ("n", 0.5, Decimal),
        ("price", 0.25, lambda v: math.floor(v / Decimal("0.25")) * Decimal("0.25")),
        ("price", 1, lambda v: Decimal(math.floor(v))),
        ("x", 2, lambda v: None if math.isnan(v) else math.floor(v / 2) * 2.0),
        ("ts", "1h", lambda v: v.replace(minute=0, second=0)),
        (
            "ts",
            "90 minutes",
            lambda v: (
                v - (v - datetime.datetime(1970, 1, 1, tzinfo=UTC)) % datetime.timedelta(minutes=90)
            ),
        ),
        ("ts", "1 Day", lambda v: v.replace(hour=0, minute=0, second=0)),
        ("day", "1w", lambda v: v - datetime.timedelta(v.weekday())),
        ("day", "1M", lambda v: v.replace(day=1)),
        ("day", "3d", lambda v: v - datetime.timedelta((v - datetime.date(1970, 1, 1)).days % 3)),
    ],
)
def test_histograms_count_parts(table, column, interval, start):
    found = table.histogram("error", column=column, interval=interval)
    values = table.scan(where="body indexquery 'error'", columns=[column])[column].to_pylist()
    expected = collections.Counter(start(v) for v in values if v is not None)
    del expected[None]
    counted = {row[column]: row["count"] for row in found.to_pylist() if row["count"]}
    assert counted == expected
    starts = found[column].to_pylist()
    assert starts == sorted(set(starts))
    # Every part between the first and the last is there.
    assert [start(v) for v in starts] == starts
    width = min(b - a for a, b in itertools.pairwise(starts))
    assert max(b - a for a, b in itertools.pairwise(starts)) < width * 2


def test_nothing_found_is_an_empty_histogram(table):
    found = table.histogram("nothing", column="n", interval=10)
    assert found.to_pydict() == {"n": [], "count": []}
    assert table.facets("nothing", by=["level"])["level"].num_rows == 0


def test_clocks_that_change(tmp_path):
    """The hour that is there twice is two hours; the day with it has 25."""
    zone = "Europe/Berlin"
    first = datetime.datetime(2024, 10, 26, 22, tzinfo=UTC)  # midnight there
    times = [first + datetime.timedelta(minutes=30 * i) for i in range(60)]
    rows = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC"))})
    table = Table.create(str(tmp_path / "t"), data=rows)
    hours = table.histogram(column="ts", interval="1h", timezone=zone)
    assert hours["count"].to_pylist() == [2] * 30
    days = table.histogram(column="ts", interval="1d", timezone=zone)
    assert days["count"].to_pylist() == [50, 10]


@pytest.mark.parametrize(
    ("error", "names", "call"),
    [
        (IntervalError, "1h", lambda t: t.histogram(column="ts", interval="1 fortnight")),
        (IntervalError, "1h", lambda t: t.histogram(column="ts", interval=5)),
        (IntervalError, "days", lambda t: t.histogram(column="ts", interval="2 months")),
        (IntervalError, "greater than 0", lambda t: t.histogram(column="ts", interval="0h")),
        (IntervalError, "hours", lambda t: t.histogram(column="day", interval="1h")),
        (IntervalError, "width", lambda t: t.histogram(column="n", interval="1h")),
        (IntervalError, "greater than 0", lambda t: t.histogram(column="n", interval=-1)),
        (IntervalError, "greater than 0", lambda t: t.histogram(column="n", interval=math.nan)),
        (IntervalError, "neither", lambda t: t.histogram(column="body", interval=1)),
        (TooManyValuesError, "10,000", lambda t: t.histogram(column="ts", interval="1s")),
        (UnknownColumnError, "nope", lambda t: t.histogram(column="nope", interval=1)),
        (UnknownColumnError, "nope", lambda t: t.facets(by=["nope"])),
        (
            QueryError,
            "Unknown time zone 'Mars/X'",
            lambda t: t.histogram(column="ts", interval="1h", timezone="Mars/X"),
        ),
        (IntervalError, "18 digits", lambda t: t.histogram(column="n", interval=1e-19)),
        (ConfigError, "by=", lambda t: t.facets(by="level")),
        (ConfigError, "different", lambda t: t.facets(by=[("level", "level")])),
        (ConfigError, "by=", lambda t: t.facets(by=[])),
        (ConfigError, "both 'n,level'", lambda t: t.facets(by=["n,level", ("n", "level")])),
    ],
)
def test_mistakes_are_sentences(table, error, names, call):
    with pytest.raises(error, match=names):
        call(table)


def test_too_many_values_are_refused(table, monkeypatch):
    monkeypatch.setattr(aggregation, "MOST_GROUPS", 10)
    with pytest.raises(TooManyValuesError, match="'ts' has more than 10 different values"):
        table.facets(by=["level", "ts"])


def test_columns_that_are_called_as_counts_are():
    rows = pa.table({"count": [1, 1, 2], "_count": [7, 7, 7]})
    table = Table.create("memory://facets-of-count", data=rows)
    found = table.facets(by=["count", ("_count", "count")])
    assert found["count"].to_pydict() == {"count": [1, 2], "_count": [2, 1]}
    assert found["_count,count"].column_names == ["_count", "count", "__count"]
    parts = table.histogram(column="count", interval=1)
    assert parts.to_pydict() == {"count": [1, 2], "_count": [2, 1]}


def test_hidden_columns_are_counted_too():
    table = Table.create("memory://facets-of-splits", data=pa.table({"n": [1, 2]}))
    table.append(pa.table({"n": [3]}))
    assert table.facets("n:*", by=["_split"])["_split"]["count"].to_pylist() == [2, 1]
    assert table.histogram(column="_row", interval=1)["count"].to_pylist() == [2, 1]


def test_lists_are_not_counted():
    table = Table.create("memory://facet-lists", data=pa.table({"a": [["x"], ["y"]]}))
    with pytest.raises(SchemaError, match="'a'"):
        table.facets(by=["a"])


def test_numbers_and_times_at_their_ends():
    """Nothing wraps around, and years that Python does not have are counted."""
    most, least = 2**63 - 1, -(2**63)
    times = [0, 253_402_300_799_000_000, 9_000_000_000_000_000_000, -9_000_000_000_000_000_000]
    data = pa.table({"n": [most, least, 0, -1], "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    table = Table.create("memory://facet-ends", data=data)
    wide = table.histogram(column="n", interval=2**61, where="n > -5")
    assert wide.to_pydict()["n"] == [i * 2**61 for i in range(-1, 4)]
    assert wide["count"].to_pylist() == [1, 1, 0, 0, 1]
    # The least number begins a part of a power of two, and of ten it would begin below all numbers.
    low = table.histogram(column="n", interval=2**61, where="n < -5")
    assert low.to_pydict() == {"n": [least], "count": [1]}
    with pytest.raises(IntervalError, match="18 digits"):
        table.histogram(column="n", interval=10, where="n < -5")
    prices = Table.create("memory://facet-wide", data=pa.table({"p": [Decimal("1.5000000001")]}))
    with pytest.raises(IntervalError, match="18 digits"):
        prices.histogram(column="p", interval=10**18)
    for number in (most, least, 0, -1):
        for zone in ("UTC", "Europe/Berlin", "Z", "+05:30"):
            where = f"n = {number}" if number != least else "n < -5"
            years = table.histogram(column="ts", interval="1y", where=where, timezone=zone)
            assert years["count"].to_pylist() == [1]


def test_offsets_and_regions_are_zones():
    times = pa.array([datetime.datetime(2024, 7, 1, 22, 30, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    table = Table.create("memory://facet-zones", data=pa.table({"ts": times}))
    for zone, hour in {"Z": 0, "GMT": 0, "+05:30": 18, "-8": 8, "Europe/Berlin": 22}.items():
        (day,) = table.histogram(column="ts", interval="1d", timezone=zone)["ts"].to_pylist()
        assert (day.hour, zone) == (hour, zone)
