"""Tables, rows and plans as HTML, for notebooks.

Everything that comes from a table is escaped; `<mark>` is around the words of a snippet only.
No colours are set, so that a dark notebook stays dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any

import pyarrow as pa

from indextables.cells import cell, marked_parts, printable, python_values, size
from indextables.plan.scan import ScanPlan, explain_scan
from indextables.plan.view import TableView
from indextables.schema import SCORE, type_name

SHOWN_ROWS = 50
"""How many rows a notebook shows."""
_SHOWN_CHARACTERS = 200
_SNIPPET = "_snippet_"
_BLANKS = re.compile(r"\s+")
_LEFT = "style='text-align:left'"
_RIGHT = "style='text-align:right'"


def table_html(view: TableView) -> str:
    """The columns, how they are searched, and where the table is; no split is read."""
    view = view.shown
    mapping = view.mapping.by_name
    rows = []
    for field in view.schema:
        how = mapping.get(field.name)
        searched = "partition" if field.name in view.partition_columns else ""
        if how is not None and how.indexed and not searched:
            searched = f"{how.kind} ({how.tokenizer})" if how.kind == "text" else how.kind
        cells = (field.name, type_name(field.type), searched)
        rows.append([f"<td {_LEFT}>{escape(text)}</td>" for text in cells])
    heads = [f"<th {_LEFT}>{head}</th>" for head in ("column", "type", "searched as")]
    files = "" if view.snapshot.partial else f", {view.snapshot.num_files:,} splits"
    title = escape(view.snapshot.metadata.name or view.uri)
    place = f"<code>{escape(view.uri)}</code>, version {view.version:,}{files}"
    source = "" if view.elsewhere is None else f"<br>rows in {escape(str(view.elsewhere))}"
    return f"<div><b>{title}</b><br>{place}{source}{_grid(heads, rows)}</div>"


# --- rows ----------------------------------------------------------------------------------------


def rows_html(rows: pa.Table, *, is_all: bool = True) -> str:
    """Rows of a search, a scan or a history: the score first, snippets in the place of their text.

    Args:
        rows: The rows; the first `SHOWN_ROWS` are shown.
        is_all: Whether these are all rows there are.
    """
    shown = rows.slice(0, SHOWN_ROWS)
    names = shown.schema.names
    snippets = {
        name: shown.column(at).to_pylist()
        for at, name in enumerate(names)
        if name.startswith(_SNIPPET) and pa.types.is_string(shown.schema.field(at).type)
    }
    heads, columns = [], []
    for at in sorted(range(len(names)), key=lambda at: names[at] != SCORE):
        name, values = names[at], python_values(shown.column(at))
        if name in snippets and name.removeprefix(_SNIPPET) in names:
            continue
        snippet = snippets.get(_SNIPPET + name) or snippets.get(name)
        if snippet is not None:
            cells = map(_marked_or_text, snippet, values)
        else:
            cells = map(_score if name == SCORE else _text, values)
        align = _RIGHT if _is_number(shown.schema.field(at).type) else _LEFT
        heads.append(f"<th {align}>{escape(printable(name))}</th>")
        columns.append([f"<td {align}>{text}</td>" for text in cells])
    grid = _grid(heads, zip(*columns, strict=True))
    return f"<div style='overflow-x:auto'>{grid}<small>{_counted(rows, is_all)}</small></div>"


def _counted(rows: pa.Table, is_all: bool) -> str:
    count = rows.num_rows
    if not is_all and count > SHOWN_ROWS:
        return f"the first {SHOWN_ROWS} rows"
    if count > SHOWN_ROWS:
        return f"{SHOWN_ROWS} of {count:,} rows"
    return f"{count:,} row{'' if count == 1 else 's'}"


def _marked_or_text(snippet: str | None, value: Any) -> str:
    """A snippet with its words marked; the beginning of the text where nothing of it was found."""
    if not snippet:
        return _text(value)
    parts = (
        (escape(printable(_BLANKS.sub(" ", p))), is_match) for p, is_match in marked_parts(snippet)
    )
    return "".join(f"<mark>{part}</mark>" if is_match else part for part, is_match in parts)


def _score(value: float | None) -> str:
    return _text(value) if value is None else f"{value:.3f}"


def _text(value: Any) -> str:
    if value is None:
        return "<i style='opacity:.6'>null</i>"
    text = f"{value:.10g}" if isinstance(value, float) else cell(value)
    return escape(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def _is_number(data_type: pa.DataType) -> bool:
    return any(is_it(data_type) for is_it in (pa.types.is_integer, pa.types.is_floating,
                                         pa.types.is_decimal))  # fmt: skip


def _grid(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>{body}</tbody></table>"


# --- plans ---------------------------------------------------------------------------------------


class Explained(str):
    """The text of a plan, which a notebook draws: a bar for what each stage kept."""

    stages: tuple[tuple[str, int, int], ...] = ()

    @classmethod
    def of(cls, plan: ScanPlan) -> Explained:
        """The plan of a scan."""
        text = cls(explain_scan(plan))
        text.stages = tuple((s.name, s.splits, s.bytes) for s in plan.stages)
        return text

    def _repr_html_(self) -> str:
        title, *lines = self.splitlines()
        most = max([1, *(splits for _, splits, _ in self.stages)])
        heads = [f"<th {_LEFT}>{head}</th>" for head in ("stage", "splits", "bytes", "kept")]
        rows = [
            (
                f"<td {_LEFT}>{escape(name)}</td>",
                f"<td {_RIGHT}>{splits:,}</td>",
                f"<td {_RIGHT}>{size(count)}</td>",
                "<td style='width:16em'><div style='background:currentColor;opacity:.45;"
                f"height:.8em;width:{100 * splits / most:.1f}%'></div></td>",
            )
            for name, splits, count in self.stages
        ]
        text = escape("\n".join(lines))
        return (
            f"<div><b>{escape(printable(title))}</b>{_grid(heads, rows)}"
            f"<details><summary>as text</summary><pre>{text}</pre></details></div>"
        )
