"""The page about the command line: every command on it works and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cli_tables import ESCAPE

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def blocks() -> list[tuple[str, str]]:
    return re.findall(r"```(python|console)\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_every_example_runs_and_prints_what_is_shown(cli, monkeypatch):
    monkeypatch.setattr("indextables.cli.output.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(cli.folder))  # jobs of other tests are not ours
    commands = 0
    for kind, text in blocks():
        if kind == "python":
            exec(text, {})
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            assert "`" not in line, "a shell would run what stands in back-ticks"
            program, *arguments = shlex.split(line)
            assert program == "indextables"
            printed = ESCAPE.sub("", cli.ok(*arguments))
            flat = [re.sub(r"\s+", " ", p) for p in printed.splitlines()]
            for wanted in shown.splitlines():
                assert any(re.sub(r"\s+", " ", wanted).strip() in p for p in flat), (line, printed)
            commands += 1
    assert commands >= 20


def test_the_picture_is_there_and_small():
    picture = PAGE.parent / "images" / "report.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 300_000


@pytest.mark.parametrize("command", ["create", "import", "export", "search", "sql", "describe",
                                     "history", "explain", "merge", "xref", "purge", "verify",
                                     "restore", "checkpoint", "report", "top",
                                     "search-index"])  # fmt: skip
def test_every_command_has_an_example(command):
    assert re.search(rf"^\$ indextables {command} ", PAGE.read_text(), re.MULTILINE)
