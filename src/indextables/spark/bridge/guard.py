"""Whether this Spark has what the bridge needs.

The interfaces are private, so the version is checked once and every class that the bridge touches
is looked up before anything is installed. Where one is missing, the public data source serves.
"""

from __future__ import annotations

import re
from typing import Any

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
