"""All temporary files in memory: tables, indexes that are being built, Spark's shuffles.

A write that survives a power failure waits for the disk three times, and Tantivy waits for every
file of an index: an append of two rows took 300 ms on a busy disk, and takes 50 ms in memory. Name
a folder in TMPDIR to have them there, and to look at what a failed test leaves.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ENOUGH = 8 << 30
_NAME = "indextables-tests-"


def use_memory() -> None:
    """Let temporary files be in memory, here and in started processes, if there is room."""
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return
    for left in _MEMORY.glob(f"{_NAME}*"):
        if _lock(left):  # of a run that was killed
            shutil.rmtree(left, ignore_errors=True)
    if shutil.disk_usage(_MEMORY).free < _ENOUGH:
        return
    made = Path(tempfile.mkdtemp(prefix=f"new-{_NAME}", dir=_MEMORY))
    (made / "lock").touch()
    _lock(made)
    folder = str(made.rename(_MEMORY / made.name.removeprefix("new-")))
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = tempfile.tempdir = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _lock(folder: Path) -> bool:
    """Take a folder as long as this process lives; False if another one has it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / "lock", os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
        else:
            return True
    return False
