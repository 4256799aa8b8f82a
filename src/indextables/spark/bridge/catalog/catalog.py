"""The catalog `indextables`: tables by path, and tables by name in the warehouse.

A name with a slash is a path (``indextables.`/data/docs` ``). Any other name is a folder below the
warehouse, `<warehouse>/indextables/<namespace>/<name>`; a table elsewhere leaves a file `_location`
there. So names live as long as the warehouse does, and every session that has it knows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from indextables.errors import (
    ConfigError,
    IndexTablesError,
    NotATableError,
    ObjectNotFoundError,
    TableExistsError,
)
from indextables.jobs.constraints import constraint_protocol, with_constraints
from indextables.jobs.write_target import new_table
from indextables.log.actions import Action
from indextables.log.snapshot import Snapshot, empty_snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.access import TableAccess, invalidate_logs
from indextables.plan.source_options import NAME, PROVIDERS, SourceOptions
from indextables.spark.bridge.catalog.alter_table import changed, requested_protocol
from indextables.spark.bridge.catalog.replacement import check_replacement
from indextables.spark.bridge.catalog.table import BridgedTable
from indextables.spark.bridge.catalog.table_info import (
    NamedCatalog,
    copied_info,
    declared_constraints,
    is_to_write,
    options_in,
    snapshot_for,
    table_info,
)
from indextables.spark.bridge.jvm.handles import V2, JavaObject, implements
from indextables.spark.bridge.jvm.kept import kept
from indextables.spark.bridge.sessions import session_settings
from indextables.statements.time_travel import ROOT
from indextables.storage import Store, open_store

Place = str
"""A path or URI of a table."""

CAPABILITIES = ("SUPPORT_COLUMN_DEFAULT_VALUE", "SUPPORT_TABLE_CONSTRAINT")
_LOCATION_FILE = "_location"
_ANALYSIS = "org.apache.spark.sql.catalyst.analysis."
_RESERVED = frozenset(
    ("provider", "location", "external", "is_managed_location", "owner", "comment", "table_type")
)


@implements("catalog.TableCatalog", "catalog.SupportsNamespaces")
class Catalog(NamedCatalog):
    """Spark's view of the tables by name and by path."""

    def defaultNamespace(self) -> JavaObject:  # noqa: N802
        return self.java.strings([])

    def capabilities(self) -> JavaObject:
        """Defaults of columns and constraints are kept in the log; Spark enforces them."""
        return self.java.find("java.util.HashSet")(
            [self.java.constant(V2 + "catalog.TableCatalogCapability", one) for one in CAPABILITIES]
        )

    # --- tables ------------------------------------------------------------------------------

    def loadTable(self, identifier: JavaObject, *more: Any) -> JavaObject:  # noqa: N802
        return self.load(identifier, self._access(identifier), *more)

    def tableExists(self, identifier: JavaObject) -> bool:  # noqa: N802
        return _exists(self._access(identifier).log())

    def invalidateTable(self, identifier: JavaObject) -> None:  # noqa: N802
        invalidate_logs(self._access(identifier).path)

    def createTable(self, identifier: JavaObject, *info: Any) -> JavaObject:  # noqa: N802
        properties = table_info(self.java, info)[2]
        if options_in(properties):
            raise ConfigError(
                f"The catalog {self._name} does not keep the OPTIONS of a table. Set them on the "
                "session, or create the table in spark_catalog, which does."
            )
        location = properties.get("location")
        access = self._access(identifier) if location is None else self.at(location)
        self.create(identifier, access, info, may_exist=location is not None)
        if location is not None and not _is_path(identifier.name()):
            folder = self._folder(identifier)
            self._warehouse().put(f"{folder}/{_LOCATION_FILE}", access.uri.encode())
        return self.load(identifier, access)

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
            check_replacement(self.java, access)
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
        found = [
            make.of(self.java.strings(parts), name)
            for name in self.names_in(self._warehouse(), "/".join(parts))
        ]
        return self.java.array(V2 + "catalog.Identifier", found)

    def listTableSummaries(self, namespace: JavaObject) -> JavaObject:  # noqa: N802
        summary = self.java.find(V2 + "catalog.TableSummary")
        found = [summary.of(one, "EXTERNAL") for one in self.listTables(namespace)]
        return self.java.array(V2 + "catalog.TableSummary", found)

    # --- namespaces --------------------------------------------------------------------------

    def listNamespaces(self, parent: JavaObject | None = None) -> JavaObject:  # noqa: N802
        parts = list(parent or ())
        warehouse = self._warehouse()
        _, names = warehouse.list_directory("/".join(parts))
        found = [
            self.java.strings([*parts, name])
            for name in names
            if not self._is_table(warehouse, "/".join([*parts, name]))
        ]
        strings = self.java.gateway.new_array(self.java.find("java.lang.String"), len(found), 0)
        for number, one in enumerate(found):
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

    def load(self, identifier: JavaObject, access: TableAccess, *more: Any) -> JavaObject:
        """The table at a place, now or at the version or time that Spark names."""
        try:
            snapshot = snapshot_for(access.log(), *more)
        except NotATableError as error:
            if is_to_write(more):  # Spark may want to create it
                raise self._no_such_table(identifier) from None
            if _is_path(identifier.name()):
                raise
            # Spark would take the catalog's name for a file format and complain about that.
            raise self._unknown(identifier) from error
        return self._table(identifier, access, snapshot)

    def create(
        self,
        identifier: JavaObject,
        access: TableAccess,
        info: Sequence[Any],
        *,
        may_exist: bool = False,
    ) -> bool:
        """Create a table at a place; return whether it did, where one may be there already.

        A statement that names columns, or has a query, asks for a new table: the rows of
        CREATE TABLE … AS SELECT must not end among those of another table.
        """
        schema, partitions, properties = table_info(self.java, info)
        # Spark puts OPTIONS there twice. They may be credentials, which no log may hold.
        options = options_in(properties)
        given = {
            k: v for k, v in properties.items() if not k.startswith("option.") and k not in options
        }
        provider = given.get("provider", NAME)
        if provider.lower() not in PROVIDERS:
            raise ConfigError(
                f"The catalog {self._name} holds index tables only: USING {NAME}, not {provider}."
            )
        log = access.log()
        log.invalidate()
        self.check_columns(identifier, access, info)
        if may_exist and _exists(log):
            if len(schema):
                raise ConfigError(
                    f"There is an index table at {access.uri} already. To give it the name "
                    f"{identifier.name()}, leave out the columns and the query; to change its "
                    "rows, INSERT INTO it."
                )
            return False
        metadata = new_table(
            schema,
            partition_by=partitions,
            properties={k: v for k, v in given.items() if k.lower() not in _RESERVED},
            config=access.settings,
            name=None if _is_path(identifier.name()) else identifier.name(),
            description=given.get("comment"),
        ).metadata
        assert metadata is not None
        constraints = declared_constraints(info)
        actions: list[Action] = [with_constraints(metadata, constraints)]
        if constraints:
            actions = [*constraint_protocol(empty_snapshot(access.uri), access.settings), *actions]
        try:
            log.commit(Transaction(operation=Operation.CREATE, actions=actions))
        except TableExistsError:
            raise self._exception("TableAlreadyExistsException", identifier) from None
        return True

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
            others = [change for change, protocol in every if protocol is None]
            return [
                *protocols,
                *(changed(access.view(newest), others, self.java) if others else ()),
            ]

        try:
            log.commit(Transaction(operation=Operation.METADATA, transform=plan))
        except NotATableError:
            raise self._no_such_table(identifier) from None
        except IndexTablesError as error:
            # Of this kind Spark hands on the sentence; another one it wraps in a page of its own.
            raise self.java.refusal(str(error), "UnsupportedOperationException") from error
        return self._table(identifier, access, log.snapshot())

    def remove(self, access: TableAccess) -> None:
        """Delete a table's files."""
        invalidate_logs(access.path)
        store = access.store()
        files = [meta.path for meta in store.list()]
        # The log goes last: until then the table is whole or visibly gone.
        files.sort(key=lambda path: path.startswith("_transaction_log/"))
        store.delete(files)

    def names_in(self, store: Store, folder: str) -> list[str]:
        """The folders below a folder that are tables."""
        _, names = store.list_directory(folder)
        below = f"{folder}/" if folder else ""
        return [name for name in names if self._is_table(store, below + name)]

    def at(self, path: Place, options: Mapping[str, str] | None = None) -> TableAccess:
        """The table at a place, reached with its options over the session's configuration."""
        settings = session_settings(self.java.spark)
        return SourceOptions.parse({**(options or {}), "path": path}, settings).access()

    # --- places ------------------------------------------------------------------------------

    def _access(self, identifier: JavaObject) -> TableAccess:
        name = identifier.name()
        if _is_path(name):
            return self.at(name)
        folder = self._folder(identifier)
        return self.at(self._location(folder) or f"{self._root()}/{folder}")

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

    def _table(self, identifier: JavaObject, access: TableAccess, snapshot: Snapshot) -> JavaObject:
        shown = ".".join([self._name, *identifier.namespace(), f"`{identifier.name()}`"])
        table = BridgedTable(self.java, access, access.view(snapshot), name=shown)
        return kept(self.java, table)

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


def _exists(log: TransactionLog) -> bool:
    try:
        log.snapshot()
    except NotATableError:
        return False
    return True


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name
