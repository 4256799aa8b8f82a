"""Distinct values in bounded memory.

Values arrive batch by batch and are kept once. New ones wait until they are as many as those that
are known, so each value is compared a few times only. When a file has more values than an array
may hold and memory fills up, they move to temporary files, one for each range of hashes: the values
of one range never meet those of another again, and ranges come back in the order of their hashes,
which is the order of a value table.

    >>> values = Distinct(pa.int64(), limit=10)
    >>> values.add(pa.array([1, 2, None, 2])); values.add(pa.array([2, 3]))
    >>> values.array().to_pylist(), values.is_large
    ([1, 2, 3], False)
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.values.hashing import distinct_hashes, hash_values
from indextables.bloom import Hashes
from indextables.storage.scratch import new_folder, remove_folder

_WAIT = 1 << 16
_MAX_ROWS = 1 << 20
_MAX_BYTES = 256 << 20
_RANGES = 64
_SHIFT = 58
"""The upper six bits of a hash choose its range."""
MAX_HASHES = 1 << 25
"""More different values than this have no filter: it would be larger than most files."""


class Distinct:
    """The different values of one column of one file; nulls are left out.

    More than `limit` values, or more bytes than memory should hold, make it *large*: its values
    are then taken in `pieces`, not as an array.
    """

    def __init__(self, data_type: pa.DataType, *, limit: int) -> None:
        self._kind = data_type
        self._limit = limit
        self._known: Any = pa.array([], data_type)
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self._spill: _Spill | None = None

    def add(self, values: Any) -> None:
        """Take in values, an array of the column's type."""
        if values.null_count:
            values = values.drop_null()
        if not len(values):
            return
        new = unique(values)
        self._waiting.append(new)
        self._waiting_rows += len(new)
        if self._waiting_rows >= max(_WAIT, len(self._known)):
            self._settle()

    @property
    def is_large(self) -> bool:
        """Whether the values are too many for an array."""
        self._settle()
        return self._spill is not None or len(self._known) > self._limit

    def array(self) -> pa.Array[Any]:
        """All values; only if they are not large."""
        self._settle()
        if self._spill is not None:
            raise ValueError("the values were moved to files; take them in pieces")
        return self._known  # type: ignore[no-any-return]

    def pieces(self) -> Iterator[pa.Array[Any]]:
        """All values in parts, in ascending order of their hashes' upper bits."""
        self._settle()
        if self._spill is None:
            yield self._known
            return
        self._spill.add(self._known)
        self._known = self._known.slice(0, 0)
        yield from self._spill.ranges()

    def close(self) -> None:
        """Delete the temporary files."""
        if self._spill is not None:
            self._spill.close()

    def _settle(self) -> None:
        if not self._waiting:
            return
        self._known = unique(pa.concat_arrays([self._known, *self._waiting]))
        self._waiting, self._waiting_rows = [], 0
        full = len(self._known) > max(self._limit, _MAX_ROWS) or self._known.nbytes > _MAX_BYTES
        if full:
            self._spill = self._spill or _Spill(self._kind)
            self._spill.add(self._known)
            self._known = pa.array([], self._kind)


def unique(values: Any) -> Any:
    """Each value once. Arrow has no `unique` for nested values; those go by their hash."""
    if pa.types.is_nested(values.type):
        _, first = np.unique(hash_values(values), return_index=True)
        return values.take(pa.array(np.sort(first)))
    return pc.unique(values)


class _Spill:
    """Temporary files of values, one for each range of hashes."""

    def __init__(self, data_type: pa.DataType) -> None:
        self._schema = pa.schema([pa.field("value", data_type)])
        self._folder = new_folder("values")
        self._remove = weakref.finalize(self, remove_folder, self._folder)
        self._writers: dict[int, Any] = {}

    def add(self, values: Any) -> None:
        if not len(values):
            return
        bins = (hash_values(values).view(np.int64) >> _SHIFT) + _RANGES // 2
        order = np.argsort(bins, kind="stable")
        ends = np.searchsorted(bins[order], np.arange(_RANGES + 1))
        for number in range(_RANGES):
            part = order[ends[number] : ends[number + 1]]
            if len(part):
                taken = values.take(pa.array(part))
                batch = pa.RecordBatch.from_arrays([taken], schema=self._schema)
                self._writer(number).write_batch(batch)

    def ranges(self) -> Iterator[Any]:
        for writer in self._writers.values():
            writer.close()
        for number in sorted(self._writers):
            with pa.OSFile(str(self._path(number)), "rb") as file:
                table = pa.ipc.open_stream(file).read_all()
            yield unique(table.column("value").combine_chunks())

    def close(self) -> None:
        self._remove()

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.arrows"

    def _writer(self, number: int) -> Any:
        if number not in self._writers:
            self._writers[number] = pa.ipc.new_stream(str(self._path(number)), self._schema)
        return self._writers[number]


class DistinctHashes:
    """The different hashes of one column of one file, for its bloom filter."""

    def __init__(self) -> None:
        self._known: Hashes = np.empty(0, np.uint64)
        self._waiting: list[Hashes] = []
        self._waiting_rows = 0
        self.too_many = False

    def add(self, hashes: Hashes) -> None:
        """Take in hashes."""
        if self.too_many:
            return
        self._waiting.append(hashes)
        self._waiting_rows += len(hashes)
        # A filter drops doubles anyway; here they only must not fill the memory.
        if self._waiting_rows >= max(_MAX_ROWS, len(self._known)):
            self._settle()

    def array(self) -> Hashes:
        """All hashes, some perhaps twice. Without meaning if they are `too_many`."""
        if len(self._known) + self._waiting_rows > MAX_HASHES:
            self._settle()
        return np.concatenate([self._known, *self._waiting])

    def _settle(self) -> None:
        if self._waiting:
            self._known = distinct_hashes(np.concatenate([self._known, *self._waiting]))
            self._waiting, self._waiting_rows = [], 0
        if len(self._known) > MAX_HASHES:
            self.too_many = True
            self._known = np.empty(0, np.uint64)
