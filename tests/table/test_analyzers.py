"""Tables with analyzers: changed, merged, routed, in JSON, with snippets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import SchemaError

PREFIX = "spark.indextables."
TOKENIZER = f"{PREFIX}indexing.tokenizer."
ANALYZERS = {
    "english": "english",
    "html": "html | english",
    "code": "code",
    "edge": "default | edge(1,4)",
    "pieces": "default | pieces(2,3)",
    "shingles": "default | shingles(2)",
    "folded": "default | fold",
    "cased": "words",
    "whole": "raw | lower",
    "cjk": "cjk",
    "own": "default | stop_words(fox,hunt)",
    "doc": "english | fold",
}
TEXTS = [
    "The quick fox is running",
    "<b>f</b>ox hunting &amp; houses<script>fox</script>",
    "parseHttpRequest(fox_trot.nextStep)",
    "東京都 café Naïve",
    "a fox",
    None,
]
QUERIES = [
    "foxes", "hunt", '"http request"', "hou", "cafe", "ox", '"quick fox"~1', '"fox is running"',
    "京都", "Fox", "par*", "the AND fox", '"a fox"', "nex~1", '"a fo"*',
]  # fmt: skip


def rows(first: int = 0) -> pa.Table:
    documents = [None if text is None else f'{{"t": "{text}", "n": {first}}}' for text in TEXTS]
    columns = {name: documents if name == "doc" else TEXTS for name in ANALYZERS}
    return pa.table({"id": range(first, first + len(TEXTS)), **columns})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, config: dict[str, object]) -> Table:
    options = {TOKENIZER + name: analyzer for name, analyzer in ANALYZERS.items()}
    made = Table.create(
        str(tmp_path_factory.mktemp("analyzers") / "t"),
        rows().schema,
        config={**config, **options, f"{PREFIX}indexing.typemap.doc": "json"},
    )
    for first in (0, 10, 20):
        made.append(rows(first))
    return made


def found(table: Table, name: str, query: str) -> list[int]:
    return sorted(
        table.scan(columns=["id"], where=f"{name} indexquery '{query}'")["id"].to_pylist()
    )


def test_many_splits_cross_references_merges_and_rows_agree(table, config):
    before = {(n, q): found(table, n, q) for n in ANALYZERS for q in QUERIES}
    assert len({tuple(ids) for ids in before.values()}) > 6
    table.index_crossreferences()
    assert {key: found(table, *key) for key in before} == before
    for name in ANALYZERS:
        for text in TEXTS[:3]:
            literal = (text or "").replace("'", "''")
            if name != "doc":
                assert table.count(where=f"{name} = '{literal}'") == 3, name
    # Rows in memory are searched with the mapping of the column: the same without an index.
    plain = Table.create(
        table.uri + "-flat",
        rows().schema,
        config={**config, f"{PREFIX}indexing.typemap.doc": "json"},
    )
    plain.append(table.to_arrow())
    plain.set_properties({TOKENIZER + name: analyzer for name, analyzer in ANALYZERS.items()})
    assert {key: found(plain, *key) for key in before} == before
    assert [c.problems for c in table.verify() if c.problems] == []
    table.merge_splits()
    assert table.snapshot().num_files == 1
    assert {key: found(table, *key) for key in before} == before
    assert [c.problems for c in table.verify() if c.problems] == []


def test_another_analyzer_holds_for_rows_that_are_there(tmp_path: Path, config: dict[str, object]):
    table = Table.create(str(tmp_path / "t"), pa.schema({"a": pa.string()}), config=config)
    table.append(pa.table({"a": ["the foxes", "fox"]}))
    table.rename_column("a", "text")
    table.index_crossreferences()
    assert table.count(where="text indexquery 'fox'") == 1
    table.set_properties({TOKENIZER + "text": "English"})
    assert table.count(where="text indexquery 'fox AND the'") == 2
    table.append(pa.table({"text": ["a fox"]}))
    assert table.count(where="text indexquery 'foxes'") == 3
    ranked = table.search("foxes", fields=["text"])
    assert ranked.num_rows == 3
    table.index_crossreferences()
    assert table.count(where="text indexquery 'foxes'") == 3
    table.merge_splits()
    assert table.snapshot().num_files == 1
    assert table.count(where="text indexquery 'foxes'") == 3
    after = table.search("foxes", fields=["text"])
    assert after["_score"].to_pylist() == ranked["_score"].to_pylist()
    with pytest.raises(SchemaError, match="there is no filter 'shout'"):
        table.set_properties({TOKENIZER + "text": "english | shout"})
    table.set_properties({TOKENIZER + "text": None})
    assert table.count(where="text indexquery 'fox'") == 2
    assert Table.open(table.uri, config=config).count(where="text indexquery 'the AND foxes'") == 1


def test_english_of_older_tables_keeps_its_words(tmp_path: Path, config: dict[str, object]):
    """A stored `english` has 33 stop words for ever; the one that is chosen today has 179."""
    table = Table.create(
        str(tmp_path / "t"),
        pa.schema({"text": pa.string()}),
        config={**config, TOKENIZER + "text": "default | stop(en) | stem(en)"},
    )
    texts = ["what have foxes been", "the fox", "no fox"]
    table.append(pa.table({"text": texts}))
    table = Table.open(table.uri, config=config)
    assert '"tokenizer":"english"' in table.metadata().configuration["indextables.mapping"]
    queries = {
        "what": (1, 0), "have AND fox": (1, 3), "the AND foxes": (3, 3), '"what foxes"': (0, 3),
    }  # fmt: skip

    def counts() -> list[int]:
        return [table.count(where=f"text indexquery '{query}'") for query in queries]

    assert counts() == [short for short, _ in queries.values()]
    table.append(pa.table({"text": ["what"]}))
    assert table.count(where="text indexquery 'what'") == 2
    table.delete(where="text = 'what'")
    ranked = table.search("what fox", fields=["text"])
    table.set_properties({TOKENIZER + "text": "english"})
    table.append(pa.table({"text": ["what"]}), config={TOKENIZER + "text": "English"})
    table.delete(where="text = 'what'")
    assert counts() == [short for short, _ in queries.values()]
    table.set_properties({TOKENIZER + "text": "english_long"})
    assert '"english_long"' in table.metadata().configuration["indextables.mapping"]
    assert counts() == [long for _, long in queries.values()]
    assert table.search("what fox", fields=["text"]).num_rows == ranked.num_rows == 3
    table.append(pa.table({"text": ["what"]}))
    table.merge_splits()
    assert table.snapshot().num_files == 1
    assert counts() == [long for _, long in queries.values()]
    assert table.search("what", fields=["text"]).num_rows == 0


def test_snippets_show_the_text_of_the_row(table):
    def snippet(name: str, query: str) -> list[str]:
        hits = table.search(query, fields=[name], columns=["id"], snippets=[name], limit=100)
        return sorted(set(hits[f"_snippet_{name}"].to_pylist()))

    assert snippet("english", '"is runs"') == ["The quick fox is <b>running</b>"]
    assert snippet("html", "hunts") == ["fox <b>hunting</b> &amp; houses "]
    assert snippet("code", "http") == ["parse<b>Http</b>Request(fox_trot.nextStep)"]
    assert snippet("edge", "hunt") == ["&lt;b&gt;f&lt;/b&gt;ox <b>hunting</b> &amp;amp; houses"
                                       "&lt;script&gt;fox&lt;/script&gt;"]  # fmt: skip
    assert snippet("folded", "naive") == ["東京都 café <b>Naïve</b>"]


@pytest.mark.parametrize("fields", [None, ["body", "title"], ["title^3", "body^2"]])
@pytest.mark.parametrize("query", ["lake AND the", "+lake +the -dog", "lake AND (the OR of)"])
def test_a_stop_word_of_one_of_several_columns_is_not_needed(query, fields):
    rows = pa.table({"id": [1, 2, 3], "body": ["the lake", "a lake", "dog"], "title": list("xyz")})
    place = f"memory://stop-words-{hash((query, str(fields)))}"
    tokenizer = {"spark.indextables.indexing.tokenizer.body": "english"}
    table = Table.create(place, data=rows, config=tokenizer)
    found = table.search(query, fields=fields, columns=["id", "_split", "_row"]).to_pylist()
    assert sorted(row["id"] for row in found) == [1, 2]
    for row in found:
        why = table.explain_score(query, row, fields=fields)
        assert why.score == pytest.approx(row["_score"])
        assert sum(why.parts["score"].to_pylist()) == pytest.approx(why.score)
    assert table.count(where="search((title, body), 'the lake')") == 2
    assert table.count(where="search((title, body), 'lake') AND id > 0") == 2
    # A word that is none in any of them is needed, beside a stop word too.
    assert table.search("lake AND (the OR fox)", fields=fields).num_rows == 0
    assert table.search("lake AND (title:fox OR body:the)", fields=fields).num_rows == 0
