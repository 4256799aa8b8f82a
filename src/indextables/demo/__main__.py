"""The tour from beginning to end, over every function and class of the installed Python sources."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import site
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.progress import track

from indextables.demo import tour
from indextables.demo.tour import console, heading, say
from indextables.errors import JavaMissingError
from indextables.table import Table

PLACE = Path(".demo")


def main() -> None:
    """Show it all."""
    shutil.rmtree(PLACE, ignore_errors=True)
    found = itertools.islice(definitions(source_files()), MOST)
    reading = "Reading the Python sources that are installed here"
    documents = document_table(track(found, reading, total=MOST, console=console))
    plain = write_files(documents, PLACE / "parquet")
    path = str((PLACE / "code").resolve())
    try:
        spark = tour.start_spark(PLACE.resolve())
    except (JavaMissingError, ImportError) as error:
        say(f"[yellow]{error}[/] What needs Spark is left out.")
        write_without_spark(documents, path)
        tour_of(Table.open(path), documents)
        say_goodbye()
        return
    tour.spark_write(spark, PLACE / "parquet", path)
    tour.spark_search(spark, PLACE / "parquet", path)
    tour_of(Table.open(path), documents)
    tour.spark_join(spark, plain)
    spark.stop()
    say_goodbye()


def say_goodbye() -> None:
    """What is left, and how to look at it in this very environment."""
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
    tour.search(table)
    tour.compare(table, PLACE / "parquet")
    tour.append(table, documents)
    tour.route(table)
    tour.merge(table)
    tour.look_back(table)


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
    found = []
    library = Path(sysconfig.get_paths()["stdlib"])
    for root in [library, *map(Path, site.getsitepackages())]:
        for file in sorted(root.rglob("*.py")):
            inside = file.relative_to(root)
            if "site-packages" in inside.parts:
                continue
            module = ".".join(inside.with_suffix("").parts)
            found.append((module.removesuffix(".__init__"), file))
    return found


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
        ends = [place.start() for place in places[1:]] + [len(source)]
        for place, end in zip(places, ends, strict=True):
            kind = "class" if place[1] == "class" else "function"
            yield module, place[2], kind, source[place.start() : end].strip()


def document_table(found: Iterable[tuple[str, str, str, str]]) -> pa.Table:
    """Definitions as a table."""
    columns: list[list[str]] = [[], [], [], []]
    for definition in found:
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
        some = pa.array(packages[start : start + _PACKAGES_PER_FILE])
        file = folder / f"part-{start // _PACKAGES_PER_FILE:03d}.parquet"
        pq.write_table(rows.filter(pc.is_in(rows["package"], some)), file, compression="zstd")
        names.append(str(file))
    return names


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
