"""What a table that is to be created says about itself."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from indextables.config import Config, is_own_key
from indextables.jobs.commit_write import Target
from indextables.log.actions import Metadata
from indextables.log.snapshot import Snapshot
from indextables.plan.execute import MAPPING_PROPERTY, mapping_of
from indextables.schema import normalize, refuse_hidden, to_json
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
    columns = normalize(schema)
    refuse_hidden(columns.names)
    check_partition_columns(partition_by, columns)
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
    return metadata, Target(columns, mapping, metadata)


def replaced_table(
    snapshot: Snapshot, schema: pa.Schema, partition_by: Sequence[str], *, config: Config
) -> Target:
    """What a table becomes whose rows and columns are all replaced.

    Columns that stay what they are keep their mapping, unless an option names them. What properties
    say of other columns has no meaning any more.
    """
    columns = normalize(schema)
    refuse_hidden(columns.names)
    check_partition_columns(partition_by, columns)
    old = snapshot.schema
    same = {f.name for f in columns if f.name in old.names and old.field(f.name).type == f.type}
    base = mapping_of(snapshot)
    base = replace(base, fields=tuple(f for f in base.fields if f.name in same))
    mapping = build_mapping(columns, config, partition_by=partition_by, base=base)
    kept = {k: v for k, v in snapshot.metadata.configuration.items() if not _is_of_columns(k)}
    metadata = replace(
        snapshot.metadata,
        schema_string=to_json(columns),
        partition_columns=tuple(partition_by),
        configuration={**kept, MAPPING_PROPERTY: mapping.to_json()},
    )
    return Target(columns, mapping, metadata)


def _is_of_columns(key: str) -> bool:
    return is_own_key(key) and ".indexing." in key.lower()
