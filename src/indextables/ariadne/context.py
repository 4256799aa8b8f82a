"""The session Ariadne works with, and where it keeps its indexes.

Everything is read from the active Spark session at the moment it is needed: the storage path, the
`spark.ariadne.*` keys and the credentials that the session has for its file systems.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from indextables.config import ARIADNE_PREFIX, ARIADNE_STORAGE_PATH, Config
from indextables.errors import (
    AriadneArgumentError,
    ConfigError,
    NoSessionError,
    StoragePathNotSetError,
)
from indextables.spark.options import SourceOptions
from indextables.spark.readwriter import session_settings
from indextables.storage import Store, canonical_uri, open_store
from indextables.storage.location import parse_location
from indextables.storage.options import client_settings

if TYPE_CHECKING:
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

# What the values that Spark reads from text, or computes, depend on beside the file itself.
_VALUE_SETTINGS = (
    "session.timeZone",
    "ansi.enabled",
    "caseSensitive",
    "timestampType",
    "legacy.timeParserPolicy",
    "columnNameOfCorruptRecord",
)
# The same, of settings that hardly anybody sets.
_SELDOM_SET = (
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
        """The context of a session; with a root, at that place whatever the session says now."""
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
        """Whether Spark finds columns of Parquet files by their numbers, whatever their names."""
        return self.settings.get("spark.sql.parquet.fieldId.read.enabled", "false") != "false"

    def storage_options(self, uri: str) -> dict[str, object]:
        """What the session tells about the store that serves a URI. Holds secrets."""
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
        found = {name: get("spark.sql." + name) for name in _VALUE_SETTINGS}
        seldom = {name: self.settings.get("spark.sql." + name) for name in _SELDOM_SET}
        found |= {name: value for name, value in seldom.items() if value is not None}
        return ";".join(f"{name}={value}" for name, value in found.items())


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
