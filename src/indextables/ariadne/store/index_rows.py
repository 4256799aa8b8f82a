"""The rows of an index: reading, removing, compacting, vacuuming, and showing them to people."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache, cached

from indextables.ariadne.model.declarations import Declaration, Declarations, storage_column
from indextables.ariadne.model.rows import FIXED_SCHEMA, KEY_COLUMNS
from indextables.ariadne.store import staging
from indextables.ariadne.store.large_values import compact_values, drop_files
from indextables.ariadne.store.place import IndexPlace
from indextables.ariadne.values.bloom import value_count
from indextables.ariadne.values.words import word_count

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


def read_rows(place: IndexPlace) -> tuple[pa.Table, str]:
    """All rows of the index, and a text that identifies this version of them."""
    table = place.main.open()
    if table is None:
        return FIXED_SCHEMA.empty_table(), "none"
    key = (place.uri, str(table.metadata().id), table.version())
    return _rows(key, place, table), repr(key)


@cached(LRUCache(8), key=lambda key, *_: key, lock=threading.Lock())
def _rows(_key: tuple[str, str, int], place: IndexPlace, table: DeltaTable) -> pa.Table:
    rows = place.main.rows(table)
    # Rows that the Scala project wrote lack some columns.
    for field in FIXED_SCHEMA:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def key_rows(place: IndexPlace) -> pa.Table:
    """The columns of the index rows that decide their state."""
    table = place.main.open()
    names = [] if table is None else [f.name for f in table.schema().fields]
    if table is None or "filename" not in names:
        return pa.table({n: pa.array([], pa.null()) for n in KEY_COLUMNS})
    rows = place.main.rows(table, [n for n in KEY_COLUMNS if n in names])
    for name in (n for n in KEY_COLUMNS if n not in names):
        rows = rows.append_column(name, pa.nulls(rows.num_rows))
    return rows.select(list(KEY_COLUMNS))


def remove_rows(place: IndexPlace, names: Sequence[str]) -> None:
    """Delete the rows of files, and what large tables have of them."""
    table = place.main.open()
    if table is None or not names:
        return
    large = [f.name for f in table.schema().fields if f.name.startswith("large_")]
    rows = place.main.rows(table, large, among=("filename", names)) if large else None
    place.main.delete("filename", list(names))
    for column in large:
        assert rows is not None
        identities = {i for i in rows.column(column).to_pylist() if isinstance(i, str)}
        if identities:
            name = column.removeprefix("large_")
            drop_files(place, name, list(names), identities)


def total_size(place: IndexPlace) -> int:
    """The bytes of all indexed files."""
    rows = key_rows(place)
    columns = [rows.column(n).to_pylist() for n in ("file_size", "failure")]
    return sum(size or 0 for size, failure in zip(*columns, strict=True) if failure is None)


def compact(place: IndexPlace) -> None:
    """Merge small data files of all tables of an index, and count batches from zero again."""
    place.main.compact()
    table = place.main.open()
    names = [] if table is None else [f.name for f in table.schema().fields]
    for column in (n for n in names if n.startswith("large_")):
        assert table is not None
        rows = place.main.rows(table, ["filename", column])
        pairs = zip(*(c.to_pylist() for c in rows.columns), strict=True)
        identities = {name: identity for name, identity in pairs if isinstance(identity, str)}
        compact_values(place, column.removeprefix("large_"), identities)
    place.metadata.change(lambda metadata: replace(metadata, batches_since_compact=0))


def vacuum(place: IndexPlace, retention_hours: int) -> list[str]:
    """Delete data files that no table needs any more; returns their paths below the index."""
    before = time.time_ns() // 1_000_000 - retention_hours * 3_600_000
    garbage = staging.unfinished(place, before_ms=before)
    place.store.delete(garbage)
    folders = [f"large_indexes/{n}" for n in place.store.list_directory("large_indexes")[1]]
    gone = [f"index/{path}" for path in place.main.vacuum(retention_hours)]
    for folder in folders:
        table = place.table(folder)
        gone += [f"{folder}/{path}" for path in table.vacuum(retention_hours)]
    return [*garbage, *gone]


_COLUMNS = (
    "Column string, FileCount bigint, MinValues bigint, MaxValues bigint, "
    "AvgValues decimal(10,1), MedianValues double, StdDev double"
)


def statistics_frame(spark: SparkSession, rows: pa.Table, declarations: Declarations) -> DataFrame:
    """How many distinct values the files have in each index column that was built."""
    statistics: list[tuple[Any, ...]] = []
    for d in declarations:
        if (column := storage_column(d)) not in rows.column_names:
            continue
        if d.kind == "range":
            if files := len(rows) - rows.column(column).null_count:
                statistics.append((d.name, files, *[None] * 5))
            continue
        counts = _counts(rows, d)
        if len(counts):
            statistics.append(
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
    return spark.createDataFrame(statistics, _COLUMNS)


def _counts(rows: pa.Table, declaration: Declaration) -> Any:
    stored = rows.column(storage_column(declaration))
    if declaration.kind in ("bloom", "text"):
        count = value_count if declaration.kind == "bloom" else word_count
        numbers = (count(cell.as_py()) for cell in stored)
        return np.array([number for number in numbers if number is not None], np.int64)
    counts: Any = pc.list_value_length(stored).cast(pa.int64())
    if (distinct := f"distinct_{declaration.name}") in rows.column_names:
        counts = pc.coalesce(rows.column(distinct), counts)
    return np.asarray(counts.drop_null())


def readable_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows of an index, with sizes in place of bytes."""
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
