"""Our statements on a Spark session: finding the table that they name, and executing them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from indextables.config import Config, session_keys
from indextables.errors import IndexTablesError, StatementError
from indextables.lake.iceberg import CATALOG
from indextables.plan.access import NAME, PROVIDERS, SPARK_CATALOG, SourceOptions, TableAccess
from indextables.plan.view import refuse_search_index
from indextables.predicate.literals import quoted_name
from indextables.predicate.search_names import mentions_search
from indextables.spark.bridge.sessions import (
    bridge_of,
    is_classic,
    session_settings,
    without_analysis_log,
)
from indextables.statements.forms import Target
from indextables.statements.session import SOURCE_FORMATS, Hosts, ThisProcess, named_source
from indextables.statements.spark_clauses import MergeInto
from indextables.statements.statements import (
    DeleteRows,
    DropPartitions,
    Restore,
    Statement,
    UpdateRows,
)
from indextables.storage import Store
from indextables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from indextables.spark.bridge.session_bridge import SessionBridge


def access_to(spark: SparkSession, target: Target) -> TableAccess:
    """How to reach the table that a statement is about, with the session's configuration."""
    named_path = _path(target)
    path, options = (named_path, {}) if named_path is not None else _named_location(spark, target)
    if not path.strip():
        raise StatementError("The path of the table is empty. Write it in quotes.")
    return SourceOptions.parse({**options, "path": path}, session_settings(spark)).access()


def open_target(spark: SparkSession, target: Target) -> Table:
    """The table that a statement is about."""
    return table_at(access_to(spark, target))


def table_at(access: TableAccess) -> Table:
    """The table at a place."""
    return Table.of_log(access.log())


def store_at(spark: SparkSession, path: str) -> Store:
    """The store at a path, table or not, with the session's credentials."""
    return SourceOptions.parse({"path": path}, session_settings(spark)).access().store()


def _named_location(spark: SparkSession, target: Target) -> tuple[str, Mapping[str, str]]:
    """Where a named table is, and the options that it was created with."""
    from pyspark.errors import AnalysisException

    name = ".".join(map(quoted_name, target.name))
    try:
        named = spark.catalog.getTable(name)
    except AnalysisException:
        raise StatementError(
            f"There is no table {target}. Write its path in quotes, or its name as in SHOW TABLES."
        ) from None
    if named.isTemporary or named.tableType == "VIEW":
        raise StatementError(
            f"{target} is a view, not a table. Name the table that it reads, or its path in quotes."
        )
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    properties = {row["col_name"]: row["data_type"] for row in described}
    provider, location = properties.get("Provider"), properties.get("Location")
    if provider is None or provider.lower() not in PROVIDERS or location is None:
        raise StatementError(f"{target} is a table of {provider}, not an index table.")
    bridge = bridge_of(spark)
    if bridge is None or named.catalog != SPARK_CATALOG or not named.namespace:
        return str(location), {}
    return str(location), bridge.options_of(named.namespace[0], named.name)


class SparkIndexes:
    """Search indexes and their sources by the names of Spark's catalogs."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def source(self, target: Target) -> tuple[str, TableAccess]:
        """The source that a path or a table of Spark's catalog names."""
        from pyspark.errors import AnalysisException

        named = named_source(target)
        if named is not None and named[1].startswith(CATALOG):
            return named[0], TableAccess(named[1])  # pyiceberg's settings say how to reach it
        if named is not None:
            return named[0], self._at(named[1])
        if target.path is not None:
            raise StatementError(
                f"The source '{target}' has no format. Write delta.`{target}`, "
                f"iceberg.`{target}` or parquet.`{target}`."
            )
        name = ".".join(map(quoted_name, target.name))
        try:
            described = self._spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
        except AnalysisException as error:
            raise StatementError(
                f"Spark's catalog has no table {target} to be a source "
                f"({error.getCondition() or 'it cannot be read'}). Write its place: delta.`…`, "
                "iceberg.`…` or parquet.`…`."
            ) from None
        facts = {row["col_name"]: row["data_type"] for row in described}
        provider, location = str(facts.get("Provider", "")).lower(), facts.get("Location")
        if provider not in SOURCE_FORMATS or location is None:
            raise StatementError(
                f"{target} is a {'view' if not provider else f'table of {provider}'}. A search "
                "index is over a Delta or Iceberg table or Parquet files."
            )
        return provider, self._at(str(location))

    def find(self, target: Target) -> TableAccess:
        """The index of a name or a path; its source is not looked at."""
        path = _path(target)
        if path is not None:
            return self._at(path)
        place = self._bridge(target).place_of(target.name)
        if place is None:
            raise StatementError(
                f"There is no search index {target}. Write its path in quotes, or its name as in "
                "SHOW TABLES."
            )
        return place

    def new(self, target: Target, location: str | None) -> TableAccess:
        """The place of an index that is created: its path, LOCATION, or the warehouse."""
        path = _path(target)
        if path is not None:
            if location is not None:
                raise StatementError(f"'{path}' is a path already. Leave out LOCATION.")
            return self._at(path)
        bridge = self._bridge(target)
        place = bridge.place_of(target.name)
        if place is not None:
            return place
        return bridge.new_place(target.name, location)

    def created(self, target: Target, access: TableAccess) -> None:
        """Register the name with its catalog, unless the folder is the name."""
        if _path(target) is None:
            self._bridge(target).register(target.name, access)

    def dropped(self, target: Target, access: TableAccess) -> None:  # noqa: ARG002
        """Take the name out of its catalog."""
        if _path(target) is None:
            name = ".".join(map(quoted_name, target.name))
            self._spark.sql(f"DROP TABLE IF EXISTS {name}")

    def _at(self, path: str) -> TableAccess:
        return SourceOptions.parse({"path": path}, session_settings(self._spark)).access()

    def _bridge(self, target: Target) -> SessionBridge:
        bridge = bridge_of(self._spark)
        if bridge is None:
            raise StatementError(
                f"{target} is a name, and this session of Spark has no catalog of index tables. "
                "Write the path of the search index in quotes."
            )
        return bridge


def _path(target: Target) -> str | None:
    """The path that a target is, in quotes or as a name of the catalog."""
    if target.path is not None:
        return target.path
    if len(target.name) == 2 and target.name[0].lower() == NAME and "/" in target.name[1]:
        return target.name[1]
    return None


# --- execution -----------------------------------------------------------------------------------


def _config(spark: SparkSession) -> Config:
    return Config(session_keys(session_settings(spark)))


def change_rows(
    spark: SparkSession,
    statement: DeleteRows | UpdateRows,
    text: str,
    query: Callable[[str], DataFrame],
) -> DataFrame:
    """DELETE or UPDATE: ours if the table is. Spark computes what our evaluator lacks."""
    from pyspark.errors import AnalysisException, ParseException

    from indextables.spark import row_statements
    from indextables.statements.maintenance import changed

    try:
        access = access_to(spark, statement.table)
        table = table_at(access)
    except IndexTablesError:
        if statement.table.path is not None:  # Spark has no paths in quotes
            raise
        return query(text)
    refuse_search_index(table.metadata(), uri=table.uri)
    bridge = bridge_of(spark)
    is_update = isinstance(statement, UpdateRows)
    if (bridge is None and is_update) or not row_statements.needs_spark(
        table, statement, timezone=_timezone(spark), by_ansi=not is_update or _is_by_ansi(spark)
    ):
        return execute_statement(spark, statement)
    if bridge is None:
        return query(text)
    if (
        isinstance(statement, DeleteRows)
        and statement.table.path is None
        and not mentions_search(text)
    ):
        # Spark folds constants and binds parameters. If the result can be pushed down, the table
        # deletes by that condition, and no row has to be named.
        try:
            with without_analysis_log():
                return query(text)
        except ParseException:
            raise
        except AnalysisException:
            pass
        except Exception as error:
            if "Unexpected table relation" not in str(error):  # a condition calls Python
                raise
    snapshot = table.snapshot()
    if isinstance(statement, UpdateRows):
        written = row_statements.update_rows(statement, access, snapshot, query, bridge)
    else:
        written = row_statements.delete_rows(statement, access, snapshot, query)
    _refresh(spark, statement.table)
    return spark.createDataFrame(changed(table, written, "updated" if is_update else "deleted"))


def execute_in_delta_form(
    spark: SparkSession, statement: Statement, text: str, query: Callable[[str], DataFrame]
) -> DataFrame:
    """A statement in a form of Delta Lake: ours if the table is, else Spark's to answer."""
    from pyspark.errors import AnalysisException

    try:
        open_target(spark, statement.table).metadata()  # type: ignore[attr-defined]
    except IndexTablesError as ours:
        try:
            with without_analysis_log():
                return query(text)
        except AnalysisException as theirs:  # without Delta, DESCRIBE HISTORY t is about HISTORY
            condition = theirs.getCondition() or ""
            if condition.startswith(("PARSE_SYNTAX_ERROR", "TABLE_OR_VIEW_NOT_FOUND")):
                raise ours from None
            raise
    return execute_statement(spark, statement)


def merge_into(
    spark: SparkSession, statement: MergeInto, text: str, query: Callable[[str], DataFrame]
) -> DataFrame:
    """MERGE INTO: ours if the table is."""
    from indextables.spark.merge_statement import merge_rows
    from indextables.statements.maintenance import merged_rows

    bridge = bridge_of(spark)
    try:
        access = access_to(spark, statement.table)
        table = table_at(access)
    except IndexTablesError:
        if statement.table.path is not None:
            raise
        return query(text)
    refuse_search_index(table.metadata(), uri=table.uri)
    if bridge is None:
        raise StatementError(
            "MERGE INTO of this session needs the bridge to Spark, which it does not have. Merge "
            "with Table.merge, or on Spark Connect by the table's path."
        )
    written = merge_rows(statement, access, table.snapshot(), query, bridge)
    _refresh(spark, statement.table)
    return spark.createDataFrame(merged_rows(table.uri, written))


def _is_by_ansi(spark: SparkSession) -> bool:
    stores = str(spark.conf.get("spark.sql.storeAssignmentPolicy", "ANSI")).upper()
    return stores == "ANSI" and spark.conf.get("spark.sql.ansi.enabled", "true") == "true"


def _timezone(spark: SparkSession) -> str:
    return spark.conf.get("spark.sql.session.timeZone") or "UTC"


def _hosts(spark: SparkSession) -> Hosts:
    if not is_classic(spark):
        return ThisProcess()
    from indextables.spark.bridge.session_bridge import SparkHosts  # needs py4j

    return SparkHosts(spark)


def execute_statement(spark: SparkSession, statement: Statement) -> DataFrame:
    """Execute an IndexTables statement and return its rows."""
    from indextables.spark.runner import SparkRunner
    from indextables.statements.execute import Session, execute

    session = Session(
        resolve=functools.partial(open_target, spark),
        config=_config(spark),
        hosts=_hosts(spark),
        properties=session_settings(spark),
        runner=SparkRunner(spark) if is_classic(spark) else None,
        timezone=_timezone(spark),
        open_store=functools.partial(store_at, spark),
        indexes=SparkIndexes(spark),
    )
    done = spark.createDataFrame(execute(statement, session))
    if isinstance(statement, DeleteRows | UpdateRows | Restore | DropPartitions):
        _refresh(spark, statement.table)
    return done


def _refresh(spark: SparkSession, table: Target) -> None:
    """Let Spark forget the rows that it cached of a table, as it does after its own statements."""
    name = ".".join(map(quoted_name, table.name or (NAME, str(table.path))))
    with contextlib.suppress(Exception):  # a table that Spark cannot find has no cached rows
        spark.sql(f"REFRESH TABLE {name}")
