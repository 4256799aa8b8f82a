"""Commands that keep a table or a search index in order.

Each is a statement that SQL has too, and prints the rows it returns. A status of failure, a check
that found something wrong say, is exit code 1.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from indextables.cli import settings as o
from indextables.cli.settings import Settings, command, pairs
from indextables.errors import ConfigError, SourceFileError

if TYPE_CHECKING:
    from indextables.statements.statements import Statement

_PANEL = "Upkeep"

_Version = Annotated[
    int | None, typer.Option("--version", "-v", min=0, help="The version to go back to.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
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
        command(app, name, panel=_PANEL)(function)
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
    app.add_typer(indexes, name="search-index", rich_help_panel=_PANEL)


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
        found = [{**dataclasses.asdict(job), "remaining_s": job.remaining_s(now)} for job in jobs]
        show_records(list(found[0]) if found else [], [list(one.values()) for one in found],
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
        whole, done = job.bytes_total or job.total, job.bytes if job.bytes_total else job.done
        line.add_row(
            Text(state(job, job.remaining_s(now))),
            ProgressBar(total=whole or 1, completed=done if whole else 0, width=24,
                        pulse=not whole, animation_time=now),
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
        raise ConfigError("Say either --version or --as-of to restore.")
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

    types = {
        f"{keys.TYPE_MAP.name}{name}": kind for name, kind in pairs(map_ or (), "--map").items()
    }
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
