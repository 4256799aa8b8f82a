"""The rows of an index's files as a DataFrame: the table that joins and SQL are about.

It has the columns of the files, then the computed index columns. An exploded alias is there only if
it is asked for: then a row stands there once for each different element of its array, and once
with null if there is none, so that no row is lost. Aliases of the same array come from the same
element.

With a temporal index only the newest row of each value counts. Rows are ranked as they are in the
files, before anything is filtered; a null time is the oldest, rows of one time are ranked by their
a hash of what they hold, so one of them is chosen and always the same. Rows without a value are all
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from indextables.ariadne.files.read import read_files, spark_schema
from indextables.ariadne.model.declarations import Computed, Exploded, Temporal
from indextables.ariadne.model.metadata import Metadata
from indextables.predicate.literals import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

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


def column_names(metadata: Metadata, *, name: str, aliases: Sequence[str] = ()) -> list[str]:
    """The columns of `rows_of`."""
    stored = spark_schema(metadata, name=name).names
    computed = [d.name for d in metadata.declarations if isinstance(d, Computed)]
    return list(dict.fromkeys([*stored, *computed, *aliases]))


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
