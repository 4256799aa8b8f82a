"""Write the pages that are generated from code, with `make docs`; a test checks them."""

from __future__ import annotations

from pathlib import Path

from indextables.config import FAMILIES, KEYS
from indextables.log.conflicts import MATRIX, Change, Rule
from indextables.log.transaction import Operation

HERE = Path(__file__).parent

_INTRODUCTION = """# Configuration

Generated from `src/indextables/config.py` by `make docs`; do not edit.

Every key works as session configuration (`spark.conf.set`), as an option of one read or write, as
a table property, and in `Table.open(uri, config={…})`, always under its full name. Names are
case-insensitive, and `spark.tantivy4spark.*` is an old spelling of `spark.indextables.*`. An
option beats the session, the session beats a table property, a property beats the default. A key
that is not listed here is refused with the nearest one that is.

Sizes are bytes, or a number with K, M, G or T (powers of 1,024): `100M`, `1.5G`. Durations are
milliseconds, or a number with a unit: `5s`, `2 hours`, `30 days`.
"""


def configuration_page() -> str:
    """The Markdown of the configuration page."""
    sections: dict[str, list[str]] = {}
    for key in KEYS.values():
        default = "" if key.default is None else f"`{_shown(key.kind, key.default)}`"
        kind = key.kind.replace(" | ", ", ")
        row = f"| `{key.name}` | {kind} | {default} | {key.meaning} |"
        sections.setdefault(key.section, []).append(row)
    for family in FAMILIES.values():
        row = f"| `{family.name}<{family.placeholder}>` | text | | {family.meaning} |"
        sections.setdefault(family.section, []).append(row)
    parts = [_INTRODUCTION]
    for section, rows in sections.items():
        head = "| Key | Type | Default | Meaning |\n| --- | --- | --- | --- |"
        parts.append(f"\n## {section}\n\n{head}\n" + "\n".join(rows) + "\n")
    return "".join(parts)


def _shown(kind: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if kind == "size" and isinstance(value, int):
        for unit, size in (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
            if value >= size and value % size == 0:
                return f"{value // size}{unit}"
    return str(value)


_CONFLICTS = """# Concurrent commits

Generated from `src/indextables/log/conflicts.py` by `make docs`; do not edit.

A commit writes the next version file if it is absent. Who loses that race reads what won, asks
this table whether its own commit can still be true after the winner's, and tries the next version
or raises a named error. Rows are the operation that wants to commit, columns what the winner
changed.

An operation whose actions are computed again from the newest snapshot on every attempt (a
*transform*, as `Table.overwrite` without a condition) follows whatever was committed and needs no
check. The table is for operations that were planned on a version.

"""


def conflicts_page() -> str:
    """The Markdown of the conflict matrix."""
    operations = [o for o in Operation if o is not Operation.CREATE]
    signs = {Rule.OK: "✓", Rule.CONFLICT: "✗", Rule.IN_SCOPE: "rows", Rule.SAME_FILES: "files"}
    head = "| | " + " | ".join(change.value for change in Change) + " |"
    lines = [head, "| --- " * (len(Change) + 1) + "|"]
    for operation in operations:
        cells = [signs[MATRIX[operation, change]] for change in Change]
        lines.append(f"| **{operation.value}** | " + " | ".join(cells) + " |")
    legend = [f"- {sign}: {rule.value}" for rule, sign in signs.items()]
    return _CONFLICTS + "\n".join(lines) + "\n\n" + "\n".join(legend) + "\n"


PAGES = {"configuration.md": configuration_page, "concurrency.md": conflicts_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page())
