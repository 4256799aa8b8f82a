"""The live files of a table as an Arrow table, one row a split, and the mappings that they share.

Planning over 100,000 splits is then a few vectorised calls. Column names are those of the log.
A null partition value is an absent key; `__HIVE_DEFAULT_PARTITION__` is left as it is written.
Writers that take one record at a time get rows as dictionaries, made four times faster than Arrow's
own conversion, which makes an object for every value first.

Mappings are stored once: add actions name them by hash, the table's metadata holds them. A mapping
(`docMappingJson`) of a wide table is larger than all else an add action says. Its hash is taken
from a canonical form, so that two writers that order their fields differently share one entry:
object keys sorted, lists of named objects sorted by name, compact JSON, SHA-256, URL-safe Base64,
16 characters.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.actions import Add, Remove

REGISTRY_PREFIX = "docMappingSchema."


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        items = [_canonical(item) for item in value]
        if items and all(isinstance(item, dict) and "name" in item for item in items):
            items.sort(key=lambda item: str(item["name"]))
        return items
    return value


@functools.lru_cache(maxsize=1024)
def mapping_hash(mapping_json: str) -> str:
    """The reference of a mapping.

    >>> mapping_hash('[{"type":"i64","name":"a"}]') == mapping_hash('[{"name":"a","type":"i64"}]')
    True
    """
    try:
        canonical = orjson.dumps(_canonical(orjson.loads(mapping_json)))
    except orjson.JSONDecodeError:
        canonical = mapping_json.encode()  # not JSON: still a name for exactly these bytes
    return base64.urlsafe_b64encode(hashlib.sha256(canonical).digest())[:16].decode()


def registry_of(configuration: Mapping[str, str]) -> dict[str, str]:
    """The mappings held in a table's configuration, by bare hash."""
    return {
        key[len(REGISTRY_PREFIX) :]: value
        for key, value in configuration.items()
        if key.startswith(REGISTRY_PREFIX)
    }


def with_mappings(configuration: Mapping[str, str], mappings: Mapping[str, str]) -> dict[str, str]:
    """The configuration with these mappings added; keys may be bare or prefixed."""
    prefixed = {
        REGISTRY_PREFIX + key.removeprefix(REGISTRY_PREFIX): value
        for key, value in mappings.items()
    }
    return {**configuration, **prefixed}


_FEW_SLICES = 16
_MAP = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.string())

FILES_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("minValues", _MAP),
        ("maxValues", _MAP),
        ("numRecords", pa.int64()),
        ("footerStartOffset", pa.int64()),
        ("footerEndOffset", pa.int64()),
        ("hasFooterOffsets", pa.bool_()),
        ("hotcacheStartOffset", pa.int64()),
        ("hotcacheLength", pa.int64()),
        ("timeRangeStart", pa.string()),
        ("timeRangeEnd", pa.string()),
        ("tags", _MAP),
        ("splitTags", _STRINGS),
        ("deleteOpstamp", pa.int64()),
        ("numMergeOps", pa.int32()),
        ("docMappingRef", pa.string()),
        ("uncompressedSizeBytes", pa.int64()),
        ("companionSourceFiles", _STRINGS),
        ("companionDeltaVersion", pa.int64()),
        ("companionFastFieldMode", pa.string()),
        ("deletionVector", pa.string()),
        ("extra", pa.string()),
        ("addedAtVersion", pa.int64()),
        ("addedAtTimestamp", pa.int64()),
    ]
)

VECTOR = "deletionVector"
"""The column of a split's deletion vector: its descriptor as JSON."""

# (column, attribute) of the fields an add action and a row of the table share.
_SHARED = [
    (name, "".join("_" + c.lower() if c.isupper() else c for c in name))
    for name in FILES_SCHEMA.names
    if name not in ("extra", "addedAtVersion", "addedAtTimestamp")
]


def empty_files() -> pa.Table:
    """A table without files."""
    return FILES_SCHEMA.empty_table()


def files_from_adds(adds: Sequence[tuple[Add, int, int]]) -> pa.Table:
    """Rows from add actions, each with the version and timestamp it was added at."""
    columns: dict[str, list[Any]] = {}
    for name, attribute in _SHARED:
        values = [getattr(add, attribute) for add, _, _ in adds]
        if name == VECTOR:
            values = [None if v is None else orjson.dumps(v).decode() for v in values]
        elif FILES_SCHEMA.field(name).type == _MAP:
            values = [None if v is None else _present_items(v) for v in values]
        columns[name] = values
    columns["extra"] = [
        orjson.dumps(dict(add.extra)).decode() if add.extra else None for add, _, _ in adds
    ]
    columns["addedAtVersion"] = [version for _, version, _ in adds]
    columns["addedAtTimestamp"] = [timestamp for _, _, timestamp in adds]
    return pa.table(columns, schema=FILES_SCHEMA)


def _present_items(values: Mapping[str, str | None]) -> list[tuple[str, str]]:
    return [(key, value) for key, value in values.items() if value is not None]


def conform_files(table: pa.Table) -> pa.Table:
    """Any table of file entries in the columns of `FILES_SCHEMA`; missing ones are null."""
    columns = []
    for column in FILES_SCHEMA:
        if column.name in table.column_names:
            columns.append(table.column(column.name).cast(column.type))
        elif column.name == "hasFooterOffsets":
            columns.append(pa.chunked_array([pa.repeat(False, table.num_rows)]))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, column.type)]))
    return pa.table(columns, schema=FILES_SCHEMA)


def paths_of(files: pa.Table) -> list[str]:
    """The paths of the rows."""
    column: Any = files["path"]
    paths: list[str] = column.to_pylist()
    return paths


def without_paths(files: pa.Table, paths: Iterable[str]) -> pa.Table:
    """The rows whose path is not among these."""
    unwanted = pa.array(list(paths), pa.string())
    if not len(unwanted) or not files.num_rows:
        return files
    is_gone = np.asarray(pc.is_in(files["path"], value_set=unwanted))
    positions = np.flatnonzero(is_gone)
    if len(positions) > _FEW_SLICES:
        return files.filter(pa.array(~is_gone))
    # Slices between the few removed rows are not copied.
    starts, ends = [0, *(positions + 1).tolist()], [*positions.tolist(), files.num_rows]
    kept = [files.slice(a, b - a) for a, b in zip(starts, ends, strict=True) if a < b]
    return pa.concat_tables(kept) if kept else files.slice(0, 0)


def with_paths(files: pa.Table, paths: Iterable[str]) -> pa.Table:
    """The rows whose path is among these."""
    path_set = pa.array(list(paths), pa.string())
    return files.filter(pc.is_in(files["path"], value_set=path_set))


def deleted_rows(files: pa.Table) -> npt.NDArray[np.int64]:
    """How many rows of each file are deleted: those that its vector names."""
    counts = np.zeros(files.num_rows, dtype=np.int64)
    if VECTOR in files.schema.names and files[VECTOR].null_count < files.num_rows:
        column: Any = files[VECTOR]
        for at in np.flatnonzero(np.asarray(column.is_valid())):
            counts[at] = orjson.loads(column[int(at)].as_py())["cardinality"]
    return counts


def vectors_by_path(files: pa.Table) -> dict[str, Mapping[str, Any]]:
    """The descriptors of the files that have a vector."""
    if not files.num_rows or files[VECTOR].null_count == files.num_rows:
        return {}
    marked = files.filter(pc.is_valid(files[VECTOR]))
    texts: Any = marked[VECTOR]
    return dict(zip(paths_of(marked), map(orjson.loads, texts.to_pylist()), strict=True))


def contents_of(files: pa.Table) -> set[tuple[str, str | None]]:
    """What the files hold: each path with its vector, which says which of its rows are left."""
    texts: Any = files[VECTOR]
    return set(zip(paths_of(files), texts.to_pylist(), strict=True))


def with_mapping_json(files: pa.Table, registry: Mapping[str, str]) -> pa.Table:
    """The rows with `docMappingJson` restored from the registry, once per distinct mapping."""
    references = files["docMappingRef"].combine_chunks().dictionary_encode()
    if isinstance(references, pa.ChunkedArray):
        references = references.combine_chunks()
    texts = pa.array([registry.get(r.as_py()) for r in references.dictionary], pa.string())
    restored = pa.DictionaryArray.from_arrays(references.indices, texts)
    return files.append_column("docMappingJson", restored)


def adds_from_files(files: pa.Table) -> list[Add]:
    """Add actions from rows. For few files, or for writing a JSON checkpoint."""
    adds = []
    for row in files.to_pylist(maps_as_pydicts="strict"):
        extra = row.pop("extra", None)
        values = {attribute: row[name] for name, attribute in _SHARED}
        for attribute in ("split_tags", "companion_source_files"):
            if values[attribute] is not None:
                values[attribute] = tuple(values[attribute])
        if values["deletion_vector"] is not None:
            values["deletion_vector"] = orjson.loads(values["deletion_vector"])
        adds.append(Add(**values, extra=orjson.loads(extra) if extra else {}))
    return adds


def removes_for(files: pa.Table, *, timestamp: int, data_change: bool) -> list[Remove]:
    """Remove actions for these rows, with statistics where the rows stay in the table."""
    rows = files.select(["path", "partitionValues", "size", "tags", "stats", VECTOR])
    return [
        Remove(
            path=row["path"],
            deletion_timestamp=timestamp,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values=row["partitionValues"],
            size=row["size"],
            tags=row["tags"] if not data_change else None,
            stats=row["stats"] if not data_change else None,
            deletion_vector=orjson.loads(row[VECTOR]) if row[VECTOR] else None,
        )
        for row in rows.to_pylist(maps_as_pydicts="strict")
    ]


def intern_mapping(add: Add, mappings: dict[str, str]) -> Add:
    """The add with its inline mapping replaced by a reference that `mappings` then holds."""
    if add.doc_mapping_json is None:
        return add
    reference = mapping_hash(add.doc_mapping_json)
    mappings[reference] = add.doc_mapping_json
    return replace(add, doc_mapping_ref=reference, doc_mapping_json=None)


_ROWS_AT_ONCE = 4096


def file_records(files: pa.Table) -> Iterator[dict[str, Any]]:
    """A dictionary for each row, by column; columns without any value are left out."""
    present = [name for name in files.column_names if files[name].null_count < files.num_rows]
    for batch in files.select(present).to_batches(max_chunksize=_ROWS_AT_ONCE):
        columns = [_values(column) for column in batch.columns]
        for row in zip(*columns, strict=True):
            yield dict(zip(present, row, strict=True))


def _values(column: Any) -> list[Any]:
    if not isinstance(column, pa.MapArray):
        return column.to_pylist()  # type: ignore[no-any-return]
    # Offsets of a slice count from the start of what it was sliced from.
    offsets: list[Any] = column.offsets.to_pylist()
    first, length = offsets[0], offsets[-1] - offsets[0]
    keys = column.keys.slice(first, length).to_pylist()
    items = column.items.slice(first, length).to_pylist()
    present = column.is_valid().to_pylist()
    return [
        dict(
            zip(keys[start - first : end - first], items[start - first : end - first], strict=True)
        )
        if valid
        else None
        for start, end, valid in zip(offsets, offsets[1:], present, strict=False)
    ]
