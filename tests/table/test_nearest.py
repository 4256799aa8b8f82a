"""The nearest vectors: every candidate compared, whatever the layout; fused with a text search."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables as it
from indextables import Table
from indextables.errors import ConfigError, SchemaError, UnknownColumnError, VectorError
from indextables.log.files import vectors_by_path

COUNT, SIZE = 90, 5
WORDS = ["fox", "hen", "cow", "fox fox", "hen fox", "sql"]
ASKED = [0.5, -1.0, 0.25, 2.0, 0.125]


def vectors():
    """Random ones, some of them twice, and those that are not found."""
    made = np.random.default_rng(7).normal(size=(COUNT, SIZE)).astype(np.float32)
    made[60:70] = made[50:60]
    rows = [row.tolist() for row in made]
    rows[3], rows[4], rows[5] = None, [math.nan] * SIZE, [0.0] * SIZE
    rows[6] = [None, *rows[6][1:]]
    return rows


ROWS = pa.table(
    {
        "id": list(range(COUNT)),
        "day": [f"d{n % 3}" for n in range(COUNT)],
        "body": [f"{WORDS[n % 6]} w{n % 7}" for n in range(COUNT)],
        "v": pa.array(vectors(), pa.list_(pa.float32(), SIZE)),
    }
)


def oracle(metric, keep=lambda row: True):
    """Ids and scores of all rows that are found, by the definition of the metric."""
    asked, found = np.array(ASKED), {}
    for row in ROWS.to_pylist():
        if row["v"] is None or None in row["v"] or not keep(row):
            continue
        v = np.array(row["v"], dtype=np.float64)
        score = {
            "dot": lambda v=v: v @ asked,
            "l2": lambda v=v: -np.linalg.norm(v - asked),
            "cosine": lambda v=v: (
                v @ asked / np.linalg.norm(v) / np.linalg.norm(asked) if v.any() else math.nan
            ),
        }[metric]()
        if not math.isnan(score):
            found[row["id"]] = score
    return found


def ranking(found):
    return [(r["id"], r["_score"]) for r in found.select(["id", "_score"]).to_pylist()]


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    """One split, many, partitions, rows deleted, a custom mapping."""
    root = tmp_path_factory.mktemp("nearest")
    off = {"spark.indextables.mergeOnWrite.enabled": "false"}
    made = {"one": Table.create(root / "one", data=ROWS, config=off)}
    made["many"] = Table.create(root / "many", ROWS.schema, config=off)
    for n in range(10):
        made["many"].append(ROWS.take(list(range(n, COUNT, 10))))
    made["partitioned"] = Table.create(
        root / "partitioned", data=ROWS, partition_by=["day"], mapping={"body": "string"}
    )
    marked = {
        "spark.indextables.deletionVectors.mode": "vector",
        "spark.indextables.deletionVectors.maxDeletedShare": "1.0",
    }
    twice = ROWS.set_column(0, "id", pa.array([n + 1_000 for n in range(COUNT)]))
    both = pa.concat_tables([ROWS, twice])
    made["deleted"] = Table.create(root / "deleted", data=both, config=off | marked)
    made["deleted"].delete(where="id >= 1000")
    assert vectors_by_path(made["deleted"].view.snapshot.entries)
    assert made["deleted"].count() == COUNT
    return made


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("layout", ["one", "many", "partitioned", "deleted"])
def test_the_nearest_are_those_of_the_definition(layouts, layout, metric):
    table = layouts[layout]
    right = oracle(metric)
    every = ranking(table.search(vector=ASKED, metric=metric, limit=None))
    assert len(every) == len(right)
    for id_, score in every:
        assert score == pytest.approx(right[id_], rel=1e-5, abs=1e-6)
    assert [score for _, score in every] == sorted((s for _, s in every), reverse=True)
    for k in (0, 1, 7, 30):
        best = ranking(table.search(vector=ASKED, vector_column="v", metric=metric, limit=k))
        assert best == every[:k]
    if layout != "one":
        assert every == ranking(layouts["one"].search(vector=ASKED, metric=metric, limit=None))


@pytest.mark.parametrize("layout", ["one", "many", "partitioned", "deleted"])
def test_only_rows_of_a_condition_or_search_are_compared(layouts, layout):
    table = layouts[layout]
    right = oracle("dot", lambda row: row["day"] == "d1" and row["id"] > 20)
    found = table.search(
        vector=ASKED, metric="dot", where="day = 'd1' AND id > 20", columns=["id"], limit=None
    )
    assert {id_ for id_, _ in ranking(found)} == set(right)
    if layout == "partitioned":  # its text is one word
        return
    right = oracle("dot", lambda row: "hen" in row["body"] and row["day"] != "d0")
    found = table.search("hen", vector=ASKED, metric="dot", where="day <> 'd0'", limit=5,
                         snippets=["body"])  # fmt: skip
    wanted = sorted(right, key=lambda id_: -right[id_])[:5]
    assert [id_ for id_, _ in ranking(found)] == wanted
    assert all("<b>hen</b>" in text for text in found["_snippet_body"].to_pylist())


@pytest.mark.parametrize("layout", ["one", "many", "deleted"])
def test_both_rankings_are_fused(layouts, layout):
    table = layouts[layout]
    where = "id < 80"
    text = ranking(table.search("fox", where=where, limit=None))
    near = ranking(table.search(vector=ASKED, where=where, limit=None))
    wanted: dict[int, float] = {}
    for listed in (text, near):
        for id_, score in listed:
            rank = 1 + sum(other > score for _, other in listed)
            wanted[id_] = wanted.get(id_, 0) + 1 / (60 + rank)
    found = ranking(table.search("fox", vector=ASKED, fusion="rrf", where=where, limit=None))
    assert dict(found) == pytest.approx(wanted, rel=1e-6)
    assert [round(wanted[id_], 12) for id_, _ in found] == sorted(
        (round(score, 12) for score in wanted.values()), reverse=True
    )
    assert (
        ranking(table.search("fox", vector=ASKED, fusion="rrf", where=where, limit=6)) == found[:6]
    )
    first = layouts["one"].search("fox", vector=ASKED, fusion="rrf", where=where, limit=None)
    assert found == ranking(first)


def test_vectors_can_be_ranked_by_an_expression(layouts):
    found = layouts["many"].search(vector=ASKED, rank_by="_score - id", limit=4, columns=["id"])
    right = oracle("cosine")
    wanted = sorted(right, key=lambda id_: -(right[id_] - id_))[:4]
    assert found["id"].to_pylist() == wanted
    assert found.column_names == ["id", "_score", "_rank_by"]


def test_a_vector_column_is_stored_and_nothing_searches_it(layouts):
    table = layouts["one"]
    assert table.scan(columns=["id", "v"])["v"].to_pylist()[:3] == ROWS["v"].to_pylist()[:3]
    assert "v" not in table.mapping
    assert pa.types.is_list(table.schema.field("v").type)


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"vector": [1.0, 2.0]}, VectorError, "5 numbers.*has 2"),
        ({"vector": []}, VectorError, "finite numbers"),
        ({"vector": [math.nan] * 5}, VectorError, "finite numbers"),
        ({"vector": ["a"] * 5}, VectorError, "finite numbers"),
        ({"vector": [10**400] * 5}, VectorError, "finite numbers"),
        ({"vector": [0.0] * 5}, VectorError, "no direction"),
        ({"vector": ASKED, "vector_column": "w"}, UnknownColumnError, "'w'"),
        ({"vector": ASKED, "vector_column": "id"}, SchemaError, "no vectors"),
        ({"vector": ASKED, "metric": "near"}, ConfigError, "cosine, dot, l2"),
        ({"vector": ASKED, "fusion": "rrf"}, ConfigError, "pass both"),
        ({"query": "fox", "fusion": "sum", "vector": ASKED}, ConfigError, "rrf"),
        ({"query": "fox", "vector_column": "v"}, ConfigError, "vector="),
        ({}, ConfigError, "query, a vector"),
        ({"vector": ASKED, "snippets": ["body"]}, ConfigError, "snippets"),
    ],
)  # fmt: skip
def test_mistakes_are_named(layouts, asked, error, message):
    with pytest.raises(error, match=message):
        layouts["one"].search(**asked)


@pytest.mark.parametrize(
    ("columns", "message"),
    [([], "vector_column=…: no column declares"), (["a", "b"], r"vector_column=…: a, b\.")],
)
def test_a_column_of_vectors_is_chosen(columns, message):
    fields = [(name, pa.list_(pa.float32(), 2)) for name in columns]
    table = Table.create(
        f"memory://vectors-{len(columns)}", pa.schema([("n", pa.int64()), *fields])
    )
    with pytest.raises(ConfigError, match=message):
        table.search(vector=[1.0, 2.0])


@pytest.mark.parametrize("size", [1.0, 1e308, 5e-324, 1e-200])
def test_a_cosine_does_not_depend_on_lengths(size):
    vectors = [[1, 0], [1e300, 1e300], [1e-300, 0], [0, 0], [math.inf, 1], [0, -1e300]]
    rows = pa.table({"id": range(6), "v": pa.array(vectors, pa.list_(pa.float64(), 2))})
    table = Table.create(f"memory://cosines-{size}", data=rows)
    found = table.search(vector=[size, 0], columns=["id"])
    scores = dict(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))
    assert scores == pytest.approx({0: 1.0, 1: 0.5**0.5, 2: 1.0, 5: 0.0})
    assert (
        table.search(vector=[1e308, 1e308], metric="dot", limit=1)["_score"][0].as_py() == math.inf
    )


def test_vectors_of_another_length_are_not_written(tmp_path):
    table = Table.create(tmp_path / "t", data=ROWS)
    wrong = pa.table({"id": [1, 2], "v": [[1.0] * 5, [1.0, 2.0]]})
    with pytest.raises(SchemaError, match=r"Row 2 has a vector of 2 numbers.*'v'.*have 5"):
        table.append(wrong.cast(pa.schema({"id": pa.int64(), "v": pa.list_(pa.float32())})))
    assert table.count() == COUNT


def test_a_column_that_declares_no_dimension(tmp_path):
    rows = pa.table({"id": [1, 2, 3], "v": pa.array([[1.0, 0.0], [0.0, 1.0], None])})
    table = Table.create(tmp_path / "t", data=rows)
    with pytest.raises(ConfigError, match="vector_column"):
        table.search(vector=[1.0, 0.5])
    found = table.search(vector=[1.0, 0.5], vector_column="v")
    assert found["id"].to_pylist() == [1, 2]
    table.append(pa.table({"id": [4], "v": [[1.0, 2.0, 3.0]]}))
    with pytest.raises(VectorError, match=r"3 numbers.*has 2"):
        table.search(vector=[1.0, 0.5], vector_column="v")
    assert table.search(vector=[1.0, 0.5], vector_column="v", where="id < 4").num_rows == 2


def test_a_renamed_column_and_an_older_version(layouts, tmp_path):
    table = Table.create(tmp_path / "t", data=ROWS)
    table.delete(where="id < 50")
    table.rename_column("v", "embedding")
    found = table.search(vector=ASKED, limit=None, columns=["id"])
    assert min(found["id"].to_pylist()) == 50
    assert table.search(vector=ASKED, vector_column="embedding").num_rows == 10
    past = Table.open(tmp_path / "t", version=0)
    assert ranking(past.search(vector=ASKED)) == ranking(layouts["one"].search(vector=ASKED))


def test_the_rows_of_a_search_index(layouts, tmp_path):
    (tmp_path / "source").mkdir()
    pq.write_table(ROWS.slice(0, 40), tmp_path / "source" / "a.parquet")
    index = it.SearchIndex.create(
        tmp_path / "index", source=tmp_path / "source", format="parquet", columns=["body"]
    )
    pq.write_table(ROWS.slice(40), tmp_path / "source" / "b.parquet")
    wanted = layouts["one"].search(vector=ASKED, vector_column="v", limit=None)
    found = index.search(vector=ASKED, vector_column="v", limit=None)
    assert dict(ranking(found)) == dict(ranking(wanted))
    assert index.search("hen", vector=ASKED, vector_column="v", fusion="rrf").num_rows == 10
