"""Opening an index: created or found, and the one version of it that queries and joins use.

Schema, format and read options must agree with those of an index that exists.

Decoding an index costs once for each version: the lookups of the versions that were used last are
cached, and with them the sorted hashes, filters and words. What joins located is cached by version
and by the keys themselves, so the same keys are not looked up twice and other keys are never taken
for them.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from cachetools import LRUCache, cached

from indextables.ariadne.declarations import Computed, Declarations, needed_columns, types_of
from indextables.ariadne.declarations import field_type as type_at
from indextables.ariadne.files.read import FORMATS, arrow_schema, computed_types
from indextables.ariadne.files.state import current_data
from indextables.ariadne.lookup import Located, Lookup
from indextables.ariadne.metadata import IndexData, Metadata
from indextables.ariadne.store.place import IndexPlace
from indextables.ariadne.values.hashing import can_hash, hash_values
from indextables.errors import (
    AriadneArgumentError,
    FormatMismatchError,
    IndexNotFoundInNewSchemaError,
    MissingFormatError,
    SchemaMismatchError,
    SchemaNotProvidedError,
    first_line,
)
from indextables.schema import normalize, to_json

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    SchemaLike = StructType | pa.Schema | str


@dataclass(frozen=True, slots=True)
class Opening:
    """What an index is opened with, checked without any I/O. None leaves what is stored."""

    schema: str | None
    """Spark's JSON."""
    format: str | None
    read_options: Mapping[str, str]
    allow_schema_mismatch: bool

    @classmethod
    def of(
        cls,
        name: str,
        schema: SchemaLike | None,
        format: str | None,  # noqa: A002
        *,
        allow_schema_mismatch: bool,
        read_options: Mapping[str, str] | None,
    ) -> Opening:
        """Check the arguments of `Index`."""
        options = read_options or {}
        if unset := [f"'{n}' is None; leave it out" for n, v in options.items() if v is None]:
            raise AriadneArgumentError("Cannot use the read options", unset)
        chosen = None if format is None else str(format).strip().lower()
        if chosen is not None and chosen not in FORMATS:
            raise MissingFormatError(name, format, supported=FORMATS)
        return cls(
            schema=None if schema is None else schema_json(schema),
            format=chosen,
            read_options={str(n): str(v) for n, v in options.items()},
            allow_schema_mismatch=allow_schema_mismatch,
        )


def connect(place: IndexPlace, opening: Opening) -> Metadata:
    """The metadata of an index, which is created if it does not exist."""
    if not place.exists():
        if opening.schema is None:
            raise SchemaNotProvidedError(place.name)
        new = Metadata(
            opening.format or "parquet", opening.schema, read_options=opening.read_options
        )
        arrow_schema(new, name=place.name)
        if place.metadata.create(new):
            return new
    return place.metadata.change(lambda stored: _agreed(place, stored, opening))


def _agreed(place: IndexPlace, stored: Metadata, opening: Opening) -> Metadata:
    """The stored metadata with what the opening changes, which is refused if they disagree."""
    if opening.format is not None and opening.format != stored.format:
        raise FormatMismatchError(place.name, stored=stored.format, given=opening.format)
    if opening.schema is not None and json.loads(opening.schema) != _loaded(stored.schema):
        if not opening.allow_schema_mismatch:
            raise SchemaMismatchError(place.name, _differences(stored.schema, opening.schema))
        stored = _with_schema(place, stored, opening.schema)
    options = opening.read_options
    if any(stored.read_options.get(n) != v for n, v in options.items()):
        stored = replace(stored, read_options={**stored.read_options, **options})
    return stored


def schema_json(schema: SchemaLike) -> str:
    """The JSON of a schema that is Spark's, Arrow's or DDL."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return schema.json()
    if isinstance(schema, pa.Schema):
        return to_json(normalize(schema))
    if isinstance(schema, str):
        try:
            parsed: Any = StructType.fromDDL(schema)
        except PySparkException as error:
            reason = first_line(error)
            raise AriadneArgumentError("Cannot use the schema", [reason]) from None
        return str(parsed.json())
    raise AriadneArgumentError(
        "Cannot use the schema",
        [f"{type(schema).__name__} is not a schema; pass a StructType, a pyarrow.Schema or DDL"],
    )


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _differences(stored: str, declared: str) -> list[str]:
    old, new = (
        {f["name"]: f for f in (_loaded(t) or {}).get("fields", ())} for t in (stored, declared)
    )
    differences = [f"'{n}' is not in the schema given" for n in old if n not in new]
    differences += [f"'{n}' is new" for n in new if n not in old]
    for name in (n for n in old if n in new and old[n] != new[n]):
        parts = [
            p for p in ("type", "nullable", "metadata") if old[name].get(p) != new[name].get(p)
        ]
        shown = (
            f"{p} {json.dumps(old[name].get(p))} → {json.dumps(new[name].get(p))}" for p in parts
        )
        differences.append(f"'{name}' differs in {', '.join(shown)}")
    return differences or ["the columns are in another order"]


def _with_schema(place: IndexPlace, stored: Metadata, schema: str) -> Metadata:
    """The metadata with another schema, if every index column means the same in it."""
    new = replace(stored, schema=schema)
    before, after = (arrow_schema(m, name=place.name) for m in (stored, new))
    missing = []
    plain = []
    for d in stored.declarations:
        lacking = [c for c in needed_columns(d) if type_at(after, c) is None]
        if isinstance(d, Computed):
            try:
                computed_types(place.context.spark, new, [d], name=place.name)
            except AriadneArgumentError:
                lacking = [f"{d.name} ({d.expression})"]
        missing += lacking
        if not lacking:
            plain.append(d)
    if missing:
        raise IndexNotFoundInNewSchemaError(place.name, missing)
    declared = Declarations(tuple(plain))
    old_types, new_types = (
        types_of(declared, s, computed_types(place.context.spark, m, declared.all, name=place.name))
        for s, m in ((before, stored), (after, new))
    )
    changed = [
        f"'{n}' was {old_types[n]} and would be {new_types[n]}"
        for n in declared.names
        if old_types[n] != new_types[n]
    ]
    if changed:
        raise SchemaMismatchError(
            place.name,
            changed,
            remedy="Index columns keep their types; remove the index and make a new one.",
        )
    return new


# --- one version of an index -----------------------------------------------------------------

_LOOKUPS = 16
_LOCATED = 256

Identity: TypeAlias = tuple[str, str, str, str, bool]
"""Storage path, version of the data, schema, time zone, all rows."""


@dataclass(frozen=True)
class IndexView:
    """An index with its metadata and its data, of one version each."""

    place: IndexPlace
    metadata: Metadata
    lookup: Lookup
    identity: Identity

    @classmethod
    def of(cls, place: IndexPlace, *, all_rows: bool = False) -> IndexView:
        """Read the newest metadata and data of an index.

        With `all_rows`, temporal columns do not hide older rows; see `Lookup`.
        """
        metadata = place.metadata.load()
        data = current_data(place, metadata)
        timezone = str(place.context.spark.conf.get("spark.sql.session.timeZone") or "UTC")
        identity = (place.uri, data.version, metadata.schema, timezone, all_rows)
        schema = arrow_schema(metadata, name=place.name)
        return cls(place, metadata, _lookup(identity, data, schema), identity)

    def locate(
        self, values: Mapping[str, Iterable[Any]] | None = None, *, where: str | None = None
    ) -> Located:
        """The files that may hold the values and rows for which the condition is true."""
        if values is None and where is None:
            raise AriadneArgumentError(
                "Cannot locate files", ["pass values by column, or a condition with where="]
            )
        if values is None:
            return self.lookup.where(where or "")
        located = self.lookup.locate(values)
        if where is None:
            return located
        also = set(self.lookup.where(where).files)
        files = tuple(file for file in located.files if file in also)
        return Located(files, located.total, located.pending, located.steps)

    def locate_keys(self, keys: pa.Table) -> Located:
        """The files that may hold one of the rows of keys; cached for the same rows."""
        digest = _digest(keys)
        if digest is None:
            return self.lookup.match(keys)
        return cached_keys(self.identity, digest, self.lookup, keys)


@cached(LRUCache(_LOOKUPS), key=lambda identity, *_: identity, lock=threading.Lock())
def _lookup(identity: Identity, data: IndexData, schema: pa.Schema) -> Lookup:
    *_, timezone, all_rows = identity
    return Lookup(data, schema, timezone=timezone, all_rows=all_rows)


@cached(
    LRUCache(_LOCATED),
    key=lambda identity, digest, *_: (identity, digest),
    lock=threading.Lock(),
    info=True,
)
def cached_keys(identity: Identity, digest: str, lookup: Lookup, keys: pa.Table) -> Located:  # noqa: ARG001
    """The files that may hold the keys with this digest."""
    return lookup.match(keys)


def _digest(keys: pa.Table) -> str | None:
    """The same text for the same set of rows, whatever their order; None if they have no hash."""
    if not all(can_hash(field.type) for field in keys.schema):
        return None
    rows = np.zeros(keys.num_rows, np.uint64)
    for number, column in enumerate(keys.columns):
        with np.errstate(over="ignore"):
            rows = rows * np.uint64(0x9E3779B97F4A7C15) + hash_values(column) + np.uint64(number)
    digest = hashlib.blake2b(np.unique(rows).tobytes(), digest_size=16)
    digest.update(str(keys.schema).encode())
    return digest.hexdigest()
