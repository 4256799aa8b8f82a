"""How far a stream has read a table: offsets, and what lies between two of them.

A stream begins with the rows of a version, file by file, and goes on with what each later version
added. An offset names the next file: its version, its place among the version's files in the order
of their paths, and whether the version is the one that the stream began with. Files of a version
never change, so what lies between two offsets is the same whenever it is read.

A commit that also removed rows is one unit. Merges have no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from indextables.errors import ObjectNotFoundError, PurgedVersionError, StreamSourceError
from indextables.log.actions import Add, Remove
from indextables.log.files import files_from_adds
from indextables.log.snapshot import VersionActions
from indextables.log.transaction import marked_paths
from indextables.log.transaction_log import TransactionLog


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
            found = cls(body["table"], body["version"], body["index"], body["isStart"])
        except KeyError as error:
            raise StreamSourceError(
                uri, "its checkpoint was not written by this source."
            ) from error
        if found.table != table:
            raise StreamSourceError(
                uri,
                "its checkpoint belongs to another table, or the table was made anew. Start it "
                "with a checkpointLocation of its own.",
            )
        return found


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
        gone = {a.path for a in commit.actions if isinstance(a, Remove) and a.data_change}
        if not gone:
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
            f"version {commit.version} {done} rows, and those that were read already cannot be "
            f"taken back. Set {option} to go on with the rows that are new, or read "
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
