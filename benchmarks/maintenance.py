"""Keeping a table small and quick: merging splits."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.log_rows import NEEDLE, SCHEMA, batch
from benchmarks.measure import Result, best_of, race
from indextables import Table
from indextables.plan.execute import close_indexes

SPLITS = 50
ROWS = 20_000


def run(scale: float = 1.0) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as name:
        yield from _merge(Path(name), max(1_000, int(ROWS * scale)))


def _opened(root: Path, cache: str, *, version: int | None = None) -> Table:
    config: dict[str, object] = {
        "spark.indextables.cache.disk.path": str(root / cache),
        "spark.indextables.xref.autoIndex.enabled": False,
    }
    return Table.open(root / "table", version=version, config=config)


def _merge(root: Path, per_split: int) -> Iterator[Result]:
    Table.create(root / "table", SCHEMA)
    table = _opened(root, "cache")
    total = SPLITS * per_split
    # Not from 0 on: the needle would be the first row of the first split.
    made = [
        batch(7 * total + number * per_split, per_split, needle_every=total)
        for number in range(SPLITS)
    ]
    start, cpu = time.perf_counter(), time.process_time()
    for rows in made:
        table.append(rows)
    appended = time.perf_counter() - start
    appended_cpu = time.process_time() - cpu
    many = table.version
    before = _found(table)

    seconds, processor = [], []
    for _ in range(3):
        table.restore(version=many)
        start, cpu = time.perf_counter(), time.process_time()
        merged = table.merge_splits()
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - cpu)
        assert (merged.files_removed, merged.files_added) == (SPLITS, 1)
    assert _found(table) == before
    yield Result(
        f"Merging {SPLITS} splits of {per_split:,} rows is quicker than it was to append them",
        appended / min(seconds), 3, "at least",
        f"append {appended:.3g} s ({appended_cpu:.3g} s of processor) / merge "
        f"{min(seconds):.3g} s ({min(processor):.3g} s of processor)",
    )  # fmt: skip
    yield _needle(root, many, table.version, total)


def _found(table: Table) -> pa.Table:
    return table.scan(where=f"message indexquery '{NEEDLE}'")


def _needle(root: Path, many: int, one: int, rows: int) -> Result:
    """With no index open, as after a start; with no copy of one on the disk; and again."""
    split, whole = (_opened(root, "cache", version=v) for v in (many, one))
    assert _found(split) == _found(whole)

    def first(table: Table) -> Callable[[], object]:
        def search() -> None:
            close_indexes()
            _found(table)

        return search

    opened_many, opened_one = race(10, first(split), first(whole))
    _found(split)
    _found(whole)
    warm_many, warm_one = race(30, lambda: _found(split), lambda: _found(whole))
    cold_many, cold_one = (
        min(best_of(1, first(_opened(root, f"cold-{v}-{n}", version=v))) for n in range(3))
        for v in (many, one)
    )
    return Result(
        f"A word in one of {rows:,} rows is found sooner in one split than in {SPLITS}",
        opened_many.seconds / opened_one.seconds, 5, "at least",
        f"with no index open {opened_many} / {opened_one}; {cold_many / cold_one:.3g} times "
        f"({cold_many:.3g} s / {cold_one:.3g} s) if no copy of an index is on the disk yet; "
        f"{warm_many.seconds / warm_one.seconds:.3g} times ({warm_many.seconds * 1e3:.3g} ms / "
        f"{warm_one.seconds * 1e3:.3g} ms) with all indexes open, where reading the condition and "
        "the row is most of it",
    )  # fmt: skip
