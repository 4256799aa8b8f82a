"""The file of a split: Parquet, with an index between its last row group and its footer.

`container` has the layout, `page_headers` checks its Parquet pages and reads some of them
alone, `rows` reads rows by their numbers, `index` opens the index inside, and `lists`
has the words, paths and values that are kept beside the index for cross-references. Of a remote
index only parts are read: `term_dictionary` says which postings a query reads and where they are,
and `blocks` stores and fetches them.
"""

from __future__ import annotations

from indextables.split.format.blocks import opening_of
from indextables.split.format.container import (
    INFO_KEY,
    Footer,
    Section,
    Segment,
    Sink,
    SplitInfo,
    Statistics,
    close_seal,
    exactly,
    read_footer,
    read_section,
    write_bytes_section,
    write_file_section,
    write_seal,
)
from indextables.split.format.index import (
    LONGEST_FOOTER,
    META,
    IndexSearcher,
    check_file,
    read_meta,
    schema_of,
    tantivy_errors,
)
from indextables.split.format.lists import (
    list_sections,
    number_texts,
    path_key,
    path_sections,
    read_terms,
    truth_text,
    value_class,
    value_texts,
)
from indextables.split.format.page_headers import ReadRange
from indextables.split.format.rows import (
    RowReader,
)

__all__ = [
    "INFO_KEY",
    "LONGEST_FOOTER",
    "META",
    "Footer",
    "IndexSearcher",
    "ReadRange",
    "RowReader",
    "Section",
    "Segment",
    "Sink",
    "SplitInfo",
    "Statistics",
    "check_file",
    "close_seal",
    "exactly",
    "list_sections",
    "number_texts",
    "opening_of",
    "path_key",
    "path_sections",
    "read_footer",
    "read_meta",
    "read_section",
    "read_terms",
    "schema_of",
    "tantivy_errors",
    "truth_text",
    "value_class",
    "value_texts",
    "write_bytes_section",
    "write_file_section",
    "write_seal",
]
