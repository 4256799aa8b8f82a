"""Many splits searched as one index: their segments are opened side by side, as one.

A thousand small indexes cost a thousand openings, threads and calls of Tantivy; linked they cost
one. A document of a linked index says by its segment which split it is of, and by its number which
row.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import tantivy

from indextables.errors import DamagedIndexError
from indextables.predicate import Exists, Phrase, Term, TermSet
from indextables.split.format.index import (
    Hit,
    OpenIndex,
    open_index,
    schema_document,
    side_by_side,
)
from indextables.split.open_split import SplitFile, SplitSearcher, SplitSource
from indextables.split.row_hash import hashes_hold
from indextables.split.row_numbers import (
    TAG_BITS,
    RowNumbers,
    numbered_from,
    rows_in_index,
    tags_of,
)
from indextables.split.search.compile import Compiler
from indextables.split.search.query import (
    Leaf,
    Query,
    RepeatCache,
    SearchContext,
    columns_of,
    leaves_of,
    levels,
)

_KEPT_CLAUSES = 16_384
"""So many clauses of queries are kept compiled for an index, some hundreds of bytes each."""
_KEPT_QUESTION = 16
"""A query takes as much room as so many clauses, however few it has."""


def can_be_linked(split: SplitSearcher, columns: Sequence[str]) -> bool:
    """Whether a split's index answers for columns in the fields that the table's mapping names.

    A column that became a fast field since is in the rows of older splits, not in their indexes.
    One that was added with a default is in neither.
    """
    of_index, declared = split.split.info.mapping.by_name, split.context.mapping.by_name
    return split.can_use_index(columns) and all(
        of_index[name].field == declared[name].field
        if name in of_index
        else name not in split.constants or not declared[name].field
        for name in columns
    )


def link_splits(splits: Sequence[SplitSearcher], *, key: Hashable | None = None) -> LinkedSplits:
    """Open the indexes of splits as one, or take what is open in the pool under a key.

    `DamagedIndexError` if one of them is not what its split says, or does not fit the others.
    """
    mapping, pool = splits[0].context.mapping, splits[0].pool

    def link() -> tuple[OpenIndex, LinkedSplits]:
        # Others than those of the caller, so that footers are not kept with the splits.
        files = [replace(split.split) for split in splits]
        folders = side_by_side(
            lambda both: both[0].pool.folder(both[1]), list(zip(splits, files, strict=True))
        )
        index = open_index(folders, mapping, schema=schema_document(mapping))
        return index, LinkedSplits.of(files, index)

    return (link() if key is None else pool.opened(key, link))[1]


def _clauses(leaf: Leaf) -> int:
    """How many words a leaf stands for; more than is ever kept where the index has to say."""
    match leaf.node:
        case Term() | Exists() | Phrase(prefix=False):
            return 1
        case TermSet(values=values):
            return len(values)
        case _:
            return sys.maxsize


@dataclass(frozen=True, eq=False)
class Question:
    """A query for the splits of one index, with what follows from it.

    It holds the query and the context, by which it is found again.
    """

    query: Query
    context: SearchContext
    compiler: Compiler
    can_answer: bool
    """Whether the indexes of all splits hold the words that it asks for."""
    levels: int
    """How deeply Tantivy's query is nested at most."""

    @property
    def compiled(self) -> tantivy.Query | None:
        """Tantivy's query, if the index answers it without the rows."""
        # Before Python 3.12 a cached property has one lock for all objects: searches would compile,
        # and fetch what that reads, one after the other. Two threads may compile the same query.
        if "_compiled" not in self.__dict__:
            self.__dict__["_compiled"] = self.compiler.compile(self.query)
        compiled: tantivy.Query | None = self.__dict__["_compiled"]
        return compiled


@dataclass(frozen=True, eq=False)
class LinkedSplits:
    """Splits whose indexes are open as one, in the order of its segments."""

    index: OpenIndex
    path: str
    """The first split, to be named in errors."""
    rows: RowNumbers
    """How many rows each split has."""
    alike: tuple[int, ...]
    """A split for each mapping and schema that splits have: what one can, those like it can."""
    term_counts: Mapping[str, int]
    """At most how many different words each field has, where every split counted them."""
    _split_of_segment: RowNumbers
    _tags: RowNumbers
    _firsts: RowNumbers

    @classmethod
    def of(cls, files: Sequence[SplitFile], index: OpenIndex) -> LinkedSplits:
        """The splits of an index that was opened from these files."""
        infos = [file.info for file in files]
        counts = [len(info.segments) for info in infos]
        # A tag and the ordinal of its split, with the row at which its rows begin.
        tags = sorted(
            (ordinal << TAG_BITS | tag, first)
            for ordinal, info in enumerate(infos)
            for tag, first in info.row_tags
        )
        keys, firsts = np.array(tags, dtype=np.int64).reshape(-1, 2).T
        alike: dict[Any, int] = {}
        for ordinal, file in enumerate(files):
            alike.setdefault(
                (file.info.mapping, file.footer.schema.serialize().to_pybytes()), ordinal
            )
        every = set.intersection(*(set(info.term_counts) for info in infos))
        return cls(
            index,
            files[0].path,
            np.array([info.rows for info in infos], dtype=np.int64),
            tuple(alike.values()),
            {name: sum(info.term_counts[name] for info in infos) for name in every},
            np.repeat(np.arange(len(counts)), counts),
            keys,
            firsts,
        )

    def question(
        self, query: Query, splits: Sequence[SplitSearcher], *, scored: bool = False
    ) -> Question:
        """A query as it is asked of these splits; the same one again is the same object.

        One that is `scored` adds scores two at a time.
        """
        context = splits[0].context

        def make() -> tuple[Question, int]:
            columns = columns_of(query)
            can_answer = all(can_be_linked(splits[ordinal], columns) for ordinal in self.alike)
            compiler = (self.pairwise_compiler if scored else self.compiler)(splits[0])
            question = Question(query, context, compiler, can_answer, levels(query))
            clauses = sum(map(_clauses, leaves_of(query))) if self._is_whole else sys.maxsize
            return question, _KEPT_QUESTION + clauses

        return self._questions.get((id(query), id(context), scored), make)

    @property
    def _is_whole(self) -> bool:
        """Whether all of the index is there; if not, it is said each time what a query reads."""
        ranges = self.index.searcher.ranges
        return ranges is None or ranges.is_whole

    @functools.cached_property
    def _questions(self) -> RepeatCache[Question]:
        return RepeatCache(_KEPT_CLAUSES)

    def hashes_hold(self, splits: Sequence[SplitSearcher], schema: pa.Schema) -> bool:
        """Whether the hashes of all rows are those of their values in the table's schema."""
        kept: tuple[pa.Schema, bool] | None = self.__dict__.get("_hashes_hold")
        if kept is None or kept[0] is not schema:
            every = all(
                splits[ordinal].split.info.mapping.hashed
                and hashes_hold(splits[ordinal].split.footer.schema, schema)
                and splits[ordinal].constants is splits[ordinal].partition
                for ordinal in self.alike
            )
            kept = self.__dict__["_hashes_hold"] = schema, every
        return kept[1]

    def compiler(self, like: SplitSearcher) -> Compiler:
        """What compiles queries for the index."""
        kept: tuple[SearchContext, Compiler] | None = self.__dict__.get("_compiler")
        if kept is None or kept[0] is not like.context:
            compiler = SplitSource(like, self.index, self.term_counts).compiler
            if self._is_whole:
                compiler = replace(compiler, compiled_words={})
            kept = self.__dict__["_compiler"] = like.context, compiler
        return kept[1]

    def pairwise_compiler(self, like: SplitSearcher) -> Compiler:
        """The same; scores are added two at a time."""
        plain = self.compiler(like)
        kept: tuple[Compiler, Compiler] | None = self.__dict__.get("_pairwise")
        if kept is None or kept[0] is not plain:
            kept = self.__dict__["_pairwise"] = plain, replace(plain, pairwise=True)
        return kept[1]

    def number(self, split: int, row: int) -> int:
        """The number that the document of a row carries; rows of other splits may have it too."""
        tags_of_split = np.flatnonzero(self._tags >> TAG_BITS == split)
        begun = tags_of_split[self._firsts[tags_of_split] <= row]
        at = begun[np.argmax(self._firsts[begun])]
        tag = int(self._tags[at]) & ((1 << TAG_BITS) - 1)
        return numbered_from(tag, row - int(self._firsts[at]))

    def share_before(self, segment: int, document: int) -> float:
        """About which share of all documents lies before one, itself included."""
        split = self._split_of_segment[segment]
        before = int(self.rows[:split].sum()) + document + 1
        return before / max(before, int(self.rows.sum()))

    def locate(
        self, addresses: Sequence[tantivy.DocAddress], numbers: RowNumbers
    ) -> tuple[RowNumbers, RowNumbers]:
        """The split and the row of documents, given where they are and the numbers they carry."""
        if len(self.rows) == len(self._tags) == 1:  # as below, of one split with one tag
            rows = numbers + (int(self._firsts[0]) - numbered_from(int(self._tags[0]), 0))
            if len(rows) and (rows.min() < self._firsts[0] or rows.max() >= self.rows[0]):
                raise DamagedIndexError(self.path, "its index names rows that it does not have")
            return np.zeros(len(rows), np.int64), rows
        segments = np.fromiter(map(attrgetter("segment_ord"), addresses), np.int64, len(numbers))
        splits = self._split_of_segment[segments]
        tags = splits << TAG_BITS | tags_of(numbers)
        place = np.minimum(np.searchsorted(self._tags, tags), len(self._tags) - 1)
        rows = rows_in_index(numbers) + self._firsts[place]
        if (self._tags[place] != tags).any() or (rows >= self.rows[splits]).any():
            raise DamagedIndexError(self.path, "its index names rows that it does not have")
        return splits, rows

    def matching(self, query: tantivy.Query) -> dict[int, RowNumbers]:
        """The rows that match in each split that has some, in ascending order."""
        return self._by_split(self.index.searcher.by_row(query, len(self._split_of_segment)))

    def count(self, question: Question) -> int | None:
        """How many rows match, deleted ones included, if the index can count them."""
        counted = self._counted(question)
        if counted is None and question.compiled is not None:
            counted = self.index.searcher.count(question.compiled)
        return counted

    def matching_if_few(self, question: Question, most: int) -> dict[int, RowNumbers] | None:
        """The rows that match as `matching` has them; None if more than `most`, or not known."""
        searcher, counted = self.index.searcher, self._counted(question)
        if counted == 0:
            return {}
        if (counted is not None and counted > most) or (query := question.compiled) is None:
            return None
        if counted is not None:
            return self._by_split(searcher.all_by_row(query, counted))
        hits = searcher.few_by_row(query, len(self._split_of_segment))
        if hits is None and searcher.count(query) > most:
            return None
        return self._by_split(searcher.all_by_row(query) if hits is None else hits)

    def _counted(self, question: Question) -> int | None:
        """How many documents match, if the dictionary says: it has that number of each word."""
        word = question.compiler.word(question.query)
        return None if word is None else self.index.searcher.term_counts(word[0], [word[1]])[0]

    def _by_split(self, hits: Sequence[Hit]) -> dict[int, RowNumbers]:
        numbers = np.fromiter(map(itemgetter(0), hits), np.int64, len(hits))
        splits, rows = self.locate([address for _, address in hits], numbers)
        # Hits come in the order of their numbers: of a split with one tag, in that of its rows.
        order = np.argsort(splits, kind="stable")
        if not _ascend(splits[order], rows[order]):
            order = np.lexsort((rows, splits))
            if not _ascend(splits[order], rows[order]):
                raise DamagedIndexError(self.path, "its index names rows twice")
        splits, rows = splits[order], rows[order]
        ordinals, starts = np.unique(splits, return_index=True)
        ends = [*starts[1:].tolist(), len(rows)]
        return {
            ordinal: rows[start:end]
            for ordinal, start, end in zip(ordinals.tolist(), starts.tolist(), ends, strict=False)
        }


def _ascend(splits: RowNumbers, rows: RowNumbers) -> bool:
    """Whether rows of one split ascend; those of a split stand together."""
    return bool(((splits[1:] != splits[:-1]) | (rows[1:] > rows[:-1])).all())
