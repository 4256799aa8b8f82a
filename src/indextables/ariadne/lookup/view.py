"""One version of an index, as queries, joins and SQL use it.

Decoding an index is paid for once a version: the lookups of the versions that were used last are
cached, and with them the sorted hashes, filters and words. What joins located is cached by version
and by the keys themselves, so the same keys are not looked up twice and other keys are never taken
for them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from cachetools import LRUCache, cached

from indextables.ariadne.files.read import arrow_schema
from indextables.ariadne.files.state import current_data
from indextables.ariadne.lookup.lookup import Located, Lookup
from indextables.ariadne.model.metadata import IndexData, Metadata
from indextables.ariadne.store.place import IndexPlace
from indextables.ariadne.values.hashing import can_hash, hash_values
from indextables.errors import AriadneArgumentError

_LOOKUPS = 16
_LOCATED = 256

Identity: TypeAlias = tuple[str, str, str, str, bool]
"""Storage path, version of the data, schema, time zone, all rows."""


@dataclass(frozen=True)
class IndexView:
    """An index with its metadata and its data, of one version each."""

    place: IndexPlace
    metadata: Metadata
    lookup: Lookup
    identity: Identity

    @classmethod
    def of(cls, place: IndexPlace, *, all_rows: bool = False) -> IndexView:
        """Read the newest metadata and data of an index.

        With `all_rows`, temporal columns do not hide older rows; see `Lookup`.
        """
        metadata = place.metadata.load()
        data = current_data(place, metadata)
        timezone = str(place.context.spark.conf.get("spark.sql.session.timeZone") or "UTC")
        identity = (place.uri, data.version, metadata.schema, timezone, all_rows)
        schema = arrow_schema(metadata, name=place.name)
        return cls(place, metadata, _lookup(identity, data, schema), identity)

    def locate(
        self, values: Mapping[str, Iterable[Any]] | None = None, *, where: str | None = None
    ) -> Located:
        """The files that may hold the values and rows for which the condition is true."""
        if values is None and where is None:
            raise AriadneArgumentError(
                "Cannot locate files", ["pass values by column, or a condition with where="]
            )
        if values is None:
            return self.lookup.where(where or "")
        located = self.lookup.locate(values)
        if where is None:
            return located
        also = set(self.lookup.where(where).files)
        files = tuple(file for file in located.files if file in also)
        return Located(files, located.total, located.pending, located.steps)

    def locate_keys(self, keys: pa.Table) -> Located:
        """The files that may hold one of the rows of keys; cached for the same rows."""
        digest = _digest(keys)
        if digest is None:
            return self.lookup.match(keys)
        return cached_keys(self.identity, digest, self.lookup, keys)


@cached(LRUCache(_LOOKUPS), key=lambda identity, *_: identity, lock=threading.Lock())
def _lookup(identity: Identity, data: IndexData, schema: pa.Schema) -> Lookup:
    *_, timezone, all_rows = identity
    return Lookup(data, schema, timezone=timezone, all_rows=all_rows)


@cached(
    LRUCache(_LOCATED),
    key=lambda identity, digest, *_: (identity, digest),
    lock=threading.Lock(),
    info=True,
)
def cached_keys(identity: Identity, digest: str, lookup: Lookup, keys: pa.Table) -> Located:  # noqa: ARG001
    """The files that may hold the keys with this digest."""
    return lookup.match(keys)


def _digest(keys: pa.Table) -> str | None:
    """The same text for the same set of rows, whatever their order; None if they have no hash."""
    if not all(can_hash(field.type) for field in keys.schema):
        return None
    rows = np.zeros(keys.num_rows, np.uint64)
    for number, column in enumerate(keys.columns):
        with np.errstate(over="ignore"):
            rows = rows * np.uint64(0x9E3779B97F4A7C15) + hash_values(column) + np.uint64(number)
    digest = hashlib.blake2b(np.unique(rows).tobytes(), digest_size=16)
    digest.update(str(keys.schema).encode())
    return digest.hexdigest()
