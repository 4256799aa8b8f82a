"""A table of another format as a search index sees it: its columns and its Parquet files.

A snapshot names every file that has rows now, and nothing else: whatever an index holds, only these
files are read. `stamp` distinguishes two files that had one path at different times. Rows of a file
are numbered from 0 in the order of the file, deleted ones included.

`ParquetFolder` is the plainest source: all Parquet files below a folder, with Hive's partition
folders (`day=2024-01-01`), whose values are text.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
from cachetools import LRUCache

from indextables.errors import (
    SchemaError,
    SearchIndexError,
    SourceMissingError,
    SourceRowsError,
    UnsupportedSourceError,
)
from indextables.lake.pages import parquet_columns, read_parquet_footer
from indextables.lake.rows import SourceColumns, SourceRowsFile
from indextables.schema import evolve, normalize, refuse_hidden
from indextables.split.open_split import FooterCache
from indextables.split.row_numbers import RowNumbers
from indextables.split.write.partitioning import NULL_FOLDER
from indextables.storage import ObjectMeta, Store, open_store

_SUFFIXES = (".parquet", ".parq", ".pq")


@dataclass(frozen=True, slots=True, eq=False)
class SourceFile:
    """A Parquet file of a source."""

    path: str
    """Relative to the source; its characters are literal."""
    size: int
    stamp: str
    rows: int | None = None
    """How many rows the file has, deleted ones included, if the source says so."""
    partition: Mapping[str, str | None] = field(default_factory=dict)
    dead: RowNumbers | None = None
    """The numbers of deleted rows."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Values of columns that the file may lack, as scalars of Arrow."""
    outside: tuple[Store, str] | None = None
    """Where the file is, if it is not in the folder of the source."""

    @property
    def identity(self) -> tuple[str, int, str]:
        """What an index remembers a file by."""
        return (self.path, self.size, self.stamp)


@dataclass(frozen=True, slots=True, eq=False)
class SourceSnapshot:
    """A source at one moment."""

    store: Store
    version: str
    """What this moment is called: a version, or how many files there are."""
    schema: pa.Schema
    """The columns that users see, partition columns included."""
    partition_columns: tuple[str, ...]
    columns: SourceColumns
    """Where those columns are in the Parquet files."""
    files: tuple[SourceFile, ...]
    number: int | None = None
    """The version, of a source that has versions."""
    replaces_files: bool = False
    """Whether a file may be replaced by another one under its name."""

    def fingerprint(self, names: Iterable[str]) -> str:
        """Equal as long as these columns of a file hold the same values.

        A column that was dropped and added again has the old name and none of the old values.
        """
        stored = [n for n in names if n in self.schema.names and n not in self.partition_columns]
        parts = [f"{n}\0{self.columns.place(n)}\0{self.schema.field(n).type}" for n in stored]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def rows_of(self, file: SourceFile, footers: FooterCache | None = None) -> SourceRowsFile:
        """The rows of a file, in the columns of this snapshot."""
        store, path = file.outside or (self.store, file.path)
        return SourceRowsFile(
            store, path, file.size, file.stamp, self.stored, self.columns, file.constants, footers
        )

    @property
    def stored(self) -> pa.Schema:
        """The columns whose values are in files. One of a partition may be there too: it is not
        read, as its value is that of the partition.
        """
        return pa.schema(f for f in self.schema if f.name not in self.partition_columns)


class Source(Protocol):
    """Something that has snapshots."""

    uri: str
    format: str

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
        known_schema: pa.Schema | None = None,
        is_known: Callable[[SourceFile], bool] = lambda _file: False,
    ) -> SourceSnapshot:
        """The source now, at a version, or as it was at a time.

        A source without a schema of its own derives it from its files; `known_schema` is that of
        the files that `is_known` names.
        """
        ...


@dataclass
class ParquetFolder:
    """All Parquet files below a folder."""

    store: Store

    format = "parquet"

    def __post_init__(self) -> None:
        self.uri = self.store.uri
        self._schemas: LRUCache[tuple[str, int, str], pa.Schema] = LRUCache(10_000)
        self._lock = threading.Lock()

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
        known_schema: pa.Schema | None = None,
        is_known: Callable[[SourceFile], bool] = lambda _file: False,
    ) -> SourceSnapshot:
        """The files that are there now; a folder has no versions."""
        if version is not None or timestamp_ms is not None:
            raise SearchIndexError(
                self.uri, "its source is a folder of Parquet files, which has no versions"
            )
        files = self._files()
        if not files:
            raise SourceMissingError(self.uri, "Parquet")
        partition_columns = tuple(files[0].partition)
        for file in files:
            if tuple(file.partition) != partition_columns:
                raise UnsupportedSourceError(
                    self.uri,
                    f"'{files[0].path}' and '{file.path}' are in different partition folders",
                )
        schema = self._schema(files, known_schema, is_known)
        texts = [pa.field(name, pa.string()) for name in partition_columns]
        stored = [f for f in schema if f.name not in partition_columns]
        if not stored:
            raise UnsupportedSourceError(self.uri, "its files have no columns")
        refuse_hidden(partition_columns)
        spelled = {f.name.lower(): f.name for f in stored}
        for name in partition_columns:
            if clash := spelled.get(name.lower()):
                raise UnsupportedSourceError(
                    self.uri, f"its folders '{name}=…' and its column '{clash}' differ in case"
                )
        return SourceSnapshot(
            self.store,
            f"{len(files):,} files",
            pa.schema([*stored, *texts]),
            partition_columns,
            SourceColumns(),
            files,
            replaces_files=True,
        )

    def _files(self) -> tuple[SourceFile, ...]:
        data_files = (meta for meta in self.store.list() if _is_data(meta.path))
        return tuple(_file(meta) for meta in data_files)

    def _schema(
        self,
        files: Sequence[SourceFile],
        known_schema: pa.Schema | None,
        is_known: Callable[[SourceFile], bool],
    ) -> pa.Schema:
        new = [file for file in files if known_schema is None or not is_known(file)]
        try:
            return self._evolved(known_schema, new)
        except SchemaError:
            if known_schema is None:
                raise
        # The files that the known schema came from may have left.
        return self._evolved(None, files)

    def _evolved(self, schema: pa.Schema | None, files: Iterable[SourceFile]) -> pa.Schema:
        damaged: SourceRowsError | None = None
        for file in files:
            try:
                file_schema = self._schema_of(file)
            except SourceRowsError as error:
                damaged = error  # raised again where its rows are read
                continue
            schema = file_schema if schema is None else evolve(schema, file_schema)
        if schema is None:
            raise damaged or SourceMissingError(self.uri, "Parquet")
        refuse_hidden(schema.names)
        return schema

    def _schema_of(self, file: SourceFile) -> pa.Schema:
        with self._lock:
            schema = self._schemas.get(file.identity)
        if schema is None:
            footer = read_parquet_footer(self.store, file.path, file.size)
            try:
                schema = normalize(parquet_columns(footer))
            except SchemaError as error:
                raise SchemaError(f"'{file.path}' of '{self.uri}': {error}") from None
            # Where a file has a column that its folder names as well, the folder counts.
            schema = pa.schema(
                [f.with_nullable(True) for f in schema if f.name not in file.partition]
            )
            with self._lock:
                self._schemas[file.identity] = schema
        return schema


def first_snapshot(source: Source) -> SourceSnapshot:
    """The newest snapshot of a source that was not used before.

    Raises:
        SourceMissingError: It is not there; Parquet files at its place are pointed out.
    """
    if source.format != "iceberg" and Path(source.uri).is_file():
        raise SourceMissingError(source.uri, source.format.capitalize(), is_file=True)
    try:
        return source.snapshot()
    except SourceMissingError as error:
        raise SourceMissingError(
            error.uri, error.source_format, is_new=True, has_parquet=_has_parquet(source)
        ) from None


def _has_parquet(source: Source) -> bool:
    if source.format == "parquet" or "://" in source.uri.removeprefix("file://"):
        return False  # listing a bucket may take long, and may be forbidden
    return any(_is_data(meta.path) for meta in open_store(source.uri).list())


def _is_data(path: str) -> bool:
    """Whether an object is a file of rows; names that begin with _ or . are not, as in Spark."""
    hidden = any(part.startswith(("_", ".")) and "=" not in part for part in path.split("/"))
    return not hidden and path.lower().endswith(_SUFFIXES)


def _file(meta: ObjectMeta) -> SourceFile:
    folders = [part.partition("=") for part in meta.path.split("/")[:-1] if "=" in part]
    partition = {
        unquote(name): None if value == NULL_FOLDER else unquote(value)
        for name, _, value in folders
    }
    return SourceFile(
        meta.path, meta.size, f"{meta.modified_ms}-{meta.etag or ''}", partition=partition
    )
