"""What processes that write one table at the same time do; a spawned process imports it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indextables import Table
from indextables.errors import ConflictError, RetriesExhaustedError

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int64()), ("text", pa.string())])
PATIENT = {
    "spark.indextables.transaction.retry.maxAttempts": 1000,
    "spark.indextables.transaction.retry.baseDelayMs": 1,
    "spark.indextables.transaction.retry.maxDelayMs": 20,
}


def rows(ids: list[int], day: int) -> pa.Table:
    """Rows of one day."""
    return pa.table({"id": ids, "day": [day] * len(ids), "text": [f"word{i}" for i in ids]}, SCHEMA)


def append_many(uri: str, config: dict[str, Any], start: int, times: int) -> list[Any]:
    """Appends; each tells its version and the rows it added."""
    table = Table.open(uri, config=config | PATIENT)
    done = []
    for turn in range(times):
        ids = [start + 2 * turn, start + 2 * turn + 1]
        version = table.append(rows(ids, turn % 3)).version
        done.append(("append", version, ids, turn % 3))
    return done


def replace_many(uri: str, config: dict[str, Any], start: int, times: int) -> list[Any]:
    """Replaces all rows of a day; a conflict is tried again later, as a caller would."""
    table = Table.open(uri, config=config | PATIENT)
    done = []
    for turn in range(times):
        ids = [start + turn]
        for _ in range(200):
            try:
                written = table.overwrite(rows(ids, 1), where="day = 1")
            except (ConflictError, RetriesExhaustedError):
                continue
            done.append(("replace", written.version, ids, 1))
            break
    return done


def delete_many(uri: str, config: dict[str, Any], start: int, times: int) -> list[Any]:
    """Deletes the even rows of a day by a search over them."""
    table = Table.open(uri, config=config | PATIENT)
    done = []
    for _ in range(times):
        for _ in range(200):
            before = table.version
            try:
                written = table.delete(where="day = 2 AND text indexquery 'word*0'")
            except (ConflictError, RetriesExhaustedError):
                continue
            if written.version > before and written.files_removed:
                done.append(("delete", written.version, [], 2))
            break
    return done


def serial(events: list[Any]) -> dict[int, int]:
    """The rows, by id, after these events one after the other in the order of their versions."""
    found: dict[int, int] = {}
    for kind, _, ids, day in sorted(events, key=lambda event: event[1]):
        if kind == "overwrite":
            found = {}
        if kind == "replace":
            found = {i: d for i, d in found.items() if d != day}
        if kind == "delete":
            found = {i: d for i, d in found.items() if d != day or i % 10}
        found |= dict.fromkeys(ids, day)
    return found


def merge_many(uri: str, config: dict[str, Any], start: int, times: int) -> list[Any]:
    """Merges whatever there is; others may be faster, so a merge may do nothing."""
    table = Table.open(uri, config=config | PATIENT)
    done = []
    for _ in range(times):
        merged = table.merge_splits()
        if merged.failures:
            raise AssertionError(merged.failures)
        done += [("merge", -1, [], 0)] * merged.files_added
    return done


def overwrite_many(uri: str, config: dict[str, Any], start: int, times: int) -> list[Any]:
    """Replaces all rows."""
    table = Table.open(uri, config=config | PATIENT)
    done = []
    for turn in range(times):
        ids = [start + 2 * turn, start + 2 * turn + 1]
        done.append(("overwrite", table.overwrite(rows(ids, 0)).version, ids, 0))
    return done
