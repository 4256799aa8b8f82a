"""Run by test_cluster in a process of its own: many queries, then what the process still holds.

Queries run from a few threads, in tasks and on the driver, with exchanges that adaptive execution
starts on threads of its own. Prints one line of JSON that the test looks at.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

WARM_UP = 100


def held(spark: Any) -> dict[str, int]:
    """Threads, sockets and megabytes of this process and of its JVM."""
    gc.collect()
    java = spark.sparkContext._jvm.java.lang
    for _ in range(3):  # what a finalizer of py4j holds is free one collection later
        java.System.gc()
        java.System.runFinalization()
    heap = java.Runtime.getRuntime()
    process = java.ProcessHandle.current().pid()
    return {
        **_process("self"),
        "python_threads": threading.active_count(),
        **{f"jvm_{name}": value for name, value in _process(process).items()},
        "jvm_megabytes": (heap.totalMemory() - heap.freeMemory()) >> 20,
    }


def _process(process: str) -> dict[str, int]:
    folder = Path("/proc") / str(process)
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    links = []
    for entry in (folder / "fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except OSError:  # the descriptor of the listing itself
            continue
    return {
        "threads": int(status["Threads"]),
        "sockets": sum(link.startswith("socket:") for link in links),
        "descriptors": len(links),
        "megabytes": int(status["VmRSS"].split()[0]) // 1024,
    }


def ask(spark: Any, path: str, number: int) -> None:
    """One small query of four kinds; its answer is checked."""
    table, word = f"indextables.`{path}`", f"w{number % 20}"
    queries = (
        (f"SELECT count(*) FROM {table} WHERE content indexquery '{word}'", 20),
        (f"SELECT sum(c) FROM (SELECT n, count(*) c FROM {table} WHERE content indexquery "
         f"'{word}' AND length(content) > 0 GROUP BY n)", 20),
        (f"SELECT sum(c) FROM (SELECT n, count(*) c FROM {table} WHERE id >= 0 GROUP BY n)", 400),
        (f"SELECT count(*) FROM {table} a JOIN {table} b ON a.id = b.id WHERE a.content indexquery "
         f"'{word}'", 20),
    )  # fmt: skip
    query, expected = queries[number % len(queries)]
    found = spark.sql(query).collect()[0][0]
    assert found == expected, (query, found)


def main(folder: str, count: str) -> None:
    import indextables
    from indextables.spark.bridge.jvm.callbacks import IDLE_SECONDS

    spark = indextables.session(
        "leaks",
        **{
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            # What Spark itself remembers of past queries would hide what is left of them.
            "spark.sql.ui.retainedExecutions": "20",
            "spark.ui.retainedJobs": "20",
            "spark.ui.retainedStages": "20",
            "spark.ui.retainedTasks": "100",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    path = f"{folder}/t"
    rows = spark.range(400, numPartitions=2).selectExpr(
        "id", "concat('fox w', id % 20) content", "cast(id % 7 as int) n"
    )
    rows.write.format("indextables").save(path)
    quiet = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda number: ask(spark, path, number), range(WARM_UP)))
        quiet.wait(IDLE_SECONDS + 15)  # connections that nobody uses are closed
        before = held(spark)
        list(pool.map(lambda number: ask(spark, path, number), range(int(count))))
        busy = held(spark)
        quiet.wait(IDLE_SECONDS + 15)
        after = held(spark)
    outcome = {"before": before, "busy": busy, "after": after, "process": os.getpid()}
    sys.stdout.write(f"OUTCOME {json.dumps(outcome)}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
