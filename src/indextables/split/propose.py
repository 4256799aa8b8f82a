"""What an index can say about SQL conditions: rows that may match, and none that do is missing.

Equality with a text is a question to the index of the column: the whole value for a `string`, all
its words for a `text`. Rows decide afterwards, so a proposal may hold too many rows. `None` means
that the index cannot help.
"""

from __future__ import annotations

import pyarrow as pa
import tantivy

from indextables.errors import TooManyExpansionsError
from indextables.predicate import (
    Column,
    Compare,
    Condition,
    In,
    Jolly,
    StartsWith,
    Wildcard,
)
from indextables.split.ip_address import parse_address, show_address
from indextables.split.mapping import FieldMapping
from indextables.split.memory_index import Rows
from indextables.split.query import Leaf
from indextables.split.search import SplitSearcher, SplitSource

_ENOUGH_WORDS = 16
_MAX_VALUES = 10_000


def propose(condition: Condition, searcher: SplitSearcher) -> Rows | None:
    """Rows of a split that may satisfy a condition, in ascending order.

    `DamagedIndexError` if the index cannot be read: scan the rows then.
    """
    query = _question(condition, searcher)
    return None if query is None else searcher.source().index_rows(query)


def count_proposed(condition: Condition, searcher: SplitSearcher) -> int | None:
    """How many rows `propose` has, which an index tells without naming them."""
    query = _question(condition, searcher)
    return None if query is None else searcher.source().index.searcher.count(query)


def _question(condition: Condition, searcher: SplitSearcher) -> tantivy.Query | None:
    """What to ask the index of a split."""
    match condition:
        case Compare(op="=" | "<=>", column=column, value=str(text)):
            return _equal(column, (text,), searcher)
        case In(column=column, values=values) if all(isinstance(v, str) for v in values):
            return _equal(column, tuple(str(v) for v in values), searcher)
        case StartsWith(column=column, text=text) if text:
            return _beginning(column, text, searcher)
        case _:
            return None


def _beginning(column: Column, text: str, searcher: SplitSearcher) -> tantivy.Query | None:
    field = _field(column, searcher)
    # A value that is too long for the index may begin with anything.
    dropped = searcher.split.info.too_long
    if field is None or field.kind != "string" or field.name in dropped:
        return None
    if _may_be_dropped(text, field):
        return None
    try:
        return searcher.source().compiler.leaf(Leaf(field, Wildcard(None, (text, Jolly.MANY))))
    except TooManyExpansionsError:
        return None  # nobody asked for an expansion: comparing the rows is fine


def _field(column: Column, searcher: SplitSearcher) -> FieldMapping | None:
    """The field of a column of text that this split's index holds."""
    if len(column.path) > 1 or column.root not in searcher.split.rows.schema.names:
        return None
    if not pa.types.is_string(searcher.split.rows.schema.field(column.root).type):
        return None
    field = searcher.split.info.mapping.by_name.get(column.root)
    return field if field is not None and field.field else None


def _equal(column: Column, texts: tuple[str, ...], searcher: SplitSearcher) -> tantivy.Query | None:
    field = _field(column, searcher)
    if field is None or len(texts) > _MAX_VALUES:
        return None
    source = searcher.source()
    queries = [_value(text, field, source) for text in texts]
    known = [(tantivy.Occur.Should, query) for query in queries if query is not None]
    if len(known) < len(queries):
        return None
    return tantivy.Query.boolean_query(known)


def _value(text: str, field: FieldMapping, source: SplitSource) -> tantivy.Query | None:
    """The rows whose value may be this text."""
    if field.kind == "ip":
        address = parse_address(text)
        if address is None:
            return None
        # As it was indexed: a text with blanks around it is an address to us, not to Tantivy.
        shown = show_address(address)
        return tantivy.Query.term_query(source.compiler.schema, field.field, shown)
    if field.kind == "json" or _may_be_dropped(text, field):
        return None
    words = field.analyzer.words(text)[:_ENOUGH_WORDS]
    if not words:
        return None
    return source.compiler.all(source.compiler.term(field, word.text) for word in words)


def _may_be_dropped(text: str, field: FieldMapping) -> bool:
    """Whether a whole value is too long for the index."""
    return field.analyzer.tokenizer == "raw" and len(text.encode()) > field.token_length
