"""Searches inside SQL text: what is rewritten, what is left alone, what is refused."""

from __future__ import annotations

import pytest

from indextables.config import Config
from indextables.errors import QuerySyntaxError, SearchCallError
from indextables.statements.search_calls import Row, needs_row, prepare

PREPARED = {
    "content indexquery 'spark'": "indexquery(content , 'spark')",
    "content INDEXQUERY 'spark'": "indexquery(content , 'spark')",
    "NOT content indexquery 'a' AND b": "NOT indexquery(content , 'a') AND b",
    "content NOT indexquery 'a'": "(NOT indexquery(content  , 'a'))",
    "`my col`.x indexquery 'a'": "indexquery(`my col`.x , 'a')",
    "lower(a) indexquery 'a'": "indexquery(lower(a) , 'a')",
    r"c indexquery 'it\'s'": r"indexquery(c , 'it\'s')",
    "c indexquery 'it''s'": "indexquery(c , 'it''s')",
    "c indexquery \"a 'b'\"": "indexquery(c , \"a 'b'\")",
    "c indexquery r'a\\d'": "indexquery(c , r'a\\d')",
    # The name of a column in quotes.
    "indexquery('content', 'q')": "indexquery(`content`, 'q')",
    "TANTIVY4SPARK_INDEXQUERY('a.b', 'q')": "TANTIVY4SPARK_INDEXQUERY(`a`.`b`, 'q')",
    r"indexquery('a\\.b', 'q')": "indexquery(`a.b`, 'q')",
    "indexquery('we`ird', 'q')": "indexquery(`we``ird`, 'q')",
    # All fields.
    "indexqueryall('q')": "indexqueryall(_indexall, 'q')",
    "tantivy4spark_indexqueryall('q')": "tantivy4spark_indexqueryall(_indexall, 'q')",
    "_indexall indexquery 'q'": "indexqueryall(  _indexall, 'q')",
    "d._indexall indexquery 'q'": "indexqueryall(`d`._indexall , 'q')",
    "indexquery('_indexall', 'q')": "indexqueryall(_indexall, 'q')",
    "indexqueryall(_indexall, 'q')": "indexqueryall(_indexall, 'q')",
    "indexqueryall(struct(*), 'q')": "indexqueryall(struct(*), 'q')",
    # Fields that the query names.
    "c indexquery 'title:a OR b'": "indexquery(c , 'title:a OR b', named_struct('title', `title`))",
    "SELECT * FROM docs d WHERE d.c indexquery 't:a'": (
        "SELECT * FROM docs d WHERE indexquery(d.c , 't:a', named_struct('t', `d`.`t`))"
    ),
    "SELECT * FROM db.docs WHERE docs.c indexquery 't:a'": (
        "SELECT * FROM db.docs WHERE indexquery(docs.c , 't:a', named_struct('t', `docs`.`t`))"
    ),
    "SELECT * FROM docs WHERE s.c indexquery 'u.n:a'": (
        "SELECT * FROM docs WHERE indexquery(s.c , 'u.n:a', named_struct('u', `u`))"
    ),
    "indexquery(c, 't:a', named_struct('t', t))": "indexquery(c, 't:a', named_struct('t', t))",
    # Snippets.
    "SELECT snippet(c) FROM d WHERE c indexquery 'q'": (
        "SELECT snippet(c, 'q') FROM d WHERE indexquery(c , 'q')"
    ),
    "SELECT snippet(`a.b`) FROM d WHERE `a.b` indexquery 'q'": (
        "SELECT snippet(`a.b`, 'q') FROM d WHERE indexquery(`a.b` , 'q')"
    ),
    "SELECT snippet(d.c) FROM d WHERE indexqueryall('q')": (
        "SELECT snippet(d.c, 'q') FROM d WHERE indexqueryall(_indexall, 'q')"
    ),
    "SELECT snippet(c, 'x') FROM d WHERE c indexquery 'q'": (
        "SELECT snippet(c, 'x') FROM d WHERE indexquery(c , 'q')"
    ),
}


@pytest.mark.parametrize("sql", PREPARED)
def test_prepared(sql):
    assert prepare(sql) == PREPARED[sql]


@pytest.mark.parametrize("sql", PREPARED)
def test_preparing_twice_changes_nothing(sql):
    assert prepare(prepare(sql)) == prepare(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT 'content indexquery ''spark'''",
        "SELECT \"a indexquery 'b'\" FROM t",
        "SELECT 1 -- content indexquery 'spark'",
        "SELECT 1 /* content indexquery 'spark' and indexqueryall('x') */",
        "SELECT indexquery FROM t",
        "SELECT a AS indexquery, count(indexquery) FROM t GROUP BY indexquery",
        "SELECT `indexquery` FROM `content indexquery 'x'`",
        "WITH indexquery(a) AS (SELECT 1) SELECT * FROM indexquery",
        "WITH x AS (SELECT 1), indexquery (a) AS (SELECT 1) SELECT * FROM indexquery",
        "INSERT INTO indexquery (a, b) VALUES (1, 2)",
        "CREATE TABLE indexqueryall (a INT)",
        "SELECT other.indexquery(1, 2, 3)",
        "SELECT 'never closed FROM t WHERE content indexquery 'x",
        "SELECT indexquery(a, 'b'",
    ],
)
@pytest.mark.parametrize("row", Row)
def test_left_alone_byte_for_byte(sql, row):
    assert prepare(sql, row=row) == sql


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("_indexall indexquery 'q'", "indexqueryall(  struct(*), 'q')"),
        ("indexqueryall('q')", "indexqueryall(struct(*), 'q')"),
        ("d._indexall indexquery 'q'", "indexqueryall(struct(`d`.*) , 'q')"),
        ("c indexquery 'q'", "indexquery(c , 'q')"),
    ],
)
def test_the_row_of_any_relation(sql, expected):
    assert prepare(sql, row=Row.STAR) == expected


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("indexquery(a)", "requires exactly 2 arguments"),
        ("indexquery()", "requires exactly 2 arguments"),
        ("tantivy4spark_indexquery('a', 'b', 'c')", "requires exactly 2 arguments"),
        ("indexqueryall()", "requires exactly 1 argument"),
        ("indexqueryall('a', 'b')", "requires exactly 1 argument"),
        ("indexquery(a, b)", "a query in quotes or a parameter, not 'b'"),
        ("indexquery(a, concat('b', 'c'))", "a query in quotes or a parameter"),
        ("indexquery(a, NULL)", "a query in quotes or a parameter"),
        ("indexqueryall(b)", "a query in quotes or a parameter"),
        ("SELECT snippet(c) FROM t WHERE d indexquery 'q'", "has 0 different ones"),
        ("SELECT snippet(c) FROM t WHERE c indexquery 'q' OR c indexquery 'r'", "has 2 different"),
        ("SELECT snippet(c) FROM t WHERE c indexquery ?", "as a second argument"),
    ],
)
def test_refused(sql, message):
    with pytest.raises(SearchCallError, match=message):
        prepare(sql)


@pytest.mark.parametrize("query", ["(a", "a AND", '"a', "a AND AND b", "title:", "", "[1 TO"])
@pytest.mark.parametrize("form", ["content indexquery '{}'", "indexqueryall('{}')"])
def test_a_query_that_does_not_parse_is_refused_before_spark_sees_it(query, form):
    with pytest.raises(QuerySyntaxError, match="Cannot parse the search query"):
        prepare(form.format(query))


def test_parameters_are_checked_by_their_values():
    named = "a indexquery :one AND indexqueryall(:two)"
    assert prepare(named, arguments={"one": "x", "two": "y"}) == (
        "indexquery(a , :one) AND indexqueryall(_indexall, :two)"
    )
    with pytest.raises(QuerySyntaxError):
        prepare(named, arguments={"one": "x", "two": "((("})
    with pytest.raises(QuerySyntaxError):
        prepare("a = ? AND b indexquery ?", arguments=["fine (", "wrong ("])
    with pytest.raises(SearchCallError, match="not the int 3"):
        prepare("a indexquery ?", arguments=[3])
    # Spark itself names a parameter that is missing.
    assert prepare("a indexquery :q") == "indexquery(a , :q)"
    with_field = prepare("a indexquery :q", arguments={"q": "title:x"})
    assert with_field == "indexquery(a , :q, named_struct('title', `title`))"


def test_limits_of_the_session_hold():
    config = Config({"spark.indextables.indexquery.maxLength": 5})
    with pytest.raises(QuerySyntaxError, match="maxLength"):
        prepare("a indexquery 'too long'", config=config)


def test_what_may_need_the_row():
    assert needs_row("_IndexAll indexquery 'x'")
    assert needs_row("tantivy4spark_indexqueryall('x')")
    assert not needs_row("a indexquery 'x'")
