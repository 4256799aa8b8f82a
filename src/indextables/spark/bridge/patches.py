"""The one module that replaces methods of PySpark's and py4j's classes.

Classes are patched, not objects: `SparkSession.getActiveSession()` and `df.sparkSession` make new
objects for the same session. A replacement is called with the original method first, and checks
whether the session is enabled: sessions that are not keep PySpark's behaviour.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from indextables.spark.bridge.sessions import is_classic

Replacement = Callable[..., Any]

_CLASSIC = {
    "SparkSession": "pyspark.sql.session",
    "DataFrame": "pyspark.sql.classic.dataframe",
    "DataFrameReader": "pyspark.sql.readwriter",
    "DataFrameWriter": "pyspark.sql.readwriter",
    "DataStreamReader": "pyspark.sql.streaming.readwriter",
    "DataStreamWriter": "pyspark.sql.streaming.readwriter",
    "Catalog": "pyspark.sql.catalog",
}
_CONNECT = {
    "SparkSession": "pyspark.sql.connect.session",
    "DataFrame": "pyspark.sql.connect.dataframe",
    "DataFrameReader": "pyspark.sql.connect.readwriter",
    "DataFrameWriter": "pyspark.sql.connect.readwriter",
}
_patching = threading.Lock()


def install(spark: Any, replacements: Mapping[str, Replacement]) -> None:
    """Replace methods for sessions like this one, each named with its class: `DataFrame.filter`."""
    modules = _CLASSIC if is_classic(spark) else _CONNECT
    for place, replacement in replacements.items():
        owner, _, method = place.partition(".")
        wrap(getattr(importlib.import_module(modules[owner]), owner), method, replacement)


def replace_expr(replacement: Replacement) -> None:
    """Replace what `functions.expr` and its siblings call in a classic session.

    `expr` may have been imported by name already; what it calls is looked up each time.
    """
    from pyspark.sql.functions import builtin

    wrap(builtin, "_invoke_function", replacement)


def wrap(owner: Any, name: str, replacement: Replacement) -> None:
    """Put a replacement around a method. Doing it twice does nothing."""
    with _patching:
        original = getattr(owner, name)
        there: tuple[Replacement, ...] = getattr(original, "_indextables", ())
        if replacement in there:
            return

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return replacement(original, *args, **kwargs)

        wrapper._indextables = (*there, replacement)  # type: ignore[attr-defined]
        setattr(owner, name, wrapper)
