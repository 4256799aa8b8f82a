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
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.errors import (
    DamagedSplitError,
    ObjectNotFoundError,
    SchemaError,
    SourceRowsError,
    StorageError,
    UnsupportedSourceError,
)
from indextables.lake.pages import ReadRange, can_be_lean, read_lean
from indextables.schema import TIMESTAMP, conform
from indextables.split.format.container import Chunk, Footer, SplitInfo, Statistics
from indextables.split.format.page_headers import SMALL_CHUNK, PageRecord
from indextables.split.format.rows import RowReader, without_columns
from indextables.split.mapping import TableMapping
from indextables.split.open_split import FooterCache, SplitFile
from indextables.split.row_numbers import RowNumbers
from indextables.storage import Store
from indextables.storage.disk_cache import DiskCache

_MAGIC = b"PAR1"
_FIRST_GUESS = 64 << 10
_FIELD_ID = b"PARQUET:field_id"
_FEW_ROWS = 64
"""If fewer than one row in so many is wanted, pages are read."""


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
        numbers: dict[Any, int] = {int(one): n for n, one in enumerate(ids) if one is not None}
        return {name: numbers[p.key] for name, p in places.items() if p.key in numbers}
    numbers = {f.name: n for n, f in enumerate(stored)}
    found = {}
    for name, place in places.items():
        there = place.names if by_id else (place.key,)
        at = next((numbers[one] for one in there if one in numbers), None)
        if at is not None:
            found[name] = at
    return found


def _shown(values: Any, place: Place, *, by_id: bool) -> Any:
    """Values under the names that users have; fields without a place are left out."""
    if place.problem:
        raise SchemaError(place.problem)
    if place.fields is not None:
        parts = values.flatten()
        found = _located(values.type, place.fields, by_id=by_id)
        # Fields that are missing are null, which conform makes of them.
        children = [_shown(parts[at], place.fields[n], by_id=by_id) for n, at in found.items()]
        return pa.StructArray.from_arrays(children, names=list(found), mask=values.is_null())
    if place.element is not None:
        lengths = np.asarray(values.value_lengths().fill_null(0))
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
        inner = _shown(values.flatten(), place.element, by_id=by_id)
        return pa.ListArray.from_arrays(offsets, inner, mask=values.is_null())
    if place.is_uuid:
        texts = (None if one is None else _uuid_text(one) for one in values.to_pylist())
        return pa.array(texts, pa.string())
    return values


def _uuid_text(value: uuid.UUID | bytes) -> str:
    return str(value if isinstance(value, uuid.UUID) else uuid.UUID(bytes=value))


# --- files ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForeignFooter(Footer):
    """The footer of a Parquet file that is not a split."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the file, as they are read."""
        return _read_types(self.parquet)

    def as_read(self, rows: pa.Table) -> pa.Table:
        """Rows without views, which few functions of Arrow take."""
        for at, column in enumerate(rows.columns):
            if "view" in str(column.type):
                plain = rows.schema.field(at).with_type(_without_views(column.type))
                rows = rows.set_column(at, plain, column.cast(plain.type))
        return rows

    def chunks(self, groups: Sequence[int], columns: Sequence[str]) -> list[Chunk]:
        """The column chunks of columns; a dictionary may be named after the pages, or as 0."""
        found = []
        for chunk in super().chunks(groups, columns):
            start = min(filter(None, (chunk.start, chunk.parquet.data_page_offset)))
            end = start + chunk.parquet.total_compressed_size
            found.append(Chunk(start, end, chunk.parquet, chunk.group, chunk.leaf))
        return sorted(found, key=lambda chunk: chunk.start)

    @cached_property
    def _records(self) -> dict[tuple[int, int], PageRecord | None]:
        return {}

    def pages_of(self, chunk: Chunk, read: ReadRange) -> PageRecord | None:
        """The pages of a chunk, found by walking over their headers once; None if it is small."""
        if chunk.end - chunk.start <= SMALL_CHUNK:
            return None
        key = (chunk.group, chunk.leaf)
        if key not in self._records:
            self._records[key] = PageRecord.of_chunk(
                lambda at, length: read(at, at + length), chunk.start, chunk.end
            )
        return self._records[key]

    def check_pages(self, read: Any, chunks: Sequence[Chunk], *, path: str) -> None:
        """Other writers lay out pages as they like; Parquet's reader judges them."""


def _read_types(parquet: pq.FileMetaData) -> pa.Schema:
    """The types that columns are read in: times of 12 bytes as microseconds."""
    schema = parquet.schema.to_arrow_schema().remove_metadata()
    old = {
        column.path
        for column in (parquet.schema.column(n) for n in range(len(parquet.schema)))
        if column.physical_type == "INT96"
    }
    return pa.schema(
        f.with_type(pa.timestamp("us") if f.name in old else _without_views(f.type)) for f in schema
    )


def _without_views(kind: Any) -> Any:
    """The type with plain texts, bytes and lists, as every function of Arrow takes them."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_dictionary(kind):
        return _without_views(kind.value_type) if "view" in str(kind) else kind
    if types.is_struct(kind):
        return pa.struct([f.with_type(_without_views(f.type)) for f in kind.fields])
    if types.is_map(kind):
        return pa.map_(_without_views(kind.key_type), _without_views(kind.item_type))
    if types.is_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    return kind


def parquet_columns(footer: Footer) -> pa.Schema:
    """The columns of a file that has no other description; without those that hold nulls only."""
    return pa.schema(
        f.with_type(TIMESTAMP) if f.name in _instants(footer) else f
        for f in footer.schema
        if not pa.types.is_null(f.type)
    )


def _instants(footer: Footer) -> set[str]:
    """Columns of 12 bytes: moments in time, to all who write them."""
    schema = footer.parquet.schema
    columns = (schema.column(n) for n in range(len(schema)))
    return {c.path for c in columns if c.physical_type == "INT96"}


def read_parquet_footer(store: Store, path: str, size: int) -> Footer:
    """Open the end of a Parquet file."""
    shown = f"{store.uri}/{path}"
    try:
        start = max(0, size - _FIRST_GUESS)
        tail = store.get_range(path, start, size)
        if tail[-4:] != _MAGIC:
            why = "it is encrypted" if tail[-4:] == b"PARE" else "it is not a Parquet file"
            raise SourceRowsError(shown, why)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length > size:
            raise SourceRowsError(shown, "its footer is longer than the file")
        if length > len(tail):
            tail = store.get_range(path, size - length, size)
        parquet = pq.read_metadata(pa.BufferReader(_MAGIC + tail[-length:]))
    except ObjectNotFoundError:
        raise SourceRowsError(shown, "it is missing, although the source names it") from None
    except StorageError as error:
        raise SourceRowsError(
            shown, f"it is not the file that the source names ({error})"
        ) from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, SourceRowsError):
            raise
        raise SourceRowsError(shown, f"its footer is damaged ({error})") from None
    groups = range(parquet.num_row_groups)
    unpacked = sum(parquet.row_group(number).total_byte_size for number in groups)
    info = _description(parquet.num_rows, TableMapping(()), {}, unpacked)
    return ForeignFooter(info, parquet, size - length, size)


def _description(
    rows: int, mapping: TableMapping, partition: Mapping[str, str | None], unpacked: int
) -> SplitInfo:
    return SplitInfo(
        rows=rows,
        mapping=mapping,
        sections=(),
        segments=(),
        partition_values=dict(partition),
        statistics=Statistics(),
        uncompressed_size=unpacked,
    )


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
            rest = [name for name in names if name not in lean]
            if lean and not rest:
                return self._logical(pa.table(lean), columns)
            table = self._stored.read_rows(rows, rest)  # without columns, as many rows
            for name, values in lean.items():
                table = table.append_column(name, values)
            return self._logical(table, columns)

    def _by_pages(self, rows: RowNumbers, names: Sequence[str]) -> dict[str, Any]:
        """Those of some columns whose values are read from the pages of these rows alone."""
        local = self.store.local_path(self.path)
        if local is None or not len(rows) or not names:
            return {}
        order = np.argsort(rows, kind="stable")
        ordered, starts = rows[order], self.footer.group_starts
        groups = np.searchsorted(starts, ordered, side="right") - 1
        needed, firsts = np.unique(groups, return_index=True)
        if len(rows) * _FEW_ROWS > (starts[needed + 1] - starts[needed]).sum():
            return {}
        by_group = dict(zip(needed.tolist(), np.split(ordered, firsts[1:]), strict=True))
        back = pa.array(np.argsort(order, kind="stable"))
        found = {}
        # What is wrong with a column is said by reading it whole.
        with suppress(OSError), local.open("rb", buffering=0) as file:

            def read(start: int, end: int) -> bytes:
                file.seek(start)
                return file.read(end - start)

            for name in names:
                with suppress(pa.ArrowException, ValueError):
                    parts = self._lean_parts(name, by_group, read)
                    if parts:
                        found[name] = pa.concat_arrays(parts).take(back)
        return found

    def _lean_parts(self, name: str, rows: Mapping[int, RowNumbers], read: ReadRange) -> list[Any]:
        """The values of a column by groups; none if it has to be read whole."""
        assert isinstance(self.footer, ForeignFooter)
        kind = self.footer.schema.field(name).type
        parts = []
        for chunk in self.footer.chunks(list(rows), [name]):
            column = self.footer.parquet.schema.column(chunk.leaf)
            if not can_be_lean(column, chunk.parquet, kind):
                return []
            record = self.footer.pages_of(chunk, read)
            if record is None:
                return []
            wanted = rows[chunk.group] - self.footer.group_starts[chunk.group]
            parts.append(read_lean(read, record, chunk.parquet, kind, wanted))
        return parts

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
        found = {}
        instants = _instants(self.footer)
        for name in columns:
            stored = self._names.get(name)
            if stored is None:
                found[name] = pa.repeat(self.constants[name], table.num_rows)
                continue
            column: Any = self.columns.logical(name, table.column(stored))
            if stored in instants:
                column = column.cast(TIMESTAMP)
            found[name] = column
        wanted = pa.schema(self.source_schema.field(n).with_nullable(True) for n in columns)
        return conform(pa.table(found), wanted)

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


@dataclass(frozen=True)
class SourceSplit(SplitFile):
    """A split of a search index: the index of a source file, which has the rows."""

    source: SourceRowsFile | None = None

    @cached_property
    def rows(self) -> RowReader:
        """The rows of the source file."""
        assert self.source is not None
        rows = self.source.open()
        if rows.num_rows != self.info.rows:
            raise SourceRowsError(
                f"{rows.store.uri}/{rows.path}",
                f"it has {rows.num_rows:,} rows and had {self.info.rows:,} when it was indexed",
            )
        return rows


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
        return _description(self.rows.num_rows, self.mapping, self.partition, unpacked)

    def prepare_search(self, cache: DiskCache) -> None:
        """There is nothing to read ahead."""
