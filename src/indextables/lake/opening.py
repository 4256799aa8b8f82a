"""Reading a place that is a table or a search index, whichever it is.

Spark and the command line open what a name or a path stands for. A search index has the versions
of its source: a version or a time is looked for there, not in the log of the index.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cachetools import LRUCache

from indextables.config import Config
from indextables.errors import VersionNotFoundError
from indextables.lake.coverage import Definition
from indextables.lake.iceberg import CATALOG, CATALOG_OPTION
from indextables.lake.search_index import SearchIndex, source_of
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.access import TableAccess
from indextables.plan.view import SEARCH_INDEX_PROPERTY, TableView
from indextables.storage import open_store
from indextables.storage.location import parse_location
from indextables.table.arguments import Timestamp, milliseconds
from indextables.table.table import Table

_open: LRUCache[object, SearchIndex] = LRUCache(64)
_lock = threading.Lock()


def is_search_index(snapshot: Snapshot) -> bool:
    """Whether the rows of these splits are elsewhere."""
    return SEARCH_INDEX_PROPERTY in snapshot.metadata.configuration


def view_of(
    access: TableAccess, *, version: int | None = None, timestamp: Timestamp | None = None
) -> TableView:
    """What is at a place, now, at a version or at a time."""
    log = access.log()
    moment = None if timestamp is None else milliseconds(timestamp)
    with _versions_of_source(log):
        snapshot = log.snapshot(version=version, timestamp_ms=moment)
        if not is_search_index(snapshot):
            return access.view(snapshot)
    return search_index_of(access).table(version=version, timestamp=moment).view


def search_index_of(access: TableAccess) -> SearchIndex:
    """The search index at a place. Equal accesses of this process share it."""
    log = access.log()
    definition = Definition.of(log.snapshot().metadata, uri=access.uri)
    options: dict[str, object] = {
        n: v for n, v in access.stores.items() if n.startswith(CATALOG_OPTION)
    }
    if not definition.source.startswith(CATALOG):
        options = access.storage_of(definition.source)
    key = (id(log), definition.source, definition.format, repr(sorted(options.items())))
    with _lock:
        index = _open.get(key)
    if index is None:
        index = SearchIndex(log, source_of(definition.source, definition.format, options))
        with _lock:
            index = _open.setdefault(key, index)
    return index


def open_table(
    uri: str,
    *,
    version: int | None = None,
    timestamp: Timestamp | None = None,
    config: Mapping[str, object] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Table:
    """As `Table.open`, of a search index too, which can be read only."""
    index_options = own_options(uri, storage_options)
    log = TransactionLog(open_store(uri, index_options), config=Config(config))
    with _versions_of_source(log):
        table = Table.of_log(log, version=version, timestamp=timestamp)
        if SEARCH_INDEX_PROPERTY not in table.metadata().configuration:
            return table
    index = SearchIndex.open(
        uri,
        config=config,
        storage_options=index_options,
        source_options=None if index_options else storage_options,
    )
    return index.table(version=version, timestamp=timestamp)


def own_options(
    uri: str, storage_options: Mapping[str, object] | None
) -> Mapping[str, object] | None:
    """The options of the store of a place: those given for a local index are of its source."""
    if storage_options and parse_location(uri).scheme == "file" and _is_index(uri):
        return None
    return storage_options


def _is_index(uri: str) -> bool:
    log = TransactionLog(open_store(uri))
    return log.exists() and is_search_index(log.snapshot())


@contextmanager
def _versions_of_source(log: TransactionLog) -> Iterator[None]:
    """Pass over a version that the log of an index does not have."""
    try:
        yield
    except VersionNotFoundError:
        if not is_search_index(log.snapshot()):
            raise
