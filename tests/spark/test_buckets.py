"""Hours and days of time zones are cut where Spark's `date_trunc` and `window` cut them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from indextables.plan.buckets import buckets_of

_UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
_SWITCHES = {
    "Europe/Berlin": (1_711_846_800, 1_729_990_800),
    "America/Havana": (1_710_046_800, 1_730_610_000),  # at midnight
    "Australia/Lord_Howe": (1_712_415_600, 1_728_142_200),  # by half an hour
    "Pacific/Apia": (1_325_239_200,),  # a day that never was
    "Asia/Kolkata": (1_700_000_000,),
    "+05:45": (1_700_000_000,),
}


@pytest.mark.parametrize("zone", _SWITCHES, indirect=True)
def test_times_are_cut_as_spark_does(spark, zone):
    pick = random.Random(zone)
    micros = [
        (near + pick.randrange(-100_000, 100_000)) * 1_000_000 + pick.randrange(1_000_000)
        for near in _SWITCHES[zone]
        for _ in range(200)
    ]
    micros += [pick.randrange(-(10**15), 4 * 10**15) for _ in range(300)]
    rows = spark.createDataFrame([(m,) for m in micros], "m long")
    cut = [f"unix_micros(date_trunc('{unit}', timestamp_micros(m))) AS {unit}" for unit in _UNITS]
    window = "unix_micros(window(timestamp_micros(m), '{}').start)"
    cut += [f"{window.format('90 minutes')} AS a", f"{window.format('3 days')} AS b"]
    # A window is an expression of its own plan, one in each.
    found = rows.selectExpr("m", *cut[:8]).toArrow().to_pydict()
    for name, one in zip("ab", cut[8:], strict=True):
        got = dict(rows.selectExpr("m", one).collect())
        found[name] = [got[m] for m in found["m"]]
    times = pa.array(found["m"], pa.timestamp("us", "UTC"))
    for name, interval in [*((unit, unit) for unit in _UNITS), ("a", "90m"), ("b", "3d")]:
        starts = buckets_of(times.type, interval, zone).starts(times)
        wrong = [
            (m, ours, theirs)
            for m, ours, theirs in zip(
                found["m"], starts.cast(pa.int64()).to_pylist(), found[name], strict=True
            )
            if ours != theirs
        ]
        assert not wrong, (zone, interval, wrong[:3])
