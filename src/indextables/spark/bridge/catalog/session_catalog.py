"""Bare names: index tables in Spark's own catalog, `spark_catalog`.

Spark lets a catalog stand before its own one. This one hands everything on, except tables whose
provider is ours: those are loaded, created, changed and dropped here, and only their names and
places are kept in Spark's catalog. Without a metastore Spark forgets names when it stops; a table
that is in its place in the warehouse is then found there by its name. SHOW TABLES asks
Spark alone, so such names are registered with Spark before it answers (`remember`).
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors.exceptions.captured import CapturedException

from indextables.errors import ConfigError, IndexTablesError, first_line
from indextables.plan.access import NAME, PROVIDERS, SPARK_CATALOG, TableAccess, invalidate_logs
from indextables.plan.column_names import names_of
from indextables.spark.bridge.catalog.alter_table import CONSTRAINT_CHANGES
from indextables.spark.bridge.catalog.catalog import CAPABILITIES, Catalog, check_same_place
from indextables.spark.bridge.catalog.table_info import (
    as_written,
    copied_info,
    has_constraints,
    options_in,
    table_info,
)
from indextables.spark.bridge.jvm.handles import (
    V2,
    Comparable,
    JavaObject,
    Jvm,
    guarded_call,
    implements,
)
from indextables.spark.bridge.sessions import java_dict, scala_dict
from indextables.spark.schemas import spark_schema
from indextables.storage.location import HIDDEN, parse_location

logger = logging.getLogger(__name__)

_PLAIN_NAME = re.compile(r"\w+")  # what Spark takes for the name of a table


# Says of a name that was found in the warehouse: the table's files go with it.
_MANAGED = "indextables.managed"
_OF_SPARK = ("path", "serialization.format")  # what Spark keeps beside the options of a table


def install(java: Jvm, catalogs: JavaObject, tables: Catalog) -> SessionCatalog:
    """Let index tables be tables of Spark's own catalog.

    Spark has a setting for that, but it names a class, and sessions that Spark clones from this one
    (for `foreachBatch`, for cached queries) would not find it. So the catalog itself is
    exchanged, in this session only.
    """
    manager = java.session.sessionState().catalogManager()
    below = manager.v2SessionCatalog()
    installed = SessionCatalog(java, below, tables)
    field = _field(manager.getClass(), "defaultSessionCatalog")
    if field.get(manager).equals(below):
        field.set(manager, installed)
    else:  # a catalog that the user configured; it stays below
        catalogs.put(SPARK_CATALOG, installed)
    return installed


def _field(owner: JavaObject, name: str) -> JavaObject:
    """A field of a class, by reflection."""
    field = owner.getDeclaredField(name)
    field.setAccessible(True)
    return field


@implements("catalog.CatalogExtension", "catalog.StagingTableCatalog")
class SessionCatalog(Comparable):
    """Spark's catalog with index tables in it."""

    def __init__(self, java: Jvm, below: JavaObject, tables: Catalog) -> None:
        self.java = java
        self._below = below
        self._tables = tables

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "Java":
            raise AttributeError(name)
        return guarded_call(self.java, getattr(self._below, name))

    def key(self) -> str:
        return f"Catalog {SPARK_CATALOG} with {NAME}"

    def initialize(self, _name: str, _options: JavaObject) -> None:
        return None

    def setDelegateCatalog(self, _catalog: JavaObject) -> None:  # noqa: N802
        return None

    def name(self) -> str:
        return SPARK_CATALOG

    def capabilities(self) -> JavaObject:
        """Those of Spark's catalog, and constraints, which index tables have."""
        every = self.java.find("java.util.HashSet")(self._below.capabilities())
        for name in CAPABILITIES:
            every.add(self.java.constant(V2 + "catalog.TableCatalogCapability", name))
        return every

    def loadTable(self, identifier: JavaObject, *more: Any) -> JavaObject:  # noqa: N802
        access = self.place(identifier)
        if access is None:
            return self._below.loadTable(identifier, *more)
        is_managed = functools.partial(self._is_managed, identifier)
        return self._tables.load(identifier, access, *more, is_managed=is_managed)

    def loadChangelog(self, identifier: JavaObject, *context: Any) -> JavaObject:  # noqa: N802
        access = self.place(identifier)
        if access is None:
            return self._below.loadChangelog(identifier, *context)
        return self._tables.changes(identifier, access, context[0])

    def createTable(self, identifier: JavaObject, *info: Any) -> JavaObject:  # noqa: N802
        access = self._new_place(identifier, info)
        if access is None:
            return self._below.createTable(identifier, *info)
        self._tables.check_columns(identifier, access, info)
        # Spark refuses a managed table whose folder is there, so the name comes first.
        self._below.createTable(identifier, *info)
        try:
            self._tables.create(identifier, access, info, may_exist=True)
        except Exception:
            self._below.dropTable(identifier)
            raise
        return self._tables.load(identifier, access)

    def stageCreate(self, identifier: JavaObject, *info: Any) -> JavaObject:  # noqa: N802
        access = self._new_place(identifier, info)
        if access is None:
            if self._stages:
                return self._below.stageCreate(identifier, *info)
            return self._created_elsewhere(identifier, info)
        if len(table_info(self.java, info)[0]) and access.log().exists():
            raise ConfigError(
                f"There is an index table at {access.uri} already. To give it the name "
                f"{identifier.name()}, leave out the columns and the query; to change its "
                "rows, INSERT INTO it."
            )
        # Spark refuses a managed table whose folder is there, so the name comes first.
        self._below.createTable(identifier, *info)

        def undo() -> None:
            self._below.dropTable(identifier)

        try:
            return self._tables.staged(identifier, access, info, may_replace=False, undo=undo)
        except Exception:
            undo()
            raise

    def stageReplace(self, identifier: JavaObject, *info: Any) -> JavaObject:  # noqa: N802
        access, target = self.place(identifier), self._new_place(identifier, info)
        if access is None or target is None:
            if access is None and target is None and self._stages:
                return self._below.stageReplace(identifier, *info)
            self.dropTable(identifier)
            return self.stageCreate(identifier, *info)
        if info[0].properties().get("location") is not None:
            check_same_place(access, target)
        return self._tables.staged(identifier, access, info, may_replace=True)

    def stageCreateOrReplace(self, identifier: JavaObject, *info: Any) -> JavaObject:  # noqa: N802
        if self.tableExists(identifier):
            return self.stageReplace(identifier, *info)
        return self.stageCreate(identifier, *info)

    def supportedCustomMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "metric.CustomMetric")

    @functools.cached_property
    def _stages(self) -> bool:
        staging = self.java.find("java.lang.Class").forName(V2 + "catalog.StagingTableCatalog")
        return bool(staging.isInstance(self._below))

    def _new_place(self, identifier: JavaObject, info: Sequence[Any]) -> TableAccess | None:
        """Where a statement wants an index table; None if it is of another format."""
        properties = info[0].properties() if len(info) == 1 else info[-1]
        # Without USING it is the session's default.
        provider = properties.get("provider") or self.java.conf.defaultDataSourceName()
        if provider.lower() not in PROVIDERS:
            if has_constraints(info):
                raise self._no_constraints(identifier)
            return None
        location = properties.get("location") or self.default_place(identifier)
        return self._at(location, options_in(as_written(java_dict(properties))))

    def _created_elsewhere(self, identifier: JavaObject, info: Sequence[Any]) -> JavaObject:
        table = self._below.createTable(identifier, *info)
        return StagedElsewhere(self.java, table, lambda: self._below.dropTable(identifier))

    def createTableLike(self, identifier: JavaObject, *info: Any) -> JavaObject:  # noqa: N802
        return self.createTable(identifier, copied_info(self.java, *info))

    def renameTable(self, old: JavaObject, new: JavaObject) -> None:  # noqa: N802
        access = self.place(old)
        if access is not None:
            invalidate_logs(access.path)
            if self._entry(old) is None:  # a name of an earlier session
                self._introduce(old, access)
        self._below.renameTable(old, new)

    def alterTable(self, identifier: JavaObject, changes: JavaObject) -> JavaObject:  # noqa: N802
        access = self.place(identifier)
        if access is None:
            if any(change.getClass().getSimpleName() in CONSTRAINT_CHANGES for change in changes):
                raise self._no_constraints(identifier)
            return self._below.alterTable(identifier, changes)
        return self._tables.alter(identifier, access, changes)

    def dropTable(self, identifier: JavaObject) -> bool:  # noqa: N802
        access = self.place(identifier)
        is_managed = access is not None and self._is_managed(identifier)
        dropped = bool(self._below.dropTable(identifier))
        if access is None:
            return dropped
        invalidate_logs(access.path)
        if is_managed:
            self._tables.remove(access)
        return True

    def tableExists(self, identifier: JavaObject) -> bool:  # noqa: N802
        return bool(self._below.tableExists(identifier)) or self._forgotten(identifier) is not None

    def purgeTable(self, identifier: JavaObject) -> bool:  # noqa: N802
        return bool(self.dropTable(identifier))

    def invalidateTable(self, identifier: JavaObject) -> None:  # noqa: N802
        access = self.place(identifier)
        if access is not None:
            invalidate_logs(access.path)
        self._below.invalidateTable(identifier)

    # --- names of earlier sessions -------------------------------------------------------------

    def remember(self) -> None:
        """Tell Spark the index tables of the warehouse whose names it forgot.

        A metastore forgets nothing, and what is not in it was dropped from it.
        """
        if self.java.spark.conf.get("spark.sql.catalogImplementation") != "in-memory":
            return
        databases = self._known().listDatabases()
        for number in range(databases.size()):
            self._remember(databases.apply(number))

    def _remember(self, database: str) -> None:
        make = self.java.find(V2 + "catalog.Identifier")
        listed = self._below.listTables(self.java.strings([database]))
        existing = {table.name() for table in listed}
        place = self._known().getDatabaseMetadata(database).locationUri().toString()
        try:
            there = self._tables.names_in(self._tables.at(place).store(), "")
        except IndexTablesError:
            return  # a warehouse that only Hadoop reaches
        for name in there:
            if name in existing or not _PLAIN_NAME.fullmatch(name):
                continue
            identifier = make.of(self.java.strings([database]), name)
            access = self._forgotten(identifier)
            if access is not None:
                self._introduce(identifier, access)

    def _introduce(self, identifier: JavaObject, access: TableAccess) -> None:
        # Spark refuses a managed table whose files are there already.
        properties = {"provider": NAME, "location": access.uri, _MANAGED: "true"}
        schema = names_of(access.log().snapshot()).shown
        columns = self.java.v2_columns(spark_schema(schema).json())
        nothing = self.java.array(V2 + "expressions.Transform")
        try:
            self._below.createTable(identifier, columns, nothing, self.java.hash_map(properties))
        except (Py4JJavaError, CapturedException) as error:
            if "ALREADY_EXISTS" not in str(error):  # by another thread
                reason = first_line(error)
                logger.warning("Spark does not list the table at '%s': %s", access.uri, reason)

    def _no_constraints(self, identifier: JavaObject) -> Exception:
        return self.java.refusal(
            f"The table {identifier.name()} cannot have constraints: its format does not keep "
            "them.",
            "UnsupportedOperationException",
        )

    # --- what Spark's catalog knows of a table -------------------------------------------------

    def _entry(self, identifier: JavaObject) -> JavaObject | None:
        namespace = list(identifier.namespace())
        if len(namespace) != 1:
            return None
        try:
            return self._known().getTableRawMetadata(self._name(identifier))
        except (Py4JJavaError, CapturedException):
            return None  # no such table; the next caller raises the error

    def place(self, identifier: JavaObject) -> TableAccess | None:
        """Where an index table is; None for other tables."""
        entry = self._entry(identifier)
        if entry is None:
            return self._forgotten(identifier)
        provider = entry.provider()
        if not provider.isDefined() or provider.get().lower() not in PROVIDERS:
            return None
        location = entry.storage().locationUri()
        place = location.get().toString() if location.isDefined() else None
        return self._at(place or self.default_place(identifier), self._options(entry))

    def _at(self, location: str, options: Mapping[str, str]) -> TableAccess:
        """The table at a place with the OPTIONS of its name.

        Spark's own formats ignore options that they do not have, and so does a table in a local
        folder. Another store may need each of them, and refuses those that it does not have.
        """
        access = self._tables.at(location, options)
        return replace(access, storage={}) if parse_location(location).scheme == "file" else access

    def options_of(self, database: str, table: str) -> dict[str, str]:
        """The OPTIONS that a table was created with, secrets included."""
        make = self.java.find(V2 + "catalog.Identifier")
        entry = self._entry(make.of(self.java.strings([database]), table))
        return {} if entry is None else self._options(entry)

    def _options(self, entry: JavaObject) -> dict[str, str]:
        kept = scala_dict(entry.storage().properties())
        return {n.removeprefix(HIDDEN): v for n, v in kept.items() if n not in _OF_SPARK}

    def _forgotten(self, identifier: JavaObject) -> TableAccess | None:
        """A table of an earlier session: Spark lost its name, the warehouse has it still."""
        if len(list(identifier.namespace())) != 1:
            return None
        try:
            access = self._tables.at(self.default_place(identifier))
            access.log().snapshot()
        except (IndexTablesError, Py4JJavaError, CapturedException):
            return None  # not ours, or a warehouse that only Hadoop reaches
        return access

    def _is_managed(self, identifier: JavaObject) -> bool:
        entry = self._entry(identifier)
        if entry is None or entry.tableType().name() == "MANAGED":
            return True
        return bool(entry.properties().contains(_MANAGED))

    def default_place(self, identifier: JavaObject) -> str:
        """Where a table of a new name goes."""
        place: str = self._known().defaultTablePath(self._name(identifier)).toString()
        return place

    def _known(self) -> JavaObject:
        return self.java.session.sessionState().catalog()

    def _name(self, identifier: JavaObject) -> JavaObject:
        make = self.java.find("org.apache.spark.sql.catalyst.TableIdentifier")
        return make(identifier.name(), self.java.some(next(iter(identifier.namespace()))))


@implements("catalog.StagedTable", "catalog.SupportsWrite")
class StagedElsewhere:
    """A table of another format: created at once and dropped if its query fails, as Spark does.

    A catalog that stages tables is asked to stage all of them.
    """

    def __init__(self, java: Jvm, table: JavaObject, undo: Callable[[], Any]) -> None:
        self.java = java
        self._table = table
        self._undo = undo

    def name(self) -> str:
        return str(self._table.name())

    def schema(self) -> JavaObject:
        return self._table.schema()

    def columns(self) -> JavaObject:
        return self._table.columns()

    def partitioning(self) -> JavaObject:
        return self._table.partitioning()

    def properties(self) -> JavaObject:
        return self._table.properties()

    def constraints(self) -> JavaObject:
        return self._table.constraints()

    def capabilities(self) -> JavaObject:
        return self._table.capabilities()

    def id(self) -> JavaObject:
        return self._table.id()

    def version(self) -> JavaObject:
        return self._table.version()

    def newWriteBuilder(self, info: JavaObject) -> JavaObject:  # noqa: N802
        return self._table.newWriteBuilder(info)

    def commitStagedChanges(self) -> None:  # noqa: N802
        return None

    def abortStagedChanges(self) -> None:  # noqa: N802
        self._undo()

    def reportDriverMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "metric.CustomTaskMetric")
