"""The headers of Parquet pages: checked, and used to read some pages of a column chunk alone.

Parquet's page checksums cover the body of a page and not its header, and a reader believes the
header: a changed bit in one can skip a page in silence. A split therefore keeps the length and the
checksum of every page header in its footer, which the seal covers. Pages follow each other without
gaps from the first byte after the magic, so lengths are enough to find them all.

Splits of older releases have no such record. Their headers are parsed, and must say together what
the sealed footer says of the chunk: its length, its size when decompressed, its values and their
encodings. Every page must have a checksum. That finds every changed bit but one: the encoding of
the page at which a column gave up its dictionary.

Parquet's readers decode a column chunk from its first page on, and every chunk is a call. So of few
rows a file is put together in memory that has only the pages with wanted rows, of any number of row
groups: their bytes as they are, and a footer that says so. Values are read by their physical type
and given back the column's. This is for columns of plain types that are neither nested nor
required; others are read whole.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.split.row_numbers import RowNumbers

FIRST_PAGE = 4
"""Where the first page of a file begins."""

ReadAt = Callable[[int, int], bytes]
"""Reads so many bytes from an offset on; fewer where the file ends."""

ReadRange = Callable[[int, int], bytes]
"""Reads the bytes of a file from a start to an end."""

_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_ENCODINGS = {0: "PLAIN", 2: "PLAIN_DICTIONARY", 3: "RLE", 5: "DELTA_BINARY_PACKED",
              6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY", 8: "RLE_DICTIONARY",
              9: "BYTE_STREAM_SPLIT"}  # fmt: skip
_LEVELS = 3
_NUMBER = 0x15
"""The first field of a structure, or the one after the last: a number of 32 bits."""
_WINDOWS = (256, 64 << 10)
_LONGEST = 0xFFFF
_PHYSICAL = {"BOOLEAN": 0, "INT32": 1, "INT64": 2, "FLOAT": 4, "DOUBLE": 5, "BYTE_ARRAY": 6}
_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_MAGIC = b"PAR1"
_UTF8 = 0
_NO_DICTIONARY = -1
_FEW_VALUES = 128
"""So few values are taken one by one, which is quicker than a selection."""
_RECORD = np.dtype([("header", "<u2"), ("body", "<u4"), ("crc", "<u4")])


class WrongPageError(ValueError):
    """A page header that is not what was written."""


@dataclass(frozen=True, slots=True)
class PageHeader:
    """The fields of a page header, and its position."""

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
    def from_text(cls, text: str, values: str) -> PageRecord:
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
    headers = [(page.length, page.body, page.crc) for page in pages]
    if any(length > _LONGEST for length, _, _ in headers):
        return ""  # statistics are never so long; without a record, headers are parsed
    return base64.b64encode(np.array(headers, _RECORD).tobytes()).decode()


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
            # For columns that are not nested, the encoding of the second kind of levels differs.
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
    while field_type := data[at]:
        at += 1
        number += field_type >> 4
        field_type &= 15
        if field_type in (1, 2):
            value = field_type == 1
        elif field_type in (5, 6):
            value, at = _varint(data, at)
            value = value >> 1 ^ -(value & 1)
        elif field_type == 8:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        elif field_type == 12 and depth < 2:
            value, at = _struct(data, at, depth + 1)
        else:
            raise WrongPageError("a page header has a field of an unknown type")
        if number in fields:
            raise WrongPageError("a page header has a field twice")
        fields[number] = value
    return fields, at + 1


def varint(value: int) -> bytes:
    """A number as Parquet and Thrift spell it: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# --- which columns can be read by page -----------------------------------------------------------


def can_be_read_by_page(column: Any, chunk: Any, data_type: Any) -> bool:
    """Whether pages of a column, by Parquet's description and Arrow's type, can be read alone."""
    if column.max_repetition_level or column.max_definition_level != 1 or "." in column.path:
        return False
    if chunk.compression not in _CODECS or column.physical_type not in _PHYSICAL:
        return False
    types, stored = pa.types, column.physical_type
    if types.is_timestamp(data_type):
        logical = column.logical_type
        unit = _UNITS.get(_time_unit(str(logical.to_json()))) if logical.type == "TIMESTAMP" else ""
        return bool(stored == "INT64" and unit == data_type.unit)
    if types.is_string(data_type) or types.is_large_string(data_type) or types.is_binary(data_type):
        return bool(stored == "BYTE_ARRAY")
    if types.is_date32(data_type):
        return bool(stored == "INT32")
    if types.is_signed_integer(data_type) or types.is_decimal128(data_type):
        return stored in ("INT32", "INT64")
    return (stored, data_type) in (
        ("FLOAT", pa.float32()), ("DOUBLE", pa.float64()), ("BOOLEAN", pa.bool_()),
    )  # fmt: skip


def _time_unit(text: str) -> str:
    return next((unit for unit in _UNITS if unit in text), "")


# --- the pages of a split's column ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPages:
    """Which pages of a split hold which rows of a column."""

    kind: Any
    chunk: Any
    """Parquet's metadata of the first chunk; the others are stored in the same way."""
    record: PageRecord
    pages: RowNumbers
    """The numbers of the pages in the record, without dictionaries."""
    first_rows: RowNumbers
    """The first row of each page."""
    dictionaries: RowNumbers
    """The number of the dictionary that each page needs; -1 if it needs none."""

    @classmethod
    def of(
        cls,
        record: PageRecord,
        chunks: Sequence[Any],
        column: Any,
        data_type: Any,
        rows: RowNumbers,
    ) -> ColumnPages | None:
        """The pages of all chunks of a column; `None` if it is read whole.

        `rows` has the first row of each row group, and the number of rows. A record that does not
        fit the chunks is for those who check the pages of a whole chunk.
        """
        if not chunks or not len(record.values):
            return None
        codec = chunks[0].parquet.compression
        pages, counts, dictionaries = [], [], []
        for chunk, total in zip(chunks, np.diff(rows).tolist(), strict=True):
            if chunk.parquet.compression != codec:
                return None
            first, last = np.searchsorted(record.offsets, (chunk.start, chunk.end)).tolist()
            fits = last < len(record.offsets) and record.offsets[last] == chunk.end
            has_dictionary = bool(chunk.parquet.has_dictionary_page)
            data_pages = np.arange(first + has_dictionary, last)
            values = record.values[data_pages] if fits else data_pages[:0]
            if (
                record.offsets[first] != chunk.start
                or (has_dictionary and record.values[first] != 0)
                or (values <= 0).any()
                or values.sum() != total
            ):
                return None
            pages.append(data_pages)
            counts.append(values)
            dictionaries.append(
                np.full(len(data_pages), first if has_dictionary else _NO_DICTIONARY)
            )
        if not can_be_read_by_page(column, chunks[0].parquet, data_type):
            return None
        values = np.concatenate(counts)
        return cls(
            data_type,
            chunks[0].parquet,
            record,
            np.concatenate(pages),
            np.cumsum(values) - values,
            np.concatenate(dictionaries),
        )

    @property
    def has_dictionaries(self) -> bool:
        """Whether some pages hold numbers of a dictionary's values."""
        return bool((self.dictionaries != _NO_DICTIONARY).any())

    def counts(self, pages: RowNumbers) -> RowNumbers:
        """How many rows some pages have."""
        rows: RowNumbers = self.record.values[self.pages[pages]]
        return rows

    def whole(self, pages: RowNumbers) -> PagesWithRows:
        """Some pages with all of their rows."""
        places = np.arange(self.counts(pages).sum())
        return PagesWithRows(
            self, self.pages[pages].tolist(), self.dictionaries[pages].tolist(), places
        )

    def with_rows(self, rows: RowNumbers) -> PagesWithRows:
        """The pages that hold some rows."""
        used, place = np.unique(
            np.searchsorted(self.first_rows, rows, side="right") - 1, return_inverse=True
        )
        counts = self.counts(used)
        moved = np.cumsum(counts) - counts - self.first_rows[used]
        return PagesWithRows(
            self, self.pages[used].tolist(), self.dictionaries[used].tolist(), rows + moved[place]
        )


@dataclass(frozen=True, slots=True, eq=False)
class PagesWithRows:
    """Some pages of a column, and where the wanted rows are in them."""

    column: ColumnPages
    pages: list[int]
    dictionaries: list[int]
    places: RowNumbers

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Where the pages are in the file, and their dictionaries."""
        needed = dict.fromkeys((*self.dictionaries, *self.pages))
        needed.pop(_NO_DICTIONARY, None)
        return [self._range(page) for page in needed]

    def values(self, read: ReadRange) -> Any:
        """The values of the rows, from pages that `read` has; checked.

        `WrongPageError` for a header that is not what was written.
        """
        runs: list[Run] = []
        last = None
        for page, dictionary in zip(self.pages, self.dictionaries, strict=True):
            if dictionary != last:
                last = dictionary
                needed = b"" if dictionary == _NO_DICTIONARY else self._page(dictionary, read)
                runs.append(Run(needed, [], 0))
            runs[-1].pages.append(self._page(page, read))
            runs[-1].values += int(self.column.record.values[page])
        return values_of(runs, self.column.chunk, self.column.kind, self.places)

    def _range(self, page: int) -> tuple[int, int]:
        offsets = self.column.record.offsets
        return int(offsets[page]), int(offsets[page + 1])

    def _page(self, page: int, read: ReadRange) -> bytes:
        start, end = self._range(page)
        data = read(start, end)
        header = data[: int(self.column.record.lengths[page])]
        if zlib.crc32(header) != self.column.record.checksums[page]:
            raise WrongPageError(f"the checksum of the page header at byte {start} is wrong")
        return data


# --- a file of pages -----------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """Pages of one column that share a dictionary, or need none: a row group."""

    dictionary: bytes
    pages: list[bytes]
    values: int


def values_of(runs: Sequence[Run], chunk: Any, data_type: Any, places: RowNumbers) -> Any:
    """Values of these pages by their places, in a type.

    `chunk` is what Parquet says of a chunk that some of them are from.
    """
    is_text = chunk.physical_type == "BYTE_ARRAY"
    file = pq.ParquetFile(
        pa.BufferReader(_file(chunk, runs, data_type)),
        page_checksum_verification=True,
        # Texts that repeat stay references until they were chosen.
        read_dictionary=["c"] if is_text and any(run.dictionary for run in runs) else None,
        pre_buffer=False,
    )
    column: Any = file.read(use_threads=False).column(0)
    if len(column) != sum(run.values for run in runs):
        raise WrongPageError("its pages have other numbers of values than recorded")
    if column.num_chunks == 1:
        values = column.chunk(0)
    else:  # each with a dictionary of its own
        values = column.unify_dictionaries().combine_chunks()
    if len(places) > _FEW_VALUES:
        return _typed(values.take(pa.array(places)), data_type)
    return _typed(
        pa.concat_arrays([values.slice(place, 1) for place in places.tolist()]), data_type
    )


def _typed(values: Any, data_type: Any) -> Any:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode() if len(values) else values.cast(pa.binary())
    if values.type == data_type:
        return values
    if pa.types.is_timestamp(data_type) or pa.types.is_date32(data_type):
        return values.view(data_type)
    if pa.types.is_decimal128(data_type):  # stored without its scale
        integers = values.cast(pa.int64()).cast(pa.decimal128(19, 0))
        return pa.Array.from_buffers(data_type, len(integers), integers.buffers())
    return values.cast(data_type)


def _file(chunk: Any, runs: Sequence[Run], data_type: Any) -> bytes:
    """A file of one column, in Thrift's compact protocol where it is not data."""
    physical = _PHYSICAL[chunk.physical_type]
    root = _text(4, b"r", after=0) + _int(5, 1, after=4) + b"\0"
    leaf = _int(1, physical, after=0) + _int(3, 1, after=1) + _text(4, b"c", after=3)
    leaf += (_int(6, _UTF8, after=4) if pa.types.is_string(data_type) else b"") + b"\0"
    encodings = b"".join(map(_zigzag, (0, 2, 3, 5, 6, 7, 8, 9)))
    described = (
        _int(1, physical, after=0)
        + _list(2, 8, 5, after=1) + encodings
        + _list(3, 1, 8, after=2) + varint(1) + b"c"
        + _int(4, _CODECS[chunk.compression], after=3)
    )  # fmt: skip
    parts, groups, start = [_MAGIC], [], len(_MAGIC)
    for run in runs:
        first = start + len(run.dictionary)
        length = len(run.dictionary) + sum(map(len, run.pages))
        column = (
            described
            + _long(5, run.values, after=4)
            + _long(6, chunk.total_uncompressed_size, after=5)
            + _long(7, length, after=6)
            + _long(9, first, after=7)
            + (_long(11, start, after=9) if run.dictionary else b"")
            + b"\0"
        )
        groups.append(
            _list(1, 1, 12, after=0) + _long(2, start, after=0) + b"\x1c" + column + b"\0"
            + _long(2, length, after=1) + _long(3, run.values, after=2) + b"\0"
        )  # fmt: skip
        parts += [run.dictionary, *run.pages]
        start += length
    footer = (
        _int(1, 1, after=0) + _list(2, 2, 12, after=1) + root + leaf
        + _long(3, sum(run.values for run in runs), after=2)
        + _list(4, len(groups), 12, after=3) + b"".join(groups) + b"\0"
    )  # fmt: skip
    return b"".join([*parts, footer, len(footer).to_bytes(4, "little"), _MAGIC])


def _field(number: int, field_type: int, after: int) -> bytes:
    return bytes([(number - after) << 4 | field_type])


def _int(number: int, value: int, *, after: int) -> bytes:
    return _field(number, 5, after) + _zigzag(value)


def _long(number: int, value: int, *, after: int) -> bytes:
    return _field(number, 6, after) + _zigzag(value)


def _text(number: int, value: bytes, *, after: int) -> bytes:
    return _field(number, 8, after) + varint(len(value)) + value


def _list(number: int, length: int, element_type: int, *, after: int) -> bytes:
    head = (
        bytes([length << 4 | element_type])
        if length < 15
        else bytes([15 << 4 | element_type]) + varint(length)
    )
    return _field(number, 9, after) + head


def _zigzag(value: int) -> bytes:
    return varint(value << 1)
