"""The functions that Spark's Python workers run for the bridge.

They are pickled by the driver and called with one batch of one row: what the task is told.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from indextables.jobs.write_job import WriteJob
from indextables.spark.read_task import ScoredReader, SplitReader


@dataclass(frozen=True)
class ReadSplits:
    """Reads the splits that a partition names."""

    reader: SplitReader | ScoredReader
    schema: pa.Schema

    def __call__(self, partitions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for partition in partitions:
            # Pickled by this session's driver.
            tasks = pickle.loads(partition.column(0)[0].as_py())
            yield from self.reader.batches(tasks, self.schema)


def write_splits(job: WriteJob) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that stores a task's rows as splits and gives one message that names them."""
    job = job.for_tasks()

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        message = pickle.dumps(job.write(batches))
        yield pa.record_batch([pa.array([message], pa.binary())], names=["message"])

    # Spark's workers tell by the module of a function what it is.
    write.__module__ = "pyspark.sql.worker.write_into_data_source"
    return write
