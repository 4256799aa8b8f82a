"""A tour of the product on real text that every machine has: the Python sources installed here.

`make demo` runs it. A step is a heading with the code that it runs, hits with their words marked,
and times as bars; the steps that need Spark come last.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import site
import sys
import sysconfig
import textwrap
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table as Grid
from rich.text import Text

from indextables.cli.output import bars, highlighted
from indextables.config import XREF_QUERY
from indextables.errors import JavaMissingError
from indextables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PLACE = Path(".demo")


def main() -> None:
    """Show it all."""
    shutil.rmtree(PLACE, ignore_errors=True)
    collected = itertools.islice(definitions(source_files()), MOST)
    reading = "Reading the Python sources that are installed here"
    documents = document_table(track(collected, reading, total=MOST, console=console))
    plain = write_files(documents, PLACE / "parquet")
    path = str((PLACE / "code").resolve())
    try:
        spark = start_spark(PLACE.resolve())
    except (JavaMissingError, ImportError) as error:
        say(f"[yellow]{error}[/] What needs Spark is left out.")
        write_without_spark(documents, path)
        tour_of(Table.open(path), documents)
        say_goodbye()
        return
    spark_write(spark, PLACE / "parquet", path)
    spark_search(spark, PLACE / "parquet", path)
    tour_of(Table.open(path), documents)
    spark_join(spark, plain)
    spark.stop()
    say_goodbye()


def say_goodbye() -> None:
    """What the demo leaves, and how to open it in this environment."""
    program = os.path.relpath(Path(sys.executable).with_name("indextables"))
    heading("Search it in a browser", f"{program} serve {PLACE / 'code'}")
    say("prints an address; --open opens it. docs/images/demo.png shows the page.")
    say(f"The table is in {PLACE / 'code'}; any Parquet reader can open its splits.")


def write_without_spark(documents: pa.Table, path: str) -> None:
    """The same table, written by plain Python."""
    heading("Write", "table.append(documents)")
    mapping = {"module": "string", "package": "string"}
    table = Table.create(path, SCHEMA, partition_by=["kind"], mapping=mapping)
    written = table.append(documents)
    say(f"{written.rows:,} functions and classes in {written.files_added} splits")


def tour_of(table: Table, documents: pa.Table) -> None:
    """What needs no Spark, on a table that Spark may have written."""
    search(table)
    compare(table, PLACE / "parquet")
    append(table, documents)
    route(table)
    merge(table)
    look_back(table)


# --- the documents ---------------------------------------------------------------------------

_COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "package": pa.string(),
    "module": pa.string(),
    "name": pa.string(),
    "kind": pa.string(),
    "lines": pa.int32(),
    "code": pa.string(),
}
SCHEMA = pa.schema(_COLUMNS)
MOST = 150_000
_PACKAGES_PER_FILE = 4
_BEGINNING = re.compile(r"^[ \t]*(?:async +)?(def|class) +(\w+)", re.MULTILINE)
_LONGEST = 1_000_000


def source_files() -> list[tuple[str, Path]]:
    """The installed sources, each with the name of its module."""
    files = []
    library = Path(sysconfig.get_paths()["stdlib"])
    for root in [library, *map(Path, site.getsitepackages())]:
        for file in sorted(root.rglob("*.py")):
            inside = file.relative_to(root)
            if "site-packages" in inside.parts:
                continue
            module = ".".join(inside.with_suffix("").parts)
            files.append((module.removesuffix(".__init__"), file))
    return files


def definitions(files: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, str, str, str]]:
    """Module, name, kind and text of everything that is defined in some files."""
    for module, file in files:
        try:
            source = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        places = list(_BEGINNING.finditer(source))
        if not places or len(source) > _LONGEST:
            continue
        ends = [match.start() for match in places[1:]] + [len(source)]
        for match, end in zip(places, ends, strict=True):
            kind = "class" if match[1] == "class" else "function"
            yield module, match[2], kind, source[match.start() : end].strip()


def document_table(rows: Iterable[tuple[str, str, str, str]]) -> pa.Table:
    """Definitions as a table."""
    columns: list[list[str]] = [[], [], [], []]
    for definition in rows:
        for column, value in zip(columns, definition, strict=True):
            column.append(value)
    module, name, kind, code = map(pa.array, columns)
    lines = pc.add(pc.count_substring(code, "\n"), 1)
    package = pc.struct_field(pc.extract_regex(module, r"^(?P<p>[^.]*)"), "p")
    numbers = pa.array(range(len(module)), pa.int64())
    return pa.table(
        [numbers, package, module, name, kind, lines.cast(pa.int32()), code], schema=SCHEMA
    )


def write_files(rows: pa.Table, folder: Path) -> list[str]:
    """The rows as plain Parquet files, a few packages each, as external files."""
    folder.mkdir(parents=True)
    packages = rows["package"].unique().to_pylist()
    names = []
    for start in range(0, len(packages), _PACKAGES_PER_FILE):
        packages_of_file = pa.array(packages[start : start + _PACKAGES_PER_FILE])
        file = folder / f"part-{start // _PACKAGES_PER_FILE:03d}.parquet"
        pq.write_table(
            rows.filter(pc.is_in(rows["package"], packages_of_file)), file, compression="zstd"
        )
        names.append(str(file))
    return names


QUERY = '"context manager" AND (socket OR thread*)'
NEEDLE = "sendfile"
_APPENDS = 100
_KEYS = 40


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
    assert ours.num_rows == theirs.num_rows
    say(f"{ours.num_rows} rows, by the index as by a scan of the same rows in Parquet")
    versus(our_time, their_time, other="scan")
    condition = f"kind = 'class' AND code indexquery '{NEEDLE}'"
    heading("Why", f"table.explain(where={condition!r})")
    for line in table.explain(where=condition).splitlines():
        say_wrapped(line)


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
    heading("Route", "table.index_crossreferences()  # most are there: appends build them")
    table.index_crossreferences()
    where = f"code indexquery '{NEEDLE}'"
    before, opened, without = _measured_scan(
        Table.open(table.uri, config={XREF_QUERY.name: False}), where
    )
    after, routed, with_it = _measured_scan(table, where)
    assert before.sort_by("id") == after.sort_by("id")
    bars_of(
        [
            ("without", opened, f"{opened} splits opened, {without:,.1f} ms"),
            ("with", routed, f"{routed} splits opened, {with_it:,.1f} ms"),
        ]
    )
    say(
        f"The same {after.num_rows} rows. It is for thousands of splits, and for buckets, where "
        "each split that is opened is a request."
    )


def _measured_scan(table: Table, where: str) -> tuple[pa.Table, int, float]:
    """The rows of a condition, how many splits were opened for them, and the milliseconds."""
    rows, spent = timed(lambda: table.scan(columns=["id"], where=where))
    read = re.search(r"^ *read +([\d,]+) splits", table.explain(where=where), re.MULTILINE)
    assert read is not None
    return rows, int(read[1].replace(",", "")), spent


def merge(table: Table) -> None:
    """Small splits become few; nothing else changes."""
    heading("Merge", "table.merge_splits(target_size='1G')")
    files, rows = table.snapshot().num_files, table.count()
    best = table.search(QUERY, fields=["code"], columns=["id"], limit=20)
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


# --- on Spark ------------------------------------------------------------------------------------


def start_spark(place: Path) -> SparkSession:
    """A quiet session on this machine."""
    from indextables.spark.session import session

    settings: dict[str, object] = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.ariadne.storagePath": str(place / "ariadne"),
    }
    with console.status("Starting Spark …"), _stderr_in(place / "spark.log"):
        return session("indextables demo", **settings)


@contextlib.contextmanager
def _stderr_in(log: Path) -> Iterator[None]:
    """Processes that start meanwhile have their standard error in a file, for as long as they run.

    What a JVM says about itself cannot be turned off by Spark's settings.
    """
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def spark_write(spark: SparkSession, folder: Path, path: str) -> None:
    """A DataFrame becomes a table."""
    heading("Write", "df.write.format('indextables').partitionBy('kind').save(path)")
    frame: Any = spark.read.parquet(str(folder))
    with console.status("Writing from Spark …"):
        _, spent = timed(
            lambda: (
                frame.write.format("indextables")
                .mode("append")
                .option("spark.indextables.indexing.typemap.string", "module,package")
                .partitionBy("kind")
                .save(path)
            ),
            times=1,
        )
    rows = frame.count()
    rate = rows / spent * 1000
    say(f"{rows:,} functions and classes in {spent / 1000:.1f} s, {rate:,.0f} a second")


def spark_search(spark: SparkSession, folder: Path, path: str) -> None:
    """A search in SQL, beside the same question asked of Parquet."""
    query = f"""SELECT package, count(*) AS n FROM indextables.`{path}`
WHERE code indexquery '{NEEDLE} OR "zero copy"'
GROUP BY package ORDER BY n DESC, package"""
    heading("SQL", query)
    plain: Any = spark.read.parquet(str(folder))
    plain.createOrReplaceTempView("plain")
    pattern = rf"(?i)(^|[^a-z0-9])({NEEDLE}|zero[^a-z0-9]+copy)($|[^a-z0-9])"
    scan = f"SELECT package, count(*) AS n FROM plain WHERE code rlike '{pattern}' GROUP BY package"
    indexed, our_time = timed(lambda: spark.sql(query).collect())
    other, their_time = timed(lambda: spark.sql(scan).collect())
    assert {tuple(row) for row in indexed} == {tuple(row) for row in other}
    grid(("package", "definitions"), [tuple(row) for row in indexed[:5]])
    versus(our_time, their_time, other="rlike on Parquet")


def spark_join(spark: SparkSession, files: list[str]) -> None:
    """A join that reads only the files that can match."""
    from indextables.ariadne import Index

    heading("Join external files", "index.join(keys, ['name'])")
    first: Any = spark.read.parquet(files[0])
    index = Index("definitions", first.schema, "parquet")
    index.add_file(*files)
    index.add_index("package")
    index.add_bloom_index("name")
    with console.status("Indexing the files …"):
        index.update()
    everything: Any = spark.read.parquet(*files)
    different_keys: Any = (
        everything.where("package = 'asyncio'").select("name", "package").distinct()
    )
    keys: Any = spark.createDataFrame(different_keys.limit(_KEYS).collect(), different_keys.schema)
    ours = index.join(keys, ["name", "package"], "inner").count()
    theirs = everything.join(keys, ["name", "package"], "inner").count()
    assert ours == theirs
    located = index.locate_files({"package": ["asyncio"]})
    say(
        f"{ours:,} rows, as Spark's join over all files returns them; {len(located)} of "
        f"{len(files)} files are read"
    )


# --- how it prints ---------------------------------------------------------------------------

console = Console(highlight=False)
Result = TypeVar("Result")
_SHORT = 22
_NARROWEST, _INDENT = 24, 20


def heading(title: str, code: str) -> None:
    """What comes now, and the code that does it."""
    console.print()
    console.rule(f"[bold]{title}[/]", align="left", style="dim")
    for line in textwrap.dedent(code).splitlines():
        console.print(f"  [cyan]{escape(line)}[/]", soft_wrap=True)


def say(text: str) -> None:
    """A sentence, with markup."""
    console.print(f"  {text}", soft_wrap=True)


def say_wrapped(line: str) -> None:
    """A line of output whose last column goes on below where the terminal is narrow."""
    last = max(line.rstrip().rfind("  ") + 2, len(line) - len(line.lstrip()))
    head, left = line[:last], last
    if len(line) > console.width and console.width - last < _NARROWEST:
        console.print(Text(head.rstrip()), soft_wrap=True)
        head, left = " " * _INDENT, _INDENT
    for piece in textwrap.wrap(line[last:], max(_NARROWEST, console.width - left)) or [""]:
        console.print(Text(head + piece), soft_wrap=True)
        head = " " * left


def grid(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A small table. Where a terminal is narrow, long texts give way and short values do not."""
    table = Grid()
    texts = [[_line(cell) for cell in row] for row in rows]
    for at, name in enumerate(columns):
        widest = max([len(name), *(row[at].cell_len for row in texts)])
        # Rich takes width away from columns that may wrap; a line of text is cut all the same.
        table.add_column(name, no_wrap=widest <= _SHORT)
    for row in texts:
        table.add_row(*row)
    console.print(table)


def _line(cell: object) -> Text:
    text = cell.copy() if isinstance(cell, Text) else Text(str(cell))
    text.overflow = "ellipsis"
    text.no_wrap = True
    return text


def timed(work: Callable[[], Result], *, times: int = 3) -> tuple[Result, float]:
    """A result and the milliseconds of the best of some runs."""
    times_ms = []
    result: Any = None
    for _ in range(times):
        start = time.perf_counter()
        result = work()
        times_ms.append((time.perf_counter() - start) * 1000)
    return result, min(times_ms)


def bars_of(figures: Sequence[tuple[str, float, str]]) -> None:
    """Some numbers as bars, each with its label before and its text behind."""
    widest = max(len(label) for label, _, _ in figures)
    drawn = bars([round(1000 * number) for _, number, _ in figures])
    for (label, _, text), bar in zip(figures, drawn, strict=True):
        console.print(f"  {label:<{widest}}  [green]{bar or '▏'}[/] {text}", soft_wrap=True)


def versus(ours: float, theirs: float, *, other: str) -> None:
    """Two times of the same question."""
    bars_of([("index", ours, f"{ours:,.1f} ms"), (other, theirs, f"{theirs:,.0f} ms")])
    ratio = theirs / ours
    say(f"[bold]{ratio:,.0f} times quicker[/]" if ratio >= 2 else f"ratio {ratio:.1f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
