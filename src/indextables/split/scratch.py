"""Folders that writers and Tantivy work in for a while.

A process that is killed leaves its folder behind. Whoever makes another one in the same place first
removes what is old there and its own; once for each process, because it takes a listing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

PREFIXES = ("indextables-split-", "indextables-merge-", "indextables-index-", "indextables-xref-",
            "indextables-cache-")  # fmt: skip
_OLD_S = 24 * 3600
"""Nothing was written in a folder for so long: its process is dead, or does not need it."""


def new_folder(prefix: str, parent: str | None = None) -> Path:
    """A new private folder, once those of killed processes are gone; `prefix` is of `PREFIXES`."""
    place = parent or tempfile.gettempdir()
    sweep_once(place, os.getpid())
    return Path(tempfile.mkdtemp(prefix=prefix, dir=place))


@functools.cache
def sweep_once(place: str, process: int) -> None:  # noqa: ARG001 - a forked process sweeps again
    """Remove folders that killed processes of this user left in a place."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIXES) and _is_abandoned(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    """Whether a folder is ours and nothing in it is new. Links are not followed."""
    with contextlib.suppress(OSError):
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        newest = status.st_mtime
        for folder, folders, files in os.walk(entry.path):
            for name in (*folders, *files):
                newest = max(newest, Path(folder, name).lstat().st_mtime)
        return time.time() - newest > _OLD_S
    return False


def remove_folder(folder: Path) -> None:
    """Remove a folder, also when a thread of Tantivy takes or releases a lock in it meanwhile.

    Each time it may find a lock file that was not there when it looked.
    """
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
