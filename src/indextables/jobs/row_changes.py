"""Changing rows that are there: deleting, updating and replacing them.

Splits that hold some of them are written anew. Rows whose partition column changes are written to
their new partition. Where Spark chose the rows, it computed the condition on one version. It cannot
be asked of files that others add after that version, so every added file is a conflict. Where the
condition reads the table a second time, in a subquery, every removed file is one too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from indextables.errors import MetadataChangedError
from indextables.jobs.assignments import Assignments
from indextables.jobs.commit_write import Written, commit_replacement, scope_of, undone_on_error
from indextables.jobs.rewrite import PIECE, Removal, remove_numbered, remove_rows, rewrite_splits
from indextables.jobs.write_splits import SplitSink
from indextables.jobs.write_target import Target
from indextables.log.actions import Add
from indextables.log.files import paths_of
from indextables.log.transaction import everything
from indextables.log.transaction_log import TransactionLog
from indextables.plan.split_rows import SplitRows
from indextables.plan.view import TableView
from indextables.predicate import Predicate
from indextables.split.memory_index import Rows


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

    def write(rows: SplitRows, matching: Rows, sink: SplitSink) -> None:
        _rewrite(rows, matching, sink, target, assignments)

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


def _rewrite(
    rows: SplitRows,
    matching: Rows,
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
    numbers: Mapping[str, Rows],
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
