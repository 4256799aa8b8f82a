"""Running the command line as a user's shell does: in a process, in a pipe or on a terminal."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pty
import select
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
    process = multiprocessing.get_context("forkserver").Process(
        target=_program, args=(os.ttyname(follower), list(arguments), cwd, environment(**env))
    )
    process.start()
    shown = bytearray()
    while process.is_alive() or select.select([leader], [], [], 0)[0]:
        if select.select([leader, process.sentinel], [], [])[0][0] == leader:
            shown += os.read(leader, 65536)
    process.join()
    os.close(follower)
    os.close(leader)
    return process.exitcode or 0, shown.decode("utf-8", "replace").replace("\r\n", "\n")


def _program(terminal: str, arguments: list[str], cwd: Path | None, env: dict[str, str]) -> None:
    """The program, in a process whose terminal is this one."""
    os.setsid()
    descriptor = os.open(terminal, os.O_RDWR)
    for number in range(3):
        os.dup2(descriptor, number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    if cwd is not None:
        os.chdir(cwd)
    sys.argv = ["indextables", *arguments]

    from indextables.cli import main

    main()
