"""The operator is rewritten where it is one, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.predicate.spark_tokens import rewrite_operators

REWRITTEN = {
    "a indexquery 'x'": "indexquery(a , 'x')",
    "SELECT * FROM t WHERE Content IndexQuery 'x' AND n>1": (
        "SELECT * FROM t WHERE indexquery(Content , 'x') AND n>1"
    ),
    "t.a.b indexquery 'x'": "indexquery(t.a.b , 'x')",
    "`a b`.`c``d` indexquery 'x'": "indexquery(`a b`.`c``d` , 'x')",
    "date indexquery 'x' or t.select indexquery 'y'": (
        "indexquery(date , 'x') or indexquery(t.select , 'y')"
    ),
    "a['k'].b indexquery 'x'": "indexquery(a['k'].b , 'x')",
    "coalesce(a, (b)) indexquery 'x'": "indexquery(coalesce(a, (b)) , 'x')",
    "(a) indexquery 'x'": "indexquery((a) , 'x')",
    "t.a::string indexquery 'x'": "indexquery(t.a::string , 'x')",
    "f(a)::char(3)::string indexquery 'x'": "indexquery(f(a)::char(3)::string , 'x')",
    "a COLLATE UTF8_LCASE indexquery 'x'": "indexquery(a COLLATE UTF8_LCASE , 'x')",
    'a indexquery "x"': 'indexquery(a , "x")',
    r"a indexquery 'O\'Brien'": r"indexquery(a , 'O\'Brien')",
    "a indexquery 'it''s' AND b": "indexquery(a , 'it''s') AND b",
    r"a indexquery r'\d' AND b": r"indexquery(a , r'\d') AND b",
    "a indexquery ?": "indexquery(a , ?)",
    "a indexquery :q": "indexquery(a , :q)",
    "_indexall indexquery 'x'": "indexqueryall(  'x')",
    "_IndexAll INDEXQUERY 'x'": "indexqueryall(  'x')",
    "WHERE * indexquery 'x'": "WHERE indexqueryall(  'x')",
    "(* TEXTSEARCH 'x')": "(textsearch(* , 'x'))",
    "a.b fieldMatch 'x'": "fieldmatch(a.b , 'x')",
    "a NOT indexquery 'x'": "(NOT indexquery(a  , 'x'))",
    "_indexall not indexquery 'x'": "(NOT indexqueryall(   'x'))",
    "NOT a indexquery 'x'": "NOT indexquery(a , 'x')",
    "a /* why */ indexquery -- so\n 'x'": "indexquery(a /* why */ , -- so\n 'x')",
    "indexquery indexquery 'x'": "indexquery(indexquery , 'x')",
    "日本 indexquery '😀' AND b indexquery 'y'": "indexquery(日本 , '😀') AND indexquery(b , 'y')",
    "'a' AND b indexquery 'x$1'": "'a' AND indexquery(b , 'x$1')",
    "EXPLAIN SELECT 1 WHERE a indexquery 'x'": "EXPLAIN SELECT 1 WHERE indexquery(a , 'x')",
    "SHOW a indexquery 'x'": "SHOW indexquery(a , 'x')",
    "CASE WHEN a indexquery 'x' THEN 1 END": "CASE WHEN indexquery(a , 'x') THEN 1 END",
}


@pytest.mark.parametrize(("sql", "expected"), REWRITTEN.items())
def test_rewritten(sql, expected):
    assert rewrite_operators(sql) == expected
    assert rewrite_operators(expected) == expected


UNTOUCHED = [
    "SELECT 1",
    "SELECT 'a indexquery b'",
    r"SELECT 'O\'Brien a indexquery \'x\''",
    "SELECT \"a indexquery 'x'\"",
    "SELECT 1 -- a indexquery 'x'",
    "SELECT 1 /* a indexquery 'x' /* b indexquery 'y' */ */",
    "SELECT `a indexquery 'x'`",
    "SELECT indexquery FROM t",
    "SELECT a AS indexquery, 'x'",
    "SELECT a indexquery, 'x' FROM t",
    "SELECT indexquery('x')",
    "SELECT indexquery(a, 'x'), indexqueryall('y')",
    "SELECT a `indexquery` 'x'",
    "WHERE indexquery = 'x'",
    "WHERE indexquery 'x'",
    "a AND indexquery 'x'",
    "a * indexquery 'x'",
    "a indexquery b",
    "a indexquery 5",
    "a indexquery 'x",
    "a indexquery",
    ") indexquery 'x'",
    "",
]


@pytest.mark.parametrize("sql", UNTOUCHED)
def test_untouched(sql):
    assert rewrite_operators(sql) == sql


QUIET = st.one_of(
    st.sampled_from(["SELECT", "FROM", "t.x", "=", "<=>", "(", ")", ",", "1.5D", "`in dexquery`"]),
    st.text(st.sampled_from('aé😀 indexquery"`-/*#$'), max_size=12).map(
        lambda text: "'" + text + " indexquery '"
    ),
    st.text(st.sampled_from("ab 'x\"`"), max_size=8).map(
        lambda text: "/* a indexquery 'x' " + text + "*/"
    ),
    st.text(st.sampled_from("ab 'x\"`"), max_size=8).map(
        lambda text: "-- a indexquery 'x' " + text + "\n"
    ),
    st.text(st.sampled_from("ab 'x\"indexquery "), min_size=1, max_size=8).map("`{}`".format),
)


@given(st.lists(QUIET, max_size=8))
def test_other_sql_stays_byte_for_byte(pieces):
    sql = " ".join(pieces)
    assert rewrite_operators(sql) == sql


@given(st.lists(QUIET, max_size=4), st.lists(QUIET, max_size=4))
def test_an_operator_among_other_sql_changes_nothing_around_it(before, after):
    left, right = " ".join(before), " ".join(after)
    sql = f"{left} AND a indexquery 'x' AND {right}"
    assert rewrite_operators(sql) == f"{left} AND indexquery(a , 'x') AND {right}"


@given(st.text(max_size=40))
def test_any_text_is_survived(text):
    rewrite_operators(text)
    rewrite_operators(f"a indexquery {text}")
