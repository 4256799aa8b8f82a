"""The `indextables` command: index tables from a shell, without Spark.

The commands are in `reading` and `writing`; `app` lists them. What they share: `settings`
(their arguments and options, errors as sentences with a remedy for the shell), `output` (rows for a
terminal, a pipe or a program), `source_files`, `sources`, `importing` (files that rows come from),
`queries` (SQL and our statements). Queries are answered by `indextables.query`, pages are made by
`indextables.report` and `indextables.serve`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):  # closed by the program that started the command
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends
    try:
        from indextables.cli.app import app

        app(prog_name="indextables")
    except KeyboardInterrupt:  # before a command had begun, which would say so itself
        raise SystemExit(130) from None
