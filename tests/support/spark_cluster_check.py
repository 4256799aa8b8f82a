"""Run by test_cluster in a process of its own: a cluster of several processes writes and reads.

Prints one line of JSON that the test looks at.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def executor_pids(application: str) -> list[int]:
    """The processes of an application's executors."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                is_executor = b"CoarseGrainedExecutorBackend" in command
                # The launcher's shell has the same words in one argument.
                if is_executor and command.startswith((b"java", b"/")) and b"-cp" in command:
                    found += [int(folder.name)] if application.encode() in command else []
    return sorted(found)


@contextlib.contextmanager
def one_executor_killed(spark: Any) -> Iterator[dict[str, int]]:
    """Kill an executor as soon as tasks run; tells how many ran then."""
    context = spark.sparkContext
    victims = executor_pids(context.applicationId)
    tracker, done = context.statusTracker(), threading.Event()
    told: dict[str, int] = {"executors": len(victims), "running": 0}

    def kill() -> None:
        while not done.wait(0.02):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            told["running"] = sum(stage.numActiveTasks for stage in stages if stage)
            if told["running"] and not done.wait(0.5):
                os.kill(victims[0], signal.SIGKILL)
                return

    watcher = threading.Thread(target=kill)
    watcher.start()
    try:
        yield told
    finally:
        done.set()
        watcher.join()


def main(path: str, master: str = "local-cluster[2,1,1024]") -> None:
    import indextables
    from indextables import Table

    spark = indextables.session(
        "cluster",
        **{
            "spark.master": master,
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "800m",
            "spark.task.maxFailures": "4",
            "spark.indextables.read.driver.maxRows": "0",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(2000, numPartitions=4).selectExpr(
        "id", "concat('red fox ', id) content", "cast(id % 2 as string) p"
    )
    rows.write.format("indextables").partitionBy("p").save(path)
    outcome: dict[str, object] = {"written": Table.open(path).count()}
    table = f"indextables.`{path}`"
    search = f"SELECT id FROM {table} WHERE content indexquery '7 OR 8'"
    outcome["found"] = sorted(row.id for row in spark.sql(search).collect())

    # One core for each executor and many tasks: the kill meets a write that is under way.
    many = spark.range(400, numPartitions=16).selectExpr(
        "id", "concat('blue fox ', id) content", "'2' p"
    )
    with one_executor_killed(spark) as told:
        many.write.format("indextables").mode("append").save(path)
    outcome["executors"] = told["executors"]
    outcome["write_killed"] = told["running"] > 0
    outcome["after_kill"] = Table.open(path).count()
    every = (
        f"SELECT id, p, slowly(content) FROM indextables.`{path}` WHERE content indexquery 'fox'"
    )
    spark.udf.register("slowly", _slowly, "string")
    with one_executor_killed(spark) as told:
        found = [(row.id, row.p) for row in spark.sql(every).collect()]
    outcome["read_killed"] = told["running"] > 0
    outcome["read"] = [len(found), len(set(found))]
    outcome["searched"] = spark.sql(
        f"SELECT count(*) FROM {table} WHERE content indexquery 'fox'"
    ).collect()[0][0]
    spark.sql(f"MERGE SPLITS '{path}' TARGET SIZE 100M").collect()
    outcome["splits"] = Table.open(path).snapshot().num_files
    outcome["merged"] = sorted(row.id for row in spark.sql(search).collect())
    sys.stdout.write(f"OUTCOME {json.dumps(outcome)}\n")
    spark.stop()


def _slowly(text: str) -> str:
    threading.Event().wait(0.002)
    return text


if __name__ == "__main__":
    main(*sys.argv[1:])
