"""The exact evaluator gives DuckDB's answer, and Spark's where the two differ in spelling only."""

from __future__ import annotations

import math

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from random_predicates import SCHEMA, duckdb_sql, predicates, rows

from examples import examples
from indextables.errors import QueryError, UnknownColumnError
from indextables.predicate import (
    NULL,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    Search,
    StartsWith,
    Term,
    negate,
    normalise,
)
from indextables.split.row_filter import evaluate

A = Column(("a",))
SEARCH = Search(A, Term(None, "x"), "x")


@pytest.fixture(scope="module")
def duck():
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@examples(100, 5_000)
@given(table=rows(), predicate=predicates())
def test_same_as_duckdb(duck, table, predicate):
    duck.register("rows", table)
    found = duck.execute(f"SELECT {duckdb_sql(predicate)} FROM rows").fetchall()
    assert evaluate(predicate, table).to_pylist() == [row[0] for row in found]


@given(table=rows(), predicate=predicates())
def test_normal_form_and_negation_mean_the_same(table, predicate):
    answer = evaluate(predicate, table).to_pylist()
    assert evaluate(normalise(predicate), table).to_pylist() == answer
    opposite = [None if value is None else not value for value in answer]
    assert evaluate(negate(predicate), table).to_pylist() == opposite


@given(table=rows(), predicate=predicates())
def test_chunks_and_batches_change_nothing(table, predicate):
    answer = evaluate(predicate, table).to_pylist()
    chunked = pa.concat_tables([table.slice(0, 2), table.slice(2)])
    assert evaluate(predicate, chunked).to_pylist() == answer
    for batch in table.combine_chunks().to_batches():
        assert evaluate(predicate, batch).to_pylist() == answer


NAN_CASES = [
    ("=", [True, False, None]),
    ("<=>", [True, False, False]),
    ("<>", [False, True, None]),
    ("<", [False, True, None]),
    ("<=", [True, True, None]),
    (">", [False, False, None]),
    (">=", [True, False, None]),
]


@pytest.mark.parametrize(("op", "expected"), NAN_CASES)
def test_nan_is_equal_to_itself_and_greatest(op, expected):
    table = pa.table({"a": [math.nan, 1.0, None]})
    assert evaluate(Compare(op, A, math.nan), table).to_pylist() == expected


def test_every_bit_pattern_of_nan_is_in_a_list_with_nan():
    # What 0.0 / 0.0 gives on most processors has a sign.
    patterns = np.array([0xFFF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    table = pa.table({"a": [*patterns, math.nan, 1.0, -0.0]})
    found = evaluate(In(A, (math.nan, 0.0)), table).to_pylist()
    assert found == [True, True, True, False, True]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Compare("=", A, "ab"), [True, False, None]),
        (Compare("<", A, "b"), [True, False, None]),
        (In(A, ("ab", "x")), [True, False, None]),
        (In(A, ("ab",), True), [True, None, None]),
        (StartsWith(A, "a"), [True, False, None]),
        (Like(A, "_b"), [True, False, None]),
        (IsNull(A), [False, False, True]),
    ],
    ids=str,
)
def test_every_type_of_text(kind, predicate, expected):
    table = pa.table({"a": pa.array(["ab", "b\0", None]).cast(kind)})
    assert evaluate(predicate, table).to_pylist() == expected


def test_like_takes_new_lines_nul_and_regex_signs_literally():
    table = pa.table({"a": ["a\nb", "a.b", "axb", "a\0b", "[a]+(b)|$"]})
    cases = {
        "a_b": [True, True, True, True, False],
        "a.b_": [False] * 5,
        "%[a]+(b)|$_": [False] * 5,
    }
    for pattern, expected in cases.items():
        assert evaluate(Like(A, pattern), table).to_pylist() == expected
    assert evaluate(Like(A, "_a]+(b)|$"), table).to_pylist() == [False] * 4 + [True]
    assert evaluate(Like(A, "a\0_"), table).to_pylist() == [False, False, False, True, False]
    assert evaluate(Like(A, "a/__", "/"), table).to_pylist() == [False] * 5


def test_a_field_of_a_null_struct_is_null():
    inner = pa.array([1, 2])
    column = pa.StructArray.from_arrays([inner], names=["k"], mask=pa.array([False, True]))
    table = pa.table({"a": column})
    assert evaluate(IsNull(Column(("a", "k"))), table).to_pylist() == [False, True]
    assert evaluate(Compare("=", Column(("a", "k")), 2), table).to_pylist() == [False, None]


SEARCH_CASES: list[tuple[Predicate, list[bool | None]]] = [
    (SEARCH, [True, False, False]),
    (Not(SEARCH), [False, True, True]),
    (And((SEARCH, IsNull(A))), [False, False, False]),
    (Or((SEARCH, NULL)), [True, None, None]),
    (Or((Not(SEARCH), Compare("=", A, "x"))), [True, True, True]),
]


@pytest.mark.parametrize(("predicate", "expected"), SEARCH_CASES, ids=str)
@pytest.mark.parametrize(
    "answer",
    [np.array([True, False, False]), pa.array([True, False, None])],
    ids=["numpy", "arrow"],
)
def test_a_search_is_never_null(predicate, expected, answer):
    table = pa.table({"a": ["x", "y", None]})
    assert evaluate(predicate, table, search=lambda _: answer).to_pylist() == expected


def test_a_search_without_an_index_is_an_error_and_not_true():
    with pytest.raises(QueryError, match="indexquery 'x'"):
        evaluate(SEARCH, pa.table({"a": ["x"]}))


def test_a_search_answered_for_too_few_rows_is_an_error():
    with pytest.raises(QueryError, match="1 rows instead of 2"):
        evaluate(SEARCH, pa.table({"a": ["x", "y"]}), search=lambda _: np.array([True]))


def test_a_missing_column_is_named():
    with pytest.raises(UnknownColumnError, match=r"'a'.*Columns: i, n"):
        evaluate(IsNull(A), SCHEMA.empty_table())
