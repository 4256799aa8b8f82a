"""An opened split: search it, count, and read the rows that were found.

A split is searched for a table: by the table's mapping and schema. Where the split's index holds
other words than that mapping wants, lacks a column that was added later, or is damaged, the rows
are searched instead, with the same result.

A split never changes, so its footer need be read and checked only once. Footers stay in memory
between queries, within a limit on the size that they have in their files.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tantivy
from cachetools import LRUCache

from indextables.config import MAX_OPEN_FILES, Config
from indextables.errors import DamagedIndexError, DamagedSplitError, StorageError
from indextables.log.vectors import StoredVector
from indextables.predicate import Search
from indextables.schema import ROW, SPLIT, column_field, conform
from indextables.schema.conformity import missing_defaults
from indextables.split.format.container import Footer, SplitInfo, read_footer, read_section
from indextables.split.format.index import (
    IndexFolder,
    MappedCopies,
    OpenIndex,
    open_index,
    side_by_side,
)
from indextables.split.format.lists import read_terms
from indextables.split.format.page_headers import ColumnPages
from indextables.split.format.rows import RowReader
from indextables.split.leaves import ArrowColumn
from indextables.split.mapping import WORDS, TableMapping, compatible
from indextables.split.row_numbers import RowNumbers
from indextables.split.search.compile import Compiler
from indextables.split.search.engine import with_stack
from indextables.split.search.evaluate import Mask, matching, search_rows
from indextables.split.search.query import (
    Query,
    SearchContext,
    columns_of,
    levels,
    with_fields,
)
from indextables.storage.disk_cache import DiskCache
from indextables.storage.store import Store

Item = TypeVar("Item")

_MAX_BYTES = 64 << 20
_MAX_HOT_BYTES, _MAX_HOT_PART = 32 << 20, 2 << 20
_HOT_FROM = 3
"""A part of a column is kept when it is asked for so often."""
_FEW_ROWS = 128
_MAPPABLE_FILES = 32_768
_MAPPED_HASHES = 128
_REMEMBERED = 65_536


class FooterCache:
    """The footers that were used last. Safe between threads."""

    def __init__(self, *, max_bytes: int = _MAX_BYTES) -> None:
        self._kept: LRUCache[Hashable, Footer] = LRUCache(max_bytes, lambda footer: footer.size)
        self._lock = threading.Lock()

    def get(self, key: Hashable, read: Callable[[], Footer]) -> Footer:
        """The footer of a key, from memory or by reading it."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                return kept
        # Two threads may read the same footer; the first one kept stays.
        footer = read()
        with self._lock, contextlib.suppress(ValueError):  # larger than all that may be kept
            self._kept.setdefault(key, footer)
        return footer

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


class HotColumns:
    """Parts of columns that are asked for often, decoded. Safe between threads.

    Reading ten rows from Parquet takes longer than finding them. A part is a column of a row
    group, or a page if those are large. What takes much memory, or is asked for once, is read from
    the file.
    """

    def __init__(self, *, max_bytes: int = _MAX_HOT_BYTES) -> None:
        self._kept: LRUCache[Hashable, ArrowColumn] = LRUCache(max_bytes, lambda c: c.nbytes)
        self._requests: LRUCache[Hashable, int] = LRUCache(_REMEMBERED)
        self._lock = threading.Lock()

    def rows(
        self, split: SplitFile, rows: RowNumbers, columns: Sequence[str]
    ) -> dict[str, ArrowColumn]:
        """Those of some columns that are kept, for some rows; the file has the others."""
        reader = split.rows
        if type(reader) is not RowReader or not 0 < len(rows) <= _FEW_ROWS:
            return {}  # external files may change
        values_of = {}
        for name in columns:
            pages = reader.large_pages(name)
            starts = reader.footer.group_starts if pages is None else pages.first_rows
            parts = np.searchsorted(starts, rows, side="right") - 1
            of_rows: list[int] = parts.tolist()
            places: list[int] = (rows - starts[parts]).tolist()
            kept = self._parts(split.key, reader, name, pages, set(of_rows))
            if kept is not None:
                # Of so few rows, slices of one row are quicker than a selection from each part.
                values_of[name] = pa.concat_arrays(
                    kept[part].slice(place, 1) for part, place in zip(of_rows, places, strict=True)
                )
        return values_of

    def _parts(
        self,
        split: Hashable,
        reader: RowReader,
        name: str,
        pages: ColumnPages | None,
        parts: set[int],
    ) -> dict[int, ArrowColumn] | None:
        """Parts of a column by their numbers; None if they are better read with other columns."""
        kept: dict[int, ArrowColumn] = {}
        hot = []
        with self._lock:
            for part in parts:
                key = split, name, part
                values = self._kept.get(key)
                if values is not None:
                    kept[part] = values
                    continue
                requests = self._requests.get(key, 0) + 1
                if requests <= _HOT_FROM:  # what is too large to keep stays at that number
                    self._requests[key] = requests
                if requests == _HOT_FROM:
                    hot.append(part)
        if not kept and not hot:
            return None
        try:
            if pages is not None:
                missing = sorted(parts - kept.keys())
                read = reader.read_pages(pages, missing) if missing else []
                kept |= zip(missing, read, strict=True)
            else:
                read = reader.read_small_groups(name, hot)
                kept |= {p: v for p, v in zip(hot, read, strict=True) if v is not None}
        except (DamagedSplitError, StorageError):
            return None  # perhaps of another row
        self._keep(split, name, {part: kept[part] for part in hot if part in kept})
        return kept if len(kept) == len(parts) else None

    def _keep(self, split: Hashable, name: str, parts: Mapping[int, ArrowColumn]) -> None:
        for part, values in parts.items():
            if values.nbytes > _MAX_HOT_PART:
                continue
            # A copy: a page is a slice of all that were decoded with it.
            own = pa.concat_arrays([values])
            with self._lock, contextlib.suppress(ValueError):
                self._kept[split, name, part] = own  # unless it is larger than all may be
                self._requests[split, name, part] = 0  # it may have to go and be asked for again

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._kept.clear()
            self._requests.clear()


@dataclass(frozen=True)
class SplitFile:
    """A split in a store, as the log describes it."""

    store: Store
    path: str
    size: int
    footer_start: int | None = None
    footer_end: int | None = None
    footers: FooterCache | None = field(default=None, compare=False)
    opening: tuple[int, int] | None = None
    """Where the sections are that every search needs, as the log says."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What distinguishes the split from others of this process, of the same name too."""
        return (self.store.identity, self.path, self.size)

    @property
    def has_index(self) -> bool:
        """Whether there is an index to search; without one the rows are."""
        return True

    @cached_property
    def footer(self) -> Footer:
        """The opened end of the file, perhaps opened before."""
        return self._kept_or(self._read_footer)

    @cached_property
    def fetched(self) -> dict[tuple[int, int], bytes]:
        """Ranges of the file that were read with the footer, until the index is opened."""
        return {}

    def prepare_search(self, cache: DiskCache) -> None:
        """Read the footer of a remote split and what a search needs first with one request.

        On this host the footer may be in the disk cache; then the rest is there, too.
        """
        if "footer" not in self.__dict__:
            self.__dict__["footer"] = self._kept_or(lambda: self._read_opening(cache))

    def _kept_or(self, read: Callable[[], Footer]) -> Footer:
        if self.footers is None:
            return read()
        return self.footers.get(self.key, read)

    def _read_opening(self, cache: DiskCache) -> Footer:
        start, end = self.footer_start, self.size
        if (
            start is None
            or self.opening is None
            or not 0 <= start < end == self.footer_end
            or self.store.local_path(self.path) is not None
        ):
            return self._read_footer()
        name = f"{self.path}#footer#{start}"
        data = cache.kept(self.store, name, end - start)
        for _ in range(2):
            if data is not None:
                with contextlib.suppress(DamagedSplitError):
                    return self._parsed(start, data)
            first, last = self.opening
            ranges = [(first, last), (start, end)] if 0 <= first < last <= start else [(start, end)]
            parts = self.store.get_ranges(self.path, ranges)
            self.fetched.update(zip(ranges[:-1], parts[:-1], strict=True))
            data = parts[-1]
            cache.keep(self.store, name, data)
        return self._read_footer()

    def _parsed(self, start: int, data: bytes) -> Footer:
        return read_footer(
            lambda low, high: data[low - start : high - start],
            self.size,
            path=self.path,
            start=start,
            end=self.size,
        )

    def _read_footer(self) -> Footer:
        return read_footer(
            lambda start, end: self.store.get_range(self.path, start, end),
            self.size,
            path=self.path,
            start=self.footer_start,
            end=self.footer_end,
        )

    @property
    def info(self) -> SplitInfo:
        """What the split says about itself."""
        return self.footer.info

    @cached_property
    def rows(self) -> RowReader:
        """The split's rows."""
        return RowReader(self.store, self.path, self.footer)

    def terms(self, column: str) -> pa.ChunkedArray[pa.StringScalar] | None:
        """The sorted words of a column, if the split keeps a list of them."""
        mapped = self.info.mapping.by_name.get(column)
        sections = [
            s for s in self.info.sections if mapped and s.kind == "terms" and s.name == mapped.field
        ]
        if not sections or not sections[0].name:
            return None
        data = read_section(
            lambda start, end: self.store.get_range(self.path, start, end),
            sections[0],
            path=self.path,
        )
        return read_terms(data)


class IndexPool:
    """Open indexes, the most recently used ones. Safe between threads.

    An open index holds its files mapped into memory. A process may map so many files, and a copy
    that was evicted from the disk cache takes room until it is closed: both bound what is open,
    however many splits that is.
    """

    def __init__(self, cache: DiskCache, *, max_files: int = 0) -> None:
        self.cache = cache
        self.footers = FooterCache()
        self.columns = HotColumns()
        self.max_files = max_files or mappable_files()
        self._open: OrderedDict[Hashable, tuple[OpenIndex, Any]] = OrderedDict()
        self._files = self._bytes = 0
        # A mapped file takes a descriptor.
        self._hashes: LRUCache[Hashable, tuple[npt.NDArray[np.uint32], MappedCopies]] = LRUCache(
            _MAPPED_HASHES
        )
        self._lock = threading.Lock()
        self._generation = cache.generation

    @classmethod
    def from_config(cls, config: Config) -> IndexPool:
        """The pool that the configuration describes."""
        return cls(DiskCache.from_config(config), max_files=config[MAX_OPEN_FILES])

    def folder(self, split: SplitFile) -> IndexFolder:
        """The index files of a split, which are about to be opened."""
        _remember_opened((split.store.identity, split.path))
        split.prepare_search(self.cache)
        return IndexFolder(split.store, split.path, split.info, self.cache, split.fetched)

    def get(self, split: SplitFile) -> OpenIndex:
        """The index of a split, opened now or before."""
        mapping = split.info.mapping
        return self.opened(split.key, lambda: (open_index([self.folder(split)], mapping), None))[0]

    def prewarm(self, split: SplitFile) -> None:
        """Open the index of a split, and copy all of it."""
        ranges = self.get(split).searcher.ranges
        if ranges is not None:
            ranges.provide_all()
        if split.info.mapping.hashed:
            self.hashes(split)

    def hashes(self, *splits: SplitFile) -> list[npt.NDArray[np.uint32]]:
        """The hash of each row of splits, mapped into memory now or before."""
        keys: list[Hashable] = [split.key for split in splits]
        with self._lock:
            kept = {key: self._hashes[key] for key in keys if key in self._hashes}
        hashes_of = {key: hashes for key, hashes in kept.items() if hashes[1].are_whole()}
        missing = [split for split, key in zip(splits, keys, strict=True) if key not in hashes_of]
        if missing:
            for split, hashes in zip(
                missing, side_by_side(lambda s: self.folder(s).hashes(), missing), strict=True
            ):
                hashes_of[split.key] = hashes
            with self._lock:
                self._hashes.update(hashes_of)
        return [hashes_of[key][0] for key in keys]

    def opened(
        self, key: Hashable, open_: Callable[[], tuple[OpenIndex, Item]]
    ) -> tuple[OpenIndex, Item]:
        """An index, opened now or before, and what belongs to it."""
        with self._lock:
            kept = self._open.get(key)
            if kept is not None:
                self._open.move_to_end(key)
        if kept is not None and kept[0].copies.are_whole():
            return kept
        # Two threads may open the same index; one of the two is then dropped.
        opened = open_()
        if self._generation is None:
            self._generation = self.cache.generation  # the first copy began it
        with self._lock:
            self._drop(self._open.pop(key, None))
            self._open[key] = opened
            self._files += opened[0].files
            self._bytes += opened[0].bytes
            while len(self._open) > 1 and (
                self._files > self.max_files or self._bytes > self.cache.max_bytes
            ):
                self._drop(self._open.popitem(last=False)[1])
        return opened

    def is_at_hand(self, key: Hashable) -> bool:
        """Whether an index is open, and nothing of it has to be fetched."""
        with self._lock:
            opened = self._open.get(key)
        ranges = None if opened is None else opened[0].searcher.ranges
        return opened is not None and (ranges is None or ranges.is_whole)

    def _drop(self, opened: tuple[OpenIndex, Any] | None) -> None:
        if opened is not None:
            self._files -= opened[0].files
            self._bytes -= opened[0].bytes

    def clear(self) -> int:
        """Close the indexes; returns their number. One that is being searched stays open."""
        with self._lock:
            count = len(self._open)
            self._open.clear()
            self._hashes.clear()
            self._files = self._bytes = 0
        with _opened_lock:
            _opened.clear()
        self.footers.clear()
        self.columns.clear()
        return count

    def follow(self) -> IndexPool:
        """This pool; closes its indexes if some process flushed the cache since the last call."""
        generation = self.cache.generation
        if generation != self._generation:
            if self._generation is not None:
                self.clear()
            self._generation = generation
        return self

    def __len__(self) -> int:
        return len(self._open)


_opened: dict[tuple[str, str], None] = {}
_opened_lock = threading.Lock()


def _remember_opened(split: tuple[str, str]) -> None:
    with _opened_lock:
        _opened.pop(split, None)
        _opened[split] = None  # as the last one
        if len(_opened) > _REMEMBERED:
            del _opened[next(iter(_opened))]


def was_opened(store: Store, path: str) -> bool:
    """Whether this process opened the index of a split, whose copy is then on the local disk.

    Of very many splits those that were opened last are remembered.
    """
    return (store.identity, path) in _opened


@cache
def mappable_files() -> int:
    """How many files may be open: half of what the system lets a process map."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/sys/vm/max_map_count").read_text()) // 2
    return _MAPPABLE_FILES


@dataclass(frozen=True)
class SplitSearcher:
    """One split, searched for one table."""

    split: SplitFile
    pool: IndexPool
    context: SearchContext
    partition: dict[str, Any] = field(default_factory=dict)
    """The values of partition columns, as Arrow scalars of the columns' types."""
    answers: Mapping[Search, RowNumbers] = field(default_factory=dict)
    """Answers of a linked index of this split and others, deleted rows included."""
    vector: StoredVector | None = None
    """Which rows are deleted. Searches and counts leave them out; `source` and `scan` do not."""

    @cached_property
    def constants(self) -> Mapping[str, Any]:
        """Columns with one value in all rows.

        Those of the partition, and those that were added with a default after the split was made.
        """
        if not self.context.defaults:
            return self.partition
        present = {*self.split.rows.schema.names, *self.partition}
        added = missing_defaults(self.context.schema, present)
        return {**added, **self.partition} if added else self.partition

    @cached_property
    def dead(self) -> RowNumbers:
        """The numbers of the deleted rows, in ascending order."""
        if self.vector is None:
            return np.zeros(0, dtype=np.int64)
        return self.vector.rows(total=self.split.info.rows)

    def live(self, rows: RowNumbers | None) -> RowNumbers | None:
        """These rows without the deleted ones. None is all rows, and None if all are left."""
        if self.vector is None or not len(self.dead):
            return rows
        if rows is None:
            mask = np.ones(self.split.info.rows, dtype=np.bool_)
            mask[self.dead] = False
            return np.flatnonzero(mask)
        return rows[self.are_live(rows)]

    def are_live(self, rows: RowNumbers) -> Mask:
        """Which of these rows are not deleted."""
        dead = self.dead
        if not len(dead):
            return np.ones(len(rows), dtype=np.bool_)
        mask: Mask = dead.take(np.searchsorted(dead, rows), mode="clip") != rows
        return mask

    def search(self, search: Search) -> RowNumbers:
        """The numbers of the rows that match, in ascending order."""
        rows = self.live(self._search(search))
        assert rows is not None
        return rows

    def _search(self, search: Search) -> RowNumbers:
        if search in self.answers:
            return self.answers[search]
        query = self.context.resolved(search)
        if self.can_use_index(columns_of(query)):
            try:
                return matching(self.bound(query), self.source())
            except DamagedIndexError as error:
                warnings.warn(f"{error} Its rows are scanned instead.", stacklevel=2)
        return self.scan(search, query)

    def count(self, search: Search) -> int:
        """How many rows match."""
        if search in self.answers:
            return len(self.search(search))
        query = self.context.resolved(search)
        if self.vector is None and self.can_use_index(columns_of(query)):
            bound = self.bound(query)
            with contextlib.suppress(DamagedIndexError):
                counted = with_stack(levels(bound), lambda: self.source().count(bound))
                if counted is not None:
                    return counted
        return len(self.search(search))

    def can_use_index(self, columns: Sequence[str]) -> bool:
        """Whether the split's index holds the words of columns that the table's mapping wants.

        What the index does not hold, typed columns and partition values, needs no agreement, and a
        column that the split does not have is the same in all rows.
        """
        if not self.split.has_index:
            return False
        self.split.prepare_search(self.pool.cache)
        indexed, declared = self.split.info.mapping, self.context.mapping
        names = [n for n in columns if n in indexed.by_name]
        words = [n for n in names if declared.by_name[n].kind in WORDS | {"ip"}]
        return compatible(indexed, declared, words) and not any(map(self._is_rescaled, names))

    def _is_rescaled(self, name: str) -> bool:
        """Whether the index may hold decimals as integers of another scale than the table has."""
        indexed = self.split.info.mapping.by_name[name]
        if not indexed.field or indexed.kind != "decimal":
            return False
        data_type, stored = self.context.schema.field(name).type, self.split.rows.schema
        return name in stored.names and not stored.field(name).type.equals(data_type)

    def bound(self, query: Query) -> Query:
        """The query for the fields of this split's index."""
        return with_fields(query, self._fields)

    @cached_property
    def _fields(self) -> TableMapping:
        """The table's fields as this split's index has them."""
        indexed = self.split.info.mapping
        fields = []
        for declared in self.context.mapping.fields:
            field_of_index = indexed.by_name.get(declared.name)
            if field_of_index is not None and field_of_index.fingerprint == declared.fingerprint:
                fields.append(field_of_index)
            elif field_of_index is not None or declared.name in self.partition:
                fields.append(replace(declared, field=""))
            elif declared.name in self.constants:
                fields.append(replace(declared, field="", partition=True))
        return TableMapping(tuple(fields))

    def source(self) -> SplitSource:
        """The split as something to evaluate queries on."""
        return SplitSource(self, self.pool.get(self.split))

    def scan(self, search: Search, query: Query) -> RowNumbers:
        """Search without the index, a piece of the rows at a time."""
        return self.scan_all([(search, query)])[0]

    def scan_all(self, queries: Sequence[tuple[Search, Query]]) -> list[RowNumbers]:
        """Several searches without the index; their columns are read together."""
        stored = self.split.rows.schema.names
        columns = [set(columns_of(query)) for _, query in queries]
        needed = [name for name in dict.fromkeys(itertools.chain(*columns)) if name in stored]
        row_numbers: list[list[RowNumbers]] = [[] for _ in queries]
        for first, table in self.split.rows.batches(needed, rows_at_once=64 << 10):
            rows = self.complete(table)
            for found, (search, _), named in zip(row_numbers, queries, columns, strict=True):
                mask = search_rows(
                    search,
                    rows.select([name for name in rows.schema.names if name in named]),
                    self.context.mapping,
                    schema=self.context.schema,
                    zone=self.context.zone,
                    max_expansions=self.context.max_expansions,
                )
                found.append(np.flatnonzero(mask) + first)
        return [np.concatenate([*found, np.zeros(0, dtype=np.int64)]) for found in row_numbers]

    def complete(
        self,
        table: pa.Table,
        columns: Sequence[str] | None = None,
        *,
        rows: RowNumbers | None = None,
    ) -> pa.Table:
        """Rows of this split with columns of one value, in the table's types; others stay out.

        `rows` are their numbers, for columns that name rows.
        """
        schema = self.context.schema
        names = columns or [
            n for n in schema.names if n in table.schema.names or n in self.constants
        ]
        for name, value in self.constants.items():
            if name in names:
                column: Any = pa.repeat(value, table.num_rows)
                table = table.append_column(pa.field(name, value.type), column)
        shown_schema = pa.schema([column_field(schema, name) for name in names])
        if not names:
            return table.select([])
        if SPLIT in names and SPLIT not in schema.names:
            paths: Any = pa.repeat(self.split.path, table.num_rows)
            table = table.append_column(shown_schema.field(SPLIT), paths)
        if ROW in names and ROW not in schema.names:
            table = table.append_column(
                shown_schema.field(ROW), pa.array(np.asarray(rows), pa.int64())
            )
        return conform(table, shown_schema)

    def read_rows(self, rows: RowNumbers, columns: Sequence[str]) -> pa.Table:
        """Rows by number, in the table's schema: added columns are null or their default, types
        are widened."""
        in_file = self.split.rows.schema.names
        stored = [name for name in columns if name in in_file]
        kept = self.pool.columns.rows(self.split, rows, stored)
        missing = [name for name in stored if name not in kept]
        if kept:
            schema = self.split.rows.schema
            read = self.split.rows.read_rows(rows, missing) if missing else None
            table = pa.table(
                [kept[name] if read is None or name in kept else read[name] for name in stored],
                schema=pa.schema([schema.field(name) for name in stored]),
            )
        else:
            table = self.split.rows.read_rows(rows, stored)
        return self.complete(table, columns, rows=rows)

    def column(self, name: str, rows: RowNumbers | None) -> ArrowColumn:
        """One column in the table's type, of all rows or of some."""
        count = self.split.info.rows if rows is None else len(rows)
        data_type = self.context.schema.field(name).type
        if name in self.constants:
            return pa.repeat(self.constants[name], count)
        if name not in self.split.rows.schema.names:
            return pa.nulls(count, data_type)
        column = self.split.rows.read_column(name, rows)
        return column if column.type.equals(data_type) else column.cast(data_type)


@dataclass(frozen=True)
class SplitSource:
    """A split as something to evaluate queries on."""

    searcher: SplitSearcher
    index: OpenIndex
    term_counts: Mapping[str, int] | None = None
    """How many words each field has, if the index is not that of the split alone."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.searcher.split.info.rows

    @cached_property
    def compiler(self) -> Compiler:
        """Compiles queries for the split's index."""
        context = self.searcher.context
        return Compiler(
            schema=self.index.schema,
            searcher=self.index.searcher,
            types=lambda name: context.schema.field(name).type,
            zone=context.zone,
            max_expansions=context.max_expansions,
            term_counts=dict(
                self.searcher.split.info.term_counts
                if self.term_counts is None
                else self.term_counts
            ),
        )

    def count(self, query: Query) -> int | None:
        """How many rows match, if the index alone can count them."""
        compiled = self.compiler.compile(query)
        if compiled is None:
            return None
        return self.index.searcher.count(compiled)

    def index_rows(self, query: tantivy.Query) -> RowNumbers:
        """The rows that match, in ascending order."""
        info = self.searcher.split.info
        return self.index.searcher.rows(query, total=info.rows, tags=info.row_tags)

    def column(self, name: str, rows: RowNumbers | None) -> ArrowColumn:
        """A column, of all rows or of some."""
        return self.searcher.column(name, rows)
