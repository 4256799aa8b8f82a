"""The best rows of several splits by BM25, the same however the rows are laid out.

Three things make scores independent of the layout. Statistics are those of all splits, because
their segments are opened as one index. Sums have a fixed shape, because queries are compiled with
at most two parts to add at once, and adding two numbers has no order. Ties are broken by the values
of the rows themselves, column by column.

A part of a query that the rows answer scores 1 where it matches, as Tantivy scores a range.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from indextables.config import Config
from indextables.errors import DamagedIndexError
from indextables.predicate import Search
from indextables.schema import conform
from indextables.split.format.index import is_beginning, open_index, schema_document
from indextables.split.open_split import SplitFile, SplitSearcher, SplitSource
from indextables.split.row_numbers import TAG_BITS, RowNumbers, rows_in_index, tags_of
from indextables.split.search.compile import Compiler
from indextables.split.search.engine import with_stack
from indextables.split.search.evaluate import Mask, leaf_rows, matching
from indextables.split.search.query import (
    NOTHING,
    Boosted,
    Combined,
    Every,
    Leaf,
    Query,
    levels,
    resolve,
)
from indextables.split.write.writer import SplitWriter
from indextables.storage.local import LocalStore

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows of several splits with their scores, best first."""

    splits: RowNumbers
    rows: RowNumbers
    scores: Scores

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, order: npt.NDArray[Any]) -> Hits:
        """Some of the hits, in another order."""
        return Hits(self.splits[order], self.rows[order], self.scores[order])


class CombinedSearcher:
    """Several splits of one table searched as one index.

    Use it as a context manager. A split whose index does not fit, because the mapping changed
    since or because it is damaged, is written anew to a temporary file first.
    """

    def __init__(self, splits: Sequence[SplitSearcher], search: Search, config: Config) -> None:
        self._temporary = contextlib.ExitStack()
        self._query: Query = NOTHING
        self._config = config
        self.splits: list[SplitSearcher] = []
        if not splits:
            return
        context = splits[0].context
        self._query = resolve(search, context.mapping, context.schema)
        files = [s.split for s in splits]
        known = splits[0].pool.known_combined(files, context.mapping)
        if known is not None and all(s.can_use_index(self._query) for s in splits):
            self.splits, self._index = list(splits), known
        else:
            self._open(splits)
        self._number()

    def _number(self) -> None:
        counts = [len(s.split.info.segments) for s in self.splits]
        self._split_of_segment = np.repeat(np.arange(len(counts)), counts)
        # A tag and the ordinal of its split, with the row at which its rows begin.
        tags = sorted(
            (ordinal << TAG_BITS | tag, first)
            for ordinal, s in enumerate(self.splits)
            for tag, first in s.split.info.row_tags
        )
        self._tags, self._firsts = np.array(tags, dtype=np.int64).reshape(-1, 2).T

    def _open(self, splits: Sequence[SplitSearcher], *, trusted: bool = True) -> None:
        mapping = splits[0].context.mapping
        schema = schema_document(mapping)
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._temporary)
            for split in splits:
                if not trusted or not _fits(split, self._query, schema):
                    split = _rewritten(split, self._config, self._temporary)  # noqa: PLW2901
                self.splits.append(split)
            if self.splits == list(splits):
                files = [s.split for s in splits]
                self._index = splits[0].pool.combined(files, mapping, schema)
            else:  # some of them are temporary and will not be asked for again
                folders = [s.pool.folder(s.split) for s in self.splits]
                self._index = open_index(folders, mapping, schema=schema)
            undo.pop_all()

    def __enter__(self) -> CombinedSearcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.close()

    def top(self, k: int, *, within: Sequence[Mask] | None = None) -> Hits:
        """At least the k best rows, ties at the end included, best first.

        `within` leaves out rows of each split, without changing anybody's score. The order of
        rows with equal scores is not yet decided: see `break_ties`.
        """
        if not self.splits or k <= 0:
            return _no_hits()
        search = functools.partial(with_stack, levels(self._query), lambda: self._top(k, within))
        try:
            return search()
        except DamagedIndexError as error:
            # Nobody can tell whose index it was. Those made from the rows answer.
            warnings.warn(f"{error} All rows are indexed again for this search.", stacklevel=2)
            splits, self.splits = self.splits, []
            self._open(splits, trusted=False)
            self._number()
            return search()

    def _top(self, k: int, within: Sequence[Mask] | None) -> Hits:
        compiled = self._compiler().compile(self._query)
        if compiled is None:
            hits = self._mixed(self._query)
        else:
            hits = self._pure(compiled, k if within is None else self._index.searcher.num_docs)
        if within is not None:
            kept = np.zeros(len(hits), dtype=np.bool_)
            for ordinal, mask in enumerate(within):
                here = hits.splits == ordinal
                kept[here] = mask[hits.rows[here]]
            hits = hits.take(np.flatnonzero(kept))
        return _with_ties(hits, k)

    def _compiler(self) -> Compiler:
        source = SplitSource(self.splits[0], self._index)
        return replace(source.compiler, pairwise=True, term_counts={})

    def _pure(self, query: tantivy.Query, wanted: int) -> Hits:
        """The index answers everything: ask for more until the last one is worse than the k-th."""
        total = self._index.searcher.num_docs
        limit = min(max(1, wanted), max(1, total))
        while True:
            found = self._index.searcher.hits(query, limit)
            if len(found) < limit or limit >= total or found[-1][0] < found[wanted - 1][0]:
                return self._hits(found)
            limit = min(total, limit * 4)

    def _hits(self, found: list[tuple[Any, tantivy.DocAddress]]) -> Hits:
        addresses = [address for _, address in found]
        segments = np.fromiter((a.segment_ord for a in addresses), np.int64, len(found))
        splits = self._split_of_segment[segments]
        numbers = self._index.searcher.numbers(addresses)
        wanted = splits << TAG_BITS | tags_of(numbers)
        place = np.minimum(np.searchsorted(self._tags, wanted), len(self._tags) - 1)
        rows = rows_in_index(numbers) + self._firsts[place]
        counts = np.array([s.split.info.rows for s in self.splits], dtype=np.int64)
        if (self._tags[place] != wanted).any() or (rows >= counts[splits]).any():
            path = self.splits[0].split.path
            raise DamagedIndexError(path, "its index names rows that it does not have")
        scores = np.fromiter((score for score, _ in found), np.float32, len(found))
        return Hits(splits, rows, scores)

    # --- queries that rows help to answer ---

    def _mixed(self, query: Query) -> Hits:
        """Scores of every row of every split, added up along the tree."""
        compiler = self._compiler()
        parts = []
        scored = self._scores(query, compiler)
        for ordinal, (searcher, scores) in enumerate(zip(self.splits, scored, strict=True)):
            rows = matching(searcher.bound(query), searcher.source())
            parts.append(Hits(np.full(len(rows), ordinal, dtype=np.int64), rows, scores[rows]))
        hits = Hits(
            np.concatenate([p.splits for p in parts]),
            np.concatenate([p.rows for p in parts]),
            np.concatenate([p.scores for p in parts]),
        )
        return hits.take(np.argsort(-hits.scores, kind="stable"))

    def _scores(self, query: Query, compiler: Compiler) -> list[Scores]:
        """What a query adds to the score of each row; nothing where it does not match."""
        compiled = compiler.compile(query)
        if compiled is not None:
            return self._index_scores(compiled)
        match query:
            case Boosted(child=child, factor=factor):
                return [s * np.float32(factor) for s in self._scores(child, compiler)]
            case Combined(must=must, should=should):
                total = self._zeros()
                for child in (*must, *should):
                    for scores, more in zip(total, self._scores(child, compiler), strict=True):
                        np.add(scores, more, out=scores)
                for searcher, scores in zip(self.splits, total, strict=True):
                    unmatched = np.ones(len(scores), dtype=np.bool_)
                    unmatched[matching(searcher.bound(query), searcher.source())] = False
                    scores[unmatched] = 0
                return total
            case Leaf():
                return self._leaf_scores(query, compiler)
            case Every():
                return [s + np.float32(1) for s in self._zeros()]

    def _leaf_scores(self, leaf: Leaf, compiler: Compiler) -> list[Scores]:
        """Words keep the score of the words the index knows; a value scores 1."""
        candidates = compiler.candidates(leaf)
        base = self._zeros() if candidates is None else self._index_scores(candidates)
        result = []
        for searcher, scores in zip(self.splits, base, strict=True):
            bound = searcher.bound(leaf)
            matched = np.zeros(len(scores), dtype=np.bool_)
            if isinstance(bound, Leaf):
                everything = np.ones(len(scores), dtype=np.bool_)
                matched = leaf_rows(bound, searcher.source(), everything)
            result.append(np.where(matched, np.where(scores > 0, scores, np.float32(1)), 0))
        return [r.astype(np.float32) for r in result]

    def _index_scores(self, query: tantivy.Query) -> list[Scores]:
        total = max(1, self._index.searcher.num_docs)
        hits = self._hits(self._index.searcher.hits(query, total))
        scores = self._zeros()
        for ordinal, target in enumerate(scores):
            here = hits.splits == ordinal
            target[hits.rows[here]] = hits.scores[here]
        return scores

    def _zeros(self) -> list[Scores]:
        return [np.zeros(s.split.info.rows, dtype=np.float32) for s in self.splits]


def _fits(searcher: SplitSearcher, query: Query, schema: list[Any]) -> bool:
    """Whether a split's own index can be one of many: it fits, and it can be opened."""
    if not searcher.can_use_index(query):
        return False
    try:
        return is_beginning(searcher.pool.folder(searcher.split), schema) and bool(
            searcher.pool.get(searcher.split)
        )
    except DamagedIndexError as error:
        warnings.warn(f"{error} Its rows are indexed again for this search.", stacklevel=3)
        return False


def _rewritten(
    searcher: SplitSearcher, config: Config, cleanup: contextlib.ExitStack
) -> SplitSearcher:
    """The same rows in a temporary split with the table's mapping."""
    context, rows = searcher.context, searcher.split.rows
    schema = pa.schema(
        [
            f.with_nullable(True)
            for f in context.schema
            if f.name in rows.schema.names and f.name not in searcher.partition
        ]
    )
    with SplitWriter(schema, context.mapping, config) as writer:
        for _, table in rows.batches(schema.names, groups_at_once=8):
            for batch in conform(table, schema).to_batches():
                writer.write(batch)
        written = writer.close()
    cleanup.callback(written.delete)
    split = SplitFile(
        LocalStore(str(written.path.parent)),
        written.path.name,
        written.size,
        written.footer_start,
        written.footer_end,
    )
    return replace(searcher, split=split)


def _no_hits() -> Hits:
    empty = np.zeros(0, dtype=np.int64)
    return Hits(empty, empty, np.zeros(0, dtype=np.float32))


def _with_ties(hits: Hits, k: int) -> Hits:
    """The k best of sorted hits, and all that are as good as the last of them."""
    if len(hits) <= k:
        return hits
    return hits.take(np.flatnonzero(hits.scores >= hits.scores[k - 1]))


def break_ties(
    hits: Hits,
    k: int,
    read: Callable[[list[str], RowNumbers, RowNumbers], pa.Table],
    schema: pa.Schema,
) -> Hits:
    """The k best of hits in an order that only scores and values of rows decide.

    `read(columns, splits, rows)` gives the values of some columns, only for rows that are still
    tied: of the first column, then of the next two, four and so on, because a table may have
    thousands. Rows equal in everything are interchangeable.
    """
    groups = np.unique(-hits.scores, return_inverse=True)[1].astype(np.int64)
    order = np.argsort(groups, kind="stable")
    hits, groups = hits.take(order), groups[order]
    # Plain columns have an order of their own; nested ones are compared as text.
    columns = [f.name for f in sorted(schema, key=lambda f: pa.types.is_nested(f.type))]
    at = 0
    while at < len(columns) and len(groups):
        some = columns[at : 2 * at + 1]
        at += len(some)
        counts = np.bincount(groups, minlength=int(groups.max()) + 1)
        first = np.cumsum(counts) - counts
        tied = np.flatnonzero((counts[groups] > 1) & (first[groups] < k))
        if not len(tied):
            break
        values = read(some, hits.splits[tied], hits.rows[tied])
        ranks = [groups[tied], *(_ranks(values.column(name).combine_chunks()) for name in some)]
        finer = np.lexsort(ranks[::-1])
        hits = _reordered(hits, tied, tied[finer])
        keys = np.stack(ranks, axis=1)[finer]
        new = np.concatenate(([True], np.any(keys[1:] != keys[:-1], axis=1)))
        groups = _regroup(groups, tied, new)
    return hits.take(np.arange(min(k, len(hits))))


def _ranks(values: Any) -> npt.NDArray[np.int64]:
    """The place of each value among the others, equal for equal values, null last."""
    if pa.types.is_nested(values.type):
        values = pa.array([repr(value) for value in values.to_pylist()])
    elif pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    ranks: Any = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
    return np.asarray(ranks, dtype=np.int64)


def _reordered(hits: Hits, places: RowNumbers, source: RowNumbers) -> Hits:
    order = np.arange(len(hits))
    order[places] = source
    return hits.take(order)


def _regroup(groups: RowNumbers, tied: RowNumbers, new: Mask) -> RowNumbers:
    """Group numbers after the tied ones were divided; `new` marks where a group begins."""
    begins = np.concatenate(([True], groups[1:] != groups[:-1]))
    begins[tied] |= new
    return np.cumsum(begins) - 1
