"""What a write makes of rows and of a table: batches, schema, mapping, metadata.

Rows that a caller hands over, in whatever form, as Arrow batches of the table's schema.

What a write makes of a table: the schema and mapping of its rows, and the new metadata.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from indextables.config import DELTA_MIRROR, Config, is_own_key
from indextables.errors import SchemaError
from indextables.jobs.constraints import CheckConstraint, constraints_of, refuse_named_columns
from indextables.log.actions import Metadata
from indextables.plan.column_names import stored_mapping
from indextables.plan.view import TableView
from indextables.schema import conform, evolve, normalize, refuse_hidden, to_json, type_name
from indextables.schema.types import Rows, shown_name, stored_schema
from indextables.split.mapping import MAPPING_PROPERTY, FieldMapping, TableMapping
from indextables.split.mapping_options import build_mapping
from indextables.split.write import check_partition_columns


def as_reader(data: Any) -> pa.RecordBatchReader:
    """Arrow tables, batches, readers and datasets; pandas, Polars and others by Arrow's interface.

    >>> as_reader(pa.table({"a": [1]})).read_all().num_rows
    1
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        # Its own stream would carry the index along as one more column.
        return pa.Table.from_pandas(data, preserve_index=False).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "scanner"):  # a pyarrow dataset
        reader: pa.RecordBatchReader = data.scanner().to_reader()
        return reader
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return _from_batches(iter(data))
    raise _not_rows(data)


def _from_batches(batches: Iterator[Any]) -> pa.RecordBatchReader:
    first = next(batches, None)
    if first is None:
        raise SchemaError("An empty list of batches has no schema. Pass a table or a reader.")
    if not isinstance(first, pa.RecordBatch):
        raise _not_rows(first)

    def chained() -> Iterator[pa.RecordBatch]:
        yield first
        for batch in batches:
            if not isinstance(batch, pa.RecordBatch):
                raise _not_rows(batch)
            if not batch.schema.equals(first.schema):
                raise SchemaError(
                    f"The batches have different columns: {_columns_shown(first.schema)}; then "
                    f"{_columns_shown(batch.schema)}. Write them one after the other."
                )
            yield batch

    return pa.RecordBatchReader.from_batches(first.schema, chained())


def _columns_shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _not_rows(data: object) -> SchemaError:
    return SchemaError(
        f"Cannot take rows from {type(data).__name__}. Pass a pyarrow Table, RecordBatch or "
        "reader, an iterable of record batches, or a pandas or Polars DataFrame."
    )


def check_fits(incoming: pa.Schema, table: pa.Schema) -> None:
    """Refuse rows whose columns the table does not have, or that cannot be null in it."""
    # A column of nulls only is of any type.
    incoming = normalize(
        pa.schema(
            table.field(f.name) if pa.types.is_null(f.type) and f.name in table.names else f
            for f in incoming
        )
    )
    problems = [
        f"column '{f.name}' ({type_name(f.type)}) is not in the table"
        for f in incoming
        if f.name not in table.names
    ]
    problems += [
        f"column '{f.name}' ({type_name(f.type)}) is missing and must not be null"
        for f in table
        if f.name not in incoming.names and not f.nullable
    ]
    if problems:
        raise SchemaError(
            "The rows do not fit the table: "
            + "; ".join(problems)
            + ". The table has: "
            + ", ".join(f"{f.name} {type_name(f.type)}" for f in table)
            + ". To add columns, write with merge_schema=True (in Spark: "
            ".option('mergeSchema', True))."
        )


@dataclass(frozen=True, slots=True)
class Target:
    """The schema and mapping that rows are written with; `metadata` where the table changes.

    `schema` and `mapping` have the stored names of columns, `shown` is the schema as users see it.
    """

    schema: pa.Schema
    mapping: TableMapping
    metadata: Metadata | None
    shown: pa.Schema
    constraints: tuple[CheckConstraint, ...] = ()
    """What rows have to meet, unless they were checked before."""

    @classmethod
    def unchanged(cls, view: TableView) -> Target:
        """The table as it is."""
        constraints = constraints_of(view.snapshot.metadata)
        return cls(view.schema, view.mapping, None, view.names.shown, constraints)

    def checked(self, rows: Rows) -> Rows:
        """Rows with the names that users see, if they meet the table's constraints."""
        for constraint in self.constraints:
            constraint.check(rows, self.shown)
        return rows

    def stored(self, rows: Rows) -> Rows:
        """Rows that users hand over, in the schema of the table's splits."""
        fitting = self.checked(conform(rows, self.shown))
        if self.shown.names == self.schema.names:
            return fitting
        return fitting.rename_columns(self.schema.names)


def new_table(
    schema: pa.Schema,
    *,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    config: Config,
    name: str | None = None,
    description: str | None = None,
) -> Target:
    """A table that is to be created."""
    columns = _declared(schema, partition_by)
    if config[DELTA_MIRROR]:  # for every later commit of any writer
        properties = {DELTA_MIRROR.name: "true", **properties}
    own = {key: value for key, value in properties.items() if is_own_key(key)}
    mapping = build_mapping(columns, config.over(own), partition_by=partition_by)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        name=name,
        description=description,
        schema_string=to_json(columns),
        partition_columns=tuple(partition_by),
        configuration={**properties, MAPPING_PROPERTY: mapping.to_json()},
        created_time=time.time_ns() // 1_000_000,
    )
    return Target(columns, mapping, metadata, columns, constraints_of(metadata))


def evolved_table(view: TableView, incoming: pa.Schema, *, merge_schema: bool) -> Target:
    """A table that takes rows with these columns."""
    seen = view.shown
    columns = seen.schema
    if merge_schema:
        columns = evolve(columns, incoming)
    else:
        check_fits(incoming, columns)
    mapping = build_mapping(
        columns, view.config, partition_by=seen.partition_columns, base=seen.mapping
    )
    _refuse_other_mapping(seen.mapping, mapping)
    if columns.equals(seen.schema) and mapping == seen.mapping:
        return Target.unchanged(view)
    schema = view.names.stored_columns(columns)
    mapping = stored_mapping(mapping, schema)
    metadata = view.snapshot.metadata
    configuration = {**metadata.configuration, MAPPING_PROPERTY: mapping.to_json()}
    metadata = replace(metadata, schema_string=to_json(schema), configuration=configuration)
    return Target(schema, mapping, metadata, columns, constraints_of(metadata))


def replaced_table(view: TableView, schema: pa.Schema, partition_by: Sequence[str]) -> Target:
    """A table whose rows and columns are all replaced.

    Columns that stay what they are keep their mapping, unless an option names them. What properties
    say of other columns has no meaning any more.
    """
    columns = _declared(schema, partition_by)
    seen = view.shown
    old = seen.schema
    same = {f.name for f in columns if f.name in old.names and old.field(f.name).type == f.type}
    gone = [name for name in old.names if name not in same]
    refuse_named_columns(view.snapshot.metadata, gone, "replaced")
    base = replace(seen.mapping, fields=tuple(f for f in seen.mapping.fields if f.name in same))
    mapping = build_mapping(columns, view.settings, partition_by=partition_by, base=base)
    stored = view.names.stored_columns(columns)
    mapping = stored_mapping(mapping, stored)
    by_name = {shown_name(field): field.name for field in stored}
    metadata = view.snapshot.metadata
    kept = {k: v for k, v in metadata.configuration.items() if not _is_of_columns(k)}
    metadata = replace(
        metadata,
        schema_string=to_json(stored),
        partition_columns=tuple(by_name[name] for name in partition_by),
        configuration={**kept, MAPPING_PROPERTY: mapping.to_json()},
    )
    return Target(stored, mapping, metadata, columns, constraints_of(metadata))


def _declared(schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    """Checked columns under the names that they are given, whatever table they were read from."""
    columns = normalize(schema)
    columns = stored_schema(columns, {name: name for name in columns.names})
    refuse_hidden(columns.names)
    check_partition_columns(partition_by, columns)
    return columns


def _is_of_columns(key: str) -> bool:
    return is_own_key(key) and ".indexing." in key.lower()


def _refuse_other_mapping(table: TableMapping, wanted: TableMapping) -> None:
    """One column is searched one way in the whole table."""
    problems = [
        f"Field '{name}' type mismatch: existing table has {_shown(old)} field, cannot append with "
        f"{_shown(new)} configuration"
        for name, old in table.by_name.items()
        if (new := wanted.by_name.get(name)) is not None and new.fingerprint != old.fingerprint
    ]
    if problems:
        raise SchemaError(
            "Configuration validation failed for append operation: " + "; ".join(problems) + "."
        )


def _shown(field: FieldMapping) -> str:
    return f"{field.kind} ({field.tokenizer})" if field.kind == "text" else field.kind
