"""What other processes do to sparse copies: they search one split, and may die while they write.

`python sparse_processes.py SPLIT CACHE WRITES`: prints the rows of each search; with a number of
writes, the process kills itself in the middle of that one.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from indextables.predicate import Column, Search
from indextables.predicate.search_syntax import parse_search
from indextables.split.open_split import IndexPool, SplitFile, SplitSearcher
from indextables.split.search.query import SearchContext
from indextables.storage.disk_cache import DiskCache
from indextables.storage.local import LocalStore

SEARCHES = ["needle", '"w1 w2"', "w5 OR w17", "w4*"]


class FarStore(LocalStore):
    """A folder that cannot be read in place."""

    def local_path(self, path: str) -> None:  # type: ignore[override]
        return None

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return (Path(self.uri.removeprefix("file://")) / path).read_bytes()[start:end]

    def get_ranges(self, path: str, ranges: list[tuple[int, int]]) -> list[bytes]:  # type: ignore[override]
        return [self.get_range(path, start, end) for start, end in ranges]


def search_all(file: Path, cache: Path) -> list[list[int]]:
    """The rows of every search, through a cache."""
    split = SplitFile(FarStore(str(file.parent)), file.name, file.stat().st_size)
    context = SearchContext(split.rows.schema, split.info.mapping)
    searcher = SplitSearcher(split, IndexPool(DiskCache(cache, 1 << 30)), context)
    found = []
    for text in SEARCHES:
        search = Search(Column(("body",)), parse_search(text), text)
        found.append(searcher.search(search).tolist())
    return found


if __name__ == "__main__":
    name, folder, writes = sys.argv[1:]
    left, write = int(writes), os.pwrite

    def dying(target: int, data: bytes, at: int) -> int:
        global left  # noqa: PLW0603
        left -= 1
        if left == 0:
            write(target, bytes(data)[: len(data) // 2], at)
            os.kill(os.getpid(), signal.SIGKILL)
        return write(target, data, at)

    if left:
        os.pwrite = dying  # type: ignore[assignment]
    sys.stdout.write(repr(search_all(Path(name), Path(folder))))
