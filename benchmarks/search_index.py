"""A search index over a Delta table: its size, building it, finding a needle, refreshing it.

The table is what `write_deltalake` makes of log rows, with one row group for each file. One row of
the table holds a word that no other has, and one row of every file another such word. Beside it are
`Table.append` of the same rows, DuckDB's scan of the table's Parquet files, and Spark's `rlike`
over them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from benchmarks.log_rows import NEEDLE, SCHEMA, TEXTS, batches
from benchmarks.measure import Result, race
from indextables import SearchIndex, Table

ROWS = 10_000_000
FILE = 500_000
ONLY_ONE = "haystack"
"""A word of one row of the table, beside the needle of its file."""
FILES = 1_000
ROWS_OF_SMALL_FILE = 1_000


def run(scale: float = 1.0) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as name:
        yield from _one_table(Path(name), max(FILE, int(ROWS * scale) // FILE * FILE))
    with tempfile.TemporaryDirectory() as name:
        yield from _refresh(Path(name), max(50, int(FILES * scale)))


def _write(root: Path, rows: int) -> None:
    from deltalake import WriterProperties, write_deltalake

    whole = WriterProperties(compression="SNAPPY", max_row_group_size=FILE)
    for start in range(0, rows, FILE):
        table = pa.Table.from_batches(batches(FILE, start=start, needle_every=FILE))
        if start == rows // FILE // 2 * FILE:
            at = table.schema.get_field_index("message")
            message = pc.replace_substring(table["message"], NEEDLE, f"{NEEDLE} {ONLY_ONE}")
            table = table.set_column(at, "message", message)
        write_deltalake(root, table, mode="append", writer_properties=whole)


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu


def _size(folder: Path, pattern: str) -> int:
    return sum(file.stat().st_size for file in folder.rglob(pattern))


def _one_table(root: Path, rows: int) -> Iterator[Result]:
    import duckdb

    needles = rows // FILE

    source = root / "delta"
    _write(source, rows)
    config = {
        "spark.indextables.cache.disk.path": str(root / "cache"),
        "spark.indextables.xref.autoIndex.enabled": False,  # a cost of its own
    }
    table = Table.create(root / "table", SCHEMA, config=config)
    # From the same files, as the index is built.
    delta = pa.dataset.dataset(str(source), format="parquet", exclude_invalid_files=True)
    appended = _timed(lambda: table.append(delta.scanner().to_reader()))
    built = _timed(
        lambda: SearchIndex.create(
            root / "index", source=source, format="delta", columns=list(TEXTS), config=config
        )
    )
    parquet, index_bytes = _size(source, "*.parquet"), _size(root / "index", "*.split")
    yield Result(
        f"The index of {rows:,} log rows is smaller than their Parquet files",
        index_bytes / parquet, 0.7, "at most", f"{index_bytes:,} / {parquet:,} bytes",
    )  # fmt: skip
    yield Result(
        "Building it is as fast as appending the rows to a table",
        appended[0] / built[0], 0.9, "at least",
        f"{rows / built[0]:,.0f} / {rows / appended[0]:,.0f} rows a second; seconds of processor "
        f"{built[1]:.3g} / {appended[1]:.3g}",
    )  # fmt: skip
    index = SearchIndex.open(root / "index", config=config)
    files = f"{source}/*.parquet"
    for word, found, bar in ((ONLY_ONE, 1, 20), (NEEDLE, needles, 5)):
        where = f"message indexquery '{word}'"
        scan = f"SELECT * FROM read_parquet('{files}') WHERE message LIKE '%{word}%'"
        assert index.scan(where=where).num_rows == found == len(duckdb.sql(scan).fetchall())
        ours, duck = race(
            5,
            lambda where=where: index.scan(where=where),  # type: ignore[misc]
            lambda scan=scan: duckdb.sql(scan).fetchall(),  # type: ignore[misc]
        )
        yield Result(
            f"{_needles(found)}, of {rows:,} rows, against a scan of DuckDB",
            duck.seconds / ours.seconds, bar, "at least", f"DuckDB {duck} / index {ours}",
        )  # fmt: skip
    yield from _in_spark(root, source, needles)


def _needles(count: int) -> str:
    return "One needle" if count == 1 else f"{count} needles, one in every file"


def _in_spark(root: Path, source: Path, needles: int) -> Iterator[Result]:
    from benchmarks.spark import start

    spark = start(root)
    try:
        plain = spark.read.parquet(*map(str, source.glob("*.parquet")))
        for word, found, bar in ((ONLY_ONE, 1, 20), (NEEDLE, needles, 5)):
            query = f"SELECT * FROM indextables.`{root}/index` WHERE message indexquery '{word}'"
            wanted = plain.where(plain.message.rlike(word))
            assert len(spark.sql(query).collect()) == found == len(wanted.collect())
            ours, rlike = race(
                5,
                lambda query=query: spark.sql(query).collect(),  # type: ignore[misc]
                lambda wanted=wanted: wanted.collect(),  # type: ignore[misc]
            )
            yield Result(
                f"{_needles(found)}, in Spark, against rlike over the table's files",
                rlike.seconds / ours.seconds, bar, "at least",
                f"rlike {rlike.seconds:.3g} s / index {ours.seconds:.3g} s",
            )  # fmt: skip
    finally:
        spark.stop()


def _refresh(root: Path, files: int) -> Iterator[Result]:
    from deltalake import write_deltalake

    made = pa.Table.from_batches(batches(files * ROWS_OF_SMALL_FILE))
    parts = pa.array([n // ROWS_OF_SMALL_FILE for n in range(made.num_rows)], pa.int32())
    source, alone = root / "delta", root / "alone"
    write_deltalake(source, made.append_column("part", parts), partition_by=["part"])
    index = SearchIndex.create(root / "index", source=source, format="delta", columns=["message"])
    more = pa.Table.from_batches(batches(ROWS_OF_SMALL_FILE, start=made.num_rows))
    more = more.append_column("part", pa.array([files] * more.num_rows, pa.int32()))
    write_deltalake(alone, more)
    one = SearchIndex.create(
        root / "one", source=alone, format="delta", columns=["message"], refresh=False
    )
    one_file = _timed(one.refresh)
    refreshed = []
    for turn in range(3):
        shifted = more.set_column(
            more.num_columns - 1, "part", pa.array([files + turn] * more.num_rows, pa.int32())
        )
        write_deltalake(source, shifted, mode="append")
        before = index.describe()["files_not_indexed"]
        assert before == 1
        refreshed.append(_timed(index.refresh))
    took = min(refreshed)
    yield Result(
        f"A refresh after one file was added to {files:,} costs little more than that file",
        took[1] / one_file[1], 3, "at most",
        f"seconds of processor {took[1]:.3g} / {one_file[1]:.3g}, of which the rest reads the "
        f"source's log; wall {took[0]:.3g} / {one_file[0]:.3g}",
    )  # fmt: skip
