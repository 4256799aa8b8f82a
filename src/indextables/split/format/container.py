"""The file of a split: a Parquet file that also carries an index.

::

    PAR1 | row groups | index files | term lists | seal | page index, footer | length | PAR1

Parquet readers follow the footer's offsets and never see what lies between the row groups and the
footer. The footer's key-value metadata holds one JSON document (`SplitInfo`) that names every
section with offset, length and checksum. Parquet does not protect its own footer, so the *seal*
before it holds a checksum of all that follows. A reader that knows where the seal begins opens a
remote split with one request.

Sections that compress are compressed; `size` and `crc` are those of the content.
"""

from __future__ import annotations

import contextlib
import functools
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from indextables.errors import DamagedIndexError, DamagedSplitError, ForeignSplitError, SchemaError
from indextables.split.format.page_headers import (
    ColumnPages,
    PageRecord,
    ReadAt,
    ReadRange,
    WrongPageError,
    check_against_chunk,
)
from indextables.split.mapping import TableMapping
from indextables.split.row_numbers import UNTAGGED, Tags

FORMAT_VERSION = 1
HASHES = "hashes"
"""The kind of the section that holds the hash of each row, in order: 32 bits."""
INFO_KEY = b"indextables.split"
ROWS_ELSEWHERE = "_rows_elsewhere"
"""The one column of a split whose rows are in the files of a source."""

_MAGIC = b"PAR1"
_SEAL = struct.Struct("<8sII")
_SEAL_MAGIC = b"ITSPLIT1"
_TRAILER = 8
_FIRST_GUESS = 256 << 10
_MAX_FOOTER = 256 << 20
_MAX_SECTION = 16 << 30
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_PIECE = 1 << 20
_ANY_SECTION = 64 << 20
_MOST_EXPANSION = 256
"""The largest claim of a section above `_ANY_SECTION`; sections of an index are dense."""
_MAX_WINDOW = 128 << 20
_WORTH_COMPRESSING = 0.9

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """A finished index: its files, `meta.json` among them, and its segments in order."""

    files: tuple[Path, ...]
    segments: tuple[str, ...]
    row_tags: Tags = UNTAGGED


@dataclass(frozen=True, slots=True)
class Section:
    """A run of bytes in the file: an index file (`kind` index) or a term list (`kind` terms)."""

    kind: str
    name: str
    offset: int
    length: int
    size: int
    crc: int
    codec: str = ""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a split's columns, as the log has them."""

    min_values: Mapping[str, str] = field(default_factory=dict)
    max_values: Mapping[str, str] = field(default_factory=dict)
    null_counts: Mapping[str, int] = field(default_factory=dict)
    nan_counts: Mapping[str, int] = field(default_factory=dict)

    def to_json(self, num_records: int) -> str:
        """The `stats` string of an add action."""
        document: dict[str, Any] = {"numRecords": num_records, "nullCount": self.null_counts}
        if self.nan_counts:
            document["nanCount"] = self.nan_counts
        return orjson.dumps(document).decode()


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of the index. In a cross-reference `base` is added to the numbers of documents."""

    name: str
    base: int = 0


@dataclass(frozen=True, slots=True)
class SplitInfo:
    """The description of a split in its footer, enough to rebuild its log entry."""

    rows: int
    mapping: TableMapping
    sections: tuple[Section, ...]
    segments: tuple[Segment, ...]
    partition_values: Mapping[str, str | None]
    statistics: Statistics
    uncompressed_size: int
    term_counts: Mapping[str, int] = field(default_factory=dict)
    """How many different words each field of words has, where that was counted."""
    too_long: tuple[str, ...] = ()
    """Columns of whole strings with a value that is too long for the index."""
    row_tags: Tags = UNTAGGED
    """At which row the documents of each tag begin: see `row_numbers`."""
    partition_kinds: Mapping[str, str] = field(default_factory=dict)
    """How the table maps its partition columns: their values here are text."""
    page_headers: str = field(default="", repr=False)
    """Lengths and checksums of all page headers: see `page_headers`. Empty in older splits."""
    page_values: str = field(default="", repr=False)
    """How many values each page has, so that rows are read by page. Empty in older splits."""

    def index_sections(self) -> tuple[Section, ...]:
        """The files of the Tantivy index."""
        return tuple(s for s in self.sections if s.kind == "index")

    def to_json(self) -> bytes:
        """The document in the footer."""
        return orjson.dumps(
            {
                "version": FORMAT_VERSION,
                "rows": self.rows,
                "mapping": orjson.loads(self.mapping.to_json()),
                "sections": self.sections,
                "segments": self.segments,
                "partitionValues": self.partition_values,
                "statistics": self.statistics,
                "uncompressedSize": self.uncompressed_size,
                "termCounts": self.term_counts,
                "tooLong": self.too_long,
                "rowTags": self.row_tags,
                "partitionKinds": self.partition_kinds,
                "pageHeaders": self.page_headers,
                "pageValues": self.page_values,
            }
        )

    @classmethod
    def from_json(cls, text: bytes, *, path: str) -> SplitInfo:
        """Read the document; the path is for messages."""
        try:
            document = orjson.loads(text)
            if document["version"] != FORMAT_VERSION:
                raise DamagedSplitError(
                    path, f"format {document['version']} is newer than this release; upgrade"
                )
            return cls(
                rows=int(document["rows"]),
                mapping=TableMapping.from_json(orjson.dumps(document["mapping"])),
                sections=tuple(exactly(Section, s) for s in document["sections"]),
                segments=tuple(exactly(Segment, s) for s in document["segments"]),
                partition_values=_values(document["partitionValues"], str | None),
                statistics=_statistics(document["statistics"]),
                uncompressed_size=int(document["uncompressedSize"]),
                term_counts=_values(document["termCounts"], int),
                too_long=tuple(map(str, document["tooLong"])),
                row_tags=tuple((int(t), int(r)) for t, r in document.get("rowTags", UNTAGGED)),
                partition_kinds=_values(document.get("partitionKinds", {}), str),
                page_headers=str(document.get("pageHeaders", "")),
                page_values=str(document.get("pageValues", "")),
            )
        except (LookupError, TypeError, ValueError, AttributeError, SchemaError) as error:
            raise DamagedSplitError(path, f"its description cannot be read ({error})") from None


def exactly(cls: type[Record], document: dict[str, Any]) -> Record:
    """A dataclass of texts and numbers from JSON, whose values have the types of its fields."""
    record = cls(**document)
    for member in fields(record):  # type: ignore[arg-type]
        if type(getattr(record, member.name)).__name__ != member.type:
            raise TypeError(f"{member.name!r} of a {cls.__name__} is not of type {member.type}")
    return record


def _values(document: Any, cls: Any) -> dict[str, Any]:
    """An object of JSON whose values have one type."""
    if not isinstance(document, dict) or not all(isinstance(v, cls) for v in document.values()):
        raise TypeError("an object is missing, or has values of another type")
    return document


def _statistics(document: dict[str, Any]) -> Statistics:
    statistics = Statistics(**document)
    for texts in (statistics.min_values, statistics.max_values):
        _values(texts, str)
    for counts in (statistics.null_counts, statistics.nan_counts):
        _values(counts, int)
    return statistics


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where the pages of one column of one row group are."""

    start: int
    end: int
    parquet: Any
    group: int
    leaf: int


@dataclass(frozen=True)
class Footer:
    """The opened end of a split."""

    info: SplitInfo
    parquet: pq.FileMetaData
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many bytes of the file it is."""
        return self.end - self.start

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The columns that the split holds."""
        return self.parquet.schema.to_arrow_schema().remove_metadata()

    @property
    def has_rows(self) -> bool:
        """Whether the rows are in the split, and not in the files of a source."""
        return self.schema.names != [ROWS_ELSEWHERE]

    def as_read(self, rows: pa.Table) -> pa.Table:
        """Rows that were decoded, in the types of `schema` or dictionaries of them."""
        return rows

    @functools.cached_property
    def repeated_texts(self) -> tuple[str, ...]:
        """Columns of text that are stored as a dictionary and references to it."""
        if not self.parquet.num_row_groups:
            return ()
        group = self.parquet.row_group(0)
        chunks = [group.column(i) for i in range(group.num_columns)]
        # A dot could be meant for the field of a struct, which is something else.
        texts = {f.name for f in self.schema if pa.types.is_string(f.type) and "." not in f.name}
        return tuple(
            c.path_in_schema for c in chunks if c.path_in_schema in texts and c.has_dictionary_page
        )

    @functools.cached_property
    def group_starts(self) -> npt.NDArray[np.int64]:
        """The first row of every row group, and the number of rows."""
        groups = range(self.parquet.num_row_groups)
        lengths = [self.parquet.row_group(i).num_rows for i in groups]
        return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))

    @functools.cached_property
    def _leaf_paths(self) -> tuple[str, ...]:
        schema = self.parquet.schema
        return tuple(schema.column(i).path for i in range(len(schema)))

    @functools.cached_property
    def page_record(self) -> PageRecord | None:
        """Where the pages are, if the split says so; `WrongPageError` if that cannot be read."""
        text = self.info.page_headers
        return PageRecord.from_text(text, self.info.page_values) if text else None

    @functools.cached_property
    def _column_pages(self) -> dict[str, ColumnPages | None]:
        return {}

    def column_pages(self, name: str) -> ColumnPages | None:
        """Which pages hold which rows of a column; `None` if it is read by its chunks."""
        if name not in self._column_pages:
            pages = None
            with contextlib.suppress(WrongPageError):  # checking the pages raises it again
                record = self.page_record
                chunks = self.chunks(range(self.parquet.num_row_groups), [name])
                if record is not None and len(chunks) == self.parquet.num_row_groups > 0:
                    column = self.parquet.schema.column(chunks[0].leaf)
                    data_type = self.schema.field(name).type
                    pages = ColumnPages.of(record, chunks, column, data_type, self.group_starts)
            self._column_pages[name] = pages
        return self._column_pages[name]

    @functools.cached_property
    def _encoded_sizes(self) -> dict[str, npt.NDArray[np.int64]]:
        return {}

    def encoded_sizes(self, name: str) -> npt.NDArray[np.int64]:
        """How many bytes a column takes in each row group before compression."""
        sizes = self._encoded_sizes.get(name)
        if sizes is None:
            count = self.parquet.num_row_groups
            sizes = np.zeros(count, dtype=np.int64)
            for chunk in self.chunks(range(count), [name]):
                sizes[chunk.group] += chunk.parquet.total_uncompressed_size
            self._encoded_sizes[name] = sizes
        return sizes

    def chunks(self, groups: Sequence[int], columns: Sequence[str]) -> list[Chunk]:
        """The column chunks that hold columns of row groups, in the order of the file."""
        # A dot may be part of a column's name or separate it from a nested field.
        names, beginnings = set(columns), tuple(f"{name}." for name in columns)
        leaves = [
            number
            for number, path in enumerate(self._leaf_paths)
            if path in names or path.startswith(beginnings)
        ]
        chunks = []
        for group in groups:
            row_group = self.parquet.row_group(group)
            for leaf in leaves:
                chunk: Any = row_group.column(leaf)
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                end = start + chunk.total_compressed_size
                chunks.append(Chunk(start, end, chunk, group, leaf))
        return sorted(chunks, key=lambda chunk: chunk.start)

    def check_pages(self, read: ReadAt, chunks: Sequence[Chunk], *, path: str) -> None:
        """Check the page headers of column chunks, which Parquet's own checksums leave out."""
        try:
            record = self.page_record
            for chunk in chunks:
                if record is not None:
                    most = chunk.parquet.total_uncompressed_size
                    record.check(read, chunk.start, chunk.end, most=most)
                else:
                    check_against_chunk(read, chunk.start, chunk.end, chunk.parquet)
        except WrongPageError as error:
            raise DamagedSplitError(path, f"its rows cannot be read ({error})") from None


# --- writing ---------------------------------------------------------------------------------


class Sink(Protocol):
    """An open file with a position."""

    def write(self, data: Any, /) -> Any: ...
    def tell(self) -> int: ...


def write_file_section(sink: Sink, source: Path, *, kind: str, compress: bool = True) -> Section:
    """Append a file as a section, compressed if it may be and a sample of it compresses."""
    with source.open("rb") as file:
        first = file.read(_PIECE)
        packed = zstandard.compress(first, 3)
        pays = compress and len(packed) < _WORTH_COMPRESSING * len(first)
        codec = "zstd" if pays else ""
        offset, size, crc = sink.tell(), 0, 0
        compressor = zstandard.ZstdCompressor(level=3).compressobj()
        piece = first
        while piece:
            size, crc = size + len(piece), zlib.crc32(piece, crc)
            sink.write(compressor.compress(piece) if codec else piece)
            piece = file.read(_PIECE)
        if codec:
            sink.write(compressor.flush())
    return Section(kind, source.name, offset, sink.tell() - offset, size, crc, codec)


def write_bytes_section(sink: Sink, data: bytes, *, kind: str, name: str) -> Section:
    """Append bytes as a section, as they are."""
    offset = sink.tell()
    sink.write(data)
    return Section(kind, name, offset, len(data), len(data), zlib.crc32(data))


def write_seal(sink: Sink) -> int:
    """Reserve the seal; everything after it is the footer. Returns its offset."""
    offset = sink.tell()
    sink.write(_SEAL.pack(_SEAL_MAGIC, 0, 0))
    return offset


def close_seal(file: Path, offset: int) -> None:
    """Fill in the seal of a finished file."""
    with file.open("r+b") as stream:
        stream.seek(offset + _SEAL.size)
        footer = stream.read()
        stream.seek(offset)
        stream.write(_SEAL.pack(_SEAL_MAGIC, zlib.crc32(footer), len(footer)))


# --- reading ---------------------------------------------------------------------------------


def read_footer(
    read: ReadRange, size: int, *, path: str, start: int | None = None, end: int | None = None
) -> Footer:
    """Open the end of a split, with one request if the log says where it is."""
    if start is None or not 0 <= start < size or end != size:
        start = max(0, size - _FIRST_GUESS)
    if size < _SEAL.size + _TRAILER + len(_MAGIC):
        raise _unreadable(read, size, path, "it is too short")
    tail = read(start, size)
    if tail[-4:] != _MAGIC:
        raise _unreadable(read, size, path, "it does not end as a split does")
    length = int.from_bytes(tail[-8:-4], "little")
    seal = _find_seal(tail)
    if seal is None and length < min(size, _MAX_FOOTER):
        # The page index lies between the seal and the footer and may be longer than the guess.
        start = max(0, size - 4 * length - _FIRST_GUESS * 16)
        tail = read(start, size)
        seal = _find_seal(tail)
    if seal is None:
        raise DamagedSplitError(path, "the seal of its footer is missing or wrong")
    try:
        parquet: pq.FileMetaData = pq.ParquetFile(pa.BufferReader(tail[seal:])).metadata
    except (pa.ArrowException, OSError) as error:
        raise DamagedSplitError(path, f"its Parquet footer cannot be read ({error})") from None
    text = (parquet.metadata or {}).get(INFO_KEY)
    if text is None:
        raise DamagedSplitError(path, "it is a Parquet file without a split's description")
    info = SplitInfo.from_json(text, path=path)
    _check_sections(info, limit=start + seal, path=path)
    if parquet.num_rows != info.rows:
        raise DamagedSplitError(path, f"it has {parquet.num_rows} rows instead of {info.rows}")
    return Footer(info, parquet, start + seal, size)


def _find_seal(tail: bytes) -> int | None:
    """Where the seal is that fits what follows it; the last such place."""
    position = len(tail)
    while (position := tail.rfind(_SEAL_MAGIC, 0, position)) >= 0:
        after = position + _SEAL.size
        if after <= len(tail):
            _, crc, length = _SEAL.unpack_from(tail, position)
            if length == len(tail) - after and zlib.crc32(tail[after:]) == crc:
                return position
    return None


def _unreadable(read: ReadRange, size: int, path: str, reason: str) -> Exception:
    if size >= len(_MAGIC) and read(0, len(_MAGIC)) != _MAGIC:
        return ForeignSplitError(path)
    return DamagedSplitError(path, reason)


def _check_sections(info: SplitInfo, *, limit: int, path: str) -> None:
    """A section stays inside the file, and its name stays inside the folder it is copied to."""
    for section in info.sections:
        if (
            not _NAME.fullmatch(section.name)
            or section.offset < len(_MAGIC)
            or section.length < 0
            or section.offset + section.length > limit
            or not 0 <= section.size <= _MAX_SECTION
            or section.codec not in ("", "zstd")
        ):
            raise DamagedSplitError(path, f"the section {section.name!r} is impossible")


def read_section(read: ReadRange, section: Section, *, path: str) -> bytes:
    """The content of a section, checked."""
    if section.size > _ANY_SECTION and section.size > _MOST_EXPANSION * section.length:
        raise DamagedIndexError(
            path, f"{section.name} claims {section.size:,} bytes and has {section.length:,}"
        )
    data = read(section.offset, section.offset + section.length)
    if section.codec:
        data = _decompressed(data, section, path=path)
    if len(data) != section.size or zlib.crc32(data) != section.crc:
        raise DamagedIndexError(path, f"the checksum of {section.name} is wrong")
    return data


def _decompressed(data: bytes, section: Section, *, path: str) -> bytes:
    """Decompress piece by piece, and no more than one piece beyond what the section claims."""
    pieces, size = [], 0
    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        with unpacker.stream_reader(data, read_across_frames=True) as stream:
            while size <= section.size and (piece := stream.read(_PIECE)):
                pieces.append(piece)
                size += len(piece)
    except (zstandard.ZstdError, MemoryError) as error:
        raise DamagedIndexError(path, f"{section.name} does not decompress ({error})") from None
    return b"".join(pieces)
