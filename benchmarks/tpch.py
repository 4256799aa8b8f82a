"""Ordinary SQL: the 22 queries of TPC-H on index tables, beside the same rows in Parquet.

Both sides are written by Spark from the same generated rows, in as many files. Every answer is
compared before anything is timed.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Result
from benchmarks.spark import start, warm_race
from benchmarks.tpch_queries import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE = 0.3
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
    ratios: dict[str, float] = {}
    shown = []
    for name, query in QUERIES.items():

        def answer(form: str, query: str = query) -> list[Any]:
            for table in TABLES:
                frame = spark.read.format(form).load(str(root / form / table))
                frame.createOrReplaceTempView(table)
            return spark.sql(query).collect()

        ours, theirs = _rounded(answer("indextables")), _rounded(answer("parquet"))
        if ours != theirs:
            raise AssertionError(f"{name} differs: {ours[:3]} and {theirs[:3]}")
        mine, peer = warm_race(
            lambda answer=answer: answer("indextables"),  # type: ignore[misc]
            lambda answer=answer: answer("parquet"),  # type: ignore[misc]
            times=3,
        )
        ratios[name] = mine / peer
        shown.append(f"{name} {ratios[name]:.2f}")
    worst = max(ratios, key=lambda name: ratios[name])
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    yield Result(
        "TPC-H on index tables takes as long as on Parquet (geometric mean)",
        mean, 1.1, "at most", ", ".join(shown),
    )  # fmt: skip
    yield Result(
        f"The slowest of the 22 queries beside Parquet ({worst})",
        ratios[worst], 1.5, "at most", "indextables / Parquet, medians of warm runs in turns",
    )  # fmt: skip


def _rounded(rows: list[Any]) -> list[tuple[Any, ...]]:
    def value(one: Any) -> Any:
        if isinstance(one, float | Decimal):
            return f"{float(one):.9g}"
        return str(one)

    return [tuple(map(value, row)) for row in rows]
