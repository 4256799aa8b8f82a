"""An index table made of a Delta table or of Parquet files: every row is written again, as splits.

The source is read as a search index reads it, file by file and by its newest snapshot: deletion
vectors, column mapping, partition values and older types included. The table is one commit; until
then, and if a file cannot be read, there is none. The source is not touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from indextables.config import Config
from indextables.errors import LakeError, SchemaError
from indextables.jobs.commit_write import Written
from indextables.jobs.progress import progress
from indextables.jobs.write_job import TaskOutput, WriteJob, plan_write
from indextables.lake.source import Source, SourceFile, SourceSnapshot, first_snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.statistics import decode
from indextables.runner import LocalRunner, Runner
from indextables.schema import nulls, refuse_invalid_text

_PORTION_BYTES = 512 << 20
"""How many bytes of source files one task reads at the most, unless one file has more."""


@dataclass(frozen=True)
class ConvertFiles:
    """Source files whose rows become splits of one task."""

    job: WriteJob
    source: SourceSnapshot
    files: tuple[SourceFile, ...]


def convert(
    source: Source, log: TransactionLog, *, settings: Config, runner: Runner | None = None
) -> Written:
    """Make the table of a log from a source; its partition columns are the source's.

    Raises:
        TableExistsError: There is a table already.
        LakeError: The source, or one of its files, cannot be read.
    """
    snapshot = first_snapshot(source)
    job = plan_write(
        log,
        snapshot.schema,
        settings=settings,
        kind="append",
        partition_by=snapshot.partition_columns,
        exclusive="error",
    )
    bare = replace(snapshot, files=())
    tasks = [ConvertFiles(job.for_tasks(), bare, files) for files in _portions(snapshot.files)]
    sizes = [sum(file.size for file in task.files) for task in tasks]
    title, files = "Converting", len(snapshot.files)
    with progress(title, files, "files", table=source.uri, size=sum(sizes)) as advance:
        outputs = (runner or LocalRunner(os.cpu_count() or 1)).map(
            convert_files, tasks, ended=lambda at: advance(len(tasks[at].files), sizes[at])
        )
    failed = next((o.problem for o in outputs if o.problem is not None), None)
    if failed is not None:
        job.abort(log, outputs)
        raise LakeError(f"'{source.uri}' was not converted: {failed} There is no new table.")
    return job.commit(log, outputs, runner=runner)


def convert_files(task: ConvertFiles) -> TaskOutput:
    """Store the rows of some files; the driver raises what went wrong."""
    try:
        return task.job.store(_batches(task))
    except (LakeError, SchemaError) as error:
        return TaskOutput((), 0, str(error))


def _batches(task: ConvertFiles) -> Iterator[pa.RecordBatch]:
    source = task.source
    for file in task.files:
        rows = source.rows_of(file).open()
        stored = [n for n in rows.schema.names if n not in source.partition_columns]
        for first, table in rows.batches(stored):
            arrays: dict[str, Any] = {name: table.column(name) for name in stored}
            arrays |= _partition(file, source, table.num_rows)
            columns = [arrays.get(f.name, nulls(len(table), f.type)) for f in source.schema]
            shown = pa.table(columns, schema=source.schema)
            for batch in shown.filter(_live(file, first, table.num_rows)).to_batches():
                refuse_invalid_text(batch, first_row=first + 1)
                yield batch


def _live(file: SourceFile, first: int, rows: int) -> Any:
    kept = np.ones(rows, dtype=np.bool_)
    if file.dead is not None:
        dead = file.dead[(file.dead >= first) & (file.dead < first + rows)]
        kept[dead - first] = False
    return pa.array(kept)


def _partition(file: SourceFile, source: SourceSnapshot, rows: int) -> dict[str, Any]:
    """The partition columns of a file, which all its rows share."""
    constants = {}
    for name in source.partition_columns:
        data_type = source.schema.field(name).type
        read = decode(pa.array([file.partition.get(name)], pa.string()), data_type)
        if file.partition.get(name) is not None and not read.is_known[0]:
            raise SchemaError(
                f"'{file.path}' has the partition value {file.partition[name]!r} of '{name}', "
                f"which is not of type {data_type}."
            )
        constants[name] = pa.repeat(read.values[0].cast(data_type), rows)
    return constants


def _portions(files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
    portions: list[tuple[SourceFile, ...]] = []
    portion: list[SourceFile] = []
    for file in files:
        if portion and sum(f.size for f in portion) + file.size > _PORTION_BYTES:
            portions.append(tuple(portion))
            portion = []
        portion.append(file)
    return [*portions, tuple(portion)] if portion else portions
