"""Index tables as the sink of streams: `df.writeStream.format("indextables")`.

A batch is in the table exactly once. Its commit notes the id of the streaming query, which is kept
in the query's checkpoint, and the number of the batch (the `txn` action). Spark runs a batch again
when it died between our commit and its own; the log then has it already.

These classes run in worker processes of Spark: each batch is planned in one, stored by tasks, and
committed in another one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import datasource as source
from pyspark.sql.types import StructType

from indextables.errors import ConfigError
from indextables.jobs.write_job import Kind, TaskOutput, WriteJob, plan_write
from indextables.log.actions import Txn
from indextables.plan.access import TableAccess
from indextables.plan.source_options import SourceOptions
from indextables.spark.schemas import table_schema

_QUERY_ID = "sql.streaming.queryId"


# --- the sink ----------------------------------------------------------------------------------


@dataclass
class StoredBatch(source.WriterCommitMessage):
    """What one task stored of a batch, the query that it is of, and how it was planned."""

    output: TaskOutput
    query: str | None
    job: WriteJob


class TableStreamWriter(source.DataSourceStreamArrowWriter):
    """Tasks store splits; `commit` names them in the log, with the number of the batch."""

    def __init__(self, options: SourceOptions, schema: StructType, *, overwrite: bool) -> None:
        self.access: TableAccess = options.access()
        kind: Kind = "overwrite" if overwrite else "append"
        if options.replace_where is not None or options.overwrite_schema or options.dynamic:
            raise ConfigError(
                "A stream appends, or replaces all rows with outputMode('complete'). Leave out "
                "replaceWhere, overwriteSchema and dynamic partition overwrite, or use "
                "foreachBatch."
            )
        self.job = plan_write(
            self.access.log(),
            table_schema(schema),
            settings=self.access.settings,
            kind=kind,
            partition_by=options.partition_by,
            merge_schema=options.merge_schema,
        )

    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> source.WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        return StoredBatch(self.job.write(iterator), query, self.job.for_tasks())

    def commit(
        self,
        messages: list[source.WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        stored = _stored(messages)
        if not stored:
            return
        query = stored[0].query
        if query is None:
            raise ConfigError("Spark does not say which streaming query this is. Use foreachBatch.")
        batch = Txn(app_id=query, version=batchId, last_updated=time.time_ns() // 1_000_000)
        # Planned before the tasks ran: what others changed since is a conflict.
        job = stored[0].job
        job.commit(self.access.log(), [message.output for message in stored], batch=batch)

    def abort(
        self,
        messages: list[source.WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803 - Spark's name
    ) -> None:
        self.job.abort(self.access.log(), [message.output for message in _stored(messages)])


def _stored(messages: Sequence[source.WriterCommitMessage | None]) -> list[StoredBatch]:
    return [message for message in messages if isinstance(message, StoredBatch)]
