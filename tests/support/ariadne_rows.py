"""Index rows made in memory, the plain way, to test lookups without Spark and without files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.declarations import (
    Bloom,
    Declaration,
    Declarations,
    Exploded,
    Range,
    Temporal,
    Text,
    companions,
    storage_column,
    types_of,
)
from indextables.ariadne.metadata import FIXED_SCHEMA, IndexData, columns_of
from indextables.ariadne.values import bloom, words
from indextables.ariadne.values.hashing import hash_values


def index_data(
    files: Mapping[str, pa.Table],
    declarations: Sequence[Declaration],
    *,
    pending: Sequence[str] = (),
    unbuilt: Mapping[str, Sequence[str]] | None = None,
    large: Mapping[str, Sequence[str]] | None = None,
    tables: Callable[[str], Any] = lambda _: None,
) -> IndexData:
    """The index data of files. `unbuilt` and `large` name columns by file."""
    declared = Declarations(tuple(declarations))
    schema = next(iter(files.values())).schema
    types = types_of(declared, schema, {})
    times = {d.name: schema.field(d.timestamp_column).type for d in declared.of_kind("temporal")}
    cells = [f for d in declared for f in columns_of(d, types[d.name], times.get(d.name))]
    rows = []
    for name, table in files.items():
        missing = (unbuilt or {}).get(name, ())
        built = [d for d in declared if d.name not in missing]
        row: dict[str, Any] = {
            "filename": name,
            "row_count": table.num_rows,
            "built": [storage_column(d) for d in built],
        }
        for d in built:
            row |= _cells(d, table, is_large=d.name in (large or {}).get(name, ()))
        rows.append(row)
    return IndexData(
        files=pa.Table.from_pylist(rows, pa.schema([*FIXED_SCHEMA, *cells])),
        pending=tuple(pending),
        missing=(),
        declarations=declared,
        version="1",
        open_large=tables,
    )


def values_of(declaration: Declaration, table: pa.Table) -> Any:
    """The values that a declaration is about."""
    if isinstance(declaration, Exploded):
        elements = pc.list_flatten(table.column(declaration.array_column)).combine_chunks()
        return pc.struct_field(elements, declaration.field_path.split("."))
    return table.column(declaration.name).combine_chunks()


def _cells(declaration: Declaration, table: pa.Table, *, is_large: bool) -> dict[str, Any]:
    values = values_of(declaration, table)
    nulls, column = f"nulls_{declaration.name}", storage_column(declaration)
    distinct = pc.drop_null(pc.unique(values)) if not pa.types.is_nested(values.type) else values
    match declaration:
        case Bloom(fpr=fpr):
            cell: Any = bloom.build(hash_values(distinct), fpr) if len(distinct) else None
        case Range():
            cell = pc.min_max(values).as_py()
        case Text():
            cell = words.build(values)
        case Temporal(timestamp_column=stamp):
            times = table.column(stamp).to_pylist()
            newest: dict[Any, Any] = {}
            for value, time in zip(values.to_pylist(), times, strict=True):
                if value is not None:
                    known = newest.get(value)
                    newest[value] = time if known is None or (time and time > known) else known
            cell = [{"value": value, "max_ts": time} for value, time in newest.items()]
        case _:
            cell = None if is_large else distinct.to_pylist()
    assert nulls in companions(declaration)
    return {column: cell, nulls: values.null_count}
