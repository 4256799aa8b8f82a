"""What the log says of columns, for Spark's cost-based optimizer.

The least and the greatest number, day or instant, and how many nulls there are. Texts are left
out: their bounds may be cut, and the optimizer does not use them. Bounds of a few splits are those
of the whole scan only where every split has them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import names_of
from indextables.plan.statistics import decode, lookup
from indextables.schema import is_collated
from indextables.spark.bridge.jvm import V2, JavaObject, Jvm, implements


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What is known of the values of one column."""

    least: int | float | None
    greatest: int | float | None
    nulls: int | None


def column_bounds(snapshot: Snapshot, columns: Collection[str]) -> dict[str, ColumnBounds]:
    """Return what the log says of some columns of all live splits."""
    files = snapshot.entries
    null_counts = _null_counts(files)
    found = {}
    for name in columns:
        if name not in snapshot.schema.names or name in snapshot.partition_columns:
            continue
        field = snapshot.schema.field(name)
        if is_collated(field):
            continue
        least, greatest = (
            _bound(files, where, name, field.type, pick)
            for where, pick in (("minValues", pc.min), ("maxValues", pc.max))
        )
        counts = [one.get(name) if one is not None else None for one in null_counts]
        known = None if None in counts else sum(n for n in counts if n is not None)
        if least is not None or known is not None:
            found[name] = ColumnBounds(least, greatest, known)
    return found


def _bound(files: pa.Table, where: str, name: str, kind: Any, pick: Any) -> int | float | None:
    types = pa.types
    if not (types.is_integer(kind) or types.is_date(kind) or types.is_timestamp(kind)):
        return None
    decoded = decode(lookup(files, where, name), kind)
    if not files.num_rows or not decoded.is_known.all():
        return None
    values = decoded.values
    if not types.is_integer(kind):
        values = values.cast(pa.int32() if types.is_date(kind) else pa.int64())
    found: int = pick(values).as_py()
    return found


def _null_counts(files: pa.Table) -> list[dict[str, int] | None]:
    def counts(text: str | None) -> dict[str, int] | None:
        try:
            found = orjson.loads(text or "").get("nullCount")
        except (orjson.JSONDecodeError, AttributeError):
            return None
        return found if isinstance(found, dict) else None

    return [counts(text) for text in files.column("stats").to_pylist()]


@implements("read.colstats.ColumnStatistics")
class ColumnStatistics:
    """One column's statistics in the form of Spark's interface."""

    def __init__(self, java: Jvm, bounds: ColumnBounds) -> None:
        self.java = java
        self._bounds = bounds

    def distinctCount(self) -> JavaObject:  # noqa: N802
        return self._long(None)

    def min(self) -> JavaObject:
        return self._optional(self._bounds.least)

    def max(self) -> JavaObject:
        return self._optional(self._bounds.greatest)

    def nullCount(self) -> JavaObject:  # noqa: N802
        return self._long(self._bounds.nulls)

    def avgLen(self) -> JavaObject:  # noqa: N802
        return self._long(None)

    def maxLen(self) -> JavaObject:  # noqa: N802
        return self._long(None)

    def histogram(self) -> JavaObject:
        return self._optional(None)

    def _optional(self, value: object) -> JavaObject:
        return self.java.find("java.util.Optional").ofNullable(value)

    def _long(self, value: int | None) -> JavaObject:
        optional = self.java.find("java.util.OptionalLong")
        return optional.empty() if value is None else optional.of(value)


def java_statistics(java: Jvm, snapshot: Snapshot, columns: Collection[str]) -> JavaObject:
    """Return a Java map from references of columns to their statistics."""
    found = java.hash_map({})
    for name, bounds in column_bounds(snapshot, columns).items():
        shown = names_of(snapshot).shown_name(name)
        reference = java.find(V2 + "expressions.FieldReference").column(shown)
        found.put(reference, ColumnStatistics(java, bounds))
    return found
