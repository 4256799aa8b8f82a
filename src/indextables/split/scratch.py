"""Folders that Tantivy works in for a while."""

from __future__ import annotations

import shutil
from pathlib import Path


def remove_folder(folder: Path) -> None:
    """Remove a folder, also when a thread of Tantivy takes or releases a lock in it meanwhile.

    Each time it may find a lock file that was not there when it looked.
    """
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
