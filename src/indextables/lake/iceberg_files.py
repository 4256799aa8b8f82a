"""The files of an Iceberg snapshot: what its manifests list, and which rows are deleted.

pyiceberg decodes the manifests. Deletes are applied here, by the rules of the specification, as
pyiceberg applies no equality deletes: a position delete or a deletion vector counts for data files
that are not newer than it, an equality delete for older ones of its partition. The result of all of
them is the same: the numbers of the dead rows of a file.
"""

from __future__ import annotations

import io
import struct
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cachetools import LRUCache

from indextables.errors import DamagedVectorError, UnsupportedSourceError
from indextables.lake.rows import Place, SourceColumns, SourceRowsFile
from indextables.log.vectors import decoded
from indextables.split.row_numbers import RowNumbers
from indextables.storage import Store, canonical_uri, open_store

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

_DATA, _POSITIONS, _EQUALITY = 0, 1, 2
_ADDED, _DELETED = 1, 2
_FILE_PATH, _POSITION = 2147483546, 2147483545
"""The field ids of the columns of a file of position deletes."""
_ENTRIES_KEPT = 200_000
_BYTES_KEPT = 64 << 20
_MANIFESTS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """A live file of a snapshot, as its manifest describes it."""

    content: int
    location: str
    file_format: str
    spec: int
    partition: tuple[Any, ...]
    rows: int
    size: int
    sequence: int
    added_by: int
    """The snapshot that added the file."""
    is_encrypted: bool
    equality_ids: tuple[int, ...]
    referenced: str | None
    """The data file of a deletion vector, which is `length` bytes at `offset`."""
    offset: int | None
    length: int | None

    @property
    def is_vector(self) -> bool:
        """Whether this is a deletion vector."""
        return self.file_format == "PUFFIN"


@dataclass(frozen=True)
class KeyColumn:
    """A column that equality deletes compare, which users may not have any more."""

    type: Any
    place: Place


def place_of(location: str) -> str:
    """The one spelling of a location. Iceberg's are literal, also those that begin with file:."""
    if location.startswith("file:"):
        return "/" + location.removeprefix("file:").lstrip("/")
    return canonical_uri(location)


@dataclass
class IcebergFiles:
    """Reads the files of one table's snapshots. They never change, so what was read is kept."""

    uri: str
    storage_options: Mapping[str, object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._entries: LRUCache[str, list[Entry]] = LRUCache(
            _ENTRIES_KEPT, lambda entries: len(entries) + 1
        )
        self._dead: LRUCache[object, Any] = LRUCache(_BYTES_KEPT, lambda rows: int(rows.nbytes) + 1)
        self._lock = threading.Lock()

    def located(self, location: str) -> tuple[Store, str]:
        """The store and the path of a file, which may be anywhere."""
        folder, _, name = place_of(location).rpartition("/")
        return self.store(folder or "/"), name

    def store(self, place: str) -> Store:
        """The store of a folder; a local one takes no options."""
        return open_store(place, None if place.startswith("/") else self.storage_options)

    def read(self, location: str) -> bytes:
        """A whole file."""
        store, path = self.located(location)
        return store.get(path)

    # --- manifests ---------------------------------------------------------------------------

    def entries(self, manifest_list: str) -> list[Entry]:
        """The live files of a snapshot."""
        from pyiceberg.manifest import read_manifest_list

        manifests = list(read_manifest_list(self._input(manifest_list)))
        with ThreadPoolExecutor(_MANIFESTS_AT_ONCE) as threads:
            per_manifest = list(threads.map(self._of_manifest, manifests))
        entries = [entry for of_manifest in per_manifest for entry in of_manifest]
        for entry in entries:
            self._check(entry)
        return entries

    def _input(self, location: str) -> Any:
        return _Bytes(self.read(location))

    def _of_manifest(self, manifest: ManifestFile) -> list[Entry]:
        with self._lock:
            kept = self._entries.get(manifest.manifest_path)
        if kept is not None:
            return kept
        entries = self._decoded(manifest)
        if len(entries) < _ENTRIES_KEPT:
            with self._lock:
                self._entries[manifest.manifest_path] = entries
        return entries

    def _decoded(self, manifest: ManifestFile) -> list[Entry]:
        from pyiceberg.avro.file import AvroFile
        from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS

        # pyiceberg's own reader of entries leaves out what version 3 added.
        newest = max(MANIFEST_ENTRY_SCHEMAS)
        names = [f.name for f in MANIFEST_ENTRY_SCHEMAS[newest].fields]
        file_names = [f.name for f in DATA_FILE_TYPE[newest].fields]
        entries = []
        with AvroFile[Any](
            self._input(manifest.manifest_path), MANIFEST_ENTRY_SCHEMAS[newest]
        ) as reader:
            for record in reader:
                outer = {name: record[at] for at, name in enumerate(names)}
                if outer["status"] == _DELETED:
                    continue
                file = {name: outer["data_file"][at] for at, name in enumerate(file_names)}
                partition = file["partition"]
                entries.append(
                    Entry(
                        content=int(file["content"] or 0),
                        location=file["file_path"],
                        file_format=str(file["file_format"]).upper(),
                        spec=manifest.partition_spec_id,
                        partition=tuple(partition[n] for n in range(len(partition))),
                        rows=file["record_count"],
                        size=file["file_size_in_bytes"],
                        sequence=self._sequence(outer, manifest),
                        added_by=outer["snapshot_id"] or manifest.added_snapshot_id or 0,
                        is_encrypted=file["key_metadata"] is not None,
                        equality_ids=tuple(sorted(file["equality_ids"] or ())),
                        referenced=file["referenced_data_file"],
                        offset=file["content_offset"],
                        length=file["content_size_in_bytes"],
                    )
                )
        return entries

    def _sequence(self, entry: Mapping[str, Any], manifest: ManifestFile) -> int:
        """The sequence number of a file; that of its manifest if the file was added with it."""
        stated: int | None = entry["sequence_number"]
        if stated is not None:
            return stated
        if manifest.sequence_number and entry["status"] != _ADDED:
            raise UnsupportedSourceError(
                self.uri, f"its manifest '{manifest.manifest_path}' lacks a sequence number"
            )
        return manifest.sequence_number or 0

    def _check(self, entry: Entry) -> None:
        """Refuse a file that cannot be read, before any row is."""
        allowed = ("PARQUET", "PUFFIN") if entry.content == _POSITIONS else ("PARQUET",)
        if entry.file_format not in allowed:
            raise UnsupportedSourceError(
                self.uri, f"its file '{entry.location}' has the format {entry.file_format}"
            )
        if entry.is_encrypted:
            raise UnsupportedSourceError(self.uri, f"its file '{entry.location}' is encrypted")
        if entry.is_vector and None in (entry.referenced, entry.offset, entry.length):
            raise UnsupportedSourceError(
                self.uri, f"a deletion vector in '{entry.location}' does not name its data file"
            )

    # --- deleted rows ------------------------------------------------------------------------

    def dead_rows(
        self,
        entries: Sequence[Entry],
        keys: Mapping[int, KeyColumn],
        constants: Mapping[str, Mapping[int, Any]],
        *,
        unpartitioned: set[int],
    ) -> dict[str, RowNumbers]:
        """The dead rows of data files by their locations.

        `keys` are the columns of the table by their ids, `constants` the values of columns that a
        file may lack, and `unpartitioned` specs whose equality deletes count for all partitions.
        """
        by_position = self._by_position([e for e in entries if e.content == _POSITIONS])
        equality = [e for e in entries if e.content == _EQUALITY]
        dead_of = {}
        for data in entries:
            if data.content != _DATA:
                continue
            parts = by_position.for_file(data)
            older = [
                e
                for e in equality
                if data.sequence < e.sequence
                and (
                    e.spec in unpartitioned or (e.spec, e.partition) == (data.spec, data.partition)
                )
            ]
            if older:
                parts.append(self._equal(data, older, keys, constants[data.location]))
            if parts:
                rows = np.unique(np.concatenate(parts))
                if len(rows) and (rows[0] < 0 or rows[-1] >= data.rows):
                    raise UnsupportedSourceError(
                        self.uri, f"a delete names row {rows[-1]:,} of '{data.location}', which "
                        f"has {data.rows:,} rows",
                    )  # fmt: skip
                dead_of[data.location] = rows
        return dead_of

    def _by_position(self, deletes: Sequence[Entry]) -> _Positions:
        positions = _Positions(defaultdict(list), {})
        for entry in deletes:
            if entry.is_vector:
                assert entry.referenced is not None
                positions.vectors[place_of(entry.referenced)] = (
                    entry.sequence,
                    self._vector(entry),
                )
                continue
            for place, rows in self._positions(entry).items():
                positions.rows[place].append((entry.sequence, rows))
        return positions

    def _positions(self, entry: Entry) -> dict[str, RowNumbers]:
        """The rows that a file of position deletes names, by their data files."""
        kinds: dict[str, Any] = {"path": pa.string(), "row": pa.int64()}
        schema = pa.schema(kinds)
        places = {
            "path": Place(_FILE_PATH, ("file_path",)), "row": Place(_POSITION, ("pos",)),
        }  # fmt: skip
        table = self._all_rows(entry, schema, SourceColumns(places, by_id=True))
        paths: Any = table["path"].combine_chunks().dictionary_encode()
        codes, rows = paths.indices.to_numpy(), table["row"].to_numpy()
        positions_of: dict[str, list[RowNumbers]] = defaultdict(list)
        for code, path in enumerate(paths.dictionary.to_pylist()):
            positions_of[place_of(path)].append(rows[codes == code])
        return {path: np.concatenate(parts) for path, parts in positions_of.items()}

    def _vector(self, entry: Entry) -> RowNumbers:
        """A deletion vector: its length, the vector in the form of Delta's, and a checksum."""
        assert entry.offset is not None and entry.length is not None
        store, path = self.located(entry.location)
        start, end = entry.offset, entry.offset + entry.length
        data = bytes(store.get_range(path, start, end))
        (size,), vector = struct.unpack(">I", data[:4]), data[4:-4]
        if size != len(vector) or zlib.crc32(vector) != struct.unpack(">I", data[-4:])[0]:
            raise UnsupportedSourceError(
                self.uri, f"the deletion vector in '{entry.location}' is damaged"
            )
        try:
            rows = decoded(vector, path=entry.location)
        except DamagedVectorError as error:
            raise UnsupportedSourceError(self.uri, str(error).rstrip(".")) from None
        if len(rows) != entry.rows:
            raise UnsupportedSourceError(
                self.uri, f"the deletion vector in '{entry.location}' names {len(rows):,} rows, "
                f"and {entry.rows:,} in its manifest",
            )  # fmt: skip
        return rows

    def _equal(
        self,
        data: Entry,
        deletes: Sequence[Entry],
        keys: Mapping[int, KeyColumn],
        constants: Mapping[int, Any],
    ) -> RowNumbers:
        """The rows of a data file that equality deletes name."""
        cached = (data.location, frozenset(e.location for e in deletes))
        with self._lock:
            kept: RowNumbers | None = self._dead.get(cached)
        if kept is not None:
            return kept
        by_ids: dict[tuple[int, ...], list[Entry]] = defaultdict(list)
        for entry in deletes:
            by_ids[entry.equality_ids].append(entry)
        dead = np.zeros(data.rows, dtype=np.bool_)
        for ids, deletes_by_ids in by_ids.items():
            if not ids or any(field_id not in keys for field_id in ids):
                raise UnsupportedSourceError(
                    self.uri,
                    f"'{deletes_by_ids[0].location}' deletes rows by columns that are nested, or "
                    "that the table's metadata does not have",
                )
            schema = pa.schema([(str(field_id), keys[field_id].type) for field_id in ids])
            columns = SourceColumns(
                {str(field_id): keys[field_id].place for field_id in ids},
                by_id=True,
                needs_ids=True,
            )
            values = {
                str(field_id): constants[field_id] for field_id in ids if field_id in constants
            }
            rows = self._all_rows(data, schema, columns, values)
            deleted = pa.concat_tables([self._all_rows(e, schema, columns) for e in deletes_by_ids])
            dead |= _matches(rows, deleted)
        numbers = np.flatnonzero(dead).astype(np.int64)
        with self._lock:
            if numbers.nbytes < _BYTES_KEPT:
                self._dead[cached] = numbers
        return numbers

    def _all_rows(
        self,
        entry: Entry,
        schema: pa.Schema,
        columns: SourceColumns,
        constants: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """Some columns of a file; those that it does not have are null."""
        store, path = self.located(entry.location)
        file = SourceRowsFile(store, path, entry.size, "", schema, columns, constants or {}).open()
        there = [name for name in schema.names if name in file.schema.names]
        groups = range(file.footer.parquet.num_row_groups)
        table = file.read_some(groups, there)
        if entry.content != _DATA and len(there) < len(schema):
            raise UnsupportedSourceError(
                self.uri, f"its file of deletes '{entry.location}' lacks a column"
            )
        values = [
            table[f.name] if f.name in there else pa.nulls(table.num_rows, f.type) for f in schema
        ]
        return pa.table(values, schema=schema)


@dataclass(frozen=True)
class _Positions:
    """The rows of all position deletes and vectors of a snapshot, with sequence numbers."""

    rows: dict[str, list[tuple[int, RowNumbers]]]
    vectors: dict[str, tuple[int, RowNumbers]]

    def for_file(self, data: Entry) -> list[RowNumbers]:
        """The rows of a data file that are deleted; a vector has those of older deletes in it."""
        place = place_of(data.location)
        sequence, rows = self.vectors.get(place, (-1, None))
        if rows is not None and data.sequence <= sequence:
            return [rows]
        return [
            positions for later, positions in self.rows.get(place, ()) if data.sequence <= later
        ]


class _Bytes:
    """A file in memory, for pyiceberg."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, seekable: bool = True) -> io.BytesIO:  # noqa: ARG002
        return io.BytesIO(self._data)


def _matches(rows: pa.Table, deleted: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows are among the deleted ones. Null equals null, and NaN equals NaN."""
    codes = np.zeros(deleted.num_rows + rows.num_rows, dtype=np.int64)
    for name in rows.schema.names:
        both = pa.chunked_array([*deleted[name].chunks, *rows[name].chunks], rows[name].type)
        encoded: Any = both.combine_chunks().dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy().astype(np.int64)
        codes = codes * (len(encoded.dictionary) + 1) + indices
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return np.isin(codes[deleted.num_rows :], codes[: deleted.num_rows])


def data_files(entries: Iterable[Entry]) -> list[Entry]:
    """Those of some entries that have rows."""
    return [entry for entry in entries if entry.content == _DATA]
