"""MERGE SPLITS as a row: what was merged, where and with how much memory."""

from __future__ import annotations

import tempfile

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.errors import StatementError
from indextables.jobs.merge_splits import EMPTY, Merged, MergeLimits
from indextables.statements.rows import columns
from indextables.statements.session import Session
from indextables.statements.statements import MergeSplits
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


def merge_splits(statement: MergeSplits, session: Session) -> pa.Table:
    """Merge the splits of a table."""
    # What is wrong with the numbers is wrong whatever the table is.
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


def _merged(statement: MergeSplits, table: Table, session: Session) -> Merged:
    snapshot = table.snapshot()
    if statement.precommit:
        message = NOTHING_TO_PRECOMMIT if snapshot.num_files else EMPTY
        return Merged("no_action", message, snapshot.version)
    return table.merge_splits(
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
