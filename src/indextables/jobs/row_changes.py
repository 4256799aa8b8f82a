"""Changing rows: their splits are written anew and committed.

Changing rows of a table: splits that hold some of them are written anew.

Changing rows that are there: deleting, updating and replacing them.

Splits that hold some of them are written anew. Rows whose partition column changes are written to
their new partition. Where Spark chose the rows, it computed the condition on one version. It cannot
be asked of files that others add after that version, so every added file is a conflict. Where the
condition reads the table a second time, in a subquery, every removed file is one too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indextables.errors import MetadataChangedError
from indextables.jobs.assignments import Assignments
from indextables.jobs.commit_write import (
    Removal,
    Written,
    commit_replacement,
    scope_of,
    undone_on_error,
)
from indextables.jobs.progress import progress
from indextables.jobs.write_splits import SplitSink
from indextables.jobs.write_target import Target
from indextables.log.actions import Add
from indextables.log.files import paths_of, with_paths
from indextables.log.transaction import everything
from indextables.log.transaction_log import TransactionLog
from indextables.plan.execute import Environment
from indextables.plan.scan import plan_scan
from indextables.plan.split_rows import SplitRows
from indextables.plan.tasks import SplitTask, split_tasks
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Predicate
from indextables.schema import ROW, SPLIT
from indextables.split.row_numbers import RowNumbers

PIECE = 65_536
"""Rows that are read at once."""
Write = Callable[[SplitRows, RowNumbers, SplitSink], None]
"""Writes what becomes of a split, given the numbers of the rows that match."""


def rewrite_splits(view: TableView, predicate: Predicate, write: Write) -> Removal:
    """Replace the splits that hold rows of a condition by what `write` makes of each."""
    tasks = plan_scan(view, predicate=predicate).tasks
    return _rewrite(view, tasks, lambda rows, _: rows.matching(), write)


def _rewrite(
    view: TableView,
    tasks: Sequence[SplitTask],
    matching_rows: Callable[[SplitRows, SplitTask], RowNumbers | None],
    write: Write,
) -> Removal:
    environment = Environment.of(view)
    touched: list[str] = []
    changed = 0
    with (
        progress("Rewriting splits", len(tasks)) as advance,
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
                touched.append(task.path)
                changed += len(matching)
                write(rows, matching, sink)
            advance(1)
        files = with_paths(view.snapshot.entries, touched)
        return Removal(files, tuple(sink.finish()), changed)


def remove_rows(view: TableView, predicate: Predicate) -> Removal:
    """Find the rows of a condition and write what remains of their splits."""
    return rewrite_splits(view, predicate, _write_others)


def remove_numbered(view: TableView, numbers: Mapping[str, RowNumbers]) -> Removal:
    """Write what remains of splits without some rows, named by the path and their numbers."""
    files = with_paths(view.snapshot.entries, list(numbers))
    tasks = split_tasks(view.snapshot, files, TRUE)
    return _rewrite(view, tasks, lambda _, task: numbers[task.path], _write_others)


def numbers_by_split(batch: pa.RecordBatch) -> dict[str, RowNumbers]:
    """The numbers of rows by the path of their split, from the columns that name rows."""
    paths: Any = batch.column(SPLIT).dictionary_encode()
    numbers = np.asarray(batch.column(ROW), dtype=np.int64)
    places = np.asarray(paths.indices)
    return {path: numbers[places == at] for at, path in enumerate(paths.dictionary.to_pylist())}


def combined(parts: Iterable[Mapping[str, RowNumbers]]) -> dict[str, RowNumbers]:
    """Numbers of rows from several sources: in ascending order, each once."""
    found: dict[str, list[RowNumbers]] = {}
    for part in parts:
        for path, numbers in part.items():
            found.setdefault(path, []).append(numbers)
    return {path: np.unique(np.concatenate(some)) for path, some in found.items()}


def _write_others(rows: SplitRows, matching: RowNumbers, sink: SplitSink) -> None:
    """Write the rows of a split that do not match."""
    keep = np.setdiff1d(np.arange(rows.total), matching, assume_unique=True)
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
        removal=remove_rows(view, predicate),
        rows=0,
        scope=scope_of(predicate, view),
        parameters={"where": str(view.names.shown_predicate(predicate))},
    )


def update_rows(
    log: TransactionLog, view: TableView, predicate: Predicate, assignments: Assignments
) -> Written:
    """Give the rows of a condition new values."""

    target = Target.unchanged(view)

    def write(rows: SplitRows, matching: RowNumbers, sink: SplitSink) -> None:
        _write_assigned(rows, matching, sink, target, assignments)

    removal = rewrite_splits(view, predicate, write)
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
    )


def _write_assigned(
    rows: SplitRows,
    matching: RowNumbers,
    sink: SplitSink,
    target: Target,
    assignments: Assignments,
) -> None:
    """Write all rows of a split, those that match with new values."""
    chosen = np.zeros(rows.total, dtype=np.bool_)
    chosen[matching] = True
    for start in range(0, rows.total, PIECE):
        numbers = np.arange(start, min(start + PIECE, rows.total))
        mask = chosen[start : start + PIECE]
        for some, is_changed in ((numbers[~mask], False), (numbers[mask], True)):
            if len(some):
                piece = rows.searcher.read_rows(some, target.schema.names)
                if is_changed:  # by an expression that has the names of users
                    changed = assignments.apply(piece.rename_columns(target.shown.names))
                    piece = target.checked(changed).rename_columns(target.schema.names)
                for batch in piece.to_batches():
                    sink.write(batch)


def replace_rows(
    log: TransactionLog,
    view: TableView,
    numbers: Mapping[str, RowNumbers],
    *,
    adds: Sequence[Add] = (),
    rows: int = 0,
    reads_again: bool,
    parameters: Mapping[str, Any],
) -> Written:
    """Commit stored splits in place of these rows of a version; without splits, delete the rows.

    The rows are named by their split and number: Spark chose them.
    """
    paths = paths_of(view.snapshot.entries)

    def remove() -> Removal:
        newest = log.newest()
        unknown = numbers.keys() - set(paths)
        # Its splits are gone with it, or the query read those of the table in its place.
        if unknown or newest.metadata.id != view.snapshot.metadata.id:
            raise MetadataChangedError(uri=newest.uri, version=newest.version, changed=["identity"])
        return remove_numbered(view, numbers)

    removal: Removal = undone_on_error(log, adds, remove)
    return commit_replacement(
        log,
        view,
        target=Target.unchanged(view),
        adds=list(adds),
        removal=removal,
        rows=rows,
        scope=everything,
        read_paths=frozenset(paths) if reads_again else frozenset(),
        parameters=dict(parameters),
    )
