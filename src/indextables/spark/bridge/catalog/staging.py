"""Tables that are created or replaced together with their rows, in one commit.

CREATE TABLE … AS SELECT, CREATE OR REPLACE TABLE with or without a query, and `saveAsTable`: tasks
store the rows, and the commit that names them also defines the table. A query that fails leaves
what was there. The query may read the table that it replaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indextables.errors import CommitStateUnknownError, TableExistsError
from indextables.jobs.write_job import TaskOutput, WriteJob
from indextables.plan.access import TableAccess
from indextables.plan.view import TableView
from indextables.spark.bridge.catalog.table import BridgedTable
from indextables.spark.bridge.jvm.handles import JavaObject, Jvm, implements
from indextables.spark.bridge.write import PlannedWrite
from indextables.spark.runner import executors

_ANALYSIS = "org.apache.spark.sql.catalyst.analysis."


@implements(
    "catalog.StagedTable",
    "catalog.SupportsWrite",
)
class StagedTable(BridgedTable):
    """A table as it will be when its rows are there."""

    def __init__(
        self,
        java: Jvm,
        access: TableAccess,
        job: WriteJob,
        identifier: JavaObject,
        *,
        name: str,
        done: Callable[[], Any] = lambda: None,
        undo: Callable[[], Any] = lambda: None,
    ) -> None:
        metadata = job.target.metadata
        assert metadata is not None
        view = TableView.planned(job.view.store, metadata, access.settings)
        planned = PlannedWrite(job, stage=self._take)
        super().__init__(java, access, view, name=name, writing=planned)
        self._job = job
        self._identifier = identifier
        self._done = done
        self._undo = undo
        self._stored: list[TaskOutput] = []
        self._in_doubt = False

    def _take(self, outputs: list[TaskOutput]) -> None:
        self._stored = outputs

    def commitStagedChanges(self) -> None:  # noqa: N802
        try:
            self._job.commit(self.access.log(), self._stored, runner=executors())
        except TableExistsError:
            raise self.java.exception(
                _ANALYSIS + "TableAlreadyExistsException", self._identifier
            ) from None
        except CommitStateUnknownError:
            self._in_doubt = True
            raise
        self._done()

    def abortStagedChanges(self) -> None:  # noqa: N802
        if not self._in_doubt:
            self._job.abort(self.access.log(), self._stored)
            self._undo()


@implements("catalog.StagedTable", "catalog.SupportsWrite")
class StagedElsewhere:
    """A table of another format in Spark's catalog: created at once, dropped if its query fails."""

    def __init__(self, java: Jvm, table: JavaObject, undo: Callable[[], Any]) -> None:
        self.java = java
        self._table = table
        self._undo = undo

    def name(self) -> str:
        return str(self._table.name())

    def schema(self) -> JavaObject:
        return self._table.schema()

    def columns(self) -> JavaObject:
        return self._table.columns()

    def partitioning(self) -> JavaObject:
        return self._table.partitioning()

    def properties(self) -> JavaObject:
        return self._table.properties()

    def constraints(self) -> JavaObject:
        return self._table.constraints()

    def capabilities(self) -> JavaObject:
        return self._table.capabilities()

    def id(self) -> JavaObject:
        return self._table.id()

    def version(self) -> JavaObject:
        return self._table.version()

    def newWriteBuilder(self, info: JavaObject) -> JavaObject:  # noqa: N802
        return self._table.newWriteBuilder(info)

    def commitStagedChanges(self) -> None:  # noqa: N802
        return None

    def abortStagedChanges(self) -> None:  # noqa: N802
        self._undo()

    def reportDriverMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array("org.apache.spark.sql.connector.metric.CustomTaskMetric")
