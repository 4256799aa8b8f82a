"""Writing a new log: from what an old one still says, or from the splits alone.

The new log has two versions, the table itself and all its splits. It is written where no log is
yet; the old one is never touched. `from_splits` needs no readable log: every split says in its
footer what its log entry was. What it cannot say is whether it was still part of the table. Version
files and checkpoints that can be read are asked for that; what none of them calls removed comes
back.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    LogError,
    ObjectNotFoundError,
    SplitError,
    StatementError,
    StorageError,
)
from indextables.jobs.progress import progress
from indextables.log.actions import (
    DEFAULT_PROTOCOL,
    Action,
    Add,
    Metadata,
    Protocol,
    Remove,
    upgraded,
)
from indextables.log.checkpoint import checkpoints_at, load_checkpoint
from indextables.log.files import adds_from_files
from indextables.log.layout import LOG_DIRECTORY, list_log
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.log.vectors import DeletionVector
from indextables.runner import LocalRunner, Runner
from indextables.schema import evolve, to_json
from indextables.schema.types import stored_schema
from indextables.split.format import Footer, opening_of
from indextables.split.mapping import MAPPING_PROPERTY
from indextables.split.mapping_options import build_mapping
from indextables.split.open_split import SplitFile
from indextables.storage import ObjectMeta, Store
from indextables.xref.container import XREF_PREFIX

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What the new log holds. `source_version` is None where no old log could be read."""

    source_version: int | None
    total_splits: int
    valid_splits: int

    @property
    def missing_splits(self) -> int:
        """Splits that are gone or cannot be read."""
        return self.total_splits - self.valid_splits


def repair_log(
    source: Store,
    target: Store,
    *,
    config: Config,
    from_splits: bool = False,
    runner: Runner | None = None,
) -> Repaired:
    """Write a log at `target` for the splits of `source`."""
    if next(target.list(LOG_DIRECTORY), None) is not None:
        raise StatementError(
            f"'{target.uri}/{LOG_DIRECTORY}' is not empty. Choose a place without a log; the "
            "repaired one can be moved afterwards."
        )
    if from_splits:
        runner = runner or LocalRunner(config[keys.READ_PARALLELISM])
        return _from_splits(source, target, config=config, runner=runner)
    log = TransactionLog(source, config=config)
    snapshot = log.snapshot()
    sizes = {meta.path: meta.size for meta in source.list() if meta.path.endswith(".split")}
    adds = adds_from_files(snapshot.entries)
    valid = [replace(a, data_change=True) for a in adds if sizes.get(a.path) == a.size]
    kept = [*snapshot.txns.values(), *valid]
    _write(target, snapshot.metadata, snapshot.protocol, kept, config=config)
    return Repaired(snapshot.version, len(adds), len(valid))


def _write(
    target: Store,
    metadata: Metadata,
    protocol: Protocol,
    actions: Sequence[Action],
    *,
    config: Config,
) -> None:
    log = TransactionLog.create(target, metadata, protocol=protocol, config=config)
    log.commit(
        Transaction(
            operation=Operation.APPEND,
            actions=actions,
            files_are_here=False,
            parameters={"repair": "transaction log"},
        )
    )


# --- from the splits ---------------------------------------------------------------------------


def _from_splits(source: Store, target: Store, *, config: Config, runner: Runner) -> Repaired:
    remains = _remains(TransactionLog(source, config=config), config=config)
    splits = [
        meta
        for meta in source.list()
        if meta.path.endswith(".split")
        and not meta.path.startswith(LOG_DIRECTORY + "/")
        and not meta.path.rpartition("/")[2].startswith(XREF_PREFIX)
        and meta.path not in remains.removed
    ]
    if not splits:
        raise StatementError(f"'{source.uri}' holds no splits. Nothing was written.")
    with progress("Reading", len(splits), "files", table=source.uri) as advance:
        read = runner.map(functools.partial(_footer, source), splits, ended=lambda _: advance(1))
    entries = [
        (meta, footer) for meta, footer in zip(splits, read, strict=True) if footer is not None
    ]
    if not entries:
        raise StatementError(f"None of the splits of '{source.uri}' can be read.")
    metadata = remains.metadata or described([footer for _, footer in entries])
    adds = [_add(meta, footer, remains.vectors.get(meta.path)) for meta, footer in entries]
    _write(target, metadata, upgraded(DEFAULT_PROTOCOL, remains.protocol), adds, config=config)
    return Repaired(remains.version, len(splits), len(adds))


@dataclass(frozen=True, slots=True)
class _Remains:
    """What a damaged log still says."""

    version: int | None
    metadata: Metadata | None
    removed: frozenset[str]
    protocol: Protocol
    vectors: Mapping[str, Mapping[str, Any]]
    """Which rows of a split are deleted: no footer says so."""


def _remains(log: TransactionLog, *, config: Config) -> _Remains:
    listing = list_log(log.store)
    alive: dict[str, Add | None] = {}
    metadata: Metadata | None = None
    protocol = DEFAULT_PROTOCOL
    newest: int | None = None
    runner = LocalRunner(config[keys.STATE_READ_PARALLELISM])
    for version in sorted({*listing.versions, *listing.states, *listing.checkpoints}):
        try:
            for action in log.actions(version).actions if version in listing.versions else ():
                if isinstance(action, Add | Remove):
                    alive[action.path] = action if isinstance(action, Add) else None
                elif isinstance(action, Metadata):
                    metadata = action
                elif isinstance(action, Protocol):
                    protocol = action
            for ref in checkpoints_at(listing, version):
                held = load_checkpoint(log.store, ref, config=config, runner=runner)
                live = {add.path: add for add in adds_from_files(held.entries)}
                alive = {path: live.get(path) for path in {*alive, *live}}
                metadata, protocol = held.metadata, held.protocol
            newest = version
        except (LogError, StorageError) as error:
            logger.warning("Repairing without a part of the log: %s", error)
    removed = frozenset(path for path, add in alive.items() if add is None)
    vectors = {
        path: add.deletion_vector
        for path, add in alive.items()
        if add is not None and add.deletion_vector is not None
    }
    return _Remains(newest, metadata, removed, protocol, vectors)


def _footer(source: Store, meta: ObjectMeta) -> Footer | None:
    try:
        return SplitFile(source, meta.path, meta.size).footer
    except (SplitError, ObjectNotFoundError) as error:
        logger.warning("Repairing without a split: %s", error)
        return None


def _add(meta: ObjectMeta, footer: Footer, vector: Mapping[str, Any] | None) -> Add:
    """The log entry of a split, from its footer and what the old log says about deleted rows."""
    info = footer.info
    deleted = 0
    if vector is not None:
        deleted = DeletionVector.from_json(vector, path=meta.path).cardinality
    opening = opening_of(info)
    return Add(
        path=meta.path,
        partition_values=info.partition_values,
        size=meta.size,
        modification_time=meta.modified_ms,
        data_change=True,
        stats=info.statistics.to_json(info.rows),
        min_values=info.statistics.min_values,
        max_values=info.statistics.max_values,
        num_records=info.rows - deleted,
        deletion_vector=vector,
        has_footer_offsets=True,
        footer_start_offset=footer.start,
        footer_end_offset=footer.end,
        hotcache_start_offset=opening[0] if opening else None,
        hotcache_length=opening[1] - opening[0] if opening else None,
        doc_mapping_json=info.mapping.to_json(),
        uncompressed_size_bytes=info.uncompressed_size,
        num_merge_ops=0,
    )


def described(footers: Sequence[Footer]) -> Metadata:
    """A table's description from its splits: all their columns, then the partition columns.

    A split spells the values of its partition and says what kind they are. How wide a whole number
    was is not known any more: it is 64 bits wide.
    """
    fullest = max(footers, key=lambda footer: len(footer.info.mapping.fields)).info
    columns = footers[0].schema
    for footer in footers[1:]:
        columns = evolve(columns, footer.schema)
    fields = list(columns)
    for name in fullest.partition_values:
        texts = [footer.info.partition_values.get(name) for footer in footers]
        fields.append(pa.field(name, _partition_type(fullest.partition_kinds.get(name), texts)))
    # Older splits may have had other names for a column; all agree on the stored one.
    schema = stored_schema(pa.schema(fields), {f.name: f.name for f in fields})
    partition_by = tuple(fullest.partition_values)
    # A dropped column is restored where a split still has it.
    old = fullest.mapping
    returned = tuple(field for field in old.retired if field.name in schema.names)
    retired = tuple(field for field in old.retired if field not in returned)
    base = replace(old, fields=old.fields + returned, retired=retired)
    mapping = build_mapping(schema, Config(), partition_by=partition_by, base=base)
    return Metadata(
        id=str(uuid.uuid4()),
        schema_string=to_json(schema),
        partition_columns=partition_by,
        configuration={MAPPING_PROPERTY: mapping.to_json()},
    )


def _partition_type(type_name: str | None, texts: Iterable[str | None]) -> pa.DataType:
    values = [text for text in texts if text is not None]
    match type_name:
        case "i64":
            return pa.int64()
        case "f64":
            return pa.float64()
        case "bool":
            return pa.bool_()
        case "date":
            return pa.date32()
        case "timestamp":
            zone = "UTC" if any(text.endswith("Z") for text in values) else None
            return pa.timestamp("us", zone)
        case "decimal":
            scales = [Decimal(text).as_tuple().exponent for text in values]
            scale = max([-int(scale) for scale in scales if isinstance(scale, int)], default=0)
            return pa.decimal128(38, max(scale, 0))
        case _:
            return pa.string()
