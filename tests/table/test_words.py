"""Words of dictionaries: analysis, type-ahead, corrections and rows that are alike, beside the
same made from the rows."""

from __future__ import annotations

import collections
import json
import math
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables import SearchIndex, Table
from indextables.errors import (
    ConfigError,
    QueryError,
    QuerySyntaxError,
    SchemaError,
    SearchValueError,
    TooManyExpansionsError,
    UnknownColumnError,
)

TOKENIZER = "spark.indextables.indexing.tokenizer."
ONE_BY_ONE = {"spark.indextables.mergeOnWrite.enabled": "false"}
MARK = {"spark.indextables.deletionVectors.mode": "vector"}
STEMS = ["mach", "machine", "machines", "macho", "march", "spark", "spare", "shark", "sql", "lake"]
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "body": pa.string(),
        "kind": pa.string(),
        "doc": pa.string(),
        "n": pa.int64(),
    }
)


def corpus(count: int = 240) -> list[dict]:
    pick = random.Random(7)
    words = [*STEMS, *(f"{s}{n}" for s in STEMS for n in range(4))]
    weights = [1 / (at + 1) for at in range(len(words))]
    return [
        {
            "id": number,
            "body": " ".join(pick.choices(words, weights, k=6)).title() if number % 17 else None,
            "kind": pick.choice(["a", "b"]),
            "doc": f'{{"t": "{" ".join(pick.choices(words, weights, k=3))}", "m": {number}}}',
            "n": number % 10,
        }
        for number in range(count)
    ]


def make(uri: object, config: dict, *, splits: int = 1, partition: bool = False, **more) -> Table:
    options = {**config, **ONE_BY_ONE, "spark.indextables.indexing.typemap.doc": "json"}
    rows = corpus()
    table = Table.create(
        uri, SCHEMA, partition_by=["kind"] if partition else (), config=options, **more
    )
    for at in range(splits):
        table.append(pa.Table.from_pylist(rows[at::splits], SCHEMA))
    return table


@pytest.fixture(scope="module")
def tables(tmp_path_factory, config) -> dict[str, Table]:
    """The same rows in several layouts."""
    root = tmp_path_factory.mktemp("words")
    made = {
        "one": make(root / "one", config),
        "ten": make(root / "ten", config, splits=10),
        "hundred": make("memory://words-hundred", config, splits=100),
        "partitions": make(root / "partitions", config, splits=3, partition=True),
        "merged": make(root / "merged", config, splits=5),
    }
    made["merged"].merge_splits()
    renamed = make(root / "renamed", config, splits=4)
    renamed.rename_column("body", "b")
    renamed.rename_column("b", "body")
    made["renamed"] = renamed
    # Two splits with words of another analyzer, which are searched row by row.
    mixed = Table.create(
        root / "mixed", SCHEMA,
        config={**config, **ONE_BY_ONE, "spark.indextables.indexing.typemap.doc": "json"},
    )  # fmt: skip
    mixed.set_properties({TOKENIZER + "body": "en_stem"})
    rows = corpus()
    for at in range(2):
        mixed.append(pa.Table.from_pylist(rows[at::3], SCHEMA))
    mixed.set_properties({TOKENIZER + "body": None})
    mixed.append(pa.Table.from_pylist(rows[2::3], SCHEMA))
    made["mixed"] = mixed
    return made


@pytest.fixture(scope="module")
def marked(tmp_path_factory, config) -> Table:
    """The same rows, and others that are deleted."""
    table = make(tmp_path_factory.mktemp("marked") / "t", {**config, **MARK}, splits=3)
    extra = [{**row, "id": row["id"] + 1000} for row in corpus(90)]
    table.append(pa.Table.from_pylist(extra, SCHEMA))
    table.delete(where="id >= 1000 AND id < 1080")
    assert table.view.snapshot.entries["deletionVector"].null_count < table.snapshot().num_files
    return table


def words_of(text: str | None) -> list[str]:
    return re.findall(r"[a-z0-9]+", (text or "").lower())


def counted(rows: list[dict], column: str) -> collections.Counter:
    texts = (row[column] if column == "body" else json.loads(row[column])["t"] for row in rows)
    return collections.Counter(word for text in texts for word in set(words_of(text)))


def edits(one: str, two: str) -> int:
    """How many letters to insert, remove, replace or swap."""
    cost = [[i + j if not i * j else 0 for j in range(len(two) + 1)] for i in range(len(one) + 1)]
    for i in range(1, len(one) + 1):
        for j in range(1, len(two) + 1):
            cost[i][j] = min(
                cost[i - 1][j] + 1,
                cost[i][j - 1] + 1,
                cost[i - 1][j - 1] + (one[i - 1] != two[j - 1]),
            )
            if i > 1 and j > 1 and one[i - 1] == two[j - 2] and one[i - 2] == two[j - 1]:
                cost[i][j] = min(cost[i][j], cost[i - 2][j - 2] + 1)
    return cost[-1][-1]


def completed(rows: list[dict], column: str, prefix: str, limit: int | None) -> list[tuple]:
    found = counted(rows, column).items()
    ranked = sorted((-n, word) for word, n in found if word.startswith(prefix.lower()))
    return [(word, -n) for n, word in ranked][:limit]


def suggested(rows: list[dict], word: str, limit: int) -> list[tuple]:
    found = counted(rows, "body").items()
    near = sorted((edits(word, other), -n, other) for other, n in found)
    return [(other, d, -n) for d, n, other in near if d <= 2][:limit]


def pairs(table: pa.Table) -> list[tuple]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_words_are_completed_and_corrected_the_same_in_every_layout(tables):
    rows = corpus()
    for name, table in tables.items():
        for prefix, limit in (("mach", 3), ("S", None), ("spark1", 5), ("zzz", 5)):
            expected = completed(rows, "body", prefix, limit)
            assert pairs(table.complete(prefix, column="body", limit=limit)) == expected, name
        expected = completed(rows, "doc", "ma", 4)
        assert pairs(table.complete("ma", column="doc", limit=4)) == expected, name
        for word in ("spak", "Machin", "machnie", "sql"):
            found = pairs(table.suggest(word, column="body", limit=6))
            assert found == suggested(rows, word.lower(), 6), (name, word)


def test_conditions_and_deleted_rows_are_not_counted(tables, marked):
    rows = [row for row in corpus() if row["n"] < 4]
    for name, table in tables.items():
        found = table.complete("ma", column="body", where="n < 4", limit=4)
        assert pairs(found) == completed(rows, "body", "ma", 4), name
        near = table.suggest("spak", column="body", where="n < 4", limit=4)
        assert pairs(near) == suggested(rows, "spak", 4), name
    live = [*corpus(), *({**row, "id": 0} for row in corpus(90)[80:])]
    assert pairs(marked.complete("m", column="body")) == completed(live, "body", "m", 10)
    assert pairs(marked.suggest("spak", column="body")) == suggested(live, "spak", 5)
    marked.merge_splits()
    assert pairs(marked.complete("m", column="body")) == completed(live, "body", "m", 10)


def test_a_query_is_corrected_if_that_finds_rows(tables):
    for name, table in tables.items():
        assert table.correct_query("spakr AND machines") == "spark AND machines", name
        assert table.correct_query("body:spakr", fields=["doc"]) == "body:spark", name
        assert table.correct_query("spark") is None, "every word is there"
        assert table.correct_query("spakr", where="n < 0") is None, name
        assert table.correct_query('"spakr lake"') is None, "phrases stay"
    with pytest.raises(UnknownColumnError):
        table.correct_query("spakr", fields=["nope"])
    with pytest.raises(QuerySyntaxError):
        table.correct_query("(spakr")
    numbers = Table.create("memory://correct-numbers", data=pa.table({"n": [1]}))
    assert numbers.correct_query("spakr") is None


def test_only_words_that_find_no_row_are_corrected():
    rows = pa.table(
        {
            "id": ["spark", "b"],
            "Body": ["1235 sparc red fox", "machine"],
            "n": [1234, 7],
            "titel": ["title", "foo(bar"],
            "doc": ['{"k": "doctor"}', None],
        }
    )
    rules = "canine => fox; machinery, machine"
    table = Table.create(
        "memory://correct-found",
        data=rows,
        mapping={"id": "string", "doc": "json"},
        properties={
            "spark.indextables.search.synonyms": rules,
            "spark.indextables.indexing.tokenizer.titel": "whitespace",
        },
    )
    for query in ("1234", "spark", "canine", "machinery", "doc.k:doctor"):
        assert table.count(where=f"_indexall indexquery '{query}'") == 1
        assert table.correct_query(query) is None, query
        assert table.correct_query(f"{query} AND fxo AND red") in (None, f"{query} AND fox AND red")
    assert table.correct_query("1234 AND sparcc") == "1234 AND sparc"
    assert table.correct_query("body:fxo") == "body:fox", "names in any case"
    assert table.correct_query("titel:titel") == "titel:title", "a name is no word"
    assert table.correct_query("foobar") == '"foo(bar"', "words may have syntax in them"
    assert table.correct_query("fx\\o OR fxoo") == "fx\\o OR fox"
    assert table.correct_query("doctro", fields=["doc.k"]) is None
    with pytest.raises(SearchValueError):
        table.correct_query("n:abc OR fxo")
    with pytest.raises(ConfigError):
        table.correct_query(None)


def telling(rows: list[dict], words: list[str], most: int, least: int) -> list[str]:
    frequency, known = collections.Counter(words), counted(rows, "body")
    ranked = sorted(
        (-n * math.log(1 + (len(rows) - known[w] + 0.5) / (known[w] + 0.5)), w)
        for w, n in frequency.items()
        if known[w] >= least
    )
    return [w for _, w in ranked[:most]]


def test_rows_that_are_alike_are_those_of_a_search_for_telling_words(tables):
    rows = corpus()
    text = "Machines spark spark lake unknown"
    query = " ".join(telling(rows, words_of(text), 2, 1))
    row = rows[20]
    of_row = " ".join(telling(rows, words_of(row["body"]), 25, 2))
    for name, table in tables.items():
        found = table.more_like_this(text, fields=["body"], max_words=2, columns=["id"], limit=7)
        assert found.equals(table.search(query, fields=["body"], columns=["id"], limit=7)), name
        alike = table.more_like_this(row="id = 20", fields=["body"], columns=["id", "n"], limit=6)
        searched = table.search(of_row, fields=["body"], columns=["id", "n"], limit=7)
        assert alike.to_pylist() == [r for r in searched.to_pylist() if r["id"] != 20][:6], name
        assert alike.schema.names == ["id", "n", "_score"]
        where = table.more_like_this(row="id = 20", where="n = 3", columns=["n"], limit=None)
        assert set(where["n"].to_pylist()) == {3}
    # All columns of words, and their weights by the property of the table.
    one = tables["one"]
    every = one.more_like_this(row="id = 20", limit=3)
    assert every.equals(one.more_like_this(row="id = 20", limit=3, fields=["body", "kind", "doc"]))
    weighted = one.more_like_this("spark", fields=["body^3"], columns=["id"], limit=4)
    assert weighted.equals(one.search("spark", fields=["body^3"], columns=["id"], limit=4))


def test_a_search_index_has_the_same_words(tmp_path, config):
    rows = corpus()
    for at in range(3):
        pq.write_table(pa.Table.from_pylist(rows[at::3], SCHEMA), tmp_path / f"{at}.parquet")
    index = SearchIndex.create(
        tmp_path.parent / f"{tmp_path.name}-index", source=tmp_path, format="parquet",
        columns=["body"], config=config,
    )  # fmt: skip
    more = [{**row, "id": row["id"] + 1000} for row in rows[:30]]
    pq.write_table(pa.Table.from_pylist(more, SCHEMA), tmp_path / "new.parquet")
    every = rows + more
    assert pairs(index.complete("mach", column="body")) == completed(every, "body", "mach", 10)
    assert pairs(index.suggest("spak", column="body")) == suggested(every, "spak", 5)
    found = index.more_like_this(row="id = 20", columns=["id"], limit=3)
    assert found["id"].to_pylist()[0] == 1020
    assert index.analyze("body", "A Fox")["word"].to_pylist() == ["a", "fox"]


def test_words_have_positions_and_places(tables):
    table = tables["one"]
    text = "The <b>quick</b> foxes"
    assert pairs(table.analyze("html | english", text)) == [("quick", 1, 7, 12), ("fox", 2, 17, 22)]
    assert pairs(table.analyze("body", "Wi-Fi")) == [("wi", 0, 0, 2), ("fi", 1, 3, 5)]
    assert table.analyze("doc", "A b")["word"].to_pylist() == ["a", "b"]
    assert table.analyze("body", "").num_rows == 0
    assert table.analyze("cjk", "東京都 abc")["word"].to_pylist() == ["東京", "京都", "abc"]
    for word, _, start, end in pairs(table.analyze("code", "os.getHTTPHeader()")):
        assert "os.getHTTPHeader()"[start:end].lower() == word


def test_nothing_is_returned_if_nothing_is_wanted(marked):
    assert pairs(marked.complete("m", column="body", limit=0)) == []
    assert pairs(marked.suggest("spak", column="body", limit=0)) == []
    assert marked.more_like_this("spark", limit=0).num_rows == 0


def test_a_table_without_rows_has_no_words(config):
    table = Table.create("memory://words-empty", SCHEMA, config=config)
    assert pairs(table.complete("a", column="body")) == []
    assert pairs(table.suggest("a", column="body")) == []
    assert table.more_like_this("fox").num_rows == 0
    table.append(pa.table({"id": [1], "body": ["fox"]}))
    table.add_columns(pa.schema({"later": pa.string()}))
    assert pairs(table.complete("a", column="later")) == []
    assert pairs(table.complete("f", column="body")) == [("fox", 1)]


def test_values_of_a_string_column_are_completed_whole(config):
    rows = pa.table({"city": ["New York", "New Orleans", "New York", "Berlin"]})
    table = Table.create(
        "memory://words-city", data=rows, mapping={"city": "string"}, config=config
    )
    assert pairs(table.complete("New ", column="city")) == [("New York", 2), ("New Orleans", 1)]
    assert pairs(table.suggest("Nev York", column="city")) == [("New York", 1, 2)]


def test_what_is_wrong_is_said(tables, config):
    table = tables["one"]
    with pytest.raises(UnknownColumnError, match=r"There is no column 'bdy'\. Columns: id, body"):
        table.complete("a", column="bdy")
    with pytest.raises(QueryError, match=r"neither a column of .*body.* nor an analyzer: there"):
        table.analyze("klingon", "text")
    with pytest.raises(QueryError, match=r"no filter 'shout'; there are lower, fold"):
        table.analyze("default | shout", "text")
    for ask in (
        lambda: table.analyze("n", "text"),
        lambda: table.complete("a", column="n"),
        lambda: table.suggest("a", column="n"),
        lambda: table.more_like_this("a", fields=["n"]),
    ):
        with pytest.raises(SchemaError, match=r"'n' is indexed as i64 and has no words.*body"):
            ask()
    with pytest.raises(SchemaError, match=r"partition column .* facets"):
        tables["partitions"].complete("a", column="kind")
    with pytest.raises(QueryError, match=r"The prefix is empty"):
        table.complete("", column="body")
    for text, says in (("spak sql", "is 2 words"), ("", "is not a word")):
        with pytest.raises(QueryError, match=says):
            table.suggest(text, column="body")
    with pytest.raises(ConfigError, match=r"distance is 0 to 2"):
        table.suggest("a", column="body", distance=3)
    few = Table.open(
        table.uri, config={**config, "spark.indextables.indexquery.maxExpansions": "3"}
    )
    with pytest.raises(TooManyExpansionsError, match=r"'m\*' matches .* of 'body'; the limit is 3"):
        few.complete("m", column="body")
    with pytest.raises(TooManyExpansionsError, match=r"limit is 3"):
        few.suggest("spark", column="body")
    for row, says in (("id = -1", "names no row"), ("id < 5", "names several rows")):
        with pytest.raises(QueryError, match=says):
            table.more_like_this(row=row)
    with pytest.raises(ConfigError, match=r"text='…' or row="):
        table.more_like_this()
    with pytest.raises(ConfigError, match=r"text is a text"):
        table.more_like_this(5)
    with pytest.raises(ConfigError, match=r"max_words"):
        table.more_like_this("a", max_words=0)
    with pytest.raises(SchemaError, match=r"path into 'doc'"):
        table.more_like_this("a", fields=["doc.t"])
    pieces = Table.create(
        "memory://words-pieces", pa.schema({"a": pa.string()}),
        config={**config, TOKENIZER + "a": "default | edge(1,3)"},
    )  # fmt: skip
    with pytest.raises(SchemaError, match=r"cut into pieces"):
        pieces.complete("a", column="a")


def test_words_and_synonyms_in_a_bucket(s3, config, tmp_path):
    settings = {**config, "spark.indextables.search.synonyms": "shark, spark; lake => sql"}
    near = make(tmp_path / "near", settings, splits=3)
    made = make(f"{s3.uri}/words", settings, splits=3, storage_options=s3.options)
    # A cache of its own: nothing of the index is on this disk.
    cold = settings | {"spark.indextables.cache.disk.path": str(tmp_path / "cold")}
    far = Table.open(made.uri, config=cold, storage_options=s3.options)
    questions = (
        lambda t: t.complete("mach", column="body"),
        lambda t: t.complete("sp", column="body", where="n < 5"),
        lambda t: t.suggest("spak", column="body"),
        lambda t: t.more_like_this(text="Machine Lake", fields=["body"], limit=5),
        lambda t: t.search("lake AND shark", fields=["body"], columns=["id"], limit=None),
        lambda t: t.facets("lake", by=["kind"])["kind"],
    )
    for ask in questions:
        expected = ask(near)
        assert expected.num_rows
        assert ask(far).equals(expected)
