"""Races between processes. The functions live here because such a process imports them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any

from indextables.errors import ObjectExistsError
from indextables.storage import Store

_barrier: Barrier | None = None


def _begin(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603
    _barrier = barrier


def _together(task: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    assert _barrier is not None
    _barrier.wait(60)
    return task(*arguments)


def race_processes(task: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """Call the task once in each of many processes, all at the same moment."""
    context = multiprocessing.get_context("forkserver")
    count = len(arguments)
    barrier = context.Barrier(count)
    with ProcessPoolExecutor(count, context, _begin, (barrier,)) as pool:
        return list(pool.map(_together, [task] * count, arguments))


def race_threads(task: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """The same with threads."""
    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(lambda a: task(*a), arguments))


def create_all(store: Store, paths: Sequence[str], data: bytes, *, meet: bool = False) -> list[str]:
    """Try to create every path; return those won. Read what is there after each one lost.

    With `meet` the processes of a race wait for each other before every path.
    """
    won = []
    for path in paths:
        if meet:
            assert _barrier is not None
            _barrier.wait(60)
        try:
            store.put_if_absent(path, data)
            won.append(path)
        except ObjectExistsError:
            seen = store.get(path)
            assert len(seen) == len(data) and len(set(seen)) == 1, "half an object was visible"
    return won


def create_all_meeting(store: Store, paths: Sequence[str], data: bytes) -> list[str]:
    """`create_all` for processes that start on every path at the same moment."""
    return create_all(store, paths, data, meet=True)


def increment(store: Store, path: str, times: int) -> int:
    """Add one to a counter so many times; return how many attempts lost."""
    lost = 0
    for _ in range(times):
        while True:
            data, etag = store.get_with_etag(path)
            try:
                store.put_if_match(path, b"%d" % (int(data) + 1), etag)
                break
            except ObjectExistsError:
                lost += 1
    return lost
