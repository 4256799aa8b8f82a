"""Copying one remote object into a local file, and making sure that it is the right one."""

from __future__ import annotations

import hashlib
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

from indextables.errors import StorageError
from indextables.storage.store import Store

_PIECE = 8 << 20


@dataclass(frozen=True, slots=True)
class Download:
    """One object as the caller knows it: what the log says of it, not what the store says."""

    store: Store
    path: str
    size: int
    etag: str | None
    checksum: str | None

    @property
    def shown(self) -> str:
        """The object's name in messages."""
        return f"{self.store.uri}/{self.path}"

    def key(self) -> str:
        """A file name that no other object has."""
        identity = "\0".join((self.store.identity, self.path, str(self.size), self.etag or ""))
        return hashlib.sha256(identity.encode()).hexdigest()

    def copy_to(self, file: BinaryIO) -> None:
        """Copy the object into an empty file, a few pieces at once."""
        file.truncate(self.size)
        starts = range(0, self.size, _PIECE)
        if len(starts) <= 1:
            for start in starts:
                self._copy_piece(file, start)
            return
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda start: self._copy_piece(file, start), starts))

    def _copy_piece(self, file: BinaryIO, start: int) -> None:
        data = memoryview(self.store.get_range(self.path, start, min(start + _PIECE, self.size)))
        while data:
            written = os.pwrite(file.fileno(), data, start)
            data, start = data[written:], start + written

    def check(self, file: BinaryIO) -> None:
        """Refuse an object that is not the one the caller means."""
        if self.etag is not None and self.store.head(self.path).etag != self.etag:
            raise StorageError(
                f"{self.shown} was replaced since it was listed. List it again.", path=self.shown
            )
        if self.checksum is not None and checksum_like(file, self.checksum) != self.checksum:
            raise StorageError(
                f"{self.shown} is damaged: its {self.checksum.partition(':')[0]} checksum is not "
                "the recorded one. Restore it from a backup.",
                path=self.shown,
            )


def checksum_like(file: BinaryIO, checksum: str) -> str:
    """The file's checksum of the same kind as the given one."""
    kind = checksum.partition(":")[0]
    file.seek(0)
    if kind == "sha256":
        sha = hashlib.sha256()
        while piece := file.read(_PIECE):
            sha.update(piece)
        return f"sha256:{sha.hexdigest()}"
    if kind == "crc32":
        crc = 0
        while piece := file.read(_PIECE):
            crc = zlib.crc32(piece, crc)
        return f"crc32:{crc:08x}"
    raise ValueError(f"Unknown checksum {kind!r}: expected sha256:<hex> or crc32:<hex>.")
