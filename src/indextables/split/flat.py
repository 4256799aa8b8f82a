"""Searching rows that have no index: the flat evaluator.

It is the fallback for a damaged or missing index, the way columns added later are searched, and
what the Spark function does with a batch. An index in memory is built over the columns that the
search looks at, and the evaluation is the one of a split.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import tantivy

from indextables.predicate import Search
from indextables.split.compile import Compiler
from indextables.split.compile_words import DEFAULT_MAX_EXPANSIONS
from indextables.split.evaluate import matching
from indextables.split.indexer import document_values
from indextables.split.leaves import ArrowColumn
from indextables.split.mapping import FieldMapping, Mapping, numbered
from indextables.split.memory_index import MemoryIndex, Rows
from indextables.split.query import Query, columns_of, leaves_of, resolve, with_fields
from indextables.split.rowwise import Mask
from indextables.split.typed import UTC

BATCH_ROWS = 65_536
"""How many rows are indexed in memory at once."""


def search_rows(
    search: Search,
    rows: pa.Table | pa.RecordBatch,
    mapping: Mapping,
    *,
    schema: pa.Schema | None = None,
    zone: ZoneInfo = UTC,
    max_expansions: int = DEFAULT_MAX_EXPANSIONS,
) -> Mask:
    """Which rows match a search. A column of `schema` that the rows lack is null."""
    schema = schema or rows.schema
    query = in_memory(resolve(search, mapping, schema), mapping)
    table = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
    masks = [
        _search(query, table.slice(start, BATCH_ROWS), schema, zone, max_expansions)
        for start in range(0, table.num_rows, BATCH_ROWS)
    ]
    return np.concatenate(masks) if masks else np.zeros(0, dtype=np.bool_)


def in_memory(query: Query, mapping: Mapping) -> Query:
    """The query for an index in memory, where partition columns are indexed like others."""
    fields = numbered(replace(f, partition=False, field="") for f in mapping.fields)
    return with_fields(query, fields)


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
        max_expansions: int = DEFAULT_MAX_EXPANSIONS,
    ) -> TableSource:
        """Index what the query looks at."""
        fields: dict[str, FieldMapping] = {
            leaf.field.name: leaf.field for leaf in leaves_of(query) if leaf.field.field
        }
        columns = [
            document_values(_column(table, schema, field.name), field)
            for field in Mapping(tuple(fields.values())).indexed
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

    def index_rows(self, query: tantivy.Query) -> Rows:
        """The rows that match."""
        return self.index.rows(query)

    def column(self, name: str, rows: Rows | None) -> ArrowColumn:
        """A column, of all rows or of some."""
        column = _column(self.table, self.schema, name)
        return column if rows is None else column.take(pa.array(rows))


def _column(table: pa.Table, schema: pa.Schema, name: str) -> ArrowColumn:
    if name not in table.schema.names:
        return pa.nulls(table.num_rows, schema.field(name).type)
    column = table.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def columns_needed(search: Search, mapping: Mapping, schema: pa.Schema) -> tuple[str, ...]:
    """The columns that `search_rows` has to be given."""
    return columns_of(resolve(search, mapping, schema))
