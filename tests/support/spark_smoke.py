"""What a Spark version can do with index tables, through each door. Prints one line of JSON.

Run with the interpreter of an environment that has the version: `python spark_smoke.py FOLDER`.
With `--connect` it starts a Spark Connect server in its own process and is a client of it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from typing import Any

ROWS = 500


def checks(spark: Any, path: str, *, catalog: bool) -> dict[str, Any]:
    """Each check and what it gave; an error is its first line."""
    import indextables

    rows = spark.range(ROWS).selectExpr(
        "id", "concat('red fox w', id % 50) content", "cast(id % 2 as string) p"
    )
    source = "indextables"

    def write() -> int:
        rows.write.format(source).mode("append").option("partitionBy", "p").save(path)
        return read().count()

    def read() -> Any:
        return spark.read.format(source).load(path)

    def overwrite() -> int:
        rows.where("id < 100").write.format(source).mode("overwrite").save(path + "-2")
        rows.where("id < 10").write.format(source).mode("overwrite").save(path + "-2")
        return spark.read.format(source).load(path + "-2").count()

    def in_sql(query: str) -> list[Any]:
        read().createOrReplaceTempView("smoke")
        return [list(row) for row in spark.sql(query).collect()]

    named = f"indextables.`{path}`"
    found: dict[str, Any] = {}
    todo: dict[str, Any] = {
        "write": write,
        "overwrite": overwrite,
        "search": lambda: read().where(indextables.indexquery("content", "w7")).count(),
        "search in SQL": lambda: in_sql("SELECT count(*) FROM smoke WHERE content indexquery 'w7'"),
        "select list": lambda: in_sql(
            "SELECT count(*) FROM (SELECT content indexquery 'w7' AS hit FROM smoke) WHERE hit"
        ),
        "aggregate": lambda: in_sql(
            "SELECT p, count(*) FROM smoke WHERE content indexquery 'w7' GROUP BY p"
        ),
        "statement": lambda: spark.sql("FLUSH INDEXTABLES SEARCHER CACHE").count() > 0,
    }
    if catalog:
        todo |= {
            "catalog": lambda: in_sql(f"SELECT count(*) FROM {named}"),
            "catalog search": lambda: in_sql(
                f"SELECT count(*) FROM {named} WHERE content indexquery 'w7'"
            ),
            "score": lambda: in_sql(
                f"SELECT count(*) FROM (SELECT _score FROM {named} WHERE content indexquery 'w7' "
                "ORDER BY _score DESC LIMIT 3)"
            ),
            "tasks": lambda: in_tasks(
                spark, f"SELECT id FROM {named} WHERE content indexquery 'w7'"
            ),
            "native": lambda: in_tasks(spark, f"SELECT sum(id) FROM {named} WHERE id > 10"),
            "insert": lambda: insert(spark),
        }
    for name, check in todo.items():
        try:
            found[name] = check()
        except Exception as error:
            traceback.print_exc()
            found[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return found


def in_tasks(spark: Any, query: str) -> int:
    spark.conf.set("spark.indextables.read.driver.maxRows", "0")
    try:
        return len(spark.sql(query).collect())
    finally:
        spark.conf.unset("spark.indextables.read.driver.maxRows")


def insert(spark: Any) -> list[Any]:
    spark.sql("CREATE TABLE smoke_table (id BIGINT, s STRING) USING indextables")
    spark.sql("INSERT INTO smoke_table VALUES (1, 'one'), (2, 'two')")
    found = spark.sql("SELECT id FROM smoke_table WHERE s indexquery 'two'").collect()
    spark.sql("DROP TABLE smoke_table")
    return [list(row) for row in found]


def main(folder: str, *options: str) -> None:
    import indextables

    outcome: dict[str, Any] = {}
    warnings.simplefilter("ignore")
    if "--connect" in options:
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the server's workers

        spark = indextables.enable(SparkSession.builder.remote("local[2]").getOrCreate())
        outcome["connect"] = checks(spark, f"{folder}/connect", catalog=False)
    else:
        from indextables.spark.bridge import sessions

        spark = indextables.session(
            "smoke",
            **{
                "spark.master": "local[2]",
                "spark.ui.enabled": "false",
                "spark.sql.warehouse.dir": f"{folder}/warehouse",
                "spark.sql.shuffle.partitions": "2",
            },
        )
        spark.sparkContext.setLogLevel("OFF")
        bridge = sessions.bridge_of(spark)
        outcome["bridged"] = bridge is not None
        outcome["bridge"] = checks(spark, f"{folder}/bridge", catalog=bridge is not None)
        sessions.register(spark, None)
        outcome["public"] = checks(spark, f"{folder}/public", catalog=False)
    outcome["version"] = spark.version
    sys.stdout.write(f"OUTCOME {json.dumps(outcome)}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
