"""A table at one version, as a query or a job sees it.

Every query and job takes one of these and does not ask the log again: it holds the files of
one version, the configuration in all its layers, and how the columns are searched. It is pickled to
tasks; `for_tasks` leaves out what only the driver needs.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import orjson
import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    SchemaError,
    SearchIndexError,
    UnknownColumnError,
    names_shown,
)
from indextables.log.actions import CONSTRAINT_PREFIX, Metadata
from indextables.log.files import REGISTRY_PREFIX, empty_files
from indextables.log.snapshot import Snapshot, empty_snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.column_names import ColumnNames, names_of, shown
from indextables.predicate import Expression, Predicate, Search, searches, walk
from indextables.predicate.names import resolve_field
from indextables.predicate.search_syntax import weighted_fields
from indextables.predicate.sql_text import parse_predicate
from indextables.split.mapping import MAPPING_PROPERTY, TableMapping
from indextables.split.row_filter import evaluate
from indextables.split.search import SearchContext
from indextables.split.search.query import Query, RepeatCache
from indextables.storage import Store
from indextables.xref.route import Router

SEARCH_INDEX_PROPERTY = "indextables.searchIndex"
"""The source of a search index, whose splits have no rows: `lake` reads those elsewhere."""
PARTITIONS_PROPERTY = "indextables.declaredPartitions"
"""Partitions that were added and need no rows; see `jobs.alter_columns`."""
LAYOUT_PROPERTY = "indextables.declaredLayout"
"""Buckets or clustering; see `jobs.write_target`."""
INTERNAL_PROPERTIES = (
    MAPPING_PROPERTY, REGISTRY_PREFIX, CONSTRAINT_PREFIX, SEARCH_INDEX_PROPERTY, LAYOUT_PROPERTY,
    PARTITIONS_PROPERTY,
)  # fmt: skip
"""The prefix of properties that users neither set nor see."""

_PREPARED = 262_144
"""Letters of searches that are kept prepared, times the columns that they may be asked of."""


class RowsElsewhere(Protocol):
    """The rows of a search index: their source."""

    @property
    def uri(self) -> str:
        """Of the source that has them."""
        ...

    @property
    def version(self) -> int | None:
        """Of the source, if it has versions."""
        ...

    @property
    def state(self) -> str:
        """Another text for other rows."""
        ...

    @property
    def unindexed_bytes(self) -> int:
        """The size of files whose rows are searched one by one."""
        ...

    def bytes_of(self, paths: Iterable[str]) -> int:
        """The size of the files that have the rows of these splits."""
        ...

    def environment(self, plain: Any) -> Any:
        """The reader of those rows, made from an `Environment`."""
        ...

    def __str__(self) -> str:
        """The source, and how much of it is indexed."""
        ...


@dataclass(frozen=True, eq=False)
class TableView:
    """A table at one version.

    `settings` are the layers above the table's own properties: options and the session.
    """

    store: Store = field(repr=False)
    snapshot: Snapshot
    settings: Config = field(repr=False)
    elsewhere: RowsElsewhere | None = field(default=None, repr=False)
    """Of a search index: its splits hold no rows."""

    @classmethod
    def newest(cls, log: TransactionLog, settings: Config | None = None) -> TableView:
        """The newest version of a log, of a table with rows of its own."""
        snapshot = log.snapshot()
        refuse_search_index(snapshot.metadata, uri=log.store.uri)
        return cls(log.store, snapshot, log.config if settings is None else settings)

    @classmethod
    def planned(cls, store: Store, metadata: Metadata, settings: Config) -> TableView:
        """A table that is not there yet."""
        return cls(store, replace(empty_snapshot(store.uri), metadata=metadata), settings)

    def at(self, snapshot: Snapshot) -> TableView:
        """Another version of the same table."""
        return replace(self, snapshot=snapshot)

    def with_settings(self, settings: Config) -> TableView:
        """The same version under other layers."""
        return replace(self, settings=settings)

    def for_tasks(self) -> TableView:
        """The same without files and cross-references, for tasks that get theirs."""
        bare = replace(
            self.snapshot, base_files=empty_files(), changes={}, xrefs={}, skips={}, txns={}
        )
        return replace(self, snapshot=bare)

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self.snapshot.uri

    @property
    def version(self) -> int:
        """The version; -1 before the first commit."""
        return self.snapshot.version

    @property
    def revision(self) -> str:
        """Another text for other rows, or another table at the same place."""
        state = "" if self.elsewhere is None else f" {self.elsewhere.state}"
        return f"{self.snapshot.metadata.id} version={self.version}{state}"

    @property
    def schema(self) -> pa.Schema:
        """The columns by their stored names, partition columns included."""
        return self.snapshot.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns whose values are folders."""
        return self.snapshot.partition_columns

    @functools.cached_property
    def names(self) -> ColumnNames:
        """The names of columns that users have, and those that are stored."""
        return names_of(self.snapshot)

    @functools.cached_property
    def shown(self) -> TableView:
        """The same with the names that users have; its files have the stored ones."""
        return self if self.names.is_plain else self.at(shown(self.snapshot))

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties, without those that say how its index is laid out."""
        every = self.snapshot.metadata.configuration.items()
        return {name: value for name, value in every if not name.startswith(INTERNAL_PROPERTIES)}

    @functools.cached_property
    def config(self) -> Config:
        """All layers: the settings, then the properties that a table may set."""
        return self.settings.over_properties(self.snapshot.metadata.configuration)

    @functools.cached_property
    def mapping(self) -> TableMapping:
        """How the columns are searched."""
        stored = mapping_of(self.snapshot.metadata, uri=self.uri)
        return stored.with_synonyms(self.config[keys.SEARCH_SYNONYMS])

    @property
    def carried_mapping(self) -> str | None:
        """The mapping as JSON, synonyms included, for searches of values of these columns.

        None of a table that another product wrote.
        """
        stored = self.snapshot.metadata.configuration.get(MAPPING_PROPERTY)
        return None if stored is None else self.mapping.to_json(with_synonyms=True)

    @functools.cached_property
    def context(self) -> SearchContext:
        """The mapping, schema and limits by which searches of this table are resolved."""
        return SearchContext(
            self.schema,
            self.mapping,
            zone=ZoneInfo("UTC"),
            max_expansions=self.config[keys.MAX_EXPANSIONS],
        )

    @functools.cached_property
    def kept(self) -> dict[Hashable, Any]:
        """Results that queries of this version share."""
        return {}

    @functools.cached_property
    def prepared(self) -> RepeatCache[Search]:
        """Searches as they were written, parsed and checked: by all that they depend on beside
        this version and its configuration."""
        return RepeatCache(_PREPARED)

    @functools.cached_property
    def router(self) -> Router:
        """The router, which asks the cross-references."""
        return Router(self.store, self.snapshot.xrefs, self.config, lambda: self.context)

    def condition(self, where: str | Predicate, *, timezone: str = "UTC") -> Predicate:
        """A condition on the columns that users see, for the stored ones; raises what is wrong."""
        predicate = where
        if isinstance(predicate, str):
            predicate = parse_predicate(
                predicate,
                self.names.shown,
                timezone=timezone,
                max_query_length=self.config[keys.INDEXQUERY_MAX_LENGTH],
                max_query_depth=self.config[keys.INDEXQUERY_MAX_DEPTH],
                expressions=True,
            )
        for node in walk(predicate):
            if isinstance(node, Expression):
                # Without rows nothing is computed, but names, functions and types are checked.
                evaluate(node, self.names.shown.empty_table())
        self.shown.check_searches(predicate)
        return self.names.stored_predicate(predicate)

    def check_searches(self, predicate: Predicate) -> None:
        """Refuse searches that the mapping cannot answer, before any split is opened."""
        for search in searches(predicate):
            self.resolved(search)

    def resolved(self, search: Search) -> Query:
        """A search bound to the fields of the mapping; the same one is not bound again soon."""
        return self.context.resolved(search)

    def __getstate__(self) -> dict[str, object]:
        kept = ("store", "snapshot", "settings", "elsewhere")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


def refuse_search_index(metadata: Metadata, *, uri: str) -> None:
    """Refuse what needs the rows inside of splits, or would change them."""
    text = metadata.configuration.get(SEARCH_INDEX_PROPERTY)
    if text is not None:
        raise SearchIndexError.of_rows(uri, orjson.loads(text)["source"])


def mapping_of(metadata: Metadata, *, uri: str) -> TableMapping:
    """How the columns of a table are searched, by its metadata."""
    refuse_search_index(metadata, uri=uri)
    text = metadata.configuration.get(MAPPING_PROPERTY)
    if text is None:
        raise SchemaError(
            f"'{uri}' was not written by this product: its log can be read, its splits cannot. "
            "Read it with the product that wrote it, and write the rows to a new table."
        )
    return mapping_from_json(text)


@functools.lru_cache(maxsize=256)  # every query of a table asks for the same
def mapping_from_json(text: str) -> TableMapping:
    """A mapping as it is stored."""
    return TableMapping.from_json(text)


def default_fields(config: Config, columns: pa.Schema, mapping: TableMapping) -> dict[str, float]:
    """The fields that a ranked search has if it names none, with weights; none if all are searched.

    All with the names that users see.
    """
    names = [name.strip() for name in config[keys.SEARCH_FIELDS].split(",")]
    change = "Change the property of the table, or pass fields=…."
    try:
        weights = weighted_fields([name for name in names if name], columns)
    except UnknownColumnError as error:
        raise SchemaError(
            f"{keys.SEARCH_FIELDS.name} names '{error.column}', which is not a column of the "
            f"table: there are {names_shown(columns.names, like=error.column)}. {change}"
        ) from None
    except SchemaError as error:
        raise SchemaError(f"{keys.SEARCH_FIELDS.name}: {error}") from None
    for searched in weights:
        name, _ = resolve_field(searched, columns) or (searched, ())
        if not mapping.by_name[name].indexed:
            raise SchemaError(
                f"{keys.SEARCH_FIELDS.name} names '{name}', which is not indexed. {change}"
            )
    return weights
