"""How the driver and its tasks reach a table: its address and the configuration of a session.

A `TableAccess` is pickled to executors with its credentials, and its repr leaves them out. Accesses
of one process that are equal share a log, and so its cached snapshots.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from indextables.config import Config, storage_key
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.source_options import store_settings
from indextables.plan.view import TableView, refuse_search_index
from indextables.runner import Runner
from indextables.storage import Store, canonical_uri, open_store
from indextables.storage.location import parse_location

_MAX_LOGS = 256

RunnerOf = Callable[[Store, Config], Runner | None]


@dataclass(frozen=True)
class TableAccess:
    """A table's address, and the configuration and credentials with which it is read."""

    path: str
    config: Mapping[str, object] = field(default_factory=dict, repr=False)
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)
    stores: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What there is for other stores, by the names of Hadoop and of the Scala product."""

    @cached_property
    def uri(self) -> str:
        """The canonical spelling of the table's address."""
        return canonical_uri(self.path)

    @cached_property
    def settings(self) -> Config:
        """The configuration, checked."""
        return Config(self.config)

    def store(self) -> Store:
        """The store of the table."""
        return open_store(self.path, self.storage)

    def log(self) -> TransactionLog:
        """The table's log; equal accesses of this process share it."""
        return _LOGS.get(self)

    def view(self, snapshot: Snapshot | None = None) -> TableView:
        """The newest version of the table, or the one of a snapshot."""
        log = self.log()
        if snapshot is None:
            snapshot = log.snapshot()
        refuse_search_index(snapshot.metadata, uri=self.uri)
        return TableView(log.store, snapshot, self.settings)

    def storage_of(self, uri: str) -> dict[str, object]:
        """What the store of another place is reached with, such as that of an index's source."""
        scheme, own = parse_location(uri).scheme, parse_location(self.path).scheme
        if scheme == "file":
            return {}
        named = {
            name: value
            for name, value in self.stores.items()
            if not name.startswith("fs.") and storage_key(name) is None
        }
        own_options = self.storage if own == scheme else {}
        return {**store_settings(scheme, self.stores), **named, **own_options}

    def __getstate__(self) -> dict[str, object]:
        options = {"config": self.config, "storage": self.storage, "stores": self.stores}
        return {"path": self.path, **{name: dict(given) for name, given in options.items()}}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


class _Logs:
    """The logs that this process has open, the most recently used ones."""

    def __init__(self) -> None:
        self._open: OrderedDict[object, TransactionLog] = OrderedDict()
        self._lock = threading.Lock()
        self.runner_of: RunnerOf = lambda _store, _config: None

    def get(self, access: TableAccess) -> TransactionLog:
        key = (access.uri, _frozen(access.config), _frozen(access.storage))
        with self._lock:
            cached = self._open.get(key)
            if cached is not None:
                self._open.move_to_end(key)
                return cached
        store = access.store()
        runner = self.runner_of(store, access.settings)
        opened = TransactionLog(store, config=access.settings, runner=runner)
        with self._lock:
            opened = self._open.setdefault(key, opened)
            while len(self._open) > _MAX_LOGS:
                self._open.popitem(last=False)
        return opened

    def matching(self, uri: str | None) -> list[TransactionLog]:
        with self._lock:
            return [
                log for log in self._open.values() if uri in (None, canonical_uri(log.store.uri))
            ]


_LOGS = _Logs()


def _frozen(options: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in options.items()))


def invalidate_logs(path: str | None = None) -> list[TransactionLog]:
    """Drop what this process cached of a table's log, or of all logs; return those logs."""
    logs = _LOGS.matching(None if path is None else canonical_uri(path))
    for log in logs:
        log.invalidate()
    return logs


def read_logs_with(runner_of: RunnerOf) -> None:
    """Choose what reads the version files of logs that are opened from now on."""
    _LOGS.runner_of = runner_of
