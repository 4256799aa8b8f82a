"""Term lists: the sorted words of each field of words, kept beside the index of a split.

Together with the value lists (`value_lists`) they are all that a cross-reference index is built
from. They are small, lie together and can be read with one request. A list is complete or it is
not there.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import tantivy

from indextables.split.container import Section, Sink, write_bytes_section
from indextables.split.indexer import IndexFiles
from indextables.split.mapping import Mapping

WORD_LIST: Final = "terms"
"""The kind of sections that list the words of a field of the index, by the field's name there."""
_MAX_TERM_FILES = 64 << 20
"""Above this size of its term files an index gets no word lists: they would not fit in memory."""


def word_lists(mapping: Mapping, index: IndexFiles) -> Iterator[tuple[str, list[str]]]:
    """The sorted words of each field of words, with the field's name."""
    fields = [f for f in mapping.indexed if f.kind in ("text", "json")]
    size = sum(f.stat().st_size for f in index.files if f.suffix == ".term")
    if not fields or size > _MAX_TERM_FILES:
        return
    opened = tantivy.Index.open(str(index.files[0].parent))
    opened.config_reader("manual")
    searcher = opened.searcher()
    for field in fields:
        yield field.field, sorted(term for term, _ in searcher.terms_with_prefix(field.field, ""))


def write_terms(sink: Sink, terms: Any, *, kind: str, name: str) -> Section:
    """A one-column Parquet file: its delta encoding keeps only how a word differs from the last."""
    buffer = io.BytesIO()
    pq.write_table(
        pa.table({"term": pa.array(terms, pa.string())}),
        buffer,
        compression="zstd",
        use_dictionary=False,
        column_encoding="DELTA_BYTE_ARRAY",
        write_statistics=False,
        store_schema=False,
    )
    return write_bytes_section(sink, buffer.getvalue(), kind=kind, name=name)


def read_terms(data: bytes) -> pa.ChunkedArray[pa.StringScalar]:
    """The words of a term list."""
    return pq.read_table(pa.BufferReader(data)).column("term")
