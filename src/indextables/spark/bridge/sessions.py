"""The sessions of this process: which are classic, which are enabled, and the bridge of each.

PySpark makes new objects for the same session, so sessions are kept by their ids. Nothing here
imports py4j, which a Spark Connect client may lack.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from indextables.spark.bridge.session_bridge import SessionBridge

_bridges: dict[str, SessionBridge | None] = {}
_not_enabled: set[str] = set()
_enable: list[Callable[[Any], Any]] = []


def is_classic(spark: Any) -> bool:
    """Whether a session has a JVM that this process reaches, and is not a Spark Connect client."""
    return type(spark).__module__ == "pyspark.sql.session"


def _identity(spark: Any) -> str:
    if not is_classic(spark):
        return str(spark.session_id)
    identity = spark.__dict__.get("_indextables_id")
    if identity is None:
        identity = spark._indextables_id = str(spark._jsparkSession.sessionUUID())
    return str(identity)


def make_active(spark: Any) -> None:
    """Make a classic session the active one: Spark stores and looks up Python sources in that."""
    if is_classic(spark):
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)


# --- enabled sessions ----------------------------------------------------------------------------


def register(spark: SparkSession, bridge: SessionBridge | None) -> None:
    """Count a session as enabled, with a bridge if it can have one."""
    _bridges[_identity(spark)] = bridge


def is_registered(spark: SparkSession) -> bool:
    """Whether a session was enabled."""
    return _identity(spark) in _bridges


def bridge_of(spark: SparkSession) -> SessionBridge | None:
    """The bridge of a session, if it has one."""
    return _bridges.get(_identity(spark))


def enable_clones(enable: Callable[[Any], Any]) -> None:
    """Choose what enables a clone of an enabled session, and what its `newSession` makes."""
    _enable[:] = [enable]


def is_enabled(spark: Any) -> bool:
    """Whether a session is enabled. A clone of an enabled classic session becomes enabled here.

    Spark clones a session for `foreachBatch`, with the data sources that are registered in it.
    """
    if is_registered(spark):
        return True
    from indextables.plan.access import NAME

    if not is_classic(spark) or not _enable or _identity(spark) in _not_enabled:
        return False
    try:
        is_clone = spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(NAME)
    except Exception:  # the interface is Spark's own and may change
        is_clone = False
    if is_clone:
        _enable[0](spark)
    else:
        _not_enabled.add(_identity(spark))
    return bool(is_clone)


def new_session(original: Callable[[Any], Any], spark: Any) -> Any:
    """Enable what `newSession` of an enabled session makes; the active session stays the same."""
    from pyspark.sql import SparkSession

    session = original(spark)
    if is_classic(spark) and is_registered(spark):
        before = SparkSession.getActiveSession()
        _enable[0](session)
        make_active(before or spark)
    return session


# --- what a session has --------------------------------------------------------------------------

# The settings of sessions: a handle of the JVM's map, its text when it was read, what it held.
_settings: dict[str, tuple[Any, str, dict[str, str]]] = {}


def session_settings(spark: SparkSession) -> dict[str, str]:
    """The session's configuration.

    Every query asks for it, and taking it over from the JVM entry by entry takes longer than a
    small query; its text is one call and shows whether anything changed.
    """
    if not is_classic(spark):
        return dict(spark.conf.getAll)
    key = _identity(spark)
    handle, text, settings = _settings.get(key, (None, "", {}))
    if handle is None:
        session: Any = spark._jsparkSession
        handle = session.sessionState().conf().settings()
    now = handle.toString()
    if now != text:
        settings = dict(spark.conf.getAll)
        _settings[key] = handle, now, settings
    return dict(settings)


def scala_dict(entries: Any) -> dict[str, str]:
    """A map of Scala in Python."""
    each, entries_by_key = entries.iterator(), {}
    while each.hasNext():
        pair = each.next()
        entries_by_key[pair._1()] = pair._2()
    return entries_by_key


def java_dict(entries: Any) -> dict[str, str]:
    """A map of Java in Python.

    `dict` would read on until Java raises an error, and to tell what kind of error it is takes
    PySpark forty round trips.
    """
    each, entries_by_key = entries.entrySet().iterator(), {}
    while each.hasNext():
        entry = each.next()
        entries_by_key[entry.getKey()] = entry.getValue()
    return entries_by_key


def has_function(spark: SparkSession, name: str) -> bool:
    """Whether a session has a function of this name; in a classic one, a temporary function."""
    if not is_classic(spark):
        return spark.catalog.functionExists(name)
    # Not by the public catalog: it asks every catalog, and reports what they do not have.
    session: Any = spark
    identifier = session._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    catalog = session._jsparkSession.sessionState().catalog()
    return bool(catalog.isTemporaryFunction(identifier))


def active_context() -> Any:
    """The Spark context of this process; None if there is none."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context


# --- whether a session can have a bridge ---------------------------------------------------------

SUPPORTED = ((4, 1), (4, 3))
_VERSION = re.compile(r"(\d+)\.(\d+)")

_CLASSES = (
    "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
    "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation",
    "org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition",
    "org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory",
    "org.apache.spark.sql.execution.datasources.v2.python.PythonBatchWriterFactory",
    "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource",
    "org.apache.spark.sql.catalyst.plans.logical.AppendData",
    "org.apache.spark.sql.classic.Dataset",
    "org.apache.spark.sql.connector.read.LocalScan",
)


def reason_against(spark: Any) -> str | None:
    """Why the bridge cannot be used on this session; None if it can."""
    if type(spark).__module__ != "pyspark.sql.session":
        return "it is a Spark Connect session"
    match = _VERSION.match(spark.version)
    version = tuple(map(int, match.groups())) if match else (0, 0)
    if not SUPPORTED[0] <= version <= SUPPORTED[1]:
        low, high = (".".join(map(str, v)) for v in SUPPORTED)
        return f"it was made for Spark {low} to {high}, and this is {spark.version}"
    find = spark.sparkContext._jvm.java.lang.Class.forName
    for name in _CLASSES:
        try:
            find(name)
        except Exception:
            return f"this Spark has no {name}"
    return None


@contextlib.contextmanager
def without_analysis_log() -> Iterator[None]:
    """PySpark logs every failed analysis; one that is tried again is not a failure."""
    from pyspark.logger import PySparkLogger

    # By PySpark's own class: the first caller for a logger decides its class.
    logger, thread = PySparkLogger.getLogger("SQLQueryContextLogger"), threading.get_ident()

    def of_other_threads(_: logging.LogRecord) -> bool:
        return threading.get_ident() != thread

    logger.addFilter(of_other_threads)
    try:
        yield
    finally:
        logger.removeFilter(of_other_threads)
