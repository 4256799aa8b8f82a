"""Commands that move rows: create, import, export."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from indextables.cells import size
from indextables.cli import settings as o
from indextables.cli.settings import Settings, command, pairs

_PANEL = "Rows in and out"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for name, function in (("create", _create), ("import", _import), ("export", _export)):
        command(app, name, panel=_PANEL)(function)


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
    name, separator, kind = text.partition(":")
    if not separator or not name:
        raise typer.BadParameter(f"{text!r} is not name:type", param_hint="NAME:TYPE")
    return name, kind


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
        kind=format_,
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
    """One character; a tab may be written as shells and people write it."""
    character = "\t" if text == "\\t" else text
    if character is not None and (len(character) != 1 or not character.isascii()):
        raise typer.BadParameter("expected one ASCII character", param_hint="--delimiter")
    return character


def _many(count: int, what: str) -> str:
    """A number of things.

    >>> _many(1, "file"), _many(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


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
            count = export_rows(rows, file, kind=format_, overwrite=overwrite, progress=advance)
    if file != "-":
        show_facts({"exported": count, "file": file}, json=settings.json)
