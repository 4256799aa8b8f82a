"""A snapshot: the whole table as of one version, and which splits its cross-references cover.

The files are an Arrow table plus the changes of later versions, which are folded in when the files
are asked for. So a refresh after a commit costs what the commit costs, whatever the size of the
table.

An XRef names its source splits by path. A split may be gone by now: the XRef is then *stale*, its
document is masked because a split that is not live is never asked for, and the rest of it is as
good as before. A split that no XRef names is *uncovered* and always read. So no answer depends on
the cover; what depends on it is what to build next.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.actions import (
    Action,
    Add,
    AddXRef,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
    RemoveXRef,
    Skip,
    Txn,
)
from indextables.log.files import (
    deleted_rows,
    empty_files,
    files_from_adds,
    intern_mapping,
    registry_of,
    vectors_by_path,
    with_mapping_json,
    with_mappings,
    without_paths,
)
from indextables.log.vectors import vector_files


def unexpired_skips(snapshot: Snapshot) -> tuple[Skip, ...]:
    """The skips that still keep a job away at the snapshot's time."""
    return tuple(
        skip
        for skip in snapshot.skips.values()
        if skip.retry_after is None or skip.retry_after > snapshot.timestamp
    )


# Folding is one pass over the table; changes beyond this many are folded at once.
_FOLD_AT = 4096

LEGACY_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=1)


@dataclass(frozen=True, slots=True)
class VersionActions:
    """The actions of one version, with the time it was committed."""

    version: int
    actions: Sequence[Action]
    modified_ms: int

    @property
    def commit_info(self) -> CommitInfo | None:
        return next((a for a in self.actions if isinstance(a, CommitInfo)), None)

    @property
    def timestamp(self) -> int:
        info = self.commit_info
        return info.timestamp if info else self.modified_ms


@dataclass(frozen=True)
class Snapshot:
    """The table at `version`.

    `files` has a row a split, in the columns of the log. `xrefs` and `skips` are by path, `txns`
    by the application that wrote them.
    """

    uri: str
    version: int
    timestamp: int
    protocol: Protocol
    metadata: Metadata
    xrefs: Mapping[str, AddXRef] = field(default_factory=dict)
    skips: Mapping[str, Skip] = field(default_factory=dict)
    txns: Mapping[str, Txn] = field(default_factory=dict)
    base_files: pa.Table = field(default_factory=empty_files, repr=False)
    # Path to (add, version, timestamp), or to None where the file is removed.
    changes: Mapping[str, tuple[Add, int, int] | None] = field(default_factory=dict, repr=False)
    # Reads the manifests that were left out, those that a condition needs or all of them.
    unread: Callable[[Any], Snapshot] | None = field(default=None, repr=False)

    @property
    def partial(self) -> bool:
        """Whether files are missing here, because their partitions were not needed."""
        return self.unread is not None

    @functools.cached_property
    def entries(self) -> pa.Table:
        """The live files, mappings by reference only (`files` restores them)."""
        if not self.changes:
            return self.base_files
        added = [change for change in self.changes.values() if change is not None]
        kept = without_paths(self.base_files, self.changes)
        if not added:
            return kept
        return pa.concat_tables([kept, files_from_adds(added)])

    @functools.cached_property
    def kept(self) -> dict[str, Any]:
        """What planning worked out of these files and needs again. It stays in this process."""
        return {}

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "kept"}

    @property
    def paths(self) -> pa.ChunkedArray[Any]:
        """The paths of the live files, in the order of `entries`, without folding their entries."""
        if "entries" in self.__dict__ or not self.changes:
            return self.entries["path"]
        added = [path for path, change in self.changes.items() if change is not None]
        kept = without_paths(self.base_files.select(["path"]), self.changes)["path"]
        return pa.chunked_array([*kept.chunks, pa.array(added, pa.string())], pa.string())

    @functools.cached_property
    def files(self) -> pa.Table:
        """The live files as an Arrow table; `docMappingJson` is restored."""
        return with_mapping_json(self.entries, self.mappings)

    @functools.cached_property
    def mappings(self) -> dict[str, str]:
        """The mappings of the table's splits by reference."""
        return registry_of(self.metadata.configuration)

    @property
    def num_files(self) -> int:
        return int(self.entries.num_rows)

    @property
    def total_bytes(self) -> int:
        return pc.sum(self.entries["size"]).as_py() or 0

    @property
    def deleted_rows(self) -> int:
        """Rows that are in the files and marked as deleted."""
        return int(deleted_rows(self.entries).sum())

    @property
    def vector_files(self) -> set[str]:
        """The files that say which rows are marked as deleted; small vectors are in the log."""
        return vector_files(vectors_by_path(self.entries).values())

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The table's schema in Arrow types, partition columns included."""
        from indextables.schema import from_json

        return from_json(self.metadata.schema_string)

    def contains(self, paths: Iterable[str]) -> set[str]:
        """Which of these paths are live."""
        path_set = set(paths)
        live = {path for path in path_set if self.changes.get(path) is not None}
        unchanged = pa.array([path for path in path_set if path not in self.changes], pa.string())
        if len(unchanged) and self.base_files.num_rows:
            column: Any = self.base_files["path"]
            live.update(column.filter(pc.is_in(column, value_set=unchanged)).to_pylist())
        return live

    def advance(self, versions: Sequence[VersionActions]) -> Snapshot:
        """The snapshot after these versions, which follow this one; they may come in any order."""
        if not versions:
            return self
        state = _Replay(self)
        for version in sorted(versions, key=lambda v: v.version):
            state.apply(version)
        snapshot = state.snapshot()
        if (read := self.unread) is None:
            return snapshot
        return replace(snapshot, unread=lambda keep: read(keep).advance(versions))


class _Replay:
    """Actions applied one version after the other; within a version, in their order."""

    def __init__(self, start: Snapshot) -> None:
        folded = len(start.changes) > _FOLD_AT
        self._start = start
        self._base = start.entries if folded else start.base_files
        self._changes = {} if folded else dict(start.changes)
        self._xrefs = dict(start.xrefs)
        self._skips = dict(start.skips)
        self._txns = dict(start.txns)
        self._mappings: dict[str, str] = {}
        self._protocol = start.protocol
        self._metadata = start.metadata
        self._version = start.version
        self._timestamp = start.timestamp

    def apply(self, version: VersionActions) -> None:
        self._version = version.version
        # Other writers take their clock as it is; ours must not run backwards because of them.
        self._timestamp = max(self._timestamp, version.timestamp)
        for action in version.actions:
            match action:
                case Add():
                    add = intern_mapping(action, self._mappings)
                    self._changes[add.path] = (add, self._version, self._timestamp)
                case Remove():
                    self._changes[action.path] = None
                    self._skips.pop(action.path, None)
                case Skip():
                    self._skips[action.path] = action
                case AddXRef():
                    self._xrefs[action.path] = action
                case RemoveXRef():
                    self._xrefs.pop(action.path, None)
                case Txn():
                    self._txns[action.app_id] = action
                case Protocol():
                    self._protocol = action
                case Metadata():
                    self._metadata = action

    def snapshot(self) -> Snapshot:
        metadata = self._metadata
        missing = self._mappings.keys() - registry_of(metadata.configuration).keys()
        if missing:  # inline mappings of older writers
            mappings = {reference: self._mappings[reference] for reference in missing}
            metadata = replace(
                metadata, configuration=with_mappings(metadata.configuration, mappings)
            )
        return Snapshot(
            uri=self._start.uri,
            version=self._version,
            timestamp=self._timestamp,
            protocol=self._protocol,
            metadata=metadata,
            xrefs=self._xrefs,
            skips=self._skips,
            txns=self._txns,
            base_files=self._base,
            changes=self._changes,
        )


def empty_snapshot(uri: str) -> Snapshot:
    """The table before its version 0."""
    return Snapshot(
        uri=uri,
        version=-1,
        timestamp=0,
        protocol=LEGACY_PROTOCOL,
        metadata=Metadata(id="", schema_string=""),
    )


# --- which splits its cross-references cover -------------------------------------------------

_Integers = npt.NDArray[np.int64]

_TEXT = pa.string()


@dataclass(frozen=True, eq=False)
class Cover:
    """Live splits and the XRefs that name them.

    `owner` has for every live split the number of its XRef, or -1. Where several name a split, one
    that is not stale owns it, and of those the largest. `live` and `owned` count for every XRef its
    sources that are live, and those of them that it owns.
    """

    xrefs: tuple[AddXRef, ...]
    paths: pa.Array[Any]
    owner: _Integers
    live: _Integers
    owned: _Integers

    def splits(self, rows: _Integers) -> tuple[str, ...]:
        """The paths of some of the live splits."""
        paths: list[Any] = self.paths.take(rows).to_pylist()
        return tuple(paths)

    def owned_by(self, xref: int) -> _Integers:
        """The live splits that an XRef owns."""
        return np.flatnonzero(self.owner == xref)

    @property
    def uncovered(self) -> _Integers:
        """The live splits that no XRef names."""
        return np.flatnonzero(self.owner < 0)


def cover_of(snapshot: Snapshot) -> Cover:
    """Hold a snapshot's XRefs against its live splits."""
    xrefs = list(snapshot.xrefs.values())
    paths: Any = snapshot.paths.combine_chunks()
    sources = pa.array(chain.from_iterable(x.source_split_paths for x in xrefs), _TEXT)
    counts = np.array([len(x.source_split_paths) for x in xrefs], dtype=np.int64)
    positions: Any = pc.index_in(sources, value_set=paths)
    alive = positions.is_valid().to_numpy(zero_copy_only=False)
    rows = positions.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    naming = np.repeat(np.arange(len(xrefs)), counts)[alive]
    live = np.bincount(naming, minlength=len(xrefs))
    order = np.lexsort((-counts, live < counts))
    rank = np.argsort(order)[naming]
    owner = np.full(len(paths), -1, dtype=np.int64)
    last_first = np.argsort(-rank, kind="stable")  # the last assignment to a row stays
    owner[rows[last_first]] = rank[last_first]
    return Cover(
        xrefs=tuple(xrefs[i] for i in order),
        paths=paths,
        owner=owner,
        live=live[order],
        owned=np.bincount(owner[owner >= 0], minlength=len(xrefs)),
    )


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of a table's splits some XRef names.

    >>> print(Coverage(active=2, covered=750, total=800))
    Coverage: 750/800 (93.75%)
    >>> print(Coverage(active=0, covered=0, total=0))
    Coverage: 0/0 (100.00%)
    """

    active: int
    covered: int
    total: int

    @property
    def percent(self) -> float:
        return 100.0 * self.covered / self.total if self.total else 100.0

    def __str__(self) -> str:
        return f"Coverage: {self.covered}/{self.total} ({self.percent:.2f}%)"


def coverage(snapshot: Snapshot) -> Coverage:
    """How much of the table its XRefs cover."""
    cover = cover_of(snapshot)
    return Coverage(len(cover.xrefs), int((cover.owner >= 0).sum()), len(cover.paths))
