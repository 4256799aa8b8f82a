"""A Delta table as the source of a search index, read by delta-rs.

delta-rs reads the log: the live files, partition values and deletion vectors of a version. What it
does not understand, and what we do not, is refused by name. Rows are read by `rows`, so a reader
feature is supported only if it is in `_READER_FEATURES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import orjson
import pyarrow as pa

from indextables.errors import (
    ObjectNotFoundError,
    SchemaError,
    SourceMissingError,
    SourceVersionError,
    UnsupportedSourceError,
    require,
)
from indextables.lake.rows import Place, SourceColumns
from indextables.lake.source import SourceFile, SourceSnapshot
from indextables.schema import from_json, refuse_hidden
from indextables.split.row_numbers import RowNumbers
from indextables.split.write.partitioning import partition_text
from indextables.storage import Store, open_store
from indextables.storage.location import client_settings, parse_location, scrub

if TYPE_CHECKING:
    from deltalake import DeltaTable

_READER_FEATURES = {
    "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview",
    "v2Checkpoint", "vacuumProtocolCheck", "inCommitTimestamp",
}  # fmt: skip
_NEWEST_READER = 3
_UNADDRESSABLE = re.compile(r"[\[\]%]")
"""delta-rs confuses these with the syntax of URLs."""
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|/")


@dataclass
class DeltaSource:
    """A Delta table at a URI."""

    uri: str
    storage_options: Mapping[str, object] = field(default_factory=dict, repr=False)

    format = "delta"

    def __post_init__(self) -> None:
        self.store: Store = open_store(self.uri, self.storage_options)
        self.uri = self.store.uri

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
        known_schema: pa.Schema | None = None,  # noqa: ARG002 - the log has the schema
        is_known: Callable[[SourceFile], bool] = lambda _file: False,  # noqa: ARG002
    ) -> SourceSnapshot:
        """The newest version, or another one that the log still has."""
        with self._errors(version):
            table = self._open(version)
            if timestamp_ms is not None:
                self._travel(table, timestamp_ms)
            self._check_protocol(table)
            document = orjson.loads(table.schema().to_json())
            metadata = table.metadata()
            partition_columns = tuple(metadata.partition_columns)
            mode = metadata.configuration.get("delta.columnMapping.mode", "none")
            schema = _plain(from_json(orjson.dumps(document)))
            refuse_hidden(schema.names)
            return SourceSnapshot(
                self.store,
                f"version {table.version()}",
                schema,
                partition_columns,
                self._columns(document, mode),
                tuple(self._files(table, schema, partition_columns, str(metadata.id))),
                number=table.version(),
            )

    def _open(self, version: int | None) -> DeltaTable:
        require("deltalake", extra="delta", for_what="Reading a Delta table")
        from deltalake import DeltaTable

        location = parse_location(self.uri)
        if location.scheme in ("memory", "hdfs") or _UNADDRESSABLE.search(self.uri):
            raise UnsupportedSourceError(self.uri, "delta-rs cannot read a table at such a place")
        options = {}
        if location.scheme != "file":
            options = client_settings(self.storage_options, uri=self.uri)[0]
        if not DeltaTable.is_deltatable(self.uri, options):
            raise SourceMissingError(self.uri, "Delta")
        return DeltaTable(self.uri, version=version, storage_options=options)

    def _travel(self, table: DeltaTable, timestamp_ms: int) -> None:
        """Go to the version of a time. Before the first one delta-rs returns the first one."""
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timestamp_ms)
        table.load_as_version(moment)
        with suppress(ObjectNotFoundError):  # old versions of a log are cleaned up
            committed = self.store.head(f"_delta_log/{table.version():020}.json").modified_ms
            if committed > timestamp_ms:
                raise SourceVersionError(self.uri, f"of {moment}", "its log begins later")

    def _check_protocol(self, table: DeltaTable) -> None:
        protocol = table.protocol()
        if protocol.min_reader_version > _NEWEST_READER:
            raise UnsupportedSourceError(
                self.uri, f"it needs version {protocol.min_reader_version} of Delta's readers"
            )
        unknown = sorted(set(protocol.reader_features or ()) - _READER_FEATURES)
        if unknown:
            raise UnsupportedSourceError(
                self.uri, f"it has the reader features {', '.join(unknown)}"
            )

    def _columns(self, document: Mapping[str, Any], mode: str) -> SourceColumns:
        if mode == "none":
            return SourceColumns()
        if mode not in ("name", "id"):
            raise UnsupportedSourceError(self.uri, f"its column mapping has the mode {mode!r}")
        by_id = mode == "id"
        return SourceColumns(
            {f["name"]: _place(f, by_id=by_id) for f in document["fields"]}, by_id=by_id
        )

    def _files(
        self, table: DeltaTable, schema: pa.Schema, partition_columns: tuple[str, ...], stamp: str
    ) -> Iterator[SourceFile]:
        arrow: Any = pa.table
        adds = arrow(table.get_add_actions())
        if not adds.num_rows:
            return
        partitions = self._partitions(adds, schema, partition_columns)
        dead = self._dead(table)
        rows = adds["num_records"].to_pylist()
        sizes = adds["size_bytes"].to_pylist()
        for at, encoded in enumerate(adds["path"].to_pylist()):
            if _ABSOLUTE.match(encoded):
                raise UnsupportedSourceError(
                    self.uri, f"its file '{encoded}' is outside of the table, as in a shallow clone"
                )
            path = unquote(encoded)
            partition = {name: values[at] for name, values in partitions.items()}
            vector = dead.pop(path, None)
            yield SourceFile(path, sizes[at], stamp, rows[at], partition, vector)
        if dead:
            raise UnsupportedSourceError(
                self.uri, f"a deletion vector names '{next(iter(dead))}', which is not a live file"
            )

    def _partitions(
        self, adds: Any, schema: pa.Schema, names: tuple[str, ...]
    ) -> dict[str, list[str | None]]:
        if not names:
            return {}
        values = adds["partition"].combine_chunks()
        texts = {}
        for name in names:
            data_type = schema.field(name).type
            if pa.types.is_binary(data_type):
                raise UnsupportedSourceError(self.uri, f"its partition column '{name}' is binary")
            column = values.field(name).cast(data_type)
            texts[name] = partition_text(column).to_pylist()
        return texts

    def _dead(self, table: DeltaTable) -> dict[str, RowNumbers]:
        """The deleted rows of files, by their paths."""
        if "deletionVectors" not in (table.protocol().reader_features or ()):
            return {}
        arrow: Any = pa.table
        vectors = arrow(table.deletion_vectors())
        root = table.table_uri.rstrip("/") + "/"
        dead = {}
        for uri, kept in zip(
            vectors["filepath"].to_pylist(), vectors["selection_vector"], strict=True
        ):
            path = _below(uri, root)
            if path is None:
                raise UnsupportedSourceError(self.uri, f"its file '{uri}' is outside of the table")
            mask = np.asarray(kept.values.to_numpy(zero_copy_only=False), dtype=np.bool_)
            dead[path] = np.flatnonzero(~mask).astype(np.int64)
        return dead

    @contextmanager
    def _errors(self, version: int | None) -> Iterator[None]:
        try:
            yield
        except SchemaError as error:
            raise UnsupportedSourceError(self.uri, str(error).rstrip(".")) from None
        except Exception as error:
            if type(error).__module__ not in ("_internal", "deltalake.exceptions"):
                raise
            message = scrub(str(error), self.storage_options)
            if version is not None and "version" in message.lower():
                raise SourceVersionError(self.uri, version, message) from None
            raise UnsupportedSourceError(self.uri, message) from None


def _place(declared: Mapping[str, Any], *, by_id: bool) -> Place:
    """Where a field of a table with a column mapping is."""
    metadata = declared["metadata"]
    key = metadata["delta.columnMapping.id" if by_id else "delta.columnMapping.physicalName"]
    return _inner_place(declared["type"], key, by_id=by_id) or Place(key)


def _inner_place(delta_type: Any, key: int | str, *, by_id: bool) -> Place | None:
    """The place of a field of a nested type; None if there are no names in it."""
    name = delta_type.get("type") if isinstance(delta_type, Mapping) else None
    if name == "struct":
        return Place(key, fields={f["name"]: _place(f, by_id=by_id) for f in delta_type["fields"]})
    if name == "array":
        element = _inner_place(delta_type["elementType"], "", by_id=by_id)
        return None if element is None else Place(key, element=element)
    if name == "map" and any(isinstance(delta_type[k], Mapping) for k in ("keyType", "valueType")):
        problem = "a map of nested values under a column mapping is not supported"
        return Place(key, problem=problem)
    return None


def _below(uri: str, root: str) -> str | None:
    """The path of a file of the table, given its URI."""
    plain, base = (unquote(text.removeprefix("file://")) for text in (uri, root))
    return plain.removeprefix(base) if plain.startswith(base) else None


def _plain(schema: pa.Schema) -> pa.Schema:
    """The columns without what Delta notes about them; any may be null in older files."""
    return pa.schema(pa.field(f.name, _plain_type(f.type)) for f in schema)


def _plain_type(data_type: Any) -> Any:
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(f.name, _plain_type(f.type)) for f in data_type.fields])
    if pa.types.is_list(data_type):
        return pa.list_(pa.field("element", _plain_type(data_type.value_type)))
    return data_type
