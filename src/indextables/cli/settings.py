"""What all commands share: their arguments and options, and how they fail.

A command is a function whose first parameter is `settings`. `command` registers it with the common
options in place of that parameter, and turns every error into one sentence on standard error:

====  =======================================================
code  meaning
====  =======================================================
0     done
1     it did not work, or a check found something wrong
2     the command line itself is wrong
130   interrupted
====  =======================================================
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from indextables.cells import printable
from indextables.config import PREFIX, is_own_key
from indextables.errors import IndexTablesError

if TYPE_CHECKING:
    from indextables.plan.access import TableAccess
    from indextables.table import Table


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
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would be done.")]
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


# --- settings, and how commands fail ---------------------------------------------------------

Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Settings:
    """The common options of one command. Values may be secrets and are never shown."""

    config: Mapping[str, object] = field(default_factory=dict, repr=False)
    storage_options: Mapping[str, object] = field(default_factory=dict, repr=False)
    json: bool = False

    def open(self, uri: str, *, version: int | None = None, as_of: str | None = None) -> Table:
        """Open a table with these settings, or the rows of a search index."""
        from indextables.lake.opening import open_table

        return open_table(
            uri,
            version=version,
            timestamp=as_of,
            config=self.config,
            storage_options=self.storage_options,
        )

    def access(self, uri: str) -> TableAccess:
        """How to reach a search index or its source. A local folder takes no options."""
        from indextables.lake.iceberg import CATALOG
        from indextables.plan.access import TableAccess
        from indextables.storage.location import parse_location

        options = {name: str(value) for name, value in self.storage_options.items()}
        if uri.startswith(CATALOG):
            return TableAccess(uri, self.config, options, options)
        is_local = parse_location(uri).scheme == "file"
        return TableAccess(uri, self.config, {} if is_local else options, options)

    def open_itself(self, uri: str, *, as_of: str | None = None) -> Table:
        """The same, of a search index its own files and versions."""
        from indextables.lake.opening import own_options
        from indextables.table import Table

        options = own_options(uri, self.storage_options)
        return Table.open(uri, timestamp=as_of, config=self.config, storage_options=options)


def pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """The values of an option that takes `key=value`, several times.

    >>> pairs(["a=1", "b=x=y"], "--config")
    {'a': '1', 'b': 'x=y'}
    """
    named: dict[str, str] = {}
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not key.strip():
            # The value may be a secret given without a name, so it is not shown.
            raise typer.BadParameter("expected key=value", param_hint=option)
        named[key.strip()] = text
    return named


def _config(values: Sequence[str]) -> dict[str, object]:
    named = pairs(values, "--config")
    return {key if is_own_key(key) else PREFIX + key: value for key, value in named.items()}


_COMMON: dict[str, Any] = {
    "config": Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="KEY=VALUE",
            help="A configuration key; the prefix spark.indextables. may be left out.",
            rich_help_panel="Common options",
        ),
    ],
    "storage_option": Annotated[
        list[str] | None,
        typer.Option(
            "--storage-option",
            metavar="KEY=VALUE",
            help="A credential, endpoint or timeout of the object store.",
            rich_help_panel="Common options",
        ),
    ],
    "json": Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON lines, one object a line.", rich_help_panel="Common options"
        ),
    ],
    "debug": Annotated[
        bool,
        typer.Option(
            "--debug", help="Show where an error comes from.", rich_help_panel="Common options"
        ),
    ],
}
_DEFAULTS: dict[str, Any] = {"config": None, "storage_option": None, "json": False, "debug": False}


def command(app: typer.Typer, name: str, *, panel: str) -> Callable[[Command], Command]:
    """Register a function as a command with the common options."""

    def register(function: Command) -> Command:
        signature = inspect.signature(function, eval_str=True)
        parameters = [p for p in signature.parameters.values() if p.name != "settings"]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        common = [
            inspect.Parameter(
                option,
                inspect.Parameter.KEYWORD_ONLY,
                default=_DEFAULTS[option],
                annotation=annotation,
            )
            for option, annotation in _COMMON.items()
        ]

        def run(**arguments: Any) -> None:
            options = {option: arguments.pop(option) for option in _COMMON}
            settings = Settings(
                config=_config(options["config"] or ()),
                storage_options=dict(pairs(options["storage_option"] or (), "--storage-option")),
                json=options["json"],
            )
            _guarded(functools.partial(function, settings, **arguments), debug=options["debug"])

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        run.__module__ = function.__module__
        run.__signature__ = signature.replace(parameters=[*parameters, *common])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*parameters, *common)}
        app.command(name, rich_help_panel=panel)(run)
        return function

    return register


def fail(sentence: str) -> NoReturn:
    """End the command with a sentence on standard error."""
    sys.stdout.flush()
    typer.secho("error: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
    typer.echo(printable(on_command_line(sentence), keep_newlines=True), err=True)
    raise typer.Exit(1)


def _guarded(work: Callable[[], None], *, debug: bool) -> None:
    try:
        work()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed it. Nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(130) from None
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except (IndexTablesError, OSError) as error:
        if debug:
            traceback.print_exc()
        fail(str(error))
    except Exception as error:
        if debug:
            traceback.print_exc()
        fail(
            f"This should not have happened ({type(error).__name__}: {error}). Run the command "
            "again with --debug and report what it prints."
        )


# --- remedies in words of the command line -------------------------------------------------------


PHRASES = {
    "Create it with Table.create or write a DataFrame to it first":
        "Make one with `indextables import TABLE FILE` or `indextables create`",
    "Write its rows to a table with write_table":
        "Make a table of it with `indextables import TABLE FILE`",
    "Open it, or choose another place":
        "Add rows to it with `indextables import`, or choose another place",
    "Open the table again and repeat the operation with the new metadata": "Run the command again",
    "Open the table again and repeat the operation": "Run the command again",
    "Plan the operation again on the current version": "Run the command again",
    "write with merge_schema=True (in Spark: .option('mergeSchema', True))":
        "import with --merge-schema",
    "cannot be stored in an index table; cast or drop them":
        "cannot be stored in an index table; give each another type with --type COLUMN=TYPE, as "
        "--type 'n=decimal(20,0)'",
    "name the format parquet": "add --format parquet",
    "version=… or timestamp=…": "--version or --as-of",
    "Write 2024-01-31T12:00:00, a datetime, or milliseconds": "Write 2024-01-31T12:00:00",
    "Choose its columns with columns=…": "Choose its columns with --column",
    "and the other storage_options": "and --storage-option",
    "the network and the storage_options": "the network and --storage-option",
    "Pass them as storage_options (in Spark: as options)": "Give them with --storage-option",
    "with REPAIR INDEXFILES TRANSACTION LOG":
        "with `indextables sql` and REPAIR INDEXFILES TRANSACTION LOG",
    "with INDEX CROSSREFERENCES FOR … FORCE REBUILD": "with `indextables xref --force-rebuild`",
    "Run INDEX CROSSREFERENCES again": "Run `indextables xref` again",
    "REFRESH SEARCH INDEX … ON …, or open the index with source=… and call refresh()":
        "`indextables search-index refresh INDEX --source SOURCE`",
    "REFRESH SEARCH INDEX or SearchIndex.refresh indexes what is new. Rows are read with SQL, with "
    "the format indextables in Spark, or with indextables.SearchIndex.open":
        "`indextables search-index refresh` indexes what is new. Rows are read with `search`, "
        "`sql` and `export`",
    "Open it with indextables.Table.open": "Give the path of a search index",
}  # fmt: skip
"""A library's remedy, and the command line's."""

_BEFORE_KEYS = ("raise", "Raise", "set", "Set", "Choose another", "take it out of", "and")
_KEYS = "Keys are given with --config KEY=VALUE."


def on_command_line(sentence: str) -> str:
    """An error's sentence with the command line's remedy.

    >>> on_command_line("There are Parquet files: name the format parquet to use those.")
    'There are Parquet files: add --format parquet to use those.'
    >>> on_command_line("Choose another spark.indextables.cache.disk.path.")
    'Choose another spark.indextables.cache.disk.path. Keys are given with --config KEY=VALUE.'
    """
    for phrase, remedy in PHRASES.items():
        sentence = sentence.replace(phrase, remedy)
    if any(f"{verb} {PREFIX}" in sentence for verb in _BEFORE_KEYS):
        sentence = f"{sentence} {_KEYS}"
    return sentence
