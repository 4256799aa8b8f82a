"""Making an index, or reconnecting to one: schema, format and read options must agree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from indextables.ariadne.declarations import Computed, Declarations, needed_columns, types_of
from indextables.ariadne.declarations import field_type as type_at
from indextables.ariadne.metadata import Metadata
from indextables.ariadne.place import IndexPlace
from indextables.ariadne.source import FORMATS, arrow_schema, computed_types
from indextables.errors import (
    AriadneArgumentError,
    FormatMismatchError,
    IndexNotFoundInNewSchemaError,
    MissingFormatError,
    SchemaMismatchError,
    SchemaNotProvidedError,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    SchemaLike = StructType | pa.Schema | str


def connect(
    place: IndexPlace,
    schema: SchemaLike | None,
    format: str | None,  # noqa: A002
    *,
    allow_schema_mismatch: bool,
    read_options: Mapping[str, str] | None,
) -> Metadata:
    """The metadata of an index, which is made if it does not exist."""
    wanted = None if schema is None else schema_json(schema)
    if unset := [
        f"'{n}' is None; leave it out" for n, v in (read_options or {}).items() if v is None
    ]:
        raise AriadneArgumentError("Cannot use the read options", unset)
    options = {str(n): str(v) for n, v in (read_options or {}).items()}
    chosen = None if format is None else str(format).strip().lower()
    if not place.metadata.exists():
        if wanted is None:
            raise SchemaNotProvidedError(place.name)
        if (chosen or "parquet") not in FORMATS:
            raise MissingFormatError(place.name, format, supported=FORMATS)
        new = Metadata(chosen or "parquet", wanted, read_options=options)
        arrow_schema(new, name=place.name)
        if place.metadata.create(new):
            return new
    return _reconnect(place, wanted, chosen, options, allow_schema_mismatch)


def _reconnect(
    place: IndexPlace,
    schema: str | None,
    format: str | None,  # noqa: A002
    options: Mapping[str, str],
    allow_schema_mismatch: bool,
) -> Metadata:
    def change(found: Metadata) -> Metadata:
        if format is not None and format != found.format:
            raise FormatMismatchError(place.name, stored=found.format, given=format)
        if schema is not None and json.loads(schema) != _loaded(found.schema):
            if not allow_schema_mismatch:
                raise SchemaMismatchError(place.name, _differences(found.schema, schema))
            found = _with_schema(place, found, schema)
        if any(found.read_options.get(n) != v for n, v in options.items()):
            found = replace(found, read_options={**found.read_options, **options})
        return found

    return place.metadata.change(change)


def schema_json(schema: SchemaLike) -> str:
    """A schema, given as Spark's, as Arrow's or as DDL, as Spark's JSON."""
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    from indextables.schema import normalize, to_json

    if isinstance(schema, StructType):
        return schema.json()
    if isinstance(schema, pa.Schema):
        return to_json(normalize(schema))
    if isinstance(schema, str):
        try:
            parsed: Any = StructType.fromDDL(schema)
        except PySparkException as error:
            reason = str(error).splitlines()[0]
            raise AriadneArgumentError("Cannot use the schema", [reason]) from None
        return str(parsed.json())
    raise AriadneArgumentError(
        "Cannot use the schema",
        [f"{type(schema).__name__} is none; give a StructType, a pyarrow.Schema or DDL"],
    )


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _differences(stored: str, given: str) -> list[str]:
    old, new = (
        {f["name"]: f for f in (_loaded(t) or {}).get("fields", ())} for t in (stored, given)
    )
    found = [f"'{n}' is not in the schema given" for n in old if n not in new]
    found += [f"'{n}' is new" for n in new if n not in old]
    for name in (n for n in old if n in new and old[n] != new[n]):
        parts = [
            p for p in ("type", "nullable", "metadata") if old[name].get(p) != new[name].get(p)
        ]
        shown = (
            f"{p} {json.dumps(old[name].get(p))} → {json.dumps(new[name].get(p))}" for p in parts
        )
        found.append(f"'{name}' differs in {', '.join(shown)}")
    return found or ["the columns are in another order"]


def _with_schema(place: IndexPlace, found: Metadata, schema: str) -> Metadata:
    """The metadata with another schema, if every index column means the same in it."""
    new = replace(found, schema=schema)
    before, after = (arrow_schema(m, name=place.name) for m in (found, new))
    missing = []
    plain = []
    for d in found.declarations:
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
        for s, m in ((before, found), (after, new))
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
