"""How the tour prints: headings, hits with their words marked, timings side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

console = Console(highlight=False)
Result = TypeVar("Result")
_SHORT = 22


def heading(title: str, code: str) -> None:
    """What comes now, and the code that does it."""
    console.print(f"\n[bold]{title}[/]  [dim]{escape(code)}[/]", soft_wrap=True)


def say(text: str) -> None:
    """A sentence, with markup."""
    console.print(f"  {text}", soft_wrap=True)


def grid(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A small table. Where a terminal is narrow, long texts give way and short values do not."""
    made = Grid()
    texts = [[_line(cell) for cell in row] for row in rows]
    for at, name in enumerate(columns):
        widest = max([len(name), *(row[at].cell_len for row in texts)])
        # Rich takes width away from columns that may wrap; a line of text is cut all the same.
        made.add_column(name, no_wrap=widest <= _SHORT)
    for row in texts:
        made.add_row(*row)
    console.print(made)


def _line(cell: object) -> Text:
    text = cell.copy() if isinstance(cell, Text) else Text(str(cell))
    text.overflow = "ellipsis"
    text.no_wrap = True
    return text


def timed(work: Callable[[], Result], *, times: int = 3) -> tuple[Result, float]:
    """A result and the milliseconds of the best of some runs."""
    found = []
    result: Any = None
    for _ in range(times):
        start = time.perf_counter()
        result = work()
        found.append((time.perf_counter() - start) * 1000)
    return result, min(found)


def versus(ours: float, theirs: float, *, other: str) -> None:
    """Two times of the same question."""
    ratio = theirs / ours
    verdict = f"[bold green]{ratio:,.0f} times[/] quicker" if ratio >= 2 else f"{ratio:.1f} times"
    say(f"{ours:,.1f} ms; {other} {theirs:,.0f} ms: {verdict}")
