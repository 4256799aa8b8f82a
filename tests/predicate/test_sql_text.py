"""SQL text: what it becomes, what is refused, and with which sentence."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import (
    IndexTablesError,
    PredicateSyntaxError,
    QueryError,
    QuerySyntaxError,
    UnknownColumnError,
    UnknownFieldError,
    UnsupportedPredicateError,
)
from indextables.predicate import Column, Compare, Search, Term
from indextables.predicate.sql_text import parse_predicate

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("ntz", pa.timestamp("us")),
        ("f", pa.float64()),
        ("m", pa.decimal128(10, 2)),
        ("b", pa.bool_()),
        ("bin", pa.binary()),
        ("a.b", pa.string()),
        ("a b", pa.string()),
        ("Case", pa.string()),
        ("case", pa.string()),
        ("CamelCase", pa.string()),
        ("user", pa.struct([("name", pa.string()), ("in", pa.struct([("deep", pa.int32())]))])),
        ("tags", pa.list_(pa.string())),
        ("date", pa.string()),
    ]
)


def sql(text: str) -> str:
    return str(parse_predicate(text, SCHEMA))


READ = {
    # comparisons
    "n = 5": "n = 5",
    "n == 5": "n = 5",
    "n != 5": "n <> 5",
    "n <> 5": "n <> 5",
    "5 < n": "n > 5",
    "5 >= n": "n <= 5",
    "5 = n": "n = 5",
    "n <=> 5": "n <=> 5",
    "n <=> NULL": "n IS NULL",
    "n = NULL": "NULL",
    "n IS DISTINCT FROM 5": "NOT (n <=> 5)",
    "n IS NOT DISTINCT FROM 5": "n <=> 5",
    "n BETWEEN 1 AND 3": "(n >= 1 AND n <= 3)",
    "n NOT BETWEEN 1 AND 3": "NOT (n >= 1 AND n <= 3)",
    "n IN (1, 2, 2, NULL)": "n IN (1, 2, NULL)",
    "n NOT IN (1, 2)": "n NOT IN (1, 2)",
    "n IN (1)": "n = 1",
    "n IN (NULL)": "NULL",
    "n IN (1.5)": "(n IS NULL AND NULL)",
    "n IS NULL": "n IS NULL",
    "n IS NOT NULL": "n IS NOT NULL",
    "isnull(n) OR isnotnull(n)": "(n IS NULL OR n IS NOT NULL)",
    # booleans
    "b": "b = TRUE",
    "NOT b": "NOT (b = TRUE)",
    "b IS TRUE": "b <=> TRUE",
    "b IS NOT FALSE": "NOT (b <=> FALSE)",
    "b = 'true'": "b = TRUE",
    "TRUE": "TRUE",
    "1 = 1 AND n = 1": "n = 1",
    "1 > 2": "FALSE",
    "NULL": "NULL",
    "n = 1 OR n = 2 AND NOT n = 3": "(n = 1 OR (n = 2 AND NOT (n = 3)))",
    "((n = 1))": "n = 1",
    # LIKE
    "s LIKE 'a%'": "s LIKE 'a%'",
    "s NOT LIKE '%a'": "NOT (s LIKE '%a')",
    "s LIKE 'a'": "s = 'a'",
    "s LIKE ''": "s = ''",
    r"s LIKE '50\%'": "s = '50%'",
    r"s LIKE '50\\%'": "s = '50%'",
    "s LIKE 'a/_%' ESCAPE '/'": r"s LIKE 'a\\_%'",
    "s NOT LIKE 'a/_b_' ESCAPE '/'": "NOT (s LIKE 'a/_b_' ESCAPE '/')",
    "startswith(s, 'a_') OR endswith(s, 'b') OR contains(s, 'c')": (
        r"(s LIKE 'a\\_%' OR s LIKE '%b' OR s LIKE '%c%')"
    ),
    "s LIKE NULL": "NULL",
    # strings
    r"s = 'O\'Brien'": r"s = 'O\'Brien'",
    "s = 'it''s'": r"s = 'it\'s'",
    "s = 'a' 'b'": "s = 'ab'",
    "s = \"double 'quoted'\"": r"s = 'double \'quoted\''",
    r"s = r'C:\temp\n'": r"s = 'C:\\temp\\n'",
    r"s = 'tab\tline\n\\'": r"s = 'tab\tline\n\\'",
    r"s = '\u0041\101'": "s = 'AA'",
    "s = '-- no comment /* */'": "s = '-- no comment /* */'",
    "s = '😀'": "s = '😀'",
    # typed literals
    "n = -5": "n = -5",
    "n = 5L AND n = 5S": "n = 5",
    "n = CAST('7' AS INT)": "n = 7",
    "m = 1.50BD": "m = 1.50",
    "f > 1.5D": "f > 1.5",
    "f > 1e3": "f > 1000.0",
    "f < -1.5": "f < -1.5",
    "d = DATE '2024-01-15'": "d = DATE '2024-01-15'",
    "d = '2024-01-15'": "d = DATE '2024-01-15'",
    "d = CAST('2024-01-15' AS DATE)": "d = DATE '2024-01-15'",
    "ts = TIMESTAMP '2024-01-15 10:00:00'": "ts = TIMESTAMP '2024-01-15 10:00:00Z'",
    "ts = '2024-01-15T10:00:00+02:00'": "ts = TIMESTAMP '2024-01-15 08:00:00Z'",
    "ts = TIMESTAMP_LTZ '2024-01-15 10:00:00Z'": "ts = TIMESTAMP '2024-01-15 10:00:00Z'",
    "ntz = TIMESTAMP_NTZ '2024-01-15 10:00:00'": "ntz = TIMESTAMP_NTZ '2024-01-15 10:00:00'",
    "bin = X'1f'": "bin = X'1F'",
    "bin = X'f'": "bin = X'0F'",
    "bin = 'a'": "bin = X'61'",
    # names
    "N = 1": "n = 1",
    "`n` = 1": "n = 1",
    "`a.b` = 'x'": "`a.b` = 'x'",
    "`A B` = 'x'": "`a b` = 'x'",
    "camelcase = 'x'": "CamelCase = 'x'",
    "`Case` = 'x' AND `case` = 'y'": "(`Case` = 'x' AND `case` = 'y')",
    "user.name = 'x'": "user.name = 'x'",
    "User.`in`.DEEP = 1": "user.`in`.deep = 1",
    "tags IS NULL": "tags IS NULL",
    "date = '2024'": "`date` = '2024'",
    "n = 1 -- comment\n /* and */ AND b": "(n = 1 AND b = TRUE)",
    # searches
    "s indexquery 'x'": "s indexquery 'x'",
    "S IndexQuery 'x' AND n > 1": "(s indexquery 'x' AND n > 1)",
    "NOT s indexquery 'x'": "NOT (s indexquery 'x')",
    "s NOT indexquery 'x'": "NOT (s indexquery 'x')",
    "_indexall indexquery 'x'": "_indexall indexquery 'x'",
    "indexqueryall('x')": "_indexall indexquery 'x'",
    "IndexQuery(s, 'x')": "s indexquery 'x'",
    "indexquery('a.b', 'x')": "`a.b` indexquery 'x'",
    "tantivy4spark_indexquery('s', 'x')": "s indexquery 'x'",
    "tantivy4spark_indexquery('_indexall', 'x')": "_indexall indexquery 'x'",
    "tantivy4spark_indexqueryall('s:x')": "_indexall indexquery 's:x'",
    "user.name indexquery 'x'": "user.name indexquery 'x'",
    r"s indexquery '\"it\'s\"'": "s indexquery '\"it\\'s\"'",
    "date indexquery 'x' OR `a b` indexquery 'y'": (
        "(`date` indexquery 'x' OR `a b` indexquery 'y')"
    ),
    "n indexquery '[100 TO 500]'": "n indexquery '[100 TO 500]'",
}


@pytest.mark.parametrize(("text", "expected"), READ.items())
def test_read(text, expected):
    assert sql(text) == expected
    assert sql(expected) == expected
    assert parse_predicate(expected, SCHEMA) == parse_predicate(text, SCHEMA)


def test_the_search_keeps_its_text_and_its_tree():
    found = parse_predicate(
        "s indexquery 'a:b'", pa.schema([("s", pa.string()), ("a", pa.string())])
    )
    assert found == Search(Column(("s",)), Term("a", "b"), "a:b")


REFUSED: dict[str, tuple[type[IndexTablesError], str]] = {
    "n = n": (UnsupportedPredicateError, "two columns.*filter the result"),
    "n + 1 = 2": (UnsupportedPredicateError, "'n \\+ 1' is neither a column nor a literal"),
    "lower(s) = 'x'": (UnsupportedPredicateError, r"LOWER\(s\).*neither"),
    "n = current_date()": (UnsupportedPredicateError, "neither a column nor a literal"),
    "s RLIKE 'x'": (UnsupportedPredicateError, "RLIKE"),
    "s ILIKE 'x'": (UnsupportedPredicateError, "ILIKE"),
    "s LIKE ANY ('x', 'y')": (UnsupportedPredicateError, "one pattern"),
    "s LIKE s": (UnsupportedPredicateError, "a literal is expected"),
    "n LIKE 'x'": (UnsupportedPredicateError, "type int64, not text"),
    "s LIKE 'a/' ESCAPE '/'": (UnsupportedPredicateError, "must precede"),
    r"s LIKE '\\d'": (UnsupportedPredicateError, "must precede"),
    "s LIKE 'a' ESCAPE '//'": (UnsupportedPredicateError, "one character"),
    "n": (UnsupportedPredicateError, "type int64, not BOOLEAN"),
    "n IN (SELECT 1)": (UnsupportedPredicateError, "a list of literals"),
    "n IN (1, s)": (UnsupportedPredicateError, "a literal is expected"),
    "n IN ()": (UnsupportedPredicateError, "a list of literals"),
    "(n, s) IN ((1, 'a'))": (UnsupportedPredicateError, "a column is expected"),
    "EXISTS (SELECT 1)": (UnsupportedPredicateError, "EXISTS"),
    "CASE WHEN b THEN TRUE END": (UnsupportedPredicateError, "CASE"),
    "foo(s)": (UnsupportedPredicateError, "function foo"),
    "(n = 1) IS NULL": (UnsupportedPredicateError, "a column is expected"),
    "1 = 'a'": (UnsupportedPredicateError, "different types"),
    "s indexquery NULL": (PredicateSyntaxError, "near 'indexquery'"),
    "indexquery(s, NULL)": (UnsupportedPredicateError, "cannot be NULL"),
    "indexquery(s, s)": (UnsupportedPredicateError, "a literal is expected"),
    "indexquery(s)": (UnsupportedPredicateError, "function indexquery"),
    "n = CAST('5.5' AS INT)": (UnsupportedPredicateError, "'5.5' cannot be cast to INT"),
    "n = CAST(5.5 AS INT)": (UnsupportedPredicateError, "cannot be cast"),
    "d = DATE '2024-13-01'": (UnsupportedPredicateError, "cannot be cast to DATE"),
    "n = ": (PredicateSyntaxError, "Something is missing"),
    "n = 1 s": (PredicateSyntaxError, "near 's'"),
    "n = 1; n = 2": (PredicateSyntaxError, "one condition"),
    "": (PredicateSyntaxError, "one condition"),
    "  -- nothing": (PredicateSyntaxError, "one condition"),
    "s = 'x": (PredicateSyntaxError, "never closed"),
    "(n = 1": (PredicateSyntaxError, "\\)"),
    "SELECT 1": (PredicateSyntaxError, "SELECT"),
    "DROP TABLE x": (PredicateSyntaxError, "DROP"),
    "(" * 5_000 + "n = 1" + ")" * 5_000: (PredicateSyntaxError, "nested too deep"),
    "nope = 1": (UnknownColumnError, r"'nope'\. Columns: n, s, .*`a\.b`, `a b`"),
    "a.b = 'x'": (UnknownColumnError, r"'a\.b'.*`a\.b`"),
    "user.nope = 1": (UnknownColumnError, r"'user\.nope'\. Columns: user\.name, user\.`in`"),
    "n.x = 1": (UnknownColumnError, r"'n\.x'"),
    "CASe_ = 'x'": (UnknownColumnError, "CASe_"),
    "`CASE` = 'x'": (UnknownColumnError, "ambiguous: it could be Case or case"),
    "indexquery('nope', 'x')": (UnknownColumnError, "nope"),
    "s indexquery 'nope:x'": (UnknownFieldError, "no field 'nope'.*Fields: n, s"),
    "s indexquery 'a AND'": (QuerySyntaxError, "'a AND' on s: AND.*position 2"),
    "n = 1 AND (s indexquery '(x' OR b)": (QuerySyntaxError, r"'\(x' on s"),
    "_indexall indexquery ''": (QuerySyntaxError, "on _indexall: it is empty"),
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:40])
def test_refused(text):
    kind, reason = REFUSED[text]
    with pytest.raises(kind, match=reason) as caught:
        parse_predicate(text, SCHEMA)
    assert isinstance(caught.value, QueryError)
    assert len(str(caught.value)) < 500
    assert "<class" not in str(caught.value)


def test_long_chains_are_no_problem():
    found = parse_predicate(" OR ".join(f"n = {i}" for i in range(3_000)), SCHEMA)
    assert len(found.children) == 3_000


def test_limits_of_search_queries_are_passed_on():
    with pytest.raises(QuerySyntaxError, match="maxLength"):
        parse_predicate("s indexquery 'abc'", SCHEMA, max_query_length=2)
    with pytest.raises(QuerySyntaxError, match="maxDepth"):
        parse_predicate("s indexquery '((a))'", SCHEMA, max_query_depth=1)


def test_the_time_zone_gives_literals_their_instant():
    found = parse_predicate("ts >= '2024-07-01'", SCHEMA, timezone="Europe/Berlin")
    assert str(found) == "ts >= TIMESTAMP '2024-06-30 22:00:00Z'"
    found = parse_predicate("ts = TIMESTAMP '2024-07-01 00:00:00'", SCHEMA, timezone="+05:30")
    assert str(found) == "ts = TIMESTAMP '2024-06-30 18:30:00Z'"


@pytest.mark.parametrize("literal", ["{}", "CAST('{}' AS DECIMAL(38,10))"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_all_digits_of_a_decimal_count(sign, literal):
    schema = pa.schema([("m", pa.decimal128(38, 10))])
    number = f"{sign}9999999999999999999999999999.0000000001"
    assert str(parse_predicate(f"m = {literal.format(number)}", schema)) == f"m = {number}"
    beyond = parse_predicate(f"m = {sign}10000000000000000000000000000", schema)
    assert str(beyond) == "(m IS NULL AND NULL)"


SPARK_ESCAPES = {
    r"\0": "\0",
    r"\b": "\b",
    r"\n": "\n",
    r"\r": "\r",
    r"\t": "\t",
    r"\Z": "\x1a",
    r"\%": r"\%",
    r"\_": r"\_",
    r"\\": "\\",
    r"\'": "'",
    r"\"": '"',
    r"\q": "q",
    r"\101": "A",
    r"\u3042": "あ",
    r"\U0001F44D": "👍",
}


@pytest.mark.parametrize(("written", "meant"), SPARK_ESCAPES.items())
def test_escapes_of_spark(written, meant):
    for quote in "'\"":
        found = parse_predicate(f"s = {quote}a{written}z{quote}", SCHEMA)
        assert found == Compare("=", Column(("s",)), f"a{meant}z")
    raw = parse_predicate(f"s = r'a{written.replace(chr(39), '')}z'", SCHEMA)
    assert raw == Compare("=", Column(("s",)), f"a{written.replace(chr(39), '')}z")


@given(st.text(max_size=20) | st.text(st.sampled_from("\0\\'012nu"), max_size=8))
def test_any_string_literal_reads_back(text):
    condition = Compare("=", Column(("s",)), text)
    assert parse_predicate(str(condition), SCHEMA) == condition


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_any_name_reads_back(name):
    schema = pa.schema([(name, pa.int64())])
    condition = Compare("=", Column((name,)), 1)
    assert parse_predicate(str(condition), schema) == condition


@given(st.text(max_size=30))
def test_any_text_is_a_condition_or_a_named_mistake(text):
    with contextlib.suppress(QueryError):
        parse_predicate(text, SCHEMA)


def test_short_conditions_are_remembered_and_long_ones_are_not():
    from indextables.errors import LiteralError
    from indextables.predicate import sql_text

    schema = pa.schema([("n", pa.int64())])
    short, long = "n = 4711", f"n IN ({', '.join(map(str, range(2_000)))})"
    assert parse_predicate(short, schema) is parse_predicate(short, schema)
    before = sql_text._parsed.cache_info()
    assert parse_predicate(long, schema) == parse_predicate(long, schema)
    assert sql_text._parsed.cache_info() == before
    with pytest.raises(LiteralError):  # for a column of another type it means something else
        parse_predicate(short, pa.schema([("n", pa.string())]))
