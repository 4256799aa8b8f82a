"""The large tables of an index: values of files that have too many for an array.

A build writes the values of one file and column into data files of their own,
`<identity>-<n>.parquet`, and the index row keeps the identity. New files are committed before the
row that names them, old ones are taken out after the row that named them is gone. So whatever a
reader sees, the values are there; at worst there are some more.

`compact` joins them, ordered by hash over all files: then a lookup of a few keys touches a few row
groups of the whole table. In compacted data files (`compact-…`) a file's values are valid as long
as its row names an identity that has no data files any more.
"""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from indextables.ariadne import value_table
from indextables.ariadne.delta import DataFile, data_files
from indextables.ariadne.layout import large_folder
from indextables.ariadne.place import IndexPlace

_COMPACT = "compact-"
_MOST_ROWS = 1 << 21
"""Rows of one compacted data file, roughly."""
_ORPHAN_MS = 24 * 3_600_000
"""A data file that no row names may belong to an update that is still running, for a day."""


def drop(place: IndexPlace, column: str, identities: Iterable[str]) -> None:
    """Take out the data files of identities that no row names any more."""
    target = place.large(column)
    table = target.open()
    if table is None:
        return
    prefixes = tuple(f"{identity}-" for identity in identities)
    gone = [f["path"] for f in data_files(table) if f["path"].startswith(prefixes)]
    target.commit([], pa.schema([]), removed=gone)


def drop_files(place: IndexPlace, column: str, names: list[str], identities: set[str]) -> None:
    """Take out everything about files that leave the index.

    Of other data files only compacted ones are looked at: an update that found a file again may
    have written its new values a moment ago. If its row is there, they may be compacted already.
    """
    drop(place, column, identities)
    target = place.large(column)
    table, main = target.open(), place.main.open()  # in this order: rows come before compaction
    if table is None or main is None:
        return
    back = place.main.rows(main, ["filename"], among=("filename", names)).column("filename")
    gone = pa.array(sorted(set(names) - set(back.to_pylist())), pa.string())
    live = {f["path"]: f for f in data_files(table)}
    dataset: Any = table.to_pyarrow_dataset()
    files, removed = [], []
    for fragment in dataset.get_fragments():
        path = _path(fragment.path, live)
        if _identity(path) is not None:
            continue
        leaves = pc.is_in(fragment.to_table(columns=["filename"]).column("filename"), gone)
        if not pc.any(leaves).as_py():
            continue
        removed.append(path)
        kept = fragment.to_table(schema=dataset.schema).filter(pc.invert(leaves))
        if kept.num_rows:
            files.append(_write(place, column, value_table.clustered([kept])))
    target.commit(files, dataset.schema, removed=removed)


def compact(place: IndexPlace, column: str, identities: Mapping[str, str]) -> None:
    """Join the data files of a column's large table; `identities` has the one of each file."""
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
        clustered = value_table.clustered(pieces)
        if clustered.num_rows:
            files.append(_write(place, column, clustered))
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
    """Conditions that cut the hashes into ranges of equal width, in their order."""
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
    stats = value_table.write(rows, sink)
    path = f"{_COMPACT}{uuid.uuid4().hex}.parquet"
    place.store.put(f"{large_folder(column)}/{path}", sink.getvalue())
    return DataFile(path, sink.tell(), stats)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ms(moment: Any) -> int:
    return int(moment) if isinstance(moment, int) else int(moment.timestamp() * 1000)
