"""Building index rows: one Spark job reads a batch of files once and folds all declarations.

Spark reads and parses, so a value is what any query of these files sees. `mapInArrow` hands the
rows to Python, where a `FileFold` a file takes them in. A task writes what it found itself, as
Parquet files: index rows below `staging/<batch>/`, values of files that have too many below
`large_indexes/<column>/`. What comes back to the driver are the names of those files. They mean
nothing until the driver commits them, so a task that fails or runs twice does no harm.

Most files are read by one task each. Those that Spark cuts into several are folded in parts, the
parts are shuffled by file, and a second fold joins them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.build_output import CHANGED, Output, Plan, Written
from indextables.ariadne.delta import DataFile
from indextables.ariadne.fold import FileFold, partial_schema
from indextables.ariadne.source import FILE, file_path, file_size, projected
from indextables.config import parse_size
from indextables.spark.readwriter import is_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUTPUT = "column string, path string, size bigint, stats string, files array<string>"
_PARTIAL = "file string, payload binary"


# --- what tasks do ---------------------------------------------------------------------------


@dataclass(frozen=True)
class FoldFiles:
    """A task: fold the rows of the files it reads, and write the finished index rows."""

    plan: Plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = Output(self.plan)
        for filename, fold in _folded(self.plan, batches, partial=False):
            output.finish(filename, fold)
            yield from output.take()
        output.flush()
        yield from output.take()


@dataclass(frozen=True)
class FoldParts:
    """A task: fold the rows of the parts of files it reads, and hand the state on."""

    plan: Plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for filename, fold in _folded(self.plan, batches, partial=True):
            for part in fold.partials():
                payload = part.serialize().to_pybytes()
                yield pa.RecordBatch.from_pydict(
                    {"file": pa.array([filename]), "payload": pa.array([payload], pa.binary())}
                )
            fold.close()


@dataclass(frozen=True)
class JoinParts:
    """A task: join the states of each file, which arrive one file after the other."""

    plan: Plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = partial_schema(self.plan.targets)
        output = Output(self.plan)
        current: tuple[str, FileFold] | None = None
        for batch in batches:
            for name, payload in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if current is None or current[0] != name:
                    if current is not None:
                        output.finish(*current)
                        yield from output.take()
                    current = name, self.plan.fold()
                current[1].merge(pa.ipc.read_record_batch(pa.py_buffer(payload), schema))
        if current is not None:
            output.finish(*current)
        output.flush()
        yield from output.take()


def _folded(
    plan: Plan, batches: Iterator[pa.RecordBatch], *, partial: bool
) -> Iterator[tuple[str, FileFold]]:
    """The folds of a task's files. Spark reads one file after the other."""
    mark, fold = None, plan.fold(partial=partial)
    for batch in batches:
        for found, rows in _runs(batch):
            if mark is not None and found != mark:
                yield plan.filename(mark), fold
                fold = plan.fold(partial=partial)
            mark = found
            _take(plan, fold, rows)
    if mark is not None:
        yield plan.filename(mark), fold


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[Any, pa.RecordBatch]]:
    runs: Any = pc.call_function("run_end_encode", [batch.column(FILE)])
    start = 0
    for name, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield name, batch.slice(start, end - start)
        start = end


def _take(plan: Plan, fold: FileFold, rows: pa.RecordBatch) -> None:
    columns, times = [], []
    for number, target in enumerate(plan.targets):
        kind = target.kind
        if target.declaration.kind == "exploded":
            kind = pa.list_(pa.field("element", kind))
        columns.append(typed(rows.column(f"c{number}"), kind))
        has_time = target.declaration.kind == "temporal"
        times.append(typed(rows.column(f"t{number}"), target.time) if has_time else None)
    fold.add(rows.num_rows, columns, times)


def typed(column: Any, kind: Any) -> Any:
    """A column in the type that it is folded in."""
    return column if column.type.equals(kind) else column.cast(kind)


# --- the job ---------------------------------------------------------------------------------


def run(
    spark: SparkSession, plan: Plan, rows: DataFrame, *, shuffle_into: int | None = None
) -> list[Written]:
    """Read the files of a batch and fold them; gives what the tasks wrote.

    `shuffle_into` joins the partial results in this many tasks even if no file is cut.
    """
    sizes = [meta.size for meta in plan.files.values()]
    if len(set(sizes)) == len(sizes):
        try:
            return _run(spark, replace(plan, by_size=True), rows, shuffle_into)
        except Exception as error:
            if CHANGED not in str(error):
                raise
    return _run(spark, plan, rows, shuffle_into)


def _run(
    spark: SparkSession, plan: Plan, rows: DataFrame, shuffle_into: int | None
) -> list[Written]:
    sizes = [meta.size for meta in plan.files.values()]
    whole = shuffle_into is None and max(sizes) <= _split_size(spark, sizes)
    source = _source(rows, plan, whole=whole)
    if whole:
        written = collected(source.mapInArrow(FoldFiles(plan), OUTPUT))
        names = [n for w in written if not w.column for n in w.filenames]
        if len(names) == len(set(names)):
            return written
        source = _source(rows, plan, whole=False)
    count = shuffle_into or min(len(sizes), 2 * parallelism(spark))
    parts = source.mapInArrow(FoldParts(plan), _PARTIAL).repartition(count, "file")
    return collected(parts.sortWithinPartitions("file").mapInArrow(JoinParts(plan), OUTPUT))


def _source(rows: DataFrame, plan: Plan, *, whole: bool) -> DataFrame:
    file = file_size(rows, whole=whole) if plan.by_size else file_path(rows)
    return projected(rows, [t.declaration for t in plan.targets], file=file)


def collected(output: DataFrame) -> list[Written]:
    """Run a job whose tasks write; gives what they wrote."""
    return [
        Written(
            row["column"], DataFile(row["path"], row["size"], row["stats"]), tuple(row["files"])
        )
        for row in output.collect()
    ]


def _split_size(spark: SparkSession, sizes: Sequence[int]) -> int:
    """The size from which on Spark cuts a file into several tasks; its own formula."""
    get = spark.conf.get
    most = parse_size(get("spark.sql.files.maxPartitionBytes", "128MB"))
    opening = parse_size(get("spark.sql.files.openCostInBytes", "4MB"))
    least = get("spark.sql.files.minPartitionNum", None)
    tasks = int(least) if least else parallelism(spark)
    return min(most, max(opening, (sum(sizes) + opening * len(sizes)) // max(tasks, 1)))


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once."""
    # A session over Spark Connect does not say; many tasks mean small pieces, which is safe.
    return spark.sparkContext.defaultParallelism if is_classic(spark) else 1024
