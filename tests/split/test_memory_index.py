"""Rows of documents, with the bases of linked segments."""

from __future__ import annotations

import tantivy

from indextables.split.mapping import FieldMapping
from indextables.split.write.indexer import MemoryIndex

FIELD = FieldMapping("body", "text", "f0", tokenizer="default", record="position")


def test_rows_are_those_of_the_documents_plus_the_base_of_their_segment():
    index = MemoryIndex.build([FIELD], [["a", None, ["b", "a"], "c"]], rows=4)
    query = tantivy.Query.term_query(index.schema, "f0", "a")
    assert index.rows(query).tolist() == [0, 2]
    assert index.searcher.rows(query, total=103, bases=[100]).tolist() == [100, 102]


def test_no_rows_no_hits():
    index = MemoryIndex.build([FIELD], [[]], rows=0)
    assert index.rows(tantivy.Query.all_query()).tolist() == []
