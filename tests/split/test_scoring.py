"""Scores and their order do not depend on how rows are laid out in splits."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest
from conftest import configuration, query

from indextables.config import Config
from indextables.split.open_split import SplitSearcher
from indextables.split.scoring import CombinedSearcher, Hits, break_ties
from indextables.split.search.query import SearchContext

WORDS = [f"w{i}" for i in range(40)]


def _table(rows: int, seed: int = 1) -> pa.Table:
    rng = random.Random(seed)
    weights = [1 / (i + 1) for i in range(len(WORDS))]
    return pa.table(
        {
            "id": pa.array(rng.sample(range(10 * rows), rows)),
            "title": [" ".join(rng.choices(WORDS, weights, k=3)) for _ in range(rows)],
            "body": [
                " ".join(rng.choices(WORDS, weights, k=rng.randint(0, 30))) for _ in range(rows)
            ],
            "n": pa.array([rng.randint(0, 9) for _ in range(rows)]),
        }
    )


def best(splits, search, k, config=None, within=None):
    """The k best as (id, score)."""
    with CombinedSearcher(splits, search, config or Config()) as combined:
        hits = combined.top(k, within=within)

        def read(names, ordinals, rows):
            return pa.concat_tables(
                splits[o].read_rows(np.array([r]), names)
                for o, r in zip(ordinals.tolist(), rows.tolist(), strict=True)
            )

        hits = break_ties(hits, k, read, splits[0].context.schema)
        ids = read(["id"], hits.splits, hits.rows)["id"].to_pylist() if len(hits) else []
        return list(zip(ids, hits.scores.tolist(), strict=True))


SEARCHES = [
    ("body", "w3"),
    ("body", "w1 w5 w9 w20 w33"),
    ("body", "w1 AND w2 AND w7"),
    ("body", '"w0 w1"'),
    ("body", '"w0 w2"~2 OR w30^3'),
    ("body", "w1*"),
    ("body", "w3 -w0"),
    ("body", "NOT w0"),
    (None, "w4 w8 w11"),
    (None, "+w4 w8 title:w0"),
    ("body", "w5 AND n:[3 TO 6]"),
    ("body", "w5 w6 n:7"),
    ("body", "w5^2 (w6 n:7)^0.5 -n:3"),
    ("n", "[2 TO 4]"),
]


def test_adding_many_scores_does_not_depend_on_the_order_of_adding(make):
    # Words of equal frequency: in every segment another one is the rarest and is added first.
    rng = random.Random(4)
    table = pa.table(
        {"id": range(600), "body": [" ".join(rng.choices(WORDS, k=60)) for _ in range(600)]}
    )
    one, many = [make(table)], [make(table.slice(i * 60, 60)) for i in range(10)]
    for text in ("w1 AND w2 AND w3 AND w5", "w1 w2 w3 w4 w5 w6 w7", "+w1 +w2 +w3 w4 w5"):
        search = query(text, "body")
        assert best(one, search, 200) == best(many, search, 200)


@pytest.mark.parametrize("options", [{}, {"indexing.fastfields": "n"}], ids=["plain", "fast"])
def test_any_layout_gives_the_same_scores_in_the_same_order(make, options):
    table = _table(300)
    shuffled = table.take(np.random.default_rng(3).permutation(300))
    layouts = [
        [table],
        [table.slice(0, 7), table.slice(7, 200), table.slice(207)],
        [shuffled.slice(i * 30, 30) for i in range(10)],
    ]
    opened = [[make(part, options) for part in layout] for layout in layouts]
    for column, text in SEARCHES:
        search = query(text, column)
        first, *others = (best(splits, search, 12) for splits in opened)
        assert first
        assert first == sorted(first, key=lambda hit: (-hit[1], hit[0]))
        for other in others:
            assert other == first, (column, text)


def test_scores_are_bm25(make):
    table = _table(50)
    (searcher,) = [make(table)]
    scores = dict(best([searcher], query("w3", "body"), 50))
    lengths = [len(t.split()) for t in table["body"].to_pylist()]
    found = [t.split().count("w3") for t in table["body"].to_pylist()]
    idf = math.log(1 + (50 - sum(map(bool, found)) + 0.5) / (sum(map(bool, found)) + 0.5))
    average = sum(lengths) / 50
    for row, tf in zip(table["id"].to_pylist(), found, strict=True):
        if tf:
            length = lengths[table["id"].to_pylist().index(row)]
            expected = idf * 2.2 * tf / (tf + 1.2 * (0.25 + 0.75 * length / average))
            assert scores[row] == pytest.approx(expected, rel=1e-5)


def test_ties_are_broken_by_the_values_of_the_rows(make):
    parts = [
        pa.table({"id": [5, 3], "body": ["x", "x"], "tags": [["b"], ["a"]]}),
        pa.table({"id": [4, 3, 1], "body": ["x", "x", "y"], "tags": [["c"], ["0"], []]}),
    ]
    splits = [make(part) for part in parts]
    for order in (splits, splits[::-1]):
        assert [i for i, _ in best(order, query("x", "body"), 3)] == [3, 3, 4]
        assert [i for i, _ in best(order, query("x", "body"), 10)] == [3, 3, 4, 5]
        assert best(order, query("x", "body"), 0) == []


def test_rows_can_be_left_out_without_changing_scores(make):
    splits = [make(_table(40, seed)) for seed in (1, 2)]
    search = query("w1 w2", "body")
    everything = dict(best(splits, search, 80))
    within = [np.arange(40) % 2 == 0 for _ in splits]
    some = best(splits, search, 5, within=within)
    assert len(some) == 5
    for row, score in some:
        assert everything[row] == score


def test_splits_of_another_mapping_are_indexed_again(make):
    table = _table(60)
    old = make(table.slice(0, 30), {"indexing.tokenizer.body": "whitespace"})
    new = make(table.slice(30))
    one = make(table)
    joined = [SplitSearcher(s.split, s.pool, new.context) for s in (old, new)]
    for text in ("w1 w2", "w3"):
        assert best(joined, query(text, "body"), 9) == best([one], query(text, "body"), 9)


def test_splits_with_fewer_columns_are_searched_as_one(make):
    table = _table(60)
    old = make(table.slice(0, 30).drop_columns(["title"]))
    whole = pa.concat_tables(
        [table.slice(0, 30).drop_columns(["title"]), table.slice(30)], promote_options="default"
    ).select(["id", "body", "n", "title"])
    new = make(table.slice(30).select(whole.schema.names), base=old.context.mapping)
    one = make(whole)
    context = SearchContext(whole.schema, new.context.mapping)
    joined = [SplitSearcher(s.split, s.pool, context) for s in (old, new)]
    for column, text in ((None, "w1 w2 w3"), ("title", "w0"), ("body", "w3")):
        assert best(joined, query(text, column), 9) == best([one], query(text, column), 9)


def test_no_splits_no_hits():
    with CombinedSearcher([], query("x", "body"), configuration()) as combined:
        assert len(combined.top(10)) == 0


def test_ties_in_a_wide_table_take_few_reads():
    # Nearly equal rows of 500 columns; the last two columns decide.
    rows = pa.table(
        {f"c{i}": [1] * 6 for i in range(498)} | {"y": [2, 1, 2, 1, 1, 2], "z": [*"fedcba"]}
    )
    reads = []

    def read(names, _splits, numbers):
        reads.append(len(names))
        return rows.select(names).take(pa.array(numbers))

    numbers = np.arange(6)
    hits = Hits(np.zeros(6, np.int64), numbers, np.ones(6, np.float32))
    assert break_ties(hits, 4, read, rows.schema).rows.tolist() == [4, 3, 1, 5]
    assert sum(reads) == 500
    assert len(reads) < 10
