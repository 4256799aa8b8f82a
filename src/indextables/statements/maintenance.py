"""The maintenance statements, with their rows.

What the job behind a statement refuses is an error, so that a schedule notices; a status in a row
is about parts of the work.
"""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.errors import StatementError
from indextables.jobs.commit_write import Written
from indextables.jobs.merge_splits import EMPTY, Merged, MergeLimits
from indextables.jobs.repair import repair_log
from indextables.lake.opening import is_search_index, search_index_of
from indextables.lake.search_index import SearchIndex
from indextables.log.layout import LOG_DIRECTORY
from indextables.plan.column_names import names_in
from indextables.statements import statements as s
from indextables.statements.session import Session, columns
from indextables.table import Table

MERGE = columns(
    table_path=pa.string(),
    metrics=pa.struct(
        columns(
            status=pa.string(),
            merged_files=pa.int64(),
            merge_groups=pa.int64(),
            original_size_bytes=pa.int64(),
            merged_size_bytes=pa.int64(),
            message=pa.string(),
        )
    ),
    temp_directory_path=pa.string(),
    heap_size_bytes=pa.int64(),
)
NOTHING_TO_PRECOMMIT = (
    "PRECOMMIT has nothing to merge: the splits of this table are committed. Write with the option "
    "mergePrecommit to merge the splits of a write before they are, or leave PRECOMMIT out."
)


def merge_splits(statement: s.MergeSplits, session: Session) -> pa.Table:
    """Merge the splits of a table."""
    # Invalid numbers are refused before the table is looked for.
    MergeLimits.checked(
        session.config,
        target_size=statement.target_size,
        max_groups=statement.max_groups,
        max_sources=statement.max_sources,
    )
    table = session.resolve(statement.table)
    config = session.config.over_properties(table.metadata().configuration)
    merged = _merged(statement, table, session)
    if merged.status == "error":  # a schedule has to notice; a part that failed is a row
        raise StatementError(f"Nothing of '{table.uri}' was merged: {merged.message}")
    return pa.Table.from_pylist([_row(table.uri, merged, config)], MERGE)


def _merged(statement: s.MergeSplits, table: Table, session: Session) -> Merged:
    snapshot = table.snapshot()
    if statement.precommit:
        message = NOTHING_TO_PRECOMMIT if snapshot.num_files else EMPTY
        return Merged("no_action", message, snapshot.version)
    splits: Table | SearchIndex = table
    if is_search_index(snapshot):
        splits = search_index_of(session.index_places.find(statement.table))
    return splits.merge_splits(
        where=statement.where,
        target_size=statement.target_size,
        max_groups=statement.max_groups,
        max_source_splits=statement.max_sources,
        runner=session.runner,
        timezone=session.timezone,
    )


def _row(path: str, merged: Merged, config: Config) -> dict[str, object]:
    folder = config[keys.MERGE_TEMP_DIRECTORY] or config[keys.WRITER_TEMP_DIRECTORY]
    return {
        "table_path": path,
        "metrics": {
            "status": merged.status,
            "merged_files": merged.files_removed,
            "merge_groups": merged.files_added,
            "original_size_bytes": merged.bytes_removed,
            "merged_size_bytes": merged.bytes_added,
            "message": merged.message,
        },
        "temp_directory_path": folder or tempfile.gettempdir(),
        "heap_size_bytes": config[keys.MERGE_HEAP_SIZE],
    }


PURGE = columns(
    table_path=pa.string(),
    metrics=pa.struct(
        columns(
            status=pa.string(),
            orphaned_files_found=pa.int64(),
            orphaned_files_deleted=pa.int64(),
            size_mb_deleted=pa.float64(),
            retention_hours=pa.int64(),
            tx_log_files_deleted=pa.int64(),
            expired_states_found=pa.int64(),
            expired_states_deleted=pa.int64(),
            dry_run=pa.bool_(),
            duration_ms=pa.int64(),
            message=pa.string(),
        )
    ),
)
DROP_PARTITIONS = columns(
    table_path=pa.string(),
    status=pa.string(),
    partitions_dropped=pa.int64(),
    splits_removed=pa.int64(),
    total_size_bytes=pa.int64(),
    message=pa.string(),
)
TRUNCATE = columns(
    table_path=pa.string(),
    status=pa.string(),
    checkpoint_version=pa.int64(),
    versions_deleted=pa.int64(),
    checkpoints_deleted=pa.int64(),
    files_preserved=pa.int64(),
    message=pa.string(),
)
REPAIR = columns(
    source_path=pa.string(),
    target_path=pa.string(),
    source_version=pa.int64(),
    total_splits=pa.int64(),
    valid_splits=pa.int64(),
    missing_splits=pa.int64(),
    status=pa.string(),
)
VERIFY = columns(
    table_path=pa.string(),
    check=pa.string(),
    status=pa.string(),
    checked=pa.int64(),
    failed=pa.int64(),
    message=pa.string(),
)
PREWARM = columns(
    host=pa.string(),
    assigned_host=pa.string(),
    locality_hits=pa.int64(),
    locality_misses=pa.int64(),
    splits_prewarmed=pa.int64(),
    segments=pa.string(),
    fields=pa.string(),
    duration_ms=pa.int64(),
    status=pa.string(),
    skipped_fields=pa.string(),
    retries=pa.int64(),
    failed_splits_by_host=pa.string(),
    job_id=pa.string(),
    async_mode=pa.bool_(),
)
ROWS_CHANGED = columns(
    table_path=pa.string(),
    status=pa.string(),
    num_affected_rows=pa.int64(),
    splits_removed=pa.int64(),
    splits_added=pa.int64(),
    version=pa.int64(),
    message=pa.string(),
)
_SEGMENTS = (
    "TERM", "TERM_DICT", "FASTFIELD", "FAST_FIELD", "POSTINGS", "POSTING_LISTS", "POSITIONS",
    "POSITION_LISTS", "FIELDNORM", "FIELD_NORM", "STORE", "DOC_STORE", "PARQUET_FAST_FIELDS",
    "PARQUET_COLUMNS",
)  # fmt: skip


# --- what is no longer needed --------------------------------------------------------------------


def purge(statement: s.Purge, session: Session) -> pa.Table:
    """Delete expired log files and orphaned splits."""
    table = session.resolve(statement.table)
    done = table.purge(
        older_than_hours=statement.older_than,
        log_retention_hours=statement.log_retention,
        dry_run=statement.dry_run,
    )
    unneeded = len(done.orphans) + len(done.leftovers)
    states = len(done.log_files.states)
    verb = "Would delete" if done.dry_run else "Deleted"
    log_files = len(done.log_files)
    metrics = {
        "status": "DRY_RUN" if done.dry_run else "SUCCESS",
        "orphaned_files_found": unneeded,
        "orphaned_files_deleted": done.files_deleted,
        "size_mb_deleted": done.bytes_deleted / 1024**2,
        "retention_hours": int(done.retention_hours),
        "tx_log_files_deleted": done.log_files_deleted,
        "expired_states_found": states,
        "expired_states_deleted": 0 if done.dry_run else states,
        "dry_run": done.dry_run,
        "duration_ms": done.duration_ms,
        "message": f"{verb} {unneeded:,} orphaned files and {log_files:,} files of the log",
    }
    return pa.Table.from_pylist([{"table_path": table.uri, "metrics": metrics}], PURGE)


def drop_partitions(statement: s.DropPartitions, session: Session) -> pa.Table:
    """Remove whole partitions."""
    if statement.where is None:
        raise StatementError(
            "DROP INDEXTABLES PARTITIONS requires a WHERE clause. Use PURGE INDEXTABLE to remove "
            "all data or specify partition predicates."
        )
    table = session.resolve(statement.table)
    dropped = table.drop_partitions(where=statement.where, timezone=session.timezone)
    row = {
        "table_path": table.uri,
        "status": "success" if dropped.files_removed else "no_action",
        "partitions_dropped": dropped.partitions,
        "splits_removed": dropped.files_removed,
        "total_size_bytes": dropped.bytes_removed,
        "message": (
            f"Dropped {dropped.partitions:,} partitions with {dropped.files_removed:,} splits. Run "
            "PURGE INDEXTABLE to free their space once no retained version names them"
            if dropped.files_removed
            else "No partitions match the condition"
        ),
    }
    return pa.Table.from_pylist([row], DROP_PARTITIONS)


def truncate(statement: s.TruncateTimeTravel, session: Session) -> pa.Table:
    """Forget all versions but the newest."""
    table = session.resolve(statement.table)
    done = table.truncate_time_travel(dry_run=statement.dry_run)
    verb = "Would delete" if done.dry_run else "Deleted"
    message = f"{verb} {done.versions:,} versions and {done.checkpoints:,} checkpoint files"
    if not done.versions and not done.checkpoints:
        message = "The table is already at minimal state"
    row = {
        "table_path": table.uri,
        "status": "DRY_RUN" if done.dry_run else "SUCCESS",
        "checkpoint_version": done.checkpoint_version,
        "versions_deleted": done.versions,
        "checkpoints_deleted": done.checkpoints,
        "files_preserved": done.files_preserved,
        "message": message,
    }
    return pa.Table.from_pylist([row], TRUNCATE)


# --- what is broken ------------------------------------------------------------------------------


def repair(statement: s.RepairLog, session: Session) -> pa.Table:
    """Write a new log."""
    source, target = _table_of(statement.source), _table_of(statement.target)
    done = repair_log(
        session.open_store(source),
        session.open_store(target),
        config=session.config,
        from_splits=statement.from_splits,
        runner=session.runner,
    )
    row = {
        "source_path": statement.source,
        "target_path": statement.target,
        "source_version": done.source_version,
        "total_splits": done.total_splits,
        "valid_splits": done.valid_splits,
        "missing_splits": done.missing_splits,
        "status": "SUCCESS",
    }
    return pa.Table.from_pylist([row], REPAIR)


def _table_of(path: str) -> str:
    """The table of a log."""
    root, slash, name = path.rstrip("/").rpartition("/")
    if name != LOG_DIRECTORY or not slash:
        raise StatementError(
            f"'{path}' is not the path of a log. It ends in /{LOG_DIRECTORY}, the source's and the "
            "location's alike."
        )
    return root


def verify(statement: s.Verify, session: Session) -> pa.Table:
    """Check a table: one row a check."""
    table = session.resolve(statement.table)
    rows = [
        {
            "table_path": table.uri,
            "check": check.name,
            "status": "OK" if check.passed else "FAILED",
            "checked": check.checked,
            "failed": len(check.problems),
            "message": check.message or None,
        }
        for check in table.verify(runner=session.runner)
    ]
    return pa.Table.from_pylist(rows, VERIFY)


# --- what is inside ------------------------------------------------------------------------------


def describe_component_sizes(statement: s.DescribeComponentSizes, session: Session) -> pa.Table:
    """The sizes of the parts of splits."""
    table = session.resolve(statement.table)
    return table.component_sizes(
        where=statement.where, timezone=session.timezone, runner=session.runner
    )


def prewarm(statement: s.Prewarm, session: Session) -> pa.Table:
    """Open indexes on the driver and on every executor."""
    for name in statement.segments:
        if name.upper() not in _SEGMENTS:
            raise StatementError(
                f"An index has no segment '{name}'. There are {', '.join(_SEGMENTS)}; they are "
                "opened together, so FOR SEGMENTS may be left out."
            )
    if statement.parallelism == 0:
        raise StatementError("PERWORKER PARALLELISM is 1 or more.")
    table = session.resolve(statement.table)
    plan = table.plan_prewarm(
        fields=statement.fields, where=statement.where, timezone=session.timezone
    )
    plan = replace(plan, parallelism=statement.parallelism)
    shown = names_in(plan.view.snapshot.metadata).shown_names
    job = str(uuid.uuid4())
    rows: list[dict[str, Any]] = []
    for answer in session.hosts.run(plan):
        done = answer.result
        failed = dict(done.failed) if done else {"all": answer.error or ""}
        opened = done.splits if done else 0
        status = "partial" if failed else "success"
        rows.append(
            {
                "host": answer.host,
                "assigned_host": answer.host,
                # Spark's Python tasks carry no preferred hosts: every host gets every split.
                "locality_hits": opened,
                "locality_misses": 0,
                "splits_prewarmed": opened,
                "segments": "ALL",
                "fields": ",".join(shown(plan.fields)) or "all",
                "duration_ms": done.duration_ms if done else 0,
                "status": status if plan.tasks else "no_splits",
                "skipped_fields": ",".join(shown(plan.skipped_fields)) or None,
                "retries": 0,
                "failed_splits_by_host": "; ".join(f"{p}: {e}" for p, e in failed.items()) or None,
                "job_id": job,
                "async_mode": False,
            }
        )
    return pa.Table.from_pylist(rows, PREWARM)


# --- rows ----------------------------------------------------------------------------------------


def delete_rows(statement: s.DeleteRows, session: Session) -> pa.Table:
    """Delete the rows of a condition; without one, all."""
    table = _changeable(statement, session)
    done = table.delete(where=statement.where or "true", timezone=session.timezone)
    return changed(table, done, "deleted")


def update_rows(statement: s.UpdateRows, session: Session) -> pa.Table:
    """Change the rows of a condition; without one, all."""
    table = _changeable(statement, session)
    done = table.update(statement.set, where=statement.where, timezone=session.timezone)
    return changed(table, done, "updated")


def _changeable(statement: s.DeleteRows | s.UpdateRows, session: Session) -> Table:
    if statement.ctes:
        raise StatementError("WITH before DELETE or UPDATE needs Spark. Write the condition out.")
    return session.resolve(statement.table)


def merged_rows(uri: str, done: Written) -> pa.Table:
    """The result row of a MERGE INTO."""
    inserted, updated = done.rows - done.rows_updated, done.rows_updated
    deleted = done.rows_removed - updated
    row = {
        "table_path": uri,
        "status": "success" if inserted + updated + deleted else "no_action",
        "num_affected_rows": inserted + updated + deleted,
        "splits_removed": done.files_removed,
        "splits_added": done.files_added,
        "version": done.version,
        "message": f"{updated:,} rows updated, {deleted:,} deleted, {inserted:,} inserted",
    }
    return pa.Table.from_pylist([row], ROWS_CHANGED)


def changed(table: Table, done: Written, verb: str) -> pa.Table:
    """The result row of a DELETE or UPDATE."""
    acted = done.rows_removed > 0
    row = {
        "table_path": table.uri,
        "status": "success" if acted else "no_action",
        "num_affected_rows": done.rows_removed,
        "splits_removed": done.files_removed,
        "splits_added": done.files_added,
        "version": done.version,
        "message": (
            f"{done.rows_removed:,} rows {verb} in {done.files_removed:,} splits"
            if acted
            else "No rows match the condition"
        ),
    }
    return pa.Table.from_pylist([row], ROWS_CHANGED)
