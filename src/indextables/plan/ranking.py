"""The best rows for a search: BM25 over all live splits, whatever way rows are laid out in them.

Statistics of words are those of the whole table, so a score depends on the rows of the table
only. Conditions (`where`) leave rows out and change nobody's score. Ties are broken by the values
of the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from indextables.errors import QueryError, SearchValueError
from indextables.plan.execute import Environment
from indextables.plan.scan import plan_scan
from indextables.plan.split_rows import Mask, SplitRows
from indextables.plan.tasks import SplitTasks, split_tasks
from indextables.plan.view import TableView
from indextables.predicate import TRUE, FieldNode, Predicate, Search
from indextables.predicate.names import escaped_field
from indextables.predicate.search import All, Boolean, Boost, SearchNode, over_fields
from indextables.runner import check_stop
from indextables.schema import column_field
from indextables.split.open_split import SplitSearcher
from indextables.split.row_numbers import RowNumbers
from indextables.split.scoring import CombinedSearcher, break_ties
from indextables.split.search import SearchContext
from indextables.split.snippet import snippet

SCORE = "_score"


def top_rows(
    view: TableView,
    search: Search,
    *,
    predicate: Predicate = TRUE,
    columns: Sequence[str],
    limit: int | None,
) -> pa.Table:
    """The best rows, best first, with their scores in the last column."""
    snapshot, environment = view.snapshot, Environment.of(view)
    tasks = _every_split(view)
    if not tasks:
        return _no_rows(columns, snapshot.schema)
    group = environment.group(tasks)
    searchers, within = group.searchers, None
    if predicate != TRUE:
        # Conditions are routed; the search is not: every live split counts in its statistics.
        plan = plan_scan(view, predicate=predicate)
        kept = {t.path: t.predicate for t in plan.tasks}
        within = list(
            environment.ahead(
                functools.partial(_mask, searcher, kept.get(task.path))
                for task, searcher in zip(tasks, searchers, strict=True)
            )
        )
    with CombinedSearcher(searchers, search, view.config, key=group.key) as combined:
        check_stop()
        wanted = combined.num_rows if limit is None else limit
        found = combined.top(wanted, within=within)

        def read(names: Sequence[str], splits: RowNumbers, rows: RowNumbers) -> pa.Table:
            return _read_hits(environment, searchers, splits, rows, names)

        hits = break_ties(found, wanted, read, snapshot.schema, hashed=view.mapping.hashed)
        table = read(columns, hits.splits, hits.rows)
    return table.append_column(SCORE, pa.array(hits.scores, pa.float32()))


def _every_split(view: TableView) -> SplitTasks:
    tasks: SplitTasks | None = view.kept.get(TRUE)
    if tasks is None:
        tasks = view.kept[TRUE] = split_tasks(view.snapshot, view.snapshot.entries, TRUE)
    return tasks


def score_parts(
    view: TableView, search: Search, *, split: str, row: int
) -> list[tuple[FieldNode | All, float]]:
    """What each word and field of a search adds to the score of one row. Names are the stored ones.

    Every part is asked alone, of this row alone. Their sum is the row's score, but for the last
    digits.
    """
    environment, tasks = Environment.of(view), _every_split(view)
    paths = [task.path for task in tasks]
    if split not in paths:
        raise QueryError(f"The table has no split '{split}' at version {view.version}.")
    group = environment.group(tasks)
    within = [np.zeros(s.split.info.rows, dtype=np.bool_) for s in group.searchers]
    if not 0 <= row < len(within[paths.index(split)]):
        raise QueryError(f"The split '{split}' has no row {row}.")
    within[paths.index(split)][row] = True

    def score(node: SearchNode) -> float | None:
        """The row's score for a part of the query; None if that does not match it."""
        check_stop()
        one = Search(None, node, search.text)
        with CombinedSearcher(group.searchers, one, view.config, key=group.key) as combined:
            found = combined.top(1, within=within)
        return float(found.scores[0]) if len(found) else None

    def parts(node: SearchNode, factor: float) -> Iterator[tuple[FieldNode | All, float]]:
        match node:
            case Boost(child=child, factor=boost):
                yield from parts(child, factor * boost)
            case Boolean(must=must, should=should):
                # An alternative that does not match as a whole adds nothing.
                if (not must and not node.must_not) or score(node) is not None:
                    for child in (*must, *should):
                        yield from parts(child, factor)
            case _:
                alone = score(node)
                if alone is not None:
                    yield node, factor * alone

    fields = [escaped_field([field.name]) for field in view.mapping.searchable]
    query = over_fields(search.query, fields, fits=lambda leaf: _fits(view, leaf))
    return list(parts(query, 1.0))


def _fits(view: TableView, leaf: FieldNode) -> bool:
    try:
        view.check_searches(Search(None, leaf, ""))
    except SearchValueError:
        return False
    return True


def _no_rows(columns: Sequence[str], schema: pa.Schema) -> pa.Table:
    score = pa.field(SCORE, pa.float32())
    return pa.schema([*(column_field(schema, name) for name in columns), score]).empty_table()


def _mask(searcher: SplitSearcher, predicate: Predicate | None) -> Mask:
    rows = searcher.split.info.rows
    if predicate is None:
        return np.zeros(rows, dtype=np.bool_)
    matching = SplitRows(searcher, predicate).matching()
    mask = np.full(rows, matching is None)
    if matching is not None:
        mask[matching] = True
    return mask


def _read_hits(
    environment: Environment,
    searchers: Sequence[SplitSearcher],
    splits: RowNumbers,
    rows: RowNumbers,
    columns: Sequence[str],
) -> pa.Table:
    """Rows of several splits in the order of the hits, read side by side."""
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


def with_snippets(
    table: pa.Table, search: Search, columns: Sequence[str], context: SearchContext
) -> pa.Table:
    """The rows with a column `_snippet_<name>` for each of these columns."""
    for name in columns:
        texts = table.column(name)
        if not pa.types.is_string(texts.type):
            raise QueryError(f"A snippet shows text; the column '{name}' is {texts.type}.")
        marked = [
            snippet(text, search, name, mapping=context.mapping, schema=context.schema)
            for text in texts.to_pylist()
        ]
        table = table.append_column(f"_snippet_{name}", pa.array(marked, pa.string()))
    return table
