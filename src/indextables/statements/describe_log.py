"""The actions of a log as rows, newest version first.

The columns of every action stand side by side; those of other kinds are null. By default the
newest checkpoint stands for all versions up to its own; `include_all` gives every version file
that is retained instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from indextables.errors import LogError, ObjectNotFoundError
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
from indextables.log.files import adds_from_files
from indextables.log.listing import LogListing, list_log
from indextables.log.names import checkpoint_path, state_path, version_path
from indextables.log.transaction_log import TransactionLog
from indextables.statements.describe_state import newest_checkpoint
from indextables.statements.redaction import redacted

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
)
SCHEMA = pa.schema([(name, kind) for name, kind, _ in _COLUMNS])


def describe_log(
    log: TransactionLog, *, include_all: bool = False, limit: int | None = None
) -> pa.Table:
    """The actions of a table's log, newest version first, at most `limit` of them."""
    rows = list(islice(_rows(log, include_all=include_all), limit))
    arrays = [pa.array([read(row) for row in rows], kind) for _, kind, read in _COLUMNS]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _rows(log: TransactionLog, *, include_all: bool) -> Iterator[_Row]:
    log.snapshot()  # a table whose log cannot be read is refused in a sentence
    listing = list_log(log.store)
    checkpoint = None if include_all else newest_checkpoint(log.store, listing)
    oldest = -1 if checkpoint is None else checkpoint[0]
    for version in sorted((v for v in listing.versions if v > oldest), reverse=True):
        try:
            found = log.actions(version)
        except ObjectNotFoundError:
            continue  # clean-up removed it after the listing
        for action in found.actions:
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
    actions += [*snapshot.xrefs.values(), *snapshot.skips.values()]
    for action in actions:
        yield _Row(version, action, file, True, _source_count(log, version, action))
    for start in range(0, snapshot.num_files, 1024):
        for add in adds_from_files(snapshot.files.slice(start, 1024)):
            yield _Row(version, add, file, is_checkpoint=True)
