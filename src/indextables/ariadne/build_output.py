"""What the tasks of a build know and what they write.

A `Plan` goes to every task. Its `Output` collects finished index rows and writes them below
`staging/<batch>/`, and values of files that have too many below `large_indexes/<column>/`.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.ariadne import bloom, value_table
from indextables.ariadne.column_fold import Target
from indextables.ariadne.declarations import STAGING
from indextables.ariadne.delta import DataFile
from indextables.ariadne.distinct import Distinct, DistinctHashes
from indextables.ariadne.fold import FileFold, row_batch
from indextables.ariadne.layout import FIXED_SCHEMA, STAGED_SCHEMA, large_folder
from indextables.ariadne.paths import from_spark
from indextables.storage import ObjectMeta, Store, open_store

if TYPE_CHECKING:
    pass

_FLUSH_BYTES = 32 << 20
CHANGED = "a file was cut, or changed its size while it was read"


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
        own: list[Any] = [f for target in self.targets for f in target.schema]
        return pa.schema([*FIXED_SCHEMA, *own, *STAGED_SCHEMA])

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
        found = next((name for name, meta in self.files.items() if meta.size == mark), None)
        if found is None:
            raise ValueError(CHANGED)
        return found

    def fold(self, *, partial: bool = False) -> FileFold:
        """The empty state of a file."""
        return FileFold(self.targets, limit=self.limit, partial=partial)


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
            table = value_table.rows(filename, piece)
            if table.num_rows:
                sink = io.BytesIO()
                stats = value_table.write(table, sink)
                path = f"{identity}-{number}.parquet"
                self._put(column, path, sink.getvalue(), stats=stats, names=[filename])
            numbers: Any = table.column("hash").to_numpy()
            hashes.add(numbers.view("uint64"))
            count += table.num_rows
        found = hashes.array()
        filter_ = None if hashes.too_many else bloom.build(found, self._plan.auto_fpr)
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
