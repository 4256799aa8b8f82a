"""The session that Ariadne works with, and where one index is stored.

A `Context` is read from the active Spark session when it is needed: the storage path, the
`spark.ariadne.*` keys and the credentials that the session has for its file systems. An
`IndexPlace` names the parts of one index below the storage path: metadata.json, its Delta tables,
its `FileList`.

The file list is a Delta table of paths and when they were added. Adding only appends, so any number
of writers can add at once. A path that was added twice counts once, with its first time.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from cachetools import LRUCache, cached

from indextables.ariadne.metadata import MetadataFile, large_folder
from indextables.ariadne.store.delta import DeltaPlace
from indextables.config import ARIADNE_PREFIX, ARIADNE_STORAGE_PATH, Config
from indextables.errors import (
    AriadneArgumentError,
    ConfigError,
    FileListNotFoundError,
    IndexNotFoundError,
    NoSessionError,
    StoragePathNotSetError,
)
from indextables.plan.access import SourceOptions
from indextables.spark.bridge.sessions import session_settings
from indextables.storage import Store, canonical_uri, open_store
from indextables.storage.location import client_settings, parse_location

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

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
    own = {n: v for n, v in settings.items() if n.lower().startswith(ARIADNE_PREFIX)}
    for name in own:
        if reason := _REFUSED.get(name[len(ARIADNE_PREFIX) :].lower()):
            raise ConfigError(f"Cannot use '{name}': {reason}")
    return Config(own)


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
