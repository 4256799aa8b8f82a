"""Opening an index: it is created or found, and schema, format and read options must agree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from indextables.ariadne.files.read import FORMATS, arrow_schema, computed_types
from indextables.ariadne.model.declarations import (
    Computed,
    Declarations,
    needed_columns,
    types_of,
)
from indextables.ariadne.model.declarations import field_type as type_at
from indextables.ariadne.model.metadata import Metadata
from indextables.ariadne.store.place import IndexPlace
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
        [f"{type(schema).__name__} is not a schema; pass a StructType, a pyarrow.Schema or DDL"],
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
