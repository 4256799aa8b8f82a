"""What a `_delta_log` says: its files, and the table that they describe.

A checkpoint is one Parquet file with a row an action. It is made of the one before and the versions
since, so that nothing is translated twice; files that left the table stay in it as tombstones until
readers of older versions are done with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indextables.errors import CorruptLogError, DeltaMirrorError, ObjectNotFoundError
from indextables.log.delta_translation import Document
from indextables.log.vectors import vector_files
from indextables.runner import LocalRunner, beside
from indextables.storage import ObjectMeta, Store

DELTA_LOG = "_delta_log"
LAST_CHECKPOINT = f"{DELTA_LOG}/_last_checkpoint"

_VERSION = re.compile(rf"{DELTA_LOG}/(\d{{20}})\.json")
_CHECKPOINT = re.compile(rf"{DELTA_LOG}/(\d{{20}})\.checkpoint\.parquet")
_AT_ONCE = 8
"""How many versions are read at once."""
_MAP = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()), ("cardinality", pa.int64()),
    ]
)  # fmt: skip
_SCHEMA: dict[str, Any] = {
    "txn": pa.struct(
        [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
    ),
    "add": pa.struct(
        [
            ("path", pa.string()), ("partitionValues", _MAP), ("size", pa.int64()),
            ("modificationTime", pa.int64()), ("dataChange", pa.bool_()), ("stats", pa.string()),
            ("deletionVector", _VECTOR),
        ]
    ),
    "remove": pa.struct(
        [
            ("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_()),
            ("extendedFileMetadata", pa.bool_()), ("partitionValues", _MAP), ("size", pa.int64()),
            ("deletionVector", _VECTOR),
        ]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()), ("name", pa.string()), ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
            ("schemaString", pa.string()), ("partitionColumns", _STRINGS),
            ("configuration", _MAP), ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
            ("readerFeatures", _STRINGS), ("writerFeatures", _STRINGS),
        ]
    ),
}  # fmt: skip


def version_path(version: int) -> str:
    """The file of a version."""
    return f"{DELTA_LOG}/{version:020d}.json"


def checkpoint_path(version: int) -> str:
    """The checkpoint of a version."""
    return f"{DELTA_LOG}/{version:020d}.checkpoint.parquet"


@dataclass(slots=True)
class DeltaListing:
    """The versions and checkpoints of a `_delta_log`."""

    versions: dict[int, ObjectMeta] = field(default_factory=dict)
    checkpoints: dict[int, ObjectMeta] = field(default_factory=dict)

    @property
    def latest(self) -> int:
        """The newest version; -1 if there is none."""
        return max(self.versions, default=-1)

    @property
    def is_whole(self) -> bool:
        """Whether a reader finds every version from a checkpoint, or the first one, on."""
        base = max((v for v in self.checkpoints if v <= self.latest), default=-1)
        return all(version in self.versions for version in range(base + 1, self.latest))


def list_newest(store: Store) -> DeltaListing:
    """The files from the newest checkpoint on, however long the `_delta_log` is."""
    try:
        hint = orjson.loads(store.get(LAST_CHECKPOINT))["version"]
        found = list_delta(store, start_after=f"{DELTA_LOG}/{int(hint):020d}.")
    except (ObjectNotFoundError, ValueError, TypeError, KeyError):
        return list_delta(store)
    return found if hint in found.checkpoints else list_delta(store)


def list_delta(store: Store, *, start_after: str | None = None) -> DeltaListing:
    """What lies in the `_delta_log`; what is neither a version nor a checkpoint is passed over."""
    found = DeltaListing()
    for meta in store.list(DELTA_LOG, start_after=start_after):
        for pattern, group in ((_VERSION, found.versions), (_CHECKPOINT, found.checkpoints)):
            if match := pattern.fullmatch(meta.path):
                group[int(match[1])] = meta
    return found


def read_version(store: Store, version: int) -> list[Document]:
    """The actions of a version, in their order."""
    path = version_path(version)
    try:
        found = [orjson.loads(line) for line in store.get(path).splitlines() if line.strip()]
    except orjson.JSONDecodeError as error:
        raise CorruptLogError(f"{store.uri}/{path}", f"a line is no JSON ({error})") from error
    if not all(isinstance(action, dict) for action in found):
        raise CorruptLogError(f"{store.uri}/{path}", "an action is an object with one key")
    return found


@dataclass(frozen=True, slots=True)
class DeltaState:
    """The table that a `_delta_log` describes. `adds` and `removes` are arrays of actions."""

    version: int
    protocol: Document
    metadata: Document
    adds: Any
    removes: Any
    txns: Mapping[str, Document]

    def tombstones(self, removed_after_ms: int) -> Any:
        """The files that left the table after a time."""
        removed_at = pc.struct_field(self.removes, "deletionTimestamp")
        limit = pa.scalar(removed_after_ms, pa.int64())
        return self.removes.filter(pc.greater(removed_at, limit))

    def named(self, removed_after_ms: int) -> set[str]:
        """The files that readers of this version, or of one since a time, may ask for."""
        found: set[str] = set()
        for actions in (self.adds, self.tombstones(removed_after_ms)):
            found.update(map(unquote, pc.struct_field(actions, "path").to_pylist()))
            found |= vector_files(pc.struct_field(actions, "deletionVector").to_pylist())
        return found

    def encoded(self, *, expired_ms: int) -> bytes:
        """The bytes of a checkpoint, without tombstones that are older than a time."""
        rows = {
            "protocol": pa.array([self.protocol], _SCHEMA["protocol"]),
            "metaData": pa.array([self.metadata], _SCHEMA["metaData"]),
            "txn": pa.array(list(self.txns.values()), _SCHEMA["txn"]),
            "add": self.adds,
            "remove": self.tombstones(expired_ms),
        }
        parts = []
        for name, values in rows.items():
            columns = {
                other: values if other == name else pa.nulls(len(values), kind)
                for other, kind in _SCHEMA.items()
            }
            parts.append(pa.table(columns, schema=pa.schema(list(_SCHEMA.items()))))
        sink = pa.BufferOutputStream()
        pq.write_table(pa.concat_tables(parts), sink, compression="snappy")
        return sink.getvalue().to_pybytes()


def named_files(store: Store, *, removed_after_ms: int) -> set[str]:
    """The files of a mirror, and those that left it after a time: older versions are read, too."""
    if not list_newest(store).versions:
        return set()
    return read_state(store).named(removed_after_ms)


def state_of(
    version: int, protocol: Document, metadata: Document, adds: Sequence[Document],
    txns: Mapping[str, Document],
) -> DeltaState:  # fmt: skip
    """A table that has no history."""
    rows = pa.array([{**add, "dataChange": False} for add in adds], _SCHEMA["add"])
    return DeltaState(version, protocol, metadata, rows, pa.array([], _SCHEMA["remove"]), txns)


def read_state(store: Store, *, version: int | None = None) -> DeltaState:
    """The newest state, or that of a version: a checkpoint and the versions after it."""
    listing = list_newest(store)
    if version is not None and version < min(listing.checkpoints, default=0):
        listing = list_delta(store)
    last = listing.latest if version is None else version
    base = max((v for v in listing.checkpoints if v <= last), default=-1)
    wanted = range(base + 1, last + 1)
    missing = next((number for number in wanted if number not in listing.versions), None)
    if missing is not None:
        raise DeltaMirrorError(store.uri, f"its version {missing} is missing")
    begun = beside(lambda: _from_checkpoint(store, base)) if base >= 0 else None
    versions = LocalRunner(_AT_ONCE).map(lambda number: read_version(store, number), wanted)
    return _replayed(store, begun() if begun else None, versions, last)


def _from_checkpoint(store: Store, version: int) -> DeltaState:
    where = f"{store.uri}/{checkpoint_path(version)}"
    try:
        table = pq.read_table(pa.BufferReader(store.get(checkpoint_path(version))))
        columns: dict[str, Any] = {
            name: table[name].combine_chunks().drop_null().cast(kind)
            for name, kind in _SCHEMA.items()
        }
        protocol, metadata = (
            columns[name].to_pylist(maps_as_pydicts="strict")[0]
            for name in ("protocol", "metaData")
        )
    except (pa.ArrowException, KeyError, IndexError, OSError) as error:
        raise CorruptLogError(where, str(error)) from error
    txns = {txn["appId"]: txn for txn in columns["txn"].to_pylist()}
    return DeltaState(
        version, _present(protocol), _present(metadata), columns["add"], columns["remove"], txns
    )


def _present(body: Document) -> Document:
    return {name: value for name, value in body.items() if value is not None}


def _replayed(
    store: Store, base: DeltaState | None, versions: Iterable[list[Document]], last: int
) -> DeltaState:
    protocol, metadata = (base.protocol, base.metadata) if base else ({}, {})
    txns = dict(base.txns) if base else {}
    changes: dict[str, Document | None] = {}
    removes: list[Document] = []
    for version in versions:
        for action in version:
            ((kind, body),) = action.items()
            if kind == "add":
                changes[body["path"]] = {**body, "dataChange": False}
            elif kind == "remove":
                changes[body["path"]] = None
                removes.append({**body, "dataChange": False})
            elif kind == "protocol":
                protocol = body
            elif kind == "metaData":
                metadata = body
            elif kind == "txn":
                txns[body["appId"]] = body
    if not protocol or not metadata:
        raise CorruptLogError(f"{store.uri}/{DELTA_LOG}", "no version has a protocol and metadata")
    new = pa.array([body for body in changes.values() if body], _SCHEMA["add"])
    adds = pa.concat_arrays([_rows_left(base, changes), new])
    gone = [base.removes] if base else []
    gone.append(pa.array(removes, _SCHEMA["remove"]))
    removed = _not_live(pa.concat_arrays(gone), adds)
    return DeltaState(last, protocol, metadata, adds, removed, txns)


def _rows_left(base: DeltaState | None, changes: Mapping[str, Any]) -> Any:
    if base is None:
        return pa.array([], _SCHEMA["add"])
    changed = pa.array(list(changes), pa.string())
    is_gone: Any = pc.is_in(pc.struct_field(base.adds, "path"), value_set=changed)
    return base.adds.filter(pc.invert(is_gone))


def _not_live(removes: Any, adds: Any) -> Any:
    """Tombstones without those of files that came back: a restore adds what a version removed."""
    paths = pc.struct_field(removes, "path")
    again = adds.filter(pc.is_in(pc.struct_field(adds, "path"), value_set=paths.unique()))
    live = set(map(_key, again.to_pylist()))
    return removes.filter(
        pa.array([_key(row) not in live for row in removes.to_pylist()], pa.bool_())
    )


def _key(row: Document) -> tuple[Any, ...]:
    vector = row["deletionVector"] or {}
    return row["path"], vector.get("pathOrInlineDv"), vector.get("offset")
