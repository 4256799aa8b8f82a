"""What to do about an error, in words of the command line.

Errors are written once, for everybody, and their remedies speak of Python. Here are the few phrases
that mean nothing to somebody at a shell, and what such a person does instead.
"""

from __future__ import annotations

import datetime
import re

from indextables.config import PREFIX

PHRASES = {
    "Create it with Table.create or write a DataFrame to it first":
        "Make one with `indextables import TABLE FILE` or `indextables create`",
    "Open it, or choose another place":
        "Add rows to it with `indextables import`, or choose another place",
    "Open the table again and repeat the operation with the new metadata": "Run the command again",
    "Open the table again and repeat the operation": "Run the command again",
    "Plan the operation again on the current version": "Run the command again",
    "write with merge_schema=True": "import with --merge-schema",
    "version=… or timestamp=…": "--version or --as-of",
    "Write 2024-01-31T12:00:00, a datetime, or milliseconds": "Write 2024-01-31T12:00:00",
    "Choose with columns=… what": "Choose with --column what",
    "and the other storage_options": "and --storage-option",
    "the network and the storage_options": "the network and --storage-option",
    "Pass them as storage_options": "Give them with --storage-option",
    "with REPAIR INDEXFILES TRANSACTION LOG":
        "with `indextables sql` and REPAIR INDEXFILES TRANSACTION LOG",
    "with INDEX CROSSREFERENCES FOR … FORCE REBUILD": "with `indextables xref --force-rebuild`",
    "Run INDEX CROSSREFERENCES again": "Run `indextables xref` again",
}  # fmt: skip
"""A library's remedy, and the command line's."""

_MOMENT = re.compile(r"(-?\d+) \(milliseconds since 1970\)")
_BEFORE_KEYS = ("raise", "Raise", "set", "Set", "Choose another", "take it out of", "and")
_KEYS = "Keys are given with --config KEY=VALUE."


def on_command_line(sentence: str) -> str:
    """An error's sentence with the command line's remedy.

    >>> on_command_line("No such column. To add columns, write with merge_schema=True.")
    'No such column. To add columns, import with --merge-schema.'
    >>> on_command_line("Choose another spark.indextables.cache.disk.path.")
    'Choose another spark.indextables.cache.disk.path. Keys are given with --config KEY=VALUE.'
    """
    for phrase, remedy in PHRASES.items():
        sentence = sentence.replace(phrase, remedy)
    sentence = _MOMENT.sub(lambda found: _time(int(found[1])), sentence)
    if any(f"{verb} {PREFIX}" in sentence for verb in _BEFORE_KEYS):
        sentence = f"{sentence} {_KEYS}"
    return sentence


def _time(milliseconds: int) -> str:
    """A time as `--as-of` takes it."""
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (start + datetime.timedelta(milliseconds=milliseconds)).isoformat(sep=" ")
