"""The session that Ariadne works with, and where one index is stored.

A `Context` is read from the active Spark session when it is needed: the storage path, the
`spark.ariadne.*` keys and the credentials that the session has for its file systems. An
`IndexPlace` names the parts of one index below the storage path: metadata.json, its Delta tables,
its `FileList`.

The file list is a Delta table of paths and when they were added. Adding only appends, so any number
of writers can add at once. A path that was added twice counts once, with its first time.

Delta tables are opened, appended to, upserted and deleted through delta-rs, which also commits
files that tasks wrote. A commit that loses to another writer's is done again on what won; nothing
waits for a lock. A folder that is not a Delta table is left alone, whatever is in it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache, cached

from indextables.ariadne.metadata import MetadataFile, large_folder
from indextables.config import ARIADNE_PREFIX, ARIADNE_STORAGE_PATH, Config
from indextables.errors import (
    AriadneArgumentError,
    ConcurrentUpdateError,
    ConfigError,
    FileListNotFoundError,
    IndexNotFoundError,
    NoSessionError,
    StorageError,
    StoragePathNotSetError,
)
from indextables.plan.access import SourceOptions
from indextables.runner import pause_s
from indextables.spark.bridge.sessions import session_settings
from indextables.storage import Store, canonical_uri, open_store
from indextables.storage.location import client_settings, parse_location, scrub

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession


T = TypeVar("T")

_ATTEMPTS = 20
_NAMES = 500
"""File names in one DELETE statement."""
_LOST = re.compile(
    r"Generic error: A (Delta Lake )?table already exists at"
    r"|Delta transaction failed, version \d+ already exists"
)
"""The messages of delta-rs when another writer created the table or the version."""
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|↳")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that a task wrote into the folder of a table."""

    path: str
    size: int
    stats: str


@dataclass(frozen=True)
class DeltaPlace:
    """Where a Delta table is, or will be. Pickled with the credentials, shown without."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(self) -> DeltaTable | None:
        """The newest version of the table; None if it does not exist."""
        from deltalake import DeltaTable

        with _Errors(self):
            if not DeltaTable.is_deltatable(self.uri, self._options):
                return None
            return DeltaTable(self.uri, storage_options=self._options)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table | None:
        """All rows; None if there is no table."""
        table = self.open()
        return None if table is None else self.rows(table, columns)

    def rows(
        self,
        table: DeltaTable,
        columns: Sequence[str] | None = None,
        *,
        among: tuple[str, Sequence[str]] | None = None,
    ) -> pa.Table:
        """The rows of an opened table; `among` is a column and the texts it must have."""
        with _Errors(self):
            dataset: Any = table.to_pyarrow_dataset()
            names = dataset.schema.names if columns is None else list(columns)
            if among is None:
                every_row: pa.Table = dataset.to_table(columns=names)
                return every_row
            key, values = among
            # Not as a filter of the read: delta-rs writes text in a type whose statistics Arrow
            # cannot compare.
            parts = [
                batch.filter(pc.is_in(batch.column(key), pa.array(values, pa.string())))
                for batch in dataset.to_batches(columns=list(dict.fromkeys([*names, key])))
            ]
            fields = [dataset.schema.field(n) for n in dict.fromkeys([*names, key])]
            return pa.Table.from_batches(parts, pa.schema(fields)).select(names)

    def append(self, rows: pa.Table) -> None:
        """Add rows; creates the table, and columns that it lacks."""
        from deltalake import write_deltalake

        self._retried(
            lambda: write_deltalake(
                self.uri, rows, mode="append", schema_mode="merge", storage_options=self._options
            )
        )

    def upsert(self, key: str, rows_of: Callable[[DeltaTable | None], pa.Table | None]) -> bool:
        """Replace the rows with the keys of new ones, and add those with new keys, in one commit.

        `rows_of` makes the new rows from the table as it is (None if it does not exist) and is
        called again when another writer was faster. False if it returned no rows.
        """
        return self._retried(lambda: self._upsert(key, rows_of))

    def _upsert(self, key: str, rows_of: Callable[[DeltaTable | None], pa.Table | None]) -> bool:
        from deltalake import CommitProperties, write_deltalake

        table = self.open()
        rows = rows_of(table)
        if rows is None or not rows.num_rows:
            return False
        with _Errors(self):
            if table is None:
                # Of two writers that both create the table, one has to read the other's rows first.
                # A retry inside delta-rs would add its rows beside them.
                write_deltalake(
                    self.uri,
                    rows,
                    mode="error",
                    storage_options=self._options,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                return True
            quoted = key.replace('"', '""')
            (
                table.merge(
                    rows,
                    f'old."{quoted}" = new."{quoted}"',
                    source_alias="new",
                    target_alias="old",
                    merge_schema=True,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )
        return True

    def delete(self, column: str, values: Sequence[str]) -> None:
        """Delete the rows whose column has one of the values."""
        for start in range(0, len(values), _NAMES):
            quoted = ", ".join(_literal(v) for v in values[start : start + _NAMES])
            self.delete_where(f'"{column}" IN ({quoted})')

    def delete_where(self, predicate: str) -> None:
        """Delete the rows that a condition holds for."""

        def attempt() -> None:
            table = self.open()
            if table is not None:
                with _Errors(self):
                    table.delete(predicate)

        self._retried(attempt)

    def commit(
        self, files: Sequence[DataFile], schema: pa.Schema, *, removed: Sequence[str] = ()
    ) -> None:
        """Add data files that tasks wrote into the table's folder, and remove others."""
        if files or removed:
            self._retried(lambda: self._commit(files, schema, removed))

    def _commit(self, files: Sequence[DataFile], schema: pa.Schema, removed: Sequence[str]) -> None:
        from deltalake import CommitProperties, Schema
        from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

        now = time.time_ns() // 1_000_000
        adds = [AddAction(f.path, f.size, {}, now, True, f.stats) for f in files]
        table = self.open()
        with _Errors(self):
            if table is None:
                create_table_with_add_actions(
                    self.uri,
                    Schema.from_arrow(schema),
                    adds,
                    mode="error",
                    storage_options=self._options,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                return
            live = {meta["path"]: meta["size_bytes"] for meta in data_files(table)}
            removes = [
                RemoveAction(path, True, now, size=live[path], partition_values={})
                for path in removed
                if path in live
            ]
            if adds or removes:
                table.create_write_transaction(
                    [*adds, *removes], mode="append", schema=table.schema(), partition_by=[]
                )

    def compact(self) -> None:
        """Merge small data files into larger ones."""

        def attempt() -> None:
            table = self.open()
            if table is not None:
                with _Errors(self):
                    table.optimize.compact()

        self._retried(attempt)

    def vacuum(self, retention_hours: int) -> list[str]:
        """Delete data files that no version younger than this needs; returns their names."""

        def attempt() -> list[str]:
            table = self.open()
            if table is None:
                return []
            with _Errors(self):
                return table.vacuum(
                    retention_hours=retention_hours, dry_run=False, enforce_retention_duration=False
                )

        return self._retried(attempt)

    @property
    def _options(self) -> dict[str, str] | None:
        return dict(self.options) or None

    def _retried(self, attempt: Callable[[], T]) -> T:
        from deltalake.exceptions import DeltaError

        for number in range(1, _ATTEMPTS + 1):
            try:
                return attempt()
            except _LostError:
                pass
            except StorageError:  # an OSError as well
                raise
            except (DeltaError, OSError) as error:
                if not _is_lost(error):
                    raise _failed(self, error) from None
            time.sleep(pause_s(number, base_s=0.02, longest_s=2, spread=(0, 1)))
        raise ConcurrentUpdateError(self.uri, attempts=_ATTEMPTS)


def data_files(table: DeltaTable) -> list[dict[str, Any]]:
    """The live data files of a table: `path`, `size_bytes`, `modification_time`."""
    actions: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return actions


class _LostError(Exception):
    """Another writer's commit came first."""


class _Errors:
    """Turns errors of delta-rs into `StorageError`; its messages may show a signed URL."""

    def __init__(self, place: DeltaPlace) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, _error_type: Any, error: BaseException | None, _trace: Any) -> None:
        from deltalake.exceptions import DeltaError

        if isinstance(error, DeltaError | OSError) and not isinstance(error, StorageError):
            if _is_lost(error):
                raise _LostError from None
            raise _failed(self._place, error) from None


def _is_lost(error: BaseException) -> bool:
    """Whether another writer's commit came first. Messages name paths, so they are not searched."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    text = str(error)
    if isinstance(error, CommitFailedError):
        return not text.startswith("Unsupported")
    return isinstance(error, DeltaError) and _LOST.match(text) is not None


def _failed(place: DeltaPlace, error: BaseException) -> StorageError:
    # delta-rs prints causes as coloured lines with arrows.
    text = " ".join(_DECORATION.sub(" ", str(error)).split())
    return StorageError(
        f"Cannot use the Delta table {place.uri}: {scrub(text, place.options).rstrip('.')}. "
        "Check the credentials, the network and the files of the table.",
        path=place.uri,
    )


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


_NO_LOCKS = (
    "there are no locks: concurrent updates commit optimistically and never wait for each other. "
    "Leave the key out."
)
_REFUSED = {
    **dict.fromkeys(
        ("locktimeout", "lockretryinterval", "lockmaxwait", "lockrefreshinterval"), _NO_LOCKS
    ),
    "broadcastjointhreshold": "it was removed: Spark decides what it broadcasts "
    "(spark.sql.autoBroadcastJoinThreshold). Leave the key out.",
}

# What the values that Spark reads from text, or computes, depend on besides the file itself.
_VALUE_SETTINGS = (
    "session.timeZone",
    "ansi.enabled",
    "caseSensitive",
    "timestampType",
    "legacy.timeParserPolicy",
    "columnNameOfCorruptRecord",
)
# The same, for settings that are rarely set.
_RARE_VALUE_SETTINGS = (
    "json.enablePartialResults",
    "legacy.csv.enableDateTimeParsingFallback",
    "legacy.json.allowEmptyString.enabled",
    "legacy.json.enableDateTimeParsingFallback",
    "legacy.sizeOfNull",
    "parquet.fieldId.read.enabled",
)

# delta-rs confuses these with the syntax of URLs.
_UNADDRESSABLE = re.compile(r"[\[\]%]")


# --- sessions and places ---------------------------------------------------------------------


@dataclass(frozen=True)
class Context:
    """A session, its Ariadne configuration, and the place of the indexes."""

    spark: SparkSession
    root: str
    config: Config
    settings: Mapping[str, str] = field(repr=False)

    @classmethod
    def current(cls) -> Context:
        """The context of the active session."""
        return cls.of(active_session())

    @classmethod
    def of(cls, spark: SparkSession, root: str | None = None) -> Context:
        """The context of a session; a root replaces the session's storage path."""
        settings = session_settings(spark)
        config = ariadne_config(settings)
        path = root or config[ARIADNE_STORAGE_PATH]
        if path is None or not path.strip():
            raise StoragePathNotSetError
        uri = canonical_uri(path)
        if _UNADDRESSABLE.search(uri):
            raise AriadneArgumentError(
                f"Cannot keep indexes at {uri}",
                ["Delta tables cannot be addressed below a path with [, ] or %; use another one"],
            )
        return cls(spark, uri, config, settings)

    @property
    def reads_field_ids(self) -> bool:
        """Whether Spark finds columns of Parquet files by their field ids, not by their names."""
        return self.settings.get("spark.sql.parquet.fieldId.read.enabled", "false") != "false"

    def storage_options(self, uri: str) -> dict[str, object]:
        """The session's options for the store that serves a URI. They hold secrets."""
        return dict(SourceOptions.parse({"path": uri}, self.settings).storage)

    def store(self, uri: str) -> Store:
        """The store below a URI, with the session's credentials."""
        return open_store(uri, self.storage_options(uri))

    def delta_options(self, uri: str) -> dict[str, str]:
        """The same for delta-rs, which has object_store's names for everything."""
        location = parse_location(uri)
        if location.scheme in ("file", "memory", "hdfs"):
            return {}
        return client_settings(self.storage_options(uri), uri=uri)[0]

    def value_settings(self) -> str:
        """The settings of the session that values depend on, as one text."""
        get = self.spark.conf.get
        settings = {name: get("spark.sql." + name) for name in _VALUE_SETTINGS}
        rare = {name: self.settings.get("spark.sql." + name) for name in _RARE_VALUE_SETTINGS}
        settings |= {name: value for name, value in rare.items() if value is not None}
        return ";".join(f"{name}={value}" for name, value in settings.items())


def active_session() -> SparkSession:
    """The active or default session of the process."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        raise NoSessionError from None


def ariadne_config(settings: Mapping[str, str]) -> Config:
    """The `spark.ariadne.*` keys of a session, checked.

    >>> ariadne_config({"spark.ariadne.lockTimeout": "5"})
    Traceback (most recent call last):
    ...
    indextables.errors.ConfigError: Cannot use 'spark.ariadne.lockTimeout': there are no locks: \
concurrent updates commit optimistically and never wait for each other. Leave the key out.
    """
    ariadne_settings = {n: v for n, v in settings.items() if n.lower().startswith(ARIADNE_PREFIX)}
    for name in ariadne_settings:
        if reason := _REFUSED.get(name[len(ARIADNE_PREFIX) :].lower()):
            raise ConfigError(f"Cannot use '{name}': {reason}")
    return Config(ariadne_settings)


FOLDER = "indexes"
STAGING_FOLDER = "staging"
_BAD_NAME = re.compile(r"[/\\\0\[\]%]")


def check_name(name: str) -> str:
    """Return the name of an index, or refuse one that cannot be the name of a folder.

    >>> check_name("v2.final")
    'v2.final'
    """
    problems = []
    if not isinstance(name, str) or not name.strip():
        problems.append("it is empty")
    else:
        if bad_characters := sorted(set(_BAD_NAME.findall(name))):
            problems.append(f"it holds {', '.join(map(repr, bad_characters))}")
        if name.startswith("."):
            problems.append("it starts with a dot")
        if ".." in name:
            problems.append("it holds '..'")
    if problems:
        raise AriadneArgumentError(f"{name!r} cannot be the name of an index", problems)
    return name


def index_names(context: Context) -> list[str]:
    """The names of all indexes below the storage path, sorted."""
    names = context.store(context.root).list_directory(FOLDER)[1]
    return [name for name in sorted(names) if IndexPlace(context, name).exists()]


def remove_index(context: Context, name: str) -> None:
    """Delete an index and its file list, or what is left of them."""
    place = IndexPlace(context, name)
    store = context.store(context.root)  # it deletes folders that are empty
    objects = [meta.path for meta in store.list(f"{FOLDER}/{name}")]
    # Without its metadata it is not an index any more, so that goes first.
    metadata = f"{FOLDER}/{name}/metadata.json"
    store.delete([path for path in objects if path == metadata])
    try:
        place.files.remove()
    except FileListNotFoundError:
        if not objects:
            raise IndexNotFoundError(name, root=context.root) from None
    store.delete([path for path in objects if path != metadata])


@dataclass(frozen=True)
class IndexPlace:
    """Where one index is stored."""

    context: Context
    name: str

    @property
    def uri(self) -> str:
        """The folder of the index."""
        return f"{self.context.root}/{FOLDER}/{self.name}"

    @cached_property
    def store(self) -> Store:
        """The objects of the index."""
        return self.context.store(self.uri)

    @cached_property
    def metadata(self) -> MetadataFile:
        """metadata.json."""
        return MetadataFile(self.store)

    @cached_property
    def files(self) -> FileList:
        """The list of registered files."""
        return FileList(self.context, self.name)

    @cached_property
    def main(self) -> DeltaPlace:
        """The table of one row a file."""
        return self.table("index")

    def large(self, column: str) -> DeltaPlace:
        """The large table of a column."""
        return self.table(large_folder(column))

    def staging(self, batch: str) -> DeltaPlace:
        """The table of one staged batch."""
        return self.table(f"{STAGING_FOLDER}/{batch}")

    def exists(self) -> bool:
        """Whether there is an index: metadata.json is the first part of it that is written, and the
        first that a removal deletes."""
        return self.metadata.exists()

    def table(self, folder: str) -> DeltaPlace:
        """The Delta table in a folder of the index."""
        uri = f"{self.uri}/{folder}"
        return DeltaPlace(uri, self.context.delta_options(uri))


_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("filename", pa.string()),
    ("addedAt", pa.timestamp("us", tz="UTC")),
]
_SCHEMA = pa.schema(_COLUMNS)
_FOLDER = "filelists"


class FileList:
    """The file list of one index."""

    def __init__(self, context: Context, name: str) -> None:
        self._name = name
        self._root = f"{context.root}/{_FOLDER}"
        self._store = context.store(context.root)
        uri = f"{self._root}/{name}"
        self._place = DeltaPlace(uri, context.delta_options(uri))

    def entries(self) -> tuple[pa.Table, int]:
        """Paths with the time each was first added, sorted, and the version of the list."""
        table = self._place.open()
        if table is None:
            return _SCHEMA.empty_table(), -1
        # A list that was removed and created again has another identity.
        key = self._place.uri, str(table.metadata().id), table.version()
        return _first_times(key, self._place, table), table.version()

    def files(self) -> list[str]:
        """The registered paths."""
        return self.entries()[0].column("filename").to_pylist()  # type: ignore[return-value]

    def add(self, files: Sequence[str]) -> None:
        """Register paths; those that are registered already keep their time."""
        registered = set(self.files()) if files else set()
        new = [name for name in dict.fromkeys(files) if name not in registered]
        if not new:
            return
        now = pa.scalar(time.time_ns() // 1000, pa.timestamp("us", tz="UTC"))
        self._place.append(
            pa.table({"filename": new, "addedAt": pa.repeat(now, len(new))}, schema=_SCHEMA)
        )

    def discard(self, files: Sequence[str]) -> None:
        """Remove paths; those that are not registered are ignored."""
        self._place.delete("filename", list(files))

    def remove(self) -> None:
        """Delete the list. `FileListNotFoundError` if it does not exist."""
        objects = [meta.path for meta in self._store.list(f"{_FOLDER}/{self._name}")]
        if not objects:
            raise FileListNotFoundError(self._name, root=self._root)
        self._store.delete(objects)


@cached(LRUCache(8), key=lambda key, *_: key, lock=threading.Lock())
def _first_times(_key: tuple[str, str, int], place: DeltaPlace, table: DeltaTable) -> pa.Table:
    """Each path once, with the time it was first added. Every join asks for it."""
    rows = place.rows(table, _SCHEMA.names)
    first = rows.group_by("filename").aggregate([("addedAt", "min")]).sort_by("filename")
    return first.rename_columns(_SCHEMA.names).cast(_SCHEMA)
