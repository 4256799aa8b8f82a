"""What an index holds, as DataFrames for people."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.bloom import value_count
from indextables.ariadne.declarations import Declaration, Declarations, storage_column
from indextables.ariadne.text import word_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = (
    "Column string, FileCount bigint, MinValues bigint, MaxValues bigint, "
    "AvgValues decimal(10,1), MedianValues double, StdDev double"
)


def frame(spark: SparkSession, rows: pa.Table, declarations: Declarations) -> DataFrame:
    """How many distinct values the files have in each index column that was built."""
    found: list[tuple[Any, ...]] = []
    for d in declarations:
        if (column := storage_column(d)) not in rows.column_names:
            continue
        if d.kind == "range":
            if files := len(rows) - rows.column(column).null_count:
                found.append((d.name, files, *[None] * 5))
            continue
        counts = _counts(rows, d)
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


def _counts(rows: pa.Table, declaration: Declaration) -> Any:
    stored = rows.column(storage_column(declaration))
    if declaration.kind in ("bloom", "text"):
        count = value_count if declaration.kind == "bloom" else word_count
        told = (count(cell.as_py()) for cell in stored)
        return np.array([number for number in told if number is not None], np.int64)
    counts: Any = pc.list_value_length(stored).cast(pa.int64())
    if (distinct := f"distinct_{declaration.name}") in rows.column_names:
        counts = pc.coalesce(rows.column(distinct), counts)
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
