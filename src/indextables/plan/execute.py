"""Running a plan in this process: splits in parallel, results in the order of the plan.

An `Environment` has the open indexes of the process. The indexes of many small splits are linked
and searched as one. Rows are counted from the log where it can say, else by searching the splits
that are in doubt.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables import config as keys
from indextables.config import Config
from indextables.errors import DamagedIndexError, TooManyExpansionsError
from indextables.log.snapshot import Snapshot
from indextables.log.vectors import StoredVector
from indextables.plan.scan import ScanPlan, SplitTask, SplitTasks, route_files, split_tasks
from indextables.plan.skipping import FileStatistics
from indextables.plan.split_rows import Piece, SplitRows
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Predicate, Search, conjuncts, searches
from indextables.runner import check_stop
from indextables.schema import column_field
from indextables.split.linked import LinkedSplits, Question, link_splits
from indextables.split.open_split import IndexPool, SplitFile, SplitSearcher
from indextables.split.row_numbers import RowNumbers
from indextables.split.search import SearchContext
from indextables.split.search.engine import FEW_LEVELS
from indextables.storage import Store
from indextables.xref.open_xref import close_xrefs

Item = TypeVar("Item")
Result = TypeVar("Result")

_NO_ROWS: RowNumbers = np.zeros(0, dtype=np.int64)
_SOME_ROWS: RowNumbers = np.zeros(1, dtype=np.int64)


Answers = Mapping[Search, RowNumbers]
"""The answers of a linked index, for one of its splits."""

_LINKED_FROM = 8
"""Fewer small splits than these are searched one by one."""
_LINKED_SIZE = 16 << 20
"""Larger splits are searched side by side, which one linked index is not."""
_LINKED_SHARE = 16
"""A linked index has one split for so many files that may be open, at the most."""
_MOST_GROUPS = 16
_ATTEMPTS = 3
_MANY_MATCHES = 256
"""With more matches in a split each is asked alone: that is quicker then, and the matches of all
splits need not be in memory before the first row is read."""


class _GroupKey:
    """What identifies a linked index in the pool, hashed once: it names every split."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, *parts: Hashable) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _GroupKey) and self._parts == other._parts)


@dataclass(frozen=True, eq=False)
class SplitGroup:
    """Splits that are searched as one index."""

    searchers: tuple[SplitSearcher, ...]
    key: _GroupKey

    def matching(self, search: Search) -> Mapping[int, RowNumbers] | None:
        """The rows of each split that has some; None if the splits must be asked one by one."""
        linked, question = self.linked_question(search)
        if question is None:
            return None
        return linked.matching_if_few(question, _MANY_MATCHES * len(self.searchers))

    def count(self, search: Search) -> int | None:
        """How many rows match; None if the splits must be asked one by one."""
        linked, question = self.linked_question(search)
        return None if question is None else linked.count(question)

    def linked_question(self, search: Search) -> tuple[LinkedSplits, Question | None]:
        """The index of all splits, and the search as it is asked of it, if that can be."""
        linked = link_splits(self.searchers, key=self.key)
        query = self.searchers[0].context.resolved(search)
        question = linked.question(query, self.searchers)
        can_answer = question.can_answer and question.levels <= FEW_LEVELS
        return linked, question if can_answer else None


@dataclass(frozen=True)
class Environment:
    """Everything that reading splits of a table needs: store, open indexes, schema, mapping."""

    store: Store
    pool: IndexPool
    context: SearchContext
    parallelism: int
    kept: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)
    """Results that queries of the same version share."""

    @classmethod
    def of(cls, view: TableView) -> Environment:
        """The environment of a table in this process."""
        kept: Environment | None = view.kept.get((Environment, os.getpid()))
        if kept is not None:
            kept.pool.follow()
            return kept
        config = view.config
        pool = _shared_pool(
            config[keys.CACHE_DISK_PATH],
            config[keys.CACHE_DISK_MAX_SIZE],
            config[keys.MAX_OPEN_FILES],
        )
        environment = cls(view.store, pool, view.context, config[keys.READ_PARALLELISM], view.kept)
        if view.elsewhere is not None:
            environment = view.elsewhere.environment(environment)
        view.kept[Environment, os.getpid()] = environment
        return environment

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
        vector = None
        if task.vector is not None:
            vector = StoredVector(self.store, task.vector, task.path)
        return SplitSearcher(split, self.pool, self.context, task.partition, vector=vector)

    def rows(self, task: SplitTask, answers: Answers | None = None) -> SplitRows:
        """The rows of a task's split under its predicate."""
        searcher = self.searcher(task)
        return SplitRows(
            replace(searcher, answers=answers) if answers else searcher, task.predicate
        )

    def group(self, tasks: Sequence[SplitTask]) -> SplitGroup:
        """Splits to be searched as one index; the same ones are the same group again."""
        # A plan makes no tasks for a group that is cached.
        planned = tasks.paths if isinstance(tasks, SplitTasks) else None
        paths = planned or tuple(task.path for task in tasks)
        groups: dict[Hashable, SplitGroup] = self.kept.setdefault(SplitGroup, {})
        group = groups.get(paths)
        if group is None:
            searchers = tuple(self.searcher(task) for task in tasks)
            key = _GroupKey(self.context.mapping, self.store.identity, paths)
            group = SplitGroup(searchers, key)
            while len(groups) >= _MOST_GROUPS:
                groups.pop(next(iter(groups)), None)
            groups[paths] = group
        return group

    def _groups(self, tasks: Sequence[SplitTask]) -> list[list[SplitTask]]:
        """The tasks of small splits, in as few groups as may be open; none if they are few."""
        damaged = self._unlinked
        small = [t for t in tasks if t.size <= _LINKED_SIZE and t.path not in damaged]
        if len(small) < _LINKED_FROM:
            return []
        most = max(_LINKED_FROM, self.pool.max_files // _LINKED_SHARE)
        return [small[at : at + most] for at in range(0, len(small), most)]

    @property
    def _unlinked(self) -> set[str]:
        """Splits that could not be opened with others; each is asked alone."""
        damaged: set[str] = self.kept.setdefault(DamagedIndexError, set())
        return damaged

    def _ask_together(
        self, tasks: Sequence[SplitTask], ask: Callable[[SplitGroup], Result | None]
    ) -> tuple[list[SplitTask], Result | None]:
        """The answer of a group of splits, and the group without damaged ones."""
        group = list(tasks)
        for _ in range(_ATTEMPTS):
            try:
                return group, ask(self.group(group))
            except TooManyExpansionsError:
                break  # each of them may match fewer words
            except DamagedIndexError as error:
                self._unlinked.add(error.path)
                group = [task for task in group if task.path != error.path]
                if not group:
                    break
        return [], None

    def searched(self, tasks: Sequence[SplitTask]) -> list[tuple[SplitTask, Answers]]:
        """The tasks that can have rows, with the answers of linked indexes to their searches."""
        together = self._searched_together(tasks)
        if together is not None:
            return together
        tasks = list(tasks)
        predicates = {id(task.predicate): task.predicate for task in tasks}
        distinct = dict.fromkeys(search for p in predicates.values() for search in searches(p))
        answers = {search: self._rows_by_path(tasks, search) for search in distinct}
        answered = {search: by_path for search, by_path in answers.items() if by_path}
        if not answered:
            return [(task, {}) for task in tasks]
        # Splits without a row of a search that every row must match.
        needed = {
            key: [
                answered[part]
                for part in conjuncts(p)
                if isinstance(part, Search) and part in answered
            ]
            for key, p in predicates.items()
        }
        return [
            (task, {s: rows[task.path] for s, rows in answered.items() if task.path in rows})
            for task in tasks
            if all(len(rows.get(task.path, _SOME_ROWS)) for rows in needed[id(task.predicate)])
        ]

    def _rows_by_path(self, tasks: Sequence[SplitTask], search: Search) -> dict[str, RowNumbers]:
        """The rows that match, for the splits for which linked indexes have the answer."""
        by_path: dict[str, RowNumbers] = {}
        ask = functools.partial(SplitGroup.matching, search=search)
        for group_tasks in self._groups(tasks):
            check_stop()
            group, rows_of = self._ask_together(group_tasks, ask)
            if rows_of is not None:
                by_path |= {task.path: _NO_ROWS for task in group}
                by_path |= {group[ordinal].path: rows for ordinal, rows in rows_of.items()}
        return by_path

    def _only_search(self, tasks: Sequence[SplitTask]) -> tuple[SplitTasks, Search] | None:
        """Splits that are all small, if one index can answer for all of them.

        Then tasks are made of those only that have rows: a thousand take longer than the search.
        """
        if (
            not isinstance(tasks, SplitTasks)
            or len(predicates := tasks.used) != 1
            or not isinstance(search := predicates[0], Search)
            or not _LINKED_FROM <= len(tasks) <= self.pool.max_files // _LINKED_SHARE
            or pc.max(tasks.files["size"]).as_py() > _LINKED_SIZE
            or self._unlinked
        ):
            return None
        return tasks, search

    def _searched_together(
        self, tasks: Sequence[SplitTask]
    ) -> list[tuple[SplitTask, Answers]] | None:
        only = self._only_search(tasks)
        if only is None:
            return None
        small_splits, search = only
        try:
            rows_of = self.group(small_splits).matching(search)
        except TooManyExpansionsError:
            return None  # each of them may match fewer words
        except DamagedIndexError as error:
            self._unlinked.add(error.path)
            return None
        if rows_of is None:
            return [(task, {}) for task in tasks]
        ordinals = sorted(rows_of)
        tasks_with_hits = small_splits.chosen(np.array(ordinals, dtype=np.intp))
        return [
            (task, {search: rows_of[at]})
            for at, task in zip(ordinals, tasks_with_hits, strict=True)
        ]

    def _counted_together(self, tasks: SplitTasks) -> int | None:
        """How many rows match, if one index can count them."""
        only = self._only_search(tasks)
        if only is None or tasks.has_vectors:  # an index counts the rows that are deleted, too
            return None
        with contextlib.suppress(TooManyExpansionsError, DamagedIndexError):
            return self.group(tasks).count(only[1])
        return None

    def counted_by_open_index(self, tasks: SplitTasks) -> int | None:
        """How many rows match, if one index of all the splits is open; XRefs would take longer."""
        group = self.kept.get(SplitGroup, {}).get(tasks.paths)
        if group is None or not self.pool.is_at_hand(group.key):
            return None
        return self._counted_together(tasks)

    def count(self, tasks: Sequence[SplitTask]) -> int:
        """How many rows of the tasks match."""
        if isinstance(tasks, SplitTasks):
            counted = self._counted_together(tasks)
            if counted is not None:
                return counted
        total, left = 0, {task.path: task for task in tasks}
        # An index counts the rows that are deleted, too.
        for group_tasks in self._groups([task for task in left.values() if task.vector is None]):
            search = group_tasks[0].predicate
            if not isinstance(search, Search) or any(
                t.predicate is not search for t in group_tasks
            ):
                continue
            group, counted = self._ask_together(
                group_tasks, functools.partial(SplitGroup.count, search=search)
            )
            if counted is not None:
                total += counted
                for task in group:
                    del left[task.path]
        unanswered = self.searched(list(left.values()))
        return total + sum(self.map(lambda item: self.rows(*item).count(), unanswered))

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Results in order, computed a few splits before they are taken."""
        if len(items) <= 1:
            return iter([work(item) for item in items])
        return self.ahead(functools.partial(work, item) for item in items)

    def ahead(self, calls: Iterable[Callable[[], Result]]) -> Iterator[Result]:
        """The results of calls in order, a few of them made before they are taken.

        Those of large pieces wait until there is room for them.
        """
        if self.parallelism == 1:
            for call in calls:
                check_stop()
                yield call()
            return
        pool = _threads(os.getpid(), self.parallelism)
        waiting: deque[tuple[Future[Result], int]] = deque()
        try:
            for call in calls:
                check_stop()
                size = call.size if isinstance(call, Piece) else 0
                while waiting and sum(s for _, s in waiting) + size > _BYTES_AHEAD:
                    yield waiting.popleft()[0].result()
                waiting.append((pool.submit(call), size))
                if len(waiting) >= self.parallelism:
                    yield waiting.popleft()[0].result()
            while waiting:
                yield waiting.popleft()[0].result()
        finally:
            for future, _ in waiting:
                future.cancel()


@functools.cache
def _threads(process: int, parallelism: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """Threads are kept between scans; a forked process has none of its parent's."""
    return ThreadPoolExecutor(parallelism, thread_name_prefix="indextables-scan")


_BYTES_AHEAD = 96 << 20
"""Rows that are read before they are taken, while there is more than one piece of them."""
_SMALL_PIECE = 8 << 20

_pools: dict[tuple[str, int, int], IndexPool] = {}
_pools_lock = threading.Lock()


def _shared_pool(path: str, max_bytes: int, max_files: int) -> IndexPool:
    """Open indexes are shared by all tables and queries of a process."""
    key = (path, max_bytes, max_files)
    with _pools_lock:
        pool = _pools.get(key)
        if pool is None:
            pool = _pools[key] = IndexPool.from_config(
                Config(
                    {
                        keys.CACHE_DISK_PATH.name: path,
                        keys.CACHE_DISK_MAX_SIZE.name: max_bytes,
                        keys.MAX_OPEN_FILES.name: max_files,
                    }
                )
            )
    return pool.follow()


def close_indexes() -> int:
    """Close all indexes that this process has open; returns how many there were."""
    with _pools_lock:
        return close_xrefs() + sum(pool.clear() for pool in _pools.values())


def run_scan(plan: ScanPlan) -> Iterator[pa.Table]:
    """The rows of a plan, piece by piece, in the order of its splits.

    Splits are searched before their rows are taken; of large results only a few pieces are in
    memory at once.
    """
    left = plan.limit
    if left == 0:
        return
    environment = Environment.of(plan.view)

    def search(item: tuple[SplitTask, Answers]) -> pa.Table | list[Piece]:
        pieces = environment.rows(*item).pieces(plan.columns, limit=plan.limit)
        # A small result is read in the thread that searched.
        return pieces[0]() if len(pieces) == 1 and pieces[0].size <= _SMALL_PIECE else pieces

    # One stream over all splits: the pieces of the next one are begun before the last are taken.
    calls = (
        piece
        for tables in environment.map(search, environment.searched(plan.tasks))
        for piece in ([lambda tables=tables: tables] if isinstance(tables, pa.Table) else tables)
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
    """The schema of the rows of a plan."""
    return pa.schema([column_field(plan.view.schema, name) for name in plan.columns])


def count_from_log(snapshot: Snapshot, predicate: Predicate) -> tuple[int, pa.Table]:
    """Rows that the log alone counts, and the files whose rows have to be looked at."""
    files = snapshot.entries
    if not files.num_rows:
        return 0, files
    counted = np.asarray(pc.is_valid(files["numRecords"]))
    if predicate == TRUE:
        keep = all_match = np.ones(files.num_rows, dtype=np.bool_)
    else:
        keep, all_match = FileStatistics.of(snapshot).judge(predicate)
    sure, doubtful = all_match & counted, keep & ~(all_match & counted)
    total = pc.sum(files["numRecords"].filter(pa.array(sure))).as_py() or 0
    return total, files if doubtful.all() else files.filter(pa.array(doubtful))


def count_rows(view: TableView, predicate: Predicate) -> int:
    """How many rows of a table match. Indexes are opened only where the log cannot decide."""
    from_log, doubtful = count_from_log(view.snapshot, predicate)
    tasks = split_tasks(view.snapshot, doubtful, predicate)
    if tasks and view.snapshot.xrefs:
        counted = Environment.of(view).counted_by_open_index(tasks)
        if counted is not None:
            return from_log + counted
        routed, _ = route_files(view.router, predicate, doubtful)
        if routed is not doubtful:
            tasks = split_tasks(view.snapshot, routed, predicate)
    if not tasks:
        return from_log
    return from_log + Environment.of(view).count(tasks)
