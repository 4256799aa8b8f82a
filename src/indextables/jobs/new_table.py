"""What a table that is to be created says about itself."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from indextables.config import Config, is_own_key
from indextables.jobs.commit_write import Target
from indextables.jobs.constraints import constraints_of, refuse_named_columns
from indextables.log.actions import Metadata
from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import names_of, shown, stored_mapping
from indextables.plan.execute import MAPPING_PROPERTY, mapping_of
from indextables.schema import normalize, refuse_hidden, to_json
from indextables.schema.column_names import shown_name, stored_schema
from indextables.split.mapping_options import build_mapping
from indextables.split.partitioning import check_partition_columns


def new_table(
    schema: pa.Schema,
    *,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    config: Config,
    name: str | None = None,
    description: str | None = None,
) -> tuple[Metadata, Target]:
    """The metadata of a new table, and what its rows are written with."""
    columns = _declared(schema, partition_by)
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
    return metadata, Target(columns, mapping, metadata, columns, constraints_of(metadata))


def replaced_table(
    snapshot: Snapshot, schema: pa.Schema, partition_by: Sequence[str], *, config: Config
) -> Target:
    """What a table becomes whose rows and columns are all replaced.

    Columns that stay what they are keep their mapping, unless an option names them. What properties
    say of other columns has no meaning any more.
    """
    columns = _declared(schema, partition_by)
    seen = shown(snapshot)
    old = seen.schema
    same = {f.name for f in columns if f.name in old.names and old.field(f.name).type == f.type}
    gone = [name for name in old.names if name not in same]
    refuse_named_columns(snapshot.metadata, gone, "replaced")
    base = mapping_of(seen)
    base = replace(base, fields=tuple(f for f in base.fields if f.name in same))
    mapping = build_mapping(columns, config, partition_by=partition_by, base=base)
    stored = names_of(snapshot).stored_columns(columns)
    mapping = stored_mapping(mapping, stored)
    by_name = {shown_name(field): field.name for field in stored}
    kept = {k: v for k, v in snapshot.metadata.configuration.items() if not _is_of_columns(k)}
    metadata = replace(
        snapshot.metadata,
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
