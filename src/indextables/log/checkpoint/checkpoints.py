"""Finding and writing checkpoints: the whole table at a version, so that older ones can be deleted.

They are of either format. Of an Avro state only what is new is written where that is enough,
everything where it is not. An incremental state names the manifests of an older state, adds
manifests for files that came since, and tombstones for files that went. It is written only if its
numbers add up to those of the snapshot; a path that came twice, a state of another writer whose
totals drifted, or anything else that does not fit leads to a compacted state, which is always
right. A compacted state holds all entries again, sorted by partition values, so that the bounds of
its manifests are narrow.

Mappings that are equal get one name. References of older writers were not always taken from the
canonical form, so that equal mappings had several. A compacted checkpoint computes them again.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc

from indextables import config as keys
from indextables.config import Config
from indextables.errors import LogError, ObjectNotFoundError
from indextables.log.actions import Add, Remove
from indextables.log.checkpoint.avro_container import Codec, write_container
from indextables.log.checkpoint.avro_state import (
    KeepManifest,
    ManifestCache,
    load_manifests,
    load_state,
    read_state_manifest,
)
from indextables.log.checkpoint.json_checkpoint import load_json_checkpoint, write_json_checkpoint
from indextables.log.checkpoint.last_checkpoint import (
    LastCheckpoint,
    advance_last_checkpoint,
    put_once,
    with_retries,
)
from indextables.log.checkpoint.state_schema import (
    FILE_ENTRY,
    STATE_MANIFEST,
    ManifestInfo,
    StateManifest,
    bounds_of,
    partition_types,
    sorted_by_partition,
    state_to_record,
    trusted_bounds,
)
from indextables.log.files import (
    REGISTRY_PREFIX,
    file_records,
    mapping_hash,
    registry_of,
    with_mappings,
    with_paths,
    without_paths,
)
from indextables.log.layout import (
    LOG_DIRECTORY,
    MANIFEST_DIRECTORY,
    LogListing,
    state_directory_name,
    state_path,
)
from indextables.log.snapshot import Snapshot, VersionActions, unexpired_skips
from indextables.runner import Runner
from indextables.storage import Store

logger = logging.getLogger(__name__)

ReadVersions = Callable[[int, int], list[VersionActions] | None]


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """A checkpoint by version and format."""

    version: int
    kind: Literal["avro", "json"]


def checkpoints_at(listing: LogListing, version: int) -> list[CheckpointRef]:
    """The checkpoints of a version: none, one, or one of each format."""
    refs = [CheckpointRef(version, "json")] if version in listing.checkpoints else []
    return refs + ([CheckpointRef(version, "avro")] if version in listing.states else [])


def load_checkpoint(
    store: Store,
    ref: CheckpointRef,
    *,
    config: Config,
    runner: Runner,
    manifest_cache: ManifestCache | None = None,
    keep_manifest: KeepManifest | None = None,
) -> Snapshot:
    """The snapshot that a checkpoint holds."""
    if ref.kind == "json":
        return load_json_checkpoint(store, ref.version, config=config, runner=runner)
    return load_state(
        store,
        ref.version,
        config=config,
        runner=runner,
        manifest_cache=manifest_cache,
        keep_manifest=keep_manifest,
    )


def write_checkpoint(
    store: Store,
    snapshot: Snapshot,
    *,
    config: Config,
    runner: Runner,
    read_versions: ReadVersions,
    states: Sequence[int],
    force_compaction: bool = False,
    manifest_cache: ManifestCache | None = None,
) -> LastCheckpoint:
    """Write a checkpoint of this snapshot in the configured format, then move the pointer.

    `states` are the versions of existing Avro states; `read_versions(first, last)` returns the
    versions between a state and the snapshot, or None where they are not all there. With both,
    only what is new is written. `force_compaction` writes everything.
    """
    if config[keys.STATE_FORMAT] == "json":
        pointer = write_json_checkpoint(store, snapshot, config=config)
    else:
        base = changed = None
        if not force_compaction:
            base = _newest_base(store, snapshot, states, config=config)
            changed = _versions_since(base, snapshot, read_versions)
        pointer = write_state(
            store,
            snapshot,
            config=config,
            runner=runner,
            base=base,
            changed=changed,
            compact=force_compaction,
            manifest_cache=manifest_cache,
        )
    advance_last_checkpoint(store, pointer)
    return pointer


def _newest_base(
    store: Store, snapshot: Snapshot, states: Sequence[int], *, config: Config
) -> StateManifest | None:
    older = [version for version in states if version < snapshot.version]
    if not older:
        return None
    try:
        return read_state_manifest(store, max(older), config=config)
    except (LogError, ObjectNotFoundError) as error:
        logger.warning("Writing a whole state, because an older one cannot be used: %s", error)
        return None


def _versions_since(
    base: StateManifest | None, snapshot: Snapshot, read_versions: ReadVersions
) -> list[VersionActions] | None:
    if base is None:
        return None
    first = base.state_version + 1
    versions = read_versions(first, snapshot.version)
    expected = list(range(first, snapshot.version + 1))
    return versions if versions is not None and [v.version for v in versions] == expected else None


# --- writing an Avro state -------------------------------------------------------------------


def renormalized(snapshot: Snapshot, *, threshold: int) -> Snapshot:
    """The snapshot with canonical references, if it has more distinct ones than the threshold.

    Equal mappings then share one reference. The old names stay in the registry, for writers that
    know them from an earlier snapshot; the next compaction finds no entry that uses them and
    drops them.
    """
    entries, metadata = snapshot.entries, snapshot.metadata
    registered = registry_of(metadata.configuration)
    references: list[Any] = pc.unique(entries["docMappingRef"]).to_pylist()
    used = [r for r in references if r is not None]
    names = {old: old for old in used}
    if len(used) > threshold:
        names = {old: mapping_hash(registered[old]) if old in registered else old for old in used}
    mappings = {
        old: text
        for old, text in registered.items()
        if old in names or not _is_alias(old, registered)
    }
    mappings |= {
        new: registered[old]
        for old, new in names.items()
        if old in registered and new not in registered
    }
    if mappings == registered and all(old == new for old, new in names.items()):
        return snapshot
    properties = {
        key: value
        for key, value in metadata.configuration.items()
        if not key.startswith(REGISTRY_PREFIX)
    }
    at = pc.index_in(entries["docMappingRef"], value_set=pa.array(list(names), pa.string()))
    renamed: Any = pc.take(pa.array(list(names.values()), pa.string()), at)
    position = entries.schema.get_field_index("docMappingRef")
    return replace(
        snapshot,
        metadata=replace(metadata, configuration=with_mappings(properties, mappings)),
        base_files=entries.set_column(position, entries.schema.field(position), renamed),
        changes={},
    )


def _is_alias(reference: str, mappings: Mapping[str, str]) -> bool:
    """Whether the mapping is there under its canonical name as well."""
    canonical = mapping_hash(mappings[reference])
    return canonical != reference and canonical in mappings


_NEVER_NULL = ("addedAtVersion", "addedAtTimestamp", "hasFooterOffsets")


@dataclass(frozen=True, slots=True)
class _Layout:
    """The parts of a new state: manifests that exist, and entries for new ones."""

    kept: tuple[ManifestInfo, ...]
    tombstones: tuple[str, ...]
    new_entries: pa.Table
    # Kept manifests may name mappings in a way the snapshot no longer does.
    mappings: Mapping[str, str]


def write_state(
    store: Store,
    snapshot: Snapshot,
    *,
    config: Config,
    runner: Runner,
    base: StateManifest | None = None,
    changed: Sequence[VersionActions] | None = None,
    compact: bool = False,
    manifest_cache: ManifestCache | None = None,
) -> LastCheckpoint:
    """Write the state of the snapshot's version; one that is there stays, unless `compact`.

    `base` is an older state and `changed` all versions after it up to the snapshot's; without
    them, or with `compact`, the state is written as a whole.
    """
    if snapshot.partial:
        raise ValueError("A snapshot that lacks files cannot become a checkpoint.")
    layout: _Layout | None = None
    if not compact and base is not None and changed is not None:
        layout = _incremental(
            store, snapshot, base, changed, config=config, runner=runner, cache=manifest_cache
        )
    if layout is None:
        snapshot = renormalized(snapshot, threshold=config[keys.STATE_RENORMALIZE_THRESHOLD])
        layout = _Layout((), (), snapshot.entries, {})
    new = _write_manifests(store, layout.new_entries, snapshot, config=config)
    state = _describe(snapshot, layout, layout.kept + tuple(new))
    data = _container(STATE_MANIFEST, [state_to_record(state)], config)
    path = state_path(snapshot.version)
    # A state belongs to the version of its number: one that is there says the same, so readers may
    # see either while a compacted one takes its place.
    if compact:
        store.put(path, data)
    else:
        put_once(lambda: store.put_if_absent(path, data), config=config)
    return LastCheckpoint(
        version=snapshot.version,
        size=snapshot.num_files,
        size_in_bytes=snapshot.total_bytes,
        num_files=snapshot.num_files,
        created_time=state.created_at,
        format="avro-state",
        state_dir=state_directory_name(snapshot.version),
    )


def _describe(
    snapshot: Snapshot, layout: _Layout, manifests: tuple[ManifestInfo, ...]
) -> StateManifest:
    configuration = snapshot.metadata.configuration
    mappings = registry_of(configuration)
    properties = {k: v for k, v in configuration.items() if not k.startswith(REGISTRY_PREFIX)}
    return StateManifest(
        state_version=snapshot.version,
        created_at=time.time_ns() // 1_000_000,
        num_files=snapshot.num_files,
        total_bytes=snapshot.total_bytes,
        manifests=manifests,
        tombstones=layout.tombstones,
        schema_registry={**layout.mappings, **mappings},
        protocol_version=max(4, snapshot.protocol.min_reader_version),
        # Mappings are large; the registry of the state holds them once.
        metadata=replace(snapshot.metadata, configuration=properties),
        protocol=snapshot.protocol,
        xrefs=tuple(snapshot.xrefs.values()),
        skips=unexpired_skips(snapshot),
        txns=tuple(snapshot.txns.values()),
        timestamp=snapshot.timestamp,
    )


# --- incremental -----------------------------------------------------------------------------


def _incremental(
    store: Store,
    snapshot: Snapshot,
    base: StateManifest,
    changed: Sequence[VersionActions],
    *,
    config: Config,
    runner: Runner,
    cache: ManifestCache | None,
) -> _Layout | None:
    """The layout on top of an older state, or None where a compacted one is due or safer."""
    actions = [a for version in changed for a in version.actions if isinstance(a, Add | Remove)]
    if config[keys.STATE_COMPACT_AFTER_MERGE] and any(map(_is_merge, actions)):
        return None
    if sum(isinstance(a, Remove) for a in actions) > config[keys.STATE_LARGE_REMOVE_THRESHOLD]:
        return None
    last = {action.path: isinstance(action, Add) for action in actions}
    new = with_paths(snapshot.entries, [path for path, lives in last.items() if lives])
    removed_paths = {path for path, lives in last.items() if not lives}
    try:
        removed = _remove_from(
            store, base, removed_paths, config=config, runner=runner, cache=cache
        )
    except (LogError, ObjectNotFoundError) as error:
        logger.warning("Writing a whole state, because an older one cannot be used: %s", error)
        return None
    files = base.num_files - removed.files + new.num_rows
    size = base.total_bytes - removed.size + (pc.sum(new["size"]).as_py() or 0)
    if (files, size) != (snapshot.num_files, snapshot.total_bytes):
        return None
    # A tombstone hides its path in every manifest: a file that came back would be lost.
    if with_paths(new, removed.tombstones).num_rows:
        return None
    if base.protocol is None:  # readers trust the bounds in states of this package
        types = partition_types(snapshot.metadata)
        removed = replace(
            removed,
            manifests=tuple(
                replace(info, partition_bounds=trusted_bounds(info.partition_bounds, types))
                for info in removed.manifests
            ),
        )
    layout = _Layout(removed.manifests, removed.tombstones, new, base.schema_registry)
    return None if _needs_compaction(layout, config) else layout


def _is_merge(action: Add | Remove) -> bool:
    return not action.data_change or (isinstance(action, Add) and (action.num_merge_ops or 0) > 0)


@dataclass(frozen=True, slots=True)
class _Removed:
    manifests: tuple[ManifestInfo, ...]
    tombstones: tuple[str, ...]
    files: int
    size: int


def _remove_from(
    store: Store,
    base: StateManifest,
    paths: Collection[str],
    *,
    config: Config,
    runner: Runner,
    cache: ManifestCache | None,
) -> _Removed:
    """The base with more tombstones: one for each of these paths that it really holds."""
    if not paths:  # the usual case: nothing but new files, and no manifest has to be opened
        manifests = base.manifests
        if not base.tombstones:
            manifests = tuple(
                replace(i, tombstone_count=0, live_entry_count=i.num_entries) for i in manifests
            )
        return _Removed(manifests, base.tombstones, 0, 0)
    tables = load_manifests(store, base.manifests, config=config, runner=runner, cache=cache)
    removed_rows = [with_paths(without_paths(table, base.tombstones), paths) for table in tables]
    fresh: list[str] = [path for hits in removed_rows for path in _strings(hits["path"])]
    tombstones = (*base.tombstones, *sorted(fresh))
    counted = []
    for info, table in zip(base.manifests, tables, strict=True):
        dead = with_paths(table, tombstones).num_rows
        live = info.num_entries - dead
        counted.append(replace(info, tombstone_count=dead, live_entry_count=live))
    size = sum(pc.sum(hits["size"]).as_py() or 0 for hits in removed_rows)
    return _Removed(tuple(counted), tombstones, len(fresh), size)


def _strings(column: Any) -> list[str]:
    return column.to_pylist()  # type: ignore[no-any-return]


def _needs_compaction(layout: _Layout, config: Config) -> bool:
    entries = sum(info.num_entries for info in layout.kept) + layout.new_entries.num_rows
    new = math.ceil(layout.new_entries.num_rows / config[keys.STATE_ENTRIES_PER_MANIFEST])
    return (
        len(layout.tombstones) > config[keys.STATE_TOMBSTONE_THRESHOLD] * entries
        or len(layout.kept) + new > config[keys.STATE_MAX_MANIFESTS]
    )


# --- entries ---------------------------------------------------------------------------------


def _write_manifests(
    store: Store, entries: pa.Table, snapshot: Snapshot, *, config: Config
) -> Iterator[ManifestInfo]:
    entries = sorted_by_partition(entries, snapshot.metadata)
    step = config[keys.STATE_ENTRIES_PER_MANIFEST]
    for start in range(0, entries.num_rows, step):
        part = entries.slice(start, step)
        data = _container(FILE_ENTRY, _records(part), config)
        digest = hashlib.sha256(data).hexdigest()
        name = f"manifest-{digest[:32]}.avro"
        path = f"{MANIFEST_DIRECTORY}/{name}"
        # Plain put: the content is its name, so nothing can be lost, and an orphan of an earlier
        # attempt becomes young again. Garbage collection spares the young; it must not take a
        # manifest that a state is about to name.
        with_retries(functools.partial(store.put, path, data), config=config)
        versions = pc.min_max(part["addedAtVersion"])
        yield ManifestInfo(
            path=path.removeprefix(f"{LOG_DIRECTORY}/"),
            num_entries=part.num_rows,
            min_added_at_version=versions["min"].as_py() or 0,
            max_added_at_version=versions["max"].as_py() or 0,
            partition_bounds=bounds_of(part, snapshot.metadata),
            live_entry_count=part.num_rows,
            checksum=digest,
        )


def _records(entries: pa.Table) -> Iterator[dict[str, Any]]:
    for record in file_records(entries):
        for name in _NEVER_NULL:  # absent in the oldest states of other writers
            if record.get(name) is None:
                record[name] = 0
        yield record


def _container(
    schema: Mapping[str, Any], records: Iterable[Mapping[str, Any]], config: Config
) -> bytes:
    return write_container(
        schema,
        records,
        codec=cast(Codec, config[keys.STATE_COMPRESSION]),
        level=config[keys.STATE_COMPRESSION_LEVEL],
    )
