"""How a column's mapping reaches a search that Spark evaluates itself.

A column that is not searched in the default way carries its mapping in the metadata of its schema
field. Spark keeps that with the column through views, joins, renames and caches. When a search is
resolved, the mappings of the columns it looks at become one more argument of the call
(`bridge.search_functions`), a text, and the function in a Python worker searches with them.

A value that was computed, as in `lower(content)`, has the default mapping of its type.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from collections.abc import Mapping as Map
from dataclasses import dataclass, field, replace

import orjson
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from indextables.config import Config
from indextables.schema import from_json, to_json
from indextables.split.mapping import FieldMapping, Mapping, numbered
from indextables.split.mapping_options import build_mapping

KEY = "indextables.mapping"
"""The key in the metadata of a column of a DataFrame."""

_AGAIN = "\x1f"
"""Between the name of a column that a row has twice and its number."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The mappings of the columns that one search looks at, where they are not the default.

    `operand` is that of the column before `indexquery`, and `path` leads to the searched value
    inside it. `fields` are those of further columns by the name that the search has for them.
    """

    operand: FieldMapping | None = None
    path: tuple[str, ...] = ()
    fields: Map[str, FieldMapping] = field(default_factory=dict)

    def to_json(self) -> str:
        """The argument of the call; empty where all mappings are the default."""
        if self.operand is None and not self.fields:
            return ""
        every = {"": self.operand} if self.operand else {}
        named = Mapping(tuple(replace(f, name=n) for n, f in {**self.fields, **every}.items()))
        return orjson.dumps([named.to_json(), self.path]).decode()

    @classmethod
    @functools.lru_cache(maxsize=64)
    def from_json(cls, text: str) -> Searched:
        """Read the argument of a call."""
        document, path = orjson.loads(text)
        fields = dict(Mapping.from_json(document).by_name)
        return cls(fields.pop("", None), tuple(path), fields)

    def mapping(self, schema: pa.Schema, operand: str) -> Mapping:
        """How the columns of a search are searched; `operand` is the name of the searched one."""
        given = {**self.fields, **({operand: self.operand} if self.operand else {})}
        return numbered(
            replace(given.get(f.name, f), name=f.name, partition=False, field="")
            for f in build_mapping(schema, Config()).fields
        )


def with_mappings(schema: pa.Schema, mapping: str | None) -> StructType:
    """A table's schema in Spark, in which columns carry their mappings (a `docMappingJson`)."""
    text = to_json(schema)
    carried = {} if mapping is None else _not_default(text, mapping)
    types = StructType.fromJson(orjson.loads(text))
    return StructType([_with(f, carried.get(f.name)) for f in types.fields])


def without_mappings(fields: Iterable[StructField]) -> StructType:
    """The schema of rows that are written to another table, which has a mapping of its own."""
    return StructType([_with(f, None) for f in fields])


def unique_names(names: Iterable[str]) -> list[str]:
    """The names of a struct of Arrow, which has each only once; `same_columns` finds them again.

    >>> unique_names(["id", "title", "id"])
    ['id', 'title', 'id\\x1f1']
    """
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        unique.append(f"{name}{_AGAIN}{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return unique


def with_unique_names(schema: StructType) -> StructType:
    """The same columns, of which no two have one name."""
    columns = zip(unique_names(schema.names), schema.fields, strict=True)
    return StructType([StructField(n, f.dataType, True, f.metadata) for n, f in columns])


def same_columns(name: str, names: Iterable[str]) -> list[str]:
    """All columns that had a name before `unique_names`."""
    return [other for other in names if other.partition(_AGAIN)[0] == name]


def mapping_in(metadata: Map[str, object]) -> FieldMapping | None:
    """The mapping in the metadata of a column."""
    text = metadata.get(KEY)
    return Mapping.from_json(text).fields[0] if isinstance(text, str) else None


def _with(column: StructField, mapping: str | None) -> StructField:
    metadata = {k: v for k, v in (column.metadata or {}).items() if k != KEY}
    if mapping is not None:
        metadata[KEY] = mapping
    return StructField(column.name, column.dataType, column.nullable, metadata)


@functools.lru_cache(maxsize=64)
def _not_default(schema: str, mapping: str) -> dict[str, str]:
    """The mappings of columns that are not the default of their type, as JSON."""
    default = build_mapping(from_json(schema), Config()).by_name
    found = {}
    for one in Mapping.from_json(mapping).fields:
        here = replace(one, field="", fast=False)
        if one.name in default and here != replace(default[one.name], field="", fast=False):
            found[one.name] = Mapping((here,)).to_json()
    return found
