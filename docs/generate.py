"""Write the pages that are generated from code, with `make docs`; a test checks them."""

from __future__ import annotations

from pathlib import Path

from indextables.config import FAMILIES, KEYS

PAGE = Path(__file__).parent / "configuration.md"

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


if __name__ == "__main__":
    PAGE.write_text(configuration_page())
