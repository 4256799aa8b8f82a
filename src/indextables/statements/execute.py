"""Carrying out a statement: the dispatch from its class to the job that does it.

Nothing here depends on Spark. The caller says how a target becomes a table, with what
configuration, and which processes there are.

Counts of caches are what was really there. A process can count its own open indexes only; other
Python processes of a host see the new generation of the disk cache and close theirs at their next
search.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config, is_own_key
from indextables.errors import (
    ConfigError,
    LogError,
    NotATableError,
    SearchIndexError,
    StatementError,
    StorageError,
)
from indextables.lake.convert import convert
from indextables.lake.delta import DeltaSource
from indextables.lake.iceberg import IcebergSource
from indextables.lake.opening import is_search_index, search_index_of
from indextables.lake.refresh import Refreshed
from indextables.lake.search_index import SearchIndex, source_of
from indextables.lake.source import ParquetFolder, Source
from indextables.log.cache import CacheStats, caches_by_store, total_stats
from indextables.log.transaction_log import TransactionLog
from indextables.plan.access import TableAccess, invalidate_logs
from indextables.plan.execute import close_indexes
from indextables.plan.view import refuse_search_index
from indextables.statements import describe, maintenance
from indextables.statements import statements as s
from indextables.statements.session import (
    SOURCE_FORMATS,
    Hosts,
    Resolver,
    Session,
    columns,
    describe_environment,
    redacted,
    table_of,
)
from indextables.storage.disk_cache import DiskCache, DiskUsage
from indextables.table import Table
from indextables.table.arguments import milliseconds

__all__ = ["Session", "execute"]


def execute(statement: s.Statement, session: Session) -> pa.Table:
    """Execute a statement; returns its rows."""
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
    return search_index_of(session.index_places.find(target)).table()


# --- search indexes --------------------------------------------------------------------------

REFRESHED = columns(
    index_path=pa.string(),
    status=pa.string(),
    source=pa.string(),
    source_version=pa.string(),
    version=pa.int64(),
    files_indexed=pa.int64(),
    rows_indexed=pa.int64(),
    files_removed=pa.int64(),
    bytes_added=pa.int64(),
    failed=pa.list_(pa.string()),
)
DESCRIBED = columns(
    index_path=pa.string(),
    source=pa.string(),
    format=pa.string(),
    columns=pa.list_(pa.string()),
    version=pa.int64(),
    index_bytes=pa.int64(),
    source_version=pa.string(),
    source_files=pa.int64(),
    source_bytes=pa.int64(),
    files_indexed=pa.int64(),
    files_not_indexed=pa.int64(),
    splits_not_needed=pa.int64(),
)
DROPPED = columns(index_path=pa.string(), status=pa.string(), source=pa.string())


def _create_search_index(statement: s.CreateSearchIndex, session: Session) -> pa.Table:
    """Create an index, index the files of its source, and keep its name."""
    places = session.index_places
    for name, _ in statement.options:
        if not is_own_key(name):
            raise ConfigError(
                f"'{name}' is not an option of a search index: its OPTIONS are spark.indextables.* "
                "keys. Credentials are set on the session."
            )
    access = places.new(statement.index, statement.location)
    if statement.if_not_exists and access.log().exists():
        index = search_index_of(access)
        return _refreshed(index, None, "EXISTS")
    source_format, source = places.source(statement.source)
    options = dict(statement.options)
    index = SearchIndex.create(
        access.path,
        source=source.path,
        format=source_format,  # type: ignore[arg-type]
        columns=statement.columns,
        properties=options,
        name=None if statement.index.path else statement.index.name[-1],
        config={**access.config, **options},
        storage_options=access.storage,
        source_options=source.storage,
        refresh=False,
    )
    invalidate_logs(access.path)
    # The name is registered first, so that an interrupted refresh can be continued by name.
    try:
        places.created(statement.index, access)
    except Exception:
        index.drop()
        invalidate_logs(access.path)
        raise
    return _refreshed(index, index.refresh(runner=session.runner), "SUCCESS")


def _refresh_search_index(statement: s.RefreshSearchIndex, session: Session) -> pa.Table:
    """Bring an index up to its source, which may have been moved."""
    places = session.index_places
    access = places.find(statement.index)
    index = search_index_of(access)
    if statement.source is not None:
        source_format, source = places.source(statement.source)
        if source_format != index.format:
            raise StatementError(
                f"'{access.uri}' is a search index over a source in the format {index.format}, and "
                f"{statement.source} is {source_format}. Drop it and create another one."
            )
        index = SearchIndex(access.log(), source_of(source.path, source_format, source.storage))
    return _refreshed(index, index.refresh(runner=session.runner), "SUCCESS")


def _describe_search_index(statement: s.DescribeSearchIndex, session: Session) -> pa.Table:
    """The facts of an index, and how far it is behind its source."""
    facts = search_index_of(session.index_places.find(statement.index)).describe()
    row = {**facts, "index_path": facts["uri"], "version": facts["index_version"]}
    return pa.Table.from_pylist([{name: row[name] for name in DESCRIBED.names}], DESCRIBED)


def _drop_search_index(statement: s.DropSearchIndex, session: Session) -> pa.Table:
    """Delete an index, whether its source is still there or not."""
    places = session.index_places
    try:
        access = places.find(statement.index)
        index = search_index_of(access)
    except (NotATableError, StatementError):
        if not statement.if_exists:
            raise
        row = {"index_path": str(statement.index), "status": "NOT FOUND"}
        return pa.Table.from_pylist([row], DROPPED)
    places.dropped(statement.index, access)
    if _is_there(access):
        index.drop()
    invalidate_logs(access.path)
    row = {"index_path": access.uri, "status": "DROPPED", "source": index.source}
    return pa.Table.from_pylist([row], DROPPED)


def _is_there(access: TableAccess) -> bool:
    """Whether dropping the name left the files."""
    log = access.log()
    log.invalidate()
    try:
        return is_search_index(log.snapshot())
    except NotATableError:
        return False


def _refreshed(index: SearchIndex, done: Refreshed | None, status: str) -> pa.Table:
    row: dict[str, object] = {"index_path": index.uri, "status": status, "source": index.source}
    if done is not None:
        row |= {
            "source_version": done.source,
            "version": done.version,
            "files_indexed": done.files_indexed,
            "rows_indexed": done.rows_indexed,
            "files_removed": done.files_removed,
            "bytes_added": done.bytes_added,
            "failed": list(done.failed),
        }
        if done.failed:
            row["status"] = "INCOMPLETE"
    return pa.Table.from_pylist([row], REFRESHED)


# --- caches ----------------------------------------------------------------------------------

SEARCHER_CACHE = columns(
    cache_type=pa.string(),
    status=pa.string(),
    cleared_entries=pa.int64(),
    message=pa.string(),
)
DISK_CACHE_FLUSHED = columns(
    executor_id=pa.string(),
    cache_type=pa.string(),
    status=pa.string(),
    bytes_freed=pa.int64(),
    files_deleted=pa.int64(),
    message=pa.string(),
)
DISK_CACHE = columns(
    executor_id=pa.string(),
    host=pa.string(),
    enabled=pa.bool_(),
    total_bytes=pa.int64(),
    max_bytes=pa.int64(),
    usage_percent=pa.float64(),
    splits_cached=pa.int64(),
    components_cached=pa.int64(),
)
STORAGE_STATS = columns(
    executor_id=pa.string(),
    host=pa.string(),
    bytes_fetched=pa.int64(),
    requests=pa.int64(),
)
LOG_CACHE = columns(
    table_path=pa.string(),
    result=pa.string(),
    cache_hits_before=pa.int64(),
    cache_misses_before=pa.int64(),
    hit_rate_before=pa.string(),
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

_NO_LOCALITY = (
    "Nothing to clear: Spark's Python partitions carry no preferred hosts, so splits have no "
    "locations"
)


@dataclass(frozen=True, slots=True)
class _Flushed:
    indexes: int
    copies: DiskUsage


def _flush(options: dict[str, object], *, indexes: bool) -> _Flushed:
    closed = close_indexes() if indexes else 0
    return _Flushed(closed, DiskCache.from_config(Config(options)).flush())


def _disk_options(config: Config) -> dict[str, object]:
    """The settings that workers need to find the cache; no others are sent."""
    return {key.name: config[key] for key in (keys.CACHE_DISK_PATH, keys.CACHE_DISK_MAX_SIZE)}


def _flush_searcher(_: s.FlushSearcherCache, session: Session) -> pa.Table:
    """Close open indexes and forget copies of splits, everywhere."""
    answers = session.hosts.run(
        functools.partial(_flush, _disk_options(session.config), indexes=True)
    )
    done = [a.result for a in answers if a.result is not None]
    wrong = [f"{a.executor_id} on {a.host}: {a.error}" for a in answers if a.error is not None]
    status = "failed" if wrong else "success"
    note = f". Failed on {'; '.join(wrong)}" if wrong else ""
    copies = sum(d.copies.files for d in done)
    size = sum(d.copies.bytes for d in done)
    indexes = sum(d.indexes for d in done)
    places = f"in {len(done)} {'process' if len(done) == 1 else 'processes'}"
    rows = [
        ("split_cache", status, copies, f"Deleted {copies} copies, {size} bytes, {places}{note}"),
        ("location_registry", "success", 0, _NO_LOCALITY),
        ("tantivy_java_cache", status, indexes, f"Closed {indexes} open indexes {places}{note}"),
    ]
    return table_of(rows, SEARCHER_CACHE)


def _flush_disk(_: s.FlushDiskCache, session: Session) -> pa.Table:
    """Forget copies of splits, everywhere."""
    rows: list[tuple[object, ...]] = []
    for a in session.hosts.run(
        functools.partial(_flush, _disk_options(session.config), indexes=False)
    ):
        if a.result is None:
            rows.append((a.executor_id, "disk_cache", "failed", 0, 0, f"{a.host}: {a.error}"))
        else:
            freed = a.result.copies
            message = f"Deleted {freed.files} copies on {a.host}"
            rows.append((a.executor_id, "disk_cache", "success", freed.bytes, freed.files, message))
    return table_of(rows, DISK_CACHE_FLUSHED)


def _usage(options: dict[str, object]) -> DiskUsage:
    return DiskCache.from_config(Config(options)).usage()


def _describe_disk(_: s.DescribeDiskCache, session: Session) -> pa.Table:
    """The contents of the disk caches. The name of a copy does not say of which table it is."""
    limit = session.config[keys.CACHE_DISK_MAX_SIZE]
    rows: list[tuple[object, ...]] = []
    for a in session.hosts.run(functools.partial(_usage, _disk_options(session.config))):
        held = a.result or DiskUsage()
        percent = round(100 * held.bytes / limit, 2) if limit else 0.0
        rows.append(
            (a.executor_id, a.host, a.error is None, held.bytes, limit, percent, None, held.files)
        )
    return table_of(rows, DISK_CACHE)


def _describe_storage(_: s.DescribeStorageStats, session: Session) -> pa.Table:
    """Reads of object stores; null where no host answered."""
    answers = session.hosts.run(_fetched)
    rows = [(a.executor_id, a.host, *(a.result or (None, None))) for a in answers]
    return table_of(rows, STORAGE_STATS)


def _fetched() -> tuple[int, int]:
    from indextables.storage.remote import fetched  # not before a store is asked for

    return fetched()


def _log_counters() -> dict[str, CacheStats]:
    """Hits and misses of this process's log caches by store."""
    return {identity: total_stats(caches) for identity, caches in caches_by_store().items()}


def _invalidate_here(identity: str | None) -> tuple[int, int]:
    caches_of = caches_by_store()
    caches = [c for store, kept in caches_of.items() if identity in (None, store) for c in kept]
    before = total_stats(caches)
    for cache in caches:
        cache.invalidate()
    return before.hits, before.misses


def _invalidate_log_cache(
    config: Config, hosts: Hosts, *, table_path: str, identity: str | None, opened: CacheStats
) -> pa.Table:
    """Forget what is known of a log or of all. `opened` is what finding the table counted."""
    answers = hosts.run(functools.partial(_invalidate_here, identity))
    wrong = [f"{a.executor_id} on {a.host}: {a.error}" for a in answers if a.error is not None]
    hits = sum(a.result[0] for a in answers if a.result is not None) - opened.hits
    misses = sum(a.result[1] for a in answers if a.result is not None) - opened.misses
    result = "Transaction log cache invalidated successfully"
    if wrong:
        result = f"Transaction log cache invalidated, but not on {'; '.join(wrong)}"
    if config[keys.TRANSACTION_CACHE_ENABLED]:
        rate = f"{100 * CacheStats(hits, misses, 0).hit_rate:.1f}%"
    else:
        rate = "Cache disabled"
    return table_of([(table_path, result, hits, misses, rate)], LOG_CACHE)


def _describe_merges(_: s.DescribeMergeJobs, _session: Session) -> pa.Table:
    return MERGE_JOBS.empty_table()


def _invalidate(statement: s.InvalidateLogCache, session: Session) -> pa.Table:
    path, identity, opened = "GLOBAL", None, CacheStats(0, 0, 0)
    if statement.table is not None:
        before = _log_counters()
        table = session.resolve(statement.table)
        path, identity = table.uri, table.log.store.identity
        # Finding the table read its log; the counts are those before.
        now, then = _log_counters()[identity], before.get(identity, opened)
        opened = CacheStats(now.hits - then.hits, now.misses - then.misses, 0)
    return _invalidate_log_cache(
        session.config, session.hosts, table_path=path, identity=identity, opened=opened
    )


# --- one table -------------------------------------------------------------------------------

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
_MOMENT = pa.timestamp("us", "UTC")
DETAIL = columns(
    format=pa.string(),
    id=pa.string(),
    name=pa.string(),
    description=pa.string(),
    location=pa.string(),
    createdAt=_MOMENT,
    lastModified=_MOMENT,
    partitionColumns=pa.list_(pa.string()),
    numFiles=pa.int64(),
    sizeInBytes=pa.int64(),
    numRecords=pa.int64(),
    properties=pa.map_(pa.string(), pa.string()),
    version=pa.int64(),
    minReaderVersion=pa.int32(),
    minWriterVersion=pa.int32(),
    tableFeatures=pa.list_(pa.string()),
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
    return describe.describe_log(log, include_all=statement.include_all, limit=statement.limit)


def _index_crossreferences(statement: s.IndexCrossReferences, session: Session) -> pa.Table:
    table = session.resolve(statement.table)
    if is_search_index(table.snapshot()):
        if statement.where is not None:
            raise SearchIndexError(table.uri, "cross-references are built over all of its splits")
        index = search_index_of(session.index_places.find(statement.table))
        return index.index_crossreferences(
            force_rebuild=statement.force_rebuild, dry_run=statement.dry_run, runner=session.runner
        )
    return table.index_crossreferences(
        where=statement.where,
        timezone=session.timezone,
        force_rebuild=statement.force_rebuild,
        dry_run=statement.dry_run,
        runner=session.runner,
    )


def _describe_history(statement: s.DescribeHistory, session: Session) -> pa.Table:
    return session.resolve(statement.table).history(limit=statement.limit)


def _describe_detail(statement: s.DescribeDetail, session: Session) -> pa.Table:
    table = session.resolve(statement.table)
    snapshot, metadata = table.snapshot(), table.metadata()
    protocol = snapshot.protocol
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    row = {
        "format": metadata.format["provider"],
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "location": table.uri,
        "createdAt": None if metadata.created_time is None else 1000 * metadata.created_time,
        "lastModified": 1000 * snapshot.timestamp,
        "partitionColumns": list(table.partition_columns),
        "numFiles": snapshot.num_files,
        "sizeInBytes": snapshot.total_bytes,
        "numRecords": table.count(),
        "properties": list(redacted(table.properties).items()),
        "version": snapshot.version,
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": sorted(features),
    }
    return pa.Table.from_pylist([row], DETAIL)


def _restore(statement: s.Restore, session: Session) -> pa.Table:
    table = session.resolve(statement.table)
    past = statement.version
    if statement.timestamp is not None:
        moment = milliseconds(statement.timestamp, timezone=session.timezone)
        past = table.log.snapshot(timestamp_ms=moment).version
    version = table.restore(version=past)
    snapshot = table.snapshot(version=version)
    row = {
        "table_path": table.uri,
        "status": "SUCCESS",
        "restored_version": past,
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
        source_type = DeltaSource if format_.lower() == "delta" else IcebergSource
        source = source_type(uri, place.options)
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
    s.InvalidateLogCache, s.Checkpoint, s.Compact, s.DescribeState, s.DescribeLog,
    s.DescribeHistory, s.DescribeDetail, s.Restore, s.Purge, s.TruncateTimeTravel, s.MergeSplits,
    s.IndexCrossReferences,
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
    s.DescribeHistory: _describe_history,
    s.DescribeDetail: _describe_detail,
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
    s.CreateSearchIndex: _create_search_index,
    s.RefreshSearchIndex: _refresh_search_index,
    s.DescribeSearchIndex: _describe_search_index,
    s.DropSearchIndex: _drop_search_index,
}
