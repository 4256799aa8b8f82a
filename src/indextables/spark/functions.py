"""Search functions for the DataFrame API, and their registration for SQL.

::

    df.where(indextables.indexquery("content", "spark AND sql"))
    df.where(indextables.indexqueryall('"machine learning"'))
    df.select("id", indextables.snippet("content", "spark"))

They are Arrow UDFs (`search_udf`). The planner recognises them by name and pushes them to the index
of a table where it can; Spark evaluates them where it cannot. A query is a literal and is parsed
here, so that a mistake in it is an error on the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from indextables.errors import SearchCallError
from indextables.predicate.operators import ALL_FIELDS
from indextables.predicate.search_syntax import parse_search
from indextables.sql.search_calls import ALL_COLUMNS, ONE_COLUMN, SNIPPET, named_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

logger = logging.getLogger(__name__)

_DESCRIPTION = "A search of indextables."

__all__ = ["indexquery", "indexqueryall", "register", "snippet"]


def indexquery(column: str | Column, query: str) -> Column:
    """Whether a column matches a search query.

    The column may be of any type. A query that names other fields (`title:spark`) looks at the
    columns of those names as well.
    """
    from pyspark.sql import functions as f

    shown = column if isinstance(column, str) else None
    if shown is not None and shown.lower() == ALL_FIELDS:
        return indexqueryall(query)
    named = named_columns(parse_search(_text("indexquery", query), field=shown))
    arguments = [f.col(column) if isinstance(column, str) else column, f.lit(query)]
    if named:
        fields = [f.col(f"`{name.replace('`', '``')}`").alias(name) for name in named]
        arguments.append(f.struct(*fields))
    return _udf("indexquery")(*arguments)


def indexqueryall(query: str, *columns: str | Column) -> Column:
    """Whether any column of the row matches a search query.

    Without `columns`, all columns that the table indexes; on a DataFrame that is no index table,
    all columns it has.
    """
    from pyspark.sql import functions as f

    parse_search(_text("indexqueryall", query), field=ALL_FIELDS)
    row = f.struct(*columns) if columns else f.col(ALL_FIELDS)
    return _udf("indexqueryall")(row, f.lit(query))


def snippet(column: str | Column, query: str) -> Column:
    """The part of a text that shows the words of a query, as HTML with the words in `<b>`."""
    from pyspark.sql import functions as f

    parse_search(_text("snippet", query))
    found = f.col(column) if isinstance(column, str) else column
    return _udf("snippet")(found, f.lit(query))


def register(spark: SparkSession) -> None:
    """Make the functions known to SQL on a session. Doing it again does no harm.

    On a classic session the searches become built-in functions of its JVM: a persistent view may
    then use them, and sessions made later know them. A function `snippet` that the session has
    already stays as it is.
    """
    for name in ONE_COLUMN:
        _register(spark, name, _udf("indexquery"))
    for name in ALL_COLUMNS:
        _register(spark, name, _udf("indexqueryall"))
    if not _is_known(spark, SNIPPET):
        spark.udf.register(SNIPPET, _udf("snippet"))


def _is_known(spark: SparkSession, name: str) -> bool:
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        return spark.catalog.functionExists(name)
    # Not by the public catalog: it asks every catalog, and reports what they do not have.
    identifier = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)  # type: ignore[union-attr]
    return bool(session.sessionState().catalog().isTemporaryFunction(identifier))


def _register(spark: SparkSession, name: str, udf: Any) -> None:
    spark.udf.register(name, udf)
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        return  # Spark Connect: a temporary function is all there is
    try:
        _promote(session.sessionState().functionRegistry(), spark._jvm, name)
    except Exception as error:  # the interfaces are Spark's own and may change
        logger.warning(
            "The function %s stays temporary on this Spark, so persistent views cannot use it: %s",
            name,
            str(error).splitlines()[0],
        )


def _promote(registry: Any, jvm: Any, name: str) -> None:
    """Make a temporary function a built-in one, in this session and those that come."""
    catalyst = jvm.org.apache.spark.sql.catalyst
    builtin = catalyst.analysis.FunctionRegistry.builtin()
    # Since Spark 4.3 functions have a catalog and a schema: system.builtin and system.session.
    some = builtin.listFunction().head()
    target = catalyst.FunctionIdentifier(name, some.database(), some.catalog())
    temporary = target
    if some.database().isDefined():
        temporary = catalyst.FunctionIdentifier(name, jvm.scala.Some("session"), some.catalog())
    builder = registry.lookupFunctionBuilder(temporary).get()
    information = catalyst.expressions.ExpressionInfo("indextables", None, name, _DESCRIPTION, "")
    for known in (builtin, registry):
        known.registerFunction(target, information, builder)
    if target.toString() != temporary.toString():
        registry.dropFunction(temporary)


def _text(function: str, query: object) -> str:
    if not isinstance(query, str):
        raise SearchCallError(
            function,
            f"takes the query as text, not {type(query).__name__}: it must be known before the "
            "search is planned.",
        )
    return query


_udfs: WeakKeyDictionary[Any, dict[str, Callable[..., Column]]] = WeakKeyDictionary()


def _udf(name: str) -> Callable[..., Column]:
    """The UDF of a name, the same one as long as its Spark context lives: equal plans are equal."""
    from pyspark import SparkContext
    from pyspark.sql.pandas.functions import arrow_udf

    from indextables.spark import search_udf

    types = {"indexquery": "boolean", "indexqueryall": "boolean", "snippet": "string"}
    context = SparkContext._active_spark_context
    known = {} if context is None else _udfs.setdefault(context, {})
    if name not in known:
        make: Any = arrow_udf  # its kind is inferred from the annotations, which mypy does not know
        known[name] = make(getattr(search_udf, name), types[name])
    return known[name]
