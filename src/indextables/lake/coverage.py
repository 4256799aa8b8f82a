"""What a search index covers of its source, and the table that users see of both.

A split of the index covers one source file, or after a merge several: its tags name the files and
how their columns were found. The view that queries get has the source's columns and one entry for
each split and for each file without one. Rows of a file that left the source are dead in the split
that still has them. So planning, searching and scoring are those of any table; only where rows come
from differs (`LakeEnvironment`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from indextables.config import Config
from indextables.errors import DamagedIndexError, LakeError, SourceRowsError
from indextables.lake.rows import JoinedFiles, SourceRowsFile, SourceSplit, UnindexedSplit
from indextables.lake.source import SourceFile, SourceSnapshot
from indextables.log.actions import Add, Metadata
from indextables.log.files import VECTOR, files_from_adds
from indextables.log.snapshot import Snapshot
from indextables.log.vectors import StoredVector, inline_vector
from indextables.plan.execute import Environment
from indextables.plan.scan import SplitTask
from indextables.plan.view import INTERNAL_PROPERTIES, SEARCH_INDEX_PROPERTY, TableView
from indextables.schema import from_json, to_json
from indextables.split.mapping import (
    MAPPING_PROPERTY,
    WORDS,
    FieldMapping,
    TableMapping,
    natural_kind,
)
from indextables.split.open_split import SplitSearcher
from indextables.split.row_numbers import RowNumbers
from indextables.storage import Store

_PATH, _SIZE, _STAMP, _COLUMNS = "sourcePath", "sourceSize", "sourceStamp", "sourceColumns"
_PARTS = "sourceParts"
UNINDEXED = "source:"
"""Entries of files that no split covers are called so; no split can be."""


@dataclass(frozen=True)
class Definition:
    """What a search index is of, as its metadata keeps it."""

    source: str
    format: str
    columns: tuple[str, ...]
    known_schema: str | None = None
    """The columns of the files that are indexed, of a source that has no schema of its own."""

    def to_json(self) -> str:
        """The property of the index."""
        return orjson.dumps(
            {
                "source": self.source,
                "format": self.format,
                "columns": self.columns,
                "knownSchema": self.known_schema,
            }
        ).decode()

    @classmethod
    def of(cls, metadata: Metadata, *, uri: str) -> Definition:
        """The definition in the metadata of an index."""
        text = metadata.configuration.get(SEARCH_INDEX_PROPERTY)
        if text is None:
            raise LakeError(
                f"'{uri}' is an index table with rows of its own, not a search index. Open it with "
                "indextables.Table.open."
            )
        body = orjson.loads(text)
        return cls(body["source"], body["format"], tuple(body["columns"]), body["knownSchema"])


def index_mapping(metadata: Metadata) -> TableMapping:
    """How the columns of an index are searched."""
    return TableMapping.from_json(metadata.configuration[MAPPING_PROPERTY])


@dataclass(frozen=True, slots=True)
class Part:
    """A source file as the split says that covers it."""

    path: str
    size: int
    stamp: str
    rows: int

    @property
    def identity(self) -> tuple[str, int, str]:
        """What the file of a source has as well."""
        return (self.path, self.size, self.stamp)


def tags_of(file: SourceFile, fingerprint: str) -> dict[str, str]:
    """What the log entry of a split says about the one file that it covers."""
    return {
        _PATH: file.path, _SIZE: str(file.size), _STAMP: file.stamp, _COLUMNS: fingerprint,
    }  # fmt: skip


def tags_of_parts(parts: Sequence[Part], fingerprint: str) -> dict[str, str]:
    """The same of several files, whose rows follow each other."""
    listed = [[part.path, part.size, part.stamp, part.rows] for part in parts]
    return {_PARTS: orjson.dumps(listed).decode(), _COLUMNS: fingerprint}


def parts_of(tags: Mapping[str, str], rows: int | None) -> tuple[Part, ...]:
    """The files that a split covers, by its tags and its number of rows."""
    if _PARTS in tags:
        return _listed(tags[_PARTS])
    size = tags.get(_SIZE, "")
    if not size.isdecimal() or rows is None:
        return ()
    return (Part(tags.get(_PATH, ""), int(size), tags.get(_STAMP, ""), rows),)


@lru_cache(maxsize=4_096)  # every query asks for all of them
def _listed(text: str) -> tuple[Part, ...]:
    return tuple(Part(*fields) for fields in orjson.loads(text))


@dataclass(frozen=True, slots=True)
class CoveredRows:
    """The rows of a split: those of its parts one after the other, None for one that left."""

    parts: tuple[Part, ...]
    files: tuple[SourceFile | None, ...]

    @property
    def live(self) -> list[SourceFile]:
        """The files that are in the source."""
        return [file for file in self.files if file is not None]

    @property
    def total(self) -> int:
        """How many rows the split has, dead ones included."""
        return sum(part.rows for part in self.parts)

    @property
    def rows_of_left_files(self) -> int:
        """How many of its rows are of files that left."""
        pairs = zip(self.parts, self.files, strict=True)
        return sum(part.rows for part, file in pairs if file is None)

    @property
    def dead(self) -> RowNumbers | None:
        """The numbers of rows that are deleted, or whose file left."""
        first, dead = 0, []
        for part, file in zip(self.parts, self.files, strict=True):
            if file is None:
                dead.append(np.arange(first, first + part.rows))
            elif file.dead is not None and len(file.dead):
                dead.append(np.asarray(file.dead, np.int64) + first)
            first += part.rows
        return np.concatenate(dead) if dead else None


@dataclass(frozen=True, eq=False)
class Coverage:
    """Which files of a source snapshot an index covers."""

    index: Snapshot
    source: SourceSnapshot
    fingerprint: str
    splits: Mapping[int, CoveredRows]
    """By the row of the split among the entries of the index."""
    uncovered: tuple[SourceFile, ...]

    @classmethod
    def of(
        cls,
        index: Snapshot,
        source: SourceSnapshot,
        columns: Sequence[str],
        *,
        most_left: float = 1.0,
    ) -> Coverage:
        """Compare an index with its source.

        A split of which a larger share than `most_left` are rows of files that left is not used.
        """
        fingerprint = source.fingerprint(columns)
        waiting = {file.identity: file for file in source.files}
        splits: dict[int, CoveredRows] = {}
        entries = [
            (row, parts)
            for row, (parts, columns_there) in enumerate(_parts_of_splits(index))
            if parts and columns_there == fingerprint
        ]
        # A file can be in two splits, after two writers met: the larger one is used for it.
        for row, parts in sorted(entries, key=lambda entry: -len(entry[1])):
            files = [waiting.get(part.identity) for part in parts]
            partition = next((file.partition for file in files if file is not None), None)
            # All rows of a split have the same partition values.
            fitting = (f if f is not None and f.partition == partition else None for f in files)
            covered = CoveredRows(parts, tuple(fitting))
            if not covered.live or covered.rows_of_left_files > most_left * covered.total:
                continue
            splits[row] = covered
            for file in covered.live:
                del waiting[file.identity]
        uncovered = tuple(file for file in source.files if file.identity in waiting)
        return cls(index, source, fingerprint, splits, uncovered)

    @property
    def covered(self) -> list[SourceFile]:
        """The files that are in splits."""
        return [file for split in self.splits.values() for file in split.live]

    @property
    def unneeded(self) -> list[str]:
        """The splits of files that left the source, or that another split covers as well."""
        paths = map(str, self.index.entries["path"].to_pylist())
        return [path for row, path in enumerate(paths) if row not in self.splits]

    def __str__(self) -> str:
        total = len(self.source.files)
        text = f"{len(self.covered):,} of {total:,} files of {self.source.store.uri} are indexed"
        if not self.uncovered:
            return text
        size = sum(file.size for file in self.uncovered)
        return f"{text}; {len(self.uncovered):,} with {size:,} bytes are searched without an index"


def _parts_of_splits(index: Snapshot) -> Iterator[tuple[tuple[Part, ...], str]]:
    """What each entry of an index says about the files that it covers."""
    entries = index.entries
    for pairs, rows in zip(
        entries["tags"].to_pylist(), entries["numRecords"].to_pylist(), strict=True
    ):
        tags = dict(pairs or ())
        yield parts_of(tags, rows), tags.get(_COLUMNS, "")


def indexed_files(index: Snapshot) -> set[tuple[str, int, str]]:
    """The identities of files that some split covers."""
    return {part.identity for parts, _ in _parts_of_splits(index) for part in parts}


# --- the table that users see --------------------------------------------------------------------


def lake_view(store: Store, coverage: Coverage, settings: Config) -> TableView:
    """The source as a table that the index helps to search."""
    source, index = coverage.source, coverage.index
    mapping = source_mapping(index.metadata, source)
    names = [f"{UNINDEXED}{file.path}" for file in coverage.uncovered]
    shown = {
        name: value
        for name, value in index.metadata.configuration.items()
        if not name.startswith(INTERNAL_PROPERTIES)
    }
    searched = {f.name for f in mapping.fields if f.indexed}
    unread = frozenset(f.name for f in index_mapping(index.metadata).fields) - searched
    metadata = replace(
        index.metadata,
        schema_string=to_json(source.schema),
        partition_columns=source.partition_columns,
        configuration={**shown, MAPPING_PROPERTY: mapping.to_json()},
    )
    snapshot = replace(
        index,
        metadata=metadata,
        base_files=_entries(coverage, names, unread),
        changes={},
        unread=None,
    )
    paths = index.entries["path"]
    splits = {str(paths[row]): covered for row, covered in coverage.splits.items()}
    for name, file in zip(names, coverage.uncovered, strict=True):
        part = Part(*file.identity, file.rows or 0)
        splits[name] = CoveredRows((part,), (file,))
    return TableView(store, snapshot, settings, LakeRows.of(coverage, splits))


def source_mapping(metadata: Metadata, source: SourceSnapshot) -> TableMapping:
    """How the columns of a source are searched by its index.

    Only the columns of the index are searched. A column whose type has changed in kind is not, and
    its place in the index is retired.
    """
    indexed, recorded = index_mapping(metadata).by_name, from_json(metadata.schema_string)
    fields, used = [], set()
    for column in source.schema:
        is_partition = column.name in source.partition_columns
        field_kind = natural_kind(column.type)
        mapped = indexed.get(column.name)
        if mapped is None or natural_kind(recorded.field(column.name).type) != field_kind:
            words = "default" if field_kind in WORDS else ""
            field_ = FieldMapping(column.name, field_kind, indexed=False, tokenizer=words)
        else:
            field_ = replace(mapped, field="" if is_partition else mapped.field)
        fields.append(replace(field_, partition=is_partition))
        used.add(field_.field)
    retired = tuple(f for f in indexed.values() if f.field and f.field not in used)
    return TableMapping(tuple(fields), retired)


def _entries(coverage: Coverage, names: Sequence[str], unread: frozenset[str]) -> pa.Table:
    """The splits that are used and the files without one.

    Columns that are `unread` are null in splits, whatever the source has.
    """
    covered = coverage.index.entries.take(pa.array(list(coverage.splits), pa.int64()))
    adds = [
        Add(path=name, size=file.size, num_records=file.rows)
        for name, file in zip(names, coverage.uncovered, strict=True)
    ]
    table = pa.concat_tables([covered, files_from_adds([(add, 0, 0) for add in adds])])
    files = [*(split.live[0] for split in coverage.splits.values()), *coverage.uncovered]
    dead = [
        *(split.dead for split in coverage.splits.values()),
        *(f.dead if f.dead is not None and len(f.dead) else None for f in coverage.uncovered),
    ]
    columns: dict[str, list[Any]] = {
        "partitionValues": [
            [(n, v) for n, v in file.partition.items() if v is not None] for file in files
        ],
        VECTOR: [
            None if dead_rows is None else orjson.dumps(inline_vector(dead_rows).to_json()).decode()
            for dead_rows in dead
        ],
        "numRecords": [
            rows if rows is None or dead_rows is None else rows - len(dead_rows)
            for rows, dead_rows in zip(table["numRecords"].to_pylist(), dead, strict=True)
        ],
        # Counts of nulls are of all rows; compared with the number of live ones they mislead.
        "stats": [
            _counts_without(text, unread) if dead_rows is None else None
            for text, dead_rows in zip(table["stats"].to_pylist(), dead, strict=True)
        ],
    }
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        column_field = table.schema.field(at)
        table = table.set_column(at, column_field, pa.array(values, column_field.type))
    return table


def _counts_without(text: str | None, unread: frozenset[str]) -> str | None:
    """The statistics of a split without what they say of some columns."""
    if text is None or not unread:
        return text
    counts = orjson.loads(text)
    for values in counts.values():
        if isinstance(values, dict):
            for name in unread & values.keys():
                del values[name]
    return orjson.dumps(counts).decode()


@dataclass(frozen=True, eq=False)
class LakeRows:
    """The files of a source that have the rows of a view's splits. Tasks get it with the view."""

    source: SourceSnapshot
    """Without its files."""
    splits: Mapping[str, CoveredRows]
    """By the paths of the view's entries; which rows are dead is said there."""
    state: str
    summary: str

    @classmethod
    def of(cls, coverage: Coverage, splits: Mapping[str, CoveredRows]) -> LakeRows:
        """The rows of an index and its source."""
        source = coverage.source
        parts = [source.version, source.schema.to_string()]
        parts += [repr((f.identity, f.rows)) for f in source.files]
        return cls(
            replace(source, files=()),
            {path: _without_dead(covered) for path, covered in splits.items()},
            hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16],
            f"{source.version}: {coverage}",
        )

    def __str__(self) -> str:
        return self.summary

    @property
    def uri(self) -> str:
        """Where the source is."""
        return self.source.store.uri

    @property
    def version(self) -> int | None:
        """The version of the source, if it has versions."""
        return self.source.number

    @property
    def unindexed_bytes(self) -> int:
        """The size of files whose rows are searched one by one."""
        return self.bytes_of(path for path in self.splits if path.startswith(UNINDEXED))

    def bytes_of(self, paths: Iterable[str]) -> int:
        """The size of the files that have the rows of these splits."""
        return sum(file.size for path in paths for file in self.splits[path].live)

    def environment(self, plain: Environment) -> LakeEnvironment:
        """What reads the rows of these files."""
        # Files without a split have no index that could be opened with others.
        alone = {path for path in self.splits if path.startswith(UNINDEXED)}
        plain.kept[DamagedIndexError] = alone
        return LakeEnvironment(
            plain.store, plain.pool, plain.context, plain.parallelism, plain.kept,
            self.source, self.splits,
        )  # fmt: skip


@dataclass(frozen=True)
class LakeEnvironment(Environment):
    """Reads splits whose rows are in the files of a source."""

    source: SourceSnapshot = None  # type: ignore[assignment]
    splits: Mapping[str, CoveredRows] = field(default_factory=dict)

    def searcher(self, task: SplitTask) -> SplitSearcher:
        """The split of a task with the rows of its source files."""
        covered = self.splits[task.path]
        rows = self._rows_of(covered)
        split: SourceSplit
        if task.path.startswith(UNINDEXED):
            fields = (replace(f, field="", indexed=False) for f in self.context.mapping.fields)
            split = UnindexedSplit(
                self.store, task.path, task.size, source=rows,
                mapping=TableMapping(tuple(fields)), partition=covered.live[0].partition,
            )  # fmt: skip
        else:
            split = SourceSplit(
                self.store, task.path, task.size, task.footer_start, task.footer_end,
                self.pool.footers, task.opening, source=rows,
            )  # fmt: skip
        vector = None
        if task.vector is not None:
            vector = StoredVector(self.store, task.vector, task.path)
        return SplitSearcher(split, self.pool, self.context, task.partition, vector=vector)

    def plain_files(self, paths: Iterable[str]) -> dict[str, list[SourceFile]] | None:
        """The files of splits, if any reader of Parquet reads their rows as they are read here."""
        chosen = {path: self.splits[path] for path in paths}

        def is_plain(path: str) -> bool:
            for part, file in zip(chosen[path].parts, chosen[path].files, strict=True):
                if file is None or file.outside is not None:
                    return False
                rows = self.source.rows_of(file, self.pool.footers).open()
                is_other = rows.num_rows != part.rows and not path.startswith(UNINDEXED)
                if is_other or not rows.is_plain:
                    return False
            return True

        try:
            is_for_all = all(self.map(is_plain, list(chosen)))
        except SourceRowsError:
            return None  # the reader raises the error
        return {path: covered.live for path, covered in chosen.items()} if is_for_all else None

    def _rows_of(self, covered: CoveredRows) -> SourceRowsFile | JoinedFiles:
        footers = self.pool.footers
        files = [None if f is None else self.source.rows_of(f, footers) for f in covered.files]
        if len(files) == 1 and files[0] is not None:
            return files[0]
        counts = tuple(part.rows for part in covered.parts)
        return JoinedFiles(tuple(files), counts, self.source.stored)


def _without_dead(covered: CoveredRows) -> CoveredRows:
    files = (None if file is None else replace(file, dead=None) for file in covered.files)
    return replace(covered, files=tuple(files))
