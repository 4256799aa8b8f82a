"""A hash of a row's values: it orders rows of equal score without reading them.

A row has the same hash in every layout of its table. Columns are added up, so their order does not
matter; a column counts by its stored name, so a rename does not matter; a null counts nothing, so
neither does a column that was added later. A value of a partition column counts as any other.

Changing this function changes the order of ties in tables that exist, and mixes two orders in those
that are written afterwards: the section `HASHES` would need another name.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.split.leaves import ArrowColumn

Words = npt.NDArray[np.uint64]

LEVELS = range(5, 25)
"""One row of 2^n has a hash of the level n and those below it.

Lower levels would cost a tenth of the time to index a row, and find rows of few ties only.
"""

_NAN = np.uint64(0x7FF8 << 48)
_SAMPLE = 128
_LONG = 256
"""Longer texts count by their first bytes and a checksum of all."""
_WORD = 8
_BITS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], dtype=np.uint64)
"""What is left of a word of which only some bytes belong to the text, by their number."""
_STEP = np.uint64(0x9FB21C651E98DF25)
_PLACES = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(rows: pa.RecordBatch | pa.Table, start: int = 0) -> npt.NDArray[np.int64]:
    """The hash of each row, from 0 to 2^32 - 1; `start` is that of values they share.

    >>> rows = pa.table({"a": ["x", None], "b": [None, 7]})
    >>> swapped = rows.select(["b", "a"]).append_column("c", pa.nulls(2, pa.date32()))
    >>> (row_hashes(rows) == row_hashes(swapped)).all()
    np.True_
    """
    total = np.full(rows.num_rows, start, dtype=np.uint64)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        values: ArrowColumn = column
        if isinstance(column, pa.ChunkedArray):
            values = column.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # no chunk at all
            continue
        part = _mixed(_hashes(values) ^ _seed(name))
        total += np.where(_valid(values), part, np.uint64(0)) if values.null_count else part
    return (_mixed(total) >> np.uint64(32)).astype(np.int64)


def shared_hash(values: Mapping[str, str | None], schema: pa.Schema) -> int:
    """The part of partition values, as texts of the log, in the hash of each row."""
    total = np.zeros(1, dtype=np.uint64)
    for name, text in values.items():
        if text is not None:
            value = pa.array([text]).cast(schema.field(name).type)
            total += _mixed(_hashes(value) ^ _seed(name))
    return int(total[0])


def hashes_hold(stored: pa.Schema, schema: pa.Schema) -> bool:
    """Whether hashes made of rows of a stored schema are those of a table's rows now.

    They are not if a column was dropped since, or has another type.
    """
    types = {field.name: field.type for field in schema}
    return all(f.name in types and types[f.name].equals(f.type) for f in stored)


def levels_of(hash_: int) -> range:
    """The levels under which a row is found.

    >>> levels_of(2**32 - 1), levels_of(2**24 - 1)
    (range(5, 1), range(5, 9))
    """
    return range(LEVELS.start, min(LEVELS.stop, 33 - int(hash_).bit_length()))


@functools.lru_cache(maxsize=4_096)
def _seed(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))


def _mixed(words: Words) -> Words:
    """Every bit of the result depends on every bit of a word (the finaliser of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _valid(column: ArrowColumn) -> npt.NDArray[np.bool_]:
    if not column.null_count and not pa.types.is_null(column.type):
        return np.ones(len(column), dtype=np.bool_)
    return np.asarray(pc.is_valid(column))


def _hashes(column: ArrowColumn) -> Words:
    """The hash of each value; that of a null is ignored."""
    data_type: Any = column.type
    types = pa.types
    if types.is_dictionary(data_type):
        return _of_distinct(column.dictionary, column.indices)
    if types.is_floating(data_type):
        doubles = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        return np.where(np.isnan(doubles), _NAN, doubles.view(np.uint64))
    if types.is_struct(data_type):
        total = np.zeros(len(column), dtype=np.uint64)
        for at in range(data_type.num_fields):
            child = pc.struct_field(column, [at])
            part = _mixed(_hashes(child) ^ _seed(data_type.field(at).name))
            total += np.where(_valid(child), part, np.uint64(0))
        return total
    if types.is_list(data_type) or types.is_large_list(data_type) or types.is_map(data_type):
        return _of_lists(column)
    if types.is_integer(data_type) or types.is_boolean(data_type) or types.is_temporal(data_type):
        if types.is_date32(data_type):
            column = column.cast(pa.int32())
        integers = pc.fill_null(column.cast(pa.int64()), 0)
        return np.asarray(integers, dtype=np.int64).view(np.uint64)
    if types.is_null(data_type):
        return np.zeros(len(column), dtype=np.uint64)
    if types.is_decimal(data_type):
        column = column.cast(pa.string())
    # Texts that repeat are hashed once, by a dictionary; the result is the same.
    if len(column.slice(0, _SAMPLE).unique()) <= _SAMPLE // 2 < len(column):
        encoded = column.dictionary_encode()
        return _of_distinct(encoded.dictionary, encoded.indices)
    return _of_texts(column.cast(pa.large_binary()))


def _of_distinct(distinct: ArrowColumn, indices: ArrowColumn) -> Words:
    """The hashes of values that may repeat."""
    hashes_of_distinct = _hashes(distinct)
    places = np.asarray(pc.fill_null(indices, 0))
    return (
        hashes_of_distinct[places]
        if len(hashes_of_distinct)
        else np.zeros(len(indices), dtype=np.uint64)
    )


def _of_texts(column: ArrowColumn) -> Words:
    """The hashes of texts, eight bytes of all of them at a time."""
    _, offsets, data = column.buffers()
    count = len(column)
    if not count or data is None:
        return np.zeros(count, dtype=np.uint64)
    ends = np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + count + 1]
    first, starts, lengths = ends[0], ends[:-1] - ends[0], np.diff(ends)
    # A word is read where the last text ends, too.
    padded = np.zeros(int(ends[-1] - first) + _WORD, dtype=np.uint8)
    padded[:-_WORD] = np.frombuffer(data, dtype=np.uint8)[first : ends[-1]]
    words: Words = np.ndarray(len(padded) - _WORD + 1, dtype="<u8", buffer=padded, strides=(1,))
    counted = np.minimum(lengths, _LONG)
    # Longest first: texts that have another word are then a slice. Short integers sort quickly.
    order = np.argsort(-counted.astype(np.int16), kind="stable")
    starts, lengths, counted = starts[order], lengths[order], counted[order]
    total = lengths.astype(np.uint64)
    whole_words = counted // _WORD
    having = count - np.cumsum(np.bincount(whole_words))
    for at in range(int(whole_words[0])):
        having_block = slice(0, int(having[at]))
        _add_words(total[having_block], words[starts[having_block] + at * _WORD])
    _add_words(total, words[starts + whole_words * _WORD] & _BITS[counted % _WORD])
    for row in np.flatnonzero(lengths > _LONG).tolist():
        start = int(starts[row])
        total[row] ^= np.uint64(zlib.crc32(padded[start : start + int(lengths[row])].data))
    result = np.empty_like(total)
    result[order] = total
    return result


def _add_words(total: Words, words: Words) -> None:
    """Mix a word into the hash of each text, in place."""
    total ^= words
    total *= _STEP
    total ^= total >> np.uint64(32)


def _of_lists(column: ArrowColumn) -> Words:
    """The hash of a list: of its items, each mixed with its place."""
    if pa.types.is_map(column.type):
        pairs = pa.struct([column.type.key_field, column.type.item_field])
        column = column.cast(pa.list_(pa.field("entries", pairs, nullable=False)))
    items: ArrowColumn = pc.list_flatten(column)
    sizes: ArrowColumn = pc.list_value_length(column)
    counts: ArrowColumn = pc.fill_null(sizes, 0)
    lengths = np.asarray(counts, dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    places = (np.arange(len(items)) - np.repeat(starts, lengths) + 1).astype(np.uint64)
    parts = np.where(_valid(items), _hashes(items), np.uint64(1))
    summed = np.cumsum(_mixed(parts + places * _PLACES), dtype=np.uint64)
    padded = np.concatenate((np.zeros(1, dtype=np.uint64), summed))
    result: Words = padded[starts + lengths] - padded[starts] + lengths.astype(np.uint64)
    return result
