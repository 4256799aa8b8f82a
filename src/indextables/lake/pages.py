"""Footers and pages of Parquet files of other programs.

Their row groups are large, so of few rows of plain columns the pages are read (`page_headers`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.errors import ObjectNotFoundError, SourceRowsError, StorageError
from indextables.schema import TIMESTAMP
from indextables.split.format.container import Chunk, Footer, SplitInfo, Statistics
from indextables.split.format.page_headers import (
    PageRecord,
    ReadRange,
    Run,
    described_values,
    values_of,
)
from indextables.split.mapping import TableMapping
from indextables.split.row_numbers import RowNumbers
from indextables.storage import Store

_MAGIC = b"PAR1"
_FIRST_GUESS = 64 << 10

_SMALL_CHUNK = 8 << 10
"""A chunk that is smaller is read whole."""
_LARGE_FOOTER = 1 << 20
"""Finding the offset indexes in a larger footer takes longer than it saves."""

ReadRanges = Callable[[Sequence[tuple[int, int]]], Sequence[bytes]]


_OLD_CALENDAR = (b"org.apache.spark.legacy", b"org.apache.spark.timeZone")
"""Notes of Spark in files whose dates and times its readers take for those of another calendar."""
_COMMON_CODECS = frozenset(("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"))
_COMMON_ENCODINGS = frozenset(
    ("PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BINARY_PACKED",
     "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")
)  # fmt: skip


def read_lean(
    read: ReadRange, record: PageRecord, chunk: Any, data_type: Any, rows: RowNumbers
) -> Any:
    """The values of some rows of a chunk, counted from its first and ascending, of this type."""
    counts = record.values
    ends = np.cumsum(counts)
    if int(ends[-1]) != chunk.num_values:
        raise ValueError("its pages have other numbers of values than its footer says")
    pages = np.unique(np.searchsorted(ends, rows, side="right"))
    first_rows = np.cumsum(counts[pages]) - counts[pages]
    place = np.searchsorted(pages, np.searchsorted(ends, rows, side="right"))
    places = first_rows[place] + rows - (ends - counts)[pages][place]
    bodies = [read(int(record.offsets[n]), int(record.offsets[n + 1])) for n in pages.tolist()]
    described = [described_values(body) for body in bodies]
    if [count for count, _ in described] != counts[pages].tolist():
        raise ValueError("its pages have other numbers of values than its index says")
    dictionary = b""
    if any(refers for _, refers in described):  # a column may give up its dictionary
        dictionary = read(int(record.offsets[0]), int(record.offsets[1]))
    run = Run(dictionary, bodies, int(counts[pages].sum()))
    return values_of([run], chunk, data_type, places)


def pages_with(record: PageRecord, rows: RowNumbers) -> list[tuple[int, int]]:
    """Where the pages of some rows of a chunk are, and its dictionary."""
    pages = np.unique(np.searchsorted(np.cumsum(record.values), rows, side="right"))
    if len(record.values) and record.values[0] == 0:
        pages = np.union1d(pages, [0])
    return [(int(record.offsets[n]), int(record.offsets[n + 1])) for n in pages.tolist()]


# --- structures in Thrift's compact protocol -----------------------------------------------------


def parsed_struct(data: bytes) -> dict[int, Any]:
    """A structure, by the numbers of its fields. `IndexError` or `ValueError` if it is none."""
    return _parsed(data, 0, 12)[0]  # type: ignore[no-any-return]


def _parsed(data: bytes, at: int, thrift_type: int) -> tuple[Any, int]:
    if thrift_type in (4, 5, 6):
        value = shift = 0
        while (byte := data[at]) > 127:
            value |= (byte & 127) << shift
            shift, at = shift + 7, at + 1
        value |= byte << shift
        return value >> 1 ^ -(value & 1), at + 1
    if thrift_type == 8:
        length, at = _parsed_length(data, at)
        return data[at : at + length], at + length
    if thrift_type in (9, 10):
        length, thrift_type, at = data[at] >> 4, data[at] & 15, at + 1
        if length == 15:
            length, at = _parsed_length(data, at)
        elements = []
        for _ in range(length):
            value, at = _parsed(data, at, thrift_type)
            elements.append(value)
        return elements, at
    if thrift_type == 12:
        fields: dict[int, Any] = {}
        number = 0
        while head := data[at]:
            at += 1
            if head >> 4:
                number += head >> 4
            else:
                number, at = _parsed(data, at, 4)
            if head & 15 in (1, 2):  # a field that is true or false has no value after it
                fields[number] = head & 15 == 1
            else:
                fields[number], at = _parsed(data, at, head & 15)
        return fields, at + 1
    width = {1: 1, 2: 1, 3: 1, 7: 8}.get(thrift_type)
    if width is None:
        raise ValueError("it has a field of an unknown type")
    return data[at : at + width], at + width


def _parsed_length(data: bytes, at: int) -> tuple[int, int]:
    value, at = _parsed(data, at, 6)
    return (value << 1) ^ (value >> 63), at  # lengths are not zigzagged


# --- footers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForeignFooter(Footer):
    """The footer of a Parquet file that is not a split."""

    index: bytes = b""
    """The file from where its offset indexes begin, if its writer made some."""
    index_places: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """Where the offset index of each column chunk is, by row group and leaf."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the file, as they are read."""
        return _read_types(self.parquet)

    @cached_property
    def is_common(self) -> bool:
        """Whether the file has nothing that other readers cannot read, or read in another way."""
        names, metadata = self.schema.names, self.parquet.metadata or {}
        if len({name.lower() for name in names}) < len(names) or instants(self):
            return False
        if any(key.startswith(_OLD_CALENDAR) for key in metadata):
            return False
        groups = map(self.parquet.row_group, range(self.parquet.num_row_groups))
        chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
        return all(
            chunk.compression in _COMMON_CODECS and _COMMON_ENCODINGS.issuperset(chunk.encodings)
            for chunk in chunks
        )

    def as_read(self, rows: pa.Table) -> pa.Table:
        """Rows without views, which few functions of Arrow take."""
        for at, column in enumerate(rows.columns):
            if "view" in str(column.type):
                plain = rows.schema.field(at).with_type(_without_views(column.type))
                rows = rows.set_column(at, plain, column.cast(plain.type))
        return rows

    def chunks(self, groups: Sequence[int], columns: Sequence[str]) -> list[Chunk]:
        """The column chunks of columns; a dictionary may be named after the pages, or as 0."""
        chunks_of_names = []
        for chunk in super().chunks(groups, columns):
            start = min(filter(None, (chunk.start, chunk.parquet.data_page_offset)))
            end = start + chunk.parquet.total_compressed_size
            chunks_of_names.append(Chunk(start, end, chunk.parquet, chunk.group, chunk.leaf))
        return sorted(chunks_of_names, key=lambda chunk: chunk.start)

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return super().size + len(self.index) + 64 * len(self.index_places)

    @cached_property
    def _records(self) -> dict[tuple[int, int], PageRecord | None]:
        return {}

    def pages_of(self, chunk: Chunk, read: ReadRange) -> PageRecord | None:
        """The pages of a chunk, found by walking over their headers once; None if it is small."""
        if chunk.end - chunk.start <= _SMALL_CHUNK:
            return None
        key = (chunk.group, chunk.leaf)
        if key not in self._records:
            self._records[key] = PageRecord.of_chunk(
                lambda at, length: read(at, at + length), chunk.start, chunk.end
            )
        return self._records[key]

    def read_indexes(self, chunks: Sequence[Chunk], read: ReadRanges) -> None:
        """Fetch those offset indexes of chunks that are not known, with one request."""
        missing = [
            chunk
            for chunk in chunks
            if (key := (chunk.group, chunk.leaf)) not in self._records and key in self.index_places
        ]
        places = [self.index_places[chunk.group, chunk.leaf] for chunk in missing]
        first = self.end - len(self.index)
        outside = [place for place in places if place[0] < first]
        data_at = dict(zip(outside, read(outside) if outside else [], strict=True))
        for chunk, place in zip(missing, places, strict=True):
            data = data_at.get(place) or self.index[place[0] - first : place[1] - first]
            rows = self.parquet.row_group(chunk.group).num_rows
            self._records[chunk.group, chunk.leaf] = _indexed_pages(data, chunk, rows)

    def indexed_pages(self, chunk: Chunk) -> PageRecord | None:
        """The pages of a chunk by its offset index, which was read."""
        return self._records.get((chunk.group, chunk.leaf))

    def check_pages(self, read: Any, chunks: Sequence[Chunk], *, path: str) -> None:
        """Other writers lay out pages as they like; Parquet's reader judges them."""


def _indexed_pages(data: bytes, chunk: Chunk, rows: int) -> PageRecord | None:
    """The pages that an offset index lists; None if they do not fill the chunk."""
    try:
        listed = [(location[1], location[2], location[3]) for location in parsed_struct(data)[1]]
        starts, sizes, firsts = np.array(listed, np.int64).reshape(-1, 3).T
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    ends = np.append(starts[1:], chunk.end)
    counts = np.diff(firsts, append=rows)
    if not len(starts) or firsts[0] or (counts <= 0).any() or (starts + sizes != ends).any():
        return None
    if starts[0] < chunk.start:
        return None
    if starts[0] > chunk.start:  # what is before the first page is the dictionary
        starts, counts = np.append(chunk.start, starts), np.append(0, counts)
    none = np.zeros(len(starts), np.int64)
    return PageRecord(np.append(starts, chunk.end), none, none, counts)


def index_places(footer: bytes) -> dict[tuple[int, int], tuple[int, int]]:
    """Where the offset indexes of a file are, by row group and leaf; none if there are none."""
    try:
        groups = parsed_struct(footer).get(4, [])
        return {
            (number, leaf): (chunk[4], chunk[4] + chunk[5])
            for number, group in enumerate(groups)
            for leaf, chunk in enumerate(group[1])
            if 4 in chunk and 5 in chunk
        }
    except (KeyError, IndexError, TypeError, ValueError):
        return {}  # then columns are read whole


def _read_types(parquet: pq.FileMetaData) -> pa.Schema:
    """The types that columns are read in: times of 12 bytes as microseconds."""
    schema = parquet.schema.to_arrow_schema().remove_metadata()
    old = {
        column.path
        for column in (parquet.schema.column(n) for n in range(len(parquet.schema)))
        if column.physical_type == "INT96"
    }
    return pa.schema(
        f.with_type(pa.timestamp("us") if f.name in old else _without_views(f.type)) for f in schema
    )


def _without_views(data_type: Any) -> Any:
    """The type with plain texts, bytes and lists, as every function of Arrow takes them."""
    types = pa.types
    if types.is_string_view(data_type):
        return pa.string()
    if types.is_binary_view(data_type):
        return pa.binary()
    if types.is_dictionary(data_type):
        return _without_views(data_type.value_type) if "view" in str(data_type) else data_type
    if types.is_struct(data_type):
        return pa.struct([f.with_type(_without_views(f.type)) for f in data_type.fields])
    if types.is_map(data_type):
        return pa.map_(_without_views(data_type.key_type), _without_views(data_type.item_type))
    if any(
        is_it(data_type) for is_it in (types.is_list, types.is_list_view, types.is_large_list_view)
    ):
        return pa.list_(data_type.value_field.with_type(_without_views(data_type.value_type)))
    return data_type


def parquet_columns(footer: Footer) -> pa.Schema:
    """The columns of a file that has no other description; without those that hold nulls only."""
    return pa.schema(
        f.with_type(TIMESTAMP) if f.name in instants(footer) else f
        for f in footer.schema
        if not pa.types.is_null(f.type)
    )


def instants(footer: Footer) -> set[str]:
    """Columns of 12 bytes: moments in time, to all who write them."""
    schema = footer.parquet.schema
    columns = (schema.column(n) for n in range(len(schema)))
    return {c.path for c in columns if c.physical_type == "INT96"}


def read_parquet_footer(store: Store, path: str, size: int) -> Footer:
    """Open the end of a Parquet file."""
    shown = f"{store.uri}/{path}"
    try:
        start = max(0, size - _FIRST_GUESS)
        tail = store.get_range(path, start, size)
        if tail[-4:] != _MAGIC:
            why = "it is encrypted" if tail[-4:] == b"PARE" else "it is not a Parquet file"
            raise SourceRowsError(shown, why)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length > size:
            raise SourceRowsError(shown, "its footer is longer than the file")
        if length > len(tail):
            tail = store.get_range(path, size - length, size)
        parquet = pq.read_metadata(pa.BufferReader(_MAGIC + tail[-length:]))
    except ObjectNotFoundError:
        raise SourceRowsError(shown, "it is missing, although the source names it") from None
    except StorageError as error:
        raise SourceRowsError(
            shown, f"it is not the file that the source names ({error})"
        ) from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, SourceRowsError):
            raise
        raise SourceRowsError(shown, f"its footer is damaged ({error})") from None
    groups = range(parquet.num_row_groups)
    unpacked = sum(parquet.row_group(number).total_byte_size for number in groups)
    info = description(parquet.num_rows, TableMapping(()), {}, unpacked)
    if store.local_path(path) is not None or length > _LARGE_FOOTER:
        return ForeignFooter(info, parquet, size - length, size)
    # A remote file is read by its pages, as far as it says where they are.
    places = index_places(tail[-length:-8])
    first = min((place[0] for place in places.values()), default=size)
    index = tail[first - size :] if 0 < size - first <= len(tail) else b""
    return ForeignFooter(info, parquet, size - length, size, index, places)


def description(
    rows: int, mapping: TableMapping, partition: Mapping[str, str | None], unpacked: int
) -> SplitInfo:
    """What a split of a file would say about itself that has no index."""
    return SplitInfo(
        rows=rows,
        mapping=mapping,
        sections=(),
        segments=(),
        partition_values=dict(partition),
        statistics=Statistics(),
        uncompressed_size=unpacked,
    )
