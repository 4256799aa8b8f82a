"""Checkpoints: the whole table at one version, so that older versions can be deleted.

`checkpoints` finds and writes them in either format: JSON (`json_checkpoint`), or an Avro state
(`avro_state` reads it, `state_schema` has its records, `avro_container` the bytes).
`last_checkpoint` is the hint where a reader starts.
"""

from __future__ import annotations

from indextables.log.checkpoint.avro_state import (
    read_state_manifest,
)
from indextables.log.checkpoint.checkpoints import (
    checkpoints_at,
    load_checkpoint,
)
from indextables.log.checkpoint.last_checkpoint import (
    LastCheckpoint,
    read_last_checkpoint,
)
from indextables.log.checkpoint.state_schema import (
    PartitionBounds,
)

__all__ = [
    "LastCheckpoint",
    "PartitionBounds",
    "checkpoints_at",
    "load_checkpoint",
    "read_last_checkpoint",
    "read_state_manifest",
]
