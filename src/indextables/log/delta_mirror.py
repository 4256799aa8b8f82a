"""The mirror: each version of a table, written again as a version of a Delta table in its folder.

Our log is the truth and is committed first. A version is then translated and put if absent under
its own number, so it does not matter how many writers do it, or who: one that was killed in between
is made up for by the next commit, or by the next `Table.open`. A table that already has versions
begins with a checkpoint of the present one.

No other writer may commit to that `_delta_log`. Each commit first checks whether one did, and
is then refused: our log has no way to take over what it does not know.

`DeltaState` is the table that a `_delta_log` describes. A checkpoint is one Parquet file with a row
for each action. It is made of the one before and the versions since, so that nothing is translated
twice; files that left the table stay in it as tombstones until readers of older versions are done
with them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indextables import config as keys
from indextables.config import Config, known_keys
from indextables.errors import (
    CorruptLogError,
    DeltaMirrorError,
    ForeignDeltaCommitError,
    ObjectExistsError,
    ObjectNotFoundError,
    VersionGapError,
)
from indextables.log.actions import COLUMN_DEFAULTS, ROWS_ELSEWHERE, Action, Add, Metadata, Protocol
from indextables.log.delta_translation import (
    WRITER_FEATURE,
    Columns,
    Document,
    add_body,
    columns_of,
    commit_document,
    file_document,
    file_documents,
    metadata_document,
    protocol_document,
    version_documents,
)
from indextables.log.files import adds_from_files
from indextables.log.reader import LogReader
from indextables.log.snapshot import Snapshot, VersionActions
from indextables.log.vectors import vector_files
from indextables.runner import LocalRunner, beside
from indextables.schema import from_json
from indextables.schema.types import has_variant
from indextables.storage import ObjectMeta, Store

logger = logging.getLogger(__name__)

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
        listing = list_delta(store, start_after=f"{DELTA_LOG}/{int(hint):020d}.")
    except (ObjectNotFoundError, ValueError, TypeError, KeyError):
        return list_delta(store)
    return listing if hint in listing.checkpoints else list_delta(store)


def list_delta(store: Store, *, start_after: str | None = None) -> DeltaListing:
    """The files of the `_delta_log`; those that are neither version nor checkpoint are ignored."""
    listing = DeltaListing()
    for meta in store.list(DELTA_LOG, start_after=start_after):
        for pattern, group in ((_VERSION, listing.versions), (_CHECKPOINT, listing.checkpoints)):
            if match := pattern.fullmatch(meta.path):
                group[int(match[1])] = meta
    return listing


def read_version(store: Store, version: int) -> list[Document]:
    """The actions of a version, in their order."""
    path = version_path(version)
    try:
        actions = [orjson.loads(line) for line in store.get(path).splitlines() if line.strip()]
    except orjson.JSONDecodeError as error:
        raise CorruptLogError(f"{store.uri}/{path}", f"a line is not JSON ({error})") from error
    if not all(isinstance(action, dict) for action in actions):
        raise CorruptLogError(f"{store.uri}/{path}", "an action is an object with one key")
    return actions


# --- what a log of Delta says ----------------------------------------------------------------


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
        paths: set[str] = set()
        for actions in (self.adds, self.tombstones(removed_after_ms)):
            paths.update(map(unquote, pc.struct_field(actions, "path").to_pylist()))
            paths |= vector_files(pc.struct_field(actions, "deletionVector").to_pylist())
        return paths

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
                other: values if other == name else pa.nulls(len(values), data_type)
                for other, data_type in _SCHEMA.items()
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
    following = range(base + 1, last + 1)
    missing = next((number for number in following if number not in listing.versions), None)
    if missing is not None:
        raise DeltaMirrorError(store.uri, f"its version {missing} is missing")
    begun = beside(lambda: _from_checkpoint(store, base)) if base >= 0 else None
    versions = LocalRunner(_AT_ONCE).map(lambda number: read_version(store, number), following)
    return _replayed(store, begun() if begun else None, versions, last)


def _from_checkpoint(store: Store, version: int) -> DeltaState:
    where = f"{store.uri}/{checkpoint_path(version)}"
    try:
        table = pq.read_table(pa.BufferReader(store.get(checkpoint_path(version))))
        columns: dict[str, Any] = {
            name: table[name].combine_chunks().drop_null().cast(data_type)
            for name, data_type in _SCHEMA.items()
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
            ((action_name, body),) = action.items()
            if action_name == "add":
                changes[body["path"]] = {**body, "dataChange": False}
            elif action_name == "remove":
                changes[body["path"]] = None
                removes.append({**body, "dataChange": False})
            elif action_name == "protocol":
                protocol = body
            elif action_name == "metaData":
                metadata = body
            elif action_name == "txn":
                txns[body["appId"]] = body
    if not protocol or not metadata:
        raise CorruptLogError(f"{store.uri}/{DELTA_LOG}", "no version has a protocol and metadata")
    new = pa.array([body for body in changes.values() if body], _SCHEMA["add"])
    adds = pa.concat_arrays([_rows_left(base, changes), new])
    removes_so_far = [base.removes] if base else []
    removes_so_far.append(pa.array(removes, _SCHEMA["remove"]))
    removed = _not_live(pa.concat_arrays(removes_so_far), adds)
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


# --- the mirror ------------------------------------------------------------------------------

_MOST_BEHIND = 100
"""A mirror that lacks more versions starts again with a checkpoint of the current version."""
_FILES_AN_INTERVAL = 10_000
"""A checkpoint has all files; with n times as many as these it is written n times less often."""
_DAY_MS = 86_400_000


def _nothing() -> None:
    return


def is_mirrored(metadata: Metadata) -> bool:
    """Whether a table is mirrored: its own property says so, and nothing else."""
    return Config(known_keys(metadata.configuration))[keys.DELTA_MIRROR]


@dataclass(slots=True)
class Mirror:
    """The `_delta_log` of one table. Remembers how far it was written, to check only once."""

    store: Store
    reader: LogReader
    now_ms: Callable[[], int]
    _reached: tuple[str, int] | None = None
    _metadata: Document | None = field(default=None, repr=False)

    # --- before and after a commit ---------------------------------------------------------------

    def prepare(self, snapshot: Snapshot, actions: Sequence[Action]) -> Callable[[], None]:
        """Before the version after `snapshot`: refuse what could not be mirrored, catch up.

        What is returned says whether the version is still free, to be called before it is put; a
        distant store is asked meanwhile.
        """
        metadata = next((a for a in actions if isinstance(a, Metadata)), snapshot.metadata)
        if not is_mirrored(metadata):
            return _nothing
        self._check(snapshot, actions, metadata)
        version = snapshot.version + 1
        if version == 0 and list_newest(self.store).versions:
            raise DeltaMirrorError(
                self.store.uri,
                "there is a Delta table in its folder. CONVERT TO INDEXTABLES makes an index "
                "table of it in another one",
            )
        # Without a mirror until now, the files there belong to older versions.
        if version == 0 or not is_mirrored(snapshot.metadata):
            return _nothing
        try:
            self.catch_up(snapshot)
        except CorruptLogError as error:
            raise DeltaMirrorError(
                self.store.uri,
                f"{error} Delete the folder {DELTA_LOG}, and the next commit writes a new one",
            ) from error
        if self.store.local_path(DELTA_LOG) is not None:
            return lambda: self._refuse_foreign(version)
        return beside(lambda: self._refuse_foreign(version))

    def _check(self, snapshot: Snapshot, actions: Sequence[Action], metadata: Metadata) -> None:
        if any(map(has_variant, from_json(metadata.schema_string))):
            raise DeltaMirrorError(
                self.store.uri, "it has a VARIANT column, which many of Delta's readers do not know"
            )
        features = set(snapshot.protocol.reader_features or ())
        features.update(
            name
            for action in actions
            if isinstance(action, Protocol)
            for name in action.reader_features or ()
        )
        if ROWS_ELSEWHERE in features:
            raise DeltaMirrorError(self.store.uri, "a search index holds no rows")
        if COLUMN_DEFAULTS in features:
            raise DeltaMirrorError(
                self.store.uri,
                "a column was added with a DEFAULT to rows that were there, and Delta's readers "
                "would take it for null in them. Write the rows to a new table",
            )
        values = [v for a in actions if isinstance(a, Add) for v in a.partition_values.values()]
        if not is_mirrored(snapshot.metadata):  # it is turned on, for what is there already
            maps: Any = snapshot.entries["partitionValues"].combine_chunks()
            values += maps.items.unique().to_pylist()
        if "" in values:
            raise DeltaMirrorError(
                self.store.uri,
                "a partition value is an empty text, which is null in Delta. Write null, or turn "
                f"the property {keys.DELTA_MIRROR.name} off",
            )

    def write(self, committed: VersionActions, snapshot: Snapshot) -> None:
        """After a commit: the version, and what is missing before it."""
        if not is_mirrored(snapshot.metadata):
            self._reached = None
            return
        if committed.version == 0 or self._reached == (snapshot.metadata.id, committed.version - 1):
            self._put_version(committed, snapshot)
        else:
            self.catch_up(snapshot)
        config = Config(known_keys(snapshot.metadata.configuration))
        interval = config[keys.CHECKPOINT_INTERVAL]
        interval *= max(1, snapshot.num_files // _FILES_AN_INTERVAL)
        if committed.version and committed.version % interval == 0:
            self._checkpoint(committed.version, config)

    # --- catching up -----------------------------------------------------------------------------

    def catch_up(self, snapshot: Snapshot) -> bool:
        """Mirror everything up to a snapshot; whether something was missing."""
        if self._reached == (snapshot.metadata.id, snapshot.version):
            return False
        self._reached = self._metadata = None
        listing = list_newest(self.store)
        if listing.latest >= snapshot.version:
            self._recognise(snapshot.version, snapshot)
            if listing.is_whole:
                return False
        missing = range(listing.latest + 1, snapshot.version + 1)
        if not listing.is_whole or not missing or not self._continue(missing):
            self._begin(self.reader.at(snapshot.version) if snapshot.partial else snapshot)
        return True

    def _continue(self, missing: range) -> bool:
        """Write the missing versions one by one; False if they are too many, or not there."""
        if not 0 < missing.start <= missing.stop <= missing.start + _MOST_BEHIND:
            return False
        try:
            before = self.reader.at(missing.start - 1)
            versions = self.reader.read_versions(missing.start - 1, missing[-1])
        except (VersionGapError, ObjectNotFoundError, LookupError):
            return False
        self._recognise(missing.start - 1, before)
        for committed in versions[1:]:
            before = before.advance([committed])
            self._put_version(committed, before)
        return True

    def _recognise(self, version: int, snapshot: Snapshot) -> None:
        """Make sure that a version of the mirror is one of this log."""
        self._compare(self.reader.read_version(version))
        self._reached = (snapshot.metadata.id, version)

    def _compare(self, committed: VersionActions) -> None:
        try:
            marker = self._marker(committed.version)
        except ObjectNotFoundError:
            raise DeltaMirrorError(
                self.store.uri,
                f"it has newer versions but not version {committed.version}, so another log wrote "
                f"it. Delete the folder {DELTA_LOG}, and the next commit writes a new one",
            ) from None
        info = committed.commit_info
        if marker is None or marker.get("txnId") != (info.txn_id if info else None):
            raise ForeignDeltaCommitError(
                self.store.uri, committed.version, self._writer(committed.version)
            )

    def _refuse_foreign(self, version: int) -> None:
        try:
            self.store.head(version_path(version))
        except ObjectNotFoundError:
            return
        # Another IndexTables writer was faster: the commit to our own log will find that out.
        if self._marker(version) is None:
            raise ForeignDeltaCommitError(self.store.uri, version, self._writer(version))

    def _marker(self, version: int) -> Document | None:
        for action in read_version(self.store, version):
            marker = (action.get("commitInfo") or {}).get(WRITER_FEATURE)
            if isinstance(marker, dict):
                return marker
        return None

    def _writer(self, version: int) -> str:
        for action in read_version(self.store, version):
            if info := action.get("commitInfo"):
                return str(info.get("engineInfo") or info.get("clientVersion") or "another writer")
        return "another writer"

    # --- writing ---------------------------------------------------------------------------------

    def _put_version(self, committed: VersionActions, snapshot: Snapshot) -> None:
        changes = any(isinstance(a, Metadata | Protocol) for a in committed.actions)
        if committed.version and changes and self._metadata is None:
            self._metadata = read_state(self.store, version=committed.version - 1).metadata
        if committed.version and not changes:
            files = file_documents(committed, columns_of(snapshot.metadata))
            documents = [commit_document(committed), *files]
        else:
            documents = version_documents(committed, snapshot, before=self._metadata)
        self._put(committed, documents)
        for document in documents:
            self._metadata = document.get("metaData", self._metadata)
        self._reached = (snapshot.metadata.id, committed.version)

    def _put(self, committed: VersionActions, documents: Sequence[Document]) -> None:
        data = b"".join(orjson.dumps(document) + b"\n" for document in documents)
        try:
            self.store.put_if_absent(version_path(committed.version), data)
        except ObjectExistsError:
            self._compare(
                committed
            )  # another IndexTables writer caught up, or a request was repeated

    def _begin(self, snapshot: Snapshot) -> None:
        """A first version, with all that is there: a checkpoint stands for those before it."""
        metadata = metadata_document(snapshot, None)
        protocol = protocol_document(snapshot, metadata)
        columns = columns_of(snapshot.metadata)
        adds = [add_body(add, columns) for add in adds_from_files(snapshot.entries)]
        txns = {name: document["txn"] for name, txn in snapshot.txns.items()
                if (document := file_document(txn, columns, default_ms=0))}  # fmt: skip
        state = state_of(snapshot.version, protocol["protocol"], metadata, adds, txns)
        committed = self.reader.read_version(snapshot.version)
        self._put_checkpoint(state, expired_ms=0)
        self._put(committed, [commit_document(committed), protocol, {"metaData": metadata}])
        self._reached, self._metadata = (snapshot.metadata.id, snapshot.version), metadata

    # --- checkpoints -----------------------------------------------------------------------------

    def _checkpoint(self, version: int, config: Config) -> None:
        expired_ms = self.now_ms() - config[keys.DELTA_TOMBSTONES]
        self._put_checkpoint(read_state(self.store, version=version), expired_ms=expired_ms)
        if config[keys.CLEANUP_ENABLED]:
            kept_ms = max(config[keys.LOG_RETENTION], config[keys.DELTA_TOMBSTONES] + _DAY_MS)
            expired = _expired(list_delta(self.store), older_than_ms=self.now_ms() - kept_ms)
            self.store.delete(expired)

    def _put_checkpoint(self, state: DeltaState, *, expired_ms: int) -> None:
        data = state.encoded(expired_ms=expired_ms)
        self.store.put(checkpoint_path(state.version), data)
        size = 2 + len(state.adds) + len(state.removes) + len(state.txns)
        hint = {"version": state.version, "size": size, "sizeInBytes": len(data),
                "numOfAddFiles": len(state.adds)}  # fmt: skip
        self.store.put(LAST_CHECKPOINT, orjson.dumps(hint))

    # --- what other jobs ask ---------------------------------------------------------------------

    def differences(self, snapshot: Snapshot) -> list[str]:
        """The differences between the mirror and the log, at the mirror's version."""
        latest = list_newest(self.store).latest
        if latest != snapshot.version:
            if latest > snapshot.version:
                self._refuse_foreign(snapshot.version + 1)
            return [f"{DELTA_LOG} ends at version {latest}, the log at {snapshot.version}"]
        self._compare(self.reader.read_version(latest))
        state = read_state(self.store)
        metadata = metadata_document(snapshot, state.metadata)
        protocol = protocol_document(snapshot, metadata)["protocol"]
        problems = [] if metadata == state.metadata else ["its schema or metadata are others"]
        if not set(protocol["writerFeatures"]) <= set(state.protocol.get("writerFeatures") or ()):
            problems.append("its protocol lacks features that the table needs")
        columns = columns_of(snapshot.metadata)
        expected = {
            (b := add_body(add, columns))["path"]: b for add in adds_from_files(snapshot.entries)
        }
        mirrored = {body["path"]: body for body in state.adds.to_pylist(maps_as_pydicts="strict")}
        for path in sorted(expected.keys() | mirrored.keys()):
            if path not in mirrored or path not in expected:
                problems.append(f"{path} is only in {'the log' if path in expected else DELTA_LOG}")
            elif _comparable(expected[path], columns) != _comparable(mirrored[path], columns):
                problems.append(f"{path} has other rows, values or statistics in {DELTA_LOG}")
        return problems


def _comparable(body: Document, columns: Columns) -> Document:
    """An add without what may differ: nulls, and statistics of columns that were dropped since."""
    kept = {k: v for k, v in body.items() if v is not None and k != "dataChange"}
    values = body.get("partitionValues") or {}
    kept["partitionValues"] = {k: v for k, v in values.items() if v is not None}
    if vector := body.get("deletionVector"):
        kept["deletionVector"] = {k: v for k, v in vector.items() if v is not None}
    if (stats := kept.get("stats")) is not None:
        kept["stats"] = {
            name: {k: v for k, v in values.items() if k in columns.kinds}
            if isinstance(values, dict)
            else values
            for name, values in orjson.loads(stats).items()
        }
    return kept


def _expired(listing: DeltaListing, *, older_than_ms: int) -> list[str]:
    """Files before the newest checkpoint that is old enough itself."""
    old = [v for v, meta in listing.checkpoints.items() if meta.modified_ms <= older_than_ms]
    base = max(old, default=-1)
    return [
        meta.path
        for group in (listing.versions, listing.checkpoints)
        for version, meta in group.items()
        if version < base
    ]
