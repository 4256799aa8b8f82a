"""Temporary folders of this package, all made here.

A process that is killed leaves its folder behind. The next one of the same user that makes a folder
in the same place removes it first; once for each process, because it takes a listing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal, get_args

Purpose = Literal[
    "split", "merge", "index", "xref", "cache", "manifest", "values", "export", "import"
]
"""What a folder is for; its name begins with `indextables-` and this."""
PREFIXES = tuple(f"indextables-{purpose}-" for purpose in get_args(Purpose))
_OLDER_NAME = re.compile(r"(indextables|ariadne)-(?!\d+$)[a-z0-9_]{8}")
"""Folders of earlier releases. With digits alone it would be the cache of a user without a home."""
_OLD_S = 24 * 3600
"""Nothing was written in a folder for so long: its process is dead, or does not need it."""


def new_folder(purpose: Purpose, parent: str | None = None) -> Path:
    """A new private folder, once those of killed processes are gone."""
    place = parent or tempfile.gettempdir()
    sweep_once(place, os.getpid())
    return Path(tempfile.mkdtemp(prefix=f"indextables-{purpose}-", dir=place))


@contextlib.contextmanager
def temporary_folder(purpose: Purpose, parent: str | None = None) -> Iterator[Path]:
    """A new private folder that is removed at the end."""
    folder = new_folder(purpose, parent)
    try:
        yield folder
    finally:
        remove_folder(folder)


def temporary_file(purpose: Purpose) -> IO[bytes]:
    """A new file that is removed when it is closed or forgotten."""
    return tempfile.NamedTemporaryFile(prefix=f"indextables-{purpose}-")


@functools.cache
def sweep_once(place: str, process: int) -> None:  # noqa: ARG001 - a forked process sweeps again
    """Remove folders that killed processes of this user left in a place."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            ours = entry.name.startswith(PREFIXES) or _OLDER_NAME.fullmatch(entry.name)
            if ours and _is_abandoned(entry):
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
