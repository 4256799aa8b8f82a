"""Writing rows to a table: append, overwrite all, overwrite a part, overwrite partitions.

All of them write splits first and commit them afterwards. What is removed depends on the kind:
nothing, all there is when the commit happens, the rows of a condition, the partitions that the
new rows touch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import Config, known_keys
from indextables.errors import (
    CommitStateUnknownError,
    IndexTablesError,
    MetadataChangedError,
    SchemaError,
)
from indextables.jobs.progress import progress
from indextables.jobs.rewrite import Removal, remove_rows
from indextables.jobs.rows_in import as_reader, check_fits, conformed
from indextables.jobs.write_splits import SplitSink, discard
from indextables.log.actions import Action, Add, Metadata
from indextables.log.files import removes_for
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Scope, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.execute import MAPPING_PROPERTY, mapping_of
from indextables.plan.skipping import keep_mask
from indextables.predicate import Predicate
from indextables.schema import evolve, to_json
from indextables.split.flat import search_rows
from indextables.split.mapping import FieldMapping, Mapping
from indextables.split.mapping_options import build_mapping
from indextables.split.row_filter import evaluate


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did."""

    version: int
    rows: int
    files_added: int
    files_removed: int
    bytes_added: int


@dataclass(frozen=True, slots=True)
class Target:
    """The schema and mapping that rows are written with; `metadata` where the table changes."""

    schema: pa.Schema
    mapping: Mapping
    metadata: Metadata | None


def target_of(
    snapshot: Snapshot, incoming: pa.Schema, *, config: Config, merge_schema: bool
) -> Target:
    """What a write of these columns makes of the table."""
    schema, base = snapshot.schema, mapping_of(snapshot)
    if merge_schema:
        schema = evolve(schema, incoming)
    else:
        check_fits(incoming, schema)
    options = config.over(known_keys(snapshot.metadata.configuration))
    mapping = build_mapping(schema, options, partition_by=snapshot.partition_columns, base=base)
    _refuse_other_mapping(base, mapping)
    if schema.equals(snapshot.schema) and mapping == base:
        return Target(schema, mapping, None)
    configuration = {**snapshot.metadata.configuration, MAPPING_PROPERTY: mapping.to_json()}
    metadata = replace(
        snapshot.metadata, schema_string=to_json(schema), configuration=configuration
    )
    return Target(schema, mapping, metadata)


def _refuse_other_mapping(table: Mapping, wanted: Mapping) -> None:
    """One column is searched one way in the whole table."""
    problems = [
        f"Field '{name}' type mismatch: existing table has {_shown(old)} field, cannot append with "
        f"{_shown(new)} configuration"
        for name, old in table.by_name.items()
        if (new := wanted.by_name.get(name)) is not None and new.fingerprint != old.fingerprint
    ]
    if problems:
        raise SchemaError(
            "Configuration validation failed for append operation: " + "; ".join(problems) + "."
        )


def _shown(field: FieldMapping) -> str:
    return f"{field.kind} ({field.tokenizer})" if field.kind == "text" else field.kind


def append_rows(log: TransactionLog, data: Any, *, config: Config, merge_schema: bool) -> Written:
    """Add rows to the table."""
    snapshot = log.snapshot()
    reader = as_reader(data)
    target = target_of(snapshot, reader.schema, config=config, merge_schema=merge_schema)
    adds, rows = _write(log, conformed(reader, target.schema), snapshot, target, config)
    transaction = Transaction(
        operation=Operation.APPEND,
        transform=lambda newest: [*_metadata_on(newest, snapshot, target), *adds],
        read_version=snapshot.version,
        metrics={"rows": rows, "files": len(adds)},
    )
    return _commit(log, transaction, adds, rows)


def overwrite_all(log: TransactionLog, data: Any, *, config: Config, merge_schema: bool) -> Written:
    """Replace all rows, those included that others add while this one writes."""
    snapshot = log.snapshot()
    reader = as_reader(data)
    target = target_of(snapshot, reader.schema, config=config, merge_schema=merge_schema)
    adds, rows = _write(log, conformed(reader, target.schema), snapshot, target, config)

    def plan(newest: Snapshot) -> Sequence[Action]:
        gone = removes_for(newest.entries, timestamp=log.now_ms(), data_change=True)
        return [*gone, *_metadata_on(newest, snapshot, target), *adds]

    transaction = Transaction(
        operation=Operation.OVERWRITE,
        transform=plan,
        read_version=snapshot.version,  # files may come and go meanwhile, columns may not
        metrics={"rows": rows, "files": len(adds)},
    )
    return _commit(log, transaction, adds, rows)


def overwrite_where(
    log: TransactionLog, data: Any, predicate: Predicate, *, config: Config, merge_schema: bool
) -> Written:
    """Replace the rows of a condition by new rows, all of which meet it."""
    snapshot = log.snapshot()
    reader = as_reader(data)
    target = target_of(snapshot, reader.schema, config=config, merge_schema=merge_schema)
    checked = _checked(conformed(reader, target.schema), predicate, target)
    adds, rows = _write(log, checked, snapshot, target, config)
    removal = _undone_on_error(
        log, adds, lambda: remove_rows(log, snapshot, predicate, config=config)
    )

    return _replace(
        log,
        snapshot,
        target=target,
        adds=adds,
        removal=removal,
        rows=rows,
        scope=_scope(predicate, snapshot),
        parameters={"where": str(predicate)},
    )


def overwrite_partitions(
    log: TransactionLog, data: Any, *, config: Config, merge_schema: bool
) -> Written:
    """Replace the partitions that the new rows touch, and no others."""
    snapshot = log.snapshot()
    if not snapshot.partition_columns:
        return overwrite_all(log, data, config=config, merge_schema=merge_schema)
    reader = as_reader(data)
    target = target_of(snapshot, reader.schema, config=config, merge_schema=merge_schema)
    adds, rows = _write(log, conformed(reader, target.schema), snapshot, target, config)
    touched = {_partition_key(add.partition_values, snapshot) for add in adds}

    def scope(files: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
        values = files["partitionValues"].to_pylist(maps_as_pydicts="strict")
        return np.array([_partition_key(v, snapshot) in touched for v in values], dtype=np.bool_)

    gone = snapshot.entries.filter(pa.array(scope(snapshot.entries)))
    return _replace(
        log,
        snapshot,
        target=target,
        adds=adds,
        removal=Removal(gone, (), 0),
        rows=rows,
        scope=scope,
        parameters={"partitions": len(touched)},
    )


def delete_rows(log: TransactionLog, predicate: Predicate, *, config: Config) -> Written:
    """Delete the rows of a condition, by writing the splits that hold some of them anew."""
    snapshot = log.snapshot()
    removal = remove_rows(log, snapshot, predicate, config=config)

    target = Target(snapshot.schema, mapping_of(snapshot), None)
    return _replace(
        log,
        snapshot,
        target=target,
        adds=[],
        removal=removal,
        rows=0,
        scope=_scope(predicate, snapshot),
        parameters={"where": str(predicate)},
    )


def _scope(predicate: Predicate, snapshot: Snapshot) -> Scope:
    """Files that may hold rows of a condition."""
    return lambda files: keep_mask(
        predicate, files, schema=snapshot.schema, partition_columns=snapshot.partition_columns
    )


def _replace(
    log: TransactionLog,
    snapshot: Snapshot,
    *,
    target: Target,
    adds: list[Add],
    removal: Removal,
    rows: int,
    scope: Scope,
    parameters: dict[str, Any],
) -> Written:
    removes = removes_for(removal.files, timestamp=log.now_ms(), data_change=True)
    new = [*adds, *removal.rewritten]
    transaction = Transaction(
        operation=Operation.REPLACE if adds else Operation.REWRITE,
        actions=removes,
        transform=lambda newest: [*removes, *_metadata_on(newest, snapshot, target), *new],
        read_version=snapshot.version,
        read_scope=scope,
        parameters=parameters,
        metrics={"rows": rows, "rowsRemoved": removal.rows, "files": len(new)},
    )
    return _commit(log, transaction, new, rows)


# --- the common parts ------------------------------------------------------------------------


def _write(
    log: TransactionLog,
    batches: Iterator[pa.RecordBatch],
    snapshot: Snapshot,
    target: Target,
    config: Config,
) -> tuple[list[Add], int]:
    rows = 0
    with (
        progress("Writing rows") as advance,
        SplitSink(
            log.store,
            schema=target.schema,
            partition_columns=snapshot.partition_columns,
            mapping=target.mapping,
            config=config.over(known_keys(snapshot.metadata.configuration)),
            progress=advance,
        ) as sink,
    ):
        for batch in batches:
            sink.write(batch)
            rows += batch.num_rows
        return sink.finish(), rows


def _metadata_on(newest: Snapshot, read: Snapshot, target: Target) -> list[Metadata]:
    """The change of metadata that a write makes, on top of what others changed meanwhile.

    Two changes of columns or mappings do not add up: both would give out the same names in the
    index. The second one has to begin again.
    """
    if target.metadata is None:
        return []
    old, new = read.metadata, newest.metadata
    mappings = [m.configuration.get(MAPPING_PROPERTY) for m in (old, new)]
    changed = ["columns"] if old.schema_string != new.schema_string else []
    changed += ["mapping"] if mappings[0] != mappings[1] else []
    if changed:
        raise MetadataChangedError(uri=newest.uri, version=newest.version, changed=changed)
    mapping = target.metadata.configuration[MAPPING_PROPERTY]
    configuration = {**new.configuration, MAPPING_PROPERTY: mapping}
    return [replace(new, schema_string=target.metadata.schema_string, configuration=configuration)]


def _commit(
    log: TransactionLog, transaction: Transaction, adds: Sequence[Add], rows: int
) -> Written:
    committed = _undone_on_error(log, adds, lambda: log.commit(transaction))
    if not committed.changed:
        return Written(committed.version, 0, 0, 0, 0)
    actions = log.actions(committed.version).actions
    return Written(
        version=committed.version,
        rows=rows,
        files_added=len(adds),
        files_removed=sum(a.kind == "remove" for a in actions),
        bytes_added=sum(add.size for add in adds),
    )


def _undone_on_error(log: TransactionLog, adds: Sequence[Add], work: Callable[[], Any]) -> Any:
    """Do the rest of a write; if it surely failed, delete the splits that nobody will name."""
    try:
        return work()
    except CommitStateUnknownError:
        raise  # the commit may be there, and then it names them
    except IndexTablesError:
        discard(log.store, adds)
        raise


def _checked(
    batches: Iterator[pa.RecordBatch], predicate: Predicate, target: Target
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        answer: Any = evaluate(
            predicate,
            batch,
            search=lambda search, rows=batch: search_rows(  # type: ignore[misc]
                search, rows, target.mapping, schema=target.schema
            ),
        )
        outside = pc.sum(pc.invert(answer.fill_null(False))).as_py() or 0
        if outside:
            raise SchemaError(
                f"{outside:,} of the new rows do not meet the condition {predicate}. Only rows "
                "that meet it can replace rows that do."
            )
        yield batch


def _partition_key(values: Any, snapshot: Snapshot) -> tuple[str | None, ...]:
    return tuple((values or {}).get(name) for name in snapshot.partition_columns)
