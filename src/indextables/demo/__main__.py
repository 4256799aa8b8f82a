"""The tour from beginning to end."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import warnings
from pathlib import Path

import pyarrow as pa
from rich.progress import track

from indextables.demo import corpus, tour
from indextables.demo.show import console, heading, say
from indextables.errors import JavaMissingError
from indextables.table import Table

PLACE = Path(".demo")


def main() -> None:
    """Show it all."""
    shutil.rmtree(PLACE, ignore_errors=True)
    found = itertools.islice(corpus.definitions(corpus.source_files()), corpus.MOST)
    reading = "Reading the Python sources that are installed here"
    documents = corpus.documents(track(found, reading, total=corpus.MOST, console=console))
    plain = corpus.write_files(documents, PLACE / "parquet")
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
    table = Table.create(path, corpus.SCHEMA, partition_by=["kind"], mapping=mapping)
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


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
