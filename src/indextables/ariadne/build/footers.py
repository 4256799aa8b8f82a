"""What Parquet footers say about files, where that is all an index asks for.

If only ranges and counts are declared, nothing of the rows has to be read: the statistics of the
row groups hold them. They suffice for whole numbers and dates, whose bounds are exact. A file that
lacks one statistic, or stores a column in another type, is read like any other.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from indextables.ariadne.build.fold import Target
from indextables.ariadne.model.declarations import Range
from indextables.errors import StorageError
from indextables.storage import open_store

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


def suffice(targets: Sequence[Target], format: str) -> bool:  # noqa: A002
    """Whether footers could answer for these declarations."""
    return format == "parquet" and all(
        isinstance(t.declaration, Range) and _is_exact(t.value_type) for t in targets
    )


def _is_exact(data_type: Any) -> bool:
    return pa.types.is_signed_integer(data_type) or pa.types.is_date32(data_type)


def read(task: FooterTask) -> dict[str, dict[str, Any]]:
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
