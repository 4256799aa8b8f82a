"""Synonyms of a table: by the index, by the rows, and by a definition in plain Python."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from indextables import Table
from indextables.config import parse_synonyms
from indextables.errors import SynonymsError, TooManyClausesError
from indextables.predicate import Column, Search
from indextables.predicate.search_syntax import parse_search
from indextables.split.search import search_rows

SYNONYMS = "spark.indextables.search.synonyms"
TOKENIZER = "spark.indextables.indexing.tokenizer."
RULES = """
car, automobile, motor car     # all of them find all of them
ny => new york
tv => tv, television; a1 => b1; b1 => a1
new york => ny, big apple
"""
REPLACED = {
    "car": ["car", "automobile", "motor car"],
    "automobile": ["car", "automobile", "motor car"],
    "motor car": ["car", "automobile", "motor car"],
    "ny": ["new york"],
    "tv": ["tv", "television"],
    "a1": ["b1"],
    "b1": ["a1"],
    "new york": ["ny", "big apple"],
}
WORDS = ["car", "automobile", "motor", "ny", "new", "york", "tv", "television", "a1", "b1", "big",
         "apple", "red"]  # fmt: skip
QUERIES = [
    *WORDS, "CAR", '"motor car"', '"new york"', '"New  York"', '"red car"', "car AND tv", "+ny -tv",
    "car OR ny", "NOT automobile", "(a1 OR b1) AND NOT red", "red AND (ny OR tv)", "ca*", "car~1",
    '"new york"~1', '"motor ca"*', "/car/", "n:3", "title:ny", "title:car AND red",
]  # fmt: skip


def rows(count: int, seed: int) -> pa.Table:
    pick = random.Random(seed)
    return pa.table(
        {
            "id": [seed * 1000 + n for n in range(count)],
            "body": [" ".join(pick.choices(WORDS, k=pick.randrange(5))) for _ in range(count)],
            "title": [pick.choice([*WORDS, None, "New York"]) for _ in range(count)],
            "n": [n % 5 for n in range(count)],
        }
    )


def has(text: str | None, phrase: str) -> bool:
    words, wanted = (text or "").lower().split(), phrase.split()
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


def matches(row: dict, phrase: str, field: str = "body") -> bool:
    return any(has(row[field], one) for one in REPLACED.get(phrase, [phrase]))


BY_HAND = {
    "CAR": lambda r: matches(r, "car"),
    '"motor car"': lambda r: matches(r, "motor car"),
    '"New  York"': lambda r: matches(r, "new york"),
    '"red car"': lambda r: has(r["body"], "red car"),
    "car AND tv": lambda r: matches(r, "car") and matches(r, "tv"),
    "+ny -tv": lambda r: matches(r, "ny") and not matches(r, "tv"),
    "car OR ny": lambda r: matches(r, "car") or matches(r, "ny"),
    "NOT automobile": lambda r: not matches(r, "automobile"),
    "(a1 OR b1) AND NOT red": lambda r: (
        (matches(r, "a1") or matches(r, "b1")) and not has(r["body"], "red")
    ),
    "red AND (ny OR tv)": lambda r: (
        has(r["body"], "red") and (matches(r, "ny") or matches(r, "tv"))
    ),
    "ca*": lambda r: has(r["body"], "car"),
    "/car/": lambda r: has(r["body"], "car"),
    "title:ny": lambda r: matches(r, "ny", "title"),
    "title:car AND red": lambda r: matches(r, "car", "title") and has(r["body"], "red"),
    **{word: (lambda r, w=word: matches(r, w)) for word in WORDS},
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory, config) -> list[Table]:
    """The same rows: one split, many, splits of another analyzer."""
    root, made = tmp_path_factory.mktemp("synonyms"), []
    options = {**config, "spark.indextables.mergeOnWrite.enabled": "false"}
    for name, seeds in (("one", [[1, 2, 3]]), ("many", [[1], [2], [3]])):
        table = Table.create(root / name, rows(1, 0).schema, config=options)
        for some in seeds:
            table.append(pa.concat_tables([rows(40, seed) for seed in some]))
        made.append(table)
    other = Table.create(root / "other", rows(1, 0).schema, config=options)
    other.set_properties({TOKENIZER + "body": "english"})
    other.append(rows(40, 1))
    other.set_properties({TOKENIZER + "body": None})
    other.append(pa.concat_tables([rows(40, 2), rows(40, 3)]))
    made.append(other)
    for table in made:
        table.set_properties({SYNONYMS: RULES})
    return made


def found(table: Table, query: str) -> list[int]:
    return sorted(table.scan(columns=["id"], where=f"body indexquery '{query}'")["id"].to_pylist())


def flat(table: Table, query: str) -> list[int]:
    every, view = table.to_arrow(), table.view.shown
    search = Search(Column(("body",)), parse_search(query, schema=every.schema), query)
    mask = search_rows(search, every, view.mapping, schema=every.schema)
    return sorted(np.asarray(every["id"])[mask].tolist())


def test_index_rows_and_definition_agree(tables):
    every = tables[0].to_arrow().to_pylist()
    for query in QUERIES:
        answers = [found(table, query) for table in tables]
        assert answers == [flat(table, query) for table in tables], query
        assert all(answer == answers[0] for answer in answers), query
        if query in BY_HAND:
            by_hand = sorted(r["id"] for r in every if BY_HAND[query](r))
            assert answers[0] == by_hand, query
    assert found(tables[0], "ny") != found(tables[0], "new AND york")


def test_ranked_searches_and_other_ways_have_the_same(tables):
    before = [found(tables[1], query) for query in QUERIES]
    tables[1].index_crossreferences()
    assert [found(tables[1], query) for query in QUERIES] == before
    one = tables[0].search("tv car", fields=["body"], columns=["id"], limit=None)
    for table in tables[1:]:
        assert table.search("tv car", fields=["body"], columns=["id"], limit=None).equals(one)
    assert set(one["id"].to_pylist()) == set(found(tables[0], "tv OR car"))
    for table in tables:
        assert sorted(
            table.scan(columns=["id"], where="match_any(body, 'ny car')")["id"].to_pylist()
        ) == found(table, "ny OR car")
        assert table.count(where="search(body, 'tv')") == len(found(table, "tv"))
        assert table.count(where="search(*, 'ny')") == table.count(
            where="_indexall indexquery 'ny'"
        )
        sql = table.sql(
            "SELECT count(*) AS n, sum(CAST(body indexquery 'tv' AS INT)) AS h FROM this"
        )
        assert sql["h"].to_pylist() == [len(found(table, "tv"))]
        assert table.facets("tv", by=["n"], fields=["body"])["n"]["count"].to_pylist() != []
    snippet = tables[0].search("ny", fields=["title"], snippets=["title"], limit=1)
    assert snippet["_snippet_title"].to_pylist() == ["<b>New</b> <b>York</b>"]


def test_the_list_is_versioned_with_the_table(tables, config):
    table = tables[0]
    before = table.version
    assert Table.open(table.uri, version=before - 1, config=config).count(
        where="title indexquery 'ny'"
    ) != table.count(where="title indexquery 'ny'")
    assert "synonyms" not in str(table.view.snapshot.entries["docMappingRef"].to_pylist())
    assert "television" not in table.metadata().configuration["indextables.mapping"]
    written = Table.create(
        "memory://synonyms-written", rows(1, 0).schema, properties={SYNONYMS: "x => y"},
        config=config,
    )  # fmt: skip
    written.append(pa.table({"id": [1, 2], "body": ["x", "y"]}))
    written.append(pa.table({"id": [3], "new": ["y"]}), merge_schema=True)
    assert written.count(where="body indexquery 'x'") == 1
    assert set(written.search("x", columns=["id"])["id"].to_pylist()) == {2, 3}
    written.set_properties({SYNONYMS: None})
    assert written.scan(where="body indexquery 'x'")["id"].to_pylist() == [1]


def test_changes_of_rows_have_synonyms_too(config):
    table = Table.create(
        "memory://synonyms-changed", pa.schema({"id": pa.int64(), "t": pa.string()}),
        mapping={"t": "text"}, properties={SYNONYMS: "ny, new york"}, config=config,
    )  # fmt: skip
    table.append(pa.table({"id": [1, 2, 3], "t": ["ny", "in new york", "x"]}))
    options = {"spark.indextables.indexing.typemap.t": "text"}
    table.overwrite(
        pa.table({"id": [4], "t": ["New York"]}), where="t indexquery 'ny'", config=options
    )
    assert sorted(table.to_arrow()["id"].to_pylist()) == [3, 4]
    table.update({"t": "'y'"}, where="t indexquery 'ny'")
    table.append(pa.table({"id": [5], "t": ["ny"]}))
    table.delete(where="t indexquery '\"new york\"'")
    assert sorted(table.to_arrow()["t"].to_pylist()) == ["x", "y"]


def test_stems_stop_words_json_and_values(config):
    table = Table.create(
        "memory://synonyms-stems",
        pa.schema({"t": pa.string(), "doc": pa.string(), "k": pa.string()}),
        mapping={"doc": "json", "k": "string"},
        properties={SYNONYMS: "the car => automobiles; one, 1"},
        config={**config, TOKENIZER + "t": "english"},
    )  # fmt: skip
    table.append(pa.table({
        "t": ["an automobile", "car"], "doc": ['{"a": 1, "s": "automobiles"}', '{"a": "one"}'],
        "k": ["automobiles", "the car"],
    }))  # fmt: skip
    assert table.scan(where="t indexquery 'cars'")["t"].to_pylist() == ["an automobile"]
    assert table.count(where="doc indexquery '\"the car\"'") == 1
    assert table.count(where="doc indexquery 'one'") == 2
    assert table.count(where="doc indexquery 'doc.a:one'") == 2
    # The values of a column of kind string are exact.
    assert table.scan(where="k indexquery '\"the car\"'")["k"].to_pylist() == ["the car"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("car", "line 1: 'car' is one word without an alternative"),
        ("a, b\nx => ", "line 2: 'x =>' is not a rule"),
        ("a => b => c", "line 1: 'a => b => c' is not a rule"),
        ("a,,b", "line 1: 'a,,b' is not a rule"),
        ("; ".join(f"a => w{n}" for n in range(101)), "'a' stands for more than 100 words"),
        ("\n".join(f"a{n} => b" for n in range(10_001)), "more than 10,000 words"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused(tables, text, says):
    with pytest.raises(SynonymsError, match=says):
        tables[0].set_properties({SYNONYMS: text})
    with pytest.raises(SynonymsError, match=says):
        Table.create("memory://synonyms-wrong", rows(1, 0).schema, properties={SYNONYMS: text})


def test_an_expansion_is_bounded(config):
    many = ", ".join(f"w{n}" for n in range(100))
    table = Table.create(
        "memory://synonyms-many", pa.schema(dict.fromkeys("tuvw", pa.string())),
        properties={SYNONYMS: many}, config=config,
    )  # fmt: skip
    table.append(pa.table({"t": ["w99", "x"]}))
    assert table.count(where="t indexquery 'w1 AND w2'") == 1
    with pytest.raises(TooManyClausesError, match="asks for 40,000 words in 4 fields"):
        table.search(many.replace(",", ""))


def test_rules_are_read():
    assert parse_synonyms("") == parse_synonyms("# nothing\n;;") == ()
    assert dict(parse_synonyms(RULES)) == {k: tuple(v) for k, v in REPLACED.items()}
