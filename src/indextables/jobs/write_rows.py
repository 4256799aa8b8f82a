"""Writing rows to a table: append, overwrite all, overwrite a part, overwrite partitions.

All of them write splits first and commit them afterwards. What is removed depends on the kind:
nothing, all there is when the commit happens, the rows of a condition, the partitions that the
new rows touch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from indextables.config import Config, known_keys
from indextables.errors import SchemaError
from indextables.jobs.commit_write import (
    Target,
    Written,
    checked_rows,
    commit_partitions,
    commit_replacement,
    commit_write,
    metadata_on,
    scope_of,
    undone_on_error,
)
from indextables.jobs.constraints import constraints_of
from indextables.jobs.merge_before_commit import merged_before_commit
from indextables.jobs.progress import progress
from indextables.jobs.rewrite import remove_rows
from indextables.jobs.rows_in import as_reader, check_fits
from indextables.jobs.write_splits import SplitSink
from indextables.log.actions import Action, Add
from indextables.log.files import removes_for
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.column_names import names_of, shown, stored_mapping
from indextables.plan.execute import MAPPING_PROPERTY, mapping_of
from indextables.predicate import Predicate
from indextables.schema import evolve, to_json
from indextables.split.mapping import FieldMapping, Mapping
from indextables.split.mapping_options import build_mapping


def target_of(
    snapshot: Snapshot, incoming: pa.Schema, *, config: Config, merge_schema: bool
) -> Target:
    """What a write of these columns makes of the table."""
    seen = shown(snapshot)
    columns, base = seen.schema, mapping_of(seen)
    if merge_schema:
        columns = evolve(columns, incoming)
    else:
        check_fits(incoming, columns)
    options = config.over(known_keys(snapshot.metadata.configuration))
    mapping = build_mapping(columns, options, partition_by=seen.partition_columns, base=base)
    _refuse_other_mapping(base, mapping)
    if columns.equals(seen.schema) and mapping == base:
        return Target.of(snapshot)
    schema = names_of(snapshot).stored_columns(columns)
    mapping = stored_mapping(mapping, schema)
    configuration = {**snapshot.metadata.configuration, MAPPING_PROPERTY: mapping.to_json()}
    metadata = replace(
        snapshot.metadata, schema_string=to_json(schema), configuration=configuration
    )
    return Target(schema, mapping, metadata, columns, constraints_of(metadata))


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
    adds, rows = _write(log, map(target.stored, reader), snapshot, target, config)
    transaction = Transaction(
        operation=Operation.APPEND,
        transform=lambda newest: [*metadata_on(newest, snapshot, target), *adds],
        read_version=snapshot.version,
        read_snapshot=snapshot,
        metrics={"rows": rows, "files": len(adds)},
    )
    return commit_write(log, transaction, adds, rows, config=config)


def overwrite_all(log: TransactionLog, data: Any, *, config: Config, merge_schema: bool) -> Written:
    """Replace all rows, those included that others add while this one writes."""
    snapshot = log.snapshot()
    reader = as_reader(data)
    target = target_of(snapshot, reader.schema, config=config, merge_schema=merge_schema)
    adds, rows = _write(log, map(target.stored, reader), snapshot, target, config)

    def plan(newest: Snapshot) -> Sequence[Action]:
        gone = removes_for(newest.entries, timestamp=log.now_ms(), data_change=True)
        return [*gone, *metadata_on(newest, snapshot, target), *adds]

    transaction = Transaction(
        operation=Operation.OVERWRITE,
        transform=plan,
        read_version=snapshot.version,  # files may come and go meanwhile, columns may not
        read_snapshot=snapshot,
        metrics={"rows": rows, "files": len(adds)},
    )
    return commit_write(log, transaction, adds, rows, config=config)


def overwrite_where(
    log: TransactionLog, data: Any, predicate: Predicate, *, config: Config, merge_schema: bool
) -> Written:
    """Replace the rows of a condition by new rows, all of which meet it."""
    snapshot = log.snapshot()
    reader = as_reader(data)
    target = target_of(snapshot, reader.schema, config=config, merge_schema=merge_schema)
    checked = checked_rows(map(target.stored, reader), predicate, target)
    adds, rows = _write(log, checked, snapshot, target, config)
    removal = undone_on_error(
        log, adds, lambda: remove_rows(log, snapshot, predicate, config=config)
    )

    return commit_replacement(
        log,
        snapshot,
        target=target,
        adds=adds,
        removal=removal,
        rows=rows,
        scope=scope_of(predicate, snapshot),
        parameters={"where": str(names_of(snapshot).shown_predicate(predicate))},
        config=config,
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
    adds, rows = _write(log, map(target.stored, reader), snapshot, target, config)
    return commit_partitions(log, snapshot, target=target, adds=adds, rows=rows, config=config)


def delete_rows(log: TransactionLog, predicate: Predicate, *, config: Config) -> Written:
    """Delete the rows of a condition, by writing the splits that hold some of them anew."""
    snapshot = log.snapshot()
    removal = remove_rows(log, snapshot, predicate, config=config)

    return commit_replacement(
        log,
        snapshot,
        target=Target.of(snapshot),
        adds=[],
        removal=removal,
        rows=0,
        scope=scope_of(predicate, snapshot),
        parameters={"where": str(names_of(snapshot).shown_predicate(predicate))},
        config=config,
    )


# --- the common parts ------------------------------------------------------------------------


def _write(
    log: TransactionLog,
    batches: Iterator[pa.RecordBatch],
    snapshot: Snapshot,
    target: Target,
    config: Config,
) -> tuple[list[Add], int]:
    rows = 0
    effective = config.over(known_keys(snapshot.metadata.configuration))
    with (
        progress("Writing rows") as advance,
        SplitSink(
            log.store,
            schema=target.schema,
            partition_columns=snapshot.partition_columns,
            mapping=target.mapping,
            config=effective,
            progress=advance,
        ) as sink,
    ):
        for batch in batches:
            sink.write(batch)
            rows += batch.num_rows
        adds = sink.finish()
    merged = merged_before_commit(
        log.store,
        adds,
        target=target,
        partition_columns=snapshot.partition_columns,
        config=effective,
    )
    return merged, rows
