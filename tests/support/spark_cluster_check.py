"""Run by test_cluster in a process of its own: a cluster of several processes writes and reads.

Prints one line of JSON that the test looks at.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path


def children(pid: int) -> list[int]:
    found = subprocess.run(
        ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split()
    return [int(one) for one in found]


def executor_pids(java: int) -> list[int]:
    """Processes of executors below the driver's JVM."""
    found = []
    for child in children(java):
        command = Path(f"/proc/{child}/cmdline").read_bytes()
        found += [child] if b"CoarseGrainedExecutorBackend" in command else executor_pids(child)
    return found


def main(path: str) -> None:
    import indextables
    from indextables import Table

    spark = indextables.session(
        "cluster",
        **{
            "spark.master": "local-cluster[2,1,1024]",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.task.maxFailures": "4",
            "spark.indextables.read.driver.maxRows": "0",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(2000, numPartitions=4).selectExpr(
        "id", "concat('red fox ', id) content", "cast(id % 2 as string) p"
    )
    rows.write.format("indextables").partitionBy("p").save(path)
    outcome = {"written": Table.open(path).count()}
    search = f"SELECT id FROM indextables.`{path}` WHERE content indexquery '7 OR 8'"
    outcome["found"] = sorted(row.id for row in spark.sql(search).collect())

    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    victims = executor_pids(java)
    outcome["executors"] = len(victims)
    # One core for each executor and many tasks: the kill meets a write that is under way.
    many = spark.range(400, numPartitions=16).selectExpr(
        "id", "concat('blue fox ', id) content", "'2' p"
    )

    def kill() -> None:
        os.kill(victims[0], signal.SIGKILL)

    timer = threading.Timer(1.5, kill)
    timer.start()
    many.write.format("indextables").mode("append").save(path)
    timer.join()
    outcome["after_kill"] = Table.open(path).count()
    outcome["distinct"] = spark.sql(
        f"SELECT count(DISTINCT id, p) FROM indextables.`{path}`"
    ).collect()[0][0]
    outcome["searched"] = spark.sql(
        f"SELECT count(*) FROM indextables.`{path}` WHERE content indexquery 'fox'"
    ).collect()[0][0]
    sys.stdout.write(f"OUTCOME {json.dumps(outcome)}\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
