"""The second half of a write: from splits that are stored to a commit.

Splits are committed here, whether this process or tasks of a cluster wrote them. A commit that
surely failed deletes the splits that no version will name.

Rows are marked as deleted where rewriting their splits would cost more. A commit takes the split
out and puts it back with a vector that names the rows (`log.vectors`). The vector is made from the
newest version on every attempt, so two writers that delete different rows of one split both
succeed. Of the same row, the second deletion has nothing left to do; a row that is replaced, by an
UPDATE or MERGE, must still be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import Config
from indextables.errors import (
    CommitStateUnknownError,
    ConcurrentDeleteDeleteError,
    ConcurrentRowChangeError,
    IndexTablesError,
    MetadataChangedError,
    SchemaError,
)
from indextables.jobs.crossreference_build import commit_indexed
from indextables.jobs.write_splits import discard
from indextables.jobs.write_target import Target
from indextables.log.actions import Action, Add, Metadata, Remove
from indextables.log.commit import Committed
from indextables.log.files import adds_from_files, contents_of, removes_for, with_paths
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Scope, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.log.vectors import DeletionVector, StoredVector, store_vectors, vector_files
from indextables.plan.column_names import ColumnNames
from indextables.plan.skipping import keep_mask
from indextables.plan.view import TableView
from indextables.predicate import Predicate
from indextables.runner import Runner
from indextables.split.mapping import MAPPING_PROPERTY
from indextables.split.row_filter import evaluate
from indextables.split.row_numbers import RowNumbers
from indextables.split.search import search_rows


@dataclass(frozen=True, slots=True)
class Removal:
    """Files to remove, splits that take the rows they keep, and how many rows go.

    `marks` are rows of other splits, which stay.
    """

    files: pa.Table
    rewritten: tuple[Add, ...]
    rows: int
    marks: RowMarks | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did."""

    version: int
    rows: int
    files_added: int
    files_removed: int
    bytes_added: int
    rows_removed: int = 0
    """Rows that a condition chose, removed or rewritten."""
    rows_updated: int = 0
    """Of a merge: how many of `rows` are in the place of another one."""


def commit_write(
    log: TransactionLog,
    transaction: Transaction,
    adds: Sequence[Add],
    rows: int,
    *,
    settings: Config,
    runner: Runner | None,
    marks: RowMarks | None = None,
) -> Written:
    """Commit splits that are stored, indexed where that is due; if it surely fails, delete them.

    `runner` is where XRefs are built; threads of this process by default.
    """

    def commit() -> Committed:
        return commit_indexed(log, transaction, settings=settings, runner=runner)

    committed: Committed = undone_on_error(log, adds, commit, marks)
    if marks is not None:
        marks.discard_unused(committed.actions)
    if not committed.changed:  # there was nothing left to do
        discard(log.store, adds)
        return Written(committed.version, 0, 0, 0, 0)
    return Written(
        version=committed.version,
        rows=rows,
        files_added=len(adds),
        files_removed=len(
            {a.path for a in committed.actions if isinstance(a, Remove)}
            - {a.path for a in committed.actions if isinstance(a, Add)}
        ),
        bytes_added=sum(add.size for add in adds),
    )


def commit_replacement(
    log: TransactionLog,
    view: TableView,
    *,
    target: Target,
    adds: list[Add],
    removal: Removal,
    rows: int,
    scope: Scope,
    parameters: dict[str, Any],
    read_paths: frozenset[str] = frozenset(),
    runner: Runner | None = None,
    metrics: Mapping[str, int] | None = None,
    name: str | None = None,
) -> Written:
    """Commit new splits in place of the rows that `removal` takes out.

    `scope` says which added files would have been replaced too: they are a conflict. So are files
    of `read_paths` that another writer removed.
    """
    removes = removes_for(removal.files, timestamp=log.now_ms(), data_change=True)
    new = [*adds, *removal.rewritten]
    transaction = Transaction(
        operation=Operation.REPLACE if adds else Operation.REWRITE,
        name=name,
        actions=removes,
        transform=lambda newest: [
            *removes,
            *(removal.marks.actions_on(newest) if removal.marks else ()),
            *metadata_on(newest, view.snapshot, target),
            *new,
        ],
        read_version=view.version,
        read_snapshot=view.snapshot,
        read_scope=scope,
        read_paths=read_paths,
        parameters=parameters,
        metrics={
            "rows": rows,
            "rowsRemoved": removal.rows,
            "files": len(new),
            **({"rowsMarked": removal.marks.rows} if removal.marks else {}),
            **(metrics or {}),
        },
    )
    written = commit_write(
        log, transaction, new, rows,
        settings=view.settings, runner=runner, marks=removal.marks,
    )  # fmt: skip
    return replace(written, rows_removed=removal.rows)


def commit_partitions(
    log: TransactionLog,
    view: TableView,
    *,
    target: Target,
    adds: list[Add],
    rows: int,
    runner: Runner | None,
) -> Written:
    """Commit new splits in place of the partitions that they belong to."""
    touched = {_partition_key(add.partition_values, view) for add in adds}

    def scope(files: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
        values = files["partitionValues"].to_pylist(maps_as_pydicts="strict")
        return np.array([_partition_key(v, view) in touched for v in values], dtype=np.bool_)

    files = view.snapshot.entries
    return commit_replacement(
        log,
        view,
        target=target,
        adds=adds,
        removal=Removal(files.filter(pa.array(scope(files))), (), 0),
        rows=rows,
        scope=scope,
        parameters={"partitions": len(touched)},
        runner=runner,
    )


def scope_of(predicate: Predicate, view: TableView) -> Scope:
    """Files that may hold rows of a condition."""
    return lambda files: keep_mask(
        predicate, files, schema=view.schema, partition_columns=view.partition_columns
    )


def metadata_on(newest: Snapshot, read: Snapshot, target: Target) -> list[Metadata]:
    """The change of metadata that a write makes, on top of what others changed meanwhile.

    Two changes of columns or mappings do not add up: both would give out the same names in the
    index. The second one has to begin again.
    """
    if target.metadata is None:
        return []
    old, new = read.metadata, newest.metadata
    mappings = [m.configuration.get(MAPPING_PROPERTY) for m in (old, new)]
    changed = ["columns"] if old.schema_string != new.schema_string else []
    changed += ["mapping"] if mappings[0] != mappings[1] else []
    if changed:
        raise MetadataChangedError(uri=newest.uri, version=newest.version, changed=changed)
    wanted = target.metadata.configuration
    dropped = old.configuration.keys() - wanted.keys()
    kept = {k: v for k, v in new.configuration.items() if k not in dropped}
    set_here = {k: v for k, v in wanted.items() if old.configuration.get(k) != v}
    return [
        replace(
            new,
            schema_string=target.metadata.schema_string,
            partition_columns=target.metadata.partition_columns,
            configuration={**kept, **set_here},
        )
    ]


def undone_on_error(
    log: TransactionLog,
    adds: Sequence[Add],
    work: Callable[[], Any],
    marks: RowMarks | None = None,
) -> Any:
    """Do the rest of a write; if it surely failed, delete the splits that it stored."""
    try:
        return work()
    except CommitStateUnknownError:
        raise  # the commit may have happened, and then it names them
    except IndexTablesError:
        discard(log.store, adds)
        if marks is not None:
            marks.discard_unused(())
        raise


def checked_rows(
    batches: Iterator[pa.RecordBatch], predicate: Predicate, target: Target
) -> Iterator[pa.RecordBatch]:
    """The batches, or an error for rows that do not meet the condition they are to replace."""
    for batch in batches:
        answer: Any = evaluate(
            predicate,
            batch,
            search=lambda search, rows=batch: search_rows(  # type: ignore[misc]
                search, rows, target.mapping, schema=target.schema
            ),
        )
        outside = pc.sum(pc.invert(answer.fill_null(False))).as_py() or 0
        if outside:
            condition = ColumnNames(target.schema, target.shown, True).shown_predicate(predicate)
            raise SchemaError(
                f"{outside:,} of the new rows do not meet the condition {condition}. Only rows "
                "that meet it can replace rows that do."
            )
        yield batch


def _partition_key(values: Any, view: TableView) -> tuple[str | None, ...]:
    """The partition of a file, to compare it with others."""
    return tuple((values or {}).get(name) for name in view.partition_columns)


# --- marking rows as deleted -----------------------------------------------------------------


class RowMarks:
    """Rows to be marked as deleted, by the path of their split.

    `exclusive` rows are replaced by others: it is a conflict if one of them is gone already.
    """

    def __init__(
        self, log: TransactionLog, numbers: Mapping[str, RowNumbers], *, exclusive: bool
    ) -> None:
        self._log = log
        self._numbers = numbers
        self._exclusive = exclusive
        self._actions_by_state: dict[frozenset[tuple[str, str | None]], list[Action]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def rows(self) -> int:
        """How many rows are marked."""
        return sum(map(len, self._numbers.values()))

    def actions_on(self, newest: Snapshot) -> list[Action]:
        """The actions that mark the rows in the newest version; none if all are marked already."""
        if not self._numbers:
            return []
        files = with_paths(newest.entries, self._numbers)
        state = frozenset(contents_of(files))
        removed = sorted(self._numbers.keys() - {path for path, _ in state})
        if removed:  # rewritten or merged: where the rows are now is unknown
            raise ConcurrentDeleteDeleteError(uri=newest.uri, version=newest.version, paths=removed)
        if state not in self._actions_by_state:
            self._actions_by_state[state] = self._marked(newest, adds_from_files(files))
        return self._actions_by_state[state]

    def _marked(self, newest: Snapshot, adds: Sequence[Add]) -> list[Action]:
        store = self._log.store
        vectors: dict[str, RowNumbers] = {}
        left: dict[str, int | None] = {}
        for add in adds:
            newly_dead = self._numbers[add.path]
            dead = np.zeros(0, dtype=np.int64)
            if add.deletion_vector is not None:
                descriptor = DeletionVector.from_json(add.deletion_vector, path=add.path)
                dead = StoredVector(store, descriptor, add.path).read()
            every = np.union1d(dead, newly_dead)
            if self._exclusive and len(every) < len(dead) + len(newly_dead):
                raise ConcurrentRowChangeError(
                    uri=newest.uri, version=newest.version, paths=[add.path]
                )
            if len(every) > len(dead):
                vectors[add.path] = every
                rows = add.num_records
                left[add.path] = None if rows is None else rows + len(dead) - len(every)
        kept = {path: rows for path, rows in vectors.items() if left[path] != 0}
        new_vectors = store_vectors(store, kept)
        files = with_paths(newest.entries, vectors)
        return [
            *removes_for(files, timestamp=self._log.now_ms(), data_change=True),
            *(
                replace(
                    add,
                    deletion_vector=new_vectors[add.path].to_json(),
                    num_records=left[add.path],
                    data_change=True,
                )
                for add in adds
                if add.path in new_vectors
            ),
        ]

    def discard_unused(self, actions: Sequence[Action]) -> None:
        """Delete the files of attempts that another writer overtook; `actions` were committed."""
        used = vector_files(a.deletion_vector for a in actions if isinstance(a, Add))
        attempts = chain.from_iterable(self._actions_by_state.values())
        stored = vector_files(a.deletion_vector for a in attempts if isinstance(a, Add))
        if stored - used:
            self._log.store.delete(sorted(stored - used))
