"""The statements about caches: open indexes, copies of splits on disks, what is known of logs.

The counts are what was really there. A process can count its own open indexes only; other Python
processes of a host see the new generation of the disk cache and close theirs at their next search.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.log.cache import CacheStats, caches_by_store, total_stats
from indextables.plan.execute import close_indexes
from indextables.statements.session import Hosts, columns, table_of
from indextables.storage.disk_cache import DiskCache, DiskUsage

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
    """What workers need to find the cache; no other setting travels."""
    return {key.name: config[key] for key in (keys.CACHE_DISK_PATH, keys.CACHE_DISK_MAX_SIZE)}


def flush_searcher_cache(config: Config, hosts: Hosts) -> pa.Table:
    """Close open indexes and forget copies of splits, everywhere."""
    answers = hosts.run(functools.partial(_flush, _disk_options(config), indexes=True))
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


def flush_disk_cache(config: Config, hosts: Hosts) -> pa.Table:
    """Forget copies of splits, everywhere."""
    rows: list[tuple[object, ...]] = []
    for a in hosts.run(functools.partial(_flush, _disk_options(config), indexes=False)):
        if a.result is None:
            rows.append((a.executor_id, "disk_cache", "failed", 0, 0, f"{a.host}: {a.error}"))
        else:
            freed = a.result.copies
            message = f"Deleted {freed.files} copies on {a.host}"
            rows.append((a.executor_id, "disk_cache", "success", freed.bytes, freed.files, message))
    return table_of(rows, DISK_CACHE_FLUSHED)


def _usage(options: dict[str, object]) -> DiskUsage:
    return DiskCache.from_config(Config(options)).usage()


def describe_disk_cache(config: Config, hosts: Hosts) -> pa.Table:
    """What the disks hold. A copy is a component of a split; whose, its name does not tell."""
    limit = config[keys.CACHE_DISK_MAX_SIZE]
    rows: list[tuple[object, ...]] = []
    for a in hosts.run(functools.partial(_usage, _disk_options(config))):
        held = a.result or DiskUsage()
        percent = round(100 * held.bytes / limit, 2) if limit else 0.0
        rows.append(
            (a.executor_id, a.host, a.error is None, held.bytes, limit, percent, None, held.files)
        )
    return table_of(rows, DISK_CACHE)


def describe_storage_stats(hosts: Hosts) -> pa.Table:
    """What was read of object stores; null where nobody answered."""
    answers = hosts.run(_fetched)
    rows = [(a.executor_id, a.host, *(a.result or (None, None))) for a in answers]
    return table_of(rows, STORAGE_STATS)


def _fetched() -> tuple[int, int]:
    from indextables.storage.remote import fetched  # not before a store is asked for

    return fetched()


def log_counters() -> dict[str, CacheStats]:
    """Hits and misses of this process's log caches by store."""
    return {identity: total_stats(caches) for identity, caches in caches_by_store().items()}


def _invalidate(identity: str | None) -> tuple[int, int]:
    known = caches_by_store()
    caches = [c for of, some in known.items() if identity in (None, of) for c in some]
    before = total_stats(caches)
    for cache in caches:
        cache.invalidate()
    return before.hits, before.misses


def invalidate_log_cache(
    config: Config, hosts: Hosts, *, table_path: str, identity: str | None, opened: CacheStats
) -> pa.Table:
    """Forget what is known of a log or of all. `opened` is what finding the table counted."""
    answers = hosts.run(functools.partial(_invalidate, identity))
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
