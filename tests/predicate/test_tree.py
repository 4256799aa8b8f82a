"""The tree: constants fold, NOT moves, nodes travel, and `str` reads back."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from random_predicates import SCHEMA, predicates
from sqlglot.dialects.spark import Spark

from indextables.predicate import (
    FALSE,
    NULL,
    TRUE,
    And,
    Column,
    Compare,
    IsNull,
    Not,
    Or,
    Search,
    StartsWith,
    Term,
    columns,
    conjunction,
    conjuncts,
    disjunction,
    false_unless_null,
    negate,
    negation,
    normalise,
    searches,
    transform,
    true_unless_null,
    walk,
)
from indextables.predicate.literals import sql_name
from indextables.predicate.sql_text import parse_predicate

A, B = Column(("a",)), Column(("b", "c"))
X, Y, Z = Compare("=", A, 1), Compare("<", B, 2), IsNull(A)
SEARCH = Search(None, Term(None, "x"), "x")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (conjunction(), TRUE),
        (conjunction(X), X),
        (conjunction(X, TRUE, X), X),
        (conjunction(X, NULL), And((X, NULL))),
        (conjunction(X, FALSE, NULL), FALSE),
        (conjunction(And((X, Y)), Z), And((X, Y, Z))),
        (disjunction(), FALSE),
        (disjunction(X, FALSE, NULL), Or((X, NULL))),
        (disjunction(X, TRUE), TRUE),
        (disjunction(Or((X, Y)), Y), Or((X, Y))),
        (negation(Not(X)), X),
        (negation(NULL), NULL),
        (negation(TRUE), FALSE),
        (negate(X), Compare("<>", A, 1)),
        (negate(Compare("<=>", A, 1)), Not(Compare("<=>", A, 1))),
        (negate(Or((X, Not(Z)))), And((Compare("<>", A, 1), Z))),
        (normalise(Not(And((X, Or((Y, FALSE)))))), Or((negate(X), negate(Y)))),
        (negate(SEARCH), Not(SEARCH)),
        (transform(And((X, Y)), lambda n: TRUE if n == X else n), Y),
        (transform(Not(X), lambda n: NULL if n == X else n), NULL),
    ],
    ids=str,
)
def test_building_and_changing(found, expected):
    assert found == expected


def test_looking():
    tree = Or((And((X, SEARCH)), Not(And((Y, SEARCH)))))
    assert columns(tree) == (A, B)
    assert searches(tree) == (SEARCH,)
    assert len(list(walk(tree))) == 8
    assert conjuncts(And((X, And((Y, Z)), TRUE))) == (X, Y, Z)
    assert conjuncts(X) == (X,)
    assert conjuncts(TRUE) == ()
    assert conjuncts(tree) == (tree,)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (true_unless_null(A), "(a IS NOT NULL OR NULL)"),
        (false_unless_null(A), "(a IS NULL AND NULL)"),
        (Not(And((X, Y))), "NOT (a = 1 AND b.c < 2)"),
        (StartsWith(A, "50%"), r"a LIKE '50\\%%'"),
        (SEARCH, "_indexall indexquery 'x'"),
        (Search(B, Term(None, "x"), "it's"), r"b.c indexquery 'it\'s'"),
    ],
    ids=str,
)
def test_reads_as_sql(node, text):
    assert str(node) == text


@given(predicates())
def test_str_reads_back_and_nodes_travel(predicate):
    text = str(predicate)
    read = parse_predicate(text, SCHEMA)
    assert str(parse_predicate(str(read), SCHEMA)) == str(read)
    assert read == parse_predicate(str(read), SCHEMA) or "NaN" in str(read)
    copy = pickle.loads(pickle.dumps(predicate))
    assert str(copy) == text
    hash(copy)


def test_every_word_of_the_dialect_can_be_a_column():
    import pyarrow as pa

    words = {w.lower() for w in Spark.Tokenizer.KEYWORDS if w.replace("_", "").isalpha()}
    schema = pa.schema([(word, pa.int64()) for word in sorted(words)])
    for word in words:
        condition = Compare("=", Column((word,)), 1)
        assert parse_predicate(str(condition), schema) == condition, sql_name(word)
        search = Search(Column((word,)), Term(None, "x"), "x")
        assert parse_predicate(str(search), schema) == search, sql_name(word)
