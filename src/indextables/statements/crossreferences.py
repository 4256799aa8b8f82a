"""The cross-references in a log, and how much of the table they cover."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa

from indextables.errors import ObjectNotFoundError
from indextables.log.actions import AddXRef, RemoveXRef
from indextables.log.crossreferences import coverage
from indextables.log.listing import list_log
from indextables.log.transaction_log import TransactionLog
from indextables.statements.rows import columns

XREFS = columns(
    xref_path=pa.string(),
    source_count=pa.int64(),
    total_terms=pa.int64(),
    size_bytes=pa.int64(),
    created_time=pa.timestamp("us", "UTC"),
    status=pa.string(),
)


def describe_xrefs(log: TransactionLog, *, limit: int | None = None) -> pa.Table:
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
    """Every XRef that a version file or the oldest checkpoint knows, as well as it is known."""
    listing = list_log(log.store)
    found: dict[str, AddXRef | RemoveXRef] = {}
    oldest = min((*listing.states, *listing.checkpoints), default=None)
    if oldest is not None:
        found |= log.snapshot(version=oldest).xrefs
    for version in sorted(listing.versions):
        try:
            actions = log.actions(version).actions
        except ObjectNotFoundError:
            continue  # clean-up removed it after the listing
        for action in actions:
            if isinstance(action, AddXRef):
                found[action.path] = action
            elif isinstance(action, RemoveXRef):
                found.setdefault(action.path, action)
    return list(found.values())
