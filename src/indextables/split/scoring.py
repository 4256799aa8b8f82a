"""The best rows of several splits by BM25, the same however the rows are laid out.

Three things make scores independent of the layout. Statistics are those of all splits, because
their segments are opened as one index. Sums have a fixed shape, because queries are compiled with
at most two parts to add at once, and adding two numbers has no order. Ties are broken by the values
of the rows: by a hash of them that splits hold (`row_hash`), and where that is equal, or in
older tables, by the values themselves, column by column.

A frequent word may have a hundred thousand rows of one score. Those with a low hash are found
under a level, so the few that come first among them are found without looking at the others.

A part of a query that the rows answer scores 1 where it matches, as Tantivy scores a range.

Tantivy's constants of BM25 are fixed. With others its scores are a bound: rows are taken in its
order, each score is computed again from what Tantivy says it is made of, and a row that is left
cannot be better than the last one any more.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from indextables.config import BM25_B, BM25_K1, Config
from indextables.errors import DamagedIndexError
from indextables.predicate import Search
from indextables.runner import check_stop
from indextables.split.format.index import Hit, is_beginning, schema_document
from indextables.split.linked import LinkedSplits, Question, can_be_linked, link_splits
from indextables.split.mapping import LEVEL_FIELD, FieldMapping
from indextables.split.open_split import SplitFile, SplitSearcher
from indextables.split.row_hash import LEVELS, row_hashes
from indextables.split.row_numbers import RowNumbers
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
    columns_of,
)
from indextables.split.write.writer import SplitWriter
from indextables.storage.local import LocalStore

Scores = npt.NDArray[np.float32]
Answer = TypeVar("Answer")
Read = Callable[[Sequence[str], RowNumbers, RowNumbers], pa.Table]
"""Reads some columns of rows, given the split and the number of each."""

_MORE_HITS = 54
"""How many hits are asked for beyond the wanted ones, to see whether the last of those ties."""
_TIES_AT_ONCE = 256
_MANY_TIES = 500
"""If more rows than about these tie, those that come first are looked for under a level."""
_HASHES_AT_ONCE = 64
"""Of so many splits hashes are mapped side by side; each takes a descriptor."""
_SPARE = 4
"""So many times the ties that are missing should have a level."""
_ROUNDED = 1e-5
"""How much larger a score may be by rounding."""


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows of several splits with their scores, best first."""

    splits: RowNumbers
    rows: RowNumbers
    scores: Scores
    hashes: RowNumbers | None = None
    """The hashes of the rows, if the index has them."""

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, order: npt.NDArray[Any]) -> Hits:
        """Some of the hits, in another order."""
        hashes = None if self.hashes is None else self.hashes[order]
        return Hits(self.splits[order], self.rows[order], self.scores[order], hashes)

    def and_more(self, others: Hits) -> Hits:
        """These hits and others after them; both come from one index."""
        hashes = None
        if self.hashes is not None and others.hashes is not None:
            hashes = np.concatenate((self.hashes, others.hashes))
        return Hits(
            np.concatenate((self.splits, others.splits)),
            np.concatenate((self.rows, others.rows)),
            np.concatenate((self.scores, others.scores)),
            hashes,
        )


@dataclass(frozen=True, slots=True)
class Bm25:
    """The two constants of BM25: how soon more occurrences count less, and how much length does."""

    k1: float
    b: float

    def norm(self, length: float, average: float) -> float:
        """The length normalisation: what is added to the occurrences of a word in a text."""
        return self.k1 * (1 - self.b + self.b * length / average)

    def most(self, other: Bm25) -> float:
        """How many times another's score of a word this one's is at most, whatever the text is.

        The quotient is monotone in the occurrences and in the length, so one of the ends is the
        greatest: one occurrence or many, in a text of no length or of any.
        """
        ends = [1.0, (1 + other.norm(0, 1)) / (1 + self.norm(0, 1))]
        if other.k1 * other.b:
            ends.append(other.k1 * other.b / (self.k1 * self.b) if self.k1 * self.b else np.inf)
        return (self.k1 + 1) / (other.k1 + 1) * max(ends)


TANTIVY = Bm25(1.2, 0.75)


@dataclass(frozen=True, slots=True)
class TermScore:
    """The share of a word in the score of a row: by BM25 the product of `idf` and `tf`."""

    score: float
    idf: float | None = None
    tf: float | None = None
    norm: float | None = None
    occurrences: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class ExplainedRow:
    """The score of one row, and the words that it comes from, if the index scored it by words."""

    score: float
    terms: tuple[TermScore, ...] = ()


class CombinedSearcher:
    """Several splits of one table searched as one index.

    Use it as a context manager. A split whose index does not fit, because the mapping changed
    since or because it is damaged, is rewritten to a temporary file first.
    """

    def __init__(
        self,
        splits: Sequence[SplitSearcher],
        search: Search | Query,
        config: Config,
        *,
        key: Hashable | None = None,
    ) -> None:
        """`key` identifies the splits in the pool of indexes; without one they are not kept."""
        self._temporary = contextlib.ExitStack()
        self._query: Query = NOTHING
        self._config = config
        self._bm25 = Bm25(config[BM25_K1], config[BM25_B])
        self._is_part = False
        self.splits: Sequence[SplitSearcher] = splits
        if not splits:
            return
        context = splits[0].context
        if isinstance(search, Search):
            search = context.resolved(search)
        self._query = search
        self._linked = self._link(key)

    def _link(self, key: Hashable | None) -> LinkedSplits:
        if all(split.split.has_index for split in self.splits):
            try:
                linked = link_splits(self.splits, key=key)
                if linked.question(self._query, self.splits, scored=True).can_answer:
                    return linked
            except DamagedIndexError:
                pass  # one of them, which is found out one by one
        return self._link_rewritten(lambda split: _fits(split, self._query))

    def _link_rewritten(self, fits: Callable[[SplitSearcher], bool]) -> LinkedSplits:
        """Link the splits, after those that do not fit were rewritten."""
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._temporary)
            before = self.splits
            self.splits = [
                s if fits(s) else _rewritten(s, self._config, self._temporary) for s in before
            ]
            # The hash of a row is that of all its columns.
            self._is_part = any(
                set(old.split.rows.schema.names) - set(new.split.rows.schema.names)
                for old, new in zip(before, self.splits, strict=True)
                if old is not new
            )
            self.__dict__.pop("_hashes_hold", None)
            linked = link_splits(self.splits)
            undo.pop_all()
            return linked

    @property
    def num_rows(self) -> int:
        """How many rows all splits have, deleted ones included."""
        return int(self._linked.rows.sum()) if self.splits else 0

    def __enter__(self) -> CombinedSearcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.close()

    def top(self, k: int, *, within: Sequence[Mask] | None = None) -> Hits:
        """At least the k best rows, ties at the end included, best first.

        `within` leaves out rows of each split, and the scores of the others stay the same. The
        order of rows with equal scores is not yet decided: see `break_ties`.
        """
        if not self.splits or k <= 0:
            return no_hits()
        return self._answered(lambda: self._top(k, within))

    def explain(self, split: int, row: int) -> ExplainedRow | None:
        """Why a row has its score; None if it does not match, or is deleted."""
        return self._answered(lambda: self._explain(split, row))

    def words(self, column: str, prefix: str = "") -> list[tuple[str, int]]:
        """The words of a column that begin with a text, and in how many rows each occurs.

        The column is one that the search asks. Deleted rows count, here and in `rows_with_words`.
        """
        if not self.splits:
            return []
        return self._answered(
            lambda: self._linked.index.searcher.counted_terms(self._field(column).field, prefix)
        )

    def rows_with_words(self, column: str, words: Sequence[str]) -> list[int]:
        """How many rows have each of some words."""
        if not self.splits:
            return [0] * len(words)
        return self._answered(
            lambda: self._linked.index.searcher.term_counts(self._field(column).field, words)
        )

    def rows_with_word(self, column: str, word: str) -> dict[int, RowNumbers]:
        """The rows of each split that have a word, deleted ones included."""
        return self._answered(
            lambda: self._linked.matching(self._compiler().term(self._field(column), word))
        )

    def _field(self, column: str) -> FieldMapping:
        return self.splits[0].context.mapping.by_name[column]

    def _answered(self, ask: Callable[[], Answer]) -> Answer:
        search = functools.partial(with_stack, self._question.levels, ask)
        try:
            return search()
        except DamagedIndexError as error:
            # Which split's index is damaged is unknown, so all rows are indexed again.
            warnings.warn(f"{error} All rows are indexed again for this search.", stacklevel=3)
            self._linked = self._link_rewritten(lambda _: False)
            return search()

    def _top(self, k: int, within: Sequence[Mask] | None) -> Hits:
        compiled = self._question.compiled
        if compiled is None:
            hits = _kept(self._live(self._mixed(self._query)), within)
        else:
            hits = self._pure(compiled, k, within)
        return with_ties(hits, k)

    def _explain(self, split: int, row: int) -> ExplainedRow | None:
        searcher, compiler = self.splits[split], self._compiler()
        if row in searcher.dead:
            return None
        query, index = self._question.compiled, self._linked.index.searcher
        if query is None:
            if row not in matching(searcher.bound(self._query), searcher.source()):
                return None
            return ExplainedRow(float(self._scores(self._query, compiler)[split][row]))
        this_row = compiler.build.row(self._linked.number(split, row))
        clauses = [
            (tantivy.Occur.Must, query),
            (tantivy.Occur.Must, compiler.build.boosted(this_row, 0.0)),
        ]
        # Rows of other splits may carry the same number.
        raw_hits = index.hits(compiler.build.combined(clauses), len(self.splits))
        hits = self._hits(raw_hits)
        positions = np.flatnonzero((hits.splits == split) & (hits.rows == row)).tolist()
        if not positions:
            return None
        explanation = index.explain(query, raw_hits[positions[0]][1])
        terms = tuple(_terms(explanation, self._bm25))
        score = float(hits.scores[positions[0]])
        if self._bm25 != TANTIVY:
            score = float(np.float32(_score(explanation, self._bm25)))
        is_sum = np.isclose(sum(term.score for term in terms), score, rtol=1e-3)
        return ExplainedRow(score, terms if is_sum else ())

    @property
    def _question(self) -> Question:
        return self._linked.question(self._query, self.splits, scored=True)

    def _compiler(self) -> Compiler:
        return self._linked.pairwise_compiler(self.splits[0])

    def _pure(self, query: tantivy.Query, k: int, within: Sequence[Mask] | None) -> Hits:
        """The index answers everything: ask for more until the last one is worse than the k-th."""
        if self._bm25 != TANTIVY:
            return self._weighted(query, k, within)
        total = max(1, self._linked.index.searcher.num_docs)
        limit = min(total, k + _MORE_HITS)
        every_hit_counts = within is None and not self._has_deleted
        asked_levels = False
        while True:
            raw_hits = self._linked.index.searcher.hits(query, limit)
            if every_hit_counts:
                kth = raw_hits[k - 1][0] if len(raw_hits) >= k else None
            else:
                hits = _kept(self._live(self._hits(raw_hits)), within)
                kth = float(hits.scores[k - 1]) if len(hits) >= k else None
            is_all = len(raw_hits) < limit or limit >= total
            if is_all or (kth is not None and raw_hits[-1][0] < kth):
                if not every_hit_counts:
                    return hits
                return self._hits(raw_hits if kth is None else _as_good(raw_hits, kth))
            ties = 0 if kth is None else self._ties(raw_hits)
            # More hits do not change the score of the k-th, nor what the levels say of it.
            if kth is not None and ties > _MANY_TIES and self._hashes_hold and not asked_levels:
                asked_levels = True
                first = self._first_ties(query, raw_hits, kth, k=k, within=within, ties=ties)
                if first is not None:
                    return first
            limit = min(total, limit * 8)

    def _ties(self, hits: list[Hit]) -> int:
        """About how many documents have the score of the last hit.

        Of documents with one score those come first that lie first, so how far the last one lies
        shows how many are behind it.
        """
        score, last = hits[-1]
        equal = len(hits) - len(_better(hits, score))
        return int(equal / self._linked.share_before(last.segment_ord, last.doc))

    def _weighted(self, query: tantivy.Query, k: int, within: Sequence[Mask] | None) -> Hits:
        """The same with other constants of BM25, in any case with all ties of the k-th."""
        total = max(1, self._linked.index.searcher.num_docs)
        # What is not a word has the score that it has with Tantivy's constants.
        most = max(1.0, self._bm25.most(TANTIVY)) * (1 + _ROUNDED)
        limit = min(total, 2 * k)  # explaining a hit takes longer than finding it
        scores_of: dict[tuple[int, int], float] = {}
        while True:
            raw_hits = self._linked.index.searcher.hits(query, limit)
            ordered = self._hits(raw_hits)
            ordered = replace(ordered, scores=np.arange(len(ordered)))  # type: ignore[arg-type]
            kept = _kept(self._live(ordered), within)
            scores = [self._weighted_score(query, raw_hits[at][1], scores_of) for at in kept.scores]
            hits = replace(kept, scores=np.array(scores, np.float32))
            hits = hits.take(np.argsort(-hits.scores, kind="stable"))
            if len(raw_hits) < limit or limit >= total:
                return hits
            if len(hits) >= k and hits.scores[k - 1] > raw_hits[-1][0] * most:
                return hits
            limit = min(total, limit * 8)

    def _weighted_score(
        self,
        query: tantivy.Query,
        address: tantivy.DocAddress,
        scores_of: dict[tuple[int, int], float],
    ) -> float:
        """The score of a document that a query was asked for."""
        key = address.segment_ord, address.doc
        if key not in scores_of:
            check_stop()
            explanation = self._linked.index.searcher.explain(query, address)
            scores_of[key] = _score(explanation, self._bm25)
        return scores_of[key]

    def _first_ties(
        self,
        query: tantivy.Query,
        raw_hits: list[Hit],
        score: float,
        *,
        k: int,
        within: Sequence[Mask] | None,
        ties: int,
    ) -> Hits | None:
        """The hits that are better than the k-th, and at least as many as needed that are as good.

        Those have the lowest hashes of all. `asked` are the best hits, down to that score, and
        `ties` is about how many have it. None if no level has the answer.
        """
        better = _kept(self._live(self._hits(_better(raw_hits, score))), within)
        build = self._compiler().build
        rows_wanted = _SPARE * (k - len(better))
        level = max(LEVELS.start, int(np.log2(ties / rows_wanted)))
        at_once = max(_TIES_AT_ONCE, 4 * rows_wanted)
        tried: set[int] = set()
        while level in LEVELS and level not in tried:
            tried.add(level)
            low = build.boosted(build.number(LEVEL_FIELD, level), 0.0)
            both = build.combined([(tantivy.Occur.Must, query), (tantivy.Occur.Must, low)])
            raw_hits = _as_good(self._linked.index.searcher.hits(both, at_once), score)
            hits = _kept(self._live(self._hits(raw_hits)), within)
            tied = hits.take(np.flatnonzero(hits.scores == score))
            if len(raw_hits) == at_once:
                level += 2  # too many to see them all
            elif (missing := k - len(better) - len(tied)) > 0:
                # As many levels down as bring enough; each has twice the rows of the one above it.
                share = (len(tied) + missing) / max(len(tied), 1)
                level -= max(1, min(4, int(np.ceil(np.log2(share))) + 1))
            else:
                return better.and_more(tied) if len(better) else tied
        return None

    @functools.cached_property
    def _has_deleted(self) -> bool:
        return any(s.vector is not None for s in self.splits)

    def _live(self, hits: Hits) -> Hits:
        """The hits without deleted rows, which the index still has."""
        if not self._has_deleted:
            return hits
        kept = np.ones(len(hits), dtype=np.bool_)
        for ordinal in np.unique(hits.splits).tolist():
            positions = np.flatnonzero(hits.splits == ordinal)
            kept[positions] = self.splits[ordinal].are_live(hits.rows[positions])
        return hits.take(np.flatnonzero(kept))

    def _hits(self, raw_hits: list[Hit]) -> Hits:
        if not raw_hits:
            return no_hits()
        scores, addresses = zip(*raw_hits, strict=True)
        numbers = self._linked.index.searcher.numbers(addresses)
        splits, rows = self._linked.locate(addresses, numbers)
        return Hits(splits, rows, np.array(scores, np.float32), self._hashes(splits, rows))

    def _hashes(self, splits: RowNumbers, rows: RowNumbers) -> RowNumbers | None:
        if not self._hashes_hold:
            return None
        if len(self.splits) == 1:
            (of_rows,) = self.splits[0].pool.hashes(self.splits[0].split)
            return of_rows[rows].astype(np.int64)
        hashes = np.zeros(len(rows), dtype=np.int64)
        ordinals: list[int] = np.unique(splits).tolist()
        for at in range(0, len(ordinals), _HASHES_AT_ONCE):
            portion = ordinals[at : at + _HASHES_AT_ONCE]
            hashes_of_splits = self.splits[0].pool.hashes(
                *(self.splits[ordinal].split for ordinal in portion)
            )
            for ordinal, of_split in zip(portion, hashes_of_splits, strict=True):
                positions = np.flatnonzero(splits == ordinal)
                hashes[positions] = of_split[rows[positions]]
        return hashes

    @functools.cached_property
    def _hashes_hold(self) -> bool:
        schema = self.splits[0].context.schema
        return not self._is_part and self._linked.hashes_hold(self.splits, schema)

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
        """Words that the index has keep their score; a value scores 1."""
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
        total = max(1, self._linked.index.searcher.num_docs)
        if self._bm25 == TANTIVY:
            hits = self._hits(self._linked.index.searcher.hits(query, total))
        else:
            hits = self._weighted(query, total, None)
        scores = self._zeros()
        for ordinal, target in enumerate(scores):
            of_split = hits.splits == ordinal
            target[hits.rows[of_split]] = hits.scores[of_split]
        return scores

    def _zeros(self) -> list[Scores]:
        return [np.zeros(s.split.info.rows, dtype=np.float32) for s in self.splits]


def _fits(searcher: SplitSearcher, query: Query) -> bool:
    """Whether a split's own index can be one of many, and can be opened."""
    if not can_be_linked(searcher, columns_of(query)):
        return False
    try:
        folder = searcher.pool.folder(searcher.split)
        return is_beginning(folder, schema_document(searcher.context.mapping)) and bool(
            searcher.pool.get(searcher.split)
        )
    except DamagedIndexError as error:
        warnings.warn(f"{error} Its rows are indexed again for this search.", stacklevel=5)
        return False


def _terms(explanation: Mapping[str, Any], bm25: Bm25) -> Iterator[TermScore]:
    """The words in an explanation of Tantivy's, which has Lucene's form."""
    details = explanation.get("details") or ()
    named = {_name(part): part for part in details}
    if {"idf", "freq"} <= set(named):
        idf, tf = named["idf"], named["freq"]
        numbers = {
            _name(part): part["value"] for part in (*(idf.get("details") or ()), *tf["details"])
        }
        occurrences = numbers["freq"]
        norm = bm25.norm(numbers["dl"], numbers["avgdl"])
        factor = (bm25.k1 + 1) * occurrences / (occurrences + norm)
        yield TermScore(
            score=idf["value"] * factor,
            idf=idf["value"],
            tf=factor,
            norm=norm,
            occurrences=int(occurrences),
            rows=int(numbers["n"]) if "n" in numbers else None,
        )
        return
    for part in details:
        yield from _terms(part, bm25)


def _name(explanation: Mapping[str, Any]) -> str:
    """The kind of a part of an explanation."""
    name: str = explanation["description"].split(",")[0].split(" ")[0]
    return name


def _score(explanation: Mapping[str, Any], bm25: Bm25) -> float:
    """The score that an explanation of Tantivy's explains, with other constants of BM25."""
    details: list[Mapping[str, Any]] = explanation.get("details") or []
    match explanation["description"].split(" ")[0].rstrip("."):
        case "TermQuery," | "Phrase":
            return next(_terms(explanation, bm25)).score
        case "BooleanClause":
            return sum(_score(part, bm25) for part in details)
        case "Boost":
            inner_score: float = details[0]["value"]
            factor = explanation["value"] / inner_score if inner_score else 0.0
            return _score(details[0], bm25) * factor
        case _:
            value: float = explanation["value"]  # of what is not a word
            return value


def _rewritten(
    searcher: SplitSearcher, config: Config, cleanup: contextlib.ExitStack
) -> SplitSearcher:
    """The columns that can be searched in a temporary split with the table's mapping.

    All of them, because the fields of an index that is one of many are the first ones of the table.
    """
    context, rows = searcher.context, searcher.split.rows
    searched = [f for f in context.schema if context.mapping.by_name[f.name].indexed]
    if all(f.name in searcher.partition for f in searched):
        searched = list(context.schema)  # a split needs a column of its own
    schema = pa.schema([f.with_nullable(True) for f in searched])
    values = searcher.split.info.partition_values
    with SplitWriter(schema, context.mapping, config, partition_values=values) as writer:
        names = writer.schema.names
        for _, table in rows.batches(
            [n for n in names if n in rows.schema.names], rows_at_once=64 << 10
        ):
            for batch in searcher.complete(table, names).to_batches():
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


def no_hits() -> Hits:
    """No rows."""
    empty = np.zeros(0, dtype=np.int64)
    return Hits(empty, empty, np.zeros(0, dtype=np.float32))


def _kept(hits: Hits, within: Sequence[Mask] | None) -> Hits:
    """The hits that are not left out."""
    if within is None:
        return hits
    kept = np.zeros(len(hits), dtype=np.bool_)
    for ordinal in np.unique(hits.splits).tolist():
        positions = np.flatnonzero(hits.splits == ordinal)
        kept[positions] = within[ordinal][hits.rows[positions]]
    return hits.take(np.flatnonzero(kept))


def _as_good(hits: list[Hit], score: float) -> list[Hit]:
    """Those of the best hits, best first, that have at least a score."""
    return hits[: bisect_right(hits, -score, key=lambda hit: -hit[0])]


def _better(hits: list[Hit], score: float) -> list[Hit]:
    """Those of the best hits, best first, that have more than a score."""
    return hits[: bisect_left(hits, -score, key=lambda hit: -hit[0])]


def with_ties(hits: Hits, k: int) -> Hits:
    """The k best of sorted hits, and all that are as good as the last of them."""
    if len(hits) <= k:
        return hits
    return hits.take(np.flatnonzero(hits.scores >= hits.scores[k - 1]))


def break_ties(
    hits: Hits,
    k: int,
    read: Read,
    schema: pa.Schema,
    *,
    hashed: bool = False,
) -> Hits:
    """The k best of hits in an order that only scores and values of rows decide.

    In a table that is `hashed` the hash of a row comes first. `read(columns, splits, rows)` returns
    the values of some columns, only for rows that are still tied: of the first column, then of the
    next two, four and so on, because a table may have thousands. Rows equal in everything are
    interchangeable.
    """
    falls = hits.scores[1:] < hits.scores[:-1]
    if falls.all():
        return hits if len(hits) <= k else hits.take(np.arange(k))  # sorted, and none of them ties
    hits = hits.take(np.argsort(-hits.scores, kind="stable"))
    if (hits.scores[1 : k + 1] != hits.scores[:-1][:k]).all():
        return hits.take(np.arange(min(k, len(hits))))  # none of them ties
    if hashed:
        hits = _by_hash(hits, k, read, schema)
    begins = hits.scores[1:] != hits.scores[:-1]
    if hashed and hits.hashes is not None:
        begins |= hits.hashes[1:] != hits.hashes[:-1]
    groups = np.concatenate(([0], np.cumsum(begins)))[: len(hits)]
    # Plain columns have an order of their own; nested ones are compared as text.
    columns = [f.name for f in sorted(schema, key=lambda f: pa.types.is_nested(f.type))]
    at = 0
    while at < len(columns) and len(groups):
        portion = columns[at : 2 * at + 1]
        at += len(portion)
        counts = np.bincount(groups, minlength=int(groups.max()) + 1)
        first = np.cumsum(counts) - counts
        tied = np.flatnonzero((counts[groups] > 1) & (first[groups] < k))
        if not len(tied):
            break
        values = read(portion, hits.splits[tied], hits.rows[tied])
        ranks = [groups[tied], *(_ranks(values.column(name).combine_chunks()) for name in portion)]
        finer = np.lexsort(ranks[::-1])
        hits = _reordered(hits, tied, tied[finer])
        keys = np.stack(ranks, axis=1)[finer]
        new = np.concatenate(([True], np.any(keys[1:] != keys[:-1], axis=1)))
        groups = _regroup(groups, tied, new)
    return hits.take(np.arange(min(k, len(hits))))


def _by_hash(
    hits: Hits,
    k: int,
    read: Read,
    schema: pa.Schema,
) -> Hits:
    """Hits by score, then by hash; hashes that no index has are made from the rows."""
    hashes = hits.hashes
    if hashes is None:
        # Numbers that differ, for rows that have no other of their score.
        hashes = np.arange(len(hits))
        first = np.searchsorted(-hits.scores, -hits.scores, side="left")
        last = np.searchsorted(-hits.scores, -hits.scores, side="right")
        tied = np.flatnonzero((last - first > 1) & (first < k))
        if len(tied):
            rows = read(list(schema.names), hits.splits[tied], hits.rows[tied])
            hashes[tied] = row_hashes(rows)
    hits = replace(hits, hashes=hashes)
    return hits.take(np.lexsort((hashes, -hits.scores)))


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
