"""One 64-bit number for a value, the same for every value that Spark's join calls equal.

An index compares hashes instead of values, so two values of one type have the same hash exactly
when `=` holds between them (but for an accident of one in 2^64):

- `NaN` equals `NaN`, and `-0.0` equals `0.0`, inside structs and arrays too;
- a timestamp counts microseconds, whatever unit and time zone the array shows it in;
- the width of an integer or a float and the kind of a string array (large, view, dictionary) do
  not matter; the scale of a decimal does, so decimals are cast to the column's type first;
- structs and arrays are equal part by part, and a null part equals a null part.

Values of different types are compared by casting the query's keys to the column's type: that is
`key_types`. Everything here works on whole Arrow buffers. Strings are cut into words of 8 bytes;
each word is mixed with its position, and the words of a string are summed.

    >>> hash_values(pa.array([1, 2], pa.int32())).tolist() == hash_values(pa.array([1, 2])).tolist()
    True

`Distinct` gathers the distinct values of a column batch by batch, in bounded memory. New ones wait
until they are as many as those that are known, so each value is compared a few times only. When a
file has more values than an array may hold and memory fills up, they move to temporary files, one
for each range of hashes: the values of one range never meet those of another again, and ranges come
back in the order of their hashes, which is the order of a value table.

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

from indextables.bloom import Hashes
from indextables.schema import is_bytes, is_text
from indextables.storage.local import new_folder, remove_folder

_NULL = np.uint64(0x9AE16A3B2F90404F)
_WORD = np.uint64(0xC3A5C85C97CB3127)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_NAN = np.uint64(0x7FF8000000000000)
# The bytes of a last word that belong to its string, by their number modulo 8.
_MASKS = np.array(
    [2**64 - 1, *(2 ** (8 * count) - 1 for count in range(1, 8))],
    np.uint64,
)
_SLICE = 1 << 20
"""Strings hashed at a time, which bounds the memory for their words."""


def hash_values(array: pa.Array[Any] | pa.ChunkedArray[Any]) -> Hashes:
    """The hash of every value. A null has one too, which callers leave out or mean.

    Raises `TypeError` for a type whose values SQL cannot compare, such as a map.
    """
    if isinstance(array, pa.ChunkedArray):
        parts = [hash_values(chunk) for chunk in array.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)
    hashes = _hash_type(array)
    if array.null_count:
        is_null = np.asarray(array.is_null())
        hashes = np.where(is_null, _NULL, hashes)
    return hashes


def distinct_hashes(hashes: Hashes) -> Hashes:
    """Each hash once, in ascending order. Several times faster than `np.unique`."""
    ordered = np.sort(hashes)
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def can_hash(data_type: pa.DataType) -> bool:
    """Whether `hash_values` takes values of a type."""
    empty: Any = pa.array([], data_type)
    try:
        hash_values(empty)
    except TypeError:
        return False
    return True


def _hash_type(array: Any) -> Hashes:
    data_type = array.type
    if pa.types.is_dictionary(data_type):
        dictionary_hashes = hash_values(array.dictionary)
        indices = np.asarray(pc.fill_null(array.indices, 0).cast(pa.int64()))
        return dictionary_hashes[indices] if len(dictionary_hashes) else np.full(len(array), _NULL)
    if pa.types.is_null(data_type):
        return np.full(len(array), _NULL)
    if pa.types.is_boolean(data_type):
        return _mix(np.asarray(pc.fill_null(array, False)).astype(np.uint64))
    if pa.types.is_integer(data_type):
        return _mix(np.asarray(pc.fill_null(array, 0)).astype(np.int64).view(np.uint64))
    if pa.types.is_floating(data_type):
        return _hash_floats(np.asarray(pc.fill_null(array, 0.0)).astype(np.float64))
    if pa.types.is_date(data_type):
        return _mix(_int64(array.cast(pa.int32() if data_type == pa.date32() else pa.int64())))
    if pa.types.is_timestamp(data_type):
        return _mix(_int64(array.cast(pa.timestamp("us", data_type.tz), safe=False)))
    if pa.types.is_time(data_type) or pa.types.is_duration(data_type):
        return _mix(_int64(array))
    if pa.types.is_decimal(data_type):
        return _hash_decimals(array)
    if is_text(data_type) or is_bytes(data_type):
        return _hash_bytes(array)
    if pa.types.is_struct(data_type):
        return _hash_structs(array)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return _hash_lists(array)
    raise TypeError(f"values of the type {data_type} cannot be compared, so they have no hash")


def _mix(words: Hashes) -> Hashes:
    """Spread every bit over all others (the finaliser of SplitMix64, which is a bijection)."""
    words = words + _STEP
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _int64(array: Any) -> Hashes:
    numbers = array.cast(pa.int64()) if array.type.bit_width == 64 else array.cast(pa.int32())
    return np.asarray(pc.fill_null(numbers, 0)).astype(np.int64).view(np.uint64)


def _hash_floats(numbers: Any) -> Hashes:
    # Adding zero turns -0.0 into 0.0.
    bits = (numbers + 0.0).view(np.uint64)
    return _mix(np.where(np.isnan(numbers), _NAN, bits))


def _hash_decimals(array: Any) -> Hashes:
    data_type = array.type
    if data_type.precision > 38:
        raise TypeError(f"decimals of more than 38 digits have no hash: {data_type}")
    wide = array.cast(pa.decimal128(38, data_type.scale))
    words = np.frombuffer(wide.buffers()[1], np.uint64)
    words = words[2 * wide.offset : 2 * (wide.offset + len(wide))].reshape(-1, 2)
    return _mix(words[:, 0] ^ _mix(words[:, 1]))


# --- bytes -----------------------------------------------------------------------------------


def _hash_bytes(array: Any) -> Hashes:
    parts = [
        _hash_words(array.slice(start, _SLICE).cast(pa.large_binary()))
        for start in range(0, len(array), _SLICE)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _hash_words(array: Any) -> Hashes:
    count = len(array)
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + count + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 8, np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(data_buffer, np.uint8)[first:last]
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    counts = (lengths + 7) >> 3
    ends = np.cumsum(counts)
    position = np.arange(int(ends[-1]) if count else 0) - np.repeat(ends - counts, counts)
    windows = np.lib.stride_tricks.sliding_window_view(data, 8)
    words = windows[np.repeat(starts, counts) + 8 * position].view(np.uint64).ravel()
    is_last = (ends - 1)[counts > 0]
    words[is_last] &= _MASKS[lengths[counts > 0] & 7]
    words = _mix(words ^ _mix(position.astype(np.uint64) + _WORD))
    return _mix(_segment_sums(words, counts) ^ _mix(lengths.astype(np.uint64)))


def _segment_sums(words: Hashes, counts: Any) -> Hashes:
    """The sum, modulo 2^64, of each run of words; 0 for a run of none."""
    totals = np.zeros(len(counts), np.uint64)
    filled = counts > 0
    if filled.any():
        starts = (np.cumsum(counts) - counts)[filled]
        totals[filled] = np.add.reduceat(words, starts)
    return totals


# --- nested ----------------------------------------------------------------------------------


def _hash_structs(array: Any) -> Hashes:
    total = np.zeros(len(array), np.uint64)
    for position, child in enumerate(array.flatten()):
        total = total + _mix(hash_values(child) ^ _mix(np.array([position + 1], np.uint64)))
    return _mix(total)


def _hash_lists(array: Any) -> Hashes:
    # Dropping nulls' hidden elements makes offsets and values agree.
    counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
    elements = hash_values(array.flatten())
    ends = np.cumsum(counts)
    position = np.arange(len(elements)) - np.repeat(ends - counts, counts)
    words = _mix(elements ^ _mix(position.astype(np.uint64) + _WORD))
    return _mix(_segment_sums(words, counts) ^ _mix(counts.astype(np.uint64)))


# --- distinct values -------------------------------------------------------------------------

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
        self._distinct: Any = pa.array([], data_type)
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
        if self._waiting_rows >= max(_WAIT, len(self._distinct)):
            self._settle()

    @property
    def is_large(self) -> bool:
        """Whether the values are too many for an array."""
        self._settle()
        return self._spill is not None or len(self._distinct) > self._limit

    def array(self) -> pa.Array[Any]:
        """All values; only if they are not large."""
        self._settle()
        if self._spill is not None:
            raise ValueError("the values were moved to files; read them in pieces")
        return self._distinct  # type: ignore[no-any-return]

    def pieces(self) -> Iterator[pa.Array[Any]]:
        """All values in parts, in ascending order of their hashes' upper bits."""
        self._settle()
        if self._spill is None:
            yield self._distinct
            return
        self._spill.add(self._distinct)
        self._distinct = self._distinct.slice(0, 0)
        yield from self._spill.ranges()

    def close(self) -> None:
        """Delete the temporary files."""
        if self._spill is not None:
            self._spill.close()

    def _settle(self) -> None:
        if not self._waiting:
            return
        self._distinct = unique(pa.concat_arrays([self._distinct, *self._waiting]))
        self._waiting, self._waiting_rows = [], 0
        full = (
            len(self._distinct) > max(self._limit, _MAX_ROWS) or self._distinct.nbytes > _MAX_BYTES
        )
        if full:
            self._spill = self._spill or _Spill(self._kind)
            self._spill.add(self._distinct)
            self._distinct = pa.array([], self._kind)


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
                piece = values.take(pa.array(part))
                batch = pa.RecordBatch.from_arrays([piece], schema=self._schema)
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
        self._distinct: Hashes = np.empty(0, np.uint64)
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
        if self._waiting_rows >= max(_MAX_ROWS, len(self._distinct)):
            self._settle()

    def array(self) -> Hashes:
        """All hashes, some perhaps twice. Without meaning if they are `too_many`."""
        if len(self._distinct) + self._waiting_rows > MAX_HASHES:
            self._settle()
        return np.concatenate([self._distinct, *self._waiting])

    def _settle(self) -> None:
        if self._waiting:
            self._distinct = distinct_hashes(np.concatenate([self._distinct, *self._waiting]))
            self._waiting, self._waiting_rows = [], 0
        if len(self._distinct) > MAX_HASHES:
            self.too_many = True
            self._distinct = np.empty(0, np.uint64)
