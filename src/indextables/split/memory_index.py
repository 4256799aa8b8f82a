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
from indextables.split.row_numbers import UNTAGGED, Tags, rows_of

Rows = npt.NDArray[np.int64]

_FEW_HITS = 4_096


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
    searcher: tantivy.Searcher,
    query: tantivy.Query,
    *,
    bases: Sequence[int] = (),
    tags: Tags = UNTAGGED,
) -> Rows:
    """The row of every document that matches, in ascending order.

    A row is what `_row` says under these tags, plus the base of its segment if there are bases.
    """
    hits = _hits_by_row(searcher, query, bases)
    rows = rows_of(np.fromiter(map(itemgetter(0), hits), dtype=np.int64, count=len(hits)), tags)
    if any(bases):
        segments = np.fromiter((a.segment_ord for _, a in hits), dtype=np.int64, count=len(hits))
        rows += np.asarray(bases, dtype=np.int64)[segments]
    if any(bases) or len(tags) > 1:
        rows.sort()
    return rows


def _hits_by_row(
    searcher: tantivy.Searcher, query: tantivy.Query, bases: Sequence[int]
) -> list[tuple[Any, tantivy.DocAddress]]:
    """All hits. Tantivy reserves room for as many as may be asked for, in every segment."""
    limit = max(1, searcher.num_docs)  # it panics at 0
    first = _FEW_HITS if len(bases) > 1 and limit > _FEW_HITS else limit
    while True:
        hits = searcher.search(
            query, first, count=False, order_by_field=ROW_FIELD, order=tantivy.Order.Asc
        ).hits
        if len(hits) < first or first == limit:
            return hits
        first = limit
