"""Functions that cut values into parts, by the names that the Scala product has for them.

They are functions of SQL: Spark writes their bodies into the query, so that a GROUP BY of one costs
what the expressions cost, and every way into a session knows them.

::

    SELECT indextables_date_histogram(ts, '15m') AS at, count(*) FROM logs
    WHERE body indexquery 'timeout' GROUP BY at
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_RANGES = 8

_UNITS = "map('ms', 1000L, 's', 1000000L, 'm', 60000000L, 'h', 3600000000L, 'd', 86400000000L)"


def register(spark: SparkSession) -> None:
    """Make the functions part of a session."""
    for name, parameters, result, body in _definitions():
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({parameters}) RETURNS {result} "
            f"RETURN {body}"
        )


def _definitions() -> list[tuple[str, str, str, str]]:
    start = f"unix_micros(t) - pmod(unix_micros(t) - {_micros('shift', 0)}, {_micros('every', 1)})"
    width = _checked("width > 0", "width", "a width is greater than 0")
    numbers = range(1, _MOST_RANGES + 1)
    ranges = ", ".join(
        f"name{i} STRING{default}, from{i} DOUBLE{default}, to{i} DOUBLE{default}"
        for i, default in ((i, "" if i == 1 else " DEFAULT NULL") for i in numbers)
    )
    cases = " ".join(
        f"WHEN name{i} IS NOT NULL AND (from{i} IS NULL OR v >= from{i}) "
        f"AND (to{i} IS NULL OR v < to{i}) THEN name{i}"
        for i in numbers
    )
    return [
        (
            "indextables_date_histogram",
            "t TIMESTAMP, every STRING, shift STRING DEFAULT '0s'",
            "TIMESTAMP",
            f"timestamp_micros({start})",
        ),
        (
            "indextables_histogram",
            "v DOUBLE, width DOUBLE, shift DOUBLE DEFAULT 0",
            "DOUBLE",
            f"floor((v - shift) / {width}) * width + shift",
        ),
        (
            "indextables_range",
            f"v DOUBLE, {ranges}",
            "STRING",
            f"CASE WHEN v IS NULL THEN NULL {cases} END",
        ),
    ]


def _micros(parameter: str, least: int) -> str:
    """A length such as 15m in microseconds."""
    number = f"CAST(regexp_extract({parameter}, '[0-9]+', 0) AS BIGINT)"
    unit = f"{_UNITS}[regexp_extract({parameter}, '[a-z]+', 0)]"
    return _checked(
        f"{parameter} RLIKE '^[0-9]{{1,6}}(ms|s|m|h|d)$' AND {number} >= {least}",
        f"{number} * {unit}",
        "an interval is a number and one of ms, s, m, h, d, such as 15m",
    )


def _checked(condition: str, value: str, otherwise: str) -> str:
    return f"CASE WHEN {condition} THEN {value} ELSE raise_error('{otherwise}') END"
