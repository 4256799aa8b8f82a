"""The newest checkpoint of a table: its form, its size, whether it needs compaction."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indextables import config as keys
from indextables.errors import LogError, StorageError
from indextables.log.avro_state import read_state_manifest
from indextables.log.last_checkpoint import read_last_checkpoint
from indextables.log.listing import LogListing, list_log
from indextables.log.transaction_log import TransactionLog
from indextables.statements.rows import columns
from indextables.storage import Store

SCHEMA = columns(
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
)


def describe_state(log: TransactionLog, *, table_path: str) -> pa.Table:
    """One row about the newest checkpoint; without one, about the newest version."""
    try:
        row = _describe(log)
    except (LogError, StorageError) as error:
        return error_row(table_path, error)
    return pa.Table.from_pylist([{"table_path": table_path, "status": "OK", **row}], SCHEMA)


def error_row(table_path: str, error: Exception) -> pa.Table:
    """The row of a table that cannot be described."""
    return pa.Table.from_pylist([{"table_path": table_path, "status": f"ERROR: {error}"}], SCHEMA)


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
    found = newest_checkpoint(log.store, list_log(log.store))
    plain = {
        "num_manifests": 0, "num_tombstones": 0, "tombstone_ratio": 0.0, "needs_compaction": False,
    }  # fmt: skip
    if found is None or found[1] != "avro-state":
        version, form = found or (newest.version, "none")
        at = newest if version == newest.version else log.snapshot(version=version)
        return plain | {
            "format": form,
            "version": version,
            "num_files": at.num_files,
            "total_bytes": at.total_bytes,
        }
    config = log.config.over_properties(newest.metadata.configuration)
    state = read_state_manifest(log.store, found[0], config=config)
    entries = sum(manifest.num_entries for manifest in state.manifests)
    dead = len(state.tombstones)
    return {
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
