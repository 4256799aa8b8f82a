"""Run by test_cluster as one of several Spark applications that write to one table at once."""

from __future__ import annotations

import sys


def main(path: str, mode: str, first: str, writes: str) -> None:
    import indextables

    spark = indextables.session(
        f"writer-{first}",
        **{
            "spark.master": "local[1]",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "600m",
            "spark.indextables.transaction.retry.maxAttempts": "50",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    for number in range(int(writes)):
        start = int(first) + 10 * number
        rows = spark.range(start, start + 10, numPartitions=1)
        rows.selectExpr("id", "concat('row ', id) s").write.format("indextables").mode(mode).save(
            path
        )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
