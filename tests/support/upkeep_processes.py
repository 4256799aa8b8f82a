"""What processes do that change, tidy and read one table at the same time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indextables import Table
from indextables.errors import ConflictError, RetriesExhaustedError, VersionGapError

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int64()), ("text", pa.string())])
PATIENT = {
    "spark.indextables.transaction.retry.maxAttempts": 1000,
    "spark.indextables.transaction.retry.baseDelayMs": 1,
    "spark.indextables.transaction.retry.maxDelayMs": 20,
    "spark.indextables.checkpoint.interval": 3,
}


def update_many(uri: str, config: dict[str, Any], times: int) -> int:
    """Raises the day of all rows by one, so often as it says; a conflict is tried again."""
    table = Table.open(uri, config=config | PATIENT)
    done = 0
    while done < times:
        try:
            table.update("day = day + 1")
        except (ConflictError, RetriesExhaustedError, VersionGapError):
            continue  # somebody else was faster, or truncated what this one had read
        done += 1
    return done


def tidy_many(uri: str, config: dict[str, Any], times: int) -> int:
    """Checkpoints, purges and truncations, one after the other."""
    for turn in range(times):
        table = Table.open(uri, config=config | PATIENT)
        table.checkpoint()
        table.purge(log_retention_hours=24)
        if turn % 2:
            table.truncate_time_travel()
    return times


def read_many(uri: str, config: dict[str, Any], times: int) -> int:
    """Reads batch by batch; every read sees one version: all rows have the same day."""
    rows = 0
    for _ in range(times):
        table = Table.open(uri, config=config | PATIENT)
        days = set()
        rows = 0
        for batch in table.scan_batches(columns=["day"]):
            days |= set(batch["day"].to_pylist())
            rows += batch.num_rows
        assert len(days) == 1, days
        assert table.count(where="text indexquery 'common'") == rows
    return rows
