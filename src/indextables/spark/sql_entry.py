"""SQL text on its way to Spark: our statements are executed, searches are prepared.

`install` replaces the methods of PySpark that take SQL text: `spark.sql`, `DataFrame.filter` and
`where`, `DataFrame.selectExpr` and `functions.expr`. Text without a search and without an
IndexTables statement goes to Spark unchanged. A view stores the prepared text, so it works in every
session that has the functions.

Sessions that were not enabled keep PySpark's behaviour. `functions.expr` has no session; on a
classic session it is prepared as soon as one is enabled, and on Spark Connect it is not. Text that
never passes through Python is not seen: `EXECUTE IMMEDIATE`, a Thrift server, JVM code.

A search of all fields takes the row from the hidden column `_indexall` of an index table. Where a
relation has none (a view, another DataFrame), it is tried again with all columns of the relation.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from indextables.config import INDEXQUERY_MAX_DEPTH, INDEXQUERY_MAX_LENGTH, Config
from indextables.errors import IndexTablesError, SearchCallError
from indextables.plan.access import NAME
from indextables.plan.view import refuse_search_index
from indextables.predicate.search_names import mentions_search
from indextables.predicate.spark_tokens import ALL_FIELDS, mark_options, options_in
from indextables.spark.bridge import patches
from indextables.spark.bridge.readwriter import create_view, remember_names
from indextables.spark.bridge.sessions import (
    bridge_of,
    is_classic,
    is_enabled,
    is_registered,
    register,
    without_analysis_log,
)
from indextables.spark.connect import (
    execute_on_server,
    merge_frame_on_server,
    merge_on_server,
    names_path,
    with_relations,
)
from indextables.spark.statements import (
    access_to,
    change_rows,
    execute_in_delta_form,
    execute_statement,
    merge_into,
    table_at,
)
from indextables.spark.table_functions import PREFIX, with_frames
from indextables.statements.forms import Failure, Target, form, words_of
from indextables.statements.search_calls import Arguments, Row, needs_row, prepare, with_name
from indextables.statements.spark_clauses import MergeInto, named_parameters, parse_merge, rooted
from indextables.statements.statements import DeleteRows, Statement, UpdateRows, may_be_ours, parse
from indextables.storage.location import HIDDEN, secrets

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LIMITS = (INDEXQUERY_MAX_LENGTH, INDEXQUERY_MAX_DEPTH)
_SHOW_TABLES = re.compile(r"\s*SHOW\s+TABLES?\b", re.IGNORECASE)
_REDACTED = "spark.sql.redaction.string.regex"
# Spark hides options of tables in its event log by this rule, which no setting changes.
_HIDDEN_BY_SPARK = re.compile(r"(?i)secret|password|token|access[.]?key")
_MADE_WITH_OPTIONS = re.compile(
    r"\s*(?:EXPLAIN\s+(?:\w+\s+)?)?(?:CREATE\s+)?(?:OR\s+)?(?:REPLACE\s+)?(?:EXTERNAL\s+)?TABLE\b"
    r".*\bUSING\s+[`\w.]*indextables\b.*\bOPTIONS\b",
    re.IGNORECASE | re.DOTALL,
)
_VIEW_OF_SOURCE = re.compile(r"\s*CREATE\b.*\bTEMP(?:ORARY)?\s+VIEW\b.*\bUSING\b", re.I | re.S)
_EXPLAIN = re.compile(r"\s*EXPLAIN\b", re.IGNORECASE)
_KEPT_BY_LOG = re.compile(
    r"\s*(?:ANALYZE\s+TABLE|(?P<repairs>(?:MSCK|(?:MSCK\s+)?REPAIR)\s+TABLE|ALTER\s+TABLE"
    r"(?=.*\bRECOVER\s+PARTITIONS\s*$)))\s+(?P<name>(?:`[^`]+`|\w+)(?:\s*\.\s*(?:`[^`]+`|\w+))*)",
    re.IGNORECASE | re.DOTALL,
)
"""Statements about what the log of an index table has at any time."""


def install(spark: SparkSession) -> None:
    """Make a session understand searches and statements. Doing it again does nothing."""
    if not is_registered(spark):
        register(spark, None)
    patches.install(
        spark,
        {
            "SparkSession.sql": _sql,
            "DataFrame.filter": _filter,
            "DataFrame.select": _select,
            "DataFrame.withColumn": _with_column,
            "DataFrame.selectExpr": _select_expr,
            "DataFrame.explain": _explain,
        },
    )
    patches.install(spark, {"DataFrame.mergeInto": _merge_into})
    if is_classic(spark):
        patches.replace_expr(_invoke_function)


# --- the wrapped methods ---------------------------------------------------------------------


def _sql(
    original: Callable[..., DataFrame],
    spark: SparkSession,
    sqlQuery: str,  # noqa: N803 - Spark's name
    args: Arguments = None,
    **kwargs: Any,
) -> DataFrame:
    if not isinstance(sqlQuery, str):
        return original(spark, sqlQuery, args, **kwargs)
    if _SHOW_TABLES.match(sqlQuery) and is_enabled(spark):
        remember_names(spark)
    if (text := rooted(sqlQuery)) != sqlQuery and is_enabled(spark):
        sqlQuery = text  # noqa: N806
    if bridge_of(spark) and _MADE_WITH_OPTIONS.match(sqlQuery):
        sqlQuery = mark_options(sqlQuery, HIDDEN, _is_shown_secret)  # noqa: N806
    if _EXPLAIN.match(sqlQuery) and bridge_of(spark) is not None:
        original = functools.partial(_explained, original)
    if _KEPT_BY_LOG.match(sqlQuery) and bridge_of(spark) is not None:
        original = functools.partial(_nothing_to_do, original)
    if _VIEW_OF_SOURCE.match(sqlQuery) and bridge_of(spark):
        view = create_view(spark, sqlQuery, functools.partial(original, spark))
        if view is not None:
            return view
    if PREFIX in sqlQuery.lower() and is_enabled(spark):
        sqlQuery, frames = with_frames(spark, sqlQuery)  # noqa: N806
        kwargs |= frames
    concerns = (
        mentions_search(sqlQuery)
        or may_be_ours(sqlQuery)
        or (not is_classic(spark) and f"{NAME}." in sqlQuery.lower())
    )
    if not concerns or not is_enabled(spark):
        return original(spark, sqlQuery, args, **kwargs)
    if not kwargs or not is_classic(spark):
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
    text, args = with_name(text, args, functools.partial(_value, original, spark))
    statement, text, args = _parsed(text, args)
    if not is_classic(spark):
        return _on_server(original, spark, statement, text, args)

    def query(text: str) -> DataFrame:
        return _prepared(lambda ready: original(spark, ready, args), text, spark, args)

    if statement is None:
        return query(text)
    if isinstance(statement, MergeInto):
        return merge_into(spark, statement, text, query)
    if isinstance(statement, DeleteRows | UpdateRows):
        return change_rows(spark, statement, text, query)
    if statement.in_delta_form:
        return execute_in_delta_form(spark, statement, text, query)
    return execute_statement(spark, statement)


def _parsed(text: str, args: Arguments) -> tuple[MergeInto | Statement | None, str, Arguments]:
    """The statement that a text is, if it may be ours; parameters of a MERGE have names then."""
    merge = parse_merge(text)
    if merge is not None and isinstance(args, list):
        text, args = named_parameters(text, args)
        merge = parse_merge(text)
    return merge or parse(text), text, args


def _value(
    original: Callable[..., DataFrame], spark: SparkSession, expression: str, args: Arguments
) -> Any:
    return original(spark, f"SELECT {expression}", args).collect()[0][0]


def _on_server(
    original: Callable[..., DataFrame],
    spark: SparkSession,
    statement: MergeInto | Statement | None,
    text: str,
    args: Arguments,
) -> DataFrame:
    """A statement or a query of a client of Spark Connect, which may not see the tables."""
    if isinstance(statement, MergeInto):
        if names_path(statement):
            run = functools.partial(_query_on_server, original, spark, args=args)
            return merge_on_server(original, spark, statement, run)
    elif statement is not None:
        may_be_others = isinstance(statement, DeleteRows | UpdateRows) or statement.in_delta_form
        if not may_be_others or names_path(statement):
            return execute_on_server(original, spark, text)
    return _query_on_server(original, spark, text, args)


def _query_on_server(
    original: Callable[..., DataFrame], spark: SparkSession, text: str, args: Arguments
) -> DataFrame:
    relations = with_relations(spark, text, args)
    if relations is not None:
        ready, frames = relations
        return original(spark, ready, args, **frames)
    ready = prepare(text, arguments=args, row=Row.STRUCT, config=_limits(spark))
    return original(spark, ready, args)


def _filter(
    original: Callable[..., DataFrame], frame: DataFrame, condition: Column | str
) -> DataFrame:
    if not is_enabled(frame.sparkSession):
        return original(frame, condition)
    if isinstance(condition, str):
        return _prepared(lambda text: original(frame, text), condition, frame.sparkSession)
    return _with_row(frame, lambda rows: original(rows, condition))


def _select(original: Callable[..., DataFrame], frame: DataFrame, *cols: Any) -> DataFrame:
    if not is_enabled(frame.sparkSession):
        return original(frame, *cols)
    return _with_row(frame, lambda rows: original(rows, *cols))


def _with_column(
    original: Callable[..., DataFrame],
    frame: DataFrame,
    colName: str,  # noqa: N803 - Spark's name
    col: Column,
) -> DataFrame:
    if not is_enabled(frame.sparkSession):
        return original(frame, colName, col)
    return _with_row(frame, lambda rows: original(rows, colName, col))


def _select_expr(original: Callable[..., DataFrame], frame: DataFrame, *expr: Any) -> DataFrame:
    texts = expr[0] if len(expr) == 1 and isinstance(expr[0], list) else expr
    has_searches = all(isinstance(text, str) for text in texts) and any(map(mentions_search, texts))
    if not has_searches or not is_enabled(frame.sparkSession):
        return original(frame, *expr)

    def run(row: Row) -> DataFrame:
        limits = _limits(frame.sparkSession)
        return original(frame, *(prepare(text, row=row, config=limits) for text in texts))

    if not is_classic(frame.sparkSession):
        return run(Row.STRUCT)
    return _with_hidden_row_or_all_columns(run, needed=any(map(needs_row, texts)))


def _merge_into(
    original: Callable[..., Any], frame: DataFrame, table: str, condition: Column
) -> Any:
    """`df.mergeInto`: of an index table it is planned here."""
    from indextables.spark.merge_statement import MergeBuilder, merge_frame

    spark = frame.sparkSession
    named = form("TABLE <table>").match(words_of(f"TABLE {table}") or ())
    if not is_enabled(spark) or named is None or isinstance(named, Failure):
        return original(frame, table, condition)
    bridge = bridge_of(spark)
    if bridge is None:
        target: Target = named["table"]
        if is_classic(spark) or len(target.name) != 2 or target.name[0].lower() != NAME:
            return original(frame, table, condition)
        merge = functools.partial(merge_frame_on_server, type(spark).sql, spark, target.name[1])
        return MergeBuilder(frame, table, condition, merge)
    try:
        access = access_to(spark, named["table"])
        metadata = table_at(access).metadata()
    except IndexTablesError:
        return original(frame, table, condition)
    refuse_search_index(metadata, uri=access.uri)

    def run(builder: MergeBuilder) -> None:
        snapshot = access.log().newest()
        merge_frame(builder, access, snapshot, spark.sql, bridge)

    return MergeBuilder(frame, table, condition, run)


def _nothing_to_do(
    original: Callable[..., DataFrame],
    spark: SparkSession,
    text: str,
    args: Arguments = None,
    **kwargs: Any,
) -> DataFrame:
    """ANALYZE TABLE, MSCK REPAIR TABLE: the log of an index table has statistics and partitions."""
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import StructType

    text, args = with_name(text, args, functools.partial(_value, original, spark))
    match = _KEPT_BY_LOG.match(text)
    named = form("TABLE <table>").match(words_of(f"TABLE {match['name']}") or ()) if match else None
    try:
        return original(spark, text, args, **kwargs)
    except AnalysisException as error:
        is_of_files = error.getCondition() != "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"
        if is_of_files or named is None or isinstance(named, Failure):
            raise
        try:
            metadata = table_at(access_to(spark, named["table"])).metadata()
        except IndexTablesError:
            raise error from None
        if match is not None and match["repairs"] and not metadata.partition_columns:
            raise AnalysisException(  # as Spark says it of its own formats
                f"[NOT_A_PARTITIONED_TABLE] Operation {match['repairs'].upper()} is not allowed "
                f"for {match['name']} because it is not a partitioned table. SQLSTATE: 42809",
                errorClass="NOT_A_PARTITIONED_TABLE",
            ) from None
    return spark.createDataFrame([], StructType([]))


def _explained(
    original: Callable[..., DataFrame], spark: SparkSession, text: str, *args: Any, **kwargs: Any
) -> DataFrame:
    """EXPLAIN with the names of the scans that Spark shows as LocalTableScan.

    And without credentials in the OPTIONS of a statement: Spark shows a parsed plan as it is.
    """
    hidden = secrets(options_in(text))
    with _hidden(spark, hidden):
        explained = original(spark, text, *args, **kwargs)
        shown = _driver_scans(explained)
        if not shown and not hidden:
            return explained
        plan = explained.first()[0]  # type: ignore[index]
    return spark.createDataFrame([(plan + shown,)], explained.schema)


def _is_shown_secret(option: str) -> bool:
    return bool(secrets({option: "value"})) and not _HIDDEN_BY_SPARK.search(option)


@contextlib.contextmanager
def _hidden(spark: SparkSession, values: list[str]) -> Iterator[None]:
    """Spark shows these values neither in a plan's text nor in its event log and pages."""
    if not values:
        yield
        return
    hidden = spark.conf.get(_REDACTED, None)
    pattern = "|".join([*([hidden] if hidden else []), *map(re.escape, values)])
    spark.conf.set(_REDACTED, pattern)
    try:
        yield
    finally:
        if hidden:
            spark.conf.set(_REDACTED, hidden)
        else:
            spark.conf.unset(_REDACTED)


def _explain(original: Callable[..., None], frame: DataFrame, *args: Any, **kwargs: Any) -> None:
    original(frame, *args, **kwargs)
    if is_enabled(frame.sparkSession) and bridge_of(frame.sparkSession) is not None:
        print(_driver_scans(frame), end="")  # noqa: T201 - as Spark does


def _driver_scans(frame: DataFrame) -> str:
    from indextables.spark.bridge.frames import driver_scans

    try:
        scans = driver_scans(frame)
    except Exception:  # the interface is Spark's own and may change
        return ""
    return "\n".join(["\n== LocalTableScan of index tables ==", *scans, ""]) if scans else ""


def _invoke_function(original: Callable[..., Column], name: str, *args: Any) -> Column:
    if name == "expr" and isinstance(args[0], str):
        return original(name, prepare(args[0]), *args[1:])
    return original(name, *args)


# --- the row of a search of all fields ---------------------------------------------------------


def _prepared(
    call: Callable[[str], DataFrame], text: str, spark: SparkSession, args: Arguments = None
) -> DataFrame:
    if not mentions_search(text):
        return call(text)
    limits = _limits(spark)
    if not is_classic(spark):  # which analyses nothing before rows are wanted
        return call(prepare(text, arguments=args, row=Row.STRUCT, config=limits))
    return _with_hidden_row_or_all_columns(
        lambda row: call(prepare(text, arguments=args, row=row, config=limits)),
        needed=needs_row(text),
    )


def _with_hidden_row_or_all_columns(run: Callable[[Row], DataFrame], *, needed: bool) -> DataFrame:
    """Run with the hidden column of an index table; if there is none, with all columns."""
    from pyspark.errors import AnalysisException

    if not needed:
        return run(Row.HIDDEN)
    try:
        with without_analysis_log():
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
    """The same for columns: they cannot be rewritten, so the row is added for them."""
    from pyspark.errors import AnalysisException

    try:
        return run(frame)
    except AnalysisException as error:
        if not _lacks_row(error) or ALL_FIELDS in frame.columns:
            raise
    from pyspark.sql.functions import struct

    from indextables.spark.schemas import with_unique_names

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


def _limits(spark: SparkSession) -> Config:
    """The limits of queries alone: the whole configuration takes as long as a small query."""
    limits = {key.name: spark.conf.get(key.name, None) for key in _LIMITS}
    return Config({name: value for name, value in limits.items() if value is not None})
