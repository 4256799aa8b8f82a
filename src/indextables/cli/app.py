"""The `indextables` command line: its commands, its help and its version.

Shell completion: `indextables --install-completion`. Colours appear on a terminal only; `NO_COLOR`
turns them off.
"""

from __future__ import annotations

from typing import Annotated

import typer

from indextables.cli import reading, writing

app = typer.Typer(
    name="indextables",
    help="Full-text search tables in a folder or a bucket: import, search, query, maintain.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(show: bool) -> None:
    if show:
        from indextables import __version__

        typer.echo(f"indextables {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Full-text search tables in a folder or a bucket: import, search, query, maintain."""


writing.register(app)
reading.register(app)
