"""Reading rows of a split by their numbers: the needed columns of the needed row groups.

A local split is read in place. Of a remote one, the byte ranges of exactly those column chunks are
asked for, together, and Parquet then finds them in memory.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from indextables.errors import DamagedSplitError, ObjectNotFoundError, StorageError
from indextables.split.container import Footer
from indextables.storage.store import Store

Rows = npt.NDArray[np.int64]

_GROUPS_AT_ONCE = 64
_FEW_GROUPS = 16


@dataclass(frozen=True)
class RowReader:
    """The rows of one split."""

    store: Store
    path: str
    footer: Footer

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that the split holds."""
        return self.footer.parquet.schema.to_arrow_schema().remove_metadata()

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.footer.info.rows

    def read_rows(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Some rows, in the order given, and some columns."""
        if not len(rows) or not columns:
            empty = self._empty(columns)
            return empty if columns else _without_columns(len(rows))
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        starts = self._group_starts
        groups = np.searchsorted(starts, ordered, side="right") - 1
        needed = np.unique(groups)
        parts = []
        for at in range(0, len(needed), _GROUPS_AT_ONCE):
            some = needed[at : at + _GROUPS_AT_ONCE]
            inside = (groups >= some[0]) & (groups <= some[-1])
            lengths = starts[some + 1] - starts[some]
            shift = np.concatenate(([0], np.cumsum(lengths)[:-1])) - starts[some]
            wanted = ordered[inside] + shift[np.searchsorted(some, groups[inside])]
            table = self.read_groups(some.tolist(), columns)
            parts.append(table if len(wanted) == table.num_rows else table.take(wanted))
        result = pa.concat_tables(parts)
        if np.array_equal(order, np.arange(len(order))):
            return result
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return result.take(back)

    def read_column(self, name: str, rows: Rows | None = None) -> Any:
        """One column as one array, of all rows or of some."""
        if rows is None:
            table = self.read_groups(range(self.footer.parquet.num_row_groups), [name])
        else:
            table = self.read_rows(rows, [name])
        chunks = table.column(name).chunks
        return pa.concat_arrays(chunks) if chunks else pa.array([], table.schema.field(name).type)

    def batches(
        self, columns: Sequence[str], *, groups_at_once: int = _GROUPS_AT_ONCE
    ) -> Iterator[tuple[int, pa.Table]]:
        """All rows in order, in pieces, each with the number of its first row."""
        starts = self._group_starts
        total = self.footer.parquet.num_row_groups
        for first in range(0, total, groups_at_once):
            groups = range(first, min(first + groups_at_once, total))
            if columns:
                yield int(starts[first]), self.read_groups(groups, columns)
            else:
                yield (
                    int(starts[first]),
                    _without_columns(int(starts[groups[-1] + 1] - starts[first])),
                )

    def read_groups(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Whole row groups."""
        if not len(groups):
            return self._empty(columns)
        try:
            local = self.store.local_path(self.path)
            if local is not None and len(groups) > _FEW_GROUPS:
                table = self._scan(local, groups, columns)
            else:
                with self._open(local, groups, columns) as source:
                    file = pq.ParquetFile(
                        source,
                        metadata=self.footer.parquet,
                        page_checksum_verification=True,
                        # Parquet's own joining of ranges would read gaps that were not asked for.
                        pre_buffer=local is not None,
                    )
                    table = file.read_row_groups(list(groups), columns=list(columns))
        except StorageError:
            raise
        except FileNotFoundError:
            raise ObjectNotFoundError(self.path) from None
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DamagedSplitError(self.path, f"its rows cannot be read ({error})") from None
        # Parquet reads a struct's children by dotted names; whole columns are selected again here.
        return table.select(list(columns)).replace_schema_metadata(None)

    def _scan(self, local: Path, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Many groups: a scanner decodes them in parallel, which reading one column does not."""
        options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        file_format = ds.ParquetFileFormat(default_fragment_scan_options=options)
        fragment = file_format.make_fragment(
            str(local), filesystem=LocalFileSystem(), row_groups=list(groups)
        )
        return fragment.to_table(schema=self.schema, columns=list(columns))

    def _open(self, local: Path | None, groups: Sequence[int], columns: Sequence[str]) -> Any:
        if local is not None:
            return pa.OSFile(str(local), "rb")
        ranges = _chunk_ranges(self.footer.parquet, groups, set(columns))
        blocks = self.store.get_ranges(self.path, ranges)
        return pa.PythonFile(SparseFile(dict(zip(ranges, blocks, strict=True)), self.footer.end))

    @cached_property
    def _group_starts(self) -> Rows:
        parquet = self.footer.parquet
        lengths = [parquet.row_group(i).num_rows for i in range(parquet.num_row_groups)]
        return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))

    def _empty(self, columns: Sequence[str]) -> pa.Table:
        schema = self.schema
        return pa.schema([schema.field(name) for name in columns]).empty_table()


def _without_columns(rows: int) -> pa.Table:
    return pa.table({"": pa.nulls(rows)}).select([])


def _chunk_ranges(
    parquet: pq.FileMetaData, groups: Sequence[int], columns: set[str]
) -> list[tuple[int, int]]:
    """Where the column chunks are, in the order of the file."""
    ranges = []
    for group in groups:
        row_group = parquet.row_group(group)
        for index in range(row_group.num_columns):
            chunk: Any = row_group.column(index)
            # A dot may be part of a column's name or separate it from a nested field.
            if any(
                chunk.path_in_schema == c or chunk.path_in_schema.startswith(f"{c}.")
                for c in columns
            ):
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                ranges.append((start, start + chunk.total_compressed_size))
    return sorted(ranges)


class SparseFile(io.RawIOBase):
    """A file of which only some ranges are known; nothing else may be read."""

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
        if at < 0:
            raise OSError(f"byte {self._position} was not asked for")
        start, data = self._blocks[at]
        found = data[self._position - start : self._position - start + size]
        if len(found) < size:
            raise OSError(f"bytes from {self._position} on were not asked for")
        self._position += size
        return found
