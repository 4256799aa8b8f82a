"""The list of files that an index is over: a Delta table of names and when they were added.

Adding only appends, so that any number of writers can add at once. A name that was added twice is
one file, and its first time counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pyarrow as pa
from cachetools import LRUCache

from indextables.ariadne.context import Context
from indextables.ariadne.delta import DeltaPlace
from indextables.errors import FileListNotFoundError

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("filename", pa.string()),
    ("addedAt", pa.timestamp("us", tz="UTC")),
]
_SCHEMA = pa.schema(_COLUMNS)
_FOLDER = "filelists"

_entries: LRUCache[object, pa.Table] = LRUCache(8)
"""What the lists hold, by place, identity and version: every join asks."""
_lock = threading.Lock()


class FileList:
    """The file list of one index."""

    def __init__(self, context: Context, name: str) -> None:
        self._name = name
        self._root = f"{context.root}/{_FOLDER}"
        self._store = context.store(context.root)
        uri = f"{self._root}/{name}"
        self._place = DeltaPlace(uri, context.delta_options(uri))

    @staticmethod
    def names(context: Context) -> list[str]:
        """The names of all file lists."""
        return context.store(context.root).list_directory(_FOLDER)[1]

    def entries(self) -> tuple[pa.Table, int]:
        """Names with the time each was first added, by name, and the version of the list."""
        table = self._place.open()
        if table is None:
            return _SCHEMA.empty_table(), -1
        # A list that was removed and made anew has another identity.
        mark = self._place.uri, table.metadata().id, table.version()
        with _lock:
            known = _entries.get(mark)
        if known is None:
            known = _first_times(self._place.rows(table, _SCHEMA.names))
            with _lock:
                _entries[mark] = known
        return known, table.version()

    def files(self) -> list[str]:
        """The registered names."""
        return self.entries()[0].column("filename").to_pylist()  # type: ignore[return-value]

    def add(self, files: Sequence[str]) -> None:
        """Register names; those that are there keep their time. None at all changes nothing."""
        known = set(self.files()) if files else set()
        new = [name for name in dict.fromkeys(files) if name not in known]
        if not new:
            return
        now = pa.scalar(time.time_ns() // 1000, pa.timestamp("us", tz="UTC"))
        self._place.append(
            pa.table({"filename": new, "addedAt": pa.repeat(now, len(new))}, schema=_SCHEMA)
        )

    def discard(self, files: Sequence[str]) -> None:
        """Take names out; one that is not there is no error."""
        self._place.delete("filename", list(files))

    def exists(self) -> bool:
        """Whether anything is there, even if it is no usable list."""
        return next(self._store.list(f"{_FOLDER}/{self._name}"), None) is not None

    def remove(self) -> None:
        """Delete the list. `FileListNotFoundError` if there is none."""
        objects = [meta.path for meta in self._store.list(f"{_FOLDER}/{self._name}")]
        if not objects:
            raise FileListNotFoundError(self._name, root=self._root)
        self._store.delete(objects)


def _first_times(rows: pa.Table) -> pa.Table:
    """Each name once, with the time it was first added."""
    first = rows.group_by("filename").aggregate([("addedAt", "min")]).sort_by("filename")
    return first.rename_columns(_SCHEMA.names).cast(_SCHEMA)
