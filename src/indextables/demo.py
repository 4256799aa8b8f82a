"""A tour of the product on real text that every machine has: the sources of Python's own library.

Run it with `make demo`. It writes a table, searches it, compares with a plain scan, lets two
writers commit at once, and looks back in time.
"""

from __future__ import annotations

import ast
import html
import re
import shutil
import sysconfig
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from indextables.table import Table

PLACE = Path(".demo")
_COLUMNS: dict[str, pa.DataType] = {
    "module": pa.string(),
    "name": pa.string(),
    "kind": pa.string(),
    "lines": pa.int32(),
    "code": pa.string(),
}
SCHEMA = pa.schema(_COLUMNS)
QUERY = '"context manager" AND (socket OR thread*)'

console = Console()


def definitions() -> Iterator[dict[str, object]]:
    """Every function and class of the standard library, as a document."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(root.rglob("*.py")):
        if "site-packages" in file.parts or "lib2to3" in file.parts:
            continue
        try:
            source = file.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (SyntaxError, ValueError, OSError):
            continue
        module = ".".join(file.relative_to(root).with_suffix("").parts)
        lines = source.splitlines()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                end = node.end_lineno or node.lineno
                yield {
                    "module": module,
                    "name": node.name,
                    "kind": "class" if isinstance(node, ast.ClassDef) else "function",
                    "lines": end - node.lineno + 1,
                    "code": "\n".join(lines[node.lineno - 1 : end]),
                }


def timed(work: Callable[[], pa.Table]) -> tuple[pa.Table, float]:
    """The best of five runs, in milliseconds."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        result = work()
        times.append((time.perf_counter() - start) * 1000)
    return result, min(times)


def write(documents: pa.Table) -> Table:
    """Write the documents, partitioned by kind."""
    shutil.rmtree(PLACE, ignore_errors=True)
    table = Table.create(
        PLACE / "code", SCHEMA, partition_by=["kind"], mapping={"module": "string"}
    )
    start = time.perf_counter()
    written = table.append(documents)
    seconds = time.perf_counter() - start
    console.print(
        f"[bold]Written[/]: {written.rows:,} functions and classes in {written.files_added} "
        f"splits, {written.bytes_added / 1e6:.1f} MB, {written.rows / seconds:,.0f} a second\n"
    )
    return table


def search(table: Table) -> None:
    """The best hits of a query, with the words that were found."""
    console.print(f"[bold]Search[/]  table.search({QUERY!r})")
    grid = Grid("score", "where", "found")
    hits = table.search(QUERY, fields=["code"], limit=5, snippets=["code"])
    for row in hits.to_pylist():
        text = escape(html.unescape(re.sub(r"\s+", " ", row["_snippet_code"])))
        found = text.replace("<b>", "[bold yellow]").replace("</b>", "[/]")
        grid.add_row(f"{row['_score']:.2f}", f"{row['module']}.{row['name']}", found)
    console.print(grid)


def compare(table: Table, documents: pa.Table) -> None:
    """The same condition by index and by a scan of the same rows in Parquet."""
    plain = PLACE / "plain.parquet"
    pq.write_table(documents, plain, compression="zstd")
    where = "code indexquery 'sendfile' AND lines > 10"
    ours, ours_ms = timed(lambda: table.scan(columns=["module", "name"], where=where))

    def scan() -> pa.Table:
        rows = pq.read_table(plain)
        word = pc.match_substring_regex(rows["code"], r"(?i)(^|[^a-z0-9])sendfile($|[^a-z0-9])")
        long: Any = pc.greater(rows["lines"], pa.scalar(10, pa.int32()))
        return rows.filter(pc.and_(word, long)).select(["module", "name"])

    theirs, theirs_ms = timed(scan)
    console.print(f"[bold]Filter[/]  table.scan(where={where!r})")
    console.print(
        f"  {ours.num_rows} rows in {ours_ms:.1f} ms; scanning the same rows in Parquet finds "
        f"{theirs.num_rows} in {theirs_ms:.0f} ms, {theirs_ms / ours_ms:.0f} times slower\n",
        soft_wrap=True,
    )
    console.print(
        "[bold]Why[/]  table.explain(where=\"kind = 'class' AND code indexquery 'socket'\")"
    )
    console.print(
        table.explain(where="kind = 'class' AND code indexquery 'socket'"), highlight=False
    )


def two_writers(table: Table) -> None:
    """Two writers at once: both commit, one after the other."""
    rows = {"module": ["demo"], "name": ["later"], "kind": ["function"], "lines": [1]}

    def append(number: int) -> None:
        for turn in range(3):
            code = f"def later(): return 'writer {number}, turn {turn}'"
            Table.open(table.uri).append(pa.table({**rows, "code": [code]}))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(append, (1, 2)))
    table.delete(where="module = 'demo' AND code indexquery '\"turn 0\"'")
    console.print("\n[bold]History[/]  two writers appended at once, then some rows were deleted")
    grid = Grid("version", "time", "operation", "files added", "removed", "rows at that version")
    for entry in table.history().to_pylist():
        then = Table.open(table.uri, version=entry["version"]).count()
        grid.add_row(
            str(entry["version"]),
            f"{entry['timestamp']:%H:%M:%S.%f}"[:-3],
            entry["operation"],
            str(entry["filesAdded"]),
            str(entry["filesRemoved"]),
            f"{then:,}",
        )
    console.print(grid)


def main() -> None:
    """Show it all."""
    with console.status("Reading the sources of Python's library …"):
        documents = pa.Table.from_pylist(list(definitions()), schema=SCHEMA)
    table = write(documents)
    search(table)
    compare(table, documents)
    two_writers(table)
    console.print(f"The table is in {table.uri}; any Parquet reader can open its splits.")


if __name__ == "__main__":
    main()
