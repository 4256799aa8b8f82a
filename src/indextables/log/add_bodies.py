"""Many add actions at once: from their JSON bodies to the files' table, column by column.

An object for each action would take most of the time it takes to read a JSON checkpoint. Types
are checked by Arrow as it converts.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import orjson
import pyarrow as pa

from indextables.errors import CorruptLogError
from indextables.log.files import FILES_SCHEMA
from indextables.log.mapping_registry import mapping_hash

# Null means the default, which the Scala writer leaves out or spells as null.
_DEFAULTS: dict[str, Any] = {
    "partitionValues": {},
    "size": 0,
    "modificationTime": 0,
    "dataChange": True,
    "hasFooterOffsets": False,
}
_INLINE = "docMappingJson"


def intern_mappings(bodies: Sequence[dict[str, Any]], *, where: str) -> dict[str, str]:
    """Replace inline mappings by references, in place; gives the mappings by reference."""
    mappings: dict[str, str] = {}
    for body in bodies:
        if (text := body.pop(_INLINE, None)) is not None:
            if type(text) is not str:
                raise CorruptLogError(where, f"'add' has a {_INLINE} that is no text")
            body["docMappingRef"] = mapping_hash(text)
            mappings[body["docMappingRef"]] = text
    return mappings


def files_from_bodies(
    bodies: Sequence[dict[str, Any]], *, version: int, timestamp: int, where: str
) -> pa.Table:
    """The files' table of these bodies; version and timestamp for those that do not know theirs."""
    names: set[str] = set().union(*bodies)
    unknown = names - {*FILES_SCHEMA.names} | names & {"extra"}
    defaults = {**_DEFAULTS, "addedAtVersion": version, "addedAtTimestamp": timestamp}
    columns: dict[str, Any] = {}
    try:
        for column in FILES_SCHEMA:
            if column.name == "extra" and unknown:
                values: list[Any] = [_extra(body, unknown) for body in bodies]
            elif column.name in names - unknown or column.name in defaults:
                default = defaults.get(column.name)
                values = [default if (v := b.get(column.name)) is None else v for b in bodies]
            else:
                columns[column.name] = pa.nulls(len(bodies), column.type)
                continue
            is_map = isinstance(column.type, pa.MapType)
            columns[column.name] = _maps(values) if is_map else pa.array(values, column.type)
    except (pa.ArrowException, TypeError, AttributeError, OverflowError) as error:
        raise CorruptLogError(where, f"'add' does not have its fields ({error})") from error
    return pa.table(columns, schema=FILES_SCHEMA)


def _maps(values: Sequence[dict[str, Any] | None]) -> Any:
    """Maps of text, flat: a list of pairs for each would be many objects. Null items are absent."""
    offsets: list[int | None] = []
    keys: list[str] = []
    items: list[Any] = []
    for value in values:
        offsets.append(None if value is None else len(keys))
        for key, item in (value or {}).items():
            if item is not None:
                keys.append(key)
                items.append(item)
    offsets.append(len(keys))
    starts: Any = pa.array(offsets, pa.int32())
    return pa.MapArray.from_arrays(
        starts, pa.array(keys, pa.string()), pa.array(items, pa.string())
    )


def _extra(body: dict[str, Any], unknown: Set[str]) -> str | None:
    found = {name: value for name, value in body.items() if name in unknown}
    return orjson.dumps(found).decode() if found else None
