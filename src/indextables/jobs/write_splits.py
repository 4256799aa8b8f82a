"""Storing rows as splits: what every write does before it commits.

One split is open per partition, for some partitions; rows of the others wait, so that rows in any
order make one split each. Splits that are finished are stored at once, under names that nobody else
uses; until a commit names them they are invisible, and a write that fails deletes what it stored.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.errors import IndexTablesError
from indextables.jobs.progress import Advance
from indextables.log.actions import Add
from indextables.schema import refuse_invalid_text, refuse_other_dimensions
from indextables.split.mapping import TableMapping
from indextables.split.write import (
    MIN_HEAP,
    PartitionKey,
    SplitWriter,
    WaitingRows,
    WrittenSplit,
    partition_folder,
    split_by_partition,
)
from indextables.storage import Store

logger = logging.getLogger(__name__)

SPLITS_FOLDER = "splits"

# Batches have any size; the size of a split is checked after this many rows.
_PIECE = 65_536

_WAITING_BYTES = 64 << 20
"""Rows that wait in memory until their split is opened; more of them go to disk."""


class SplitSink:
    """Takes record batches of the table's schema and stores them as splits.

    A context manager: leaving it by an exception removes every trace.
    """

    def __init__(
        self,
        store: Store,
        *,
        schema: pa.Schema,
        partition_columns: Sequence[str],
        mapping: TableMapping,
        config: Config,
        progress: Advance | None = None,
    ) -> None:
        self._store = store
        self._schema = schema
        self._partition_columns = tuple(partition_columns)
        self._mapping = mapping
        self._max_open = config[keys.WRITE_MAX_OPEN_SPLITS]
        self._max_size = config[keys.WRITE_MAX_SPLIT_SIZE]
        self._config = config
        self._progress = progress or (lambda _rows, _size=0: None)
        self._open: dict[PartitionKey, SplitWriter] = {}
        self._heaps: dict[PartitionKey, int] = {}
        self._waiting = WaitingRows(config[keys.WRITER_TEMP_DIRECTORY] or tempfile.gettempdir())
        self._bytes = 0
        self._used_at: dict[PartitionKey, int] = {}
        self._adds: list[Add] = []
        self._rows = 0

    def __enter__(self) -> SplitSink:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error_type is not None:
            self.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, whatever partitions they belong to."""
        refuse_invalid_text(batch, first_row=self._rows + 1)
        refuse_other_dimensions(batch, self._schema, first_row=self._rows + 1)
        self._rows += batch.num_rows
        for start in range(0, batch.num_rows, _PIECE):
            self._write(batch.slice(start, _PIECE))

    def _write(self, piece: pa.RecordBatch) -> None:
        self._bytes += piece.nbytes
        for values, rows in split_by_partition(piece, self._partition_columns):
            key = tuple(values.items())
            is_full = key not in self._open and len(self._open) >= self._max_open
            if is_full or key in self._waiting:
                self._waiting.add(key, rows)
            else:
                self._put(key, rows)
        if self._waiting.bytes_in_memory > _WAITING_BYTES:
            self._make_room()
        self._progress(piece.num_rows, piece.nbytes)

    def _put(self, key: PartitionKey, rows: pa.RecordBatch) -> None:
        self._used_at[key] = self._bytes
        writer = self._open.get(key) or self._begin(key)
        self._open[key] = writer
        writer.write(rows)
        if writer.bytes_written >= self._max_size:
            self._finish(key)

    def _make_room(self) -> None:
        """Finish splits that got no rows for long, as of sorted rows, and begin waiting ones.

        If all of them still get rows, as of rows in any order, those that wait go to disk.
        """
        idle = [k for k in self._open if self._bytes - self._used_at[k] >= _WAITING_BYTES]
        for key in idle:
            self._finish(key)
        for key in self._waiting.keys[: len(idle)]:
            self._write_waiting(key)
        if self._waiting.bytes_in_memory > _WAITING_BYTES // 2:
            self._waiting.spill()

    def _write_waiting(self, key: PartitionKey) -> None:
        for rows in self._waiting.take(key):
            self._put(key, rows)

    def _begin(self, key: PartitionKey) -> SplitWriter:
        values = dict(key)
        partition_values = {name: values.get(name) for name in self._partition_columns}
        heap = self._heaps[key] = self._heap()
        config = Config({keys.WRITER_HEAP_SIZE.name: heap}).over(self._config)
        return SplitWriter(self._schema, self._mapping, config, partition_values=partition_values)

    def _heap(self) -> int:
        """Memory for the index of another split.

        Splits of several partitions share what one may have. Each takes half of what is left: rows
        that come sorted keep one split open, and a small heap would cost it a merge of segments.
        """
        total = self._config[keys.WRITER_HEAP_SIZE]
        if not self._partition_columns:
            return total
        return max((total - sum(self._heaps.values())) // 2, MIN_HEAP)

    def _finish(self, key: PartitionKey) -> None:
        writer = self._open[key]
        if not writer.rows:
            writer.abort()
        else:
            written = writer.close()
            try:
                columns = self._partition_columns
                self._adds.append(store_split(self._store, written, columns, data_change=True))
            finally:
                written.delete()
        del self._open[key], self._heaps[key]

    def finish(self) -> list[Add]:
        """Store what is still open; returns an add action for every split."""
        for key in list(self._open):
            self._finish(key)
        for key in self._waiting.keys:
            self._write_waiting(key)
            if key in self._open:
                self._finish(key)
        self._waiting.close()
        return self._adds

    def abort(self) -> None:
        """Remove the temporary files, and the splits that were stored."""
        for writer in self._open.values():
            writer.abort()
        self._open.clear()
        self._waiting.close()
        discard(self._store, self._adds)


def store_split(
    store: Store, written: WrittenSplit, partition_columns: Sequence[str], *, data_change: bool
) -> Add:
    """Store a split in the folder of its partition; returns its log entry."""
    values = {k: v for k, v in written.partition_values.items() if v is not None}
    folder = partition_folder(values, partition_columns)
    path = "/".join(filter(None, (folder, SPLITS_FOLDER, written.path.name)))
    store.put_file(path, written.path)
    return add_action(written, path=path, data_change=data_change)


def add_action(written: WrittenSplit, *, path: str, data_change: bool) -> Add:
    """The log entry of a stored split."""
    return Add(
        path=path,
        partition_values=written.partition_values,
        size=written.size,
        modification_time=time.time_ns() // 1_000_000,
        data_change=data_change,
        stats=written.stats_json,
        min_values=written.statistics.min_values,
        max_values=written.statistics.max_values,
        num_records=written.num_records,
        has_footer_offsets=True,
        footer_start_offset=written.footer_start,
        footer_end_offset=written.footer_end,
        hotcache_start_offset=written.opening_start,
        hotcache_length=written.opening_end - written.opening_start,
        doc_mapping_json=written.mapping.to_json(),
        uncompressed_size_bytes=written.uncompressed_size,
        num_merge_ops=0,
    )


class Stored(Protocol):
    """A file of the table that a log entry describes."""

    @property
    def path(self) -> str: ...


def discard(store: Store, files: Sequence[Stored]) -> None:
    """Delete files that no commit will ever name. A purge deletes those that this cannot."""
    with contextlib.suppress(IndexTablesError):
        store.delete([file.path for file in files])
