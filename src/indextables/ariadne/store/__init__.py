"""Where an index is stored: its place, its Delta tables, its staged and its large values."""

from __future__ import annotations

from indextables.ariadne.store import index_rows, staging
from indextables.ariadne.store.delta import DataFile
from indextables.ariadne.store.index_rows import (
    compact,
    key_rows,
    read_rows,
    remove_rows,
    total_size,
)
from indextables.ariadne.store.large_values import (
    ValueTable,
    value_rows,
    value_schema,
    write_values,
)
from indextables.ariadne.store.place import (
    Context,
    IndexPlace,
    active_session,
    check_name,
    index_names,
    remove_index,
)

__all__ = [
    "Context",
    "DataFile",
    "IndexPlace",
    "ValueTable",
    "active_session",
    "check_name",
    "compact",
    "index_names",
    "index_rows",
    "key_rows",
    "read_rows",
    "remove_index",
    "remove_rows",
    "staging",
    "total_size",
    "value_rows",
    "value_schema",
    "write_values",
]
