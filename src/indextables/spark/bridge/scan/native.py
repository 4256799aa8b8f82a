"""Reading splits with Spark's own Parquet reader, where no index helps.

A split is a Parquet file. A scan that needs no search, and whose conditions no index narrows, is
faster in Spark's vectorised reader than in Python. Spark is given the list of files with their
sizes: it lists nothing, and a file that is missing fails the query instead of being passed over.

Spark's reader is set to verify the checksums of page bodies. It verifies no footer and no page
header, so the driver does before the scan: once for every file, as long as its size, its inode and
its times stay the same.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType

from indextables import config as keys
from indextables.log.files import vectors_by_path
from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import ColumnNames, names_of
from indextables.plan.execute import Environment
from indextables.plan.scan import SplitTask
from indextables.plan.view import TableView
from indextables.predicate import And, Compare, In, Or, Predicate, Search, searches
from indextables.runner import LocalRunner
from indextables.schema import to_json
from indextables.schema.conformity import EXISTS_DEFAULT, default_texts
from indextables.spark.bridge.jvm.handles import PYTHON_UTILS, JavaObject, Jvm
from indextables.split.mapping import TableMapping
from indextables.split.open_split import SplitFile
from indextables.split.write.partitioning import NULL_FOLDER
from indextables.storage.local import LocalStore

_REBASE, _CORRECTED = "spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED"
_MOST_INDEXES = 32
_MOST_CHECKED = 100_000
_WITHOUT_THREADS = 4
"""Most files were checked before, which takes less than to start a thread."""
_BLOCK = 128 << 20
_OPTIONS = {
    "parquet.page.verify-checksum.enabled": "true",
    # A column has few pages in a row group. Looking at their dictionaries and page indexes after
    # their bounds takes up to half as long as the scan itself, and seldom leaves anything out.
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.columnindex.enabled": "false",
    # A split counts days as Arrow does, whatever the session says of files of unknown origin.
    "datetimeRebaseMode": _CORRECTED,
}


def is_worth_an_index(predicate: Predicate, mapping: TableMapping) -> bool:
    """Whether the index of a split narrows down a predicate's rows."""
    if searches(predicate):
        return True

    def helps(node: Predicate) -> bool:
        match node:
            case And(children=children):
                return any(map(helps, children))
            case Or(children=children):
                return all(map(helps, children))
            case Compare(op="=", column=column, value=str()) | In(column=column):
                field = mapping.by_name.get(column.root)
                return field is not None and field.kind in ("text", "string") and bool(field.field)
            case Search():
                return True
            case _:
                return False

    return helps(predicate)


@dataclass(frozen=True)
class NativeScans:
    """Makes native scans of one snapshot."""

    java: Jvm
    root: str
    snapshot: Snapshot
    source_files: Mapping[str, Sequence[Any]] | None = None
    """The files that have the rows of the splits of a search index, by the splits' paths."""

    @classmethod
    def of(cls, java: Jvm, view: TableView, files: pa.Table) -> NativeScans | None:
        """Native scans of these files of a table; None where Spark could not read them as we do.

        A scan is Spark's or that of Python tasks as a whole: it has one reader for all its files.
        """
        store, snapshot = view.store, view.snapshot
        if not view.config[keys.NATIVE_SCAN] or not isinstance(store, LocalStore):
            return None
        if not all(_is_plain(snapshot.schema.field(n).type) for n in snapshot.partition_columns):
            return None
        if snapshot.partition_columns and _has_empty_values(snapshot):
            return None
        defaults = default_texts(snapshot.schema)
        if any(pa.types.is_binary(snapshot.schema.field(name).type) for name in defaults):
            return None  # Spark's reader has no such default
        if vectors_by_path(files):
            return None  # Spark's reader would return rows that are deleted
        conf = java.conf
        if conf.ignoreMissingFiles() or conf.ignoreCorruptFiles():
            return None  # meant for other sources; a split is never passed over
        if view.elsewhere is None:
            return cls(java, store.uri, snapshot)
        environment: Any = Environment.of(view)
        root = environment.source.store
        # Files that others wrote: Spark reads old dates and times by a rule of the session.
        if (
            not isinstance(root, LocalStore)
            or conf.getConfString(_REBASE, _CORRECTED) != _CORRECTED
        ):
            return None
        files_of = environment.plain_files(map(str, files["path"].to_pylist()))
        if files_of is None or not all(
            _in_own_folder(file, snapshot.partition_columns)
            for of_folder in files_of.values()
            for file in of_folder
        ):
            return None
        return cls(java, root.uri, snapshot, files_of)

    def in_reading_order(self, schema: JavaObject, columns: Sequence[str]) -> JavaObject:
        """The columns as Spark's reader returns them: those that are folders come last."""
        folders, names = self.snapshot.partition_columns, list(columns)
        reordered = [n for n in names if n not in folders] + [n for n in folders if n in names]
        if reordered == names:
            return schema
        attributes = self.java.schema_of(schema).fields
        ordered = [attributes[names.index(name)] for name in reordered]
        return self.java.struct_type(StructType(ordered))

    def scan(
        self,
        tasks: Sequence[SplitTask],
        schema: JavaObject,
        columns: Sequence[str],
        filters: JavaObject | None,
    ) -> JavaObject:
        """Spark's scan of the files of these tasks; filters skip parts of them."""
        java, snapshot, names = self.java, self.snapshot, names_of(self.snapshot)
        defaults = default_texts(snapshot.schema)
        if defaults or not names.is_plain:
            # Rows are read by stored names, and count by position after that. Of structs maybe not
            # all fields are read. Files that lack a column have what its metadata says.
            stored_fields = [
                StructField(stored, f.dataType, True, _metadata(defaults.get(stored)))
                for f in java.schema_of(schema).fields
                for stored in (names.stored_name(f.name),)
            ]
            schema = java.struct_type(StructType(stored_fields))
        tasks = list(tasks)
        if self.source_files is None:
            self._check(tasks, columns)
        full = java.struct_type(to_json(snapshot.schema))
        stored = [f for f in snapshot.schema if f.name not in snapshot.partition_columns]
        builder = java.find(
            "org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScanBuilder"
        )(
            java.session,
            self._index(tasks, full),
            full,
            java.struct_type(to_json(pa.schema(stored))),
            _options(java),
        )
        if filters is not None:
            builder.pushFilters(filters)
        builder.pruneColumns(schema)
        return builder.build()

    def _check(self, tasks: Sequence[SplitTask], columns: Sequence[str]) -> None:
        folders = self.snapshot.partition_columns
        stored = tuple(name for name in columns if name not in folders)

        def check(task: SplitTask) -> None:
            assert task.vector is None, f"{task.path} has rows that are deleted"
            try:
                state = Path(self.root, task.path).stat()
            except OSError:
                return  # Spark's reader names the file that it cannot open
            version = (state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
            identity = (task.path, task.size, task.footer_start, task.footer_end)
            _check_split(self.root, identity, stored, version)

        if len(tasks) > _WITHOUT_THREADS:
            LocalRunner(os.cpu_count() or 1).map(check, tasks)
            return
        for task in tasks:
            check(task)

    def _index(self, tasks: Sequence[SplitTask], schema: JavaObject) -> JavaObject:
        """Spark's list of the files. The same files are listed once, for a few queries at least."""
        files = tuple(self._files(tasks))
        key = (self.root, self.snapshot.metadata.id, self.snapshot.metadata.schema_string, files)
        indexes = self.java.indexes
        if key in indexes:
            indexes.move_to_end(key)
            return indexes[key][0]
        indexed = file_index(self.java, files, schema, {"basePath": f"file:{self.root}"})
        indexes[key] = indexed
        while len(indexes) > _MOST_INDEXES:
            _, (_, cache) = indexes.popitem(last=False)
            cache.invalidateAll()
        return indexed[0]

    def _files(self, tasks: Sequence[SplitTask]) -> Iterator[ListedFile]:
        for task in tasks:
            if self.source_files is None:
                yield ListedFile(f"file:{self.root}/{task.path}", task.size)
                continue
            for file in self.source_files[task.path]:
                yield ListedFile(f"file:{self.root}/{file.path}", file.size)


@functools.lru_cache(maxsize=16)
def _options(java: Jvm) -> JavaObject:
    return java.find("org.apache.spark.sql.util.CaseInsensitiveStringMap")(java.hash_map(_OPTIONS))


def _metadata(default: str | None) -> dict[str, str] | None:
    """The metadata of a field whose files may lack it."""
    return None if default is None else {EXISTS_DEFAULT: default}


@functools.lru_cache(maxsize=_MOST_CHECKED)
def _check_split(
    root: str,
    place: tuple[str, int, int | None, int | None],
    columns: Sequence[str],
    version: object,  # noqa: ARG001 - a file that changed is another key
) -> None:
    """Check the footer and the page headers of one file."""
    rows = SplitFile(LocalStore(root), *place).rows
    rows.check_pages([name for name in columns if name in rows.schema.names])


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file for Spark to read: its path as Hadoop spells it, with nothing encoded."""

    path: str
    size: int
    modified: int = 0
    """In milliseconds."""


def file_index(
    java: Jvm, files: Sequence[ListedFile], schema: JavaObject, options: dict[str, str]
) -> tuple[JavaObject, JavaObject]:
    """Spark's list of exactly these files, and the cache that has to live as long as it."""
    path_of = java.find("org.apache.hadoop.fs.Path")
    status_of = java.find("org.apache.hadoop.fs.FileStatus")
    cache = java.module("org.apache.spark.sql.execution.datasources.FileStatusCache").getOrCreate(
        java.session
    )
    paths = []
    for file in files:
        path = path_of(file.path)
        status = status_of(file.size, False, 1, _BLOCK, file.modified, path)
        cache.putLeafFiles(path, java.array("org.apache.hadoop.fs.FileStatus", [status]))
        paths.append(path)
    scala_options: Any = java.find(PYTHON_UTILS).toScalaMap(options)
    index = java.find("org.apache.spark.sql.execution.datasources.InMemoryFileIndex")(
        java.session, java.seq(paths), scala_options, java.some(schema), cache, java.none, java.none
    )
    return index, cache


def _in_own_folder(file: Any, partition_columns: Sequence[str]) -> bool:
    """Whether Spark reads the partition values of a source file from the names of its folders."""
    folders = [part.partition("=") for part in file.path.split("/")[:-1] if "=" in part]
    values = [None if value == NULL_FOLDER else _unescaped(value) for _, _, value in folders]
    names = tuple(_unescaped(name) for name, _, _ in folders)
    return names == tuple(partition_columns) and values == [file.partition[n] for n in names]


def _unescaped(text: str) -> str:
    return re.sub("%([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), text)


def is_renamed(filter_: JavaObject, names: ColumnNames) -> bool:
    """Whether a filter names a column that is stored by another name; Spark reads stored ones."""
    columns = filter_.references().toSeq()
    shown = (columns.apply(number).name() for number in range(columns.size()))
    return any(names.stored_name(name) != name for name in shown)


def _has_empty_values(snapshot: Snapshot) -> bool:
    """Whether a partition value is the empty text, which Spark reads as null from a folder."""
    chunks: Any = snapshot.entries["partitionValues"].chunks
    empty = pa.scalar("")
    return any(pc.any(pc.equal(chunk.items, empty)).as_py() for chunk in chunks)


def _is_plain(column_type: Any) -> bool:
    """Types whose folder names Spark reads back as the value that we wrote."""
    return bool(
        pa.types.is_string(column_type)
        or column_type in (pa.int32(), pa.int64())
        or pa.types.is_date(column_type)
    )
