"""INDEX CROSSREFERENCES and DESCRIBE … XREFS: grammar, columns, rows."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pyarrow as pa
import pytest
from logs import xref
from xref_tables import OFF, QUICK, SCHEMA, XREF, auto, grow, rows

from indextables import Table
from indextables.config import Config
from indextables.errors import (
    NotAPartitionError,
    NotATableError,
    StatementSyntaxError,
    UnusableXRefError,
)
from indextables.log.actions import Remove
from indextables.log.transaction import Operation, Transaction
from indextables.runner import LocalRunner
from indextables.statements import statements as s
from indextables.statements.execute import Session, execute
from indextables.statements.statements import Target, may_be_ours, parse

DOCS = Target(name=("docs",))

STATEMENTS = {
    "INDEX CROSSREFERENCES FOR docs": s.IndexCrossReferences(DOCS),
    "index crossreferences for 's3://b/t';": s.IndexCrossReferences(Target(path="s3://b/t")),
    "INDEX CROSSREFERENCES FOR docs FORCE REBUILD": s.IndexCrossReferences(
        DOCS, force_rebuild=True
    ),
    "INDEX CROSSREFERENCES FOR docs DRY RUN": s.IndexCrossReferences(DOCS, dry_run=True),
    "INDEX CROSSREFERENCES FOR cat.db.docs WHERE date = '2024-01-15'": s.IndexCrossReferences(
        Target(name=("cat", "db", "docs")), where="date = '2024-01-15'"
    ),
    "INDEX CROSSREFERENCES FOR docs WHERE a = 1 AND b IN ('DRY', 'RUN') FORCE REBUILD DRY RUN":
        s.IndexCrossReferences(
            DOCS, where="a = 1 AND b IN ('DRY', 'RUN')", force_rebuild=True, dry_run=True
        ),
    "DESCRIBE INDEXTABLES TRANSACTION LOG docs XREFS": s.DescribeLog(DOCS, xrefs=True),
    "DESC INDEXTABLES TRANSACTION LOG docs INCLUDE ALL XREFS LIMIT 3": s.DescribeLog(
        DOCS, include_all=True, xrefs=True, limit=3
    ),
}  # fmt: skip


@pytest.mark.parametrize("sql", STATEMENTS)
def test_grammar(sql):
    assert parse(sql) == STATEMENTS[sql]


@pytest.mark.parametrize(
    "sql",
    ["INDEX CROSSREFERENCES docs", "INDEX CROSSREFERENCES FOR docs REBUILD",
     "INDEX CROSSREFERENCES FOR docs DRY RUN FORCE REBUILD",
     "DESCRIBE INDEXTABLES TRANSACTION LOG docs LIMIT 3 XREFS"],
)  # fmt: skip
def test_what_does_not_fit_is_named(sql):
    with pytest.raises(StatementSyntaxError, match="Write "):
        parse(sql)


def test_the_name_of_the_format_is_no_statement():
    assert not may_be_ours("SELECT * FROM indextables.`/a`")


@pytest.fixture
def table(uri):
    config = {**OFF, **QUICK}
    return Table.create(uri, SCHEMA, partition_by=["day"], config=config)


@pytest.fixture
def run(uri):
    settings = {**OFF, **QUICK, XREF + "autoIndex.maxSourceSplits": 4}
    session = Session(lambda target: Table.open(target.path, config=settings))
    return lambda sql: execute(parse(sql.format(uri)), session)


INDEX = "INDEX CROSSREFERENCES FOR '{}'"
DESCRIBE = "DESCRIBE INDEXTABLES TRANSACTION LOG '{}'"


def test_index_columns(table, run):
    grow(table, 0, 3)
    found = run(INDEX)
    assert found.schema == pa.schema(
        {
            "table_path": pa.string(),
            "partition": pa.string(),
            "action": pa.string(),
            "xref_path": pa.string(),
            "source_splits_count": pa.int32(),
            "total_terms": pa.int64(),
            "xref_size_bytes": pa.int64(),
            "build_duration_ms": pa.int64(),
        }
    )
    (row,) = found.to_pylist()
    (made,) = table.refresh().snapshot().xrefs.values()
    assert row == {
        "table_path": table.uri,
        "partition": "",
        "action": "created",
        "xref_path": made.path,
        "source_splits_count": 3,
        "total_terms": made.total_terms,
        "xref_size_bytes": made.size,
        "build_duration_ms": made.build_duration_ms,
    }
    again = run(INDEX).to_pylist()
    assert again == [row | {"action": "unchanged", "build_duration_ms": 0}]


def test_all_its_options(table, run):
    grow(table, 0, 2, "a")
    grow(table, 2, 2, "b")

    def done(sql):
        columns = ["partition", "action", "source_splits_count"]
        return [tuple(row.values()) for row in run(sql).select(columns).to_pylist()]

    where = "day = 'a'"
    assert done(f"{INDEX} WHERE {where} DRY RUN") == [(where, "created", 2)]
    assert table.snapshot().xrefs == {}
    assert run(f"{INDEX} WHERE {where} DRY RUN")["xref_path"].to_pylist() == [None]
    assert done(f"{INDEX} WHERE {where}") == [(where, "created", 2)]
    assert done(INDEX) == [("", "rebuilt", 4)]
    assert done(f"{INDEX} FORCE REBUILD") == [("", "rebuilt", 4)]
    assert done(f"{INDEX} FORCE REBUILD DRY RUN") == [("", "rebuilt", 4)]
    grow(table, 4, 1)
    assert done(INDEX) == [("", "unchanged", 4), ("", "created", 1)]
    with pytest.raises(NotAPartitionError):
        run(f"{INDEX} WHERE id = 1")


def test_the_runner_of_the_session_builds(table, uri):
    grow(table, 0, 2)
    calls = []

    class Noted(LocalRunner):
        def map(self, function, tasks, *, timeout_s=None, ended=None):
            calls.append(len(tasks))
            return super().map(function, tasks, timeout_s=timeout_s)

    session = Session(lambda target: Table.open(target.path), runner=Noted(2))
    execute(parse(INDEX.format(uri)), session)
    assert calls == [1]


def test_no_table(run):
    with pytest.raises(NotATableError):
        run(INDEX)


def test_describe_xrefs(table, run):
    grow(table, 0, 5)
    run(INDEX)
    table.delete(where="id = 4")
    run(INDEX)
    grow(table, 5, 1)
    found = run(f"{DESCRIBE} XREFS")
    assert found.schema == pa.schema(
        {
            "xref_path": pa.string(),
            "source_count": pa.int64(),
            "total_terms": pa.int64(),
            "size_bytes": pa.int64(),
            "created_time": pa.timestamp("us", "UTC"),
            "status": pa.string(),
        }
    )
    *xrefs, summary = found.to_pylist()
    assert [(row["source_count"], row["status"]) for row in xrefs] == [
        (4, "active"), (1, "removed"),
    ]  # fmt: skip
    (made,) = table.snapshot().xrefs.values()
    created = datetime.datetime.fromtimestamp(made.created_time / 1000, datetime.UTC)
    assert xrefs[0] == {
        "xref_path": made.path,
        "source_count": 4,
        "total_terms": made.total_terms,
        "size_bytes": made.size,
        "created_time": created,
        "status": "active",
    }
    assert summary["xref_path"] == "Coverage: 4/5 (80.00%)"
    assert summary["status"] == "summary"
    assert {v for k, v in summary.items() if k not in ("xref_path", "status")} == {None}
    limited = run(f"{DESCRIBE} XREFS LIMIT 1")["status"].to_pylist()
    assert limited == ["active", "summary"]


def test_describe_xrefs_of_an_empty_table(table, run):
    (summary,) = run(f"{DESCRIBE} XREFS").to_pylist()
    assert summary["xref_path"] == "Coverage: 0/0 (100.00%)"


def test_removed_xrefs_are_listed_while_a_version_or_a_checkpoint_names_them(table, run, tmp_path):
    grow(table, 0, 2)
    run(INDEX)
    table.checkpoint()
    table.drop_crossreferences()
    log = tmp_path / "docs/_transaction_log"
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    statuses = run(f"{DESCRIBE} XREFS").select(["source_count", "status"]).to_pylist()
    assert statuses[0] == {"source_count": 2, "status": "removed"}
    # The removal alone is left: it names the XRef and knows nothing else.
    foreign = xref("gone", "a")
    table.log.store.put(foreign.path, b"")
    table.log.commit(Transaction(operation=Operation.XREF, actions=[foreign]))
    table.drop_crossreferences()
    table.checkpoint()
    (log / f"{table.version - 1:020d}.json").unlink()
    for state in log.glob("state-v*3"):
        for file in state.iterdir():
            file.unlink()
        state.rmdir()
    rows = run(f"{DESCRIBE} XREFS").to_pylist()
    assert (foreign.path, None, "removed") in [
        (row["xref_path"], row["source_count"], row["status"]) for row in rows
    ]


def test_xref_rows_in_include_all(uri, run):
    table = Table.create(uri, SCHEMA, config={**QUICK, **auto()})
    grow(table, 0, 3)
    table.overwrite(rows(9))
    found = run(f"{DESCRIBE} INCLUDE ALL").to_pylist()
    shown = [
        (row["version"], row["action_type"], row["source_count"], row["partition"])
        for row in found
        if "XRef" in row["action_type"]
    ]
    assert shown == [(4, "removeXRef", 3, None), (3, "addXRef", 3, None)]
    (added,) = [row for row in found if row["action_type"] == "addXRef"]
    assert added["size"] > 0
    assert added["path"].startswith("_xrefsplits/")


def test_times_of_a_condition_are_meant_in_the_sessions_zone(tmp_path):
    schema = pa.schema([("body", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    path = str(tmp_path / "t")
    table = Table.create(path, schema, partition_by=["at"], config=OFF)
    for hour in (0, 5):
        at = datetime.datetime(2024, 1, 1, hour, tzinfo=datetime.UTC)
        table.append(pa.table({"body": ["fox"], "at": [at]}, schema=schema))
    for zone, hour in (("UTC", 0), ("America/New_York", 5)):
        session = Session(lambda target: Table.open(target.path), Config(OFF), timezone=zone)
        statement = f"INDEX CROSSREFERENCES FOR '{path}' WHERE at = '2024-01-01' FORCE REBUILD"
        execute(parse(statement), session)
        (xref,) = Table.open(path).snapshot().xrefs.values()
        assert f"T{hour:02d}" in xref.source_split_paths[0]
        Table.open(path).drop_crossreferences()


def test_a_feature_of_readers_is_accepted(tmp_path):
    table = Table.create(str(tmp_path / "t"), SCHEMA, config=OFF)
    protocol = replace(table.snapshot().protocol, reader_features=("crossReferenceIndex",))
    table.log.commit(Transaction(operation=Operation.PROTOCOL, actions=[protocol]))
    table.append(rows(1))
    assert Table.open(str(tmp_path / "t")).count() == 1


def test_only_xrefs_that_cover_a_candidate_are_asked(tmp_path):
    path = str(tmp_path / "t")
    alone = {XREF + "query.fallbackOnError": False, XREF + "autoIndex.maxSourceSplits": 3}
    config = {**QUICK, **OFF, **alone}
    table = Table.create(path, SCHEMA, partition_by=["day"], config=config)
    grow(table, 0, 3, "a")
    table.index_crossreferences(where="day = 'a'")
    grow(table, 3, 3, "b")
    table.index_crossreferences(where="day = 'b'")
    assert len(table.snapshot().xrefs) == 2
    damaged = next(x for x in table.snapshot().xrefs.values() if "day=a" in x.source_split_paths[0])
    (tmp_path / "t" / damaged.path).unlink()
    # Without a fallback an XRef that cannot be read fails the query; this one has no part in it.
    assert table.count(where="day = 'b' AND body indexquery 'word4'") == 1
    assert "by 1 XRefs" in str(table.explain(where="day = 'b' AND body indexquery 'word4'"))
    with pytest.raises(UnusableXRefError):
        table.count(where="day = 'a' AND body indexquery 'word1'")
    grow(table, 6, 1, "c")
    assert "none covers" in str(table.explain(where="day = 'c' AND body indexquery 'word6'"))
    assert table.count(where="day = 'c' AND body indexquery 'word6'") == 1


def test_a_merge_removes_with_the_statistics_of_its_sources(tmp_path):
    table = Table.create(str(tmp_path / "t"), SCHEMA, config=OFF)
    grow(table, 0, 3)
    entries = table.snapshot().entries.select(["path", "stats"]).to_pylist()
    before = {entry["path"]: entry["stats"] for entry in entries}
    table.merge_splits(target_size="1G")
    removes = [a for a in table.log.actions(table.version).actions if isinstance(a, Remove)]
    assert {one.path: one.stats for one in removes} == before
    assert all(one.extended_file_metadata and one.size for one in removes)
