"""What an index knows at this moment: the rows that hold, and the files it knows nothing about."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from cachetools import LRUCache

from indextables.ariadne import states
from indextables.ariadne.declarations import Declaration, Types, storage_column
from indextables.ariadne.layout import FIXED_SCHEMA, IndexData
from indextables.ariadne.metadata import Metadata
from indextables.ariadne.place import IndexPlace
from indextables.ariadne.source import computed_types
from indextables.config import ARIADNE_CHECK_FILES
from indextables.errors import AriadneArgumentError

_rows: LRUCache[Any, pa.Table] = LRUCache(8)
"""Index rows by table and version, for all indexes of the process."""
_lock = threading.Lock()


def current_data(place: IndexPlace, metadata: Metadata) -> IndexData:
    """Compare the rows of an index with its files, and open the tables that the rows refer to."""
    listed, list_version = place.files.entries()
    entries: list[Any] = listed.column("filename").to_pylist()
    rows, version = read_rows(place)
    how = states.look if place.context.config[ARIADNE_CHECK_FILES] else states.believe
    found = how(place, metadata, rows, entries)
    # Rows can be large, and most of the time all of them hold.
    files = rows if found.is_valid.all() else rows.filter(pa.array(found.is_valid, pa.bool_()))
    large = {
        name.removeprefix("large_")
        for name in files.column_names
        if name.startswith("large_") and files.column(name).null_count < files.num_rows
    }
    lacking = [
        d
        for d in metadata.declarations.of_kind("computed")
        if storage_column(d) not in files.column_names
    ]
    tables = {name: place.large(name).open() for name in large}
    mark = hashlib.blake2b(digest_size=16)
    for part in (
        version, list_version, metadata.declarations, found.pending, found.missing,
        sorted(found.valid_names), [(n, t and t.version()) for n, t in sorted(tables.items())],
    ):  # fmt: skip
        mark.update(repr(part).encode())
    return IndexData(
        files=files,
        pending=found.pending,
        missing=found.missing,
        declarations=metadata.declarations,
        version=mark.hexdigest(),
        open_large=partial(_opened, tables, place),
        computed_types=_computed_types(place, metadata, lacking),
        drops_rows=metadata.read_option("mode").upper() == "DROPMALFORMED",
    )


def _computed_types(place: IndexPlace, metadata: Metadata, lacking: Sequence[Declaration]) -> Types:
    try:
        return computed_types(place.context.spark, metadata, lacking, name=place.name)
    except AriadneArgumentError:  # conditions cannot name them then
        return {}


def read_rows(place: IndexPlace) -> tuple[pa.Table, str]:
    """All rows of the index, and what tells this version of them from any other."""
    table = place.main.open()
    if table is None:
        return FIXED_SCHEMA.empty_table(), "none"
    key = (place.uri, str(table.metadata().id), table.version())
    with _lock:
        rows = _rows.get(key)
    if rows is None:
        rows = place.main.rows(table)
        for field in FIXED_SCHEMA:  # the origin's rows lack some
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        with _lock:
            _rows[key] = rows
    return rows, repr(key)


def _opened(tables: dict[str, Any], place: IndexPlace, name: str) -> Any:
    if name not in tables:
        tables[name] = place.large(name).open()
    return tables[name]
