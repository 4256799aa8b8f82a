"""Ordinary SQL: the 22 queries of TPC-H on index tables, beside the same rows in Parquet.

Both sides are written by Spark from the same generated rows, in as many files. Opening tables is
not timed: Parquet's schemas are read from files, ours from the log. Every answer is compared.

The floor is the same Parquet files through the interface that sources outside of Spark have
(version 2), which Spark's own formats do not use by default. What it costs, every source pays.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Result
from benchmarks.spark import start
from benchmarks.tpch_queries import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCALE = 0.3
WRITTEN = ("indextables", "parquet")
FLOOR = "parquet, version 2"
FORMS = (*WRITTEN, FLOOR)
_FIRST_VERSION = "spark.sql.sources.useV1SourceList"
TURNS = 6
MOST_SECONDS = 30.0
"""After so long a query is not run again."""
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")


def run(scale: float = 1.0) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        generator = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run(
            [generator, "parquet", "-s", str(SCALE * scale), f"--output-dir={root / 'generated'}"],
            check=True,
            capture_output=True,
        )
        spark = start(root)
        try:
            make(spark, root)
            yield from compare(spark, root)
        finally:
            spark.stop()


def make(spark: SparkSession, root: Path) -> None:
    """Write each table in both forms."""
    for table in TABLES:
        rows = spark.read.parquet(str(root / "generated" / f"{table}.parquet"))
        files = 4 if table in ("lineitem", "orders") else 1
        rows = rows.repartition(files)
        rows.write.parquet(str(root / "parquet" / table))
        rows.write.format("indextables").save(str(root / "indextables" / table))


def compare(spark: SparkSession, root: Path) -> Iterator[Result]:
    """Time each query on both forms and return the ratios."""
    frames = {
        form: {t: spark.read.format(form).load(str(root / form / t)) for t in TABLES}
        for form in WRITTEN
    }
    before = spark.conf.get(_FIRST_VERSION)
    spark.conf.set(_FIRST_VERSION, "")
    frames[FLOOR] = {t: spark.read.parquet(str(root / "parquet" / t)) for t in TABLES}
    spark.conf.set(_FIRST_VERSION, before)
    ratios: dict[str, float] = {}
    floors: dict[str, float] = {}
    shown = []
    for name, query in QUERIES.items():
        ours, theirs, floor = _race(spark, name, query, frames)
        ratios[name], floors[name] = ours / theirs, floor / theirs
        shown.append(
            f"{name} {ratios[name]:.2f} ({ours:.2f} s / {theirs:.2f} s, floor {floor:.2f} s)"
        )
        print(shown[-1], file=sys.stderr, flush=True)
    worst = max(ratios, key=lambda name: ratios[name])
    mean, least = (
        math.exp(sum(map(math.log, some.values())) / len(some)) for some in (ratios, floors)
    )
    shown.append(f"floor (Parquet by version 2) {least:.2f}")
    yield Result(
        "TPC-H on index tables takes as long as on Parquet (geometric mean), with the same answers",
        mean, 1.1, "at most", ", ".join(shown),
    )  # fmt: skip
    yield Result(
        f"The slowest of the 22 queries beside Parquet ({worst})",
        ratios[worst], 1.5, "at most", "indextables / Parquet, the best of warm runs in turns",
    )  # fmt: skip


def _race(
    spark: SparkSession, name: str, query: str, frames: dict[str, dict[str, DataFrame]]
) -> list[float]:
    """The best times of a query on each form, run in turns, each answer compared."""
    best = dict.fromkeys(FORMS, math.inf)
    begin = time.perf_counter()
    for turn in range(TURNS + 1):
        answers = []
        for form in FORMS:
            for table, frame in frames[form].items():
                frame.createOrReplaceTempView(table)
            start = time.perf_counter()
            rows = spark.sql(query).collect()
            if turn:  # the first one compiles
                best[form] = min(best[form], time.perf_counter() - start)
            answers.append(_rounded(rows))
        if answers[0] != answers[1]:
            raise AssertionError(f"{name} differs: {answers[0][:3]} and {answers[1][:3]}")
        if turn > 1 and time.perf_counter() - begin > MOST_SECONDS:
            break
    return list(best.values())


def _rounded(rows: list[Any]) -> list[tuple[Any, ...]]:
    def value(one: Any) -> Any:
        if isinstance(one, float | Decimal):
            return f"{float(one):.9g}"
        return str(one)

    return [tuple(map(value, row)) for row in rows]
