"""The batches of an update, and the Spark job of a batch.

A `Plan` is one batch: which files are read for which declarations. It is sent to every task. Tasks
read files, fold their rows and write index rows.

A task writes its finished rows below `staging/<batch>/`, and the values of files that have too many
below `large_indexes/<column>/`. It returns the names of those data files to the driver. They are
not part of any table until the driver commits them, so a task that fails or runs twice does no
harm. Most files are read by one task each. Files that Spark splits between several tasks are folded
in parts; the parts are shuffled by file, and a second fold merges them.

If only ranges and counts are declared, no row has to be read: Parquet footers hold the statistics
of the row groups. They suffice for whole numbers and dates, whose bounds are exact. A file that
lacks one statistic, or stores a column in another type, is read like any other.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indextables.ariadne.build.fold import FileFold, Target, partial_schema, row_batch
from indextables.ariadne.declarations import (
    STAGING,
    Declarations,
    Range,
    Temporal,
    field_type,
    types_of,
)
from indextables.ariadne.files.read import (
    FILE,
    arrow_schema,
    computed_types,
    file_path,
    file_size,
    folder_and_name,
    from_spark,
    projected,
)
from indextables.ariadne.files.state import States
from indextables.ariadne.metadata import FIXED_SCHEMA, STAGED_SCHEMA, Metadata, large_folder
from indextables.ariadne.store.large_values import value_rows, write_values
from indextables.ariadne.store.place import DataFile, IndexPlace
from indextables.ariadne.values import bloom
from indextables.ariadne.values.hashing import Distinct, DistinctHashes
from indextables.config import parse_size
from indextables.errors import StorageError
from indextables.spark.bridge.sessions import is_classic
from indextables.storage import ObjectMeta, Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


CHANGED = "a file was split, or changed its size while it was read"
_BATCH_FILES = 1_000
_BATCH_BYTES = 1 << 30
_FOOTERS = 64
"""How many footers a task reads."""


@dataclass(frozen=True)
class Plan:
    """What tasks need to know about a batch. Pickled with the credentials, shown without."""

    uri: str
    storage: Mapping[str, object] = field(repr=False)
    batch: str
    targets: tuple[Target, ...]
    files: Mapping[str, ObjectMeta]
    limit: int
    auto_fpr: float
    settings: str
    staged_at: Any
    extends: bool
    """Whether the rows add columns to rows that the index has."""
    by_size: bool = False
    """Whether rows name their file by its size, a number, instead of its path."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows that are staged."""
        of_targets: list[Any] = [f for target in self.targets for f in target.schema]
        return pa.schema([*FIXED_SCHEMA, *of_targets, *STAGED_SCHEMA])

    def row(self, filename: str, folded: Mapping[str, Any]) -> dict[str, Any]:
        """A staged row."""
        meta = self.files[filename]
        return {
            **folded,
            "filename": filename,
            "file_size": meta.size,
            "modification_time": meta.modified_ms,
            "etag": meta.etag,
            "built": [t.schema.names[0] for t in self.targets],
            "settings": self.settings,
            STAGING[0]: self.staged_at,
            STAGING[1]: self.batch,
            STAGING[2]: "extends" if self.extends else None,
        }

    def failed(self, filename: str, reason: str, meta: ObjectMeta | None) -> dict[str, Any]:
        """The staged row of a file that nothing is known about, and why."""
        return {
            "filename": filename,
            "file_size": None if meta is None else meta.size,
            "modification_time": None if meta is None else meta.modified_ms,
            "etag": None if meta is None else meta.etag,
            "failure": reason,
            "built": [],
            "settings": self.settings,
            STAGING[0]: self.staged_at,
            STAGING[1]: self.batch,
        }

    def filename(self, mark: Any) -> str:
        """The file that a row names."""
        if not self.by_size:
            return from_spark(mark)
        name_of_size = next((name for name, meta in self.files.items() if meta.size == mark), None)
        if name_of_size is None:
            raise ValueError(CHANGED)
        return name_of_size

    def fold(self, *, partial: bool = False) -> FileFold:
        """The empty state of a file."""
        return FileFold(self.targets, limit=self.limit, partial=partial)


def work(
    states: States, declarations: Declarations
) -> Iterator[tuple[Declarations, dict[str, ObjectMeta], bool]]:
    """Declarations, files to read for them, and whether that extends rows."""
    files = states.expansion.files
    new = {name: meta for name, meta in sorted(files.items()) if name not in states.valid_names}
    if new:
        yield declarations, new, False
    lacking: dict[tuple[str, ...], dict[str, ObjectMeta]] = {}
    names: list[Any] = states.rows.column("filename").to_pylist()
    built: list[Any] = states.rows.column("built").to_pylist()
    for name, columns in zip(names, built, strict=True):
        if name in states.valid_names:
            missing = declarations.missing_from(frozenset(columns))
            if len(missing):
                lacking.setdefault(missing.names, {})[name] = files[name]
    for lacking_names, group in lacking.items():
        yield Declarations(tuple(d for d in declarations if d.name in lacking_names)), group, True


def batches(files: Mapping[str, ObjectMeta]) -> Iterator[dict[str, ObjectMeta]]:
    """Files that are read together."""
    batch: dict[str, ObjectMeta] = {}
    size = 0
    for name, meta in files.items():
        if batch and (len(batch) >= _BATCH_FILES or size + meta.size > _BATCH_BYTES):
            yield batch
            batch, size = {}, 0
        batch[name] = meta
        size += meta.size
    if batch:
        yield batch


def targets(
    place: IndexPlace, metadata: Metadata, declarations: Declarations
) -> tuple[Target, ...]:
    """Declarations with the types of their values."""
    name = place.name
    schema = arrow_schema(metadata, name=name)
    computed = computed_types(place.context.spark, metadata, declarations.all, name=name)
    types = types_of(declarations, schema, computed)
    return tuple(
        Target(
            d,
            types[d.name],
            field_type(schema, d.timestamp_column) if isinstance(d, Temporal) else None,
        )
        for d in declarations
    )


def footer_tasks(place: IndexPlace, plan: Plan) -> Iterator[FooterTask]:
    """The files of a plan, some of one folder at a time, whose footers are read together."""
    folders: dict[str, list[tuple[str, int]]] = {}
    for file, meta in plan.files.items():
        folder, name = folder_and_name(file)
        folders.setdefault(folder, []).append((name, meta.size))
    for folder, files in folders.items():
        options = place.context.storage_options(folder)
        for start in range(0, len(files), _FOOTERS):
            portion = tuple(files[start : start + _FOOTERS])
            yield FooterTask(folder, options, portion, plan.targets)


# --- footers ---------------------------------------------------------------------------------

_TAIL = 64 << 10
_GREGORIAN = -141_427
"""1582-10-15 in days: before it, old writers counted days by another calendar."""


@dataclass(frozen=True)
class FooterTask:
    """Files of one folder whose footers are to be read."""

    folder: str
    storage: Mapping[str, object] = field(repr=False)
    files: tuple[tuple[str, int], ...]
    """Names in the folder, and sizes."""
    targets: tuple[Target, ...]


def footers_suffice(targets: Sequence[Target], format: str) -> bool:  # noqa: A002
    """Whether footers could answer for these declarations."""
    return format == "parquet" and all(
        isinstance(t.declaration, Range) and _is_exact(t.value_type) for t in targets
    )


def _is_exact(data_type: Any) -> bool:
    return pa.types.is_signed_integer(data_type) or pa.types.is_date32(data_type)


def read_footers(task: FooterTask) -> dict[str, dict[str, Any]]:
    """The columns of index rows, by file name; a file that has to be read is not among them."""
    store = open_store(task.folder, task.storage)
    rows = {}
    for name, size in task.files:
        try:
            tail = store.get_range(name, max(0, size - _TAIL), size)
            length = int.from_bytes(tail[-8:-4], "little") + 8
            if tail[-4:] != b"PAR1" or length > size:
                continue
            if length > len(tail):
                tail = store.get_range(name, size - length, size)
            footer = pq.read_metadata(io.BytesIO(b"PAR1" + tail[-length:]))
        except (StorageError, pa.ArrowException, OSError):
            continue
        if (row := _row(footer, task.targets)) is not None:
            rows[name] = row
    return rows


def _row(footer: Any, targets: Sequence[Target]) -> dict[str, Any] | None:
    row: dict[str, Any] = {"row_count": footer.num_rows}
    schema = footer.schema.to_arrow_schema()
    leaves = {footer.schema.column(n).path: n for n in range(footer.num_columns)}
    lowered = [name.lower() for name in schema.names]
    for target in targets:
        name = target.declaration.name
        values, nulls = target.schema.names
        if name not in schema.names:
            if name.lower() in lowered:  # Spark finds it under another case
                return None
            row |= {values: {"min": None, "max": None}, nulls: footer.num_rows}
            continue
        if not schema.field(name).type.equals(target.value_type) or name not in leaves:
            return None
        bounds = _bounds(footer, leaves[name], target.value_type)
        if bounds is None:
            return None
        row |= {values: {"min": bounds[0], "max": bounds[1]}, nulls: bounds[2]}
    return row


def _bounds(footer: Any, leaf: int, data_type: Any) -> tuple[Any, Any, int] | None:
    lows, highs, nulls = [], [], 0
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(leaf)
        stats = chunk.statistics
        if stats is None or stats.null_count is None:
            return None
        nulls += stats.null_count
        if stats.null_count == chunk.num_values:
            continue
        if not stats.has_min_max:
            return None
        lows.append(pa.scalar(stats.min, data_type))
        highs.append(pa.scalar(stats.max, data_type))
    if not lows:
        return None, None, nulls
    low = min(lows, key=lambda s: s.as_py())
    if pa.types.is_date32(data_type) and low.cast(pa.int32()).as_py() < _GREGORIAN:
        return None
    return low, max(highs, key=lambda s: s.as_py()), nulls


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
    """A task: fold the rows of the parts of files it reads, and return the state."""

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
class MergeParts:
    """A task: merge the states of each file, which arrive one file after the other."""

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
        for file_mark, rows in _runs(batch):
            if mark is not None and file_mark != mark:
                yield plan.filename(mark), fold
                fold = plan.fold(partial=partial)
            mark = file_mark
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
        data_type = target.value_type
        if target.declaration.kind == "exploded":
            data_type = pa.list_(pa.field("element", data_type))
        columns.append(typed(rows.column(f"c{number}"), data_type))
        has_time = target.declaration.kind == "temporal"
        times.append(typed(rows.column(f"t{number}"), target.time) if has_time else None)
    fold.add(rows.num_rows, columns, times)


def typed(column: Any, data_type: Any) -> Any:
    """A column in the type that it is folded in."""
    return column if column.type.equals(data_type) else column.cast(data_type)


# --- the job ---------------------------------------------------------------------------------


def run(
    spark: SparkSession, plan: Plan, rows: DataFrame, *, shuffle_into: int | None = None
) -> list[Written]:
    """Read the files of a batch and fold them; returns what the tasks wrote.

    `shuffle_into` merges the partial results in this many tasks even if no file is split.
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
    return collected(parts.sortWithinPartitions("file").mapInArrow(MergeParts(plan), OUTPUT))


def _source(rows: DataFrame, plan: Plan, *, whole: bool) -> DataFrame:
    file = file_size(rows, whole=whole) if plan.by_size else file_path(rows)
    return projected(rows, [t.declaration for t in plan.targets], file=file)


def collected(output: DataFrame) -> list[Written]:
    """Run a job whose tasks write; returns what they wrote."""
    return [
        Written(
            row["column"], DataFile(row["path"], row["size"], row["stats"]), tuple(row["files"])
        )
        for row in output.collect()
    ]


def _split_size(spark: SparkSession, sizes: Sequence[int]) -> int:
    """The size above which Spark splits a file between tasks, by its own formula."""
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


_FLUSH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """A data file that a task wrote. `column` is empty for index rows, else the large table's."""

    column: str
    file: DataFile
    filenames: tuple[str, ...]


# --- what tasks write ------------------------------------------------------------------------


class Output:
    """Collects finished rows and writes them, and large values, into the index's folder."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._store: Store = open_store(plan.uri, plan.storage)
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0
        self.written: list[Written] = []

    def finish(self, filename: str, fold: FileFold) -> None:
        """The rows of a file are complete."""
        self.add(self._plan.row(filename, fold.finish(filename, self._large)))
        fold.close()

    def add(self, row: Mapping[str, Any]) -> None:
        """Take a staged row."""
        batch = row_batch([dict(row)], self._plan.schema)
        self._rows.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait."""
        if not self._rows:
            return
        table = pa.Table.from_batches(self._rows)
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd", write_statistics=False)
        path = f"rows-{uuid.uuid4().hex}.parquet"
        stats = orjson.dumps({"numRecords": table.num_rows}).decode()
        names: Any = table.column("filename").to_pylist()
        self._put("", path, sink.getvalue(), stats=stats, names=names)
        self._rows, self._bytes = [], 0

    def _put(
        self, column: str, path: str, data: bytes, *, stats: str, names: Sequence[str]
    ) -> None:
        folder = large_folder(column) if column else f"staging/{self._plan.batch}"
        self._store.put(f"{folder}/{path}", data)
        self.written.append(Written(column, DataFile(path, len(data), stats), tuple(names)))

    def _large(self, column: str, filename: str, values: Distinct) -> tuple[str, int, bytes | None]:
        identity = uuid.uuid4().hex
        hashes = DistinctHashes()
        count = 0
        for number, piece in enumerate(values.pieces()):
            table = value_rows(filename, piece)
            if table.num_rows:
                sink = io.BytesIO()
                stats = write_values(table, sink)
                path = f"{identity}-{number}.parquet"
                self._put(column, path, sink.getvalue(), stats=stats, names=[filename])
            numbers: Any = table.column("hash").to_numpy()
            hashes.add(numbers.view("uint64"))
            count += table.num_rows
        distinct = hashes.array()
        filter_ = None if hashes.too_many else bloom.build(distinct, self._plan.auto_fpr)
        return identity, count, filter_

    def take(self) -> Iterator[pa.RecordBatch]:
        """What was written since the last call, as rows of the job's output."""
        if self.written:
            yield _as_batch(self.written)
            self.written = []


def _as_batch(written: Sequence[Written]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "column": pa.array([w.column for w in written]),
            "path": pa.array([w.file.path for w in written]),
            "size": pa.array([w.file.size for w in written], pa.int64()),
            "stats": pa.array([w.file.stats for w in written]),
            "files": pa.array([list(w.filenames) for w in written], pa.list_(pa.string())),
        }
    )
