"""Files that a job could not process.

They are recorded with a reason, left alone by jobs until a cooldown is over, and stay readable
all the time: nothing is removed because a merge failed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pyarrow as pa

from indextables.log.actions import Skip
from indextables.log.files import with_paths, without_paths
from indextables.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

_HOUR_MS = 3_600_000


def skip_actions(
    snapshot: Snapshot,
    reasons: Mapping[str, str],
    *,
    operation: str,
    now_ms: int,
    cooldown_hours: int,
) -> list[Skip]:
    """Actions that record these paths as skipped; each counts how often in a row it was."""
    live = snapshot.contains(reasons)
    rows = with_paths(snapshot.entries, live).select(["path", "partitionValues", "size"])
    known = {row["path"]: row for row in rows.to_pylist(maps_as_pydicts="strict")}
    return [
        Skip(
            path=path,
            skip_timestamp=now_ms,
            reason=reason,
            operation=operation,
            partition_values=known[path]["partitionValues"],
            size=known[path]["size"],
            retry_after=now_ms + cooldown_hours * _HOUR_MS,
            skip_count=snapshot.skips[path].skip_count + 1 if path in snapshot.skips else 1,
        )
        for path, reason in reasons.items()
        if path in live
    ]


def in_cooldown(snapshot: Snapshot, *, now_ms: int) -> dict[str, int]:
    """Paths that jobs leave alone now, each with the time of the next try."""
    return {
        path: skip.retry_after
        for path, skip in snapshot.skips.items()
        if skip.retry_after is not None and skip.retry_after > now_ms
    }


def without_cooldown(snapshot: Snapshot, files: pa.Table, *, now_ms: int) -> pa.Table:
    """The files a job may take now."""
    left = without_paths(files, in_cooldown(snapshot, now_ms=now_ms))
    if left.num_rows < files.num_rows:
        logger.info(
            "%s: %d files in cooldown are left alone", snapshot.uri, files.num_rows - left.num_rows
        )
    return left
