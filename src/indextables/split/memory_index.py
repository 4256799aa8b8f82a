"""A Tantivy index in memory over a few rows: words are searched the same way with and without one.

Whatever analyses and compiles for the index of a split does so here too, so a scan of rows finds
exactly what their index would find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import tantivy

from indextables.split.indexer import MIN_HEAP, add_documents
from indextables.split.mapping import ROW_FIELD, FieldMapping, Mapping

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MemoryIndex:
    """The index of some rows, which are numbered from 0."""

    schema: tantivy.Schema
    searcher: tantivy.Searcher

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
        return cls(schema, index.searcher())

    def rows(self, query: tantivy.Query) -> Rows:
        """The rows that match, in ascending order."""
        return matching_rows(self.searcher, query)


def matching_rows(
    searcher: tantivy.Searcher, query: tantivy.Query, *, bases: Sequence[int] = ()
) -> Rows:
    """The row of every document that matches, in ascending order.

    A row is the `_row` of its document plus the base of its segment, if there are bases.
    """
    # Tantivy panics at a limit of 0.
    limit = max(1, searcher.num_docs)
    result = searcher.search(
        query, limit, count=False, order_by_field=ROW_FIELD, order=tantivy.Order.Asc
    )
    hits = result.hits
    rows = np.fromiter(map(itemgetter(0), hits), dtype=np.int64, count=len(hits))
    if any(bases):
        segments = np.fromiter((a.segment_ord for _, a in hits), dtype=np.int64, count=len(hits))
        rows += np.asarray(bases, dtype=np.int64)[segments]
        rows.sort()
    return rows
