"""Feeding rows to Tantivy, so that a document's number is its row's number.

Tantivy numbers documents in the order they come, as long as one thread writes and nothing merges.
A full heap closes a segment and begins another, and eight segments start a merge that scrambles
the order. So rows go into a fresh index before the heap is full (a *chunk*), and the segments of
all chunks are listed by a `meta.json` of our own, in the order of their rows. The `_row` column in
every segment proves that order.
"""

from __future__ import annotations

import decimal
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from indextables.errors import SplitError
from indextables.split.ip_address import parse_address, show_address
from indextables.split.leaves import Column, leaf_texts
from indextables.split.mapping import ROW_FIELD, FieldMapping, Mapping

MIN_HEAP = 15_000_000
MAX_HEAP = 4_000_000_000

# What a document takes of the heap, measured: about 100 bytes and 4 a word. Both are rounded up,
# because a chunk that ends early costs one more segment and nothing else.
_BYTES_PER_DOCUMENT = 160
_BYTES_PER_CHARACTER = 2


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """A finished index: a directory of files with one `meta.json`."""

    directory: Path
    segments: tuple[int, ...]
    """How many rows each segment holds, in order."""

    @property
    def files(self) -> list[Path]:
        """The files, in a fixed order."""
        return sorted(p for p in self.directory.iterdir() if not p.name.startswith("."))


class Indexer:
    """Builds the index of a split from record batches, in bounded memory."""

    def __init__(self, mapping: Mapping, directory: Path, *, heap_size: int) -> None:
        self._mapping = mapping
        self._directory = directory
        self._schema = mapping.tantivy_schema()
        self._heap = min(max(heap_size, MIN_HEAP), MAX_HEAP)
        self._chunks: list[Path] = []
        self._writer: tantivy.IndexWriter | None = None
        self._used = 0
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Index the rows of a batch; small batches bound the memory."""
        if self._used > self._heap:
            self._finish_chunk()
        fields = self._mapping.indexed
        columns = [document_values(batch.column(f.name), f) for f in fields]
        self._used += batch.num_rows * _BYTES_PER_DOCUMENT + _BYTES_PER_CHARACTER * sum(
            batch.column(f.name).nbytes for f in fields
        )
        if self._writer is None:
            self._writer = self._new_chunk()
        add_documents(self._writer, fields, columns, first_row=self._rows, rows=batch.num_rows)
        self._rows += batch.num_rows

    def _new_chunk(self) -> tantivy.IndexWriter:
        path = self._directory / f"chunk-{len(self._chunks)}"
        path.mkdir()
        self._chunks.append(path)
        index = self._mapping.register(tantivy.Index(self._schema, path=str(path), reuse=False))
        return index.writer(heap_size=self._heap, num_threads=1)

    def _finish_chunk(self) -> None:
        if self._writer is not None:
            self._writer.commit()
            self._writer.wait_merging_threads()
        self._writer, self._used = None, 0

    def finish(self) -> IndexFiles:
        """Close the last chunk and join all of them into one index."""
        if not self._chunks:
            self._writer = self._new_chunk()
        self._finish_chunk()
        joined = self._directory / "index"
        joined.mkdir()
        metas = [orjson.loads((chunk / "meta.json").read_bytes()) for chunk in self._chunks]
        segments: list[dict[str, Any]] = []
        for chunk, meta in zip(self._chunks, metas, strict=True):
            segments += self._ordered(chunk, meta["segments"], sum(s["max_doc"] for s in segments))
            for file in chunk.iterdir():
                if not file.name.startswith(".") and file.suffix != ".json":
                    file.rename(joined / file.name)
            shutil.rmtree(chunk)
        if sum(s["max_doc"] for s in segments) != self._rows:
            raise SplitError(f"The index holds other rows than the {self._rows} that were written.")
        meta = metas[0] | {"segments": segments}
        (joined / "meta.json").write_bytes(orjson.dumps(meta))
        (joined / ".managed.json").unlink(missing_ok=True)
        return IndexFiles(joined, tuple(s["max_doc"] for s in segments))

    def _ordered(
        self, chunk: Path, segments: list[dict[str, Any]], first_row: int
    ) -> list[dict[str, Any]]:
        """The segments of a chunk in the order of their rows, with the proof that they are."""
        if not segments:
            return []
        searcher = tantivy.Index.open(str(chunk)).searcher()
        ends = [
            tantivy.DocAddress(i, doc)
            for i, segment in enumerate(segments)
            for doc in (0, segment["max_doc"] - 1)
        ]
        rows: list[Any] = searcher.fast_field_values(ROW_FIELD, ends)
        found = sorted(zip(rows[::2], rows[1::2], range(len(segments)), strict=True))
        for start, end, ordinal in found:
            if start != first_row or end != first_row + segments[ordinal]["max_doc"] - 1:
                raise SplitError(
                    "Tantivy merged segments while a split was written and the order of rows is "
                    "lost. Raise spark.indextables.indexWriter.heapSize."
                )
            first_row = end + 1
        return [segments[ordinal] for _, _, ordinal in found]


# --- documents -------------------------------------------------------------------------------


def add_documents(
    writer: tantivy.IndexWriter,
    fields: Sequence[FieldMapping],
    columns: Sequence[list[Any]],
    *,
    first_row: int,
    rows: int,
) -> None:
    """Add one document a row. A value is `None`, one value, or a list of values."""
    new, add = tantivy.Document, writer.add_document
    adders = [(f.field, _ADDERS.get(f.kind, tantivy.Document.add_integer)) for f in fields]
    values_by_row = zip(*columns, strict=True) if columns else ((),) * rows
    for row, values in enumerate(values_by_row, first_row):
        document = new()
        document.add_unsigned(ROW_FIELD, row)
        for (name, add_value), value in zip(adders, values, strict=True):
            if value is None:
                continue
            if type(value) is list:
                for item in value:
                    add_value(document, name, item)
            else:
                add_value(document, name, value)
        add(document)


_ADDERS: dict[str, Callable[[tantivy.Document, str, Any], None]] = {
    "text": tantivy.Document.add_text,
    "string": tantivy.Document.add_text,
    "json": tantivy.Document.add_text,
    "ip": tantivy.Document.add_ip_addr,
    "f64": tantivy.Document.add_float,
}


def document_values(column: Column, field: FieldMapping) -> list[Any]:
    """The values of a column as the index takes them."""
    if field.kind == "json":
        return leaf_texts(column, parse_json=pa.types.is_string(column.type))
    if pa.types.is_list(column.type):
        inner = document_values(pc.list_flatten(column), field)
        result: list[Any] = [None] * len(column)
        parents: Column = pc.list_parent_indices(column)
        for row, value in zip(parents.to_pylist(), inner, strict=True):
            if value is not None:
                if result[row] is None:
                    result[row] = [value]
                else:
                    result[row].append(value)
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


def as_integers(column: Column) -> Column:
    """A column of whole numbers, booleans, dates, timestamps or short decimals as integers."""
    if pa.types.is_decimal(column.type):
        scale = column.type.scale
        factor = pa.scalar(decimal.Decimal(10**scale), pa.decimal128(scale + 1, 0))
        return pc.multiply(column, factor).cast(pa.int64())
    if pa.types.is_date(column.type):
        return column.cast(pa.int32()).cast(pa.int64())
    return column.cast(pa.int64())


def _addresses(column: Column) -> list[Any]:
    """Valid addresses only: text that is none has no address to be found by."""
    encoded = column.dictionary_encode()
    known = [
        None if (number := parse_address(text)) is None else show_address(number)
        for text in encoded.dictionary.to_pylist()
    ]
    return [None if i is None else known[i] for i in encoded.indices.to_pylist()]
