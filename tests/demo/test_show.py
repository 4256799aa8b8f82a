"""The tour's output is legible on a narrow terminal and in a file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from indextables.cli.output import highlighted
from indextables.demo import show


@pytest.mark.parametrize("width", [50, 80, 200])
def test_short_values_stay_whole_and_long_ones_are_cut(monkeypatch, width):
    out = io.StringIO()
    monkeypatch.setattr(show, "console", Console(file=out, width=width))
    long = "a_module.with.many.parts." * 4
    show.grid(
        ("score", "where", "found"), [("12.34", long, highlighted(f"<b>word</b> {long}"))] * 2
    )
    lines = out.getvalue().splitlines()
    assert sum("12.34" in line for line in lines) == 2 and "score" in lines[1]
    assert len(lines) == 6 and {len(line) for line in lines} == {len(lines[0])}
    assert len(lines[0]) <= width


def test_cells_are_no_markup(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(show, "console", Console(file=out, width=80))
    show.grid(("code",), [("a[0]",), ("[bold]",), (highlighted("x&lt;b&gt; <b>[/]</b>"),)])
    assert all(cell in out.getvalue() for cell in ("a[0]", "[bold]", "x<b> [/]"))
