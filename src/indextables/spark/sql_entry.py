"""SQL text on its way to Spark: our statements are carried out, searches are made ready.

`install` wraps every place where PySpark takes SQL text: `spark.sql`, `DataFrame.filter` and
`where`, `DataFrame.selectExpr` and `functions.expr`. Text without a search and without a statement
of ours goes to Spark byte for byte. What a view keeps is the prepared text, so it works in every
session that has the functions.

What is wrapped are classes, because `SparkSession.getActiveSession()` and `df.sparkSession` make
new objects for the same session. Sessions that were not enabled are left alone: the wrappers look
first. `functions.expr` has no session; on a classic session it is prepared as soon as one is
enabled, and on Spark Connect it is not. Text that never passes through Python is not seen:
`EXECUTE IMMEDIATE`, a Thrift server, JVM code.

A search of all fields takes the row from the hidden column `_indexall` of an index table. Where a
relation has none (a view, another DataFrame), it is tried again with all columns of the relation.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from indextables.config import INDEXQUERY_MAX_DEPTH, INDEXQUERY_MAX_LENGTH, Config, is_own_key
from indextables.errors import (
    IndexTablesError,
    SearchCallError,
)
from indextables.predicate.operators import ALL_FIELDS
from indextables.spark.time_travel import rooted
from indextables.statements.forms import Target
from indextables.statements.search_calls import Arguments, Row, needs_row, prepare
from indextables.statements.statements import (
    DeleteRows,
    DropPartitions,
    Restore,
    Statement,
    UpdateRows,
    may_be_ours,
    parse,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LIMITS = (INDEXQUERY_MAX_LENGTH, INDEXQUERY_MAX_DEPTH)
_SHOW_TABLES = re.compile(r"\s*SHOW\s+TABLES?\b", re.IGNORECASE)
_EXPLAIN = re.compile(r"\s*EXPLAIN\b", re.IGNORECASE)
_enabled: set[str] = set()
_patching = threading.Lock()


def install(spark: SparkSession) -> None:
    """Make a session understand searches and statements. Doing it again does no harm."""
    _enabled.add(_identity(spark))
    frame = _frame_class(spark)
    with _patching:
        _wrap(_session_class(spark), "sql", _sql)
        _wrap(frame, "filter", _filter)
        _wrap(frame, "select", _select)
        _wrap(frame, "withColumn", _with_column)
        _wrap(frame, "selectExpr", _select_expr)
        _wrap(frame, "explain", _explain)
        if _is_classic(spark):
            from pyspark.sql.functions import builtin

            # `expr` may have been imported by name already; what it calls is looked up each time.
            _wrap(builtin, "_invoke_function", _invoke_function)


def _is_classic(spark: Any) -> bool:
    return getattr(spark, "_jsparkSession", None) is not None


def _session_class(spark: Any) -> Any:
    if _is_classic(spark):
        from pyspark.sql.session import SparkSession

        return SparkSession
    return type(spark)


def _identity(spark: Any) -> str:
    if _is_classic(spark):
        known = spark.__dict__.get("_indextables_uuid")
        if known is None:
            known = spark._indextables_uuid = str(spark._jsparkSession.sessionUUID())
        return str(known)
    return str(spark.session_id)


def _frame_class(spark: Any) -> Any:
    if _is_classic(spark):
        from pyspark.sql.classic.dataframe import DataFrame

        return DataFrame
    from pyspark.sql.connect.dataframe import DataFrame as RemoteFrame

    return RemoteFrame


def _wrap(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    if getattr(original, "_indextables", None) is not None:
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    wrapper._indextables = original  # type: ignore[attr-defined]
    setattr(owner, name, wrapper)


# --- the wrapped methods ---------------------------------------------------------------------


def _sql(
    original: Callable[..., DataFrame],
    spark: SparkSession,
    sqlQuery: str,  # noqa: N803 - Spark's name
    args: Arguments = None,
    **kwargs: Any,
) -> DataFrame:
    if isinstance(sqlQuery, str) and _SHOW_TABLES.match(sqlQuery) and _is_enabled(spark):
        _remember_names(spark)
    if isinstance(sqlQuery, str) and rooted(sqlQuery) != sqlQuery and _is_enabled(spark):
        sqlQuery = rooted(sqlQuery)  # noqa: N806
    if isinstance(sqlQuery, str) and _EXPLAIN.match(sqlQuery) and _bridge(spark) is not None:
        original = functools.partial(_explained, original)
    concerns = isinstance(sqlQuery, str) and (_searches(sqlQuery) or may_be_ours(sqlQuery))
    if not concerns or not _is_enabled(spark):
        return original(spark, sqlQuery, args, **kwargs)
    if not kwargs or not _is_classic(spark):
        return _ours_or_prepared(functools.partial(original, **kwargs), spark, sqlQuery, args)

    from pyspark.sql.sql_formatter import SQLStringFormatter

    # Names in braces stand for values and frames, and may be the query of a search.
    formatter = SQLStringFormatter(spark)
    text = formatter.format(sqlQuery, **kwargs)
    try:
        return _ours_or_prepared(original, spark, text, args)
    finally:
        formatter.clear()


def _ours_or_prepared(
    original: Callable[..., DataFrame], spark: SparkSession, text: str, args: Arguments
) -> DataFrame:
    statement = parse(text)

    def query(text: str) -> DataFrame:
        return _prepared(lambda ready: original(spark, ready, args), text, spark, args)

    if statement is None:
        return query(text)
    if isinstance(statement, DeleteRows | UpdateRows):
        return _change_rows(spark, statement, text, query)
    return _execute(spark, statement)


def _filter(
    original: Callable[..., DataFrame], frame: DataFrame, condition: Column | str
) -> DataFrame:
    if not _concerns(frame):
        return original(frame, condition)
    if isinstance(condition, str):
        return _prepared(lambda text: original(frame, text), condition, frame.sparkSession)
    return _with_row(frame, lambda rows: original(rows, condition))


def _select(original: Callable[..., DataFrame], frame: DataFrame, *cols: Any) -> DataFrame:
    if not _concerns(frame):
        return original(frame, *cols)
    return _with_row(frame, lambda rows: original(rows, *cols))


def _with_column(
    original: Callable[..., DataFrame],
    frame: DataFrame,
    colName: str,  # noqa: N803 - Spark's name
    col: Column,
) -> DataFrame:
    if not _concerns(frame):
        return original(frame, colName, col)
    return _with_row(frame, lambda rows: original(rows, colName, col))


def _select_expr(original: Callable[..., DataFrame], frame: DataFrame, *expr: Any) -> DataFrame:
    texts = expr[0] if len(expr) == 1 and isinstance(expr[0], list) else expr
    ours = all(isinstance(text, str) for text in texts) and any(map(_searches, texts))
    if not ours or not _concerns(frame):
        return original(frame, *expr)

    def run(row: Row) -> DataFrame:
        limits = _limits(frame.sparkSession)
        return original(frame, *(prepare(text, row=row, config=limits) for text in texts))

    return _either(run, needed=any(map(needs_row, texts)))


def _explained(
    original: Callable[..., DataFrame], spark: SparkSession, text: str, *args: Any, **kwargs: Any
) -> DataFrame:
    """EXPLAIN with the names of the scans that Spark shows as LocalTableScan."""
    explained = original(spark, text, *args, **kwargs)
    shown = _driver_scans(explained)
    if not shown:
        return explained
    return spark.createDataFrame([(explained.first()[0] + shown,)], explained.schema)  # type: ignore[index]


def _explain(original: Callable[..., None], frame: DataFrame, *args: Any, **kwargs: Any) -> None:
    original(frame, *args, **kwargs)
    if _concerns(frame) and _bridge(frame.sparkSession) is not None:
        print(_driver_scans(frame), end="")  # noqa: T201 - as Spark does


def _driver_scans(frame: DataFrame) -> str:
    from indextables.spark.bridge.frames import driver_scans

    try:
        scans = driver_scans(frame)
    except Exception:  # the interface is Spark's own and may change
        return ""
    return "\n".join(["\n== LocalTableScan of index tables ==", *scans, ""]) if scans else ""


def _invoke_function(original: Callable[..., Column], name: str, *args: Any) -> Column:
    if name == "expr" and _enabled and isinstance(args[0], str):
        return original(name, prepare(args[0]), *args[1:])
    return original(name, *args)


def _searches(text: str) -> bool:
    return "indexquery" in text.lower()


def _concerns(frame: DataFrame) -> bool:
    return _is_enabled(frame.sparkSession)


def _is_enabled(spark: SparkSession) -> bool:
    if _identity(spark) in _enabled:
        return True
    if not _is_classic(spark):
        return False
    from indextables.spark.readwriter import is_enabled

    return is_enabled(spark)  # it may be a clone


# --- the row of a search of all fields ---------------------------------------------------------


def _prepared(
    call: Callable[[str], DataFrame], text: str, spark: SparkSession, args: Arguments = None
) -> DataFrame:
    if not _searches(text):
        return call(text)
    limits = _limits(spark)
    return _either(
        lambda row: call(prepare(text, arguments=args, row=row, config=limits)),
        needed=needs_row(text),
    )


def _either(run: Callable[[Row], DataFrame], *, needed: bool) -> DataFrame:
    """With the hidden column of an index table; if there is none, with all columns."""
    from pyspark.errors import AnalysisException

    if not needed:
        return run(Row.HIDDEN)
    try:
        with _quiet():
            return run(Row.HIDDEN)
    except AnalysisException as error:
        if not _lacks_row(error):
            raise
    try:
        return run(Row.STAR)
    except AnalysisException as error:
        if not (error.getCondition() or "").startswith("INVALID_USAGE_OF_STAR"):
            raise
    raise SearchCallError(
        "indexqueryall",
        "cannot see the row here. In a join condition, GROUP BY or HAVING, search in a subquery: "
        "(SELECT * FROM … WHERE indexqueryall('…')).",
    )


def _with_row(frame: DataFrame, run: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """The same for columns: they cannot be written anew, so the row is added for them."""
    from pyspark.errors import AnalysisException

    try:
        return run(frame)
    except AnalysisException as error:
        if not _lacks_row(error) or ALL_FIELDS in frame.columns:
            raise
    from pyspark.sql.functions import struct

    from indextables.spark.search_mapping import with_unique_names

    row = struct("*")
    if len(set(frame.columns)) < len(frame.columns):
        row = row.cast(with_unique_names(frame.schema))  # by position
    return run(frame.withColumn(ALL_FIELDS, row)).drop(ALL_FIELDS)


def _lacks_row(error: Any) -> bool:
    """Whether no table in sight has the hidden column, or several have it."""
    condition = error.getCondition() or ""
    return condition.startswith(("UNRESOLVED_COLUMN", "AMBIGUOUS_REFERENCE")) and (
        ALL_FIELDS in str(error)
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PySpark logs every failed analysis; one that is tried again is none."""
    from pyspark.logger import PySparkLogger

    # By PySpark's own class: whoever asks for a logger first decides what it is.
    logger, thread = PySparkLogger.getLogger("SQLQueryContextLogger"), threading.get_ident()

    def others(_: logging.LogRecord) -> bool:
        return threading.get_ident() != thread

    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)


def _limits(spark: SparkSession) -> Config:
    """The limits of queries alone: the whole configuration takes as long as a small query."""
    found = {key.name: spark.conf.get(key.name, None) for key in _LIMITS}
    return Config({name: value for name, value in found.items() if value is not None})


def _remember_names(spark: SparkSession) -> None:
    if _is_classic(spark):
        from indextables.spark.readwriter import remember_names

        remember_names(spark)


# --- statements ------------------------------------------------------------------------------


def _config(spark: SparkSession) -> Config:
    from indextables.spark.readwriter import session_settings

    settings = session_settings(spark)
    return Config({name: value for name, value in settings.items() if is_own_key(name)})


def _change_rows(
    spark: SparkSession,
    statement: DeleteRows | UpdateRows,
    text: str,
    query: Callable[[str], DataFrame],
) -> DataFrame:
    """DELETE or UPDATE: ours if the table is. Spark computes what our evaluator lacks."""
    from pyspark.errors import AnalysisException, ParseException

    from indextables.spark import row_statements
    from indextables.spark.table_names import access_to, table_at
    from indextables.statements.maintenance import changed

    try:
        access = access_to(spark, statement.table)
        table = table_at(access)
    except IndexTablesError:
        if statement.table.path is not None:  # Spark has no paths in quotes
            raise
        return query(text)
    bridge = _bridge(spark)
    is_update = isinstance(statement, UpdateRows)
    if not row_statements.needs_spark(table, statement, timezone=_timezone(spark)) or (
        bridge is None and is_update
    ):
        return _execute(spark, statement)
    if bridge is None:
        return query(text)
    if isinstance(statement, DeleteRows) and statement.table.path is None and not _searches(text):
        # Spark folds constants and binds parameters; if that leaves a condition of ours, it asks
        # us, and no row has to be named.
        try:
            with _quiet():
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


def _bridge(spark: SparkSession) -> Any:
    from indextables.spark.readwriter import bridge_of

    return bridge_of(spark) if _is_classic(spark) else None


def _timezone(spark: SparkSession) -> str:
    return spark.conf.get("spark.sql.session.timeZone") or "UTC"


def _execute(spark: SparkSession, statement: Statement) -> DataFrame:
    from indextables.spark.hosts import SparkHosts
    from indextables.spark.readwriter import session_settings
    from indextables.spark.runner import SparkRunner
    from indextables.spark.table_names import open_target, store_at
    from indextables.statements.execute import Session, execute

    session = Session(
        resolve=functools.partial(open_target, spark),
        config=_config(spark),
        hosts=SparkHosts(spark),
        properties=session_settings(spark),
        runner=SparkRunner(spark) if _is_classic(spark) else None,
        timezone=_timezone(spark),
        open_store=functools.partial(store_at, spark),
    )
    done = spark.createDataFrame(execute(statement, session))
    if isinstance(statement, DeleteRows | UpdateRows | Restore | DropPartitions):
        _refresh(spark, statement.table)
    return done


def _refresh(spark: SparkSession, table: Target) -> None:
    """Let Spark forget the rows that it cached of a table, as it does after its own statements."""
    parts = table.name or ("indextables", str(table.path))
    name = ".".join("`" + part.replace("`", "``") + "`" for part in parts)
    with contextlib.suppress(Exception):  # of a name that only we know nothing is cached
        spark.sql(f"REFRESH TABLE {name}")
