"""Cross-references from Spark: writes that index, the statements, the protocol, a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from xref_tables import XREF, named_xrefs, sizes, xref_actions, xref_files

from indextables import Table
from indextables.errors import NotAPartitionError
from indextables.log.actions import Protocol
from indextables.log.snapshot import coverage
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog

CHECK = Path(__file__).parents[1] / "support" / "xref_cluster_check.py"

AUTO = {XREF + "autoIndex.minSplitsToTrigger": "3"}
OFF = {XREF + "autoIndex.enabled": "false"}
ROUTED = {XREF + "query.minSplitsForXRef": "1"}


def write(spark, path, first, count, mode="append", options=AUTO):
    """Write so many rows, each as a split of its own."""
    ids = spark.range(first, first + count, numPartitions=count)
    frame = ids.selectExpr("id", "concat('word', id, ' fox') body", "cast(id % 2 as string) day")
    frame.write.format("indextables").mode(mode).options(**options).save(path)


def found(spark, path, word):
    frame = spark.read.format("indextables").options(**ROUTED).load(path)
    frame.createOrReplaceTempView("xref_docs")
    sql = f"SELECT id FROM xref_docs WHERE body indexquery '{word}'"
    return sorted(row.id for row in spark.sql(sql).collect())


def test_writes_index_in_their_commit(door, tmp_path):
    path = str(tmp_path / "t")
    write(door, path, 0, 4)
    table = Table.open(path)
    # The write that creates the table brings its XRef along.
    assert table.version == 0
    assert xref_actions(table, 0) == [("add", 4)]
    assert "crossReferenceIndex" in table.snapshot().protocol.writer_features
    write(door, path, 4, 3)
    assert xref_actions(table, 1) == [("add", 3)]
    write(door, path, 100, 2)
    assert xref_actions(table, 2) == []  # too few
    assert str(coverage(table.refresh().snapshot())) == "Coverage: 7/9 (77.78%)"
    assert found(door, path, "word5") == [5]
    assert found(door, path, "word101") == [101]
    assert found(door, path, "fox") == [0, 1, 2, 3, 4, 5, 6, 100, 101]
    write(door, path, 50, 3, mode="overwrite")
    assert xref_actions(table, 3) == [
        ("add", 3), ("remove", "source_changed"), ("remove", "source_changed"),
    ]  # fmt: skip
    assert found(door, path, "fox") == [50, 51, 52]
    assert xref_files(table) == named_xrefs(table)


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_executors_build_the_xrefs_of_a_write(spark, tmp_path, monkeypatch, mode):
    from indextables.spark import runner
    from indextables.spark.bridge import write as bridge_write

    assert runner.executors() is None  # local mode: threads of the driver
    monkeypatch.setattr(spark.sparkContext, "master", "spark://elsewhere:7077")
    assert isinstance(runner.executors(), runner.SparkRunner)
    monkeypatch.undo()
    called = []

    class Noted(runner.SparkRunner):
        def map(self, function, tasks, **options):
            called.append((function.__name__, len(tasks)))
            return super().map(function, tasks, **options)

    path = str(tmp_path / "t")
    write(spark, path, 0, 1)
    monkeypatch.setattr(bridge_write, "executors", lambda: Noted(spark))
    write(spark, path, 1, 4, mode=mode)
    assert called == [("run_build", 1)]
    table = Table.open(path)
    assert sizes(table) == [4 + (mode == "append")]
    assert found(spark, path, "word3") == [3]
    assert xref_files(table) == named_xrefs(table)


def test_writes_that_do_not_index(spark, tmp_path):
    path = str(tmp_path / "t")
    write(spark, path, 0, 4, options=OFF)
    write(spark, path, 4, 4, options=AUTO | {"spark.indextables.protocol.autoUpgrade": "false"})
    assert sizes(Table.open(path)) == []
    assert found(spark, path, "word6") == [6]


def test_statements(spark, tmp_path):
    path = str(tmp_path / "t")
    frame = spark.range(0, 6, numPartitions=6).selectExpr(
        "id", "concat('word', id) body", "cast(id % 2 as string) day"
    )
    frame.write.format("indextables").partitionBy("day").options(**OFF).save(path)
    dry = spark.sql(f"INDEX CROSSREFERENCES FOR '{path}' WHERE day = '0' DRY RUN").collect()
    assert [(r.partition, r.action, r.source_splits_count, r.xref_path) for r in dry] == [
        ("day = '0'", "created", 3, None)
    ]
    done = spark.sql(f"INDEX CROSSREFERENCES FOR indextables.`{path}`")
    assert done.columns == [
        "table_path", "partition", "action", "xref_path", "source_splits_count", "total_terms",
        "xref_size_bytes", "build_duration_ms",
    ]  # fmt: skip
    assert dict(done.dtypes)["source_splits_count"] == "int"
    assert [(r.action, r.source_splits_count) for r in done.collect()] == [("created", 6)]
    assert found(spark, path, "word3") == [3]
    again = spark.sql(f"INDEX CROSSREFERENCES FOR '{path}' FORCE REBUILD").collect()
    assert [r.action for r in again] == ["rebuilt"]
    shown = spark.sql(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{path}' XREFS")
    assert shown.columns == [
        "xref_path", "source_count", "total_terms", "size_bytes", "created_time", "status",
    ]  # fmt: skip
    assert dict(shown.dtypes)["created_time"] == "timestamp"
    assert [(r.status, r.source_count) for r in shown.collect()] == [
        ("active", 6), ("removed", 6), ("summary", None),
    ]  # fmt: skip
    assert shown.collect()[-1].xref_path == "Coverage: 6/6 (100.00%)"
    everything = spark.sql(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{path}' INCLUDE ALL")
    kinds = [r.action_type for r in everything.collect()]
    assert (kinds.count("addXRef"), kinds.count("removeXRef")) == (2, 1)
    with pytest.raises(NotAPartitionError):
        spark.sql(f"INDEX CROSSREFERENCES FOR '{path}' WHERE id = 1")


def test_builds_run_as_spark_tasks(spark, tmp_path):
    path = str(tmp_path / "t")
    write(spark, path, 0, 5, options=OFF)
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    spark.conf.set(XREF + "autoIndex.maxSourceSplits", "2")
    try:
        spark.sql(f"INDEX CROSSREFERENCES FOR '{path}'")
    finally:
        spark.conf.unset(XREF + "autoIndex.maxSourceSplits")
    jobs = set(tracker.getJobIdsForGroup()) - before
    stages = [s for j in jobs for s in tracker.getJobInfo(j).stageIds]
    assert max(tracker.getStageInfo(s).numTasks for s in stages) == 3
    assert sizes(Table.open(path)) == [2, 2, 1]


@pytest.fixture
def old(spark, tmp_path):
    """A table of protocol 2, by its name in Spark."""
    path = str(tmp_path / "t")
    write(spark, path, 0, 1, options=OFF)
    protocol = Protocol(min_reader_version=2, min_writer_version=2)
    log = Path(path) / "_transaction_log" / f"{0:020d}.json"
    table = Table.open(path)
    actions = [a for a in table.log.actions(0).actions if not isinstance(a, Protocol)]
    log.unlink()
    fresh = TransactionLog(table.log.store)
    keep = [a for a in actions if a.kind != "commitInfo"]
    fresh.commit(Transaction(operation=Operation.CREATE, actions=[protocol, *keep]))
    spark.sql(f"INVALIDATE TRANSACTION LOG CACHE FOR '{path}'")
    return path


def test_alter_table_raises_the_protocol_and_never_lowers_it(spark, old):
    def versions():
        protocol = Table.open(old).snapshot().protocol
        return protocol.min_reader_version, protocol.min_writer_version

    def alter(**properties):
        shown = ", ".join(f"'{k}' = '{v}'" for k, v in properties.items())
        spark.sql(f"ALTER TABLE indextables.`{old}` SET TBLPROPERTIES ({shown})")

    assert versions() == (2, 2)
    alter(minReaderVersion=3)
    assert versions() == (3, 2)
    before = Table.open(old).version
    alter(minReaderVersion=1)
    assert versions() == (3, 2)
    assert Table.open(old).version == before
    alter(minWriterVersion=4, owner2="me")
    assert versions() == (3, 4)
    assert Table.open(old).snapshot().metadata.configuration["owner2"] == "me"
    for wrong, message in (("5", "Please upgrade"), ("new", "number of a protocol")):
        with pytest.raises(Exception, match=message):
            alter(minReaderVersion=wrong)
    with pytest.raises(Exception, match="not unset"):
        spark.sql(f"ALTER TABLE indextables.`{old}` UNSET TBLPROPERTIES ('minReaderVersion')")
    assert versions() == (3, 4)


@pytest.mark.long
def test_a_cluster_indexes(tmp_path):
    done = subprocess.run(
        [sys.executable, str(CHECK), str(tmp_path / "t")],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
    assert lines, done.stderr[-3000:]
    assert json.loads(lines[0].removeprefix("OUTCOME ")) == {
        "automatic": [8],
        "executors": 2,
        "rebuilt": [["rebuilt", 3], ["rebuilt", 3], ["rebuilt", 2]],
        "builders": 2,
        "incremental": [["unchanged", 3], ["unchanged", 3], ["rebuilt", 3]],
        "found": [5],
        "all": 9,
        "coverage": "Coverage: 9/9 (100.00%)",
        "orphans": [],
    }
