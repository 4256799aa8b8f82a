"""Scores and their order do not depend on how rows are laid out in splits."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from conftest import configuration, query

from indextables.config import Config
from indextables.split import mapping_options, scoring
from indextables.split.format.index import IndexSearcher
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
            parts = [s.read_rows(rows[ordinals == o], names) for o, s in enumerate(splits)]
            return pa.concat_tables(parts).take(np.argsort(np.argsort(ordinals, kind="stable")))

        context = splits[0].context
        hits = break_ties(hits, k, read, context.schema, hashed=context.mapping.hashed)
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
        assert [score for _, score in first] == sorted((s for _, s in first), reverse=True)
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


def _unhashed(numbered, *args, **options):
    """The mapping of a table that was made before indexes had hashes."""
    return replace(numbered(*args, **options), hashed=False)


@pytest.mark.parametrize("splits", [1, 5])
def test_the_first_of_many_ties_are_found_by_their_hashes(make, monkeypatch, splits):
    # Every tie beyond the first few hits, and levels of a handful of rows.
    for name, number in (("_MORE_HITS", 1), ("_TIES_AT_ONCE", 60), ("_MANY_TIES", 20)):
        monkeypatch.setattr(scoring, name, number)
    rng = random.Random(2)
    rows = 1_600
    bodies = ["w1" if rng.random() < 0.6 else rng.choice(["w1 w2", "w1 w1 w3", "w2", ""])
              for _ in range(rows)]  # fmt: skip
    table = pa.table({"id": rng.sample(range(rows), rows), "body": bodies})
    size = rows // splits
    opened = [make(table.slice(at, size)) for at in range(0, rows, size)]
    narrowed = []
    first_ties = CombinedSearcher._first_ties
    monkeypatch.setattr(
        CombinedSearcher,
        "_first_ties",
        lambda *args, **named: narrowed.append(first_ties(*args, **named)) or narrowed[-1],
    )
    # Of the first split three rows of four are left out.
    within = [np.arange(size) % (4 if at == 0 else 1) == 0 for at in range(splits)]
    for text in ("w1", "w1 w2", "w1 AND NOT w2", "w*", "NOT w2", "w1^2 w3"):
        search = query(text, "body")
        for mask in (None, within):
            everything = best(opened, search, rows, within=mask)
            for k in (1, 10, 70):
                assert best(opened, search, k, within=mask) == everything[:k], (text, k)
    assert sum(found is not None for found in narrowed) > 10


def test_where_few_rows_tie_the_levels_are_asked_once(make, monkeypatch):
    for name, number in (("_MORE_HITS", 1), ("_MANY_TIES", 20)):
        monkeypatch.setattr(scoring, name, number)
    rng = random.Random(3)
    rows = 1_200
    # Lengths make scores: each has a few dozen rows, too few for a level and more than are asked.
    table = pa.table(
        {
            "id": rng.sample(range(rows), rows),
            "body": ["w1" + " x" * rng.randrange(25) for _ in range(rows)],
        }
    )
    split = make(table)
    asked: list[str] = []
    for kind, name in ((CombinedSearcher, "_first_ties"), (IndexSearcher, "hits")):
        real = getattr(kind, name)
        monkeypatch.setattr(
            kind,
            name,
            lambda *args, real=real, name=name, **named: asked.append(name) or real(*args, **named),
        )
    search = query("w1", "body")
    within = [np.arange(rows) % 3 > 0]
    for mask in (None, within):
        everything = best([split], search, rows, within=mask)
        for k in (1, 10, 55, 300):
            asked.clear()
            assert best([split], search, k, within=mask) == everything[:k]
            assert asked.count("_first_ties") <= 1
            assert asked.count("hits") <= 4


@pytest.mark.parametrize("first", [True, False], ids=["at the beginning", "at the end"])
def test_ties_that_lie_together_are_found_as_well(make, monkeypatch, first):
    """How many rows tie is guessed from where the first of them lie, which may be wrong."""
    for name, number in (("_MORE_HITS", 1), ("_TIES_AT_ONCE", 60), ("_MANY_TIES", 20)):
        monkeypatch.setattr(scoring, name, number)
    best_ones, others = ["w1"] * 120, [f"w1{' x' * (n % 7 + 1)}" for n in range(900)]
    bodies = best_ones + others if first else others + best_ones
    table = pa.table({"id": random.Random(4).sample(range(1_020), 1_020), "body": bodies})
    split, search = make(table), query("w1", "body")
    everything = best([split], search, 1_020)
    for k in (1, 10, 100, 119, 120, 121, 400):
        assert best([split], search, k) == everything[:k]


def test_rows_are_read_only_where_hashes_are_equal(make, monkeypatch):
    table = pa.table({"id": range(30), "body": ["same"] * 30})
    split = make(table)
    with CombinedSearcher([split], query("same", "body"), Config()) as combined:
        hits = combined.top(5)
    schema = split.context.schema

    def read(names, _splits, rows):
        reads.append(len(rows))
        return table.select(names).take(pa.array(rows))

    reads = []
    best_five = break_ties(hits, 5, read, schema, hashed=True)
    assert best_five.hashes.tolist() == sorted(hits.hashes.tolist())[:5]
    assert not reads
    collided = replace(hits, hashes=hits.hashes // (1 << 31))
    low = sorted(hits.rows[hits.hashes < 1 << 31].tolist())
    found = break_ties(collided, 5, read, schema, hashed=True).rows.tolist()
    assert found == low[:5]
    assert reads == [len(low)]  # their first column decides
    # Hashes that no index has are made from the rows, and are the same.
    bare = replace(hits, hashes=None)
    assert break_ties(bare, 5, read, schema, hashed=True).rows.tolist() == best_five.rows.tolist()


def test_hashes_of_dropped_or_widened_columns_are_made_from_the_rows(make):
    rows = pa.table({"id": pa.array(range(40), pa.int64()), "body": ["same"] * 40,
                     "n": pa.array([i % 7 for i in range(40)], pa.int32())})  # fmt: skip
    for now in (rows.drop_columns(["n"]), rows.set_column(2, "n", rows["n"].cast(pa.int64()))):
        one = make(now)
        old = make(rows.slice(0, 20))
        mapping = old.context.mapping.select(now.schema.names)
        context = SearchContext(now.schema, mapping)
        mixed = [replace(s, context=context) for s in (old, make(now.slice(20)))]
        search = query("same", "body")
        assert best(mixed, search, 9) == best([one], search, 9)


def test_ties_of_an_older_table_are_broken_by_the_values_of_the_rows(make, monkeypatch):
    monkeypatch.setattr(mapping_options, "numbered", partial(_unhashed, mapping_options.numbered))
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
