"""The words of a table's dictionaries: type-ahead, corrections, and typical words of a text.

Dictionaries of all splits are read as one, so answers do not depend on how rows lie in splits. The
index of a split counts deleted rows too: where there are some, or a condition, rows are counted
one by one, from the most frequent word on, until no other word can be among the best.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from indextables.errors import QueryError, SchemaError, TooManyExpansionsError, UnknownColumnError
from indextables.plan.execute import Environment, run_scan
from indextables.plan.ranking import top_rows
from indextables.plan.scan import plan_scan, split_tasks
from indextables.plan.split_rows import Mask, row_mask
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Boolean, Boost, Predicate, Search, Term
from indextables.predicate.names import escaped_field, resolve_field
from indextables.predicate.search import MAX_DISTANCE, in_quotes
from indextables.predicate.search import walk as search_nodes
from indextables.predicate.search_syntax import parse_search
from indextables.runner import check_stop
from indextables.schema import ROW, SPLIT
from indextables.split.analyzer import Analyzer, AnalyzerError, canonical_tokenizer
from indextables.split.mapping import FieldMapping
from indextables.split.scoring import CombinedSearcher
from indextables.split.search.engine import words_within
from indextables.split.write.indexer import document_values

_CORRECTED = 5
"""Words of a query, and columns, in which corrections are looked for."""
_WORDS_AT_ONCE = 50_000
"""Distances of so many words are computed at once, which takes some megabytes for each letter."""


# --- which words a text has ----------------------------------------------------------------------


def analyzer_of(view: TableView, name: str) -> Analyzer:
    """The analyzer of a column by its shown name, or one that is named itself."""
    if name in view.schema.names:
        return _field_of_words(view, name).analyzer
    try:
        return Analyzer(canonical_tokenizer(name))
    except AnalyzerError as error:
        raise QueryError(
            f"'{name}' is neither a column of '{view.uri}' ({', '.join(view.schema.names)}) nor an "
            f"analyzer: {error}."
        ) from None


def analyzed(analyzer: Analyzer, text: str) -> pa.Table:
    """The words that an index holds of a text, with their places."""
    words = analyzer.words(text)
    return pa.table(
        {
            "word": pa.array([w.text for w in words], pa.string()),
            "position": pa.array([w.position for w in words], pa.int64()),
            "start": pa.array([w.start for w in words], pa.int64()),
            "end": pa.array([w.end for w in words], pa.int64()),
        }
    )


def _field_of_words(view: TableView, name: str) -> FieldMapping:
    """A column that is searched by words; `name` is the shown one."""
    shown = view.shown
    if name not in shown.schema.names:
        raise UnknownColumnError(name, available=shown.schema.names)
    field = shown.mapping.by_name.get(name)
    if field is None or not field.indexed:
        raise SchemaError(f"'{name}' is not indexed in '{view.uri}' and has no words.")
    if not field.has_words:
        listed = [f.name for f in shown.mapping.searchable if f.has_words]
        raise SchemaError(
            f"'{name}' is indexed as {field.kind} and has no words. Columns with words: "
            f"{', '.join(listed) or 'none'}."
        )
    return field


# --- dictionaries --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dictionary:
    """The words of some columns in all splits, and the rows that count."""

    combined: CombinedSearcher
    within: Sequence[Mask | None]
    """The rows of each split that count; None if all of them do."""

    def counting(self, column: str, counted: Mapping[str, int]) -> Callable[[str], int]:
        """How many rows have a word; `counted` is what the index says, of all rows."""
        if all(mask is None for mask in self.within):
            return counted.__getitem__
        return functools.partial(self._rows_with, column)

    def _rows_with(self, column: str, word: str) -> int:
        check_stop()
        rows_of = self.combined.rows_with_word(column, word)
        masks = ((self.within[ordinal], rows) for ordinal, rows in rows_of.items())
        return sum(len(rows) if m is None else int(m[rows].sum()) for m, rows in masks)


@contextlib.contextmanager
def _dictionary(
    view: TableView, columns: Iterable[str], predicate: Predicate
) -> Iterator[Dictionary]:
    """The dictionaries of columns, by their stored names."""
    environment = Environment.of(view)
    tasks = view.kept.get(TRUE)  # those of ranked searches
    if tasks is None:
        tasks = view.kept[TRUE] = split_tasks(view.snapshot, view.snapshot.entries, TRUE)
    group = environment.group(tasks)
    within: list[Mask | None] = [None] * len(group.searchers)
    if predicate != TRUE:
        kept = {t.path: t.predicate for t in plan_scan(view, predicate=predicate).tasks}
        calls = (
            functools.partial(row_mask, searcher, kept.get(task.path))
            for task, searcher in zip(tasks, group.searchers, strict=True)
        )
        within = list(environment.ahead(calls))
    for ordinal, searcher in enumerate(group.searchers):
        if len(searcher.dead):
            mask = within[ordinal]
            mask = np.ones(searcher.split.info.rows, dtype=np.bool_) if mask is None else mask
            mask[searcher.dead] = False
            within[ordinal] = mask
    query = Boolean(should=tuple(Term(escaped_field([name]), "") for name in columns))
    search = Search(None, query, "")
    with CombinedSearcher(group.searchers, search, view.config, key=group.key) as combined:
        yield Dictionary(combined, within)


_Rank = tuple[int, int, str]
"""A distance, minus a number of rows, and a word: the first are the best."""


def _best(ranks: Iterable[_Rank], count: Callable[[str], int], limit: int | None) -> list[_Rank]:
    """The best words by the rows that count. `ranks` come in order and have at least as many."""
    best: list[_Rank] = []
    if limit == 0:
        return best
    for distance, most, word in ranks:
        if limit is not None and len(best) >= limit and best[limit - 1][:2] < (distance, most):
            break
        rows = count(word)
        if rows:
            bisect.insort(best, (distance, -rows, word))
    return best[:limit]


def completions(
    view: TableView, name: str, prefix: str, *, predicate: Predicate, limit: int | None
) -> pa.Table:
    """The words of a column that begin so, those of the most rows first."""
    field = _listed_field(view, name)
    beginning = field.analyzer.lower(prefix)
    if not beginning:
        raise QueryError("The prefix is empty. Write the first letters of a word.")
    column = view.names.stored_name(name)
    with _dictionary(view, [column], predicate) as words:
        counted = words.combined.words(column, beginning)
        _check_count(view, f"{prefix}*", name, len(counted))
        ranks = sorted((0, -rows, word) for word, rows in counted)
        best = _best(ranks, words.counting(column, dict(counted)), limit)
    return _ranked_words(best).drop_columns(["distance"])


def suggestions(
    view: TableView,
    name: str,
    text: str,
    *,
    predicate: Predicate,
    distance: int,
    limit: int | None,
) -> pa.Table:
    """The words of a column that are a few letters away, the nearest and most frequent first."""
    field = _listed_field(view, name)
    words_of_text = field.analyzer.query_words(text)
    if len(words_of_text) != 1:
        problem = f"{len(words_of_text)} words" if words_of_text else "not a word"
        raise QueryError(f"{text!r} is {problem} of '{name}'. Ask for one word at a time.")
    word = words_of_text[0].text
    column = view.names.stored_name(name)
    with _dictionary(view, [column], predicate) as words:
        counted = dict(words.combined.words(column, ""))
        ranks = sorted((d, -counted[w], w) for w, d in _near(list(counted), word, distance))
        _check_count(view, f"{text}~{distance}", name, len(ranks))
        best = _best(ranks, words.counting(column, counted), limit)
    return _ranked_words(best)


def corrected(
    view: TableView, query: str, columns: Sequence[str], *, finds_rows: Callable[[str], bool]
) -> str | None:
    """The query with words that no row has replaced by the nearest ones that some have.

    Only plain words are replaced, and only a few of them; None if none is. `finds_rows` answers
    whether a query does: a number or a synonym that is in no dictionary may find some.
    """
    changes: dict[int, tuple[str, str]] = {}
    terms = [node for node in search_nodes(parse_search(query)) if isinstance(node, Term)]
    for term in terms[:_CORRECTED]:
        prefix = "" if term.field is None else f"{term.field}:"
        at = term.at + len(prefix) * query.startswith(prefix, term.at)
        is_plain = term.text.isalnum() and query.startswith(term.text, at)
        if not is_plain or not 3 <= len(term.text) <= 64:
            continue
        named = columns[:_CORRECTED]
        candidates = []
        # A column may be cut into pieces, or the word be one that it leaves out.
        with contextlib.suppress(QueryError, SchemaError):
            if finds_rows(f"{prefix}{term.text}"):
                continue
            if term.field is not None:
                name, path = resolve_field(term.field, view.shown.schema) or (term.field, ())
                named = [] if path else [name]
        for column in named:
            with contextlib.suppress(QueryError, SchemaError):
                check_stop()
                candidates += suggestions(
                    view, column, term.text, predicate=TRUE, distance=MAX_DISTANCE, limit=1
                ).to_pylist()
        best = min(candidates, key=lambda one: (one["distance"], -one["count"]), default=None)
        if best is not None and best["distance"]:
            changes[at] = term.text, _written(best["word"])
    for at in sorted(changes, reverse=True):
        old, new = changes[at]
        query = query[:at] + new + query[at + len(old) :]
    return query if changes else None


def _written(word: str) -> str:
    """A word as a query has it, in quotes if it would be read as syntax."""
    with contextlib.suppress(QueryError):
        node = parse_search(word)
        if isinstance(node, Term) and node.field is None and node.text == word:
            return word
    return in_quotes(word)


def _ranked_words(ranks: Sequence[_Rank]) -> pa.Table:
    return pa.table(
        {
            "word": pa.array([word for _, _, word in ranks], pa.string()),
            "distance": pa.array([distance for distance, _, _ in ranks], pa.int64()),
            "count": pa.array([-rows for _, rows, _ in ranks], pa.int64()),
        }
    )


def _near(words: Sequence[str], text: str, most: int) -> Iterator[tuple[str, int]]:
    """The words within a distance, each with its own."""
    for at in range(0, len(words), _WORDS_AT_ONCE):
        farther = words[at : at + _WORDS_AT_ONCE]
        farther = words_within(farther, text, most)
        for distance in range(most + 1):
            at_distance = words_within(farther, text, distance)
            yield from ((word, distance) for word in at_distance)
            nearer = set(at_distance)
            farther = [word for word in farther if word not in nearer]


def _listed_field(view: TableView, name: str) -> FieldMapping:
    """A column whose dictionary has words as users write them, not stems."""
    field = _field_of_words(view, name)
    pieces = field.analyzer.chain.pieces
    if field.analyzer.is_ngram or (pieces is not None and pieces.name == "edge"):
        raise SchemaError(
            f"The words of '{name}' are cut into pieces ({field.tokenizer}). Name a column with "
            "another analyzer."
        )
    if field.partition:
        raise SchemaError(
            f"'{name}' is a partition column and is in no index. Count its values with facets."
        )
    return field


def _check_count(view: TableView, shown: str, name: str, count: int) -> None:
    if count > view.context.max_expansions:
        raise TooManyExpansionsError(
            shown, field=name, found=count, limit=view.context.max_expansions
        )


# --- what a text is about ------------------------------------------------------------------------


def more_like(
    view: TableView,
    fields: Mapping[str, float],
    *,
    text: str | None,
    row: Predicate | None,
    predicate: Predicate,
    columns: Sequence[str],
    limit: int | None,
    most_words: int,
) -> pa.Table:
    """The rows that have the most telling words of a text or of a row, without that row.

    `fields` are weights by shown names. Result and conditions have stored names.
    """
    mapped = {name: _field_of_words(view, name) for name in fields}
    identity: tuple[str, int] | None = None
    if row is None:
        values: dict[str, list[str]] = {name: [text or ""] for name in fields}
    else:
        values, identity = _texts_of(view, row, mapped)
    words = _telling_words(
        view, mapped, values, most_words, least_rows=1 if identity is None else 2
    )
    leaves = [(Term(escaped_field([view.names.stored_name(n)]), w), fields[n]) for n, w in words]
    parts = tuple(leaf if weight == 1 else Boost(leaf, weight) for leaf, weight in leaves)
    search = Search(None, Boolean(should=parts), " ".join(word for _, word in words))
    read = list(dict.fromkeys([*columns, SPLIT, ROW]))
    more = None if limit is None else limit + 1
    similar = top_rows(view, search, predicate=predicate, columns=read, limit=more)
    if identity is not None:
        places = zip(similar[SPLIT].to_pylist(), similar[ROW].to_pylist(), strict=True)
        similar = similar.filter(pa.array([place != identity for place in places], pa.bool_()))
    return similar.slice(0, limit).select([*columns, similar.schema.names[-1]])


def _texts_of(
    view: TableView, row: Predicate, mapped: Mapping[str, FieldMapping]
) -> tuple[dict[str, list[str]], tuple[str, int]]:
    """The texts of the one row that a condition names, and where it is."""
    stored = {name: view.names.stored_name(name) for name in mapped}
    plan = plan_scan(view, predicate=row, columns=(*stored.values(), SPLIT, ROW), limit=2)
    row_table = pa.concat_tables(run_scan(plan)) if plan.tasks else None
    if row_table is None or row_table.num_rows != 1:
        problem = "no row" if row_table is None or not row_table.num_rows else "several rows"
        raise QueryError(f"row={row} names {problem} of '{view.uri}'. Name one, by its key.")
    texts = {}
    for name, field in mapped.items():
        (value,) = document_values(row_table[stored[name]].combine_chunks(), field)
        texts[name] = [] if value is None else [value] if isinstance(value, str) else list(value)
    return texts, (str(row_table[SPLIT][0]), row_table[ROW][0].as_py())


def _telling_words(
    view: TableView,
    mapped: Mapping[str, FieldMapping],
    values: Mapping[str, list[str]],
    most: int,
    *,
    least_rows: int,
) -> list[tuple[str, str]]:
    """The words of texts that are frequent there and rare in the table, with their columns.

    A word is as the text writes it: the search makes a word of the index of it again.
    """
    frequent: dict[str, Counter[str]] = {}
    written: dict[tuple[str, str], str] = {}
    for name, texts in values.items():
        counts = frequent[name] = Counter()
        for text in texts:
            plain, analyzer = mapped[name].analyzer.shown(text)
            for word in analyzer.query_words(plain):
                counts[word.text] += 1
                if (name, word.text) not in written:
                    surface = plain[word.start : word.end]
                    again = [w.text for w in mapped[name].analyzer.query_words(surface)]
                    written[name, word.text] = surface if again == [word.text] else ""
    stored = {name: view.names.stored_name(name) for name in mapped}
    with _dictionary(view, stored.values(), TRUE) as words:
        total = words.combined.num_rows
        ranked = [
            (-count * math.log(1 + (total - rows + 0.5) / (rows + 0.5)), order, word, name)
            for order, (name, counts) in enumerate(frequent.items())
            for (word, count), rows in zip(
                counts.items(),
                words.combined.rows_with_words(stored[name], list(counts)),
                strict=True,
            )
            if rows >= least_rows and written[name, word]
        ]
    return [(name, written[name, word]) for _, _, word, name in sorted(ranked)[:most]]
