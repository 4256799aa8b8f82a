"""What other processes do to a cache, in the tests of the disk cache."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from indextables.storage import Store, open_store
from indextables.storage.disk_cache import CacheStatistics, DiskCache


def fetch_all(
    store: Store, cache: DiskCache, objects: list[tuple[str, int]]
) -> tuple[list[bytes], CacheStatistics]:
    """Read every object through the cache."""
    found = []
    for path, size in objects:
        with cache.open(store, path, size) as file:
            found.append(file.read())
    return found, cache.statistics


class DyingStore:
    """Delegates to a store; kills its process in the middle of the second read."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.reads = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def local_path(self, path: str) -> None:
        return None

    def get_range(self, path: str, start: int, end: int) -> bytes:
        self.reads += 1
        if self.reads > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner.get_range(path, start, end)


if __name__ == "__main__":
    root, folder, name, length = sys.argv[1:]
    DiskCache(Path(folder), 1 << 40).fetch(
        DyingStore(open_store(root)),  # type: ignore[arg-type]
        name,
        int(length),
    )
