"""The best rows for a search: BM25 over all live splits, whatever way rows are laid out in them.

Statistics of words are those of the whole table, so a score depends on the rows of the table
only. Conditions (`where`) leave rows out and change nobody's score. Ties are broken by the values
of the rows. Rows may also be ranked by their vectors (`nearest`), by both, or by an expression over
score and columns, which is then computed for every row that matches.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indextables.errors import QueryError, SearchValueError
from indextables.plan.execute import Environment, SplitGroup
from indextables.plan.nearest import Nearest, best_of, fused, nearest_hits
from indextables.plan.scan import plan_scan
from indextables.plan.split_rows import row_mask
from indextables.plan.tasks import split_tasks
from indextables.plan.view import TableView
from indextables.predicate import (
    TRUE,
    Exists,
    FieldNode,
    Fuzzy,
    Phrase,
    Predicate,
    Range,
    Regex,
    Search,
    Term,
    TermSet,
    Wildcard,
    conjunction,
)
from indextables.predicate.names import escaped_field, resolve_field
from indextables.predicate.search import All, Boolean, Boost, SearchNode, over_fields
from indextables.runner import check_stop
from indextables.schema import SCORE, column_field
from indextables.split.open_split import SplitSearcher
from indextables.split.row_numbers import RowNumbers
from indextables.split.scoring import (
    CombinedSearcher,
    ExplainedRow,
    Hits,
    Read,
    TermScore,
    break_ties,
    no_hits,
)
from indextables.split.search import SearchContext
from indextables.split.snippet import snippets

RANKED_BY = "_rank_by"
"""What rows are ranked by if that is not their score."""


Rank = Callable[[Hits, Read], npt.NDArray[np.float64]]
"""What hits are ranked by instead of their scores; higher is better, and NaN is the worst."""


def top_rows(
    view: TableView,
    search: Search | None,
    *,
    predicate: Predicate = TRUE,
    columns: Sequence[str],
    limit: int | None,
    nearest: Nearest | None = None,
    fuse: bool = False,
    rank: Rank | None = None,
) -> pa.Table:
    """The best rows, best first, with their scores in the last column, or the last but one.

    With `nearest` scores are those of vectors, among the rows of the search if there is one; with
    `fuse` both rankings count. `rank` orders the rows anew and adds what it ordered them by.
    """
    environment = Environment.of(view)
    every = _every_split(view, environment)
    if every is None:
        if rank is not None:  # which says if it cannot be computed
            rank(no_hits(), lambda *_: view.schema.empty_table())
        return _no_rows(columns, view.schema, ranked=rank is not None)
    searchers = every.group.searchers

    def read(names: Sequence[str], splits: RowNumbers, rows: RowNumbers) -> pa.Table:
        return _read_hits(environment, searchers, splits, rows, names)

    k = limit if rank is None and not fuse else None
    if nearest is None:
        assert search is not None
        found = _text_hits(view, search, predicate, k, every)
    elif fuse:
        assert search is not None
        found = fused(
            _text_hits(view, search, predicate, k, every),
            nearest_hits(view, nearest, predicate, every.paths, k),
        )
    else:
        among = predicate if search is None else conjunction(search, predicate)
        found = nearest_hits(view, nearest, among, every.paths, k)
    wanted = len(found) if limit is None else limit
    if rank is None:
        best = found if k == limit else best_of(found, wanted)
        hits = break_ties(best, wanted, read, view.schema, hashed=view.mapping.hashed)
        table = read(columns, hits.splits, hits.rows)
        return table.append_column(SCORE, pa.array(hits.scores, pa.float32()))
    values = rank(found, read)
    lowest = np.maximum(values, np.finfo(np.float64).min)  # null comes after minus infinity
    by_value = replace(found, scores=np.where(np.isnan(values), -np.inf, lowest))
    best = best_of(by_value, wanted)
    hits = break_ties(best, wanted, read, view.schema, hashed=view.mapping.hashed)
    places = _places(found, hits)
    table = read(columns, hits.splits, hits.rows)
    table = table.append_column(SCORE, pa.array(found.scores[places], pa.float32()))
    return table.append_column(RANKED_BY, pa.array(values[places], pa.float64(), from_pandas=True))


def _places(hits: Hits, some: Hits) -> npt.NDArray[np.intp]:
    """Where some of the hits are among all of them."""
    keys, wanted = (one.splits << 40 | one.rows for one in (hits, some))
    order = np.argsort(keys)
    return order[np.searchsorted(keys, wanted, sorter=order)]


def _text_hits(
    view: TableView, search: Search, predicate: Predicate, limit: int | None, every: _EverySplit
) -> Hits:
    """The best rows by BM25, best first, with ties of the last one; all without a limit."""
    within, group = None, every.group
    if predicate != TRUE:
        # Conditions are routed; the search is not: every live split counts in its statistics.
        plan = plan_scan(view, predicate=predicate)
        kept = {t.path: t.predicate for t in plan.tasks}
        within = list(
            Environment.of(view).ahead(
                functools.partial(row_mask, searcher, kept.get(path))
                for path, searcher in zip(every.paths, group.searchers, strict=True)
            )
        )
    query = view.resolved(search)
    with CombinedSearcher(group.searchers, query, view.config, key=group.key) as combined:
        check_stop()
        return combined.top(combined.num_rows if limit is None else limit, within=within)


@dataclass(frozen=True, slots=True)
class _EverySplit:
    """The splits of a version, searched as one index."""

    paths: tuple[str, ...]
    group: SplitGroup


def _every_split(view: TableView, environment: Environment) -> _EverySplit | None:
    """All splits of a version; None if there are none."""
    key = (_EverySplit, os.getpid())
    if key not in view.kept:
        tasks = split_tasks(view.snapshot, view.snapshot.entries, TRUE)
        view.kept[key] = _EverySplit(tasks.paths, environment.group(tasks)) if tasks else None
    found: _EverySplit | None = view.kept[key]
    return found


@dataclass(frozen=True, slots=True)
class ScoreExplanation:
    """Why a row has its score for a search.

    `parts` has a row for each word and column, the most important first: `column`, `clause`,
    `score`, and what that is the product of: `boost`, `idf` and `tf`. `tf` is
    `occurrences * 2.2 / (occurrences + norm)`; `norm` is `1.2 * (0.25 + 0.75 * length / average)`,
    where Tantivy rounds lengths above 40 words. `rows` is how many rows have the word. What is not
    a word, such as a range or a pattern, scores 1 and has no such numbers.
    """

    score: float
    """What a search returns as `_score`; 0 if the row does not match."""
    parts: pa.Table

    def __str__(self) -> str:
        rows: list[dict[str, Any]] = self.parts.to_pylist()
        lines = [f"{self.score:.6f} is the sum of"]
        for row in rows:
            where = "" if row["column"] is None else f"{row['column']}:"
            product = [f"{name} {row[name]:.6g}" for name in ("boost", "idf", "tf")
                       if row[name] is not None]  # fmt: skip
            lines.append(f"{row['score']:10.6f}  {where}{row['clause']}  = {' * '.join(product)}")
        return "\n".join(lines)


_PARTS = pa.schema(
    {
        **dict.fromkeys(("column", "clause"), pa.string()),
        **dict.fromkeys(("score", "boost", "idf", "tf", "norm"), pa.float64()),
        **dict.fromkeys(("occurrences", "rows"), pa.int64()),
    }  # type: ignore[arg-type]
)


def explain_score(view: TableView, search: Search, *, split: str, row: int) -> ScoreExplanation:
    """What each word and field of a search adds to the score of one row.

    Every part is asked alone, of this row alone. Names in the search are the stored ones.
    """
    every = _every_split(view, Environment.of(view))
    if every is None or split not in every.paths:
        raise QueryError(f"The table has no split '{split}' at version {view.version}.")
    group, ordinal = every.group, every.paths.index(split)
    if not 0 <= row < group.searchers[ordinal].split.info.rows:
        raise QueryError(f"The split '{split}' has no row {row}.")

    def explained(node: SearchNode) -> ExplainedRow | None:
        """The row's score for a part of the query; None if that does not match it."""
        check_stop()
        one = Search(None, node, search.text)
        with CombinedSearcher(group.searchers, one, view.config, key=group.key) as combined:
            return combined.explain(ordinal, row)

    def parts(node: SearchNode, factor: float) -> Iterator[dict[str, Any]]:
        match node:
            case Boost(child=child, factor=boost):
                yield from parts(child, factor * boost)
            case Boolean(must=must, should=should):
                # An alternative that does not match as a whole adds nothing.
                if (not must and not node.must_not) or explained(node) is not None:
                    for child in (*must, *should):
                        yield from parts(child, factor)
            case _:
                alone = explained(node)
                for term in () if alone is None else alone.terms or (TermScore(alone.score),):
                    yield {
                        "column": None if isinstance(node, All) else _shown(node.field or "", view),
                        "clause": spelled(node),
                        "boost": factor,
                        **asdict(term),
                        "score": factor * term.score,
                    }

    whole = explained(search.query)
    if whole is None:
        return ScoreExplanation(0.0, _PARTS.empty_table())
    fields = [escaped_field([field.name]) for field in view.mapping.searchable]
    query = over_fields(search.query, fields, fits=lambda leaf: _fits(view, leaf))
    found = sorted(parts(query, 1.0), key=lambda part: -part["score"])
    return ScoreExplanation(whole.score, pa.Table.from_pylist(found, _PARTS))


def _shown(field: str, view: TableView) -> str:
    resolved = resolve_field(field, view.schema)
    if resolved is None:
        return field
    return ".".join([view.names.shown_name(resolved[0]), *resolved[1]])


def spelled(node: FieldNode | All) -> str:
    """A part of a query as people write it, without its field."""
    match node:
        case All():
            return "*"
        case Term(text=text):
            return text
        case Phrase(text=text):
            return f'"{text}"'
        case Fuzzy(text=text, distance=distance):
            return f"{text}~{distance}"
        case Wildcard(parts=parts):
            return "".join(p if isinstance(p, str) else p.value for p in parts)
        case Regex(pattern=pattern):
            return f"/{pattern}/"
        case Range(lower=lower, upper=upper):
            return f"{lower or '*'} to {upper or '*'}"
        case TermSet(values=values):
            return f"one of {', '.join(values)}"
        case Exists():
            return "has a value"


def _fits(view: TableView, leaf: FieldNode) -> bool:
    try:
        view.check_searches(Search(None, leaf, ""))
    except SearchValueError:
        return False
    return True


def _no_rows(columns: Sequence[str], schema: pa.Schema, *, ranked: bool) -> pa.Table:
    made = [pa.field(SCORE, pa.float32()), pa.field(RANKED_BY, pa.float64())]
    fields = [column_field(schema, name) for name in columns]
    return pa.schema([*fields, *made[: 1 + ranked]]).empty_table()


def _read_hits(
    environment: Environment,
    searchers: Sequence[SplitSearcher],
    splits: RowNumbers,
    rows: RowNumbers,
    columns: Sequence[str],
) -> pa.Table:
    """Rows of several splits in the order of the hits, read side by side."""
    if len(searchers) == 1:
        return searchers[0].read_rows(rows, columns)
    ordinals: list[int] = np.unique(splits).tolist()
    if not ordinals:
        schema = environment.context.schema
        return pa.schema([column_field(schema, name) for name in columns]).empty_table()
    if len(ordinals) == 1:
        return searchers[ordinals[0]].read_rows(rows, columns)
    places = [np.flatnonzero(splits == ordinal) for ordinal in ordinals]
    parts = environment.ahead(
        functools.partial(searchers[ordinal].read_rows, rows[here], columns)
        for ordinal, here in zip(ordinals, places, strict=True)
    )
    return pa.concat_tables(parts).take(np.argsort(np.concatenate(places), kind="stable"))


def rows_at(
    view: TableView, splits: Sequence[str], rows: RowNumbers, columns: Sequence[str]
) -> pa.Table:
    """The columns, by their stored names, of rows by split and number, in that order."""
    environment = Environment.of(view)
    every = _every_split(view, environment)
    if every is None:
        raise QueryError(f"The table has no splits at version {view.version}.")
    places = {path: ordinal for ordinal, path in enumerate(every.paths)}
    ordinals = np.array([places[split] for split in splits], np.int64)
    return _read_hits(environment, every.group.searchers, ordinals, rows, columns)


def with_snippets(
    table: pa.Table, search: Search, columns: Sequence[str], context: SearchContext
) -> pa.Table:
    """The rows with a column `_snippet_<name>` for each of these columns."""
    for name in columns:
        texts = table.column(name)
        if not pa.types.is_string(texts.type):
            raise QueryError(f"A snippet shows text; the column '{name}' is {texts.type}.")
        marked = snippets(
            texts.to_pylist(), search, name, mapping=context.mapping, schema=context.schema
        )
        table = table.append_column(f"_snippet_{name}", pa.array(marked, pa.string()))
    return table
