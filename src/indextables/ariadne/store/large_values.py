"""Large tables: the values of files that have too many distinct ones for an array.

A file with more distinct values than `largeIndexLimit` has no array in `index/`. Its values are
rows `(filename, value, hash)` of the Delta table `large_indexes/<column>/`. Every data file of that
table is sorted by hash and has small row groups, so the statistics of the Delta log and of the
Parquet footers lead a lookup to the few row groups that can hold its keys. `value` is there for
people and other readers; a lookup reads the other two columns. Delta has no unsigned numbers, so
the table holds the hash as a signed 64-bit number of the same bits.

A build writes the values of one file and column into data files of their own,
`<identity>-<n>.parquet`, and the index row keeps the identity. New data files are committed before
the row that names them; old ones are removed after the row that named them is gone. So the values
of every row that a reader sees are there; at worst there are some more.

`compact_values` merges the data files, ordered by hash over all files: a lookup of a few keys then
reads a few row groups of the whole table. In compacted data files (`compact-…`) a file's values are
valid as long as its row names an identity that has no data files any more.

    >>> table = value_rows("a.parquet", pa.array(["x", None, "y"]))
    >>> table.column_names, table.num_rows
    (['filename', 'value', 'hash'], 2)
"""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from indextables.ariadne.metadata import large_folder
from indextables.ariadne.store.place import DataFile, IndexPlace, data_files
from indextables.ariadne.values.hashing import hash_values
from indextables.bloom import Hashes

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COMPACT = "compact-"
_MOST_ROWS = 1 << 21
"""Rows of one compacted data file, roughly."""
_ORPHAN_MS = 24 * 3_600_000
"""A data file that no row names may belong to an update that is still running, for a day."""


def drop_identities(place: IndexPlace, column: str, identities: Iterable[str]) -> None:
    """Remove the data files of identities that no row names any more."""
    target = place.large(column)
    table = target.open()
    if table is None:
        return
    prefixes = tuple(f"{identity}-" for identity in identities)
    removed = [f["path"] for f in data_files(table) if f["path"].startswith(prefixes)]
    target.commit([], pa.schema([]), removed=removed)


def drop_files(place: IndexPlace, column: str, names: list[str], identities: set[str]) -> None:
    """Remove the values of files that leave the index.

    Of other data files only compacted ones are rewritten: an update that indexed a file again may
    have written its new values just before. If its row exists, they may be compacted already.
    """
    drop_identities(place, column, identities)
    target = place.large(column)
    table, main = target.open(), place.main.open()  # in this order: rows come before compaction
    if table is None or main is None:
        return
    back = place.main.rows(main, ["filename"], among=("filename", names)).column("filename")
    dropped = pa.array(sorted(set(names) - set(back.to_pylist())), pa.string())
    live = {f["path"]: f for f in data_files(table)}
    dataset: Any = table.to_pyarrow_dataset()
    files, removed = [], []
    for fragment in dataset.get_fragments():
        path = _path(fragment.path, live)
        if _identity(path) is not None:
            continue
        leaves = pc.is_in(fragment.to_table(columns=["filename"]).column("filename"), dropped)
        if not pc.any(leaves).as_py():
            continue
        removed.append(path)
        kept = fragment.to_table(schema=dataset.schema).filter(pc.invert(leaves))
        if kept.num_rows:
            files.append(_write(place, column, clustered([kept])))
    target.commit(files, dataset.schema, removed=removed)


def compact_values(place: IndexPlace, column: str, identities: Mapping[str, str]) -> None:
    """Merge the data files of a column's large table; `identities` has that of each file."""
    target = place.large(column)
    table = target.open()
    if table is None:
        return
    live = {f["path"]: f for f in data_files(table)}
    owners = {path: _identity(path) for path in live}
    named = set(identities.values())
    old = _now_ms() - _ORPHAN_MS
    joined = [
        path
        for path, meta in live.items()
        if owners[path] in named
        or owners[path] is None
        or int(_ms(meta["modification_time"])) < old
    ]
    if len(joined) < 2:
        return
    valid = {p: _valid_names(owners[p], identities, set(owners.values())) for p in joined}
    rows = sum(live[p]["num_records"] or 0 for p in joined)
    dataset: Any = table.to_pyarrow_dataset()
    readers = {_path(reader.path, live): reader for reader in dataset.get_fragments()}
    files = []
    for part in _ranges(max(1, -(-rows // _MOST_ROWS))):
        pieces = [
            _of_files(readers[p].to_table(schema=dataset.schema, filter=part), valid[p])
            for p in joined
        ]
        rows_of_range = clustered(pieces)
        if rows_of_range.num_rows:
            files.append(_write(place, column, rows_of_range))
    target.commit(files, dataset.schema, removed=joined)


def _of_files(rows: pa.Table, names: list[str]) -> pa.Table:
    # Not as a filter of the read: see `DeltaPlace.rows`.
    return rows.filter(pc.is_in(rows.column("filename"), pa.array(names, pa.string())))


def _identity(path: str) -> str | None:
    """The identity whose data file this is; None for a compacted one.

    Those of delta-rs (`part-…`) are what it rewrote of compacted ones when rows were deleted.
    """
    return None if path.startswith((_COMPACT, "part-")) else path.rpartition("-")[0]


def _valid_names(owner: str | None, identities: Mapping[str, str], live: set[Any]) -> list[str]:
    if owner is None:
        return [name for name, identity in identities.items() if identity not in live]
    return [name for name, identity in identities.items() if identity == owner]


def _path(path: str, live: Mapping[str, Any]) -> str:
    return path if path in live else path.rpartition("/")[2]


def _ranges(count: int) -> Iterator[Any]:
    """Conditions that divide the hashes into ranges of equal width, in their order."""
    edges = np.linspace(-(2.0**63), 2.0**63, count + 1)[1:-1].astype(np.int64)
    hash_ = ds.field("hash")
    for number in range(count):
        condition: Any = pc.scalar(True)
        if number > 0:
            condition = condition & (hash_ >= int(edges[number - 1]))
        if number < count - 1:
            condition = condition & (hash_ < int(edges[number]))
        yield condition


def _write(place: IndexPlace, column: str, rows: pa.Table) -> DataFile:
    sink = io.BytesIO()
    stats = write_values(rows, sink)
    path = f"{_COMPACT}{uuid.uuid4().hex}.parquet"
    place.store.put(f"{large_folder(column)}/{path}", sink.getvalue())
    return DataFile(path, sink.tell(), stats)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ms(moment: Any) -> int:
    return int(moment) if isinstance(moment, int) else int(moment.timestamp() * 1000)


ROW_GROUP = 16_384
"""Rows of one row group: the least a lookup reads."""
_COLUMNS = ("filename", "value", "hash")


def value_schema(data_type: pa.DataType) -> pa.Schema:
    """The columns of a value table whose values have this type."""
    return pa.schema(
        [
            pa.field("filename", pa.string(), nullable=False),
            pa.field("value", data_type),
            pa.field("hash", pa.int64(), nullable=False),
        ]
    )


def value_rows(filename: str, values: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Table:
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
        schema=value_schema(values.type),
    )


def clustered(tables: Iterable[pa.Table]) -> pa.Table:
    """The rows of several files as one table ordered by hash, to be written as one data file."""
    return pa.concat_tables(tables).sort_by("hash").combine_chunks()


def write_values(table: pa.Table, sink: Any) -> str:
    """Write rows, ordered by hash, as one Parquet data file; return its Delta statistics.

    `sink` is a path or an open file. The result is the JSON of an add action's `stats`.
    """
    import pyarrow.parquet as pq

    if table.column_names != list(_COLUMNS):
        raise ValueError(f"a value table has the columns {', '.join(_COLUMNS)}")
    hashes: Any = table.column("hash").to_numpy()
    if (hashes[1:] < hashes[:-1]).any():
        raise ValueError(
            "the rows of a value table are ordered by hash; use `value_rows` or `clustered`"
        )
    pq.write_table(
        table,
        sink,
        row_group_size=ROW_GROUP,
        compression="zstd",
        use_dictionary=["filename"],  # type: ignore[arg-type]
        write_statistics=["filename", "hash"],
        sorting_columns=[pq.SortingColumn(2)],
    )
    return _statistics(table)


def _statistics(table: pa.Table) -> str:
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
        """The rows `(filename, hash)` of some hashes; None if the table cannot be searched.

        A value table of the Scala project has no hashes. Nothing is known about its files.
        """
        if self._dataset is None:
            return None
        hash_set = pa.array(np.unique(hashes).view(np.int64))
        matching_rows: pa.Table = self._dataset.to_table(
            columns=["filename", "hash"], filter=pc.field("hash").isin(hash_set)
        )
        return matching_rows
