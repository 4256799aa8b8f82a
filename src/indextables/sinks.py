"""Files that rows are exported to. A file becomes visible when it is complete, or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from indextables.cells import python_values, to_json
from indextables.errors import IndexTablesError, SourceFileError, require
from indextables.storage.location import client_settings, parse_location, scrub

Write = Callable[[pa.RecordBatch], None]


@contextlib.contextmanager
def _parquet(file: Any, schema: pa.Schema) -> Iterator[Write]:
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        yield writer.write_batch


@contextlib.contextmanager
def _csv(file: Any, schema: pa.Schema) -> Iterator[Write]:
    """Nested values are written as JSON, binary ones as hexadecimal: CSV has text only."""
    plain = pa.schema([pa.field(f.name, pa.string()) if _needs_text(f.type) else f for f in schema])
    with pyarrow.csv.CSVWriter(file, plain) as writer:

        def write(batch: pa.RecordBatch) -> None:
            columns = [
                _as_text(column) if _needs_text(column.type) else column for column in batch.columns
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=plain))

        yield write


@contextlib.contextmanager
def _jsonl(file: Any, schema: pa.Schema) -> Iterator[Write]:
    names = schema.names

    def write(batch: pa.RecordBatch) -> None:
        columns = [python_values(c) for c in batch.columns]
        lines = [to_json(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
        if lines:
            file.write(b"\n".join(lines) + b"\n")

    yield write


_SINKS: dict[str, Callable[..., contextlib.AbstractContextManager[Write]]] = {
    "parquet": _parquet,
    "csv": _csv,
    "jsonl": _jsonl,
}
_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".jsonl": "jsonl",
             ".ndjson": "jsonl", ".json": "jsonl"}  # fmt: skip


def export_rows(
    rows: pa.RecordBatchReader,
    path: str,
    *,
    file_format: str | None,
    overwrite: bool,
    progress: Callable[[int], None],
) -> int:
    """Write rows to a file, or to standard output; return their number."""
    chosen = file_format or _SUFFIXES.get(Path(path).suffix.lower())
    if chosen not in _SINKS:
        raise SourceFileError(
            path, f"its name does not end in a format; add --format with {' or '.join(_SINKS)}"
        )
    if path == "-":
        return write_rows(rows, sys.stdout.buffer, chosen, progress)
    if (place := parse_location(path)).scheme != "file":
        raise SourceFileError(place.uri, "rows are exported to this machine only, or to a pipe: -")
    target = Path(place.uri)
    if target.exists() and not overwrite:
        raise SourceFileError(path, "it exists already; --overwrite replaces it")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            count = write_rows(rows, file, chosen, progress)
        partial.replace(target)
    except OSError as error:
        raise SourceFileError(path, error.strerror or str(error)) from None
    finally:
        partial.unlink(missing_ok=True)
    return count


def export_delta(
    rows: pa.RecordBatchReader,
    uri: str,
    *,
    partition_by: Sequence[str],
    overwrite: bool,
    storage_options: Mapping[str, object],
    progress: Callable[[int], None],
) -> int:
    """Write rows as a Delta table, in one commit; return their number."""
    require("deltalake", extra="delta", for_what="Writing a Delta table")
    from deltalake import write_deltalake

    location = parse_location(uri)
    options = {} if location.scheme == "file" else client_settings(storage_options, uri=uri)[0]
    count = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in rows:
            yield batch
            count += batch.num_rows
            progress(batch.num_rows)

    try:
        write_deltalake(
            location.uri,
            pa.RecordBatchReader.from_batches(rows.schema, counted()),
            mode="overwrite" if overwrite else "error",
            schema_mode="overwrite" if overwrite else None,
            partition_by=list(partition_by) or None,
            storage_options=options,
        )
    except IndexTablesError:
        raise
    except Exception as error:
        if type(error).__module__ not in ("_internal", "deltalake.exceptions", "builtins"):
            raise
        reason = scrub(str(error), storage_options).rstrip(".")
        raise SourceFileError(uri, f"delta-rs did not write it: {reason}") from None
    return count


def write_rows(
    rows: pa.RecordBatchReader, file: Any, file_format: str, progress: Callable[[int], None]
) -> int:
    """Write rows to an open file as `parquet`, `csv` or `jsonl`; return their number."""
    count = 0
    with _SINKS[file_format](file, rows.schema) as write:
        for batch in rows:
            write(batch)
            count += batch.num_rows
            progress(batch.num_rows)
    return count


def _needs_text(data_type: pa.DataType) -> bool:
    return pa.types.is_nested(data_type) or pa.types.is_binary(data_type)


def _as_text(column: Any) -> Any:
    texts = [
        None if v is None else v.hex() if isinstance(v, bytes) else to_json(v).decode()
        for v in python_values(column)
    ]
    return pa.array(texts, pa.string())
