"""Writing a DataFrame: tasks store splits, the driver commits them.

The job is planned on the driver, before any task: a schema that does not fit is refused there. It
is pickled to the tasks; each writes splits under names of its own and reports them. Until the
driver commits, nobody sees them, so a task that fails or runs twice does no harm. A table that is
not there yet is created by the same commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from indextables.config import Config, known_keys
from indextables.errors import (
    IndexTablesError,
    MetadataChangedError,
    NotATableError,
    SchemaError,
    TableExistsError,
)
from indextables.jobs.after_write import after_write
from indextables.jobs.auto_index import commit_indexed
from indextables.jobs.commit_write import (
    Target,
    Written,
    checked_rows,
    commit_partitions,
    commit_replacement,
    commit_write,
    metadata_on,
    scope_of,
    undone_on_error,
)
from indextables.jobs.merge_before_commit import merged_before_commit
from indextables.jobs.new_table import new_table, replaced_table
from indextables.jobs.rewrite import Removal, combined, numbers_by_split, remove_rows
from indextables.jobs.row_changes import replace_rows
from indextables.jobs.write_rows import target_of
from indextables.jobs.write_splits import SplitSink, discard
from indextables.log.actions import Action, Add
from indextables.log.files import empty_files, removes_for
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.column_names import names_of
from indextables.predicate import Predicate
from indextables.predicate.sql_text import parse_predicate
from indextables.schema import ROW_IDENTITY
from indextables.spark.access import TableAccess
from indextables.spark.runner import executors
from indextables.split.memory_index import Rows

Kind = Literal["append", "overwrite", "partitions", "where", "rows"]

# What to do when the table that a write was to create is there after all: the modes of Spark.
Exclusive = Literal["error", "ignore"] | None


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """What one task stored, or the problem of rows that no attempt could store.

    `replaced` are the rows in whose place these were written, by the split's path.
    """

    adds: tuple[Add, ...]
    rows: int
    problem: str | None = None
    replaced: Mapping[str, Rows] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowChange:
    """An UPDATE whose new rows Spark computes, each with the name of the row that it replaces."""

    snapshot: Snapshot = field(repr=False)
    reads_again: bool
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class WriteJob:
    """One write, planned. `snapshot` is the table then; None where there is no table, and in tasks.

    The commit needs the very table that the write was planned on, and its log may have forgotten
    that version by then, or be the log of a table that was made anew in its place.
    """

    access: TableAccess
    kind: Kind
    snapshot: Snapshot | None = field(repr=False)
    target: Target
    partition_columns: tuple[str, ...]
    where: Predicate | None = None
    change: RowChange | None = None
    exclusive: Exclusive = None
    settings: Mapping[str, object] = field(default_factory=dict, repr=False)

    @property
    def columns_of_partitions(self) -> tuple[str, ...]:
        """The partition columns under the names that rows have for them."""
        names = dict(zip(self.target.schema.names, self.target.shown.names, strict=True))
        return tuple(names[name] for name in self.partition_columns)

    @property
    def _config(self) -> Config:
        return Config(self.settings)

    def __getstate__(self) -> dict[str, object]:
        # Only what replaces some of the rows has to know the files.
        kept = self.snapshot
        if kept is not None:
            files = empty_files() if self.kind in ("append", "overwrite") else kept.entries
            kept = replace(kept, base_files=files, changes={})
        return {**self.__dict__, "snapshot": kept}

    # --- in a task ---------------------------------------------------------------------------

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskOutput:
        """Store rows as splits. An error removes what was stored.

        Rows that do not fit the table are reported to the driver, which says so in one sentence; a
        task that failed would be tried again and end in a traceback.
        """
        try:
            return self._write(batches)
        except SchemaError as error:
            return TaskOutput((), 0, str(error))

    def _write(self, batches: Iterable[pa.RecordBatch]) -> TaskOutput:
        rows = 0
        replaced: list[dict[str, Rows]] = []
        with SplitSink(
            self.access.store(),
            schema=self.target.schema,
            partition_columns=self.partition_columns,
            mapping=self.target.mapping,
            config=self._config,
        ) as sink:
            for batch in self._fitting(batches, replaced):
                sink.write(batch)
                rows += batch.num_rows
            return TaskOutput(tuple(sink.finish()), rows, replaced=combined(replaced))

    def _fitting(
        self, batches: Iterable[pa.RecordBatch], replaced: list[dict[str, Rows]]
    ) -> Iterator[pa.RecordBatch]:
        if self.kind == "rows":
            batches = _unnamed(batches, replaced)
        stored = map(self.target.stored, batches)
        if self.where is None:
            return stored
        return checked_rows(stored, self.where, self.target)

    # --- on the driver -----------------------------------------------------------------------

    def commit(self, outputs: Sequence[TaskOutput]) -> Written:
        """Make what the tasks stored the table's next version.

        Raises:
            SchemaError: Rows of a task did not fit. `abort` deletes what the others stored.
        """
        for output in outputs:
            if output.problem is not None:
                raise SchemaError(output.problem)
        log = self.access.log()
        written = self._commit(log, outputs)
        after_write(log, self._config)
        return written

    def _commit(self, log: TransactionLog, outputs: Sequence[TaskOutput]) -> Written:
        adds = merged_before_commit(
            log.store,
            [add for output in outputs for add in output.adds],
            target=self.target,
            partition_columns=self.partition_columns,
            config=self._config,
        )
        rows = sum(output.rows for output in outputs)
        snapshot = self.snapshot
        if snapshot is None:
            try:
                return self._create(log, adds, rows)
            except TableExistsError:
                return self._after_all(log, adds, rows)
        match self.kind:
            case "append":
                transaction = Transaction(
                    operation=Operation.APPEND,
                    transform=lambda newest: [*metadata_on(newest, snapshot, self.target), *adds],
                    read_version=snapshot.version,
                    read_snapshot=snapshot,
                    metrics={"rows": rows, "files": len(adds)},
                )
                return self._commit_write(log, transaction, adds, rows)
            case "overwrite":
                return self._overwrite(log, snapshot, adds, rows)
            case "partitions":
                return self._overwrite_partitions(log, snapshot, adds, rows)
            case "where":
                return self._overwrite_where(log, snapshot, adds, rows)
            case "rows":
                return self._replace_rows(log, adds, outputs)

    def abort(self, outputs: Sequence[TaskOutput]) -> None:
        """Delete what the tasks stored, unless the log names it or cannot be asked.

        Spark aborts after a commit that raised, and such a commit may have happened.
        """
        adds = [add for output in outputs for add in output.adds]
        log = self.access.log()
        log.invalidate()
        try:
            live = log.snapshot().contains(add.path for add in adds)
        except NotATableError:
            live = set()
        except IndexTablesError:
            return
        discard(log.store, [add for add in adds if add.path not in live])

    def _create(self, log: TransactionLog, adds: list[Add], rows: int) -> Written:
        assert self.target.metadata is not None
        transaction = Transaction(
            operation=Operation.CREATE,
            actions=[self.target.metadata, *adds],
            metrics={"rows": rows, "files": len(adds)},
        )
        commit_indexed(log, transaction, config=self._config, runner=executors())
        return Written(0, rows, len(adds), 0, sum(add.size for add in adds))

    def _after_all(self, log: TransactionLog, adds: list[Add], rows: int) -> Written:
        """Somebody else created the table meanwhile: write to it, if it is the same table."""
        log.invalidate()
        if self.exclusive is not None:
            discard(log.store, adds)
            if self.exclusive == "error":
                raise TableExistsError(log.store.uri)
            return Written(log.snapshot().version, 0, 0, 0, 0)

        def again() -> WriteJob:
            snapshot = log.snapshot()
            job = plan_write(
                self.access,
                self.target.shown,
                kind=self.kind,
                partition_by=self.partition_columns,
            )
            if job.target.mapping != self.target.mapping or job.target.metadata is not None:
                raise SchemaError(
                    f"'{snapshot.uri}' was created by another writer meanwhile, with another "
                    "schema or mapping. Nothing was written; write again."
                )
            return job

        job: WriteJob = undone_on_error(log, adds, again)
        return replace(job, where=self.where)._commit(log, [TaskOutput(tuple(adds), rows)])

    def _overwrite(
        self, log: TransactionLog, snapshot: Snapshot, adds: list[Add], rows: int
    ) -> Written:
        def plan(newest: Snapshot) -> Sequence[Action]:
            gone = removes_for(newest.entries, timestamp=log.now_ms(), data_change=True)
            return [*gone, *metadata_on(newest, snapshot, self.target), *adds]

        transaction = Transaction(
            operation=Operation.OVERWRITE,
            transform=plan,
            read_version=snapshot.version,
            read_snapshot=snapshot,
            metrics={"rows": rows, "files": len(adds)},
        )
        return self._commit_write(log, transaction, adds, rows)

    def _commit_write(
        self, log: TransactionLog, transaction: Transaction, adds: list[Add], rows: int
    ) -> Written:
        config = self._config
        return commit_write(log, transaction, adds, rows, config=config, runner=executors())

    def _overwrite_partitions(
        self, log: TransactionLog, snapshot: Snapshot, adds: list[Add], rows: int
    ) -> Written:
        return commit_partitions(
            log,
            snapshot,
            target=self.target,
            adds=adds,
            rows=rows,
            config=self._config,
            runner=executors(),
        )

    def _replace_rows(
        self, log: TransactionLog, adds: list[Add], outputs: Sequence[TaskOutput]
    ) -> Written:
        assert self.change is not None
        return replace_rows(
            log,
            self.change.snapshot,
            combined(output.replaced for output in outputs),
            adds=adds,
            rows=sum(output.rows for output in outputs),
            reads_again=self.change.reads_again,
            parameters=self.change.parameters,
            config=self._config,
        )

    def _overwrite_where(
        self, log: TransactionLog, snapshot: Snapshot, adds: list[Add], rows: int
    ) -> Written:
        predicate = self.where
        assert predicate is not None

        def rewrite() -> Removal:
            newest = log.newest()
            if newest.metadata.id != snapshot.metadata.id:  # its splits are gone with it
                raise MetadataChangedError(
                    uri=newest.uri, version=newest.version, changed=["identity"]
                )
            return remove_rows(log, snapshot, predicate, config=self._config)

        removal: Removal = undone_on_error(log, adds, rewrite)
        return commit_replacement(
            log,
            snapshot,
            target=self.target,
            adds=adds,
            removal=removal,
            rows=rows,
            scope=scope_of(predicate, snapshot),
            parameters={"where": str(predicate)},
            config=self._config,
            runner=executors(),
        )


def plan_write(
    access: TableAccess,
    incoming: pa.Schema,
    *,
    kind: Kind,
    where: Predicate | str | None = None,
    partition_by: Sequence[str] | None = None,
    merge_schema: bool = False,
    overwrite_schema: bool = False,
    properties: Mapping[str, str] | None = None,
    exclusive: Exclusive = None,
    checked_by_spark: bool = False,
) -> WriteJob:
    """Plan a write of rows with these columns; everything that can be refused is refused here.

    `where` and `partition_by` have the names that users see. Rows that are `checked_by_spark` meet
    the constraints of the table.
    """
    settings = access.settings
    log = access.log()
    try:
        snapshot = log.snapshot()
    except NotATableError:
        if kind == "where":
            raise
        first = _first_write(access, incoming, partition_by or (), properties or {}, kind)
        return replace(first, exclusive=exclusive)
    if exclusive == "error":
        raise TableExistsError(snapshot.uri)
    if not overwrite_schema:
        _check_partitioning(snapshot, partition_by)
    if kind == "partitions" and not snapshot.partition_columns:
        kind = "overwrite"
    if overwrite_schema:
        target = replaced_table(snapshot, incoming, partition_by or (), config=settings)
    else:
        target = target_of(snapshot, incoming, config=settings, merge_schema=merge_schema)
    if checked_by_spark:
        target = replace(target, constraints=())
    target.stored(incoming.empty_table())  # types that no value of theirs could pass
    if isinstance(where, str):
        where = parse_predicate(where, names_of(snapshot).shown)
    if where is not None:
        where = names_of(snapshot).stored_predicate(where)
    described = target.metadata or snapshot.metadata
    return WriteJob(
        access=access,
        kind=kind,
        snapshot=snapshot,
        target=target,
        partition_columns=described.partition_columns,
        where=where,
        settings=settings.over(known_keys(described.configuration)).as_options(),
    )


def plan_row_change(access: TableAccess, change: RowChange) -> WriteJob:
    """Plan the write of an UPDATE: of the version that its rows were chosen from."""
    snapshot = change.snapshot
    return WriteJob(
        access=access,
        kind="rows",
        snapshot=snapshot,
        target=replace(Target.of(snapshot), constraints=()),  # Spark checks them
        partition_columns=snapshot.partition_columns,
        change=change,
        settings=access.settings.over(known_keys(snapshot.metadata.configuration)).as_options(),
    )


def _unnamed(
    batches: Iterable[pa.RecordBatch], replaced: list[dict[str, Rows]]
) -> Iterator[pa.RecordBatch]:
    """New rows without the columns that name the old ones, whose numbers are kept apart."""
    for batch in batches:
        replaced.append(numbers_by_split(batch))
        yield batch.drop_columns(list(ROW_IDENTITY))


def _check_partitioning(snapshot: Snapshot, partition_by: Sequence[str] | None) -> None:
    here = names_of(snapshot).shown_names(snapshot.partition_columns)
    if partition_by is not None and tuple(partition_by) != here:
        raise SchemaError(
            f"'{snapshot.uri}' is partitioned by {_shown(here)}, not by "
            f"{_shown(partition_by)}. Leave partitionBy out, or write to another table."
        )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _first_write(
    access: TableAccess,
    incoming: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    kind: Kind,
) -> WriteJob:
    metadata, target = new_table(
        incoming, partition_by=partition_by, properties=properties, config=access.settings
    )
    return WriteJob(
        access=access,
        kind="append" if kind == "append" else "overwrite",
        snapshot=None,
        target=target,
        partition_columns=metadata.partition_columns,
        settings=access.settings.over(known_keys(properties)).as_options(),
    )
