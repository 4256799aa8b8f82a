"""Where tasks run, and how long to wait before one is tried again.

A job or a scan is planned as a list of picklable tasks; a runner maps a function over them and
returns the results in order. Without Spark that is a pool of threads.

A query can be stopped from another thread: its caller runs it `under` a `Stop`, and its scans check
that between the pieces that they read.
"""

from __future__ import annotations

import contextlib
import contextvars
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from indextables.errors import StoppedError

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
        ended: Callable[[int], None] | None = None,
    ) -> list[Result]:
        """The results in the order of the tasks; `ended` gets the place of each that is done."""
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
        ended: Callable[[int], None] | None = None,
    ) -> list[Result]:
        def run(number: int, task: Task) -> Result:
            result = function(task)
            if ended is not None:
                ended(number)
            return result

        if len(tasks) <= 1 and timeout_s is None:
            return [run(number, task) for number, task in enumerate(tasks)]
        pool = ThreadPoolExecutor(max(1, min(self.parallelism, len(tasks))))
        try:
            return list(pool.map(run, range(len(tasks)), tasks, timeout=timeout_s))
        finally:
            # After a timeout the threads may still wait for the store; they are not waited for.
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


class Stop:
    """A request to end a query early, from any thread.

    >>> stop = Stop()
    >>> with stop.under():
    ...     stop.wish("nobody waits for it")
    ...     check_stop()
    Traceback (most recent call last):
    indextables.errors.StoppedError: The query was stopped: nobody waits for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._actions: list[Callable[[], None]] = []
        self.reason: str | None = None

    def wish(self, reason: str) -> None:
        """End what runs under this, at the next place where it can end."""
        with self._lock:
            self.reason = self.reason or reason
            actions, self._actions = self._actions, []
        for action in actions:
            action()

    def check(self) -> None:
        """Raise a `StoppedError` if the end was requested."""
        if self.reason is not None:
            raise StoppedError(self.reason)

    @contextlib.contextmanager
    def calling(self, action: Callable[[], None]) -> Iterator[None]:
        """Call this as soon as the end is requested, until the block is left."""
        with self._lock:
            if self.reason is None:
                self._actions.append(action)
        try:
            self.check()
            yield
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._actions.remove(action)

    @contextlib.contextmanager
    def under(self) -> Iterator[None]:
        """Let queries that this thread runs in the block check this."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: contextvars.ContextVar[Stop | None] = contextvars.ContextVar("stop", default=None)


def current_stop() -> Stop | None:
    """The `Stop` of the queries of this thread."""
    return _current.get()


def check_stop() -> None:
    """Raise a `StoppedError` if the query of this thread is to end."""
    stop = _current.get()
    if stop is not None:
        stop.check()


def pause_s(
    attempt: int,
    *,
    base_s: float,
    longest_s: float,
    spread: tuple[float, float] = (0.75, 1.25),
    jitter: Callable[[float, float], float] = random.uniform,
) -> float:
    """Seconds to wait after an attempt; the first one is number 1.

    >>> [pause_s(n, base_s=0.1, longest_s=0.5, jitter=max) for n in (1, 2, 3, 4)]
    [0.125, 0.25, 0.5, 0.625]
    """
    return min(longest_s, base_s * 2.0 ** min(attempt - 1, 32)) * jitter(*spread)
