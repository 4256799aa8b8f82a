"""Running a plan in this process: splits in parallel, results in the order of the plan.

Counting rows: from the log where it can be, else by searching the splits that are in doubt.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables import config as keys
from indextables.config import Config
from indextables.log.snapshot import Snapshot
from indextables.plan.scan import ScanPlan, SplitTask, route_files, split_tasks
from indextables.plan.skipping import judge
from indextables.plan.split_rows import Piece, SplitRows
from indextables.plan.view import TableView
from indextables.predicate import FALSE, TRUE, Predicate
from indextables.schema import column_field
from indextables.split.open_split import IndexPool, SplitFile, SplitSearcher
from indextables.split.search import SearchContext
from indextables.storage import Store
from indextables.xref.open_xref import close_xrefs

Result = TypeVar("Result")


@dataclass(frozen=True)
class Environment:
    """What it takes to read splits of a table: its store, open indexes, schema and mapping."""

    store: Store
    pool: IndexPool
    context: SearchContext
    parallelism: int

    @classmethod
    def of(cls, view: TableView) -> Environment:
        """The environment of a table in this process."""
        config = view.config
        pool = _shared_pool(
            config[keys.CACHE_DISK_PATH],
            config[keys.CACHE_DISK_MAX_SIZE],
            config[keys.MAX_OPEN_SPLITS],
        )
        return cls(view.store, pool, view.context, config[keys.READ_PARALLELISM])

    def searcher(self, task: SplitTask) -> SplitSearcher:
        """The split of a task, opened when it is first used."""
        split = SplitFile(
            self.store,
            task.path,
            task.size,
            task.footer_start,
            task.footer_end,
            self.pool.footers,
            task.opening,
        )
        return SplitSearcher(split, self.pool, self.context, task.partition)

    def rows(self, task: SplitTask) -> SplitRows:
        """The rows of a task's split under its predicate."""
        return SplitRows(self.searcher(task), task.predicate)

    def map(
        self, work: Callable[[SplitTask], Result], tasks: Sequence[SplitTask]
    ) -> Iterator[Result]:
        """Results in order, computed a few splits ahead of whoever takes them."""
        if len(tasks) <= 1:
            return iter([work(task) for task in tasks])
        return self.ahead(functools.partial(work, task) for task in tasks)

    def ahead(self, calls: Iterable[Callable[[], Result]]) -> Iterator[Result]:
        """The results of calls in order, a few of them made ahead of whoever takes them."""
        if self.parallelism == 1:
            for call in calls:
                yield call()
            return
        pool = _threads(os.getpid(), self.parallelism)
        waiting: deque[Future[Result]] = deque()
        try:
            for call in calls:
                waiting.append(pool.submit(call))
                if len(waiting) >= self.parallelism:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@functools.cache
def _threads(process: int, parallelism: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """Threads are kept between scans; a forked process has none of its parent's."""
    return ThreadPoolExecutor(parallelism, thread_name_prefix="indextables-scan")


_pools: dict[tuple[str, int, int], IndexPool] = {}
_pools_lock = threading.Lock()


def _shared_pool(path: str, max_bytes: int, max_open: int) -> IndexPool:
    """Open indexes are shared by all tables and queries of a process."""
    key = (path, max_bytes, max_open)
    with _pools_lock:
        pool = _pools.get(key)
        if pool is None:
            pool = _pools[key] = IndexPool.from_config(
                Config(
                    {
                        keys.CACHE_DISK_PATH.name: path,
                        keys.CACHE_DISK_MAX_SIZE.name: max_bytes,
                        keys.MAX_OPEN_SPLITS.name: max_open,
                    }
                )
            )
    return pool.follow()


def close_indexes() -> int:
    """Close all indexes that this process has open; gives their number."""
    with _pools_lock:
        return close_xrefs() + sum(pool.clear() for pool in _pools.values())


def run_scan(plan: ScanPlan) -> Iterator[pa.Table]:
    """The rows of a plan, piece by piece, in the order of its splits.

    Splits are searched ahead of whoever takes the rows; of large results only a few pieces are in
    memory at once.
    """
    left = plan.limit
    if left == 0:
        return
    environment = Environment.of(plan.view)

    def search(task: SplitTask) -> pa.Table | list[Piece]:
        pieces = environment.rows(task).pieces(plan.columns, limit=plan.limit)
        return pieces[0]() if len(pieces) == 1 else pieces  # a small one is read where it is found

    # One stream over all splits: the pieces of the next one are begun before the last are taken.
    calls = (
        piece
        for found in environment.map(search, plan.tasks)
        for piece in ([lambda found=found: found] if isinstance(found, pa.Table) else found)
    )
    for table in environment.ahead(calls):
        if left is None:
            yield table
            continue
        yield table.slice(0, left)
        left -= min(left, table.num_rows)
        if left == 0:
            return


def result_schema(plan: ScanPlan) -> pa.Schema:
    """The schema of the rows that a plan gives."""
    return pa.schema([column_field(plan.view.schema, name) for name in plan.columns])


def count_from_log(snapshot: Snapshot, predicate: Predicate) -> tuple[int, pa.Table]:
    """Rows that the log alone counts, and the files whose rows have to be looked at."""
    files = snapshot.entries
    if not files.num_rows:
        return 0, files
    counted = np.asarray(pc.is_valid(files["numRecords"]))
    if predicate == TRUE:
        keep = whole = np.ones(files.num_rows, dtype=np.bool_)
    else:
        keep, whole = judge(
            predicate,
            files,
            schema=snapshot.schema,
            partition_columns=snapshot.partition_columns,
        )
    sure = files.filter(pa.array(whole & counted))
    return pc.sum(sure["numRecords"]).as_py() or 0, files.filter(
        pa.array(keep & ~(whole & counted))
    )


def count_rows(view: TableView, predicate: Predicate) -> int:
    """How many rows of a table match. Indexes are opened if the log and XRefs leave a doubt."""
    known, doubtful = count_from_log(view.snapshot, predicate)
    if doubtful.num_rows:
        doubtful, _ = route_files(view.router, predicate, doubtful)
    tasks = [t for t in split_tasks(view.snapshot, doubtful, predicate) if t.predicate != FALSE]
    if not tasks:
        return known
    here = Environment.of(view)
    return known + sum(here.map(lambda task: here.rows(task).count(), tasks))
