"""A writer that is killed again and again.

One process imports everything, starts no thread, and forks a child for each life. The child
appends without end and writes down every append that returned; the parent kills it after a while.
Forking makes a life cost milliseconds instead of the second that imports take. How long a life may
be is measured first: a busy machine is many times slower than an idle one.

    python killed_writer.py URI ACKNOWLEDGED TEMPORARY FIRST LIVES SEED
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pyarrow as pa
import tantivy  # noqa: F401

from indextables import Table

ROWS = 3
SCHEMA = pa.schema([("life", pa.int64()), ("turn", pa.int64()), ("text", pa.string())])
FIRST_LIFE = 10_000
APPENDS_PER_LIFE = 3


def rows(life: int, turn: int) -> pa.Table:
    """What one append writes."""
    words = [f"life{life} turn{turn} row{n}" for n in range(ROWS)]
    return pa.table({"life": [life] * ROWS, "turn": [turn] * ROWS, "text": words}, SCHEMA)


def live(uri: str, acknowledged: str, temporary: str, life: int) -> None:
    """Append until killed."""
    out = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    settings = {"spark.indextables.indexWriter.tempDirectoryPath": temporary}
    table = Table.open(uri, config=settings)
    turn = 0
    while True:
        table.append(rows(life, turn))
        os.write(out, b"%d %d\n" % (life, turn))
        turn += 1


def main(uri: str, acknowledged: str, temporary: str, first: int, lives: int, seed: int) -> None:
    """Let one child after the other live for a random time."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    chance = random.Random(seed)
    longest = _time_of_appends(uri, acknowledged, temporary)
    for life in range(first, first + lives):
        child = _born(uri, acknowledged, temporary, life)
        early = signal.sigtimedwait([signal.SIGCHLD], chance.uniform(0, longest))
        _kill(child, life, early=early is not None)


def _time_of_appends(uri: str, acknowledged: str, temporary: str) -> float:
    """How long a life with some appends takes, now and here; that life is killed as well."""
    start = time.monotonic()
    child = _born(uri, acknowledged, temporary, FIRST_LIFE)
    early = None
    while early is None and Path(acknowledged).read_text().count("\n") < APPENDS_PER_LIFE:
        early = signal.sigtimedwait([signal.SIGCHLD], 0.005)
    taken = time.monotonic() - start
    _kill(child, FIRST_LIFE, early=early is not None)
    return taken


def _born(uri: str, acknowledged: str, temporary: str, life: int) -> int:
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        try:
            live(uri, acknowledged, temporary, life)
        finally:
            os._exit(1)  # nobody but a signal ends a life
    return child


def _kill(child: int, life: int, *, early: bool) -> None:
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if early or not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        sys.exit(f"life {life} ended by itself: {status}")
    signal.sigtimedwait([signal.SIGCHLD], 0)


if __name__ == "__main__":
    place, written, scratch = sys.argv[1:4]
    main(place, written, scratch, *map(int, sys.argv[4:7]))
