"""The grammar of our statements: what is ours, what is Spark's, what is wrong."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import IndexTablesError, StatementSyntaxError
from indextables.sql import statements as s
from indextables.sql.forms import form, words_of
from indextables.sql.statements import STATEMENTS, Target, parse

DOCS = Target(name=("docs",))

OURS = {
    "FLUSH INDEXTABLES SEARCHER CACHE": s.FlushSearcherCache(),
    "flush Tantivy4Spark searcher cache ; ;": s.FlushSearcherCache(),
    "  -- a comment\n FLUSH /* INDEXTABLES */ TANTIVY4SPARK\nDISK CACHE -- end": s.FlushDiskCache(),
    "DESCRIBE INDEXTABLES DISK CACHE": s.DescribeDiskCache(),
    "DESC TANTIVY4SPARK DISK CACHE;": s.DescribeDiskCache(),
    "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE": s.InvalidateLogCache(),
    "INVALIDATE TRANSACTION LOG CACHE": s.InvalidateLogCache(),
    "INVALIDATE TANTIVY4SPARK TRANSACTION LOG CACHE FOR docs": s.InvalidateLogCache(DOCS),
    "INVALIDATE TRANSACTION LOG CACHE FOR TABLE 's3://b/t'": s.InvalidateLogCache(
        Target(path="s3://b/t")
    ),
    "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR table": s.InvalidateLogCache(
        Target(name=("table",))
    ),
    "CHECKPOINT INDEXTABLES '/a b/it''s'": s.Checkpoint(Target(path="/a b/it's")),
    r"COMPACT INDEXTABLES '/a/it\'s'": s.Checkpoint(Target(path="/a/it's")),
    'CHECKPOINT INDEXTABLES "/a/b"': s.Checkpoint(Target(path="/a/b")),
    "CHECKPOINT INDEXTABLES cat.db.`my ``docs```": s.Checkpoint(
        Target(name=("cat", "db", "my `docs`"))
    ),
    "CHECKPOINT INDEXTABLES indextables.`/data/docs`": s.Checkpoint(
        Target(name=("indextables", "/data/docs"))
    ),
    "CHECKPOINT INDEXTABLES 2024_logs": s.Checkpoint(Target(name=("2024_logs",))),
    "DESCRIBE INDEXTABLES STATE docs": s.DescribeState(DOCS),
    "DESCRIBE INDEXTABLES TRANSACTION LOG docs": s.DescribeLog(DOCS),
    "DESCRIBE INDEXTABLES TRANSACTION LOG docs INCLUDE ALL": s.DescribeLog(DOCS, include_all=True),
    "DESCRIBE INDEXTABLES TRANSACTION LOG docs LIMIT 7": s.DescribeLog(DOCS, limit=7),
    "describe indextables transaction log 'x' include all limit 10;": s.DescribeLog(
        Target(path="x"), include_all=True, limit=10
    ),
    "DESCRIBE INDEXTABLES ENVIRONMENT": s.DescribeEnvironment(),
    "RESTORE INDEXTABLES db.docs TO VERSION 3": s.Restore(Target(name=("db", "docs")), 3),
}


@pytest.mark.parametrize("sql", OURS)
def test_ours(sql):
    assert parse(sql) == OURS[sql]


@pytest.mark.parametrize(
    "sql",
    [
        "",
        ";",
        "SELECT 1",
        "SELECT 'FLUSH INDEXTABLES SEARCHER CACHE'",
        "-- FLUSH INDEXTABLES SEARCHER CACHE",
        "DESCRIBE indextables",
        "DESCRIBE indextables foo",
        "DESCRIBE `INDEXTABLES` STATE docs",
        "DESCRIBE TABLE EXTENDED docs",
        "FLUSH TABLES",
        "CHECKPOINT docs",
        "INVALIDATE METADATA docs",
        "INVALIDATE TRANSACTION docs",
        "CHECKPOINT INDEXTABLES 'never closed",
        "EXPLAIN SELECT * FROM docs",
        # Statements of other issues: until something carries them out they are not accepted.
        "MERGE SPLITS docs",
        "PURGE INDEXTABLE docs",
        "PREWARM INDEXTABLES CACHE docs",
        "DESCRIBE INDEXTABLES COMPONENT SIZES docs",
    ],
)
def test_not_ours(sql):
    assert parse(sql) is None


@pytest.mark.parametrize(
    ("sql", "position", "message"),
    [
        ("FLUSH INDEXTABLES", 17, "expected SEARCHER or DISK, but the statement ends"),
        ("FLUSH INDEXTABLES SPLIT CACHE", 18, "expected SEARCHER or DISK, but there is 'SPLIT'"),
        ("FLUSH INDEXTABLES DISK", 22, "expected CACHE"),
        ("CHECKPOINT INDEXTABLES", 22, "a path in quotes or the name of a table"),
        ("CHECKPOINT INDEXTABLES a b", 25, "the end of the statement, but there is 'b'"),
        ("CHECKPOINT INDEXTABLES a; SELECT 1", 24, "the end of the statement"),
        ("RESTORE INDEXTABLES t TO VERSION x", 33, "a whole number, but there is 'x'"),
        ("RESTORE INDEXTABLES t TO VERSION -1", 33, "a whole number"),
        ("RESTORE INDEXTABLES t", 21, "expected TO"),
        ("DESCRIBE INDEXTABLES TRANSACTION LOG t LIMIT", 44, "a whole number"),
        ("DESCRIBE INDEXTABLES TRANSACTION LOG t INCLUDE", 46, "expected ALL"),
        ("INVALIDATE INDEXTABLES CACHE", 23, "expected TRANSACTION"),
        ("INVALIDATE TRANSACTION LOG CACHE FOR", 36, "TABLE or a path in quotes or the name"),
        ("DESCRIBE INDEXTABLES STATE", 26, "a path in quotes or the name of a table"),
    ],
)
def test_wrong(sql, position, message):
    with pytest.raises(StatementSyntaxError) as error:
        parse(sql)
    assert error.value.position == position
    assert message in str(error.value)
    assert f"at position {position}" in str(error.value)
    assert error.value.forms[0] in str(error.value)


def test_every_form_reads():
    for kind in STATEMENTS:
        for text in kind.FORMS:
            assert form(text).shown.startswith(form(text).first[0])


def test_target_as_text():
    assert str(Target(path="/a b")) == "/a b"
    assert str(Target(name=("db", "my docs"))) == "db.`my docs`"


WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        "FLUSH INDEXTABLES TANTIVY4SPARK SEARCHER CACHE DISK DESCRIBE INVALIDATE TRANSACTION LOG "
        "FOR TABLE CHECKPOINT RESTORE TO VERSION LIMIT INCLUDE ALL STATE docs 'x' `a` . ; 3 ( ) , "
        "-- /* */ '",
    )
)


@given(st.lists(WORDS, max_size=9))
def test_anything_is_parsed_passed_on_or_refused(words):
    sql = " ".join(words)
    try:
        found = parse(sql)
    except IndexTablesError as error:
        assert "Write " in str(error)
    else:
        assert found is None or isinstance(found, tuple(STATEMENTS))


def test_pairs_of_keywords_are_two_words():
    words = words_of("a GROUP BY b")
    assert words is not None
    assert [w.text for w in words] == ["a", "GROUP", "BY", "b"]
