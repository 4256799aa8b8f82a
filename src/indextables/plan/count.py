"""Counting rows: from the log where it can be, else by searching the splits that are in doubt."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.snapshot import Snapshot
from indextables.plan.execute import Environment
from indextables.plan.scan import route_files, split_tasks
from indextables.plan.skipping import judge
from indextables.plan.view import TableView
from indextables.predicate import FALSE, TRUE, Predicate


def count_from_log(snapshot: Snapshot, predicate: Predicate) -> tuple[int, pa.Table]:
    """Rows that the log alone counts, and the files whose rows have to be looked at."""
    files = snapshot.entries
    if not files.num_rows:
        return 0, files
    counted = np.asarray(pc.is_valid(files["numRecords"]))
    if predicate == TRUE:
        keep = whole = np.ones(files.num_rows, dtype=np.bool_)
    else:
        keep, whole = judge(
            predicate,
            files,
            schema=snapshot.schema,
            partition_columns=snapshot.partition_columns,
        )
    sure = files.filter(pa.array(whole & counted))
    return pc.sum(sure["numRecords"]).as_py() or 0, files.filter(
        pa.array(keep & ~(whole & counted))
    )


def count_rows(view: TableView, predicate: Predicate) -> int:
    """How many rows of a table match. Indexes are opened if the log and XRefs leave a doubt."""
    known, doubtful = count_from_log(view.snapshot, predicate)
    if doubtful.num_rows:
        doubtful, _ = route_files(view.router, predicate, doubtful)
    tasks = [t for t in split_tasks(view.snapshot, doubtful, predicate) if t.predicate != FALSE]
    if not tasks:
        return known
    here = Environment.of(view)
    return known + sum(here.map(lambda task: here.rows(task).count(), tasks))
