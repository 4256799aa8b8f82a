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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.errors import DamagedSplitError, ObjectNotFoundError, StorageError
from indextables.split.format.container import Chunk, Footer
from indextables.split.format.page_headers import ThinChunk, WrongPageError, thin_chunk
from indextables.split.row_numbers import RowNumbers
from indextables.storage.store import Store

_GROUPS_AT_ONCE = 64
BYTES_AT_ONCE = 32 << 20
"""More is not decoded at once, unless one row group is larger."""
_FEW_GROUPS = 16
_BUFFER = 64 << 10
_SMALL_COLUMN, _SMALL_GROUP = 256 << 10, 2 << 20
_FEW_ROWS = 16
"""If fewer than one row in so many is wanted, no more is decoded than needed to get there."""


@dataclass(frozen=True)
class RowReader:
    """The rows of one split."""

    store: Store
    path: str
    footer: Footer

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
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        starts = self.footer.group_starts
        groups = np.searchsorted(starts, ordered, side="right") - 1
        needed = np.unique(groups)
        # A remote store is asked for much at once. The groups of a local file are shared among the
        # cores, so their pieces are small.
        step = _GROUPS_AT_ONCE if self.store.local_path(self.path) is None else _FEW_GROUPS
        firsts = needed[::step]
        bounds = [*np.searchsorted(groups, firsts).tolist(), len(groups)]
        parts = _in_parallel(
            lambda low, high: self._read_ordered(ordered[low:high], groups[low:high], columns),
            list(itertools.pairwise(bounds)),
        )
        result = pa.concat_tables(parts)
        if np.array_equal(order, np.arange(len(order))):
            return result
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return result.take(back)

    def _read_ordered(
        self, rows: RowNumbers, groups: RowNumbers, columns: Sequence[str]
    ) -> pa.Table:
        """Rows in ascending order, given the group of each."""
        starts = self.footer.group_starts
        some, bounds, place = np.unique(groups, return_index=True, return_inverse=True)
        lengths = starts[some + 1] - starts[some]
        few = len(rows) * _FEW_ROWS < lengths.sum()
        if few:  # then nothing behind the last wanted row of a group is decoded
            lengths = np.zeros_like(lengths)
            np.maximum.at(lengths, place, rows - starts[groups] + 1)
            wanted = rows - starts[groups]
            by_group = dict(zip(some.tolist(), np.split(wanted, bounds[1:]), strict=True))
            table = self._read_beginnings(some.tolist(), lengths.tolist(), columns, by_group)
        else:
            table = self.read_groups(some.tolist(), columns)
        wanted = rows + (np.cumsum(lengths) - lengths - starts[some])[place]
        if not np.array_equal(wanted, np.arange(table.num_rows)):
            table = table.take(wanted)
        return table.cast(self._select(columns)) if few else table

    def read_column(self, name: str, rows: RowNumbers | None = None) -> Any:
        """One column as one array, of all rows or of some."""
        if rows is None:
            table = self.read_groups(range(len(self.footer.group_starts) - 1), [name])
        else:
            table = self.read_rows(rows, [name])
        chunks = table.column(name).chunks
        return pa.concat_arrays(chunks) if chunks else pa.array([], table.schema.field(name).type)

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
            encoded = np.zeros_like(sizes)
            for chunk in self.footer.chunks(range(count), columns):
                encoded[chunk.group] += chunk.parquet.total_uncompressed_size
            np.maximum(sizes, encoded, out=sizes)
        return sizes

    def is_small(self, group: int, column: str) -> bool:
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
        groups_at_once: int = _GROUPS_AT_ONCE,
        *,
        groups: Iterable[int] | None = None,
    ) -> list[tuple[range, int]]:
        """Row groups, all or some, in runs that fit in memory, each with its size there."""
        sizes = self.group_sizes(columns)
        runs: list[tuple[range, int]] = []
        for group in range(len(sizes)) if groups is None else groups:
            size = int(sizes[group])
            if runs:
                run, before = runs[-1]
                is_next = run.stop == group and len(run) < groups_at_once
                if is_next and before + size <= BYTES_AT_ONCE:
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
        self, columns: Sequence[str], *, groups_at_once: int = _GROUPS_AT_ONCE
    ) -> Iterator[tuple[int, pa.Table]]:
        """All rows in order, in pieces, each with the number of its first row."""
        for groups, _ in self.group_ranges(columns, groups_at_once):
            yield int(self.footer.group_starts[groups.start]), self.read_some(groups, columns)

    def read_groups(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Whole row groups."""
        if not len(groups):
            return self._empty(columns)

        starts = self.footer.group_starts

        def read(file: pq.ParquetFile, share: Sequence[int]) -> pa.Table:
            return file.read_row_groups(list(share), columns=list(columns), use_threads=False)

        def decoded(low: int, high: int) -> pa.Table:
            share = groups[low:high]
            rows = sum(int(starts[group + 1] - starts[group]) for group in share)
            return self._decoded(share, columns, read, rows=rows)

        if self.store.local_path(self.path) is None:
            return decoded(0, len(groups))
        bounds = [*range(0, len(groups), _FEW_GROUPS), len(groups)]
        return pa.concat_tables(_in_parallel(decoded, list(itertools.pairwise(bounds))))

    def check_pages(self, columns: Sequence[str]) -> None:
        """Check all page headers of some columns without decoding a page, for another reader."""
        chunks = self.footer.chunks(range(self.footer.parquet.num_row_groups), columns)
        with self._source(chunks):
            pass

    def _read_beginnings(
        self,
        groups: Sequence[int],
        counts: Sequence[int],
        columns: Sequence[str],
        wanted: Mapping[int, RowNumbers],
    ) -> pa.Table:
        """The first rows of row groups. Texts that repeat stay references to a dictionary.

        Only the `wanted` rows of each group need be right: their pages are read.
        """
        count_of = dict(zip(groups, counts, strict=True))

        def read(file: pq.ParquetFile, share: Sequence[int]) -> pa.Table:
            batches = []
            for group in share:
                missing = count_of[group]
                pieces = file.iter_batches(
                    missing, row_groups=[group], columns=list(columns), use_threads=False
                )
                for piece in pieces:
                    batches.append(piece.slice(0, missing))
                    missing -= batches[-1].num_rows
                    if not missing:
                        break
            return pa.Table.from_batches(batches).unify_dictionaries()

        texts = list(self.footer.repeated_texts)
        return self._decoded(
            groups, columns, read, rows=sum(counts), dictionaries=texts, wanted=wanted
        )

    def _decoded(
        self,
        groups: Sequence[int],
        columns: Sequence[str],
        read: Callable[[pq.ParquetFile, Sequence[int]], pa.Table],
        *,
        rows: int,
        dictionaries: list[str] | None = None,
        wanted: Mapping[int, RowNumbers] | None = None,
    ) -> pa.Table:
        with self._source(self.footer.chunks(groups, columns), wanted) as source:
            file = pq.ParquetFile(
                source,
                metadata=self.footer.parquet,
                page_checksum_verification=True,
                read_dictionary=dictionaries,
                # Old files of others have times of 12 bytes, which overflow nanoseconds.
                coerce_int96_timestamp_unit="us",
                # It costs more than it saves, and of a remote file it would read gaps between
                # the ranges that were asked for.
                pre_buffer=False,
                # Most of a chunk that was put together from few pages is not read.
                buffer_size=0 if wanted is None else _BUFFER,
            )
            table = self.footer.as_read(read(file, groups))
            table.validate()  # the columns have the same length
        if table.num_rows != rows:
            raise DamagedSplitError(
                self.path, f"its rows cannot be read ({table.num_rows} of {rows} are there)"
            )
        # Parquet reads a struct's children by dotted names; whole columns are selected again here.
        return table.select(list(columns)).replace_schema_metadata(None)

    @contextlib.contextmanager
    def _source(
        self, chunks: Sequence[Chunk], wanted: Mapping[int, RowNumbers] | None = None
    ) -> Iterator[Any]:
        """The file, of which these chunks may be read; their page headers are checked.

        If only some rows of each group are wanted, pages without them may hold nulls.
        """
        thin: list[ThinChunk] = []
        if wanted is not None:
            thin = self._thinned(chunks, wanted)
        made = {chunk.start for chunk in thin}
        whole = [chunk for chunk in chunks if chunk.start not in made]
        try:
            with self._open(whole, thin) as source:
                self.footer.check_pages(
                    lambda at, length: source.read_at(length, at), whole, path=self.path
                )
                yield source
        except (StorageError, DamagedSplitError):
            raise
        except FileNotFoundError:
            raise ObjectNotFoundError(self.path) from None
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DamagedSplitError(self.path, f"its rows cannot be read ({error})") from None

    def _thinned(
        self, chunks: Sequence[Chunk], wanted: Mapping[int, RowNumbers]
    ) -> list[ThinChunk]:
        """Those of some chunks of which few pages hold the wanted rows of their groups."""
        parquet = self.footer.parquet
        found: list[ThinChunk] = []
        with contextlib.suppress(WrongPageError):  # checking the pages raises it again
            record = self.footer.page_record
            if record is None:
                return []
            for chunk in chunks:
                column = parquet.schema.column(chunk.leaf)
                total = parquet.row_group(chunk.group).num_rows
                thin = thin_chunk(record, chunk, column, wanted[chunk.group], total)
                found += [] if thin is None else [thin]
        return found

    def _open(self, chunks: Sequence[Chunk], thin: Sequence[ThinChunk]) -> Any:
        local = self.store.local_path(self.path)
        if local is not None and not thin:
            return pa.OSFile(str(local), "rb")
        blocks: dict[tuple[int, int], bytes] = {}
        behind: io.FileIO | None = None
        read: Callable[[int, int], bytes]
        if local is not None:
            behind = io.FileIO(local)
            read = functools.partial(_read_at, behind)
        else:
            ranges = [(chunk.start, chunk.end) for chunk in chunks]
            pages = [range_ for chunk in thin for range_ in chunk.ranges]
            found = self.store.get_ranges(self.path, [*ranges, *pages])
            blocks = dict(zip(ranges, found, strict=False))
            fetched = dict(zip(pages, found[len(ranges) :], strict=True))
            read = SparseFile(fetched, self.footer.end).range
        try:
            for chunk in thin:
                blocks[chunk.start, chunk.start + chunk.length] = chunk.content(read)
        except WrongPageError as error:
            if behind is not None:
                behind.close()
            raise DamagedSplitError(self.path, f"its rows cannot be read ({error})") from None
        padded = {chunk.start: chunk.length for chunk in thin}
        return pa.PythonFile(SparseFile(blocks, self.footer.end, behind, padded))

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
            cores = (os.cpu_count() or 1) // self._count
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
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="indextables-rows")


def without_columns(rows: int) -> pa.Table:
    """So many rows of no column."""
    return pa.table({"": pa.nulls(rows)}).select([])


def _read_at(file: io.FileIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


class SparseFile(io.RawIOBase):
    """A file of which only some ranges are known.

    Others are read from a file `behind` it, which is closed with it; without one they are refused.
    """

    def __init__(
        self,
        blocks: dict[tuple[int, int], bytes],
        size: int,
        behind: io.FileIO | None = None,
        padded: Mapping[int, int] | None = None,
    ) -> None:
        """`padded` has the lengths of blocks, by their starts, that end in zeros."""
        super().__init__()
        self._behind = behind
        self._padded = padded or {}
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

    def range(self, start: int, end: int) -> bytes:
        """The bytes from a start to an end."""
        self.seek(start)
        return self.read(end - start)

    def read(self, size: int = -1, /) -> bytes:
        size = self._size - self._position if size is None or size < 0 else size
        at = bisect_right(self._starts, self._position) - 1
        start, data = self._blocks[at] if at >= 0 else (0, b"")
        end = start + self._padded.get(start, len(data)) if at >= 0 else 0
        if self._position >= end and self._behind is not None:
            found = _read_at(self._behind, self._position, self._position + size)
            self._position += len(found)
            return found
        if self._position + size > end:
            raise OSError(f"bytes from {self._position} on were not asked for")
        found = data[self._position - start : self._position - start + size].ljust(size, b"\0")
        self._position += size
        return found

    def close(self) -> None:
        if self._behind is not None:
            self._behind.close()
        super().close()
