"""When each version was committed, by what, and which version was current at a time."""

from __future__ import annotations

import bisect
import contextlib
import itertools
from dataclasses import dataclass
from typing import Any

from indextables.errors import ObjectNotFoundError, VersionNotFoundError
from indextables.log.actions import Add, Remove
from indextables.log.layout import LogListing, list_log
from indextables.log.reader import LogReader, earliest_readable
from indextables.log.snapshot import VersionActions
from indextables.log.transaction import marked_paths
from indextables.storage import Store


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One version in the table's history."""

    version: int
    timestamp: int
    operation: str | None
    parameters: dict[str, Any]
    metrics: dict[str, Any]
    transaction_id: str | None
    files_added: int
    files_removed: int
    files_marked: int = 0
    """Files of which rows were marked as deleted: neither added nor removed."""


def history(store: Store, reader: LogReader, *, limit: int | None = None) -> list[HistoryEntry]:
    """The retained versions, newest first. Versions that exist as states only have no operation."""
    listing = list_log(store)
    newest_first = sorted({*listing.versions, *listing.states}, reverse=True)[:limit]
    entries = []
    for version in newest_first:
        if version in listing.versions:
            with contextlib.suppress(ObjectNotFoundError):  # truncated since it was listed
                entries.append(_entry(reader.read_version(version)))
        else:
            at = listing.states[version].modified_ms
            entries.append(HistoryEntry(version, at, None, {}, {}, None, 0, 0))
    return entries


def _entry(version: VersionActions) -> HistoryEntry:
    info, marked = version.commit_info, marked_paths(version)
    changed = [a for a in version.actions if getattr(a, "path", None) not in marked]
    return HistoryEntry(
        version=version.version,
        timestamp=version.timestamp,
        operation=info.operation if info else None,
        parameters=dict(info.operation_parameters or {}) if info else {},
        metrics=dict(info.operation_metrics or {}) if info else {},
        transaction_id=info.txn_id if info else None,
        files_added=sum(isinstance(a, Add) for a in changed),
        files_removed=sum(isinstance(a, Remove) for a in changed),
        files_marked=len(marked),
    )


def version_at(store: Store, reader: LogReader, timestamp_ms: int, *, now_ms: int) -> int:
    """The newest version that was committed at or before a time.

    Our timestamps rise with the versions, so a binary search reads a handful of files. A version
    of another writer counts with the age of its object. Retention leaves gaps between old
    checkpoints: what was current in one of them cannot be told any more.

    A writer whose clock was far ahead stamps its version, and so all later ones, with a time that
    has not come. For a time up to now, such versions count with the age of their objects. For a
    time that has not come either, the version with exactly that stamp is meant, or the newest.
    """
    listing = list_log(store)
    earliest = earliest_readable(listing)
    if earliest is None:
        raise VersionNotFoundError(
            store.uri, f"version at {timestamp_ms}", earliest=None, latest=None
        )
    there = sorted({*listing.versions, *listing.states, *listing.checkpoints})
    there = there[there.index(earliest) :]

    def stamp(version: int) -> int:
        return _timestamp(reader, listing, version)

    later = bisect.bisect_right(there, timestamp_ms, key=stamp)
    if timestamp_ms > now_ms:
        exact = later and stamp(there[later - 1]) == timestamp_ms
        return there[later - 1] if exact else there[-1]
    if later < len(there) and stamp(there[-1]) > now_ms:
        ahead = bisect.bisect_right(there, now_ms, key=stamp)
        stored = [_stored_ms(listing, version) for version in there[ahead:]]
        # A table that was copied has its objects in any order.
        rising = list(itertools.accumulate(reversed(stored), min))[::-1]
        passed = bisect.bisect_right(rising, timestamp_ms)
        later = ahead + passed if passed else later
    wanted = f"{timestamp_ms} (milliseconds since 1970)"
    problem = None if later else f"version as old as {wanted}"
    found = there[later - 1]
    in_gap = 0 < later < len(there) and there[later] > found + 1
    if in_gap and stamp(found) < timestamp_ms:
        problem = f"version of {wanted} any more"
    if problem:
        raise VersionNotFoundError(store.uri, problem, earliest=earliest, latest=listing.latest)
    return found


def _stored_ms(listing: LogListing, version: int) -> int:
    groups = (listing.versions, listing.states, listing.checkpoints)
    return min(group[version].modified_ms for group in groups if version in group)


def _timestamp(reader: LogReader, listing: LogListing, version: int) -> int:
    if version in listing.versions:
        return reader.read_version(version).timestamp
    return reader.at(version).timestamp
