"""Snippets: the part of a text that shows why it was found, with the words marked.

The words of the text are found with the field's analyzer, so their places are exact even where the
index holds stems. What the query asks for decides which words are marked; patterns are matched by
Tantivy, as in the index. The result is HTML in which the text is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from indextables.predicate import Fuzzy, Phrase, Search, Term, TermSet
from indextables.split.leaves import document_texts, json_documents
from indextables.split.mapping import FieldMapping, TableMapping
from indextables.split.search.compile import Compiler
from indextables.split.search.query import (
    Boosted,
    Combined,
    Leaf,
    Query,
    resolve,
)
from indextables.split.text_steps import Word
from indextables.split.write.indexer import MemoryIndex

DEFAULT_LENGTH = 150
_AT_ONCE = 100
"""Texts whose words are in memory."""


def snippets(
    texts: Sequence[str | None],
    search: Search,
    column: str,
    *,
    mapping: TableMapping,
    schema: pa.Schema,
    length: int = DEFAULT_LENGTH,
) -> list[str]:
    """About `length` characters of each text with the words that a search asks for in `<b>`.

    Empty if the text has none of them. A pattern is matched with the words of many texts at once.
    """
    field = mapping.by_name[column]
    if not field.has_words:
        return [""] * len(texts)
    query = resolve(search, mapping, schema)
    shown = []
    for start in range(0, len(texts), _AT_ONCE):
        read = [_words(text, field) for text in texts[start : start + _AT_ONCE]]
        matching = _words_of_query(
            query, field, sorted({word.text for _, words in read for word in words})
        )
        shown += [_shown(text, [w for w in words if w.text in matching], length)
                  for text, words in read]  # fmt: skip
    return shown


def _words(text: str | None, field: FieldMapping) -> tuple[str, list[Word]]:
    """A text as it is shown, and its words."""
    if text is None:
        return "", []
    if field.kind == "json":
        # Its values, not its spelling: in JSON a new line is a backslash and an n.
        text = "\n".join(document_texts(json_documents(pa.array([text], pa.string())))[0] or ())
    text, analyzer = field.analyzer.shown(text)
    return text, analyzer.words(text)


def _shown(text: str, marked: list[Word], length: int) -> str:
    if not marked:
        return ""
    start, end = _window(text, marked, length)
    return _mark(text, [w for w in marked if start <= w.start and w.end <= end], start, end)


def _positive(query: Query, field: FieldMapping) -> Iterator[Leaf]:
    """Leaves about a field that a row is found by, not those it must not match."""
    match query:
        case Leaf() if query.field.name == field.name:
            yield query
        case Boosted(child=child):
            yield from _positive(child, field)
        case Combined(must=must, should=should):
            for child in (*must, *should):
                yield from _positive(child, field)
        case _:
            pass


def _words_of_query(query: Query, field: FieldMapping, vocabulary: list[str]) -> set[str]:
    """Which words of a vocabulary the query asks for."""
    wanted_words: set[str] = set()
    for leaf in _positive(query, field):
        match leaf.node:
            case Term(text=text) | Phrase(text=text, prefix=False):
                wanted_words |= {word.text for word in field.analyzer.query_words(text)}
            case Phrase(text=text):
                *complete, last = field.analyzer.query_words(text) or [Word("", 0, 0, 0)]
                wanted_words |= {word.text for word in complete}
                wanted_words |= {w for w in vocabulary if last.text and w.startswith(last.text)}
            case TermSet(values=values):
                wanted_words |= {
                    word.text for text in values for word in field.analyzer.query_words(text)
                }
            case Fuzzy(text=text, distance=distance):
                for word in field.analyzer.query_words(text):
                    wanted_words |= _matched(
                        field, Leaf(field, Fuzzy(None, word.text, distance)), vocabulary
                    )
            case _:
                wanted_words |= _matched(field, leaf, vocabulary)
    return wanted_words


def _matched(field: FieldMapping, leaf: Leaf, vocabulary: list[str]) -> set[str]:
    """The words that a pattern matches. Each word is a document of its own."""
    # Patterns are lowered by the field's analyzer; words are in its form already.
    target = replace(field, field="f0", kind="text", record="basic", fast=False)
    documents = replace(target, tokenizer="raw")
    index = MemoryIndex.build([documents], [vocabulary], rows=len(vocabulary))
    compiler = Compiler(schema=index.schema, searcher=index.searcher, types=lambda _: pa.string())
    if isinstance(leaf.node, Fuzzy):
        target = documents
    query = compiler.leaf(Leaf(target, leaf.node))
    return set() if query is None else {vocabulary[row] for row in index.rows(query).tolist()}


def _window(text: str, marked: list[Word], length: int) -> tuple[int, int]:
    """The stretch of text that shows the most different words, the first of the best."""
    if length >= len(text):
        return 0, len(text)
    best, best_count, last = marked[0], 0, 0
    for at, first in enumerate(marked):
        last = max(last, at)
        while last + 1 < len(marked) and marked[last + 1].end - first.start <= length:
            last += 1
        count = len({word.text for word in marked[at : last + 1]})
        if count > best_count:
            best, best_count = first, count
    inside = [w for w in marked if w.start >= best.start and w.end - best.start <= length]
    spare = max(0, length - (max(w.end for w in inside or [best]) - best.start))
    start = max(0, best.start - spare // 2)
    end = min(len(text), max(start + length, best.end))
    # A word is not cut in two, if a blank is near.
    if start > 0 and (blank := text.find(" ", start, best.start)) >= 0:
        start = blank + 1
    final = max(w.end for w in inside or [best])
    if end < len(text) and (blank := text.rfind(" ", final, end)) >= 0:
        end = blank
    return start, end


def _mark(text: str, words: list[Word], start: int, end: int) -> str:
    parts, at = [], start
    for word in words:
        if word.start < at:
            continue
        parts += [html.escape(text[at : word.start]), "<b>"]
        parts += [html.escape(text[word.start : word.end]), "</b>"]
        at = word.end
    return "".join([*parts, html.escape(text[at:end])])
