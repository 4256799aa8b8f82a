"""Writes as Spark's planner sees them: the builder, the write, and its commit on the driver."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.errors import CommitStateUnknownError, IndexTablesError
from indextables.jobs.commit_write import Written
from indextables.jobs.write_job import TaskOutput, WriteJob, WriteKind, plan_write
from indextables.plan.access import TableAccess
from indextables.plan.column_names import names_of
from indextables.predicate import TRUE, Predicate, conjunction
from indextables.spark.bridge.jvm.handles import (
    V2,
    Comparable,
    JavaObject,
    Jvm,
    implements,
)
from indextables.spark.bridge.scan.filters import condition
from indextables.spark.runner import executors
from indextables.spark.schemas import table_schema

Report = Callable[[Written | IndexTablesError], None]
"""Called with what a commit did, or why it did nothing: the JVM keeps only the text of an error."""


@dataclass(frozen=True, eq=False)
class PlannedWrite:
    """A write that was planned before Spark was asked to do it."""

    job: WriteJob
    report: Report = field(default=lambda _: None, repr=False)
    stage: Callable[[list[TaskOutput]], None] | None = field(default=None, repr=False)
    """Takes what tasks stored, where the commit is that of the table itself."""


@implements("write.SupportsOverwriteV2", "write.SupportsDynamicOverwrite")
class WriteBuilder:
    """Learns what a write replaces."""

    def __init__(
        self, java: Jvm, access: TableAccess, info: JavaObject, planned: PlannedWrite | None
    ) -> None:
        self.java = java
        self._access = access
        self._schema = info.schema()
        self._planned = planned
        self._kind: WriteKind = "append"
        self._where: Predicate | str | None = None

    def truncate(self) -> JavaObject:
        self._kind = "overwrite"
        return self

    def canOverwrite(self, _predicates: JavaObject) -> bool:  # noqa: N802
        return True

    def overwrite(self, predicates: JavaObject) -> JavaObject:
        schema = names_of(self._access.log().snapshot()).shown
        conditions = [condition(p, schema) for p in predicates]
        self._kind, self._where = "where", conjunction(*conditions)
        if self._where == TRUE:
            self._kind, self._where = "overwrite", None
        return self

    def overwriteDynamicPartitions(self) -> JavaObject:  # noqa: N802
        self._kind = "partitions"
        return self

    def build(self) -> JavaObject:
        if (planned := self._planned) is not None:
            return TableWrite(
                self.java, self._schema, self._access, planned.job,
                report=planned.report, stage=planned.stage,
            )  # fmt: skip
        job = plan_write(
            self._access.log(),
            table_schema(self.java.schema_of(self._schema)),
            settings=self._access.settings,
            kind=self._kind,
            where=self._where,
            checked_by_spark=True,
        )
        return TableWrite(self.java, self._schema, self._access, job)

    def buildForBatch(self) -> JavaObject:  # noqa: N802
        return self.build()


@implements("write.RequiresDistributionAndOrdering", "write.BatchWrite")
class TableWrite(Comparable):
    """One write: rows distributed, stored by tasks, committed here."""

    def __init__(
        self,
        java: Jvm,
        schema: JavaObject,
        access: TableAccess,
        job: WriteJob,
        *,
        report: Report = lambda _: None,
        stage: Callable[[list[TaskOutput]], None] | None = None,
    ) -> None:
        self.java = java
        self._report = report
        self._stage = stage
        self._schema = schema
        self._access = access
        self._job = job
        self._config = job.config
        self._in_doubt = False

    def key(self) -> str:
        return f"IndexTables write {self._access.uri} {id(self)}"

    def description(self) -> str:
        return f"IndexTables {self._job.kind} {self._access.uri}"

    def toBatch(self) -> JavaObject:  # noqa: N802
        return self

    # --- how rows are spread over tasks ------------------------------------------------------

    @functools.cached_property
    def _mode(self) -> str:
        if not self._config[keys.OPTIMIZE_WRITE]:
            return "none"
        return self._config[keys.WRITE_DISTRIBUTION]

    def requiredDistribution(self) -> JavaObject:  # noqa: N802
        distributions = self.java.find(V2 + "distributions.Distributions")
        columns = list(self._job.shown_partition_columns)
        if self._mode == "hash" and not columns:
            columns = [self._job.target.shown.names[0]]
        if self._mode == "none" or (self._mode == "balanced" and not columns):
            return distributions.unspecified()
        return distributions.clustered(
            self.java.array(V2 + "expressions.Expression", list(map(self.java.column, columns)))
        )

    def distributionStrictlyRequired(self) -> bool:  # noqa: N802
        return self._mode == "balanced"

    def requiredNumPartitions(self) -> int:  # noqa: N802
        if self._mode != "balanced":
            return 0
        return int(self.java.context.defaultParallelism) if self._job.partition_columns else 0

    def advisoryPartitionSizeInBytes(self) -> int:  # noqa: N802
        if self._mode != "hash":
            return 0
        return advisory_size(self._job, self._config)

    def requiredOrdering(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "expressions.SortOrder")

    # --- tasks and the commit ----------------------------------------------------------------

    def createBatchWriterFactory(self, _info: JavaObject) -> JavaObject:  # noqa: N802
        return self.java.writer_factory(_write_splits(self._job), self._schema)

    def useCommitCoordinator(self) -> bool:  # noqa: N802
        return True

    def onDataWriterCommit(self, _message: JavaObject) -> None:  # noqa: N802
        return None

    def commit(self, messages: JavaObject, *_summary: JavaObject) -> None:
        if self._stage is not None:
            self._stage(_outputs(messages))
            return
        try:
            self._report(
                self._job.commit(self._access.log(), _outputs(messages), runner=executors())
            )
        except IndexTablesError as error:
            self._in_doubt = isinstance(error, CommitStateUnknownError)
            self._report(error)
            raise

    def abort(self, messages: JavaObject) -> None:
        if not self._in_doubt:
            self._job.abort(self._access.log(), _outputs(messages))

    def supportedCustomMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "metric.CustomMetric")

    def reportDriverMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "metric.CustomTaskMetric")


def _write_splits(job: WriteJob) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that stores a task's rows as splits and returns one message that names them."""
    job = job.for_tasks()

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        message = pickle.dumps(job.write(batches))
        yield pa.record_batch([pa.array([message], pa.binary())], names=["message"])

    # Spark's workers recognise a writer by the module of its function.
    write.__module__ = "pyspark.sql.worker.write_into_data_source"
    return write


def _outputs(messages: JavaObject) -> list[TaskOutput]:
    # Pickled by tasks of this very write.
    outputs: list[Any] = [pickle.loads(m.pickledMessage()) for m in messages if m is not None]
    return outputs


def advisory_size(job: WriteJob, config: Config) -> int:
    """How many bytes of rows in a shuffle make a split of the wanted size.

    From the table's own splits where there are enough rows; without a history, Spark's rows
    are taken to be a little larger than what becomes of them.
    """
    target = config[keys.WRITE_TARGET_SPLIT_SIZE]
    if not job.creates:
        rows = sum(n or 0 for n in job.view.snapshot.entries["numRecords"].to_pylist())
        if rows >= config[keys.WRITE_MIN_ROWS_FOR_ESTIMATE]:
            return target
    return int(target / config[keys.WRITE_SAMPLING_RATIO])
