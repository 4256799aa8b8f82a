"""Progress of long work: a bar in the terminal, and a note for `indextables top`."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from os import getpid
from typing import Any, Protocol

from indextables.jobs.running import Job, Note, Unit, remaining, without_secrets

_EXPECTED: ContextVar[int | None] = ContextVar("expected", default=None)


class Advance(Protocol):
    """Is told what was done since its last call: how many, and how many bytes."""

    def __call__(self, done: int, size: int = 0, /) -> None: ...


@contextlib.contextmanager
def expecting(total: int | None) -> Iterator[None]:
    """The number of rows that a write inside is going to have, if its caller can tell."""
    token = _EXPECTED.set(total)
    try:
        yield
    finally:
        _EXPECTED.reset(token)


@contextlib.contextmanager
def progress(
    title: str,
    total: int | None = None,
    unit: Unit = "splits",
    *,
    table: str = "",
    size: int | None = None,
    bar: bool = True,
) -> Iterator[Advance]:
    """Yields a function that is told how much was done since its last call, from any thread.

    The terminal shows what was done, and with a total also its share and the time that remains; so
    does `indextables top`.

    Args:
        title: What is done, as `Merging`.
        total: How much there is to do, if that is known.
        unit: What is counted.
        table: The place that it is done to.
        size: How many bytes there are to do, if that is known.
        bar: Whether a terminal shows it.
    """
    if total is None and unit == "rows":
        total = _EXPECTED.get()
    job = Job(title, without_secrets(table), 0, total, unit, 0, size, time.time(), getpid())
    note, lock, begun = Note(), threading.Lock(), time.monotonic()
    note.write(job)
    with _bar(job) if bar and sys.stderr.isatty() else contextlib.nullcontext(_nothing) as draw:

        def advance(done: int, size: int = 0, /) -> None:
            nonlocal job
            with lock:
                job = replace(job, done=job.done + done, bytes=job.bytes + size)
                now = job
            draw(now, time.monotonic() - begun)
            note.write(now)

        try:
            yield advance
        finally:
            note.remove()


def _nothing(_job: Job, _elapsed_s: float) -> None:
    pass


@contextlib.contextmanager
def _bar(job: Job) -> Iterator[Callable[[Job, float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    whole = job.bytes_total or job.total
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar: Any = bars.add_task(job.title, total=whole, state=state(job))

        def draw(now: Job, elapsed_s: float) -> None:
            done = now.bytes if job.bytes_total else now.done
            bars.update(bar, completed=done, state=state(now, remaining(now, elapsed_s)))

        yield draw


def state(job: Job, remaining_s: float | None = None) -> str:
    """What a progress bar says beside its bar.

    >>> state(Job("", "", 1500, 6000, "rows", 2_500_000, None, 0.0, 1), 75.4)
    '1,500 of 6,000 rows, 2.5 MB, 1:15 left'
    >>> state(Job("", "", 3, None, "splits", 0, 4_000, 0.0, 1))
    '3 splits, 0 B of 4 kB'
    """
    parts = []
    if job.unit != "bytes":
        count = f"{job.done:,}" + ("" if job.total is None else f" of {job.total:,}")
        parts.append(f"{count} {job.unit}")
    done, total = (job.done, job.total) if job.unit == "bytes" else (job.bytes, job.bytes_total)
    if done or total:
        parts.append(byte_size(done) + ("" if total is None else f" of {byte_size(total)}"))
    if remaining_s is not None:
        parts.append(f"{clock(remaining_s)} left")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """Seconds as people read them.

    >>> clock(75.4), clock(3_725)
    ('1:15', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def byte_size(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
