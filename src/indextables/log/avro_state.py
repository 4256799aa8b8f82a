"""Reading an Avro state: a list of manifests, each a table of file entries.

A manifest is written once and shared by many states, so a new state costs what is new in it. A
state's live files are the entries of its manifests, in their order, less those whose path is a
tombstone. Where a path occurs twice the later entry is the newer one and wins; our own states
never rely on that, nor on a path that is both tombstone and entry. Manifests whose partition
bounds cannot match need not be opened; the snapshot is then `partial`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables import config as keys
from indextables.config import Config
from indextables.errors import CorruptLogError
from indextables.log.actions import Metadata
from indextables.log.avro_container import read_container
from indextables.log.files import conform_files, without_paths
from indextables.log.manifest_entries import INLINE, Records, decode_manifest, tables_of
from indextables.log.mapping_registry import mapping_hash, with_mappings
from indextables.log.names import (
    LOG_DIRECTORY,
    check_paths,
    state_path,
)
from indextables.log.partition_bounds import partition_types, trusted_bounds
from indextables.log.snapshot import Snapshot
from indextables.log.state_manifest import protocol_and_metadata, read_state_manifest
from indextables.log.state_schema import (
    ManifestInfo,
    PartitionBounds,
    StateManifest,
)
from indextables.runner import Runner
from indextables.storage import Store

__all__ = [
    "ManifestInfo",
    "PartitionBounds",
    "StateManifest",
    "load_manifests",
    "load_state",
    "read_state_manifest",
]

ManifestCache = MutableMapping[str, pa.Table]
KeepManifest = Callable[[Metadata], Callable[[Mapping[str, PartitionBounds]], bool]]
"""For a table's metadata: whether files of a manifest with such partition bounds can matter."""

# Fewer entries than this are read from a disk before threads have started.
_WORTH_THREADS = 20_000
# What is read in part is read again for the next question; so few manifests are not worth that.
_FEW_MANIFESTS = 2
_CONTENT_NAME = re.compile(r"manifest-([0-9a-f]{32})\.avro")


def load_state(
    store: Store,
    version: int,
    *,
    config: Config,
    runner: Runner,
    manifest_cache: ManifestCache | None = None,
    keep_manifest: KeepManifest | None = None,
) -> Snapshot:
    """The snapshot of a version from its state.

    Manifests that `keep_manifest` denies are not read; the snapshot is `partial` then.
    """
    where = state_path(version)
    state = read_state_manifest(store, version, config=config)
    protocol, metadata = protocol_and_metadata(store, state, config=config, runner=runner)
    check_paths((xref.path for xref in state.xrefs), where=where)

    def read(keep: KeepManifest | None) -> Snapshot:
        kept = _kept_manifests(state, metadata, keep)
        tables = load_manifests(store, kept, config=config, runner=runner, cache=manifest_cache)
        mappings = dict(state.schema_registry)
        files = _live_files(tables, state.tombstones, mappings)
        # Decoding needs several times the memory of its result; the allocator would keep it.
        pa.default_memory_pool().release_unused()
        is_whole = len(kept) == len(state.manifests)
        # Other writers' totals drift; ours are counted, and a difference is damage.
        if state.protocol is not None and is_whole and files.num_rows != state.num_files:
            raise CorruptLogError(
                where, f"it promises {state.num_files} files and has {files.num_rows}"
            )
        configuration = with_mappings(metadata.configuration, mappings)
        return Snapshot(
            uri=store.uri,
            version=version,
            timestamp=state.created_at if state.timestamp is None else state.timestamp,
            protocol=protocol,
            metadata=replace(metadata, configuration=configuration),
            xrefs={xref.path: xref for xref in state.xrefs},
            skips={skip.path: skip for skip in state.skips},
            base_files=files,
            unread=None if is_whole else read,
        )

    return read(keep_manifest)


def _kept_manifests(
    state: StateManifest, metadata: Metadata, keep_manifest: KeepManifest | None
) -> list[ManifestInfo]:
    if keep_manifest is None or len(state.manifests) <= _FEW_MANIFESTS:
        return list(state.manifests)
    types = partition_types(metadata)
    can_matter = keep_manifest(metadata)
    kept = []
    for info in state.manifests:
        bounds = info.partition_bounds
        if state.protocol is None:
            bounds = trusted_bounds(bounds, types)
        if not bounds or can_matter(bounds):
            kept.append(info)
    return kept


# --- manifests -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """The task of reading one manifest; picklable, so that any runner can do it."""

    store: Store
    info: ManifestInfo
    limit: int

    def __call__(self) -> pa.Table | Records:
        path = f"{LOG_DIRECTORY}/{self.info.path}"
        data = self.store.get(path)
        _verify_digest(data, self.info, where=path)
        container = read_container(data, where=path, limit=self.limit)
        if container.count != self.info.num_entries:
            raise CorruptLogError(
                path, f"it has {container.count} entries instead of {self.info.num_entries}"
            )
        return decode_manifest(container, where=path)


def _run(task: ReadManifest) -> pa.Table | Records:
    return task()


def load_manifests(
    store: Store,
    infos: Sequence[ManifestInfo],
    *,
    config: Config,
    runner: Runner,
    cache: ManifestCache | None = None,
) -> list[pa.Table]:
    """The entries of these manifests, in the columns of the log, in order.

    Entries with inline mappings keep them in a further column, `docMappingJson`.
    """
    known: dict[str, pa.Table] = {}
    if cache is not None:
        known = {i.path: table for i in infos if (table := cache.get(i.path)) is not None}
    limit = config[keys.TRANSACTION_MAX_FILE_SIZE]
    tasks = [ReadManifest(store, info, limit) for info in infos if info.path not in known]
    entries = sum(task.info.num_entries for task in tasks)
    if store.local_path(LOG_DIRECTORY) is not None and entries < _WORTH_THREADS:
        decoded = [task() for task in tasks]  # done before threads have started
    else:
        decoded = runner.map(_run, tasks)
    for task, table in zip(tasks, tables_of(decoded), strict=True):
        known[task.info.path] = table
        if cache is not None:
            cache[task.info.path] = table
    return [known[info.path] for info in infos]


def _verify_digest(data: bytes, info: ManifestInfo, *, where: str) -> None:
    name = _CONTENT_NAME.fullmatch(info.path.rpartition("/")[2])
    if name is None and info.checksum is None:
        return  # another writer's: names are random there
    digest = hashlib.sha256(data).hexdigest()
    if info.checksum not in (None, digest) or (name and not digest.startswith(name[1])):
        raise CorruptLogError(where, "its content is not the one its name or its state promises")


# --- entries ---------------------------------------------------------------------------------


def _live_files(
    tables: Sequence[pa.Table], tombstones: Sequence[str], mappings: dict[str, str]
) -> pa.Table:
    parts = [_interned(without_paths(table, tombstones), mappings) for table in tables]
    if not parts:
        return conform_files(pa.table({"path": pa.array([], pa.string())}))
    files = pa.concat_tables(parts)
    if pc.count_distinct(files["path"]).as_py() == files.num_rows:
        return files
    rows = pa.table({"path": files["path"], "row": pa.array(range(files.num_rows))})
    last = rows.group_by("path").aggregate([("row", "max")])["row_max"]
    return files.take(last.take(pc.sort_indices(last)))


def _interned(entries: pa.Table, mappings: dict[str, str]) -> pa.Table:
    """The entries with inline mappings replaced by references that `mappings` then holds."""
    if INLINE not in entries.column_names:
        return entries
    inline = entries[INLINE].combine_chunks().dictionary_encode()
    texts: list[Any] = inline.dictionary.to_pylist()
    references = [mapping_hash(text) for text in texts]
    mappings.update(zip(references, texts, strict=True))
    named = pa.DictionaryArray.from_arrays(inline.indices, pa.array(references, pa.string()))
    column: Any = pc.coalesce(named.cast(pa.string()), entries["docMappingRef"])
    entries = entries.drop_columns([INLINE])
    at = entries.schema.get_field_index("docMappingRef")
    return entries.set_column(at, entries.schema.field(at), column)
