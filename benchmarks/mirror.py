"""What a Delta mirror adds to a commit: time on a disk, rounds of requests to a distant store."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.counting import counted
from benchmarks.log_rows import batches
from benchmarks.measure import Result
from benchmarks.peers import s3_server
from indextables import Table

COMMITS = 40
"""Four of them write a checkpoint."""
ROWS = 5_000
DELAY_S = 0.03
MIRROR = "spark.indextables.delta.mirror"


def run(scale: float) -> Iterator[Result]:
    rows = pa.Table.from_batches(batches(max(100, int(ROWS * scale))))
    yield from _on_disk(rows)
    yield from _far(rows.slice(0, 100))


def _on_disk(rows: pa.Table) -> Iterator[Result]:
    """Commits in turns, so that whatever disturbs the machine disturbs both."""
    spent = {"false": 0.0, "true": 0.0}
    with tempfile.TemporaryDirectory() as root:
        tables = {
            is_on: Table.create(Path(root, is_on), rows.schema, properties={MIRROR: is_on})
            for is_on in spent
        }
        for _ in range(COMMITS):
            for is_on, table in tables.items():
                start = time.process_time()
                table.append(rows)
                spent[is_on] += time.process_time() - start
    yield Result(
        f"A Delta mirror adds at most a tenth to {COMMITS} appends of {rows.num_rows:,} rows",
        spent["true"] / spent["false"], 1.1, "at most",
        f"processor time, checkpoints included: {spent['true']:.2f} s / {spent['false']:.2f} s",
    )  # fmt: skip


def _far(rows: pa.Table) -> Iterator[Result]:
    rounds = {}
    with s3_server() as (uri, direct), counted(direct) as (options, traffic):
        for is_on in ("false", "true"):
            table = Table.create(
                f"{uri}/{is_on}", rows.schema,
                properties={MIRROR: is_on}, storage_options=options,
            )  # fmt: skip
            table.append(rows)
            traffic.clear()
            traffic.delay = DELAY_S
            for _ in range(10):
                table.append(rows)
            traffic.delay = 0.0
            rounds[is_on] = traffic.rounds
    yield Result(
        "A Delta mirror adds at most a tenth to the requests that an append to S3 waits for",
        rounds["true"] / rounds["false"], 1.1, "at most",
        f"rounds of ten appends, one with a checkpoint: {rounds['true']} / {rounds['false']}",
    )  # fmt: skip
