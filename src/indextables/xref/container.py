"""The file of an XRef: its path, its layout, and its bloom filters.

It is the container of a split, in which every row stands for a source split. The Parquet rows name
the source splits, so any reader can look at them; a split that is gone has no path any more. The
footer's metadata holds, beside the description that every split has, one JSON document: the
columns, and sets of columns whose terms are complete. Each row refers to a set.

A bucket spreads its load over names, so the file lies in one of 26^4 folders, named by four letters
from the hash of the file's name. The hash is the one of Java's `String.hashCode`, over UTF-16
units, with a sign; its absolute value is taken as 32 unsigned bits, so that the one hash code that
has no positive counterpart gets letters as well.

Columns whose values are nearly all different get bloom filters: a list of such values is as large
as the column, and a dictionary of all of them is larger still. A bloom filter takes a few bits a
value and answers one question: may the split hold this value? All filters of an XRef have one size
and are stored *block by block*: row `i` holds block `i` of every split. A value is looked up in one
block, so one range read answers for all splits, however large the filters are. Every row has a
checksum of its own, because it may be read alone. `indextables.bloom` says which bits of a block a
value sets.
"""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.bloom import BLOCK_BYTES, WORDS, Hashes, blocks_of, filled_blocks, masks_of
from indextables.config import XREF_DIRECTORY
from indextables.errors import ConfigError, UnusableXRefError
from indextables.split.format import (
    INFO_KEY,
    Footer,
    ReadRange,
    Section,
    Segment,
    Sink,
    SplitInfo,
    Statistics,
    close_seal,
    exactly,
    write_seal,
)
from indextables.split.mapping import TableMapping
from indextables.xref.fields import TermField

_LETTERS = 26
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
XREF_PREFIX = "xref-"


def new_xref_id() -> str:
    """A name for a new XRef: sixteen hexadecimal digits."""
    return uuid.uuid4().hex[:16]


def bare_id(xref_id: str) -> str:
    """The id without the file's prefix: logs have both forms.

    >>> bare_id("xref-abc123"), bare_id("abc123")
    ('abc123', 'abc123')
    """
    return xref_id.removeprefix(XREF_PREFIX)


def xref_path(xref_id: str, *, directory: str = XREF_DIRECTORY.default) -> str:
    """The path of an XRef's file in the table.

    >>> xref_path("abc123")
    '_xrefsplits/ghig/xref-abc123.split'
    """
    bare = bare_id(xref_id)
    if not _ID.fullmatch(bare):
        raise ConfigError(f"{xref_id!r} is not an id of a cross-reference: use letters and digits.")
    name = f"{XREF_PREFIX}{bare}.split"
    return f"{directory.strip('/')}/{hash_directory(name)}/{name}"


def hash_directory(file_name: str) -> str:
    """Four letters from a file's name.

    >>> hash_directory("xref-abc123.split")
    'ghig'
    """
    number = abs(java_hash(file_name))
    letters = []
    for _ in range(4):
        number, letter = divmod(number, _LETTERS)
        letters.append(chr(ord("a") + letter))
    return "".join(reversed(letters))


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 32 bits with a sign.

    >>> java_hash("polygenelubricants") == -(2**31)
    True
    """
    units = memoryview(text.encode("utf-16-le")).cast("H")
    code = 0
    for unit in units:
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


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
    array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if not len(array):
        return np.zeros(0, dtype=np.uint64)
    buffers: Any = array.buffers()
    offsets = np.frombuffer(buffers[1], dtype=np.int32).astype(np.int64)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(buffers[2] or b"\0", dtype=np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    with np.errstate(over="ignore"):
        mixed_hashes = lengths.astype(np.uint64) ^ np.uint64(0xCBF29CE484222325)
        for place in range(min(_LONGEST, int(lengths.max()))):
            active = np.flatnonzero(lengths > place)
            mixed = mixed_hashes[active] ^ data[starts[active] + place].astype(np.uint64)
            mixed_hashes[active] = mixed * np.uint64(0x100000001B3)
        mixed_hashes ^= mixed_hashes >> np.uint64(33)
        mixed_hashes *= np.uint64(0xFF51AFD7ED558CCD)
        mixed_hashes ^= mixed_hashes >> np.uint64(33)
        mixed_hashes *= np.uint64(0xC4CEB9FE1A85EC53)
        return mixed_hashes ^ (mixed_hashes >> np.uint64(33))


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
    term_hashes = hashes(pa.array(terms, pa.string()))
    for filter_set in filters:
        matching = np.zeros(filter_set.splits, dtype=np.bool_)
        blocks = blocks_of(term_hashes, filter_set.blocks).tolist()
        for number, word_bits in zip(blocks, masks_of(term_hashes), strict=True):
            row = _row(filter_set, sections[filter_set.section], read, number, path)
            matching |= ((row & word_bits) == word_bits).all(axis=1)
        mask[filter_set.base : filter_set.base + filter_set.splits] = matching
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


XREF_KEY = b"indextables.xref"
FORMAT_VERSION = 1

_COLUMNS: dict[str, pa.DataType] = {
    "path": pa.string(),
    "size": pa.int64(),
    "fields": pa.int32(),
}
_ROWS = pa.schema(_COLUMNS)


@dataclass(frozen=True, slots=True)
class FieldSet:
    """The complete fields of a split by their keys, and its columns if they are known."""

    keys: tuple[str, ...]
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """A source split as a document of an XRef; `path` is None once it is gone."""

    path: str | None
    size: int
    fields: FieldSet


@dataclass(frozen=True, slots=True)
class Coverage:
    """The documents of an XRef in order, as columns."""

    paths: pa.StringArray
    sizes: npt.NDArray[np.int64]
    sets: tuple[FieldSet, ...]
    set_of: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.paths)

    def splits(self) -> Iterator[SourceSplit]:
        """The documents one by one."""
        rows = zip(self.paths.to_pylist(), self.sizes.tolist(), self.set_of.tolist(), strict=True)
        for path, size, fields in rows:
            yield SourceSplit(path, size, self.sets[fields])

    def knows(self, field: TermField) -> Mask:
        """The documents that have all terms of a field; a split without the column has none, unless
        the column was added with a default."""
        per_set = [
            field.key in s.keys
            or (s.columns is not None and field.column not in s.columns and not field.has_default)
            for s in self.sets
        ]
        return np.asarray(per_set, dtype=np.bool_)[self.set_of]


@dataclass(frozen=True, slots=True)
class Described:
    """The description of an XRef, beside its documents."""

    fields: tuple[dict[str, Any], ...]
    total_terms: int
    filters: tuple[BloomFilters, ...] = ()


class XRefFile:
    """Writes the file of an XRef: documents first, then sections, at last the footer."""

    def __init__(self, file: Path, splits: Sequence[SourceSplit]) -> None:
        self._file = file
        self._rows = len(splits)
        self._sets = tuple(dict.fromkeys(split.fields for split in splits))
        number = {fields: place for place, fields in enumerate(self._sets)}
        table = pa.table(
            {
                "path": pa.array([s.path for s in splits], pa.string()),
                "size": pa.array([s.size for s in splits], pa.int64()),
                "fields": pa.array([number[s.fields] for s in splits], pa.int32()),
            },
            schema=_ROWS,
        )
        self.sink = pa.OSFile(str(file), "wb")
        self._parquet = pq.ParquetWriter(self.sink, _ROWS, compression="zstd", store_schema=False)
        self._parquet.write_table(table)
        self._bytes = table.nbytes
        self._documents = self._checksum()

    def _checksum(self) -> tuple[int, int]:
        """How long the rows are in the file, and their checksum: Parquet keeps none of them all."""
        self.sink.flush()
        data = self._file.read_bytes()
        return len(data), zlib.crc32(data)

    def close(
        self, sections: Iterable[Section], segments: Iterable[Segment], described: Described
    ) -> int:
        """Finish the file; returns where its footer begins."""
        info = SplitInfo(
            rows=self._rows,
            mapping=TableMapping(()),
            sections=tuple(sections),
            segments=tuple(segments),
            partition_values={},
            statistics=Statistics(),
            uncompressed_size=self._bytes,
        )
        document = {
            "version": FORMAT_VERSION,
            "documents": self._documents,
            "fields": described.fields,
            "totalTerms": described.total_terms,
            "filters": [f.to_document() for f in described.filters],
            "sets": [{"keys": s.keys, "columns": s.columns} for s in self._sets],
        }
        self._parquet.add_key_value_metadata(
            {
                INFO_KEY.decode(): info.to_json().decode(),
                XREF_KEY.decode(): orjson.dumps(document).decode(),
            }
        )
        seal = write_seal(self.sink)
        self._parquet.close()
        self.sink.close()
        close_seal(self._file, seal)
        return seal

    def abort(self) -> None:
        """Close what is open; the file is the caller's to delete."""
        self._parquet.close()
        self.sink.close()


def read_description(footer: Footer, read: ReadRange, *, path: str) -> tuple[Coverage, Described]:
    """The documents and the description of an XRef."""
    text = (footer.parquet.metadata or {}).get(XREF_KEY)
    if text is None:
        raise UnusableXRefError(path, "it is a split of rows")
    try:
        document = orjson.loads(text)
        if document["version"] != FORMAT_VERSION:
            raise UnusableXRefError(path, f"its format {document['version']} is not supported")
        sets = tuple(
            FieldSet(tuple(s["keys"]), None if s["columns"] is None else tuple(s["columns"]))
            for s in document["sets"]
        )
        sections = {s.name: s for s in footer.info.sections if s.kind == BLOOM}
        filters = read_filters(document["filters"], sections, total=footer.info.rows, path=path)
        described = Described(
            tuple(document["fields"]), int(document["totalTerms"]), tuple(filters)
        )
        length, crc = document["documents"]
        data = read(0, length)
        if zlib.crc32(data) != crc:
            raise UnusableXRefError(path, "the checksum of its documents is wrong")
        file = pq.ParquetFile(pa.BufferReader(data), metadata=footer.parquet)
        rows: Any = file.read().combine_chunks()
        coverage = Coverage(
            rows["path"].combine_chunks(),
            np.asarray(rows["size"].combine_chunks(), dtype=np.int64),
            sets,
            np.asarray(rows["fields"].combine_chunks(), dtype=np.int64),
        )
    except (KeyError, TypeError, ValueError, pa.ArrowException, OSError) as error:
        raise UnusableXRefError(path, f"its description cannot be read ({error})") from None
    if len(coverage.set_of) and not 0 <= coverage.set_of.min() <= coverage.set_of.max() < len(sets):
        raise UnusableXRefError(path, "a document refers to fields that are not there")
    return coverage, described
