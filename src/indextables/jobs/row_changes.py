"""Changing rows that are there: deleting, updating, replacing them, and merging rows by their keys.

In each split that holds some of them, the rows are marked as deleted, or the split is rewritten
without them (`_is_marked` decides). New values of rows are written to new splits, in their
partition. Where Spark chose the rows, it computed the condition on one version. It cannot be asked
of files that others add after that version, so every added file is a conflict. Where the condition
reads the table a second time, in a subquery, every removed file is one too.

Where whole partitions go, nothing is read or rewritten: their splits leave the table in one commit.

Rows are merged by their keys in this process: what matches changes, the rest is new. The keys
choose splits and rows, as a condition does. The keys found are joined with the rows; null equals
nothing. New rows, and the names of the rows that they replace, then go through the write job of a
MERGE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables import config as keys
from indextables.errors import (
    MetadataChangedError,
    NotAPartitionError,
    SchemaError,
    UnknownColumnError,
)
from indextables.jobs.assignments import Assignments, Constants
from indextables.jobs.commit_write import (
    Removal,
    RowMarks,
    Written,
    commit_replacement,
    scope_of,
    undone_on_error,
)
from indextables.jobs.crossreference_build import commit_indexed
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
from indextables.plan.scan import SplitTask, plan_scan, split_tasks
from indextables.plan.skipping import check_partition_condition, files_of_partitions
from indextables.plan.split_rows import SplitRows
from indextables.plan.view import TableView, refuse_search_index
from indextables.predicate import TRUE, Column, Compare, In, Predicate, conjunction
from indextables.schema import ROW, ROW_ACTION, SPLIT, conform
from indextables.schema.conformity import one_spelling
from indextables.split.row_numbers import RowNumbers

PIECE = 65_536
"""Rows that are read at once."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What was removed; nothing if no partition met the condition."""

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
"""Makes the new version of some rows of a split, given their numbers."""


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
    numbers_of: dict[str, list[RowNumbers]] = {}
    for part in parts:
        for path, numbers in part.items():
            numbers_of.setdefault(path, []).append(numbers)
    return {
        path: np.unique(np.concatenate(parts_of_file)) for path, parts_of_file in numbers_of.items()
    }


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
    log: TransactionLog,
    view: TableView,
    predicate: Predicate,
    assignments: Assignments | Constants,
) -> Written:
    """Give the rows of a condition new values."""
    target = Target.unchanged(view)

    def assigned(rows: SplitRows, matching: RowNumbers) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(matching), PIECE):
            piece = rows.searcher.read_rows(matching[start : start + PIECE], target.schema.names)
            # The expression uses shown names.
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
        # Its splits are gone as well, or the query read those of the table that replaced it.
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


# --- merging rows by their keys --------------------------------------------------------------

WhenMatched = Literal["update", "delete", "ignore"]
WhenNotMatched = Literal["insert", "ignore"]

_MOST_VALUES = 1_000
"""More values than these are looked for by their least and greatest."""
_AT = "_indextables_at"
_NO_ROWS = np.zeros(0, dtype=np.int64)


def merge_batches(
    view: TableView,
    target: Target,
    source: pa.Table,
    *,
    on: Sequence[str],
    when_matched: WhenMatched,
    when_not_matched: WhenNotMatched,
) -> Iterator[pa.RecordBatch]:
    """The rows that a merge by the columns `on` writes, with the names of those that they replace.

    `source` has the names of columns that users see.
    """
    _check_keys(on, source.schema, view)
    environment = Environment.of(view)
    matches = list(_matches(view, target, source, on, environment))
    if when_matched != "ignore":
        for task, numbers, at in matches:
            for start in range(0, len(numbers), PIECE):
                portion = slice(start, start + PIECE)
                rows = source.take(at[portion])
                if when_matched == "update":
                    searcher = environment.searcher(task)
                    rows = _completed(rows, target, view, searcher, numbers[portion])
                yield from _named(rows, target, when_matched, task.path, numbers[portion])
    if when_not_matched == "insert":
        matched = [at for _, _, at in matches]
        new = np.setdiff1d(np.arange(source.num_rows), np.concatenate(matched or [_NO_ROWS]))
        yield from _named(source.take(new), target, "insert")


def _matches(
    view: TableView,
    target: Target,
    source: pa.Table,
    on: Sequence[str],
    environment: Environment,
) -> Iterator[tuple[SplitTask, RowNumbers, RowNumbers]]:
    """Rows of each split and the rows of the source that match them, pair by pair."""
    stored = dict(zip(target.shown.names, target.schema.names, strict=True))
    names = [stored[name] for name in on]
    key_schema = pa.schema([target.shown.field(name).with_nullable(True) for name in on])
    keys = conform(source.select(list(on)), key_schema).rename_columns(names)
    keyed = _comparable(keys).append_column(_AT, pa.array(np.arange(source.num_rows), pa.int64()))
    predicate = conjunction(*(_among(name, keys[name]) for name in names))
    for task in plan_scan(view, predicate=predicate).tasks:
        rows = environment.rows(task)
        numbers = rows.matching()
        if numbers is None:
            numbers = np.arange(rows.total)
        if len(numbers):
            table_rows = _comparable(rows.searcher.read_rows(numbers, names))
            table_rows = table_rows.append_column(ROW, pa.array(numbers, pa.int64()))
            pairs = table_rows.join(keyed, keys=names, join_type="inner")
            if pairs.num_rows:
                yield task, np.asarray(pairs[ROW]), np.asarray(pairs[_AT])


def _comparable(keys: pa.Table) -> pa.Table:
    """Keys in a form in which equal ones have equal bits, because Arrow joins by bits."""
    return pa.table(list(map(one_spelling, keys.columns)), schema=keys.schema)


def _check_keys(on: Sequence[str], incoming: pa.Schema, view: TableView) -> None:
    if not on:
        raise SchemaError("on is empty. Name the columns whose values make rows the same.")
    for name in on:
        if name not in view.names.shown.names:
            raise UnknownColumnError(name, available=view.names.shown.names)
        if name not in incoming.names:
            raise UnknownColumnError(name, available=incoming.names)
        if pa.types.is_nested(view.names.shown.field(name).type):
            raise SchemaError(f"'{name}' holds lists or structs, which cannot be keys of a merge.")


def _among(name: str, values: pa.ChunkedArray[Any]) -> Predicate:
    """A condition that all rows with one of these values meet."""
    column = Column((name,))
    if not (pa.types.is_integer(values.type) or pa.types.is_string(values.type)):
        return TRUE
    different: list[Any] = pc.unique(values).drop_null().to_pylist()
    if len(different) <= _MOST_VALUES:
        return In(column, tuple(different))
    low, high = min(different), max(different)
    return conjunction(Compare(">=", column, low), Compare("<=", column, high))


def _completed(
    rows: pa.Table, target: Target, view: TableView, searcher: Any, numbers: RowNumbers
) -> pa.Table:
    """The rows with the old values of columns that they lack."""
    old = view.names.shown.names
    lacking = [name for name in old if name not in rows.column_names]
    if lacking:
        kept = searcher.read_rows(numbers, view.names.stored_names(lacking))
        for name, column in zip(lacking, kept.columns, strict=True):
            rows = rows.append_column(target.shown.field(name).with_nullable(True), column)
    return rows


def _named(
    rows: pa.Table,
    target: Target,
    change: str,
    path: str | None = None,
    numbers: RowNumbers | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows in the table's columns, with the names of those that they replace."""
    count = rows.num_rows
    full = conform(rows, pa.schema([f.with_nullable(True) for f in target.shown]))
    identity: Any = pa.repeat(pa.scalar(path, pa.string()), count)
    places: Any = pa.nulls(count, pa.int64()) if numbers is None else pa.array(numbers)
    action: Any = pa.repeat("delete" if change == "delete" else "write", count)
    full = full.append_column(SPLIT, identity).append_column(ROW, places)
    yield from full.append_column(ROW_ACTION, action).to_batches(max_chunksize=PIECE)
