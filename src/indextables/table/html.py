"""A table as a notebook shows it."""

from __future__ import annotations

from html import escape

from indextables.plan.view import TableView
from indextables.schema import type_name

_CELL = "style='text-align:left'"


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
        rows.append("".join(f"<td {_CELL}>{escape(cell)}</td>" for cell in cells))
    heads = "".join(f"<th {_CELL}>{head}</th>" for head in ("column", "type", "searched as"))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    files = "" if view.snapshot.partial else f", {view.snapshot.num_files:,} splits"
    title = escape(view.snapshot.metadata.name or view.uri)
    place = f"<code>{escape(view.uri)}</code>, version {view.version:,}{files}"
    return (
        f"<div><b>{title}</b><br>{place}"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )
