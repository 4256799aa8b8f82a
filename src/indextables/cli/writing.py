"""Commands that write: create, import and export rows, and keep a table or a search index in order.

Those of upkeep are statements that SQL has too, and print the rows that those return. A status of
failure, such as a check that found something wrong, is exit code 1.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from indextables.cells import size
from indextables.cli import settings as o
from indextables.cli.settings import Settings, command, pairs
from indextables.errors import ConfigError, SourceFileError

if TYPE_CHECKING:
    from indextables.statements.statements import Statement


_ROWS = "Rows in and out"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for name, function in (("create", _create), ("import", _import), ("export", _export)):
        command(app, name, panel=_ROWS)(function)
    _register_upkeep(app)


def _create(
    settings: Settings,
    table: o.TableUri,
    *,
    columns: Annotated[
        list[str] | None, typer.Argument(metavar="NAME:TYPE", help="A column with Spark's type.")
    ] = None,
    like: Annotated[
        str | None, typer.Option("--like", metavar="FILE", help="Take the columns of a file.")
    ] = None,
    partition_by: o.PartitionBy = None,
    map_: o.Mapped = None,
    name: Annotated[str | None, typer.Option("--name", help="The table's name.")] = None,
    description: Annotated[str | None, typer.Option("--description", help="What it holds.")] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A property kept with the table."),
    ] = None,
) -> None:
    """Create an empty table."""
    from indextables.cli.importing import create_table
    from indextables.cli.output import show_facts

    created = create_table(
        settings,
        table,
        [_column(text) for text in columns or ()],
        like=like,
        partition_by=partition_by or (),
        mapping=pairs(map_ or (), "--map"),
        properties=pairs(property_ or (), "--property"),
        name=name,
        description=description,
    )
    show_facts({"table": created.uri, "version": created.version}, json=settings.json)


def _column(text: str) -> tuple[str, str]:
    name, separator, type_text = text.partition(":")
    if not separator or not name:
        raise typer.BadParameter(f"{text!r} is not name:type", param_hint="NAME:TYPE")
    return name, type_text


def _import(
    settings: Settings,
    table: o.TableUri,
    *,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Files, folders or globs, here or in s3://, gs://, abfss:// …; - is stdin.",
        ),
    ],
    format_: o.Formatted = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace all rows.")] = False,
    merge_schema: Annotated[
        bool, typer.Option("--merge-schema", help="Add new columns to the table.")
    ] = False,
    partition_by: o.PartitionBy = None,
    map_: o.Mapped = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="COLUMN=TYPE", help="A column's type, Spark's name."),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option("--delimiter", help="Of CSV; a comma by default, a tab in .tsv.")
    ] = None,
    on_error: Annotated[
        Literal["fail", "skip"],
        typer.Option("--on-error", help="What a line that cannot be read does: CSV and JSON."),
    ] = "fail",
    rejects: Annotated[
        str | None,
        typer.Option("--rejects", metavar="FILE", help="Keep skipped lines here, as JSON lines."),
    ] = None,
) -> None:
    """Import Parquet, CSV or JSON lines; the table is created where it is missing.

    All files are one commit: the table has all of their rows or none.
    """
    from indextables.cli.importing import import_files
    from indextables.cli.output import show_facts

    if rejects is not None and on_error != "skip":
        raise typer.BadParameter("it needs --on-error skip.", param_hint="--rejects")
    imported = import_files(
        settings,
        table,
        files,
        file_format=format_,
        delimiter=_delimiter(delimiter),
        types=pairs(type_ or (), "--type"),
        partition_by=partition_by or (),
        mapping=pairs(map_ or (), "--map"),
        overwrite=overwrite,
        merge_schema=merge_schema,
        skip=on_error == "skip",
        rejects_file=rejects,
    )
    if settings.json:
        show_facts(imported, json=True)
        return
    kept = "" if rejects is None else f", in {rejects}"
    left_out = imported.get("rejected")
    show_facts(
        {
            "imported": f"{_many(imported['rows'], 'row')} of {_many(imported['files'], 'file')}",
            "table": f"{imported['table']} at version {imported['version']}",
            "written": f"{_many(imported['files_added'], 'split')}, "
            f"{size(imported['bytes_added'])}",
            **({"rejected": f"{_many(left_out, 'line')}{kept}"} if left_out else {}),
        },
        json=False,
    )


def _delimiter(text: str | None) -> str | None:
    """One character; a tab may be written as `\\\\t`."""
    character = "\t" if text == "\\t" else text
    if character is not None and (len(character) != 1 or not character.isascii()):
        raise typer.BadParameter("expected one ASCII character", param_hint="--delimiter")
    return character


def _many(count: int, noun: str) -> str:
    """A number of things.

    >>> _many(1, "file"), _many(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _export(
    settings: Settings,
    table: o.TableUri,
    *,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Where to; - is standard output. A folder for Delta."),
    ],
    format_: o.ExportFormatted = None,
    where: o.Where = None,
    column: o.Columns = None,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=0)] = None,
    version: o.Version = None,
    as_of: o.AsOf = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it exists.")
    ] = False,
) -> None:
    """Export rows to Parquet, CSV or JSON lines, or to a Delta table."""
    from indextables.cli.output import show_facts
    from indextables.jobs.progress import progress
    from indextables.sinks import export_delta, export_rows

    opened = settings.open(table, version=version, as_of=as_of)
    rows = opened.scan_batches(columns=column, where=where, limit=limit)
    with progress("Exporting", unit="rows", table=opened.uri) as advance:
        if format_ == "delta":
            kept = [n for n in opened.partition_columns if n in rows.schema.names]
            count = export_delta(
                rows, file,
                partition_by=kept, overwrite=overwrite,
                storage_options=settings.storage_options, progress=advance,
            )  # fmt: skip
        else:
            count = export_rows(
                rows, file, file_format=format_, overwrite=overwrite, progress=advance
            )
    if file != "-":
        show_facts({"exported": count, "file": file}, json=settings.json)


# --- upkeep ----------------------------------------------------------------------------------

_UPKEEP = "Upkeep"

_Version = Annotated[
    int | None, typer.Option("--version", "-v", min=0, help="The version to go back to.")
]


def _register_upkeep(app: typer.Typer) -> None:
    for name, function in (
        ("merge", _merge),
        ("xref", _xref),
        ("purge", _purge),
        ("verify", _verify),
        ("restore", _restore),
        ("checkpoint", _checkpoint),
        ("report", _report),
        ("top", _top),
    ):
        command(app, name, panel=_UPKEEP)(function)
    indexes = typer.Typer(
        help="Keep an index over a Delta table or Parquet files, which stay where they are.",
        no_args_is_help=True,
    )
    commands: dict[str, Any] = {
        "create": _create_index,
        "refresh": _refresh_index,
        "describe": _describe_index,
        "drop": _drop_index,
    }
    for name, work in commands.items():
        command(indexes, name, panel="Search indexes")(work)
    app.add_typer(indexes, name="search-index", rich_help_panel=_UPKEEP)


def _merge(
    settings: Settings,
    table: o.TableUri,
    *,
    where: o.Where = None,
    target_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="How large a split may become: 100M, 5G.")
    ] = None,
    max_groups: Annotated[
        int | None, typer.Option(min=1, help="How many splits are made at the most.")
    ] = None,
    max_sources: Annotated[
        int | None, typer.Option(min=2, help="Of how many splits one is made at the most.")
    ] = None,
) -> None:
    """Merge small splits into large ones."""
    from indextables.statements import statements as s

    statement = s.MergeSplits(
        table=s.Target(path=table),
        where=where,
        target_size=target_size,
        max_groups=max_groups,
        max_sources=max_sources,
    )
    _run(statement, settings)


def _top(
    settings: Settings,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print what runs now, and end.")] = False,
) -> None:
    """Watch your long jobs on this machine: imports, merges, purges, checks, indexes."""
    import dataclasses

    from indextables.cli.output import is_terminal, show_records
    from indextables.jobs.progress import clock, running_jobs, state

    if is_terminal() and not once and not settings.json:
        _watch()
        return
    now, jobs = time.time(), running_jobs()
    if settings.json:
        shown = [{**dataclasses.asdict(job), "remaining_s": job.remaining_s(now)} for job in jobs]
        show_records(list(shown[0]) if shown else [], [list(one.values()) for one in shown],
                     json=True)  # fmt: skip
        return
    records = [
        (job.title, job.table, state(job, job.remaining_s(now)), clock(now - job.begun),
         job.process)
        for job in jobs
    ]  # fmt: skip
    show_records(["job", "table", "state", "running", "process"], records, json=False,
                 empty=_NO_JOBS)  # fmt: skip


_NO_JOBS = "no long job of yours is running on this machine"


def _watch() -> None:
    """Draw the jobs every second, until the user has seen enough."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table as Grid
    from rich.text import Text

    from indextables.cells import printable
    from indextables.cli.output import console
    from indextables.jobs.progress import Job, clock, running_jobs, state

    def drawn(job: Job, now: float) -> Grid:
        line = Grid.grid(expand=True, padding=(0, 1))
        line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        line.add_column(justify="right", no_wrap=True)
        name = Text.assemble((printable(job.title), "bold"), "  ", printable(job.table))
        since = f"{clock(max(0.0, now - job.begun))}  process {job.process}"
        line.add_row(name, Text(since, style="dim"))
        total, done = job.bytes_total or job.total, job.bytes if job.bytes_total else job.done
        line.add_row(
            Text(state(job, job.remaining_s(now))),
            ProgressBar(total=total or 1, completed=done if total else 0, width=24,
                        pulse=not total, animation_time=now),
        )  # fmt: skip
        return line

    def screen() -> Group:
        now, jobs = time.time(), running_jobs()
        head = f"{len(jobs)} long job{'' if len(jobs) == 1 else 's'} · Ctrl-C ends"
        return Group(Text(head if jobs else f"{_NO_JOBS} · Ctrl-C ends", style="dim"),
                     *(part for job in jobs for part in (Text(""), drawn(job, now))))  # fmt: skip

    with (
        Live(screen(), console=console(), refresh_per_second=2, screen=True) as live,
        contextlib.suppress(KeyboardInterrupt),
    ):
        while True:
            time.sleep(0.5)
            live.update(screen())


def _xref(
    settings: Settings,
    table: o.TableUri,
    *,
    where: o.Where = None,
    force_rebuild: Annotated[bool, typer.Option("--force-rebuild", help="Rebuild all.")] = False,
    dry_run: o.DryRun = False,
) -> None:
    """Build the cross-references that tell a search which splits can match."""
    from indextables.statements import statements as s

    statement = s.IndexCrossReferences(
        table=s.Target(path=table), where=where, force_rebuild=force_rebuild, dry_run=dry_run
    )
    _run(statement, settings, empty="nothing to do: every split has its cross-reference")


def _purge(
    settings: Settings,
    table: o.TableUri,
    *,
    older_than: Annotated[
        int | None, typer.Option(metavar="HOURS", min=0, help="Keep younger splits; 168 hours.")
    ] = None,
    log_retention: Annotated[
        int | None, typer.Option(metavar="HOURS", min=0, help="Keep younger versions; 30 days.")
    ] = None,
    dry_run: o.DryRun = False,
) -> None:
    """Delete splits that no retained version names, and expired log files."""
    from indextables.statements import statements as s

    statement = s.Purge(
        table=s.Target(path=table),
        older_than=older_than,
        log_retention=log_retention,
        dry_run=dry_run,
    )
    _run(statement, settings)


def _verify(settings: Settings, table: o.TableUri) -> None:
    """Check a table: log, files, checksums, indexes, rows. Exit code 1 if something is wrong."""
    from indextables.statements import statements as s

    _run(s.Verify(table=s.Target(path=table)), settings)


def _restore(
    settings: Settings, table: o.TableUri, version: _Version = None, as_of: o.AsOf = None
) -> None:
    """Make a table what it was at a version or a time, as a new version."""
    from indextables.statements import statements as s

    if (version is None) == (as_of is None):
        raise ConfigError("Pass either --version or --as-of to restore.")
    if version is None:
        version = settings.open_itself(table, as_of=as_of).version
    _run(s.Restore(table=s.Target(path=table), version=version), settings)


def _checkpoint(settings: Settings, table: o.TableUri) -> None:
    """Write a checkpoint, so that opening the table reads one file instead of many."""
    from indextables.statements import statements as s

    _run(s.Checkpoint(table=s.Target(path=table)), settings)


# --- search indexes ------------------------------------------------------------------------------


_Index = Annotated[str, typer.Argument(metavar="INDEX", help="The index: a folder, or s3:// …")]
_Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="The table that has the rows, and keeps them.")
]
_SourceFormat = Annotated[
    Literal["delta", "iceberg", "parquet"],
    typer.Option("--format", help="What the source is: a table, or a folder of Parquet files."),
]


def _create_index(
    settings: Settings,
    index: _Index,
    *,
    source: _Source,
    source_format: _SourceFormat = "delta",
    column: Annotated[
        list[str] | None,
        typer.Option("--column", "-c", metavar="COLUMN", help="A column to search; all if none."),
    ] = None,
    map_: o.Mapped = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave an index alone that is there.")
    ] = False,
) -> None:
    """Index columns of a table that stays where it is."""
    from indextables import config as keys
    from indextables.statements import statements as s

    types = keys.TYPE_MAP.entries(pairs(map_ or (), "--map"))
    options = {**{name: str(value) for name, value in settings.config.items()}, **types}
    statement = s.CreateSearchIndex(
        index=s.Target(path=index),
        source=s.Target(name=(source_format, source)),
        columns=None if column is None else tuple(column),
        options=tuple(options.items()),
        if_not_exists=if_not_exists,
    )
    _run(statement, settings)


def _refresh_index(
    settings: Settings,
    index: _Index,
    *,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="SOURCE", help="Where the source is, if it was moved."),
    ] = None,
) -> None:
    """Index the files that are new in the source, and drop what left it."""
    from indextables.lake.opening import search_index_of
    from indextables.statements import statements as s

    moved = None
    if source is not None:
        moved = s.Target(name=(search_index_of(settings.access(index)).format, source))
    _run(s.RefreshSearchIndex(index=s.Target(path=index), source=moved), settings)


def _describe_index(settings: Settings, index: _Index) -> None:
    """Show the source of an index, its columns, and how much is indexed."""
    from indextables.statements import statements as s

    _run(s.DescribeSearchIndex(index=s.Target(path=index)), settings)


def _drop_index(settings: Settings, index: _Index) -> None:
    """Delete an index; the source is not touched."""
    from indextables.statements import statements as s

    _run(s.DropSearchIndex(index=s.Target(path=index)), settings)


def _run(statement: Statement, settings: Settings, *, empty: str = "no rows") -> None:
    from indextables.cli.queries import run_statement

    run_statement(statement, settings, empty=empty)


def _report(
    settings: Settings,
    table: o.TableUri,
    *,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; - is standard output."),
    ] = None,
) -> None:
    """Write a page about a table: its growth, splits, partitions, fields, and what to do."""
    from indextables.cli.output import show_facts
    from indextables.report import gather, page

    opened = settings.open(table)
    text = page(gather(opened, config=settings.config)).encode()
    if output == "-":
        sys.stdout.buffer.write(text)
        return
    name = opened.uri.rstrip("/").rpartition("/")[2] or "table"
    target = Path(output or f"{name}-report.html")
    try:
        target.write_bytes(text)
    except OSError as error:
        raise SourceFileError(str(target), error.strerror or str(error)) from None
    show_facts({"report": str(target), "bytes": len(text)}, json=settings.json)
