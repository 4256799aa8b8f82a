"""Building index rows of csv files that Arrow reads, several times faster than Spark.

A file is read here only where both are certain to see the same values; `csv_rows` says so, at the
latest when it meets something in the file that Spark may read in another way. Such a file is not
among the result, and Spark reads it (`build`).

A task reads whole files and folds them. A computed index is an expression of Spark's, which Spark
evaluates: `ReadRows` hands over the columns that it is about, and behind the rows of each file a
few rows with the state of the other declarations. `FinishFiles` puts the two together, in the same
stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from indextables.ariadne import csv_rows
from indextables.ariadne.build import OUTPUT, collected, parallelism
from indextables.ariadne.declarations import Computed, needed_columns
from indextables.ariadne.direct_tasks import (
    COUNT,
    STATE,
    Direct,
    FinishFiles,
    ReadFiles,
    ReadRows,
)
from indextables.ariadne.paths import folder_and_name
from indextables.ariadne.source import arrow_schema, read_files, spark_schema
from indextables.config import parse_size

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from indextables.ariadne.build_output import Plan, Written
    from indextables.ariadne.metadata import Metadata
    from indextables.ariadne.place import IndexPlace

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_PLAIN = frozenset((*_NUMBERS, "string", "boolean", "date", "timestamp", "timestamp_ntz"))


def run(place: IndexPlace, metadata: Metadata, plan: Plan) -> list[Written]:
    """Read the files that can be read here; gives what the tasks wrote."""
    direct = _direct(place, metadata, plan)
    if direct is None:
        return []
    spark = place.context.spark
    count = len(direct.tasks)
    tasks = spark.range(0, count, 1, count)
    if not direct.inputs and not _expressions(plan):
        return collected(tasks.mapInArrow(ReadFiles(direct), OUTPUT))
    return collected(_evaluated(tasks, metadata, direct, name=place.name))


def _evaluated(tasks: DataFrame, metadata: Metadata, direct: Direct, *, name: str) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    known = spark_schema(metadata, name=name)
    schema = StructType(
        [
            StructField(STATE, BinaryType()),
            StructField(COUNT, LongType()),
            *(StructField(n, known[n].dataType) for n in direct.inputs),
        ]
    )
    rows = tasks.mapInArrow(ReadRows(direct), schema)
    state = rows[STATE]
    values = [
        f.when(state.isNull(), f.expr(target.declaration.expression)).alias(f"c{number}")
        for number, target in enumerate(direct.plan.targets)
        if isinstance(target.declaration, Computed)
    ]
    return rows.select(state, COUNT, *values).mapInArrow(FinishFiles(direct.plan), OUTPUT)


def _direct(place: IndexPlace, metadata: Metadata, plan: Plan) -> Direct | None:
    """What tasks do; None if no file can be read here."""
    if metadata.format != "csv":
        return None
    spark, name = place.context.spark, place.name
    dialect = csv_rows.dialect(metadata.read_options, spark_schema(metadata, name=name).names,
                               spark.conf.get)  # fmt: skip
    inputs = _inputs(place, metadata, plan)
    if dialect is None or inputs is None or {STATE, COUNT} & set(dialect.names):
        return None
    needed = [n for t in plan.targets for n in needed_columns(t.declaration)]
    types = _types(place, metadata)
    wanted = dict.fromkeys([*needed, *inputs])
    if not all(column in types for column in wanted):
        return None
    most = parse_size(spark.conf.get("spark.sql.files.maxPartitionBytes", "128MB") or "128MB")
    # Several tasks of Spark share a larger file.
    files = {n: m.size for n, m in plan.files.items() if m.size <= most and csv_rows.is_named(n)}
    if not files:
        return None
    return Direct(
        plan=plan,
        dialect=dialect,
        columns={column: types[column] for column in wanted},
        inputs=inputs,
        tasks=_tasks(files, 2 * parallelism(spark)),
        storage={
            f: place.context.storage_options(f) for f in {folder_and_name(n)[0] for n in files}
        },
    )


def _types(place: IndexPlace, metadata: Metadata) -> dict[str, pa.DataType]:
    """The columns that can be read here."""
    zone = str(place.context.spark.conf.get("spark.sql.session.timeZone"))
    # Collations, UDTs and defaults are not told by the types of Arrow.
    plain = {
        f.name
        for f in spark_schema(metadata, name=place.name)
        if not f.metadata and f.dataType.simpleString() in _PLAIN
    }
    return {
        f.name: f.type
        for f in arrow_schema(metadata, name=place.name)
        if f.name in plain and csv_rows.can_read(f.type, timezone=zone)
    }


def _expressions(plan: Plan) -> list[str]:
    return [t.declaration.expression for t in plan.targets if isinstance(t.declaration, Computed)]


def _inputs(place: IndexPlace, metadata: Metadata, plan: Plan) -> tuple[str, ...] | None:
    """The columns that expressions are about; None if nobody knows."""
    from pyspark.sql import functions as f

    from indextables.spark.bridge.frames import columns_read

    found = _expressions(plan)
    if not found:
        return ()
    rows = read_files(place.context.spark, metadata, [], name=place.name)
    return columns_read(rows.select(*map(f.expr, found)))


def _tasks(files: Mapping[str, int], most: int) -> tuple[tuple[str, ...], ...]:
    """Files for each task, about as many bytes for all of them."""
    tasks: list[list[str]] = [[] for _ in range(min(most, len(files)))]
    loads = [0] * len(tasks)
    for name in sorted(files, key=lambda n: -files[n]):
        lightest = loads.index(min(loads))
        tasks[lightest].append(name)
        loads[lightest] += files[name] + 1
    return tuple(map(tuple, tasks))
