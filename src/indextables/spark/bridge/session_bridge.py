"""The bridge of one session: its catalog installed, reads and writes routed through it.

A session also runs functions in the driver and on every executor (`SparkHosts`). Spark places tasks
where it likes. A *barrier* stage starts all its tasks at once, so one with a task for every slot
reaches every executor; it waits until the slots are free. Where barriers are not possible (dynamic
allocation), a few rounds of ordinary tasks are tried. An executor that was not reached is in the
answers, with that as its error.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql.functions import lit

from indextables.config import ARIADNE_STORAGE_PATH
from indextables.errors import ExpressionError, IndexTablesError, StatementError
from indextables.jobs.commit_write import Written
from indextables.jobs.write_job import WriteJob
from indextables.jobs.write_target import constraints_of, names_columns
from indextables.lake.opening import view_of
from indextables.log.snapshot import Snapshot
from indextables.plan.access import NAME, SPARK_CATALOG, SourceOptions, TableAccess
from indextables.plan.column_names import names_of
from indextables.predicate.literals import quoted_name, sql_text
from indextables.spark.bridge.catalog import session_catalog
from indextables.spark.bridge.catalog.catalog import Catalog
from indextables.spark.bridge.catalog.file_catalog import FileSources, file_catalog
from indextables.spark.bridge.catalog.table import BridgedTable
from indextables.spark.bridge.frames import has_generator
from indextables.spark.bridge.jvm.groups import offer_groups
from indextables.spark.bridge.jvm.handles import V2, JavaObject, Jvm, kept
from indextables.spark.bridge.scan.aggregates import CLASSES
from indextables.spark.bridge.search_functions import install_search
from indextables.spark.bridge.write import PlannedWrite
from indextables.spark.schemas import spark_schema
from indextables.statements.session import DRIVER, Answer, answer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


_ARIADNE = "ariadne"
_ARIADNE_MODULE = "indextables.ariadne.sql"
_RELATION = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"


class SessionBridge:
    """Reads and writes index tables through DataSource V2 objects of this process."""

    def __init__(self, spark: SparkSession) -> None:
        self.java = Jvm(spark)
        self.catalog = Catalog(self.java, NAME)

    def install(self) -> None:
        """Add the catalog `indextables` to the session, and bare names to Spark's own catalog."""
        catalogs = self._catalogs()
        catalogs.put(NAME, self.catalog)
        self._bare_names = session_catalog.install(self.java, catalogs, self.catalog)
        offer_groups(self.java, CLASSES)
        if self.java.spark.conf.get(ARIADNE_STORAGE_PATH.name, None):
            self.add_file_catalog(_ARIADNE, self._ariadne)

    def add_file_catalog(self, name: str, sources: Callable[[], FileSources]) -> None:
        """Add a read-only catalog, unless the session has one of this name."""
        catalogs = self._catalogs()
        configured = self.java.spark.conf.get(f"spark.sql.catalog.{name}", None)
        if configured is None and not catalogs.contains(name):
            catalogs.put(name, file_catalog(self.java, name, sources))

    def remember_names(self) -> None:
        """Register tables of the warehouse whose names Spark forgot, before it lists tables."""
        self._bare_names.remember()

    def options_of(self, database: str, table: str) -> dict[str, str]:
        """The OPTIONS that a table of Spark's own catalog was created with."""
        return self._bare_names.options_of(database, table)

    def place_of(self, name: Sequence[str]) -> TableAccess | None:
        """Where a named table or index is, whether it can be read or not; None if it is not."""
        catalog, identifier = self._identified(name)
        with _sentences():
            return catalog.place(identifier)

    def new_place(self, name: Sequence[str], location: str | None) -> TableAccess:
        """Where a table of a new name is put."""
        catalog, identifier = self._identified(name)
        with _sentences():
            return self.catalog.at(location or catalog.default_place(identifier))

    def register(self, name: Sequence[str], access: TableAccess) -> None:
        """Make a name that of the table at a place, unless the folder is the name."""
        current = self.place_of(name)
        if current is None or current.uri != access.uri:
            named, place = ".".join(map(quoted_name, name)), sql_text(access.uri)
            self.java.spark.sql(f"CREATE TABLE {named} USING {NAME} LOCATION {place}")

    def _identified(
        self, name: Sequence[str]
    ) -> tuple[Catalog | session_catalog.SessionCatalog, JavaObject]:
        """The catalog of a name, and what the name is there."""
        current = self.java.spark.catalog.currentCatalog()
        # Namespaces of another catalog than the current one begin at its root.
        database, parts = [self.java.spark.catalog.currentDatabase()], list(name)
        if len(name) > 1 and name[0].lower() in (NAME, SPARK_CATALOG):
            current, parts, database = name[0].lower(), parts[1:], []
        if current not in (NAME, SPARK_CATALOG):
            raise StatementError(
                f"An index has a name in {SPARK_CATALOG} or {NAME}, not in {current}."
            )
        namespace = parts[:-1] or list(filter(None, database))
        make = self.java.find(V2 + "catalog.Identifier")
        identifier = make.of(self.java.strings(namespace), parts[-1])
        return (self.catalog if current == NAME else self._bare_names), identifier

    def install_search(self, name: str, *, everywhere: bool) -> None:
        """Let a search function have the mappings of its columns; in all sessions, if wanted."""
        install_search(self.java, name, everywhere=everywhere)

    def _ariadne(self) -> FileSources:
        # Ariadne stands above this package, so it is imported when a query first names it.
        sources: FileSources = importlib.import_module(_ARIADNE_MODULE).sources(self.java.spark)
        return sources

    def _catalogs(self) -> Any:
        """The map of Spark's catalogs by their names."""
        manager = self.java.session.sessionState().catalogManager()
        field = manager.getClass().getDeclaredField("catalogs")
        field.setAccessible(True)
        return field.get(manager)

    def read(self, access: TableAccess, options: SourceOptions) -> DataFrame:
        """The rows of a table at the version that the options name."""
        view = view_of(access, version=options.version, timestamp=options.moment)
        table = BridgedTable(self.java, access, view)
        return self._frame(self._relation(kept(self.java, table)))

    def write(
        self,
        frame: DataFrame,
        access: TableAccess,
        job: WriteJob,
    ) -> None:
        """Write a DataFrame as planned; tasks store, this process commits."""
        if not job.creates and not job.replaces_columns:
            frame = _with_checked_columns(frame, job.view.snapshot)
        self._append(BridgedTable(self.java, access, job.view, writing=PlannedWrite(job)), frame)

    def change_rows(self, frame: DataFrame, access: TableAccess, job: WriteJob) -> Written:
        """Write rows, each in place of the row that its last two columns name."""
        if job.kind == "rows" and has_generator(frame):
            raise ExpressionError(
                job.parameters["set"], "a column takes one value, and this makes rows"
            )
        done: list[Written | IndexTablesError] = []
        writing = PlannedWrite(job, done.append)
        try:
            self._append(BridgedTable(self.java, access, job.view, writing=writing), frame)
        except Exception:
            if not done:
                raise
        (outcome,) = done
        if isinstance(outcome, IndexTablesError):
            raise outcome
        return outcome

    def can_store(self, value_type: DataType, column: DataType) -> bool:
        """Whether an INSERT stores values of this type in a column, by the session's policy."""
        if self.java.conf.storeAssignmentPolicy().toString() != "ANSI":
            return True  # another policy leaves more to casts
        cast = self.java.find("org.apache.spark.sql.catalyst.expressions.Cast")
        parse = self.java.find("org.apache.spark.sql.types.DataType").fromJson
        return bool(cast.canANSIStoreAssign(parse(value_type.json()), parse(column.json())))

    def cardinality_violation(self) -> Exception:
        """Spark's own error for a row that a MERGE matches twice."""
        from pyspark.errors.exceptions.captured import convert_exception

        errors = self.java.find("org.apache.spark.sql.errors.QueryExecutionErrors")
        return convert_exception(errors.mergeCardinalityViolationError())

    def _append(self, table: BridgedTable, frame: DataFrame) -> None:
        append = self.java.module("org.apache.spark.sql.catalyst.plans.logical.AppendData")
        nothing = self.java.module("scala.collection.immutable.Map").empty()
        jdf: Any = frame._jdf
        plan = jdf.logicalPlan()
        try:
            command = append.byName(self._relation(table), plan, nothing, False)
        except Exception:  # before Spark 4.3 there were three arguments
            command = append.byName(self._relation(table), plan, nothing)
        self._frame(command)

    def _relation(self, table: JavaObject) -> Any:
        none = self.java.none
        options = self.java.find("org.apache.spark.sql.util.CaseInsensitiveStringMap").empty()
        create = self.java.module(_RELATION).create
        try:
            return create(table, none, none, options, none)
        except Exception:  # before Spark 4.2 there was no time travel here
            return create(table, none, none, options)

    def _frame(self, plan: Any) -> DataFrame:
        from pyspark.sql import DataFrame

        dataset = self.java.module("org.apache.spark.sql.classic.Dataset")
        return DataFrame(dataset.ofRows(self.java.session, plan), self.java.spark)


@contextmanager
def _sentences() -> Iterator[None]:
    """What a catalog throws for Spark, as an error for Python."""
    try:
        yield
    except Py4JJavaError as error:
        message = str(error.java_exception.getMessage())
        raise StatementError(message.splitlines()[0]) from None


def _with_checked_columns(frame: DataFrame, snapshot: Snapshot) -> DataFrame:
    """The rows with null in columns that constraints name and they lack: Spark looks for them."""
    there = {name.lower() for name in frame.columns}
    columns = spark_schema(names_of(snapshot).shown)
    for constraint in constraints_of(snapshot.metadata):
        for name in names_columns(constraint.sql, columns.names):
            if name.lower() not in there:
                there.add(name.lower())
                frame = frame.withColumn(name, lit(None).cast(columns[name].dataType))
    return frame


# --- all hosts -------------------------------------------------------------------------------

T = TypeVar("T")

_ROUNDS = 3


class SparkHosts:
    """The driver of a session and its executors."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, function: Callable[[], T]) -> Sequence[Answer[T]]:
        """Run the function in every place, once for each executor; the driver comes first."""
        own_answer = answer(DRIVER, function)
        context: Any = self._spark.sparkContext
        if context._jsc.sc().isLocal():
            # Local tasks run on the driver's host and share its disks and their generation.
            return [own_answer]
        answers: dict[str, Answer[T]] = {}
        for reached in _rounds(context, function):
            for executor, reply in reached.items():
                answers.setdefault(executor, reply)
            executors = _executors(context)
            if executors.keys() <= answers.keys():
                break
        for executor, host in executors.items():
            if executor not in answers:
                answers[executor] = Answer(executor, host, error="no task reached it; run it again")
        return [own_answer, *(answers[executor] for executor in sorted(answers))]


def _executors(context: Any) -> dict[str, str]:
    """The hosts of the executors that are alive."""
    listed = context._jsc.sc().statusStore().executorList(True)
    summaries = [listed.apply(at) for at in range(listed.size())]
    return {s.id(): s.hostPort().rpartition(":")[0] for s in summaries if s.id() != DRIVER}


def _rounds(context: Any, function: Callable[[], T]) -> Iterator[dict[str, Answer[T]]]:
    scala = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    slots = max(1, scala.maxNumConcurrentTasks(profile))
    if context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() != "true":
        tasks = context.parallelize(range(slots), slots).barrier()
        yield _run(context, tasks, _one_per_executor(function))
    for _ in range(_ROUNDS):
        tasks = context.parallelize(range(2 * slots), 2 * slots)
        yield _run(context, tasks, _each(function))


Task = Callable[[Any], Iterator[tuple[int, Answer[Any]]]]


def _one_per_executor(function: Callable[[], Any]) -> Task:
    def task(_: Any) -> Iterator[tuple[int, Answer[Any]]]:
        from pyspark import BarrierTaskContext

        barrier = BarrierTaskContext.get()
        addresses = [info.address for info in barrier.getTaskInfos()]
        number = barrier.partitionId()
        # The first task of an executor does it; the others hold their slots meanwhile.
        if addresses.index(addresses[number]) == number:
            yield number, answer("", function)
        barrier.barrier()

    return task


def _each(function: Callable[[], Any]) -> Task:
    def task(_: Any) -> Iterator[tuple[int, Answer[Any]]]:
        from pyspark import TaskContext

        running = TaskContext.get()
        assert running is not None
        yield running.partitionId(), answer("", function)

    return task


def _run(context: Any, tasks: Any, task: Task) -> dict[str, Answer[Any]]:
    """Run a job; the answers by executor. Tasks do not know theirs, but the scheduler does."""
    group = f"indextables-{uuid.uuid4().hex}"
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    before = {name: context.getLocalProperty(name) for name in names}
    context.setJobGroup(group, "indextables: caches of all executors")
    try:
        answers: list[tuple[int, Answer[Any]]] = tasks.mapPartitions(task).collect()
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)
    places = _executors_of_tasks(context, group)
    return {
        places[number]: replace(reply, executor_id=places[number])
        for number, reply in reversed(answers)
        if number in places
    }


def _executors_of_tasks(context: Any, group: str) -> dict[int, str]:
    """The executor of each task of the last stage of a job."""
    scala, tracker = context._jsc.sc(), context.statusTracker()
    scala.listenerBus().waitUntilEmpty()
    executors: dict[int, str] = {}
    for job in tracker.getJobIdsForGroup(group):
        for stage in list(tracker.getJobInfo(job).stageIds):
            attempt = scala.statusStore().lastStageAttempt(stage).attemptId()
            listed = scala.statusStore().taskList(stage, attempt, 1 << 20)
            tasks = [listed.apply(at) for at in range(listed.size())]
            executors |= {task.index(): task.executorId() for task in tasks}
    return executors
