"""Merging through Spark: the statement on executors, and before a commit."""

from __future__ import annotations

import pytest

from indextables import Table, errors

COLUMNS = "id long, day string, body string"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "docs")


def frame(spark, start, count, tasks):
    rows = [(i, f"d{i % 2}", f"word{i} common") for i in range(start, start + count)]
    return spark.createDataFrame(rows, COLUMNS).repartition(tasks)


def ids(spark, path, where="true"):
    found = spark.read.format("indextables").load(path).where(where).select("id").collect()
    return sorted(row.id for row in found)


def test_merge_splits_runs_on_the_executors(spark, path, monkeypatch):
    frame(spark, 0, 40, 4).write.format("indextables").partitionBy("day").save(path)
    frame(spark, 40, 40, 4).write.format("indextables").mode("append").save(path)
    before = Table.open(path)
    files = before.snapshot().num_files
    assert files > 8
    best = before.search("word7 common", limit=20)

    def here(*_):
        raise AssertionError("a task ran on the driver")

    monkeypatch.setattr("indextables.jobs.merge_groups.local_runner", here)
    monkeypatch.setattr("indextables.jobs.merge_splits.local_runner", here)
    (row,) = spark.sql(f"MERGE SPLITS '{path}' WHERE day = 'd1' TARGET SIZE 100M;").collect()
    assert row.metrics.status == "success"
    assert row.metrics.merge_groups == 1
    (row,) = spark.sql(f"merge splits indextables.`{path}`").collect()
    assert row.asDict().keys() == {
        "table_path", "metrics", "temp_directory_path", "heap_size_bytes",
    }  # fmt: skip
    assert list(row.metrics.asDict()) == [
        "status", "merged_files", "merge_groups", "original_size_bytes", "merged_size_bytes",
        "message",
    ]  # fmt: skip
    assert row.metrics.merge_groups == 1
    table = Table.open(path)
    assert table.snapshot().num_files == 2
    assert ids(spark, path) == list(range(80))
    assert ids(spark, path, "body indexquery 'word13'") == [13]
    assert table.search("word7 common", limit=20) == best
    again = spark.sql(f"MERGE SPLITS '{path}'").first()
    assert again.metrics.message == "All splits are already optimal size"


def test_refusals_are_sentences(spark, path):
    frame(spark, 0, 4, 2).write.format("indextables").partitionBy("day").save(path)
    with pytest.raises(errors.ConfigError, match="at least 1MB"):
        spark.sql(f"MERGE SPLITS '{path}' TARGET SIZE 1K")
    with pytest.raises(errors.NotAPartitionError, match="'id'"):
        spark.sql(f"MERGE SPLITS '{path}' WHERE id = 1")
    with pytest.raises(errors.NotATableError, match="not an index table"):
        spark.sql(f"MERGE SPLITS '{path}-not'")


def test_a_write_merges_its_splits_before_they_are_committed(door, path):
    writer = frame(door, 0, 60, 6).write.format("indextables").option("mergePrecommit", "true")
    writer.partitionBy("day").save(path)
    table = Table.open(path)
    assert table.version == 0
    assert table.snapshot().num_files == 2
    more = frame(door, 60, 60, 6).write.format("indextables").mode("append")
    more.option("spark.indextables.mergePrecommit", "true").save(path)
    assert table.refresh().snapshot().num_files == 4
    assert ids(door, path) == list(range(120))
    assert ids(door, path, "body indexquery 'word77'") == [77]


def test_splits_are_merged_after_a_write(door, path):
    on = {
        "spark.indextables.mergeOnWrite.enabled": "true",
        "spark.indextables.mergeOnWrite.batchCpuFraction": "0",
    }
    frame(door, 0, 40, 4).write.format("indextables").options(**on).save(path)
    table = Table.open(path)
    assert table.snapshot().num_files == 1
    assert table.history(limit=1)["operation"].to_pylist() == ["MERGE SPLITS"]
    assert ids(door, path) == list(range(40))
