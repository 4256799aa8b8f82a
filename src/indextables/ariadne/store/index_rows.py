"""The rows of an index: staged, merged, removed, compacted, vacuumed, and shown to people.

Rows of an update wait in `staging/` until they are merged into `index/`. Each batch is a Delta
table of its own, written once and never changed, so updates do not disturb each other: any update
may merge a batch, and merging twice changes nothing. An update merges its own every so many
batches; one that was killed leaves its batches to the next.

A staged row replaces the row of its file, or adds columns to it. It adds only to a row of the same
version of the file; if that was rewritten since, the addition is dropped and the file is pending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache, cached

from indextables.ariadne.declarations import STAGING, Declaration, Declarations, storage_column
from indextables.ariadne.metadata import FIXED_SCHEMA, KEY_COLUMNS, settings_match
from indextables.ariadne.store.large_values import compact_values, drop_files, drop_identities
from indextables.ariadne.store.place import STAGING_FOLDER, IndexPlace
from indextables.ariadne.values.bloom import value_count
from indextables.ariadne.values.words import word_count
from indextables.errors import StorageError, StorageMigrationError, first_line

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
    garbage = unfinished(place, before_ms=before)
    place.store.delete(garbage)
    folders = [f"large_indexes/{n}" for n in place.store.list_directory("large_indexes")[1]]
    removed = [f"index/{path}" for path in place.main.vacuum(retention_hours)]
    for folder in folders:
        table = place.table(folder)
        removed += [f"{folder}/{path}" for path in table.vacuum(retention_hours)]
    return [*garbage, *removed]


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


# --- staged rows -----------------------------------------------------------------------------

_SAME = ("file_size", "modification_time", "etag")
_LOG = "_delta_log"
_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What a consolidation did."""

    batches: int
    dropped: int
    """Additions to rows that have changed since."""


def consolidate(place: IndexPlace, registered: Callable[[Sequence[str]], set[str]]) -> Consolidated:
    """Merge all staged batches into the index, and remove them.

    `registered` returns which of some files are still part of the index.
    """
    batches: list[str] = []
    superseded: dict[str, set[str]] = {}
    dropped = 0

    def rows_of(table: DeltaTable | None) -> pa.Table | None:
        nonlocal dropped
        # Read on every attempt: a batch that another update merged and removed may be older than
        # the rows that are there now, and its large values may be gone.
        staged = sorted(_staged_rows(place), key=lambda batch_and_rows: _age(batch_and_rows[1]))
        batches[:] = [batch for batch, _ in staged]
        tables = [rows for _, rows in staged if rows is not None]
        superseded.clear()
        if not tables:
            return None
        names = sorted({n for t in tables for n in _names(t)})
        before = None if table is None else place.main.rows(table, among=("filename", names))
        current, dropped = before, 0
        for rows in tables:
            current, lost = overlay(current, rows, uri=place.main.uri)
            dropped += lost
        if current is None:
            return None
        changed = pc.is_in(current.column("filename"), pa.array(names, pa.string()))
        new = current.filter(changed)
        kept = registered(_names(new))
        new = new.filter(pa.array([name in kept for name in _names(new)], pa.bool_()))
        superseded.update(_superseded(before, new))
        return new

    place.main.upsert("filename", rows_of)
    for column, identities in superseded.items():
        drop_identities(place, column, identities)
    # The oldest first: a reader in between finds the newer rows over the older ones.
    for batch in batches:
        _remove(place, batch)
    return Consolidated(len(batches), dropped)


def staged_batches(place: IndexPlace) -> list[str]:
    """The committed batches. What has no log is being written, or was never finished."""
    return [
        batch
        for batch in place.store.list_directory(STAGING_FOLDER)[1]
        if batch == _LOG or _has_log(place, batch)
    ]


def _has_log(place: IndexPlace, batch: str) -> bool:
    return next(place.store.list(f"{STAGING_FOLDER}/{batch}/{_LOG}"), None) is not None


def unfinished(place: IndexPlace, *, before_ms: int) -> list[str]:
    """Objects of batches that were never committed and are older than a time."""
    committed = {f"{STAGING_FOLDER}/{batch}/" for batch in staged_batches(place)}
    return [
        meta.path
        for meta in place.store.list(STAGING_FOLDER)
        if meta.modified_ms < before_ms and not any(meta.path.startswith(k) for k in committed)
    ]


def _staged_rows(place: IndexPlace) -> Iterator[tuple[str, pa.Table | None]]:
    """The batches and their rows; None for those that have nothing to merge."""
    for batch in staged_batches(place):
        # A log directly in staging/ is that of the Scala project. Its rows have another layout, and
        # their files count as not indexed.
        rows = None if batch == _LOG else _read(place, batch)
        usable = rows is not None and rows.num_rows and STAGING[0] in rows.column_names
        yield batch, rows if usable else None


def _read(place: IndexPlace, batch: str) -> pa.Table | None:
    """The rows of a batch; None if another update has merged and removed it."""
    try:
        return place.staging(batch).read()
    except StorageError:
        # A batch is removed after it was merged, its log first.
        if _has_log(place, batch):
            raise
        return None


def _remove(place: IndexPlace, batch: str) -> None:
    folder = STAGING_FOLDER if batch == _LOG else f"{STAGING_FOLDER}/{batch}"
    objects = [
        meta.path
        for meta in place.store.list(folder)
        if batch != _LOG or meta.path.count("/") == 1 or f"/{_LOG}/" in meta.path
    ]
    # The log first: a batch without one is nothing, a log without its rows would be damage.
    place.store.delete([path for path in objects if f"/{_LOG}/" in path])
    place.store.delete([path for path in objects if f"/{_LOG}/" not in path])


def _age(rows: pa.Table | None) -> Any:
    return _EVER if rows is None else pc.max(rows.column(STAGING[0])).as_py()


def _names(rows: pa.Table) -> list[Any]:
    return rows.column("filename").to_pylist()


# --- laying staged rows over those of the index ------------------------------------------------


def overlay(current: pa.Table | None, staged: pa.Table, *, uri: str = "") -> tuple[pa.Table, int]:
    """The rows of an index after staged ones replaced them, and how many staged were dropped."""
    if current is None:
        current = FIXED_SCHEMA.empty_table()
    current = _with_schema(current, _unified(current.schema, FIXED_SCHEMA, uri))
    extends = np.asarray(staged.column(STAGING[2]).is_valid())
    staged = staged.drop_columns([n for n in STAGING if n in staged.column_names])
    position: Any = pc.index_in(staged.column("filename"), current.column("filename"))
    below = np.asarray(position.fill_null(-1))
    usable = ~extends | _extends_same(current, staged, below)
    schema = _unified(current.schema, staged.schema, uri)
    left = _with_schema(staged.filter(pa.array(usable)), schema)
    extends, below = extends[usable], below[usable]
    staged_columns = set(staged.column_names)
    rows = _extended(left, _with_schema(current, schema), extends, below, staged_columns)
    replaced = pc.is_in(current.column("filename"), rows.column("filename").combine_chunks())
    kept = _with_schema(current.filter(pc.invert(replaced)), schema)
    return pa.concat_tables([kept, rows]), int((~usable).sum())


def _extends_same(current: pa.Table, staged: pa.Table, below: Any) -> Any:
    """Whether the row below each staged one exists and is of the same version of the file."""
    same = below >= 0
    where: Any = pa.array(np.where(same, below, 0), mask=~same)
    for name in (*_SAME, "failure"):
        old = current.column(name).take(where).to_pylist()
        expected = [None] * len(old) if name == "failure" else staged.column(name).to_pylist()
        same &= np.array([a == b for a, b in zip(old, expected, strict=True)], bool)
    old = current.column("settings").take(where).to_pylist()
    now: list[Any] = staged.column("settings").to_pylist()
    return same & np.fromiter(map(settings_match, old, now), bool, len(now))


def _extended(
    left: pa.Table, current: pa.Table, extends: Any, below: Any, staged_columns: set[str]
) -> pa.Table:
    """Staged rows, with the columns that are not their own taken from the rows they extend.

    A batch has the columns that it was read for, whether or not this process has read their
    declarations.
    """
    if not extends.any():
        return left
    columns: list[Any] = []
    for field in left.schema:
        new, old = left.column(field.name), current.column(field.name)
        if field.name == "built":
            columns.append(_joined(new, old, extends, below, field.type))
        elif field.name in staged_columns:
            columns.append(new)
        else:
            both = pa.chunked_array([*new.chunks, *old.chunks], field.type)
            where: Any = np.where(extends, left.num_rows + below, np.arange(left.num_rows))
            columns.append(both.take(where))
    return pa.table(columns, schema=left.schema)


def _joined(built: Any, older: Any, extends: Any, below: Any, data_type: Any) -> Any:
    new, old = built.to_pylist(), older.to_pylist()
    return pa.array(
        [
            list(dict.fromkeys([*old[row], *names])) if extend else names
            for names, extend, row in zip(new, extends, below, strict=True)
        ],
        data_type,
    )


def _unified(current: pa.Schema, staged: pa.Schema, uri: str) -> pa.Schema:
    try:
        return pa.unify_schemas([current, staged])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise StorageMigrationError(uri, first_line(error)) from None


def _with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns: list[Any] = [
        rows.column(f.name) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _superseded(before: pa.Table | None, after: pa.Table) -> dict[str, set[str]]:
    """The data files of large tables that the old rows named and the new ones do not."""
    if before is None:
        return {}
    identities: dict[str, set[str]] = {}
    for name in (n for n in before.column_names if n.startswith("large_")):
        new = set(_texts(after, name))
        if superseded := set(_texts(before, name)) - new:
            identities[name.removeprefix("large_")] = superseded
    return identities


def _texts(rows: pa.Table, name: str) -> Iterable[str]:
    column: list[Any] = rows.column(name).to_pylist() if name in rows.column_names else []
    return (text for text in column if isinstance(text, str))
