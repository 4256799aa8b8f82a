"""Minimum, maximum and null count of columns, gathered while a split is written.

Values are compared by their type and only then spelled for the log: dates as ISO, timestamps as
microseconds since 1970, decimals plainly, booleans as true and false. A long text is cut so that
the statement stays true: a minimum to its beginning, which is not greater, and a maximum to a
beginning whose last character is raised, which is greater. NaN has no place in an order; it is
counted instead.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import (
    STATS_COLUMNS,
    STATS_NUM_COLUMNS,
    STATS_TRUNCATION_ENABLED,
    STATS_TRUNCATION_LENGTH,
    Config,
)
from indextables.errors import SchemaError
from indextables.schema.types import shown_name
from indextables.split.format.container import Statistics

_EPOCH = datetime.date(1970, 1, 1)
_SURROGATES = range(0xD800, 0xE000)
_LAST_CHARACTER = 0x10FFFF


def columns_with_statistics(
    schema: pa.Schema, config: Config, *, partition_by: Iterable[str] = ()
) -> list[str]:
    """The columns that get statistics: the listed ones, or the first that have an order."""
    skipped = set(partition_by)
    listed = [name.strip() for name in config[STATS_COLUMNS].split(",") if name.strip()]
    if listed:
        by_lower = {shown_name(field).lower(): field.name for field in schema}
        unknown = [n for n in listed if n.lower() not in by_lower]
        if unknown:
            raise SchemaError(
                f"{STATS_COLUMNS.name}: there is no field {', '.join(unknown)}. "
                f"Available fields: {', '.join(map(shown_name, schema))}."
            )
        names = [by_lower[n.lower()] for n in listed]
        return [n for n in names if has_order(schema.field(n).type) and n not in skipped]
    eligible = [f.name for f in schema if has_order(f.type) and f.name not in skipped]
    limit = config[STATS_NUM_COLUMNS]
    return eligible if limit < 0 else eligible[:limit]


def has_order(kind: pa.DataType) -> bool:
    """Whether a column has a minimum: nested and binary ones have none."""
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind))


@dataclass(slots=True)
class _Column:
    low: Any = None
    high: Any = None
    nulls: int = 0
    nans: int = 0


class StatisticsCollector:
    """Folds batches into the statistics of their split."""

    def __init__(
        self, schema: pa.Schema, config: Config, *, partition_by: Iterable[str] = ()
    ) -> None:
        names = columns_with_statistics(schema, config, partition_by=partition_by)
        self._columns = {name: _Column() for name in names}
        self._dates = {name for name in names if pa.types.is_date(schema.field(name).type)}
        enabled = config[STATS_TRUNCATION_ENABLED]
        self._longest = config[STATS_TRUNCATION_LENGTH] if enabled else None

    def add(self, batch: pa.RecordBatch) -> None:
        """Fold in the rows of a batch."""
        for name, known in self._columns.items():
            column: Any = batch.column(name)
            known.nulls += column.null_count
            if pa.types.is_floating(column.type):
                is_nan: Any = pc.is_nan(column)
                if nans := int(is_nan.sum().as_py() or 0):
                    known.nans += nans
                    column = column.filter(pc.invert(is_nan))
            found: Any = pc.min_max(column)
            low, high = _plain(found["min"]), _plain(found["max"])
            if low is not None:
                known.low = low if known.low is None else min(known.low, low)
                known.high = high if known.high is None else max(known.high, high)

    def finish(self) -> Statistics:
        """The statistics, spelled for the log."""
        low_values, high_values = {}, {}
        for name, known in self._columns.items():
            low = truncate_low(known.low, self._longest)
            high = truncate_high(known.high, self._longest)
            if name in self._dates:
                low, high = _date(low), _date(high)
            if low is not None:
                low_values[name] = spell(low)
            if high is not None:
                high_values[name] = spell(high)
        return Statistics(
            low_values,
            high_values,
            {name: known.nulls for name, known in self._columns.items()},
            {name: known.nans for name, known in self._columns.items() if known.nans},
        )


def _plain(scalar: Any) -> Any:
    """A value Python orders as the column does; timestamps as microseconds, dates as days."""
    if pa.types.is_timestamp(scalar.type) or pa.types.is_date(scalar.type):
        return scalar.value
    return scalar.as_py()


def _date(days: int | None) -> datetime.date | None:
    """The date so many days after 1970; `None`, not a bound, outside the years 1 to 9999."""
    try:
        return None if days is None else _EPOCH + datetime.timedelta(days=days)
    except OverflowError:
        return None


def spell(value: Any) -> str:
    """A value as the log writes it.

    >>> spell(True), spell(datetime.date(2024, 1, 15)), spell(decimal.Decimal("1E+2"))
    ('true', '2024-01-15', '100')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return repr(value) if isinstance(value, float) else str(value)


def truncate_low(value: Any, longest: int | None) -> Any:
    """A value that is not greater, at most so long.

    >>> truncate_low("abcdef", 3)
    'abc'
    """
    return value if longest is None or not isinstance(value, str) else value[:longest]


def truncate_high(value: Any, longest: int | None) -> Any:
    """A value that is not smaller, at most so long; `None` if there is no such one.

    >>> truncate_high("abcdef", 3), truncate_high("abc", 3)
    ('abd', 'abc')
    """
    if longest is None or not isinstance(value, str) or len(value) <= longest:
        return value
    for length in range(longest, 0, -1):
        if (raised := ord(value[length - 1]) + 1) <= _LAST_CHARACTER:
            following = _SURROGATES.stop if raised in _SURROGATES else raised
            return value[: length - 1] + chr(following)
    return None
