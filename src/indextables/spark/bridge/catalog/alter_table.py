"""ALTER TABLE: what the changes of a statement make of a table's metadata and protocol.

Spark computes the new columns, and here they are compared with the old ones. Splits hold a column
under its stored name and are not rewritten. So a column can be added, renamed, dropped, moved,
described, made nullable, given a default for later rows, and widened to a type that holds every
value there is. A column that is added with a default has it in the rows that are there, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql.types import StructType

from indextables.config import Config
from indextables.errors import (
    ConfigError,
    MetadataChangedError,
    SchemaError,
    UnsupportedProtocolError,
    first_line,
)
from indextables.jobs.alter_columns import actions_for, with_properties
from indextables.jobs.write_target import DeclaredLayout, add_constraint, drop_constraint
from indextables.log.actions import SUPPORTED_VERSION, Action, Metadata, Protocol
from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import ColumnNames, names_in, names_of
from indextables.plan.view import LAYOUT_PROPERTY, TableView
from indextables.predicate.names import resolve_column
from indextables.schema import evolve, type_name
from indextables.schema.conformity import can_be_default, with_existence_default
from indextables.schema.types import FIELD_METADATA
from indextables.spark.bridge.catalog.table_info import check_constraint
from indextables.spark.bridge.jvm.handles import V2, JavaObject, Jvm
from indextables.spark.schemas import spark_schema, table_schema

CONSTRAINT_CHANGES = ("AddConstraint", "DropConstraint")
_STORED_NAME = "indextables.storedName"
"""Spark keeps the metadata of a field through its changes, and so the name that it is stored by."""
_BY_NAME = {"RenameColumn": "renamed", "DeleteColumn": "dropped"}
_IDENTIFIER = re.compile(r"IDENTIFIER\((['\"])([^'\"\\]+)\1\)", re.IGNORECASE)
_CHAR = re.compile(r"\"char\((\d+)\)\"")


_PROTOCOL = {"minreaderversion": "min_reader_version", "minwriterversion": "min_writer_version"}


def requested_protocol(change: JavaObject, *, uri: str) -> Protocol | None:
    """The protocol that a change of ALTER TABLE asks for; None if it is about something else.

    A commit takes the higher of what is asked for and what is there, so nothing is ever lowered.
    """
    change_name = change.getClass().getSimpleName()
    if change_name not in ("SetProperty", "RemoveProperty"):
        return None
    name = _PROTOCOL.get(change.property().lower())
    if name is None:
        return None
    if change_name == "RemoveProperty":
        raise ConfigError(
            f"{change.property()} can be raised, not unset: older readers and "
            "writers would misread the table."
        )
    text = change.value().strip()
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{change.property()} is the number of a protocol, not {text!r}.")
    version = int(text)
    if version > SUPPORTED_VERSION:
        role = name.split("_")[1]
        raise UnsupportedProtocolError(
            uri, role=role, required=version, supported=SUPPORTED_VERSION
        )
    lowest = Protocol(min_reader_version=1, min_writer_version=1)
    if name == "min_reader_version":
        return replace(lowest, min_reader_version=version)
    return replace(lowest, min_writer_version=version)


def changed(view: TableView, changes: Sequence[JavaObject], java: Jvm) -> list[Action]:
    """What the changes of one ALTER TABLE make of a table's metadata, and of its protocol."""
    constraints = [
        declared
        for declared in changes
        if declared.getClass().getSimpleName() in CONSTRAINT_CHANGES
    ]
    if constraints:  # a statement of its own
        return _changed_constraints(view.snapshot, constraints, config=view.settings)
    metadata = view.snapshot.metadata
    columns = []
    properties: dict[str, str | None] = {}
    for change in changes:
        change_name = change.getClass().getSimpleName()
        if change_name == "ClusterBy":
            metadata = _clustered(metadata, change)
            continue
        if change_name not in ("SetProperty", "RemoveProperty"):
            columns.append(change)
            continue
        value = change.value() if change_name == "SetProperty" else None
        if change.property() == "comment":
            metadata = replace(metadata, description=value)
        else:
            properties[change.property()] = value
    metadata = with_properties(metadata, properties)
    if not columns:
        return [metadata]
    schema, stored = _changed_columns(view.snapshot, columns, java)
    after = view.at(replace(view.snapshot, metadata=metadata))
    return actions_for(after, schema, stored)


def _clustered(metadata: Metadata, change: JavaObject) -> Metadata:
    """Metadata with other columns of clustering; without any after CLUSTER BY NONE."""
    if metadata.partition_columns:
        raise SchemaError("A table has partitions or clustering, and this one has partitions.")
    configuration = dict(metadata.configuration)
    configuration.pop(LAYOUT_PROPERTY, None)
    shown = names_in(metadata).shown
    columns = tuple(
        resolve_column(list(column.fieldNames()), shown)[0].path
        for column in change.clusteringColumns()
    )
    if columns:
        configuration[LAYOUT_PROPERTY] = DeclaredLayout(columns).to_json()
    return replace(metadata, configuration=configuration)


# --- constraints ---------------------------------------------------------------------------------


def _changed_constraints(
    snapshot: Snapshot, changes: Sequence[JavaObject], *, config: Config
) -> list[Action]:
    """Return what ALTER TABLE … ADD or DROP CONSTRAINT does."""
    (change,) = changes
    if change.getClass().getSimpleName() == "DropConstraint":
        return drop_constraint(snapshot, change.name(), if_exists=change.ifExists())
    constraint = check_constraint(change.constraint())
    validated = change.validatedTableVersion()
    if validated is not None and validated != str(snapshot.version):
        # Rows that came since then were not looked at.
        raise MetadataChangedError(
            uri=snapshot.uri, version=snapshot.version, changed=["rows to be checked"]
        )
    return add_constraint(snapshot, constraint, config=config)


# --- columns -------------------------------------------------------------------------------------


def _changed_columns(
    snapshot: Snapshot, changes: Sequence[JavaObject], java: Jvm
) -> tuple[pa.Schema, dict[str, str]]:
    """Return a table's columns after changes, and the stored names of those that it had."""
    names = names_of(snapshot)
    for change in changes:
        change_name = change.getClass().getSimpleName()
        if change_name in _BY_NAME and len(change.fieldNames()) > 1:
            raise SchemaError(
                f"'{'.'.join(change.fieldNames())}' is a field inside a column of "
                f"'{snapshot.uri}' and cannot be {_BY_NAME[change_name]}: splits hold it under its "
                "name and are not rewritten. Whole columns can be renamed and dropped."
            )
        if change_name == "AddColumn" and len(change.fieldNames()) > 1:
            _check_inner(change)
    marked = spark_schema(names.shown)
    for field, stored in zip(marked.fields, names.stored.names, strict=True):
        field.metadata = {**(field.metadata or {}), _STORED_NAME: stored}
    try:
        # Defaults are allowed for a list of formats; a table keeps ours as it does Parquet's.
        new = java.find(V2 + "catalog.CatalogV2Util").applySchemaChanges(
            java.declared_struct(marked.json()),
            java.seq([_as_meant(change, java) for change in changes]),
            java.some("parquet"),
            "ALTER TABLE",
        )
    except (Py4JJavaError, CapturedException) as error:
        # Spark's interface declares no exception of this kind, and would hide it in a page.
        raise SchemaError(first_line(error)) from error
    declared = java.schema_of(java.stored_struct(new))
    stored_names = _taken_marks(declared)
    schema = table_schema(declared, declared=True)
    _check_types(names, snapshot, schema, stored_names)
    for change in changes:
        if change.getClass().getSimpleName() == "AddColumn" and len(change.fieldNames()) == 1:
            schema = _added(change, schema, snapshot)
    return schema, stored_names


def _as_meant(change: JavaObject, java: Jvm) -> JavaObject:
    """Read `RENAME COLUMN … TO IDENTIFIER('name')`, which Spark hands on as it is written."""
    if change.getClass().getSimpleName() != "RenameColumn":
        return change
    written = _IDENTIFIER.fullmatch(change.newName())
    if written is None:
        return change
    return java.find(V2 + "catalog.TableChange").renameColumn(change.fieldNames(), written[2])


def _taken_marks(schema: StructType) -> dict[str, str]:
    """The stored names of columns, which are taken out of their metadata."""
    stored_names = {}
    for field in schema.fields:
        metadata = dict(field.metadata or {})
        if (stored := metadata.pop(_STORED_NAME, None)) is not None:
            stored_names[field.name] = stored
            field.metadata = metadata
    return stored_names


def _check_inner(change: JavaObject) -> None:
    """A new field of a struct is null wherever splits do not have it."""
    if change.defaultValue() is not None or not change.isNullable():
        raise SchemaError(
            f"'{'.'.join(change.fieldNames())}' is a new field inside a column and is null in "
            "existing rows: leave out DEFAULT and NOT NULL."
        )


def _added(change: JavaObject, schema: pa.Schema, snapshot: Snapshot) -> pa.Schema:
    """The columns with what rows that are there have in a new one."""
    (name,) = change.fieldNames()
    at = schema.get_field_index(name)
    field = schema.field(at)
    default = change.defaultValue()
    value = None if default is None else _value(default.getValue(), field, default.getSql())
    if value is None and not change.isNullable() and snapshot.num_files:
        raise SchemaError(
            f"The new column '{name}' is null in existing rows: leave out NOT NULL, or "
            "give it a DEFAULT."
        )
    return schema.set(at, with_existence_default(field, value))


def _value(literal: JavaObject, field: pa.Field[Any], text: str) -> Any:
    """What a DEFAULT is at this moment, as an Arrow scalar; None if it is null."""
    value = None if literal is None else literal.value()
    if value is None:
        return None
    data_type, types = field.type, pa.types
    if not can_be_default(data_type):
        raise SchemaError(
            f"The new column '{field.name}' is {type_name(data_type)}, and DEFAULT {text} is not a "
            "single value. Add it without DEFAULT, UPDATE the rows that are there, then ALTER "
            "COLUMN … SET DEFAULT for later ones."
        )
    if types.is_string(data_type):
        value = _padded(str(value), field)
    elif types.is_decimal(data_type):
        value = Decimal(str(value))
    try:
        return pa.array([value], data_type)[0]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(
            f"DEFAULT {text} is not a value of '{field.name}', which is "
            f"{type_name(data_type)}: {error}."
        ) from None


def _padded(text: str, field: pa.Field[Any]) -> str:
    """A text as a CHAR(n) column has it."""
    declared = _CHAR.search((field.metadata or {}).get(FIELD_METADATA, b"").decode())
    return text if declared is None else text.ljust(int(declared[1]))


def _check_types(
    names: ColumnNames, snapshot: Snapshot, schema: pa.Schema, stored_names: dict[str, str]
) -> None:
    """Refuse types that the values of existing splits do not fit without loss."""
    for field in schema:
        stored = stored_names.get(field.name)
        if stored is None or field.type.equals(names.stored.field(stored).type):
            continue
        before = names.stored.field(stored).type
        if stored in snapshot.partition_columns or not _is_wider(field.type, before):
            raise SchemaError(
                f"'{field.name}' is {type_name(before)} and cannot become {type_name(field.type)}: "
                "whole numbers widen to longer ones, float to double, decimals to more digits, and "
                "a partition column keeps its type."
            )


def _is_wider(after: pa.DataType, before: pa.DataType) -> bool:
    try:
        both = evolve(pa.schema([("c", before)]), pa.schema([("c", after)]))
    except SchemaError:
        return False
    return bool(both.field("c").type.equals(after))
