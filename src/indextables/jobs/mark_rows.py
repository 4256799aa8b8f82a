"""Marking rows as deleted, where writing their splits anew would cost more.

A commit takes the split out and puts it back with a vector that names the rows (`log.vectors`). The
vector is made from the newest version on every attempt, so two writers that delete different rows
of one split both succeed. Of the same row, the second deletion has nothing left to do; a row that
is replaced, by an UPDATE or MERGE, must still be there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from indextables.errors import ConcurrentDeleteDeleteError, ConcurrentRowChangeError
from indextables.log.actions import Action, Add
from indextables.log.files import adds_from_files, contents_of, removes_for, with_paths
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.log.vectors import DeletionVector, StoredVector, store_vectors, vector_files
from indextables.split.row_numbers import RowNumbers


class RowMarks:
    """Rows to be marked as deleted, by the path of their split.

    `exclusive` rows are replaced by others: that one of them is gone by now is a conflict.
    """

    def __init__(
        self, log: TransactionLog, numbers: Mapping[str, RowNumbers], *, exclusive: bool
    ) -> None:
        self._log = log
        self._numbers = numbers
        self._exclusive = exclusive
        self._made: dict[frozenset[tuple[str, str | None]], list[Action]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def rows(self) -> int:
        """How many rows are marked."""
        return sum(map(len, self._numbers.values()))

    def actions_on(self, newest: Snapshot) -> list[Action]:
        """What marks the rows in the newest version; nothing where they are marked already."""
        if not self._numbers:
            return []
        files = with_paths(newest.entries, self._numbers)
        state = frozenset(contents_of(files))
        gone = sorted(self._numbers.keys() - {path for path, _ in state})
        if gone:  # rewritten or merged: nobody can say where the rows are now
            raise ConcurrentDeleteDeleteError(uri=newest.uri, version=newest.version, paths=gone)
        if state not in self._made:
            self._made[state] = self._marked(newest, adds_from_files(files))
        return self._made[state]

    def _marked(self, newest: Snapshot, adds: Sequence[Add]) -> list[Action]:
        store = self._log.store
        vectors: dict[str, RowNumbers] = {}
        left: dict[str, int | None] = {}
        for add in adds:
            wanted = self._numbers[add.path]
            dead = np.zeros(0, dtype=np.int64)
            if add.deletion_vector is not None:
                descriptor = DeletionVector.from_json(add.deletion_vector, path=add.path)
                dead = StoredVector(store, descriptor, add.path).read()
            every = np.union1d(dead, wanted)
            if self._exclusive and len(every) < len(dead) + len(wanted):
                raise ConcurrentRowChangeError(
                    uri=newest.uri, version=newest.version, paths=[add.path]
                )
            if len(every) > len(dead):
                vectors[add.path] = every
                rows = add.num_records
                left[add.path] = None if rows is None else rows + len(dead) - len(every)
        kept = {path: rows for path, rows in vectors.items() if left[path] != 0}
        made = store_vectors(store, kept)
        files = with_paths(newest.entries, vectors)
        return [
            *removes_for(files, timestamp=self._log.now_ms(), data_change=True),
            *(
                replace(
                    add,
                    deletion_vector=made[add.path].to_json(),
                    num_records=left[add.path],
                    data_change=True,
                )
                for add in adds
                if add.path in made
            ),
        ]

    def discard_unused(self, actions: Sequence[Action]) -> None:
        """Delete the files of attempts that another writer overtook; `actions` were committed."""
        used = vector_files(a.deletion_vector for a in actions if isinstance(a, Add))
        made = vector_files(
            a.deletion_vector for some in self._made.values() for a in some if isinstance(a, Add)
        )
        if made - used:
            self._log.store.delete(sorted(made - used))
