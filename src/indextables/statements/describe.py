"""What a log holds, as rows: cross-references, the newest checkpoint, actions.

Of cross-references the rows say how much of the table they cover; of the checkpoint its form, its
size and whether it needs compaction. Actions come newest version first. The columns of every action
stand side by side; those of other kinds are null. By default the newest checkpoint stands for all
versions up to its own; `include_all` returns every version file that is retained instead.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from indextables import config as keys
from indextables.errors import LogError, ObjectNotFoundError, StorageError
from indextables.log.actions import (
    Action,
    Add,
    AddXRef,
    Metadata,
    Protocol,
    Remove,
    RemoveXRef,
    Skip,
    UnknownAction,
)
from indextables.log.checkpoint import read_last_checkpoint, read_state_manifest
from indextables.log.files import adds_from_files
from indextables.log.layout import LogListing, checkpoint_path, list_log, state_path, version_path
from indextables.log.snapshot import coverage
from indextables.log.transaction_log import TransactionLog
from indextables.statements.session import columns, redacted
from indextables.storage import Store

XREFS = columns(
    xref_path=pa.string(),
    source_count=pa.int64(),
    total_terms=pa.int64(),
    size_bytes=pa.int64(),
    created_time=pa.timestamp("us", "UTC"),
    status=pa.string(),
)


def describe_xrefs(log: TransactionLog, *, limit: int | None) -> pa.Table:
    """Active XRefs, removed ones that a retained version names, and a row that sums up.

    The newest come first. `limit` is the number of XRefs; the last row is always the summary.
    """
    snapshot = log.snapshot()
    active = [_row(xref, "active") for xref in snapshot.xrefs.values()]
    removed = [_row(x, "removed") for x in _named(log) if x.path not in snapshot.xrefs]
    oldest = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    for rows in (active, removed):
        rows.sort(key=lambda row: row["created_time"] or oldest, reverse=True)
    summary = {"xref_path": str(coverage(snapshot)), "status": "summary"}
    return pa.Table.from_pylist([*[*active, *removed][:limit], summary], XREFS)


def _row(xref: AddXRef | RemoveXRef, status: str) -> dict[str, Any]:
    if isinstance(xref, RemoveXRef):  # the version that added it is gone
        return {"xref_path": xref.path, "status": status, "created_time": None}
    return {
        "xref_path": xref.path,
        "source_count": len(xref.source_split_paths),
        "total_terms": xref.total_terms,
        "size_bytes": xref.size,
        "created_time": datetime.datetime.fromtimestamp(xref.created_time / 1000, datetime.UTC),
        "status": status,
    }


def _named(log: TransactionLog) -> list[AddXRef | RemoveXRef]:
    """Every XRef that a version file or the oldest checkpoint names, with what they say of it."""
    listing = list_log(log.store)
    xrefs: dict[str, AddXRef | RemoveXRef] = {}
    oldest = min((*listing.states, *listing.checkpoints), default=None)
    if oldest is not None:
        xrefs |= log.snapshot(version=oldest).xrefs
    for version in sorted(listing.versions):
        try:
            actions = log.actions(version).actions
        except ObjectNotFoundError:
            continue  # clean-up removed it after the listing
        for action in actions:
            if isinstance(action, AddXRef):
                xrefs[action.path] = action
            elif isinstance(action, RemoveXRef):
                xrefs.setdefault(action.path, action)
    return list(xrefs.values())


_STATE_SCHEMA = columns(
    table_path=pa.string(),
    format=pa.string(),
    version=pa.int64(),
    num_files=pa.int64(),
    num_manifests=pa.int64(),
    num_tombstones=pa.int64(),
    tombstone_ratio=pa.float64(),
    total_bytes=pa.int64(),
    needs_compaction=pa.bool_(),
    status=pa.string(),
    num_deleted_rows=pa.int64(),
    num_vector_files=pa.int64(),
)


def describe_state(log: TransactionLog, *, table_path: str) -> pa.Table:
    """One row about the newest checkpoint; without one, about the newest version."""
    try:
        row = _describe(log)
    except (LogError, StorageError) as error:
        return error_row(table_path, error)
    return pa.Table.from_pylist([{"table_path": table_path, "status": "OK", **row}], _STATE_SCHEMA)


def error_row(table_path: str, error: Exception) -> pa.Table:
    """The row of a table that cannot be described."""
    return pa.Table.from_pylist(
        [{"table_path": table_path, "status": f"ERROR: {error}"}], _STATE_SCHEMA
    )


def newest_checkpoint(store: Store, listing: LogListing) -> tuple[int, str] | None:
    """The version and the format of the newest checkpoint in a log."""
    version = max((*listing.checkpoints, *listing.states), default=None)
    if version is None:
        return None
    if version in listing.states and version in listing.checkpoints:
        # Both forms of one version: the pointer says which was written last.
        pointer = read_last_checkpoint(store)
        json = pointer is not None and pointer.version == version and pointer.state_dir is None
    else:
        json = version in listing.checkpoints
    if not json:
        return version, "avro-state"
    return version, "json-multipart" if version in listing.parts else "json"


def _describe(log: TransactionLog) -> dict[str, Any]:
    newest = log.snapshot()
    checkpoint = newest_checkpoint(log.store, list_log(log.store))
    plain = {
        "num_manifests": 0, "num_tombstones": 0, "tombstone_ratio": 0.0, "needs_compaction": False,
    }  # fmt: skip
    marked = {
        "num_deleted_rows": newest.deleted_rows, "num_vector_files": len(newest.vector_files),
    }  # fmt: skip
    if checkpoint is None or checkpoint[1] != "avro-state":
        version, form = checkpoint or (newest.version, "none")
        at = newest if version == newest.version else log.snapshot(version=version)
        return (
            plain
            | marked
            | {
                "format": form,
                "version": version,
                "num_files": at.num_files,
                "total_bytes": at.total_bytes,
            }
        )
    config = log.config.over_properties(newest.metadata.configuration)
    state = read_state_manifest(log.store, checkpoint[0], config=config)
    entries = sum(manifest.num_entries for manifest in state.manifests)
    dead = len(state.tombstones)
    return marked | {
        "format": "avro-state",
        "version": state.state_version,
        "num_files": state.num_files,
        "num_manifests": len(state.manifests),
        "num_tombstones": dead,
        "tombstone_ratio": dead / entries if entries else 0.0,
        "total_bytes": state.total_bytes,
        "needs_compaction": dead > config[keys.STATE_TOMBSTONE_THRESHOLD] * entries
        or len(state.manifests) > config[keys.STATE_MAX_MANIFESTS],
    }


_TEXT, _LONG, _FLAG = pa.string(), pa.int64(), pa.bool_()
_MAP = pa.map_(pa.string(), pa.string())
_LIST = pa.list_(pa.string())

_TYPES: dict[type[Action], str] = {
    Protocol: "protocol", Metadata: "metadata", Add: "add", Remove: "remove", Skip: "skip",
    AddXRef: "addXRef", RemoveXRef: "removeXRef",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Row:
    version: int
    action: Action
    file: str
    is_checkpoint: bool
    source_count: int | None = None

    @property
    def action_type(self) -> str:
        if isinstance(self.action, UnknownAction):
            return "unknown"
        return _TYPES.get(type(self.action), self.action.kind)

    @property
    def partition(self) -> str | None:
        values = getattr(self.action, "partition_values", None)
        if not values:
            return None
        return "/".join(f"{k}={'null' if v is None else v}" for k, v in values.items())


def _of(*kinds: type[Action], name: str) -> Callable[[_Row], Any]:
    return lambda row: getattr(row.action, name) if isinstance(row.action, kinds) else None


def _any(name: str) -> Callable[[_Row], Any]:
    return lambda row: getattr(row.action, name, None)


def _map(read: Callable[[_Row], Any]) -> Callable[[_Row], Any]:
    def items(row: _Row) -> Any:
        value = read(row)
        return (
            None
            if value is None
            else [(k, None if v is None else str(v)) for k, v in value.items()]
        )

    return items


def _configuration(row: _Row) -> Any:
    if not isinstance(row.action, Metadata):
        return None
    return list(redacted(row.action.configuration).items())


def _format(name: str) -> Callable[[_Row], Any]:
    def read(row: _Row) -> Any:
        if not isinstance(row.action, Metadata):
            return None
        value = row.action.format.get(name)
        return list(redacted(value).items()) if isinstance(value, dict) else value

    return read


_COLUMNS: tuple[tuple[str, pa.DataType, Callable[[_Row], Any]], ...] = (
    ("version", _LONG, lambda row: row.version),
    ("action_type", _TEXT, lambda row: row.action_type),
    ("path", _TEXT, _any("path")),
    ("source_count", _LONG, lambda row: row.source_count),
    ("size", _LONG, _any("size")),
    ("partition", _TEXT, lambda row: row.partition),
    ("log_file_path", _TEXT, lambda row: row.file),
    ("partition_values", _MAP, _map(_any("partition_values"))),
    ("data_change", _FLAG, _any("data_change")),
    ("tags", _MAP, _map(_any("tags"))),
    ("modification_time", _LONG, _any("modification_time")),
    ("stats", _TEXT, _any("stats")),
    ("min_values", _MAP, _map(_any("min_values"))),
    ("max_values", _MAP, _map(_any("max_values"))),
    ("num_records", _LONG, _any("num_records")),
    ("footer_start_offset", _LONG, _any("footer_start_offset")),
    ("footer_end_offset", _LONG, _any("footer_end_offset")),
    ("hotcache_start_offset", _LONG, _any("hotcache_start_offset")),
    ("hotcache_length", _LONG, _any("hotcache_length")),
    ("has_footer_offsets", _FLAG, _any("has_footer_offsets")),
    ("time_range_start", _TEXT, _any("time_range_start")),
    ("time_range_end", _TEXT, _any("time_range_end")),
    ("split_tags", _LIST, _any("split_tags")),
    ("delete_opstamp", _LONG, _any("delete_opstamp")),
    ("num_merge_ops", _LONG, _any("num_merge_ops")),
    ("doc_mapping_json", _TEXT, _any("doc_mapping_json")),
    ("doc_mapping_ref", _TEXT, _any("doc_mapping_ref")),
    ("uncompressed_size_bytes", _LONG, _any("uncompressed_size_bytes")),
    ("deletion_timestamp", _LONG, _any("deletion_timestamp")),
    ("extended_file_metadata", _FLAG, _any("extended_file_metadata")),
    ("skip_timestamp", _LONG, _any("skip_timestamp")),
    ("skip_reason", _TEXT, _of(Skip, name="reason")),
    ("skip_operation", _TEXT, _of(Skip, name="operation")),
    ("skip_retry_after", _LONG, _any("retry_after")),
    ("skip_count", _LONG, _any("skip_count")),
    ("protocol_min_reader_version", _LONG, _any("min_reader_version")),
    ("protocol_min_writer_version", _LONG, _any("min_writer_version")),
    ("protocol_reader_features", _LIST, _any("reader_features")),
    ("protocol_writer_features", _LIST, _any("writer_features")),
    ("metadata_id", _TEXT, _of(Metadata, name="id")),
    ("metadata_name", _TEXT, _of(Metadata, name="name")),
    ("metadata_description", _TEXT, _of(Metadata, name="description")),
    ("metadata_format_provider", _TEXT, _format("provider")),
    ("metadata_format_options", _MAP, _format("options")),
    ("metadata_schema_string", _TEXT, _of(Metadata, name="schema_string")),
    ("metadata_partition_columns", _LIST, _of(Metadata, name="partition_columns")),
    ("metadata_configuration", _MAP, _configuration),
    ("metadata_created_time", _LONG, _of(Metadata, name="created_time")),
    ("is_checkpoint", _FLAG, lambda row: row.is_checkpoint),
    ("deletion_vector", _MAP, _map(_any("deletion_vector"))),
)
_LOG_SCHEMA = pa.schema([(name, kind) for name, kind, _ in _COLUMNS])


def describe_log(
    log: TransactionLog, *, include_all: bool = False, limit: int | None = None
) -> pa.Table:
    """The actions of a table's log, newest version first, at most `limit` of them."""
    rows = list(islice(_rows(log, include_all=include_all), limit))
    arrays = [pa.array([read(row) for row in rows], data_type) for _, data_type, read in _COLUMNS]
    return pa.Table.from_arrays(arrays, schema=_LOG_SCHEMA)


def _rows(log: TransactionLog, *, include_all: bool) -> Iterator[_Row]:
    log.snapshot()  # raises a readable error if the log cannot be read
    listing = list_log(log.store)
    checkpoint = None if include_all else newest_checkpoint(log.store, listing)
    oldest = -1 if checkpoint is None else checkpoint[0]
    for version in sorted((v for v in listing.versions if v > oldest), reverse=True):
        try:
            version_actions = log.actions(version)
        except ObjectNotFoundError:
            continue  # clean-up removed it after the listing
        for action in version_actions.actions:
            count = _source_count(log, version, action)
            yield _Row(version, action, version_path(version), False, count)
    if checkpoint is not None:
        yield from _checkpoint_rows(log, listing, *checkpoint)


def _source_count(log: TransactionLog, version: int, action: Action) -> int | None:
    """How many splits an XRef covers; for one that is removed, if its entry is still there."""
    if isinstance(action, AddXRef):
        return len(action.source_split_paths)
    if not isinstance(action, RemoveXRef):
        return None
    try:
        removed = log.snapshot(version=version - 1).xrefs.get(action.path)
    except LogError:
        return None
    return None if removed is None else len(removed.source_split_paths)


def _checkpoint_rows(
    log: TransactionLog, listing: LogListing, version: int, form: str
) -> Iterator[_Row]:
    file = state_path(version) if form == "avro-state" else checkpoint_path(version)
    if form == "json-multipart":
        file = f"{file} ({len(listing.parts[version])} parts)"
    snapshot = log.snapshot(version=version)
    actions: list[Action] = [snapshot.protocol, snapshot.metadata]
    actions += [*snapshot.xrefs.values(), *snapshot.skips.values(), *snapshot.txns.values()]
    for action in actions:
        yield _Row(version, action, file, True, _source_count(log, version, action))
    for start in range(0, snapshot.num_files, 1024):
        for add in adds_from_files(snapshot.files.slice(start, 1024)):
            yield _Row(version, add, file, is_checkpoint=True)
