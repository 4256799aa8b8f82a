"""What an Ariadne index finds and how fast, and what a join gains by it, beside Spark's own join.

1,000 Parquet files; the join of 100 keys that live in 10 of them, with the index warm and all of
lookup and planning included. A value index has to name those ten files and no other; the filters
of a bloom index may say "perhaps" a little too often.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Result, best_of, race
from indextables.ariadne.values.bloom import Filters, build, probe
from indextables.ariadne.values.hashing import hash_values

FILES = 1_000
ROWS = 10_000
KEYS = 1_000
SCHEMA = "id BIGINT, code BIGINT, amount DOUBLE, text STRING"
_FPR = 0.01
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
}


def run(scale: float = 1.0) -> Iterator[Result]:
    files = max(20, int(FILES * scale))
    yield from _filters(files)
    yield from _index(files)


def _filters(files: int) -> Iterator[Result]:
    """Keys against filters in memory: all answers, where a lookup may stop at a file's first."""
    numbers = np.arange(files * ROWS).reshape(files, ROWS)
    filters = Filters.of([build(hash_values(pa.array(n)), _FPR) for n in numbers])
    keys = hash_values(pa.array(np.linspace(0, files * ROWS - 1, KEYS).astype(np.int64)))
    answers = probe(filters, keys)
    too_many = (answers.sum() - KEYS) / (answers.size - KEYS)
    yield Result(
        f"False answers of {files:,} bloom filters, in multiples of the rate asked for",
        too_many / _FPR, 1.5, "at most",
        f"{too_many:.4f} of all answers that should be no / {_FPR:g}",
    )  # fmt: skip
    seconds = best_of(5, lambda: probe(filters, keys))
    yield Result(
        f"{KEYS:,} keys against {files:,} bloom filters, milliseconds",
        1_000 * seconds, 200, "at most", f"{answers.size:,} answers in one call",
    )  # fmt: skip


def _index(files: int) -> Iterator[Result]:
    import indextables

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder / "data", files)
        spark = indextables.session(
            "benchmarks",
            **_SETTINGS,
            **{
                "spark.ariadne.storagePath": str(folder / "ariadne"),
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
            },
        )
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield from _joins(spark, folder / "data", files)
        finally:
            spark.stop()


def _joins(spark: Any, data: Path, files: int) -> Iterator[Result]:
    from indextables.ariadne import Index

    index = Index("benchmark", SCHEMA)
    index.add_file(str(data))
    index.add_index("id")
    index.add_bloom_index("code", _FPR)
    assert index.update().indexed == files
    chance = np.random.default_rng(1)
    chosen = chance.choice(files, 10, replace=False)
    ids = [int(n * ROWS + k) for n in chosen for k in chance.choice(ROWS, 10, replace=False)]
    assert len(index.locate_files({"id": ids})) == len(chosen), "a value index is exact"
    codes = [-n for n in chance.choice(files * ROWS, KEYS, replace=False).tolist()]
    found = index.locate_files({"code": codes})
    assert {_name(-code // ROWS) for code in codes} <= {Path(file).name for file in found}
    seconds = best_of(5, lambda: index.locate_files({"code": codes}))
    yield Result(
        f"`locate_files` of {KEYS:,} keys with a bloom index of {files:,} files, milliseconds",
        1_000 * seconds, 200, "at most", "the files' sizes and times are compared too",
    )  # fmt: skip

    keys = spark.createDataFrame([(n,) for n in ids], "id BIGINT").cache()
    keys.count()

    def ours() -> list[Any]:
        return index.join(keys, "id").collect()  # type: ignore[no-any-return]

    def theirs() -> list[Any]:
        # The index asks for the files that are there now, and so does a new DataFrame.
        whole = spark.read.schema(SCHEMA).parquet(str(data))
        return whole.join(keys, "id").collect()  # type: ignore[no-any-return]

    assert sorted(ours()) == sorted(theirs())
    for _ in range(50):  # the JVM compiles what a short query runs after some dozens of them
        ours()
    for _ in range(5):
        theirs()
    with_index, over_all = race(7, ours, theirs)
    yield Result(
        f"Join of {len(ids)} keys in 10 of {files:,} files, {files * ROWS:,} rows",
        over_all.seconds / with_index.seconds, 10, "at least",
        f"Spark's join over all files, listing included, {over_all.seconds:.3g} s / "
        f"the index's join, lookup and planning included, {with_index.seconds:.3g} s",
    )  # fmt: skip


def _name(number: int) -> str:
    return f"part-{number:05d}.parquet"


def _write(folder: Path, files: int) -> None:
    folder.mkdir()
    chance = np.random.default_rng(7)
    texts = pa.array([f"payload {n % 997}" for n in range(ROWS)])
    for number in range(files):
        ids = chance.permutation(np.arange(number * ROWS, (number + 1) * ROWS))
        rows = {"id": ids, "code": -ids, "amount": chance.random(ROWS), "text": texts}
        pq.write_table(pa.table(rows), folder / _name(number))
