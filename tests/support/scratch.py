"""Scratch folders in memory.

Indexes are built in scratch folders, and Tantivy syncs every file that it writes there, which takes
longer than the indexing of a few rows. What a test keeps in `tmp_path` stays on the disk.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ENOUGH = 8 << 30


def use_memory() -> None:
    """Let `tempfile` work in memory, here and in processes that are started, if there is room."""
    if "TMPDIR" in os.environ or not _MEMORY.is_dir():
        return
    if shutil.disk_usage(_MEMORY).free < _ENOUGH or not os.access(_MEMORY, os.W_OK):
        return
    os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="indextables-tests-", dir=_MEMORY)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
