"""An Iceberg table as the source of a search index, its metadata read by pyiceberg.

A table is named by its folder, by one of its metadata files, or by its name in a catalog
(`catalog://prod/db.docs`). Columns are found in files by their field ids. What is not understood is
refused by name; which rows are deleted is in `iceberg_files`.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from cachetools import LRUCache

from indextables.errors import (
    LakeError,
    ObjectNotFoundError,
    SchemaError,
    SourceMissingError,
    SourceVersionError,
    UnsupportedSourceError,
    require,
)
from indextables.lake.iceberg_files import Entry, IcebergFiles, KeyColumn, data_files, place_of
from indextables.lake.rows import Place, SourceColumns
from indextables.lake.source import SourceFile, SourceSnapshot
from indextables.schema import SIMPLE, map_of, refuse_hidden
from indextables.storage import ObjectMeta
from indextables.storage.location import scrub

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.types import NestedField

CATALOG = "catalog://"
CATALOG_OPTION = "catalog."
_SUFFIX = ".metadata.json"
_VERSION = re.compile(r"v?(\d+)(?:-.*)?(?:\.gz)?\.metadata\.json")
_TYPES = {
    "boolean": "boolean", "int": "integer", "long": "long", "float": "float", "double": "double",
    "date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "string": "string",
    "uuid": "string", "binary": "binary",
}  # fmt: skip


@dataclass
class IcebergSource:
    """An Iceberg table.

    Options whose names begin with `catalog.` are properties of its catalog, the others those of the
    store.
    """

    uri: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)

    format = "iceberg"

    def __post_init__(self) -> None:
        self._catalog_options = {
            name.removeprefix(CATALOG_OPTION): str(value)
            for name, value in self.options.items()
            if name.startswith(CATALOG_OPTION)
        }
        self.storage_options = {
            n: v for n, v in self.options.items() if not n.startswith(CATALOG_OPTION)
        }
        if not self.uri.startswith(CATALOG):
            self.uri = place_of(self.uri)
        self._files = IcebergFiles(self.uri, self.storage_options)
        self._metadata: LRUCache[object, TableMetadata] = LRUCache(2)
        self._snapshots: LRUCache[object, SourceSnapshot] = LRUCache(4)
        self._lock = threading.Lock()

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
        known_schema: pa.Schema | None = None,  # noqa: ARG002 - the metadata has the schema
        is_known: Callable[[SourceFile], bool] = lambda _file: False,  # noqa: ARG002
    ) -> SourceSnapshot:
        """The current snapshot, one by its id, or the one that was current at a time."""
        require("pyiceberg", extra="iceberg", for_what="Reading an Iceberg table")
        with self._errors():
            location, metadata = self._current()
            chosen, schema = self._chosen(metadata, version, timestamp_ms)
            key = (metadata.table_uuid, location, chosen and chosen.snapshot_id, schema.schema_id)
            with self._lock:
                cached = self._snapshots.get(key)
            if cached is None:
                cached = self._read(metadata, chosen, schema)
                with self._lock:
                    self._snapshots[key] = cached
            return cached

    # --- metadata ----------------------------------------------------------------------------

    def _current(self) -> tuple[str, TableMetadata]:
        """The metadata of the table, and where it is."""
        if self.uri.startswith(CATALOG):
            return self._in_catalog()
        try:
            location, meta = self._named() if self.uri.endswith(_SUFFIX) else self._newest()
            # A table that was dropped and made again may have a file of the same name.
            key = (location, meta.size, meta.modified_ms, meta.etag)
            with self._lock:
                parsed = self._metadata.get(key)
            if parsed is None:
                parsed = self._parsed(location, self._files.read(location))
                with self._lock:
                    self._metadata[key] = parsed
        except ObjectNotFoundError:
            raise SourceMissingError(self.uri, "Iceberg") from None
        return location, parsed

    def _parsed(self, location: str, data: bytes) -> TableMetadata:
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.serializers import Compressor, FromByteStream

        stream: Any = io.BytesIO(data)
        compression = Compressor.get_compressor(location)
        try:
            return FromByteStream.table_metadata(stream, compression=compression)
        except (ValidationError, ValueError, KeyError, OSError) as error:
            text = " ".join(str(error).split())
            raise UnsupportedSourceError(
                self.uri, f"pyiceberg does not understand '{location}' ({text[:300]})"
            ) from None

    def _named(self) -> tuple[str, ObjectMeta]:
        """The metadata file that the table is named by."""
        store, path = self._files.located(self.uri)
        return self.uri, store.head(path)

    def _newest(self) -> tuple[str, ObjectMeta]:
        """The newest metadata file of a folder: the one with the highest number."""
        numbered: dict[int, list[ObjectMeta]] = {}
        for meta in self._files.store(self.uri).list("metadata"):
            if match := _VERSION.fullmatch(meta.path.rpartition("/")[2]):
                numbered.setdefault(int(match[1]), []).append(meta)
        if not numbered:
            raise SourceMissingError(self.uri, "Iceberg")
        highest = max(numbered)
        newest = numbered[highest]
        if len(newest) > 1:
            raise UnsupportedSourceError(
                self.uri, f"it has {len(newest)} metadata files of the number {highest}, and only "
                "its catalog says which of them is valid. Name a metadata file or the catalog",
            )  # fmt: skip
        return f"{self.uri}/{newest[0].path}", newest[0]

    def _in_catalog(self) -> tuple[str, TableMetadata]:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        name, _, identifier = self.uri.removeprefix(CATALOG).partition("/")
        if not name or not identifier:
            raise LakeError(
                f"'{self.uri}' does not name a table. Write catalog://<catalog>/<namespace>.<table>."
            )
        try:
            table = load_catalog(name, **self._catalog_options).load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise SourceMissingError(self.uri, "Iceberg") from None
        except ValueError as error:
            message = scrub(str(error), self.options)
            raise LakeError(
                f"pyiceberg cannot load the catalog of '{self.uri}': {message}."
            ) from None
        return table.metadata_location, table.metadata

    def _chosen(
        self, metadata: TableMetadata, version: int | None, timestamp_ms: int | None
    ) -> tuple[Snapshot | None, Schema]:
        """A snapshot, if the table has one, and the columns that it had."""
        if version is None and timestamp_ms is None:
            current = metadata.current_snapshot_id
            chosen = None if current is None else metadata.snapshot_by_id(current)
            if current is not None and chosen is None:
                raise UnsupportedSourceError(self.uri, f"its snapshot {current} is missing")
            return chosen, metadata.schema()
        identity = version
        if timestamp_ms is not None:
            identity = self._at(metadata, timestamp_ms)
        chosen = None if identity is None else metadata.snapshot_by_id(identity)
        if chosen is None:
            raise SourceVersionError(
                self.uri, identity or 0, "a version is the id of a snapshot that has not expired"
            )
        schema = None if chosen.schema_id is None else metadata.schema_by_id(chosen.schema_id)
        return chosen, schema or metadata.schema()

    def _at(self, metadata: TableMetadata, timestamp_ms: int) -> int:
        for entry in reversed(metadata.snapshot_log):
            if entry.timestamp_ms <= timestamp_ms:
                return entry.snapshot_id
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timestamp_ms)
        raise SourceVersionError(self.uri, f"of {moment}", "its history begins later")

    # --- files -------------------------------------------------------------------------------

    def _read(
        self, metadata: TableMetadata, chosen: Snapshot | None, schema: Schema
    ) -> SourceSnapshot:
        names = _mapped_names(metadata)
        columns = SourceColumns(
            {f.name: _place(f, names) for f in schema.fields}, by_id=True, needs_ids=True
        )
        shown = pa.schema([pa.field(f.name, _type(f.field_type, f.name)) for f in schema.fields])
        refuse_hidden(shown.names)
        root = place_of(metadata.location)
        store = self._files.store(root)
        files: list[SourceFile] = []
        if chosen is not None:
            entries = self._files.entries(chosen.manifest_list)
            live = data_files(entries)
            ids = {f.field_id: f.name for f in schema.fields}
            keys = {number for entry in entries for number in entry.equality_ids}
            # A column that deletes compare may have been dropped since.
            declared = {f.field_id: f for s in (*metadata.schemas, schema) for f in s.fields}
            needed = {i: f for i, f in declared.items() if i in ids or i in keys}
            constants = {entry.location: self._constants(entry, metadata, needed) for entry in live}
            dead = self._files.dead_rows(
                entries,
                {
                    number: KeyColumn(_type(f.field_type, f.name), _place(f, names))
                    for number, f in needed.items()
                    if number in keys and f.field_type.is_primitive
                },
                constants,
                unpartitioned={s.spec_id for s in metadata.partition_specs if s.is_unpartitioned()},
            )
            for entry in live:
                values = {ids[i]: v for i, v in constants[entry.location].items() if i in ids}
                place = place_of(entry.location)
                inside = place.startswith(f"{root}/")
                files.append(
                    SourceFile(
                        place.removeprefix(f"{root}/"),
                        entry.size,
                        f"{metadata.table_uuid}-{entry.added_by}",
                        entry.rows,
                        dead=dead.get(entry.location),
                        constants=values,
                        outside=None if inside else self._files.located(entry.location),
                    )
                )
        number = None if chosen is None else chosen.snapshot_id
        version = "no snapshot" if number is None else f"snapshot {number}"
        return SourceSnapshot(store, version, shown, (), columns, tuple(files), number=number)

    def _constants(
        self, entry: Entry, metadata: TableMetadata, declared_fields: Mapping[int, NestedField]
    ) -> dict[int, Any]:
        """Values of columns that a file may lack: those of its partition, and default values."""
        from pyiceberg.transforms import IdentityTransform

        constants = {}
        for number, declared in declared_fields.items():
            default = declared.initial_default
            if default is not None:
                constants[number] = _scalar(default, declared)
        spec = metadata.specs().get(entry.spec)
        if spec is None or len(spec.fields) != len(entry.partition):
            raise UnsupportedSourceError(
                self.uri, f"its file '{entry.location}' is of a partition spec that is not known"
            )
        for part, value in zip(spec.fields, entry.partition, strict=True):
            column = declared_fields.get(part.source_id)
            if value is not None and column and isinstance(part.transform, IdentityTransform):
                constants[part.source_id] = _scalar(value, column)
        return constants

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SchemaError as error:
            raise UnsupportedSourceError(self.uri, str(error).rstrip(".")) from None
        except ObjectNotFoundError as error:
            raise UnsupportedSourceError(
                self.uri, f"its metadata names a file that is missing ({error})".rstrip(".")
            ) from None
        except Exception as error:
            if not type(error).__module__.startswith("pyiceberg"):
                raise
            message = scrub(str(error), self.options)
            raise UnsupportedSourceError(self.uri, message) from None


# --- columns -------------------------------------------------------------------------------------


def _mapped_names(metadata: TableMetadata) -> dict[int, tuple[str, ...]]:
    """The names of fields in files that have no field ids."""
    mapped: dict[int, tuple[str, ...]] = {}

    def walk(fields: Any) -> None:
        for mapped_field in fields:
            if mapped_field.field_id is not None:
                mapped[mapped_field.field_id] = tuple(mapped_field.names)
            walk(mapped_field.fields)

    walk(metadata.name_mapping() or ())
    return mapped


def _place(declared: NestedField, names: Mapping[int, tuple[str, ...]]) -> Place:
    number, field_type = declared.field_id, declared.field_type
    mapped_names = names.get(number, ())
    inner = _inner(field_type, names)
    return Place(number, mapped_names) if inner is None else Place(number, mapped_names, **inner)


def _inner(field_type: Any, names: Mapping[int, tuple[str, ...]]) -> dict[str, Any] | None:
    """What a place says about the inside of a type; None if values are used as they are."""
    if field_type.is_struct:
        for f in field_type.fields:
            if f.initial_default is not None:
                raise SchemaError(f"its nested field '{f.name}' has a default value")
        return {"fields": {f.name: _place(f, names) for f in field_type.fields}}
    if hasattr(field_type, "element_type"):
        inner = _inner(field_type.element_type, names)
        return None if inner is None else {"element": Place(field_type.element_id, **inner)}
    if hasattr(field_type, "value_type"):
        nested = [_inner(k, names) for k in (field_type.key_type, field_type.value_type)]
        if any(one is not None for one in nested):
            return {"problem": "a map of nested values in an Iceberg table is not supported"}
        return None
    return {"is_uuid": True} if str(field_type) == "uuid" else None


def _type(iceberg_type: Any, path: str) -> Any:
    """The type of a column as Spark has it."""
    if iceberg_type.is_struct:
        fields = [
            pa.field(f.name, _type(f.field_type, f"{path}.{f.name}")) for f in iceberg_type.fields
        ]
        return pa.struct(fields)
    if hasattr(iceberg_type, "element_type"):
        return pa.list_(pa.field("element", _type(iceberg_type.element_type, f"{path}.element")))
    if hasattr(iceberg_type, "value_type"):
        return map_of(
            pa.field("key", _type(iceberg_type.key_type, f"{path}.key"), nullable=False),
            pa.field("value", _type(iceberg_type.value_type, f"{path}.value")),
        )
    name = str(iceberg_type)
    if name.startswith("decimal"):
        return pa.decimal128(iceberg_type.precision, iceberg_type.scale)
    if name.startswith("fixed"):
        return pa.binary()
    if name not in _TYPES:
        raise SchemaError(f"its column '{path}' has the type {name}")
    return SIMPLE[_TYPES[name]]


def _scalar(value: Any, declared: NestedField) -> Any:
    """A value as Iceberg keeps it, of the column's type. Days and microseconds are numbers."""
    data_type = _type(declared.field_type, declared.name)
    if str(declared.field_type) == "uuid":
        value = str(value if isinstance(value, UUID) else UUID(bytes=bytes(value)))
    if pa.types.is_temporal(data_type) and isinstance(value, int):
        stored: Any = pa.scalar(value, pa.int32() if pa.types.is_date32(data_type) else pa.int64())
        return stored.cast(data_type)
    return pa.scalar(value, data_type)
