"""Feeding rows to Tantivy.

Every document carries the number of its row in the column `_row` (see `row_numbers`), and that is
what a search asks for. Tantivy may so do what it likes with the order of documents: begin a new
segment when the heap is full, and merge segments in the background. Memory is bounded by the heap,
whatever the number of rows.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from indextables.errors import DamagedIndexError, SplitError
from indextables.split.adopted import AdoptedIndex
from indextables.split.ip_address import parse_address, show_address
from indextables.split.leaves import ArrowColumn, leaf_texts
from indextables.split.mapping import ROW_FIELD, FieldMapping, Mapping
from indextables.split.row_numbers import UNTAGGED, Tags, new_tag, numbered_from

MIN_HEAP = 15_000_000
MAX_HEAP = 4_000_000_000


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """A finished index: its files, `meta.json` among them, and its segments in order."""

    files: tuple[Path, ...]
    segments: tuple[str, ...]
    row_tags: Tags = UNTAGGED


class Indexer:
    """Builds the index of a split from record batches, in bounded memory."""

    def __init__(
        self,
        mapping: Mapping,
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
        known = dict(adopted.row_tags) if adopted else {}
        self._tag = new_tag(known)
        self._known_tags = tuple(known.items())
        if adopted is None:
            index = tantivy.Index(mapping.tantivy_schema(), path=str(directory), reuse=False)
        else:
            index = tantivy.Index.open(str(directory))
        # A reader that watches for commits would take locks in a folder that is about to go.
        index.config_reader("manual")
        heap = min(max(heap_size, MIN_HEAP), MAX_HEAP)
        # One thread: a second one would make twice as many segments of half the size.
        self._writer = mapping.register(index).writer(heap_size=heap, num_threads=1)
        if adopted is not None:
            self._writer.commit()  # begins to merge segments while rows are still to come

    def add(self, batch: pa.RecordBatch) -> None:
        """Index the rows of a batch."""
        columns = [document_values(batch.column(f.name), f) for f in self._fields]
        add_documents(
            self._writer,
            self._fields,
            columns,
            first_row=numbered_from(self._tag, self._rows),
            rows=batch.num_rows,
        )
        self._rows += batch.num_rows

    def finish(self) -> IndexFiles:
        """Write what is left, wait for merges, and name the files that belong to the index."""
        try:
            self._writer.commit()
            self._writer.wait_merging_threads()
        except ValueError as error:  # what Tantivy makes of a disk that fails
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
        own = ((self._tag, self._adopted_rows),) if self._rows or not self._known_tags else ()
        return IndexFiles((meta_file, *sorted(files)), names, (*self._known_tags, *own))

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
) -> None:
    """Add one document a row. A value is `None`, one value, or a list of values."""
    # A loop over rows in Python: Tantivy takes one document at a time. Every name is a local.
    new, add, add_row = tantivy.Document, writer.add_document, tantivy.Document.add_unsigned
    adders = [(f.field, _ADDERS.get(f.kind, tantivy.Document.add_integer)) for f in fields]
    values_by_row = zip(*columns, strict=True) if columns else ((),) * rows
    for row, values in enumerate(values_by_row, first_row):
        document = new()
        add_row(document, ROW_FIELD, row)
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


_ADDERS: dict[str, Callable[[tantivy.Document, str, Any], None]] = {
    "text": tantivy.Document.add_text,
    "string": tantivy.Document.add_text,
    "json": tantivy.Document.add_text,
    "ip": tantivy.Document.add_ip_addr,
    "f64": tantivy.Document.add_float,
}


def document_values(column: ArrowColumn, field: FieldMapping) -> list[Any]:
    """The values of a column as the index takes them."""
    if field.kind == "json":
        return leaf_texts(column, parse_json=pa.types.is_string(column.type))
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


def as_integers(column: ArrowColumn) -> ArrowColumn:
    """A column of whole numbers, booleans, dates, timestamps or short decimals as integers."""
    if pa.types.is_decimal(column.type):
        scale = column.type.scale
        factor = pa.scalar(decimal.Decimal(10**scale), pa.decimal128(scale + 1, 0))
        return pc.multiply(column, factor).cast(pa.int64())
    if pa.types.is_date(column.type):
        return column.cast(pa.int32()).cast(pa.int64())
    return column.cast(pa.int64())


def _addresses(column: ArrowColumn) -> list[Any]:
    """Valid addresses only: text that is none has no address to be found by."""
    encoded = column.dictionary_encode()
    known = [
        None if (number := parse_address(text)) is None else show_address(number)
        for text in encoded.dictionary.to_pylist()
    ]
    return [None if i is None else known[i] for i in encoded.indices.to_pylist()]
