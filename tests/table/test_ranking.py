"""Ranked search: BM25 over the whole table, the same in every layout of its rows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indextables import Table
from indextables.errors import ConfigError, SchemaError, UnknownColumnError, UnknownFieldError
from indextables.split.scoring import TANTIVY, Bm25

SCHEMA = pa.schema(
    [("id", pa.int64()), ("title", pa.string()), ("body", pa.string()), ("lang", pa.string())]
)
WORDS = ["spark", "sql", "fox", "dog", "the", "data", "index", "table"]


def corpus(rows=60, seed=7):
    chance = np.random.default_rng(seed)
    words = lambda low, high: " ".join(chance.choice(WORDS, chance.integers(low, high)))  # noqa: E731
    return pa.table(
        {
            "id": list(range(rows)),
            "title": [words(1, 4) if chance.random() < 0.9 else None for _ in range(rows)],
            "body": [words(0, 25) for _ in range(rows)],
            "lang": [["en", "de", None, "a/b"][n % 4] for n in range(rows)],
        },
        SCHEMA,
    )


def slices(rows, count):
    bounds = np.linspace(0, rows.num_rows, count + 1).astype(int)
    return [rows.slice(a, b - a) for a, b in itertools.pairwise(bounds)]


def one_split(table, rows):
    table.append(rows)


def many_splits(table, rows):
    for part in slices(rows, 4):
        table.append(part)


def other_order(table, rows):
    table.append(rows.take(list(range(rows.num_rows))[::-1]))


def after_changes(table, rows):
    table.append(pa.table({"id": [1000], "body": ["spark spark fox"]}))
    for part in slices(rows, 3):
        table.append(part)
    table.delete(where="id = 1000")
    table.delete(where="id = 12345")


def overwritten(table, rows):
    table.append(rows.slice(0, 10))
    table.overwrite(rows)


def replaced(table, rows):
    table.append(rows)
    table.overwrite(rows.filter(pa.array([n < 20 for n in range(rows.num_rows)])), where="id < 20")


LAYOUTS = [one_split, many_splits, other_order, after_changes, overwritten, replaced]
QUERIES = [
    "spark",
    "spark sql",
    "fox AND dog",
    '"spark sql"',
    "spark^3 fox",
    "title:spark body:fox",
    "spa*",
    "sparc~1",
    "+spark -fox",
    "NOT spark",
    "id:[3 TO 30] spark",
    "*",
    "lang:en fox",
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory, config):
    """The same rows in every layout, flat and partitioned."""
    made = {}
    for layout in LAYOUTS:
        for partition_by in ((), ("lang",)) if layout is many_splits else ((),):
            uri = tmp_path_factory.mktemp("t") / "t"
            table = Table.create(uri, SCHEMA, partition_by=partition_by, config=config)
            layout(table, corpus())
            made[layout.__name__, partition_by] = table
    return made


@pytest.mark.parametrize(("where", "limit"), [(None, 5), ("id >= 40 OR lang = 'en'", None)])
@pytest.mark.parametrize("query", QUERIES)
def test_the_layout_changes_nothing(query, where, limit, tables):
    reference = tables["one_split", ()].search(query, where=where, limit=limit)
    scores = reference["_score"].to_numpy()
    assert (np.diff(scores) <= 0).all()
    for name, table in tables.items():
        if name[1] and "lang:" in query:
            # A value of a partition is not a word in an index: it scores otherwise.
            found = table.search(query, where=where, limit=None)
            everything = tables["one_split", ()].search(query, where=where, limit=None)
            assert set(found["id"].to_pylist()) == set(everything["id"].to_pylist())
            continue
        assert table.search(query, where=where, limit=limit).equals(reference), name


@pytest.mark.parametrize("query", QUERIES)
def test_what_is_found_is_what_a_scan_finds(query, tables):
    for name in (("one_split", ()), ("many_splits", ("lang",))):
        table = tables[name]
        found = table.search(query, limit=None)["id"].to_pylist()
        scanned = table.scan(columns=["id"], where=f"_indexall indexquery '{query}'")
        assert sorted(found) == sorted(scanned["id"].to_pylist())
        assert len(found) == table.count(where=f"indexqueryall('{query}')")


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(cuts=st.lists(st.integers(0, 30), max_size=5), query=st.sampled_from(QUERIES[:11]))
def test_any_cut_of_the_rows(cuts, query, tmp_path_factory, config):
    rows = corpus(30, seed=3)
    whole = Table.create(tmp_path_factory.mktemp("t") / "t", SCHEMA, config=config)
    whole.append(rows)
    cut = Table.create(tmp_path_factory.mktemp("t") / "t", SCHEMA, config=config)
    bounds = [0, *sorted(cuts), 30]
    for a, b in itertools.pairwise(bounds):
        cut.append(rows.slice(a, b - a))
    assert cut.search(query, limit=10).equals(whole.search(query, limit=10))


def bm25(texts, query, *, k1=1.2, b=0.75):
    """BM25 as Tantivy defines it, from the words of each text. Lengths are kept in one byte."""
    lengths = np.array([stored_length(len(words)) for words in texts], dtype=float)
    average = sum(len(words) for words in texts) / len(texts)
    total = np.zeros(len(texts))
    for word in query:
        counts = np.array([words.count(word) for words in texts], dtype=float)
        n = int((counts > 0).sum())
        idf = math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
        norm = k1 * (1 - b + b * lengths / average)
        total += idf * (1 + k1) * counts / np.where(counts > 0, counts + norm, 1)
    return total


def phrase_score(texts, pairs, *, k1, b):
    """BM25 of a phrase of fox and dog: both words' rarity, times how often the phrase occurs."""
    rows, lengths = len(texts), np.array([len(words) for words in texts], dtype=float)
    rarity = 0.0
    for word in ("fox", "dog"):
        n = sum(word in words for words in texts)
        rarity += math.log(1 + (rows - n + 0.5) / (n + 0.5))
    counts = np.array([len(found) for found in pairs], dtype=float)
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    return rarity * (1 + k1) * counts / np.where(counts > 0, counts + norm, 1)


def stored_length(length):
    """Lengths up to 40 words are exact; longer ones are not used here."""
    assert length <= 40
    return length


@pytest.mark.parametrize("splits", [1, 2, 5])
@pytest.mark.parametrize("query", [["fox"], ["fox", "dog"], ["the"], ["the", "lazy", "fox"]])
def test_scores_are_bm25(query, splits, tmp_path, config):
    texts = ["the red fox", "the lazy dog", "fox fox the dog", "a cat", "", "the the the fox jumps"]
    texts += ["one more text without any of them", "dog"]
    table = Table.create(tmp_path / "t", SCHEMA, config=config)
    rows = pa.table({"id": list(range(len(texts))), "body": texts})
    for part in slices(rows, splits):
        table.append(part)
    found = table.search(" ".join(query), fields=["body"], limit=None)
    expected = bm25([text.split() for text in texts], query)
    order = sorted(np.flatnonzero(expected), key=lambda n: (-np.float32(expected[n]), n))
    assert set(found["id"].to_pylist()) == {int(n) for n in np.flatnonzero(expected)}
    wanted = expected[found["id"].to_numpy()]
    np.testing.assert_allclose(found["_score"].to_numpy(), wanted, rtol=1e-5)
    assert [round(float(expected[n]), 4) for n in order] == [round(float(s), 4) for s in wanted]


def test_conditions_change_no_score(tables):
    table = tables["many_splits", ("lang",)]
    everything = table.search("spark sql", limit=None)
    scores = dict(zip(everything["id"].to_pylist(), everything["_score"].to_pylist(), strict=True))
    for where in ("id > 50", "lang = 'en'", "lang IS NULL", "lang = 'a/b' AND id < 30"):
        found = table.search("spark sql", where=where, limit=None)
        assert (
            found["id"].to_pylist()
            == table.search("spark sql", where=where, limit=99)["id"].to_pylist()
        )
        assert set(found["id"].to_pylist()) == set(
            table.scan(where=f"({where}) AND indexqueryall('spark sql')")["id"].to_pylist()
        )
        for number, score in zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True):
            assert scores[number] == score


def test_ties_have_one_order(tmp_path, config):
    rows = pa.table({"id": list(range(20))[::-1], "body": ["same words"] * 20})
    orders = []
    for number, count in enumerate((1, 4)):
        table = Table.create(tmp_path / f"t{number}", SCHEMA, config=config)
        for part in slices(rows, count):
            table.append(part)
        orders.append(table.search("same", limit=None)["id"].to_pylist())
        assert table.search("same", limit=7)["id"].to_pylist() == orders[0][:7]
        some = [row for row in orders[0] if row >= 5]
        assert table.search("same", where="id >= 5", limit=2)["id"].to_pylist() == some[:2]
    assert orders[0] == orders[1] != sorted(orders[0])


def test_ties_keep_their_order_whatever_happens_to_the_table(tmp_path, config):
    rows = pa.table({"id": list(range(24)), "body": ["same"] * 24, "lang": ["en", "de"] * 12,
                     "title": [None] * 24}).select(SCHEMA.names).cast(SCHEMA)  # fmt: skip

    def order(table):
        return table.search("same", limit=9, columns=["id"])["id"].to_pylist()

    one = Table.create(tmp_path / "one", SCHEMA, config=config)
    one.append(rows)
    expected = order(one)
    parts = Table.create(tmp_path / "parts", SCHEMA, partition_by=["lang"], config=config)
    for part in slices(rows, 3):
        parts.append(part)
    assert order(parts) == expected
    parts.merge_splits()
    assert order(parts.refresh()) == expected
    # An added column is null, a renamed one keeps its stored name.
    for table in (one, parts):
        table.add_columns(pa.schema([("extra", pa.int32())]))
        table.rename_column("id", "number")
        table.rename_column("extra", "id")
        found = table.search("same", limit=9, columns=["number"])["number"].to_pylist()
        assert found == expected
        table.rename_column("id", "extra")
        table.rename_column("number", "id")
    # Rows without a column that others were hashed with.
    mixed = Table.create(tmp_path / "mixed", SCHEMA, config=config)
    mixed.append(rows.slice(0, 12))
    for table in (one, parts, mixed):
        table.drop_columns("title")
    mixed.append(rows.slice(12).drop_columns(["title"]))
    assert order(one) == order(parts) == order(mixed) == expected
    mixed.merge_splits()
    assert order(mixed.refresh()) == expected


def test_limits(tables):
    table = tables["many_splits", ()]
    everything = table.search("spark", limit=None)
    assert table.search("spark", limit=0).num_rows == 0
    assert table.search("spark", limit=0).schema.equals(everything.schema)
    assert table.search("spark").equals(everything.slice(0, 10))
    assert table.search("spark", limit=10**9).equals(everything)
    assert everything.num_rows > 10


def test_fields_and_columns(tables):
    table = tables["many_splits", ("lang",)]
    by_title = set(table.search("spark", fields=["title"], limit=None)["id"].to_pylist())
    assert by_title == set(table.scan(where="title indexquery 'spark'")["id"].to_pylist())
    both = set(table.search("spark", fields=["title", "body"], limit=None)["id"].to_pylist())
    assert by_title < both
    # A field that the query names wins.
    named = table.search("body:spark", fields=["title"], limit=None)["id"].to_pylist()
    assert set(named) == set(table.scan(where="body indexquery 'spark'")["id"].to_pylist())
    assert table.search("spark", columns=["lang"]).schema.names == ["lang", "_score"]
    assert table.search("lang:en", limit=None).num_rows == 15
    with pytest.raises(UnknownColumnError, match="id, title, body, lang"):
        table.search("spark", fields=["nope"])
    with pytest.raises(UnknownFieldError, match="id, title, body, lang"):
        table.search("nope:spark")
    with pytest.raises(UnknownColumnError):
        table.search("spark", columns=["nope"])


def test_snippets(tmp_path, config):
    table = Table.create(tmp_path / "t", SCHEMA, config=config)
    body = "<script>alert('x')</script> & the spark of " + "more " * 100 + "spark"
    table.append(pa.table({"id": [1, 2], "title": [None, "spark"], "body": [body, "no match"]}))
    found = table.search("spark", columns=["id"], snippets=["body", "title"])
    assert found.schema.names == ["id", "_score", "_snippet_body", "_snippet_title"]
    shown = {row["id"]: row for row in found.to_pylist()}
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp;" in shown[1]["_snippet_body"]
    assert (
        "<b>spark</b>" in shown[1]["_snippet_body"] and "<script>" not in shown[1]["_snippet_body"]
    )
    assert shown[1]["_snippet_title"] == "" and shown[2]["_snippet_title"] == "<b>spark</b>"
    assert shown[2]["_snippet_body"] == ""


def test_a_column_called_score(tmp_path, config):
    schema = pa.schema([("_Score", pa.float64()), ("body", pa.string())])
    with pytest.raises(SchemaError, match="'_Score' is a hidden column that every index table has"):
        Table.create(tmp_path / "t", schema, config=config)


def test_added_columns_are_ranked_with_the_rest(tmp_path, config):
    table = Table.create(tmp_path / "t", pa.schema([("id", pa.int64())]), config=config)
    table.append(pa.table({"id": [1, 2]}))
    table.append(pa.table({"id": [3, 4], "body": ["fox", "fox fox"]}), merge_schema=True)
    table.append(pa.table({"id": [5], "title": ["fox"], "body": ["dog"]}), merge_schema=True)
    whole = Table.create(tmp_path / "w", table.schema, config=config)
    whole.append(table.scan())
    for query in ("fox", "title:fox OR body:fox", "NOT fox", "dog fox"):
        assert table.search(query, limit=None).equals(whole.search(query, limit=None)), query


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (5.0, 1.0), (1.2, 0.0), (0.0, 0.5)])
def test_the_constants_of_bm25_are_a_property_of_the_table(k1, b, tmp_path, config):
    rows = corpus(80)
    texts = [text.split() for text in rows["body"].to_pylist()]
    constants = {"spark.indextables.search.bm25.k1": k1, "spark.indextables.search.bm25.b": b}
    for count in (1, 4):
        table = Table.create(tmp_path / f"{count}", SCHEMA, config=config)
        for part in slices(rows, count):
            table.append(part)
        table.set_properties(constants)
        for query in (["fox"], ["fox", "dog", "the"]):
            found = table.search(" ".join(query), fields=["body"], limit=None)
            expected = bm25(texts, query, k1=k1, b=b)
            assert set(found["id"].to_pylist()) == set(np.flatnonzero(expected).tolist())
            scores = found["_score"].to_numpy()
            np.testing.assert_allclose(scores, expected[found["id"].to_numpy()], rtol=1e-5)
            assert (np.diff(scores) <= 0).all()
            for limit in (1, 3, 10):
                assert table.search(" ".join(query), fields=["body"], limit=limit).equals(
                    found.slice(0, limit)
                )
            best = found["id"][0].as_py()
            why = table.explain_score(" ".join(query), f"id = {best}", fields=["body"])
            assert why.score == scores[0] == pytest.approx(sum(why.parts["score"].to_pylist()))
        # Boosts, parts that are no words, phrases that the rows decide, and conditions.
        fox = bm25(texts, ["fox"], k1=k1, b=b)
        pairs = [[p for p in itertools.pairwise(t) if p == ("fox", "dog")] for t in texts]
        for query, score in (
            ('body:"fox dog"', phrase_score(texts, pairs, k1=k1, b=b)),
            ("body:fox^3", 3 * fox),
            ("+body:fox^2 +body:sp*", 2 * fox + 1),
            ("+body:fox id:[0 TO 1000]", fox + 1),
            ("body:fox -body:dog", fox),
        ):
            found = table.search(query, where="id >= 20", limit=7)
            every = table.search(query, limit=None)
            kept = every.filter(pa.compute.greater_equal(every["id"], 20))
            assert found.num_rows and found.equals(kept.slice(0, 7)), query
            wanted = score[found["id"].to_numpy()]
            np.testing.assert_allclose(found["_score"].to_numpy(), wanted, rtol=1e-5)
    table.delete(where="id IN (0, 2, 4, 6, 8, 10)")
    left = table.search("fox dog", fields=["body"], limit=5)
    assert left.num_rows == 5 and not {0, 2, 4, 6, 8, 10} & set(left["id"].to_pylist())


@pytest.mark.parametrize(("key", "value"), [("k1", "-1"), ("k1", "nan"), ("b", "1.1"), ("b", "x")])
def test_constants_of_bm25_that_have_no_meaning(key, value, tmp_path, config):
    table = Table.create(tmp_path / "t", SCHEMA, config=config)
    with pytest.raises(ConfigError, match="a number from 0"):
        table.set_properties({f"spark.indextables.search.bm25.{key}": value})


def test_how_much_better_a_score_can_be_with_other_constants():
    chance = np.random.default_rng(3)
    for _ in range(200):
        one = Bm25(chance.choice([0.0, 0.5, 1.2, 3.0, 100.0]), chance.choice([0.0, 0.3, 0.75, 1.0]))
        most = one.most(TANTIVY)
        count, length = chance.integers(1, 50), chance.choice([0.01, 0.5, 1, 3, 50])
        scores = [
            (x.k1 + 1) * count / (count + x.norm(length, 1)) for x in (one, TANTIVY)
        ]  # fmt: skip
        assert scores[0] <= scores[1] * most * (1 + 1e-9), (one, count, length)
