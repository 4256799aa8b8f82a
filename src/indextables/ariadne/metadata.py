"""metadata.json: what an index is over and which columns it keeps; and the tables of an index.

One JSON object with the field names of the Scala project Ariadne, whose files of the versions 1 to
10 can be read: a field that an older version lacks has its default. Newer versions are refused.
Unknown fields are kept when the file is written again. Opening an index that exists does not write
it, unless the arguments change it.

Every change reads the newest file, changes it and replaces exactly that one (`put_if_match`). A
writer that loses the race changes the file that won, so no declaration is ever overwritten.

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
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.declarations import (
    STAGING,
    Bloom,
    Computed,
    Declaration,
    Declarations,
    Exploded,
    Range,
    Regular,
    Temporal,
    Text,
    Types,
    companions,
    storage_column,
)
from indextables.errors import (
    ConcurrentUpdateError,
    MetadataMissingOrCorruptError,
    ObjectExistsError,
    ObjectNotFoundError,
    UnsupportedMetadataVersionError,
    UnsupportedStorageFormatVersionError,
)
from indextables.runner import pause_s
from indextables.storage import Store

if TYPE_CHECKING:
    from deltalake import DeltaTable


METADATA_VERSION = 10
STORAGE_FORMAT_VERSION = 3
FILE = "metadata.json"
_ATTEMPTS = 30


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of metadata.json. `schema` is Spark's JSON of the files' schema."""

    format: str
    schema: str
    declarations: Declarations = field(default_factory=Declarations)
    read_options: Mapping[str, str] = field(default_factory=dict)
    auto_bloom: tuple[str, ...] = ()
    """Value columns of which some file has needed a large table."""
    total_indexed_file_size: int = -1
    batches_since_compact: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict)

    def read_option(self, name: str, default: str = "") -> str:
        """An option of Spark's reader, whatever the case of its name."""
        values = (v for n, v in self.read_options.items() if n.lower() == name.lower())
        return next(values, default)

    def declaring(self, declaration: Declaration) -> Metadata:
        """With one more index column."""
        return replace(self, declarations=self.declarations.with_(declaration))


def parse_metadata(data: bytes, *, path: str) -> Metadata:
    """Parse metadata.json of any supported version."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MetadataMissingOrCorruptError(path, f"it is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise MetadataMissingOrCorruptError(path, "it is not a JSON object")
    _check_versions(document, path)
    problems = [f"it has no {name}" for name in ("format", "schema") if not document.get(name)]
    if problems:
        raise MetadataMissingOrCorruptError(path, " and ".join(problems))
    unknown = {n: v for n, v in document.items() if n not in _FIELDS}
    try:
        return Metadata(
            format=str(document["format"]),
            schema=_text(document["schema"]),
            declarations=Declarations(tuple(_declarations(document))),
            read_options={str(n): str(v) for n, v in (document.get("read_options") or {}).items()},
            auto_bloom=tuple(map(str, document.get("auto_bloom_indexes") or ())),
            total_indexed_file_size=_number(document, "total_indexed_file_size", -1),
            batches_since_compact=_number(document, "batches_since_compact", 0),
            unknown=unknown,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"a field has the wrong shape ({type(error).__name__}: {error})"
        raise MetadataMissingOrCorruptError(path, reason) from None


def _text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _number(document: Mapping[str, Any], name: str, default: int) -> int:
    value = document.get(name)
    return default if value is None else int(value)


def _check_versions(document: Mapping[str, Any], path: str) -> None:
    for name, supported, error in (
        ("metadata_version", METADATA_VERSION, UnsupportedMetadataVersionError),
        ("storage_format_version", STORAGE_FORMAT_VERSION, UnsupportedStorageFormatVersionError),
    ):
        version = document.get(name)
        if isinstance(version, int) and version > supported:
            raise error(path, found=version, supported=supported)


def _declarations(document: Mapping[str, Any]) -> Iterator[Declaration]:
    def entries(name: str) -> list[Any]:
        return document.get(name) or []

    yield from (Regular(c) for c in entries("indexes"))
    yield from (Computed(n, e) for n, e in (document.get("computed_indexes") or {}).items())
    yield from (
        Exploded(e["array_column"], e["field_path"], e["as_column"])
        for e in entries("exploded_field_indexes")
    )
    yield from (Bloom(e["column"], float(e.get("fpr", 0.01))) for e in entries("bloom_indexes"))
    yield from (Temporal(e["column"], e["timestamp_column"]) for e in entries("temporal_indexes"))
    yield from (Range(e["column"]) for e in entries("range_indexes"))
    yield from (Text(e["column"]) for e in entries("text_indexes"))


_FIELDS = frozenset(
    (
        "format",
        "schema",
        "indexes",
        "computed_indexes",
        "exploded_field_indexes",
        "bloom_indexes",
        "temporal_indexes",
        "range_indexes",
        "text_indexes",
        "read_options",
        "auto_bloom_indexes",
        "total_indexed_file_size",
        "batches_since_compact",
        "metadata_version",
        "storage_format_version",
    )
)


def metadata_json(metadata: Metadata) -> bytes:
    """The file's content, in the current version."""
    every = metadata.declarations.all
    document: dict[str, Any] = {
        "format": metadata.format,
        "schema": metadata.schema,
        "indexes": [d.column for d in every if isinstance(d, Regular)],
        "computed_indexes": {d.name: d.expression for d in every if isinstance(d, Computed)},
        "exploded_field_indexes": [
            {"array_column": d.array_column, "field_path": d.field_path, "as_column": d.as_column}
            for d in every
            if isinstance(d, Exploded)
        ],
        "bloom_indexes": [
            {"column": d.column, "fpr": d.fpr} for d in every if isinstance(d, Bloom)
        ],
        "temporal_indexes": [
            {"column": d.column, "timestamp_column": d.timestamp_column}
            for d in every
            if isinstance(d, Temporal)
        ],
        "range_indexes": [{"column": d.column} for d in every if isinstance(d, Range)],
        "text_indexes": [{"column": d.column} for d in every if isinstance(d, Text)],
        "read_options": dict(metadata.read_options),
        "auto_bloom_indexes": list(metadata.auto_bloom),
        "total_indexed_file_size": metadata.total_indexed_file_size,
        "batches_since_compact": metadata.batches_since_compact,
        "metadata_version": METADATA_VERSION,
        "storage_format_version": STORAGE_FORMAT_VERSION,
    }
    return orjson.dumps({**metadata.unknown, **document}, option=orjson.OPT_INDENT_2)


class MetadataFile:
    """metadata.json of one index, in the store of the index."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.path = f"{store.uri}/{FILE}"

    def exists(self) -> bool:
        """Whether it exists."""
        try:
            self._store.head(FILE)
        except ObjectNotFoundError:
            return False
        return True

    def load(self) -> Metadata:
        """Read it. `MetadataMissingOrCorruptError` if it does not exist or is damaged."""
        return self._load()[0]

    def create(self, metadata: Metadata) -> bool:
        """Write it if it does not exist; False if another writer was first."""
        try:
            self._store.put_if_absent(FILE, metadata_json(metadata))
        except ObjectExistsError:
            return False
        return True

    def change(self, how: Callable[[Metadata], Metadata]) -> Metadata:
        """Apply a change to the newest content, again if another writer was faster.

        `how` may refuse with an error; nothing is written then, nor if it changes nothing.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            stored, etag = self._load()
            changed = how(stored)
            if changed == stored:
                return stored
            try:
                self._store.put_if_match(FILE, metadata_json(changed), etag)
            except ObjectExistsError:
                time.sleep(pause_s(attempt, base_s=0.01, longest_s=1, spread=(0, 1)))
                continue
            return changed
        raise ConcurrentUpdateError(self.path, attempts=_ATTEMPTS)

    def _load(self) -> tuple[Metadata, str | None]:
        try:
            data, etag = self._store.get_with_etag(FILE)
        except ObjectNotFoundError:
            raise MetadataMissingOrCorruptError(self.path, "it does not exist") from None
        return parse_metadata(data, path=self.path), etag


# --- the tables of an index ------------------------------------------------------------------

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
    column = pa.field(storage_column(declaration), storage_type(declaration, value_type, time))
    beside = [pa.field(name, data_type) for name, data_type in companions(declaration).items()]
    return pa.schema([column, *beside])


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
