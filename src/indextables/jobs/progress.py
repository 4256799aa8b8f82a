"""Progress of long work: a bar in the terminal, and a note for `indextables top`.

A note is one small file in a private folder, written at most once a second and removed at the end.
Whatever goes wrong with it, the job goes on without it. Notes of dead processes are removed by the
next job, and whenever they are read.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Protocol

Unit = Literal["rows", "bytes", "splits", "files"]

_EVERY_S = 1.0
_MOST_NOTES = 500
"""Notes that are read; a user has a few jobs at once."""
_MOST_BYTES = 4_096
_numbers = itertools.count()
_EXPECTED: ContextVar[int | None] = ContextVar("expected", default=None)


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs, as its note says."""

    title: str
    table: str
    done: int
    total: int | None
    unit: Unit
    bytes: int
    bytes_total: int | None
    begun: float
    """Seconds since 1970."""
    process: int

    def remaining_s(self, now: float) -> float | None:
        """The seconds that are left at the present speed; None if unknown.

        >>> Job("Merging", "t", 1, 4, "splits", 0, None, 100.0, 1).remaining_s(110.0)
        30.0
        """
        return remaining(self, now - self.begun)


def remaining(job: Job, elapsed_s: float) -> float | None:
    """The seconds that are left, by the share of bytes if that is known, or of what is counted."""
    done, total = job.done, job.total
    if job.bytes_total:
        done, total = job.bytes, job.bytes_total
    if not done or not total or done >= total:
        return None
    return elapsed_s * (total - done) / done


class Advance(Protocol):
    """Called with what was done since the last call: how many, and how many bytes."""

    def __call__(self, done: int, size: int = 0, /) -> None: ...


@contextlib.contextmanager
def expecting(total: int | None) -> Iterator[None]:
    """Declare the number of rows of a write inside the context, if its caller knows it."""
    token = _EXPECTED.set(total)
    try:
        yield
    finally:
        _EXPECTED.reset(token)


@contextlib.contextmanager
def progress(
    title: str,
    total: int | None = None,
    unit: Unit = "splits",
    *,
    table: str = "",
    size: int | None = None,
    bar: bool = True,
) -> Iterator[Advance]:
    """Yields a function to call, from any thread, with what was done since its last call.

    The terminal shows what was done, and with a total also its share and the time that remains; so
    does `indextables top`.

    Args:
        title: What is done, as `Merging`.
        total: How much there is to do, if that is known.
        unit: What is counted.
        table: The place that it is done to.
        size: How many bytes there are to do, if that is known.
        bar: Whether a terminal shows it.
    """
    if total is None and unit == "rows":
        total = _EXPECTED.get()
    job = Job(title, without_secrets(table), 0, total, unit, 0, size, time.time(), os.getpid())
    note, lock, begun = Note(), threading.Lock(), time.monotonic()
    note.write(job)
    with _bar(job) if bar and sys.stderr.isatty() else contextlib.nullcontext(_nothing) as draw:

        def advance(done: int, size: int = 0, /) -> None:
            nonlocal job
            with lock:
                job = replace(job, done=job.done + done, bytes=job.bytes + size)
                now = job
                note.write(now)  # in the order of what was done
            draw(now, time.monotonic() - begun)

        try:
            yield advance
        finally:
            note.remove()


def _nothing(_job: Job, _elapsed_s: float) -> None:
    pass


@contextlib.contextmanager
def _bar(job: Job) -> Iterator[Callable[[Job, float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    total = job.bytes_total or job.total
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar: Any = bars.add_task(job.title, total=total, state=state(job))

        def draw(now: Job, elapsed_s: float) -> None:
            done = now.bytes if job.bytes_total else now.done
            bars.update(bar, completed=done, state=state(now, remaining(now, elapsed_s)))

        yield draw


def state(job: Job, remaining_s: float | None = None) -> str:
    """The text beside a progress bar.

    >>> state(Job("", "", 1500, 6000, "rows", 2_500_000, None, 0.0, 1), 75.4)
    '1,500 of 6,000 rows, 2.5 MB, 1:15 left'
    >>> state(Job("", "", 3, None, "splits", 0, 4_000, 0.0, 1))
    '3 splits, 0 B of 4 kB'
    """
    parts = []
    if job.unit != "bytes":
        count = f"{job.done:,}" + ("" if job.total is None else f" of {job.total:,}")
        parts.append(f"{count} {job.unit}")
    done, total = (job.done, job.total) if job.unit == "bytes" else (job.bytes, job.bytes_total)
    if done or total:
        parts.append(byte_size(done) + ("" if total is None else f" of {byte_size(total)}"))
    if remaining_s is not None:
        parts.append(f"{clock(remaining_s)} left")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """A readable duration.

    >>> clock(75.4), clock(3_725)
    ('1:15', '1:02:05')
    """
    minutes, seconds_left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"


def byte_size(count: float) -> str:
    """A readable number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


# --- notes for `indextables top` ---------------------------------------------------------------


def without_secrets(uri: str) -> str:
    """A place without the parts of a URI that may hold a password.

    >>> without_secrets("s3://key:secret@bucket/logs?token=1"), without_secrets("/data/logs")
    ('s3://bucket/logs', '/data/logs')
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri
    # By hand, because urlsplit raises an error for brackets that hold no IPv6 address.
    host, slash, path = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _folder() -> Path | None:
    """The private folder of this user; None if there cannot be one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        folder = Path(runtime, "indextables")
    else:
        folder = Path(tempfile.gettempdir(), f"indextables-jobs-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    return folder if private and status.st_uid == os.geteuid() else None


class Note:
    """The note of a job for `indextables top`. It raises nothing."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._written_s = -_EVERY_S
        self._lock = threading.Lock()
        with contextlib.suppress(Exception):
            folder = _folder()
            if folder is not None:
                _remove_dead(folder)
                self._path = folder / f"{os.getpid()}-{next(_numbers)}.json"

    def write(self, job: Job) -> None:
        """Write the note, unless it was written a moment ago."""
        if self._path is None or time.monotonic() - self._written_s < _EVERY_S:
            return
        with self._lock, contextlib.suppress(Exception):
            self._written_s = time.monotonic()
            text = json.dumps(asdict(job)).encode()[:_MOST_BYTES]
            unfinished = self._path.with_suffix(".part")
            unfinished.write_bytes(text)
            unfinished.replace(self._path)

    def remove(self) -> None:
        """Forget the job."""
        if self._path is not None:
            with self._lock, contextlib.suppress(Exception):
                self._path.unlink(missing_ok=True)


def running_jobs() -> list[Job]:
    """The jobs of this user that run on this machine, the oldest first."""
    with contextlib.suppress(OSError, AttributeError):  # a system without users has no such folder
        folder = _folder()
        if folder is not None:
            _remove_dead(folder)
            jobs = [_read(Path(entry.path)) for entry in _notes(folder)]
            return sorted((job for job in jobs if job is not None), key=lambda job: job.begun)
    return []


def _notes(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        yield from itertools.islice((e for e in entries if e.name.endswith(".json")), _MOST_NOTES)


def _read(path: Path) -> Job | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        note: Any = json.loads(path.read_bytes()[: 2 * _MOST_BYTES])
        job = Job(**{field.name: note[field.name] for field in fields(Job)})
        # Notes with invalid numbers are not shown.
        if job.done + job.bytes + (job.total or 0) + (job.bytes_total or 0) >= 0:
            return job
    return None


def _remove_dead(folder: Path) -> None:
    """Remove the notes of processes that are gone."""
    for entry in list(_notes(folder)):
        process = entry.name.partition("-")[0]
        if process.isdecimal() and not _lives(int(process)):
            Path(entry.path).unlink(missing_ok=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
