"""How the driver and its tasks reach a table: its address, a session's configuration, options.

A `TableAccess` is pickled to executors with its credentials, and its repr leaves them out. Accesses
of one process that are equal share a log, and so its cached snapshots.

An option of a read or write is one of this package (`versionAsOf`, `mergeSchema`, …), a
`spark.indextables.*` key, or it is passed to the store as a credential or endpoint. A store refuses
what it does not know. Options for files of other formats are listed here: those about how a file is
written are ignored with a warning, those that choose rows or files are refused. The Hadoop names
that a session has for its own file systems (`spark.hadoop.fs.s3a.access.key`, …) are the stores'
defaults.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from indextables.config import (
    MERGE_PRECOMMIT,
    SEARCH_FIELDS,
    Config,
    is_own_key,
    parse_boolean,
    session_keys,
    settled,
    storage_key,
)
from indextables.errors import ConfigError
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.view import TableView, refuse_search_index
from indextables.predicate.search_names import mentions_search
from indextables.runner import Runner
from indextables.storage import Store, canonical_uri, open_store
from indextables.storage.location import own_names, parse_location

logger = logging.getLogger(__name__)

_MAX_LOGS = 256

RunnerOf = Callable[[Store, Config], Runner | None]


@dataclass(frozen=True)
class TableAccess:
    """A table's address, and the configuration and credentials with which it is read."""

    path: str
    config: Mapping[str, object] = field(default_factory=dict, repr=False)
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)
    stores: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of other stores, by the names of Hadoop and of the Scala product."""

    @cached_property
    def uri(self) -> str:
        """The canonical URI of the table."""
        return canonical_uri(self.path)

    @cached_property
    def settings(self) -> Config:
        """The configuration, checked."""
        return Config(self.config)

    def store(self) -> Store:
        """The store of the table."""
        return open_store(self.path, self.storage)

    def log(self) -> TransactionLog:
        """The table's log; equal accesses of this process share it."""
        return _LOGS.get(self)

    def view(self, snapshot: Snapshot | None = None) -> TableView:
        """The newest version of the table, or the one of a snapshot."""
        log = self.log()
        if snapshot is None:
            snapshot = log.snapshot()
        refuse_search_index(snapshot.metadata, uri=self.uri)
        return TableView(log.store, snapshot, self.settings)

    def storage_of(self, uri: str) -> dict[str, object]:
        """The options of the store of another place, such as that of an index's source."""
        scheme, own_scheme = parse_location(uri).scheme, parse_location(self.path).scheme
        if scheme == "file":
            return {}
        named = {
            name: value
            for name, value in self.stores.items()
            if not name.startswith("fs.") and storage_key(name) is None
        }
        own_options = self.storage if own_scheme == scheme else {}
        return {**store_settings(scheme, self.stores), **named, **own_options}

    def __getstate__(self) -> dict[str, object]:
        options = {"config": self.config, "storage": self.storage, "stores": self.stores}
        return {"path": self.path, **{name: dict(mapping) for name, mapping in options.items()}}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


class _Logs:
    """The logs that this process has open, the most recently used ones."""

    def __init__(self) -> None:
        self._open: OrderedDict[object, TransactionLog] = OrderedDict()
        self._lock = threading.Lock()
        self.runner_of: RunnerOf = lambda _store, _config: None

    def get(self, access: TableAccess) -> TransactionLog:
        key = (access.uri, _frozen(access.config), _frozen(access.storage))
        with self._lock:
            cached = self._open.get(key)
            if cached is not None:
                self._open.move_to_end(key)
                return cached
        store = access.store()
        runner = self.runner_of(store, access.settings)
        opened = TransactionLog(store, config=access.settings, runner=runner)
        with self._lock:
            opened = self._open.setdefault(key, opened)
            while len(self._open) > _MAX_LOGS:
                self._open.popitem(last=False)
        return opened

    def matching(self, uri: str | None) -> list[TransactionLog]:
        with self._lock:
            return [
                log for log in self._open.values() if uri in (None, canonical_uri(log.store.uri))
            ]


_LOGS = _Logs()


def _frozen(options: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in options.items()))


def invalidate_logs(path: str | None) -> list[TransactionLog]:
    """Drop what this process cached of a table's log, or of all logs; return those logs."""
    logs = _LOGS.matching(None if path is None else canonical_uri(path))
    for log in logs:
        log.invalidate()
    return logs


def read_logs_with(runner_of: RunnerOf) -> None:
    """Set the reader of version files for logs that are opened from now on."""
    _LOGS.runner_of = runner_of


# --- options of a read or write --------------------------------------------------------------

NAME = "indextables"
"""The name of the format and of the catalog."""
ALIASES = (
    "io.indextables.spark.core.IndexTables4SparkTableProvider",
    "io.indextables.provider.IndexTablesProvider",
)
PROVIDERS = frozenset(name.lower() for name in (NAME, *ALIASES))
"""All names of the format, as CREATE TABLE … USING may spell them, in lower case."""

SPARK_CATALOG = "spark_catalog"
"""Spark's own catalog, of bare names."""

PARTITION_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"

_HADOOP = "spark.hadoop."
_HADOOP_STORES = {"s3": "fs.s3a.", "az": "fs.azure.account.key."}
# What Hadoop configures beyond that (thread pools, committers) has no meaning for our stores.
_HADOOP_NAMES = frozenset(
    (
        "fs.s3a.access.key",
        "fs.s3a.secret.key",
        "fs.s3a.session.token",
        "fs.s3a.endpoint",
        "fs.s3a.endpoint.region",
        "fs.s3a.path.style.access",
        "fs.s3a.connection.ssl.enabled",
    )
)
_OURS = frozenset(
    (
        "path",
        "paths",
        "versionasof",
        "timestampasof",
        "mergeschema",
        "overwriteschema",
        "mergeprecommit",
        "replacewhere",
        "partitionoverwritemode",
        "partitionby",
        "where",
        "search",
        "fields",
        "searchmode",
        "limit",
        "snippets",
        "timezone",
        "relation",
        "rowchange",
    )
)

# Facts of Spark's catalog about a table. They are among the options when Spark asks for the columns
# of a table that gets a name: CREATE TABLE … USING indextables LOCATION '…'.
_OF_TABLES = frozenset(
    ("owner", "provider", "location", "external", "comment", "collation", "is_managed_location")
)
_OPTION_OF_TABLE = "option."  # the same again

# What Spark keeps among the options of a stream's sink.
_OF_STREAMS = frozenset(("checkpointlocation", "queryname"))

# Options for files of other formats that cannot change which rows are read or written here.
_WITHOUT_EFFECT = (
    "charset", "compression", "compressioncodec", "codec", "dateformat", "delimiter",
    "emptyvalue", "encoding", "escape", "header", "ignoreleadingwhitespace",
    "ignoretrailingwhitespace", "inferschema", "linesep", "locale", "mode", "multiline",
    "nullvalue", "quote", "quoteall", "samplingratio", "sep", "timestampformat",
    "timestampntzformat",
)  # fmt: skip
_CHOOSE_ROWS = (
    "basePath", "columnNameOfCorruptRecord", "dropFieldIfAllNull", "endingTimestamp",
    "endingVersion", "ignoreCorruptFiles", "ignoreMissingFiles", "maxRecordsPerFile",
    "modifiedAfter", "modifiedBefore", "pathGlobFilter", "readChangeData", "readChangeFeed",
    "recursiveFileLookup", "startingTimestamp", "startingVersion", "txnAppId", "txnVersion",
    "maxFilesPerTrigger", "maxBytesPerTrigger", "ignoreDeletes", "ignoreChanges",
)  # fmt: skip
_REFUSED = {name.lower(): name for name in _CHOOSE_ROWS}
_INSTEAD = {
    "maxrecordsperfile": " spark.indextables.write.optimizeWrite.targetSplitSize sets the size of "
    "splits."
}


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """The rows that a read asks for: those that meet a condition, those that a search finds."""

    where: str | None = None
    search: str | None = None
    fields: tuple[str, ...] = ()
    mode: str = "query"
    """How the search is read: a mode of `Table.search`."""
    limit: int | None = None
    snippets: tuple[str, ...] = ()
    timezone: str = "UTC"
    """The time zone of times without one."""
    relation: str | None = None
    """What a query of Spark Connect asks of the table, as JSON; see `query.relations`."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ChosenRows:
        """Read the options, whose names are in lower case."""
        chosen = cls(
            where=options.get("where"),
            search=options.get("search"),
            fields=_names(options.get("fields")) or (),
            mode=options.get("searchmode", "query"),
            limit=_number("limit", options.get("limit")),
            snippets=_names(options.get("snippets")) or (),
            timezone=options.get("timezone", "UTC"),
            relation=options.get("relation"),
        )
        of_search = (
            chosen.fields,
            chosen.limit is not None,
            chosen.snippets,
            chosen.mode != "query",
        )
        if chosen.search is None and any(of_search):
            raise ConfigError(
                "The options fields, searchMode, limit and snippets belong to the option search."
            )
        return chosen

    def refuse(self) -> None:
        """Refuse options that choose rows where there are none to choose."""
        if self.where is not None or self.search is not None:
            name = "where" if self.where is not None else "search"
            raise ConfigError(
                f"The option {name} chooses rows of a read. Leave it out when rows are written; "
                "filter the DataFrame instead."
            )

    def needs_table(self, config: Callable[[], Config]) -> bool:
        """Whether the table has to rank the rows itself, because Spark's plans would do it wrong.

        They would score a search in the condition as well, and have no weights of fields, nor the
        fields that the table names for searches, nor modes; `config` is the table's.
        """
        if self.search is None:
            return False
        if self.mode != "query":
            return True
        if self.where is not None and mentions_search(self.where):
            return True
        if self.fields:
            return any("^" in name for name in self.fields)
        return bool(config()[SEARCH_FIELDS].strip())


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read or write, checked. Secrets are in no repr."""

    paths: tuple[str, ...]
    version: int | None = None
    timestamp: str | None = None
    merge_schema: bool = False
    overwrite_schema: bool = False
    replace_where: str | None = None
    dynamic: bool = False
    partition_by: tuple[str, ...] | None = None
    row_change: str | None = None
    """What a MERGE of Spark Connect writes, as JSON: its rows name those that they replace."""
    chosen: ChosenRows = ChosenRows()
    config: Mapping[str, object] = field(default_factory=dict, repr=False)
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)
    stores: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What there is for all stores, by the names of Hadoop and of the Scala product."""

    @classmethod
    def parse(
        cls, options: Mapping[str, str], session: Mapping[str, str] | None = None
    ) -> SourceOptions:
        """Read the options of a reader or writer; `session` is the session's configuration.

        >>> SourceOptions.parse({"path": "/data/docs", "versionAsOf": "3"}).version
        3
        """
        named = {name.lower(): value for name, value in options.items()}
        # A session's settings, handed on to a worker that has none.
        handed = {name: named.pop(name) for name in list(named) if name.startswith(_HADOOP)}
        session = {**handed, **(session or {})}
        mode = named.get("partitionoverwritemode", session.get(PARTITION_OVERWRITE_MODE, "static"))
        if mode.lower() not in ("static", "dynamic"):
            raise ConfigError(f"partitionOverwriteMode is static or dynamic, not {mode!r}.")
        own_keys = {name: value for name, value in named.items() if is_own_key(name)}
        table_config: dict[str, object] = {**session_keys(session)}
        table_config |= settled(
            {name: value for name, value in own_keys.items() if storage_key(name) is None}
        )
        if "mergeprecommit" in named:
            table_config[MERGE_PRECOMMIT.name] = named["mergeprecommit"]
        for_stores = _for_the_store(named)
        if "versionasof" in named and "timestampasof" in named:
            raise ConfigError("A read is of a version or of a time: versionAsOf or timestampAsOf.")
        paths = _paths(named)
        stores = {
            name.removeprefix(_HADOOP): value
            for name, value in session.items()
            if name.startswith(tuple(_HADOOP + prefix for prefix in _HADOOP_STORES.values()))
        }
        for settings in (session, own_keys):
            stores |= {n.lower(): v for n, v in settings.items() if storage_key(n) is not None}
        return cls(
            paths=paths,
            version=_number("versionAsOf", named.get("versionasof")),
            timestamp=named.get("timestampasof"),
            merge_schema=parse_boolean(named.get("mergeschema", "false"), name="mergeSchema"),
            overwrite_schema=parse_boolean(
                named.get("overwriteschema", "false"), name="overwriteSchema"
            ),
            replace_where=named.get("replacewhere"),
            dynamic=mode.lower() == "dynamic",
            partition_by=_names(named.get("partitionby")),
            row_change=named.get("rowchange"),
            chosen=ChosenRows.parse(named),
            config=table_config,
            storage={**_of_the_store(paths, stores), **for_stores},
            stores=stores,
        )

    @property
    def moment(self) -> str | int | None:
        """The time of a read: a text, or the milliseconds that a text of digits means."""
        text = self.timestamp
        return int(text) if text is not None and text.strip().isdecimal() else text

    def access(self, path: str | None = None) -> TableAccess:
        """The table at a path; without one, at the only path of the options."""

        if path is None:
            if len(self.paths) != 1:
                raise ConfigError(
                    "'path' is not specified: load(path), save(path) or option('path', …) names it."
                    if not self.paths
                    else f"Only one table can be written at once, not {', '.join(self.paths)}."
                )
            path = self.paths[0]
        return TableAccess(path, dict(self.config), dict(self.storage), dict(self.stores))


def _for_the_store(named: Mapping[str, str]) -> dict[str, str]:
    """The options that the store gets: not ours, not a catalog's, not of another format."""
    for_stores: dict[str, str] = {}
    for name, value in named.items():
        if name.startswith(_OPTION_OF_TABLE):
            continue
        if name in _REFUSED:
            raise ConfigError(
                f"The option {_REFUSED[name]} has no meaning for an index table. "
                f"Leave it out.{_INSTEAD.get(name, '')}"
            )
        if name in _WITHOUT_EFFECT:
            logger.warning(
                "'%s' is an option for files of other formats; index tables ignore it.", name
            )
        elif not (
            is_own_key(name)
            or name in _OURS | _OF_TABLES | _OF_STREAMS
            or name.startswith(_OPTION_OF_TABLE)
        ):
            for_stores[name] = value
    return for_stores


def _paths(named: Mapping[str, str]) -> tuple[str, ...]:
    several = json.loads(named["paths"]) if named.get("paths") else []
    single = [named["path"]] if named.get("path") else []
    return tuple(dict.fromkeys([*single, *several]))


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    if text.lstrip().startswith("["):
        return tuple(json.loads(text))
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal():
        meaning = "the number of a version" if name == "versionAsOf" else "a number of rows"
        raise ConfigError(f"{name} is {meaning}, not {text!r}.")
    return int(text)


def _of_the_store(paths: Sequence[str], stores: Mapping[str, str]) -> dict[str, str]:
    return store_settings(parse_location(paths[0]).scheme, stores) if paths else {}


def store_settings(scheme: str, stores: Mapping[str, str]) -> dict[str, str]:
    """What there is for the stores of one scheme, of settings for all."""
    origin = {name: value for name, value in stores.items() if storage_key(name) is not None}
    named_settings = {name: str(value) for name, value in own_names(origin, scheme).items()}
    prefix = _HADOOP_STORES.get(scheme)
    if prefix is None:
        return named_settings
    settings = {name: value for name, value in stores.items() if name.startswith(prefix)}
    hadoop = {n: v for n, v in settings.items() if n in _HADOOP_NAMES or prefix != "fs.s3a."}
    return {**hadoop, **named_settings}
