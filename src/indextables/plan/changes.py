"""Which rows each commit inserted, deleted or updated: from its splits and deletion vectors.

A commit takes splits out and puts others in, or puts the same one back with another vector. Rows of
splits that came are inserted, rows of splits that went are deleted, and rows that are on both sides
cancel out: a split that was rewritten shows only what changed. Merges say that they change no rows
and are passed over.

Rows are read in the columns of the last version that is asked for. A commit that replaced columns
by others of the same name cannot be shown in them, and is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from indextables.errors import (
    ObjectNotFoundError,
    PurgedVersionError,
    SchemaError,
    VersionGapError,
    VersionNotFoundError,
)
from indextables.log.actions import Add, Metadata, Remove
from indextables.log.files import files_from_adds, with_paths
from indextables.log.snapshot import Snapshot, VersionActions, empty_snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.log.vectors import StoredVector
from indextables.plan.access import TableAccess
from indextables.plan.execute import Environment
from indextables.plan.scan import SplitTask, plan_scan
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Predicate
from indextables.schema import nulls
from indextables.split.row_hash import row_hashes
from indextables.split.row_numbers import RowNumbers

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = (
    "_change_type", "_commit_version", "_commit_timestamp",
)  # fmt: skip
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
_COLUMNS = (
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC")),
)
_PIECE = 65_536


@dataclass(frozen=True, slots=True)
class Commit:
    """A version, the table before it, and the splits that it removed and added."""

    actions: VersionActions
    before: Snapshot
    removed: pa.Table
    added: pa.Table

    @property
    def version(self) -> int:
        """Its number."""
        return self.actions.version


def changes_schema(view: TableView) -> pa.Schema:
    """The columns of changes: those of the table, and three that say what happened."""
    shown = view.names.shown
    if clashes := [field.name for field in _COLUMNS if field.name in shown.names]:
        raise SchemaError(
            f"'{view.uri}' has a column '{clashes[0]}', which is the name of a column of changes. "
            "Rename it to ask for changes."
        )
    return pa.schema([*shown, *_COLUMNS])


def commits_between(log: TransactionLog, first: int, last: int) -> Iterator[Commit]:
    """The versions from `first` to `last`, each with its splits.

    Raises:
        VersionNotFoundError: The log never had a version, or has no longer the one before it.
        PurgedVersionError: The log has no longer one of the versions.
    """
    uri = log.store.uri
    before = log.snapshot(version=first - 1) if first else empty_snapshot(uri)
    for number in range(first, last + 1):
        try:
            actions = log.actions(number)
        except (ObjectNotFoundError, VersionGapError) as error:
            raise PurgedVersionError(uri, number) from error
        after = before.advance([actions])
        removed = [a.path for a in actions.actions if isinstance(a, Remove) and a.data_change]
        # A merge changes no rows; a split that it made may be marked by a later commit.
        new = {a.path for a in actions.actions if isinstance(a, Add) and a.data_change}
        yield Commit(
            actions,
            before,
            with_paths(before.entries, removed) if removed else files_from_adds([]),
            with_paths(after.entries, new) if new else files_from_adds([]),
        )
        before = after


def table_changes(
    log: TransactionLog,
    view: TableView,
    *,
    first: int,
    last: int | None = None,
    predicate: Predicate = TRUE,
) -> Iterator[pa.Table]:
    """The rows that commits changed, in their order, in the columns of the view.

    The last commit is that of the view unless `last` is an earlier one. `predicate` has stored
    names. Of an update only the image that meets it is returned.
    """
    schema = changes_schema(view)
    for commit in commits_between(log, first, view.version if last is None else last):
        try:
            for change_type, rows in _changed_rows(commit, view, predicate):
                yield _labelled(rows, change_type, commit.actions, view, schema)
        except ObjectNotFoundError as error:
            raise PurgedVersionError(log.store.uri, commit.version) from error


def version_since(log: TransactionLog, at_ms: int) -> int:
    """The first version that was committed at a time or after it; the next one if none was."""
    try:
        return log.snapshot(timestamp_ms=at_ms - 1).version + 1
    except VersionNotFoundError as error:  # all of them were
        return error.earliest or 0


@dataclass(frozen=True, slots=True)
class ChangesReader:
    """Reads the changes of some versions in a task, in the columns of the last one."""

    access: TableAccess
    last: int

    def batches(self, versions: Iterable[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The changed rows in the schema that Spark expects."""
        log = self.access.log()
        view = self.access.view(log.snapshot(version=self.last))
        for version in versions:
            for rows in table_changes(log, view, first=version, last=version):
                yield from rows.cast(schema).to_batches()


def _labelled(
    rows: pa.Table, change_type: str, commit: VersionActions, view: TableView, schema: pa.Schema
) -> pa.Table:
    count = rows.num_rows
    moment = pa.scalar(commit.timestamp * 1000, pa.timestamp("us", tz="UTC"))
    columns: list[Any] = [
        *view.names.shown_rows(rows).columns,
        pa.repeat(pa.scalar(change_type), count),
        pa.repeat(pa.scalar(commit.version, pa.int64()), count),
        pa.repeat(moment, count),
    ]
    return pa.table(columns, names=schema.names).cast(schema)


def _changed_rows(
    commit: Commit, view: TableView, predicate: Predicate
) -> Iterator[tuple[str, pa.Table]]:
    if not commit.removed.num_rows and not commit.added.num_rows:
        return
    check_columns(commit, view)
    marks = _marks(commit, view)
    old = (rows for task in tasks_of(view, commit.removed, predicate)
            for rows in _rows(view, task, marks.get(task.path, (None, None))[0]))  # fmt: skip
    new = (rows for task in tasks_of(view, commit.added, predicate)
           for rows in _rows(view, task, marks.get(task.path, (None, None))[1]))  # fmt: skip
    if not commit.removed.num_rows:
        yield from ((INSERT, rows) for rows in new)
    elif not commit.added.num_rows:
        yield from ((DELETE, rows) for rows in old)
    else:
        yield from _classified(
            *_difference(_concatenated(old, view), _concatenated(new, view)), commit, view
        )


def check_columns(commit: Commit, view: TableView) -> None:
    """Refuse a commit whose rows do not fit the columns of the view."""
    metadata = [a for a in commit.actions.actions if isinstance(a, Metadata)]
    for snapshot in [commit.before, *(replace(commit.before, metadata=m) for m in metadata)]:
        if snapshot.version < 0 and snapshot.metadata is commit.before.metadata:
            continue
        columns = snapshot.schema
        differing = [
            name
            for name in columns.names
            if name in view.schema.names
            and not _widens(columns.field(name), view.schema.field(name))
        ]
        if differing or snapshot.partition_columns != view.partition_columns:
            raise SchemaError(
                f"Version {commit.version} of '{view.uri}' has other columns or partitions than "
                f"version {view.version}"
                + (f" ({', '.join(view.names.shown_names(differing))})" if differing else "")
                + ": they were replaced. Ask for the versions before and after it one by one."
            )


def _widens(old: pa.Field[Any], new: pa.Field[Any]) -> bool:
    if old.type.equals(new.type):
        return True
    try:
        nulls(1, old.type).cast(new.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return False
    return not (pa.types.is_string(old.type) or pa.types.is_string(new.type))


def tasks_of(view: TableView, files: pa.Table, predicate: Predicate) -> Sequence[SplitTask]:
    """The splits of some files that may have rows of a condition, read as the view reads them."""
    only_these = replace(
        view.snapshot, base_files=files, changes={}, xrefs={}, skips={}, unread=None
    )
    return plan_scan(view.at(only_these), predicate=predicate).tasks


def _marks(commit: Commit, view: TableView) -> dict[str, tuple[RowNumbers, RowNumbers]]:
    """Of splits that went and came back: the rows that are deleted now, and those that are back."""
    old = {task.path: task for task in tasks_of(view, commit.removed, TRUE)}
    both = [task for task in tasks_of(view, commit.added, TRUE) if task.path in old]
    marks = {}
    for task in both:
        before, after = _dead(view, old[task.path]), _dead(view, task)
        marks[task.path] = (np.setdiff1d(after, before), np.setdiff1d(before, after))
    return marks


def _dead(view: TableView, task: SplitTask) -> RowNumbers:
    if task.vector is None:
        return np.zeros(0, dtype=np.int64)
    return StoredVector(view.store, task.vector, task.path).read()


def _rows(view: TableView, task: SplitTask, among: RowNumbers | None) -> Iterator[pa.Table]:
    """The rows of a split that meet the condition; of these numbers only, if there are some."""
    if among is not None and not len(among):
        return
    rows = Environment.of(view).rows(task)
    matching = rows.matching()
    if matching is None:
        matching = np.setdiff1d(np.arange(rows.total), rows.searcher.dead)
    if among is not None:
        matching = np.intersect1d(matching, among)
    for start in range(0, len(matching), _PIECE):
        try:
            yield rows.searcher.read_rows(matching[start : start + _PIECE], view.schema.names)
        except SchemaError as error:  # RESTORE reverted the widening of a column
            why = str(error).partition("\n")[2].partition("\n")[0].strip()
            raise SchemaError(
                f"'{view.uri}' had rows that do not fit the columns of version {view.version} "
                f"({why}). Ask for the versions before and after its columns changed one by one."
            ) from None


def _concatenated(tables: Iterator[pa.Table], view: TableView) -> pa.Table:
    return pa.concat_tables([view.schema.empty_table(), *tables], promote_options="permissive")


# --- what cancels out, and what is an update ---------------------------------------------------


def _difference(old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Two sets of rows without those that are in both, each as often as it is in both."""
    hashes = row_hashes(old), row_hashes(new)
    common = np.intersect1d(*hashes)
    if not len(common):
        return old, new
    places = [np.flatnonzero(np.isin(some, common)) for some in hashes]
    # Equal hashes do not make equal rows.
    keys = [_keys(rows.take(at), rows.column_names)
            for rows, at in zip((old, new), places, strict=True)]  # fmt: skip
    shared = Counter(keys[0]) & Counter(keys[1])
    kept = []
    for rows, at, named in zip((old, new), places, keys, strict=True):
        left, keep = shared.copy(), np.ones(rows.num_rows, dtype=np.bool_)
        for place, key in zip(at.tolist(), named, strict=True):
            if left[key] > 0:
                left[key] -= 1
                keep[place] = False
        kept.append(rows.filter(pa.array(keep)))
    return kept[0], kept[1]


def _keys(rows: pa.Table, names: Sequence[str]) -> list[str]:
    """The values of each row as a text that is the same for equal values, NaN included."""
    columns = [rows[name].to_pylist() for name in names]
    return [repr(values) for values in zip(*columns, strict=True)]


def _classified(
    old: pa.Table, new: pa.Table, commit: Commit, view: TableView
) -> Iterator[tuple[str, pa.Table]]:
    """Which of the rows are images of one update.

    Every row of an UPDATE is. Of a MERGE they are those with the same key, where its condition
    compares columns of one name; where it does not, all of them if it did nothing but update.
    """
    info = commit.actions.commit_info
    parameters = (info.operation_parameters if info else None) or {}
    metrics = (info.operation_metrics if info else None) or {}
    pre = np.zeros(old.num_rows, dtype=np.bool_)
    post = np.zeros(new.num_rows, dtype=np.bool_)
    if "set" in parameters:
        pre[:], post[:] = True, True
    elif "on" in parameters:
        updated = metrics.get("rowsUpdated")
        if updated is not None and updated == metrics.get("rows") == metrics.get("rowsRemoved"):
            pre[:], post[:] = True, True
        elif keys := _merge_keys(str(parameters["on"]), view):
            sides = _keys(old, keys), _keys(new, keys)
            both = set(sides[0]) & set(sides[1])
            pre = np.array([key in both for key in sides[0]], dtype=np.bool_)
            post = np.array([key in both for key in sides[1]], dtype=np.bool_)
    for change_type, rows, chosen in (
        (DELETE, old, ~pre), (BEFORE, old, pre), (AFTER, new, post), (INSERT, new, ~post),
    ):  # fmt: skip
        if chosen.any():
            yield change_type, rows.filter(pa.array(chosen))


_EQUAL = re.compile(r"(?:`?\w+`?\.)*`?(\w+)`?\s*=\s*(?:`?\w+`?\.)*`?(\w+)`?", re.IGNORECASE)


def _merge_keys(on: str, view: TableView) -> list[str] | None:
    """The stored names of the columns that a MERGE compared, if that is all that it did."""
    shown = {name.lower(): name for name in view.names.shown.names}
    names = [part.strip() for part in on.split(",")]
    if not all(name.lower() in shown for name in names):
        matches = [_EQUAL.fullmatch(part.strip("() \n"))
                   for part in re.split(r"\sAND\s", on, flags=re.IGNORECASE)]  # fmt: skip
        names = [m[1] for m in matches if m is not None and m[1].lower() == m[2].lower()]
        if len(names) < len(matches) or not all(name.lower() in shown for name in names):
            return None
    return list(view.names.stored_names([shown[name.lower()] for name in names]))
