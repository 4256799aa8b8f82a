"""Searching, counting, scanning and writing in Spark, beside plain Parquet and Spark's own floor.

The same log rows lie as splits of an index table and as plain Parquet files, in the same
partitions. The floor is a warm `spark.range(1).collect()`: what any query costs that starts a job.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tantivy

from benchmarks.log_rows import NEEDLE, batches, word_in
from benchmarks.measure import Result, race
from indextables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 10_000_000
WRITTEN = 1_000_000
SPLITS = 20
DAYS = 10
_ONE_PERCENT = 0.01
_SLOW = 1.0
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "3g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


def run(scale: float = 1.0) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        make(root, int(ROWS * scale))
        spark = start(root)
        try:
            yield from Race(spark, root, int(WRITTEN * scale)).results()
        finally:
            spark.stop()


def start(root: Path) -> SparkSession:
    """A session with two cores whose caches are below a folder."""
    import indextables

    settings = {**_SETTINGS, "spark.indextables.cache.disk.path": str(root / "cache")}
    spark = indextables.session("benchmark", **settings)
    spark.sparkContext.setLogLevel("OFF")
    return spark


def make(root: Path, rows: int) -> None:
    """The same rows as splits and as plain files, ten columns with the partition column."""
    each = rows // SPLITS
    table = None
    config = {"spark.indextables.cache.disk.path": str(root / "cache")}
    for number in range(SPLITS):
        day = f"2024-01-{1 + number * DAYS // SPLITS:02d}"
        made = batches(each, start=number * each, needle_every=each)
        part = _ten_columns(pa.Table.from_batches(list(made)), day, seed=number)
        if table is None:
            table = Table.create(root / "table", part.schema, partition_by=["day"], config=config)
        table.append(part)
        folder = root / "plain" / f"day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(part.drop_columns(["day"]), folder / f"{number}.parquet", compression="zstd")


def _ten_columns(rows: pa.Table, day: str, *, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    count = rows.num_rows
    hosts: Any = pa.array([f"host-{n:03d}" for n in range(200)])
    return (
        rows.append_column("host", hosts.take(pa.array(random.integers(0, 200, count))))
        .append_column("bytes", pa.array(random.integers(200, 60_000, count)))
        .append_column("seconds", pa.array(random.exponential(0.2, count)))
        .append_column("day", pa.repeat(day, count))
    )


@dataclass(frozen=True)
class Race:
    """The queries of one session on both forms of the rows."""

    spark: SparkSession
    root: Path
    written: int

    def results(self) -> Iterator[Result]:
        self.plain.createOrReplaceTempView("plain")
        yield from self._needle()
        yield from self._counts()
        yield from self._grouped()
        yield self._full_scan()
        yield self._two_of_ten()
        yield self._write()

    @cached_property
    def plain(self) -> DataFrame:
        schema = self.spark.read.format("indextables").load(self._path).schema
        return self.spark.read.schema(schema).parquet(str(self.root / "plain"))

    @property
    def _path(self) -> str:
        return str(self.root / "table")

    def _floor(self) -> Callable[[], object]:
        return lambda: self.spark.range(1).collect()

    def _both(self, query: str, ours: str, peer: str) -> tuple[Callable[[], object], ...]:
        """A query on the table and on plain Parquet, once both gave the same."""
        table = f"indextables.`{self._path}`"
        texts = query.format(t=table, where=ours), query.format(t="plain", where=peer)
        works = [lambda text=text: self.spark.sql(text).collect() for text in texts]
        found = [sorted(map(repr, work())) for work in works]
        assert found[0] == found[1], f"{found[0][:3]} is not {found[1][:3]}"
        return tuple(works)

    def _needle(self) -> Iterator[Result]:
        ours, peer = self._both(
            "SELECT * FROM {t} WHERE {where}",
            f"message indexquery '{NEEDLE}'",
            rf"message rlike '\\b{NEEDLE}\\b'",
        )
        floor, found, scanned = warm_race(self._floor(), ours, peer)
        yield Result(
            f"A word in {SPLITS} rows is found in spark.sql far faster than by rlike on Parquet",
            scanned / found, 15, "at least", f"rlike {scanned:.3g} s / search {found:.3g} s",
        )  # fmt: skip
        yield Result(
            "and in a few times what an empty query takes",
            found / floor, 4, "at most", f"search {found:.3g} s / range(1) {floor:.3g} s",
        )  # fmt: skip

    def _counts(self) -> Iterator[Result]:
        for claim, where in (
            ("count(*) comes from the log", "true"),
            ("so does a count of some partitions", "day >= '2024-01-04'"),
        ):
            ours, peer = self._both("SELECT count(*) FROM {t} WHERE {where}", where, where)
            floor, found, scanned = warm_race(self._floor(), ours, peer)
            yield Result(
                claim, found / floor, 2, "at most",
                f"count {found:.3g} s / range(1) {floor:.3g} s; plain Parquet {scanned:.3g} s",
            )  # fmt: skip

    def _grouped(self) -> Iterator[Result]:
        word = word_in(_ONE_PERCENT)
        for what, by, bar in (
            ("A grouped count", "service", 5),
            ("A histogram of hours", "date_trunc('hour', ts)", 10),
        ):
            ours, peer = self._both(
                f"SELECT {by}, count(*) FROM {{t}} WHERE {{where}} GROUP BY {by}",
                f"message indexquery '{word}'",
                rf"message rlike '\\b{word}\\b'",
            )
            found, scanned = warm_race(ours, peer)
            yield Result(
                f"{what} over a search of 1 % of the rows beats the Parquet scan",
                scanned / found, bar, "at least", f"rlike {scanned:.3g} s / search {found:.3g} s",
            )  # fmt: skip

    def _full_scan(self) -> Result:
        ratios, how = {}, {}
        for column, aggregate in (
            ("bytes", "sum(bytes)"), ("id", "sum(id)"), ("seconds", "round(avg(seconds), 3)"),
            ("service", "max(service)"), ("message", "max(message)"),
        ):  # fmt: skip
            ours, peer = self._both(f"SELECT {aggregate} FROM {{t}}", "", "")
            found, scanned = warm_race(ours, peer)
            ratios[column] = found / scanned
            how[column] = f"{aggregate} {found:.3g} s / spark.read.parquet {scanned:.3g} s"
        others = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        return Result(
            "A full scan that aggregates one column takes what plain Parquet takes",
            ratios["bytes"], 1.3, "at most", f"{how['bytes']}; by columns: {others}",
        )  # fmt: skip

    def _two_of_ten(self) -> Result:
        """Bytes that the JVM and this process read, beside what the two columns take.

        The input of a stage in Spark's UI has the footers alone: Hadoop does not count the vectored
        reads of columns.
        """
        query = f"SELECT max(service), max(status) FROM indextables.`{self._path}`"
        self.spark.sql(query).collect()
        before = self._bytes_read()
        self.spark.sql(query).collect()
        read = self._bytes_read() - before
        stored = columns_size(self.root / "table", ("service", "status"))
        whole = sum(f.stat().st_size for f in (self.root / "table").rglob("*.split"))
        return Result(
            "Reading two of ten columns does not read the other eight",
            read / stored, 1.5, "at most",
            f"{read:,} bytes read / {stored:,} bytes of the two columns, of {whole:,} in all",
        )  # fmt: skip

    def _bytes_read(self) -> int:
        """What the JVM and this process read since they started, as Linux counts it."""
        context: Any = self.spark.sparkContext
        jvm = context._jvm.java.lang.ProcessHandle.current().pid()
        texts = [Path(f"/proc/{process}/io").read_text() for process in (jvm, "self")]
        return sum(int(dict(x.split(": ") for x in t.splitlines())["rchar"]) for t in texts)

    def _write(self) -> Result:
        """A table of the same ten days, and the same rows without partitions beside it."""
        # From memory, so that only writing is measured.
        every = max(1, self.plain.count() // self.written)
        rows = self.plain.where(f"id % {every} = 0").repartition(2).cache()
        count = rows.count()
        ours, peer, _ = self._writes(rows, ["day"])
        whole, whole_peer, floor = self._writes(rows, [])
        rows.unpersist()
        return Result(
            f"Writing {count:,} rows of {DAYS} partitions costs a few plain writes",
            ours / peer, 4, "at most",
            f"indextables {ours:.3g} s / df.write.parquet {peer:.3g} s; without partitions "
            f"{whole:.3g} s / {whole_peer:.3g} s = {whole / whole_peer:.2g}, where bare tantivy-py "
            f"in the same tasks takes {floor:.3g} s = {floor / whole_peer:.2g}",
        )  # fmt: skip

    def _writes(self, rows: DataFrame, partitions: list[str]) -> tuple[float, float, float]:
        folders = (str(self.root / f"written-{len(partitions)}-{n}") for n in range(100))
        texts = rows.select([n for n, kind in rows.dtypes if kind == "string"]).drop(*partitions)

        def ours() -> None:
            rows.write.partitionBy(partitions).format("indextables").save(next(folders))

        def peer() -> None:
            rows.write.partitionBy(partitions).parquet(next(folders))

        def floor() -> None:
            texts.mapInArrow(_only_tantivy, "indexed long").collect()

        ours_time, peer_time, floor_time = race(3, ours, peer, floor)
        return ours_time.seconds, peer_time.seconds, floor_time.seconds


def _only_tantivy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Tantivy alone takes for the text of a task: no rows, no row numbers, no lists."""
    writer, count = None, 0
    with tempfile.TemporaryDirectory() as folder:
        for batch in batches:
            names = batch.schema.names
            if writer is None:
                builder = tantivy.SchemaBuilder()
                for name in names:
                    builder.add_text_field(name, index_option="position")
                writer = tantivy.Index(builder.build(), path=folder).writer(
                    heap_size=1_000_000_000, num_threads=1
                )
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                document = tantivy.Document()
                for name, value in zip(names, values, strict=True):
                    document.add_text(name, value)
                writer.add_document(document)
            count += batch.num_rows
        if writer is not None:
            writer.commit()
            writer.wait_merging_threads()
    yield pa.record_batch([pa.array([count])], names=["indexed"])


def columns_size(folder: Path, names: tuple[str, ...]) -> int:
    """The bytes of some columns in the Parquet files below a folder."""
    total = 0
    for file in folder.rglob("*.split"):
        metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            chunks = [metadata.row_group(group).column(i) for i in range(metadata.num_columns)]
            total += sum(c.total_compressed_size for c in chunks if c.path_in_schema in names)
    return total


def warm_race(*works: Callable[[], object], times: int = 5) -> list[float]:
    """Median times of warm queries, run in turns; the first turn, which compiles, does not count.

    A quick one runs twice in its turn and the second counts: it finds the processor's caches as its
    own kind left them. A slow one needs fewer turns.
    """
    found: list[list[float]] = [[] for _ in works]
    for _ in range(times + 1):
        for work, past in zip(works, found, strict=True):
            if len(past) > 2 and min(past) > _SLOW:
                continue
            first = _seconds(work)
            past.append(first if first > _SLOW else _seconds(work))
    return [statistics.median(past[1:]) for past in found]


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
