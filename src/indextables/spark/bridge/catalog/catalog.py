"""The catalog `indextables`: tables by path, and tables by name in the warehouse.

A name with a slash is a path (``indextables.`/data/docs` ``). Any other name is a folder below the
warehouse, `<warehouse>/indextables/<namespace>/<name>`; a table elsewhere leaves a file `_location`
there. So names live as long as the warehouse does, and every session that has it knows them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from indextables.errors import (
    ConfigError,
    IndexTablesError,
    NotATableError,
    ObjectNotFoundError,
)
from indextables.jobs.history import remove_table
from indextables.jobs.write_job import plan_definition
from indextables.lake.opening import view_of
from indextables.log.actions import Action
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.access import NAME, PROVIDERS, SourceOptions, TableAccess, invalidate_logs
from indextables.plan.column_names import shown_metadata
from indextables.plan.view import LAYOUT_PROPERTY, TableView
from indextables.schema import from_json, to_json
from indextables.spark.bridge.catalog.alter_table import changed, requested_protocol
from indextables.spark.bridge.catalog.table import BridgedTable, Changelog, StagedTable
from indextables.spark.bridge.catalog.table_info import (
    NamedCatalog,
    copied_info,
    declared_constraints,
    is_to_write,
    options_in,
    table_info,
    travels,
)
from indextables.spark.bridge.jvm.handles import V2, JavaObject, implements, kept
from indextables.spark.bridge.sessions import session_settings
from indextables.statements.spark_clauses import ROOT
from indextables.storage import Store, open_store

logger = logging.getLogger(__name__)

CAPABILITIES = ("SUPPORT_COLUMN_DEFAULT_VALUE", "SUPPORT_TABLE_CONSTRAINT")
_LOCATION_FILE = "_location"
_ANALYSIS = "org.apache.spark.sql.catalyst.analysis."
_RESERVED = frozenset(
    ("provider", "location", "external", "is_managed_location", "owner", "comment", "table_type")
)


@implements("catalog.StagingTableCatalog", "catalog.SupportsNamespaces")
class Catalog(NamedCatalog):
    """Spark's view of the tables by name and by path."""

    def defaultNamespace(self) -> JavaObject:  # noqa: N802
        return self.java.strings([])

    def capabilities(self) -> JavaObject:
        """Defaults of columns and constraints are kept in the log; Spark enforces them."""
        return self.java.find("java.util.HashSet")(
            [
                self.java.constant(V2 + "catalog.TableCatalogCapability", capability)
                for capability in CAPABILITIES
            ]
        )

    # --- tables ------------------------------------------------------------------------------

    def loadTable(self, identifier: JavaObject, *more: Any) -> JavaObject:  # noqa: N802
        return self.load(identifier, self._access(identifier), *more)

    def loadChangelog(  # noqa: N802
        self, identifier: JavaObject, context: JavaObject, *_options: JavaObject
    ) -> JavaObject:
        return self.changes(identifier, self._access(identifier), context)

    def tableExists(self, identifier: JavaObject) -> bool:  # noqa: N802
        return _exists(self._access(identifier).log())

    def invalidateTable(self, identifier: JavaObject) -> None:  # noqa: N802
        invalidate_logs(self._access(identifier).path)

    def createTable(self, identifier: JavaObject, *info: Any) -> JavaObject:  # noqa: N802
        access, is_elsewhere = self._place_of(identifier, info)
        self.create(identifier, access, info, may_exist=is_elsewhere)
        if is_elsewhere:
            self._put_location(identifier, access)
        return self.load(identifier, access)

    def stageCreate(self, identifier: JavaObject, *info: Any) -> JavaObject:  # noqa: N802
        access, is_elsewhere = self._place_of(identifier, info)
        self._refuse_other(identifier, access, is_there=is_elsewhere and _exists(access.log()))

        def done() -> None:
            if is_elsewhere:
                self._put_location(identifier, access)

        return self.staged(identifier, access, info, may_replace=False, done=done)

    def stageReplace(self, identifier: JavaObject, *info: Any) -> JavaObject:  # noqa: N802
        access = self._access(identifier)
        check_same_place(access, self._place_of(identifier, info)[0])
        if not _exists(access.log()):
            raise self._no_such_table(identifier)
        return self.staged(identifier, access, info, may_replace=True)

    def stageCreateOrReplace(self, identifier: JavaObject, *info: Any) -> JavaObject:  # noqa: N802
        if self.tableExists(identifier):
            return self.stageReplace(identifier, *info)
        return self.stageCreate(identifier, *info)

    def supportedCustomMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "metric.CustomMetric")

    def _place_of(self, identifier: JavaObject, info: Sequence[Any]) -> tuple[TableAccess, bool]:
        """Where a statement wants a table, and whether its name has to say where that is."""
        properties = table_info(self.java, info)[2]
        if options_in(properties):
            raise ConfigError(
                f"The catalog {self._name} does not keep the OPTIONS of a table. Set them on the "
                "session, or create the table in spark_catalog, which does."
            )
        location = properties.get("location")
        if location is None:
            return self._access(identifier), False
        return self.at(location), not _is_path(identifier.name())

    def _put_location(self, identifier: JavaObject, access: TableAccess) -> None:
        folder = self._folder(identifier)
        self._warehouse().put(f"{folder}/{_LOCATION_FILE}", access.uri.encode())

    def createTableLike(self, identifier: JavaObject, *info: Any) -> JavaObject:  # noqa: N802
        return self.createTable(identifier, copied_info(self.java, *info))

    def alterTable(self, identifier: JavaObject, changes: JavaObject) -> JavaObject:  # noqa: N802
        return self.alter(identifier, self._access(identifier), changes)

    def dropTable(self, identifier: JavaObject) -> bool:  # noqa: N802
        if _is_path(identifier.name()):
            raise ConfigError(
                f"'{identifier.name()}' is a path. Only named tables are dropped; delete the "
                "folder itself."
            )
        if not self.tableExists(identifier):
            return False
        folder = self._folder(identifier)
        access = self._access(identifier)
        if self._location(folder) is not None:
            self._warehouse().delete([f"{folder}/{_LOCATION_FILE}"])
            invalidate_logs(access.path)
        else:
            self.remove(access)
        return True

    def purgeTable(self, identifier: JavaObject) -> bool:  # noqa: N802
        return bool(self.dropTable(identifier))

    def renameTable(self, old: JavaObject, _new: JavaObject) -> None:  # noqa: N802
        raise ConfigError(
            f"'{old.name()}' cannot be renamed: its name is its folder. Create a table with the "
            "new name and LOCATION of this one."
        )

    def listTables(self, namespace: JavaObject) -> JavaObject:  # noqa: N802
        parts = list(namespace)
        make = self.java.find(V2 + "catalog.Identifier")
        identifiers = [
            make.of(self.java.strings(parts), name)
            for name in self.names_in(self._warehouse(), "/".join(parts))
        ]
        return self.java.array(V2 + "catalog.Identifier", identifiers)

    def listTableSummaries(self, namespace: JavaObject) -> JavaObject:  # noqa: N802
        summary = self.java.find(V2 + "catalog.TableSummary")
        summaries = [
            summary.of(identifier, "EXTERNAL") for identifier in self.listTables(namespace)
        ]
        return self.java.array(V2 + "catalog.TableSummary", summaries)

    # --- namespaces --------------------------------------------------------------------------

    def listNamespaces(self, parent: JavaObject | None = None) -> JavaObject:  # noqa: N802
        parts = list(parent or ())
        warehouse = self._warehouse()
        _, names = warehouse.list_directory("/".join(parts))
        namespaces = [
            self.java.strings([*parts, name])
            for name in names
            if not self._is_table(warehouse, "/".join([*parts, name]))
        ]
        strings = self.java.gateway.new_array(
            self.java.find("java.lang.String"), len(namespaces), 0
        )
        for number, one in enumerate(namespaces):
            strings[number] = one
        return strings

    def namespaceExists(self, namespace: JavaObject) -> bool:  # noqa: N802
        parts = list(namespace)
        return not parts or next(iter(self._warehouse().list("/".join(parts))), None) is not None

    def loadNamespaceMetadata(self, namespace: JavaObject) -> JavaObject:  # noqa: N802
        if not self.namespaceExists(namespace):
            raise self._exception("NoSuchNamespaceException", namespace)
        return self.java.hash_map({})

    def createNamespace(self, namespace: JavaObject, _metadata: JavaObject) -> None:  # noqa: N802
        self._warehouse().put("/".join([*namespace, "_namespace"]), b"")

    def alterNamespace(self, _namespace: JavaObject, _changes: JavaObject) -> None:  # noqa: N802
        raise ConfigError("A namespace of index tables has no properties.")

    def dropNamespace(self, namespace: JavaObject, cascade: bool) -> bool:  # noqa: N802
        if not self.namespaceExists(namespace):
            return False
        if len(self.listTables(namespace)) and not cascade:
            raise ConfigError(f"The namespace {'.'.join(namespace)} holds tables. Drop them first.")
        warehouse = self._warehouse()
        warehouse.delete([meta.path for meta in warehouse.list("/".join(namespace))])
        return True

    # --- what the catalog of bare names needs too --------------------------------------------

    def load(
        self,
        identifier: JavaObject,
        access: TableAccess,
        *more: Any,
        is_managed: Callable[[], bool] = lambda: False,
    ) -> JavaObject:
        """The table at a place, now or at the version or time that Spark names."""
        try:
            view = _view_at(access, *more)
        except NotATableError as error:
            if is_to_write(more):  # Spark may want to create it
                raise self._no_such_table(identifier) from None
            if _is_path(identifier.name()):
                raise
            # Spark would take the catalog's name for a file format and complain about that.
            raise self._unknown(identifier) from error
        return self._table(identifier, access, view, is_managed)

    def changes(
        self, identifier: JavaObject, access: TableAccess, context: JavaObject
    ) -> JavaObject:
        """What versions of the table at a place changed."""
        try:
            return Changelog(self.java, access, context, name=self._shown(identifier))
        except NotATableError:
            raise self._no_such_table(identifier) from None

    def create(
        self,
        identifier: JavaObject,
        access: TableAccess,
        info: Sequence[Any],
        *,
        may_exist: bool = False,
    ) -> bool:
        """Create a table at a place; return whether it did, where one may be there already.

        A statement that names other columns, or has a query, asks for a new table: the rows of
        CREATE TABLE … AS SELECT must not end among those of another table.
        """
        log = access.log()
        log.invalidate()
        self.check_columns(identifier, access, info)
        if may_exist and _exists(log):
            is_other = not self._describes(log.snapshot(), info)
            self._refuse_other(identifier, access, is_there=is_other)
            return False
        self.staged(identifier, access, info, may_replace=False).commitStagedChanges()
        return True

    def staged(
        self,
        identifier: JavaObject,
        access: TableAccess,
        info: Sequence[Any],
        *,
        may_replace: bool,
        done: Callable[[], Any] = lambda: None,
        undo: Callable[[], Any] = lambda: None,
    ) -> StagedTable:
        """A table at a place that is created or replaced when its rows are there."""
        schema, partitions, properties = table_info(self.java, info)
        # Spark puts OPTIONS there twice. They may be credentials, which no log may hold.
        options = options_in(properties)
        declared = {
            k: v for k, v in properties.items() if not k.startswith("option.") and k not in options
        }
        provider = declared.get("provider", NAME)
        if provider.lower() not in PROVIDERS:
            raise ConfigError(
                f"The catalog {self._name} holds index tables only: USING {NAME}, not {provider}."
            )
        if LAYOUT_PROPERTY in declared:
            logger.warning(
                "%s: buckets and clustering are kept as declared, and lay out no rows; "
                "PARTITIONED BY does.",
                identifier.name(),
            )
        log = access.log()
        log.invalidate()
        job = plan_definition(
            log,
            schema,
            settings=access.settings,
            partition_by=partitions,
            properties={k: v for k, v in declared.items() if k.lower() not in _RESERVED},
            name=None if _is_path(identifier.name()) else identifier.name(),
            description=declared.get("comment"),
            constraints=declared_constraints(info),
            may_replace=may_replace,
        )
        name = self._shown(identifier)
        return StagedTable(self.java, access, job, identifier, name=name, done=done, undo=undo)

    def _describes(self, snapshot: Snapshot, info: Sequence[Any]) -> bool:
        """Whether all that a statement says of a table is so."""
        schema, partitions, properties = table_info(self.java, info)
        if not len(schema):
            return True
        there, options = shown_metadata(snapshot.metadata), options_in(properties)
        return (
            to_json(schema) == to_json(from_json(there.schema_string))
            and partitions == tuple(there.partition_columns)
            and properties.get("comment") == there.description
            and not declared_constraints(info)
            and all(
                there.configuration.get(name) == value
                for name, value in properties.items()
                if name not in options
                and name.lower() not in _RESERVED
                and not name.startswith("option.")
            )
        )

    def _refuse_other(self, identifier: JavaObject, access: TableAccess, *, is_there: bool) -> None:
        if is_there:
            raise ConfigError(
                f"There is an index table at {access.uri} already. To give it the name "
                f"{identifier.name()}, leave out the columns and the query; to change its "
                "rows, INSERT INTO it."
            )

    def check_columns(
        self, identifier: JavaObject, access: TableAccess, info: Sequence[Any]
    ) -> None:
        """Refuse a table without columns, unless it is a name for one that is there."""
        if not len(table_info(self.java, info)[0]) and not _exists(access.log()):
            raise ConfigError(
                f"The table {identifier.name()} has no columns. Name them, or the LOCATION of an "
                "index table that is there."
            )

    def alter(self, identifier: JavaObject, access: TableAccess, changes: JavaObject) -> JavaObject:
        """Change columns or properties of a table."""
        log = access.log()

        def plan(newest: Snapshot) -> list[Action]:
            every = [(change, requested_protocol(change, uri=access.uri)) for change in changes]
            protocols = [protocol for _, protocol in every if protocol is not None]
            other_changes = [change for change, protocol in every if protocol is None]
            return [
                *protocols,
                *(changed(access.view(newest), other_changes, self.java) if other_changes else ()),
            ]

        try:
            log.commit(Transaction(operation=Operation.METADATA, transform=plan))
        except NotATableError:
            raise self._no_such_table(identifier) from None
        except IndexTablesError as error:
            # Of this kind Spark hands on the sentence; another one it wraps in a page of its own.
            raise self.java.refusal(str(error), "UnsupportedOperationException") from error
        return self._table(identifier, access, access.view())

    def remove(self, access: TableAccess) -> None:
        """Delete a table's files."""
        invalidate_logs(access.path)
        remove_table(access.store())

    def names_in(self, store: Store, folder: str) -> list[str]:
        """The folders below a folder that are tables."""
        _, names = store.list_directory(folder)
        below = f"{folder}/" if folder else ""
        return [name for name in names if self._is_table(store, below + name)]

    def at(self, path: str, options: Mapping[str, str] | None = None) -> TableAccess:
        """The table at a place, reached with its options over the session's configuration."""
        settings = session_settings(self.java.spark)
        parsed = SourceOptions.parse({**(options or {}), "path": path}, settings)
        parsed.chosen.refuse()
        return parsed.access()

    # --- places ------------------------------------------------------------------------------

    def place(self, identifier: JavaObject) -> TableAccess | None:
        """Where the table of a name is; None if there is none."""
        access = self._access(identifier)
        return access if _exists(access.log()) else None

    def default_place(self, identifier: JavaObject) -> str:
        """Where a table of a new name goes."""
        return f"{self._root()}/{self._folder(identifier)}"

    def _access(self, identifier: JavaObject) -> TableAccess:
        name = identifier.name()
        if _is_path(name):
            return self.at(name)
        folder = self._folder(identifier)
        return self.at(self._location(folder) or self.default_place(identifier))

    def _folder(self, identifier: JavaObject) -> str:
        return "/".join([*(n for n in identifier.namespace() if n != ROOT), identifier.name()])

    def _root(self) -> str:
        warehouse = self.java.spark.conf.get("spark.sql.warehouse.dir") or "spark-warehouse"
        return f"{warehouse.rstrip('/')}/{self._name}"

    def _warehouse(self) -> Store:
        access = self.at(self._root())
        return open_store(access.path, access.storage)

    def _location(self, folder: str) -> str | None:
        try:
            return self._warehouse().get(f"{folder}/{_LOCATION_FILE}").decode()
        except ObjectNotFoundError:
            return None

    def _is_table(self, warehouse: Store, folder: str) -> bool:
        files, folders = warehouse.list_directory(folder)
        return "_transaction_log" in folders or any(
            meta.path.endswith(f"/{_LOCATION_FILE}") for meta in files
        )

    # --- Java --------------------------------------------------------------------------------

    def _table(
        self,
        identifier: JavaObject,
        access: TableAccess,
        view: TableView,
        is_managed: Callable[[], bool] = lambda: False,
    ) -> JavaObject:
        name = self._shown(identifier)
        table = BridgedTable(self.java, access, view, name=name, is_managed=is_managed)
        return kept(self.java, table)

    def _shown(self, identifier: JavaObject) -> str:
        return ".".join([self._name, *identifier.namespace(), f"`{identifier.name()}`"])

    def _no_such_table(self, identifier: JavaObject) -> Exception:
        return self._exception("NoSuchTableException", identifier)

    def _unknown(self, identifier: JavaObject) -> ConfigError:
        shown = ".".join([self._name, *identifier.namespace(), identifier.name()])
        return ConfigError(
            f"There is no index table {shown}. SHOW TABLES IN {self._name} lists those there are; "
            f"a path is written {self._name}.`/the/path`."
        )

    def _exception(self, name: str, subject: JavaObject) -> Exception:
        return self.java.exception(_ANALYSIS + name, subject)


def _view_at(access: TableAccess, *more: Any) -> TableView:
    """The newest version of a table, or the one of a version (text) or a time (microseconds)."""
    for context in more:
        if isinstance(context, str):
            if not context.strip().isdecimal():
                raise ConfigError(f"VERSION AS OF takes the number of a version, not {context!r}.")
            return view_of(access, version=int(context))
        if isinstance(context, int):
            return view_of(access, timestamp=context // 1000)
        if travels(context):
            return _travelled(access, context.timeTravel().get())
    return view_of(access)


def _travelled(access: TableAccess, travel: JavaObject) -> TableView:
    if "Version" in travel.getClass().getSimpleName():
        return _view_at(access, travel.version())
    return _view_at(access, travel.micros())


def check_same_place(access: TableAccess, requested: TableAccess) -> None:
    """Refuse to replace a table by one in another place."""
    if access.uri != requested.uri:
        raise ConfigError(
            f"The table is at {access.uri} and cannot be replaced by one at {requested.uri}. Leave "
            "out LOCATION, or drop the table first."
        )


def _exists(log: TransactionLog) -> bool:
    try:
        log.snapshot()
    except NotATableError:
        return False
    return True


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name
