"""The two names of a column: the one that is stored, and the one that is shown.

Splits, statistics, partition values, cross-references and mappings hold a column under its *stored*
name, and the log's schema lists columns by it. A column that was renamed carries its *shown* name
in the metadata of its field. So a rename rewrites no split, and everything below the edges of the
product (`indextables.plan.column_names`) knows one name only. Stored names are never used twice:
where a column was renamed or dropped, a new one gets a name of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from indextables.schema.types import FIELD_METADATA

SHOWN_NAME = "indextables.name"
"""The key in the metadata of a field of the log's schema."""


def shown_name(field: pa.Field[Any]) -> str:
    """The name that users have for a stored column."""
    return str(_metadata(field).get(SHOWN_NAME, field.name))


def shown_field(field: pa.Field[Any]) -> pa.Field[Any]:
    """A stored column as users see it."""
    metadata = _metadata(field)
    if SHOWN_NAME not in metadata:
        return field
    return _with_metadata(field, metadata, None).with_name(metadata[SHOWN_NAME])


def shown_schema(schema: pa.Schema) -> pa.Schema:
    """A stored schema as users see it.

    >>> stored = stored_schema(pa.schema([("b", pa.int64())]), {"b": "a"})
    >>> stored.names, shown_schema(stored).names
    (['a'], ['b'])
    """
    return pa.schema([shown_field(field) for field in schema])


def stored_schema(shown: pa.Schema, stored: Mapping[str, str]) -> pa.Schema:
    """The log's schema for columns that users see, by the stored name of each."""
    fields = []
    for field in shown:
        name = stored[field.name]
        different = field.name if field.name != name else None
        fields.append(_with_metadata(field, _metadata(field), different).with_name(name))
    return pa.schema(fields)


def new_stored_name(shown: str) -> str:
    """A name for a new column of a table that may have had another one of its name."""
    return f"{shown}_{uuid.uuid4().hex[:12]}"


def _metadata(field: pa.Field[Any]) -> dict[str, Any]:
    text = (field.metadata or {}).get(FIELD_METADATA)
    found: dict[str, Any] = orjson.loads(text) if text else {}
    return found


def _with_metadata(
    field: pa.Field[Any], metadata: Mapping[str, Any], shown: str | None
) -> pa.Field[Any]:
    kept = {key: value for key, value in metadata.items() if key != SHOWN_NAME}
    if shown is not None:
        kept[SHOWN_NAME] = shown
    if kept == metadata:
        return field
    others: dict[Any, Any] = {
        k: v for k, v in (field.metadata or {}).items() if k != FIELD_METADATA
    }
    if kept:
        others[FIELD_METADATA] = orjson.dumps(kept)
    return field.with_metadata(others) if others else field.remove_metadata()
