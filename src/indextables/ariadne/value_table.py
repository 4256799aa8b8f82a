"""The value table of a column: one row for each file and value, ordered by the value's hash.

A file with more distinct values than `largeIndexLimit` keeps no array in `index/`. Its values are
rows `(filename, value, hash)` of the Delta table `large_indexes/<column>/`. Every data file of
that table is sorted by the hash and cut into small row groups, so that the statistics of the
Delta log and of the Parquet footers lead a lookup to the few row groups that can hold its keys.
`value` is there for people and other readers; a lookup reads the other two columns.

Delta has no unsigned numbers: the table holds the hash as a signed 64-bit number of the same bits.

    >>> table = rows("a.parquet", pa.array(["x", None, "y"]))
    >>> table.column_names, table.num_rows
    (['filename', 'value', 'hash'], 2)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.typed_hash import Hashes, hash_values

if TYPE_CHECKING:
    from deltalake import DeltaTable

ROW_GROUP = 16_384
"""Rows of one row group: the least a lookup reads."""
_COLUMNS = ("filename", "value", "hash")


def schema(kind: pa.DataType) -> pa.Schema:
    """The columns of a value table whose values have the type `kind`."""
    return pa.schema(
        [
            pa.field("filename", pa.string(), nullable=False),
            pa.field("value", kind),
            pa.field("hash", pa.int64(), nullable=False),
        ]
    )


def rows(filename: str, values: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Table:
    """The rows of one file: its distinct values that are not null, ordered by their hash."""
    kept: Any = values.drop_null()
    hashes, first = np.unique(hash_values(kept), return_index=True)
    order = np.argsort(hashes.view(np.int64), kind="stable")
    return pa.table(
        {
            "filename": pa.repeat(pa.scalar(filename, pa.string()), len(order)),
            "value": kept.take(pa.array(first[order])),
            "hash": pa.array(hashes.view(np.int64)[order]),
        },
        schema=schema(values.type),
    )


def clustered(tables: Iterable[pa.Table]) -> pa.Table:
    """The rows of several files as one table ordered by hash, to be written as one data file."""
    return pa.concat_tables(tables).sort_by("hash").combine_chunks()


def write(table: pa.Table, sink: Any) -> str:
    """Write rows, ordered by hash, as one Parquet data file; return its Delta statistics.

    `sink` is a path or an open file. The result is the JSON of an add action's `stats`.
    """
    import pyarrow.parquet as pq

    if table.column_names != list(_COLUMNS):
        raise ValueError(f"a value table has the columns {', '.join(_COLUMNS)}")
    hashes: Any = table.column("hash").to_numpy()
    if (hashes[1:] < hashes[:-1]).any():
        raise ValueError("the rows of a value table are ordered by hash; use `rows`, `clustered`")
    pq.write_table(
        table,
        sink,
        row_group_size=ROW_GROUP,
        compression="zstd",
        use_dictionary=["filename"],  # type: ignore[arg-type]
        write_statistics=["filename", "hash"],
        sorting_columns=[pq.SortingColumn(2)],
    )
    return statistics(table)


def statistics(table: pa.Table) -> str:
    """What the Delta log says about a data file: the bounds that lookups skip by."""
    stats: dict[str, Any] = {"numRecords": table.num_rows, "nullCount": {"filename": 0, "hash": 0}}
    if table.num_rows:
        names: Any = pc.min_max(table.column("filename"))
        hashes = table.column("hash")
        stats["minValues"] = {"filename": names["min"].as_py(), "hash": hashes[0].as_py()}
        stats["maxValues"] = {"filename": names["max"].as_py(), "hash": hashes[-1].as_py()}
    return orjson.dumps(stats).decode()


class ValueTable:
    """A value table opened at one version for lookups; footers are read once."""

    def __init__(self, table: DeltaTable) -> None:
        self._names = [field.name for field in table.schema().fields]
        self._dataset: Any = None
        if set(_COLUMNS) <= set(self._names):
            try:
                self._dataset = table.to_pyarrow_dataset()
            except Exception:
                # A table with a feature that this reader lacks, such as deletion vectors.
                self._dataset = None

    def find(self, hashes: Hashes) -> pa.Table | None:
        """The rows `(filename, hash)` of some hashes; None if the table cannot be asked.

        Somebody else's value table has no hashes. Then nothing is known about its files.
        """
        if self._dataset is None:
            return None
        wanted = pa.array(np.unique(hashes).view(np.int64))
        found: pa.Table = self._dataset.to_table(
            columns=["filename", "hash"], filter=pc.field("hash").isin(wanted)
        )
        return found
