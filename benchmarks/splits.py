"""Writing, searching and reading splits, beside bare Tantivy, pyarrow and DuckDB."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import tantivy

from benchmarks.log_rows import COMMON, NEEDLE, SCHEMA, TEXTS, batches
from benchmarks.measure import Result, Time, best_of, race
from indextables import Table

ROWS = 1_000_000
SPLITS = 10
_HEAP = 1_000_000_000
_SMALL_HEAP = "20M"
"""Small enough that a quarter of the rows fills it: before that, memory grows up to the heap."""


def run(scale: float = 1.0) -> Iterator[Result]:
    rows = max(100_000, int(ROWS * scale))
    with tempfile.TemporaryDirectory() as name:
        yield from _one_split(Path(name), rows)
    with tempfile.TemporaryDirectory() as name:
        yield from _many_splits(Path(name), rows)
    yield _memory()


def open_table(folder: Path, *, cache: str = "cache") -> Table:
    """The table of a benchmark, with a cache folder of its own."""
    return Table.open(folder / "table", config=_cache(folder, cache))


def _cache(folder: Path, name: str = "cache") -> dict[str, object]:
    return {"spark.indextables.cache.disk.path": str(folder / name)}


# --- one split -------------------------------------------------------------------------------


def bare_index(folder: Path, texts: list[list[Any]]) -> tantivy.Index:
    """Index columns of text in a folder, as quick as a loop in Python can: one thread, one segment.

    The fields are what a table makes of columns of text by default: words with their positions.
    """
    builder = tantivy.SchemaBuilder()
    for name in TEXTS:
        builder.add_text_field(name, index_option="position")
    index = tantivy.Index(builder.build(), path=str(folder))
    writer = index.writer(heap_size=_HEAP, num_threads=1)
    new, add, add_text = tantivy.Document, writer.add_document, tantivy.Document.add_text
    first, second, third = TEXTS
    for one, two, three in zip(*texts, strict=True):
        document = new()
        add_text(document, first, one)
        add_text(document, second, two)
        add_text(document, third, three)
        add(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    return index


def _one_split(root: Path, count: int) -> Iterator[Result]:
    rows = pa.Table.from_batches(list(batches(count)))
    texts = [rows.column(name).to_pylist() for name in TEXTS]
    folders = iter(range(100))

    def fresh() -> Path:
        folder = root / str(next(folders))
        folder.mkdir()
        return folder

    def append() -> None:
        folder = fresh()
        Table.create(folder / "table", SCHEMA, config=_cache(folder)).append(rows)

    ours, bare = race(4, append, lambda: bare_index(fresh(), texts))
    yield Result(
        f"Appending {count:,} rows, Parquet included, is about as quick as indexing alone",
        bare.seconds / ours.seconds, 0.6, "at least",
        f"a loop of tantivy-py over three text columns {bare} / append {ours}",
    )  # fmt: skip

    folder = fresh()
    table = Table.create(folder / "table", SCHEMA, config=_cache(folder))
    size = table.append(rows).bytes_added
    pq.write_table(rows, folder / "plain.parquet", compression="zstd")
    plain = (folder / "plain.parquet").stat().st_size
    yield Result(
        "A split is not much larger than its rows, positions included",
        size / plain, 1.8, "at most", f"{size:,} bytes / zstd Parquet {plain:,} bytes",
    )  # fmt: skip
    index = bare_index(fresh(), texts)
    rows = rows.combine_chunks()
    yield _many_hits(open_table(folder), rows, index)


def _many_hits(table: Table, rows: pa.Table, index: tantivy.Index) -> Result:
    """Two columns of every fifth row. The bare side takes them from memory, ours from Parquet."""
    query = tantivy.Query.term_query(index.schema, "message", COMMON)

    def times(columns: list[str]) -> list[Time]:
        def bare() -> pa.Table:
            searcher = index.searcher()
            hits = searcher.search(query, searcher.num_docs, count=False).hits
            found = np.fromiter((address.doc for _, address in hits), np.int64, len(hits))
            return rows.select(columns).take(found)

        def ours() -> pa.Table:
            return table.scan(columns=columns, where=f"message indexquery '{COMMON}'")

        assert ours().sort_by("id") == bare().sort_by("id")
        return race(15, ours, bare)

    taken, bare_time = times(["id", "service"])
    long_taken, long_bare = times(["id", "message"])
    hits = table.count(where=f"message indexquery '{COMMON}'")
    return Result(
        f"{hits:,} hits with two columns cost little more than finding them",
        taken.seconds / bare_time.seconds, 3, "at most",
        f"id and service: scan {taken} / bare search and take from memory {bare_time}; "
        f"id and message, whose texts are decoded: "
        f"{long_taken.seconds / long_bare.seconds:.2g} times",
    )  # fmt: skip


# --- many splits -----------------------------------------------------------------------------


def make_splits(root: Path, rows_each: int = ROWS) -> None:
    """The same rows as ten splits and as ten plain files."""
    table = Table.create(root / "table", SCHEMA, config=_cache(root))
    (root / "plain").mkdir()
    for number in range(SPLITS):
        made = batches(rows_each, start=number * rows_each, needle_every=rows_each)
        rows = pa.Table.from_batches(list(made))
        table.append(rows)
        pq.write_table(rows, root / "plain" / f"{number}.parquet", compression="zstd")


def _many_splits(root: Path, rows_each: int) -> Iterator[Result]:
    make_splits(root, rows_each)
    yield _needle(root, SPLITS * rows_each)
    yield _full_scan(root, SPLITS * rows_each)


def _needle(root: Path, rows: int) -> Result:
    """A word in few rows. The peers look for the word; for a part of a word DuckDB is quicker."""
    table = open_table(root)
    plain = ds.dataset(root / "plain")
    word = rf"\b{NEEDLE}\b"
    files = f"read_parquet('{root}/plain/*.parquet')"
    connection = duckdb.connect()

    def ours(table: Table = table) -> pa.Table:
        return table.scan(where=f"message indexquery '{NEEDLE}'")

    def arrow() -> pa.Table:
        return plain.to_table(filter=pc.match_substring_regex(ds.field("message"), word))

    def duck(condition: str = f"regexp_matches(message, '{word}')") -> pa.Table:
        found: pa.Table = connection.sql(
            f"select * from {files} where {condition}"
        ).to_arrow_table()
        return found

    def duck_part() -> pa.Table:
        return duck(f"contains(message, '{NEEDLE}')")

    expected = ours().sort_by("id")
    assert expected.num_rows == SPLITS
    for peer in (arrow, duck, duck_part):
        assert peer().cast(SCHEMA).sort_by("id") == expected
    # Twice, and the second counts: a warm scan is one that follows another, while the peers'
    # gigabytes have emptied the processor's caches for the first.
    by_arrow, by_duck, by_part, _, warm = race(6, arrow, duck, duck_part, ours, ours)
    others = [open_table(root, cache=f"cold-{n}") for n in range(3)]
    cold = min(best_of(1, partial(ours, other)) for other in others)
    best = min(by_arrow.seconds, by_duck.seconds)
    return Result(
        f"A word in {SPLITS} of {rows:,} rows, all columns, is found at once",
        best / warm.seconds, 100, "at least",
        f"best of pyarrow {by_arrow} and DuckDB {by_duck} / warm scan {warm}; "
        f"{best / cold:.3g} times with indexes never opened before ({cold:.3g} s); "
        f"{by_part.seconds / warm.seconds:.3g} times DuckDB's contains(), which also takes parts "
        "of words",
    )  # fmt: skip


def _full_scan(root: Path, rows: int) -> Result:
    table = open_table(root)
    splits = sorted((root / "table" / "splits").glob("*.split"))
    ratios, how = {}, ""
    for name in SCHEMA.names:
        ours, plain, floor = race(
            4,
            partial(table.scan, columns=[name]),
            partial(pq.read_table, root / "plain", columns=[name]),
            partial(pq.read_table, splits, columns=[name]),
        )
        ratios[name] = ours.seconds / plain.seconds
        how = (
            f"message: scan {ours} / pyarrow.parquet.read_table {plain}; "
            f"pyarrow alone of our files {floor}"
        )
    others = ", ".join(f"{n} {r:.2f}" for n, r in ratios.items() if n != "message")
    return Result(
        f"A full scan of one column of {rows:,} rows takes what plain Parquet takes",
        ratios["message"], 1.3, "at most", f"{how}; other columns: {others}",
    )  # fmt: skip


# --- memory ----------------------------------------------------------------------------------

_APPEND = """
import sys, tempfile
from pathlib import Path
from benchmarks.log_rows import SCHEMA, batches
from indextables import Table
with tempfile.TemporaryDirectory() as folder:
    heap = {"spark.indextables.indexWriter.heapSize": sys.argv[2]}
    Table.create(folder, SCHEMA, config=heap).append(batches(int(sys.argv[1])))
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) / 1024)
"""


def peak_megabytes(rows: int) -> float:
    """The most memory that a process had which appended rows from a generator.

    Not `ru_maxrss`: a child inherits that of its parent.
    """
    command = [sys.executable, "-c", _APPEND, str(rows), _SMALL_HEAP]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return float(done.stdout)


def _memory() -> Result:
    few, many = peak_megabytes(ROWS // 4), peak_megabytes(ROWS)
    return Result(
        "Peak memory of an append does not grow with its rows",
        many / few, 1.2, "at most",
        f"{ROWS:,} rows {many:.0f} MB / {ROWS // 4:,} rows {few:.0f} MB, "
        f"with an index heap of {_SMALL_HEAP}B, which both fill",
    )  # fmt: skip
