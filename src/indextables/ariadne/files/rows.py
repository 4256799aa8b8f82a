"""The rows of an index's files as a DataFrame: the table that joins and SQL are about.

It has the columns of the files, then the computed index columns. An exploded alias is there only if
it is asked for: then a row stands there once for each different element of its array, and once
with null if there is none, so that no row is lost. Aliases of the same array come from the same
element.

With a temporal index only the newest row of each value counts. Rows are ranked as they are in the
files, before anything is filtered; a null time is the oldest, and rows of one time are ranked by a
hash of their values, so that the same one is chosen every time. Rows without a value are all kept.

Spark takes far longer to start a job over ten small files than it takes to read them. So where a
join located few bytes of Parquet, the driver reads the rows that have its keys and passes them to
Spark. It reads only files that Arrow and Spark are certain to read alike; Spark reads everything
else, and every file that the driver cannot read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indextables.ariadne.declarations import Computed, Exploded, Temporal
from indextables.ariadne.files.read import folder_and_name, read_files, spark_schema
from indextables.ariadne.metadata import Metadata
from indextables.config import ARIADNE_DRIVER_READ_LIMIT
from indextables.errors import StorageError
from indextables.predicate.literals import quoted_name
from indextables.runner import LocalRunner
from indextables.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from indextables.ariadne.metadata import IndexData
    from indextables.ariadne.store.place import IndexPlace


_RANK = "__ariadne_rank_"
_ELEMENT = "__ariadne_element"


def rows_of(
    spark: SparkSession,
    metadata: Metadata,
    files: Sequence[str],
    *,
    name: str,
    aliases: Sequence[str] = (),
    before: Column | None = None,
) -> DataFrame:
    """The rows of some files, with computed columns and the aliases that are asked for.

    `before` filters rows of a temporal index before they are ranked, so it may only be about the
    value that is ranked by.
    """
    frame = (
        read_files(spark, metadata, files, name=name) if files else _empty(spark, metadata, name)
    )
    if before is not None:
        frame = frame.where(before)
    return extended(frame, metadata, aliases)


def extended(frame: DataFrame, metadata: Metadata, aliases: Sequence[str]) -> DataFrame:
    """The rows of the index, from rows as they are in the files."""
    temporal = [d for d in metadata.declarations if isinstance(d, Temporal)]
    if temporal:
        frame = newest(frame, temporal)
    return _exploded(_computed(frame, metadata), metadata, aliases)


def column_names(metadata: Metadata, *, name: str) -> list[str]:
    """The columns of `rows_of`."""
    stored = spark_schema(metadata, name=name).names
    computed = [d.name for d in metadata.declarations if isinstance(d, Computed)]
    return list(dict.fromkeys([*stored, *computed]))


def _computed(frame: DataFrame, metadata: Metadata) -> DataFrame:
    from pyspark.sql import functions as f

    # All at once: an expression sees the columns of the file, not those of another expression.
    added = {d.name: f.expr(d.expression) for d in metadata.declarations if isinstance(d, Computed)}
    return frame.withColumns(added) if added else frame


def _exploded(frame: DataFrame, metadata: Metadata, aliases: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as f

    exploded = [d for d in metadata.declarations if isinstance(d, Exploded) and d.name in aliases]
    arrays = list(dict.fromkeys(d.array_column for d in exploded))
    prefix = _free(_ELEMENT, [*frame.columns, *aliases])
    # An alias may have the name of its array, so every array is read before any alias is made.
    for number, array in enumerate(arrays):
        paths = [d.field_path for d in exploded if d.array_column == array]
        column = f.col(quoted_name(array))
        if len(paths) == 1:
            elements = _field(column, paths[0])
        else:
            elements = f.transform(column, _struct_of(paths))
        frame = frame.withColumn(f"{prefix}{number}", f.array_distinct(elements))
    for number, array in enumerate(arrays):
        names = [d.name for d in exploded if d.array_column == array]
        element = f"{prefix}{number}"
        frame = frame.withColumn(element, f.explode_outer(element))
        values = (
            {names[0]: f.col(element)}
            if len(names) == 1
            else {n: f.col(element).getField(f"e{k}") for k, n in enumerate(names)}
        )
        frame = frame.withColumns(values).drop(element)
    return frame


def _struct_of(paths: Sequence[str]) -> Callable[[Column], Column]:
    """Of an element, the fields at these paths."""
    from pyspark.sql import functions as f

    def fields(element: Column) -> Column:
        return f.struct(*(_field(element, path).alias(f"e{n}") for n, path in enumerate(paths)))

    return fields


def newest(frame: DataFrame, temporal: Sequence[Temporal]) -> DataFrame:
    """Only rows that are the newest for every temporal column, ranked on all rows of the frame."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    ranks: dict[str, Any] = {}
    prefix = _free(_RANK, frame.columns)
    ties = f.xxhash64(*_tie_columns(frame.schema))
    kept = f.lit(True)
    for number, declaration in enumerate(temporal):
        value = frame[quoted_name(declaration.column)]
        time = _time(frame, declaration.timestamp_column)
        window = Window.partitionBy(value).orderBy(time.desc_nulls_last(), ties)
        ranks[f"{prefix}{number}"] = f.row_number().over(window)
        rank = f.col(f"{prefix}{number}")
        kept = kept & ((rank == 1) | f.col(quoted_name(declaration.column)).isNull())
    return frame.withColumns(ranks).where(kept).drop(*ranks)


def newest_sql(schema: StructType, temporal: Sequence[Temporal], table: str) -> str:
    """The same as a query over a table."""
    ties = f"xxhash64({', '.join(_tie_columns(schema))})"
    ranks, kept = [], []
    prefix = _free(_RANK, schema.names)
    for number, declaration in enumerate(temporal):
        value, rank = quoted_name(declaration.column), f"{prefix}{number}"
        path = declaration.timestamp_column
        parts = [path] if path in schema.names else path.split(".")
        time = ".".join(map(quoted_name, parts))
        order = f"PARTITION BY {value} ORDER BY {time} DESC NULLS LAST, {ties}"
        ranks.append(f"row_number() OVER ({order}) AS {rank}")
        kept.append(f"({rank} = 1 OR {value} IS NULL)")
    columns = ", ".join(map(quoted_name, schema.names))
    return (
        f"SELECT {columns} FROM (SELECT *, {', '.join(ranks)} FROM {table}) "
        f"WHERE {' AND '.join(kept)}"
    )


def _free(prefix: str, names: Sequence[str]) -> str:
    """A prefix for internal names that no column has."""
    while any(name.lower().startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def _tie_columns(schema: StructType) -> list[str]:
    """The columns that can be hashed, by which rows of one time are ranked."""
    from pyspark.sql.types import MapType, VariantType

    unhashed = (MapType, VariantType)
    return [quoted_name(c.name) for c in schema if not isinstance(c.dataType, unhashed)]


def _empty(spark: SparkSession, metadata: Metadata, name: str) -> DataFrame:
    """No rows, with the columns as Spark has them when it reads files: all of them may be null."""
    return spark.createDataFrame([], nullable(spark_schema(metadata, name=name)))


def nullable(data_type: Any) -> Any:
    """A type as Spark has it when it reads files: whatever was declared, all may be null."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match data_type:
        case StructType():
            fields = [
                StructField(c.name, nullable(c.dataType), True, c.metadata)
                for c in data_type.fields
            ]
            return StructType(fields)
        case ArrayType():
            return ArrayType(nullable(data_type.elementType), True)
        case MapType():
            return MapType(nullable(data_type.keyType), nullable(data_type.valueType), True)
        case _:
            return data_type


def _time(frame: DataFrame, path: str) -> Column:
    parts = [path] if path in frame.columns else path.split(".")
    return _field(frame[quoted_name(parts[0])], ".".join(parts[1:]))


def _field(column: Column, path: str) -> Column:
    for part in path.split(".") if path else []:
        column = column.getField(part)
    return column


# --- rows that the driver reads --------------------------------------------------------------

_EXPANSION = 4
"""How many times larger than their files rows may be before they are left to Spark."""
_READERS = 4
_OLDEST_DAY = -25_567
"""1900-01-01: older days and moments may be counted by another calendar."""
_DAY = 86_400_000_000

KeyValues = Sequence[tuple[str, Any]]
"""Columns of the files, each with values of which a row must have one."""


def frame_of(
    place: IndexPlace,
    metadata: Metadata,
    data: IndexData,
    *,
    schema: pa.Schema,
    files: Sequence[str],
    keys: KeyValues,
) -> DataFrame | None:
    """The rows of the files that have the keys; None if Spark has to read them."""
    context = place.context
    limit = context.config[ARIADNE_DRIVER_READ_LIMIT]
    if not keys or not files or metadata.format != "parquet" or metadata.read_options:
        return None
    columns = nullable(spark_schema(metadata, name=place.name))
    if any(f.metadata or _is_collated(f.dataType) for f in columns) or not _are_plain(
        schema, columns.names
    ):
        return None
    sizes = _sizes(data, files)
    if sizes is None or sum(sizes) > limit or context.reads_field_ids:
        return None
    stored = pa.schema([field.with_nullable(True) for field in schema])
    storage = {f: context.storage_options(f) for f in {folder_and_name(n)[0] for n in files}}
    tasks = [
        _File(
            *folder_and_name(file),
            storage[folder_and_name(file)[0]],
            stored,
            tuple(keys),
            limit,
        )
        for file in files
    ]
    tables = LocalRunner(_READERS).map(_rows, tasks)
    read = [table for table in tables if table is not None]
    if len(read) < len(tables) or sum(table.nbytes for table in read) > limit:
        return None
    return context.spark.createDataFrame(pa.concat_tables(read), columns)


def _is_collated(data_type: Any) -> bool:
    return bool(data_type.typeName() == "string" and data_type.simpleString() != "string")


def _are_plain(schema: pa.Schema, names: Sequence[str]) -> bool:
    """Whether all columns have types that both read alike."""
    # Spark may ignore the case of names, and Arrow takes a dot for the field of a struct.
    is_odd = len({name.lower() for name in names}) < len(names) or any("." in n for n in names)
    is_nested = any(pa.types.is_nested(data_type) for data_type in schema.types)
    return not is_odd and not is_nested and list(schema.names) == list(names)


def _sizes(data: IndexData, files: Sequence[str]) -> list[int] | None:
    """The sizes of the files; None if one of them has no row in the index."""
    rows = data.files.select(["filename", "file_size"])
    names: Any = pa.array(files, pa.string())
    sizes: Any = rows.filter(pc.is_in(rows.column("filename"), names)).column("file_size")
    return None if len(sizes) < len(names) or sizes.null_count else sizes.to_pylist()


# --- one file --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    folder: str
    name: str
    storage: dict[str, object]
    schema: pa.Schema
    keys: tuple[tuple[str, Any], ...]
    limit: int


def _rows(file: _File) -> pa.Table | None:
    """The rows of a file that have the keys; None if Spark may see something else in it."""
    try:
        store = open_store(file.folder, file.storage)
        local = store.local_path(file.name)
        source: Any = io.BytesIO(store.get(file.name)) if local is None else str(local)
        # Texts stay dictionary-encoded until the rows are chosen, which bounds their size.
        texts = [f.name for f in file.schema if pa.types.is_string(f.type)]
        with pq.ParquetFile(source, read_dictionary=texts) as opened:
            if not _agrees(opened, file):
                return None
            rows = opened.read(columns=file.schema.names, use_threads=False)
    except (StorageError, pa.ArrowException, OSError):
        return None
    if any(_has_old_moments(column) for column in rows.columns):
        return None
    for name, values in file.keys:
        rows = rows.filter(_mask(rows.column(name), values))
    return rows.cast(file.schema) if _size(rows) <= file.limit else None


def _mask(column: Any, values: Any) -> Any:
    if not pa.types.is_dictionary(column.type):
        return pc.is_in(column, values)
    chunks = [pc.is_in(c.dictionary, values).take(c.indices) for c in column.chunks]
    return pa.chunked_array(chunks, pa.bool_())


def _size(rows: pa.Table) -> int:
    """How many bytes the dictionary-encoded texts of the rows have when they are decoded."""
    texts: list[Any] = [c for c in rows.columns if pa.types.is_dictionary(c.type)]
    chunks = [chunk for column in texts for chunk in column.chunks]
    lengths = [pc.binary_length(chunk.dictionary).take(chunk.indices) for chunk in chunks]
    return sum(pc.sum(length).as_py() or 0 for length in lengths)


def _agrees(opened: pq.ParquetFile, file: _File) -> bool:
    footer: Any = opened.metadata
    size = sum(footer.row_group(n).total_byte_size for n in range(footer.num_row_groups))
    if size > _EXPANSION * file.limit:
        return False
    stored = opened.schema_arrow
    lowered = [name.lower() for name in stored.names]
    return all(
        lowered.count(field.name.lower()) == 1
        and field.name in stored.names
        and _value_type(stored.field(field.name).type).equals(field.type)
        for field in file.schema
    )


def _value_type(data_type: Any) -> Any:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def _has_old_moments(column: Any) -> bool:
    if pa.types.is_date32(column.type):
        least: Any = pc.min(column.cast(pa.int32()))
        return bool(least.is_valid and least.as_py() < _OLDEST_DAY)
    if pa.types.is_timestamp(column.type):
        least = pc.min(column.cast(pa.int64()))
        return bool(least.is_valid and least.as_py() < _OLDEST_DAY * _DAY)
    return False
