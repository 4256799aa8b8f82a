"""Bloom filters: a second router, for columns whose values are nearly all different.

A list of such values is as large as the column, and a dictionary of all of them is larger still. A
bloom filter takes a few bits a value and answers one question: may the split hold this value? All
filters of an XRef have one size and are stored *block by block*: row `i` holds block `i` of every
split. A value is looked up in one block, so one range read answers for all splits, however large
the filters are. Every row has a checksum of its own, because it may be read alone.

`indextables.bloom` says which bits of a block a value sets.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indextables.bloom import BLOCK_BYTES, WORDS, Hashes, blocks_of, filled_blocks, masks_of
from indextables.errors import UnusableXRefError
from indextables.split.container import ReadRange, Section, Sink, exactly

BLOOM = "bloom"
"""The kind of sections that hold filters."""
MAX_LOOKUPS = 64
"""A longer list of values is not looked up: each is a read."""

_CHECKSUM = 4
_LONGEST = 1_024
"""Of longer texts only the beginning and the length are hashed."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BloomFilters:
    """Filters of one field, for `splits` documents from `base` on, in a section of that name."""

    key: str
    section: str
    base: int
    splits: int
    blocks: int

    def to_document(self) -> dict[str, Any]:
        """The entry in the XRef's description."""
        return asdict(self)

    @property
    def row_bytes(self) -> int:
        """How long a row is, checksum included."""
        return self.splits * BLOCK_BYTES + _CHECKSUM


def blocks_for(values: int, bits_per_value: int) -> int:
    """How many blocks a filter needs for so many values."""
    return max(1, -(-values * bits_per_value // (8 * BLOCK_BYTES)))


def hashes(texts: Any) -> Hashes:
    """A hash for each text, the same wherever it is computed.

    >>> int(hashes(pa.array(["a"]))[0]) == int(hashes(pa.array(["b", "a"]))[1])
    True
    """
    array = pa.concat_arrays(texts.chunks) if isinstance(texts, pa.ChunkedArray) else texts
    if not len(array):
        return np.zeros(0, dtype=np.uint64)
    buffers: Any = array.buffers()
    offsets = np.frombuffer(buffers[1], dtype=np.int32).astype(np.int64)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(buffers[2] or b"\0", dtype=np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    with np.errstate(over="ignore"):
        found = lengths.astype(np.uint64) ^ np.uint64(0xCBF29CE484222325)
        for place in range(min(_LONGEST, int(lengths.max()))):
            active = np.flatnonzero(lengths > place)
            mixed = found[active] ^ data[starts[active] + place].astype(np.uint64)
            found[active] = mixed * np.uint64(0x100000001B3)
        found ^= found >> np.uint64(33)
        found *= np.uint64(0xFF51AFD7ED558CCD)
        found ^= found >> np.uint64(33)
        found *= np.uint64(0xC4CEB9FE1A85EC53)
        return found ^ (found >> np.uint64(33))


class BloomWriter:
    """Gathers the filters of one field in a temporary file, in the layout that is stored."""

    def __init__(self, file: Path, key: str, *, splits: int, values: int, bits: int) -> None:
        self.key = key
        self._missing = set(range(splits))
        self._blocks = blocks_for(values, bits)
        self._filters = np.memmap(
            file, dtype=np.uint32, mode="w+", shape=(self._blocks, splits, WORDS)
        )

    def add(self, document: int, values: Hashes) -> None:
        """The filter of one split."""
        self._filters[:, document, :] = filled_blocks(values, self._blocks)
        self._missing.discard(document)

    def write(self, sink: Sink, *, documents: int) -> tuple[Section, BloomFilters]:
        """Store the filters of the first documents, a checksum behind every row."""
        # A split of which nothing is known may hold every value.
        self._filters[:, sorted(self._missing), :] = np.uint32(0xFFFFFFFF)
        offset, crc = sink.tell(), 0
        for row in self._filters[:, :documents, :]:
            data = row.tobytes()
            data += zlib.crc32(data).to_bytes(_CHECKSUM, "little")
            crc = zlib.crc32(data, crc)
            sink.write(data)
        length = sink.tell() - offset
        name = f"{BLOOM}-{self.key}-0"
        filters = BloomFilters(self.key, name, 0, documents, self._blocks)
        return Section(BLOOM, name, offset, length, length, crc), filters


def possible(
    filters: Iterable[BloomFilters],
    sections: dict[str, Section],
    read: ReadRange,
    terms: Sequence[str],
    *,
    documents: int,
    path: str,
) -> Mask:
    """The documents that may hold one of the values; those without a filter may."""
    mask = np.ones(documents, dtype=np.bool_)
    if len(terms) > MAX_LOOKUPS:
        return mask
    wanted = hashes(pa.array(terms, pa.string()))
    for some in filters:
        found = np.zeros(some.splits, dtype=np.bool_)
        blocks = blocks_of(wanted, some.blocks).tolist()
        for number, word_bits in zip(blocks, masks_of(wanted), strict=True):
            row = _row(some, sections[some.section], read, number, path)
            found |= ((row & word_bits) == word_bits).all(axis=1)
        mask[some.base : some.base + some.splits] = found
    return mask


def _row(
    filters: BloomFilters, section: Section, read: ReadRange, number: int, path: str
) -> npt.NDArray[np.uint32]:
    start = section.offset + number * filters.row_bytes
    data = read(start, start + filters.row_bytes)
    content, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
    if zlib.crc32(content) != int.from_bytes(checksum, "little"):
        raise UnusableXRefError(path, f"the checksum of a block of {section.name} is wrong")
    return np.frombuffer(content, dtype=np.uint32).reshape(filters.splits, WORDS)


def read_filters(
    documents: Sequence[dict[str, Any]], sections: dict[str, Section], *, total: int, path: str
) -> Iterator[BloomFilters]:
    """The filters that a description names, checked against the sections that are there."""
    for document in documents:
        filters = exactly(BloomFilters, document)
        section = sections.get(filters.section)
        if (
            section is None
            or section.length != filters.blocks * filters.row_bytes
            or filters.base < 0
            or filters.splits < 0
            or filters.blocks < 1
            or filters.base + filters.splits > total
        ):
            raise UnusableXRefError(path, f"its filters {filters.section} are impossible")
        yield filters
