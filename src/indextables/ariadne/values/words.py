"""Text indexes: which files contain words, asked in the search syntax.

Of each file the index keeps the sorted list of its different words, cut by the same analyzer that
searches use. A `Words` turns the lists of all files around, word by word, and answers a query as a
cross-reference does: AND is what all parts have in common, OR is what any part has, a phrase needs
all its words, and a part that words alone cannot decide (NOT, a range, a field of another column)
keeps every file. Wildcards, fuzzy words and patterns are tried on the different words with the
search engine itself, so they mean here what they mean on rows.

    >>> words = Words.of([build(pa.array(["Wi-Fi at home"])), build(pa.array(["at work", None]))])
    >>> from indextables.predicate.search_syntax import parse_search
    >>> words.may_match(parse_search("home OR wor*")).tolist()
    [True, True]
    >>> words.may_match(parse_search('"at home"')).tolist()
    [True, False]
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import Config
from indextables.errors import QueryError
from indextables.plan.statistics import Flags
from indextables.predicate import (
    All,
    Boolean,
    Boost,
    Column,
    Fuzzy,
    Phrase,
    Regex,
    Search,
    SearchNode,
    Term,
    TermSet,
    Wildcard,
)
from indextables.split.mapping import FieldMapping, TableMapping
from indextables.split.mapping_options import build_mapping
from indextables.split.search import search_rows

_MAGIC = b"ATX1"
_COLUMN = "text"
_SCHEMA = pa.schema([(_COLUMN, pa.string())])
_BATCH = 65_536
# Lowering İ leaves a mark behind that would end the word if it were split again.
_MARK = "\u0307"


@functools.cache
def _mapping() -> TableMapping:
    """How a column of text is searched by default."""
    return build_mapping(_SCHEMA, Config())


def _field() -> FieldMapping:
    return _mapping().fields[0]


# --- building --------------------------------------------------------------------------------


class WordList:
    """Collects the words of one file, batch by batch."""

    def __init__(self) -> None:
        self._words: set[str] = set()

    def add(self, values: pa.Array[Any] | pa.ChunkedArray[Any]) -> None:
        """The words of some texts."""
        from indextables.split.write import MemoryIndex

        for start in range(0, len(values), _BATCH):
            texts: list[Any] = values.slice(start, _BATCH).to_pylist()
            index = MemoryIndex.build([_field()], [texts], rows=len(texts))
            self._words.update(index.searcher.terms(_field().field))

    def finish(self) -> bytes:
        """The list as it is stored."""
        import pyarrow.parquet as pq

        sink = io.BytesIO()
        sink.write(_header())
        table = pa.table({"term": pa.array(sorted(self._words), pa.string())})
        body = io.BytesIO()
        # Its delta encoding keeps only how a word differs from the last.
        pq.write_table(
            table,
            body,
            compression="zstd",
            use_dictionary=False,
            column_encoding="DELTA_BYTE_ARRAY",
            write_statistics=False,
            store_schema=False,
        )
        return sink.getvalue() + body.getvalue()


def build(values: pa.Array[Any] | pa.ChunkedArray[Any]) -> bytes:
    """What a text index keeps of a file whose column holds these values."""
    words = WordList()
    words.add(values)
    return words.finish()


def _header() -> bytes:
    return _MAGIC + _field().fingerprint.encode()


def _read(stored: bytes | None) -> pa.ChunkedArray[Any] | None:
    """The words of a file; None if the bytes are not a list of words of this analyzer."""
    import pyarrow.parquet as pq

    if stored is None or not stored.startswith(_header()):
        return None
    try:
        return pq.read_table(pa.BufferReader(stored[len(_header()) :])).column("term")
    except (pa.ArrowException, OSError, KeyError):
        return None


def word_count(stored: bytes | None) -> int | None:
    """How many different words a file has; None if the bytes are not a list of words."""
    words = _read(stored)
    return None if words is None else len(words)


# --- asking ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """The words of many files, each with the files that have it."""

    is_known: Flags
    words: Any
    """All different words, in order."""
    starts: Any
    """Where the files of each word begin in `files`; one more than there are words."""
    files: Any

    @classmethod
    def of(cls, stored: Iterable[bytes | None]) -> Words:
        """From what was stored for each file; about what cannot be read nothing is known."""
        lists = [_read(words) for words in stored]
        is_known = np.array([words is not None for words in lists], np.bool_)
        counts = [0 if words is None else len(words) for words in lists]
        owners = np.repeat(np.arange(len(lists)), counts)
        chunks = [chunk for words in lists if words is not None for chunk in words.chunks]
        every: Any = pa.chunked_array(chunks, pa.string()).combine_chunks()
        order: Any = pc.array_sort_indices(every)
        ranked: Any = every.take(order).dictionary_encode()
        if isinstance(ranked, pa.ChunkedArray):
            ranked = ranked.combine_chunks()
        codes = np.asarray(ranked.indices, np.int64)
        starts = np.searchsorted(codes, np.arange(len(ranked.dictionary) + 1))
        return cls(is_known, ranked.dictionary, starts, owners[np.asarray(order, np.int64)])

    def may_match(self, query: SearchNode) -> Flags:
        """For each file: may one of its texts match?"""
        return self._match(query) | ~self.is_known

    def _match(self, query: SearchNode) -> Flags:
        match query:
            case Boost(child=child):
                return self._match(child)
            case Boolean(must=must, should=should):
                if must:
                    return _combined(np.logical_and, [self._match(word) for word in must])
                if should:
                    return _combined(np.logical_or, [self._match(word) for word in should])
                return self._all()
            case All():
                return self._all()
            case _ if query.field is not None:
                return self._all()
            case Term(text=text):
                return self._every_word(text)
            case Phrase(text=text, prefix=prefix):
                return self._phrase(text) if prefix else self._every_word(text)
            case TermSet(values=values):
                matches = [self._every_word(word) | self._with_word(word) for word in values]
                return _combined(np.logical_or, matches) if matches else self._all()
            case Wildcard(prefix=prefix):
                return self._tried(query, self._beginning(prefix))
            case Fuzzy(text=text, distance=distance):
                matches = [
                    # As it was written: the mark of a lowered İ would split it when it is tried.
                    self._tried(
                        replace(query, text=text[word.start : word.end]),
                        self._of_length(len(word.text), distance),
                    )
                    for word in _field().analyzer.words(text)
                ]
                return _combined(np.logical_and, matches) if matches else self._all()
            case Regex():
                return self._tried(query, np.arange(len(self.words)))
            case _:
                return self._all()

    def _all(self) -> Flags:
        return np.ones(len(self.is_known), np.bool_)

    def _every_word(self, text: str) -> Flags:
        matches = [self._with_word(word.text) for word in _field().analyzer.words(text)]
        # Text without a word matches anything.
        return _combined(np.logical_and, matches) if matches else self._all()

    def _phrase(self, text: str) -> Flags:
        words = [word.text for word in _field().analyzer.words(text)]
        if not words:
            return self._all()
        matches = [self._with_word(word) for word in words[:-1]]
        return _combined(np.logical_and, [*matches, self._in(self._beginning(words[-1]))])

    def _with_word(self, word: str) -> Flags:
        place = pc.index_in(pa.scalar(word), value_set=self.words).as_py()
        return self._in(np.array([] if place is None else [place], np.int64))

    def _in(self, places: Any) -> Flags:
        """Files that have one of the words at these places."""
        answer = np.zeros(len(self.is_known), np.bool_)
        counts = self.starts[places + 1] - self.starts[places]
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        where = np.arange(total) + np.repeat(self.starts[places] - (ends - counts), counts)
        answer[self.files[where]] = True
        return answer

    def _beginning(self, prefix: str) -> Any:
        lowered = _field().analyzer.lower(prefix)
        return np.flatnonzero(np.asarray(pc.starts_with(self.words, lowered)))

    def _of_length(self, length: int, distance: int) -> Any:
        lengths = np.asarray(pc.utf8_length(self.words), np.int64)
        return np.flatnonzero(np.abs(lengths - length) <= distance)

    def _tried(self, leaf: Any, places: Any) -> Flags:
        """Try a leaf on some words, each of them as if it were a row."""
        candidates: Any = self.words.take(pa.array(places))
        search = Search(Column((_COLUMN,)), replace(leaf, field=None), "")
        try:
            hits = search_rows(search, pa.table({_COLUMN: candidates}), _mapping())
        except QueryError:
            return self._all()
        unsure = np.asarray(pc.match_substring(candidates, _MARK), np.bool_)
        return self._in(places[hits | unsure])


def _combined(how: Callable[[Flags, Flags], Flags], matches: Sequence[Flags]) -> Flags:
    return functools.reduce(how, matches)
