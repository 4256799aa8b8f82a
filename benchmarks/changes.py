"""Rows that change: deleting few of many, searching among deleted rows, merging, streaming.

Deletions are beside the rewriting way (`deletionVectors.mode` = rewrite) and beside deltalake's
delete, which rewrites files without an index in them. Bytes are those of the files that a deletion
adds to the table's folder.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.log_rows import COMMON, SCHEMA, batch, word_in
from benchmarks.measure import Result, race
from indextables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 2_000_000
SPLITS = 10
MERGED_INTO = 1_000_000
MERGED = 10_000
BATCHES = 8
_REWRITE = {"spark.indextables.deletionVectors.mode": "rewrite"}


def run(scale: float = 1.0) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as name:
        yield from _deletions(Path(name), max(100_000, int(ROWS * scale)))
    with tempfile.TemporaryDirectory() as name:
        yield from _merges(Path(name), max(50_000, int(MERGED_INTO * scale)))


def _opened(root: Path, *, version: int | None = None, **config: object) -> Table:
    settings = {
        "spark.indextables.cache.disk.path": str(root / "cache"),
        "spark.indextables.xref.autoIndex.enabled": False,  # a cost of its own
    }
    return Table.open(root / "table", version=version, config={**settings, **config})


def _make(root: Path, rows: int) -> None:
    each = rows // SPLITS
    Table.create(root / "table", SCHEMA)
    table = _opened(root)
    for number in range(SPLITS):
        table.append(batch(number * each, each))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _spent(work: Callable[[], object], folder: Path) -> tuple[float, float, int]:
    """Seconds, seconds of processor and bytes that a change takes."""
    before = _size(folder)
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu, _size(folder) - before


def _deletions(root: Path, rows: int) -> Iterator[Result]:
    from deltalake import DeltaTable, write_deltalake

    _make(root, rows)
    each = rows // SPLITS
    for number in range(SPLITS):
        data = pa.Table.from_batches([batch(number * each, each)])
        write_deltalake(root / "delta", data, mode="append")
    delta = DeltaTable(root / "delta")
    marking, rewriting = _opened(root), _opened(root, **_REWRITE)
    whole = marking.version
    few = ", ".join(str(7 + n * 1_000) for n in range(rows // 1_000))
    for what, where in (("one row", f"id = {rows // 2 + 1}"), ("0.1 %", f"id IN ({few})")):
        delta_time = _spent(lambda where=where: delta.delete(where), root / "delta")  # type: ignore[misc]
        rewritten = _spent(lambda where=where: rewriting.delete(where=where), root / "table")  # type: ignore[misc]
        marking.restore(version=whole)
        marked = _spent(lambda where=where: marking.delete(where=where), root / "table")  # type: ignore[misc]
        yield Result(
            f"Deleting {what} of {rows:,} writes few bytes",
            marked[2] / rewritten[2], 0.01, "at most",
            f"{marked[2]:,} bytes marked / {rewritten[2]:,} rewritten; deltalake {delta_time[2]:,}",
        )  # fmt: skip
        yield Result(
            f"Deleting {what} of {rows:,} takes no longer than deltalake's rewriting delete",
            marked[1] / delta_time[1], 1.5, "at most",
            f"seconds of processor {marked[1]:.3g} / {delta_time[1]:.3g}; wall {marked[0]:.3g} / "
            f"{delta_time[0]:.3g}; rewriting {rewritten[1]:.3g}",
        )  # fmt: skip
        marking.restore(version=whole)
    many = ", ".join(str(n * 100) for n in range(rows // 100))
    marking.delete(where=f"id IN ({many})")
    dead, clean = _opened(root), _opened(root, version=whole)
    word = word_in(0.001)
    for what, ask in (
        ("The ten best rows", lambda t: t.search(COMMON, fields=["message"], limit=10)),
        ("Rows that hold a word", lambda t: t.scan(where=f"message indexquery '{word}'")),
    ):
        ask(dead), ask(clean)
        one, other = race(40, lambda ask=ask: ask(dead), lambda ask=ask: ask(clean))  # type: ignore[misc]
        yield Result(
            f"{what} of {rows:,}, 1 % of them deleted, take no longer",
            one.cpu / other.cpu, 1.1, "at most", f"with deleted rows {one} / {other}",
        )  # fmt: skip


def _merges(root: Path, rows: int) -> Iterator[Result]:
    from benchmarks.spark import start

    _make(root, rows)
    spark = start(root)
    try:
        changed = max(1_000, int(MERGED * rows / MERGED_INTO))
        half = pa.Table.from_batches([batch(0, changed // 2), batch(10 * rows, changed // 2)])
        spark.createDataFrame(half.to_pandas()).write.parquet(str(root / "source"))
        spark.read.parquet(str(root / "source")).createOrReplaceTempView("changes")
        table = f"indextables.`{root / 'table'}`"
        version = _opened(root).version

        def merge() -> None:
            _opened(root).restore(version=version)
            spark.sql(
                f"MERGE INTO {table} t USING changes s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        def join_and_append() -> None:
            _opened(root).restore(version=version)
            joined = spark.sql(
                f"SELECT s.*, t.id AS old FROM changes s LEFT JOIN {table} t ON t.id = s.id"
            )
            joined.drop("old").write.format("indextables").mode("append").save(str(root / "table"))

        merge(), join_and_append()
        one, other = race(3, merge, join_and_append)
        yield Result(
            f"MERGE of {changed:,} rows into {rows:,} is close to a join and an append",
            one.seconds / other.seconds, 2, "at most",
            f"{one.seconds:.3g} s / {other.seconds:.3g} s",
        )  # fmt: skip
        yield _stream(root, spark)
    finally:
        spark.stop()


def _stream(root: Path, spark: SparkSession) -> Result:
    """Small files, a batch each, through the sink and by `foreachBatch`."""
    place = root / "stream"
    place.mkdir()
    for number in range(BATCHES):
        pq.write_table(
            pa.Table.from_batches([batch(number * 1_000, 1_000)]), place / f"{number}.parquet"
        )
    runs = itertools.count()

    def stream(*, sink: bool) -> None:
        target = root / f"stream-{next(runs)}"
        schema = spark.read.parquet(str(place)).schema
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(place))
        writer = rows.writeStream.option("checkpointLocation", f"{target}-checkpoint")
        writer = writer.trigger(availableNow=True)
        if sink:
            query = writer.format("indextables").start(str(target))
        else:
            query = writer.foreachBatch(
                lambda some, _: some.write.format("indextables").mode("append").save(str(target))
            ).start()
        query.awaitTermination()
        assert Table.open(target).count() == BATCHES * 1_000

    stream(sink=True), stream(sink=False)
    one, other = race(3, lambda: stream(sink=True), lambda: stream(sink=False))
    return Result(
        "A batch of 1,000 rows through the sink, against an append by foreachBatch",
        one.seconds / other.seconds, 1.5, "at most",
        f"{BATCHES} batches {one.seconds:.3g} s / {other.seconds:.3g} s",
    )  # fmt: skip
