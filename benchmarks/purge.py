"""Purging a large table: how many requests it takes."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.measure import Result
from indextables import Table
from indextables.config import Config
from indextables.jobs.history import purge
from indextables.log.actions import Add
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.storage import ObjectMeta, Store, open_store

FILES = 100_000
_PAGE = 1_000
"""An object store lists, and deletes, so many objects with one request."""
_DAY = 86_400


class CountingStore(Store):
    """Counts what an object store would be asked, page by page."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.uri = inner.uri
        self.requests: Counter[str] = Counter()

    @property
    def identity(self) -> str:
        return self.inner.identity

    def delete(self, paths: Sequence[str]) -> None:
        self.requests["delete"] += -(-len(paths) // _PAGE)
        self.inner.delete(paths)

    def local_path(self, path: str) -> Path | None:
        return self.inner.local_path(path)

    def _counted(self, name: str, path: str, *arguments: Any) -> Any:
        self.requests[f"{name} of a split" if path.endswith(".split") else name] += 1
        return getattr(self.inner, name)(path, *arguments)

    def get(self, path: str) -> Any:
        return self._counted("get", path)

    def get_with_etag(self, path: str) -> Any:
        return self._counted("get_with_etag", path)

    def get_range(self, path: str, start: int, end: int) -> Any:
        return self._counted("get_range", path, start, end)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Any:
        return self._counted("get_ranges", path, ranges)

    def head(self, path: str) -> Any:
        return self._counted("head", path)

    def list_directory(self, prefix: str) -> Any:
        return self._counted("list_directory", prefix)

    def put(self, path: str, data: bytes) -> None:
        self._counted("put", path, data)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._counted("put_if_absent", path, data)

    def put_if_match(self, path: str, data: bytes, etag: str | None) -> None:
        self._counted("put_if_match", path, data, etag)

    def put_file(self, path: str, source: Path) -> None:
        self._counted("put_file", path, source)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        found = [*self.inner.list(prefix, start_after=start_after)]
        self.requests["listings"] += 1
        self.requests["pages"] += max(1, -(-len(found) // _PAGE))
        return iter(found)


def run(scale: float = 1.0) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        yield _requests(Path(folder) / "table", max(2_000, int(FILES * scale)))


def make_table(folder: Path, files: int, orphans: int) -> None:
    """A table of empty files, the last ones of which no version names. All are a week old."""
    Table.create(folder, pa.schema([pa.field("body", pa.string())]))
    names = [f"splits/split-{number:08d}.split" for number in range(files)]
    (folder / "splits").mkdir()
    then = time.time() - 9 * _DAY
    for name in names:
        (folder / name).touch()
        os.utime(folder / name, (then, then))
    log = TransactionLog(open_store(folder))
    live = names[: files - orphans]
    for start in range(0, len(live), 10_000):
        adds = [Add(path=path, size=0, num_records=1) for path in live[start : start + 10_000]]
        log.commit(Transaction(operation=Operation.APPEND, actions=adds))
    log.checkpoint()


def _requests(folder: Path, files: int) -> Result:
    orphans = files // 10
    make_table(folder, files, orphans)
    store = CountingStore(open_store(folder))
    log = TransactionLog(store)
    log.snapshot()  # whoever purges has the table open
    store.requests.clear()
    started = time.perf_counter()
    done = purge(log, retention_hours=None, dry_run=False, config=Config())
    seconds = time.perf_counter() - started
    assert done.files_deleted == orphans
    asked = store.requests
    assert asked["listings"] == 1, asked
    assert not [name for name in asked if name.endswith("of a split")], asked
    least = -(-files // _PAGE) + -(-orphans // _PAGE)
    total = sum(asked.values()) - asked["listings"]
    shown = ", ".join(f"{count} {name}" for name, count in sorted(asked.items()))
    return Result(
        f"PURGE of {orphans:,} orphans among {files:,} files: one listing and the deletes",
        total / least, 1.5, "at most",
        f"{total} requests ({shown}) / {least} pages of {_PAGE} to list and delete; "
        f"{seconds:.2f} s on a local disk",
    )  # fmt: skip
