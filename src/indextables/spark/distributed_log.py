"""Reading many version files on executors instead of the driver.

A reader asks its runner for version files; this one gives them to executors when they are many and
the store is remote. Files are read, decompressed and parsed there, and kept parsed by the process
that did it, as long as the store says that the file is still the same one. Versions come back in
order, whatever executor read them, so the log is replayed as it was written. When executors fail,
the driver reads.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from indextables import config as keys
from indextables.config import Config
from indextables.log.cache import LogCache, tracked
from indextables.log.names import version_path
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


class DistributedLogRunner:
    """Reads version files on executors when there are enough of them."""

    def __init__(self, executors: Runner, config: Config, *, default_parallelism: int) -> None:
        self._executors = executors
        self._config = config
        self._default_parallelism = default_parallelism
        self._driver = LocalRunner(config[keys.CHECKPOINT_PARALLELISM])
        self.distributed = 0
        """How many reads went to executors."""

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        timeout_s: float | None = None,
    ) -> list[Result]:
        """The results in the order of the tasks."""
        if len(tasks) < self._config[keys.DISTRIBUTED_MIN_FILES]:
            return self._driver.map(function, tasks, timeout_s=timeout_s)
        if isinstance(self._executors, SparkRunner):
            self._executors.parallelism = parallelism(
                len(tasks), self._config, default=self._default_parallelism
            )
        try:
            found: list[Any] = self._executors.map(read_version, tasks, timeout_s=timeout_s)  # type: ignore[arg-type]
        except Exception as error:
            # Executors may lack what the driver has: credentials, a route, time. What is wrong with
            # the log itself the driver finds as well, and says so by name.
            logger.warning("Executors could not read the log, the driver does: %s", error)
            return self._driver.map(function, tasks, timeout_s=timeout_s)
        self.distributed += 1
        return found


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
        found = cache.versions.get(task.version)
        if found is not None:
            return found
    found = task()
    cache.versions[task.version] = found
    tags[task.version] = tag
    return found
