"""Writing a split: rows to Parquet and to Tantivy at once, in bounded memory.

Rows are gathered into groups of about 8,000, small enough that a few scattered rows are cheap to
fetch, or of up to 32,000 if their columns are small. Parquet encodes a group while Tantivy's own
thread still indexes the rows before it; a third thread would only make the other two wait for each
other. Both write temporary files. `close` puts the index behind the rows and hands over one
finished file; until then, and whenever something fails, nothing exists but a temporary folder,
which is removed.

Minimum, maximum and null count of columns are gathered on the way. Values are compared by their
type and then written as the log has them: dates as ISO, timestamps as microseconds since 1970,
decimals plainly, booleans as true and false. A long text is cut so that the statement stays true: a
minimum to its beginning, which is not greater, and a maximum to a beginning whose last character is
raised, which is greater. NaN has no place in an order; it is counted instead.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import gc
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indextables.config import (
    STATS_COLUMNS,
    STATS_NUM_COLUMNS,
    STATS_TRUNCATION_ENABLED,
    STATS_TRUNCATION_LENGTH,
    WRITER_HEAP_SIZE,
    WRITER_TEMP_DIRECTORY,
    Config,
)
from indextables.errors import SchemaError, SplitError, SplitWriteError
from indextables.schema import conform, with_whole_variants
from indextables.schema.types import shown_name
from indextables.split.format.blocks import write_index
from indextables.split.format.container import (
    HASHES,
    INFO_KEY,
    ROWS_ELSEWHERE,
    IndexFiles,
    Section,
    Segment,
    SplitInfo,
    Statistics,
    close_seal,
    write_bytes_section,
    write_seal,
)
from indextables.split.format.lists import (
    PATH_LIST,
    VALUE_LIST,
    WORD_LIST,
    PathCollector,
    ValueCollector,
    word_lists,
    write_terms,
)
from indextables.split.format.page_headers import (
    FIRST_PAGE,
    PageHeader,
    record_text,
    values_text,
    walk_pages,
)
from indextables.split.leaves import json_documents
from indextables.split.mapping import TableMapping
from indextables.split.row_hash import row_hashes, shared_hash
from indextables.split.row_numbers import RowNumbers
from indextables.split.write.indexer import MIN_HEAP, AdoptedIndex, Indexer
from indextables.storage.local import new_folder, remove_folder

_EPOCH = datetime.date(1970, 1, 1)
_SURROGATES = range(0xD800, 0xE000)
_LAST_CHARACTER = 0x10FFFF


def columns_with_statistics(
    schema: pa.Schema, config: Config, *, partition_by: Iterable[str]
) -> list[str]:
    """The columns that get statistics: the listed ones, or the first that have an order."""
    skipped = set(partition_by)
    listed = [name.strip() for name in config[STATS_COLUMNS].split(",") if name.strip()]
    if listed:
        by_lower = {shown_name(field).lower(): field.name for field in schema}
        unknown = [n for n in listed if n.lower() not in by_lower]
        if unknown:
            raise SchemaError(
                f"{STATS_COLUMNS.name}: there is no field {', '.join(unknown)}. "
                f"Available fields: {', '.join(map(shown_name, schema))}."
            )
        names = [by_lower[n.lower()] for n in listed]
        return [n for n in names if has_order(schema.field(n).type) and n not in skipped]
    eligible = [f.name for f in schema if has_order(f.type) and f.name not in skipped]
    limit = config[STATS_NUM_COLUMNS]
    return eligible if limit < 0 else eligible[:limit]


def has_order(data_type: pa.DataType) -> bool:
    """Whether a column has a minimum: nested and binary ones have none."""
    return not (pa.types.is_nested(data_type) or pa.types.is_binary(data_type))


@dataclass(slots=True)
class _Column:
    low: Any = None
    high: Any = None
    nulls: int = 0
    nans: int = 0


# --- statistics ------------------------------------------------------------------------------


class StatisticsCollector:
    """Folds batches into the statistics of their split."""

    def __init__(
        self, schema: pa.Schema, config: Config, *, partition_by: Iterable[str] = ()
    ) -> None:
        names = columns_with_statistics(schema, config, partition_by=partition_by)
        self._columns = {name: _Column() for name in names}
        self._dates = {name for name in names if pa.types.is_date(schema.field(name).type)}
        enabled = config[STATS_TRUNCATION_ENABLED]
        self._longest = config[STATS_TRUNCATION_LENGTH] if enabled else None

    def add(self, batch: pa.RecordBatch) -> None:
        """Fold in the rows of a batch."""
        for name, stats in self._columns.items():
            column: Any = batch.column(name)
            stats.nulls += column.null_count
            if pa.types.is_floating(column.type):
                is_nan: Any = pc.is_nan(column)
                if nans := int(is_nan.sum().as_py() or 0):
                    stats.nans += nans
                    column = column.filter(pc.invert(is_nan))
            extremes: Any = pc.min_max(column)
            low, high = _plain(extremes["min"]), _plain(extremes["max"])
            if low is not None:
                stats.low = low if stats.low is None else min(stats.low, low)
                stats.high = high if stats.high is None else max(stats.high, high)

    def finish(self) -> Statistics:
        """The statistics, spelled for the log."""
        low_values, high_values = {}, {}
        for name, stats in self._columns.items():
            low = truncate_low(stats.low, self._longest)
            high = truncate_high(stats.high, self._longest)
            if name in self._dates:
                low, high = _date(low), _date(high)
            if low is not None:
                low_values[name] = spell(low)
            if high is not None:
                high_values[name] = spell(high)
        return Statistics(
            low_values,
            high_values,
            {name: stats.nulls for name, stats in self._columns.items()},
            {name: stats.nans for name, stats in self._columns.items() if stats.nans},
        )


def _plain(scalar: Any) -> Any:
    """A value Python orders as the column does; timestamps as microseconds, dates as days."""
    if pa.types.is_timestamp(scalar.type) or pa.types.is_date(scalar.type):
        return scalar.value
    return scalar.as_py()


def _date(days: int | None) -> datetime.date | None:
    """The date so many days after 1970; `None`, not a bound, outside the years 1 to 9999."""
    try:
        return None if days is None else _EPOCH + datetime.timedelta(days=days)
    except OverflowError:
        return None


def spell(value: Any) -> str:
    """A value as the log writes it.

    >>> spell(True), spell(datetime.date(2024, 1, 15)), spell(decimal.Decimal("1E+2"))
    ('true', '2024-01-15', '100')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return repr(value) if isinstance(value, float) else str(value)


def truncate_low(value: Any, longest: int | None) -> Any:
    """A value that is not greater, at most so long.

    >>> truncate_low("abcdef", 3)
    'abc'
    """
    return value if longest is None or not isinstance(value, str) else value[:longest]


def truncate_high(value: Any, longest: int | None) -> Any:
    """A value that is not smaller, at most so long; `None` if there is none.

    >>> truncate_high("abcdef", 3), truncate_high("abc", 3)
    ('abd', 'abc')
    """
    if longest is None or not isinstance(value, str) or len(value) <= longest:
        return value
    for length in range(longest, 0, -1):
        if (raised := ord(value[length - 1]) + 1) <= _LAST_CHARACTER:
            following = _SURROGATES.stop if raised in _SURROGATES else raised
            return value[: length - 1] + chr(following)
    return None


# --- the split -------------------------------------------------------------------------------

ROW_GROUP_ROWS = 8_192
MOST_GROUP_ROWS = 32_768
"""Of small columns more rows are in a group: every column chunk costs a scan some time."""
ROW_GROUP_BYTES = 16 << 20
PAGE_BYTES = 64 << 10
"""A reader that looks for one row decodes its page. Smaller ones cost scans more than they save."""
_SMALL_COLUMN, _SMALL_GROUP = 512 << 10, 4 << 20
"""A group grows until one of its columns, or all together, take so many bytes."""
_ROWS_AT_ONCE = 128
"""Parquet looks at the size of a page after so many rows."""
_MOSTLY_UNIQUE = 0.5
_HEAP_A_BYTE = 8
"""Tantivy's heap for each byte of rows, so that they make one segment."""
_NO_HASHES = np.zeros(0, np.int64)
_DELTAS = "DELTA_BINARY_PACKED"
_PLACEHOLDER = pa.schema([(ROWS_ELSEWHERE, pa.bool_())])

Lists = Sequence[tuple[str, str, Any]]
"""Kind, name and sorted terms of each list of values or paths."""


@dataclass(frozen=True, slots=True)
class WrittenSplit:
    """A finished split in a temporary folder, and what the log says about it."""

    path: Path
    size: int
    num_records: int
    statistics: Statistics
    footer_start: int
    footer_end: int
    opening_start: int
    opening_end: int
    uncompressed_size: int
    mapping: TableMapping
    partition_values: Mapping[str, str | None]

    @property
    def stats_json(self) -> str:
        """The `stats` of the add action."""
        return self.statistics.to_json(self.num_records)

    def delete(self) -> None:
        """Remove the temporary folder, once the file is stored elsewhere."""
        remove_folder(self.path.parent)


class SplitWriter:
    """Writes one split. A context manager: leaving it by an exception removes every trace."""

    def __init__(
        self,
        schema: pa.Schema,
        mapping: TableMapping,
        config: Config,
        *,
        partition_values: Mapping[str, str | None] | None = None,
        adopted: AdoptedIndex | None = None,
        stores_rows: bool = True,
    ) -> None:
        """Begin a split of rows with `schema`; its partition columns are not stored.

        `adopted` is an index of the rows that will be written first. A split that does not store
        its rows is the index of rows that are elsewhere: its Parquet part has their number only.
        """
        self._stores_rows = stores_rows
        self._partition_values = dict(partition_values or {})
        self._rows_adopted = adopted.rows if adopted else 0
        self.schema = pa.schema([f for f in schema if f.name not in self._partition_values])
        if not self.schema.names:
            raise SplitError("A split needs a column that is not a partition column.")
        self._mapping = mapping.select(self.schema.names)
        self._partition_kinds = {
            name: str(mapping.by_name[name].kind)
            for name in self._partition_values
            if name in mapping.by_name
        }
        self._statistics = StatisticsCollector(
            self.schema, config, partition_by=self._partition_values
        )
        self._values = ValueCollector(self._mapping, self.schema)
        self._paths = PathCollector(self._mapping, self.schema)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._rows = self._uncompressed = 0
        self._too_long: set[str] = set()
        self._taken_over: tuple[Statistics, Lists] | None = None
        self._parent = config[WRITER_TEMP_DIRECTORY] or tempfile.gettempdir()
        self._finished = False
        with self._failures(), contextlib.ExitStack() as undo:
            self._folder = new_folder("split", self._parent)
            undo.callback(remove_folder, self._folder)
            self._file = self._folder / f"split-{uuid.uuid4()}.split"
            self._sink = pa.OSFile(str(self._file), "wb")
            self._parquet: pq.ParquetWriter | None = None
            self._adopted = adopted
            self._heap_size = config[WRITER_HEAP_SIZE]
            # Adopted segments are merged from the beginning on; other indexes wait for rows.
            self._indexer = self._new_indexer() if adopted else None
            hashed = self._mapping.hashed
            self._shared_hash = shared_hash(self._partition_values, schema) if hashed else 0
            self._hashes: list[bytes] = []
            undo.pop_all()

    def __enter__(self) -> SplitWriter:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._finished:
            self.abort()

    @property
    def rows(self) -> int:
        """How many rows were written so far."""
        return self._rows + self._pending_rows

    @property
    def bytes_written(self) -> int:
        """How large the rows are in Parquet so far, for deciding when to begin another split."""
        return self._sink.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. Any size of batch will do; memory holds one row group.

        Partition columns are left out: their one value is in the log.
        """
        with self._failures():
            kept = [n for n in batch.schema.names if n not in self._partition_values]
            batch = with_whole_variants(conform(batch.select(kept), self.schema))
            # A batch of huge rows is cut by its bytes, before it is cut by its rows.
            step = max(1, min(ROW_GROUP_ROWS, _rows_for(batch, ROW_GROUP_BYTES)))
            for start in range(0, batch.num_rows, step):
                self._gather(batch.slice(start, step))

    def _gather(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            piece = batch.slice(0, ROW_GROUP_ROWS - self._pending_rows % ROW_GROUP_ROWS)
            batch = batch.slice(piece.num_rows)
            self._pending.append(piece)
            self._pending_rows += piece.num_rows
            self._pending_bytes += piece.nbytes
            if self._is_group():
                self._write_group()

    def _is_group(self) -> bool:
        """Whether the rows that wait are a row group."""
        if self._pending_bytes >= ROW_GROUP_BYTES or self._pending_rows >= MOST_GROUP_ROWS:
            return True
        if self._pending_rows % ROW_GROUP_ROWS:
            return False
        waiting = self._waiting()  # as one batch, whose bytes do not depend on how rows came
        self._pending, self._pending_bytes = [waiting], waiting.nbytes
        sizes = [column.nbytes for column in waiting.columns]
        return max(sizes) >= _SMALL_COLUMN or sum(sizes) >= _SMALL_GROUP

    def _waiting(self) -> pa.RecordBatch:
        """The rows that wait as one batch."""
        (batch,) = pa.Table.from_batches(self._pending).combine_chunks().to_batches()
        return batch

    def _write_group(self) -> None:
        if not self._pending_rows:
            return
        batch = self._waiting()
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        first, self._rows = self._rows, self._rows + batch.num_rows
        self._uncompressed += batch.nbytes
        stored = batch if self._stores_rows else _placeholders(batch.num_rows)
        parquet = self._parquet = self._parquet or self._new_parquet(stored)
        parquet.write_batch(stored)
        self._statistics.add(batch)
        self._too_long |= _columns_too_long(batch, self._mapping)
        self._values.add(batch)
        hashes = row_hashes(batch, self._shared_hash) if self._mapping.hashed else _NO_HASHES
        self._hashes.append(hashes.astype("<u4").tobytes())
        with _collector_paused():
            self._index(batch, first, hashes)

    def _index(self, batch: pa.RecordBatch, first: int, hashes: RowNumbers) -> None:
        documents = {
            f.name: json_documents(batch.column(f.name))
            for f in self._mapping.indexed
            if f.kind == "json" and pa.types.is_string(self.schema.field(f.name).type)
        }
        self._paths.add(batch, documents)
        if self._rows > self._rows_adopted:
            indexer = self._indexer = self._indexer or self._new_indexer()
            new = max(0, self._rows_adopted - first)
            new_documents = {name: parsed[new:] for name, parsed in documents.items()}
            indexer.add(batch.slice(new), hashes[new:].tolist(), new_documents)

    def _new_indexer(self) -> Indexer:
        folder = self._adopted.folder if self._adopted else self._folder / "index"
        folder.mkdir(exist_ok=True)
        return Indexer(self._mapping, folder, heap_size=self._heap_size, adopted=self._adopted)

    def take_over(self, splits: Sequence[SplitInfo], statistics: Statistics, lists: Lists) -> None:
        """Count the rows of adopted indexes, of splits that store no rows, instead of `write`.

        No row is looked at: `statistics` and `lists` are what is known of them.
        """
        with self._failures():
            for info in splits:
                for start in range(0, info.rows, ROW_GROUP_ROWS):
                    stored = _placeholders(min(ROW_GROUP_ROWS, info.rows - start))
                    parquet = self._parquet = self._parquet or self._new_parquet(stored)
                    parquet.write_batch(stored)
                self._rows += info.rows
                self._uncompressed += info.uncompressed_size
                self._too_long |= set(info.too_long)
            self._taken_over = statistics, lists

    def _new_parquet(self, first: pa.RecordBatch | None) -> pq.ParquetWriter:
        schema = self.schema if self._stores_rows else _PLACEHOLDER
        # The least and the greatest text of a row group are long, tell nothing, and every reader
        # of the footer would have to load them.
        ordered = [f.name for f in self._mapping.fields if f.kind not in ("text", "json", "bytes")]
        stored = set(schema.names)
        ordered = [name for name in ordered if name in stored]
        unique = set() if first is None else _columns_of_unique_values(first)
        # Numbers that are all different are often numbers that rise: only differences are kept.
        # A dot could be meant for the field of a struct, which is something else.
        encodings = {
            f.name: _DELTAS
            for f in schema
            if f.name in unique and _is_whole(f.type) and "." not in f.name
        }
        repeated: Any = [
            path for f in schema if f.name not in unique for path in _leaf_paths(f.type, f.name)
        ]
        return pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            use_dictionary=repeated or False,
            column_encoding=encodings or None,
            data_page_size=PAGE_BYTES,
            write_batch_size=_ROWS_AT_ONCE,
            write_statistics=ordered or False,
            write_page_index=True,
            write_page_checksum=True,
            store_schema=True,
            # As Spark does: its reader takes whole numbers twice as fast as bytes.
            store_decimal_as_integer=True,
        )

    def close(self) -> WrittenSplit:
        """Finish the file. The caller stores it and then calls `delete` on the result."""
        with self._failures():
            if self._indexer is None:  # these are all rows, and Tantivy fills part of its heap
                few = MIN_HEAP + _HEAP_A_BYTE * self._pending_bytes
                self._heap_size = min(self._heap_size, few)
            self._write_group()
            parquet = self._parquet = self._parquet or self._new_parquet(None)
            indexer = self._indexer = self._indexer or self._new_indexer()
            index = indexer.finish()
            statistics, lists = self._taken_over or (self._statistics.finish(), self._lists())
            if self._rows < self._rows_adopted:
                raise SplitError(f"{self._rows_adopted} rows are indexed, {self._rows} written.")
            pages = self._pages()
            sections = []
            if self._mapping.hashed:
                data = b"".join(self._hashes)
                sections.append(write_bytes_section(self._sink, data, kind=HASHES, name=HASHES))
            indexed, opening = write_index(self._sink, index.files)
            opening_end = self._sink.tell()
            listed, counts = self._write_lists(index, lists)
            sections += [*indexed, *listed]
            info = SplitInfo(
                rows=self._rows,
                mapping=self._mapping,
                sections=tuple(sections),
                segments=tuple(Segment(name) for name in index.segments),
                partition_values=self._partition_values,
                statistics=statistics,
                uncompressed_size=self._uncompressed,
                term_counts=counts,
                too_long=tuple(sorted(self._too_long)),
                row_tags=index.row_tags,
                partition_kinds=self._partition_kinds,
                page_headers=record_text(pages),
                page_values=values_text(pages),
            )
            parquet.add_key_value_metadata({INFO_KEY.decode(): info.to_json().decode()})
            seal = write_seal(self._sink)
            parquet.close()
            self._sink.close()
            close_seal(self._file, seal)
            remove_folder(self._folder / "index")
            size = self._file.stat().st_size
        self._finished = True
        return WrittenSplit(
            path=self._file,
            size=size,
            num_records=self._rows,
            statistics=statistics,
            footer_start=seal,
            footer_end=size,
            opening_start=opening,
            opening_end=opening_end,
            uncompressed_size=self._uncompressed,
            mapping=self._mapping,
            partition_values=self._partition_values,
        )

    def _write_lists(self, index: IndexFiles, lists: Lists) -> tuple[list[Section], dict[str, int]]:
        """Write the lists for XRefs; return their sections, and how many words each field has."""
        sections = []
        counts: dict[str, int] = {}
        with _collector_paused():
            for name, terms in word_lists(self._mapping, index):
                counts[name] = len(terms)
                sections.append(write_terms(self._sink, terms, kind=WORD_LIST, name=name))
        for kind, name, listed in lists:
            sections.append(write_terms(self._sink, listed, kind=kind, name=name))
        return sections, counts

    def _lists(self) -> Lists:
        values = ((VALUE_LIST, name, listed) for name, listed in self._values.lists())
        return [*values, *((PATH_LIST, name, listed) for name, listed in self._paths.lists())]

    def _pages(self) -> list[PageHeader]:
        """The pages written: so far the file has nothing else."""
        with self._file.open("rb", buffering=0) as file:
            pages = walk_pages(
                lambda at, length: os.pread(file.fileno(), length, at),
                FIRST_PAGE,
                self._sink.tell(),
            )
            return list(pages)

    def abort(self) -> None:
        """Give up: stop the index and remove the temporary folder."""
        self._finished = True
        # Whatever these say, the files they complain about are about to go.
        for part in (self._parquet, self._sink):
            if part is not None:
                with contextlib.suppress(Exception):
                    part.close()
        with contextlib.suppress(Exception):
            if self._indexer is not None:
                self._indexer.abort()
        remove_folder(self._folder)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn what disks and Tantivy say into one error."""
        if self._finished:
            raise SplitError("This split is finished; begin another one.")
        try:
            yield
        except SplitError:
            raise
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, ValueError) and not isinstance(error, OSError):
                raise
            raise SplitWriteError(str(self._parent), str(error)) from error


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Run without Python's collector of cycles.

    The values of a row group are hundreds of thousands of lists and texts without a cycle. The
    collector would visit them again and again, which took a quarter of the time of JSON columns.
    """
    if not gc.isenabled():  # the caller's choice, or another thread is about to resume it
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _placeholders(rows: int) -> pa.RecordBatch:
    """What a split stores in place of rows that are elsewhere."""
    return pa.record_batch([pa.nulls(rows, pa.bool_())], schema=_PLACEHOLDER)


def _rows_for(batch: pa.RecordBatch, size: int) -> int:
    return batch.num_rows * size // max(1, batch.nbytes)


def _columns_of_unique_values(batch: pa.RecordBatch) -> set[str]:
    """Columns whose dictionary would hold every value: it costs time and saves nothing."""
    unique = set()
    for name in batch.schema.names:
        column: Any = batch.column(name)
        if not pa.types.is_nested(column.type) and not pa.types.is_boolean(column.type):
            distinct: Any = pc.count_distinct(column)
            if distinct.as_py() > _MOSTLY_UNIQUE * batch.num_rows:
                unique.add(name)
    return unique


def _is_whole(data_type: Any) -> bool:
    """Whether Parquet stores the column as whole numbers."""
    types = pa.types
    return types.is_integer(data_type) or types.is_timestamp(data_type) or types.is_date(data_type)


def _leaf_paths(data_type: Any, path: str) -> Iterator[str]:
    """The names that Parquet gives to the leaves of a column."""
    if pa.types.is_struct(data_type):
        for field in data_type.fields:
            yield from _leaf_paths(field.type, f"{path}.{field.name}")
    elif pa.types.is_list(data_type):
        yield from _leaf_paths(data_type.value_type, f"{path}.list.element")
    elif pa.types.is_map(data_type):
        yield from _leaf_paths(data_type.key_type, f"{path}.key_value.key")
        yield from _leaf_paths(data_type.item_type, f"{path}.key_value.value")
    else:
        yield path


def _columns_too_long(batch: pa.RecordBatch, mapping: TableMapping) -> set[str]:
    """Columns with a whole string that the index drops, so that a search for it finds nothing."""
    too_long = set()
    for field in mapping.indexed:
        column: Any = batch.column(field.name)
        if field.has_words and field.analyzer.is_whole and pa.types.is_string(column.type):
            longest: Any = pc.max(pc.binary_length(column))
            if (longest.as_py() or 0) > field.token_length:
                too_long.add(field.name)
    return too_long
