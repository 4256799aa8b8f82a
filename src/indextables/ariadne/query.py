"""The query side of an index: which files a query needs, kept as long as nothing changes.

What decoding an index costs is paid once for each version: `lookup_of` keeps the `Lookup` of the
versions that were asked last, and with it the sorted hashes, filters and words. `Remembered` keeps
what joins located, by the index's version and the keys themselves, so the same keys asked again
are not looked up again, and other keys are never mistaken for them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from indextables.ariadne.layout import IndexData
from indextables.ariadne.lookup import Located, Lookup
from indextables.ariadne.metadata import Metadata
from indextables.ariadne.source import arrow_schema
from indextables.ariadne.typed_hash import can_hash, hash_values
from indextables.errors import AriadneArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_LOOKUPS = 16
_LOCATED = 256


class Queried(Protocol):
    """What queries need to know of an index."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def storage_path(self) -> str:
        """Where it is kept."""
        ...

    @property
    def spark(self) -> SparkSession:
        """The session that reads its files."""
        ...

    @property
    def metadata(self) -> Metadata:
        """Its declarations, the schema and format of its files."""
        ...

    @property
    def selection(self) -> tuple[str, ...] | None:
        """The columns that joins give; None for all."""
        ...

    def data(self) -> IndexData:
        """What it knows now."""
        ...


class Remembered(Generic[T]):
    """Results by what they depend on; the least recently used ones go first."""

    def __init__(self, size: int) -> None:
        self._known: LRUCache[Any, T] = LRUCache(size)
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0

    def get(self, key: object, make: Callable[[], T]) -> T:
        """The result for a key, made if it is not known."""
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self.hits += 1
                return found
        made = make()
        with self._lock:
            self.misses += 1
            self._known[key] = made
        return made

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()
            self.hits = self.misses = 0


_lookups: Remembered[Lookup] = Remembered(_LOOKUPS)
located_by_keys: Remembered[Located] = Remembered(_LOCATED)
"""What joins located."""


def lookup_of(index: Queried, *, all_rows: bool = False) -> Lookup:
    """The lookup of an index as it is now."""
    data = index.data()
    timezone = str(index.spark.conf.get("spark.sql.session.timeZone") or "UTC")
    metadata = index.metadata
    key = (index.storage_path, data.version, metadata.schema, timezone, all_rows)
    schema = arrow_schema(metadata, name=index.name)
    return _lookups.get(key, lambda: Lookup(data, schema, timezone=timezone, all_rows=all_rows))


def locate(
    index: Queried, values: Mapping[str, Iterable[Any]] | None = None, *, where: str | None = None
) -> Located:
    """The files that may hold the values, or rows for which a condition is true; both if both."""
    if values is None and where is None:
        raise AriadneArgumentError(
            "Cannot locate files", ["give values by column, or a condition with where="]
        )
    lookup = lookup_of(index)
    if values is None:
        return lookup.where(where or "")
    found = lookup.locate(values)
    if where is None:
        return found
    also = set(lookup.where(where).files)
    files = tuple(file for file in found.files if file in also)
    return Located(files, found.total, found.pending, found.steps)


def locate_keys(index: Queried, lookup: Lookup, keys: pa.Table) -> Located:
    """The files that may hold one of the rows of keys; remembered for the same rows."""
    mark = _mark(keys)
    if mark is None:
        return lookup.match(keys)
    key = (index.storage_path, lookup.data.version, index.metadata.schema, mark)
    return located_by_keys.get(key, lambda: lookup.match(keys))


def _mark(keys: pa.Table) -> str | None:
    """The same text for the same set of rows, whatever their order."""
    if not all(can_hash(field.type) for field in keys.schema):
        return None
    rows = np.zeros(keys.num_rows, np.uint64)
    for number, column in enumerate(keys.columns):
        with np.errstate(over="ignore"):
            rows = rows * np.uint64(0x9E3779B97F4A7C15) + hash_values(column) + np.uint64(number)
    digest = hashlib.blake2b(np.unique(rows).tobytes(), digest_size=16)
    digest.update(str(keys.schema).encode())
    return digest.hexdigest()
