"""What a scan reports about itself: a line for plans, numbers for Spark's optimizer and its UI."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.snapshot import Snapshot
from indextables.plan.aggregation import Aggregation
from indextables.plan.column_names import names_of
from indextables.plan.scan import ScanPlan
from indextables.plan.split_reader import Order
from indextables.plan.statistics import decode, lookup
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Predicate
from indextables.schema import is_collated
from indextables.schema.types import inner_fields
from indextables.spark.bridge.jvm.handles import (
    V2,
    JavaObject,
    Jvm,
    implements,
)

_ROWS_OF_A_SPLIT = 2 / 3
"""The rest of a split is its index."""
_AS_PARQUET = 4 / 3
"""How much larger the same rows are in the compression that Spark's own files have by default.

Spark's limit for sending a side of a join to all tasks is meant for these: a table that was
reckoned smaller would be sent where the same rows in Parquet are shuffled, which is faster.
"""
_ROW = 8
"""What Spark adds to each row when it reckons how large some columns are."""


@dataclass(frozen=True, slots=True)
class Described:
    """What a scan reports about itself: a line for plans, the key of its contents, numbers."""

    line: str
    key: str
    rows: int | None
    size: int
    """Bytes of the columns that are read, as an optimizer weighs them against other tables'."""
    metrics: tuple[tuple[str, str, int], ...] = ()
    unfiltered: tuple[Snapshot, tuple[str, ...]] | None = field(
        default=None, compare=False, repr=False
    )
    """The snapshot and the columns of a scan without conditions."""


def describe_count(
    view: TableView, uri: str, *, predicate: Predicate, aggregation: Aggregation
) -> Described:
    """The description of a count that opens no split, so that none is planned either."""
    parts = [
        *_version_and_condition(view, uri, predicate),
        f"aggregate {aggregation}",
        "counted by the log",
    ]
    line = ", ".join(parts)
    return Described(
        line=line,
        key=f"{line} {view.revision}",
        rows=1,
        size=0,
        metrics=(
            ("splitsTotal", "splits of the table", view.snapshot.entries.num_rows),
            ("splitsRead", "splits to read", 0),
        ),
    )


def describe_scan(
    plan: ScanPlan,
    uri: str,
    *,
    predicate: Predicate,
    order: Order | None,
    limit: int | None,
    aggregation: Aggregation | None,
    columns: Collection[str],
    further: tuple[object, ...],
) -> Described:
    """The description of a scan of splits; `asked` is what else makes it another one."""
    parts = _version_and_condition(plan.view, uri, predicate)
    if order is not None:
        column = names_of(plan.snapshot).shown_name(order.column)
        parts.append(f"first {order.limit:,} by {column}")
    elif limit is not None:
        parts.append(f"limit {limit:,}")
    if aggregation is not None:
        parts.append(f"aggregate {aggregation}")
    size = plan.tasks.total_bytes
    parts.append(f"splits {len(plan.tasks):,} of {plan.stages[0].splits:,} with {size:,} bytes")
    if plan.routing is not None and plan.routing.consulted:
        parts.append(f"routed away {plan.routing.before - plan.routing.after:,}")
    line = ", ".join(parts)
    total, partitions, statistics = (stage.splits for stage in plan.stages[:3])
    return Described(
        line=line,
        key=" ".join(map(str, (line, *further, order, limit, plan.view.revision))),
        rows=plan.tasks.num_records if predicate == TRUE else None,
        size=int(_bytes_of_rows(plan) * _share(columns, plan.snapshot.schema)),
        metrics=(
            ("splitsTotal", "splits of the table", total),
            ("splitsPruned", "splits pruned by partition", total - partitions),
            ("splitsSkipped", "splits skipped by statistics", partitions - statistics),
            ("splitsRouted", "splits routed away", statistics - plan.stages[-1].splits),
            ("splitsRead", "splits to read", len(plan.tasks)),
            ("bytesOfSplits", "bytes of the splits to read", size),
        ),
        unfiltered=(plan.snapshot, tuple(columns)) if plan.predicate == TRUE else None,
    )


def _bytes_of_rows(plan: ScanPlan) -> float:
    elsewhere = plan.view.elsewhere
    if elsewhere is None:
        return plan.tasks.total_bytes * _ROWS_OF_A_SPLIT * _AS_PARQUET
    return elsewhere.bytes_of(plan.tasks.paths)


def _share(columns: Collection[str], schema: pa.Schema) -> float:
    """The share of a row that some columns take, by the sizes that Spark takes for its types.

    What is small is sent to all tasks of a join, so a scan of two columns must not look as large as
    its files.
    """
    every = sum(_width(field.type) for field in schema)
    chosen = sum(_width(schema.field(name).type) for name in columns if name in schema.names)
    return (_ROW + chosen) / (_ROW + every)


def _width(column_type: Any) -> int:
    if pa.types.is_nested(column_type):
        return max(8, sum(_width(inner.type) for inner in inner_fields(column_type)))
    if pa.types.is_string(column_type):
        return 20
    if pa.types.is_binary(column_type):
        return 100
    if pa.types.is_decimal(column_type):
        return 8 if column_type.precision <= 18 else 16
    return max(1, int(column_type.bit_width) // 8)


def _version_and_condition(view: TableView, uri: str, predicate: Predicate) -> list[str]:
    parts = [f"IndexTables {uri} version {view.version}"]
    if view.elsewhere is not None:
        parts.append(f"source at {view.elsewhere}")
    if predicate == TRUE:
        return parts
    return [*parts, f"where {view.names.shown_predicate(predicate)}"]


# --- column statistics ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What is known of the values of one column."""

    least: int | float | None
    greatest: int | float | None
    nulls: int | None


def column_bounds(snapshot: Snapshot, columns: Collection[str]) -> dict[str, ColumnBounds]:
    """Return what the log says of some columns of all live splits."""
    files = snapshot.entries
    counted = null_counts(files)
    by_column = {}
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
        counts = [one.get(name) if one is not None else None for one in counted]
        nulls = None if None in counts else sum(n for n in counts if n is not None)
        if least is not None or nulls is not None:
            by_column[name] = ColumnBounds(least, greatest, nulls)
    return by_column


def _bound(
    files: pa.Table, where: str, name: str, column_type: Any, pick: Any
) -> int | float | None:
    types = pa.types
    if not (
        types.is_integer(column_type)
        or types.is_date(column_type)
        or types.is_timestamp(column_type)
    ):
        return None
    decoded = decode(lookup(files, where, name), column_type)
    if not files.num_rows or not decoded.is_known.all():
        return None
    values = decoded.values
    if not types.is_integer(column_type):
        values = values.cast(pa.int32() if types.is_date(column_type) else pa.int64())
    bound: int = pick(values).as_py()
    return bound


def null_counts(files: pa.Table) -> list[dict[str, int] | None]:
    """How many nulls each column of each split has; None where the log does not say."""

    def counts(text: str | None) -> dict[str, int] | None:
        try:
            null_count = orjson.loads(text or "").get("nullCount")
        except (orjson.JSONDecodeError, AttributeError):
            return None
        return null_count if isinstance(null_count, dict) else None

    return [counts(text) for text in files.column("stats").to_pylist()]


@implements("read.colstats.ColumnStatistics")
class ColumnStatistics:
    """One column's statistics in the form of Spark's interface."""

    def __init__(self, java: Jvm, bounds: ColumnBounds) -> None:
        self.java = java
        self._bounds = bounds

    def distinctCount(self) -> JavaObject:  # noqa: N802
        return self.java.optional_long(None)

    def min(self) -> JavaObject:
        return self._optional(self._bounds.least)

    def max(self) -> JavaObject:
        return self._optional(self._bounds.greatest)

    def nullCount(self) -> JavaObject:  # noqa: N802
        return self.java.optional_long(self._bounds.nulls)

    def avgLen(self) -> JavaObject:  # noqa: N802
        return self.java.optional_long(None)

    def maxLen(self) -> JavaObject:  # noqa: N802
        return self.java.optional_long(None)

    def histogram(self) -> JavaObject:
        return self._optional(None)

    def _optional(self, value: object) -> JavaObject:
        return self.java.find("java.util.Optional").ofNullable(value)


def _java_statistics(java: Jvm, snapshot: Snapshot, columns: Collection[str]) -> JavaObject:
    """Return a Java map from references of columns to their statistics."""
    by_reference = java.hash_map({})
    for name, bounds in column_bounds(snapshot, columns).items():
        shown = names_of(snapshot).shown_name(name)
        reference = java.find(V2 + "expressions.FieldReference").column(shown)
        by_reference.put(reference, ColumnStatistics(java, bounds))
    return by_reference


@implements("read.Statistics")
class Statistics:
    """The size of a scan, for the optimizer."""

    def __init__(self, java: Jvm, described: Described) -> None:
        self.java = java
        self._described = described

    def sizeInBytes(self) -> JavaObject:  # noqa: N802
        return self.java.optional_long(self._described.size)

    def numRows(self) -> JavaObject:  # noqa: N802
        return self.java.optional_long(self._described.rows)

    def columnStats(self) -> JavaObject:  # noqa: N802
        if self._described.unfiltered is None or not self.java.conf.cboEnabled():
            return self.java.hash_map({})
        return _java_statistics(self.java, *self._described.unfiltered)
