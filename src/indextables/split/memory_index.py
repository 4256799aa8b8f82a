"""A Tantivy index in memory over a few rows: words are searched the same way with and without one.

Whatever analyses and compiles for the index of a split does so here too, so a scan of rows finds
exactly what their index would find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tantivy

from indextables.split.index_searcher import IndexSearcher, Rows
from indextables.split.indexer import MIN_HEAP, add_documents
from indextables.split.mapping import FieldMapping, Mapping

__all__ = ["MemoryIndex", "Rows"]

IN_MEMORY = "(rows in memory)"


@dataclass(frozen=True, slots=True)
class MemoryIndex:
    """The index of some rows, which are numbered from 0."""

    schema: tantivy.Schema
    searcher: IndexSearcher
    num_rows: int

    @classmethod
    def build(
        cls, fields: Sequence[FieldMapping], columns: Sequence[list[Any]], *, rows: int
    ) -> MemoryIndex:
        """Index columns whose values are `None`, one value, or a list of values."""
        mapping = Mapping(tuple(fields))
        schema = mapping.tantivy_schema()
        index = mapping.register(tantivy.Index(schema))
        writer = index.writer(heap_size=MIN_HEAP, num_threads=1)
        add_documents(writer, mapping.indexed, columns, first_row=0, rows=rows)
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        return cls(schema, IndexSearcher(IN_MEMORY, index.searcher()), rows)

    def rows(self, query: tantivy.Query) -> Rows:
        """The rows that match, in ascending order."""
        return self.searcher.rows(query, total=self.num_rows)
