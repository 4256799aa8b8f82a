"""Conditions as Arrow expressions: rows are read, then filtered by Arrow.

Arrow does not show what an expression is made of, so neither statistics nor an index narrow it. A
condition as text, or as a predicate of ours, is planned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import UnknownColumnError, UnsupportedPredicateError

_UNKNOWN = re.compile(r"No match for FieldRef\.(?:Nested\(FieldRef\.)?Name\((?P<name>.*?)\)")


def columns_of(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """The columns that an expression reads.

    >>> schema = pa.schema([("a", pa.int8()), ("b", pa.int8()), ("c", pa.int8())])
    >>> sorted(columns_of((pc.field("b") > 1) & pc.field("a").is_valid(), schema))
    ['a', 'b']
    """
    known: list[str] = []
    while True:
        try:
            pa.schema([schema.field(name) for name in known]).empty_table().filter(expression)
        except pa.ArrowInvalid as error:
            found = _UNKNOWN.search(str(error))
            name = found and found["name"]
            if name is None:
                raise UnsupportedPredicateError(str(expression), str(error)) from None
            if name not in schema.names or name in known:
                raise UnknownColumnError(name, available=schema.names) from None
            known.append(name)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise UnsupportedPredicateError(str(expression), str(error)) from None
        else:
            return known


def filtered(
    batches: Iterable[pa.RecordBatch],
    expression: pc.Expression,
    columns: Sequence[str],
    limit: int | None,
) -> Iterator[pa.RecordBatch]:
    """The rows that an expression keeps, some columns of them."""
    left = limit
    for batch in batches:
        if left == 0:
            return
        kept: Any = pa.Table.from_batches([batch]).filter(expression).select(list(columns))
        if left is not None:
            kept = kept.slice(0, left)
            left -= kept.num_rows
        yield from kept.to_batches()
