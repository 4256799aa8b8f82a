"""Keeping a search index up to its source: new files are indexed, what left is dropped.

A file is a task, so a refresh runs in threads or on Spark. Splits are committed in portions: a
refresh that is interrupted keeps what it committed, and the next one goes on from there. A file
that cannot be read is left out and named; queries report it, too.

Merging lays the indexes of splits side by side, no row is read. The split that they become covers
the files of all of them, whose rows follow each other. Only splits of files with the same partition
values are merged, as in a table. Everything else, the groups, the commits and what happens when
writers meet, is that of merging the splits of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import Config
from indextables.errors import DamagedIndexError, LakeError, ObjectNotFoundError, SchemaError
from indextables.jobs.commit_write import undone_on_error
from indextables.jobs.merge_groups import (
    Candidate,
    MergeGroup,
    MergeTask,
    merge_settings,
    source_of,
)
from indextables.jobs.merge_splits import Merged, merge_groups
from indextables.jobs.progress import progress
from indextables.jobs.write_splits import store_split
from indextables.lake.coverage import (
    UNINDEXED,
    Coverage,
    Definition,
    Part,
    index_mapping,
    parts_of,
    source_mapping,
    tags_of,
    tags_of_parts,
)
from indextables.lake.rows import SourceRowsFile
from indextables.lake.source import SourceFile, SourceSnapshot
from indextables.log.actions import Action, Add, Metadata
from indextables.log.files import adds_from_files, removes_for, with_paths
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.statistics import decode
from indextables.plan.view import SEARCH_INDEX_PROPERTY, TableView
from indextables.runner import Runner
from indextables.schema import conform, from_json, refuse_invalid_text
from indextables.split.format.container import SplitInfo, Statistics
from indextables.split.mapping import TableMapping
from indextables.split.merge import merge_indexes
from indextables.split.open_split import SplitFile
from indextables.split.write import SplitWriter, WrittenSplit
from indextables.storage import Store

_FILES_OF_PORTION = 64
_BYTES_OF_PORTION = 4 << 30
MOST_PARTS = 1_000
"""The most files that a split covers: its entry in the log names all of them."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh did."""

    version: int
    """The version of the index."""
    source: str
    """What the source was at, such as `version 7`."""
    files_indexed: int
    rows_indexed: int
    files_removed: int
    """Splits of files that left the source."""
    bytes_added: int
    failed: tuple[str, ...] = ()
    """Files that could not be indexed, and why."""


@dataclass(frozen=True)
class IndexFile:
    """A source file to index."""

    store: Store
    rows: SourceRowsFile
    file: SourceFile
    schema: pa.Schema
    """The columns that are indexed. Those that the source does not have as they were are null."""
    usable: frozenset[str]
    mapping: TableMapping
    fingerprint: str
    config: Config
    is_checked: bool
    """Whether the file could have been replaced under its name."""


def index_file(task: IndexFile) -> Add | str:
    """The log entry of a stored split, or why there is none."""
    try:
        written = _indexed(task)
    except (LakeError, SchemaError) as error:
        return str(error)
    try:
        problem = _replaced(task) if task.is_checked else None
        if problem is not None:
            return problem
        add = store_split(task.store, written, (), data_change=True)
    finally:
        written.delete()
    tags = tags_of(task.file, task.fingerprint)
    return replace(add, tags=tags, companion_source_files=(task.file.path,))


def _indexed(task: IndexFile) -> WrittenSplit:
    rows = task.rows.open()
    columns = [n for n in task.schema.names if n in task.usable and n in rows.schema.names]
    with SplitWriter(task.schema, task.mapping, task.config, stores_rows=False) as writer:
        for first, table in rows.batches(columns):
            fitting = (
                conform(table, task.schema) if columns else _nulls(table.num_rows, task.schema)
            )
            for batch in fitting.to_batches():
                refuse_invalid_text(batch, first_row=first + 1)
                writer.write(batch)
        return writer.close()


def _nulls(rows: int, schema: pa.Schema) -> pa.Table:
    return pa.table([pa.nulls(rows, f.type) for f in schema], schema=schema)


def _replaced(task: IndexFile) -> str | None:
    """What happened to a file while it was indexed."""
    path = f"{task.rows.store.uri}/{task.file.path}"
    try:
        meta = task.rows.store.head(task.file.path)
    except ObjectNotFoundError:
        return f"'{path}' was removed while it was indexed."
    if (meta.size, f"{meta.modified_ms}-{meta.etag or ''}") != (task.file.size, task.file.stamp):
        return f"'{path}' was replaced while it was indexed."
    return None


def refresh_index(
    log: TransactionLog, coverage: Coverage, metadata: Metadata, *, config: Config, runner: Runner
) -> Refreshed:
    """Index what is not covered, and drop what is not needed. `metadata` is what it becomes."""
    unneeded = set(coverage.unneeded)
    tasks = _tasks(log.store, coverage, metadata, config)
    portions = list(_portions(tasks)) or [[]]
    failed: list[str] = []
    adds: list[Add] = []
    version = coverage.index.version
    size = sum(task.file.size for task in tasks)
    with progress("Indexing", len(tasks), "files", table=log.store.uri, size=size) as advance:
        for number, portion in enumerate(portions):
            results = runner.map(
                index_file,
                portion,
                ended=lambda at, of=portion: advance(1, of[at].file.size),  # type: ignore[misc]
            )
            stored = [result for result in results if isinstance(result, Add)]
            failed += [result for result in results if isinstance(result, str)]
            unneeded_now = unneeded if number == len(portions) - 1 else set()
            changes = metadata if number == 0 and metadata != coverage.index.metadata else None
            if stored or unneeded_now or changes is not None:
                version = _commit(log, coverage.index, stored, unneeded_now, changes)
                adds += stored
    return Refreshed(
        version=version,
        source=coverage.source.version,
        files_indexed=len(adds),
        rows_indexed=sum(add.num_records or 0 for add in adds),
        files_removed=len(unneeded),
        bytes_added=sum(add.size for add in adds),
        failed=tuple(failed),
    )


def _tasks(store: Store, coverage: Coverage, metadata: Metadata, config: Config) -> list[IndexFile]:
    source = coverage.source
    schema, mapping, usable = indexed_columns(source, metadata)
    return [
        IndexFile(
            store,
            source.rows_of(file),
            replace(file, dead=None),
            schema,
            usable,
            mapping,
            coverage.fingerprint,
            config,
            is_checked=source.replaces_files,
        )
        for file in coverage.uncovered
    ]


def indexed_columns(
    source: SourceSnapshot, metadata: Metadata
) -> tuple[pa.Schema, TableMapping, frozenset[str]]:
    """The columns of splits, how they are indexed, and those that the source has as they were."""
    recorded, shown = from_json(metadata.schema_string), source_mapping(metadata, source)
    usable = frozenset(f.name for f in shown.fields if f.indexed and not f.partition)
    fields = [
        pa.field(f.name, source.schema.field(f.name).type if f.name in usable else f.type)
        for f in recorded
        if f.name not in source.partition_columns
    ]
    mapping = index_mapping(metadata).without(source.partition_columns)
    return pa.schema(fields), mapping, usable


def _portions(tasks: Sequence[IndexFile]) -> list[list[IndexFile]]:
    portions: list[list[IndexFile]] = []
    size = 0
    for task in tasks:
        if not portions or len(portions[-1]) >= _FILES_OF_PORTION or size >= _BYTES_OF_PORTION:
            portions.append([])
            size = 0
        portions[-1].append(task)
        size += task.file.size
    return portions


def _commit(
    log: TransactionLog,
    read: Snapshot,
    adds: Sequence[Add],
    unneeded: set[str],
    metadata: Metadata | None,
) -> int:
    """Commit splits to the index that was read. Another refresh may have dropped the same ones."""

    def actions(newest: Snapshot) -> Sequence[Action]:
        removed = with_paths(newest.entries, unneeded)
        changes: list[Action] = []
        if metadata is not None:
            changes.append(_metadata_on(newest.metadata, read.metadata, metadata))
        return [*changes, *removes_for(removed, timestamp=log.now_ms(), data_change=True), *adds]

    operation = Operation.REWRITE if unneeded else Operation.APPEND
    transaction = Transaction(
        operation=operation,
        transform=actions,
        read_snapshot=read,
        parameters={"searchIndex": "refresh"},
        metrics={"rows": sum(add.num_records or 0 for add in adds), "files": len(adds)},
    )
    # Cross-references take the columns of a split from its rows, which are elsewhere here.
    committed = undone_on_error(log, list(adds), lambda: log.commit(transaction))
    return int(committed.version)


def _metadata_on(newest: Metadata, read: Metadata, written: Metadata) -> Metadata:
    """What a refresh says of the source, on top of what others changed meanwhile."""
    then, now, mine = (m.configuration[SEARCH_INDEX_PROPERTY] for m in (read, newest, written))
    if then != now:
        # Another refresh saw other files: neither knows the columns of all that are indexed now.
        mine = replace(Definition.of(written, uri=""), known_schema=None).to_json()
    return replace(newest, configuration={**newest.configuration, SEARCH_INDEX_PROPERTY: mine})


# --- merging -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IndexMergeTask(MergeTask):
    """A group of splits that hold no rows."""

    parts: tuple[Part, ...] = ()
    fingerprint: str = ""

    def merged(self, files: Sequence[SplitFile], config: Config) -> WrittenSplit:
        """The indexes of all sources in one split."""
        mapping = self.mapping.select(self.schema.names)
        for file in files:
            if file.info.mapping != mapping:
                raise DamagedIndexError(file.path, "it was indexed in another way than the others")
        return merge_indexes(
            files,
            schema=self.schema,
            mapping=mapping,
            config=config,
            statistics=joined_statistics([file.info for file in files], self.schema),
        )

    def entry(self, add: Add) -> Add:
        """What the log says of the new split, its files included."""
        paths = tuple(part.path for part in self.parts)
        tags = tags_of_parts(self.parts, self.fingerprint)
        return replace(super().entry(add), tags=tags, companion_source_files=paths)


def merge_index(
    log: TransactionLog,
    coverage: Coverage,
    groups: Sequence[MergeGroup],
    *,
    runner: Runner | None,
) -> Merged:
    """Merge groups of splits of an index and commit each of them on its own."""
    schema, mapping, _ = indexed_columns(coverage.source, coverage.index.metadata)

    def task_of(view: TableView, files: pa.Table) -> MergeTask:
        adds = adds_from_files(files)
        return IndexMergeTask(
            store=view.store,
            sources=tuple(map(source_of, adds)),
            schema=schema,
            mapping=mapping,
            partition_values={},
            partition_columns=(),
            data_change=False,
            settings=merge_settings(view.config),
            parts=tuple(part for add in adds for part in _parts(add)),
            fingerprint=coverage.fingerprint,
        )

    adds = {add.path: add for add in adds_from_files(coverage.index.entries)}
    view = TableView(log.store, coverage.index, log.config)
    chosen = [part for group in groups for part in _of_few_files(group, adds)]
    return merge_groups(log, view, chosen, runner=runner, task_of=task_of)


def mergeable(view: TableView) -> Snapshot:
    """The splits of an index that can be merged, with the partition values of their files.

    Their sizes are those of split and source files together, as of splits with rows: a scan of all
    rows is divided among tasks by splits.
    """
    assert view.elsewhere is not None
    files = view.snapshot.entries
    files = files.filter(pc.invert(pc.starts_with(files["path"], UNINDEXED)))
    paths: list[Any] = files["path"].to_pylist()
    pairs: Any = zip(paths, files["size"].to_pylist(), strict=True)
    sizes = [size + view.elsewhere.bytes_of([path]) for path, size in pairs]
    at = files.schema.get_field_index("size")
    files = files.set_column(at, files.schema.field(at), pa.array(sizes, pa.int64()))
    return replace(view.snapshot, base_files=files, changes={}, unread=None)


def _parts(add: Add) -> tuple[Part, ...]:
    return parts_of(add.tags or {}, add.num_records)


def _of_few_files(group: MergeGroup, adds: Mapping[str, Add]) -> Iterator[MergeGroup]:
    """The group, in pieces that do not cover too many files; those of few files come together."""
    pieces: list[list[Candidate]] = []
    total = MOST_PARTS
    sources = [(len(_parts(adds[source.path])), source) for source in group.sources]
    for files, source in sorted(sources, key=lambda one: one[0]):
        total += files
        if total > MOST_PARTS:
            pieces.append([])
            total = files
        pieces[-1].append(replace(source, size=adds[source.path].size))
    for piece in pieces:
        if len(piece) > 1:
            yield MergeGroup(tuple(sorted(piece, key=lambda one: (one.added_at, one.path))))


# --- statistics ----------------------------------------------------------------------------------


def joined_statistics(infos: Sequence[SplitInfo], schema: pa.Schema) -> Statistics:
    """What is true of the rows of all splits, by what is known of each.

    A bound that one of them does not have, although it has values, is not known of all.
    """
    every = [info.statistics for info in infos if info.rows]
    names = [n for n in schema.names if all(n in statistics.null_counts for statistics in every)]
    nulls = {n: sum(statistics.null_counts[n] for statistics in every) for n in names}
    nans = {n: sum(statistics.nan_counts.get(n, 0) for statistics in every) for n in names}
    low: dict[str, str] = {}
    high: dict[str, str] = {}
    for name in names:
        valued = [
            info.statistics for info in infos if info.rows > _without_order(info.statistics, name)
        ]
        data_type = schema.field(name).type
        least = _extreme(
            (statistics.min_values.get(name) for statistics in valued), data_type, "min"
        )
        most = _extreme(
            (statistics.max_values.get(name) for statistics in valued), data_type, "max"
        )
        low |= {} if least is None else {name: least}
        high |= {} if most is None else {name: most}
    return Statistics(low, high, nulls, {n: count for n, count in nans.items() if count})


def _without_order(statistics: Statistics, name: str) -> int:
    return statistics.null_counts.get(name, 0) + statistics.nan_counts.get(name, 0)


def _extreme(texts: Iterable[str | None], data_type: Any, which: str) -> str | None:
    """The least or the greatest of bounds, in the spelling that it has."""
    spelled = list(texts)
    if not spelled or None in spelled:
        return None
    decoded = decode(pa.array(spelled, pa.string()), data_type)
    if not decoded.is_known.all():
        return None
    values: Any = decoded.values
    order: list[int] = pc.sort_indices(values).to_pylist()
    return spelled[order[0 if which == "min" else -1]]
