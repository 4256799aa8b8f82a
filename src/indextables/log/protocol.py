"""Which tables this release may read and write.

Protocol 1 is the basic log, 2 adds skips and footer offsets, 3 multi-part checkpoints, mapping
deduplication and feature names, 4 the Avro state. A feature that this release does not know is
refused, whatever the version says. An upgrade never lowers a number and never drops a feature.
"""

from __future__ import annotations

from dataclasses import replace

from indextables import config as keys
from indextables.config import Config
from indextables.errors import UnsupportedFeatureError, UnsupportedProtocolError
from indextables.log.actions import Protocol

SUPPORTED_VERSION = 4
COLUMN_NAMES = "columnNames"
"""Columns may be stored under another name than users have for them, or stored and not shown."""
COLUMN_DEFAULTS = "columnDefaults"
"""Rows may have a value in a column that their split does not have: the column's default."""
DELETION_VECTORS = "deletionVectors"
"""Splits may hold rows that are deleted; who does not know of it would return them."""
STREAMS = "streamTransactions"
"""Checkpoints must keep how far streams have written; readers may ignore it."""
CHECK_CONSTRAINTS = "checkConstraints"
"""No row may make the conditions false that are properties of the table."""
ROWS_ELSEWHERE = "rowsElsewhere"
"""Splits hold an index and no rows: those are in the files of another table."""
CONSTRAINT_PREFIX = "indextables.constraint."
"""Properties that hold such a condition begin like this; its name follows."""

READER_FEATURES = frozenset(
    {
        "skippedFiles", "extendedMetadata", "footerOffsets", "multiPartCheckpoint",
        "schemaDeduplication", "avroState", "crossReferenceIndex", COLUMN_DEFAULTS, COLUMN_NAMES,
        DELETION_VECTORS, ROWS_ELSEWHERE,
    }
)  # fmt: skip
# Readers may ignore cross-references: they only make queries faster. Other writers name them as a
# reader's feature all the same.
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


def upgraded(current: Protocol, wanted: Protocol) -> Protocol:
    """The protocol that serves both: the higher numbers, all features.

    >>> old = Protocol(min_reader_version=2, min_writer_version=4)
    >>> new = upgraded(old, Protocol(min_reader_version=3, min_writer_version=3))
    >>> new.min_reader_version, new.min_writer_version
    (3, 4)
    """
    return replace(
        current,
        min_reader_version=max(current.min_reader_version, wanted.min_reader_version),
        min_writer_version=max(current.min_writer_version, wanted.min_writer_version),
        reader_features=_union(current.reader_features, wanted.reader_features),
        writer_features=_union(current.writer_features, wanted.writer_features),
    )


def _union(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if one is None and other is None:
        return None
    return tuple(sorted({*(one or ()), *(other or ())}))
