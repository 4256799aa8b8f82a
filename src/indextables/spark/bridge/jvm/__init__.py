"""Objects of this process that the JVM calls, and objects of the JVM that this process calls."""

from indextables.spark.bridge.jvm.handles import (
    PYTHON_UTILS,
    V2,
    Comparable,
    JavaObject,
    Jvm,
    guarded_call,
    implements,
)
from indextables.spark.bridge.jvm.kept import kept
from indextables.spark.bridge.jvm.rows import internal_rows

__all__ = [
    "PYTHON_UTILS",
    "V2",
    "Comparable",
    "JavaObject",
    "Jvm",
    "guarded_call",
    "implements",
    "internal_rows",
    "kept",
]
