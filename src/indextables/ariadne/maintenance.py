"""Maintaining the tables of an index: taking rows out, compacting, vacuuming."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from indextables.ariadne import large_tables, staging
from indextables.ariadne.place import IndexPlace
from indextables.ariadne.states import KEY_COLUMNS


def key_rows(place: IndexPlace) -> pa.Table:
    """The columns of the index rows that tell their state."""
    table = place.main.open()
    names = [] if table is None else [f.name for f in table.schema().fields]
    if table is None or "filename" not in names:
        return pa.table({n: pa.array([], pa.null()) for n in KEY_COLUMNS})
    rows = place.main.rows(table, [n for n in KEY_COLUMNS if n in names])
    for name in (n for n in KEY_COLUMNS if n not in names):  # the origin's rows
        rows = rows.append_column(name, pa.nulls(rows.num_rows))
    return rows.select(list(KEY_COLUMNS))


def remove_rows(place: IndexPlace, names: Sequence[str]) -> None:
    """Delete the rows of files, and what large tables have of them."""
    table = place.main.open()
    if table is None or not names:
        return
    large = [f.name for f in table.schema().fields if f.name.startswith("large_")]
    rows = place.main.rows(table, large, among=("filename", names)) if large else None
    place.main.delete("filename", list(names))
    for column in large:
        assert rows is not None
        identities = {i for i in rows.column(column).to_pylist() if isinstance(i, str)}
        if identities:
            name = column.removeprefix("large_")
            large_tables.drop_files(place, name, list(names), identities)


def total_size(place: IndexPlace) -> int:
    """The bytes of all indexed files."""
    rows = key_rows(place)
    columns = [rows.column(n).to_pylist() for n in ("file_size", "failure")]
    return sum(size or 0 for size, failure in zip(*columns, strict=True) if failure is None)


def compact(place: IndexPlace) -> None:
    """Join small data files of all tables of an index, and start counting batches anew."""
    place.main.compact()
    table = place.main.open()
    names = [] if table is None else [f.name for f in table.schema().fields]
    for column in (n for n in names if n.startswith("large_")):
        assert table is not None
        rows = place.main.rows(table, ["filename", column])
        pairs = zip(*(c.to_pylist() for c in rows.columns), strict=True)
        identities = {name: found for name, found in pairs if isinstance(found, str)}
        large_tables.compact(place, column.removeprefix("large_"), identities)
    place.metadata.change(lambda metadata: replace(metadata, batches_since_compact=0))


def vacuum(place: IndexPlace, retention_hours: int) -> list[str]:
    """Delete data files that no table needs any more; gives their paths below the index."""
    before = time.time_ns() // 1_000_000 - retention_hours * 3_600_000
    garbage = staging.unfinished(place, before_ms=before)
    place.store.delete(garbage)
    folders = [f"large_indexes/{n}" for n in place.store.list_directory("large_indexes")[1]]
    gone = [f"index/{path}" for path in place.main.vacuum(retention_hours)]
    for folder in folders:
        table = place.table(folder)
        gone += [f"{folder}/{path}" for path in table.vacuum(retention_hours)]
    return [*garbage, *gone]
