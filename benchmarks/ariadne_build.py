"""Building an Ariadne index over csv files, beside one Spark pass that parses the same files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from benchmarks.measure import Result, race

FILES = 20
ROWS = 100_000
SCHEMA = (
    "id bigint, user_id int, session string, category string, amount double, ts timestamp, "
    "note string"
)
_OPTIONS = {"header": "true"}
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
}


def run(scale: float = 1.0) -> Iterator[Result]:
    import indextables

    files = max(2, int(FILES * scale))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder / "data", files)
        spark = indextables.session("benchmarks", **_SETTINGS)
        spark.sparkContext.setLogLevel("OFF")
        spark.conf.set("spark.ariadne.storagePath", str(folder / "ariadne"))
        try:
            yield _build(spark, folder / "data", files)
        finally:
            spark.stop()


def _build(spark: Any, data: Path, files: int) -> Result:
    from indextables.ariadne import Index

    number = iter(range(100))

    def parse() -> None:
        rows = spark.read.schema(SCHEMA).options(**_OPTIONS).csv(str(data))
        rows.write.format("noop").mode("overwrite").save()

    def build() -> None:
        index = Index(f"events{next(number)}", SCHEMA, "csv", read_options=_OPTIONS)
        index.add_file(str(data))
        index.add_index("category")
        index.add_bloom_index("session")
        index.add_range_index("ts")
        index.add_computed_index("bucket", "user_id % 1000")
        done = index.update()
        assert done.indexed == files, done

    parse()
    build()
    one_pass, ours = race(3, parse, build)
    return Result(
        f"Value, bloom, range and computed indexes over {files} csv files, {files * ROWS:,} rows",
        ours.seconds / one_pass.seconds, 1.5, "at most",
        f"add_file, four declarations and update {ours.seconds:.3g} s / "
        f"Spark reading all columns into noop {one_pass.seconds:.3g} s",
    )  # fmt: skip


def _write(folder: Path, files: int) -> None:
    folder.mkdir()
    chance = np.random.default_rng(7)
    for number in range(files):
        ids = np.arange(ROWS) + number * ROWS
        table = pa.table(
            {
                "id": ids,
                "user_id": chance.integers(0, 20_000, ROWS),
                "session": [f"s-{x:012x}" for x in chance.integers(0, 2**48, ROWS)],
                "category": [f"category {x}" for x in chance.integers(0, 40, ROWS)],
                "amount": chance.random(ROWS).round(2),
                "ts": pa.array(1_700_000_000 + ids, pa.timestamp("s")),
                "note": [f"a note about {x}" for x in chance.integers(0, 10**6, ROWS)],
            }
        )
        pacsv.write_csv(table, folder / f"part {number}.csv")
