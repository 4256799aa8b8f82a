"""The records of an Avro state, and the bounds that its manifests are pruned by.

A state has one `StateManifest`, and a `FileEntry` for each live file. Names, namespace, field ids
and nullability are those of the Scala product; readers decode by name. At the end stand fields of
ours that other readers skip. With them a state stands alone: it holds the protocol, the
cross-references and every field of an add action.

Bounds of partition values say which manifests can hold a file that a predicate asks for. Partition
values are text in the log. Bounds are taken in the column's declared type, so that '9' comes before
'10' for numbers and after it for text. Where a value is null or does not read as its type, the
column has no bounds, and that means: it may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CorruptLogError, SchemaError, UnsafePathError
from indextables.log.actions import (
    Action,
    AddXRef,
    Metadata,
    Protocol,
    Skip,
    Txn,
    action_from_body,
    action_from_json,
)
from indextables.log.layout import MANIFEST_DIRECTORY, parse_state, state_directory_name, state_path
from indextables.schema import from_json

FORMAT_VERSION = 1
_NAMESPACE = "io.indextables.state"
_SHARED = MANIFEST_DIRECTORY.rpartition("/")[2]
_MANIFEST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")

SomeAction = TypeVar("SomeAction", bound=Action)


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """The least and the greatest value of a partition column, by the column's declared type."""

    min: str | None
    max: str | None


@dataclass(frozen=True, slots=True)
class ManifestInfo:
    """A manifest as a state names it. `path` is relative to the log directory.

    A column without bounds may hold anything. `live_entry_count` is -1 where it is unknown.
    """

    path: str
    num_entries: int
    min_added_at_version: int
    max_added_at_version: int
    partition_bounds: Mapping[str, PartitionBounds] | None = None
    tombstone_count: int = 0
    live_entry_count: int = -1
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class StateManifest:
    """The content of `_manifest.avro`. Without `protocol`, another writer wrote it."""

    state_version: int
    created_at: int
    num_files: int
    total_bytes: int
    manifests: tuple[ManifestInfo, ...]
    tombstones: tuple[str, ...] = ()
    schema_registry: Mapping[str, str] = field(default_factory=dict)
    protocol_version: int = 4
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    xrefs: tuple[AddXRef, ...] = ()
    skips: tuple[Skip, ...] = ()
    txns: tuple[Txn, ...] = ()
    timestamp: int | None = None
    format_version: int = FORMAT_VERSION


# --- Avro schemas ----------------------------------------------------------------------------


def _optional(avro_type: Any) -> dict[str, Any]:
    return {"type": ["null", avro_type], "default": None}


_MAP = {"type": "map", "values": "string"}
_STRINGS = {"type": "array", "items": "string"}

_FILE_FIELDS: list[tuple[str, int, dict[str, Any]]] = [
    ("path", 100, {"type": "string"}),
    ("partitionValues", 101, {"type": _MAP}),
    ("size", 102, {"type": "long"}),
    ("modificationTime", 103, {"type": "long"}),
    ("dataChange", 104, {"type": "boolean"}),
    ("stats", 110, _optional("string")),
    ("minValues", 111, _optional(_MAP)),
    ("maxValues", 112, _optional(_MAP)),
    ("numRecords", 113, _optional("long")),
    ("footerStartOffset", 120, _optional("long")),
    ("footerEndOffset", 121, _optional("long")),
    ("hasFooterOffsets", 124, {"type": "boolean", "default": False}),
    ("splitTags", 132, _optional(_STRINGS)),
    ("numMergeOps", 134, _optional("int")),
    ("docMappingRef", 135, _optional("string")),
    ("uncompressedSizeBytes", 136, _optional("long")),
    ("addedAtVersion", 140, {"type": "long"}),
    ("addedAtTimestamp", 141, {"type": "long"}),
    ("companionSourceFiles", 150, _optional(_STRINGS)),
    ("companionDeltaVersion", 151, _optional("long")),
    ("companionFastFieldMode", 152, _optional("string")),
    # Later releases of the Scala product have these three, too.
    ("deleteOpstamp", 123, _optional("long")),
    ("timeRangeStart", 137, _optional("string")),
    ("timeRangeEnd", 138, _optional("string")),
    # Fields of this package.
    ("hotcacheStartOffset", 125, _optional("long")),
    ("hotcacheLength", 126, _optional("long")),
    ("tags", 139, _optional(_MAP)),
    ("extra", 160, _optional("string")),
    ("deletionVector", 161, _optional("string")),
]

FILE_ENTRY: dict[str, Any] = {
    "type": "record",
    "name": "FileEntry",
    "namespace": _NAMESPACE,
    "fields": [{"name": n, **kind, "field-id": number} for n, number, kind in _FILE_FIELDS],
}

_BOUNDS = {
    "type": "record",
    "name": "PartitionBoundsItem",
    "fields": [{"name": n, **_optional("string")} for n in ("min", "max")],
}
_MANIFEST_INFO = {
    "type": "record",
    "name": "ManifestInfoItem",
    "fields": [
        {"name": "path", "type": "string"},
        {"name": "numEntries", "type": "long"},
        {"name": "minAddedAtVersion", "type": "long"},
        {"name": "maxAddedAtVersion", "type": "long"},
        {"name": "partitionBounds", **_optional({"type": "map", "values": _BOUNDS})},
        {"name": "tombstoneCount", "type": "long", "default": 0},
        {"name": "liveEntryCount", "type": "long", "default": -1},
        {"name": "checksum", **_optional("string")},
    ],
}
STATE_MANIFEST: dict[str, Any] = {
    "type": "record",
    "name": "StateManifest",
    "namespace": _NAMESPACE,
    "fields": [
        {"name": "formatVersion", "type": "int"},
        {"name": "stateVersion", "type": "long"},
        {"name": "createdAt", "type": "long"},
        {"name": "numFiles", "type": "long"},
        {"name": "totalBytes", "type": "long"},
        {"name": "manifests", "type": {"type": "array", "items": _MANIFEST_INFO}},
        {"name": "tombstones", "type": _STRINGS, "default": []},
        {"name": "schemaRegistry", "type": _MAP, "default": {}},
        {"name": "protocolVersion", "type": "int", "default": 4},
        {"name": "metadata", **_optional("string")},
        {"name": "protocol", **_optional("string")},
        {"name": "xrefs", "type": _STRINGS, "default": []},
        {"name": "skips", "type": _STRINGS, "default": []},
        {"name": "txns", "type": _STRINGS, "default": []},
        {"name": "timestamp", **_optional("long")},
    ],
}


# --- to and from records ---------------------------------------------------------------------


def state_to_record(state: StateManifest) -> dict[str, Any]:
    """The Avro record of a state."""
    return {
        "formatVersion": state.format_version,
        "stateVersion": state.state_version,
        "createdAt": state.created_at,
        "numFiles": state.num_files,
        "totalBytes": state.total_bytes,
        "manifests": [_info_to_record(info) for info in state.manifests],
        "tombstones": list(state.tombstones),
        "schemaRegistry": dict(state.schema_registry),
        "protocolVersion": state.protocol_version,
        "metadata": _action_text(state.metadata),
        "protocol": _action_text(state.protocol),
        "xrefs": [_action_text(xref) for xref in state.xrefs],
        "skips": [_action_text(skip) for skip in state.skips],
        "txns": [_action_text(txn) for txn in state.txns],
        "timestamp": state.timestamp,
    }


def _info_to_record(info: ManifestInfo) -> dict[str, Any]:
    bounds = info.partition_bounds
    return {
        "path": info.path,
        "numEntries": info.num_entries,
        "minAddedAtVersion": info.min_added_at_version,
        "maxAddedAtVersion": info.max_added_at_version,
        "partitionBounds": bounds
        and {column: {"min": b.min, "max": b.max} for column, b in bounds.items()},
        "tombstoneCount": info.tombstone_count,
        "liveEntryCount": info.live_entry_count,
        "checksum": info.checksum,
    }


def _action_text(action: Action | None) -> str | None:
    return None if action is None else orjson.dumps(action.to_json()).decode()


def state_from_record(record: Mapping[str, Any], *, version: int) -> StateManifest:
    """A state from its Avro record; `version` is that of the folder it lies in."""
    where = state_path(version)
    try:
        return StateManifest(
            state_version=_exact(record["stateVersion"], int),
            created_at=_exact(record["createdAt"], int),
            num_files=_exact(record["numFiles"], int),
            total_bytes=_exact(record["totalBytes"], int),
            manifests=tuple(_info(item, version) for item in record["manifests"]),
            tombstones=_texts(record.get("tombstones")),
            schema_registry={
                _exact(key, str): _exact(value, str)
                for key, value in (record.get("schemaRegistry") or {}).items()
            },
            protocol_version=_exact(record.get("protocolVersion", 4), int),
            metadata=_metadata(record.get("metadata"), where),
            protocol=_action(record.get("protocol"), Protocol, where),
            xrefs=_actions(record.get("xrefs"), AddXRef, where),
            skips=_actions(record.get("skips"), Skip, where),
            txns=_actions(record.get("txns"), Txn, where),
            timestamp=_exact(record.get("timestamp"), int, type(None)),
            format_version=_exact(record["formatVersion"], int),
        )
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
        raise CorruptLogError(where, f"it does not have its fields ({error!r})") from error


def _exact(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise TypeError(f"expected {kinds[0].__name__}, found {type(value).__name__}")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(_exact(value, str) for value in values or ())


def _info(item: Mapping[str, Any], version: int) -> ManifestInfo:
    bounds = item.get("partitionBounds")
    return ManifestInfo(
        path=resolve_manifest_path(_exact(item["path"], str), version=version),
        num_entries=_exact(item["numEntries"], int),
        min_added_at_version=_exact(item["minAddedAtVersion"], int),
        max_added_at_version=_exact(item["maxAddedAtVersion"], int),
        partition_bounds=bounds
        and {
            column: PartitionBounds(
                _exact(b.get("min"), str, type(None)), _exact(b.get("max"), str, type(None))
            )
            for column, b in bounds.items()
        },
        tombstone_count=_exact(item.get("tombstoneCount", 0), int),
        live_entry_count=_exact(item.get("liveEntryCount", -1), int),
        checksum=_exact(item.get("checksum"), str, type(None)),
    )


def resolve_manifest_path(path: str, *, version: int) -> str:
    """Where a manifest lies, relative to the log directory.

    >>> resolve_manifest_path("manifests/manifest-a1.avro", version=7)
    'manifests/manifest-a1.avro'
    >>> resolve_manifest_path("manifest-a1.avro", version=7)
    'state-v00000000000000000007/manifest-a1.avro'
    """
    folder, _, name = path.rpartition("/")
    if not folder:
        folder = state_directory_name(version)
    if not _MANIFEST_NAME.fullmatch(name) or (folder != _SHARED and parse_state(folder) is None):
        raise UnsafePathError(path, where=state_path(version))
    return f"{folder}/{name}"


def _metadata(text: str | None, where: str) -> Metadata | None:
    """The metadata action, which some writers put down without its key."""
    if text is None:
        return None
    document = orjson.loads(text)
    body = document.get(Metadata.kind, document)
    action = action_from_body(Metadata.kind, body, where=where)
    assert isinstance(action, Metadata)
    return action


def _action(text: str | None, action_type: type[SomeAction], where: str) -> SomeAction | None:
    if text is None:
        return None
    action = action_from_json(orjson.loads(text), where=where)
    if not isinstance(action, action_type):
        raise TypeError(f"expected {action_type.kind}")
    return action


def _actions(
    texts: Sequence[str] | None, action_type: type[SomeAction], where: str
) -> tuple[SomeAction, ...]:
    actions = (_action(text, action_type, where) for text in texts or ())
    return tuple(action for action in actions if action is not None)


Column: TypeAlias = "pa.ChunkedArray[Any]"

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_types(metadata: Metadata) -> dict[str, pa.DataType]:
    """The declared types of the partition columns; those not declared are left out."""
    try:
        schema = from_json(metadata.schema_string)
    except SchemaError:
        return {}
    declared = {column.name: column.type for column in schema}
    return {c: declared[c] for c in metadata.partition_columns if c in declared}


def bounds_of(files: pa.Table, metadata: Metadata) -> dict[str, PartitionBounds] | None:
    """The bounds of these files' partition values; None where no column has any."""
    bounds: dict[str, PartitionBounds] = {}
    for column, data_type in partition_types(metadata).items():
        texts = _partition_texts(files, column)
        values = _typed(texts, data_type)
        if values is None or values.null_count or not len(values):
            continue
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            continue
        ends = pc.min_max(values)
        first, last = (pc.index(values, ends[name]).as_py() for name in ("min", "max"))
        bounds[column] = PartitionBounds(texts[first].as_py(), texts[last].as_py())
    return bounds or None


def sorted_by_partition(files: pa.Table, metadata: Metadata) -> pa.Table:
    """The files sorted by partition values, then path: neighbours share a manifest."""
    types = partition_types(metadata)
    order: dict[str, Column] = {}
    for number, column in enumerate(metadata.partition_columns):
        texts = _partition_texts(files, column)
        values = _typed(texts, types.get(column, pa.string()))
        order[f"p{number}"] = texts if values is None else values
    by = pa.table({**order, "path": files["path"]})
    ascending: Literal["ascending"] = "ascending"
    keys = [(name, ascending) for name in by.column_names]
    return files.take(pc.sort_indices(by, sort_keys=keys))


def trusted_bounds(
    bounds: Mapping[str, PartitionBounds] | None, types: Mapping[str, pa.DataType]
) -> dict[str, PartitionBounds] | None:
    """What is certain of bounds that another writer computed.

    The Scala product compares values as numbers whenever they look like numbers, whatever the
    column's type; of text columns only bounds that do not look so are in order.
    """
    if bounds is None:
        return None
    return {
        column: bound
        for column, bound in bounds.items()
        if column in types
        and not pa.types.is_timestamp(types[column])
        and not (
            pa.types.is_string(types[column])
            and (_looks_numeric(bound.min) or _looks_numeric(bound.max))
        )
    }


def _partition_texts(files: pa.Table, column: str) -> Column:
    texts: Column = pc.map_lookup(files["partitionValues"], pa.scalar(column), "first")
    is_null = pc.equal(texts, pa.scalar(_HIVE_NULL))
    nulled: Column = pc.if_else(is_null, pa.scalar(None, pa.string()), texts)
    return nulled


def _typed(texts: Column, data_type: pa.DataType) -> Column | None:
    """The values in their type, or None where one of them does not read as it."""
    if pa.types.is_floating(data_type):
        data_type = pa.float64()  # two texts that differ must not become equal
    try:
        return texts.cast(data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _looks_numeric(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True
