"""What an update has to do: which files are read for which declarations, and in which batches.

A `Plan` is one batch. It is sent to every task.

What Parquet footers say about files, where that is all an index asks for.

If only ranges and counts are declared, nothing of the rows has to be read: the statistics of the
row groups hold them. They suffice for whole numbers and dates, whose bounds are exact. A file that
lacks one statistic, or stores a column in another type, is read like any other.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from indextables.ariadne.build.fold import FileFold, Target
from indextables.ariadne.declarations import (
    STAGING,
    Declarations,
    Range,
    Temporal,
    field_type,
    types_of,
)
from indextables.ariadne.files.paths import folder_and_name, from_spark
from indextables.ariadne.files.read import arrow_schema, computed_types
from indextables.ariadne.files.state import States
from indextables.ariadne.metadata import FIXED_SCHEMA, STAGED_SCHEMA, Metadata
from indextables.ariadne.store.place import IndexPlace
from indextables.errors import StorageError
from indextables.storage import ObjectMeta, open_store

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
            some = tuple(files[start : start + _FOOTERS])
            yield FooterTask(folder, options, some, plan.targets)


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
