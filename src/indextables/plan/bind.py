"""A predicate as one split sees it: partition columns are constants there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from indextables.predicate import (
    FALSE,
    NULL,
    TRUE,
    And,
    Constant,
    Not,
    Or,
    Predicate,
    Search,
    columns,
    conjunction,
    disjunction,
    negation,
)
from indextables.split.row_filter import evaluate


def bind_partition(predicate: Predicate, partition: Mapping[str, Any]) -> Predicate:
    """The predicate with every condition on partition columns decided.

    `partition` holds Arrow scalars. Searches stay as they are.
    """
    match predicate:
        case And(children=children):
            return conjunction(*(bind_partition(child, partition) for child in children))
        case Or(children=children):
            return disjunction(*(bind_partition(child, partition) for child in children))
        case Not(child=child):
            return negation(bind_partition(child, partition))
        case Search() | Constant():
            return predicate
        case _:
            (column,) = columns(predicate)
            if column.root not in partition:
                return predicate
            value = partition[column.root]
            row = pa.table({column.root: pa.repeat(value, 1)})
            answer = evaluate(predicate, row)[0].as_py()
            return {True: TRUE, False: FALSE, None: NULL}[answer]
