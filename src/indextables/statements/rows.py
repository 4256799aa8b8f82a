"""What a statement gives back: rows with columns of fixed names, types and order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def columns(**types: pa.DataType) -> pa.Schema:
    """The columns of a statement's rows, in their order."""
    return pa.schema(list(types.items()))


def table_of(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    """Rows as a table."""
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(list(v), f.type) for v, f in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
