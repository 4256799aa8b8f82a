"""Feeding an index: with rows, with the indexes of other splits, or in memory.

Every document carries the number of its row in the column `_row` (see `row_numbers`), and that is
what a search asks for. Tantivy may so do what it likes with the order of documents: begin a new
segment when the heap is full, and merge segments in the background. Memory is bounded by the heap,
whatever the number of rows.

A new split may take over the indexes of splits whose rows it copies. The files of a segment mean
the same wherever they lie, and a document says which index its row number belongs to. So these
indexes are laid side by side into one folder, and Tantivy merges their segments there: no row is
tokenised again, which is many times quicker.

An index in memory over a few rows analyses and compiles as the index of a split does, so a scan of
rows finds exactly what their index would find.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import tantivy
import zstandard

from indextables.errors import DamagedIndexError, SplitError
from indextables.split.format.container import IndexFiles, Section, SplitInfo
from indextables.split.format.index import (
    LONGEST_FOOTER,
    META,
    IndexSearcher,
    check_file,
    read_meta,
)
from indextables.split.format.page_headers import ReadRange
from indextables.split.ip_address import parse_address, show_address
from indextables.split.leaves import (
    ArrowColumn,
    as_integers,
    document_texts,
    json_documents,
    leaf_texts,
)
from indextables.split.mapping import LEVEL_FIELD, ROW_FIELD, FieldMapping, TableMapping
from indextables.split.row_hash import LEVELS, levels_of
from indextables.split.row_numbers import RowNumbers, Tags, new_tag, numbered_from

_PIECE = 4 << 20
_HIGH = 1 << 32 - LEVELS.start
"""Hashes from here on have no level."""
MERGED_FROM = 8
"""Tantivy merges segments of a size as soon as there are so many."""


@dataclass(frozen=True, slots=True)
class AdoptedIndex:
    """Indexes in one folder, and the rows that they are of, in the order of the new split."""

    folder: Path
    rows: int
    row_tags: Tags


@dataclass(frozen=True, slots=True)
class SourceIndex:
    """The index of a split, and how to read it."""

    path: str
    info: SplitInfo
    read: ReadRange

    def copy(self, folder: Path, schema: list[Any]) -> list[dict[str, Any]]:
        """Copy its files into a folder, checked; returns what Tantivy says of its segments.

        `schema` is that of the index to be. A segment can be part of it if its own schema is the
        beginning of it.
        """
        meta = read_meta(self.read, self.info, path=self.path)
        segments: list[dict[str, Any]] = meta["segments"]
        if meta["schema"] != schema[: len(meta["schema"])]:
            raise DamagedIndexError(self.path, "its index has other fields than its mapping says")
        copied = []
        try:
            for section in self.info.index_sections():
                if section.name != META:
                    copied.append(folder / section.name)
                    self._copy(section, copied[-1])
        except DamagedIndexError:
            for file in copied:
                file.unlink(missing_ok=True)
            raise
        return segments

    def _copy(self, section: Section, target: Path) -> None:
        """Write the content of a section to a file, a piece at a time, and check it."""
        size, crc, tail = 0, 0, b""
        unpacker = zstandard.ZstdDecompressor()
        decompressor = unpacker.decompressobj(read_across_frames=True) if section.codec else None
        end = section.offset + section.length
        with target.open("wb") as file:
            for start in range(section.offset, end, _PIECE):
                data = self.read(start, min(start + _PIECE, end))
                try:
                    content = data if decompressor is None else decompressor.decompress(data)
                except zstandard.ZstdError as error:
                    raise DamagedIndexError(
                        self.path, f"{section.name} does not decompress ({error})"
                    ) from None
                size, crc = size + len(content), zlib.crc32(content, crc)
                if size > section.size:
                    break
                file.write(content)
                tail = (tail + content)[-LONGEST_FOOTER:]
        if size != section.size or crc != section.crc:
            raise DamagedIndexError(self.path, f"the checksum of {section.name} is wrong")
        check_file(section, tail, path=self.path)


def write_meta(folder: Path, like: bytes, segments: Sequence[dict[str, Any]]) -> None:
    """Describe the segments of a folder to Tantivy, as an empty index of the schema does."""
    document = orjson.loads(like) | {"segments": list(segments)}
    (folder / META).write_bytes(orjson.dumps(document))


def moved_tags(sources: Sequence[SourceIndex]) -> Iterator[tuple[int, int]]:
    """The tags of the sources; rows of each source follow those of the one before."""
    first = 0
    for source in sources:
        for tag, row in source.info.row_tags:
            yield tag, first + row
        first += source.info.rows


MIN_HEAP = 15_000_000
MAX_HEAP = 4_000_000_000


class Indexer:
    """Builds the index of a split from record batches, in bounded memory."""

    def __init__(
        self,
        mapping: TableMapping,
        directory: Path,
        *,
        heap_size: int,
        adopted: AdoptedIndex | None = None,
    ) -> None:
        """Begin an index in an empty folder, or add to the one that is there."""
        self._fields = mapping.indexed
        self._directory = directory
        self._rows = 0
        self._adopted_rows = adopted.rows if adopted else 0
        row_tags = dict(adopted.row_tags) if adopted else {}
        self._tag = new_tag(row_tags)
        self._known_tags = tuple(row_tags.items())
        if adopted is None:
            index = tantivy.Index(mapping.tantivy_schema(), path=str(directory), reuse=False)
        else:
            index = tantivy.Index.open(str(directory))
        # A reader that watches for commits would take locks in a folder that is deleted soon.
        index.config_reader("manual")
        heap = min(max(heap_size, MIN_HEAP), MAX_HEAP)
        # One thread: a second one would make twice as many segments of half the size.
        self._writer = mapping.register(index).writer(heap_size=heap, num_threads=1)
        if adopted is not None:
            self._writer.commit()  # begins to merge segments while rows are still to come

    def add(
        self,
        batch: pa.RecordBatch,
        hashes: Sequence[int] = (),
        documents: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Index the rows of a batch, with their hashes if they have some.

        `documents` are columns of JSON that were parsed already.
        """
        parsed = documents or {}
        columns = [
            document_values(batch.column(f.name), f, parsed.get(f.name)) for f in self._fields
        ]
        add_documents(
            self._writer,
            self._fields,
            columns,
            first_row=numbered_from(self._tag, self._rows),
            rows=batch.num_rows,
            hashes=hashes,
        )
        self._rows += batch.num_rows

    def finish(self) -> IndexFiles:
        """Write what is left, wait for merges, and name the files that belong to the index."""
        try:
            self._writer.commit()
            self._writer.wait_merging_threads()
        except ValueError as error:  # Tantivy's error for a failing disk
            raise OSError(f"Tantivy cannot write the index: {error}") from error
        meta_file = self._directory / "meta.json"
        segments = orjson.loads(meta_file.read_bytes())["segments"]
        rows = self._adopted_rows + self._rows
        if sum(s["max_doc"] for s in segments) != rows or any(s["deletes"] for s in segments):
            reason = f"The index holds other rows than the {rows} that were written"
            if self._adopted_rows:
                raise DamagedIndexError(str(self._directory), reason)
            raise SplitError(f"{reason}.")
        names = tuple(s["segment_id"].replace("-", "") for s in segments)
        files = (p for p in self._directory.iterdir() if p.name.partition(".")[0] in names)
        own_tag = ((self._tag, self._adopted_rows),) if self._rows or not self._known_tags else ()
        return IndexFiles((meta_file, *sorted(files)), names, (*self._known_tags, *own_tag))

    def abort(self) -> None:
        """Stop the writer's thread; the files are the caller's to delete."""
        self._writer.rollback()


# --- documents -------------------------------------------------------------------------------


def add_documents(
    writer: tantivy.IndexWriter,
    fields: Sequence[FieldMapping],
    columns: Sequence[list[Any]],
    *,
    first_row: int,
    rows: int,
    hashes: Sequence[int] = (),
) -> None:
    """Add one document a row, with the levels of its hash if there are hashes.

    A value is `None`, one value, or a list of values.
    """
    # A loop over rows in Python: Tantivy takes one document at a time. Every name is a local.
    new, add, add_row = tantivy.Document, writer.add_document, tantivy.Document.add_unsigned
    adders = [(f.field, _adder(f)) for f in fields]
    values_by_row = zip(*columns, strict=True) if columns else ((),) * rows
    for row, values in enumerate(values_by_row, first_row):
        document = new()
        add_row(document, ROW_FIELD, row)
        if hashes:
            hash_ = hashes[row - first_row]
            if hash_ < _HIGH:
                for level in levels_of(hash_):
                    add_row(document, LEVEL_FIELD, level)
        for (name, add_value), value in zip(adders, values):  # noqa: B905 - as many by construction
            if value.__class__ is str:
                add_value(document, name, value)
            elif value.__class__ is list:
                for item in value:
                    add_value(document, name, item)
            elif value is not None:
                add_value(document, name, value)
        try:
            add(document)
        except ValueError as error:  # the thread that writes has stopped: a disk that fails
            raise OSError(f"Tantivy cannot write the index: {error}") from error


def _adder(field: FieldMapping) -> Callable[[tantivy.Document, str, Any], None]:
    """How a value of a field is added to a document."""
    prepare = field.analyzer.documents if field.has_words else None
    if prepare is None:
        return _ADDERS.get(field.kind, tantivy.Document.add_integer)

    def add(document: tantivy.Document, name: str, text: str) -> None:
        prepared = prepare(text)
        if isinstance(prepared, str):
            document.add_text(name, prepared)
        else:
            document.add_pre_tokenized_text(name, prepared)

    return add


_ADDERS: dict[str, Callable[[tantivy.Document, str, Any], None]] = {
    "text": tantivy.Document.add_text,
    "string": tantivy.Document.add_text,
    "json": tantivy.Document.add_text,
    "ip": tantivy.Document.add_ip_addr,
    "f64": tantivy.Document.add_float,
}


def document_values(
    column: ArrowColumn, field: FieldMapping, documents: Sequence[Any] | None = None
) -> list[Any]:
    """The values of a column as the index takes them; `documents` are its texts, parsed."""
    if field.kind == "json":
        if pa.types.is_string(column.type):
            return document_texts(json_documents(column) if documents is None else documents)
        return leaf_texts(column)
    if pa.types.is_list(column.type):
        inner = document_values(pc.list_flatten(column), field)
        result: list[Any] = [None] * len(column)
        parents: ArrowColumn = pc.list_parent_indices(column)
        for row, value in zip(parents.to_pylist(), inner, strict=True):
            if value is not None:
                # Lists of lists are one list: a row has its values, however deep they lie.
                values = value if isinstance(value, list) else [value]
                if result[row] is None:
                    result[row] = list(values)
                else:
                    result[row].extend(values)
        return result
    if field.has_words:
        return list(column.to_pylist())
    if field.kind == "ip":
        return _addresses(column)
    if field.kind == "f64":
        # Adding zero turns -0.0 into 0.0: the index would tell them apart.
        doubles = pc.add(column.cast(pa.float64()), pa.scalar(0.0))
        return [
            None if value is None or math.isnan(value) else value for value in doubles.to_pylist()
        ]
    return list(as_integers(column).to_pylist())


def _addresses(column: ArrowColumn) -> list[Any]:
    """Valid addresses only: text that is none has no address to be found by."""
    encoded = column.dictionary_encode()
    addresses = [
        None if (number := parse_address(text)) is None else show_address(number)
        for text in encoded.dictionary.to_pylist()
    ]
    return [None if i is None else addresses[i] for i in encoded.indices.to_pylist()]


IN_MEMORY = "(rows in memory)"


@dataclass(frozen=True, slots=True)
class MemoryIndex:
    """The index of some rows, which are numbered from 0."""

    schema: tantivy.Schema
    searcher: IndexSearcher
    num_rows: int

    @classmethod
    def build(
        cls, fields: Sequence[FieldMapping], columns: Sequence[list[Any]], *, rows: int
    ) -> MemoryIndex:
        """Index columns whose values are `None`, one value, or a list of values."""
        mapping = TableMapping(tuple(fields))
        schema = mapping.tantivy_schema()
        index = mapping.register(tantivy.Index(schema))
        writer = index.writer(heap_size=MIN_HEAP, num_threads=1)
        add_documents(writer, mapping.indexed, columns, first_row=0, rows=rows)
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        return cls(schema, IndexSearcher(IN_MEMORY, index.searcher()), rows)

    def rows(self, query: tantivy.Query) -> RowNumbers:
        """The rows that match, in ascending order."""
        return self.searcher.rows(query, total=self.num_rows)
