"""What the driver does before a search begins, by the number of a table's files.

The files exist in the log only. A million of them is a hundred thousand repeated under other names.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measure import Result, race
from benchmarks.transaction_log import adds, append, make_table
from indextables import Table
from indextables.log.files import files_from_adds, intern_mapping
from indextables.log.snapshot import VersionActions
from indextables.log.transaction_log import TransactionLog
from indextables.plan.scan import plan_scan
from indextables.plan.view import TableView
from indextables.predicate import And, Column, Compare, Predicate, Search
from indextables.predicate.search_syntax import parse_search
from indextables.storage import open_store

SCHEMA = pa.schema(
    [
        ("date", pa.string()),
        ("id", pa.int64()),
        ("level", pa.string()),
        ("ts", pa.int64()),
        ("message", pa.string()),
    ]
)
SEARCH = Search(Column(("message",)), parse_search("needle"), "needle")
NARROWED = And((Compare(">=", Column(("date",)), "2024-06-01"), SEARCH))


def views(root: Path, files: int, copies: int) -> list[TableView]:
    """A table of 1,000 files, one of `files`, and one of `copies` times as many."""
    table = Table.create(str(root / "planned"), SCHEMA, partition_by=["date"])
    base = files_from_adds([(intern_mapping(add, {}), 0, 0) for add in adds(files)])
    names = base["path"]
    parts = [
        base.set_column(0, "path", pc.binary_join_element_wise(str(n), names, "-"))
        for n in range(copies)
    ]
    every = [base.slice(0, 1_000), base, pa.concat_tables(parts)]
    snapshot = table.view.snapshot
    return [table.view.at(replace(snapshot, base_files=files)) for files in every]


def run(scale: float = 1.0) -> Iterator[Result]:
    """Planning in processor time, and the refresh of an open table."""
    files = max(10_000, int(100_000 * scale))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        yield from _plans(views(root, files, 10))
        yield from _refreshes(root, files)


def _plans(tables: list[TableView]) -> Iterator[Result]:
    for predicate, bars in ((SEARCH, (0.1, 0.2)), (NARROWED, (0.1, 0.2))):
        for view, bar in zip(tables[1:], bars, strict=True):
            (time,) = race(5, lambda v=view, p=predicate: plan_scan(v, predicate=p))  # type: ignore[misc]
            count, size = view.snapshot.num_files, view.snapshot.entries.nbytes
            yield Result(
                f"Planning `{predicate}` over {count:,} files",
                time.cpu, bar, "at most",
                f"seconds of processor; the files take {size / 1e6:,.0f} MB",
            )  # fmt: skip
    small, large = tables[0], tables[1]
    new = adds(1, start=10**8)

    def refreshed(view: TableView, predicate: Predicate = SEARCH) -> None:
        newer = VersionActions(view.version + 1, new, 0)
        plan_scan(view.at(view.snapshot.advance([newer])), predicate=predicate)

    one, other = race(9, lambda: refreshed(large), lambda: refreshed(small))
    yield Result(
        f"A new version of {large.snapshot.num_files:,} files is applied and planned",
        one.cpu, 0.1, "at most",
        f"seconds of processor; {other.cpu:.4f} s with 1,000 files",
    )  # fmt: skip


def _refreshes(root: Path, files: int) -> Iterator[Result]:
    """On a real log: refresh after a commit, and a second handle in the same process."""
    logs = {count: make_table(root / f"log-{count}", count, {}) for count in (1_000, files)}
    handles = {count: Table.open(str(root / f"log-{count}")) for count in logs}
    start = 10**7

    def refresh(count: int) -> None:
        handles[count].refresh()

    times: dict[int, list[float]] = {count: [] for count in logs}
    for _ in range(9):
        for count, log in logs.items():
            append(log, adds(1, start=start))
            start += 1
            (time,) = race(1, lambda c=count: refresh(c))  # type: ignore[misc]
            times[count].append(time.cpu)
    large, small = (sorted(times[count])[4] for count in (files, 1_000))
    yield Result(
        f"Refresh of {files:,} files after one commit is that of 1,000",
        large / small, 2, "at most",
        f"{large * 1000:.2f} ms / {small * 1000:.2f} ms of processor",
    )  # fmt: skip
    (again,) = race(5, lambda: TransactionLog(open_store(root / f"log-{files}")).snapshot())
    yield Result(
        f"Opening {files:,} files again in the same process",
        again.cpu, 0.1, "at most", "seconds of processor",
    )  # fmt: skip
