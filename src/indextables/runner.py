"""Where tasks run.

A job or a scan is planned as a list of picklable tasks; a runner maps a function over them and
gives the results back in order. Without Spark that is a pool of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class Runner(Protocol):
    """Maps a function over tasks. The first error ends the run and is raised as it is."""

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        timeout_s: float | None = None,
    ) -> list[Result]:
        """The results in the order of the tasks."""
        ...


class LocalRunner:
    """Runs tasks in threads of this process, at most `parallelism` at once.

    >>> LocalRunner(4).map(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        timeout_s: float | None = None,
    ) -> list[Result]:
        if len(tasks) <= 1 and timeout_s is None:
            return [function(task) for task in tasks]
        pool = ThreadPoolExecutor(max(1, min(self.parallelism, len(tasks))))
        try:
            return list(pool.map(function, tasks, timeout=timeout_s))
        finally:
            # After a timeout the threads may still wait for the store; nobody waits for them.
            pool.shutdown(wait=False, cancel_futures=True)


def beside(work: Callable[[], Result]) -> Callable[[], Result]:
    """Begin some work in a thread; what is returned waits for its result, or raises its error.

    >>> beside(lambda: 1 + 1)()
    2
    """
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future.result
