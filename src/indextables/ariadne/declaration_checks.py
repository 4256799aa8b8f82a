"""What is wrong with a declaration: everything, so that a caller learns all of it at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import fields

import pyarrow as pa

from indextables.ariadne.declarations import (
    FIXED,
    STAGING,
    Bloom,
    Computed,
    Declaration,
    Declarations,
    Exploded,
    Range,
    Temporal,
    Text,
    companions,
    element_type,
    field_type,
    needed_columns,
    not_comparable,
    storage_column,
)
from indextables.errors import AriadneArgumentError, ColumnNotFoundError


def check(new: Declaration, known: Declarations, schema: pa.Schema) -> None:
    """Refuse a declaration that cannot be kept, with everything that is wrong with it.

    `ColumnNotFoundError` if a column is missing, `AriadneArgumentError` otherwise.
    """
    if no_texts := list(_no_texts(new)):
        raise AriadneArgumentError(f"Cannot add the {new.kind} index", no_texts)
    missing = list(_missing(new, schema))
    wrong = [*_bad_names(new), *_bad_types(new, schema), *_clashes(new, known)]
    what = f"Cannot add the {new.kind} index '{new.name}'"
    if missing:
        raise ColumnNotFoundError(what, [*missing, *wrong], available=schema.names)
    if wrong:
        raise AriadneArgumentError(what, wrong)


def _no_texts(new: Declaration) -> Iterator[str]:
    for part in (p.name for p in fields(new) if p.name != "fpr"):
        if not isinstance(value := getattr(new, part), str):
            yield f"{part} is {value!r}, which is no text"
    if isinstance(new, Bloom) and not isinstance(new.fpr, float | int):
        yield f"fpr is {new.fpr!r}, which is no number"


def _missing(new: Declaration, schema: pa.Schema) -> Iterator[str]:
    for position, column in enumerate(needed_columns(new)):
        nested = isinstance(new, Temporal) and position == 1
        if column in schema.names or (nested and field_type(schema, column) is not None):
            continue
        near = difflib.get_close_matches(column, schema.names, n=1, cutoff=0.7)
        near = near or [n for n in schema.names if n.lower() == column.lower()]
        yield f"there is no column '{column}'" + (f", did you mean '{near[0]}'?" if near else "")


def _bad_names(new: Declaration) -> Iterator[str]:
    name = new.name
    if not name or not name.strip():
        yield "the name is empty"
    if "." in name:
        yield f"'{name}' is nested; index columns have plain names. Use a computed index for it"
    if name in STAGING or storage_column(new) in FIXED:
        yield f"'{name}' is a name that index tables use themselves"
    if isinstance(new, Computed) and not new.expression.strip():
        yield "the expression is empty"
    if isinstance(new, Exploded) and not new.field_path.strip():
        yield "the field path is empty"
    if isinstance(new, Bloom) and not 0 < new.fpr < 1:
        yield f"the false positive rate lies between 0 and 1, not at {new.fpr}"


def _bad_types(new: Declaration, schema: pa.Schema) -> Iterator[str]:
    match new:
        case Computed():
            return
        case Exploded():
            kind = field_type(schema, new.array_column)
            if kind is not None and not pa.types.is_list(kind):
                yield f"'{new.array_column}' is no array"
            elif kind is not None and (
                reason := not_comparable(element_type(kind, new.field_path))
            ):
                yield f"'{new.array_column}' has elements without '{new.field_path}': {reason}"
        case Text():
            kind = field_type(schema, new.column)
            if kind is not None and not pa.types.is_string(kind):
                yield f"'{new.column}' is no text"
        case Range():
            kind = field_type(schema, new.column)
            if kind is not None and pa.types.is_nested(kind):
                yield f"'{new.column}' has no order"
        case _:
            kind = field_type(schema, new.column)
            if kind is not None and (reason := not_comparable(kind)):
                yield f"'{new.column}': {reason}"
            if isinstance(new, Temporal):
                yield from _bad_time(new, schema)
                if kind is not None and pa.types.is_nested(kind):
                    yield f"'{new.column}' is nested; temporal indexes are over plain values"


def _bad_time(new: Temporal, schema: pa.Schema) -> Iterator[str]:
    kind = field_type(schema, new.timestamp_column)
    if kind is not None and pa.types.is_nested(kind):
        yield f"'{new.timestamp_column}' has no order"
    if new.column == new.timestamp_column:
        yield "value and time are the same column"


def _clashes(new: Declaration, known: Declarations) -> Iterator[str]:
    same = known.get(new.name)
    if same is not None and same.kind != new.kind:
        yield f"'{new.name}' has a {same.kind} index already; a column has one kind of index"
    elif same is not None and same != new:
        yield f"'{new.name}' is declared already, as {same}; remove the index to declare it anew"
    if same is not None:
        return
    taken = {c.lower(): d for d in known for c in (storage_column(d), *companions(d))}
    for column in (storage_column(new), *companions(new)):
        if other := taken.get(column.lower()):
            yield f"it needs the index table's column '{column}', which '{other.name}' has"
            return
