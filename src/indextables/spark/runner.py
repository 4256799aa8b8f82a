"""Running the tasks of a job on Spark's executors.

The same jobs that run in a pool of threads run on a cluster: a task is pickled, an executor calls
the job's function with it, the result comes back in the order of the tasks. Only functions and
tasks of this package travel, and what comes back was pickled by our own workers.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")


class SparkRunner:
    """Maps a function over tasks on the executors of a classic session.

    `parallelism` is the number of Spark tasks; by default there is one for every task of the job.
    The first error ends the run and is raised as it is.
    """

    def __init__(self, spark: SparkSession, *, parallelism: int | None = None) -> None:
        self._context: Any = spark.sparkContext
        self.parallelism = parallelism

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        timeout_s: float | None = None,
    ) -> list[Result]:
        """The results in the order of the tasks. `TimeoutError` if they take too long."""
        if not tasks:
            return []
        slices = min(self.parallelism or len(tasks), len(tasks))
        payloads = [pickle.dumps(task) for task in tasks]
        rows = self._context.parallelize(payloads, slices).mapPartitions(_Call(function))
        answers: list[tuple[bool, bytes]] = self._collect(rows, timeout_s)
        results = []
        for is_result, payload in answers:
            answer = pickle.loads(payload)
            if not is_result:
                raise answer
            results.append(answer)
        return results

    def _collect(self, rows: Any, timeout_s: float | None) -> Any:
        if timeout_s is None:
            return rows.collect()
        group = f"indextables-{uuid.uuid4()}"
        late = threading.Event()

        def cancel() -> None:
            late.set()
            self._context.cancelJobGroup(group)

        before = self._context.getLocalProperty("spark.jobGroup.id")
        timer = threading.Timer(timeout_s, cancel)
        self._context.setJobGroup(group, "IndexTables", interruptOnCancel=True)
        timer.start()
        try:
            return rows.collect()
        except Exception as error:
            if late.is_set():
                raise TimeoutError(f"Tasks took longer than {timeout_s} seconds.") from error
            raise
        finally:
            timer.cancel()
            self._context.setLocalProperty("spark.jobGroup.id", before)


def executors() -> SparkRunner | None:
    """Runs tasks on the executors of the active session; None if it has none.

    In local mode threads of this process do the same without starting Python workers.
    """
    from pyspark.sql import SparkSession

    spark: Any = SparkSession.getActiveSession()
    if spark is None or type(spark).__module__ != "pyspark.sql.session":  # Connect
        return None
    master = str(spark.sparkContext.master)
    return None if master == "local" or master.startswith("local[") else SparkRunner(spark)


@dataclass(frozen=True)
class _Call:
    """What a Spark task does with its share of the tasks."""

    function: Callable[[Any], Any]

    def __call__(self, payloads: Iterator[bytes]) -> Iterator[tuple[bool, bytes]]:
        for payload in payloads:
            try:
                yield True, pickle.dumps(self.function(pickle.loads(payload)))
            except Exception as error:
                # Raised here, Spark would run the task again and wrap the error in a traceback.
                yield False, _pickled(error)
                return


def _pickled(error: Exception) -> bytes:
    try:
        return pickle.dumps(error)
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
