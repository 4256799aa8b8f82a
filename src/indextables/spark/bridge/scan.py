"""Scans: what a planned read is for Spark's executor.

A `TableScan` runs as Python tasks. A `DriverScan` is answered in the driver process when Spark asks
for it, as rows of a local relation: no job, no task. Equality of scans is equality of what they
read, so that Spark reuses exchanges and cached DataFrames.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indextables.plan.scan import SplitTask
from indextables.spark.bridge.jvm import V2, Comparable, JavaObject, Jvm, implements
from indextables.spark.bridge.tasks import ReadSplits
from indextables.spark.read_task import ScoredReader, SplitReader
from indextables.spark.schemas import worker_schema


@dataclass(frozen=True, slots=True)
class Described:
    """What a scan tells about itself: a line for plans, the key of its contents, numbers."""

    line: str
    key: str
    rows: int | None
    size: int
    metrics: tuple[tuple[str, str, int], ...] = ()


@implements("read.Statistics")
class Statistics:
    """What the optimizer is told about the size of a scan."""

    def __init__(self, java: Jvm, described: Described) -> None:
        self.java = java
        self._described = described

    def sizeInBytes(self) -> JavaObject:  # noqa: N802
        return self.java.find("java.util.OptionalLong").of(self._described.size)

    def numRows(self) -> JavaObject:  # noqa: N802
        optional = self.java.find("java.util.OptionalLong")
        rows = self._described.rows
        return optional.empty() if rows is None else optional.of(rows)

    def columnStats(self) -> JavaObject:  # noqa: N802
        return self.java.hash_map({})


@implements("metric.CustomTaskMetric")
class Measured:
    """One number of a scan that the driver knows."""

    def __init__(self, java: Jvm, name: str, value: int) -> None:
        self.java = java
        self._name = name
        self._value = value

    def name(self) -> str:
        return self._name

    def value(self) -> JavaObject:
        return self._value


class _Scan(Comparable):
    """What all scans answer the same way."""

    def __init__(self, java: Jvm, schema: JavaObject, described: Described) -> None:
        self.java = java
        self._schema = schema
        self._described = described

    def key(self) -> str:
        return self._described.key

    def readSchema(self) -> JavaObject:  # noqa: N802
        return self._schema

    def description(self) -> str:
        return self._described.line

    def estimateStatistics(self) -> JavaObject:  # noqa: N802
        return Statistics(self.java, self._described)

    def estimateSizeInBytes(self) -> JavaObject:  # noqa: N802
        return self.java.find("java.util.OptionalLong").of(self._described.size)

    def reflectsFullyPushedDownFilters(self) -> bool:  # noqa: N802
        return False  # the splits that a search matches nothing in are counted

    def columnarSupportMode(self) -> JavaObject:  # noqa: N802
        modes = self.java.find("org.apache.spark.sql.connector.read.Scan$ColumnarSupportMode")
        return modes.UNSUPPORTED

    def supportedCustomMetrics(self) -> JavaObject:  # noqa: N802
        # Spark makes metrics again from the name of their class, so they have to be Java's.
        metric = self.java.find(
            "org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric"
        )
        found = [metric(name, title) for name, title, _ in self._described.metrics]
        return self.java.array(V2 + "metric.CustomMetric", found)

    def reportDriverMetrics(self) -> JavaObject:  # noqa: N802
        found = [Measured(self.java, name, value) for name, _, value in self._described.metrics]
        return self.java.array(V2 + "metric.CustomTaskMetric", found)


@implements("read.SupportsReportStatistics", "read.Batch")
class TableScan(_Scan):
    """A scan that Python tasks execute."""

    def __init__(
        self,
        java: Jvm,
        schema: JavaObject,
        described: Described,
        *,
        reader: SplitReader | ScoredReader,
        groups: Sequence[Sequence[SplitTask]],
    ) -> None:
        super().__init__(java, schema, described)
        self._reader = reader
        self._groups = groups

    def toBatch(self) -> JavaObject:  # noqa: N802
        return self

    def planInputPartitions(self) -> JavaObject:  # noqa: N802
        return self._partitions

    @functools.cached_property
    def _partitions(self) -> JavaObject:
        return self.java.partitions([pickle.dumps(list(group)) for group in self._groups])

    def createReaderFactory(self) -> JavaObject:  # noqa: N802
        return self._factory

    @functools.cached_property
    def _factory(self) -> JavaObject:
        schema = worker_schema(self.java.schema_of(self._schema))
        return self.java.reader_factory(ReadSplits(self._reader, schema), self._schema)


@implements("read.SupportsReportStatistics", "read.LocalScan")
class DriverScan(_Scan):
    """A scan whose few rows the driver computes."""

    def __init__(
        self,
        java: Jvm,
        schema: JavaObject,
        described: Described,
        *,
        compute: Callable[[], pa.Table],
    ) -> None:
        super().__init__(java, schema, described)
        self._compute = compute

    def toBatch(self) -> JavaObject:  # noqa: N802
        return None

    def rows(self) -> JavaObject:
        return self._rows

    @functools.cached_property
    def _rows(self) -> JavaObject:
        schema = worker_schema(self.java.schema_of(self._schema))
        table = self._compute()
        return internal_rows(
            self.java, table.rename_columns(schema.names).cast(schema), self._schema
        )


def internal_rows(java: Jvm, table: pa.Table, schema: JavaObject) -> JavaObject:
    """Arrow rows as rows of Spark's own, in the driver's JVM."""
    row_class = "org.apache.spark.sql.catalyst.InternalRow"
    if not table.num_rows:
        return java.array(row_class)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    stream_bytes = java.find("java.io.ByteArrayInputStream")(bytearray(sink.getvalue()))
    channel = java.find("java.nio.channels.Channels").newChannel(stream_bytes)
    converters: Any = java.module("org.apache.spark.sql.execution.arrow.ArrowConverters")
    batches = converters.getBatchesFromStream(channel)
    frame = converters.toDataFrame(batches, schema.json(), java.session)
    rows = frame.logicalPlan().data()
    tag = java.module("scala.reflect.ClassTag").apply(
        java.find("java.lang.Class").forName(row_class)
    )
    return rows.toArray(tag)
