"""The tour's output is legible on a narrow terminal and in a file."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from indextables import demo
from indextables.cli.output import highlighted


@pytest.mark.parametrize("width", [50, 80, 200])
def test_short_values_stay_whole_and_long_ones_are_cut(monkeypatch, width):
    out = io.StringIO()
    monkeypatch.setattr(demo, "console", Console(file=out, width=width))
    long = "a_module.with.many.parts." * 4
    demo.grid(
        ("score", "where", "found"), [("12.34", long, highlighted(f"<b>word</b> {long}"))] * 2
    )
    lines = out.getvalue().splitlines()
    assert sum("12.34" in line for line in lines) == 2 and "score" in lines[1]
    assert len(lines) == 6 and {len(line) for line in lines} == {len(lines[0])}
    assert len(lines[0]) <= width


def test_cells_are_no_markup(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(demo, "console", Console(file=out, width=80))
    demo.grid(("code",), [("a[0]",), ("[bold]",), (highlighted("x&lt;b&gt; <b>[/]</b>"),)])
    assert all(cell in out.getvalue() for cell in ("a[0]", "[bold]", "x<b> [/]"))


def test_times_are_drawn(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(demo, "console", Console(file=out, width=80))
    demo.versus(10.0, 400.0, other="scan")
    ours, theirs, verdict = out.getvalue().splitlines()
    assert "▊ 10.0 ms" in ours and "█" * 32 in theirs and "40 times quicker" in verdict
    demo.versus(100.0, 120.0, other="scan")
    assert "ratio 1.2" in out.getvalue()


def test_what_a_process_says_about_itself_is_in_a_file(tmp_path, capfd):
    command = [sys.executable, "-c", "import sys; print(sys.argv[1], file=sys.stderr)"]
    with demo._stderr_in(tmp_path / "log"):
        subprocess.run([*command, "loud"], check=True)
    subprocess.run([*command, "again"], check=True)
    assert (tmp_path / "log").read_text() == "loud\n"
    assert capfd.readouterr().err == "again\n"


def test_the_steps_without_spark(monkeypatch, tmp_path):
    """On two modules instead of all: what each step asserts holds, and its numbers are printed."""
    out = io.StringIO()
    console = Console(file=out, width=100)
    for module in (demo, demo):
        monkeypatch.setattr(module, "console", console)
    monkeypatch.setattr(demo, "_APPENDS", 4)
    monkeypatch.chdir(tmp_path)
    files = [f for f in demo.source_files() if f[0].startswith(("asyncio", "socket"))]
    documents = demo.document_table(itertools.islice(demo.definitions(files), 2_000))
    demo.write_files(documents, demo.PLACE / "parquet")
    path = str((demo.PLACE / "code").resolve())
    demo.write_without_spark(documents, path)
    demo.tour_of(demo.Table.open(path), documents)
    demo.say_goodbye()
    shown = out.getvalue()
    assert "splits opened" in shown and "rows, order and scores are the same" in shown
    assert f"serve {demo.PLACE / 'code'}" in shown
    picture = Path(__file__).parents[2] / "docs" / "images" / "demo.png"
    assert picture.name in shown and picture.exists()
