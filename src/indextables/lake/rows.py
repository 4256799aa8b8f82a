"""Rows of Parquet files that other programs wrote, read by their numbers.

A split of a search index holds no rows: they are in a file of the source. `SourceSplit` is such a
split and `UnindexedSplit` a source file that no split covers; both have their rows from the source,
in the source's columns, so that everything that searches splits searches them.

A column is found in a file by its physical name or its field id, if the source says so, or else by
its own name. One that a file does not have is null there. Types of older files are widened.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from indextables.errors import (
    DamagedSplitError,
    ObjectNotFoundError,
    SchemaError,
    SourceRowsError,
    UnsupportedSourceError,
)
from indextables.lake.pages import (
    ForeignFooter,
    description,
    instants,
    pages_with,
    read_lean,
    read_parquet_footer,
)
from indextables.schema import TIMESTAMP, conform, nulls
from indextables.split.format.container import Chunk, SplitInfo
from indextables.split.format.index import side_by_side
from indextables.split.format.page_headers import ReadRange, can_be_read_by_page
from indextables.split.format.rows import BYTES_AT_ONCE, RowReader, without_columns
from indextables.split.mapping import TableMapping
from indextables.split.open_split import FooterCache, SplitFile
from indextables.split.row_numbers import RowNumbers
from indextables.storage import Store
from indextables.storage.disk_cache import DiskCache

_FIELD_ID = b"PARQUET:field_id"
_FEW_ROWS = 64
"""Pages are read if fewer than one row in this many is wanted."""
_SMALL_REMOTE_CHUNK = 64 << 10
"""A smaller chunk of a remote file is fetched with its neighbours, not by its pages."""


# --- where columns are ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a field is in files."""

    key: int | str
    """Its field id, or its physical name."""
    names: tuple[str, ...] = ()
    """Its names in files that have no field ids."""
    fields: Mapping[str, Place] | None = None
    """The fields of a struct, by the names that users have for them."""
    element: Place | None = None
    """The elements of a list, if they are not used as they are."""
    is_uuid: bool = False
    """Whether 16 bytes are shown as the text of a UUID."""
    problem: str = ""
    """Why the field cannot be read."""

    @property
    def is_plain(self) -> bool:
        """Whether values are used as they are in files."""
        nested = (self.fields, self.element)
        return nested == (None, None) and not self.is_uuid and not self.problem

    def __str__(self) -> str:
        """The keys of the field and of those in it."""
        inner = self.element.fields if self.element is not None else self.fields
        shown = "" if inner is None else ",".join(f"{n}:{place}" for n, place in inner.items())
        return f"{self.key}({shown})" if shown else str(self.key)


@dataclass(frozen=True)
class SourceColumns:
    """Where columns are in files. Without places they are found by their own names."""

    places: Mapping[str, Place] = field(default_factory=dict)
    by_id: bool = False
    needs_ids: bool = False
    """Whether a file without field ids is an error, unless the places have names for it."""

    def place(self, name: str) -> str:
        """What distinguishes a column from another one that had its name."""
        return str(self.places.get(name, name))

    def located(self, schema: pa.Schema) -> dict[str, str]:
        """The columns that a file of this schema has, with their names there."""
        if not self.places:
            return {name: name for name in schema.names}
        named = any(place.names for place in self.places.values())
        if self.needs_ids and not named and not _has_ids(schema):
            raise SchemaError(
                "its columns have no field ids, and the table has no name mapping for them"
            )
        indexes = _located(schema, self.places, by_id=self.by_id)
        return {name: schema.names[at] for name, at in indexes.items()}

    def logical(self, name: str, column: Any) -> Any:
        """A column with the names that users have for its nested fields."""
        place = self.places.get(name)
        if place is None or place.is_plain:
            return column
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        shown = [_shown(chunk, place, by_id=self.by_id) for chunk in chunks]
        return pa.chunked_array(shown) if shown else column


def _has_ids(fields: Iterable[Any]) -> bool:
    return any(_FIELD_ID in (f.metadata or {}) for f in fields)


def _located(fields: Iterable[Any], places: Mapping[str, Place], *, by_id: bool) -> dict[str, int]:
    """The numbers of those fields that have places, by the names that users have for them."""
    stored = list(fields)
    if by_id and _has_ids(stored):
        ids = [(f.metadata or {}).get(_FIELD_ID) for f in stored]
        numbers: dict[Any, int] = {
            int(field_id): n for n, field_id in enumerate(ids) if field_id is not None
        }
        return {name: numbers[p.key] for name, p in places.items() if p.key in numbers}
    numbers = {f.name: n for n, f in enumerate(stored)}
    located = {}
    for name, place in places.items():
        there = place.names if by_id else (place.key,)
        at = next((numbers[field_id] for field_id in there if field_id in numbers), None)
        if at is not None:
            located[name] = at
    return located


def _shown(values: Any, place: Place, *, by_id: bool) -> Any:
    """Values under the names that users have; fields without a place are left out."""
    if place.problem:
        raise SchemaError(place.problem)
    if place.fields is not None:
        parts = values.flatten()
        places = _located(values.type, place.fields, by_id=by_id)
        # Fields that are missing are null, which conform makes of them.
        children = [_shown(parts[at], place.fields[n], by_id=by_id) for n, at in places.items()]
        return pa.StructArray.from_arrays(children, names=list(places), mask=values.is_null())
    if place.element is not None:
        lengths = np.asarray(values.value_lengths().fill_null(0))
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
        inner = _shown(values.flatten(), place.element, by_id=by_id)
        return pa.ListArray.from_arrays(offsets, inner, mask=values.is_null())
    if place.is_uuid:
        texts = (None if value is None else _uuid_text(value) for value in values.to_pylist())
        return pa.array(texts, pa.string())
    return values


def _uuid_text(value: uuid.UUID | bytes) -> str:
    return str(value if isinstance(value, uuid.UUID) else uuid.UUID(bytes=value))


# --- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceRows(RowReader):
    """The rows of a source file, in the columns of the source."""

    source_schema: pa.Schema
    columns: SourceColumns
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Values of columns that the file may lack, as scalars of Arrow."""

    @property
    def has_bounds(self) -> bool:
        """Other writers leave NaN out of bounds, and name columns differently."""
        return False

    @cached_property
    def _stored(self) -> RowReader:
        return RowReader(self.store, self.path, self.footer)

    @cached_property
    def _names(self) -> dict[str, str]:
        with self._errors():
            return self.columns.located(self.footer.schema)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that the file has, in the source's types."""
        there = self._names.keys() | self.constants.keys()
        return pa.schema(f for f in self.source_schema if f.name in there)

    def read_rows(self, rows: RowNumbers, columns: Sequence[str]) -> pa.Table:
        """Some rows, in the order given, and some columns."""
        with self._errors():
            names = self._physical(columns)
            lean = self._by_pages(rows, names)
            others = [name for name in names if name not in lean]
            if lean and not others:
                return self._logical(pa.table(lean), columns)
            table = self._stored.read_rows(rows, others)  # without columns, as many rows
            for name, values in lean.items():
                table = table.append_column(name, values)
            return self._logical(table, columns)

    def _by_pages(self, rows: RowNumbers, names: Sequence[str]) -> dict[str, Any]:
        """Those of some columns whose values are read from the pages of these rows alone."""
        if not len(rows) or not names:
            return {}
        order = np.argsort(rows, kind="stable")
        ordered, starts = rows[order], self.footer.group_starts
        groups = np.searchsorted(starts, ordered, side="right") - 1
        needed, firsts = np.unique(groups, return_index=True)
        if len(rows) * _FEW_ROWS > (starts[needed + 1] - starts[needed]).sum():
            return {}
        by_group = dict(zip(needed.tolist(), np.split(ordered, firsts[1:]), strict=True))
        back = pa.array(np.argsort(order, kind="stable"))
        columns = {}
        local = self.store.local_path(self.path)
        if local is None:
            for name, parts in self._remote_parts(by_group, names):
                columns[name] = pa.concat_arrays(parts).take(back)
            return columns
        # What is wrong with a column is said by reading it whole.
        with suppress(OSError), local.open("rb", buffering=0) as file:

            def read(start: int, end: int) -> bytes:
                file.seek(start)
                return file.read(end - start)

            for name in names:
                with suppress(pa.ArrowException, ValueError):
                    parts = self._lean_parts(name, by_group, read)
                    if parts:
                        columns[name] = pa.concat_arrays(parts).take(back)
        return columns

    def _lean_parts(self, name: str, rows: Mapping[int, RowNumbers], read: ReadRange) -> list[Any]:
        """The values of a column by groups; none if it has to be read whole."""
        assert isinstance(self.footer, ForeignFooter)
        data_type = self.footer.schema.field(name).type
        parts = []
        for chunk in self.footer.chunks(list(rows), [name]):
            column = self.footer.parquet.schema.column(chunk.leaf)
            if not can_be_read_by_page(column, chunk.parquet, data_type):
                return []
            record = self.footer.pages_of(chunk, read)
            if record is None:
                return []
            places = rows[chunk.group] - self.footer.group_starts[chunk.group]
            parts.append(read_lean(read, record, chunk.parquet, data_type, places))
        return parts

    def _remote_parts(
        self, rows: Mapping[int, RowNumbers], names: Sequence[str]
    ) -> Iterator[tuple[str, list[Any]]]:
        """The values of columns by groups; two requests for all that are not read whole."""
        footer, starts = self.footer, self.footer.group_starts
        assert isinstance(footer, ForeignFooter)
        kinds = {name: footer.schema.field(name).type for name in names}
        chunks: dict[str, list[Chunk]] = {}
        for name in names:
            column_chunks = footer.chunks(list(rows), [name])
            column = footer.parquet.schema.column(column_chunks[0].leaf)
            large = all(chunk.end - chunk.start > _SMALL_REMOTE_CHUNK for chunk in column_chunks)
            if large and all(
                can_be_read_by_page(column, chunk.parquet, kinds[name]) for chunk in column_chunks
            ):
                chunks[name] = column_chunks
        every = [chunk for column_chunks in chunks.values() for chunk in column_chunks]
        footer.read_indexes(every, lambda ranges: self.store.get_ranges(self.path, ranges))
        pages_of: dict[str, list[tuple[int, int]]] = {}
        for name, column_chunks in chunks.items():
            records = [footer.indexed_pages(chunk) for chunk in column_chunks]
            pages = [
                page
                for chunk, record in zip(column_chunks, records, strict=True)
                if record is not None
                for page in pages_with(record, rows[chunk.group] - starts[chunk.group])
            ]
            total_bytes = sum(chunk.end - chunk.start for chunk in column_chunks)
            if None not in records and 2 * sum(end - start for start, end in pages) < total_bytes:
                pages_of[name] = pages
        ranges = [page for pages in pages_of.values() for page in pages]
        blocks = dict(zip(ranges, self.store.get_ranges(self.path, ranges), strict=True))
        for name in pages_of:
            parts = []
            with suppress(pa.ArrowException, ValueError, KeyError):
                for chunk in chunks[name]:
                    record = footer.indexed_pages(chunk)
                    assert record is not None
                    rows_of_chunk = rows[chunk.group] - starts[chunk.group]
                    read: ReadRange = lambda start, end: blocks[start, end]  # noqa: E731
                    parts.append(read_lean(read, record, chunk.parquet, kinds[name], rows_of_chunk))
                yield name, parts

    def read_groups(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Whole row groups."""
        with self._errors():
            names = self._physical(columns)
            if names or not columns:
                return self._logical(self._stored.read_groups(groups, names), columns)
            starts = self.footer.group_starts
            count = sum(int(starts[group + 1] - starts[group]) for group in groups)
            return self._logical(without_columns(count), columns)

    def group_sizes(self, columns: Sequence[str]) -> RowNumbers:
        """What the columns of each row group take in memory."""
        return self._stored.group_sizes(self._physical(columns))

    def _physical(self, columns: Sequence[str]) -> list[str]:
        return [self._names[name] for name in columns if name in self._names]

    def _logical(self, table: pa.Table, columns: Sequence[str]) -> pa.Table:
        if not columns:
            return table
        columns_by_name = {}
        old_times = instants(self.footer)
        for name in columns:
            stored = self._names.get(name)
            if stored is None:
                columns_by_name[name] = pa.repeat(self.constants[name], table.num_rows)
                continue
            column: Any = self.columns.logical(name, table.column(stored))
            if stored in old_times:
                column = column.cast(TIMESTAMP)
            columns_by_name[name] = column
        target = pa.schema(self.source_schema.field(n).with_nullable(True) for n in columns)
        return conform(pa.table(columns_by_name), target)

    @property
    def is_plain(self) -> bool:
        """Whether other readers of Parquet read the same: own names and types, nothing nested."""
        assert isinstance(self.footer, ForeignFooter)
        if self.columns.places or self.constants or not self.footer.is_common:
            return False
        stored = self.footer.schema
        spelled = {name.lower(): name for name in stored.names}
        return all(
            name == column.name and _as_stored(stored.field(name).type) == column.type
            for column in self.source_schema
            if (name := spelled.get(column.name.lower())) is not None
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        shown = f"{self.store.uri}/{self.path}"
        try:
            yield
        except ObjectNotFoundError:
            raise SourceRowsError(shown, "it is missing, although the source names it") from None
        except DamagedSplitError as error:
            raise SourceRowsError(shown, error.reason) from None
        except SchemaError as error:
            raise UnsupportedSourceError(shown, " ".join(str(error).split())) from None


def _as_stored(data_type: Any) -> Any:
    """The type of a column as Parquet has it; Arrow has several for one. None if it is nested."""
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if pa.types.is_large_string(data_type):
        return pa.string()
    if pa.types.is_large_binary(data_type):
        return pa.binary()
    return None if pa.types.is_nested(data_type) else data_type


class RowsFile(Protocol):
    """Something that has the rows of a split."""

    def open(self) -> RowReader:
        """The rows."""
        ...


@dataclass(frozen=True)
class SourceRowsFile:
    """How to open the rows of one source file."""

    store: Store
    path: str
    size: int
    stamp: str
    schema: pa.Schema
    columns: SourceColumns
    constants: Mapping[str, Any] = field(default_factory=dict)
    footers: FooterCache | None = field(default=None, compare=False)

    def open(self) -> SourceRows:
        """The rows; the footer of the file may be known already."""
        if self.footers is None:
            footer = read_parquet_footer(self.store, self.path, self.size)
        else:
            key = (self.store.identity, self.path, self.size, self.stamp)
            footer = self.footers.get(
                key, lambda: read_parquet_footer(self.store, self.path, self.size)
            )
        return SourceRows(self.store, self.path, footer, self.schema, self.columns, self.constants)


def of_as_many_rows(rows: SourceRows, count: int) -> SourceRows:
    """The rows of a file, if it has as many as when it was indexed.

    Raises:
        SourceRowsError: It has more or fewer.
    """
    if rows.num_rows != count:
        raise SourceRowsError(
            f"{rows.store.uri}/{rows.path}",
            f"it has {rows.num_rows:,} rows and had {count:,} when it was indexed",
        )
    return rows


@dataclass(frozen=True)
class JoinedFiles:
    """How to open the rows of several source files that one split covers, in their order."""

    files: tuple[SourceRowsFile | None, ...]
    """None for a file that left the source: its rows are dead, and null where they are read."""
    counts: tuple[int, ...]
    """How many rows each file had when it was indexed."""
    schema: pa.Schema
    """The columns that files can have; those of partitions are not among them."""

    def open(self) -> JoinedRows:
        """The rows; a file is opened when rows of it are read."""
        any_file = next(file for file in self.files if file is not None)  # they are in one place
        footer: Any = _JoinedFooter(self)
        return JoinedRows(any_file.store, any_file.path, footer, self)

    def reader(self, number: int) -> SourceRows | None:
        """The rows of one of the files."""
        file = self.files[number]
        return None if file is None else of_as_many_rows(file.open(), self.counts[number])

    @cached_property
    def starts(self) -> RowNumbers:
        """At which row each file begins, and the number of all rows."""
        return np.concatenate(([0], np.cumsum(self.counts))).astype(np.int64)


@dataclass(frozen=True)
class _JoinedFooter:
    """As much of a footer as readers of rows ask for."""

    joined: JoinedFiles

    @cached_property
    def groups(self) -> list[RowNumbers]:
        """The first rows of the groups of each file, and its number of rows."""

        def starts(number: int) -> RowNumbers:
            reader = self.joined.reader(number)
            if reader is None:
                return np.array([0, self.joined.counts[number]], np.int64)
            return reader.footer.group_starts

        return side_by_side(starts, range(len(self.joined.counts)))

    @cached_property
    def group_starts(self) -> RowNumbers:
        """The same of all files together."""
        firsts = [
            starts[:-1] + at for starts, at in zip(self.groups, self.joined.starts, strict=False)
        ]
        return np.concatenate([*firsts, self.joined.starts[-1:]])


def _columns_of(reader: SourceRows | None, columns: Sequence[str]) -> list[str]:
    """The columns that a file has; none if it is not read."""
    return [] if reader is None else [c for c in columns if c in reader.schema.names]


@dataclass(frozen=True)
class JoinedRows(RowReader):
    """The rows of several source files, one after the other."""

    joined: JoinedFiles

    @property
    def has_bounds(self) -> bool:
        """As those of each file."""
        return False

    @property
    def schema(self) -> pa.Schema:
        """The columns that files can have; a file without one has nulls."""
        return self.joined.schema

    @property
    def num_rows(self) -> int:
        """How many rows there are, of files that left too."""
        return sum(self.joined.counts)

    def read_rows(self, rows: RowNumbers, columns: Sequence[str]) -> pa.Table:
        """Some rows, in the order given, and some columns."""
        if not len(rows) or not columns:
            return self._empty(columns) if columns else without_columns(len(rows))
        starts, order = self.joined.starts, np.argsort(rows, kind="stable")

        def read(share: tuple[int, RowNumbers]) -> pa.Table:
            number, rows_of_file = share
            reader = self.joined.reader(number)
            in_file = _columns_of(reader, columns)
            table = without_columns(len(rows_of_file))
            if reader is not None and in_file:
                table = reader.read_rows(rows_of_file - starts[number], in_file)
            return self._filled(table, in_file, columns)

        table = pa.concat_tables(side_by_side(read, self._shares(rows[order])))
        return table.take(np.argsort(order, kind="stable"))

    def row_ranges(
        self, rows: RowNumbers, columns: Sequence[str], rows_at_once: int
    ) -> list[tuple[RowNumbers, int]]:
        """Rows in ascending order in runs that fit in memory, each with its size there."""
        runs: list[tuple[RowNumbers, int]] = []
        for number, rows_of_file in self._shares(rows):
            reader, first = self.joined.reader(number), self.joined.starts[number]
            in_file = _columns_of(reader, columns)
            pieces = [(rows_of_file - first, 0)]
            if reader is not None:
                pieces = reader.row_ranges(rows_of_file - first, in_file, rows_at_once)
            for piece, size in pieces:
                before, bytes_before = runs[-1] if runs else (piece[:0], 0)
                few = len(before) + len(piece) <= rows_at_once
                if runs and few and bytes_before + size <= BYTES_AT_ONCE:
                    runs[-1] = np.concatenate((before, piece + first)), bytes_before + size
                else:
                    runs.append((piece + first, size))
        return runs

    def _shares(self, rows: RowNumbers) -> list[tuple[int, RowNumbers]]:
        """The numbers of files with rows among these, which are in ascending order."""
        places = np.searchsorted(self.joined.starts, rows, side="right") - 1
        needed, firsts = np.unique(places, return_index=True)
        return (
            list(zip(needed.tolist(), np.split(rows, firsts[1:]), strict=True)) if len(rows) else []
        )

    def read_groups(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Whole row groups."""
        parts = [self._empty(columns)]
        bounds = np.cumsum([len(starts) - 1 for starts in self._footer.groups])
        chosen = np.asarray(list(groups), np.int64)
        places = np.searchsorted(bounds, chosen, side="right")
        for number in dict.fromkeys(places.tolist()):
            groups_of_file = chosen[places == number] - (bounds[number - 1] if number else 0)
            starts, reader = self._footer.groups[number], self.joined.reader(number)
            in_file = _columns_of(reader, columns)
            if reader is not None and in_file:
                table = reader.read_groups(groups_of_file.tolist(), in_file)
            else:
                table = without_columns(
                    int((starts[groups_of_file + 1] - starts[groups_of_file]).sum())
                )
            parts.append(self._filled(table, in_file, columns))
        return pa.concat_tables(parts)

    def group_sizes(self, columns: Sequence[str]) -> RowNumbers:
        """What the columns of each row group take in memory."""
        sizes = []
        for number, starts in enumerate(self._footer.groups):
            reader = self.joined.reader(number)
            none = np.zeros(len(starts) - 1, np.int64)
            in_file = _columns_of(reader, columns)
            sizes.append(none if reader is None or not in_file else reader.group_sizes(in_file))
        return np.concatenate(sizes)

    def _filled(self, table: pa.Table, in_file: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """The columns that were read, and nulls for others, as all files have them."""
        target = pa.schema(self.schema.field(name).with_nullable(True) for name in columns)
        arrays = [
            table[f.name] if f.name in in_file else nulls(table.num_rows, f.type) for f in target
        ]
        return pa.table(arrays, schema=target) if columns else table

    @property
    def _footer(self) -> _JoinedFooter:
        footer: Any = self.footer
        return footer  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SourceSplit(SplitFile):
    """A split of a search index: the index of source files, which have the rows."""

    source: RowsFile | None = None

    @cached_property
    def rows(self) -> RowReader:
        """The rows of the source files."""
        assert self.source is not None
        rows = self.source.open()
        return of_as_many_rows(rows, self.info.rows) if isinstance(rows, SourceRows) else rows


@dataclass(frozen=True)
class UnindexedSplit(SourceSplit):
    """A source file that no split covers, as one without an index."""

    mapping: TableMapping = field(default_factory=lambda: TableMapping(()))
    partition: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def has_index(self) -> bool:
        """There is none: the rows are searched."""
        return False

    @cached_property
    def rows(self) -> RowReader:
        """The rows of the source file."""
        assert self.source is not None
        return self.source.open()

    @cached_property
    def info(self) -> SplitInfo:
        """What a split of this file would say, its mapping without fields of an index."""
        unpacked = self.rows.footer.info.uncompressed_size
        return description(self.rows.num_rows, self.mapping, self.partition, unpacked)

    def prepare_search(self, cache: DiskCache) -> None:
        """There is nothing to read ahead."""
