"""Whether two results are the same rows, whatever Arrow types say the values."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa


def plain(value: Any) -> Any:
    """A value that equals its twin from another engine: numbers by value, moments by instant."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return str(value)
        return float(f"{value:.11g}") + 0.0
    if isinstance(value, int | Decimal):
        return float(f"{value:.11g}") + 0.0
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    return value


def kind(type_: pa.DataType) -> str:
    """A type as far as engines must agree about it."""
    if pa.types.is_null(type_):
        return "any"
    for name in ("boolean", "integer", "floating", "decimal", "date", "timestamp"):
        if getattr(pa.types, f"is_{name}")(type_):
            return name
    return "text" if pa.types.is_string(type_) or pa.types.is_large_string(type_) else str(type_)


def rows(table: pa.Table, *, ordered: bool) -> list[tuple[Any, ...]]:
    columns = [[plain(v) for v in column.to_pylist()] for column in table.columns]
    found = list(zip(*columns, strict=True)) if columns else [()] * table.num_rows
    return found if ordered else sorted(found, key=repr)


def difference(ours: pa.Table, theirs: pa.Table, *, ordered: bool) -> str | None:
    """What two results disagree about, or None."""
    if ours.num_columns != theirs.num_columns:
        return f"{ours.num_columns} columns, not {theirs.num_columns}"
    mine, wanted = rows(ours, ordered=ordered), rows(theirs, ordered=ordered)
    if mine != wanted:
        at = next((i for i, (a, b) in enumerate(zip(mine, wanted, strict=False)) if a != b), None)
        if at is None:
            return f"{len(mine)} rows, not {len(wanted)}"
        return f"row {at} is {mine[at]}, not {wanted[at]}"
    kinds = [(kind(a.type), kind(b.type)) for a, b in zip(ours.schema, theirs.schema, strict=True)]
    wrong = [f"{a}, not {b}" for a, b in kinds if a != b and "any" not in (a, b)]
    return f"type {wrong[0]}" if wrong else None
