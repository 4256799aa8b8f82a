"""Jobs in a process of their own that is killed again and again, at random moments.

One process imports everything, starts no thread, and forks a child for each life, as
`killed_writer` does. A child goes on with the work that it finds, and writes down what it has
finished; it is killed after a random part of the time that some turns take. Another child then
looks whether all that was finished is there, once, and nothing by half.

    python killed_jobs.py JOB FOLDER LIVES SEED
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tantivy  # noqa: F401

import indextables as it
from indextables.config import Config
from indextables.jobs.write_job import plan_write
from indextables.lake import search_index  # noqa: F401
from indextables.log import vectors
from indextables.log.actions import Txn
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store

ROWS = 3
TURNS_OF_A_LIFE = 3
SCHEMA = pa.schema([("turn", pa.int64()), ("text", pa.string())])


def rows(turn: int) -> pa.Table:
    """What one turn writes."""
    words = [f"common turn{turn} row{n}" for n in range(ROWS)]
    return pa.table({"turn": [turn] * ROWS, "text": words}, SCHEMA)


class Sink:
    """Batches of a stream, with their numbers in the commits; `done` is Spark's checkpoint."""

    def prepare(self, folder: Path) -> None:
        it.Table.create(folder / "t", SCHEMA)

    def turn(self, folder: Path, turn: int) -> None:
        log = TransactionLog(open_store(folder / "t"))
        job = plan_write(log, SCHEMA, settings=Config(), kind="append")
        output = job.store(rows(turn).to_batches())
        job.commit(log, [output], batch=Txn(app_id="stream", version=turn, last_updated=1))

    def check(self, folder: Path, done: int) -> None:
        table = it.Table.open(folder / "t")
        found = np.bincount(table.scan()["turn"].to_numpy(), minlength=done)
        assert set(found.tolist()) <= {ROWS}, "a batch is there by half, twice or not at all"
        assert len(found) in (done, done + 1)
        assert table.count(where="text indexquery 'row1'") == len(found)


class Vectors:
    """Deletions that mark rows; every vector is in a file."""

    config: ClassVar = {"spark.indextables.deletionVectors.mode": "vector"}

    def prepare(self, folder: Path) -> None:
        table = it.Table.create(folder / "t", SCHEMA)
        for part in range(2):
            table.append(pa.concat_tables([rows(turn) for turn in range(part, 4_000, 2)]))

    def turn(self, folder: Path, turn: int) -> None:
        it.Table.open(folder / "t", config=self.config).delete(where=f"turn = {turn}")

    def check(self, folder: Path, done: int) -> None:
        table = it.Table.open(folder / "t", config=self.config)
        left = sorted(set(table.scan()["turn"].to_pylist()))
        assert left[0] in (done, done + 1)
        assert left == list(range(left[0], 4_000))
        assert table.count() == ROWS * len(left)
        assert table.count(where="text indexquery 'row1'") == len(left)
        assert table.search(f"turn{left[0] - 1}").num_rows == 0
        assert all(check.passed for check in table.verify())


class Index:
    """A search index that is refreshed and merged, over files that come and go."""

    def prepare(self, folder: Path) -> None:
        self._put(folder, 0)
        it.SearchIndex.create(
            folder / "index", source=folder / "source", format="parquet", columns=["text"]
        )

    def _put(self, folder: Path, turn: int) -> None:
        source = folder / "source"
        source.mkdir(exist_ok=True)
        pq.write_table(rows(turn), source / ".new")
        (source / ".new").rename(source / f"{turn}.parquet")

    def turn(self, folder: Path, turn: int) -> None:
        for number in (4 * turn + 1, 4 * turn + 2, 4 * turn + 3, 4 * turn + 4):
            self._put(folder, number)
        (folder / f"source/{4 * turn}.parquet").unlink(missing_ok=True)
        index = it.SearchIndex.open(folder / "index")
        index.refresh()
        index.merge_splits()

    def check(self, folder: Path, done: int) -> None:
        index = it.SearchIndex.open(folder / "index")
        files = {int(path.stem) for path in (folder / "source").glob("*.parquet")}
        assert set(index.scan(where="text indexquery 'common'")["turn"].to_pylist()) == files
        assert index.count(where="text indexquery 'row1'") == len(files)
        assert index.search("row2", limit=None).num_rows == len(files)
        finished = {n for n in files if n <= 4 * done}
        assert index.describe()["files_indexed"] >= len(finished)
        failed = [check.message for check in index.verify() if not check.passed]
        assert not failed, failed


JOBS = {"sink": Sink, "vectors": Vectors, "index": Index}


def main(name: str, folder: Path, lives: int, seed: int) -> None:
    """Let one child after the other live for a random time."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    vectors.MOST_INLINE = 0
    job, chance, done = JOBS[name](), random.Random(seed), folder / "done"
    done.write_text("0")
    _finish(lambda: job.prepare(folder))
    start = time.monotonic()
    _finish(lambda: [_turn(job, folder) for _ in range(TURNS_OF_A_LIFE)])
    longest = time.monotonic() - start
    for life in range(lives):
        child = _born(lambda: _endless(job, folder))
        early = signal.sigtimedwait([signal.SIGCHLD], chance.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if early or not os.WIFSIGNALED(status):
            sys.exit(f"life {life} ended by itself: {status}")
        signal.sigtimedwait([signal.SIGCHLD], 0)
        _finish(lambda: job.check(folder, int(done.read_text())))
    _finish(lambda: _turn(job, folder))
    _finish(lambda: job.check(folder, int(done.read_text())))
    sys.stdout.write(done.read_text())


def _turn(job: Sink | Vectors | Index, folder: Path) -> None:
    """One turn; the number of the next one takes the place of its own at once."""
    turn = int((folder / "done").read_text())
    job.turn(folder, turn)
    (folder / "next").write_text(str(turn + 1))
    (folder / "next").rename(folder / "done")


def _endless(job: Sink | Vectors | Index, folder: Path) -> None:
    while True:
        _turn(job, folder)


def _born(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        try:
            work()
            sys.stderr.flush()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    return child


def _finish(work: Callable[[], object]) -> None:
    _, status = os.waitpid(_born(work), 0)
    signal.sigtimedwait([signal.SIGCHLD], 0)
    if status:
        sys.exit("a child that was not killed failed")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:5]))
