"""Rows that a caller hands over, in whatever form, as Arrow batches of the table's schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from indextables.errors import SchemaError
from indextables.schema import normalize, type_name


def as_reader(data: Any) -> pa.RecordBatchReader:
    """Arrow tables, batches, readers and datasets; pandas, Polars and others by Arrow's interface.

    >>> as_reader(pa.table({"a": [1]})).read_all().num_rows
    1
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        # Its own stream would carry the index along as one more column.
        return pa.Table.from_pandas(data, preserve_index=False).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "scanner"):  # a pyarrow dataset
        reader: pa.RecordBatchReader = data.scanner().to_reader()
        return reader
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return _from_batches(iter(data))
    raise _not_rows(data)


def _from_batches(batches: Iterator[Any]) -> pa.RecordBatchReader:
    first = next(batches, None)
    if first is None:
        raise SchemaError("An empty list of batches has no schema. Pass a table or a reader.")
    if not isinstance(first, pa.RecordBatch):
        raise _not_rows(first)

    def chained() -> Iterator[pa.RecordBatch]:
        yield first
        for batch in batches:
            if not isinstance(batch, pa.RecordBatch):
                raise _not_rows(batch)
            if not batch.schema.equals(first.schema):
                raise SchemaError(
                    f"The batches have different columns: {_shown(first.schema)}; then "
                    f"{_shown(batch.schema)}. Write them one after the other."
                )
            yield batch

    return pa.RecordBatchReader.from_batches(first.schema, chained())


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _not_rows(data: object) -> SchemaError:
    return SchemaError(
        f"Cannot take rows from {type(data).__name__}. Pass a pyarrow Table, RecordBatch or "
        "reader, an iterable of record batches, or a pandas or Polars DataFrame."
    )


def check_fits(incoming: pa.Schema, table: pa.Schema) -> None:
    """Refuse rows whose columns the table does not have, or that cannot be null in it."""
    # A column of nulls only is of any type.
    incoming = normalize(
        pa.schema(
            table.field(f.name) if pa.types.is_null(f.type) and f.name in table.names else f
            for f in incoming
        )
    )
    problems = [
        f"column '{f.name}' ({type_name(f.type)}) is not in the table"
        for f in incoming
        if f.name not in table.names
    ]
    problems += [
        f"column '{f.name}' ({type_name(f.type)}) is missing and must not be null"
        for f in table
        if f.name not in incoming.names and not f.nullable
    ]
    if problems:
        raise SchemaError(
            "The rows do not fit the table: "
            + "; ".join(problems)
            + ". The table has: "
            + ", ".join(f"{f.name} {type_name(f.type)}" for f in table)
            + ". To add columns, write with merge_schema=True."
        )
