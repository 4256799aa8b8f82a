"""Running the command line as a user's shell does: in a process, in a pipe or on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAM = [sys.executable, "-c", "from indextables.cli import main; main()"]


def environment(**more: str) -> dict[str, str]:
    """The environment without settings that change colours or widths."""
    unwanted = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "PYTHONWARNINGS")
    kept = {k: v for k, v in os.environ.items() if k not in unwanted}
    return {**kept, "TERM": "xterm-256color", **more}


def in_pipe(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the program with its output in pipes."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        input=stdin,
        env=env or environment(),
        timeout=120,
        check=False,
    )


def on_terminal(
    arguments: Sequence[str], *, columns: int, cwd: Path | None = None, env: Mapping[str, str] = {}
) -> tuple[int, str]:
    """Run the program on a terminal of this width; its exit code and what it shows."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=cwd,
        env=environment(**env),
    )
    os.close(follower)
    shown = bytearray()
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    return process.wait(120), shown.decode("utf-8", "replace").replace("\r\n", "\n")
