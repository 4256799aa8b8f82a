"""Values that a search asks of numbers, dates and their like: refused where they can never match.

`n:abc` finds nothing whatever the rows are, and `NOT n:abc` everything; both are mistakes. Where a
search names no field, a word is asked of the fields that it fits.
"""

from __future__ import annotations

import pyarrow as pa

from indextables.errors import SearchValueError
from indextables.predicate import Exists, FieldNode, Phrase, Range, Term, TermSet, Wildcard
from indextables.split.ip_address import parse_addresses
from indextables.split.leaves import Path
from indextables.split.mapping import FieldMapping
from indextables.split.typed import is_value


def check_values(
    field: FieldMapping, node: FieldNode, path: Path, kind: pa.DataType, *, query: str
) -> None:
    """Refuse a question with a text that is no value of the field's type."""
    if isinstance(node, Exists) or (field.has_words and not path):
        return
    shown = ".".join([field.name, *path])
    inner = None if field.kind == "ip" else type_at(kind, path)
    if field.kind == "ip":
        texts, form = _texts(node, patterns=True), "an address such as 10.0.0.1, 10.0.0.0/8 or ::1"
    elif inner is None or pa.types.is_nested(inner) or _is_text(inner):
        return
    else:
        texts, form = _texts(node), expected_form(inner)
    if texts is None:
        raise SearchValueError(shown, "a pattern or fuzzy term", expected=form, query=query)
    for text in texts:
        if not (parse_addresses(text) if inner is None else is_value(text, inner)):
            raise SearchValueError(
                shown, repr(text), expected=form, query=query, text=text, at=node.at
            )


def _texts(node: FieldNode, *, patterns: bool = False) -> list[str] | None:
    """The values that a node names; None if it asks for words."""
    match node:
        case Term(text=text) | Phrase(text=text, prefix=False):
            return [text]
        case TermSet(values=values):
            return list(values)
        case Range(lower=lower, upper=upper):
            return [bound for bound in (lower, upper) if bound is not None]
        case Wildcard(parts=parts) if patterns:
            return ["".join(p if isinstance(p, str) else p.value for p in parts)]
        case _:
            return None


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_null(kind)


def expected_form(kind: pa.DataType) -> str:
    """How values of a type are written in a search."""
    if pa.types.is_boolean(kind):
        return "true or false"
    if pa.types.is_date(kind):
        return "a date such as 2024-01-31"
    if pa.types.is_timestamp(kind):
        return (
            "a time such as 2024-01-31T12:00:00Z, a date such as 2024-01-31, or seconds, "
            "milliseconds or microseconds since 1970"
        )
    return "a number such as 42 or -2.5"


def type_at(kind: pa.DataType, path: Path) -> pa.DataType | None:
    """The type of the values at a path, if the schema tells."""
    for name in path:
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_map(kind):
            kind = kind.item_type
        elif pa.types.is_struct(kind) and kind.get_field_index(name) >= 0:
            kind = kind.field(name).type
        else:
            return None
    while pa.types.is_list(kind):
        kind = kind.value_type
    return kind
