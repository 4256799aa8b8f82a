"""Bringing a search index up to its source: new files are indexed, what left is dropped.

A file is a task, so a refresh runs in threads or on Spark. Splits are committed in portions: a
refresh that is interrupted keeps what it committed, and the next one goes on from there. A file
that cannot be read is left out and named; queries report it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from indextables.config import Config
from indextables.errors import LakeError, ObjectNotFoundError, SchemaError
from indextables.jobs.commit_write import undone_on_error
from indextables.jobs.write_splits import store_split
from indextables.lake.coverage import Coverage, index_mapping, source_mapping, tags_of
from indextables.lake.rows import SourceRowsFile
from indextables.lake.source import SourceFile
from indextables.log.actions import Action, Add, Metadata
from indextables.log.files import removes_for, with_paths
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.runner import Runner
from indextables.schema import conform, from_json, refuse_invalid_text
from indextables.split.mapping import TableMapping
from indextables.split.write import SplitWriter, WrittenSplit
from indextables.storage import Store

_FILES_OF_PORTION = 64
_BYTES_OF_PORTION = 4 << 30


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
    here = [n for n in task.schema.names if n in task.usable and n in rows.schema.names]
    with SplitWriter(task.schema, task.mapping, task.config, stores_rows=False) as writer:
        for first, table in rows.batches(here):
            fitting = conform(table, task.schema) if here else _nulls(table.num_rows, task.schema)
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
    for number, portion in enumerate(portions):
        results = runner.map(index_file, portion)
        stored = [one for one in results if isinstance(one, Add)]
        failed += [one for one in results if isinstance(one, str)]
        gone = unneeded if number == len(portions) - 1 else set()
        changes = metadata if number == 0 and metadata != coverage.index.metadata else None
        if stored or gone or changes is not None:
            version = _commit(log, stored, gone, changes)
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
    recorded, shown = from_json(metadata.schema_string), source_mapping(metadata, source)
    usable = frozenset(f.name for f in shown.fields if f.indexed and not f.partition)
    fields = [
        pa.field(f.name, source.schema.field(f.name).type if f.name in usable else f.type)
        for f in recorded
        if f.name not in source.partition_columns
    ]
    schema = pa.schema(fields)
    mapping = index_mapping(metadata).without(source.partition_columns)
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
    adds: Sequence[Add],
    gone: set[str],
    metadata: Metadata | None,
) -> int:
    """Commit splits. Another refresh may have dropped the same ones."""

    def actions(newest: Snapshot) -> Sequence[Action]:
        removed = with_paths(newest.entries, gone)
        changes: list[Action] = [] if metadata is None else [metadata]
        return [*changes, *removes_for(removed, timestamp=log.now_ms(), data_change=True), *adds]

    operation = Operation.REWRITE if gone else Operation.APPEND
    transaction = Transaction(
        operation=operation,
        transform=actions,
        parameters={"searchIndex": "refresh"},
        metrics={"rows": sum(add.num_records or 0 for add in adds), "files": len(adds)},
    )
    # Cross-references take the columns of a split from its rows, which are elsewhere here.
    committed = undone_on_error(log, list(adds), lambda: log.commit(transaction))
    return int(committed.version)
