"""Fields of structs that UPDATE assigns: the struct is made again, its other fields as they are.

As in Spark's own UPDATE, a struct that was null becomes one whose other fields are null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from indextables.errors import ExpressionError, UnknownColumnError
from indextables.predicate.literals import quoted_name
from indextables.statements.search_calls import literal

Place = tuple[str, ...]
"""A column, or the path of a field below it."""


def place_of(name: tuple[str, ...], schema: pa.Schema) -> Place:
    """The place that a name means, as the schema spells it."""
    found: Place = ()
    kind: Any = pa.struct(list(schema))
    for part in name:
        if not pa.types.is_struct(kind):
            raise ExpressionError(".".join(name), f"'{'.'.join(found)}' is not a struct")
        fields = [kind.field(number) for number in range(kind.num_fields)]
        same = [f for f in fields if f.name.lower() == part.lower()]
        if not same:
            raise UnknownColumnError(".".join(name), available=[f.name for f in fields])
        field = next((f for f in same if f.name == part), same[0])
        found, kind = (*found, field.name), field.type
    return found


def new_value(place: Place, kind: Any, assigned: Mapping[Place, str], text: str) -> str:
    """The SQL of what a column or field becomes, by the expressions of what is assigned."""
    below = [one for one in assigned if len(one) > len(place) and one[: len(place)] == place]
    if place in assigned:
        if below:
            raise ExpressionError(text, "it assigns a column twice, as a whole and by its fields")
        return assigned[place]
    if not below:
        return ".".join(map(quoted_name, place))
    fields = (kind.field(number) for number in range(kind.num_fields))
    parts = [
        f"{literal(f.name)}, {new_value((*place, f.name), f.type, assigned, text)}" for f in fields
    ]
    return f"named_struct({', '.join(parts)})"
