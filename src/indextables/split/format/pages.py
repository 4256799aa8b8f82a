"""Some pages of a column chunk in the place of all of them.

Parquet's reader decodes a chunk from its first page on, and cannot be told to leave out pages. So a
chunk of which few rows are wanted is put together from the pages that hold them, which are fetched,
and pages of nulls in the place of the others, which are made here. A row has the same number as
before, and the nulls are of rows that nobody asked for.

This needs to be sure which rows a page holds. The footer has the number of values of every page,
and values are rows in columns that are neither nested nor required; other columns are read whole.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard

from indextables.split.format.page_headers import PageRecord, WrongPageError, uncompressed_size
from indextables.split.row_numbers import RowNumbers

Range = tuple[int, int]

_SMALL = 8 << 10
"""A chunk that is smaller is fetched whole."""
_PLAIN, _LEVELS, _REFERENCES = 0, 3, 8
_PACK: dict[str, Callable[[bytes], bytes]] = {
    "UNCOMPRESSED": bytes,
    "ZSTD": lambda data: zstandard.compress(data, 1),
}


@dataclass(frozen=True)
class ThinChunk:
    """A column chunk of which some pages are fetched."""

    start: int
    length: int
    parquet: Any
    record: PageRecord
    pages: range
    """The numbers of its pages in the record."""
    is_wanted: tuple[bool, ...]

    @property
    def ranges(self) -> list[Range]:
        """The pages to fetch; neighbours as one."""
        found: list[Range] = []
        for page, is_wanted in zip(self.pages, self.is_wanted, strict=True):
            if is_wanted:
                start, end = (int(self.record.offsets[page + n]) for n in (0, 1))
                if found and found[-1][1] == start:
                    start = found.pop()[0]
                found.append((start, end))
        return found

    def content(self, read: Callable[[int, int], bytes]) -> bytes:
        """The chunk, made from pages that `read` has and pages of nulls; checked."""
        parts, claimed = [], 0
        encoding = _REFERENCES if self.parquet.has_dictionary_page else _PLAIN
        for page, is_wanted in zip(self.pages, self.is_wanted, strict=True):
            if not is_wanted:
                parts.append(
                    null_page(int(self.record.values[page]), self.parquet.compression, encoding)
                )
                continue
            start, end = (int(self.record.offsets[page + n]) for n in (0, 1))
            data = read(start, end)
            header = data[: int(self.record.lengths[page])]
            if zlib.crc32(header) != self.record.checksums[page]:
                raise WrongPageError(f"the checksum of the page header at byte {start} is wrong")
            claimed += uncompressed_size(header)
            parts.append(data)
        if claimed > self.parquet.total_uncompressed_size:
            raise WrongPageError("its pages claim more bytes than the footer says")
        joined = b"".join(parts)
        # The reader takes as many bytes as the footer says and stops at the last value.
        return joined + bytes(max(0, self.length - len(joined)))


def thin_chunk(
    record: PageRecord, chunk: Any, column: Any, rows: RowNumbers, total: int
) -> ThinChunk | None:
    """The pages of a chunk that hold some of the rows of its group; `None` if it is read whole.

    `rows` are counted from the group's first, in ascending order; `column` is Parquet's.
    """
    start = chunk.parquet.dictionary_page_offset or chunk.parquet.data_page_offset
    length = chunk.end - chunk.start
    if (
        length <= _SMALL
        or not len(record.values)
        or column.max_repetition_level
        or column.max_definition_level != 1
        or chunk.parquet.compression not in _PACK
    ):
        return None
    first, last = np.searchsorted(record.offsets, (start, chunk.end)).tolist()
    values = record.values[first:last]
    ends = np.cumsum(values)
    has_dictionary = bool(chunk.parquet.has_dictionary_page)
    if (
        not len(values)
        or ends[-1] != total
        or (values[int(has_dictionary) :] == 0).any()
        or (has_dictionary and values[0] != 0)
    ):
        return None
    wanted = np.zeros(len(values), dtype=np.bool_)
    wanted[np.searchsorted(ends, rows, side="right")] = True
    wanted[0] |= has_dictionary
    # What is fetched in any case, and never longer than what it stands for.
    lengths = np.diff(record.offsets[first : last + 1])
    wanted |= lengths < _SMALL // 8
    if wanted.all():
        return None
    return ThinChunk(
        chunk.start, length, chunk.parquet, record, range(first, last), tuple(wanted.tolist())
    )


def null_page(values: int, compression: str, encoding: int) -> bytes:
    """A page of so many nulls of a column that is neither nested nor required."""
    run = _varint(values << 1) + b"\0"
    body = struct.pack("<I", len(run)) + run + (b"\0" if encoding == _REFERENCES else b"")
    packed = _PACK[compression](body)
    # Thrift's compact protocol: the step to a field's number and its type, then its value.
    sizes = b"\x15\x00\x15" + _number(len(body)) + b"\x15" + _number(len(packed))
    data = b"\x15" + _number(values) + b"\x15" + _number(encoding)
    data += (b"\x15" + _number(_LEVELS)) * 2
    return sizes + b"\x2c" + data + b"\0\0" + packed


def _number(value: int) -> bytes:
    return _varint(value << 1)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
