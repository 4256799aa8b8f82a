"""Running the tasks of a job on Spark's executors.

The same jobs that run in a pool of threads run on a cluster: a task is pickled, an executor calls
the job's function with it, the result comes back in the order of the tasks. Only functions and
tasks of this package travel, and what comes back was pickled by our own workers.

Many version files of a log may be read that way too, if the store is remote. Files are read,
decompressed and parsed on executors, and kept parsed by the process that did it, as long as the
store says that the file is still the same one. Versions are replayed in their order, whatever
executor read them. When executors fail, the driver reads. It is off by default: a driver reads
version files in threads, a checkpoint leaves few of them, and starting tasks took 1.2 to 4.3 times
as long as reading 10 to 1,000 files on one machine. Versions come back whole, not reduced to the
last action of each file: the driver keeps them to check commits for conflicts and to travel in
time.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from indextables import config as keys
from indextables.config import Config
from indextables.log.cache import LogCache, tracked
from indextables.log.layout import version_path
from indextables.log.reader import ReadVersion
from indextables.log.snapshot import VersionActions
from indextables.runner import LocalRunner, Runner
from indextables.storage import Store
from indextables.storage.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

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
        payloads = [(number, pickle.dumps(task)) for number, task in enumerate(tasks)]
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
        for number, payload in payloads:
            try:
                result = pickle.dumps(self.function(pickle.loads(payload)))
                if self.done is not None:
                    self.done.add([number])
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
    """Pass on which tasks have ended while they run. A task that runs twice is reported once."""
    reported: set[int] = set()
    over = threading.Event()

    def tell() -> None:
        for number in list(done.value):
            if number not in reported:
                reported.add(number)
                ended(number)

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


# --- version files read on executors ---------------------------------------------------------


_MOST_TABLES = 64


@dataclass(frozen=True, slots=True)
class DistributedRead:
    """What executors did for one read of a log."""

    files: int
    cached_files: int
    """Version files that a process of an executor still had."""
    seconds: float

    @property
    def hit_rate(self) -> float:
        """The share of the files that was not read from the store."""
        return self.cached_files / self.files if self.files else 0.0


class DistributedLogRunner:
    """Reads version files on executors when there are enough of them."""

    def __init__(self, executors: Runner, config: Config, *, default_parallelism: int) -> None:
        self._executors = executors
        self._config = config
        self._default_parallelism = default_parallelism
        self._driver = LocalRunner(config[keys.CHECKPOINT_PARALLELISM])
        self.distributed = 0
        """How many reads went to executors."""
        self.last_read: DistributedRead | None = None
        """The last one of them."""

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        timeout_s: float | None = None,
        ended: Callable[[int], None] | None = None,
    ) -> list[Result]:
        """The results in the order of the tasks."""
        if len(tasks) < self._config[keys.DISTRIBUTED_MIN_FILES]:
            return self._driver.map(function, tasks, timeout_s=timeout_s, ended=ended)
        if isinstance(self._executors, SparkRunner):
            self._executors.parallelism = parallelism(
                len(tasks), self._config, default=self._default_parallelism
            )
        started = time.monotonic()
        try:
            answers: list[Any] = self._executors.map(
                _counted,  # type: ignore[arg-type]
                tasks,
                timeout_s=timeout_s,
                ended=ended,
            )
        except Exception as error:
            # Executors may lack what the driver has: credentials, a route, time. What is wrong with
            # the log itself the driver finds as well, and says so by name.
            logger.warning("Executors could not read the log, the driver does: %s", error)
            return self._driver.map(function, tasks, timeout_s=timeout_s)
        self.distributed += 1
        cached = sum(was_cached for _, was_cached in answers)
        self.last_read = DistributedRead(len(tasks), cached, time.monotonic() - started)
        logger.info(
            "Executors read %d version files in %.2f s, %d of them from their caches.",
            len(tasks), self.last_read.seconds, cached,
        )  # fmt: skip
        return [version for version, _ in answers]


def parallelism(files: int, config: Config, *, default: int) -> int:
    """How many tasks read a number of files.

    >>> [parallelism(n, Config(), default=8) for n in (5, 50, 500, 5000)]
    [1, 8, 16, 16]
    """
    configured = config[keys.DISTRIBUTED_PARALLELISM] or default
    if not config[keys.DISTRIBUTED_ADAPTIVE]:
        return min(files, configured)
    if files < 10:
        return 1
    if files < 100:
        return max(1, min(files // 2, configured))
    return max(1, min(files // 10, configured * 2))


def runner_of(spark: SparkSession) -> Callable[[Store, Config], Runner | None]:
    """Chooses how the logs that a driver opens are read."""
    context: Any = spark.sparkContext

    def choose(store: Store, config: Config) -> Runner | None:
        if isinstance(store, LocalStore) or store.uri.startswith("memory:"):
            return None
        if not config[keys.DISTRIBUTED_LOG]:
            return None
        return DistributedLogRunner(
            SparkRunner(spark), config, default_parallelism=int(context.defaultParallelism)
        )

    return choose


# --- on executors ----------------------------------------------------------------------------

_caches: OrderedDict[str, tuple[LogCache, dict[int, str | None]]] = OrderedDict()


def read_version(task: ReadVersion) -> VersionActions:
    """Read one version file, or take it from what this process read before."""
    return _counted(task)[0]


def _counted(task: ReadVersion) -> tuple[VersionActions, bool]:
    """A version, and whether this process had it."""
    identity = task.store.identity
    if identity not in _caches:
        _caches[identity] = tracked(LogCache(Config()), identity), {}
        while len(_caches) > _MOST_TABLES:
            _caches.popitem(last=False)
    _caches.move_to_end(identity)
    cache, tags = _caches[identity]
    # A table may be deleted and made again under the same name.
    tag = task.store.head(version_path(task.version)).etag
    if tag is not None and tags.get(task.version) == tag:
        cached = cache.versions.get(task.version)
        if cached is not None:
            return cached, True
    version = task()
    cache.versions[task.version] = version
    tags[task.version] = tag
    return version, False
