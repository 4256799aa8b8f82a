"""What a search index knows of its source, and the table that users see of both.

A split of the index covers one source file: its tags name the file and how its columns were found.
The view that queries get has the source's columns and one entry for each of its files, the covered
ones with their splits. So planning, searching and scoring are those of any table; only where rows
come from differs (`LakeEnvironment`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa

from indextables.config import Config
from indextables.errors import DamagedIndexError, LakeError
from indextables.lake.rows import SourceSplit, UnindexedSplit
from indextables.lake.source import SourceFile, SourceSnapshot
from indextables.log.actions import Add, Metadata
from indextables.log.files import VECTOR, files_from_adds
from indextables.log.snapshot import Snapshot
from indextables.log.vectors import StoredVector, inline_vector
from indextables.plan.execute import Environment
from indextables.plan.tasks import SplitTask
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
from indextables.storage import Store

_PATH, _SIZE, _STAMP, _COLUMNS = "sourcePath", "sourceSize", "sourceStamp", "sourceColumns"
_UNINDEXED = "source:"
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


def tags_of(file: SourceFile, fingerprint: str) -> dict[str, str]:
    """What the log entry of a split says about the file that it covers."""
    return {
        _PATH: file.path, _SIZE: str(file.size), _STAMP: file.stamp, _COLUMNS: fingerprint,
    }  # fmt: skip


def _key(file: SourceFile, fingerprint: str) -> tuple[str, ...]:
    return tuple(tags_of(file, fingerprint).values())


@dataclass(frozen=True, eq=False)
class Coverage:
    """Which files of a source snapshot an index covers."""

    index: Snapshot
    source: SourceSnapshot
    fingerprint: str
    covered: tuple[tuple[SourceFile, int], ...]
    """Files with the row of their split among the entries of the index."""
    uncovered: tuple[SourceFile, ...]

    @classmethod
    def of(cls, index: Snapshot, source: SourceSnapshot, columns: Sequence[str]) -> Coverage:
        """Compare an index with its source."""
        fingerprint = source.fingerprint(columns)
        splits = splits_by_file(index)
        covered, uncovered = [], []
        for file in source.files:
            row = splits.get(_key(file, fingerprint))
            if row is None:
                uncovered.append(file)
            else:
                covered.append((file, row))
        return cls(index, source, fingerprint, tuple(covered), tuple(uncovered))

    @property
    def unneeded(self) -> list[str]:
        """The splits of files that left the source, or that another split covers as well."""
        used = {row for _, row in self.covered}
        paths = map(str, self.index.entries["path"].to_pylist())
        return [path for row, path in enumerate(paths) if row not in used]

    def __str__(self) -> str:
        total = len(self.source.files)
        text = f"{len(self.covered):,} of {total:,} files of {self.source.store.uri} are indexed"
        if not self.uncovered:
            return text
        size = sum(file.size for file in self.uncovered)
        return f"{text}; {len(self.uncovered):,} with {size:,} bytes are searched without an index"


def splits_by_file(index: Snapshot) -> dict[tuple[str, ...], int]:
    """The rows of the entries of an index by what they say about their source files."""
    found: dict[tuple[str, ...], int] = {}
    for row, pairs in enumerate(index.entries["tags"].to_pylist()):
        tags = dict(pairs or ())
        key = tuple(tags.get(name, "") for name in (_PATH, _SIZE, _STAMP, _COLUMNS))
        found.setdefault(key, row)
    return found


# --- the table that users see --------------------------------------------------------------------


def lake_view(store: Store, coverage: Coverage, settings: Config) -> TableView:
    """The source as a table that the index helps to search."""
    source, index = coverage.source, coverage.index
    mapping = source_mapping(index.metadata, source)
    names = [f"{_UNINDEXED}{file.path}" for file in coverage.uncovered]
    shown = {
        name: value
        for name, value in index.metadata.configuration.items()
        if not name.startswith(INTERNAL_PROPERTIES)
    }
    metadata = replace(
        index.metadata,
        schema_string=to_json(source.schema),
        partition_columns=source.partition_columns,
        configuration={**shown, MAPPING_PROPERTY: mapping.to_json()},
    )
    snapshot = replace(
        index, metadata=metadata, base_files=_entries(coverage, names), changes={}, unread=None
    )
    paths = index.entries["path"]
    files = {str(paths[row]): file for file, row in coverage.covered}
    files |= dict(zip(names, coverage.uncovered, strict=True))
    return TableView(store, snapshot, settings, LakeRows.of(coverage, files))


def source_mapping(metadata: Metadata, source: SourceSnapshot) -> TableMapping:
    """How the columns of a source are searched by its index.

    Only columns that the index was made for are. One that is of another kind by now is not, and its
    place in the index is retired.
    """
    own, recorded = index_mapping(metadata).by_name, from_json(metadata.schema_string)
    fields, used = [], set()
    for column in source.schema:
        is_partition = column.name in source.partition_columns
        kind = natural_kind(column.type)
        mapped = own.get(column.name)
        if mapped is None or natural_kind(recorded.field(column.name).type) != kind:
            words = "default" if kind in WORDS else ""
            field_ = FieldMapping(column.name, kind, indexed=False, tokenizer=words)
        else:
            field_ = replace(mapped, field="" if is_partition else mapped.field)
        fields.append(replace(field_, partition=is_partition))
        used.add(field_.field)
    retired = tuple(f for f in own.values() if f.field and f.field not in used)
    return TableMapping(tuple(fields), retired)


def _entries(coverage: Coverage, names: Sequence[str]) -> pa.Table:
    rows = [row for _, row in coverage.covered]
    covered = coverage.index.entries.take(pa.array(rows, pa.int64()))
    adds = [
        Add(path=name, size=file.size, num_records=file.rows)
        for name, file in zip(names, coverage.uncovered, strict=True)
    ]
    table = pa.concat_tables([covered, files_from_adds([(add, 0, 0) for add in adds])])
    files = [*(file for file, _ in coverage.covered), *coverage.uncovered]
    dead = [file.dead if file.dead is not None and len(file.dead) else None for file in files]
    columns: dict[str, list[Any]] = {
        "partitionValues": [
            [(n, v) for n, v in file.partition.items() if v is not None] for file in files
        ],
        VECTOR: [
            None if one is None else orjson.dumps(inline_vector(one).to_json()).decode()
            for one in dead
        ],
        "numRecords": [
            rows if rows is None or one is None else rows - len(one)
            for rows, one in zip(table["numRecords"].to_pylist(), dead, strict=True)
        ],
        # Counts of nulls are of all rows; compared with the number of live ones they mislead.
        "stats": [
            text if one is None else None
            for text, one in zip(table["stats"].to_pylist(), dead, strict=True)
        ],
    }
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        kind = table.schema.field(at)
        table = table.set_column(at, kind, pa.array(values, kind.type))
    return table


@dataclass(frozen=True, eq=False)
class LakeRows:
    """The files of a source that have the rows of a view's splits. Tasks get it with the view."""

    source: SourceSnapshot
    """Without its files."""
    files: Mapping[str, SourceFile]
    """By the paths of the view's entries; which rows are dead is said there."""
    state: str
    summary: str

    @classmethod
    def of(cls, coverage: Coverage, files: Mapping[str, SourceFile]) -> LakeRows:
        """The rows of an index and its source."""
        source = coverage.source
        parts = [source.version, source.schema.to_string()]
        parts += [repr((f.identity, f.rows)) for f in source.files]
        return cls(
            replace(source, files=()),
            {path: replace(file, dead=None) for path, file in files.items()},
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
        return sum(f.size for path, f in self.files.items() if path.startswith(_UNINDEXED))

    def bytes_of(self, paths: Iterable[str]) -> int:
        """The size of the files that have the rows of these splits."""
        return sum(self.files[path].size for path in paths)

    def environment(self, plain: Environment) -> LakeEnvironment:
        """What reads the rows of these files."""
        # Files without a split have no index that could be opened with others.
        alone = {path for path in self.files if path.startswith(_UNINDEXED)}
        plain.kept[DamagedIndexError] = alone
        return LakeEnvironment(
            plain.store, plain.pool, plain.context, plain.parallelism, plain.kept,
            self.source, self.files,
        )  # fmt: skip


@dataclass(frozen=True)
class LakeEnvironment(Environment):
    """Reads splits whose rows are in the files of a source."""

    source: SourceSnapshot = None  # type: ignore[assignment]
    files: Mapping[str, SourceFile] = field(default_factory=dict)

    def searcher(self, task: SplitTask) -> SplitSearcher:
        """The split of a task with the rows of its source file."""
        file = self.files[task.path]
        rows = self.source.rows_of(file, self.pool.footers)
        split: SourceSplit
        if task.path.startswith(_UNINDEXED):
            fields = (replace(f, field="", indexed=False) for f in self.context.mapping.fields)
            split = UnindexedSplit(
                self.store, task.path, task.size, source=rows,
                mapping=TableMapping(tuple(fields)), partition=file.partition,
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
