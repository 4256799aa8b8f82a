"""Writing: JSON, appends on two cores, partitions in any order, and streams of large values.

Processor time is compared, since machines that measure are busy; only the claim about two cores
compares the time that passes, and is worth nothing on a machine that does other work.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import tantivy

from benchmarks.log_rows import SCHEMA, batches
from benchmarks.measure import Result, race
from indextables import Table

_HEAP = 1_000_000_000
_VALUE = 10 << 20


def run(scale: float) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        yield _json(root / "json", int(200_000 * scale))
        yield _partitions(root / "partitions", int(262_000 * scale))
        yield _tiny(root / "tiny")
    if _cores() > 1:
        yield _two_cores(int(600_000 * scale))
    yield _large_values(max(10, int(170 * scale)))
    yield from column_costs(int(100_000 * scale))


# --- JSON ------------------------------------------------------------------------------------


def documents(count: int) -> list[str]:
    """Log records in JSON: eight leaves, six of them words."""
    rng = random.Random(3)
    words = [f"word{n}" for n in range(5_000)]
    return [
        orjson.dumps(
            {
                "user": {"name": rng.choice(words), "id": rng.randrange(10**6)},
                "tags": rng.sample(words, 3),
                "message": " ".join(rng.choices(words, k=6)),
                "ok": rng.random() < 0.5,
                "ms": rng.random(),
            }
        ).decode()
        for _ in range(count)
    ]


def _json(root: Path, count: int) -> Result:
    texts = documents(count)
    rows = pa.table({"id": range(count), "doc": texts})
    names = iter(range(100))

    def bare() -> None:
        folder = root / f"bare-{next(names)}"
        folder.mkdir(parents=True)
        builder = tantivy.SchemaBuilder()
        builder.add_unsigned_field("id", fast=True)
        builder.add_json_field("doc", index_option="position")
        writer = tantivy.Index(builder.build(), path=str(folder)).writer(_HEAP, 1)
        for number, text in enumerate(texts):
            document = tantivy.Document()
            document.add_unsigned("id", number)
            document.add_json("doc", text)
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()

    def ours() -> None:
        config = {"spark.indextables.indexing.typemap.doc": "json"}
        Table.create(root / f"table-{next(names)}", rows.schema, config=config).append(rows)

    mine, theirs = race(3, ours, bare)
    return Result(
        f"{count:,} JSON documents are written at half the speed at which Tantivy indexes them",
        theirs.cpu / mine.cpu, 0.5, "at least",
        f"rows a processor second: append, Parquet included, {count / mine.cpu:,.0f} / "
        f"Tantivy's JSON field alone {count / theirs.cpu:,.0f}",
    )  # fmt: skip


# --- partitions ------------------------------------------------------------------------------


def _partitions(root: Path, count: int) -> Result:
    rng = random.Random(5)
    parts = [rng.randrange(200) for _ in range(count)]
    rows = pa.Table.from_batches(list(batches(count))).append_column("part", pa.array(parts))
    table = Table.create(root, rows.schema, partition_by=["part"])
    files = table.append(rows).files_added
    return Result(
        f"{count:,} unsorted rows of 200 partitions make a file for each",
        files, 200, "at most", f"{files} files of {count:,} rows",
    )  # fmt: skip


def _tiny(root: Path) -> Result:
    """The processor time of a split of one row, beside a bare index and a bare Parquet file."""
    row = pa.Table.from_batches(list(batches(1)))
    table = Table.create(root / "table", SCHEMA)
    names = iter(range(10_000))

    def ours() -> None:
        for _ in range(20):
            table.append(row)

    def bare() -> None:
        for _ in range(20):
            folder = root / str(next(names))
            folder.mkdir()
            builder = tantivy.SchemaBuilder()
            builder.add_text_field("message", index_option="position")
            writer = tantivy.Index(builder.build(), path=str(folder)).writer(15_000_000, 1)
            writer.add_document(tantivy.Document(message=row["message"][0].as_py()))
            writer.commit()
            writer.wait_merging_threads()
            pq.write_table(row, folder / "rows.parquet")

    mine, theirs = race(3, ours, bare)
    return Result(
        "An append of one row costs little more than an index and a Parquet file of one row",
        mine.cpu / theirs.cpu, 6, "at most",
        f"{mine.cpu * 50:.3g} ms of processor, commit included / bare Tantivy and Parquet "
        f"{theirs.cpu * 50:.3g} ms",
    )  # fmt: skip


# --- cores -----------------------------------------------------------------------------------

_APPEND = """
import sys, tempfile, time
import pyarrow as pa
from benchmarks.log_rows import SCHEMA, batches
from indextables import Table
rows = pa.Table.from_batches(list(batches(int(sys.argv[1]))))
with tempfile.TemporaryDirectory() as folder:
    Table.create(folder + "/first", SCHEMA).append(rows.slice(0, 1_000))
    table = Table.create(folder + "/table", SCHEMA)
    print("ready", flush=True)
    sys.stdin.readline()
    start, cpu = time.monotonic(), time.process_time()
    table.append(rows)
    print(start, time.monotonic(), time.process_time() - cpu)
"""


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _appended(rows: int, *cores: set[int]) -> tuple[float, float]:
    """Seconds and processor seconds of appends side by side, each on some cores."""
    started = []
    for own in cores:
        process = subprocess.Popen(
            [sys.executable, "-c", _APPEND, str(rows // len(cores))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[1],
        )  # fmt: skip
        os.sched_setaffinity(process.pid, own)
        started.append(process)
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    times = [[float(n) for n in process.communicate()[0].split()] for process in started]
    seconds = max(end for _, end, _ in times) - min(start for start, _, _ in times)
    return seconds, sum(cpu for _, _, cpu in times)


def _two_cores(rows: int) -> Result:
    """An append on two cores and on one; the floor is two processes that share nothing."""
    one, two = sorted(os.sched_getaffinity(0))[:2]
    shares = [[{one}], [{one, two}], [{one, two}, {one, two}]]
    runs = [[_appended(rows, *cores) for cores in shares] for _ in range(3)]
    alone, both, apart = (min(run[place] for run in runs) for place in range(3))
    return Result(
        f"An append of {rows:,} rows on two cores, against one core",
        alone[0] / both[0], 1.6, "at least",
        f"one core {alone[0]:.3g} s / two cores {both[0]:.3g} s ({both[1]:.3g} s of processor); "
        f"two processes, each with half of the rows and a table of its own, {apart[0]:.3g} s "
        f"({apart[1]:.3g} s of processor): {both[0] / apart[0]:.3g} times is all that processes "
        "could gain",
    )  # fmt: skip


# --- large values ----------------------------------------------------------------------------

_STREAM = """
import sys
from pathlib import Path
from indextables import Table
def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(dict(line.split(":") for line in lines)[key].split()[0]) / 1024
table = Table.open(sys.argv[1])
table.count()
start, size = status("VmRSS"), 0
for batch in table.scan_batches():
    size += batch.nbytes
print(size, status("VmHWM") - start)
"""


def _large_values(count: int) -> Result:
    schema = pa.schema([("id", pa.int64()), ("value", pa.binary())])
    rng = random.Random(1)

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(count):
            values: list[Any] = [[number], [rng.randbytes(_VALUE)]]
            arrays = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
            yield pa.record_batch(arrays, schema=schema)

    with tempfile.TemporaryDirectory() as folder:
        Table.create(folder, schema).append(pa.RecordBatchReader.from_batches(schema, rows()))
        command = [sys.executable, "-c", _STREAM, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    size, peak = map(float, done.stdout.split())
    return Result(
        f"scan_batches of {size / 1e9:.2g} GB of 10 MB values needs little memory",
        peak, 400, "at most", f"{peak:.0f} MB above the start",
    )  # fmt: skip


# --- what a column costs ---------------------------------------------------------------------


def column_costs(count: int) -> Iterator[Result]:
    """Bytes and processor time that indexing adds, for each kind of column, over storing it."""
    rows = pa.Table.from_batches(list(batches(count)))
    columns: dict[str, tuple[Any, str]] = {
        "text of 12 words": (rows["message"], "text"),
        "text of one word that repeats": (rows["level"], "text"),
        "string that repeats": (rows["level"], "string"),
        "string, all different": (pa.array([f"id-{n:09d}" for n in range(count)]), "string"),
        "JSON of 8 leaves": (pa.array(documents(count)), "json"),
    }
    for name, (values, kind) in columns.items():
        indexed, size = _cost(values, kind, is_indexed=True)
        stored, plain = _cost(values, kind, is_indexed=False)
        yield Result(
            f"Indexing a column, a row: {name}",
            (indexed - stored) / count * 1e6, 100, "at most",
            f"microseconds of processor; {(size - plain) / count:.3g} bytes more than the "
            f"{plain / count:.3g} stored, which take {stored / count * 1e6:.2g} microseconds",
        )  # fmt: skip


def _cost(values: Any, kind: str, *, is_indexed: bool) -> tuple[float, int]:
    rows = pa.table({"n": range(len(values)), "value": values})
    config: dict[str, object] = {"spark.indextables.indexing.typemap.value": kind}
    if not is_indexed:
        config = {"spark.indextables.indexing.storeonlyfields": "value"}
    best, size = float("inf"), 0
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            table = Table.create(folder, rows.schema, config=config)
            start = time.process_time()
            size = table.append(rows).bytes_added
            best = min(best, time.process_time() - start)
    return best, size
