"""Carrying out a statement: the dispatch from its class to the job that does it.

Nothing here knows Spark. The caller says how a target becomes a table, with what configuration,
and which processes there are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from indextables.errors import LogError, SearchIndexError, StatementError, StorageError
from indextables.lake.convert import convert
from indextables.lake.delta import DeltaSource
from indextables.lake.iceberg import IcebergSource
from indextables.lake.opening import is_search_index, search_index_of
from indextables.lake.source import ParquetFolder, Source
from indextables.log.cache import CacheStats
from indextables.log.transaction_log import TransactionLog
from indextables.plan.view import refuse_search_index
from indextables.statements import caches, describe, maintenance, search_indexes
from indextables.statements import statements as s
from indextables.statements.session import (
    SOURCE_FORMATS,
    Resolver,
    Session,
    columns,
    describe_environment,
)
from indextables.table import Table

__all__ = ["Session", "execute"]

CHECKPOINT = columns(
    table_path=pa.string(),
    status=pa.string(),
    checkpoint_version=pa.int64(),
    num_actions=pa.int64(),
    num_files=pa.int64(),
    protocol_version=pa.int64(),
    is_multi_part=pa.bool_(),
)
RESTORE = columns(
    table_path=pa.string(),
    status=pa.string(),
    restored_version=pa.int64(),
    version=pa.int64(),
    num_files=pa.int64(),
    total_size_bytes=pa.int64(),
)
MERGE_JOBS = columns(
    job_id=pa.string(),
    table_path=pa.string(),
    status=pa.string(),
    total_groups=pa.int64(),
    completed_groups=pa.int64(),
    total_batches=pa.int64(),
    completed_batches=pa.int64(),
    progress_pct=pa.float64(),
    duration_ms=pa.int64(),
    error_message=pa.string(),
)
CONVERT = columns(
    source_path=pa.string(),
    table_path=pa.string(),
    status=pa.string(),
    version=pa.int64(),
    num_rows=pa.int64(),
    num_files=pa.int64(),
    total_size_bytes=pa.int64(),
)


def execute(statement: s.Statement, session: Session) -> pa.Table:
    """Carry out a statement; the rows it gives."""
    if isinstance(statement, _OF_SPLITS):
        session = replace(session, resolve=functools.partial(_with_source, session))
    elif not isinstance(statement, _OF_LOGS):
        session = replace(session, resolve=functools.partial(_with_rows, session.resolve))
    return _EXECUTORS[type(statement)](statement, session)


def _with_rows(resolve: Resolver, target: s.Target) -> Table:
    """A table that has rows of its own, which a search index does not."""
    table = resolve(target)
    refuse_search_index(table.metadata(), uri=table.uri)
    return table


def _with_source(session: Session, target: s.Target) -> Table:
    """A table, or a search index as the table of its source's rows."""
    table = session.resolve(target)
    if not is_search_index(table.snapshot()):
        return table
    assert session.indexes is not None
    return search_index_of(session.indexes.find(target)).table()


# --- caches ----------------------------------------------------------------------------------


def _flush_searcher(_: s.FlushSearcherCache, session: Session) -> pa.Table:
    return caches.flush_searcher_cache(session.config, session.hosts)


def _flush_disk(_: s.FlushDiskCache, session: Session) -> pa.Table:
    return caches.flush_disk_cache(session.config, session.hosts)


def _describe_disk(_: s.DescribeDiskCache, session: Session) -> pa.Table:
    return caches.describe_disk_cache(session.config, session.hosts)


def _describe_storage(_: s.DescribeStorageStats, session: Session) -> pa.Table:
    return caches.describe_storage_stats(session.hosts)


def _describe_merges(_: s.DescribeMergeJobs, _session: Session) -> pa.Table:
    return MERGE_JOBS.empty_table()


def _invalidate(statement: s.InvalidateLogCache, session: Session) -> pa.Table:
    path, identity, opened = "GLOBAL", None, CacheStats(0, 0, 0)
    if statement.table is not None:
        before = caches.log_counters()
        table = session.resolve(statement.table)
        path, identity = table.uri, table.log.store.identity
        # Finding the table read its log; the counts are those before.
        now, then = caches.log_counters()[identity], before.get(identity, opened)
        opened = CacheStats(now.hits - then.hits, now.misses - then.misses, 0)
    return caches.invalidate_log_cache(
        session.config, session.hosts, table_path=path, identity=identity, opened=opened
    )


# --- one table -------------------------------------------------------------------------------


def _checkpoint(statement: s.Checkpoint | s.Compact, session: Session) -> pa.Table:
    table = session.resolve(statement.table)
    written = table.checkpoint(compact=isinstance(statement, s.Compact))
    protocol = table.snapshot().protocol
    row = {
        "table_path": table.uri,
        "status": "SUCCESS",
        "checkpoint_version": written.version,
        "num_actions": written.size,
        "num_files": written.num_files,
        "protocol_version": max(protocol.min_reader_version, protocol.min_writer_version),
        "is_multi_part": written.parts is not None and written.parts > 1,
    }
    return pa.Table.from_pylist([row], CHECKPOINT)


def _describe_state(statement: s.DescribeState, session: Session) -> pa.Table:
    try:
        table = session.resolve(statement.table)
    except (LogError, StorageError) as error:
        return describe.error_row(str(statement.table), error)
    return describe.describe_state(table.log, table_path=table.uri)


def _describe_log(statement: s.DescribeLog, session: Session) -> pa.Table:
    log = session.resolve(statement.table).log
    if statement.xrefs:
        return describe.describe_xrefs(log, limit=statement.limit)
    return describe.describe_log(
        log,
        include_all=statement.include_all,
        limit=statement.limit,
    )


def _index_crossreferences(statement: s.IndexCrossReferences, session: Session) -> pa.Table:
    table = session.resolve(statement.table)
    if is_search_index(table.snapshot()):
        if statement.where is not None:
            raise SearchIndexError(table.uri, "cross-references are built over all of its splits")
        assert session.indexes is not None
        return search_index_of(session.indexes.find(statement.table)).index_crossreferences(
            force_rebuild=statement.force_rebuild, dry_run=statement.dry_run, runner=session.runner
        )
    return table.index_crossreferences(
        where=statement.where,
        timezone=session.timezone,
        force_rebuild=statement.force_rebuild,
        dry_run=statement.dry_run,
        runner=session.runner,
    )


def _restore(statement: s.Restore, session: Session) -> pa.Table:
    table = session.resolve(statement.table)
    version = table.restore(version=statement.version)
    snapshot = table.snapshot(version=version)
    row = {
        "table_path": table.uri,
        "status": "SUCCESS",
        "restored_version": statement.version,
        "version": version,
        "num_files": snapshot.num_files,
        "total_size_bytes": snapshot.total_bytes,
    }
    return pa.Table.from_pylist([row], RESTORE)


def _convert(statement: s.ConvertTable, session: Session) -> pa.Table:
    format_, _, uri = ".".join(statement.source.name).partition(".")
    if format_.lower() not in SOURCE_FORMATS or not uri:
        raise StatementError(
            f"CONVERT takes a Delta or Iceberg table or a folder of Parquet files, as "
            f"delta.`s3://…`, iceberg.`s3://…` or parquet.`s3://…`, and not {statement.source}."
        )
    place, target = session.open_store(uri), session.open_store(statement.location)
    source: Source = ParquetFolder(place)
    if format_.lower() != "parquet":
        kind = DeltaSource if format_.lower() == "delta" else IcebergSource
        source = kind(uri, place.options)
    log = TransactionLog(target, config=session.config)
    written = convert(source, log, settings=session.config, runner=session.runner)
    row = {
        "source_path": source.uri,
        "table_path": target.uri,
        "status": "SUCCESS",
        "version": written.version,
        "num_rows": written.rows,
        "num_files": written.files_added,
        "total_size_bytes": written.bytes_added,
    }
    return pa.Table.from_pylist([row], CONVERT)


def _describe_environment(_: s.DescribeEnvironment, session: Session) -> pa.Table:
    return describe_environment(session.config, session.hosts, properties=session.properties)


_OF_LOGS = (
    s.InvalidateLogCache, s.Checkpoint, s.Compact, s.DescribeState, s.DescribeLog, s.Restore,
    s.Purge, s.TruncateTimeTravel, s.MergeSplits, s.IndexCrossReferences,
)  # fmt: skip
"""Statements that need no rows: they are for search indexes too, or say why not."""
_OF_SPLITS = (s.Verify, s.Prewarm)
"""Statements that look at the rows of a search index in its source."""

_EXECUTORS: dict[type[s.Statement], Callable[[Any, Session], pa.Table]] = {
    s.FlushSearcherCache: _flush_searcher,
    s.FlushDiskCache: _flush_disk,
    s.DescribeDiskCache: _describe_disk,
    s.DescribeStorageStats: _describe_storage,
    s.DescribeMergeJobs: _describe_merges,
    s.InvalidateLogCache: _invalidate,
    s.Checkpoint: _checkpoint,
    s.Compact: _checkpoint,
    s.DescribeState: _describe_state,
    s.DescribeLog: _describe_log,
    s.DescribeEnvironment: _describe_environment,
    s.Restore: _restore,
    s.Purge: maintenance.purge,
    s.DropPartitions: maintenance.drop_partitions,
    s.TruncateTimeTravel: maintenance.truncate,
    s.RepairLog: maintenance.repair,
    s.ConvertTable: _convert,
    s.Verify: maintenance.verify,
    s.DescribeComponentSizes: maintenance.describe_component_sizes,
    s.Prewarm: maintenance.prewarm,
    s.DeleteRows: maintenance.delete_rows,
    s.UpdateRows: maintenance.update_rows,
    s.IndexCrossReferences: _index_crossreferences,
    s.MergeSplits: maintenance.merge_splits,
    s.CreateSearchIndex: search_indexes.create,
    s.RefreshSearchIndex: search_indexes.refresh,
    s.DescribeSearchIndex: search_indexes.describe,
    s.DropSearchIndex: search_indexes.drop,
}
