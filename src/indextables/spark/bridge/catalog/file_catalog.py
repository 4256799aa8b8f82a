"""A catalog whose tables are external files, and those tables. It is read only.

Names come from a `FileSources`, found when the catalog is first asked: the part of the package that
knows such tables stands above this one. A source with a view is a view: what it defines is planned
by Spark over the table of all rows, which is in the namespace `all_rows`.

A `FileSource` names the files that a condition needs; the rows are read by Spark's own reader of
their format, with its column pruning and its filters. Conditions are only used to choose files:
Spark checks every row itself. At run time a join may send its keys (dynamic filters); the files are
then chosen again, before the first one is read.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from indextables.errors import ConfigError, QueryError
from indextables.predicate import TRUE, Predicate, conjunction, searches
from indextables.spark.bridge.catalog.table_info import NamedCatalog, travels
from indextables.spark.bridge.jvm.handles import (
    V2,
    Comparable,
    JavaObject,
    Jvm,
    Unique,
    implements,
)
from indextables.spark.bridge.scan.description import Described, Statistics
from indextables.spark.bridge.scan.filters import Translator, condition, parse_filters
from indextables.spark.bridge.scan.native import ListedFile, file_index

_V2_FILES = "org.apache.spark.sql.execution.datasources.v2."
_BUILDERS = {
    "parquet": _V2_FILES + "parquet.ParquetScanBuilder",
    "csv": _V2_FILES + "csv.CSVScanBuilder",
    "json": _V2_FILES + "json.JsonScanBuilder",
}
_MAX_QUERY_LENGTH = 1 << 20
_MAX_QUERY_DEPTH = 1_000


class FileSource(Protocol):
    """A table whose rows are the rows of files."""

    @property
    def name(self) -> str:
        """The table's name."""
        ...

    @property
    def key(self) -> str:
        """Equal for two sources exactly when they have the same rows."""
        ...

    @property
    def schema(self) -> StructType:
        """The columns."""
        ...

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns, as conditions are translated for them."""
        ...

    @property
    def format(self) -> str:
        """parquet, csv or json."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """Options of the reader."""
        ...

    @property
    def properties(self) -> dict[str, str]:
        """What DESCRIBE shows."""
        ...

    @property
    def filtered_columns(self) -> Sequence[str]:
        """Columns by whose values files can be chosen."""
        ...

    @property
    def total(self) -> int:
        """How many files there are."""
        ...

    def files(self, predicate: Predicate) -> Sequence[ListedFile]:
        """The files that may hold a row for which the condition is true."""
        ...


@implements("catalog.SupportsRead")
class FileTable(Comparable):
    """A table of files at one moment."""

    def __init__(self, java: Jvm, source: FileSource) -> None:
        self.java = java
        self._source = source

    def key(self) -> str:
        return f"FileTable {self._source.key}"

    def name(self) -> str:
        return self._source.name

    def id(self) -> str:
        return self._source.key

    def version(self) -> str:
        return hashlib.blake2b(self._source.key.encode(), digest_size=8).hexdigest()

    @functools.cached_property
    def _schema(self) -> JavaObject:
        return self.java.struct_type(self._source.schema)

    def schema(self) -> JavaObject:
        return self._schema

    @functools.cached_property
    def _columns(self) -> JavaObject:
        convert = self.java.find(V2 + "catalog.CatalogV2Util").structTypeToV2Columns
        try:
            return convert(self._schema, True)
        except Exception:  # Spark 4.1 takes one argument
            return convert(self._schema)

    def columns(self) -> JavaObject:
        return self._columns

    def partitioning(self) -> JavaObject:
        return self.java.array(V2 + "expressions.Transform")

    def properties(self) -> JavaObject:
        return self.java.hash_map(self._source.properties)

    def constraints(self) -> JavaObject:
        return self.java.array(V2 + "catalog.constraints.Constraint")

    def capabilities(self) -> JavaObject:
        capability = self.java.find(V2 + "catalog.TableCapability")
        return self.java.find("java.util.HashSet")([capability.BATCH_READ])

    def newScanBuilder(self, _options: JavaObject) -> JavaObject:  # noqa: N802
        return FileScanBuilder(self.java, self._source, self._schema)


@implements(
    "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
    "read.SupportsPushDownRequiredColumns",
)
class FileScanBuilder(Unique):
    """Collects filters and columns, then chooses the files."""

    def __init__(self, java: Jvm, source: FileSource, schema: JavaObject) -> None:
        self.java = java
        self._source = source
        self._full = self._schema = schema
        self._predicate: Predicate = TRUE
        self._pushed: list[JavaObject] = []

    def pushFilters(self, filters: JavaObject) -> JavaObject:  # noqa: N802
        translator = Translator(
            self._source.arrow_schema,
            self.java.conf.sessionLocalTimeZone(),
            _MAX_QUERY_LENGTH,
            _MAX_QUERY_DEPTH,
        )
        parts: list[Predicate] = []
        translated = translator.translate(filters, parse_filters(self.java, filters))
        for number, predicate in enumerate(translated):
            if predicate is not None:
                parts.append(predicate)
                if not searches(predicate):
                    self._pushed.append(filters.apply(number))
        self._predicate = conjunction(*parts)
        return filters  # files are chosen by them, rows are checked by Spark

    def pushedFilters(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "expressions.filter.Predicate")

    def pruneColumns(self, schema: JavaObject) -> None:  # noqa: N802
        self._schema = schema

    def build(self) -> JavaObject:
        return FileScan(
            self.java,
            self._source,
            self._full,
            self._schema,
            predicate=self._predicate,
            pushed=self._pushed,
        )


@implements("read.SupportsReportStatistics", "read.SupportsRuntimeV2Filtering")
class FileScan(Comparable):
    """A scan of the files that were chosen; Spark's own scan does the reading.

    Spark says `filter`, then asks for a batch, on one thread. Another part of the plan may hold the
    same scan without that join, so only this next batch of this thread has fewer files.
    """

    def __init__(
        self,
        java: Jvm,
        source: FileSource,
        full: JavaObject,
        schema: JavaObject,
        *,
        predicate: Predicate,
        pushed: Sequence[JavaObject],
    ) -> None:
        self.java = java
        self._source = source
        self._full = full
        self._schema = schema
        self._predicate = predicate
        self._pushed = pushed
        self._files = tuple(source.files(predicate))
        self._left = threading.local()

    def key(self) -> str:
        return f"{self._source.key} {self._predicate} {self._schema.json()} {len(self._files)}"

    def readSchema(self) -> JavaObject:  # noqa: N802
        return self._schema

    def description(self) -> str:
        parts = [f"Files of {self._source.name}"]
        if self._predicate != TRUE:
            parts.append(f"where {self._predicate}")
        parts.append(f"files {len(self._files):,} of {self._source.total:,}")
        return ", ".join(parts)

    def toBatch(self) -> JavaObject:  # noqa: N802
        left: tuple[ListedFile, ...] | None = self._left.__dict__.pop("files", None)
        if left is None or len(left) == len(self._files):
            return self._batch
        return self._batch_of(left)

    @functools.cached_property
    def _batch(self) -> JavaObject:
        return self._batch_of(self._files)

    def columnarSupportMode(self) -> JavaObject:  # noqa: N802
        modes = self.java.find("org.apache.spark.sql.connector.read.Scan$ColumnarSupportMode")
        return modes.PARTITION_DEFINED

    def reflectsFullyPushedDownFilters(self) -> bool:  # noqa: N802
        return False

    def estimateStatistics(self) -> JavaObject:  # noqa: N802
        size = sum(file.size for file in self._files)
        return Statistics(self.java, Described(self.description(), self.key(), None, size))

    def estimateSizeInBytes(self) -> JavaObject:  # noqa: N802
        size = sum(file.size for file in self._files)
        return self.java.find("java.util.OptionalLong").of(size)

    def supportedCustomMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "metric.CustomMetric")

    def reportDriverMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "metric.CustomTaskMetric")

    # --- keys of joins -----------------------------------------------------------------------

    def filterAttributes(self) -> JavaObject:  # noqa: N802
        read = set(self._schema.fieldNames())
        return self.java.references(
            tuple(name for name in self._source.filtered_columns if name in read)
        )

    def filter(self, predicates: JavaObject) -> None:
        conditions = [self._predicate]
        for predicate in predicates:
            try:
                conditions.append(condition(predicate, self._source.arrow_schema))
            except QueryError:
                continue  # without it more files are read, never fewer
        self._left.files = tuple(self._source.files(conjunction(*conditions)))

    def supportsIterativePushdown(self) -> bool:  # noqa: N802
        return False

    def pushedPredicates(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "expressions.filter.Predicate")

    def _batch_of(self, files: Sequence[ListedFile]) -> JavaObject:
        java = self.java
        options = java.find("org.apache.spark.sql.util.CaseInsensitiveStringMap")(
            java.hash_map(self._source.options)
        )
        index, _ = file_index(java, files, self._full, {})
        builder: Any = java.find(_BUILDERS[self._source.format])(
            java.session, index, self._full, self._full, options
        )
        builder.pushFilters(java.seq(self._pushed))
        builder.pruneColumns(self._schema)
        return builder.build().toBatch()


# --- the catalog -----------------------------------------------------------------------------

DEFAULT = "default"
ALL_ROWS = "all_rows"
"""The namespace of tables without the view that their plain name stands for."""
_ANALYSIS = "org.apache.spark.sql.catalyst.analysis."


@dataclass(frozen=True, slots=True)
class Definition:
    """What a name stands for: a table of files, or a query over it."""

    source: FileSource
    query: str | None = None
    """Spark SQL over `<catalog>.all_rows.<name>`."""


class FileSources(Protocol):
    """The tables of a catalog, by name."""

    def names(self) -> list[str]:
        """The names of all tables, in order."""
        ...

    def find(self, name: str, *, catalog: str) -> Definition | None:
        """What a name stands for now; None if there is no such table."""
        ...


class _FileCatalog(NamedCatalog):
    def __init__(self, java: Jvm, name: str, sources: Callable[[], FileSources]) -> None:
        super().__init__(java, name)
        self._sources = sources

    def defaultNamespace(self) -> JavaObject:  # noqa: N802
        return self.java.strings([DEFAULT])

    # --- tables ------------------------------------------------------------------------------

    def loadTable(self, identifier: JavaObject, *more: Any) -> JavaObject:  # noqa: N802
        if any(map(_travels, more)):
            raise self._refused("keeps no older versions of its tables")
        definition = self._definition(identifier)
        if definition.query is not None and not self._wants_all(identifier):
            raise self._is_view(identifier)
        return FileTable(self.java, definition.source)

    def _is_view(self, identifier: JavaObject) -> Exception:
        return ConfigError(
            f"{self._shown(identifier)} shows the newest rows only, which takes a view, and "
            f"catalogs have those from Spark 4.3 on. Read {self._name}.{ALL_ROWS}."
            f"`{identifier.name()}`, or join with the index itself."
        )

    def tableExists(self, identifier: JavaObject) -> bool:  # noqa: N802
        return self._find(identifier) is not None

    def invalidateTable(self, _identifier: JavaObject) -> None:  # noqa: N802
        return None

    def listTables(self, namespace: JavaObject) -> JavaObject:  # noqa: N802
        return self._identifiers(namespace)

    def listTableSummaries(self, namespace: JavaObject) -> JavaObject:  # noqa: N802
        summary = self.java.find(V2 + "catalog.TableSummary")
        summaries = [
            summary.of(identifier, "EXTERNAL") for identifier in self._identifiers(namespace)
        ]
        return self.java.array(V2 + "catalog.TableSummary", summaries)

    def createTable(self, *_arguments: Any) -> JavaObject:  # noqa: N802
        raise self._read_only()

    def createTableLike(self, *_arguments: Any) -> JavaObject:  # noqa: N802
        raise self._read_only()

    def alterTable(self, *_arguments: Any) -> JavaObject:  # noqa: N802
        raise self._read_only()

    def dropTable(self, _identifier: JavaObject) -> bool:  # noqa: N802
        raise self._read_only()

    def purgeTable(self, _identifier: JavaObject) -> bool:  # noqa: N802
        raise self._read_only()

    def renameTable(self, *_arguments: Any) -> None:  # noqa: N802
        raise self._read_only()

    # --- namespaces --------------------------------------------------------------------------

    def listNamespaces(self, parent: JavaObject | None = None) -> JavaObject:  # noqa: N802
        names = [] if list(parent or ()) else [DEFAULT]
        array = self.java.gateway.new_array(self.java.find("java.lang.String"), len(names), 1)
        for number, name in enumerate(names):
            array[number][0] = name
        return array

    def namespaceExists(self, namespace: JavaObject) -> bool:  # noqa: N802
        return list(namespace) in ([], [DEFAULT], [ALL_ROWS])

    def loadNamespaceMetadata(self, namespace: JavaObject) -> JavaObject:  # noqa: N802
        if not self.namespaceExists(namespace):
            raise self._exception("NoSuchNamespaceException", namespace)
        return self.java.hash_map({})

    def createNamespace(self, *_arguments: Any) -> None:  # noqa: N802
        raise self._read_only()

    def alterNamespace(self, *_arguments: Any) -> None:  # noqa: N802
        raise self._read_only()

    def dropNamespace(self, *_arguments: Any) -> bool:  # noqa: N802
        raise self._read_only()

    # --- parts -------------------------------------------------------------------------------

    def _identifiers(self, namespace: JavaObject) -> JavaObject:
        parts = list(namespace)
        make = self.java.find(V2 + "catalog.Identifier")
        names = self._sources().names() if self.namespaceExists(namespace) else []
        identifiers = [make.of(self.java.strings(parts or [DEFAULT]), name) for name in names]
        return self.java.array(V2 + "catalog.Identifier", identifiers)

    def _find(self, identifier: JavaObject) -> Definition | None:
        if not self.namespaceExists(identifier.namespace()):
            return None
        return self._sources().find(identifier.name(), catalog=self._name)

    def _definition(self, identifier: JavaObject) -> Definition:
        definition = self._find(identifier)
        if definition is None:
            raise self._exception("NoSuchTableException", identifier)
        return definition

    def _wants_all(self, identifier: JavaObject) -> bool:
        return list(identifier.namespace()) == [ALL_ROWS]

    def _shown(self, identifier: JavaObject) -> str:
        return ".".join([self._name, *identifier.namespace(), identifier.name()])

    def _read_only(self) -> Exception:
        return self._refused("is read only: its tables are the indexes that Python made")

    def _refused(self, reason: str) -> Exception:
        return self.java.refusal(
            f"The catalog {self._name} {reason}.", "UnsupportedOperationException"
        )

    def _exception(self, name: str, subject: JavaObject) -> Exception:
        return self.java.exception(_ANALYSIS + name, subject)


@implements("catalog.TableCatalog", "catalog.SupportsNamespaces")
class TableCatalog(_FileCatalog):
    """The catalog before Spark 4.3, without views."""


@implements("catalog.RelationCatalog", "catalog.SupportsNamespaces")
class ViewingCatalog(_FileCatalog):
    """The catalog from Spark 4.3 on, where a name may be a view."""

    def _is_view(self, identifier: JavaObject) -> Exception:
        if not list(identifier.namespace()):
            # Spark 4.3 cannot name a view without a namespace and fails on an assertion.
            full_name = f"{self._name}.{DEFAULT}.`{identifier.name()}`"
            return ConfigError(
                f"{self._shown(identifier)} shows the newest rows only and is a view, which needs "
                f"its whole name: {full_name}."
            )
        return self._exception("NoSuchTableException", identifier)  # Spark then asks for the view

    def loadRelation(self, identifier: JavaObject) -> JavaObject:  # noqa: N802
        definition = self._definition(identifier)
        if definition.query is None or self._wants_all(identifier):
            return FileTable(self.java, definition.source)
        if not list(identifier.namespace()):
            raise self._is_view(identifier)
        return self._view(definition)

    def loadView(self, identifier: JavaObject) -> JavaObject:  # noqa: N802
        definition = self._find(identifier)
        if definition is None or definition.query is None or self._wants_all(identifier):
            raise self._exception("NoSuchViewException", identifier)
        return self._view(definition)

    def viewExists(self, identifier: JavaObject) -> bool:  # noqa: N802
        definition = self._find(identifier)
        return (
            definition is not None
            and definition.query is not None
            and not self._wants_all(identifier)
        )

    def tableExists(self, identifier: JavaObject) -> bool:  # noqa: N802
        return self._find(identifier) is not None and not self.viewExists(identifier)

    def listViews(self, namespace: JavaObject) -> JavaObject:  # noqa: N802
        views = [
            identifier for identifier in self._identifiers(namespace) if self.viewExists(identifier)
        ]
        return self.java.array(V2 + "catalog.Identifier", views)

    def listRelationSummaries(self, namespace: JavaObject) -> JavaObject:  # noqa: N802
        return self.listTableSummaries(namespace)

    def invalidateView(self, _identifier: JavaObject) -> None:  # noqa: N802
        return None

    def createView(self, *_arguments: Any) -> JavaObject:  # noqa: N802
        raise self._read_only()

    def replaceView(self, *_arguments: Any) -> JavaObject:  # noqa: N802
        raise self._read_only()

    def createOrReplaceView(self, *_arguments: Any) -> JavaObject:  # noqa: N802
        raise self._read_only()

    def dropView(self, _identifier: JavaObject) -> bool:  # noqa: N802
        raise self._read_only()

    def renameView(self, *_arguments: Any) -> None:  # noqa: N802
        raise self._read_only()

    def _view(self, definition: Definition) -> JavaObject:
        names = definition.source.schema.names
        builder = self.java.find(V2 + "catalog.View$Builder")()
        builder = builder.withSchema(self.java.struct_type(definition.source.schema))
        builder = builder.withProperties(self.java.hash_map(definition.source.properties))
        builder = builder.withQueryText(definition.query).withCurrentCatalog(self._name)
        builder = builder.withCurrentNamespace(self.java.strings([DEFAULT]))
        builder = builder.withSqlConfigs(self.java.hash_map({}))
        return builder.withQueryColumnNames(self.java.strings(names)).build()


def _travels(version: Any) -> bool:
    """Whether Spark asks for an older version, in any of the forms that it has for that."""
    return isinstance(version, str | int) or travels(version)


def file_catalog(java: Jvm, name: str, sources: Callable[[], FileSources]) -> _FileCatalog:
    """The catalog that this Spark can have."""
    try:
        java.jvm.java.lang.Class.forName(V2 + "catalog.RelationCatalog")
    except Exception:
        return TableCatalog(java, name, sources)
    return ViewingCatalog(java, name, sources)
