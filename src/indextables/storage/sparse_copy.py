"""Files that hold some blocks of an object, and holes where the others would be."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from indextables.errors import StorageError

Recover = Callable[[OSError, int], bool]
"""After a write failed for the nth time: whether another attempt at the same file makes sense."""
Filled = Callable[[Path, int], None]
"""Told how many bytes were written to a file."""


class SparseCopy:
    """A file in the cache that holds some blocks of an object.

    A block is there if its content has the checksum that the caller has from elsewhere: nothing
    records what was written, so nothing is believed that a killed process, another one or a failing
    disk left. Each process compares a block once, before its first use. All who write a block write
    the same bytes, and nobody shortens the file, so it may be mapped into memory meanwhile.
    """

    def __init__(
        self,
        path: Path,
        *,
        shown: str,
        block: int,
        checksums: Sequence[int],
        recover: Recover,
        filled: Filled,
    ) -> None:
        self.path, self.shown = path, shown
        self.block, self.checksums = block, checksums
        self.recover, self.filled = recover, filled
        self._status = path.stat()
        self.there = bytearray(len(checksums))

    @property
    def is_current(self) -> bool:
        """Whether the name still leads to this file, which another process may have evicted."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(self.path.stat(), self._status)
        return False

    @property
    def present(self) -> int:
        """How many blocks are known to be there."""
        return sum(self.there)

    @property
    def is_whole(self) -> bool:
        """Whether all blocks are known to be there."""
        return all(self.there)

    @contextlib.contextmanager
    def opened(self) -> Iterator[OpenSparseCopy]:
        """Open the file, one at a time: others wait, and then find what was written.

        No file stays open, because a search may look at thousands. While it is mapped into memory,
        no other file can have its number.
        """
        try:
            with self.path.open("r+b", buffering=0) as file:
                if not os.path.samestat(os.fstat(file.fileno()), self._status):
                    raise SparseCopyError(self.shown, "it was evicted")
                fcntl.flock(file, fcntl.LOCK_EX)
                yield OpenSparseCopy(self, file.fileno())
        except FileNotFoundError:
            raise SparseCopyError(self.shown, "it was evicted") from None
        except PermissionError as error:
            self.recover(error, 1)
            raise SparseCopyError(self.shown, str(error.strerror)) from None

    def unknown(self, blocks: Iterable[int]) -> list[int]:
        """Those of some blocks that are not known to be there, in order."""
        return [number for number in sorted(set(blocks)) if not self.there[number]]


@dataclass(frozen=True, slots=True)
class OpenSparseCopy:
    """A sparse copy that no other process writes to."""

    copy: SparseCopy
    _file: int

    def missing(self, blocks: Iterable[int]) -> list[int]:
        """Those of some blocks that are not there, in order."""
        copy = self.copy
        unknown = copy.unknown(blocks)
        for number in self._written(unknown):
            data = os.pread(self._file, copy.block, number * copy.block)
            copy.there[number] = zlib.crc32(data) == copy.checksums[number]
        return [number for number in unknown if not copy.there[number]]

    def _written(self, blocks: Sequence[int]) -> Iterator[int]:
        """Those of some blocks, in order, of which a part is in the file and not in a hole."""
        size, start, end = self.copy.block, 0, 0
        for number in blocks:
            first = number * size
            if first + size > end:  # the block is not within the data that were seen last
                start, end = self._data_from(max(first, start))
            if start < first + size:
                yield number

    def _data_from(self, at: int) -> tuple[int, int]:
        """Where the next data of the file begin and end; without any, behind the end of all."""
        try:
            start = os.lseek(self._file, at, os.SEEK_DATA)
            return start, os.lseek(self._file, start, os.SEEK_HOLE)
        except OSError as error:
            # A file system that does not know of holes has data everywhere.
            return (sys.maxsize, sys.maxsize) if error.errno == errno.ENXIO else (at, sys.maxsize)

    def write(self, blocks: Mapping[int, bytes]) -> None:
        """Keep the content of blocks, which the caller has checked."""
        for run in _runs(sorted(blocks)):
            self._write(b"".join(map(blocks.__getitem__, run)), run.start * self.copy.block)
            for number in run:
                self.copy.there[number] = 1
        if blocks:
            self.copy.filled(self.copy.path, sum(map(len, blocks.values())))

    def write_spot(self, at: int, data: bytes) -> None:
        """Write a piece of a block that may not be there."""
        if os.pread(self._file, len(data), at) != data:
            self._write(data, at)

    def _write(self, data: bytes, at: int) -> None:
        remaining, attempt = memoryview(data), 0
        while remaining:
            try:
                written = os.pwrite(self._file, remaining, at)
            except OSError as error:
                if not self.copy.recover(error, attempt):
                    reason = str(error.strerror)
                    raise SparseCopyError(self.copy.shown, reason) from None
                attempt += 1
                continue
            remaining, at = remaining[written:], at + written


_RUN = 64


def _runs(numbers: Sequence[int]) -> Iterator[range]:
    """Ascending numbers as ranges, so that neighbours are written at once: each call costs time.

    >>> list(_runs([0, 1, 2, 7, 8]))
    [range(0, 3), range(7, 9)]
    """
    start = at = 0
    for at, number in enumerate(numbers):
        if at and (number != numbers[at - 1] + 1 or at - start == _RUN):
            yield range(numbers[start], numbers[at - 1] + 1)
            start = at
    if numbers:
        yield range(numbers[start], numbers[at] + 1)


class SparseCopyError(StorageError):
    """A sparse copy that cannot be used; another one can be made."""

    def __init__(self, shown: str, reason: str) -> None:
        super().__init__(f"Cannot keep a part of {shown} on disk: {reason}.", path=shown)
