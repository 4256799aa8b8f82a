"""Running the tasks of a job on Spark's executors.

The same jobs that run in a pool of threads run on a cluster: a task is pickled, an executor calls
the job's function with it, the result comes back in the order of the tasks. Only functions and
tasks of this package travel, and what comes back was pickled by our own workers.
"""

from __future__ import annotations

import contextlib
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
        ended: Callable[[int], None] | None = None,
    ) -> list[Result]:
        """The results in the order of the tasks. `TimeoutError` if they take too long."""
        if not tasks:
            return []
        slices = min(self.parallelism or len(tasks), len(tasks))
        payloads = [(place, pickle.dumps(task)) for place, task in enumerate(tasks)]
        done: Any = None if ended is None else self._context.accumulator([], _Places())
        rows = self._context.parallelize(payloads, slices).mapPartitions(_Call(function, done))
        with contextlib.nullcontext() if ended is None else _watched(done, ended):
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
    done: Any = None
    """Hears which tasks have ended."""

    def __call__(self, payloads: Iterator[tuple[int, bytes]]) -> Iterator[tuple[bool, bytes]]:
        for place, payload in payloads:
            try:
                result = pickle.dumps(self.function(pickle.loads(payload)))
                if self.done is not None:
                    self.done.add([place])
                yield True, result
            except Exception as error:
                # Raised here, Spark would run the task again and wrap the error in a traceback.
                yield False, _pickled(error)
                return


class _Places:
    """An accumulator of lists; Spark adds what a task says when the task has ended."""

    def zero(self, value: list[int]) -> list[int]:  # noqa: ARG002
        return []

    def addInPlace(self, one: list[int], other: list[int]) -> list[int]:  # noqa: N802
        one.extend(other)
        return one


@contextlib.contextmanager
def _watched(done: Any, ended: Callable[[int], None]) -> Iterator[None]:
    """Pass on which tasks have ended while they run. A task that is run twice is told once."""
    told: set[int] = set()
    over = threading.Event()

    def tell() -> None:
        for place in list(done.value):
            if place not in told:
                told.add(place)
                ended(place)

    def watch() -> None:
        while not over.wait(0.5):
            tell()

    thread = threading.Thread(target=watch, name="indextables-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        tell()


def _pickled(error: Exception) -> bytes:
    try:
        return pickle.dumps(error)
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
