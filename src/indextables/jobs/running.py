"""The long jobs of this user on this machine, for `indextables top`.

A job that reports progress leaves a note in a private folder while it runs: one small file, written
at most once a second and removed at the end. Whatever goes wrong with a note, the job goes on
without it. Notes of dead processes are removed by the next job, and whenever they are read.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

Unit = Literal["rows", "bytes", "splits", "files"]

_EVERY_S = 1.0
_MOST_NOTES = 500
"""Notes that are read; a user has a few jobs at once."""
_MOST_BYTES = 4_096
_numbers = itertools.count()


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

    def remaining_s(self, now: float | None = None) -> float | None:
        """The seconds that are left if it goes on as it did; None if nobody knows.

        >>> Job("Merging", "t", 1, 4, "splits", 0, None, 100.0, 1).remaining_s(110.0)
        30.0
        """
        return remaining(self, (now or time.time()) - self.begun)


def remaining(job: Job, elapsed_s: float) -> float | None:
    """The seconds that are left, by the share of bytes if that is known, or of what is counted."""
    done, total = job.done, job.total
    if job.bytes_total:
        done, total = job.bytes, job.bytes_total
    if not done or not total or done >= total:
        return None
    return elapsed_s * (total - done) / done


def without_secrets(uri: str) -> str:
    """A place without what a password could be in.

    >>> without_secrets("s3://key:secret@bucket/logs?token=1"), without_secrets("/data/logs")
    ('s3://bucket/logs', '/data/logs')
    """
    if "://" not in uri:
        return uri
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def _folder() -> Path | None:
    """The private folder of this user; None if there cannot be one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        folder = Path(runtime, "indextables")
    else:
        folder = Path(tempfile.gettempdir(), f"indextables-jobs-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return folder if private and found.st_uid == os.geteuid() else None


class Note:
    """What `indextables top` hears of a job. It raises nothing."""

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
            found = [_read(Path(entry.path)) for entry in _notes(folder)]
            return sorted((job for job in found if job is not None), key=lambda job: job.begun)
    return []


def _notes(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        yield from itertools.islice((e for e in entries if e.name.endswith(".json")), _MOST_NOTES)


def _read(path: Path) -> Job | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        given: Any = json.loads(path.read_bytes()[: 2 * _MOST_BYTES])
        job = Job(**{field.name: given[field.name] for field in fields(Job)})
        # What cannot be counted with is not shown.
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
