"""Building index rows of csv files that Arrow parses, about twice as fast as Spark.

Arrow parses a file only where both are certain to read the same values. `csv_parser` decides that,
at the latest when it meets something in the file that Spark may read in another way. Such a file is
not in the result, and Spark reads it (`tasks`).

A task reads whole files and folds them. A computed index is a Spark expression, which Spark
evaluates: `ReadRows` returns the columns that it needs, and after the rows of each file a few rows
with the state of the other declarations. `FinishFiles` combines the two, in the same stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indextables.ariadne.build import csv_parser
from indextables.ariadne.build.csv_parser import NotPlain
from indextables.ariadne.build.fold import FileFold, partial_schema
from indextables.ariadne.build.plan import Plan
from indextables.ariadne.build.tasks import OUTPUT, Output, collected, parallelism, typed
from indextables.ariadne.declarations import Computed, needed_columns
from indextables.ariadne.files.paths import folder_and_name
from indextables.ariadne.files.read import arrow_schema, read_files, spark_schema
from indextables.config import parse_size
from indextables.errors import StorageError
from indextables.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from indextables.ariadne.build.tasks import Written
    from indextables.ariadne.metadata import Metadata
    from indextables.ariadne.store.place import IndexPlace

STATE, COUNT = "__state", "__count"
"""Columns beside the values of expressions: what a row says about those before it, and how many
rows of a file it stands for."""

_BLOCK = 4 << 20
_MOST_ROWS, _MOST_BYTES = 1 << 17, 16 << 20

# What a row behind those of a file says, and then its number or a part of its state.
_PART, _WHOLE, _GIVEN_UP = b"part", b"whole", b"none"


@dataclass(frozen=True)
class Direct:
    """What tasks need to know. Pickled with the credentials, shown without."""

    plan: Plan
    dialect: csv_parser.CsvDialect
    columns: Mapping[str, pa.DataType]
    """What is read of the files."""
    inputs: tuple[str, ...]
    """What expressions are about."""
    tasks: tuple[tuple[str, ...], ...]
    """The files of each task."""
    storage: Mapping[str, Mapping[str, object]] = field(repr=False)
    """How each folder is reached."""

    def batches(self, filename: str) -> Iterator[pa.RecordBatch]:
        """The rows of a file."""
        folder, name = folder_and_name(filename)
        store = open_store(folder, self.storage[folder])
        blocks = _Blocks(store.get_range, name, self.plan.files[filename].size)
        return csv_parser.read(blocks, self.dialect, self.columns)

    def take(self, fold: FileFold, rows: pa.RecordBatch) -> None:
        """Fold rows for all declarations but the computed ones."""
        columns: list[Any] = []
        times: list[Any] = []
        for target in self.plan.targets:
            arrays = [rows.column(name) for name in needed_columns(target.declaration)]
            columns.append(arrays[0] if arrays else None)
            times.append(arrays[1] if len(arrays) > 1 else None)
        fold.add(rows.num_rows, columns, times)


class _Blocks:
    """A stored file, read from its beginning to its end."""

    def __init__(self, get_range: Any, name: str, size: int) -> None:
        self._get_range = get_range
        self._name = name
        self._at, self._size = 0, size

    def read(self, count: int = -1) -> bytes:
        """The next bytes, at most a block."""
        count = _BLOCK if count < 0 else min(count, _BLOCK)
        end = min(self._at + count, self._size)
        data: bytes = self._get_range(self._name, self._at, end) if end > self._at else b""
        self._at = end
        return data


@dataclass(frozen=True)
class ReadFiles:
    """A task without expressions: fold its files and write the finished index rows."""

    direct: Direct

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = Output(self.direct.plan)
        for _, filename in _named(self.direct, batches):
            fold = self.direct.plan.fold()
            try:
                for rows in self.direct.batches(filename):
                    self.direct.take(fold, rows)
            except (NotPlain, StorageError):
                fold.close()
                continue
            output.finish(filename, fold)
            yield from output.take()
        output.flush()
        yield from output.take()


@dataclass(frozen=True)
class ReadRows:
    """A task with expressions: fold its files, and hand the rows and the state to Spark."""

    direct: Direct

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, filename in _named(self.direct, batches):
            fold = self.direct.plan.fold(partial=True)
            inputs = _Inputs(self.direct)
            try:
                for rows in self.direct.batches(filename):
                    self.direct.take(fold, rows)
                    yield from inputs.add(rows)
                yield from inputs.flush()
                for part in fold.partials():
                    yield inputs.state(_PART, part.serialize().to_pybytes())
                yield inputs.state(_WHOLE, str(number).encode())
            except (NotPlain, StorageError):
                yield inputs.state(_GIVEN_UP)
            fold.close()


class _Inputs:
    """The values that expressions are about, of many rows at once: each combination only once."""

    def __init__(self, direct: Direct) -> None:
        self._types: dict[str, Any] = {name: direct.columns[name] for name in direct.inputs}
        # Arrow may take 0.0 and -0.0 for the same, an expression need not.
        self._repeats = not any(map(pa.types.is_floating, self._types.values()))
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows; yields those that Spark gets."""
        self._waiting.append(rows.select(list(self._types)))
        self._rows += rows.num_rows
        if self._rows >= _MOST_ROWS or sum(b.nbytes for b in self._waiting) >= _MOST_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The rows that wait."""
        counted = self._counted() if self._rows else None
        self._waiting, self._rows = [], 0
        if counted is not None:
            yield from counted.to_batches()

    def _counted(self) -> pa.Table:
        names = list(self._types)
        if not names:
            return pa.table({STATE: pa.nulls(1, pa.binary()), COUNT: pa.array([self._rows])})
        rows = pa.Table.from_batches(self._waiting)
        counts: Any = pa.repeat(1, self._rows)
        if self._repeats:
            groups = rows.group_by(names, use_threads=False).aggregate([([], "count_all")])
            # Where nearly every combination is new, nothing is gained by looking for others.
            self._repeats = groups.num_rows < 0.5 * self._rows
            if self._repeats:
                rows, counts = groups.select(names), groups.column("count_all")
        states: Any = pa.nulls(rows.num_rows, pa.binary())
        return pa.table(
            {STATE: states, COUNT: counts, **dict(zip(names, rows.columns, strict=True))}
        )

    def state(self, what: bytes, more: bytes = b"") -> pa.RecordBatch:
        """A row that says something about the rows before it."""
        inputs = {name: pa.nulls(1, data_type) for name, data_type in self._types.items()}
        row: dict[str, Any] = {STATE: pa.array([what + b" " + more]), COUNT: pa.array([0])}
        return pa.RecordBatch.from_pydict({**row, **inputs})


def _named(direct: Direct, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, str]]:
    """The files of the task, each with its number."""
    numbers = {name: number for number, name in enumerate(direct.plan.files)}
    for batch in batches:
        tasks: list[Any] = batch.column(0).to_pylist()
        for task in tasks:
            for name in direct.tasks[task]:
                yield numbers[name], name


@dataclass(frozen=True)
class FinishFiles:
    """A task behind Spark's expressions: fold their values, and write the finished index rows."""

    plan: Plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = list(self.plan.files)
        schema = partial_schema(self.plan.targets)
        output = Output(self.plan)
        fold = self.plan.fold()
        for batch in batches:
            states: Any = batch.column(STATE)
            start = 0
            for at in np.flatnonzero(states.is_valid()).tolist():
                self._add(fold, batch.slice(start, at - start))
                start = at + 1
                what, _, more = states[at].as_py().partition(b" ")
                if what == _PART:
                    fold.merge(pa.ipc.read_record_batch(pa.py_buffer(more), schema))
                    continue
                if what == _WHOLE:
                    output.finish(names[int(more)], fold)
                    yield from output.take()
                fold.close()
                fold = self.plan.fold()
            self._add(fold, batch.slice(start))
        output.flush()
        yield from output.take()

    def _add(self, fold: FileFold, rows: pa.RecordBatch) -> None:
        columns = [
            typed(rows.column(f"c{n}"), t.value_type)
            if isinstance(t.declaration, Computed)
            else None
            for n, t in enumerate(self.plan.targets)
        ]
        # The rows were counted where they were read.
        fold.add(0, columns, [None] * len(columns), repeated=rows.column(COUNT))


_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_PLAIN = frozenset((*_NUMBERS, "string", "boolean", "date", "timestamp", "timestamp_ntz"))


def run(place: IndexPlace, metadata: Metadata, plan: Plan) -> list[Written]:
    """Read the files that can be read here; returns what the tasks wrote."""
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

    file_schema = spark_schema(metadata, name=name)
    schema = StructType(
        [
            StructField(STATE, BinaryType()),
            StructField(COUNT, LongType()),
            *(StructField(n, file_schema[n].dataType) for n in direct.inputs),
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
    dialect = csv_parser.dialect(metadata.read_options, spark_schema(metadata, name=name).names,
                               spark.conf.get)  # fmt: skip
    inputs = _inputs(place, metadata, plan)
    if dialect is None or inputs is None or {STATE, COUNT} & set(dialect.names):
        return None
    needed = [n for t in plan.targets for n in needed_columns(t.declaration)]
    types = _types(place, metadata)
    read_columns = dict.fromkeys([*needed, *inputs])
    if not all(column in types for column in read_columns):
        return None
    most = parse_size(spark.conf.get("spark.sql.files.maxPartitionBytes", "128MB") or "128MB")
    # Several tasks of Spark share a larger file.
    files = {n: m.size for n, m in plan.files.items() if m.size <= most and csv_parser.is_named(n)}
    if not files:
        return None
    return Direct(
        plan=plan,
        dialect=dialect,
        columns={column: types[column] for column in read_columns},
        inputs=inputs,
        tasks=_tasks(files, 2 * parallelism(spark)),
        storage={
            f: place.context.storage_options(f) for f in {folder_and_name(n)[0] for n in files}
        },
    )


def _types(place: IndexPlace, metadata: Metadata) -> dict[str, pa.DataType]:
    """The columns that can be read here."""
    zone = str(place.context.spark.conf.get("spark.sql.session.timeZone"))
    # Arrow's types do not show collations, UDTs and defaults.
    plain = {
        f.name
        for f in spark_schema(metadata, name=place.name)
        if not f.metadata and f.dataType.simpleString() in _PLAIN
    }
    return {
        f.name: f.type
        for f in arrow_schema(metadata, name=place.name)
        if f.name in plain and csv_parser.can_read(f.type, timezone=zone)
    }


def _expressions(plan: Plan) -> list[str]:
    return [t.declaration.expression for t in plan.targets if isinstance(t.declaration, Computed)]


def _inputs(place: IndexPlace, metadata: Metadata, plan: Plan) -> tuple[str, ...] | None:
    """The columns that expressions are about; None if they are not known."""
    from pyspark.sql import functions as f

    from indextables.spark.bridge.frames import columns_read

    expressions = _expressions(plan)
    if not expressions:
        return ()
    rows = read_files(place.context.spark, metadata, [], name=place.name)
    return columns_read(rows.select(*map(f.expr, expressions)))


def _tasks(files: Mapping[str, int], most: int) -> tuple[tuple[str, ...], ...]:
    """Files for each task, about as many bytes for all of them."""
    tasks: list[list[str]] = [[] for _ in range(min(most, len(files)))]
    loads = [0] * len(tasks)
    for name in sorted(files, key=lambda n: -files[n]):
        lightest = loads.index(min(loads))
        tasks[lightest].append(name)
        loads[lightest] += files[name] + 1
    return tuple(map(tuple, tasks))
