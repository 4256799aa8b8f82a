"""A new table together with its first rows, in one commit: both are there, or nothing is."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from indextables.config import Config
from indextables.errors import NotATableError, TableExistsError
from indextables.jobs.commit_write import Written, commit_write
from indextables.jobs.new_table import new_table
from indextables.jobs.progress import progress
from indextables.jobs.write_splits import SplitSink
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.storage import Store


def create_rows(
    store: Store,
    rows: pa.RecordBatchReader,
    *,
    partition_by: Sequence[str],
    options: Config,
    config: Config,
) -> Written:
    """Create a table with these rows. `options` say how columns are indexed.

    `TableExistsError` if there is a table, also if another writer creates it meanwhile.
    """
    log = TransactionLog(store, config=config)
    try:
        log.snapshot()
    except NotATableError:
        pass
    else:
        raise TableExistsError(store.uri)
    metadata, target = new_table(
        rows.schema, partition_by=partition_by, properties={}, config=options
    )
    count = 0
    with (
        progress("Writing rows") as advance,
        SplitSink(
            store,
            schema=target.schema,
            partition_columns=partition_by,
            mapping=target.mapping,
            config=config,
            progress=advance,
        ) as sink,
    ):
        for batch in map(target.stored, rows):
            sink.write(batch)
            count += batch.num_rows
        adds = sink.finish()
    transaction = Transaction(
        operation=Operation.CREATE,
        actions=[metadata, *adds],
        metrics={"rows": count, "files": len(adds)},
    )
    return commit_write(log, transaction, adds, count, config=config)
