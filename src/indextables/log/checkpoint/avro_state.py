"""Reading an Avro state: a list of manifests, each a table of file entries.

A manifest is written once and shared by many states, so a new state costs what is new in it. A
state's live files are the entries of its manifests, in their order, less those whose path is a
tombstone. Where a path occurs twice the later entry is the newer one and wins; our own states
never rely on that, nor on a path that is both tombstone and entry. Manifests whose partition
bounds cannot match need not be opened; the snapshot is then `partial`.

`_manifest.avro` lists a state's manifests and what the state says of the table. Incremental states
of the Scala product leave out the metadata. It is then the metadata of the newest older file that
has any: a version file, often version 0, or another state.

Many entries are decoded by DataFusion, 20 times faster than record by record. For few of them a
query engine is slower than Python, and an Arrow table of 28 columns costs more than its rows: the
records of all small manifests of a state become one table, which is then cut into theirs.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables import config as keys
from indextables.config import Config
from indextables.errors import CorruptLogError, UnsupportedFeatureError, is_installed
from indextables.log.actions import Metadata, Protocol, upgraded
from indextables.log.checkpoint.avro_container import Container, decode_records, read_container
from indextables.log.checkpoint.state_schema import (
    FORMAT_VERSION,
    ManifestInfo,
    PartitionBounds,
    StateManifest,
    partition_types,
    state_from_record,
    trusted_bounds,
)
from indextables.log.files import (
    FILES_SCHEMA,
    conform_files,
    mapping_hash,
    with_mappings,
    without_paths,
)
from indextables.log.layout import (
    LOG_DIRECTORY,
    check_path_column,
    check_paths,
    decode_actions,
    list_log,
    state_path,
    version_path,
)
from indextables.log.snapshot import Snapshot
from indextables.runner import Runner
from indextables.storage import Store
from indextables.storage.local import temporary_folder

_SEARCH_BATCH = 32


def read_state_manifest(store: Store, version: int, *, config: Config) -> StateManifest:
    """The header of a version's state; its manifests are not opened."""
    where = state_path(version)
    limit = config[keys.TRANSACTION_MAX_FILE_SIZE]
    container = read_container(store.get(where), where=where, limit=limit)
    records = decode_records(container, where=where)
    if len(records) != 1:
        raise CorruptLogError(where, f"it holds {len(records)} records instead of one")
    state = state_from_record(records[0], version=version)
    if state.format_version > FORMAT_VERSION:
        feature = f"avroState format {state.format_version}"
        raise UnsupportedFeatureError(store.uri, role="reader", features=[feature])
    if state.state_version != version:
        raise CorruptLogError(where, f"it is the state of version {state.state_version}")
    return state


def protocol_and_metadata(
    store: Store, state: StateManifest, *, config: Config, runner: Runner
) -> tuple[Protocol, Metadata]:
    """Both as of the state, from older files where the state leaves them out."""
    if state.protocol is not None and state.metadata is not None:
        return state.protocol, state.metadata
    least = Protocol(
        min_reader_version=state.protocol_version, min_writer_version=state.protocol_version
    )
    if state.metadata is not None:
        return state.protocol or least, state.metadata
    protocol, metadata = _find_metadata(store, state.state_version, config=config, runner=runner)
    return state.protocol or upgraded(protocol or least, least), metadata


@dataclass(frozen=True, slots=True)
class _ReadMetadata:
    store: Store
    version: int
    from_state: bool
    config: Config

    def __call__(self) -> tuple[Protocol | None, Metadata | None]:
        if self.from_state:
            state = read_state_manifest(self.store, self.version, config=self.config)
            return state.protocol, state.metadata
        where = version_path(self.version)
        limit = self.config[keys.TRANSACTION_MAX_FILE_SIZE]
        actions = decode_actions(self.store.get(where), where=where, limit=limit)
        newest_first = actions[::-1]
        return (
            next((a for a in newest_first if isinstance(a, Protocol)), None),
            next((a for a in newest_first if isinstance(a, Metadata)), None),
        )


def _run_metadata(task: _ReadMetadata) -> tuple[Protocol | None, Metadata | None]:
    return task()


def _find_metadata(
    store: Store, version: int, *, config: Config, runner: Runner
) -> tuple[Protocol | None, Metadata]:
    """The metadata in force at a version, from the newest file that has any."""
    listing = list_log(store)
    places = [(v, False) for v in listing.versions if v <= version]
    places += [(v, True) for v in listing.states if v < version]
    places.sort(key=lambda place: (-place[0], place[1]))
    protocol: Protocol | None = None
    for start in range(0, len(places), _SEARCH_BATCH):
        tasks = [_ReadMetadata(store, *p, config) for p in places[start : start + _SEARCH_BATCH]]
        for found_protocol, metadata in runner.map(_run_metadata, tasks):
            protocol = protocol or found_protocol
            if metadata is not None:
                return protocol, metadata
    raise CorruptLogError(
        state_path(version), "it has no metadata, and neither has any older file of the log"
    )


INLINE = "docMappingJson"
_REQUIRED = ("path", "partitionValues", "size", "modificationTime", "dataChange")
_FEW_ENTRIES = 200


@dataclass(frozen=True, slots=True)
class Records:
    """The entries of a small manifest."""

    where: str
    records: Sequence[Mapping[str, Any]]


def decode_manifest(container: Container, *, where: str) -> pa.Table | Records:
    """The entries of a manifest: a table in the columns of the log, or records if they are few."""
    if container.count <= _FEW_ENTRIES or not _has_decoder():
        return Records(where, decode_records(container, where=where))
    try:
        entries = _decode_to_arrow(container.plain)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise CorruptLogError(where, f"its entries do not decode ({error})") from error
    _check(entries, container.count, where=where)
    return entries


def tables_of(decoded: Sequence[pa.Table | Records]) -> list[pa.Table]:
    """The same entries, all as tables."""
    small = [part for part in decoded if isinstance(part, Records)]
    every = [record for part in small for record in part.records]
    where = ", ".join(part.where for part in small)
    try:
        together = _entries_of_records(every)
    except (pa.ArrowException, ValueError, TypeError, AttributeError) as error:
        raise CorruptLogError(where, f"its entries do not decode ({error})") from error
    _check(together, len(every), where=where)
    tables, start = [], 0
    for part in decoded:
        if isinstance(part, Records):
            tables.append(together.slice(start, len(part.records)))
            start += len(part.records)
        else:
            tables.append(part)
    return tables


def _check(entries: pa.Table, expected: int, *, where: str) -> None:
    if entries.num_rows != expected:
        raise CorruptLogError(where, f"{entries.num_rows} of its {expected} entries decode")
    for column in _REQUIRED:
        if entries[column].null_count:
            raise CorruptLogError(where, f"an entry has no {column}")
    check_path_column(entries["path"], where=where)


def _entries_of_records(records: Sequence[Mapping[str, Any]]) -> pa.Table:
    columns = {}
    for column in (*FILES_SCHEMA, pa.field(INLINE, pa.string())):
        values = [record.get(column.name) for record in records]
        if column.name == "hasFooterOffsets":
            values = [bool(value) for value in values]
        elif pa.types.is_map(column.type):
            values = [None if value is None else list(value.items()) for value in values]
        columns[column.name] = pa.array(values, column.type)
    return _conformed(pa.table(columns))


@functools.cache
def _has_decoder() -> bool:
    """DataFusion is an extra: without it large manifests take longer."""
    return is_installed("datafusion")


def _decode_to_arrow(plain: bytes) -> pa.Table:
    """Decode with DataFusion, 20 times faster than record by record; it reads files only."""
    import datafusion

    with temporary_folder("manifest") as folder:
        file = folder / "manifest.avro"
        file.write_bytes(plain)
        # One partition keeps the order of the entries.
        context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
        try:
            # The decoder's buffers are larger than what they hold: each batch is copied before
            # the next one is decoded, so that a snapshot takes no more memory than its content.
            parts = [
                _copied(_conformed(pa.Table.from_batches([batch.to_pyarrow()])))
                for batch in context.read_avro(str(file)).execute_stream()
            ]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a Rust panic is not an Exception
            raise ValueError(str(error)) from error
    return pa.concat_tables(parts, promote_options="default").combine_chunks()


def _conformed(table: pa.Table) -> pa.Table:
    """The columns of the log, and inline mappings where there are some."""
    entries = conform_files(table)
    if INLINE in table.column_names and table[INLINE].null_count < table.num_rows:
        entries = entries.append_column(INLINE, table[INLINE].cast(pa.string()))
    return entries


def _copied(table: pa.Table) -> pa.Table:
    return table.take(np.arange(table.num_rows))


ManifestCache = MutableMapping[str, pa.Table]
KeepManifest = Callable[[Metadata], Callable[[Mapping[str, PartitionBounds]], bool]]
"""Whether files of a manifest with these partition bounds can matter, given the metadata."""

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
                where, f"it should have {state.num_files} files and has {files.num_rows}"
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
            txns={txn.app_id: txn for txn in state.txns},
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
    cache: ManifestCache | None,
) -> list[pa.Table]:
    """The entries of these manifests, in the columns of the log, in order.

    Entries with inline mappings keep them in a further column, `docMappingJson`.
    """
    tables: dict[str, pa.Table] = {}
    if cache is not None:
        tables = {i.path: table for i in infos if (table := cache.get(i.path)) is not None}
    limit = config[keys.TRANSACTION_MAX_FILE_SIZE]
    tasks = [ReadManifest(store, info, limit) for info in infos if info.path not in tables]
    entries = sum(task.info.num_entries for task in tasks)
    if store.local_path(LOG_DIRECTORY) is not None and entries < _WORTH_THREADS:
        decoded = [task() for task in tasks]  # done before threads have started
    else:
        decoded = runner.map(_run, tasks)
    for task, table in zip(tasks, tables_of(decoded), strict=True):
        tables[task.info.path] = table
        if cache is not None:
            cache[task.info.path] = table
    return [tables[info.path] for info in infos]


def _verify_digest(data: bytes, info: ManifestInfo, *, where: str) -> None:
    name = _CONTENT_NAME.fullmatch(info.path.rpartition("/")[2])
    if name is None and info.checksum is None:
        return  # another writer's: names are random there
    digest = hashlib.sha256(data).hexdigest()
    if info.checksum not in (None, digest) or (name and not digest.startswith(name[1])):
        raise CorruptLogError(where, "its content does not match its name or its state")


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
