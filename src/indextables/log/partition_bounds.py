"""Bounds of partition values: which manifests can hold a file that a predicate asks for.

Partition values are text in the log. Bounds are taken in the column's declared type, so that '9'
comes before '10' for numbers and after it for text. Where a value is null or does not read as its
type, the column has no bounds, and that means: it may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import SchemaError
from indextables.log.actions import Metadata
from indextables.log.state_schema import PartitionBounds
from indextables.schema import from_json

Column: TypeAlias = "pa.ChunkedArray[Any]"

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_types(metadata: Metadata) -> dict[str, pa.DataType]:
    """The declared types of the partition columns; those not declared are left out."""
    try:
        schema = from_json(metadata.schema_string)
    except SchemaError:
        return {}
    declared = {column.name: column.type for column in schema}
    return {c: declared[c] for c in metadata.partition_columns if c in declared}


def bounds_of(files: pa.Table, metadata: Metadata) -> dict[str, PartitionBounds] | None:
    """The bounds of these files' partition values; None where no column has any."""
    found: dict[str, PartitionBounds] = {}
    for column, kind in partition_types(metadata).items():
        texts = _texts(files, column)
        values = _typed(texts, kind)
        if values is None or values.null_count or not len(values):
            continue
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            continue
        ends = pc.min_max(values)
        first, last = (pc.index(values, ends[name]).as_py() for name in ("min", "max"))
        found[column] = PartitionBounds(texts[first].as_py(), texts[last].as_py())
    return found or None


def sorted_by_partition(files: pa.Table, metadata: Metadata) -> pa.Table:
    """The files sorted by partition values, then path: neighbours share a manifest."""
    types = partition_types(metadata)
    order: dict[str, Column] = {}
    for number, column in enumerate(metadata.partition_columns):
        texts = _texts(files, column)
        values = _typed(texts, types.get(column, pa.string()))
        order[f"p{number}"] = texts if values is None else values
    by = pa.table({**order, "path": files["path"]})
    ascending: Literal["ascending"] = "ascending"
    keys = [(name, ascending) for name in by.column_names]
    return files.take(pc.sort_indices(by, sort_keys=keys))


def trusted_bounds(
    bounds: Mapping[str, PartitionBounds] | None, types: Mapping[str, pa.DataType]
) -> dict[str, PartitionBounds] | None:
    """What is certain of bounds that another writer computed.

    The Scala product compares values as numbers whenever they look like numbers, whatever the
    column's type; of text columns only bounds that do not look so are in order.
    """
    if bounds is None:
        return None
    return {
        column: bound
        for column, bound in bounds.items()
        if column in types
        and not pa.types.is_timestamp(types[column])
        and not (
            pa.types.is_string(types[column])
            and (_looks_numeric(bound.min) or _looks_numeric(bound.max))
        )
    }


def _texts(files: pa.Table, column: str) -> Column:
    texts: Column = pc.map_lookup(files["partitionValues"], pa.scalar(column), "first")
    is_null = pc.equal(texts, pa.scalar(_HIVE_NULL))
    nulled: Column = pc.if_else(is_null, pa.scalar(None, pa.string()), texts)
    return nulled


def _typed(texts: Column, kind: pa.DataType) -> Column | None:
    """The values in their type, or None where one of them does not read as it."""
    if pa.types.is_floating(kind):
        kind = pa.float64()  # two texts that differ must not become equal
    try:
        return texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _looks_numeric(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True
