"""Statements on a real cluster: every executor answers, each once."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
import pyspark
os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from indextables.spark import functions, sql_entry
from indextables.spark.bridge.session_bridge import SparkHosts, _each, _run

builder = SparkSession.builder.master("local-cluster[2,1,512]")
for name, value in {
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.indextables.cache.disk.path": sys.argv[1],
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
sql_entry.install(spark)
functions.register(spark)
context = spark.sparkContext
context.setJobGroup("mine", "of the user")
answers = SparkHosts(spark).run(os.getpid)
assert [a.executor_id for a in answers] == ["driver", "0", "1"], answers
assert len({a.result for a in answers}) == 3, answers
assert context.getLocalProperty("spark.jobGroup.id") == "mine"
failed = SparkHosts(spark).run(lambda: 1 / 0)
assert [a.error for a in failed] == ["division by zero"] * 3, failed
plain = _run(context, context.parallelize(range(8), 8), _each(os.getpid))
assert set(plain) <= {"0", "1"} and plain, plain
flushed = spark.sql("FLUSH INDEXTABLES DISK CACHE").collect()
assert [(r.executor_id, r.status) for r in flushed] == [
    ("driver", "success"), ("0", "success"), ("1", "success")
], flushed
rows = spark.sql("FLUSH INDEXTABLES SEARCHER CACHE").collect()
assert "in 3 processes" in rows[0].message, rows
roles = {r.role for r in spark.sql("DESCRIBE INDEXTABLES ENVIRONMENT").collect()}
assert roles == {"driver", "executor 0", "executor 1"}, roles
import pyarrow as pa
from indextables import Table
table = Table.create(sys.argv[1] + "-table", pa.schema([("t", pa.string())]))
for word in ("red", "fox", "dog"):
    table.append(pa.table({"t": [word]}))

from indextables.log.reader import ReadVersion
from indextables.spark import runner as distributed_log
from indextables.spark.runner import SparkRunner

def kept():
    return sum(len(cache.versions) for cache, _ in distributed_log._caches.values())

def kept_by_executors():
    return [a.result for a in SparkHosts(spark).run(kept) if a.executor_id != "driver"]

tasks = [ReadVersion(table.log.store, version, 1 << 20) for version in range(4)] * 2
for _ in range(5):  # whichever executor Spark chooses
    assert len(SparkRunner(spark).map(distributed_log.read_version, tasks)) == 8
    if min(kept_by_executors()) > 0:
        break
before = kept_by_executors()
assert len(before) == 2 and max(before) > 0, before
invalidate = f"INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR '{sys.argv[1]}-table'"
rows = spark.sql(invalidate).collect()
assert kept_by_executors() == [0, 0], (before, rows, kept_by_executors())
warmed = spark.sql(f"PREWARM INDEXTABLES CACHE '{sys.argv[1]}-table'").collect()
assert [(r.status, r.splits_prewarmed) for r in warmed] == [("success", 3)] * 3, warmed
spark.createDataFrame([(1, "red fox"), (2, "dog")], "id int, t string").createOrReplaceTempView("d")
found = spark.sql("SELECT id FROM d WHERE t indexquery 'fox' AND indexqueryall('red')").collect()
assert [r.id for r in found] == [1], found
spark.stop()
"""


@pytest.mark.long
def test_every_executor_of_a_cluster_answers_once(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "replaced a previously registered function" not in done.stderr  # a first warning
