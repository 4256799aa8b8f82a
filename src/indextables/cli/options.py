"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Format = Literal["parquet", "csv", "jsonl"]
"""Kinds of files that rows come from and go to."""
Formatted = Annotated[
    Format | None, typer.Option("--format", help="The kind of file; by its name by default.")
]
ExportFormat = Literal["parquet", "csv", "jsonl", "delta"]
"""The same, and Delta tables, which rows go to."""
ExportFormatted = Annotated[
    ExportFormat | None,
    typer.Option("--format", help="What to write; by the file's name by default."),
]
TableUri = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="The table: a folder, or s3://, gs://, abfss:// …"),
]
Where = Annotated[
    str | None,
    typer.Option("--where", "-w", metavar="CONDITION", help="A condition in Spark's SQL."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", "-c", metavar="COLUMN", help="A column to show; all by default."),
]
Version = Annotated[
    int | None, typer.Option("--version", "-v", min=0, help="The table as it was at a version.")
]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="The table as it was at a time, 2024-01-31T12:00"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would be done.")]
Mapped = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        "-m",
        metavar="COLUMN=KIND",
        help="How a column is searched: text (words), string (whole value), json, ip.",
    ),
]
PartitionBy = Annotated[
    list[str] | None,
    typer.Option("--partition-by", "-p", metavar="COLUMN", help="A partition column."),
]
