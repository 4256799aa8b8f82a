"""The part of the tour that runs on Spark: write, search in SQL, compare, join."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from indextables.demo.show import console, grid, heading, say, timed, versus
from indextables.demo.tour import NEEDLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYS = 40


def start(place: Path) -> SparkSession:
    """A quiet session on this machine."""
    from indextables.spark.session import session

    settings: dict[str, object] = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.ariadne.storagePath": str(place / "ariadne"),
    }
    with console.status("Starting Spark …"):
        return session("indextables demo", **settings)


def write(spark: SparkSession, folder: Path, path: str) -> None:
    """A DataFrame becomes a table."""
    heading("Write", "df.write.format('indextables').partitionBy('kind').save(path)")
    frame: Any = spark.read.parquet(str(folder))
    with console.status("Writing from Spark …"):
        _, spent = timed(
            lambda: (
                frame.write.format("indextables")
                .mode("append")
                .option("spark.indextables.indexing.typemap.module", "string")
                .partitionBy("kind")
                .save(path)
            ),
            times=1,
        )
    rows = frame.count()
    rate = rows / spent * 1000
    say(f"{rows:,} functions and classes in {spent / 1000:.1f} s, {rate:,.0f} a second")


def search(spark: SparkSession, folder: Path, path: str) -> None:
    """A search in SQL, beside the same question asked of Parquet."""
    query = f"""SELECT package, count(*) AS n FROM indextables.`{path}`
     WHERE code indexquery '{NEEDLE} OR "zero copy"' GROUP BY package ORDER BY n DESC, package"""
    heading("SQL", query)
    plain: Any = spark.read.parquet(str(folder))
    plain.createOrReplaceTempView("plain")
    pattern = rf"(?i)(^|[^a-z0-9])({NEEDLE}|zero[^a-z0-9]+copy)($|[^a-z0-9])"
    scan = f"SELECT package, count(*) AS n FROM plain WHERE code rlike '{pattern}' GROUP BY package"
    found, our_time = timed(lambda: spark.sql(query).collect())
    other, their_time = timed(lambda: spark.sql(scan).collect())
    assert {tuple(row) for row in found} == {tuple(row) for row in other}
    grid(("package", "definitions"), [tuple(row) for row in found[:5]])
    versus(our_time, their_time, other="rlike over the same rows in Parquet")


def join(spark: SparkSession, files: list[str]) -> None:
    """A join that reads only the files that can match."""
    from indextables.ariadne import Index

    heading("Join external files", "index.join(keys, ['name'])")
    first: Any = spark.read.parquet(files[0])
    index = Index("definitions", first.schema, "parquet")
    index.add_file(*files)
    index.add_index("package")
    index.add_bloom_index("name")
    with console.status("Indexing the files …"):
        index.update()
    everything: Any = spark.read.parquet(*files)
    some: Any = everything.where("package = 'asyncio'").select("name", "package").distinct()
    keys: Any = spark.createDataFrame(some.limit(_KEYS).collect(), some.schema)
    ours = index.join(keys, ["name", "package"], "inner").count()
    theirs = everything.join(keys, ["name", "package"], "inner").count()
    assert ours == theirs
    located = index.locate_files({"package": ["asyncio"]})
    say(
        f"{ours:,} rows, as Spark's join over all files gives them; {len(located)} of {len(files)} "
        "files are read"
    )
