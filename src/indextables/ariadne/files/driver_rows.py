"""The rows of a few small Parquet files, read by the driver.

Spark takes far longer to start a job over ten small files than it takes to read them. So where a
join located few bytes, the driver reads the rows that have its keys and passes them to Spark. It
reads only files that Arrow and Spark are certain to read alike; Spark reads everything else, and
every file that the driver cannot read.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indextables.ariadne.files.paths import folder_and_name
from indextables.ariadne.files.read import spark_schema
from indextables.ariadne.files.rows import nullable
from indextables.config import ARIADNE_DRIVER_READ_LIMIT
from indextables.errors import StorageError
from indextables.runner import LocalRunner
from indextables.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from indextables.ariadne.model.metadata import Metadata
    from indextables.ariadne.model.rows import IndexData
    from indextables.ariadne.store.place import IndexPlace

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
