"""A catalog whose tables are external files. It is read only.

Names come from a `FileSources`, found when the catalog is first asked: the part of the package that
knows such tables stands above this one. A source with a view is a view: what it defines is planned
by Spark over the table of all rows, which is in the namespace `all_rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from indextables.errors import ConfigError
from indextables.spark.bridge.catalog.file_tables import FileSource, FileTable
from indextables.spark.bridge.catalog.table_info import NamedCatalog, travels
from indextables.spark.bridge.jvm.handles import (
    V2,
    JavaObject,
    Jvm,
    implements,
)

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
    """Who knows the tables."""

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
        summaries = [summary.of(one, "EXTERNAL") for one in self._identifiers(namespace)]
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
            whole = f"{self._name}.{DEFAULT}.`{identifier.name()}`"
            return ConfigError(
                f"{self._shown(identifier)} shows the newest rows only and is a view, which needs "
                f"its whole name: {whole}."
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
        views = [one for one in self._identifiers(namespace) if self.viewExists(one)]
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
