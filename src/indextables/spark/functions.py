"""Functions for the DataFrame API and for SQL: searches, and values cut into equal parts.

::

    df.where(indextables.indexquery("content", "spark AND sql"))
    df.where(indextables.indexqueryall('"machine learning"'))
    df.where(indextables.search(["title", "content"], "spark sql", mode="any"))
    df.select("id", indextables.snippet("content", "spark"))

Searches are Arrow UDFs (`statements.search_functions`). The planner recognises them by name and
pushes them to the index of a table where it can; Spark evaluates them where it cannot, with the
mappings that the columns carry (`schemas`). A query is a literal and is parsed here, so that a
mistake in it is an error on the driver.

::

    SELECT indextables_date_histogram(ts, '15m') AS at, count(*) FROM logs
    WHERE body indexquery 'timeout' GROUP BY at

Functions that cut values into parts have the names that the Scala product has for them. They are
functions of SQL: Spark writes their bodies into the query, so that a GROUP BY of one costs what the
expressions cost, and every way into a session knows them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from indextables.errors import SearchCallError, first_line
from indextables.predicate.literals import quoted_name
from indextables.predicate.search_names import SEVERAL_COLUMNS, Mode, mode_of, query_text
from indextables.predicate.search_syntax import parse_search
from indextables.predicate.spark_tokens import ALL_FIELDS
from indextables.spark.bridge.sessions import active_context, bridge_of, has_function, is_classic
from indextables.statements.search_calls import ALL_COLUMNS, ONE_COLUMN, SNIPPET, named_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


logger = logging.getLogger(__name__)

_OWN_SNIPPET = "indextables_snippet"
"""The function behind `indextables.snippet`, whatever `snippet` is in the session."""

_NAMES = {
    "search": "search",
    "match_all": "match_all",
    "match_any": "match_any",
    "match_phrase": "match_phrase",
    "match_phrase_prefix": "match_phrase_prefix",
    "textsearch": "textsearch",
    "fieldmatch": "fieldmatch",
    "tantivy4spark_textsearch": "textsearch",
    "tantivy4spark_fieldmatch": "fieldmatch",
    "tantivy4spark_textsearchall": "indexqueryall",
    "tantivy4spark_fieldmatchall": "indexqueryall",
}
"""The names of SQL, and the functions behind them where a session has no bridge."""

__all__ = ["indexquery", "indexqueryall", "register", "search", "snippet"]


def indexquery(column: str | Column, query: str) -> Column:
    """Whether a column matches a search query.

    The column may be of any type. A query that names other fields (`title:spark`) looks at the
    columns of those names as well.

    Args:
        column: A column, or its name.
        query: What to search for, in the search syntax.

    Returns:
        A condition, for `where` and `filter`.

    Raises:
        QuerySyntaxError: The query is wrong.

    ```py
    found = articles.where(it.indexquery("body", "fox AND NOT lazy"))
    assert [row.id for row in found.collect()] == [1]
    ```
    """
    from pyspark.sql import functions as f

    shown = column if isinstance(column, str) else None
    if shown is not None and shown.lower() == ALL_FIELDS:
        return indexqueryall(query)
    named = named_columns(parse_search(_text("indexquery", query), field=shown))
    arguments = [f.col(column) if isinstance(column, str) else column, f.lit(query)]
    if named:
        fields = [f.col(quoted_name(name)).alias(name) for name in named]
        arguments.append(f.struct(*fields))
    return _call("indexquery", *arguments)


def indexqueryall(query: str, *columns: str | Column) -> Column:
    """Whether any column of the row matches a search query.

    Args:
        query: What to search for, in the search syntax.
        columns: The columns to search. If they are left out, all columns that the table indexes;
            on a DataFrame that is not an index table, all columns it has.

    Returns:
        A condition, for `where` and `filter`.

    Raises:
        QuerySyntaxError: The query is wrong.

    ```py
    found = articles.where(it.indexqueryall("dogs OR quick"))  # a title and a body
    assert sorted(row.id for row in found.collect()) == [1, 2]
    ```
    """
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    parse_search(_text("indexqueryall", query), field=ALL_FIELDS)
    session = SparkSession.getActiveSession()
    is_remote = session is not None and not is_classic(session)
    row = f.struct(*(columns or ["*"])) if columns or is_remote else f.col(ALL_FIELDS)
    return _call("indexqueryall", row, f.lit(query))


def search(
    columns: str | Column | Sequence[str | Column], words: str, *, mode: Mode = "all"
) -> Column:
    """Whether columns hold words, which have no syntax: the function `search` of SQL.

    Args:
        columns: A column, a list of several, or `"*"` for all that the table indexes.
        words: What to search for.
        mode: `all` words, `any` of them, the `phrase`, the phrase with its last word begun
            (`prefix`), or the search syntax (`query`).

    Returns:
        A condition, for `where` and `filter`.

    Raises:
        SearchCallError: The mode is not one of these, or the list of columns is empty.

    ```py
    found = articles.where(it.search(["title", "body"], "lazy fox", mode="all"))
    assert [row.id for row in found.collect()] == [2]
    ```
    """
    from pyspark.sql import functions as f

    mode = mode_of("search", mode)
    text = query_text(_text("search", words), mode)
    if isinstance(columns, str) and columns == "*":
        return indexqueryall(text)
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        return indexquery(columns, text)
    if not columns:
        raise SearchCallError("search", "has an empty list of columns. Write '*' for all.")
    if len(columns) == 1:
        return search(columns[0], words, mode=mode)
    return _call(SEVERAL_COLUMNS, f.struct(*columns), f.lit(text))


def snippet(column: str | Column, query: str) -> Column:
    """The part of a text that shows the words of a query, as HTML with the words in `<b>`.

    Args:
        column: A column of text, or its name.
        query: The search, in the search syntax.

    Returns:
        A column of HTML, in which the text is escaped.

    Raises:
        QuerySyntaxError: The query is wrong.

    ```py
    (row,) = articles.where("id = 1").select(it.snippet("body", "fox").alias("part")).collect()
    assert row.part == "the quick red <b>fox</b>"
    ```
    """
    from pyspark.sql import functions as f

    parse_search(_text("snippet", query))
    column_of_text = f.col(column) if isinstance(column, str) else column
    return _call("snippet", column_of_text, f.lit(query))


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
    _register(spark, SEVERAL_COLUMNS, _udf(SEVERAL_COLUMNS))
    for name, function in _NAMES.items():
        if not is_classic(spark) or not has_function(spark, name):
            _register(spark, name, _udf(function))
    _register(spark, _OWN_SNIPPET, _udf("snippet"), everywhere=False)
    if not has_function(spark, SNIPPET):
        _register(spark, SNIPPET, _udf("snippet"), everywhere=False)
    _register_buckets(spark)


def _register(spark: SparkSession, name: str, udf: Any, *, everywhere: bool = True) -> None:
    spark.udf.register(name, udf)
    bridge = bridge_of(spark)
    if bridge is None:
        return  # a temporary function with default mappings is all there is
    try:
        bridge.install_search(name, everywhere=everywhere)
    except Exception as error:  # the interfaces are Spark's own and may change
        logger.warning(
            "The function %s searches with default mappings on this Spark where no index answers, "
            "and persistent views cannot use it: %s",
            name,
            first_line(error),
        )


def _call(name: str, *arguments: Any) -> Column:
    """A call of a registered function where a session has a bridge: it adds columns' mappings."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    session = SparkSession.getActiveSession()
    if session is not None and bridge_of(session) is not None:
        return f.call_function(_OWN_SNIPPET if name == SNIPPET else name, *arguments)
    return _udf(name)(*arguments)


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
    from pyspark.sql.pandas.functions import arrow_udf

    from indextables.statements import search_functions

    context = active_context()
    udfs_of_context = {} if context is None else _udfs.setdefault(context, {})
    if name not in udfs_of_context:
        make: Any = arrow_udf  # its kind is inferred from the annotations, which mypy does not know
        return_type = "string" if name == SNIPPET else "boolean"
        udfs_of_context[name] = make(getattr(search_functions, name), return_type)
    return udfs_of_context[name]


# --- values cut into equal parts -------------------------------------------------------------

_MOST_RANGES = 8

_UNITS = "map('ms', 1000L, 's', 1000000L, 'm', 60000000L, 'h', 3600000000L, 'd', 86400000000L)"


def _register_buckets(spark: SparkSession) -> None:
    for name, parameters, result, body in _definitions():
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({parameters}) RETURNS {result} "
            f"RETURN {body}"
        )


def _definitions() -> list[tuple[str, str, str, str]]:
    start = f"unix_micros(t) - pmod(unix_micros(t) - {_micros('shift', 0)}, {_micros('every', 1)})"
    width = _checked("width > 0", "width", "a width is greater than 0")
    numbers = range(1, _MOST_RANGES + 1)
    ranges = ", ".join(
        f"name{i} STRING{default}, from{i} DOUBLE{default}, to{i} DOUBLE{default}"
        for i, default in ((i, "" if i == 1 else " DEFAULT NULL") for i in numbers)
    )
    cases = " ".join(
        f"WHEN name{i} IS NOT NULL AND (from{i} IS NULL OR v >= from{i}) "
        f"AND (to{i} IS NULL OR v < to{i}) THEN name{i}"
        for i in numbers
    )
    return [
        (
            "indextables_date_histogram",
            "t TIMESTAMP, every STRING, shift STRING DEFAULT '0s'",
            "TIMESTAMP",
            f"timestamp_micros({start})",
        ),
        (
            "indextables_histogram",
            "v DOUBLE, width DOUBLE, shift DOUBLE DEFAULT 0",
            "DOUBLE",
            f"floor((v - shift) / {width}) * width + shift",
        ),
        (
            "indextables_range",
            f"v DOUBLE, {ranges}",
            "STRING",
            f"CASE WHEN v IS NULL THEN NULL {cases} END",
        ),
    ]


def _micros(parameter: str, least: int) -> str:
    """A length such as 15m in microseconds."""
    number = f"CAST(regexp_extract({parameter}, '[0-9]+', 0) AS BIGINT)"
    unit = f"{_UNITS}[regexp_extract({parameter}, '[a-z]+', 0)]"
    return _checked(
        f"{parameter} RLIKE '^[0-9]{{1,6}}(ms|s|m|h|d)$' AND {number} >= {least}",
        f"{number} * {unit}",
        "an interval is a number and one of ms, s, m, h, d, such as 15m",
    )


def _checked(condition: str, value: str, otherwise: str) -> str:
    return f"CASE WHEN {condition} THEN {value} ELSE raise_error('{otherwise}') END"
