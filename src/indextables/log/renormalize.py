"""Mappings that are equal get one name.

References of older writers were not always taken from the canonical form, so that equal mappings
had several. A compacted checkpoint computes them anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.mapping_registry import (
    REGISTRY_PREFIX,
    mapping_hash,
    registry_of,
    with_mappings,
)
from indextables.log.snapshot import Snapshot


def renormalized(snapshot: Snapshot, *, threshold: int) -> Snapshot:
    """The snapshot with canonical references, if it has more distinct ones than the threshold.

    Equal mappings then share one reference. The old names stay in the registry, for writers that
    know them from an earlier snapshot; the next compaction finds no entry that uses them and
    drops them.
    """
    entries, metadata = snapshot.entries, snapshot.metadata
    known = registry_of(metadata.configuration)
    references: list[Any] = pc.unique(entries["docMappingRef"]).to_pylist()
    used = [r for r in references if r is not None]
    names = {old: old for old in used}
    if len(used) > threshold:
        names = {old: mapping_hash(known[old]) if old in known else old for old in used}
    mappings = {
        old: text for old, text in known.items() if old in names or not _is_alias(old, known)
    }
    mappings |= {new: known[old] for old, new in names.items() if old in known and new not in known}
    if mappings == known and all(old == new for old, new in names.items()):
        return snapshot
    properties = {
        key: value
        for key, value in metadata.configuration.items()
        if not key.startswith(REGISTRY_PREFIX)
    }
    at = pc.index_in(entries["docMappingRef"], value_set=pa.array(list(names), pa.string()))
    renamed: Any = pc.take(pa.array(list(names.values()), pa.string()), at)
    position = entries.schema.get_field_index("docMappingRef")
    return replace(
        snapshot,
        metadata=replace(metadata, configuration=with_mappings(properties, mappings)),
        base_files=entries.set_column(position, entries.schema.field(position), renamed),
        changes={},
    )


def _is_alias(reference: str, mappings: Mapping[str, str]) -> bool:
    """Whether the mapping is there under its canonical name as well."""
    canonical = mapping_hash(mappings[reference])
    return canonical != reference and canonical in mappings
