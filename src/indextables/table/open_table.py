"""A table that is open: what it is now and was before, and what all verbs share."""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Callable, Mapping

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config, known_keys
from indextables.errors import ConfigError, IndexTablesError
from indextables.log.actions import Metadata
from indextables.log.avro_state import PartitionBounds
from indextables.log.cache import CacheStats
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.column_names import names_in, names_of, shown
from indextables.plan.execute import mapping_of
from indextables.plan.skipping import bounds_may_match
from indextables.predicate import TRUE, Predicate, searches
from indextables.predicate.sql_text import parse_predicate
from indextables.split.query import resolve
from indextables.storage import canonical_uri

Timestamp = datetime.datetime | str | int


class OpenTable:
    """A transaction log, a configuration, and the version that reads see if one was chosen."""

    def __init__(self, log: TransactionLog, *, config: Config, version: int | None) -> None:
        self._log = log
        self._config = config
        self._version = version
        self._was_read_in_part = False

    @property
    def uri(self) -> str:
        """Where the table is."""
        return canonical_uri(self._log.store.uri)

    @property
    def log(self) -> TransactionLog:
        """The table's transaction log."""
        return self._log

    @property
    def version(self) -> int:
        """The version that reads see."""
        return self.snapshot().version

    @property
    def schema(self) -> pa.Schema:
        """The columns, partition columns included."""
        return names_of(self.snapshot()).shown

    def snapshot(
        self, *, version: int | None = None, timestamp: Timestamp | None = None
    ) -> Snapshot:
        """The table's files, schema and properties, now or in the past, as the log has them.

        A column that was renamed has the name there that it is stored under.
        """
        if version is not None and timestamp is not None:
            raise ConfigError("Say either version=… or timestamp=…, not both.")
        if version is not None and not hasattr(version, "__index__"):
            raise ConfigError(f"A version is a number, not {version!r}.")
        if timestamp is not None:
            return self._log.snapshot(timestamp_ms=_milliseconds(timestamp))
        return self._log.snapshot(version=self._version if version is None else version)

    def _snapshot_for(self, where: str | None) -> Snapshot:
        """The table as a condition needs it: files of partitions that it denies may be missing.

        Only the first question of an open table is answered from a part of the log. The next one
        will ask for other partitions, and the whole snapshot is kept.
        """
        if where is None or self._version is not None or self._was_read_in_part:
            return self.snapshot()
        snapshot = self._log.snapshot(keep_manifest=functools.partial(_may_hold, where))
        self._was_read_in_part = snapshot.partial
        return snapshot

    def history(self, *, limit: int | None = None) -> pa.Table:
        """The retained versions, newest first."""
        entries = self._log.history(limit=limit)
        return pa.table(
            {
                "version": pa.array([e.version for e in entries], pa.int64()),
                "timestamp": pa.array(
                    [e.timestamp * 1000 for e in entries], pa.timestamp("us", "UTC")
                ),
                "operation": pa.array([e.operation for e in entries], pa.string()),
                "filesAdded": pa.array([e.files_added for e in entries], pa.int64()),
                "filesRemoved": pa.array([e.files_removed for e in entries], pa.int64()),
                "metrics": pa.array(
                    [[(k, str(v)) for k, v in e.metrics.items()] for e in entries],
                    pa.map_(pa.string(), pa.string()),
                ),
                "parameters": pa.array(
                    [[(k, str(v)) for k, v in e.parameters.items()] for e in entries],
                    pa.map_(pa.string(), pa.string()),
                ),
            }
        )

    def cache_stats(self) -> dict[str, CacheStats]:
        """Hits and misses of the log's caches."""
        return self._log.cache_stats()

    def _predicate(
        self, where: str | None, snapshot: Snapshot, *, timezone: str = "UTC"
    ) -> Predicate:
        if where is None:
            return TRUE
        config = self._effective(snapshot)
        names = names_of(snapshot)
        predicate = parse_predicate(
            where,
            names.shown,
            timezone=timezone,
            max_query_length=config[keys.INDEXQUERY_MAX_LENGTH],
            max_query_depth=config[keys.INDEXQUERY_MAX_DEPTH],
        )
        check_searches(predicate, shown(snapshot))
        return names.stored_predicate(predicate)

    def _effective(self, snapshot: Snapshot) -> Config:
        """This table's configuration over the table's own properties."""
        return self._config.over(known_keys(snapshot.metadata.configuration))

    def _with(self, config: Mapping[str, object] | None) -> Config:
        return Config(config).over(self._config)

    def _check_writable(self) -> None:
        if self._version is not None:
            raise ConfigError(
                f"'{self.uri}' was opened at version {self._version}, to be read. Open it without "
                "a version to write, or restore that version."
            )


def _may_hold(where: str, metadata: Metadata) -> Callable[[Mapping[str, PartitionBounds]], bool]:
    """Which manifests a condition leaves, by the metadata of a checkpoint."""
    try:
        names = names_in(metadata)
        predicate = names.stored_predicate(parse_predicate(where, names.shown))
    except IndexTablesError:  # it is told when the condition is read with the newest metadata
        return lambda _bounds: True
    return functools.partial(
        bounds_may_match,
        predicate,
        schema=names.stored,
        partition_columns=metadata.partition_columns,
    )


def check_searches(predicate: Predicate, snapshot: Snapshot) -> None:
    """Refuse searches that the table's mapping cannot answer, before any split is opened."""
    for search in searches(predicate):
        resolve(search, mapping_of(snapshot), snapshot.schema)


def _milliseconds(timestamp: Timestamp) -> int:
    """Epoch milliseconds of a moment; one without a time zone is meant in UTC."""
    if isinstance(timestamp, int):
        return timestamp
    if isinstance(timestamp, str):
        with contextlib.suppress(ValueError):
            timestamp = datetime.datetime.fromisoformat(timestamp)
    if not isinstance(timestamp, datetime.datetime):
        raise ConfigError(
            f"{timestamp!r} is no time. Write 2024-01-31T12:00:00, a datetime, or milliseconds."
        )
    if timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=datetime.UTC)
    return int(timestamp.timestamp() * 1000)
