"""Changing rows that are there: deleting, updating and replacing them.

In each split that holds some of them, the rows are marked as deleted, or the others are written
anew (`_is_marked` decides). New values of rows are written to new splits, in their partition. Where
Spark chose the rows, it computed the condition on one version. It cannot be asked of files that
others add after that version, so every added file is a conflict. Where the condition reads the
table a second time, in a subquery, every removed file is one too.

Where whole partitions go, nothing is read or rewritten: their splits leave the table in one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables import config as keys
from indextables.errors import MetadataChangedError, NotAPartitionError
from indextables.jobs.assignments import Assignments
from indextables.jobs.commit_write import (
    Removal,
    Written,
    commit_replacement,
    scope_of,
    undone_on_error,
)
from indextables.jobs.crossreference_build import commit_indexed
from indextables.jobs.mark_rows import RowMarks
from indextables.jobs.progress import progress
from indextables.jobs.write_splits import SplitSink
from indextables.jobs.write_target import Target
from indextables.log.actions import Action, Add, has_vectors
from indextables.log.files import paths_of, removes_for, with_paths
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction, everything
from indextables.log.transaction_log import TransactionLog
from indextables.plan.column_names import names_of
from indextables.plan.execute import Environment
from indextables.plan.partitions import check_partition_condition, files_of_partitions
from indextables.plan.scan import plan_scan
from indextables.plan.split_rows import SplitRows
from indextables.plan.tasks import SplitTask, split_tasks
from indextables.plan.view import TableView, refuse_search_index
from indextables.predicate import TRUE, Predicate
from indextables.schema import ROW, SPLIT
from indextables.split.row_numbers import RowNumbers

PIECE = 65_536
"""Rows that are read at once."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What left the table. Nothing did where no partition met the condition."""

    version: int
    partitions: int
    files_removed: int
    bytes_removed: int


def _is_marked(view: TableView, task: SplitTask, *, total: int, deleted: int) -> bool:
    """Whether rows of a split are marked, given how many rows it has and will have lost."""
    config = view.config
    mode = config[keys.VECTOR_MODE]
    if mode == "rewrite" or deleted >= total:
        return False
    if not has_vectors(view.snapshot.protocol) and not config[keys.PROTOCOL_AUTO_UPGRADE]:
        return False
    if mode == "vector":
        return True
    is_large = task.size >= config[keys.VECTOR_MIN_SIZE]
    return is_large and deleted <= config[keys.VECTOR_MAX_SHARE] * total


NewRows = Callable[[SplitRows, RowNumbers], Iterator[pa.RecordBatch]]
"""Makes what becomes of rows of a split, given their numbers."""


def take_out(
    log: TransactionLog,
    view: TableView,
    predicate: Predicate,
    new_rows: NewRows | None = None,
) -> Removal:
    """Take the rows of a condition out of their splits; `new_rows` are written in their place."""
    tasks = plan_scan(view, predicate=predicate).tasks
    exclusive = new_rows is not None
    return _take_out(
        log, view, tasks, lambda rows, _: rows.matching(), new_rows, exclusive=exclusive
    )


def _take_out(
    log: TransactionLog,
    view: TableView,
    tasks: Sequence[SplitTask],
    matching_rows: Callable[[SplitRows, SplitTask], RowNumbers | None],
    new_rows: NewRows | None = None,
    *,
    exclusive: bool,
) -> Removal:
    environment = Environment.of(view)
    rewritten: list[str] = []
    marked: dict[str, RowNumbers] = {}
    changed = 0
    with (
        progress(
            "Changing rows", len(tasks), table=view.uri, size=sum(task.size for task in tasks)
        ) as advance,
        SplitSink(
            view.store,
            schema=view.schema,
            partition_columns=view.partition_columns,
            mapping=view.mapping,
            config=view.config,
        ) as sink,
    ):
        for task in tasks:
            rows = environment.rows(task)
            matching = matching_rows(rows, task)
            if matching is None:
                matching = np.arange(rows.total)
            if len(matching):
                changed += len(matching)
                deleted = len(matching) + len(rows.searcher.dead)
                if _is_marked(view, task, total=rows.total, deleted=deleted):
                    marked[task.path] = matching
                else:
                    rewritten.append(task.path)
                    _write_others(rows, matching, sink)
                for batch in new_rows(rows, matching) if new_rows else ():
                    sink.write(batch)
            advance(1, task.size)
        files = with_paths(view.snapshot.entries, rewritten)
        marks = RowMarks(log, marked, exclusive=exclusive)
        return Removal(files, tuple(sink.finish()), changed, marks)


def take_out_numbered(
    log: TransactionLog, view: TableView, numbers: Mapping[str, RowNumbers], *, exclusive: bool
) -> Removal:
    """Take rows out of splits, named by the path and their numbers."""
    files = with_paths(view.snapshot.entries, list(numbers))
    tasks = split_tasks(view.snapshot, files, TRUE)
    return _take_out(log, view, tasks, lambda _, task: numbers[task.path], exclusive=exclusive)


def numbers_by_split(batch: pa.RecordBatch) -> dict[str, RowNumbers]:
    """The numbers of rows by the path of their split, from the columns that name rows."""
    paths: Any = batch.column(SPLIT).dictionary_encode()
    numbers = np.asarray(batch.column(ROW), dtype=np.int64)
    places = np.asarray(paths.indices)
    return {path: numbers[places == at] for at, path in enumerate(paths.dictionary.to_pylist())}


def is_doubled(parts: Sequence[Mapping[str, RowNumbers]]) -> bool:
    """Whether a row is named more than once."""
    named = sum(len(numbers) for part in parts for numbers in part.values())
    return named > sum(map(len, combined(parts).values()))


def combined(parts: Iterable[Mapping[str, RowNumbers]]) -> dict[str, RowNumbers]:
    """Numbers of rows from several sources: in ascending order, each once."""
    found: dict[str, list[RowNumbers]] = {}
    for part in parts:
        for path, numbers in part.items():
            found.setdefault(path, []).append(numbers)
    return {path: np.unique(np.concatenate(some)) for path, some in found.items()}


def _write_others(rows: SplitRows, matching: RowNumbers, sink: SplitSink) -> None:
    """Write the rows of a split that do not match."""
    kept = np.ones(rows.total, dtype=np.bool_)
    kept[matching] = False
    kept[rows.searcher.dead] = False
    keep = np.flatnonzero(kept)
    names = rows.searcher.context.schema.names
    for start in range(0, len(keep), PIECE):
        piece = rows.searcher.read_rows(keep[start : start + PIECE], names)
        for batch in piece.to_batches():
            sink.write(batch)


def delete_rows(log: TransactionLog, view: TableView, predicate: Predicate) -> Written:
    """Delete the rows of a condition."""
    return commit_replacement(
        log,
        view,
        target=Target.unchanged(view),
        adds=[],
        removal=take_out(log, view, predicate),
        rows=0,
        scope=scope_of(predicate, view),
        parameters={"where": str(view.names.shown_predicate(predicate))},
        name="DELETE",
    )


def update_rows(
    log: TransactionLog, view: TableView, predicate: Predicate, assignments: Assignments
) -> Written:
    """Give the rows of a condition new values."""

    target = Target.unchanged(view)

    def assigned(rows: SplitRows, matching: RowNumbers) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(matching), PIECE):
            piece = rows.searcher.read_rows(matching[start : start + PIECE], target.schema.names)
            # By an expression that has the names of users.
            changed = assignments.apply(piece.rename_columns(target.shown.names))
            stored = target.checked(changed).rename_columns(target.schema.names)
            yield from stored.to_batches()

    removal = take_out(log, view, predicate, assigned)
    return commit_replacement(
        log,
        view,
        target=target,
        adds=[],
        removal=removal,
        rows=removal.rows,
        scope=scope_of(predicate, view),
        parameters={
            "where": str(view.names.shown_predicate(predicate)),
            "set": str(assignments),
        },
        name="UPDATE",
    )


def replace_rows(
    log: TransactionLog,
    view: TableView,
    numbers: Mapping[str, RowNumbers],
    *,
    adds: Sequence[Add] = (),
    rows: int = 0,
    target: Target | None = None,
    reads_again: bool,
    parameters: Mapping[str, Any],
    updated: int = 0,
    name: str = "DELETE",
) -> Written:
    """Commit stored splits in place of these rows of a version; without splits, delete the rows.

    The rows are named by their split and number: Spark chose them. `updated` counts the new rows
    that are in the place of one of them.
    """
    paths = paths_of(view.snapshot.entries)

    def remove() -> Removal:
        newest = log.newest()
        unknown = numbers.keys() - set(paths)
        # Its splits are gone with it, or the query read those of the table in its place.
        if unknown or newest.metadata.id != view.snapshot.metadata.id:
            raise MetadataChangedError(uri=newest.uri, version=newest.version, changed=["identity"])
        return take_out_numbered(log, view, numbers, exclusive=bool(adds))

    removal: Removal = undone_on_error(log, adds, remove)
    return commit_replacement(
        log,
        view,
        target=target or Target.unchanged(view),
        adds=list(adds),
        removal=removal,
        rows=rows,
        scope=everything,
        read_paths=frozenset(paths) if reads_again else frozenset(),
        parameters=dict(parameters),
        metrics={"rowsUpdated": updated} if updated else {},
        name=name,
    )


def drop_partitions(log: TransactionLog, predicate: Predicate) -> Dropped:
    """Remove the partitions that meet a condition, with all that is in them at the commit."""
    snapshot = log.snapshot()
    refuse_search_index(snapshot.metadata, uri=log.store.uri)
    if not snapshot.partition_columns:
        raise NotAPartitionError(None, partition_columns=())
    check_partition_condition(predicate, snapshot)
    gone = snapshot.entries.slice(0, 0)

    def plan(newest: Snapshot) -> Sequence[Action]:
        nonlocal gone
        check_partition_condition(predicate, newest)
        gone = files_of_partitions(newest, predicate)
        return removes_for(gone, timestamp=log.now_ms(), data_change=True)

    committed = commit_indexed(
        log,
        Transaction(
            operation=Operation.REWRITE,
            name="DROP PARTITIONS",
            transform=plan,
            parameters={
                "where": str(names_of(snapshot).shown_predicate(predicate)),
                "drop": "partitions",
            },
        ),
    )
    values = gone["partitionValues"].to_pylist()
    return Dropped(
        version=committed.version,
        partitions=len({tuple(sorted(pairs or ())) for pairs in values}),
        files_removed=gone.num_rows,
        bytes_removed=pc.sum(gone["size"]).as_py() or 0,
    )
