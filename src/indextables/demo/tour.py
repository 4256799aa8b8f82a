"""The part of the tour that needs no Spark: search, compare, append, route, merge, look back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from indextables.cli.output import highlighted
from indextables.config import XREF_MIN_SPLITS
from indextables.demo.show import console, grid, heading, say, timed, versus
from indextables.table import Table

QUERY = '"context manager" AND (socket OR thread*)'
NEEDLE = "sendfile"
_APPENDS = 40


def search(table: Table) -> None:
    """The best hits of a query, with the words that were found."""
    heading("Search, ranked", f"table.search({QUERY!r}, snippets=['code'])")
    hits = table.search(QUERY, fields=["code"], limit=5, snippets=["code"])
    rows = [
        (
            f"{hit['_score']:.2f}",
            f"{hit['module']}.{hit['name']}",
            highlighted(hit["_snippet_code"]),
        )
        for hit in hits.to_pylist()
    ]
    grid(("score", "where", "found"), rows)


def compare(table: Table, folder: Path) -> None:
    """The same condition by index and by a scan of the same rows in Parquet."""
    where = f"code indexquery '{NEEDLE}' AND lines > 10"
    heading("Filter", f"table.scan(where={where!r})")
    plain = ds.dataset(folder)

    def scan() -> pa.Table:
        word = pc.match_substring_regex(
            ds.field("code"), rf"(?i)(^|[^a-z0-9]){NEEDLE}($|[^a-z0-9])"
        )
        long: Any = ds.field("lines") > 10
        return plain.to_table(columns=["module", "name"], filter=word & long)

    ours, our_time = timed(lambda: table.scan(columns=["module", "name"], where=where))
    theirs, their_time = timed(scan)
    say(f"{ours.num_rows} rows by index, {theirs.num_rows} by a scan of the same rows in Parquet")
    versus(our_time, their_time, other="the scan")
    condition = f"kind = 'class' AND code indexquery '{NEEDLE}'"
    heading("Why", f"table.explain(where={condition!r})")
    console.print(table.explain(where=condition), soft_wrap=True)


def append(table: Table, documents: pa.Table) -> None:
    """Many small appends, as a stream makes them."""
    heading("Append", f"table.append(rows), {_APPENDS} times")
    step = documents.num_rows // _APPENDS
    with console.status("Appending …"):
        for number in range(_APPENDS):
            table.append(documents.slice(number * step, 50))
    say(f"{table.snapshot().num_files} splits now, version {table.version}, {table.count():,} rows")


def route(table: Table) -> None:
    """Cross-references: from many splits to the few that hold a word."""
    heading("Route", "table.index_crossreferences()")
    # By default routing begins at more splits: opening a few is cheap where the disk is near.
    table = Table.open(table.uri, config={XREF_MIN_SPLITS.name: 16})
    where = f"code indexquery '{NEEDLE}'"
    before, without = timed(lambda: table.scan(columns=["id"], where=where))
    with console.status("Building the cross-reference …"):
        table.index_crossreferences()
    after, routed = timed(lambda: table.scan(columns=["id"], where=where))
    assert before.sort_by("id") == after.sort_by("id")
    for line in table.explain(where=where).splitlines():
        if "xref" in line.lower() or "cross" in line.lower() or " read " in line:
            say(line.strip())
    say(f"{without:,.1f} ms before, {routed:,.1f} ms with it; the same {after.num_rows} rows")


def merge(table: Table) -> None:
    """Small splits become few; nothing else changes."""
    heading("Merge", "table.merge_splits(target_size='1G')")
    files, rows = table.snapshot().num_files, table.count()
    best = table.search(QUERY, fields=["code"], columns=["id"], limit=20)
    with console.status("Merging …"):
        table.merge_splits(target_size="1G")
    assert table.count() == rows
    assert table.search(QUERY, fields=["code"], columns=["id"], limit=20).equals(best)
    say(f"{files} splits became {table.snapshot().num_files}; rows, order and scores are the same")


def look_back(table: Table) -> None:
    """Every version is still there."""
    table.delete(where=f"code indexquery '{NEEDLE}'")
    heading("Look back", "Table.open(uri, version=…).count()")
    entries = table.history().to_pylist()
    shown = [*entries[:4], *entries[-2:]]
    rows = [
        (
            entry["version"],
            entry["operation"],
            entry["filesAdded"],
            entry["filesRemoved"],
            f"{Table.open(table.uri, version=entry['version']).count():,}",
        )
        for entry in shown
    ]
    grid(("version", "operation", "added", "removed", "rows then"), rows)
