"""Making a Spark session understand index tables.

::

    spark = indextables.session(app_name="logs")       # or indextables.enable(spark)
    df.write.format("indextables").mode("append").save("/data/docs")
    spark.sql("SELECT * FROM indextables.`/data/docs` WHERE content indexquery 'spark AND sql'")
"""

from __future__ import annotations

import os
import shutil
import warnings
from typing import TYPE_CHECKING

from indextables.errors import JavaMissingError
from indextables.plan.source_options import ALIASES, NAME
from indextables.spark import executors, readwriter
from indextables.spark.data_source import IndexTablesSource, alias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# AQE starts exchanges on threads of these pools, and each that calls back holds a connection.
_EXCHANGE_THREADS = "4"
_BEFORE_START = {
    "spark.sql.shuffleExchange.maxThreadThreshold": _EXCHANGE_THREADS,
    "spark.sql.broadcastExchange.maxThreadThreshold": _EXCHANGE_THREADS,
}


def session(app_name: str = "indextables", **conf: object) -> SparkSession:
    """Start a session, or take the active one, and enable it.

    `conf` are Spark settings, with `__` for a dot (`spark__sql__shuffle__partitions=8`), or a
    dictionary unpacked: `session("app", **{"spark.master": "local[4]"})`.
    """
    from pyspark.sql import SparkSession

    _check_java()
    builder = SparkSession.builder.appName(app_name)
    for name, value in {**_BEFORE_START, **conf}.items():
        builder = builder.config(name.replace("__", "."), str(value))
    return enable(builder.getOrCreate())


def enable(spark: SparkSession) -> SparkSession:
    """Make a session read, write and search index tables; gives the same session back.

    Doing it twice does nothing. On a classic session, those that its `newSession` makes are enabled
    as well.
    """
    if readwriter.is_classic(spark) and readwriter.is_routed(spark):
        return spark
    if readwriter.is_classic(spark):
        executors.use_this_python(spark)
        if not str(spark.sparkContext.master).startswith("local"):
            executors.check_package(spark)
    _register(spark, IndexTablesSource)
    for name in ALIASES:
        _register(spark, alias(name))
    readwriter.install(spark, _bridge(spark))
    _install_sql(spark)
    readwriter.follow_new_sessions(enable)
    return spark


def _register(spark: SparkSession, provider: type[IndexTablesSource]) -> None:
    from pyspark.errors import AnalysisException

    if readwriter.is_classic(spark):
        readwriter.make_active(spark)
    try:
        spark.dataSource.register(provider)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _bridge(spark: SparkSession) -> readwriter.Bridge | None:
    from indextables.spark.bridge.guard import reason_against

    reason = reason_against(spark)
    if reason is not None:
        warnings.warn(
            f"Index tables are read and written through Spark's public data source: {reason}. "
            "Answers are the same; searches, aggregates and limits are not pushed to the index, "
            "and there is no catalog.",
            stacklevel=3,
        )
        return None
    from indextables.plan.access import read_logs_with
    from indextables.spark.bridge.doors import SessionBridge
    from indextables.spark.distributed_log import runner_of

    bridge = SessionBridge(spark)
    bridge.install()
    read_logs_with(runner_of(spark))
    return bridge


def _install_sql(spark: SparkSession) -> None:
    """Operators, functions and commands in SQL."""
    from indextables.spark import functions, sql_entry

    functions.register(spark)
    sql_entry.install(spark)


def _check_java() -> None:
    """Say in one sentence what Spark says in a page when there is no Java."""
    home = os.environ.get("JAVA_HOME")
    if not home and shutil.which("java") is None and "SPARK_REMOTE" not in os.environ:
        raise JavaMissingError


__all__ = ["NAME", "enable", "session"]
