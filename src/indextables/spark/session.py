"""Making a Spark session understand index tables.

::

    spark = indextables.session(app_name="logs")       # or indextables.enable(spark)
    df.write.format("indextables").mode("append").save("/data/docs")
    spark.sql("SELECT * FROM indextables.`/data/docs` WHERE content indexquery 'spark AND sql'")
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import warnings
from typing import TYPE_CHECKING, Any

from indextables.errors import ExecutorError, JavaMissingError
from indextables.plan.access import ALIASES, NAME, read_logs_with
from indextables.spark import connect, functions, sql_entry, table_functions
from indextables.spark.bridge import readwriter
from indextables.spark.bridge.sessions import (
    enable_clones,
    is_classic,
    is_registered,
    make_active,
    reason_against,
    register,
)
from indextables.spark.data_source import IndexTablesSource, alias
from indextables.spark.runner import SparkRunner, runner_of
from indextables.storage.location import SECRET_NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from indextables.spark.bridge.session_bridge import SessionBridge


# AQE starts exchanges on threads of these pools, and each that calls back holds a connection.
_EXCHANGE_THREADS = "4"
_BEFORE_START = {
    "spark.sql.shuffleExchange.maxThreadThreshold": _EXCHANGE_THREADS,
    "spark.sql.broadcastExchange.maxThreadThreshold": _EXCHANGE_THREADS,
}


def session(app_name: str = "indextables", **conf: object) -> SparkSession:
    """Start a session, or take the active one, and enable it.

    Args:
        app_name: The name that Spark's pages show.
        conf: Spark settings, with `__` for a dot (`spark__sql__shuffle__partitions=8`), or a
            dictionary unpacked: `session("app", **{"spark.master": "local[4]"})`.

    Returns:
        The session.

    Raises:
        JavaMissingError: There is no Java that Spark can run on.

    ```py
    spark = it.session("articles", spark__sql__session__timeZone="UTC")
    spark.sql(f"SELECT * FROM indextables.`{path}/articles` WHERE body indexquery 'fox'").show()
    ```
    """
    from pyspark.sql import SparkSession

    _check_java()
    builder = SparkSession.builder.appName(app_name)
    for name, value in {**_BEFORE_START, **conf}.items():
        builder = builder.config(name.replace("__", "."), str(value))
    return enable(builder.getOrCreate())


def enable(spark: SparkSession) -> SparkSession:
    """Make a session read, write and search index tables; return the same session.

    Doing it twice does nothing. On a classic session, those that its `newSession` makes are enabled
    as well. The examples of the functions for Spark search the table that this one writes.

    Args:
        spark: A classic session, or one of Spark Connect.

    Returns:
        The same session.

    Raises:
        ExecutorError: The executors of a cluster cannot import this package.

    ```py
    import indextables as it

    spark = it.enable(spark)
    rows = [(1, "Foxes", "the quick red fox"), (2, "Dogs", "a lazy dog, no fox")]
    frame = spark.createDataFrame(rows, "id INT, title STRING, body STRING")
    frame.write.format("indextables").save(f"{path}/articles")
    articles = spark.read.format("indextables").load(f"{path}/articles")
    ```
    """
    if is_classic(spark) and is_registered(spark):
        return spark
    if is_classic(spark):
        use_this_python(spark)
        if not str(spark.sparkContext.master).startswith("local"):
            check_package(spark)
    _register(spark, IndexTablesSource)
    for name in ALIASES:
        _register(spark, alias(name))
    register(spark, _bridge(spark))
    if is_classic(spark):
        readwriter.install(spark)
        hide_options(spark)
    functions.register(spark)
    table_functions.register(spark)
    if not is_classic(spark):
        connect.register(spark)
        readwriter.install_remote(spark)
    sql_entry.install(spark)
    enable_clones(enable)
    return spark


def _register(spark: SparkSession, provider: type[IndexTablesSource]) -> None:
    from pyspark.errors import AnalysisException

    make_active(spark)
    try:
        spark.dataSource.register(provider)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _bridge(spark: SparkSession) -> SessionBridge | None:
    reason = reason_against(spark)
    if reason is not None:
        warnings.warn(
            f"Index tables are read and written through Spark's public data source: {reason}. "
            "Answers are the same; conditions of DataFrames, aggregates and limits are not pushed "
            "to the index, and there is no catalog. search_table, indextables_search and the "
            "options search and where of a read use the index.",
            stacklevel=3,
        )
        return None
    from indextables.spark.bridge.session_bridge import SessionBridge

    bridge = SessionBridge(spark)
    bridge.install()
    read_logs_with(runner_of(spark))
    return bridge


_OPTIONS_REDACTED = "spark.sql.redaction.options.regex"


def hide_options(spark: SparkSession) -> None:
    """Let Spark hide the same options in plans, event log and pages as we do in messages.

    Its own rules let the id of an access key pass.
    """
    pattern = spark.conf.get(_OPTIONS_REDACTED, None)
    if not pattern or SECRET_NAMES not in pattern:
        hidden = f"{pattern}|{SECRET_NAMES}" if pattern else SECRET_NAMES
        spark.conf.set(_OPTIONS_REDACTED, hidden)


def _check_java() -> None:
    """Raise an error of one sentence where Spark would print a page: there is no Java."""
    home = os.environ.get("JAVA_HOME")
    if not home and shutil.which("java") is None and "SPARK_REMOTE" not in os.environ:
        raise JavaMissingError


_PYTHON = "spark.pyspark.python"
_LONGEST_WAIT_S = 60.0
_REASONS = re.compile(r"No module named '?indextables\S*|Cannot run program .*|\[PYTHON_VERSION.*")


# --- the Python that executors run ---------------------------------------------------------------


def use_this_python(spark: SparkSession) -> None:
    """Let workers on this machine run this interpreter, unless another one was chosen.

    Without an activated environment Spark would take the first `python3`. Executors on other
    machines have environments of their own, and there this interpreter's path means nothing.
    """
    context: Any = spark.sparkContext
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get(_PYTHON)
    if context.master.startswith("local") and not chosen:
        context.pythonExec = sys.executable


def check_package(spark: SparkSession) -> None:
    """Ask an executor whether it can import this package.

    One that does not answer in a minute is not waited for: a cluster may be busy.

    Raises:
        ExecutorError: It cannot.
    """
    try:
        SparkRunner(spark, parallelism=1).map(len, [()], timeout_s=_LONGEST_WAIT_S)
    except TimeoutError:
        return
    except Exception as error:
        reason = _REASONS.search(str(error))
        if reason is None:
            raise
        context: Any = spark.sparkContext
        raise ExecutorError(context.pythonExec, reason[0].strip()) from None


__all__ = ["NAME", "enable", "session"]
