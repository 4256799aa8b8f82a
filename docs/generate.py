"""Write the pages that are generated from code, with `make docs`; a test checks them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import indextables
from indextables import ariadne
from indextables.config import FAMILIES, KEYS
from indextables.log.transaction import MATRIX, Change, Operation, Rule
from indextables.statements.forms import form
from indextables.statements.statements import STATEMENTS

HERE = Path(__file__).parent

_INTRODUCTION = """# Configuration

Generated from `src/indextables/config/` by `make docs`; do not edit.

Every key works as session configuration (`spark.conf.set`), as an option of one read or write, as
a table property, and in `Table.open(uri, config={…})`, always under its full name. Names are
case-insensitive, and `spark.tantivy4spark.*` is an old spelling of `spark.indextables.*`. An
option beats the session, the session beats a table property, a property beats the default. A key
that is not listed here is refused with the nearest one that is; set for a whole Spark session, it
has no effect, and a warning says so once.

A property that does not fit the columns of its table (a column that is not there, a type or an
analyzer that cannot be) is refused when it is set. Options of a column that is added later go with
the write, the handle or the session that adds it; the table then remembers how it is searched.

Keys marked *process* are not read from the properties of a table: they name places of the machine,
limit its memory, threads or requests, or switch off a check. A writer of a table must not decide
about these for its readers. *table* marks keys that a property may set.

Sizes are bytes, or a number with K, M, G or T (powers of 1,024): `100M`, `1.5G`. Durations are
milliseconds, or a number with a unit: `5s`, `2 hours`, `30 days`.
"""


def configuration_page() -> str:
    """The Markdown of the configuration page."""
    sections: dict[str, list[str]] = {}
    for key in KEYS.values():
        default = "" if key.default is None else f"`{_shown(key.kind, key.default)}`"
        kind = key.kind.replace(" | ", ", ")
        source = "table" if key.in_table else "process"
        row = f"| `{key.name}` | {kind} | {default} | {source} | {key.meaning} |"
        sections.setdefault(key.section, []).append(row)
    for family in FAMILIES.values():
        row = f"| `{family.name}<{family.placeholder}>` | text | | table | {family.meaning} |"
        sections.setdefault(family.section, []).append(row)
    parts = [_INTRODUCTION]
    for section, rows in sections.items():
        head = "| Key | Type | Default | Set by | Meaning |\n| --- | --- | --- | --- | --- |"
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

Generated from `src/indextables/log/transaction.py` by `make docs`; do not edit.

A commit writes the next version file if it is absent. A writer that loses this race reads the
commit that won. This table says whether its own commit is still valid after that one: if so, the
writer tries the next version, and otherwise it raises a named error. Rows are the operation that
commits, columns what the winner changed.

An operation whose actions are computed again from the newest snapshot on every attempt (a
*transform*, such as `Table.overwrite` without a condition) is valid after every commit and needs no
check. The table is for operations that were planned on a version.

On every attempt an operation marks its deleted rows again in the newest version, so two writers
that mark different rows of one split both succeed. If both mark the same row, a deletion has
nothing left to do; an UPDATE or MERGE INTO, which writes another row in its place, raises
`ConcurrentRowChangeError`. Marks in a split that was merged or rewritten in between are a conflict.
A DELETE, UPDATE or MERGE is checked as REPLACE WHERE if it writes rows, and as REWRITE ROWS
otherwise.

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


_PYTHON = """# Python

Generated from the docstrings by `make docs`; do not edit.

`import indextables as it` costs milliseconds: Spark, Arrow and the rest are loaded when they are
first used.
"""


_ARIADNE = """
## indextables.ariadne

What follows is in `indextables.ariadne` and needs Spark. [ariadne.md](ariadne.md) is the guide. The
examples are one session: each uses what those before it made.
"""

_PYTHON_NAMES = {
    indextables: (
        "Table",
        "SearchIndex",
        "write_table",
        "sql",
        "enable",
        "session",
        "indexquery",
        "indexqueryall",
        "search",
        "search_table",
        "snippet",
        "Written",
        "Merged",
        "Dropped",
        "Purged",
        "Refreshed",
        "ScoreExplanation",
        "Truncated",
        "Repaired",
        "Prewarmed",
        "Check",
    ),
    ariadne: ("Index", "join", "IndexCatalog", "IndexSummary", "UpdateResult", "Located", "Step"),
}
_PYTHON_SECTIONS = {ariadne: _ARIADNE}


def python_page() -> str:
    """The Markdown of the public classes and functions."""
    parts = [_PYTHON]
    for module, names in _PYTHON_NAMES.items():
        parts.append(_PYTHON_SECTIONS.get(module, ""))
        for name in names:
            member = getattr(module, name)
            parts.append(
                _class(name, member) if inspect.isclass(member) else _function(name, member, 2)
            )
    return "".join(parts)


_STATEMENTS = """# Statements

Generated from `src/indextables/statements/statements.py` by `make docs`; do not edit.

Statements that IndexTables adds, for `spark.sql(…)` and `indextables sql`. Keywords are
case-insensitive, and `TANTIVY4SPARK` may stand for `INDEXTABLES`. A table is a quoted path
(`'s3://bucket/docs'`) or a name. Square brackets are optional parts. Other statements go to Spark
unchanged. `OPTIMIZE`, `VACUUM`, `RESTORE TABLE`, `DESCRIBE HISTORY` and `DESCRIBE DETAIL` are
Delta Lake's words: they are about an index table if their table is one. The `WHERE` of a
maintenance statement is about partition columns; those of DELETE and UPDATE are any condition,
searches included.
"""


def statements_page() -> str:
    """The Markdown of all statements and their forms."""
    parts = [_STATEMENTS]
    for kind in STATEMENTS:
        forms = "\n".join(form(text).shown for text in (*kind.FORMS, *kind.DELTA_FORMS))
        title = " ".join(re.findall("[A-Z][a-z]+", kind.__name__)).capitalize()
        parts.append(f"\n## {title}\n\n```sql\n{forms}\n```\n\n{inspect.getdoc(kind)}\n")
    return "".join(parts)


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """A class's own members, then what its bases share, then each base as the class names it."""
    inherited = sorted(kind.__mro__[1:-1], key=lambda base: len(base.__mro__))
    for owner in (kind, *inherited):
        for name, member in vars(owner).items():
            if not name.startswith("_"):
                yield name, member


def _class(name: str, kind: type) -> str:
    if dataclasses.is_dataclass(kind):
        lines = [
            f"    {field.name}: {_annotation(field.type)}" for field in dataclasses.fields(kind)
        ]
        head = "\n".join(["```text", f"class {name}:", *lines, "```"])
        return f"\n## {name}\n\n{head}\n\n{_prose(kind)}\n"
    head = ""
    if "__init__" in vars(kind):
        initializer = inspect.signature(kind).replace(return_annotation=inspect.Signature.empty)
        head = f"```text\n{_signature(name, initializer)}\n```\n\n"
    methods = "".join(_function(f"{name}.{n}", method, 3) for n, method in _methods(kind))
    return f"\n## {name}\n\n{head}{_prose(kind)}\n{methods}"


def _function(name: str, member: Any, level: int) -> str:
    head = f"\n{'#' * level} {name}\n\n"
    if isinstance(member, property):
        return f"{head}A property. {inspect.getdoc(member)}\n"
    function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
    signature = _signature(name, inspect.signature(function))
    return f"{head}```text\n{signature}\n```\n\n{_prose(function)}\n"


def _signature(name: str, signature: inspect.Signature) -> str:
    """A signature as it is written in the code, on one line if it fits."""
    returned = signature.return_annotation
    arrow = "" if returned is inspect.Signature.empty else f" -> {_annotation(returned)}"
    parts, has_star = [], False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            parts.append("*")
        has_star |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        parts.append(_parameter(parameter))
    line = f"{name}({', '.join(parts)}){arrow}"
    if len(line) <= 96:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){arrow}"])


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    is_typed = parameter.annotation is not parameter.empty
    if is_typed:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f"{' = ' if is_typed else '='}{_default(parameter.default)}"
    return text


def _annotation(annotation: Any) -> str:
    if not isinstance(annotation, str):
        annotation = inspect.formatannotation(annotation)
    return annotation.replace("'", '"').strip('"')


def _default(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


_SECTION = re.compile(r"^(Args|Returns|Raises):\n((?:(?: {4}.*)?\n?)+)", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+): ", re.MULTILINE)


def _prose(documented: Any) -> str:
    """A docstring as Markdown: its sections become lists, and its doctests a block."""
    text = _SECTION.sub(_section, (inspect.getdoc(documented) or "") + "\n").rstrip()
    prose, arrow, example = text.partition(">>>")
    return prose.strip() + (f"\n\n```pycon\n{arrow}{example.rstrip()}\n```" if arrow else "")


def _section(match: re.Match[str]) -> str:
    title, body = match[1], match[2].rstrip("\n")
    if title == "Returns":
        text = " ".join(line.strip() for line in body.splitlines())
        return f"**Returns:** {text}\n\n"
    entries = _ENTRY.sub(r"- `\1`: ", body)
    lines = [
        line if line.startswith("- ") else "  " + line.strip() for line in entries.splitlines()
    ]
    return "\n".join([f"**{title}:**", "", *lines]) + "\n\n"


_LICENCES = """# Licences of dependencies

Generated from the metadata of the locked packages by `make docs`; do not edit.

IndexTables is under Apache-2.0. These packages are installed with it; those with an extra only if
it is named, as in `indextables[spark]`. None of their code is part of this project.

| Package | Licence | Extra |
| --- | --- | --- |
"""


def licences_page() -> str:
    """The Markdown of the page about licences: every package that a user installs."""
    extras = metadata.metadata("indextables").get_all("Provides-Extra") or []
    brings = {extra: _required("indextables", extra) for extra in ("", *sorted(extras))}
    rows = [
        f"| {name} | {_licence(name)} | {', '.join(e for e in _bringing(name, brings) if e)} |"
        for name in sorted(set().union(*brings.values()) - {"indextables"})
    ]
    return _LICENCES + "\n".join(rows) + "\n"


def _bringing(package: str, brings: Mapping[str, set[str]]) -> list[str]:
    """The extras that bring a package; none if the plain installation has it."""
    return [] if package in brings[""] else [e for e, names in brings.items() if package in names]


def _required(package: str, extra: str) -> set[str]:
    """A package and all that it requires on this Python, with one of its extras."""
    found = {package}
    for text in metadata.requires(package) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            name = canonicalize_name(requirement.name)
            if name not in found:
                found |= _required(name, "")
    return found


def _licence(package: str) -> str:
    about = metadata.metadata(package)
    if expression := about.get("License-Expression"):
        return expression
    classifiers = about.get_all("Classifier") or []
    named = [c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License :: OSI")]
    return ", ".join(named) or (about.get("License") or "not stated").splitlines()[0]


PAGES = {
    "licences.md": licences_page,
    "python.md": python_page,
    "statements.md": statements_page,
    "configuration.md": configuration_page,
    "concurrency.md": conflicts_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page())
