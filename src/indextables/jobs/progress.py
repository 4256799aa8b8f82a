"""Progress of long work, shown in a terminal and nowhere else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Literal

Unit = Literal["rows", "bytes", "splits", "files"]

_EXPECTED: ContextVar[int | None] = ContextVar("expected", default=None)


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
    title: str, total: int | None = None, unit: Unit = "splits"
) -> Iterator[Callable[[int], None]]:
    """Yields a function that is told how much was done since its last call.

    The terminal shows what was done, and with a total also its share and the time that remains.
    """
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    if total is None and unit == "rows":
        total = _EXPECTED.get()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(title, total=total, state=state(0, total, unit))

        def advance(done: int) -> None:
            bars.advance(bar, done)
            task: Any = bars.tasks[bar]
            bars.update(bar, state=state(int(task.completed), total, unit, task.time_remaining))

        yield advance


def state(done: int, total: int | None, unit: Unit, remaining_s: float | None = None) -> str:
    """What a progress bar says beside its bar.

    >>> state(1500, 6000, "rows", 75.4), state(2_500_000, None, "bytes")
    ('1,500 of 6,000 rows, 1:15 left', '2.5 MB')
    """
    if unit == "bytes":
        shown = _size(done) + ("" if total is None else f" of {_size(total)}")
    else:
        shown = f"{done:,}" + ("" if total is None else f" of {total:,}") + f" {unit}"
    if remaining_s is None or total is None or done >= total:
        return shown
    minutes, seconds = divmod(int(remaining_s), 60)
    return f"{shown}, {minutes}:{seconds:02} left"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
