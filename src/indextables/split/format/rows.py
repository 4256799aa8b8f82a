"""Reading rows of a split by their numbers: the needed columns of the needed row groups.

A local split is read in place. Of a remote one, the byte ranges of exactly those column chunks are
asked for, together, and Parquet then finds them in memory. Of few rows, their pages alone are read
and decoded, wherever the split is.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.errors import DamagedSplitError, ObjectNotFoundError, StorageError
from indextables.split.format.container import Chunk, Footer
from indextables.split.format.page_headers import ColumnPages, WrongPageError
from indextables.split.row_numbers import RowNumbers
from indextables.storage.store import Store

_CORES = os.cpu_count() or 1
"""Counted once: it takes a tenth of the time of reading a small split."""
_GROUPS_AT_ONCE, _ROWS_AT_ONCE = 64, 512 << 10
BYTES_AT_ONCE = 32 << 20
"""More is not decoded at once, unless one row group is larger."""
_FEW_GROUPS, _SHARED_ROWS = 16, 128 << 10
"""What one core decodes at once of a local file: smaller pieces cost more than they share out."""
_SMALL_COLUMN, _SMALL_GROUP = 256 << 10, 2 << 20
_FEW_ROWS = 16
"""If fewer than one row in so many is wanted, no more is decoded than needed to get there."""


@dataclass(frozen=True)
class RowReader:
    """The rows of one split."""

    store: Store
    path: str
    footer: Footer

    @functools.cached_property
    def _local(self) -> Path | None:
        """The file, if it is on a local disk."""
        return self.store.local_path(self.path)

    @functools.cached_property
    def _share(self) -> int:
        """How many row groups of a local file one core decodes at once, judged by the first."""
        starts = self.footer.group_starts
        rows = int(starts[1]) if len(starts) > 1 else 0
        return min(_FEW_GROUPS, max(1, _SHARED_ROWS // max(1, rows)))

    @property
    def has_bounds(self) -> bool:
        """Whether the bounds of row groups are known to be those of the columns."""
        return True

    @property
    def schema(self) -> pa.Schema:
        """The columns that the split holds."""
        return self.footer.schema

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.footer.info.rows

    def read_rows(self, rows: RowNumbers, columns: Sequence[str]) -> pa.Table:
        """Some rows, in the order given, and some columns."""
        if not len(rows) or not columns:
            empty = self._empty(columns)
            return empty if columns else without_columns(len(rows))
        starts = self.footer.group_starts
        groups = np.searchsorted(starts, rows, side="right") - 1
        needed = np.unique(groups)
        # Requests to a remote store are large. The groups of a local file are shared among the
        # cores, so their pieces are small; few rows of some groups are one call all the same.
        step = _GROUPS_AT_ONCE if self._local is None else _FEW_GROUPS
        if len(needed) <= step:
            return self._read_share(rows, groups, columns)
        order = np.argsort(rows, kind="stable")
        rows, groups = rows[order], groups[order]
        bounds = [*np.searchsorted(groups, needed[::step]).tolist(), len(groups)]
        parts = _in_parallel(
            lambda low, high: self._read_share(rows[low:high], groups[low:high], columns),
            list(itertools.pairwise(bounds)),
        )
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return _taken(pa.concat_tables(parts), back)

    def _read_share(self, rows: RowNumbers, groups: RowNumbers, columns: Sequence[str]) -> pa.Table:
        """Rows, given the group of each."""
        starts = self.footer.group_starts
        needed_groups, place = np.unique(groups, return_inverse=True)
        lengths = starts[needed_groups + 1] - starts[needed_groups]
        if len(rows) * _FEW_ROWS < lengths.sum():
            return self._read_few(rows, needed_groups, place, columns)
        table = self.read_groups(needed_groups.tolist(), columns)
        return _taken(table, rows + (np.cumsum(lengths) - lengths - starts[needed_groups])[place])

    def _read_few(
        self, rows: RowNumbers, groups: RowNumbers, place: RowNumbers, columns: Sequence[str]
    ) -> pa.Table:
        """Rows of which each group has few: of plain columns, nothing but their pages is read."""
        every = {name: self.footer.column_pages(name) for name in columns}
        pages = {
            name: column_pages.with_rows(rows)
            for name, column_pages in every.items()
            if column_pages is not None
        }
        rest = [name for name in columns if name not in pages]
        chunks = self.footer.chunks(groups.tolist(), rest) if rest else []
        with self._source(
            chunks, [range_ for p in pages.values() for range_ in p.ranges]
        ) as source:

            def read(start: int, end: int) -> bytes:
                return bytes(source.read_at(end - start, start))

            values_of: dict[str, Any] = {
                name: column_pages.values(read) for name, column_pages in pages.items()
            }
            if rest:
                # Of a chunk that is read whole, nothing behind the last wanted row is decoded.
                starts = self.footer.group_starts
                lengths = np.zeros(len(groups), dtype=np.int64)
                np.maximum.at(lengths, place, rows - starts[groups][place] + 1)
                table = self._beginnings(source, groups.tolist(), lengths.tolist(), rest)
                positions = rows + (np.cumsum(lengths) - lengths - starts[groups])[place]
                table = _taken(table, positions).cast(self._select(rest))
                values_of |= zip(rest, table.columns, strict=True)
        return pa.table([values_of[name] for name in columns], schema=self._select(columns))

    def read_column(self, name: str, rows: RowNumbers | None = None) -> Any:
        """One column as one array, of all rows or of some."""
        if rows is None:
            table = self.read_groups(range(len(self.footer.group_starts) - 1), [name])
        else:
            table = self.read_rows(rows, [name])
        return table.column(name).combine_chunks()

    def group_sizes(self, columns: Sequence[str]) -> npt.NDArray[np.int64]:
        """About how many bytes each row group takes in memory with these columns."""
        total, count = self.footer.info.uncompressed_size, self.footer.parquet.num_row_groups
        schema = self.schema
        kinds: list[Any] = [schema.field(name).type for name in columns]
        sizes = np.zeros(count, dtype=np.int64)
        if any(pa.types.is_nested(k) or not pa.types.is_primitive(k) for k in kinds):
            # Parquet says how large values are that are encoded: those that repeat, only once.
            sizes += total // max(1, count)
        if kinds and total > BYTES_AT_ONCE:
            encoded = [self.footer.encoded_sizes(name) for name in columns]
            np.maximum(sizes, np.sum(encoded, axis=0), out=sizes)
        return sizes

    def large_pages(self, column: str) -> ColumnPages | None:
        """The pages of a column whose row groups are large, if it has no dictionaries."""
        pages = self.footer.column_pages(column)
        if pages is None or self.footer.encoded_sizes(column).max() <= _SMALL_COLUMN:
            return None
        return None if pages.has_dictionaries else pages

    def read_pages(self, pages: ColumnPages, parts: Sequence[int]) -> list[Any]:
        """The values of some pages of a column, an array for each."""
        whole = pages.whole(np.array(parts))
        with self._source([], whole.ranges) as source:
            values = whole.values(lambda start, end: bytes(source.read_at(end - start, start)))
        counts = pages.counts(np.array(parts)).tolist()
        ends = itertools.accumulate(counts)
        return [values.slice(end - count, count) for end, count in zip(ends, counts, strict=True)]

    def read_small_groups(self, column: str, groups: Sequence[int]) -> list[Any]:
        """The values of a column in some row groups, an array for each; None for large ones."""
        return [
            self.read_groups([group], [column]).column(column).combine_chunks()
            if self._is_small(group, column)
            else None
            for group in groups
        ]

    def _is_small(self, group: int, column: str) -> bool:
        """Whether a column of a row group takes little memory."""
        if pa.types.is_primitive(self.schema.field(column).type):
            return True
        chunks = self.footer.chunks([group], [column])
        if any(chunk.parquet.has_dictionary_page for chunk in chunks):
            # Values that repeat are encoded once; rows as a whole are what is known of their size.
            return int(self.group_sizes([column])[group]) <= _SMALL_GROUP
        encoded: int = sum(chunk.parquet.total_uncompressed_size for chunk in chunks)
        return encoded <= _SMALL_COLUMN

    def group_ranges(
        self,
        columns: Sequence[str],
        rows_at_once: int = _ROWS_AT_ONCE,
        *,
        groups: Iterable[int] | None = None,
    ) -> list[tuple[range, int]]:
        """Row groups, all or some, in runs that fit in memory, each with its size there.

        A run has no more than so many rows, unless it is one group.
        """
        sizes, starts = self.group_sizes(columns), self.footer.group_starts
        runs: list[tuple[range, int]] = []
        for group in range(len(sizes)) if groups is None else groups:
            size = int(sizes[group])
            if runs:
                run, before = runs[-1]
                is_next = run.stop == group
                is_few = starts[group + 1] - starts[run.start] <= rows_at_once
                if is_next and is_few and before + size <= BYTES_AT_ONCE:
                    runs[-1] = range(run.start, group + 1), before + size
                    continue
            runs.append((range(group, group + 1), size))
        return runs

    def row_ranges(
        self, rows: RowNumbers, columns: Sequence[str], rows_at_once: int
    ) -> list[tuple[RowNumbers, int]]:
        """Rows in ascending order in runs that fit in memory, each with its size there.

        A group of which one row is wanted may be decoded as a whole.
        """
        if not len(rows):
            return []
        groups = np.searchsorted(self.footer.group_starts, rows, side="right") - 1
        weights = np.where(np.diff(groups, prepend=-1) > 0, self.group_sizes(columns)[groups], 0)
        if len(rows) <= rows_at_once and (size := int(weights.sum())) <= BYTES_AT_ONCE:
            return [(rows, size)]
        before = np.cumsum(weights) - weights
        pieces = np.arange(len(rows)) // rows_at_once
        cuts = (np.diff(pieces) > 0) | (np.diff(before // BYTES_AT_ONCE) > 0)
        bounds = [0, *(np.flatnonzero(cuts) + 1).tolist(), len(rows)]
        return [
            (rows[low:high], int(weights[low:high].sum()))
            for low, high in itertools.pairwise(bounds)
        ]

    def read_some(self, groups: range, columns: Sequence[str]) -> pa.Table:
        """The rows of a run of groups; without columns, as many rows without any."""
        if columns:
            return self.read_groups(groups, columns)
        starts = self.footer.group_starts
        return without_columns(int(starts[groups.stop] - starts[groups.start]))

    def batches(
        self, columns: Sequence[str], *, rows_at_once: int = _ROWS_AT_ONCE
    ) -> Iterator[tuple[int, pa.Table]]:
        """All rows in order, in pieces, each with the number of its first row."""
        for groups, _ in self.group_ranges(columns, rows_at_once):
            yield int(self.footer.group_starts[groups.start]), self.read_some(groups, columns)

    def read_groups(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Whole row groups."""
        if not len(groups):
            return self._empty(columns)

        starts = self.footer.group_starts

        def decoded(low: int, high: int) -> pa.Table:
            share = list(groups[low:high])
            rows = sum(int(starts[group + 1] - starts[group]) for group in share)
            with self._source(self.footer.chunks(share, columns)) as source:
                table = self._parquet_file(source).read_row_groups(
                    share, columns=list(columns), use_threads=False
                )
                return self._checked(table, columns, rows=rows)

        if self._local is None:
            return decoded(0, len(groups))
        bounds = [*range(0, len(groups), self._share), len(groups)]
        return pa.concat_tables(_in_parallel(decoded, list(itertools.pairwise(bounds))))

    def check_pages(self, columns: Sequence[str]) -> None:
        """Check all page headers of some columns without decoding a page, for another reader."""
        chunks = self.footer.chunks(range(self.footer.parquet.num_row_groups), columns)
        with self._source(chunks):
            pass

    def _beginnings(
        self, source: Any, groups: Sequence[int], counts: Sequence[int], columns: Sequence[str]
    ) -> pa.Table:
        """The first rows of row groups. Texts that repeat stay references to a dictionary."""
        file = self._parquet_file(source, list(self.footer.repeated_texts))
        batches = []
        for group, count in zip(groups, counts, strict=True):
            missing = count
            for piece in file.iter_batches(
                missing, row_groups=[group], columns=list(columns), use_threads=False
            ):
                batches.append(piece.slice(0, missing))
                missing -= batches[-1].num_rows
                if not missing:
                    break
        table = pa.Table.from_batches(batches).unify_dictionaries()
        return self._checked(table, columns, rows=sum(counts))

    def _parquet_file(self, source: Any, dictionaries: list[str] | None = None) -> pq.ParquetFile:
        return pq.ParquetFile(
            source,
            metadata=self.footer.parquet,
            page_checksum_verification=True,
            read_dictionary=dictionaries,
            # Old files of other writers have times of 12 bytes, which overflow nanoseconds.
            coerce_int96_timestamp_unit="us",
            # It costs more than it saves, and of a remote file it would read gaps between
            # the ranges that were asked for.
            pre_buffer=False,
        )

    def _checked(self, read: pa.Table, columns: Sequence[str], *, rows: int) -> pa.Table:
        """Rows that were decoded, as many as there should be, in the order of the columns."""
        table = self.footer.as_read(read)
        table.validate()  # the columns have the same length
        if table.num_rows != rows:
            raise DamagedSplitError(
                self.path, f"its rows cannot be read ({table.num_rows} of {rows} are there)"
            )
        # Parquet reads a struct's children by dotted names; whole columns are selected again here.
        return table.select(list(columns)).replace_schema_metadata(None)

    @contextlib.contextmanager
    def _source(
        self, chunks: Sequence[Chunk], pages: Sequence[tuple[int, int]] = ()
    ) -> Iterator[Any]:
        """The file, of which these chunks and pages may be read.

        The headers of the chunks' pages are checked; a reader of single pages checks those.
        """
        try:
            with self._open(chunks, pages) as source:
                self.footer.check_pages(
                    lambda at, length: source.read_at(length, at), chunks, path=self.path
                )
                yield source
        except (StorageError, DamagedSplitError):
            raise
        except FileNotFoundError:
            raise ObjectNotFoundError(self.path) from None
        except (pa.ArrowException, OSError, UnicodeDecodeError, WrongPageError) as error:
            raise DamagedSplitError(self.path, f"its rows cannot be read ({error})") from None

    def _open(self, chunks: Sequence[Chunk], pages: Sequence[tuple[int, int]]) -> Any:
        if self._local is not None:
            return pa.OSFile(str(self._local), "rb")
        ranges = [*((chunk.start, chunk.end) for chunk in chunks), *pages]
        parts = self.store.get_ranges(self.path, ranges)
        return pa.PythonFile(SparseFile(dict(zip(ranges, parts, strict=True)), self.footer.end))

    def _select(self, columns: Sequence[str]) -> pa.Schema:
        schema = self.schema
        return pa.schema([schema.field(name) for name in columns])

    def _empty(self, columns: Sequence[str]) -> pa.Table:
        return self._select(columns).empty_table()


class _Readers:
    """How many threads are decoding now: together they should keep all cores busy, and no more."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def another(self) -> Iterator[int]:
        """Count one more for a while; returns the number of cores that it may use."""
        with self._lock:
            self._count += 1
            cores = _CORES // self._count
        try:
            yield max(1, cores)
        finally:
            with self._lock:
                self._count -= 1


_readers = _Readers()


def _in_parallel(
    read: Callable[[int, int], pa.Table], shares: Sequence[tuple[int, int]]
) -> list[pa.Table]:
    """Read shares on the cores that are free: Parquet decodes one group after the other."""
    with _readers.another() as cores:
        if min(cores, len(shares)) == 1:
            return [read(low, high) for low, high in shares]
        return list(_threads(os.getpid()).map(lambda share: read(*share), shares))


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """A thread for each core, kept: starting them takes longer than decoding a few rows.

    A forked process has none of its parent's.
    """
    return ThreadPoolExecutor(_CORES, thread_name_prefix="indextables-rows")


def without_columns(rows: int) -> pa.Table:
    """A table without columns, with so many rows."""
    return pa.table({"": pa.nulls(rows)}).select([])


def _taken(table: pa.Table, rows: RowNumbers) -> pa.Table:
    return table if np.array_equal(rows, np.arange(table.num_rows)) else table.take(rows)


class SparseFile(io.RawIOBase):
    """A file of which only some ranges are known; others are refused."""

    def __init__(self, blocks: dict[tuple[int, int], bytes], size: int) -> None:
        super().__init__()
        self._blocks = sorted((start, data) for (start, _), data in blocks.items())
        self._starts = [start for start, _ in self._blocks]
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        size = self._size - self._position if size is None or size < 0 else size
        at = bisect_right(self._starts, self._position) - 1
        start, data = self._blocks[at] if at >= 0 else (0, b"")
        if at < 0 or self._position + size > start + len(data):
            raise OSError(f"bytes from {self._position} on were not asked for")
        content = data[self._position - start : self._position - start + size]
        self._position += size
        return content
