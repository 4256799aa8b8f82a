"""How the tour prints: a screen for each step, hits with their words marked, times as bars."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from indextables.cli.output import bars

console = Console(highlight=False)
Result = TypeVar("Result")
_SHORT = 22
_NARROWEST, _INDENT = 24, 20


def heading(title: str, code: str) -> None:
    """What comes now, and the code that does it."""
    console.print()
    console.rule(f"[bold]{title}[/]", align="left", style="dim")
    for line in textwrap.dedent(code).splitlines():
        console.print(f"  [cyan]{escape(line)}[/]", soft_wrap=True)


def say(text: str) -> None:
    """A sentence, with markup."""
    console.print(f"  {text}", soft_wrap=True)


def say_wrapped(line: str) -> None:
    """A line of output whose last column goes on below where the terminal is narrow."""
    last = max(line.rstrip().rfind("  ") + 2, len(line) - len(line.lstrip()))
    head, left = line[:last], last
    if len(line) > console.width and console.width - last < _NARROWEST:
        console.print(Text(head.rstrip()), soft_wrap=True)
        head, left = " " * _INDENT, _INDENT
    for piece in textwrap.wrap(line[last:], max(_NARROWEST, console.width - left)) or [""]:
        console.print(Text(head + piece), soft_wrap=True)
        head = " " * left


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


def bars_of(what: Sequence[tuple[str, float, str]]) -> None:
    """Some numbers as bars, each with its label before and its text behind."""
    widest = max(len(label) for label, _, _ in what)
    drawn = bars([round(1000 * number) for _, number, _ in what])
    for (label, _, text), bar in zip(what, drawn, strict=True):
        console.print(f"  {label:<{widest}}  [green]{bar or '▏'}[/] {text}", soft_wrap=True)


def versus(ours: float, theirs: float, *, other: str) -> None:
    """Two times of the same question."""
    bars_of([("index", ours, f"{ours:,.1f} ms"), (other, theirs, f"{theirs:,.0f} ms")])
    ratio = theirs / ours
    say(f"[bold]{ratio:,.0f} times quicker[/]" if ratio >= 2 else f"ratio {ratio:.1f}")
