"""Our actions in the words of Delta's protocol.

A split is a Parquet file, partition values are text in both logs and deletion vectors have Delta's
format already. What differs: paths are URIs, statistics are values and not texts, a vector's split
counts all its rows, and a column that was renamed is a column mapping.

The protocol names a writer's feature that no other product has. Readers do not ask for it; a Delta
writer, and Delta's VACUUM, refuse the table, because our log would not hear of what they do.
"""

from __future__ import annotations

import datetime
import functools
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa

from indextables.log.actions import (
    COLUMN_NAMES,
    DELETION_VECTORS,
    Action,
    Add,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from indextables.log.layout import ENGINE
from indextables.log.snapshot import Snapshot, VersionActions
from indextables.schema import from_json
from indextables.schema.types import SHOWN_NAME

WRITER_FEATURE = "indextables"
"""Stops Delta's writers: the log of this table is not `_delta_log`."""
_MAPPING, _NTZ, _WIDENING = "columnMapping", "timestampNtz", "typeWidening"
_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_CHANGES = "delta.typeChanges"
_INNER = ("elementType", "keyType", "valueType")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SPECIAL = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that a column without a mapping must not have in its name."""
_EPOCH = datetime.datetime(1970, 1, 1)

Document = dict[str, Any]


def version_documents(
    version: VersionActions, snapshot: Snapshot, *, before: Document | None
) -> list[Document]:
    """One version: `snapshot` is the table after it, `before` Delta's metadata until then."""
    documents = [commit_document(version)]
    metadata = metadata_document(snapshot, before)
    if before is None or metadata != before:
        documents += [protocol_document(snapshot, metadata), {"metaData": metadata}]
    elif any(isinstance(action, Protocol) for action in version.actions):
        documents.append(protocol_document(snapshot, metadata))
    return documents + file_documents(version, columns_of(snapshot.metadata))


def file_documents(version: VersionActions, columns: Columns) -> list[Document]:
    """The add and remove actions of a version."""
    documents = (file_document(a, columns, default_ms=version.timestamp) for a in version.actions)
    return [document for document in documents if document is not None]


def commit_document(version: VersionActions) -> Document:
    """The commitInfo, which distinguishes a mirrored version from that of another writer."""
    info = version.commit_info
    return {"commitInfo": {
        "timestamp": version.timestamp,
        "operation": info.operation if info else "WRITE",
        "operationParameters": {} if info is None else _texts(info.operation_parameters),
        "engineInfo": ENGINE,
        "isBlindAppend": False,
        WRITER_FEATURE: {"version": version.version, "txnId": info.txn_id if info else None},
    }}  # fmt: skip


def _texts(parameters: Mapping[str, Any] | None) -> Document:
    return {k: v if isinstance(v, str) else orjson.dumps(v, default=str).decode()
            for k, v in (parameters or {}).items()}  # fmt: skip


# --- protocol and metadata -----------------------------------------------------------------------


def protocol_document(snapshot: Snapshot, metadata: Document) -> Document:
    """The protocol that a reader of the mirror needs at this version."""
    features = []
    if DELETION_VECTORS in (snapshot.protocol.reader_features or ()):
        features.append(DELETION_VECTORS)
    if "delta.columnMapping.mode" in metadata["configuration"]:
        features.append(_MAPPING)
    if '"timestamp_ntz"' in metadata["schemaString"]:
        features.append(_NTZ)
    if _CHANGES in metadata["schemaString"]:
        features.append(_WIDENING)
    body: Document = {"minReaderVersion": 3 if features else 1, "minWriterVersion": 7}
    if features:
        body["readerFeatures"] = features
    return {"protocol": {**body, "writerFeatures": [*features, WRITER_FEATURE]}}


def metadata_document(snapshot: Snapshot, before: Document | None) -> Document:
    """The metadata of a version. `before` has the types that columns had in older splits."""
    table_metadata = snapshot.metadata
    document = orjson.loads(table_metadata.schema_string)
    mapped = COLUMN_NAMES in (snapshot.protocol.reader_features or ()) or any(
        _SPECIAL.search(field["name"]) for field in _every_field(document)
    )
    shown = {
        f["name"]: f.get("metadata", {}).get(SHOWN_NAME, f["name"]) for f in document["fields"]
    }
    schema = {"type": "struct", "fields": [_field(f, "", mapped) for f in document["fields"]]}
    if before is not None:
        _note_changes(orjson.loads(before["schemaString"]), schema)
    configuration: Document = {}
    if mapped:
        highest = max((f["metadata"][_ID] for f in _every_field(schema)), default=0)
        configuration["delta.columnMapping.mode"] = "name"
        configuration["delta.columnMapping.maxColumnId"] = str(highest)
    text = orjson.dumps(schema).decode()
    if _CHANGES in text:
        configuration["delta.enableTypeWidening"] = "true"
    if DELETION_VECTORS in (snapshot.protocol.reader_features or ()):
        configuration["delta.enableDeletionVectors"] = "true"
    action = {
        "id": table_metadata.id,
        "name": table_metadata.name,
        "description": table_metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": text,
        "partitionColumns": [shown[name] for name in table_metadata.partition_columns],
        "configuration": configuration,
        "createdTime": table_metadata.created_time,
    }
    return {name: value for name, value in action.items() if value is not None}


def _field(field: Document, parent: str, mapped: bool) -> Document:
    """A column, or a field inside one, with the name that users have for it."""
    field_metadata = field.get("metadata") or {}
    metadata = {
        key: value
        for key, value in field_metadata.items()
        if isinstance(value, str | int | float | bool) and not key.startswith(("delta.", "__"))
    }
    shown = metadata.pop(SHOWN_NAME, field["name"])
    path = f"{parent}{field['name']}"
    if mapped:
        # Splits have no ids; a number that only depends on the stored name never changes.
        metadata[_ID] = (zlib.crc32(path.encode()) & 0x7FFF_FFFE) + 1
        metadata[_PHYSICAL] = field["name"]
    delta_type = _type(field["type"], f"{path}.", mapped)
    return {"name": shown, "type": delta_type, "nullable": field["nullable"], "metadata": metadata}


def _type(spark_type: Any, parent: str, mapped: bool) -> Any:
    if not isinstance(spark_type, dict):
        return spark_type
    if spark_type["type"] == "struct":
        return {**spark_type, "fields": [_field(f, parent, mapped) for f in spark_type["fields"]]}
    inner = {name: _type(spark_type[name], f"{parent}{name}.", mapped)
             for name in _INNER if name in spark_type}  # fmt: skip
    return {**spark_type, **inner}


def _every_field(spark_type: Any) -> Iterator[Document]:
    if not isinstance(spark_type, dict):
        return
    for field in spark_type.get("fields", ()):
        yield field
        yield from _every_field(field["type"])
    for name in _INNER:
        yield from _every_field(spark_type.get(name))


def _note_changes(old: Any, new: Any) -> None:
    """Add the decimals that got more digits since, as Delta notes it.

    Some readers take the digits of an older file for those of the new type, which are other values.
    Whole numbers and floats they widen, or refuse, by what the file itself says.
    """
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    former_fields = {_stored(field): field for field in old.get("fields", ())}
    for field in new.get("fields", ()):
        if (former := former_fields.get(_stored(field))) is None:
            continue
        changes = list(former["metadata"].get(_CHANGES, ()))
        for path, before, after in _widened(former["type"], field["type"], ""):
            change = {"fromType": before, "toType": after}
            changes.append({**change, "fieldPath": path} if path else change)
        kinds = orjson.dumps(field["type"])
        if changes and b"decimal" in kinds:  # not if the column was replaced by another one
            field["metadata"][_CHANGES] = changes
        _note_inside(former["type"], field["type"])


def _note_inside(old: Any, new: Any) -> None:
    _note_changes(old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        for name in _INNER:
            _note_inside(old.get(name), new.get(name))


def _stored(field: Document) -> str:
    return str(field["metadata"].get(_PHYSICAL, field["name"]))


def _widened(old: Any, new: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(old, str) and isinstance(new, str):
        before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
        if old != new and before and after and int(after[1]) >= int(before[1]):
            yield path, old, new
    elif isinstance(old, dict) and isinstance(new, dict):
        for name in _INNER:
            if name in old and name in new:
                inner = f"{path}.{name}".removeprefix(".").replace("Type", "")
                yield from _widened(old[name], new[name], inner)


# --- files -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table by their stored names, and which of them are in no file."""

    kinds: Mapping[str, pa.DataType]
    partition_by: tuple[str, ...]


def columns_of(metadata: Metadata) -> Columns:
    """The columns of the values in add and remove actions."""
    return _columns(metadata.schema_string, metadata.partition_columns)


@functools.lru_cache(maxsize=64)
def _columns(schema_string: str, partition_by: tuple[str, ...]) -> Columns:
    return Columns({field.name: field.type for field in from_json(schema_string)}, partition_by)


def file_document(action: Action, columns: Columns, *, default_ms: int) -> Document | None:
    """An add, a remove or a stream's progress; None for actions that Delta does not have."""
    match action:
        case Add():
            return {"add": add_body(action, columns)}
        case Remove():
            body: Document = {
                "path": quote(action.path, safe="/="),
                "deletionTimestamp": action.deletion_timestamp or default_ms,
                "dataChange": action.data_change,
            }
            if action.partition_values is not None and action.size is not None:
                values = _partition_values(action.partition_values, columns)
                body |= {"extendedFileMetadata": True, "partitionValues": values,
                         "size": action.size}  # fmt: skip
            if action.deletion_vector is not None:
                body["deletionVector"] = dict(action.deletion_vector)
            return {"remove": body}
        case Txn():
            return {"txn": {"appId": action.app_id, "version": action.version,
                            "lastUpdated": action.last_updated}}  # fmt: skip
    return None


def add_body(add: Add, columns: Columns) -> Document:
    """A live split."""
    values = {name: add.partition_values.get(name) for name in columns.partition_by}
    body: Document = {
        "path": quote(add.path, safe="/="),
        "partitionValues": _partition_values(values, columns),
        "size": add.size,
        "modificationTime": add.modification_time,
        "dataChange": add.data_change,
    }
    if (stats := _statistics(add, columns.kinds)) is not None:
        body["stats"] = stats
    if add.deletion_vector is not None:
        body["deletionVector"] = dict(add.deletion_vector)
    return body


def _partition_values(values: Mapping[str, str | None], columns: Columns) -> Document:
    """Partition values as Delta spells them."""
    return {name: _partition_text(text, columns.kinds.get(name)) for name, text in values.items()}


def _partition_text(text: str | None, data_type: Any) -> str | None:
    if text is None or data_type is None:
        return text
    if pa.types.is_floating(data_type) and not math.isfinite(number := float(text)):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if pa.types.is_decimal(data_type):
        return format(Decimal(text), "f")
    if pa.types.is_timestamp(data_type) and data_type.tz is None:
        return text.replace("T", " ")
    return text


def _statistics(add: Add, schema: Mapping[str, pa.DataType]) -> str | None:
    """Statistics by which readers skip a file: the number of all its rows, bounds, null counts."""
    if add.num_records is None:
        return None
    stated = orjson.loads(add.stats) if add.stats else {}
    marked = (add.deletion_vector or {}).get("cardinality", 0)
    nans = stated.get("nanCount") or {}
    low = _bounds(add.min_values, schema, nans, highest=False)
    high = _bounds(add.max_values, schema, nans, highest=True)
    statistics = {"numRecords": add.num_records + marked, "minValues": low, "maxValues": high,
             "nullCount": stated.get("nullCount") or {}, "tightBounds": not marked}  # fmt: skip
    return orjson.dumps(statistics).decode()


def _bounds(
    texts: Mapping[str, str] | None,
    schema: Mapping[str, pa.DataType],
    nans: Mapping[str, int],
    *,
    highest: bool,
) -> Document:
    bounds = {}
    for name, text in (texts or {}).items():
        # A NaN is greater than all else for some readers, and no value for others.
        if name in schema and not nans.get(name):
            value = _bound(text, schema[name], highest=highest)
            if value is not None:
                bounds[name] = value
    return bounds


_WHOLE = re.compile(r"-?\d{1,19}")


def _bound(text: str, data_type: Any, *, highest: bool) -> Any:
    """A bound as a JSON value of its type; None for what readers could misunderstand."""
    if pa.types.is_string(data_type):
        return text
    if pa.types.is_integer(data_type):
        return int(text) if _WHOLE.fullmatch(text) else None
    if pa.types.is_floating(data_type):
        number = float(text)
        if number == 0:  # zeros are equal here; a reader may put one before the other
            return 0.0 if highest else -0.0
        return number if math.isfinite(number) else None
    if pa.types.is_decimal(data_type):
        try:
            return orjson.Fragment(format(Decimal(text), "f").encode())
        except InvalidOperation:
            return None
    if pa.types.is_date(data_type):
        return text
    if pa.types.is_timestamp(data_type) and _WHOLE.fullmatch(text):
        try:
            moment = _EPOCH + datetime.timedelta(microseconds=int(text))
        except OverflowError:
            return None
        return moment.isoformat(timespec="microseconds") + ("Z" if data_type.tz else "")
    return None
