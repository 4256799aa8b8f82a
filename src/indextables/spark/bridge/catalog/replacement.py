"""CREATE OR REPLACE TABLE … AS SELECT, and `saveAsTable` with the mode `overwrite`.

Spark drops the table first and runs the query afterwards, by calls that do not name
each other. A query that reads the table would find its rows deleted, and they would be lost. What
is about to happen is in the execution that Spark's thread is in, so a drop looks there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from indextables.errors import ConfigError
from indextables.plan.access import TableAccess
from indextables.spark.bridge.jvm.handles import JavaObject, Jvm
from indextables.spark.schemas import table_schema

_EXECUTION = "org.apache.spark.sql.execution.SQLExecution"


def check_replacement(java: Jvm, access: TableAccess) -> None:
    """Refuse to drop a table for rows that could then not take its place."""
    query = _replacing(java)
    if query is None:
        return
    table_schema(java.schema_of(query.schema()))
    if any(key.startswith(f"IndexTable {access.uri} ") for key in _tables(query)):
        raise ConfigError(
            f"'{access.uri}' is to be replaced by rows that are read from it, and Spark deletes "
            "them before it reads them. INSERT OVERWRITE it instead, or write to another table."
        )


def _replacing(java: Jvm) -> JavaObject | None:
    """The query whose rows are to replace a table, if this is why it is dropped."""
    try:
        number = java.context.getLocalProperty("spark.sql.execution.id")
        if number is None:
            return None
        plan = java.find(_EXECUTION).getQueryExecution(int(number)).analyzed()
        return plan.query() if plan.nodeName() == "ReplaceTableAsSelect" else None
    except Exception:  # the interface is Spark's own and may change
        return None


def _tables(plan: Any) -> Iterator[str]:
    """The tables that a plan reads, as they call themselves."""
    nested = plan.subqueriesAll()
    for one in (plan, *(nested.apply(number) for number in range(nested.size()))):
        leaves = one.collectLeaves()
        for number in range(leaves.size()):
            leaf = leaves.apply(number)
            if leaf.nodeName() == "DataSourceV2Relation":
                yield leaf.table().toString()
