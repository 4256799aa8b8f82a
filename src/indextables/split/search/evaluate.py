"""Which rows match a search: the index answers what it can, the rows answer the rest.

A query that the index can answer exactly is one Tantivy search. Otherwise the largest parts that
it can answer are searched first, and leaves about rows are asked only for rows that are still in
question. The same evaluation serves a split on disk and rows in memory: both are a `Source`.

Rows answer a leaf that the index does not hold, or cannot decide. Numbers and their like are
compared in their column. Words that lie at a path inside JSON, and phrases of a field without
positions, are looked up in an index in memory over the rows in question.

`search_rows` searches rows that have no index: it is the fallback for a damaged or missing index,
the way columns added later are searched, and what the Spark function does with a batch. An index in
memory is built over the columns that the search looks at, and the evaluation is the one of a split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tantivy

from indextables.config import MAX_EXPANSIONS
from indextables.predicate import Exists, FieldNode, Phrase, Range, Search, Term, TermSet
from indextables.split.leaves import ArrowColumn, Leaves, leaves
from indextables.split.mapping import FieldMapping, TableMapping
from indextables.split.row_numbers import RowNumbers
from indextables.split.search.compile import Compiler, in_range
from indextables.split.search.engine import is_near, positions, with_stack
from indextables.split.search.query import (
    Boosted,
    Combined,
    Every,
    Leaf,
    Query,
    any_of,
    columns_of,
    leaves_of,
    levels,
    resolve,
    type_at,
    with_fields,
)
from indextables.split.search.typed import UTC, intervals, is_numeric, matches, values_have_words
from indextables.split.write.indexer import MemoryIndex, document_values

Mask = npt.NDArray[np.bool_]


def rowwise(leaf: Leaf, column: ArrowColumn, *, zone: ZoneInfo, max_expansions: int) -> Mask:
    """Which rows of a column match a leaf."""
    field, node = leaf.field, leaf.node
    as_json = field.kind == "json" and pa.types.is_string(column.type)
    answer = _Answer(field, node, zone, max_expansions, as_json=as_json)
    if isinstance(node, Exists):
        return _any_leaf(
            leaves(column, leaf.path, parse_json=as_json), len(column), answer.everything
        )
    if field.kind == "json":
        # A path leads to the value itself, not to what lies below it.
        parts = leaves(column, leaf.path, parse_json=as_json, below=not leaf.path)
        return _any_leaf(parts, len(column), answer.leaf)
    if field.kind == "string" and isinstance(node, Range):
        return _any_leaf(leaves(column), len(column), answer.text_range)
    if field.has_words or field.kind == "ip":
        return answer.documents(document_values(column, field))
    return _any_leaf(leaves(column), len(column), answer.leaf)


def _any_leaf(parts: list[Leaves], rows: int, answer: Callable[[ArrowColumn], Mask]) -> Mask:
    """Rows with at least one value that matches."""
    result = np.zeros(rows, dtype=np.bool_)
    for part in parts:
        result[part.rows[answer(part.values)]] = True
    return result


class _Answer:
    """One leaf as a test of values, without their rows."""

    def __init__(
        self,
        field: FieldMapping,
        node: FieldNode,
        zone: ZoneInfo,
        max_expansions: int,
        *,
        as_json: bool,
    ) -> None:
        self.field, self.node, self.zone = field, node, zone
        self.as_json = as_json
        self.max_expansions = max_expansions

    def everything(self, values: ArrowColumn) -> Mask:
        return np.ones(len(values), dtype=np.bool_)

    def leaf(self, values: ArrowColumn) -> Mask:
        """One value of a nested column, or of a typed one."""
        if pa.types.is_string(values.type):
            if isinstance(self.node, Range):
                if self.as_json and is_numeric(self.node):
                    return np.zeros(len(values), dtype=np.bool_)  # a text is not a number
                return self.text_range(values)
            return self.documents(values.to_pylist())
        if pa.types.is_binary(values.type):
            return np.zeros(len(values), dtype=np.bool_)
        ranges = intervals(self.node, values.type, self.zone)
        return matches(values, ranges or [])

    def text_range(self, values: ArrowColumn) -> Mask:
        """Whole values between two bounds, in the order of their bytes."""
        encoded = values.dictionary_encode()
        inside = in_range(self.node, str) if isinstance(self.node, Range) else bool
        mask = np.array([inside(text) for text in encoded.dictionary.to_pylist()], dtype=np.bool_)
        return mask[np.asarray(encoded.indices)] if len(mask) else mask

    def documents(self, values: list[object]) -> Mask:
        """Words, one document for each item."""
        if isinstance(self.node, Phrase) and self.node.slop and not self.field.analyzer.is_ngram:
            return self.phrases(self.node, values)
        result = np.zeros(len(values), dtype=np.bool_)
        field = replace(self.field, field="f0", fast=False)
        if field.has_words:
            field = replace(field, record="position", kind="text")
        index = MemoryIndex.build([field], [values], rows=len(values))
        compiler = Compiler(
            schema=index.schema,
            searcher=index.searcher,
            types=_no_types,
            zone=self.zone,
            max_expansions=self.max_expansions,
        )
        query = compiler.leaf(Leaf(field, self.node))
        if query is not None:
            result[index.rows(query)] = True
        return result

    def phrases(self, phrase: Phrase, values: list[object]) -> Mask:
        """Phrases whose words may move, by the positions of the words."""
        analyzer = self.field.analyzer
        sought = analyzer.query_words(phrase.text)
        result = np.zeros(len(values), dtype=np.bool_)
        for row, value in enumerate(values if sought else ()):
            texts = [] if value is None else [value] if isinstance(value, str) else value
            words = positions(analyzer, texts)  # type: ignore[arg-type]
            last = sought[-1]
            endings = {t for _, t in words if t.startswith(last.text)} if phrase.prefix else ()
            choices = [[*sought[:-1], replace(last, text=t)] for t in endings] or [sought]
            result[row] = any(is_near(choice, words, phrase.slop) for choice in choices)
        return result


def _no_types(name: str) -> pa.DataType:
    raise AssertionError(f"{name} has words, not values of a type")


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

    def index_rows(self, query: tantivy.Query) -> RowNumbers:
        """The rows that match, in ascending order."""

    def column(self, name: str, rows: RowNumbers | None) -> ArrowColumn:
        """A column, of all rows or of some."""


def matching(query: Query, source: Source) -> RowNumbers:
    """The rows that match a query, in ascending order."""
    return with_stack(levels(query), lambda: _matching(query, source))


def _matching(query: Query, source: Source) -> RowNumbers:
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
    unindexed: list[Query] = []
    for child in _alternatives(children):
        (unindexed if source.compiler.compile(child) is None else indexed).append(child)
    result = np.zeros_like(within)
    if indexed:
        together = any_of(indexed)
        result = with_stack(levels(together), lambda: _evaluate(together, source, within))
    for child in _by_column(unindexed):
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
        needed = None if len(rows) == source.num_rows else rows
        is_match = rowwise(
            leaf,
            source.column(leaf.field.name, needed),
            zone=compiler.zone,
            max_expansions=compiler.max_expansions,
        )
        result[rows[is_match]] = True
    return result


def may_propose(leaf: Leaf, data_type: pa.DataType) -> bool:
    """Whether every row that matches a leaf also has the leaf's words in the index."""
    if leaf.field.kind != "json" or (leaf.path and type_at(data_type, leaf.path) == pa.string()):
        return True
    return values_have_words(leaf.node, data_type, leaf.field.analyzer)


def _mask(rows: RowNumbers, source: Source) -> Mask:
    mask = np.zeros(source.num_rows, dtype=np.bool_)
    mask[rows] = True
    return mask


BATCH_ROWS = 65_536
"""How many rows are indexed in memory at once."""


def search_rows(
    search: Search,
    rows: pa.Table | pa.RecordBatch,
    mapping: TableMapping,
    *,
    schema: pa.Schema | None = None,
    zone: ZoneInfo = UTC,
    max_expansions: int = MAX_EXPANSIONS.default,
) -> Mask:
    """Which rows match a search. A column of `schema` that the rows lack is null."""
    schema = schema or rows.schema
    query = in_memory(resolve(search, mapping, schema), mapping)
    table = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
    starts = range(0, table.num_rows, BATCH_ROWS)
    # A table without columns, which `*` asks for, would be as long as the slice.
    counts = (min(BATCH_ROWS, table.num_rows - start) for start in starts)
    masks = [
        _search(query, table.slice(start, count), schema, zone, max_expansions)
        for start, count in zip(starts, counts, strict=True)
    ]
    return np.concatenate(masks) if masks else np.zeros(0, dtype=np.bool_)


def in_memory(query: Query, mapping: TableMapping) -> Query:
    """The query for an index in memory, where partition columns are indexed like others."""
    return with_fields(query, mapping.in_memory)


def _search(
    query: Query, table: pa.Table, schema: pa.Schema, zone: ZoneInfo, max_expansions: int
) -> Mask:
    source = TableSource.build(query, table, schema, zone=zone, max_expansions=max_expansions)
    mask = np.zeros(table.num_rows, dtype=np.bool_)
    mask[matching(query, source)] = True
    return mask


@dataclass(frozen=True)
class TableSource:
    """Rows in memory with an index over the columns of one query."""

    table: pa.Table
    schema: pa.Schema
    index: MemoryIndex
    compiler: Compiler

    @classmethod
    def build(
        cls,
        query: Query,
        table: pa.Table,
        schema: pa.Schema,
        *,
        zone: ZoneInfo = UTC,
        max_expansions: int = MAX_EXPANSIONS.default,
    ) -> TableSource:
        """Index the columns of the query."""
        fields: dict[str, FieldMapping] = {
            leaf.field.name: leaf.field for leaf in leaves_of(query) if leaf.field.field
        }
        columns = [
            document_values(_column(table, schema, field.name), field)
            for field in TableMapping(tuple(fields.values())).indexed
        ]
        index = MemoryIndex.build(list(fields.values()), columns, rows=table.num_rows)
        compiler = Compiler(
            schema=index.schema,
            searcher=index.searcher,
            types=lambda name: schema.field(name).type,
            zone=zone,
            max_expansions=max_expansions,
        )
        return cls(table, schema, index, compiler)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.table.num_rows

    def index_rows(self, query: tantivy.Query) -> RowNumbers:
        """The rows that match."""
        return self.index.rows(query)

    def column(self, name: str, rows: RowNumbers | None) -> ArrowColumn:
        """A column, of all rows or of some."""
        column = _column(self.table, self.schema, name)
        return column if rows is None else column.take(pa.array(rows))


def _column(table: pa.Table, schema: pa.Schema, name: str) -> ArrowColumn:
    if name not in table.schema.names:
        return pa.nulls(table.num_rows, schema.field(name).type)
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def columns_needed(search: Search, mapping: TableMapping, schema: pa.Schema) -> tuple[str, ...]:
    """The columns that `search_rows` has to be given."""
    return columns_of(resolve(search, mapping, schema))
