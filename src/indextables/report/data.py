"""What the report page shows, gathered from the log and the footers of splits, and its advice.

The log says almost everything. Sizes of fields are in the footers, one request a split, so of a
large table only `SAMPLED_SPLITS` evenly chosen ones are asked, and the page says so.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from indextables import __version__
from indextables.cells import size
from indextables.config import Config, known_keys
from indextables.errors import IndexTablesError
from indextables.jobs.history import unused_files
from indextables.jobs.prewarm import component_sizes
from indextables.log.actions import Add, Remove
from indextables.log.files import deleted_rows
from indextables.log.layout import list_log
from indextables.log.snapshot import Snapshot, cover_of
from indextables.plan.column_names import shown
from indextables.schema import type_name
from indextables.split.mapping import MAPPING_PROPERTY
from indextables.statements.session import redacted
from indextables.table import Table

SAMPLED_SPLITS = 200
MAX_VERSIONS = 200


@dataclass(frozen=True, slots=True)
class VersionSize:
    """The table after one version."""

    version: int
    at_ms: int
    operation: str
    splits: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class SplitSize:
    """One live split."""

    path: str
    bytes: int
    rows: int
    age_ms: int
    partition: tuple[str | None, ...]
    deleted: int = 0
    """Rows that are marked as deleted, beside `rows`."""


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """The live splits of one partition."""

    values: tuple[str | None, ...]
    splits: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class FieldSize:
    """One column: its type, how it is searched, and the bytes of its own components."""

    name: str
    type: str
    searched_as: str
    components: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """All of its components."""
        return sum(self.components.values())


@dataclass(frozen=True, slots=True)
class XRefSize:
    """One cross-reference and how many of its splits are live."""

    path: str
    bytes: int
    terms: int
    splits: int
    live_splits: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class Report:
    """Everything on the page."""

    uri: str
    name: str | None
    description: str | None
    made_ms: int
    made_with: str
    version: int
    rows: int
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    versions: tuple[VersionSize, ...]
    versions_left_out: bool
    splits: tuple[SplitSize, ...]
    partitions: tuple[PartitionSize, ...]
    fields: tuple[FieldSize, ...]
    shared: Mapping[str, int]
    sampled: int
    xrefs: tuple[XRefSize, ...]
    covered: frozenset[str]
    problem: str | None
    vector_files: int = 0
    checkpoint: tuple[int, int] | None = None
    """The version of the newest checkpoint, and its age in milliseconds."""
    unused: tuple[int, int] | None = None
    """Files that this version does not name, and their bytes: they wait for a purge."""
    advice: tuple[Advice, ...] = ()

    @property
    def bytes(self) -> int:
        """All live splits."""
        return sum(split.bytes for split in self.splits)


def gather(table: Table, *, config: Mapping[str, object], now_ms: int | None = None) -> Report:
    """Collect the facts of a table: only its log and footers are read, and its files listed."""
    snapshot = table.snapshot()
    now = int(time.time() * 1000) if now_ms is None else now_ms
    splits = tuple(_splits(snapshot, now))
    versions, left_out = _versions(table, snapshot)
    xrefs, covered = _xrefs(snapshot)
    problem: str | None = None
    fields: tuple[FieldSize, ...] = ()
    shared: dict[str, int] = {}
    try:
        fields, shared = _fields(table, snapshot, Config(config))
    except IndexTablesError as error:  # a damaged split must not hide the rest of the page
        problem = str(error)
    report = Report(
        uri=table.uri,
        name=snapshot.metadata.name,
        description=snapshot.metadata.description,
        made_ms=now,
        made_with=f"indextables {__version__}",
        version=snapshot.version,
        rows=sum(split.rows for split in splits),
        partition_columns=shown(snapshot).partition_columns,
        properties=_properties(snapshot),
        versions=versions,
        versions_left_out=left_out,
        splits=splits,
        partitions=_partitions(splits),
        fields=fields,
        shared=shared,
        sampled=min(SAMPLED_SPLITS, len(splits)),
        xrefs=xrefs,
        covered=covered,
        problem=problem,
        vector_files=len(snapshot.vector_files),
        checkpoint=_checkpoint(table, now),
        unused=_unused(table, snapshot),
    )
    return replace(report, advice=tuple(advise(report)))


def _checkpoint(table: Table, now: int) -> tuple[int, int] | None:
    try:
        listing = list_log(table.log.store)
    except IndexTablesError:
        return None
    files = {**listing.checkpoints, **listing.states}
    if not files:
        return None
    newest = max(files)
    return newest, max(0, now - files[newest].modified_ms)


def _unused(table: Table, snapshot: Snapshot) -> tuple[int, int] | None:
    try:
        files = unused_files(table.log, snapshot)
    except IndexTablesError:
        return None
    return len(files), sum(meta.size for meta in files)


def _properties(snapshot: Snapshot) -> dict[str, str]:
    shown = {
        name: value
        for name, value in snapshot.metadata.configuration.items()
        if not name.startswith(("indextables.", "docMapping"))
    }
    return redacted({**shown, **known_keys(shown)})


def _splits(snapshot: Snapshot, now: int) -> Iterator[SplitSize]:
    names = ["path", "size", "numRecords", "modificationTime", "addedAtTimestamp"]
    columns = snapshot.entries.select([*names, "partitionValues"])
    deleted = deleted_rows(snapshot.entries)
    for at_row, row in enumerate(columns.to_pylist(maps_as_pydicts="strict")):
        at = row["modificationTime"] or row["addedAtTimestamp"] or now
        values = row["partitionValues"] or {}
        yield SplitSize(
            path=row["path"],
            bytes=row["size"] or 0,
            rows=row["numRecords"] or 0,
            age_ms=max(0, now - at),
            partition=tuple(values.get(name) for name in snapshot.partition_columns),
            deleted=int(deleted[at_row]),
        )


def _partitions(splits: Sequence[SplitSize]) -> tuple[PartitionSize, ...]:
    groups: dict[tuple[str | None, ...], list[SplitSize]] = {}
    for split in splits:
        groups.setdefault(split.partition, []).append(split)
    partitions = [
        PartitionSize(values, len(s), sum(x.bytes for x in s), sum(x.rows for x in s))
        for values, s in groups.items()
    ]
    return tuple(sorted(partitions, key=lambda p: (-p.bytes, str(p.values))))


def _versions(table: Table, snapshot: Snapshot) -> tuple[tuple[VersionSize, ...], bool]:
    """The table's size at its retained versions, by replaying what each of them changed."""
    log = table.log
    entries = log.history(limit=MAX_VERSIONS + 1)[::-1]
    left_out = len(entries) > MAX_VERSIONS or bool(entries and entries[0].version > 0)
    live: dict[str, tuple[int, int]] | None = None
    versions: list[VersionSize] = []
    for entry in entries[-MAX_VERSIONS:]:
        if entry.version > snapshot.version:
            break
        if live is None or entry.operation is None:  # the first one, or one without its own file
            try:
                files = log.snapshot(version=entry.version).entries
            except IndexTablesError:
                continue
            sizes = files.select(["path", "size", "numRecords"]).to_pylist()
            live = {f["path"]: (f["size"] or 0, f["numRecords"] or 0) for f in sizes}
        else:
            for action in log.actions(entry.version).actions:
                if isinstance(action, Add):
                    live[action.path] = (action.size or 0, action.num_records or 0)
                elif isinstance(action, Remove):
                    live.pop(action.path, None)
        versions.append(
            VersionSize(
                version=entry.version,
                at_ms=entry.timestamp,
                operation=entry.operation or "unknown",
                splits=len(live),
                bytes=sum(size for size, _ in live.values()),
                rows=sum(rows for _, rows in live.values()),
            )
        )
    return tuple(versions), left_out


def _fields(
    table: Table, snapshot: Snapshot, config: Config
) -> tuple[tuple[FieldSize, ...], dict[str, int]]:
    """Bytes of each column by component, and of the index files that all columns share."""
    entries = snapshot.entries
    if entries.num_rows > SAMPLED_SPLITS:
        chosen = np.linspace(0, entries.num_rows - 1, SAMPLED_SPLITS).astype(np.int64)
        entries = entries.take(chosen)
    sampled = replace(snapshot, base_files=entries, changes={})
    rows = component_sizes(table.view.with_settings(config).at(sampled))
    shown_view = table.view.at(snapshot).shown
    by_field: dict[str, dict[str, int]] = {name: {} for name in shown_view.schema.names}
    shared: dict[str, int] = {}
    names = ["component_type", "field_name", "size_bytes"]
    for row in rows.select(names).to_pylist():
        component, owner = row["component_type"], row["field_name"]
        target: dict[str, int] = shared if owner is None else by_field.setdefault(owner, {})
        target[component] = target.get(component, 0) + row["size_bytes"]
    has_mapping = MAPPING_PROPERTY in snapshot.metadata.configuration
    mapping: Any = shown_view.mapping.by_name if has_mapping else {}
    types = {f.name: type_name(f.type) for f in shown_view.schema}
    fields = tuple(
        FieldSize(
            name,
            types.get(name, ""),
            mapping[name].kind if name in mapping and mapping[name].indexed else "",
            components,
        )
        for name, components in by_field.items()
    )
    return fields, shared


def _xrefs(snapshot: Snapshot) -> tuple[tuple[XRefSize, ...], frozenset[str]]:
    cover = cover_of(snapshot)
    xrefs = [
        XRefSize(
            path=xref.path,
            bytes=xref.size,
            terms=xref.total_terms,
            splits=xref.source_split_count,
            live_splits=int(live),
            created_ms=xref.created_time,
        )
        for xref, live in zip(cover.xrefs, cover.live, strict=True)
    ]
    covered = cover.splits(np.flatnonzero(cover.owner >= 0))
    return tuple(xrefs), frozenset(covered)


# --- advice ----------------------------------------------------------------------------------

SMALL_SPLIT = 32 << 20
"""A split below this size costs more to open than to read."""
_MANY_SPLITS = 32
_TINY_PARTITION = 1 << 20
_MANY_PARTITIONS = 100
_MUCH_UNUSED = 100 << 20


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding and its remedy."""

    level: Literal["warning", "hint"]
    title: str
    detail: str
    command: str | None


def advise(report: Report) -> Iterator[Advice]:
    """Findings, the most important first."""
    table = shlex.quote(report.uri)
    if report.problem is not None:
        yield Advice("warning", "A split cannot be read", report.problem,
                     f"indextables verify {table}")  # fmt: skip
    yield from _small_files(report, table)
    yield from _crossreferences(report, table)
    yield from _unused_files(report, table)
    tiny = sum(p.bytes < _TINY_PARTITION for p in report.partitions)
    if len(report.partitions) >= _MANY_PARTITIONS and tiny > len(report.partitions) / 2:
        yield Advice(
            "hint",
            "Many tiny partitions",
            f"{tiny:,} of {len(report.partitions):,} partitions hold less than 1 MB. A merge does "
            "not cross partitions; a table with fewer or coarser partition columns has larger "
            "splits.",
            None,
        )


def _unused_files(report: Report, table: str) -> Iterator[Advice]:
    """Files that no version needs any more, if they take much room."""
    if report.unused is None:
        return
    files, count = report.unused
    if count >= _MUCH_UNUSED and count > report.bytes / 2:
        yield Advice(
            "hint",
            "Files that wait for a purge",
            f"{size(count)} in {files:,} files are not part of this version. A purge deletes those "
            "that no retained version names.",
            f"indextables purge {table}",
        )


def _small_files(report: Report, table: str) -> Iterator[Advice]:
    """Small splits that have a neighbour to be merged with."""
    small: dict[tuple[str | None, ...], int] = {}
    for split in report.splits:
        if split.bytes < SMALL_SPLIT:
            small[split.partition] = small.get(split.partition, 0) + 1
    mergeable = {values: count for values, count in small.items() if count > 1}
    count = sum(mergeable.values())
    if not count:
        return
    many = "partition" if len(mergeable) == 1 else "partitions"
    where = f" in {len(mergeable):,} {many}" if report.partition_columns else ""
    yield Advice(
        "warning" if count > len(mergeable) * 4 else "hint",
        "Small files",
        f"{count:,} of {len(report.splits):,} splits are smaller than 32 MB and can be merged"
        f"{where} into about {len(mergeable):,}. Every search opens each of them.",
        f"indextables merge {table}",
    )


def _crossreferences(report: Report, table: str) -> Iterator[Advice]:
    missing = len(report.splits) - len(report.covered)
    if not missing:
        return
    if report.xrefs:
        yield Advice(
            "warning" if missing > len(report.splits) / 10 else "hint",
            "Splits without a cross-reference",
            f"{missing:,} of {len(report.splits):,} splits are in no XRef. A search has to ask "
            "each of them.",
            f"indextables xref {table}",
        )
    elif len(report.splits) >= _MANY_SPLITS:
        yield Advice(
            "hint",
            "No cross-references",
            f"The table has {len(report.splits):,} splits. An XRef tells a search which of them "
            "can match.",
            f"indextables xref {table}",
        )
