"""Writing rows to a table: planned once, stored by tasks, committed once.

The job is planned before any row is read: a schema that does not fit is refused there. Plain
Python stores all rows in one task of this process; Spark pickles the job to many. Each task writes
splits under names of its own and reports them. Until the commit nobody sees them, so a task that
fails or runs twice does no harm. What the commit removes depends on the kind: nothing, all there is
by then, the partitions that the new rows touch, the rows of a condition, rows that are named. A
table that is not there yet is created by the same commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import Config
from indextables.errors import (
    IndexTablesError,
    MatchedTwiceError,
    MetadataChangedError,
    NotATableError,
    OtherCheckpointError,
    SchemaError,
    TableExistsError,
)
from indextables.jobs.commit_write import (
    Removal,
    Written,
    checked_rows,
    commit_partitions,
    commit_replacement,
    commit_write,
    metadata_on,
    scope_of,
    undone_on_error,
)
from indextables.jobs.crossreference_build import commit_indexed
from indextables.jobs.merge_splits import after_write, merged_before_commit
from indextables.jobs.progress import Advance, progress
from indextables.jobs.row_changes import (
    WhenMatched,
    WhenNotMatched,
    combined,
    is_doubled,
    merge_batches,
    numbers_by_split,
    replace_rows,
    take_out,
)
from indextables.jobs.write_splits import SplitSink, discard
from indextables.jobs.write_target import (
    CheckConstraint,
    Target,
    as_reader,
    check_fits,
    constraint_protocol,
    evolved_table,
    new_table,
    replaced_table,
    with_constraints,
)
from indextables.log.actions import Action, Add, Txn
from indextables.log.files import removes_for
from indextables.log.snapshot import Snapshot, empty_snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.view import TableView
from indextables.predicate import Predicate
from indextables.runner import Runner
from indextables.schema import ROW_ACTION, ROW_IDENTITY, SPLIT
from indextables.split.mapping import MAPPING_PROPERTY
from indextables.split.row_numbers import RowNumbers

WriteKind = Literal["append", "overwrite", "partitions", "where", "rows", "merge"]

# What to do if the table that a write should create already exists: the modes of Spark.
Exclusive = Literal["error", "ignore"] | None


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """What one task stored, or the problem of rows that no attempt could store.

    `replaced` are the rows in whose place these were written, by the split's path; `kept` are rows
    that a MERGE matched and left alone, and `updated` counts the new rows that replace one.
    """

    adds: tuple[Add, ...]
    rows: int
    problem: str | None = None
    replaced: Mapping[str, RowNumbers] = field(default_factory=dict)
    kept: Mapping[str, RowNumbers] = field(default_factory=dict)
    updated: int = 0
    matched_twice: bool = False


@dataclass(slots=True)
class _Named:
    """The rows that a batch replaces, from its columns that name them."""

    replaced: list[dict[str, RowNumbers]] = field(default_factory=list)
    kept: list[dict[str, RowNumbers]] = field(default_factory=list)
    updated: int = 0

    def taken(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are written, without the columns that name others."""
        plain = batch.drop_columns(list(ROW_IDENTITY))
        if ROW_ACTION not in batch.schema.names:
            self.replaced.append(numbers_by_split(batch))
            return plain
        action, names_row = batch.column(ROW_ACTION), pc.is_valid(batch.column(SPLIT))
        is_kept = pc.equal(action, pa.scalar("keep"))
        is_new = pc.equal(action, pa.scalar("write"))
        self.replaced.append(numbers_by_split(batch.filter(pc.and_(names_row, pc.invert(is_kept)))))
        self.kept.append(numbers_by_split(batch.filter(is_kept)))
        self.updated += int(np.count_nonzero(np.asarray(pc.and_(names_row, is_new))))
        return plain.drop_columns([ROW_ACTION]).filter(is_new)

    @property
    def matched_twice(self) -> bool:
        """Whether a row is named more than once."""
        return is_doubled([*self.replaced, *self.kept])


@dataclass(frozen=True)
class WriteJob:
    """One write, planned on `view`: the very version that its commit is checked against.

    By the commit, the log may no longer have that version, or may be the log of a new table in the
    same place. `reads_again` and `parameters` are those of an UPDATE whose rows Spark computes: two
    more columns of each row name the row that it replaces.
    """

    view: TableView = field(repr=False)
    kind: WriteKind
    target: Target
    where: Predicate | None = None
    exclusive: Exclusive = None
    replaces_columns: bool = False
    reads_again: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    redefines: bool = False
    """Whether the table becomes another one in its place: CREATE OR REPLACE."""
    protocol: tuple[Action, ...] = ()
    """The protocol that the new definition of a table requires."""
    batch: Txn | None = None
    """The batch of a stream that the rows are, to be noted in the log."""
    checks_matches: bool = False
    """Whether a row that is named twice is an error, as in a MERGE."""

    @property
    def creates(self) -> bool:
        """Whether there was no table when the write was planned."""
        return self.view.version < 0

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns whose values are folders, after the write."""
        metadata = self.target.metadata or self.view.snapshot.metadata
        return metadata.partition_columns

    @property
    def shown_partition_columns(self) -> tuple[str, ...]:
        """The partition columns by the names that users have."""
        names = dict(zip(self.target.schema.names, self.target.shown.names, strict=True))
        return tuple(names[name] for name in self.partition_columns)

    @property
    def config(self) -> Config:
        """The configuration over the properties that the table will have."""
        metadata = self.target.metadata or self.view.snapshot.metadata
        return self.view.settings.over_properties(metadata.configuration)

    def for_tasks(self) -> WriteJob:
        """The job without what only its commit needs."""
        return replace(self, view=self.view.for_tasks())

    def __getstate__(self) -> dict[str, object]:
        # Only what replaces some of the rows has to know the files.
        is_blind = self.kind in ("append", "overwrite")
        return {**self.__dict__, "view": self.view.for_tasks() if is_blind else self.view}

    # --- in a task ---------------------------------------------------------------------------

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskOutput:
        """Store rows as splits, in a task of a cluster.

        Rows that do not fit the table are reported to the driver, which says so in one sentence; a
        task that failed would be tried again and end in a traceback.
        """
        try:
            # The engine has a bar of its own; what this task does is seen on its host.
            with progress("Writing", unit="rows", table=self.view.uri, bar=False) as advance:
                return self.store(batches, advance)
        except SchemaError as error:
            return TaskOutput((), 0, str(error))

    def store(
        self, batches: Iterable[pa.RecordBatch], progress: Advance | None = None
    ) -> TaskOutput:
        """Store rows as splits. An error removes what was stored."""
        rows = 0
        named = _Named()
        with SplitSink(
            self.view.store,
            schema=self.target.schema,
            partition_columns=self.partition_columns,
            mapping=self.target.mapping,
            config=self.config,
            progress=progress,
        ) as sink:
            for batch in self._fitting(batches, named):
                sink.write(batch)
                rows += batch.num_rows
            return TaskOutput(
                tuple(sink.finish()),
                rows,
                replaced=combined(named.replaced),
                kept=combined(named.kept),
                updated=named.updated,
                matched_twice=named.matched_twice,
            )

    def _fitting(
        self, batches: Iterable[pa.RecordBatch], named: _Named
    ) -> Iterator[pa.RecordBatch]:
        if self.kind in ("rows", "merge"):
            batches = map(named.taken, batches)
        stored = map(self.target.stored, batches)
        if self.where is None:
            return stored
        return checked_rows(stored, self.where, self.target)

    # --- the commit --------------------------------------------------------------------------

    def commit(
        self,
        log: TransactionLog,
        outputs: Sequence[TaskOutput],
        *,
        runner: Runner | None = None,
        batch: Txn | None = None,
    ) -> Written:
        """Make what the tasks stored the table's next version; `runner` builds XRefs.

        `batch` is that of a stream, for an append or overwrite. One that is in the table already is
        not written again.

        Raises:
            SchemaError: Rows of a task did not fit. `abort` deletes what the others stored.
            OtherCheckpointError: Earlier batches of the stream went to another table.
        """
        for output in outputs:
            if output.problem is not None:
                raise SchemaError(output.problem)
        if batch is not None:
            written = self._commit_batch(log, outputs, batch, runner)
        else:
            written = self._commit(log, outputs, runner)
        after_write(log, self.config)
        return written

    def _commit(
        self, log: TransactionLog, outputs: Sequence[TaskOutput], runner: Runner | None
    ) -> Written:
        adds = merged_before_commit(
            self.view.store,
            [add for output in outputs for add in output.adds],
            target=self.target,
            partition_columns=self.partition_columns,
            config=self.config,
        )
        rows = sum(output.rows for output in outputs)
        if self.creates:
            try:
                return self._create(log, adds, rows, runner)
            except TableExistsError:
                return self._commit_to_existing(log, adds, rows, runner)
        match self.kind:
            case "append":
                transaction = self._transaction(
                    Operation.APPEND,
                    lambda newest: self._actions_on(newest, [*self._metadata_on(newest), *adds]),
                    adds,
                    rows,
                )
                return commit_write(
                    log, transaction, adds, rows, settings=self.view.settings, runner=runner
                )
            case "overwrite":
                return self._overwrite(log, adds, rows, runner)
            case "partitions":
                return commit_partitions(
                    log, self.view, target=self.target, adds=adds, rows=rows, runner=runner
                )
            case "where":
                return self._overwrite_where(log, adds, rows, runner)
            case "rows" | "merge":
                return self._replace_rows(log, adds, rows, outputs)

    def _replace_rows(
        self, log: TransactionLog, adds: list[Add], rows: int, outputs: Sequence[TaskOutput]
    ) -> Written:
        named = [o.replaced for o in outputs] + [o.kept for o in outputs]
        if self.checks_matches and (any(o.matched_twice for o in outputs) or is_doubled(named)):
            discard(log.store, adds)
            raise MatchedTwiceError(log.store.uri)
        updated = sum(output.updated for output in outputs)
        written = replace_rows(
            log,
            self.view,
            combined(output.replaced for output in outputs),
            adds=adds,
            rows=rows,
            target=self.target,
            reads_again=self.reads_again,
            parameters=self.parameters,
            updated=updated,
            name="MERGE" if self.kind == "merge" else "UPDATE",
        )
        return replace(written, rows_updated=updated)

    def _commit_batch(
        self,
        log: TransactionLog,
        outputs: Sequence[TaskOutput],
        batch: Txn,
        runner: Runner | None,
    ) -> Written:
        adds = [add for output in outputs for add in output.adds]
        try:
            last = log.newest().txns.get(batch.app_id)
        except NotATableError:
            last = None
        if last is None and batch.version > 0:
            discard(log.store, adds)
            raise OtherCheckpointError(log.store.uri, batch=batch.version)
        is_written = last is not None and last.version >= batch.version
        if is_written or (last is not None and not adds and self.kind == "append"):
            discard(log.store, adds)
            return Written(log.snapshot().version, 0, 0, 0, 0)
        return replace(self, batch=batch)._commit(log, outputs, runner)

    def _actions_on(self, newest: Snapshot, actions: Iterable[Action]) -> Sequence[Action]:
        """The actions, and those of the stream; none if another attempt wrote its batch."""
        actions = [*self.protocol, *actions]
        if self.batch is None:
            return actions
        last = newest.txns.get(self.batch.app_id)
        if last is not None and last.version >= self.batch.version:
            return []
        return [*actions, self.batch]

    def abort(self, log: TransactionLog, outputs: Sequence[TaskOutput]) -> None:
        """Delete what the tasks stored, unless the log names it or cannot be asked.

        Spark aborts after a commit that raised, and such a commit may have happened.
        """
        adds = [add for output in outputs for add in output.adds]
        log.invalidate()
        try:
            live = log.snapshot().contains(add.path for add in adds)
        except NotATableError:
            live = set()
        except IndexTablesError:
            return
        discard(log.store, [add for add in adds if add.path not in live])

    def _metadata_on(self, newest: Snapshot) -> Sequence[Action]:
        if self.redefines and self.target.metadata is not None:
            return [self.target.metadata]
        return metadata_on(newest, self.view.snapshot, self.target)

    def _transaction(
        self, operation: Operation, transform: Any, adds: Sequence[Add], rows: int
    ) -> Transaction:
        return Transaction(
            operation=operation,
            transform=transform,
            read_version=self.view.version,  # files may come and go meanwhile, columns may not
            read_snapshot=self.view.snapshot,
            metrics={"rows": rows, "files": len(adds)},
        )

    def _create(
        self, log: TransactionLog, adds: list[Add], rows: int, runner: Runner | None
    ) -> Written:
        assert self.target.metadata is not None
        transaction = Transaction(
            operation=Operation.CREATE,
            actions=self._actions_on(empty_snapshot(log.store.uri), [self.target.metadata, *adds]),
            metrics={"rows": rows, "files": len(adds)},
        )
        commit_indexed(log, transaction, settings=self.view.settings, runner=runner)
        return Written(0, rows, len(adds), 0, sum(add.size for add in adds))

    def _commit_to_existing(
        self, log: TransactionLog, adds: list[Add], rows: int, runner: Runner | None
    ) -> Written:
        """Another writer created the table meanwhile: write to it, if it is the same table."""
        log.invalidate()
        if self.exclusive is not None:
            discard(log.store, adds)
            if self.exclusive == "error":
                raise TableExistsError(log.store.uri)
            return Written(log.snapshot().version, 0, 0, 0, 0)

        def again() -> WriteJob:
            job = plan_write(
                log,
                self.target.shown,
                settings=self.view.settings,
                kind=self.kind,
                partition_by=self.shown_partition_columns,
            )
            if job.target.mapping != self.target.mapping or job.target.metadata is not None:
                raise SchemaError(
                    f"'{log.store.uri}' was created by another writer meanwhile, with another "
                    "schema or mapping. Nothing was written; write again."
                )
            return job

        job: WriteJob = undone_on_error(log, adds, again)
        job = replace(job, where=self.where, batch=self.batch)
        return job._commit(log, [TaskOutput(tuple(adds), rows)], runner)

    def _overwrite(
        self, log: TransactionLog, adds: list[Add], rows: int, runner: Runner | None
    ) -> Written:
        def plan(newest: Snapshot) -> Sequence[Action]:
            removes = removes_for(newest.entries, timestamp=log.now_ms(), data_change=True)
            return self._actions_on(newest, [*removes, *self._metadata_on(newest), *adds])

        transaction = self._transaction(Operation.OVERWRITE, plan, adds, rows)
        return commit_write(
            log, transaction, adds, rows, settings=self.view.settings, runner=runner
        )

    def _overwrite_where(
        self, log: TransactionLog, adds: list[Add], rows: int, runner: Runner | None
    ) -> Written:
        predicate = self.where
        assert predicate is not None

        def rewrite() -> Removal:
            newest = log.newest()
            if newest.metadata.id != self.view.snapshot.metadata.id:  # so are its splits
                raise MetadataChangedError(
                    uri=newest.uri, version=newest.version, changed=["identity"]
                )
            return take_out(log, self.view, predicate)

        removal: Removal = undone_on_error(log, adds, rewrite)
        return commit_replacement(
            log,
            self.view,
            target=self.target,
            adds=adds,
            removal=removal,
            rows=rows,
            scope=scope_of(predicate, self.view),
            parameters={"where": str(self.view.names.shown_predicate(predicate))},
            runner=runner,
        )


def plan_write(
    log: TransactionLog,
    incoming: pa.Schema,
    *,
    settings: Config,
    kind: WriteKind,
    where: Predicate | str | None = None,
    partition_by: Sequence[str] | None = None,
    merge_schema: bool = False,
    overwrite_schema: bool = False,
    properties: Mapping[str, str] | None = None,
    exclusive: Exclusive = None,
    checked_by_spark: bool = False,
    may_create: bool = True,
) -> WriteJob:
    """Plan a write of rows with these columns; everything that can be refused is refused here.

    `where` and `partition_by` have the names that users see. Rows that are `checked_by_spark` meet
    the constraints of the table.
    """
    try:
        view = TableView.newest(log, settings)
    except NotATableError:
        if kind == "where" or not may_create:
            raise
        target = new_table(
            incoming, partition_by=partition_by or (), properties=properties or {}, config=settings
        )
        assert target.metadata is not None
        planned = TableView.planned(log.store, target.metadata, settings)
        kind = "append" if kind == "append" else "overwrite"
        return WriteJob(planned, kind, target, exclusive=exclusive)
    if exclusive == "error":
        raise TableExistsError(view.uri)
    if overwrite_schema:
        target = replaced_table(view, incoming, partition_by or ())
    else:
        _check_partitioning(view, partition_by)
        target = evolved_table(view, incoming, merge_schema=merge_schema)
    if checked_by_spark:
        target = replace(target, constraints=())
    if kind == "partitions" and not view.partition_columns:
        kind = "overwrite"
    target.stored(incoming.empty_table())  # types of which no value can be stored
    if where is not None:
        where = view.condition(where)
    return WriteJob(
        view, kind, target, where=where, exclusive=exclusive, replaces_columns=overwrite_schema
    )


def plan_definition(
    log: TransactionLog,
    schema: pa.Schema,
    *,
    settings: Config,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    name: str | None,
    description: str | None,
    constraints: Sequence[CheckConstraint],
    may_replace: bool,
) -> WriteJob:
    """Plan the rows of a table that is created or, if it is there, replaced by the same commit."""
    declared = new_table(
        schema,
        partition_by=partition_by,
        properties=properties,
        config=settings,
        name=name,
        description=description,
    )
    try:
        view = TableView.newest(log, settings)
    except NotATableError:
        view = None
    if view is None or not may_replace:
        assert declared.metadata is not None
        metadata = with_constraints(declared.metadata, constraints)
        planned = TableView.planned(log.store, metadata, settings)
        target, job_view = replace(declared, metadata=metadata), planned
    else:
        target = replaced_table(view, schema, partition_by, properties)
        assert target.metadata is not None and declared.metadata is not None
        mapping = target.metadata.configuration[MAPPING_PROPERTY]
        metadata = replace(
            declared.metadata,
            id=target.metadata.id,
            created_time=target.metadata.created_time,
            schema_string=target.metadata.schema_string,
            partition_columns=target.metadata.partition_columns,
            configuration={**declared.metadata.configuration, MAPPING_PROPERTY: mapping},
        )
        target, job_view = replace(target, metadata=with_constraints(metadata, constraints)), view
    protocol = constraint_protocol(job_view.snapshot, settings) if constraints else []
    return WriteJob(
        job_view,
        "overwrite",
        replace(target, constraints=()),  # Spark checks them
        exclusive="error",
        redefines=True,
        replaces_columns=True,
        protocol=tuple(protocol),
    )


def plan_row_change(
    view: TableView,
    *,
    reads_again: bool,
    parameters: Mapping[str, str],
    target: Target | None = None,
    kind: WriteKind = "rows",
    checks_matches: bool = False,
    checked_by_spark: bool = True,
) -> WriteJob:
    """Plan the write of an UPDATE or MERGE: of the version that its rows were chosen from."""
    target = target or Target.unchanged(view)
    if checked_by_spark:
        target = replace(target, constraints=())
    return WriteJob(
        view,
        kind,
        target,
        reads_again=reads_again,
        parameters=parameters,
        checks_matches=checks_matches,
    )


def write_rows(log: TransactionLog, data: Any, **plan: Any) -> Written:
    """Write rows from this process. `plan` are the arguments of `plan_write`."""
    reader = as_reader(data)
    if plan.get("exclusive") == "ignore" and log.exists():
        return Written(log.snapshot().version, 0, 0, 0, 0)
    return _carried_out(plan_write(log, reader.schema, **plan), log, reader)


def create_table(
    log: TransactionLog,
    schema: pa.Schema | None,
    data: Any,
    *,
    settings: Config,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    name: str | None = None,
    description: str | None = None,
) -> Written:
    """Create a table, with rows if there are some. Its columns are those of the rows by default.

    Raises:
        TableExistsError: There is a table, or another writer creates it meanwhile.
    """
    reader = None if data is None else as_reader(data)
    columns = schema
    if columns is None:
        assert reader is not None
        columns = reader.schema
    target = new_table(
        columns,
        partition_by=partition_by,
        properties=properties,
        config=settings,
        name=name,
        description=description,
    )
    assert target.metadata is not None
    view = TableView.planned(log.store, target.metadata, settings)
    job = WriteJob(view, "append", target, exclusive="error")
    if reader is None:
        return job.commit(log, [])
    if schema is not None:
        check_fits(reader.schema, target.shown)
    if log.exists():
        raise TableExistsError(log.store.uri)
    return _carried_out(job, log, reader)


def merge_rows(
    log: TransactionLog,
    view: TableView,
    data: Any,
    *,
    on: Sequence[str],
    when_matched: WhenMatched,
    when_not_matched: WhenNotMatched,
    merge_schema: bool,
) -> Written:
    """Merge rows by their keys from this process; they are held in memory."""
    source = as_reader(data).read_all()
    target = evolved_table(view, source.schema, merge_schema=merge_schema)
    batches = merge_batches(
        view, target, source,
        on=on, when_matched=when_matched, when_not_matched=when_not_matched,
    )  # fmt: skip
    job = WriteJob(
        view,
        "merge",
        target,
        parameters={"on": ", ".join(on)},
        checks_matches=when_matched == "update",
    )
    return job.commit(log, [job.store(batches)])


def _carried_out(job: WriteJob, log: TransactionLog, rows: pa.RecordBatchReader) -> Written:
    with progress("Writing", unit="rows", table=log.store.uri) as advance:
        output = job.store(rows, advance)
    return job.commit(log, [output])


def _check_partitioning(view: TableView, partition_by: Sequence[str] | None) -> None:
    partition_columns = view.shown.partition_columns
    if partition_by is not None and tuple(partition_by) != partition_columns:
        raise SchemaError(
            f"'{view.uri}' is partitioned by {_shown(partition_columns)}, not by "
            f"{_shown(partition_by)}. Leave partitionBy out, or write to another table."
        )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
