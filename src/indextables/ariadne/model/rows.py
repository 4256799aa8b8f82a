"""The tables of an index: what one row says about one file.

::

    <storagePath>/indexes/<name>/metadata.json          declarations, schema, format, read options
    <storagePath>/indexes/<name>/index/                 Delta: one row a file
    <storagePath>/indexes/<name>/staging/<batch>/       Delta: rows of a batch, while an update runs
    <storagePath>/indexes/<name>/large_indexes/<column>/  Delta: (filename, value, hash)
    <storagePath>/filelists/<name>/                     Delta: (filename, addedAt)

A row of `index/` has the columns of `FIXED`, and for each declaration its storage column:

========== ================= ===============================================================
kind       column            holds
========== ================= ===============================================================
value      `<name>`          array of the distinct values that are not null
temporal   `<name>`          array of (value, max_ts)
bloom      `bloom_<name>`    a filter of `bloom.build`
range      `range_<name>`    (min, max); both null if every row is null
text       `text_<name>`     what `words.build` returns
all        `nulls_<name>`    how many rows (of an exploded one: elements) are null
value      `distinct_<name>` how many distinct values there are
value      `large_<name>`    names the data files `<large>-<n>.parquet` of the large table
value      `auto_bloom_<n>`  a filter of the values, for files whose values are in a large table
========== ================= ===============================================================

`built` names the storage columns that were built for the file; about a column that is not in it
nothing is known. A value column that is in `built` but null has its values in
`large_indexes/<name>/`. A temporal column that is in `built` but null had too many values: nothing
is known about it, nor about any column of a row with a `failure`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.model.declarations import (
    STAGING,
    Declaration,
    Declarations,
    Types,
    companions,
    storage_column,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FIXED: list[pa.Field[Any]] = [
    pa.field("filename", pa.string()),
    pa.field("file_size", pa.int64()),
    pa.field("modification_time", pa.int64()),
    pa.field("etag", pa.string()),
    pa.field("row_count", pa.int64()),
    pa.field("failure", pa.string()),
    pa.field("built", pa.list_(pa.field("element", pa.string()))),
    pa.field("settings", pa.string()),
]
FIXED_SCHEMA = pa.schema(_FIXED)
_STAGED: list[pa.Field[Any]] = [
    pa.field(STAGING[0], pa.timestamp("us", tz="UTC")),
    pa.field(STAGING[1], pa.string()),
    pa.field(STAGING[2], pa.string()),
]
STAGED_SCHEMA = pa.schema(_STAGED)


def storage_type(declaration: Declaration, value_type: Any, time: Any = None) -> pa.DataType:
    """The type of a declaration's storage column; `value_type` is that of its values."""
    match declaration.kind:
        case "bloom" | "text":
            return pa.binary()
        case "range":
            return pa.struct([pa.field("min", value_type), pa.field("max", value_type)])
        case "temporal":
            pair = pa.struct([pa.field("value", value_type), pa.field("max_ts", time)])
            return pa.list_(pa.field("element", pair))
        case _:
            return pa.list_(pa.field("element", value_type))


def columns_of(declaration: Declaration, value_type: Any, time: Any = None) -> pa.Schema:
    """All columns of an index row that belong to a declaration."""
    own = pa.field(storage_column(declaration), storage_type(declaration, value_type, time))
    rest = [pa.field(name, data_type) for name, data_type in companions(declaration).items()]
    return pa.schema([own, *rest])


OPTIONS_MARK = "|options="
"""Precedes the read options in the text of settings."""
FINDING_SETTINGS = ("caseSensitive", "parquet.fieldId.read.enabled")
"""The only settings for plain Parquet columns: how Spark finds a column in a file."""
KEY_COLUMNS = ("filename", "file_size", "modification_time", "etag", "failure", "built", "settings")


def settings_match(stored: str | None, now: str) -> bool:
    """Whether values that were read under some settings are valid under others.

    >>> settings_match("", "zone"), settings_match("zone", "other")
    (True, False)
    >>> settings_match("", "|options=x")
    False
    """
    if stored is None:
        return False
    session, _, options = stored.partition(OPTIONS_MARK)
    session_now, _, options_now = now.partition(OPTIONS_MARK)
    # Values that do not depend on a session are those of plain columns, found by their names.
    is_usual = not any(f"{name}=true".lower() in session_now.lower() for name in FINDING_SETTINGS)
    return options == options_now and session in ("" if is_usual else session_now, session_now)


_UNSAFE = re.compile(r"[^A-Za-z0-9_.\- ]|^\.")


def large_folder(name: str) -> str:
    """The folder of a column's large table, below the index. Unsafe characters are encoded.

    >>> large_folder("user_id"), large_folder("a/b%")
    ('large_indexes/user_id', 'large_indexes/a~2f~b~25~')
    """
    return "large_indexes/" + _UNSAFE.sub(lambda m: f"~{ord(m[0]):x}~", name)


@dataclass(frozen=True)
class IndexData:
    """Everything a lookup needs, all of one version.

    `files` are the valid index rows. `pending` are files without one: never indexed, rewritten
    since, or unreadable; they are candidates of every lookup. `missing` are those among the
    pending ones that do not exist any more. Together the filenames of `files` and `pending` are
    all files of the index, each once.
    """

    files: pa.Table
    pending: tuple[str, ...]
    missing: tuple[str, ...]
    declarations: Declarations
    version: str
    """Changes whenever `files`, `pending` or `declarations` do."""
    open_large: Callable[[str], DeltaTable | None] = field(repr=False)
    computed_types: Types = field(default_factory=dict)
    """The types of computed columns that no row of `files` has yet."""
    drops_rows: bool = False
    """Whether rows that the index has seen may be missing from what a query reads. Spark drops a
    malformed row when it parses the malformed column; an index keeps the row."""

    def large(self, name: str) -> DeltaTable | None:
        """The large table of a value column; None if no file has needed one."""
        return self.open_large(name)

    @cached_property
    def filenames(self) -> tuple[str, ...]:
        """All files of the index, those that are pending last."""
        indexed: list[Any] = self.files.column("filename").to_pylist()
        return (*indexed, *self.pending)

    def is_built(self, declaration: Declaration) -> pa.Array[Any]:
        """For each row of `files`: was the declaration's column built?"""
        built: pa.Array[Any] = pa.array(
            holds(self.files.column("built"), storage_column(declaration))
        )
        return built


def holds(lists: Any, word: str) -> Any:
    """For each list of texts: is the word in it? A null list holds nothing."""
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    answer = np.zeros(len(lists), bool)
    parents = np.asarray(pc.list_parent_indices(lists))
    words: Any = pc.equal(lists.flatten(), pa.scalar(word, pa.string()))
    answer[parents[np.asarray(words.fill_null(False)).astype(bool)]] = True
    return answer
