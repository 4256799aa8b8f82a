"""MERGE SPLITS: its grammar, its row, and each refusal."""

from __future__ import annotations

import tempfile

import pyarrow as pa
import pytest

from indextables import Table
from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    ConfigError,
    InvalidValueError,
    NotAPartitionError,
    NotATableError,
    PredicateSyntaxError,
    StatementError,
    StatementSyntaxError,
)
from indextables.jobs.merge_splits import EMPTY, OPTIMAL, Merged
from indextables.runner import LocalRunner
from indextables.statements.execute import Session, execute
from indextables.statements.maintenance import MERGE
from indextables.statements.statements import MergeSplits, Target, parse

SCHEMA = pa.schema(
    [("id", pa.int64()), ("date", pa.date32()), ("hour", pa.int32()), ("message", pa.string())]
)


@pytest.fixture
def table(tmp_path):
    config = {keys.XREF_AUTO_INDEX.name: False}
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["date", "hour"], config=config)
    for number in range(3):
        for day, hour in (("2024-01-01", 10), ("2024-01-01", 11), ("2024-02-01", 10)):
            row = {"id": number, "date": day, "hour": hour, "message": f"word{number}"}
            column = pa.array([row["date"]]).cast(pa.date32())
            table.append(pa.table([[number], column, [hour], [row["message"]]], schema=SCHEMA))
    return table


@pytest.fixture
def session(table):
    return Session(lambda target: Table.open(target.path or table.uri))


def run(sql, session):
    found = execute(parse(sql), session)
    assert found.schema == MERGE
    (row,) = found.to_pylist()
    return row


T = Target(path="/t")
GRAMMAR = {
    "MERGE SPLITS 's3://bucket/my-table';": MergeSplits(Target(path="s3://bucket/my-table")),
    "MERGE SPLITS my_table TARGET SIZE 2147483648;  -- 2GB in bytes": MergeSplits(
        Target(name=("my_table",)), target_size="2147483648"
    ),
    "MERGE SPLITS my_table TARGET SIZE 100M;": MergeSplits(
        Target(name=("my_table",)), target_size="100M"
    ),
    "merge splits a.b.`c d` target size '1.5 G'": MergeSplits(
        Target(name=("a", "b", "c d")), target_size="1.5 G"
    ),
    "MERGE SPLITS events WHERE date = '2024-01-01' AND hour = 10;": MergeSplits(
        Target(name=("events",)), where="date = '2024-01-01' AND hour = 10"
    ),
    "MERGE SPLITS my_table MAX GROUPS 5;": MergeSplits(Target(name=("my_table",)), max_groups=5),
    "MERGE SPLITS '/t' MAX DEST SPLITS 5": MergeSplits(T, max_groups=5),
    "MERGE SPLITS '/t' MAX GROUPS '5'": MergeSplits(T, max_groups=5),
    "MERGE SPLITS '/t' PRECOMMIT MAX GROUPS 5 TARGET SIZE 1G WHERE a = 1": MergeSplits(
        T, where="a = 1", target_size="1G", max_groups=5, precommit=True
    ),
    "MERGE SPLITS '/t' MAX SOURCE SPLITS PER MERGE 7": MergeSplits(T, max_sources=7),
    "MERGE SPLITS events\nWHERE date >= '2024-01-01' AND date <= '2024-01-31'\nTARGET SIZE 500M\n"
    "MAX GROUPS 10;": MergeSplits(
        Target(name=("events",)),
        where="date >= '2024-01-01' AND date <= '2024-01-31'",
        target_size="500M",
        max_groups=10,
    ),
    "MERGE SPLITS my_table PRECOMMIT;": MergeSplits(Target(name=("my_table",)), precommit=True),
    "MERGE SPLITS '/t' WHERE p = 'TARGET SIZE 1' TARGET SIZE 2G MAX DEST SPLITS 1 "
    "MAX SOURCE SPLITS PER MERGE 3 PRECOMMIT": MergeSplits(
        T,
        where="p = 'TARGET SIZE 1'",
        target_size="2G",
        max_groups=1,
        max_sources=3,
        precommit=True,
    ),
}


@pytest.mark.parametrize("sql", GRAMMAR)
def test_grammar(sql):
    assert parse(sql) == GRAMMAR[sql]


@pytest.mark.parametrize(
    "sql",
    [
        "MERGE SPLITS",
        "MERGE SPLITS '/t' WHERE",
        "MERGE SPLITS '/t' TARGET SIZE",
        "MERGE SPLITS '/t' TARGET SIZE -5",
        "MERGE SPLITS '/t' MAX GROUPS many",
        "MERGE SPLITS '/t' MAX GROUPS -1",
        "MERGE SPLITS '/t' MAX SOURCE SPLITS 5",
        "MERGE SPLITS '/t', '/u'",
    ],
)
def test_what_does_not_parse(sql):
    with pytest.raises(StatementSyntaxError, match="MERGE SPLITS <table>"):
        parse(sql)


def test_the_other_merge_is_sparks():
    assert parse("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE") is None


def test_the_row(table, session):
    row = run(f"MERGE SPLITS '{table.uri}'", session)
    assert row["table_path"] == table.uri
    metrics = row["metrics"]
    assert (metrics["status"], metrics["merged_files"], metrics["merge_groups"]) == (
        "success", 9, 3,
    )  # fmt: skip
    assert metrics["merged_size_bytes"] == sum(table.refresh().snapshot().files["size"].to_pylist())
    assert metrics["original_size_bytes"] > metrics["merged_size_bytes"]
    assert metrics["message"] == "Merged 9 files into 3"
    assert row["temp_directory_path"] == tempfile.gettempdir()
    assert row["heap_size_bytes"] == 1 << 30
    assert MERGE.names == ["table_path", "metrics", "temp_directory_path", "heap_size_bytes"]
    again = run(f"MERGE SPLITS '{table.uri}'", session)
    assert (again["metrics"]["status"], again["metrics"]["message"]) == ("no_action", OPTIMAL)
    assert again["metrics"]["merged_files"] == 0


def test_clauses_have_an_effect(table, session):
    where = "WHERE date = '2024-01-01' AND hour = 10"
    row = run(f"MERGE SPLITS '{table.uri}' {where} TARGET SIZE 100M", session)
    assert row["metrics"]["merged_files"] == 3
    row = run(f"MERGE SPLITS '{table.uri}' TARGET SIZE 1G MAX GROUPS 1", session)
    assert row["metrics"]["merge_groups"] == 1
    row = run(f"MERGE SPLITS '{table.uri}' MAX SOURCE SPLITS PER MERGE 2", session)
    assert row["metrics"]["merged_files"] == 2
    assert table.refresh().count() == 9


def test_folder_and_heap_are_those_of_the_configuration(table, session, tmp_path):
    settings = {keys.MERGE_HEAP_SIZE.name: "50M", keys.MERGE_TEMP_DIRECTORY.name: str(tmp_path)}
    ours = Session(session.resolve, Config(settings))
    row = run("MERGE SPLITS t PRECOMMIT", ours)
    assert (row["heap_size_bytes"], row["temp_directory_path"]) == (50 << 20, str(tmp_path))


def test_it_runs_where_the_session_says(table, session):
    tasks = []

    class Watching(LocalRunner):
        def map(self, function, given, *, timeout_s=None, ended=None):
            tasks.extend(given)
            return super().map(function, given, timeout_s=timeout_s)

    run(f"MERGE SPLITS '{table.uri}'", Session(session.resolve, runner=Watching(1)))
    assert len(tasks) == 3


def test_precommit_has_nothing_to_do_on_a_committed_table(table, session):
    version = table.version
    row = run(f"MERGE SPLITS '{table.uri}' PRECOMMIT", session)
    assert row["metrics"]["status"] == "no_action"
    assert "mergePrecommit" in row["metrics"]["message"]
    assert table.version == version


def test_what_is_not_a_table_is_an_error(session, tmp_path):
    with pytest.raises(NotATableError, match="not an index table"):
        run(f"MERGE SPLITS '{tmp_path}/none'", session)
    assert not (tmp_path / "none").exists()


def test_a_merge_of_which_every_group_fails_is_an_error(session, table, monkeypatch):
    from indextables.table import Table

    nothing = Merged("error", "No group could be merged: disk full", 3)
    monkeypatch.setattr(Table, "merge_splits", lambda *_args, **_named: nothing)
    with pytest.raises(StatementError, match="disk full"):
        run(f"MERGE SPLITS '{table.uri}'", session)


def test_an_empty_table_is_a_row(session, tmp_path):
    Table.create(tmp_path / "empty", SCHEMA)
    row = run(f"MERGE SPLITS '{tmp_path}/empty'", session)
    assert (row["metrics"]["status"], row["metrics"]["message"]) == ("no_action", EMPTY)


@pytest.mark.parametrize(
    ("clause", "error", "match"),
    [
        ("TARGET SIZE 1000", ConfigError, "Target size must be at least 1MB: 1000"),
        ("TARGET SIZE 1023K", ConfigError, "Target size must be at least 1MB: 1023K"),
        ("TARGET SIZE 0", ConfigError, "at least 1MB"),
        ("TARGET SIZE huge", InvalidValueError, "a size in bytes"),
        ("MAX GROUPS 0", ConfigError, "at least 1, not 0"),
        ("MAX DEST SPLITS 0", ConfigError, "at least 1, not 0"),
        ("MAX SOURCE SPLITS PER MERGE 1", ConfigError, "at least 2 splits"),
        ("WHERE id = 1", NotAPartitionError, "'id'"),
        ("WHERE message = 'x' AND hour = 1", NotAPartitionError, "'message'"),
        ("WHERE hour =", PredicateSyntaxError, "hour ="),
    ],
)
def test_refusals(table, session, clause, error, match):
    version = table.version
    with pytest.raises(error, match=match):
        run(f"MERGE SPLITS '{table.uri}' {clause}", session)
    assert table.version == version
