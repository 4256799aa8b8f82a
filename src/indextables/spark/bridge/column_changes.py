"""Columns after ALTER TABLE: Spark computes the new schema, and here it is compared with the old.

Splits hold a column under its name and are not rewritten. So a column can be added, moved,
described, made nullable, given a default for later rows, and widened to a type that holds every
value there is. A name stays what it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors.exceptions.captured import CapturedException

from indextables.errors import SchemaError
from indextables.log.snapshot import Snapshot
from indextables.schema import evolve, type_name
from indextables.spark.bridge.jvm import V2, JavaObject, Jvm
from indextables.spark.schemas import spark_schema, table_schema

_BY_NAME = {"RenameColumn": "renamed", "DeleteColumn": "dropped"}
_UNSUPPORTED = {
    "ClusterBy": "has no clustering",
    "AddConstraint": "has no constraints",
    "DropConstraint": "has no constraints",
}


def changed_columns(snapshot: Snapshot, changes: Sequence[JavaObject], java: Jvm) -> pa.Schema:
    """Return the table's schema after changes of its columns."""
    for change in changes:
        kind = change.getClass().getSimpleName()
        if kind in _BY_NAME:
            raise SchemaError(
                f"Column '{'.'.join(change.fieldNames())}' of '{snapshot.uri}' cannot be "
                f"{_BY_NAME[kind]}: splits hold a column under its name and are not rewritten. "
                "Write the rows to a new table: CREATE TABLE … AS SELECT."
            )
        if kind in _UNSUPPORTED:
            raise SchemaError(f"'{snapshot.uri}' is an index table, which {_UNSUPPORTED[kind]}.")
        if kind == "AddColumn":
            _check_added(change, snapshot)
    old = java.declared_struct(spark_schema(snapshot.schema).json())
    try:
        # Defaults are allowed for a list of formats; a table keeps ours as it does Parquet's.
        new = java.find(V2 + "catalog.CatalogV2Util").applySchemaChanges(
            old, java.seq(list(changes)), java.some("parquet"), "ALTER TABLE"
        )
    except (Py4JJavaError, CapturedException) as error:
        # Spark's interface declares no exception of this kind, and would hide it in a page.
        raise SchemaError(str(error).splitlines()[0]) from error
    schema = table_schema(java.schema_of(java.stored_struct(new)), declared=True)
    _check_types(snapshot, schema)
    return schema


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


def _check_types(snapshot: Snapshot, schema: pa.Schema) -> None:
    """Refuse types that the values of existing splits do not fit without loss."""
    old = snapshot.schema
    for field in schema:
        if field.name not in old.names or field.type.equals(old.field(field.name).type):
            continue
        before = old.field(field.name).type
        if field.name in snapshot.partition_columns or not _is_wider(field.type, before):
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
