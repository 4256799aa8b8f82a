"""Searches in a bounded number of threads, each with an end.

A search ends by itself, at its time limit, when its client goes away, or when a user stops it by
its id. The answer is sent at once; the thread ends at the next place where a scan looks: between
splits, between pieces of a large split, and at any time inside the engine of SQL. A ranked search
in the index of all splits is one such piece. A stopped search gives its place to another one at
once, and runs to its end beside it. At most as many do so as there are places; the place of a
further one is free when it has ended, so that stopped searches cannot pile up.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from indextables.errors import IndexTablesError, StoppedError
from indextables.runner import Stop

Result = TypeVar("Result")


class RequestError(IndexTablesError, ValueError):
    """A request that asks for what cannot be answered."""


class BusyError(IndexTablesError):
    """Too many searches wait already."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} searches are waiting already. Try again in a moment.")


class TimeLimitError(StoppedError):
    """A search took longer than it may."""


@dataclass(frozen=True, slots=True)
class Running:
    """A search that has begun or waits."""

    stop: Stop
    what: str
    since_s: float


class Work:
    """Runs functions in threads, at most `threads` at once; `most_waiting` others wait."""

    def __init__(self, *, threads: int, most_waiting: int, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(2 * threads, thread_name_prefix="indextables-serve")
        self._most_abandoned = threads
        self._abandoned = 0
        self._free = asyncio.Semaphore(threads)
        self._most = threads + most_waiting
        self._running: dict[str, Running] = {}
        self._number = 0

    async def run(
        self,
        function: Callable[[], Result],
        request: Request,
        *,
        what: str,
        name: str | None = None,
    ) -> Result:
        """The result of a function. The request's body has been read."""
        if len(self._running) >= self._most:
            raise BusyError(len(self._running))
        self._number += 1
        key = name or f"s{self._number}"
        if key in self._running:
            raise RequestError(f"Another search has the id {key!r}.")
        stop = Stop()
        self._running[key] = Running(stop, what, time.monotonic())
        disconnected = asyncio.create_task(_disconnected(request))
        disconnected.add_done_callback(
            lambda task: None if task.cancelled() else stop.wish("its client has gone")
        )
        try:
            return await self._run(function, stop)
        finally:
            disconnected.cancel()
            del self._running[key]

    async def _run(self, function: Callable[[], Result], stop: Stop) -> Result:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()

        def work() -> Result:
            with stop.under():
                stop.check()
                return function()

        with stop.calling(lambda: _from_thread(loop, stopped)):
            ends = asyncio.create_task(stopped.wait())
            turn = asyncio.create_task(self._free.acquire())
            try:
                if not await _first_of(turn, ends, None):
                    turn.cancel()
                    raise StoppedError(stop.reason or "")
                future = loop.run_in_executor(self._pool, work)
                future.add_done_callback(self._ended)
                if await _first_of(future, ends, self.timeout_s):
                    return future.result()
                self._abandon(future)
            finally:
                ends.cancel()
        if stop.reason is None:
            reason = f"it took longer than {self.timeout_s:g} seconds"
            stop.wish(reason)
            raise TimeLimitError(reason)
        raise StoppedError(stop.reason)

    def _abandon(self, future: asyncio.Future[Any]) -> None:
        """Give the place of a search that was stopped to others while it comes to its end."""
        if future.done() or self._abandoned >= self._most_abandoned:
            return  # its place is free when it has ended
        self._abandoned += 1
        future.remove_done_callback(self._ended)
        future.add_done_callback(self._abandoned_ended)
        self._free.release()

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._free.release()
        _forget(future)

    def _abandoned_ended(self, future: asyncio.Future[Any]) -> None:
        self._abandoned -= 1
        _forget(future)

    def running(self) -> list[dict[str, Any]]:
        """The searches that have begun or wait."""
        now = time.monotonic()
        return [
            {"id": key, "what": running.what, "seconds": round(now - running.since_s, 3)}
            for key, running in self._running.items()
        ]

    def stop(self, key: str) -> bool:
        """Stop a search; whether there is one of that id."""
        running = self._running.get(key)
        if running is not None:
            running.stop.wish("a user stopped it")
        return running is not None

    def close(self) -> None:
        """Stop everything."""
        for running in list(self._running.values()):
            running.stop.wish("the server ends")
        self._pool.shutdown(wait=False, cancel_futures=True)


def _forget(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()  # an error after the answer was sent has no receiver


async def _first_of(
    work: asyncio.Future[Any], ends: asyncio.Future[Any], timeout_s: float | None
) -> bool:
    """Whether one is done before the other, and in time."""
    await asyncio.wait({work, ends}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    return work.done()


def _from_thread(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(event.set)


async def _disconnected(request: Request) -> None:
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
