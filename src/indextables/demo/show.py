"""How the tour prints: headings, hits with their words marked, timings side by side."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

console = Console(highlight=False)
Result = TypeVar("Result")


def heading(title: str, code: str) -> None:
    """What comes now, and the code that does it."""
    console.print(f"\n[bold]{title}[/]  [dim]{escape(code)}[/]", soft_wrap=True)


def say(text: str) -> None:
    """A sentence, with markup."""
    console.print(f"  {text}", soft_wrap=True)


def grid(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A small table."""
    made = Grid()
    for name in columns:
        made.add_column(name, min_width=len(name), no_wrap=True, overflow="ellipsis")
    for row in rows:
        made.add_row(*(str(cell) for cell in row))
    console.print(made)


def marked(snippet: str, *, width: int = 90) -> str:
    """A snippet on one line, its words in colour."""
    text = escape(html.unescape(re.sub(r"\s+", " ", snippet)))
    parts = re.split(r"(<b>.*?</b>)", text)
    shown, length = [], 0
    for part in parts:
        plain = part.replace("<b>", "").replace("</b>", "")[: width - length]
        length += len(plain)
        shown.append(f"[bold yellow]{plain}[/]" if part.startswith("<b>") and plain else plain)
    return "".join(shown)


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
