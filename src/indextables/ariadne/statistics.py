"""What an index holds, as DataFrames for people."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.declarations import Declarations, storage_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = (
    "Column string, FileCount bigint, MinValues bigint, MaxValues bigint, "
    "AvgValues decimal(10,1), MedianValues double, StdDev double"
)


def frame(spark: SparkSession, rows: pa.Table, declarations: Declarations) -> DataFrame:
    """How many distinct values the files have in each index column that keeps values."""
    found = []
    for d in declarations.of_kind("regular", "computed", "exploded", "temporal"):
        counts = _counts(rows, storage_column(d), d.name)
        if len(counts):
            found.append(
                (
                    d.name,
                    len(counts),
                    int(counts.min()),
                    int(counts.max()),
                    Decimal(f"{counts.mean():.1f}"),
                    float(np.median(counts)),
                    float(counts.std(ddof=1)) if len(counts) > 1 else 0.0,
                )
            )
    return spark.createDataFrame(found, _COLUMNS)


def _counts(rows: pa.Table, column: str, name: str) -> Any:
    if column not in rows.column_names:
        return np.empty(0, np.int64)
    counts: Any = pc.list_value_length(rows.column(column)).cast(pa.int64())
    if f"distinct_{name}" in rows.column_names:
        counts = pc.coalesce(rows.column(f"distinct_{name}"), counts)
    return np.asarray(counts.drop_null())


def shown(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows of an index, with sizes in place of bytes nobody can read."""
    columns = {
        field.name: pc.binary_length(rows.column(field.name))
        if pa.types.is_binary(field.type)
        else rows.column(field.name)
        for field in rows.schema
    }
    if not rows.num_rows:
        from indextables.spark.schemas import spark_schema

        return spark.createDataFrame([], spark_schema(pa.table(columns).schema))
    return spark.createDataFrame(pa.table(columns))
