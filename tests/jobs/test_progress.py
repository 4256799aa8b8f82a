from __future__ import annotations

import io
import sys

from indextables.jobs.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_on_a_terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress("Writing rows", 10) as advance:
        advance(4)
        advance(6)
    assert "Writing rows" in screen.getvalue()
    assert "10 of 10 splits" in screen.getvalue()


def test_nothing_is_drawn_elsewhere(monkeypatch):
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with progress("Writing rows") as advance:
        advance(4)
    assert pipe.getvalue() == ""
