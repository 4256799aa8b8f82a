"""What a table's schema becomes when rows of another schema arrive."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indextables.errors import SchemaError
from indextables.schema.normal import normalize
from indextables.schema.spark_json import type_name
from indextables.schema.types import MAX_DECIMAL_PRECISION, Type, map_of, refuse_hidden


def evolve(table: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The schema of a table after rows of another schema are added to it.

    New columns are added and are null in older rows. Types widen as Delta's do: byte to short to
    integer to long, float to double, decimals to more digits. Everything else is refused, all
    differences in one error.
    """
    refuse_hidden(name for name in new.names if name not in table.names)
    problems: list[str] = []
    fields = _merge_fields(list(table), list(_typed(new, table)), "", problems)
    if problems:
        raise SchemaError(
            "The rows do not fit the table's schema:\n  " + "\n  ".join(problems) + "\n"
            "Cast the columns, or write the rows to another table."
        )
    return pa.schema(fields)


def _typed(new: pa.Schema, table: pa.Schema) -> pa.Schema:
    """A column of nulls only takes the type that the table has for it."""
    known = {f.name: f for f in table}
    return normalize(
        pa.schema(known[f.name] if pa.types.is_null(f.type) and f.name in known else f for f in new)
    )


def _merge_fields(
    table: list[pa.Field[Any]], new: list[pa.Field[Any]], parent: str, problems: list[str]
) -> list[pa.Field[Any]]:
    arriving = {f.name: f for f in new}
    merged = []
    for field in table:
        other = arriving.pop(field.name, None)
        if other is None:
            if not field.nullable:
                problems.append(f"'{parent}{field.name}' is missing and may not be null")
            merged.append(field)
            continue
        kind = _merge_types(field.type, other.type, f"{parent}{field.name}", problems)
        merged.append(field.with_type(kind))
    spelled = {f.name.lower(): f.name for f in table}
    for name, other in arriving.items():
        if (known := spelled.get(name.lower())) is not None:
            problems.append(f"'{parent}{name}' differs from the column '{parent}{known}' in case")
        merged.append(other.with_nullable(True))
    return merged


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def _wider(left: Type, right: Type) -> Type | None:
    if left in _INTEGERS and right in _INTEGERS:
        return max(left, right, key=_INTEGERS.index)
    if {left, right} == {pa.float32(), pa.float64()}:
        return pa.float64()
    if pa.float64() in (left, right) and {left, right} & set(_INTEGERS[:3]):
        return pa.float64()
    if pa.types.is_decimal(left) and pa.types.is_decimal(right):
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        return pa.decimal128(precision, scale) if precision <= MAX_DECIMAL_PRECISION else None
    return None


def _merge_types(table: Type, new: Type, path: str, problems: list[str]) -> Type:
    types = pa.types
    if table.equals(new):
        return table
    if types.is_struct(table) and types.is_struct(new):
        return pa.struct(_merge_fields(table.fields, new.fields, f"{path}.", problems))
    if types.is_list(table) and types.is_list(new):
        element = _merge_types(table.value_type, new.value_type, f"{path}.element", problems)
        return pa.list_(table.value_field.with_type(element))
    if types.is_map(table) and types.is_map(new):
        key = _merge_types(table.key_type, new.key_type, f"{path}.key", problems)
        value = _merge_types(table.item_type, new.item_type, f"{path}.value", problems)
        return map_of(table.key_field.with_type(key), table.item_field.with_type(value))
    if (wider := _wider(table, new)) is not None:
        return wider
    problems.append(f"'{path}' is {type_name(table)} in the table and {type_name(new)} in the rows")
    return table
