"""Run the benchmarks: `python -m benchmarks [--scale S] [--output FILE] [NAME …]`.

Each module measures its peers side by side in one run and gives ratios. Without names, all run.
The bars are meant for `--scale 1`; a smaller scale is quicker and less telling.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks.measure import HEADER, machine

MODULES = [
    "transaction_log",
    "planning",
    "splits",
    "writing",
    "cold",
    "xref",
    "spark",
    "spark_log",
    "tpch",
    "many_splits",
    "maintenance",
    "changes",
    "purge",
    "search_index",
    "mirror",
    "relevance",
    "ariadne_build",
    "ariadne_lookup",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which ones; all of {', '.join(MODULES)}")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is the size of the claims")
    parser.add_argument("--output", type=Path, help="write the Markdown table to this file too")
    arguments = parser.parse_args()
    lines = [f"Measured at scale {arguments.scale:g} on: {machine()}", "", HEADER]
    print(*lines, sep="\n", flush=True)
    failed = 0
    for name in arguments.names or MODULES:
        for result in importlib.import_module(f"benchmarks.{name}").run(arguments.scale):
            failed += not result.holds
            lines.append(result.row())
            print(lines[-1], flush=True)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")
    return 1 if failed and arguments.scale >= 1 else 0


if __name__ == "__main__":
    sys.exit(main())
