"""Which rows match a search: the index answers what it can, the rows answer the rest.

A query that the index can answer exactly is one Tantivy search. Otherwise the largest parts that
it can answer are searched first, and leaves about rows are asked only for rows that are still in
question. The same evaluation serves a split on disk and rows in memory: both are a `Source`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import tantivy

from indextables.predicate import Phrase, Term, TermSet
from indextables.split.compile import Compiler
from indextables.split.engine import with_stack
from indextables.split.json_words import values_have_words
from indextables.split.leaves import ArrowColumn
from indextables.split.mapping import FieldMapping
from indextables.split.memory_index import Rows
from indextables.split.query import Boosted, Combined, Every, Leaf, Query, any_of, levels
from indextables.split.query_values import type_at
from indextables.split.rowwise import Mask, rowwise

_VALUES = frozenset(("i64", "f64", "bool", "date", "timestamp", "decimal"))
"""Kinds of fields whose values are compared; a text is one of them or matches nothing."""


class Source(Protocol):
    """Rows with an index over them."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""

    @property
    def compiler(self) -> Compiler:
        """Compiles queries for the index."""

    def index_rows(self, query: tantivy.Query) -> Rows:
        """The rows that match, in ascending order."""

    def column(self, name: str, rows: Rows | None) -> ArrowColumn:
        """A column, of all rows or of some."""


def matching(query: Query, source: Source) -> Rows:
    """The rows that match a query, in ascending order."""
    return with_stack(levels(query), lambda: _matching(query, source))


def _matching(query: Query, source: Source) -> Rows:
    compiled = source.compiler.compile(query)
    if compiled is not None:
        return source.index_rows(compiled)
    everything = np.ones(source.num_rows, dtype=np.bool_)
    return np.flatnonzero(_evaluate(query, source, everything))


def _evaluate(query: Query, source: Source, within: Mask) -> Mask:
    """The rows of `within` that match."""
    compiled = source.compiler.compile(query)
    if compiled is not None:
        return within & _mask(source.index_rows(compiled), source)
    match query:
        case Leaf():
            return leaf_rows(query, source, within)
        case Boosted(child=child):
            return _evaluate(child, source, within)
        case Combined():
            return _combined(query, source, within)
        case Every():
            return within


def _combined(query: Combined, source: Source, within: Mask) -> Mask:
    result = within
    if query.must:
        for child in _cheapest_first(query.must, source):
            result = _evaluate(child, source, result)
    elif query.should:
        result = _any(query.should, source, within)
    else:
        return np.zeros_like(within)
    if query.must_not:
        result = result & ~_any(query.must_not, source, result)
    return result


def _cheapest_first(children: Sequence[Query], source: Source) -> list[Query]:
    return sorted(children, key=lambda child: source.compiler.compile(child) is None)


def _any(children: Sequence[Query], source: Source, within: Mask) -> Mask:
    """The rows of `within` that match one of several queries.

    However many there are, the index is asked once, and each column of values is read once.
    """
    indexed: list[Query] = []
    others: list[Query] = []
    for child in _alternatives(children):
        (others if source.compiler.compile(child) is None else indexed).append(child)
    result = np.zeros_like(within)
    if indexed:
        together = any_of(indexed)
        result = with_stack(levels(together), lambda: _evaluate(together, source, within))
    for child in _by_column(others):
        result = result | _evaluate(child, source, within & ~result)
    return result


def _alternatives(children: Sequence[Query]) -> Iterator[Query]:
    for child in children:
        match child:
            case Combined(must=(), must_not=()) if child.should:
                yield from _alternatives(child.should)
            case Boosted(child=inner):
                yield from _alternatives([inner])
            case _:
                yield child


def _by_column(queries: Sequence[Query]) -> Iterator[Query]:
    """The same alternatives; those that ask one column for values become one leaf."""
    values: dict[FieldMapping, list[str]] = {}
    for query in queries:
        match query:
            case Leaf(
                field=field, node=Term(text=text) | Phrase(text=text, prefix=False), path=()
            ) if field.kind in _VALUES:
                values.setdefault(field, []).append(text)
            case _:
                yield query
    for field, texts in values.items():
        yield Leaf(field, TermSet(None, tuple(dict.fromkeys(texts))))


def leaf_rows(leaf: Leaf, source: Source, within: Mask) -> Mask:
    """The rows of `within` that match a leaf which the index cannot decide."""
    compiler = source.compiler
    if leaf.field.partition:
        # One value for the whole split: ask once.
        first = source.column(leaf.field.name, np.zeros(min(1, len(within)), dtype=np.int64))
        same = rowwise(leaf, first, zone=compiler.zone, max_expansions=compiler.max_expansions)
        return within if same.any() else np.zeros_like(within)
    if may_propose(leaf, compiler.types(leaf.field.name)):
        proposal = compiler.candidates(leaf)
        if proposal is not None:
            within = within & _mask(source.index_rows(proposal), source)
    rows = np.flatnonzero(within)
    result = np.zeros_like(within)
    if len(rows):
        some = None if len(rows) == source.num_rows else rows
        found = rowwise(
            leaf,
            source.column(leaf.field.name, some),
            zone=compiler.zone,
            max_expansions=compiler.max_expansions,
        )
        result[rows[found]] = True
    return result


def may_propose(leaf: Leaf, kind: pa.DataType) -> bool:
    """Whether every row that matches a leaf also has the leaf's words in the index."""
    if leaf.field.kind != "json" or (leaf.path and type_at(kind, leaf.path) == pa.string()):
        return True
    return values_have_words(leaf.node, kind, leaf.field.analyzer)


def _mask(rows: Rows, source: Source) -> Mask:
    mask = np.zeros(source.num_rows, dtype=np.bool_)
    mask[rows] = True
    return mask
