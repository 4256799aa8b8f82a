"""The grammar of our statements: what is ours, what is Spark's, what is wrong."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import IndexTablesError, StatementSyntaxError
from indextables.statements import statements as s
from indextables.statements.forms import form, words_of
from indextables.statements.statements import STATEMENTS, Target, parse

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
    r"COMPACT INDEXTABLES '/a/it\'s'": s.Compact(Target(path="/a/it's")),
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
    "CREATE SEARCH INDEX docs ON delta.`s3://lake/docs` (title, body.text)": s.CreateSearchIndex(
        DOCS, Target(name=("delta", "s3://lake/docs")), ("title", "body.text")
    ),
    "create search index if not exists 'x' on db.t "
    "options (a.b 'c', 'd'=true, e = 3) location 'y';": s.CreateSearchIndex(
        Target(path="x"),
        Target(name=("db", "t")),
        None,
        (("a.b", "c"), ("d", "true"), ("e", "3")),
        "y",
        if_not_exists=True,
    ),
    "CREATE SEARCH INDEX docs ON t (b) LOCATION 'y' OPTIONS (a 'b')": s.CreateSearchIndex(
        DOCS, Target(name=("t",)), ("b",), (("a", "b"),), "y"
    ),
    "REFRESH SEARCH INDEX docs": s.RefreshSearchIndex(DOCS),
    "REFRESH SEARCH INDEX docs ON parquet.`/new`": s.RefreshSearchIndex(
        DOCS, Target(name=("parquet", "/new"))
    ),
    "DESC SEARCH INDEX 'x'": s.DescribeSearchIndex(Target(path="x")),
    "DROP SEARCH INDEX IF EXISTS docs": s.DropSearchIndex(DOCS, if_exists=True),
    "RESTORE INDEXTABLES db.docs TO VERSION 3": s.Restore(Target(name=("db", "docs")), 3),
    "PURGE INDEXTABLE docs": s.Purge(DOCS),
    "purge indextables docs older than 2 days transaction log retention 1 day dry run;": s.Purge(
        DOCS, older_than=48, log_retention=24, dry_run=True
    ),
    "PURGE INDEXTABLE docs OLDER THAN 7 HOURS": s.Purge(DOCS, older_than=7),
    "DROP INDEXTABLES PARTITIONS FROM docs": s.DropPartitions(DOCS),
    "DROP INDEXTABLES PARTITIONS FROM docs WHERE a = 'x;' -- all": s.DropPartitions(
        DOCS, where="a = 'x;'"
    ),
    "TRUNCATE INDEXTABLES TIME TRAVEL docs DRY RUN": s.TruncateTimeTravel(DOCS, dry_run=True),
    "REPAIR INDEXFILES TRANSACTION LOG '/a' AT LOCATION '/b'": s.RepairLog("/a", "/b"),
    "CONVERT TO INDEXTABLES delta.`s3://lake/a.b` LOCATION '/b'": s.ConvertTable(
        Target(name=("delta", "s3://lake/a.b")), "/b"
    ),
    "REPAIR INDEXFILES TRANSACTION LOG '/a' AT LOCATION '/b' FROM SPLITS": s.RepairLog(
        "/a", "/b", from_splits=True
    ),
    "VERIFY INDEXTABLES docs": s.Verify(DOCS),
    "DESCRIBE INDEXTABLES COMPONENT SIZES docs WHERE a IN (1, 2)": s.DescribeComponentSizes(
        DOCS, where="a IN (1, 2)"
    ),
    "PREWARM INDEXTABLES CACHE docs": s.Prewarm(DOCS),
    "PREWARM INDEXTABLES CACHE docs ON FIELDS (a, `b c`, 'd') WHERE e = 1": s.Prewarm(
        DOCS, fields=("a", "b c", "d"), where="e = 1"
    ),
    "DELETE FROM docs": s.DeleteRows(DOCS),
    "DELETE FROM docs WHERE a indexquery 'x AND y' OR n > 1": s.DeleteRows(
        DOCS, where="a indexquery 'x AND y' OR n > 1"
    ),
    "UPDATE docs SET a = 'where', b = b + 1": s.UpdateRows(DOCS, set="a = 'where', b = b + 1"),
    "UPDATE docs SET a = 1 WHERE b = 'set' AND c": s.UpdateRows(
        DOCS, set="a = 1", where="b = 'set' AND c"
    ),
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
        "MERGE INTO docs USING other ON docs.id = other.id WHEN MATCHED THEN DELETE",
        "DROP TABLE docs",
        "TRUNCATE TABLE docs",
        "REPAIR TABLE docs",
        "PURGE docs",
        # Forms that we do not read stay Spark's.
        "DELETE FROM IDENTIFIER('docs') WHERE a = 1",
        "WITH few AS (SELECT 1) SELECT delete FROM docs",
    ],
)
def test_not_ours(sql):
    assert parse(sql) is None


def test_rows_by_an_alias_and_with_common_table_expressions():
    docs = Target(name=("docs",))
    assert parse("DELETE FROM docs AS d WHERE d.a = 1") == s.DeleteRows(docs, "d.a = 1", alias="d")
    assert parse("UPDATE docs `where` SET a = 1") == s.UpdateRows(docs, "a = 1", alias="where")
    ctes = "WITH a (x) AS (SELECT (1)), b AS (SELECT 2) "
    assert parse(f"{ctes}DELETE FROM docs") == s.DeleteRows(docs, ctes=ctes)
    with pytest.raises(StatementSyntaxError):
        parse("DELETE FROM docs d WHERE")


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
        ("PURGE INDEXTABLE t OLDER THAN -1 DAYS", 30, "a number of HOURS or DAYS"),
        ("PURGE INDEXTABLE t OLDER THAN 99999999999 DAYS", 30, "a number of HOURS or DAYS"),
        ("PURGE INDEXTABLE t OLDER THAN 3 WEEKS", 30, "a number of HOURS or DAYS"),
        ("DROP INDEXTABLES PARTITIONS FROM t WHERE", 40, "a condition, but the statement ends"),
        ("DELETE FROM t WHERE", 19, "a condition, but the statement ends"),
        ("DROP INDEXTABLES PARTITIONS t", 28, "expected FROM"),
        ("PREWARM INDEXTABLES CACHE t ON FIELDS ()", 38, "names in parentheses"),
        ("PREWARM INDEXTABLES CACHE t ON FIELDS (a, b", 38, "names in parentheses"),
        ("REPAIR INDEXFILES TRANSACTION LOG a AT LOCATION 'b'", 34, "a text in quotes"),
        ("CREATE SEARCH INDEX docs (body)", 25, "ON"),
        ("CREATE SEARCH INDEX docs ON t (body) OPTIONS ()", 45, "names and values"),
        ("CREATE SEARCH INDEX docs ON t (body) OPTIONS (a)", 45, "names and values"),
        ("REFRESH SEARCH INDEX", 20, "the name of a table"),
        ("DROP SEARCH INDEX docs CASCADE", 23, "the end of the statement"),
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
        "FOR TABLE PURGE OLDER THAN DAYS DELETE FROM WHERE UPDATE SET a=1 "
        "CHECKPOINT RESTORE TO VERSION LIMIT INCLUDE ALL STATE docs 'x' `a` . ; 3 ( ) , "
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
