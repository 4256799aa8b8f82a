"""Many small splits: a search over a thousand of them beside the same rows in ten.

All are asked warm, and processor time counts: what a split costs a query that has nothing to find
in it. Each query is for one needle, so that few rows are read. It is asked with cross-references,
which leave the ten splits that hold it, and without, when every split is searched.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.log_rows import NEEDLE, SCHEMA, batches
from benchmarks.measure import Result, race
from indextables import Table
from indextables.jobs.write_job import plan_write
from indextables.plan.execute import Environment
from indextables.plan.scan import split_tasks
from indextables.predicate import TRUE, Search
from indextables.predicate.sql_text import parse_predicate

ROWS = 100_000
FEW, MANY = 10, 1_000
WHERE = f"message indexquery '{NEEDLE}'"


def run(scale: float = 1.0) -> Iterator[Result]:
    rows = max(FEW * 100, int(ROWS * scale))
    many = max(FEW, int(MANY * scale))
    with tempfile.TemporaryDirectory() as name:
        data = pa.Table.from_batches(list(batches(rows, needle_every=rows // 10)))
        few = made(Path(name) / "few", data, FEW)
        lots = made(Path(name) / "many", data, many)
        questions: list[tuple[str, Callable[[Table], object]]] = [
            ("A scan", lambda table: table.scan(where=WHERE, columns=["id"]).num_rows),
            ("A ranked search", lambda table: table.search(NEEDLE, columns=["id"]).num_rows),
            ("A count", lambda table: table.count(where=WHERE)),
        ]
        for how, routed in (("", True), (", no cross-references", False)):
            tables = [_opened(table, routed=routed) for table in (few, lots)]
            for what, ask in questions:
                assert [ask(table) for table in tables] == [10, 10], what
                small, large, floor = race(
                    15, *(partial(ask, table) for table in tables), _bare_count(tables[1])
                )
                yield Result(
                    f"{what} over {many:,} splits of {rows // many} rows, against {FEW}{how}",
                    large.cpu / small.cpu, 3, "at most",
                    f"{many:,} splits {large} / {FEW} splits {small}; Tantivy alone counts "
                    f"{many:,} segments in {floor}",
                )  # fmt: skip


def _bare_count(table: Table) -> Callable[[], object]:
    """Tantivy's own count over the segments of all splits: what no plan can go below."""
    view = table.view
    environment = Environment.of(view)
    group = environment.group(split_tasks(view.snapshot, view.snapshot.entries, TRUE))
    search = parse_predicate(WHERE, view.schema)
    assert isinstance(search, Search)
    linked, question = group.linked_question(search)
    assert question is not None and question.compiled is not None
    return partial(linked.index.searcher.count, question.compiled)


def _opened(table: Table, *, routed: bool) -> Table:
    cache = str(Path(table.uri.removeprefix("file://")).parent / "cache")
    return Table.open(
        table.uri,
        config={
            "spark.indextables.cache.disk.path": cache,
            "spark.indextables.xref.query.enabled": routed,
        },
    )


def made(place: Path, data: pa.Table, splits: int) -> Table:
    """A table of so many splits, written as a job of so many tasks writes them."""
    table = Table.create(
        place / "table",
        SCHEMA,
        config={
            "spark.indextables.cache.disk.path": str(place / "cache"),
            "spark.indextables.mergeOnWrite.enabled": "false",
        },
    )
    job = plan_write(table._log, data.schema, settings=table.view.settings, kind="append")
    share = -(-data.num_rows // splits)
    outputs = [
        job.store(data.slice(at, share).to_batches()) for at in range(0, data.num_rows, share)
    ]
    job.commit(table._log, outputs)
    return table.refresh()
