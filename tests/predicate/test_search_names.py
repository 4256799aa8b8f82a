"""`search` and its siblings: plain words become the tree of a query, in every kind of SQL."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indextables as it
from indextables.errors import QuerySyntaxError, SearchCallError, UnknownFieldError
from indextables.predicate import Column, Search
from indextables.predicate.search_names import MODES, query_text, words_query, written
from indextables.predicate.search_syntax import parse_search
from indextables.predicate.spark_tokens import rewrite_operators
from indextables.predicate.sql_text import parse_predicate

SYNTAX = st.sampled_from(
    ["AND", "OR", "NOT", "IN", "TO", "&&", "||", "a:b", "/x/", "x~1", "*", "?", '"', "'", "\\",
     "[a TO b]", "(a", "+a", "-b", "^2", "2024-01-15T10:00:00Z", "::1", "wi-fi", "C++"]
)  # fmt: skip
WORDS = st.lists(SYNTAX | st.text(min_size=1, max_size=6), min_size=1, max_size=5).map(" ".join)


@given(words=WORDS, mode=st.sampled_from([m for m in MODES if m != "query"]))
def test_plain_words_have_no_syntax(words, mode):
    try:
        query = words_query(words, mode)
    except QuerySyntaxError:
        assert not words.split() or any("\ud800" <= c <= "\udfff" for c in words)
        return
    assert parse_search(written(query)) == query


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    schema = pa.schema({"id": pa.int64(), "a": pa.string(), "s": pa.string(), "n": pa.int64()})
    made = it.Table.create(str(tmp_path_factory.mktemp("names") / "t"), schema,
                           mapping={"s": "string"})  # fmt: skip
    rows = {
        "id": [1, 2, 3, 4],
        "a": ["spark sql !!!", "wi-fi net spark", "C++ AND Java", None],
        "s": ["New York", "x", "sql", None],
        "n": [5, 6, 7, None],
    }
    made.append(pa.table(rows, schema=schema))
    return made


FOUND = {
    "search(a, 'spark & sql')": [1],
    "search(a, 'SPARK')": [1, 2],
    "search(a, 'spark sql', 'any')": [1, 2],
    "search(a, 'AND')": [3],
    "search(a, '(spark OR java)')": [],
    "search(a, 'spark OR java', mode => 'query')": [1, 2, 3],
    "search(a, 'c++ java', mode => 'ALL')": [3],
    "search((a, s), 'spark sql')": [1],
    "search((a, s, n), 'net 6')": [2],
    "search((a, s), 'sql', mode => 'any')": [1, 3],
    "search(*, 'java 7')": [3],
    "search(*, 's:sql', mode => 'query')": [3],
    "search(a, 's:sql', mode => 'query')": [3],
    "match_all(a, 'net spark')": [2],
    "match_any(a, 'net java')": [2, 3],
    "match_phrase(a, 'fi net')": [2],
    "match_phrase(s, 'New York')": [1],
    "match_phrase_prefix(a, 'spark s')": [1],
    "match_phrase_prefix(a, 'ja')": [3],
    "a TEXTSEARCH 'ja* OR wi-fi'": [2, 3],
    "a NOT textsearch 'java'": [1, 2, 4],
    "textsearch(a, 'java')": [3],
    "tantivy4spark_textsearch(a, 'java')": [3],
    "s FIELDMATCH '\"New York\" OR x'": [1, 2],
    "n FIELDMATCH '6'": [2],
    "tantivy4spark_fieldmatch(s, 'x')": [2],
    "* TEXTSEARCH 'java'": [3],
    "* FieldMatch 'x'": [2],
    "tantivy4spark_textsearchall('java')": [3],
    "* indexquery 'java OR x'": [2, 3],
    "NOT search(a, 'spark')": [3, 4],
    "n > 5 AND (search(a, 'net') OR search(s, 'sql'))": [2, 3],
}


@pytest.mark.parametrize("condition", FOUND)
def test_a_condition_without_spark(table, condition):
    assert sorted(table.scan(where=condition)["id"].to_pylist()) == FOUND[condition]
    query = f"SELECT id FROM this WHERE {condition} ORDER BY id"
    assert table.sql(query)["id"].to_pylist() == FOUND[condition]
    rows = table.sql(f"SELECT id, {condition} AS hit FROM this ORDER BY id").to_pylist()
    assert [row["id"] for row in rows if row["hit"]] == FOUND[condition]
    predicate = parse_predicate(condition, table.schema)
    assert parse_predicate(str(predicate), table.schema) == predicate


def test_a_search_of_some_columns_is_scored_and_shown(table):
    found = table.sql(
        "SELECT id, _score > 0 AS scored, snippet(a) AS shown FROM this "
        "WHERE search((a, s), 'sql') ORDER BY _score DESC"
    )
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "scored": True, "shown": "spark <b>sql</b> !!!"},
        {"id": 3, "scored": True, "shown": ""},
    ]


def test_columns_of_several_tables(table):
    found = table.sql(
        "SELECT x.id FROM this x LEFT JOIN this y ON x.id = y.id + 1 "
        "WHERE search((x.a, y.a), 'net java') ORDER BY x.id"
    )
    assert found["id"].to_pylist() == [3]
    with pytest.raises(it.errors.EmbeddedQueryError, match="columns of one table"):
        table.sql(
            "SELECT x.id FROM this x JOIN this y USING (id) "
            "WHERE search((x.a, y.a), 'a*', mode => 'query')"
        )


def test_renamed_columns(tmp_path):
    made = it.Table.create(str(tmp_path / "t"), pa.schema({"a": pa.string(), "b": pa.string()}))
    made.append(pa.table({"a": ["fox", "hen"], "b": ["hen", "cow"]}))
    made.rename_column("a", "c")
    assert made.count(where="search((c, b), 'fox hen')") == 1
    assert made.count(where="search((b, c), 'hen', mode => 'any')") == 2


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("search(a, 'x', mode => 'al')", "'all', 'any', 'phrase', 'prefix', 'query'"),
        ("search(a, 'x', mode => 'al')", "Did you mean 'all'"),
        ("match_any(a, 'x', mode => 'any')", "match_any has no mode"),
        ("search(a)", "takes a column, several in parentheses or"),
        ("search(a, n)", "takes a column"),
        ("search((), 'x')", "takes a column, several in parentheses or"),
        ("search(a, 'x', mod => 'any')", "takes a column"),
        ("tantivy4spark_textsearchall(a, 'x')", "exactly 1 argument"),
        ("a FIELDMATCH 'x'", "fieldmatch is for columns whose values .* Use textsearch"),
        ("s TEXTSEARCH 'x'", "textsearch is for columns of words, .* Use fieldmatch"),
    ],
)
def test_mistakes(table, condition, said):
    for ask in (lambda: table.count(where=condition),
                lambda: table.sql(f"SELECT * FROM this WHERE {condition}")):  # fmt: skip
        with pytest.raises(SearchCallError, match=said):
            ask()


def test_bad_words(table):
    with pytest.raises(QuerySyntaxError, match="empty"):
        table.count(where="search(a, '  ')")
    with pytest.raises(UnknownFieldError, match="zz"):
        table.count(where="search(a, 'zz:x', mode => 'query')")
    with pytest.raises(QuerySyntaxError, match="maxLength"):
        words_query("a" * 20, max_length=10)
    with pytest.raises(it.errors.UnknownColumnError):
        table.count(where="search((a, zz), 'x')")


def test_names_that_are_columns(tmp_path):
    schema = pa.schema({"search": pa.string(), "textsearch": pa.string()})
    made = it.Table.create(str(tmp_path / "t"), schema)
    made.append(pa.table({"search": ["fox"], "textsearch": ["hen"]}))
    assert made.count(where="search = 'fox' AND textsearch = 'hen'") == 1
    assert made.count(where="search(search, 'fox') AND textsearch textsearch 'hen'") == 1
    text = "SELECT 2 * textsearch FROM t WHERE textsearch = 'x' AND search IN ('y')"
    assert rewrite_operators(text) == text


def test_the_text_of_a_search():
    assert query_text("a* (b)", "query") == "a* (b)"
    shown = Search(None, words_query("x y"), "x AND y", (Column(("a",)), Column(("b c",))))
    assert str(shown) == "search((a, `b c`), 'x AND y', mode => 'query')"
