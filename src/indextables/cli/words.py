"""Commands about words: analyze, complete, suggest, more-like."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from indextables.cli import options as o
from indextables.cli.settings import Settings, command

_PANEL = "Look"
_Column = Annotated[str, typer.Argument(metavar="COLUMN", help="A column that has words.")]
_Limit = Annotated[int, typer.Option("--limit", "-l", min=1, help="How many.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for name, function in _COMMANDS.items():
        command(app, name, panel=_PANEL)(function)


def _analyze(
    settings: Settings,
    table: o.TableUri,
    *,
    column: Annotated[
        str,
        typer.Argument(metavar="COLUMN", help="A column, or an analyzer: 'english', 'html | code'"),
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Any text.")],
) -> None:
    """Show the words that an index holds of a text."""
    from indextables.cli.output import show_rows

    show_rows(settings.open(table).analyze(column, text), json=settings.json, empty="no words")


def _complete(
    settings: Settings,
    table: o.TableUri,
    *,
    column: _Column,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="The first letters of a word.")],
    where: o.Where = None,
    limit: _Limit = 10,
) -> None:
    """Show the words of a column that begin with a text, and how many rows have each."""
    from indextables.cli.output import show_rows

    found = settings.open(table).complete(prefix, column=column, where=where, limit=limit)
    show_rows(found, json=settings.json, empty="nothing found")


def _suggest(
    settings: Settings,
    table: o.TableUri,
    *,
    column: _Column,
    word: Annotated[str, typer.Argument(metavar="WORD", help="A word that may be misspelt.")],
    where: o.Where = None,
    limit: _Limit = 5,
) -> None:
    """Show the words of a column that are spelled nearly so."""
    from indextables.cli.output import show_rows

    found = settings.open(table).suggest(word, column=column, where=where, limit=limit)
    show_rows(found, json=settings.json, empty="nothing found")


def _more_like(
    settings: Settings,
    table: o.TableUri,
    *,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="A text.")] = None,
    row: Annotated[
        str | None, typer.Option("--row", metavar="CONDITION", help="Or one row: \"id = 'a'\".")
    ] = None,
    field: Annotated[
        list[str] | None, typer.Option("--field", "-f", help="Compare this field, or field^weight.")
    ] = None,
    where: o.Where = None,
    column: o.Columns = None,
    limit: _Limit = 10,
) -> None:
    """Find the rows that are about the same as a text or a row, best first."""
    from indextables.cli.output import show_rows

    found = settings.open(table).more_like_this(
        text, row=row, fields=field, where=where, columns=column, limit=limit
    )
    show_rows(found, json=settings.json, empty="nothing found")


_COMMANDS: dict[str, Any] = {
    "analyze": _analyze,
    "complete": _complete,
    "suggest": _suggest,
    "more-like": _more_like,
}
