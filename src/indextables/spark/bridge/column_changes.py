"""Columns after ALTER TABLE: Spark computes the new schema, and here it is compared with the old.

Splits hold a column under its stored name and are not rewritten. So a column can be added, renamed,
dropped, moved, described, made nullable, given a default for later rows, and widened to a type that
holds every value there is.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql.types import StructType

from indextables.errors import SchemaError
from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import ColumnNames, names_of
from indextables.schema import evolve, type_name
from indextables.spark.bridge.jvm import V2, JavaObject, Jvm
from indextables.spark.schemas import spark_schema, table_schema

_STORED_NAME = "indextables.storedName"
"""Spark keeps the metadata of a field through its changes, and so the name that it is stored by."""
_BY_NAME = {"RenameColumn": "renamed", "DeleteColumn": "dropped"}
_UNSUPPORTED = {"ClusterBy": "has no clustering"}


def changed_columns(
    snapshot: Snapshot, changes: Sequence[JavaObject], java: Jvm
) -> tuple[pa.Schema, dict[str, str]]:
    """Return a table's columns after changes, and the stored names of those that it had."""
    names = names_of(snapshot)
    for change in changes:
        kind = change.getClass().getSimpleName()
        if kind in _BY_NAME and len(change.fieldNames()) > 1:
            raise SchemaError(
                f"'{'.'.join(change.fieldNames())}' is a field inside a column of "
                f"'{snapshot.uri}' and cannot be {_BY_NAME[kind]}: splits hold it under its name "
                "and are not rewritten. Whole columns can be renamed and dropped."
            )
        if kind in _UNSUPPORTED:
            raise SchemaError(f"'{snapshot.uri}' is an index table, which {_UNSUPPORTED[kind]}.")
        if kind == "AddColumn":
            _check_added(change, snapshot)
    marked = spark_schema(names.shown)
    for field, stored in zip(marked.fields, names.stored.names, strict=True):
        field.metadata = {**(field.metadata or {}), _STORED_NAME: stored}
    try:
        # Defaults are allowed for a list of formats; a table keeps ours as it does Parquet's.
        new = java.find(V2 + "catalog.CatalogV2Util").applySchemaChanges(
            java.declared_struct(marked.json()),
            java.seq(list(changes)),
            java.some("parquet"),
            "ALTER TABLE",
        )
    except (Py4JJavaError, CapturedException) as error:
        # Spark's interface declares no exception of this kind, and would hide it in a page.
        raise SchemaError(str(error).splitlines()[0]) from error
    declared = java.schema_of(java.stored_struct(new))
    stored_names = _taken_marks(declared)
    schema = table_schema(declared, declared=True)
    _check_types(names, snapshot, schema, stored_names)
    return schema, stored_names


def _taken_marks(schema: StructType) -> dict[str, str]:
    """The stored names of columns, which are taken out of their metadata."""
    found = {}
    for field in schema.fields:
        metadata = dict(field.metadata or {})
        if (stored := metadata.pop(_STORED_NAME, None)) is not None:
            found[field.name] = stored
            field.metadata = metadata
    return found


def _check_added(change: JavaObject, snapshot: Snapshot) -> None:
    name = ".".join(change.fieldNames())
    if len(change.fieldNames()) > 1:
        raise SchemaError(f"'{name}': only columns of the table can be added, not fields of one.")
    if change.defaultValue() is not None and snapshot.entries.num_rows:
        raise SchemaError(
            f"The new column '{name}' is null in the rows that are there. Add it without DEFAULT, "
            "UPDATE those rows, then ALTER COLUMN … SET DEFAULT for later ones."
        )
    if not change.isNullable() and snapshot.entries.num_rows:
        raise SchemaError(
            f"The new column '{name}' is null in the rows that are there: leave out NOT NULL."
        )


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
                "a partition column stays what it is."
            )


def _is_wider(kind: pa.DataType, before: pa.DataType) -> bool:
    try:
        both = evolve(pa.schema([("c", before)]), pa.schema([("c", kind)]))
    except SchemaError:
        return False
    return bool(both.field("c").type.equals(kind))
