"""A table that is searched and written from plain Python.

::

    table = Table.create("docs", schema, mapping={"id": "string"})
    table.append(rows)
    table.search('"machine learning" AND spark~1', fields=["content"], limit=10)
    table.scan(columns=["id"], where="content indexquery 'spark' AND n > 3")

Every verb is one call into a plan or a job. Results are Arrow tables and complete: there is no
hidden limit.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config, known_keys
from indextables.errors import ConfigError, NotATableError, SchemaError
from indextables.jobs import write_rows
from indextables.jobs.commit_write import Written
from indextables.jobs.new_table import new_table
from indextables.jobs.purge import Purged, purge
from indextables.jobs.restore import restore
from indextables.log.cache import CacheStats
from indextables.log.last_checkpoint import LastCheckpoint
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.count import count_rows
from indextables.plan.execute import (
    Environment,
    mapping_of,
    result_schema,
    run_scan,
)
from indextables.plan.explain import explain_scan
from indextables.plan.ranking import SCORE, top_rows, with_snippets
from indextables.plan.scan import plan_scan
from indextables.predicate import TRUE, Predicate, Search, searches
from indextables.predicate.search import over_fields
from indextables.predicate.search_syntax import parse_search
from indextables.predicate.sql_text import parse_predicate
from indextables.schema import from_json
from indextables.split.query import resolve
from indextables.storage import canonical_uri, open_store

Timestamp = datetime.datetime | str | int


class Table:
    """An index table at a URI. Make one with `create` or `open`."""

    def __init__(self, log: TransactionLog, *, config: Config, version: int | None) -> None:
        self._log = log
        self._config = config
        self._version = version

    # --- opening -----------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        schema: pa.Schema | str,
        *,
        partition_by: Sequence[str] = (),
        mapping: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        config: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> Table:
        """Create an empty table.

        `schema` is an Arrow schema or Spark's schema as JSON. `mapping` chooses how columns are
        searched (`text`, `string`, `json`, `ip`); other indexing options are `config` keys.
        `properties` are kept with the table and configure everybody who uses it.

        >>> schema = pa.schema([("id", pa.string()), ("body", pa.string())])
        >>> table = Table.create("memory://create-example", schema, mapping={"id": "string"})
        >>> table.append(pa.table({"id": ["a", "b"], "body": ["red fox", "lazy dog"]})).rows
        2
        >>> table.search("fox")["id"].to_pylist()
        ['a']
        """
        types = {f"{keys.TYPE_MAP.name}{column}": kind for column, kind in (mapping or {}).items()}
        metadata, _ = new_table(
            from_json(schema) if isinstance(schema, str) else schema,
            partition_by=partition_by,
            properties=properties or {},
            config=Config(types, config),
            name=name,
            description=description,
        )
        settings = Config(config)
        log = TransactionLog.create(open_store(uri, storage_options), metadata, config=settings)
        return cls(log, config=settings, version=None)

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        config: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> Table:
        """Open a table as it is now, at a version, or as it was at a time.

        A table that is opened at a version or a time can be read only.
        """
        settings = Config(config)
        log = TransactionLog(open_store(uri, storage_options), config=settings)
        table = cls(log, config=settings, version=None)
        found = table.snapshot(version=version, timestamp=timestamp)
        if version is not None or timestamp is not None:
            table._version = found.version
        return table

    @classmethod
    def exists(
        cls,
        uri: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> bool:
        """Whether there is a table at the URI."""
        try:
            TransactionLog(open_store(uri, storage_options)).snapshot()
        except NotATableError:
            return False
        return True

    # --- looking -----------------------------------------------------------------------------

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
        return self.snapshot().schema

    def snapshot(
        self, *, version: int | None = None, timestamp: Timestamp | None = None
    ) -> Snapshot:
        """The table's files, schema and properties, now or in the past."""
        if version is not None and timestamp is not None:
            raise ConfigError("Say either version=… or timestamp=…, not both.")
        if timestamp is not None:
            return self._log.snapshot(timestamp_ms=_milliseconds(timestamp))
        return self._log.snapshot(version=self._version if version is None else version)

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

    # --- reading -----------------------------------------------------------------------------

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The rows that meet a condition, all of them unless there is a limit.

        `where` is a SQL condition in Spark's dialect; `column indexquery '…'`, `_indexall
        indexquery '…'` and `indexqueryall('…')` search.
        """
        return self.scan_batches(columns=columns, where=where, limit=limit).read_all()

    def scan_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """The same rows as a stream, for results larger than memory."""
        snapshot = self.snapshot()
        plan = plan_scan(
            snapshot,
            predicate=self._predicate(where, snapshot),
            columns=columns,
            limit=_checked_limit(limit),
        )
        schema = result_schema(plan)
        pieces = run_scan(plan, self._environment(snapshot))
        fitting = (p if p.schema.equals(schema) else p.cast(schema) for p in pieces)
        batches = (batch for piece in fitting for batch in piece.to_batches())
        return pa.RecordBatchReader.from_batches(schema, batches)

    def search(
        self,
        query: str,
        *,
        fields: Sequence[str] | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = 10,
        snippets: Sequence[str] = (),
    ) -> pa.Table:
        """The best rows for a search, best first, with a `_score`.

        `fields` are searched where the query names none; all indexed ones by default. For each
        column of `snippets` there is a column `_snippet_<name>` with its best part, the words
        found marked. Scores are BM25 over the whole table and do not depend on its layout.
        """
        snapshot = self.snapshot()
        environment = self._environment(snapshot)
        search = self._search(query, fields, snapshot)
        chosen = plan_scan(snapshot, columns=columns).columns
        shown = plan_scan(snapshot, columns=snippets).columns if snippets else ()
        needed = list(dict.fromkeys([*chosen, *shown]))
        result = [*chosen, SCORE, *(f"_snippet_{name}" for name in snippets)]
        if repeated := sorted({name for name in result if result.count(name) > 1}):
            raise SchemaError(
                f"The result would have the column '{repeated[0]}' twice. Choose with columns=… "
                "what it should have."
            )
        found = top_rows(
            snapshot,
            environment,
            search,
            predicate=self._predicate(where, snapshot),
            columns=needed,
            limit=_checked_limit(limit),
            config=self._effective(snapshot),
        )
        marked = with_snippets(found, search, snippets, environment.context)
        return marked.select(result)

    def count(self, *, where: str | None = None) -> int:
        """How many rows meet a condition; from the log alone where it knows."""
        snapshot = self.snapshot()
        predicate = self._predicate(where, snapshot)
        return count_rows(snapshot, predicate, lambda: self._environment(snapshot))

    def explain(
        self,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> str:
        """What a scan would do: how many splits and bytes each stage keeps, and why."""
        snapshot = self.snapshot()
        predicate = self._predicate(where, snapshot)
        plan = plan_scan(
            snapshot, predicate=predicate, columns=columns, limit=_checked_limit(limit)
        )
        return explain_scan(plan, mapping_of(snapshot))

    # --- writing -----------------------------------------------------------------------------

    def append(
        self, data: Any, *, merge_schema: bool = False, config: Mapping[str, object] | None = None
    ) -> Written:
        """Add rows: an Arrow table, batches or a reader, a pandas or Polars DataFrame.

        With `merge_schema`, new columns are added to the table and types are widened.
        """
        self._check_writable()
        return write_rows.append_rows(
            self._log, data, config=self._with(config), merge_schema=merge_schema
        )

    def overwrite(
        self,
        data: Any,
        *,
        where: str | None = None,
        partitions: Literal["all", "dynamic"] = "all",
        merge_schema: bool = False,
        config: Mapping[str, object] | None = None,
    ) -> Written:
        """Replace rows: all of them, those that meet `where`, or the partitions that `data` has."""
        self._check_writable()
        settings = self._with(config)
        if partitions not in ("all", "dynamic"):
            raise ConfigError(f"partitions is 'all' or 'dynamic', not {partitions!r}.")
        if where is not None:
            if partitions == "dynamic":
                raise ConfigError("Use either `where` or partitions='dynamic', not both.")
            predicate = self._predicate(where, self.snapshot())
            return write_rows.overwrite_where(
                self._log, data, predicate, config=settings, merge_schema=merge_schema
            )
        job = (
            write_rows.overwrite_partitions if partitions == "dynamic" else write_rows.overwrite_all
        )
        return job(self._log, data, config=settings, merge_schema=merge_schema)

    def delete(self, *, where: str) -> Written:
        """Delete the rows that meet a condition, searches included."""
        self._check_writable()
        predicate = self._predicate(where, self.snapshot())
        return write_rows.delete_rows(self._log, predicate, config=self._config)

    def restore(self, *, version: int | None = None, timestamp: Timestamp | None = None) -> int:
        """Make the table what it was, as a new version; gives that version."""
        self._check_writable()
        if (version is None) == (timestamp is None):
            raise ConfigError("Say either version=… or timestamp=… to restore.")
        return restore(self._log, self.snapshot(version=version, timestamp=timestamp)).version

    def checkpoint(self) -> LastCheckpoint:
        """Write a checkpoint of the newest version now."""
        self._check_writable()
        return self._log.checkpoint()

    def purge(self, *, older_than_hours: float | None = None, dry_run: bool = False) -> Purged:
        """Delete expired log files, and old splits that no retained version names.

        With `dry_run`, only say which. Splits are kept for `purge.defaultRetentionHours` unless
        `older_than_hours` says otherwise.
        """
        self._check_writable()
        config = self._effective(self.snapshot())
        return purge(self._log, retention_hours=older_than_hours, dry_run=dry_run, config=config)

    # --- inside ------------------------------------------------------------------------------

    def _predicate(self, where: str | None, snapshot: Snapshot) -> Predicate:
        if where is None:
            return TRUE
        config = self._effective(snapshot)
        predicate = parse_predicate(
            where,
            snapshot.schema,
            max_query_length=config[keys.INDEXQUERY_MAX_LENGTH],
            max_query_depth=config[keys.INDEXQUERY_MAX_DEPTH],
        )
        _check_searches(predicate, snapshot)
        return predicate

    def _search(self, query: str, fields: Sequence[str] | None, snapshot: Snapshot) -> Search:
        if fields is not None:
            if not fields:
                raise SchemaError("fields is empty. Leave it out to search all indexed fields.")
            plan_scan(snapshot, columns=fields)
        config = self._effective(snapshot)
        node = parse_search(
            query,
            schema=snapshot.schema,
            max_length=config[keys.INDEXQUERY_MAX_LENGTH],
            max_depth=config[keys.INDEXQUERY_MAX_DEPTH],
        )
        search = Search(None, over_fields(node, fields) if fields else node, query)
        _check_searches(search, snapshot)
        return search

    def _environment(self, snapshot: Snapshot) -> Environment:
        return Environment.of(self._log.store, snapshot, self._effective(snapshot))

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

    def __repr__(self) -> str:
        return f"Table({self.uri!r}, version={self.version})"


def _check_searches(predicate: Predicate, snapshot: Snapshot) -> None:
    """Refuse searches that the table's mapping cannot answer, before any split is opened."""
    for search in searches(predicate):
        resolve(search, mapping_of(snapshot), snapshot.schema)


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and (isinstance(limit, bool | str | float) or limit < 0):
        raise ConfigError(f"A limit is a number of rows, not {limit!r}.")
    return limit


def _milliseconds(timestamp: Timestamp) -> int:
    """Epoch milliseconds of a moment; one without a time zone is meant in UTC."""
    if isinstance(timestamp, int):
        return timestamp
    if isinstance(timestamp, str):
        try:
            timestamp = datetime.datetime.fromisoformat(timestamp)
        except ValueError:
            raise ConfigError(
                f"{timestamp!r} is no time. Write 2024-01-31T12:00:00, a datetime, or milliseconds."
            ) from None
    if timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=datetime.UTC)
    return int(timestamp.timestamp() * 1000)
