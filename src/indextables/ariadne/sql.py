"""Indexes as tables of SQL: the catalog `ariadne`.

::

    SHOW TABLES IN ariadne
    SELECT name FROM ariadne.orders WHERE customer = 42 AND day > '2024-01-15'

Each index is a read-only table with the columns of its files; computed columns and aliases are not
shown. Conditions on index columns leave files out, the rest is Spark's own reader: column pruning,
vectorised Parquet, filters on row groups. A join sends its keys while the query runs wherever Spark
makes a dynamic filter of them, which it does when the other side is small and filtered.

An index with temporal columns shows the newest rows only, as its joins do. It is a view, which
Spark supports in catalogs from 4.3 on and by its full name only: `ariadne.default.<name>`.
`ariadne.all_rows.<name>` shows all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from indextables.ariadne.declarations import Exploded, Temporal
from indextables.ariadne.files.read import FIXED_OPTIONS, for_spark, spark_schema, stat
from indextables.ariadne.files.rows import newest_sql, nullable
from indextables.ariadne.opening import IndexView
from indextables.ariadne.store.place import (
    Context,
    IndexPlace,
    check_name,
    index_names,
)
from indextables.errors import AriadneArgumentError, SourceFileMissingError
from indextables.predicate import TRUE, Predicate
from indextables.predicate.literals import quoted_name
from indextables.spark.bridge.catalog import file_catalog
from indextables.spark.bridge.scan import native
from indextables.spark.bridge.sessions import bridge_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "ariadne"
_LISTING_OPTIONS = ("basepath", "pathglobfilter", "modifiedbefore", "modifiedafter")
"""Read options that Spark follows while it lists folders. Here the index chooses the files."""


@dataclass(frozen=True)
class IndexSource:
    """One version of an index as a table of its files."""

    view: IndexView

    @property
    def name(self) -> str:
        """The table's name."""
        return f"{NAME}.{self.view.place.name}"

    @property
    def key(self) -> str:
        """The identity of this version of the table."""
        return f"{self.view.place.uri} {self.view.lookup.data.version} {self.view.metadata.schema}"

    @cached_property
    def schema(self) -> StructType:
        """The columns of the files. Each may be null, whatever the schema says."""
        columns: StructType = nullable(spark_schema(self.view.metadata, name=self.view.place.name))
        return columns

    @property
    def arrow_schema(self) -> pa.Schema:
        """The same for conditions."""
        return self.view.lookup.schema

    @property
    def format(self) -> str:
        """The format of the files."""
        return self.view.metadata.format

    @property
    def options(self) -> dict[str, str]:
        """How they are read; a file that cannot be read is an error, never left out."""
        return {**self.view.metadata.read_options, **FIXED_OPTIONS}

    @property
    def properties(self) -> dict[str, str]:
        """What DESCRIBE EXTENDED shows."""
        declared = self.view.lookup.data.declarations
        return {
            "provider": NAME,
            "location": self.view.place.uri,
            "format": self.format,
            "indexes": ", ".join(f"{d.name} ({d.kind})" for d in declared),
        }

    @property
    def filtered_columns(self) -> Sequence[str]:
        """Index columns that are columns of the files."""
        declared = [d for d in self.view.lookup.data.declarations if not isinstance(d, Exploded)]
        columns = set(self.schema.names)
        return [
            d.name for d in declared if d.name in columns and d.kind not in ("text", "computed")
        ]

    @property
    def total(self) -> int:
        """How many files there are."""
        return len(self.view.lookup.data.filenames)

    def files(self, predicate: Predicate) -> list[native.ListedFile]:
        """The files that may hold matching rows, as they are now."""
        lookup = self.view.lookup
        located = lookup.everything() if predicate == TRUE else lookup.where(predicate)
        missing = sorted(set(located.files) & set(lookup.data.missing))
        metas = stat([f for f in located.files if f not in missing], self.view.place.context.store)
        missing += sorted(name for name, meta in metas.items() if meta is None)
        if missing:
            raise SourceFileMissingError(self.view.place.name, missing)
        return [
            native.ListedFile(_hadoop(name), meta.size, meta.modified_ms)
            for name, meta in metas.items()
            if meta is not None
        ]


def _hadoop(path: str) -> str:
    spelled = for_spark(path)
    return f"file:{spelled}" if spelled.startswith("/") else spelled


@dataclass(frozen=True)
class IndexSources:
    """All indexes below the active session's storage path."""

    def names(self) -> list[str]:
        """The names of the indexes."""
        return index_names(Context.current())

    def find(self, name: str, *, catalog: str) -> file_catalog.Definition | None:
        """The table of an index, and the query that selects its newest rows if it needs one."""
        place = IndexPlace(Context.current(), check_name(name))
        if not place.exists():
            return None
        view = IndexView.of(place, all_rows=True)
        options = [o for o in view.metadata.read_options if o.lower() in _LISTING_OPTIONS]
        if options:
            problems = [f"SQL does not follow the read option '{option}'" for option in options]
            raise AriadneArgumentError(f"Cannot show '{name}'", [*problems, "use its joins"])
        source = IndexSource(view)
        temporal = [d for d in view.metadata.declarations if isinstance(d, Temporal)]
        if not temporal:
            return file_catalog.Definition(source)
        table = f"{catalog}.{file_catalog.ALL_ROWS}.{quoted_name(name)}"
        return file_catalog.Definition(source, newest_sql(source.schema, temporal, table))


def sources(_spark: SparkSession) -> IndexSources:
    """What the catalog `ariadne` of a session lists and finds."""
    return IndexSources()


def install(spark: SparkSession) -> None:
    """Add the catalog to an enabled session whose storage path was set later."""
    bridge = bridge_of(spark)
    if bridge is not None:
        bridge.add_file_catalog(NAME, lambda: sources(spark))
