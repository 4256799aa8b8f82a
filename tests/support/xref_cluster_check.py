"""Run by test_crossreferences in a process of its own: two executors index a table.

Prints one line of JSON that the test looks at.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from xref_tables import XREF, named_xrefs, sizes, xref_files


def main(path: str) -> None:
    import indextables
    from indextables import Table
    from indextables.log.snapshot import coverage
    from indextables.spark.runner import SparkRunner

    spark = indextables.session(
        "cluster",
        **{
            "spark.master": "local-cluster[2,1,1024]",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.indextables.read.driver.maxRows": "0",
            XREF + "autoIndex.minSplitsToTrigger": "3",
            XREF + "query.minSplitsForXRef": "1",
        },
    )
    spark.sparkContext.setLogLevel("OFF")

    def rows(first: int, count: int) -> Any:
        ids = spark.range(first, first + count, numPartitions=count)
        return ids.selectExpr("id", "concat('word', id, ' fox') content")

    rows(0, 8).write.format("indextables").save(path)
    outcome: dict[str, Any] = {"automatic": sizes(Table.open(path))}
    outcome["executors"] = len(set(SparkRunner(spark).map(_parent, list(range(8)))))
    spark.conf.set(XREF + "autoIndex.maxSourceSplits", "3")

    def index(options: str = "") -> list[Any]:
        done = spark.sql(f"INDEX CROSSREFERENCES FOR '{path}' {options}").collect()
        return [[row.action, row.source_splits_count] for row in done]

    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    outcome["rebuilt"] = index("FORCE REBUILD")
    jobs = set(tracker.getJobIdsForGroup()) - before
    stages = [stage for job in jobs for stage in tracker.getJobInfo(job).stageIds]
    tasks = max(tracker.getStageInfo(stage).numTasks for stage in stages)
    outcome["builders"] = min(tasks, 2)
    spark.conf.set(XREF + "autoIndex.enabled", "false")
    rows(100, 1).write.format("indextables").mode("append").save(path)
    outcome["incremental"] = index()
    frame = spark.read.format("indextables").load(path)
    frame.createOrReplaceTempView("docs")
    search = "SELECT id FROM docs WHERE content indexquery 'word5'"
    outcome["found"] = [row.id for row in spark.sql(search).collect()]
    outcome["all"] = frame.where("content indexquery 'fox'").count()
    table = Table.open(path)
    outcome["coverage"] = str(coverage(table.snapshot()))
    outcome["orphans"] = sorted(xref_files(table) - named_xrefs(table))
    sys.stdout.write(f"OUTCOME {json.dumps(outcome)}\n")
    spark.stop()


def _parent(_: int) -> int:
    return os.getppid()


if __name__ == "__main__":
    main(sys.argv[1])
