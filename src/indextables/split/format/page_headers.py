"""The headers of Parquet pages: checked, and used to read some pages of a column chunk alone.

Parquet's page checksums cover the body of a page and not its header, and a reader believes the
header: a changed bit in one can skip a page in silence. A split therefore keeps the length and the
checksum of every page header in its footer, which the seal covers. Pages follow each other without
gaps from the first byte after the magic, so lengths are enough to find them all.

Splits of older releases have no such record. Their headers are parsed, and must say together what
the sealed footer says of the chunk: its length, its size when decompressed, its values and their
encodings. Every page must have a checksum. That finds every changed bit but one: the encoding of
the page at which a column gave up its dictionary.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FIRST_PAGE = 4
"""Where the first page of a file begins."""

ReadAt = Callable[[int, int], bytes]
"""Reads so many bytes from an offset on; fewer where the file ends."""

_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_ENCODINGS = {0: "PLAIN", 2: "PLAIN_DICTIONARY", 3: "RLE", 5: "DELTA_BINARY_PACKED",
              6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY", 8: "RLE_DICTIONARY",
              9: "BYTE_STREAM_SPLIT"}  # fmt: skip
_LEVELS = 3
_NUMBER = 0x15
"""The first field of a structure, or the one after the last: a number of 32 bits."""
_WINDOWS = (256, 64 << 10)
_LONGEST = 0xFFFF
_RECORD = np.dtype([("header", "<u2"), ("body", "<u4"), ("crc", "<u4")])


class WrongPageError(ValueError):
    """A page header that is not what was written."""


@dataclass(frozen=True, slots=True)
class PageHeader:
    """What the header of a page says, and where it is."""

    offset: int
    length: int
    body: int
    uncompressed: int
    values: int
    encoding: str
    is_dictionary: bool
    crc: int
    """The checksum of the header itself."""


# --- the record of a new split -----------------------------------------------------------------


@dataclass(frozen=True)
class PageRecord:
    """Where the page headers of a file are, and their checksums."""

    offsets: npt.NDArray[np.int64]
    """Of each header, and the end of the last page."""
    lengths: npt.NDArray[np.int64]
    checksums: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    """How many values each page has, a dictionary none; nothing if that was not recorded."""

    @classmethod
    def from_text(cls, text: str, values: str = "") -> PageRecord:
        """Read what `record_text` and `values_text` wrote."""
        try:
            pages = np.frombuffer(base64.b64decode(text, validate=True), _RECORD)
            counts = np.frombuffer(base64.b64decode(values, validate=True), "<u4")
            if len(counts) not in (0, len(pages)):
                raise ValueError("pages are counted in two ways")
        except ValueError as error:
            raise WrongPageError(f"its list of pages cannot be read: {error}") from None
        lengths = pages["header"].astype(np.int64)
        ends = FIRST_PAGE + np.cumsum(lengths + pages["body"])
        return cls(
            np.append(FIRST_PAGE, ends),
            lengths,
            pages["crc"].astype(np.int64),
            counts.astype(np.int64),
        )

    @classmethod
    def of_chunk(cls, read: ReadAt, start: int, end: int) -> PageRecord | None:
        """The pages of a column chunk that another program wrote; None if they are of a new kind.

        Their headers are believed, as every reader of Parquet does.
        """
        try:
            pages = list(walk_pages(read, start, end, is_ours=False))
        except WrongPageError:
            return None
        return cls(
            np.array([*(page.offset for page in pages), end], np.int64),
            np.array([page.length for page in pages], np.int64),
            np.array([page.crc for page in pages], np.int64),
            np.array([0 if page.is_dictionary else page.values for page in pages], np.int64),
        )

    def check(self, read: ReadAt, start: int, end: int, *, most: int) -> None:
        """Check the headers of the pages of one column chunk, which may grow to `most` bytes."""
        first, last = np.searchsorted(self.offsets, (start, end)).tolist()
        if last >= len(self.offsets) or self.offsets[first] != start or self.offsets[last] != end:
            raise WrongPageError("its pages are not where its footer says")
        pages = zip(
            self.offsets[first:last].tolist(),
            self.lengths[first:last].tolist(),
            self.checksums[first:last].tolist(),
            strict=True,
        )
        for offset, length, checksum in pages:
            header = read(offset, length)
            if zlib.crc32(header) != checksum:
                raise WrongPageError(f"the checksum of the page header at byte {offset} is wrong")
            most -= uncompressed_size(header)
        if most < 0:
            raise WrongPageError("its pages claim more bytes than the footer says")


def values_text(pages: Iterable[PageHeader]) -> str:
    """The numbers of values of all pages as the footer keeps them."""
    counts = [0 if page.is_dictionary else page.values for page in pages]
    return base64.b64encode(np.array(counts, "<u4").tobytes()).decode()


def record_text(pages: Iterable[PageHeader]) -> str:
    """The headers of all pages of a file as the footer keeps them."""
    found = [(page.length, page.body, page.crc) for page in pages]
    if any(length > _LONGEST for length, _, _ in found):
        return ""  # statistics are never so long; without a record, headers are parsed
    return base64.b64encode(np.array(found, _RECORD).tobytes()).decode()


# --- the headers themselves ----------------------------------------------------------------------


def walk_pages(read: ReadAt, start: int, end: int, *, is_ours: bool = True) -> Iterator[PageHeader]:
    """The pages between two offsets, which must fill the space exactly."""
    while start < end:
        page = _page_at(read, start, end, is_ours=is_ours)
        yield page
        start += page.length + page.body


def check_against_chunk(read: ReadAt, start: int, end: int, chunk: Any) -> None:
    """Compare the headers of a column chunk with what the footer says of the chunk."""
    pages = list(walk_pages(read, start, end))
    data = [page for page in pages if not page.is_dictionary]
    falls_back = [page.encoding for page in data]
    wrong = (
        any(page.is_dictionary for page in pages[1:])
        or bool(chunk.has_dictionary_page) != (len(data) < len(pages))
        or sum(page.values for page in data) != chunk.num_values
        or sum(page.length + page.uncompressed for page in pages) != chunk.total_uncompressed_size
        or not {page.encoding for page in pages} <= set(chunk.encodings)
        # A column that gives up its dictionary does not come back to it.
        or falls_back != sorted(falls_back, key=lambda name: "DICTIONARY" not in name)
    )
    if wrong:
        raise WrongPageError(f"the page headers of {chunk.path_in_schema!r} are not as written")


def _page_at(read: ReadAt, offset: int, end: int, *, is_ours: bool) -> PageHeader:
    for window in _WINDOWS:
        data = read(offset, min(window, end - offset))
        try:
            header, length = _struct(data, 0)
            break
        except IndexError:
            continue
    else:
        raise WrongPageError(f"the page header at byte {offset} has no end")
    try:
        is_dictionary = {_DATA_PAGE: False, _DICTIONARY_PAGE: True}[header[1]]
        body = header.pop(7 if is_dictionary else 5)
        encoding = _ENCODINGS[body[2]]
        sound = (
            set(header) | (set() if is_ours else {4}) == {1, 2, 3, 4}
            and min(header[2], header[3], body[1]) >= 0
            and offset + length + header[3] <= end
            # Of columns that are not nested, others spell the second kind of levels as they like.
            and (is_dictionary or (body[3] == _LEVELS and (body[4] == _LEVELS or not is_ours)))
            and set(body) <= ({1, 2, 3} if is_dictionary else {1, 2, 3, 4, 5})
            and (not is_dictionary or encoding in ("PLAIN", "PLAIN_DICTIONARY"))
        )
    except (KeyError, TypeError):
        sound = False
    if not sound:
        raise WrongPageError(f"the page header at byte {offset} is not one of a split")
    return PageHeader(
        offset, length, header[3], header[2], body[1], encoding, is_dictionary,
        zlib.crc32(data[:length]),
    )  # fmt: skip


def described_values(page: bytes) -> tuple[int, bool]:
    """How many values a data page has, and whether they are numbers of a dictionary's."""
    header, _ = _struct(page, 0)
    try:
        body = header[5] if header[1] == _DATA_PAGE else header[8]
        encoding = _ENCODINGS[body[2 if header[1] == _DATA_PAGE else 4]]
    except (KeyError, TypeError):
        raise WrongPageError("a page header is not that of a data page") from None
    return body[1], "DICTIONARY" in encoding


def uncompressed_size(header: bytes) -> int:
    """The second number of a header, after the type of the page."""
    if len(header) < 4 or header[0] != _NUMBER or header[1] >= 128 or header[2] != _NUMBER:
        raise WrongPageError("a page header does not begin as one")
    return _varint(header, 3)[0] >> 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise WrongPageError("a number in a page header is too long")


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """A structure in Thrift's compact protocol, by the numbers of its fields."""
    fields: dict[int, Any] = {}
    number = 0
    value: Any
    while kind := data[at]:
        at += 1
        number += kind >> 4
        kind &= 15
        if kind in (1, 2):
            value = kind == 1
        elif kind in (5, 6):
            value, at = _varint(data, at)
            value = value >> 1 ^ -(value & 1)
        elif kind == 8:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        elif kind == 12 and depth < 2:
            value, at = _struct(data, at, depth + 1)
        else:
            raise WrongPageError("a page header has a field of an unknown type")
        if number in fields:
            raise WrongPageError("a page header has a field twice")
        fields[number] = value
    return fields, at + 1


def varint(value: int) -> bytes:
    """A number as Parquet and Thrift spell it: seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
