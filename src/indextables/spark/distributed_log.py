"""Reading many version files on executors instead of the driver.

A reader asks its runner for version files; this one passes them to executors when they are many and
the store is remote. Files are read, decompressed and parsed there, and kept parsed by the process
that did it, as long as the store says that the file is still the same one. Versions are replayed in
their order, whatever executor read them. When executors fail, the driver reads.

It is off by default: a driver reads version files in threads, a checkpoint leaves few of them, and
starting tasks took 1.2 to 4.3 times as long as reading 10 to 1,000 files on one machine. Versions
come back whole, not reduced to the last action of each file: the driver keeps them to check commits
for conflicts and to travel in time.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from indextables import config as keys
from indextables.config import Config
from indextables.log.cache import LogCache, tracked
from indextables.log.layout import version_path
from indextables.log.reader import ReadVersion
from indextables.log.snapshot import VersionActions
from indextables.runner import LocalRunner, Runner
from indextables.spark.runner import SparkRunner
from indextables.storage import Store
from indextables.storage.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

Task = TypeVar("Task")
Result = TypeVar("Result")

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
    """How many tasks read so many files.

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
