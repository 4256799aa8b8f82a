"""The caches of a process for what it has read of a log.

Two kinds of caches. What never changes once it exists (a version file, a manifest, the snapshot
of a version) is kept until its time is over. The newest snapshot depends on the version: a commit
replaces it, and a reader asks the store for newer versions unless some staleness is tolerated.
Hits and misses are counted as they happen.

Each log has its caches. A process has a list of all that are alive, to clear those of a table for
all its handles. They share manifests that are named after their content, and nothing else: a table
that was dropped and created again at the same place must not be read from caches of the old one.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
from cachetools import LRUCache, TTLCache

from indextables import config as keys
from indextables.config import Config
from indextables.log.snapshot import Snapshot, VersionActions

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Hits and misses since the cache was made, and what it holds now."""

    hits: int
    misses: int
    entries: int

    @property
    def hit_rate(self) -> float:
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 0.0


class CountedCache(MutableMapping[K, V], Generic[K, V]):
    """A cache with a time to live, a largest number of entries, and counters. Thread-safe."""

    def __init__(self, *, capacity: int, ttl_ms: int, timer: Callable[[], float]) -> None:
        self._entries: TTLCache[K, V] = TTLCache(capacity, ttl_ms / 1000, timer)
        self._lock = threading.Lock()
        self._hits = 0
        self._misses = 0

    def __getitem__(self, key: K) -> V:
        with self._lock:
            try:
                value = self._entries[key]
            except KeyError:
                self._misses += 1
                raise
            self._hits += 1
            return value

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            if self._entries.maxsize:  # zero: the cache is switched off
                self._entries[key] = value

    def peek(self, key: K) -> V | None:
        """The value without counting a hit or a miss."""
        with self._lock:
            return self._entries.get(key)

    def __delitem__(self, key: K) -> None:
        with self._lock:
            del self._entries[key]

    def __iter__(self) -> Iterator[K]:
        with self._lock:
            return iter(list(self._entries))

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    def clear(self) -> None:
        """Forget the entries; the counters stay."""
        with self._lock:
            self._entries.clear()

    @property
    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(self._hits, self._misses, len(self._entries))


_CONTENT_NAMED = re.compile(r".*manifest-[0-9a-f]{32}\.avro")
_decoded: LRUCache[str, pa.Table] = LRUCache(256 << 20, getsizeof=lambda table: table.nbytes)
"""Manifests that any log of the process has read; their names are hashes of what they hold."""
_decoded_lock = threading.Lock()


class _Manifests(CountedCache[str, pa.Table]):
    """The manifests of one table, beside those that the process has read already."""

    def __getitem__(self, key: str) -> pa.Table:
        with self._lock, _decoded_lock:
            manifest = self._entries.get(key)
            if manifest is None and self._entries.maxsize:
                manifest = _decoded.get(key)
            if manifest is None:
                self._misses += 1
                raise KeyError(key)
            self._hits += 1
            return manifest

    def __setitem__(self, key: str, value: pa.Table) -> None:
        super().__setitem__(key, value)
        if self._entries.maxsize and _CONTENT_NAMED.fullmatch(key):
            with _decoded_lock, contextlib.suppress(ValueError):  # larger than the cache
                _decoded[key] = value

    def clear(self) -> None:
        super().clear()
        with _decoded_lock:
            _decoded.clear()


class LogCache:
    """The caches of one table."""

    def __init__(self, config: Config, *, timer: Callable[[], float] = time.monotonic) -> None:
        enabled = config[keys.TRANSACTION_CACHE_ENABLED]
        ttl_ms = config[keys.TRANSACTION_CACHE_TTL]
        self._timer = timer

        def cache(
            capacity: int, cache_type: type[CountedCache[K, V]] = CountedCache
        ) -> CountedCache[K, V]:
            return cache_type(capacity=capacity if enabled else 0, ttl_ms=ttl_ms, timer=timer)

        self.versions: CountedCache[int, VersionActions] = cache(1000)
        self.manifests: CountedCache[str, pa.Table] = cache(64, _Manifests)
        self.snapshots: CountedCache[int, Snapshot] = cache(8)
        self._latest: CountedCache[str, tuple[Snapshot, float]] = cache(1)
        self._etags: CountedCache[int, str | None] = cache(8)

    def latest(self) -> tuple[Snapshot, float] | None:
        """The newest snapshot this process saw, and how many milliseconds ago that was."""
        try:
            snapshot, read_at = self._latest["latest"]
        except KeyError:
            return None
        return snapshot, (self._timer() - read_at) * 1000

    def remember_latest(self, snapshot: Snapshot) -> None:
        """Keep the snapshot as the newest, unless a newer one is known."""
        latest = self._latest.peek("latest")
        if latest is None or latest[0].version <= snapshot.version:
            self._latest["latest"] = (snapshot, self._timer())
            self.snapshots[snapshot.version] = snapshot

    def has_seen(self, version: int) -> bool:
        """Whether a version file can be distinguished from another one of the same name."""
        return self._etags.peek(version) is not None

    def is_same_file(self, version: int, etag: str | None) -> bool:
        """Whether a version file is the one that was seen before, or is seen for the first time."""
        is_same = self._etags.peek(version) in (None, etag)
        if is_same:
            self._etags[version] = etag
        return is_same

    def forget_versions(self) -> None:
        """Forget what was read of a log that was replaced; manifests have unique names and stay."""
        for cache in (self.versions, self.snapshots, self._latest, self._etags):
            cache.clear()

    def invalidate(self) -> None:
        """Forget everything."""
        self.forget_versions()
        self.manifests.clear()

    def stats(self) -> dict[str, CacheStats]:
        """Counters by cache."""
        return {
            "versions": self.versions.stats,
            "manifests": self.manifests.stats,
            "snapshots": self.snapshots.stats,
            "latest": self._latest.stats,
        }


_live: weakref.WeakKeyDictionary[LogCache, str] = weakref.WeakKeyDictionary()
_live_lock = threading.Lock()


def tracked(cache: LogCache, identity: str) -> LogCache:
    """The cache, known to this process as one of the store with this identity."""
    with _live_lock:
        _live[cache] = identity
    return cache


def caches_by_store() -> dict[str, list[LogCache]]:
    """The caches of logs that are alive in this process, by the identity of their store."""
    caches: dict[str, list[LogCache]] = {}
    with _live_lock:
        for cache, identity in _live.items():
            caches.setdefault(identity, []).append(cache)
    return caches


def total_stats(caches: Iterable[LogCache]) -> CacheStats:
    """The counters of several caches, added up."""
    every = [stats for cache in caches for stats in cache.stats().values()]
    return CacheStats(
        hits=sum(s.hits for s in every),
        misses=sum(s.misses for s in every),
        entries=sum(s.entries for s in every),
    )
