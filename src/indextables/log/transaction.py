"""A transaction: what it wants to commit, and which others it conflicts with.

It has an operation, its actions, and what it read to decide on them. A transaction that lost a
version asks, for every commit that it did not see: can mine still be true after this one? The
answers are a matrix, as data: rows are the operations that want to commit, columns what the winner
changed. The checks run in a fixed order: protocol, metadata, files added, files removed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from indextables.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    MetadataChangedError,
    ProtocolChangedError,
)
from indextables.log.actions import (
    CONSTRAINT_PREFIX,
    DELETION_VECTORS,
    WRITER_FEATURES,
    Action,
    Add,
    AddXRef,
    Metadata,
    Protocol,
    Remove,
    RemoveXRef,
    Skip,
)
from indextables.log.files import (
    REGISTRY_PREFIX,
    adds_from_files,
    contents_of,
    files_from_adds,
    removes_for,
    without_paths,
)
from indextables.log.snapshot import Snapshot, VersionActions


class Operation(enum.Enum):
    """The kinds of commits; the conflict matrix has a row for each."""

    CREATE = "CREATE TABLE"
    APPEND = "APPEND"
    OVERWRITE = "OVERWRITE"
    REPLACE = "REPLACE WHERE"
    REWRITE = "REWRITE ROWS"
    MERGE = "MERGE SPLITS"
    METADATA = "SET METADATA"
    PROTOCOL = "UPGRADE PROTOCOL"
    XREF = "INDEX CROSSREFERENCES"
    SKIP = "SKIP FILES"
    RESTORE = "RESTORE"


# Which of these (added) files the transaction would have read, as a mask.
Scope = Callable[[pa.Table], npt.NDArray[np.bool_]]


def nothing(files: pa.Table) -> npt.NDArray[np.bool_]:
    """The scope of a blind write."""
    return np.zeros(files.num_rows, dtype=bool)


def everything(files: pa.Table) -> npt.NDArray[np.bool_]:
    """The scope of an operation that depends on every file of the table."""
    return np.ones(files.num_rows, dtype=bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One commit to be.

    Either `actions` are fixed, planned on `read_version`: then every commit after that version is
    checked against what this one read. Or `transform` makes them from the newest snapshot, again
    on every attempt: then the transaction always follows all others, and nothing is checked but
    what the actions themselves need.

    `read_snapshot` is the table at `read_version`, for those who still have it: the log may have
    lost that version by the time of the commit, or be the log of another table.

    `files_are_here` is false for a log that is made beside its table, to be moved there.
    """

    operation: Operation
    name: str | None = None
    """What the history calls it, if not by its kind: DELETE, UPDATE, MERGE."""
    actions: Sequence[Action] = ()
    transform: Callable[[Snapshot], Sequence[Action]] | None = None
    read_version: int | None = None
    read_snapshot: Snapshot | None = None
    read_paths: frozenset[str] = frozenset()
    read_scope: Scope = nothing
    files_are_here: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)


class Change(enum.Enum):
    """What a winning commit can have changed, in the order of the checks."""

    PROTOCOL = "raised the protocol"
    FEATURES = "added writer features this release knows"
    SCHEMA = "changed the schema, the partitioning or constraints"
    COLUMNS = "added columns"
    PROPERTIES = "changed properties"
    MAPPINGS = "added mappings to the registry"
    ADDED = "added rows"
    REMOVED = "removed rows"
    MARKED = "marked rows as deleted"
    MERGED = "merged splits"
    XREFS = "changed cross-references"
    SKIPS = "recorded skipped files"


class Rule(enum.Enum):
    """What a cell of the matrix says."""

    OK = "commits after it"
    CONFLICT = "conflicts"
    IN_SCOPE = "conflicts if the added files are among those it would have read"
    SAME_FILES = "conflicts if files were removed, or rows of them, that it read or removes"


_SIGNS = {"-": Rule.OK, "X": Rule.CONFLICT, "scope": Rule.IN_SCOPE, "files": Rule.SAME_FILES}

_TABLE = """
          PROTOCOL FEATURES SCHEMA COLUMNS PROPERTIES MAPPINGS ADDED REMOVED MARKED MERGED XREFS SKIPS
APPEND    X        -        X      -       -          -        -     -       -      -      -     -
OVERWRITE X        -        X      -       -          -        scope files   files  files  -     -
REPLACE   X        -        X      -       -          -        scope files   files  files  -     -
REWRITE   X        -        X      -       -          -        scope files   files  files  -     -
MERGE     X        -        X      -       -          -        -     files   files  files  -     -
METADATA  X        -        X      X       X          -        -     -       -      -      -     -
PROTOCOL  -        -        -      -       -          -        -     -       -      -      -     -
XREF      X        -        X      -       -          -        -     -       -      -      -     -
SKIP      -        -        -      -       -          -        -     -       -      -      -     -
RESTORE   X        -        X      X       X          -        scope files   files  files  -     -
"""  # noqa: E501


def _parse_table(table: str) -> dict[tuple[Operation, Change], Rule]:
    head, *rows = [line.split() for line in table.strip().splitlines()]
    return {
        (Operation[row[0]], Change[column]): _SIGNS[sign]
        for row in rows
        for column, sign in zip(head, row[1:], strict=True)
    }


MATRIX: dict[tuple[Operation, Change], Rule] = _parse_table(_TABLE)


def changes_of(winner: VersionActions, *, before: Snapshot) -> set[Change]:
    """What a commit changed, given the table before it."""
    changes: set[Change] = set()
    marked = marked_paths(winner)
    for action in winner.actions:
        match action:
            case Add() | Remove() if action.path in marked:
                changes.add(Change.MARKED)
            case Protocol():
                changes |= _protocol_changes(before.protocol, action)
            case Metadata():
                changes |= _metadata_changes(before.metadata, action)
            case Add():
                changes.add(Change.ADDED if action.data_change else Change.MERGED)
            case Remove():
                changes.add(Change.REMOVED if action.data_change else Change.MERGED)
            case AddXRef() | RemoveXRef():
                changes.add(Change.XREFS)
            case Skip():
                changes.add(Change.SKIPS)
    return changes


def marked_paths(winner: VersionActions) -> set[str]:
    """The splits of which a commit marked rows as deleted: it took them out and put them back.

    One that is put back by RESTORE may have rows again that were deleted, and who cannot say what a
    commit did (a log was truncated) cannot say that either: such rows count as added.
    """
    info = winner.commit_info
    if info is None or info.operation == Operation.RESTORE.value:
        return set()
    added = {a.path for a in winner.actions if isinstance(a, Add) and a.deletion_vector}
    return added & {a.path for a in winner.actions if isinstance(a, Remove)}


def _protocol_changes(old: Protocol, new: Protocol) -> set[Change]:
    versions = (old.min_reader_version, old.min_writer_version)
    if versions != (new.min_reader_version, new.min_writer_version):
        return {Change.PROTOCOL}
    # Vectors come with rows that are marked, which is a change of its own.
    new_for_readers = set(new.reader_features or ()) - {DELETION_VECTORS}
    if new_for_readers != set(old.reader_features or ()) - {DELETION_VECTORS}:
        return {Change.PROTOCOL}
    added = set(new.writer_features or ()) - set(old.writer_features or ())
    if not added:
        return set()
    return {Change.FEATURES} if added <= WRITER_FEATURES else {Change.PROTOCOL}


def _metadata_changes(old: Metadata, new: Metadata) -> set[Change]:
    changes: set[Change] = set()
    if old.partition_columns != new.partition_columns or old.id != new.id:
        changes.add(Change.SCHEMA)
    elif old.schema_string != new.schema_string:
        additive = _only_adds_columns(old.schema_string, new.schema_string)
        changes.add(Change.COLUMNS if additive else Change.SCHEMA)
    changed = {
        key
        for key in old.configuration.keys() | new.configuration.keys()
        if old.configuration.get(key) != new.configuration.get(key)
    }
    if any(key.startswith(CONSTRAINT_PREFIX) for key in changed):
        changes.add(Change.SCHEMA)  # rows that are on their way were not checked
    if any(key.startswith(REGISTRY_PREFIX) for key in changed):
        changes.add(Change.MAPPINGS)
    if any(not key.startswith(REGISTRY_PREFIX) for key in changed) or (
        (old.name, old.description) != (new.name, new.description)
    ):
        changes.add(Change.PROPERTIES)
    return changes


def _only_adds_columns(old: str, new: str) -> bool:
    try:
        before = {f["name"]: f["type"] for f in orjson.loads(old)["fields"]}
        after = {f["name"]: f["type"] for f in orjson.loads(new)["fields"]}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False
    return all(name in after and after[name] == data_type for name, data_type in before.items())


def difference(before: Snapshot, after: Snapshot) -> VersionActions:
    """What lies between two snapshots as one commit, where the versions in between are gone.

    Rows that were added and merged since look like merged ones: every file counts as changed data.
    """
    same = {path for path, _ in contents_of(before.entries) & contents_of(after.entries)}
    adds = adds_from_files(without_paths(after.entries, same))
    removed = without_paths(before.entries, same)
    actions = [
        after.protocol,
        after.metadata,
        *removes_for(removed, timestamp=after.timestamp, data_change=True),
        *(replace(add, data_change=True) for add in adds),
    ]
    return VersionActions(after.version, actions, after.timestamp)


def check_conflicts(
    mine: Transaction, winners: Sequence[VersionActions], *, before: Snapshot
) -> None:
    """Raise the named error if one of the winners contradicts the transaction.

    `before` is the snapshot the first winner was applied to.
    """
    for winner in winners:
        _check(mine, winner, changes_of(winner, before=before), uri=before.uri)
        before = before.advance([winner])


def _check(mine: Transaction, winner: VersionActions, changes: set[Change], *, uri: str) -> None:
    rules = {change: MATRIX[mine.operation, change] for change in changes}
    conflicts = {change for change, rule in rules.items() if rule is Rule.CONFLICT}
    if Change.PROTOCOL in conflicts:
        raise ProtocolChangedError(uri=uri, version=winner.version)
    metadata = [c for c in (Change.SCHEMA, Change.COLUMNS, Change.PROPERTIES) if c in conflicts]
    if not metadata and _changes_schema(mine) and Change.COLUMNS in changes:
        metadata = [Change.COLUMNS]  # two schemas at once; neither contains the other
    if metadata:
        raise MetadataChangedError(
            uri=uri, version=winner.version, changed=[c.name.lower() for c in metadata]
        )
    if Rule.IN_SCOPE in rules.values():
        marked = marked_paths(winner)
        added = [
            a
            for a in winner.actions
            if isinstance(a, Add) and a.data_change and a.path not in marked
        ]
        files = files_from_adds([(add, winner.version, 0) for add in added])
        read = mine.read_scope(files)
        if read.any():
            paths = [add.path for add, hit in zip(added, read, strict=True) if hit]
            raise ConcurrentAppendError(uri=uri, version=winner.version, paths=paths)
    if Rule.SAME_FILES in rules.values():
        removed = {a.path for a in winner.actions if isinstance(a, Remove)}
        _check_removed(mine, removed, version=winner.version, uri=uri)


def _changes_schema(mine: Transaction) -> bool:
    return any(isinstance(action, Metadata) for action in mine.actions)


def _check_removed(mine: Transaction, removed: Iterable[str], *, version: int, uri: str) -> None:
    removed = set(removed)
    removing = sorted(removed & {a.path for a in mine.actions if isinstance(a, Remove)})
    if removing:
        raise ConcurrentDeleteDeleteError(uri=uri, version=version, paths=removing)
    reading = sorted(removed & mine.read_paths)
    if reading:
        raise ConcurrentDeleteReadError(uri=uri, version=version, paths=reading)
