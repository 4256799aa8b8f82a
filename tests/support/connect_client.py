"""What a client of Spark Connect can do with index tables.

Run as `python connect_client.py PORT README 'CHECK;…'`, with names of checks or `all`.

The tables are in a folder of the server's; this process is in another one and sees none of them.
Prints a line of JSON: each check, and what came of it.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

PATH = "tables/docs"
ROWS = [
    (1, "running fox", "running fox", "a", 7),
    (2, "run", "run", "a", 8),
    (3, "Fox-Run", "Running Fox", "b", None),
    (4, None, None, "b", 9),
    (5, "foxes", "fox", "b", 7),
]
OPTIONS = {
    "spark.indextables.indexing.typemap.exact": "string",
    "spark.indextables.indexing.tokenizer.stem": "en_stem",
}


def main(port: str, readme: str, wanted: str) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    import indextables as it

    remote = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        spark = it.enable(remote)
    said = [str(w.message) for w in warned if "public data source" in str(w.message)]
    table = f"indextables.`{PATH}`"

    def ids(frame: Any) -> list[int]:
        return sorted(row.id for row in frame.collect())

    def sql(text: str, **more: Any) -> Any:
        return spark.sql(text, **more)

    def write() -> Any:
        frame = spark.createDataFrame(ROWS, "id long, stem string, exact string, p string, n int")
        writer = frame.write.format("indextables").mode("append").partitionBy("p")
        writer.options(**OPTIONS).save(PATH)
        return ids(read())

    def read() -> Any:
        return spark.read.format("indextables").load(PATH)

    def ranked(frame: Any) -> Any:
        return [[row.id, round(row._score, 4)] for row in frame.collect()]

    def quick_start() -> Any:
        (block,) = re.findall(r"^```py\n(.*?)^```", Path(readme).read_text(), re.M | re.S)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(block, {"spark": spark, "path": "tables/readme"})
        text = shown.getvalue()
        return [word in text for word in ("machine learning", "_score", "num_files")]

    def merge() -> Any:
        frame = spark.createDataFrame(ROWS, "id long, stem string, exact string, p string, n int")
        writer = frame.write.format("indextables").mode("append").partitionBy("p")
        writer.options(**OPTIONS).save("tables/merged")
        new = [(2, "new {x}", "e", "c", 1), (5, "red", "e", "b", 2), (9, "run", "f", "a", None)]
        source = spark.createDataFrame(new, frame.schema)
        source.createOrReplaceTempView("merge_source")
        done = sql(
            "MERGE INTO indextables.`tables/merged` AS t USING merge_source AS s "
            "ON t.id = s.id AND t.n > :low WHEN MATCHED AND t.stem indexquery 'fox' THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT (id, stem, p) "
            "VALUES (s.id, concat(s.stem, '{y}'), s.p) "
            "WHEN NOT MATCHED BY SOURCE AND t.p = 'a' THEN UPDATE SET n = t.n + 100",
            args={"low": 0},
        ).first()
        rows = spark.read.format("indextables").load("tables/merged").orderBy("id").collect()
        found = sql("SELECT id FROM indextables.`tables/merged` WHERE stem indexquery 'runs'")
        return done.message, [list(row) for row in rows], ids(found)

    def stream() -> Any:
        rows = spark.readStream.format("indextables").load(PATH)
        for _ in range(2):
            writer = rows.writeStream.format("indextables").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", "tables/checkpoint")
            writer.start("tables/streamed").awaitTermination(120)
        return spark.read.format("indextables").load("tables/streamed").count() == read().count()

    def evolve() -> Any:
        sql(
            "MERGE WITH SCHEMA EVOLUTION INTO indextables.`tables/merged` t USING "
            "(SELECT 3L AS id, 'more' AS extra) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
        )
        row = spark.read.format("indextables").load("tables/merged").where("id = 3").first()
        return [row.id, row.exact, row.extra]

    def merge_frame() -> Any:
        new = [(4, "red", "e", "b", 2), (10, "ten", "e", "b", 1)]
        source = spark.createDataFrame(new, "id long, stem string, exact string, p string, n int")
        builder = source.alias("s").mergeInto(
            "indextables.`tables/merged`", f.expr("`tables/merged`.id = s.id")
        )
        builder = builder.whenMatched(f.col("s.n") > 1).update({"stem": f.upper("s.stem")})
        builder.whenNotMatched().insertAll().merge()
        rows = spark.read.format("indextables").load("tables/merged").where("id IN (4, 10)")
        return [list(row)[:5] for row in rows.orderBy("id").collect()]

    def view() -> str:
        read().createOrReplaceTempView("docs")
        return "docs"

    checks: dict[str, Any] = {
        "warned once": lambda: len(said),
        "partitionBy": write,
        "unseen by the client": lambda: Path(PATH).exists(),
        "search_table": lambda: ranked(it.search_table(spark, PATH, "runs OR fox", limit=3)),
        "search_table where": lambda: ids(
            it.search_table(spark, PATH, "runs", where="n = 7 OR p = 'b'", columns=["id"])
        ),
        "indextables_search": lambda: ranked(
            sql(f"SELECT * FROM indextables_search('{PATH}', 'runs OR fox', limit => 3)")
        ),
        "table function": lambda: ranked(
            sql(
                "EXECUTE IMMEDIATE 'SELECT * FROM indextables_search("
                f"\\'{PATH}\\', \\'runs OR fox\\', limit => 3)'"
            )
        ),
        "option where": lambda: ids(
            spark.read.format("indextables").option("where", "search(stem, 'foxes')").load(PATH)
        ),
        "option search": lambda: ranked(
            spark.read.format("indextables").options(search="runs OR fox", limit=3).load(PATH)
        ),
        "two reads": lambda: ids(
            spark.read.format("indextables")
            .option("where", "n = 7")
            .load(PATH)
            .alias("a")
            .join(
                spark.read.format("indextables").option("where", "n > 0").load(PATH).alias("b"),
                "id",
            )
            .select("id")
        ),
        "path": lambda: ids(sql(f"SELECT id FROM {table} WHERE stem indexquery 'runs'")),
        "path, exact": lambda: ids(sql(f"SELECT id FROM {table} WHERE exact indexquery 'run'")),
        "path, select list": lambda: ids(
            sql(f"SELECT id, search(stem, 'runs foxes') AS hit FROM {table}").where("hit")
        ),
        "path, left join": lambda: ids(
            sql(
                f"SELECT x.id, match_any(y.stem, 'foxes') AS hit FROM (SELECT id FROM {table}) x "
                f"LEFT JOIN {table} y ON x.id = y.id"
            ).where("hit")
        ),
        "path, or": lambda: ids(
            sql(
                f"SELECT x.id FROM {table} x JOIN {table} y ON x.id = y.id "
                "WHERE search((y.stem, y.exact), 'fox runs') OR x.id = 4"
            )
        ),
        "path, score": lambda: ranked(
            sql(
                f"SELECT id, _score FROM {table} WHERE stem indexquery 'runs OR fox' "
                "ORDER BY _score DESC LIMIT 3"
            )
        ),
        "path, snippet": lambda: (
            sql(f"SELECT snippet(stem) AS s FROM {table} WHERE stem indexquery 'runs' AND id = 2")
            .first()
            .s
        ),
        "path, all fields": lambda: ids(sql(f"SELECT id FROM {table} WHERE indexqueryall('7')")),
        "path, star": lambda: ids(sql(f"SELECT id FROM {table} WHERE search(*, 'runs 7')")),
        "path, parameter": lambda: ids(
            sql(f"SELECT id FROM {table} WHERE stem indexquery :q", args={"q": "runs"})
        ),
        "path, braces": lambda: sql(f"SELECT '{{x}}' AS s FROM {table} WHERE id = 1").first().s,
        "path, version": lambda: (
            sql(f"SELECT count(*) AS c FROM {table} VERSION AS OF 0").first().c
        ),
        "path, view": lambda: ids(
            sql(
                f"SELECT d.id FROM {view()} d JOIN {table} t ON d.id = t.id "
                "WHERE t.stem indexquery 'foxes' AND d.n = 7"
            )
        ),
        "function": lambda: ids(read().where(it.search("stem", "run"))),
        "function, mode": lambda: ids(
            sql(f"SELECT id FROM {view()} WHERE search(stem, 'run cow', mode => 'any')")
        ),
        "function, columns": lambda: ids(read().where(it.search(["stem", "exact"], "running"))),
        "function, star": lambda: ids(sql(f"SELECT id FROM {view()} WHERE search(*, 'run 8')")),
        "indexqueryall": lambda: ids(sql(f"SELECT id FROM {view()} WHERE indexqueryall('foxes')")),
        "indexqueryall, Python": lambda: ids(read().where(it.indexqueryall("foxes"))),
        "expr": lambda: ids(read().where(f.expr("search(stem, 'run')"))),
        "statement": lambda: sql(f"DESCRIBE INDEXTABLES STATE '{PATH}'").first().table_path,
        "maintenance": lambda: sql(f"MERGE SPLITS '{PATH}'").count(),
        "delete": lambda: (sql(f"DELETE FROM {table} WHERE id = 1").count(), ids(read())),
        "update": lambda: (
            sql(f"UPDATE {table} SET n = 1 WHERE stem indexquery 'foxes'").count(),
            ids(read().where("n = 1")),
        ),
        "missing table": lambda: sql("DESCRIBE INDEXTABLES STATE 'tables/none'").count(),
        "named statement": lambda: sql("MERGE SPLITS some_name").count(),
        "stream": stream,
        "merge into": merge,
        "merge into, twice": lambda: sql(
            "MERGE INTO indextables.`tables/merged` t USING VALUES (4, 'a'), (4, 'b') AS s(id, x) "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET stem = s.x"
        ).count(),
        "merge into, bad": lambda: sql(
            "MERGE INTO indextables.`tables/merged` t USING VALUES (5, 'a') AS s(id, x) "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.x"
        ).count(),
        "merge into, frame": merge_frame,
        "merge into, evolving": evolve,
        "search_table by name": lambda: it.search_table(spark, "some_name", "x"),
        "quick start": quick_start,
    }
    found: dict[str, Any] = {}
    for name, check in checks.items():
        if wanted != "all" and name not in wanted.split(";"):
            continue
        try:
            found[name] = check()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {str(error)[:300]}"
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
