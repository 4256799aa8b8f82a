"""What a table that is to be created says about itself."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa

from indextables.config import Config, is_own_key
from indextables.jobs.commit_write import Target
from indextables.log.actions import Metadata
from indextables.plan.execute import MAPPING_PROPERTY
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
