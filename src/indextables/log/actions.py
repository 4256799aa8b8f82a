"""The actions of a log: what one version changes in the table, and which tables can be used.

A version file is a list of actions, each a JSON object with one key, the kind of the action.
Attributes are the snake_case spelling of the protocol's names. Fields that this release does not
know are kept in `extra` and written back; kinds that it does not know become `UnknownAction`.

Protocol 1 is the basic log, 2 adds skips and footer offsets, 3 multi-part checkpoints, mapping
deduplication and feature names, 4 the Avro state. A feature that this release does not know is
refused, whatever the version says. An upgrade never lowers a number and never drops a feature.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from indextables import config as keys
from indextables.config import Config
from indextables.errors import CorruptLogError, UnsupportedFeatureError, UnsupportedProtocolError


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """The common part. `kind` is the key in the log; subclasses name it."""

    kind: ClassVar[str] = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The action as the log writes it; what is None is left out."""
        body = {
            name: value
            for attribute, name in _JSON_NAMES[type(self)].items()
            if (value := getattr(self, attribute)) is not None
        }
        return {self.kind: {**body, **self.extra}}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo(Action):
    """Who committed, what and when. `txn_id` says whether an existing version is the writer's own.

    Timestamps rise from version to version even when a clock goes backwards.
    """

    kind: ClassVar[str] = "commitInfo"
    txn_id: str
    timestamp: int
    operation: str
    operation_parameters: Mapping[str, Any] | None = None
    operation_metrics: Mapping[str, Any] | None = None
    read_version: int | None = None
    engine_info: str | None = None
    checksum: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol(Action):
    """The least reader and writer that may touch the table."""

    kind: ClassVar[str] = "protocol"
    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata(Action):
    """Schema, partitioning and properties of the table."""

    kind: ClassVar[str] = "metaData"
    id: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    format: Mapping[str, Any] = field(
        default_factory=lambda: {"provider": "indextables", "options": {}}
    )
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    created_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Action):
    """A split that belongs to the table from this version on."""

    kind: ClassVar[str] = "add"
    path: str
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    size: int = 0
    modification_time: int = 0
    data_change: bool = True
    stats: str | None = None
    tags: Mapping[str, str] | None = None
    min_values: Mapping[str, str] | None = None
    max_values: Mapping[str, str] | None = None
    num_records: int | None = None
    footer_start_offset: int | None = None
    footer_end_offset: int | None = None
    hotcache_start_offset: int | None = None
    hotcache_length: int | None = None
    has_footer_offsets: bool = False
    time_range_start: str | None = None
    time_range_end: str | None = None
    split_tags: tuple[str, ...] | None = None
    delete_opstamp: int | None = None
    num_merge_ops: int | None = None
    doc_mapping_ref: str | None = None
    doc_mapping_json: str | None = None
    uncompressed_size_bytes: int | None = None
    companion_source_files: tuple[str, ...] | None = None
    companion_delta_version: int | None = None
    companion_fast_field_mode: str | None = None
    deletion_vector: Mapping[str, Any] | None = None
    """Rows that are deleted (`log.vectors`); `num_records` counts those that are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(Action):
    """A split that no longer belongs to the table; the file itself stays until purge."""

    kind: ClassVar[str] = "remove"
    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    tags: Mapping[str, str] | None = None
    stats: str | None = None
    deletion_vector: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip(Action):
    """A split that a job could not process. It stays readable; jobs leave it alone for a while."""

    kind: ClassVar[str] = "mergeskip"
    path: str
    skip_timestamp: int
    reason: str
    operation: str
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    retry_after: int | None = None
    skip_count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AddXRef(Action):
    """A cross-reference index over some splits."""

    kind: ClassVar[str] = "addXRef"
    path: str
    xref_id: str
    source_split_paths: tuple[str, ...]
    source_split_count: int
    size: int
    total_terms: int
    footer_start_offset: int
    footer_end_offset: int
    created_time: int
    build_duration_ms: int
    max_source_splits: int
    doc_mapping_json: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveXRef(Action):
    """A cross-reference index that is no longer used."""

    kind: ClassVar[str] = "removeXRef"
    path: str
    xref_id: str
    deletion_timestamp: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Txn(Action):
    """How far an application has written: of a stream, its id and the number of its last batch.

    A batch that comes again is in the table already, and is not written twice.
    """

    kind: ClassVar[str] = "txn"
    app_id: str
    version: int
    last_updated: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownAction(Action):
    """A kind of a later release or of another writer. Kept, never interpreted."""

    name: str
    body: Any

    def to_json(self) -> dict[str, Any]:
        return {self.name: self.body}


# --- from JSON -------------------------------------------------------------------------------

_KINDS: tuple[type[Action], ...] = (
    CommitInfo, Protocol, Metadata, Add, Remove, Skip, AddXRef, RemoveXRef, Txn,
)  # fmt: skip


def _camel(attribute: str) -> str:
    first, *following_words = attribute.split("_")
    return first + "".join(word.capitalize() for word in following_words)


_JSON_NAMES: dict[type[Action], dict[str, str]] = {
    kind: {f.name: _camel(f.name) for f in fields(kind) if f.name != "extra"} for kind in _KINDS
}


def _checker(hint: Any, bits: int) -> Callable[[Any], Any]:
    """A function that converts a JSON value to the annotated type or raises TypeError."""
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is types.UnionType:
        inner = next(a for a in arguments if a is not type(None))
        check = _checker(inner, bits)
        return lambda value: None if value is None else check(value)
    if origin is tuple:
        return _strings
    if origin is Mapping:
        return _plain_map if arguments[1] is Any else _string_map

    def exact(value: Any) -> Any:
        if type(value) is not hint:
            raise TypeError(f"expected {hint.__name__}, found {type(value).__name__}")
        if hint is int and not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise TypeError(f"{value} does not fit into {bits} bits")
        return value

    return exact


def _strings(value: Any) -> tuple[str, ...]:
    if type(value) is not list or not all(type(item) is str for item in value):
        raise TypeError("expected a list of strings")
    return tuple(value)


def _string_map(value: Any) -> dict[str, str | None]:
    if type(value) is not dict or not all(v is None or type(v) is str for v in value.values()):
        raise TypeError("expected an object of strings")
    return value


def _plain_map(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise TypeError("expected an object")
    return value


def _decoder(action_type: type[Action]) -> dict[str, tuple[str, Callable[[Any], Any], bool]]:
    hints = typing.get_type_hints(action_type)
    return {
        name: (
            attribute,
            _checker(hints[attribute], 32 if attribute == "num_merge_ops" else 64),
            type(None) in typing.get_args(hints[attribute]),
        )
        for attribute, name in _JSON_NAMES[action_type].items()
    }


_DECODERS = {kind.kind: (kind, _decoder(kind)) for kind in _KINDS}


def action_from_json(document: Any, *, where: str) -> Action:
    """One line of a log as an action.

    >>> action_from_json({"remove": {"path": "a.split"}}, where="v1").path
    'a.split'
    """
    if type(document) is not dict or len(document) != 1:
        raise CorruptLogError(where, "an action is an object with one key")
    ((name, body),) = document.items()
    if name not in _DECODERS:
        return UnknownAction(name=name, body=body)
    return action_from_body(name, body, where=where)


def action_from_body(name: str, body: Any, *, where: str) -> Action:
    """The body of an action whose kind is known, as in `{kind: body}`."""
    action_type, decoder = _DECODERS[name]
    if type(body) is not dict:
        raise CorruptLogError(where, f"the body of '{name}' is not an object")
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    try:
        for key, value in body.items():
            decoding = decoder.get(key)
            if decoding is None:
                extra[key] = value
            elif value is not None or decoding[2]:  # null means "the default" to the Scala writer
                values[decoding[0]] = decoding[1](value)
        return action_type(**values, extra=extra) if extra else action_type(**values)
    except TypeError as error:
        raise CorruptLogError(where, f"'{name}' does not have its fields ({error})") from error


# --- which tables this release may read and write --------------------------------------------

SUPPORTED_VERSION = 4
COLUMN_NAMES = "columnNames"
"""Columns may be stored under another name than users have for them, or stored and not shown."""
COLUMN_DEFAULTS = "columnDefaults"
"""Rows may have a value in a column that their split does not have: the column's default."""
DELETION_VECTORS = "deletionVectors"
"""Splits may hold deleted rows, which a reader without this feature would return."""
STREAMS = "streamTransactions"
"""Checkpoints must keep how far streams have written; readers may ignore it."""
CHECK_CONSTRAINTS = "checkConstraints"
"""Rows must meet the CHECK constraints, which are properties of the table."""
ROWS_ELSEWHERE = "rowsElsewhere"
"""Splits hold an index and no rows: those are in the files of another table."""
CONSTRAINT_PREFIX = "indextables.constraint."
"""The prefix of properties that hold a constraint; its name follows."""

READER_FEATURES = frozenset(
    {
        "skippedFiles", "extendedMetadata", "footerOffsets", "multiPartCheckpoint",
        "schemaDeduplication", "avroState", "crossReferenceIndex", COLUMN_DEFAULTS, COLUMN_NAMES,
        DELETION_VECTORS, ROWS_ELSEWHERE,
    }
)  # fmt: skip
# Readers may ignore cross-references: they only make queries faster. Other writers still list
# them as a feature of readers.
WRITER_FEATURES = READER_FEATURES | {"checkpoint", "optimizeWrite", CHECK_CONSTRAINTS, STREAMS}

DEFAULT_PROTOCOL = Protocol(
    min_reader_version=4,
    min_writer_version=4,
    reader_features=("avroState", "schemaDeduplication"),
    writer_features=("avroState", "schemaDeduplication"),
)


WITH_VECTORS = replace(
    DEFAULT_PROTOCOL,
    reader_features=(DELETION_VECTORS,),
    writer_features=(DELETION_VECTORS,),
)


WITH_ROWS_ELSEWHERE = replace(
    DEFAULT_PROTOCOL,
    reader_features=("avroState", ROWS_ELSEWHERE, "schemaDeduplication"),
    writer_features=("avroState", ROWS_ELSEWHERE, "schemaDeduplication"),
)


def has_vectors(protocol: Protocol) -> bool:
    """Whether splits of a table with this protocol may have deletion vectors."""
    return DELETION_VECTORS in (protocol.reader_features or ())


def has_avro_state(protocol: Protocol) -> bool:
    """Whether readers of a table with this protocol know Avro states."""
    return protocol.min_reader_version >= DEFAULT_PROTOCOL.min_reader_version


def check_readable(protocol: Protocol, *, uri: str, config: Config) -> None:
    """Refuse a table that needs a newer reader."""
    if not config[keys.PROTOCOL_CHECK_ENABLED]:
        return
    _check_version("reader", protocol.min_reader_version, uri=uri)
    _check_features("reader", protocol.reader_features, READER_FEATURES, uri=uri)


def check_writable(protocol: Protocol, *, uri: str, config: Config) -> None:
    """Refuse a table that needs a newer writer."""
    check_readable(protocol, uri=uri, config=config)
    if not config[keys.PROTOCOL_CHECK_ENABLED]:
        return
    _check_version("writer", protocol.min_writer_version, uri=uri)
    _check_features("writer", protocol.writer_features, WRITER_FEATURES, uri=uri)


def _check_version(role: str, required: int, *, uri: str) -> None:
    if required > SUPPORTED_VERSION:
        raise UnsupportedProtocolError(
            uri, role=role, required=required, supported=SUPPORTED_VERSION
        )


def _check_features(
    role: str, required: tuple[str, ...] | None, supported: frozenset[str], *, uri: str
) -> None:
    unknown = sorted(set(required or ()) - supported)
    if unknown:
        raise UnsupportedFeatureError(uri, role=role, features=unknown)


def upgraded(current: Protocol, required: Protocol) -> Protocol:
    """The protocol that serves both: the higher numbers, all features.

    >>> old = Protocol(min_reader_version=2, min_writer_version=4)
    >>> new = upgraded(old, Protocol(min_reader_version=3, min_writer_version=3))
    >>> new.min_reader_version, new.min_writer_version
    (3, 4)
    """
    return replace(
        current,
        min_reader_version=max(current.min_reader_version, required.min_reader_version),
        min_writer_version=max(current.min_writer_version, required.min_writer_version),
        reader_features=_union(current.reader_features, required.reader_features),
        writer_features=_union(current.writer_features, required.writer_features),
    )


def _union(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if one is None and other is None:
        return None
    return tuple(sorted({*(one or ()), *(other or ())}))
