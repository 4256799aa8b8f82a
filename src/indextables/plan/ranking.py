"""The best rows for a search: BM25 over all live splits, or vectors, however rows are laid out.

Statistics of words are those of the whole table, so a score depends on the rows of the table only.
Conditions (`where`) leave rows out and change no score. Ties are broken by the values of the rows.
Rows may also be ranked by their vectors, by both, or by an expression over score and columns, which
is then computed for every row that matches.

Of vectors every candidate row is compared, none is estimated. Scores are computed row by row in
double precision and rounded to what a result holds, so that they do not depend on how rows lie in
splits. A row without a vector, or whose score is not a number because its vector has a NaN, is not
found.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import (
    ConfigError,
    QueryError,
    SchemaError,
    SearchValueError,
    UnknownColumnError,
    VectorError,
)
from indextables.plan.execute import Answers, Environment, SplitGroup
from indextables.plan.scan import SplitTask, plan_scan, split_tasks
from indextables.plan.split_rows import row_mask
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
from indextables.schema import ROW, ROW_IDENTITY, SCORE, column_field, dimension_of
from indextables.split.open_split import SplitSearcher
from indextables.split.row_numbers import RowNumbers
from indextables.split.scoring import (
    CombinedSearcher,
    ExplainedRow,
    Hits,
    Read,
    Scores,
    TermScore,
    break_ties,
    no_hits,
    with_ties,
)
from indextables.split.search import SearchContext
from indextables.split.snippet import DEFAULT_LENGTH, snippets

RANKED_BY = "_rank_by"
"""The expression that rows are ranked by, instead of their score."""


Rank = Callable[[Hits, Read], Any]
"""Computes the ranks of hits instead of their scores: an array of numbers, higher is better."""


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
    `fuse` both rankings count. `rank` computes another order and adds the values it orders by.
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
        candidates = _text_hits(view, search, predicate, k, every)
    elif fuse:
        assert search is not None
        candidates = fused(
            _text_hits(view, search, predicate, k, every),
            nearest_hits(view, nearest, predicate, every.paths, k),
        )
    else:
        among = predicate if search is None else conjunction(search, predicate)
        candidates = nearest_hits(view, nearest, among, every.paths, k)
    count = len(candidates) if limit is None else limit
    if rank is None:
        best = candidates if k == limit else best_of(candidates, count)
        hits = break_ties(best, count, read, view.schema, hashed=view.mapping.hashed)
        table = read(columns, hits.splits, hits.rows)
        return table.append_column(SCORE, pa.array(hits.scores, pa.float32()))
    values = rank(candidates, read)
    # Doubles would lose the order of large whole numbers and decimals. Nulls come last.
    ranks: Any = pc.rank(values, sort_keys="descending", tiebreaker="dense")
    by_value = replace(candidates, scores=-ranks.to_numpy().astype(np.float64))
    best = best_of(by_value, count)
    hits = break_ties(best, count, read, view.schema, hashed=view.mapping.hashed)
    places = _places(candidates, hits)
    table = read(columns, hits.splits, hits.rows)
    table = table.append_column(SCORE, pa.array(candidates.scores[places], pa.float32()))
    shown = pc.cast(values.take(pa.array(places)), pa.float64(), safe=False)
    return table.append_column(RANKED_BY, shown)


def _places(hits: Hits, chosen: Hits) -> npt.NDArray[np.intp]:
    """The positions of some hits among all of them."""
    keys, chosen_keys = (one.splits << 40 | one.rows for one in (hits, chosen))
    order = np.argsort(keys)
    return order[np.searchsorted(keys, chosen_keys, sorter=order)]


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
    every: _EverySplit | None = view.kept[key]
    return every


@dataclass(frozen=True, slots=True)
class ScoreExplanation:
    """Why a row has its score for a search.

    `parts` has a row for each word and column, the most important first: `column`, `clause`,
    `score`, and what that is the product of: `boost`, `idf` and `tf`. `tf` is
    `occurrences * (k1 + 1) / (occurrences + norm)`, and `norm` is
    `k1 * (1 - b + b * length / average)`, with k1 1.2 and b 0.75 unless the table has others.
    Tantivy rounds lengths above 40 words. `rows` is how many rows have the word. What is not a
    word, such as a range or a pattern, scores 1 and has no such numbers.
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
        node_search = Search(None, node, search.text)
        with CombinedSearcher(group.searchers, node_search, view.config, key=group.key) as combined:
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

    explained_query = explained(search.query)
    if explained_query is None:
        return ScoreExplanation(0.0, _PARTS.empty_table())
    fields = [escaped_field([field.name]) for field in view.mapping.searchable]
    query = over_fields(search.query, fields, fits=lambda leaf: _fits(view, leaf))
    rows = sorted(parts(query, 1.0), key=lambda part: -part["score"])
    return ScoreExplanation(explained_query.score, pa.Table.from_pylist(rows, _PARTS))


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
    computed = [pa.field(SCORE, pa.float32()), pa.field(RANKED_BY, pa.float64())]
    fields = [column_field(schema, name) for name in columns]
    return pa.schema([*fields, *computed[: 1 + ranked]]).empty_table()


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
        functools.partial(searchers[ordinal].read_rows, rows[hits_of_split], columns)
        for ordinal, hits_of_split in zip(ordinals, places, strict=True)
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
    table: pa.Table,
    search: Search,
    columns: Sequence[str],
    context: SearchContext,
    *,
    length: int = DEFAULT_LENGTH,
) -> pa.Table:
    """The rows with a column `_snippet_<name>` for each of these columns."""
    for name in columns:
        texts = table.column(name)
        if name in ROW_IDENTITY or not pa.types.is_string(texts.type):
            reason = "hidden" if name in ROW_IDENTITY else texts.type
            raise QueryError(f"A snippet shows text; the column '{name}' is {reason}.")
        marked = snippets(
            texts.to_pylist(),
            search,
            name,
            mapping=context.mapping,
            schema=context.schema,
            length=length,
        )
        table = table.append_column(f"_snippet_{name}", pa.array(marked, pa.string()))
    return table


# --- vectors ---------------------------------------------------------------------------------

Metric = Literal["cosine", "dot", "l2"]
_METRICS: tuple[Metric, ...] = get_args(Metric)
_NUMBERS_AT_ONCE = 1 << 20
"""Numbers of vectors that are compared at once, in double precision."""
_LARGE = 2.0**800
"""Sums of squares from its inverse up to this number have all their digits."""
_RRF = 60
"""The constant of reciprocal rank fusion, as its authors chose it."""

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Nearest:
    """A question for the nearest vectors of a column."""

    column: str
    """As stored."""
    shown: str
    vector: Doubles
    metric: Metric

    @classmethod
    def of(cls, view: TableView, vector: Any, column: str | None, metric: str) -> Nearest:
        """What a caller asks for, checked; without a column the only one that has vectors."""
        if metric not in _METRICS:
            raise ConfigError(f"metric is one of {', '.join(_METRICS)}, not {metric!r}.")
        field = _vector_field(view.shown.schema, column)
        try:
            numbers = np.asarray(vector, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            numbers = np.zeros((0, 0))
        if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
            raise VectorError(field.name, "vector is a list of finite numbers, such as [0.1, -2.5]")
        if metric == "cosine" and not numbers.any():
            raise VectorError(field.name, "a vector of zeros has no direction, which cosine needs")
        dimension = dimension_of(field)
        if dimension is not None and dimension != len(numbers):
            raise VectorError(
                field.name,
                f"its vectors have {dimension} numbers, and the one that is searched for has "
                f"{len(numbers)}",
            )
        return cls(view.names.stored_name(field.name), field.name, numbers, metric)

    def scores(self, column: Any) -> Scores:
        """The score of each row, NaN where there is none."""
        lengths: Any = pc.list_value_length(column)
        wrong = pc.filter(lengths, pc.not_equal(lengths, pa.scalar(len(self.vector), lengths.type)))
        if len(wrong):
            raise VectorError(
                self.shown,
                f"a row has a vector of {wrong[0]} numbers, and the one that is searched for has "
                f"{len(self.vector)}",
            )
        scores = np.full(len(column), np.nan, dtype=np.float32)
        present = np.flatnonzero(np.asarray(pc.is_valid(column)))
        step = max(1, _NUMBERS_AT_ONCE // len(self.vector))
        values = column.drop_null() if len(present) < len(column) else column
        for at in range(0, len(present), step):
            check_stop()
            elements = values.slice(at, step).flatten()
            numbers = elements.to_numpy(zero_copy_only=False).astype(np.float64)
            compared = self._compared(numbers.reshape(-1, len(self.vector)))
            with np.errstate(over="ignore"):  # a dot product beyond what a score holds is infinite
                scores[present[at : at + step]] = compared
        return scores

    def _compared(self, vectors: Doubles) -> Doubles:
        # Row by row: a product of matrices would add in another order for other numbers of rows.
        with np.errstate(all="ignore"):
            if self.metric == "l2":
                apart = vectors - self.vector
                return 0.0 - np.sqrt(_sums(apart, apart))
            if self.metric == "dot":
                return _sums(vectors, np.broadcast_to(self.vector, vectors.shape))
            vectors, lengths = _in_range(vectors)
            scaled, length = _in_range(self.vector[None])
            products = _sums(vectors, np.broadcast_to(scaled, vectors.shape))
            cosines: Doubles = products / (lengths * length)
            return cosines


def _in_range(vectors: Doubles) -> tuple[Doubles, Doubles]:
    """Vectors whose squares can be added, and their lengths.

    Very large and very small ones are multiplied by powers of two, which changes no digit of a
    cosine; the others stay as they are.
    """
    squares = _sums(vectors, vectors)
    odd = np.flatnonzero((squares > _LARGE) | (squares < 1 / _LARGE))
    if len(odd):
        powers = np.frexp(np.abs(vectors[odd]).max(axis=1))[1]
        vectors = vectors.copy()
        vectors[odd] = np.ldexp(vectors[odd], -powers[:, None])
        squares = _sums(vectors, vectors)
    return vectors, np.sqrt(squares)


def _sums(left: Doubles, right: Doubles) -> Doubles:
    sums: Doubles = np.einsum("ij,ij->i", left, right)
    return sums


def _vector_field(schema: pa.Schema, column: str | None) -> pa.Field[Any]:
    if column is None:
        vectors = [field for field in schema if dimension_of(field) is not None]
        if len(vectors) == 1:
            return vectors[0]
        names = ", ".join(field.name for field in vectors)
        raise ConfigError(
            f"Choose one of the columns of vectors with vector_column=…: {names}."
            if vectors
            else "Name the column of vectors with vector_column=…: no column declares a dimension."
        )
    if column not in schema.names:
        raise UnknownColumnError(column, available=schema.names)
    field = schema.field(column)
    data_type: Any = field.type
    if not pa.types.is_list(data_type) or not pa.types.is_floating(data_type.value_type):
        raise SchemaError(
            f"'{column}' is {data_type} and has no vectors. Name a column of lists of floats."
        )
    return field


def nearest_hits(
    view: TableView,
    nearest: Nearest,
    predicate: Predicate,
    paths: Sequence[str],
    k: int | None,
) -> Hits:
    """The k nearest rows that meet a condition, with ties of the last one; all without a k.

    Splits are numbered as in `paths`.
    """
    environment = Environment.of(view)
    plan = plan_scan(view, predicate=predicate, columns=(nearest.column,))
    places = {path: at for at, path in enumerate(paths)}

    def compared(item: tuple[SplitTask, Answers]) -> Hits:
        task, answers = item
        nearest_rows = no_hits()
        for rows in environment.rows(task, answers).read((nearest.column, ROW)):
            scores = nearest.scores(rows[nearest.column].combine_chunks())
            scored = np.flatnonzero(~np.isnan(scores))
            numbers = np.asarray(rows[ROW])[scored]
            splits = np.full(len(scored), places[task.path], dtype=np.int64)
            nearest_rows = best_of(nearest_rows.and_more(Hits(splits, numbers, scores[scored])), k)
        return nearest_rows

    best = no_hits()
    for compared_hits in environment.map(compared, environment.searched(plan.tasks)):
        best = best_of(best.and_more(compared_hits), k)
    return best


def best_of(hits: Hits, k: int | None) -> Hits:
    """The k best of hits in any order, best first, with ties of the last one; all without a k."""
    if k is None:
        return hits
    return with_ties(hits.take(np.argsort(-hits.scores, kind="stable")), k) if k else no_hits()


def fused(by_words: Hits, by_vector: Hits) -> Hits:
    """Rows of two rankings by reciprocal rank fusion. Rows of equal score share a rank."""
    keys = [hits.splits << 40 | hits.rows for hits in (by_words, by_vector)]
    every, places = np.unique(np.concatenate(keys), return_inverse=True)
    total = np.zeros(len(every))
    shares = np.concatenate([1 / (_RRF + _ranks(hits.scores)) for hits in (by_words, by_vector)])
    np.add.at(total, places, shares)
    return Hits(every >> 40, every & ((1 << 40) - 1), total)  # type: ignore[arg-type]


def _ranks(scores: Scores) -> npt.NDArray[np.int64]:
    """The rank of each score, from 1: one more than how many are better."""
    return np.searchsorted(np.sort(-scores), -scores, side="left") + 1
