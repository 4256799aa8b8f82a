"""Index tables as the source and the sink of streams, `format("indextables")`.

A stream begins with the rows of a version, file by file, and goes on with what each later version
added. An offset names the next file: its version, its place among the version's files in the order
of their paths, and whether the version is the one that the stream began with. Files of a version
never change, so what lies between two offsets is the same whenever it is read. A commit that also
removed rows is one unit. Merges have no rows. With `where`, only rows that meet the condition are
read, its searches answered by the index of each new split. Spark runs the reader in a process of
its own on the driver, and `read` in tasks.

Of a sink, a batch is in the table exactly once. Its commit notes the id of the streaming query,
which is kept in the query's checkpoint, and the number of the batch (the `txn` action). Spark runs
a batch again when it died between our commit and its own; the log then has it already. The writer's
classes run in worker processes of Spark: each batch is planned in one, stored by tasks, and
committed in another one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import datasource as source
from pyspark.sql.types import StructType

from indextables.config import parse_boolean
from indextables.config.key import parse_size
from indextables.errors import (
    ConfigError,
    ObjectNotFoundError,
    PurgedVersionError,
    StreamSourceError,
)
from indextables.jobs.write_job import TaskOutput, WriteJob, WriteKind, plan_write
from indextables.log.actions import Add, Remove, Txn
from indextables.log.files import files_from_adds
from indextables.log.snapshot import Snapshot, VersionActions
from indextables.log.transaction import marked_paths
from indextables.log.transaction_log import TransactionLog
from indextables.plan.access import SourceOptions, TableAccess
from indextables.plan.changes import (
    AFTER,
    CHANGE_TYPE,
    INSERT,
    table_changes,
    tasks_of,
    version_since,
)
from indextables.plan.scan import SplitTask
from indextables.plan.split_reader import SplitReader, in_groups
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Predicate
from indextables.spark.schemas import spark_schema, table_schema, without_mappings, worker_schema
from indextables.table.arguments import milliseconds

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A source that stops at what was there when the query began."""


_PARALLELISM = 64
"""Splits are read by no more tasks than these."""


@dataclass(frozen=True)
class StreamOptions:
    """The options of `readStream`, besides those of every read."""

    starting_version: int | None = None
    starting_timestamp: str | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    where: str | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    begins_after_newest: bool = False

    NAMES: ClassVar = (
        "startingVersion", "startingTimestamp", "maxFilesPerTrigger", "maxBytesPerTrigger",
        "where", "ignoreDeletes", "ignoreChanges",
    )  # fmt: skip

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """Read the options of a stream."""
        named = {name.lower(): value for name, value in options.items()}
        version = named.get("startingversion")
        if version is not None and "startingtimestamp" in named:
            raise ConfigError("A stream starts at startingVersion or startingTimestamp, not both.")
        is_latest = version is not None and version.strip().lower() == "latest"
        return cls(
            starting_version=None if is_latest else _number(named, "startingVersion", least=0),
            starting_timestamp=named.get("startingtimestamp"),
            max_files=_number(named, "maxFilesPerTrigger"),
            max_bytes=_size(named.get("maxbytespertrigger")),
            where=named.get("where"),
            ignore_deletes=parse_boolean(named.get("ignoredeletes", "false"), name="ignoreDeletes"),
            ignore_changes=parse_boolean(named.get("ignorechanges", "false"), name="ignoreChanges"),
            begins_after_newest=is_latest,
        )


_NAMES = {name.lower() for name in StreamOptions.NAMES}


def is_stream_option(name: str) -> bool:
    """Whether an option is one that only streams have."""
    return name.lower() in _NAMES


def _number(named: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    text = named.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < least:
        raise ConfigError(f"{name} is a number from {least} on, not {text!r}.")
    return int(text)


def _size(text: str | None) -> int | None:
    return None if text is None else parse_size(text, name="maxBytesPerTrigger")


def check_stream(options: SourceOptions, stream: StreamOptions) -> None:
    """Refuse a stream that cannot begin: there is no such table, version, column or search."""
    view = options.access().view()
    _condition(stream, view)
    _check_start(stream, options.access().log(), view.snapshot)


def _condition(stream: StreamOptions, view: TableView) -> Predicate:
    """The condition of a stream, by stored names."""
    if stream.where is None:
        return TRUE
    return view.condition(stream.where)


def _check_start(stream: StreamOptions, log: TransactionLog, newest: Snapshot) -> None:
    if stream.starting_version is not None and stream.starting_version > newest.version + 1:
        log.snapshot(version=stream.starting_version)  # raises what there is


@dataclass
class FilePartition(source.InputPartition):
    """The new splits that one task reads."""

    reader: SplitReader
    tasks: list[SplitTask]


@dataclass
class CommitPartition(source.InputPartition):
    """A commit that also removed rows: one task reads the new ones."""

    view: TableView
    version: int
    predicate: Predicate


class TableStreamReader(source.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the rows that versions added, as `StreamLog` orders them."""

    def __init__(self, options: SourceOptions, stream: StreamOptions, schema: StructType) -> None:
        self.access = options.access()
        self.options = stream
        self.schema = schema
        self.target: int | None = None

    # --- offsets -----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        log, options = self.access.log(), self.options
        newest = log.newest()
        table = newest.metadata.id
        if options.begins_after_newest:
            return Offset(table, newest.version + 1).to_json()
        if options.starting_version is not None:
            _check_start(options, log, newest)
            return Offset(table, options.starting_version).to_json()
        if options.starting_timestamp is not None:
            moment = options.starting_timestamp.strip()
            since = version_since(log, milliseconds(int(moment) if moment.isdecimal() else moment))
            return Offset(table, since).to_json()
        return Offset(table, newest.version, is_start=True).to_json()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        newest = self.access.log().newest()
        if start is None:  # before Spark 4.2 there are no limits
            return Offset(newest.metadata.id, newest.version + 1).to_json()
        last = newest.version if self.target is None else min(self.target, newest.version)
        at = self._offset(start, newest)
        files, size = 0, 0
        is_limited = type(limit).__name__ != "ReadAllAvailable"
        for unit in self._log(newest).units(at, last):
            files, size = files + 1, size + unit.size
            if is_limited and files > 1 and self._is_too_much(files, size):
                return at.to_json()
            at = unit.after
        # Versions without new rows are passed over.
        return (at if at.version > last else Offset(at.table, last + 1)).to_json()

    def _is_too_much(self, files: int, size: int) -> bool:
        most_files, most_bytes = self.options.max_files, self.options.max_bytes
        return (most_files is not None and files > most_files) or (
            most_bytes is not None and size > most_bytes
        )

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

        if self.options.max_files is not None:
            return ReadMaxFiles(self.options.max_files)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self.access.log().newest().version

    def _offset(self, body: Mapping[str, Any], newest: Snapshot) -> Offset:
        return Offset.from_json(body, uri=self.access.uri, table=newest.metadata.id)

    def _log(self, newest: Snapshot) -> StreamLog:
        return StreamLog(
            self.access.log(),
            newest.metadata.id,
            ignore_deletes=self.options.ignore_deletes,
            ignore_changes=self.options.ignore_changes,
        )

    # --- rows --------------------------------------------------------------------------------

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[source.InputPartition]:
        newest = self.access.log().newest()
        view = self.access.view(newest)
        self._check_columns(view)
        predicate = _condition(self.options, view)
        first, last = self._offset(start, newest), self._offset(end, newest)
        files: list[pa.Table] = []
        partitions: list[source.InputPartition] = []
        complete = last.version if last.index else last.version - 1
        for unit in self._log(newest).units(first, complete):
            if (unit.at.version, unit.at.index) >= (last.version, last.index):
                break
            if unit.file is not None:
                files.append(unit.file)
            else:
                partitions.append(CommitPartition(view.for_tasks(), unit.at.version, predicate))
        if files:
            tasks = tasks_of(view, pa.concat_tables(files), predicate)
            names = view.names.stored_names(f.name for f in self.schema.fields)
            reader = SplitReader(view.for_tasks(), names)
            groups = in_groups(tasks, parallelism=_PARALLELISM)
            partitions += [FilePartition(reader, group) for group in groups]
        return partitions

    def _check_columns(self, view: TableView) -> None:
        now = without_mappings(spark_schema(view.names.shown).fields)
        at_start = without_mappings(self.schema.fields)
        if [(f.name, f.dataType) for f in now] != [(f.name, f.dataType) for f in at_start]:
            raise StreamSourceError(
                view.uri,
                f"its columns changed in version {view.version} or before. Start the query again: "
                "it continues where it was, with the current columns.",
            )

    def read(self, partition: source.InputPartition) -> Iterator[Any]:
        target = worker_schema(self.schema)
        if isinstance(partition, FilePartition):
            yield from partition.reader.batches(partition.tasks, target)
        elif isinstance(partition, CommitPartition):
            version = partition.version
            changes = table_changes(
                self.access.log(), partition.view,
                first=version, last=version, predicate=partition.predicate,
            )  # fmt: skip
            for rows in changes:
                if rows[CHANGE_TYPE][0].as_py() in (INSERT, AFTER):
                    yield from rows.select(target.names).cast(target).to_batches()


# --- the sink --------------------------------------------------------------------------------

_QUERY_ID = "sql.streaming.queryId"


@dataclass
class StoredBatch(source.WriterCommitMessage):
    """What one task stored of a batch, the query that it is of, and how it was planned."""

    output: TaskOutput
    query: str | None
    job: WriteJob


class TableStreamWriter(source.DataSourceStreamArrowWriter):
    """Tasks store splits; `commit` names them in the log, with the number of the batch."""

    def __init__(self, options: SourceOptions, schema: StructType, *, overwrite: bool) -> None:
        self.access: TableAccess = options.access()
        kind: WriteKind = "overwrite" if overwrite else "append"
        if options.replace_where is not None or options.overwrite_schema or options.dynamic:
            raise ConfigError(
                "A stream appends, or replaces all rows with outputMode('complete'). Leave out "
                "replaceWhere, overwriteSchema and dynamic partition overwrite, or use "
                "foreachBatch."
            )
        self.job = plan_write(
            self.access.log(),
            table_schema(schema),
            settings=self.access.settings,
            kind=kind,
            partition_by=options.partition_by,
            merge_schema=options.merge_schema,
        )

    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> source.WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        return StoredBatch(self.job.write(iterator), query, self.job.for_tasks())

    def commit(
        self,
        messages: list[source.WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        stored = _stored(messages)
        if not stored:
            return
        query = stored[0].query
        if query is None:
            raise ConfigError("Spark does not say which streaming query this is. Use foreachBatch.")
        batch = Txn(app_id=query, version=batchId, last_updated=time.time_ns() // 1_000_000)
        # Planned before the tasks ran: what others changed since is a conflict.
        job = stored[0].job
        job.commit(self.access.log(), [message.output for message in stored], batch=batch)

    def abort(
        self,
        messages: list[source.WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803 - Spark's name
    ) -> None:
        self.job.abort(self.access.log(), [message.output for message in _stored(messages)])


def _stored(messages: Sequence[source.WriterCommitMessage | None]) -> list[StoredBatch]:
    return [message for message in messages if isinstance(message, StoredBatch)]


# --- offsets ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offset:
    """The next file of a stream. `is_start`: of all files of the version, not of the added ones."""

    table: str
    version: int
    index: int = 0
    is_start: bool = False

    def to_json(self) -> dict[str, Any]:
        """The offset as Spark keeps it in a checkpoint."""
        return {
            "table": self.table, "version": self.version, "index": self.index,
            "isStart": self.is_start,
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: Mapping[str, Any], *, uri: str, table: str) -> Offset:
        """An offset of this table; those of another one are refused."""
        try:
            offset = cls(body["table"], body["version"], body["index"], body["isStart"])
        except KeyError as error:
            raise StreamSourceError(
                uri, "its checkpoint was not written by this source."
            ) from error
        if offset.table != table:
            raise StreamSourceError(
                uri,
                "its checkpoint belongs to another table, or the table was dropped and created "
                "again. Start it with a checkpointLocation of its own.",
            )
        return offset


@dataclass(frozen=True, slots=True)
class Unit:
    """What is read at once: a file that was added, or all that a commit changed."""

    at: Offset
    after: Offset
    size: int
    file: pa.Table | None
    """A row of the log's files; None for a commit that also removed rows."""


@dataclass(frozen=True, slots=True)
class StreamLog:
    """The units of a table's log."""

    log: TransactionLog
    table: str
    ignore_deletes: bool = False
    ignore_changes: bool = False

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self.log.store.uri

    def units(self, start: Offset, last: int) -> Iterator[Unit]:
        """What comes after an offset, up to version `last`."""
        if start.is_start:
            files = self.log.snapshot(version=start.version).entries.sort_by("path")
            yield from self._files(start, files)
            start = Offset(self.table, start.version + 1)
        for version in range(start.version, last + 1):
            try:
                actions = self.log.actions(version)
            except ObjectNotFoundError as error:
                raise PurgedVersionError(self.uri, version) from error
            first = start if version == start.version else Offset(self.table, version)
            yield from self._commit(first, actions)

    def _commit(self, first: Offset, commit: VersionActions) -> Iterator[Unit]:
        adds = [a for a in commit.actions if isinstance(a, Add) and a.data_change]
        removed = {a.path for a in commit.actions if isinstance(a, Remove) and a.data_change}
        if not removed:
            files = files_from_adds([(add, first.version, 0) for add in adds])
            yield from self._files(first, files.sort_by("path"))
        elif self._has_new_rows(commit, adds) and first.index == 0:
            after = replace(first, version=first.version + 1)
            yield Unit(first, after, sum(add.size for add in adds), None)

    def _has_new_rows(self, commit: VersionActions, adds: list[Add]) -> bool:
        """Whether a commit that removed rows has others to read; what is not ignored is refused."""
        metrics = (commit.commit_info.operation_metrics if commit.commit_info else None) or {}
        # A split that RESTORE puts back may have rows again that were marked as deleted.
        marked = marked_paths(commit)
        is_delete = all(add.path in marked for add in adds) or metrics.get("rows") == 0
        if self.ignore_changes or (self.ignore_deletes and is_delete):
            return not is_delete
        done = "deleted" if is_delete else "changed or replaced"
        option = "ignoreDeletes" if is_delete else "ignoreChanges"
        raise StreamSourceError(
            self.uri,
            f"version {commit.version} {done} rows, and rows that were already sent cannot be "
            f"withdrawn. Set {option} to continue with new rows only, or read "
            "indextables_changes.",
        )

    def _files(self, first: Offset, files: pa.Table) -> Iterator[Unit]:
        count = files.num_rows
        for number in range(first.index, count):
            after = replace(first, index=number + 1)
            if number + 1 == count:
                after = Offset(self.table, first.version + 1)
            file = files.slice(number, 1)
            size: int = file["size"][0].as_py()
            yield Unit(replace(first, index=number), after, size, file)
