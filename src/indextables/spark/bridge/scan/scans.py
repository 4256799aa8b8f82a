"""Scans: what a planned read is for Spark's executor.

A `TableScan` runs as Python tasks. A `DriverScan` is answered in the driver process when Spark asks
for it, as rows of a local relation: no job, no task. Equality of scans is equality of what they
read, so that Spark reuses exchanges and cached DataFrames.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import re
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from indextables.errors import QueryError
from indextables.plan.scan import ScanPlan, SplitTask, plan_scan
from indextables.plan.skipping import FileStatistics
from indextables.plan.split_reader import ReadSplits, ScoredReader, SplitReader, in_groups
from indextables.predicate import TRUE, Predicate, conjunction
from indextables.predicate.coercion import is_in
from indextables.schema import is_collated
from indextables.schema.types import shown_name
from indextables.spark.bridge.jvm.handles import (
    V2,
    Comparable,
    JavaObject,
    Jvm,
    implements,
    internal_rows,
)
from indextables.spark.bridge.scan.description import Described, Statistics
from indextables.spark.bridge.scan.filters import column_of, condition
from indextables.spark.schemas import worker_schema
from indextables.storage import Store
from indextables.storage.local import LocalStore

ON_DRIVER = ", answered on the driver"
_MOST_KEPT = 32
"""Scans of small tables whose rows stay in the JVM, each of at most a megabyte."""
_MOST_BYTES = 1 << 20
_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"


class Scan(Comparable):
    """What all scans answer the same way."""

    of_tasks: tuple[tuple[str, str], ...] = ()
    """Names of what tasks measure, and their titles."""

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
        return self.java.optional_long(self._described.size)

    def reflectsFullyPushedDownFilters(self) -> bool:  # noqa: N802
        # Otherwise Spark evaluates searches a second time, by the function and not by the table's
        # analyzers, only to estimate their rows.
        return True

    def columnarSupportMode(self) -> JavaObject:  # noqa: N802
        return self._mode("UNSUPPORTED")

    def _mode(self, name: str) -> JavaObject:
        return self.java.constant(V2 + "read.Scan$ColumnarSupportMode", name)

    def supportedCustomMetrics(self) -> JavaObject:  # noqa: N802
        planned = tuple((name, title) for name, title, _ in self._described.metrics)
        return self.java.metrics(planned + self.of_tasks)

    def reportDriverMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.measured(
            tuple((name, value) for name, _, value in self._described.metrics)
        )


class _PrunedScan(Scan):
    """A scan whose splits a join may rule out while the query runs.

    Spark says `filter`, then asks for a batch, on one thread. Another part of the plan may hold the
    same scan without that join, so only this next batch of this thread is a pruned one.
    """

    def __init__(
        self, java: Jvm, schema: JavaObject, described: Described, pruning: Pruning | None
    ) -> None:
        super().__init__(java, schema, described)
        self._pruning = pruning
        self._left = threading.local()

    def filterAttributes(self) -> JavaObject:  # noqa: N802
        return self.java.references(tuple(self._pruning.attributes() if self._pruning else ()))

    def filter(self, conditions: JavaObject) -> None:
        if self._pruning is not None:
            self._left.tasks = self._pruning.left_by(conditions)

    def supportsIterativePushdown(self) -> bool:  # noqa: N802
        return False

    def pushedPredicates(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "expressions.filter.Predicate")

    def toBatch(self) -> JavaObject:  # noqa: N802
        left: Sequence[SplitTask] | None = self._left.__dict__.pop("tasks", None)
        if left is None or self._pruning is None or len(left) == len(self._pruning.tasks):
            return self._batch
        return self._batch_of(left)

    @functools.cached_property
    def _batch(self) -> JavaObject:
        return self._batch_of(self._pruning.tasks if self._pruning else ())

    def _batch_of(self, tasks: Sequence[SplitTask]) -> JavaObject:
        raise NotImplementedError


@implements("read.SupportsReportStatistics", "read.SupportsRuntimeV2Filtering")
class NativeScan(_PrunedScan):
    """A scan that Spark's own Parquet reader executes."""

    def __init__(
        self,
        java: Jvm,
        schema: JavaObject,
        described: Described,
        *,
        scan: Callable[[Sequence[SplitTask]], JavaObject],
        pruning: Pruning,
    ) -> None:
        super().__init__(java, schema, described, pruning)
        self._scan = scan

    def description(self) -> str:
        return f"{super().description()}, by Spark's ParquetScan"

    def columnarSupportMode(self) -> JavaObject:  # noqa: N802
        return self._mode("PARTITION_DEFINED")

    def _batch_of(self, tasks: Sequence[SplitTask]) -> JavaObject:
        return self._scan(tasks).toBatch()


@implements("read.SupportsReportStatistics", "read.SupportsRuntimeV2Filtering")
class TableScan(_PrunedScan):
    """A scan that Python tasks execute; without splits, one task that knows what to do."""

    # Spark's own name for it.
    of_tasks = (("pythonDataReceived", "bytes of rows from Python tasks"),)

    def __init__(
        self,
        java: Jvm,
        schema: JavaObject,
        described: Described,
        *,
        reader: SplitReader | ScoredReader,
        parallelism: int = 1,
        pruning: Pruning | None = None,
    ) -> None:
        super().__init__(java, schema, described, pruning)
        self._reader = reader
        self._parallelism = parallelism

    def _batch_of(self, tasks: Sequence[SplitTask]) -> JavaObject:
        groups = [list(tasks)]
        if self._pruning is not None:
            groups = in_groups(tasks, parallelism=self._parallelism)
        paths = repr([[task.path for task in group] for group in groups]).encode()
        key = f"{self.key()} tasks {hashlib.blake2b(paths, digest_size=16).hexdigest()}"
        payloads = [pickle.dumps(group) for group in groups]
        return PythonTasks(self.java, key, payloads, self._factory)

    @functools.cached_property
    def _factory(self) -> JavaObject:
        schema = worker_schema(self.java.schema_of(self._schema))
        return self.java.reader_factory(ReadSplits(self._reader, schema), self._schema)


@implements("read.Batch")
class PythonTasks(Comparable):
    """The Python tasks of one scan, each with its payload."""

    def __init__(self, java: Jvm, key: str, payloads: Sequence[bytes], factory: JavaObject) -> None:
        self.java = java
        self._key = key
        self._payloads = payloads
        self._factory = factory

    def key(self) -> str:
        return self._key

    def planInputPartitions(self) -> JavaObject:  # noqa: N802
        return self._partitions

    @functools.cached_property
    def _partitions(self) -> JavaObject:
        return self.java.partitions(self._payloads)

    def createReaderFactory(self) -> JavaObject:  # noqa: N802
        return self._factory


@implements("read.SupportsReportStatistics", "read.LocalScan")
class DriverScan(Scan):
    """A scan whose few rows the driver computes."""

    def __init__(
        self,
        java: Jvm,
        schema: JavaObject,
        described: Described,
        *,
        compute: Callable[[], pa.Table],
        kept_by: Hashable | None = None,
    ) -> None:
        """Make a scan. Others of the same contents and with the same `kept_by` have its rows."""
        super().__init__(java, schema, described)
        self._compute = compute
        self._kept_by = kept_by

    def description(self) -> str:
        return f"{super().description()}{ON_DRIVER}"

    def toBatch(self) -> JavaObject:  # noqa: N802
        return None

    def rows(self) -> JavaObject:
        return self._rows

    @functools.cached_property
    def _rows(self) -> JavaObject:
        kept, key = self.java.small_rows, (self.key(), self._kept_by)
        rows = kept.pop(key, None)
        if rows is not None:
            kept[key] = rows  # as the last one
            return rows
        large = str(self.java.spark.conf.get(_LARGE_TYPES, "false")).lower() == "true"
        declared = self.java.schema_of(self._schema)
        schema = worker_schema(declared, large=large)
        table = self._compute().rename_columns(schema.names).cast(schema)
        rows = internal_rows(self.java, table, self.java.plain_struct(self._schema, declared))
        if self._kept_by is not None and table.nbytes <= _MOST_BYTES:
            kept[key] = rows
            while len(kept) > _MOST_KEPT:
                kept.popitem(last=False)
        return rows


def file_states(store: Store, paths: Iterable[str]) -> Hashable | None:
    """Another value for other files on this machine, or for one of them that was changed.

    None where they are elsewhere or not there.
    """
    if not isinstance(store, LocalStore):
        return None
    try:
        states = [(path, Path(store.uri, path).stat()) for path in paths]
    except OSError:
        return None  # the reader names the file that it cannot open
    return tuple((p, s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for p, s in states)


# --- splits that a join rules out ----------------------------------------------------------------


@dataclass(frozen=True)
class Pruning:
    """The splits of a planned scan, and which of them conditions leave."""

    plan: ScanPlan
    columns: Sequence[str]

    @property
    def tasks(self) -> Sequence[SplitTask]:
        """All splits that were planned."""
        return self.plan.tasks

    def attributes(self) -> list[str]:
        """The columns of the scan by which the keys of a join tell splits apart.

        For each of them Spark plans the other side of the join a second time, and the scan waits
        for its keys: for nothing, where every split may have every key.
        """
        if len(self.tasks) < 2:
            return []
        snapshot = self.plan.snapshot
        statistics = FileStatistics.of(snapshot)
        fields = (snapshot.schema.field(n) for n in self.columns if n in snapshot.schema.names)
        ordered = (f for f in fields if _has_order(f.type) and not is_collated(f))
        return [shown_name(f) for f in ordered if statistics.separates(f.name)]

    def left_by(self, conditions: Iterable[JavaObject]) -> Sequence[SplitTask]:
        """The splits that may hold rows for these conditions."""
        names = self.plan.view.names
        shown = conjunction(*(_understood(one, names.shown) for one in conditions))
        keys = names.stored_predicate(shown)
        left = plan_scan(
            self.plan.view, predicate=conjunction(self.plan.predicate, keys), route=False
        ).tasks
        # As they were planned: the rows that the join wants are for Spark to choose.
        return self.plan.tasks.with_paths_of(left)


_MOST_KEYS = 256
"""So many keys are seldom far apart."""
_NUMBERS = re.compile(r".+ IN \((-?\d+(?:, -?\d+)*)\)", re.DOTALL)


def _understood(predicate: JavaObject, schema: pa.Schema) -> Predicate:
    try:
        if predicate.name() == "IN":
            children = predicate.children()
            if len(children) > _MOST_KEYS:
                return TRUE
            column, column_type = column_of(children[0], schema)
            # The text of whole numbers is theirs, and one call for all of them.
            if pa.types.is_integer(column_type) and (
                keys := _NUMBERS.fullmatch(predicate.toString())
            ):
                return is_in(column, column_type, [int(key) for key in keys[1].split(", ")])
        return condition(predicate, schema)
    except (QueryError, ValueError):
        return TRUE


def _has_order(column_type: Any) -> bool:
    types = pa.types
    return bool(
        types.is_integer(column_type)
        or types.is_string(column_type)
        or types.is_date(column_type)
        or types.is_timestamp(column_type)
        or types.is_decimal(column_type)
    )
