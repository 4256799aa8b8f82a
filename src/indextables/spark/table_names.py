"""From the target of a statement to the table: a path, or a name in Spark's catalogs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from indextables.errors import StatementError
from indextables.spark.access import TableAccess
from indextables.spark.data_source import NAME
from indextables.spark.options import SourceOptions
from indextables.spark.readwriter import PROVIDERS, bridge_of, is_classic, session_settings
from indextables.statements.forms import Target
from indextables.storage import Store
from indextables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_CATALOG = "spark_catalog"
"""Spark's own catalog, of bare names."""


def access_to(spark: SparkSession, target: Target) -> TableAccess:
    """How to reach the table that a statement is about, with the session's configuration."""
    path, options = (target.path, {}) if target.path is not None else _place(spark, target)
    if not path.strip():
        raise StatementError("The path of the table is empty. Write it in quotes.")
    return SourceOptions.parse({**options, "path": path}, session_settings(spark)).access()


def open_target(spark: SparkSession, target: Target) -> Table:
    """The table that a statement is about."""
    return table_at(access_to(spark, target))


def table_at(access: TableAccess) -> Table:
    """The table at a place."""
    return Table.of_log(access.log())


def store_at(spark: SparkSession, path: str) -> Store:
    """The store at a path, table or not, with the session's credentials."""
    return SourceOptions.parse({"path": path}, session_settings(spark)).access().store()


def _place(spark: SparkSession, target: Target) -> tuple[str, Mapping[str, str]]:
    """Where a named table is, and the options that it was created with."""
    from pyspark.errors import AnalysisException

    parts = target.name
    # indextables.`/data/docs`: the catalog's own way to name a path.
    if len(parts) == 2 and parts[0].lower() == NAME and "/" in parts[1]:
        return parts[1], {}
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in parts)
    try:
        found = spark.catalog.getTable(quoted)
    except AnalysisException:
        raise StatementError(
            f"There is no table {target}. Write its path in quotes, or its name as in SHOW TABLES."
        ) from None
    if found.isTemporary or found.tableType == "VIEW":
        raise StatementError(
            f"{target} is a view, not a table. Name the table that it reads, or its path in quotes."
        )
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    properties = {row["col_name"]: row["data_type"] for row in described}
    provider, location = properties.get("Provider"), properties.get("Location")
    if provider is None or provider.lower() not in PROVIDERS or location is None:
        raise StatementError(f"{target} is a table of {provider}, not an index table.")
    bridge = bridge_of(spark) if is_classic(spark) else None
    if bridge is None or found.catalog != SPARK_CATALOG or not found.namespace:
        return str(location), {}
    return str(location), bridge.options_of(found.namespace[0], found.name)
