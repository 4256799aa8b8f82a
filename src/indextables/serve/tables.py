"""The served tables by name, and the facts about each that a page shows.

A name is all that a request can say: no request opens a place of its own. The newest version is
looked for at most once a second; a request that names a version gets a handle pinned to it.
"""

from __future__ import annotations

import copy
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import IndexTablesError
from indextables.plan.aggregation import groupable
from indextables.predicate.names import escaped_field
from indextables.schema import type_name
from indextables.table import Table

Open = Callable[[str, int | None], Table]
"""Opens a table at a place, at a version or the newest."""

_FRESH_S = 1.0
_PAST_VERSIONS = 8
_SAMPLED_ROWS = 2_000
_MOST_FACETS = 6
_FACET_VALUES = 40
_FACET_LENGTH = 64


class NoSuchTableError(IndexTablesError, KeyError):
    """A table that is not served."""

    def __init__(self, name: str, served: list[str]) -> None:
        self.name = name
        super().__init__(f"There is no table '{name}' here. Served: {', '.join(served)}.")


@dataclass(slots=True)
class _Newest:
    table: Table
    seen_s: float


@dataclass
class ServedTables:
    """Tables by name."""

    places: Mapping[str, str]
    open: Open = field(repr=False)

    def __post_init__(self) -> None:
        self._newest: dict[str, _Newest] = {}
        self._past: OrderedDict[tuple[str, int], Table] = OrderedDict()
        self._locks = {name: threading.Lock() for name in self.places}
        self._past_lock = threading.Lock()
        self._suggested: dict[tuple[str, str], Suggested] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def get(self, name: str, version: int | None = None) -> Table:
        """A table by its name, at a version or the newest."""
        if name not in self.places:
            raise NoSuchTableError(name, list(self.places))
        newest = self._refreshed(name)
        if version is None or version == version_of(newest):
            return newest
        key = (name, version)
        with self._past_lock:
            if (kept := self._past.get(key)) is not None:
                self._past.move_to_end(key)
                if kept.metadata().id == newest.metadata().id:
                    return kept
        if newest.view.elsewhere is not None:
            past = self.open(self.places[name], version)
        else:
            past = Table.of_log(newest.log, version=version)
        with self._past_lock:
            self._past[key] = past
            while len(self._past) > _PAST_VERSIONS:
                self._past.popitem(last=False)
        return past

    def _refreshed(self, name: str) -> Table:
        newest = self._newest.get(name)
        if newest is not None and time.monotonic() - newest.seen_s < _FRESH_S:
            return newest.table
        with self._locks[name]:
            newest, now = self._newest.get(name), time.monotonic()
            if newest is not None and now - newest.seen_s < _FRESH_S:
                return newest.table
            if newest is None or newest.table.view.elsewhere is not None:
                table = self.open(self.places[name], None)
                if newest is not None and table.view.revision == newest.table.view.revision:
                    table = newest.table
            else:
                table = copy.copy(newest.table).refresh()
                same = (table.version, table.metadata().id)
                if same == (newest.table.version, newest.table.metadata().id):
                    table = newest.table  # with all that it has opened
            table.view  # noqa: B018 - all of its files, before threads share it
            self._newest[name] = _Newest(table, now)
            return table

    def suggested(self, name: str, table: Table) -> Suggested:
        """Columns of a table for facets and for the histogram."""
        key = (name, table.view.revision)
        suggestion = self._suggested.get(key)
        if suggestion is None:
            suggestion = self._suggested[key] = _suggest(table)
            while len(self._suggested) > _PAST_VERSIONS * len(self.places):
                self._suggested.pop(next(iter(self._suggested)), None)
        return suggestion


@dataclass(frozen=True, slots=True)
class Suggested:
    """Columns that are worth counting."""

    facets: tuple[str, ...]
    time: str | None


def _suggest(table: Table) -> Suggested:
    """Columns with few short values, from a sample of rows, and the first column of times."""
    schema = table.schema
    times = [f.name for f in schema if pa.types.is_timestamp(f.type)]
    times += [f.name for f in schema if pa.types.is_date(f.type)]
    partitions = list(table.partition_columns)
    candidates = [
        f.name
        for f in schema
        if f.name not in partitions
        and groupable(f.type)
        and not pa.types.is_temporal(f.type)
        and not pa.types.is_binary(f.type)
        and not pa.types.is_decimal(f.type)
        and table.mapping.get(f.name) != "json"
    ]
    facets = [name for name in partitions if name not in times[:1]]
    if candidates:
        rows = table.scan(columns=candidates, limit=_SAMPLED_ROWS)
        exact = {name for name, field_type in table.mapping.items() if field_type == "string"}
        scores = {name: _few_values(rows[name], exact=name in exact) for name in candidates}
        # Texts and flags before numbers: a small number is often a count.
        facets += sorted(
            (name for name, values in scores.items() if values is not None),
            key=lambda name: (pa.types.is_integer(schema.field(name).type), scores[name]),
        )
    return Suggested(tuple(facets[:_MOST_FACETS]), times[0] if times else None)


def _few_values(column: Any, *, exact: bool) -> int | None:
    """How many different values there are, if they are few, short and come again.

    Of a column that is searched by whole values there may be more.
    """
    values: Any = pc.unique(column.drop_null())
    most = 12 if pa.types.is_integer(column.type) else _FACET_VALUES * (10 if exact else 1)
    if not 0 < len(values) <= min(most, max(2, len(column) // 2)):
        return None
    if pa.types.is_string(column.type) and pc.max(pc.utf8_length(values)).as_py() > _FACET_LENGTH:
        return None
    return len(values)


def version_of(table: Table) -> int:
    """The version of the rows: that of a search index's source, if it has versions."""
    elsewhere = table.view.elsewhere
    version = None if elsewhere is None else elsewhere.version
    return table.version if version is None else version


def facts(name: str, table: Table) -> dict[str, Any]:
    """What a table is, from its log alone."""
    view = table.view
    snapshot = view.shown.snapshot
    return {
        "name": name,
        "uri": table.uri,
        "title": table.name,
        "description": table.description,
        "version": version_of(table),
        "rows": table.count(),
        "splits": snapshot.num_files,
        "bytes": snapshot.total_bytes,
        "deleted_rows": snapshot.deleted_rows,
        "vector_files": len(snapshot.vector_files),
        "partition_columns": list(table.partition_columns),
    }


def search_field(name: str) -> str:
    r"""A column as a search query names it.

    >>> print(search_field("first name"), search_field("a.b"))
    first\ name a\.b
    """
    return _SPECIAL.sub(r"\\\g<0>", escaped_field([name]))


_SPECIAL = re.compile(r"[^\w.\\]")


def columns_of(table: Table) -> list[dict[str, Any]]:
    """The columns of a table and how each is searched."""
    mapping, snippets = table.view.shown.mapping.by_name, set(text_columns(table))
    return [
        {
            "name": column.name,
            "field": search_field(column.name),
            "type": type_name(column.type),
            "searched_as": mapping[column.name].kind
            if column.name in mapping and mapping[column.name].indexed
            else None,
            "text": column.name in snippets,
            "partition": column.name in table.partition_columns,
        }
        for column in table.schema
    ]


def text_columns(table: Table) -> list[str]:
    """The columns whose words are searched, and can be shown marked."""
    mapping = table.view.shown.mapping.by_name
    return [
        f.name
        for f in table.schema
        if pa.types.is_string(f.type)
        and (mapped := mapping.get(f.name)) is not None
        and mapped.kind == "text"
        and mapped.indexed
    ]
