"""The `indextables` command: index tables from a shell, without Spark.

One module is one concern: `settings` (options that all commands share, errors as sentences),
`remedies` (what to do about an error, at a shell), `output` (rows for a terminal, a pipe or a
program), `source_files`, `sources` and `sinks` (files that rows come from and go to), `report_data`
and `report_page` (the page). The commands themselves are in `reading`, `writing` and `upkeep`;
`app` lists them.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    try:
        from indextables.cli.app import app

        app(prog_name="indextables")
    except KeyboardInterrupt:  # before a command had begun, which would say so itself
        raise SystemExit(130) from None
