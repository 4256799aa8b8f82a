"""An object of a store as a file that Arrow's readers can seek in."""

from __future__ import annotations

import io

from indextables.storage import Store

_PIECE = 1 << 20


class StoredFile(io.RawIOBase):
    """Reads ranges as they are asked for, small ones a piece at a time; keeps one piece."""

    def __init__(self, store: Store, path: str) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._size = store.head(path).size
        self._at = 0
        self._piece = b""
        self._piece_start = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        data = self._bytes(self._at, end) if end > self._at else b""
        self._at += len(data)
        return data

    def _bytes(self, start: int, end: int) -> bytes:
        if end - start >= _PIECE:
            return self._store.get_range(self._path, start, end)
        if not self._piece_start <= start <= end <= self._piece_start + len(self._piece):
            # A footer is read from the end of a file, everything else forwards.
            first = max(0, min(start, self._size - _PIECE))
            self._piece = self._store.get_range(self._path, first, min(first + _PIECE, self._size))
            self._piece_start = first
        return self._piece[start - self._piece_start : end - self._piece_start]
