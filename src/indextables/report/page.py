"""The report as one HTML page that needs nothing else: no script, no font, no network.

Everything that comes from the table is escaped, and the page's own policy forbids scripts and
requests, should that ever fail. Light and dark follow the reader's system. Every drawing is
followed by the table it was drawn from.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Sequence

from indextables.cells import size
from indextables.report.charts import (
    Chart,
    escape,
    fields_chart,
    legend,
    moment,
    partitions_chart,
    splits_chart,
    versions_chart,
    xrefs_chart,
)
from indextables.report.data import SAMPLED_SPLITS, Report

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_OPEN_ROWS = 12


def page(report: Report) -> str:
    """The whole page."""
    title = report.name or report.uri.rstrip("/").rpartition("/")[2] or report.uri
    sections = [
        *_advice(report),
        *_versions(report),
        *_splits(report),
        *_partitions(report),
        *_fields(report),
        *_xrefs(report),
        *_properties(report),
    ]
    body = "\n".join([_head(report, title), "<main>", *sections, "</main>", _foot(report)])
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}: table report</title>\n<style>\n{_style()}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _style() -> str:
    """The style sheet: light and dark, screen and print."""
    return importlib.resources.files(__package__).joinpath("style.css").read_text("utf-8")


def _head(report: Report, title: str) -> str:
    covered = f"{100 * len(report.covered) / len(report.splits):.0f} %" if report.splits else "none"
    tiles = [
        ("rows", f"{report.rows:,}"),
        ("size", size(report.bytes)),
        ("splits", f"{len(report.splits):,}"),
        ("partitions", f"{len(report.partitions):,}" if report.partition_columns else "none"),
        ("XRef coverage", covered),
        ("version", f"{report.version:,}"),
        _checkpoint(report),
    ]
    if report.unused is not None:
        tiles.append(("waiting for purge", size(report.unused[1]) if report.unused[0] else "none"))
    if deleted := sum(split.deleted for split in report.splits):
        files = f" ({report.vector_files:,} vector files)" if report.vector_files else ""
        tiles.insert(1, (f"rows marked as deleted{files}", f"{deleted:,}"))
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles
    )
    description = f"<p>{escape(report.description)}</p>" if report.description else ""
    return (
        f'<header><p class="kind">Index table report</p><h1>{escape(title)}</h1>'
        f'<p class="place"><code>{escape(report.uri)}</code></p>{description}'
        f'<dl class="tiles">{shown}</dl></header>'
    )


def _checkpoint(report: Report) -> tuple[str, str]:
    if report.checkpoint is None:
        return "checkpoint", "none"
    version, age_ms = report.checkpoint
    hours = age_ms // 3_600_000
    age = "under 1 h" if not hours else f"{hours} h" if hours < 48 else f"{hours // 24} d"
    return f"checkpoint of v{version}", f"{age} old" if hours else age


def _foot(report: Report) -> str:
    made = f"{escape(moment(report.made_ms))} with {escape(report.made_with)}"
    return f"<footer><p>Made {made}. Sizes are decimal: 1 MB is 1,000,000 bytes.</p></footer>"


def _section(name: str, title: str, *content: str) -> str:
    inner = "\n".join(part for part in content if part)
    return (
        f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>{inner}</section>'
    )


def _drawn(chart: Chart, *, caption: str) -> str:
    return (
        f'<figure><div class="wide">{chart.svg}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>" + _details(chart.header, chart.rows)
    )


def _key(meanings: Sequence[tuple[str, str]]) -> str:
    """What the colours of a drawing mean."""
    entries = [
        f'<span><span class="swatch {colour}"></span>{escape(meaning)}</span>'
        for colour, meaning in meanings
    ]
    return f'<p class="key">{"".join(entries)}</p>'


def _details(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    return f"<details><summary>As a table</summary>{_table(header, rows)}</details>"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


# --- sections --------------------------------------------------------------------------------


def _advice(report: Report) -> Iterator[str]:
    if not report.advice:
        text = '<p class="fine">Nothing to do: no small files, no split without an XRef.</p>'
        if not report.xrefs:
            text = '<p class="fine">Nothing to do: no small files to merge.</p>'
        yield _section("advice", "What to do", text)
        return
    items = []
    for advice in report.advice:
        command = f"<pre><code>{escape(advice.command)}</code></pre>" if advice.command else ""
        word = "Warning" if advice.level == "warning" else "Hint"
        items.append(
            f'<li class="{advice.level}"><h3><span>{word}</span> {escape(advice.title)}</h3>'
            f"<p>{escape(advice.detail)}</p>{command}</li>"
        )
    yield _section("advice", "What to do", f'<ul class="advice">{"".join(items)}</ul>')


def _versions(report: Report) -> Iterator[str]:
    if not report.versions:
        yield _section("versions", "Size over versions", "<p>No version is retained.</p>")
        return
    first = report.versions[0].version
    note = f"Versions before {first} are not shown. " if report.versions_left_out else ""
    yield _section(
        "versions",
        "Size over versions",
        _drawn(
            versions_chart(report),
            caption=f"{note}Bytes of the live splits above, their number below.",
        ),
    )


def _splits(report: Report) -> Iterator[str]:
    if not report.splits:
        yield _section("splits", "Splits by size and age", "<p>The table has no splits.</p>")
        return
    key = _key([("small", "small, under 32 MB"), ("large", "a good size")])
    caption = "Number of splits; a stronger colour is a larger number."
    yield _section(
        "splits", "Splits by size and age", key, _drawn(splits_chart(report), caption=caption)
    )


def _partitions(report: Report) -> Iterator[str]:
    if not report.partition_columns:
        text = "<p>The table is not partitioned: all splits are in one folder.</p>"
        yield _section("partitions", "Partition map", text)
        return
    if not report.partitions:
        yield _section("partitions", "Partition map", "<p>No partition has rows.</p>")
        return
    columns = ", ".join(report.partition_columns)
    key = _key([("small", "small splits on average"), ("large", "one split, or large ones")])
    caption = f"Partitioned by {columns}; the area of a partition is its size."
    yield _section(
        "partitions", "Partition map", key, _drawn(partitions_chart(report), caption=caption)
    )


def _fields(report: Report) -> Iterator[str]:
    title = "Field sizes by component"
    if not report.splits or (not report.shared and not any(f.components for f in report.fields)):
        yield _section("fields", title, "<p>There are no sizes to show.</p>")
        return
    caption = f"All {len(report.splits):,} splits."
    if report.sampled < len(report.splits):
        caption = f"{SAMPLED_SPLITS} of {len(report.splits):,} splits, evenly chosen."
    caption += " A file of the index serves all fields and is counted once, in the last bar."
    yield _section(
        "fields", title, _key(legend(report)), _drawn(fields_chart(report), caption=caption)
    )


def _xrefs(report: Report) -> Iterator[str]:
    if not report.splits:
        return
    chart = xrefs_chart(report)
    caption = (
        "A search asks those covered splits that can match, and every split that is not covered."
    )
    listed = (
        _table(chart.header, chart.rows)
        if 0 < len(chart.rows) <= _OPEN_ROWS
        else _details(chart.header, chart.rows)
    )
    drawn = (
        f'<figure><div class="wide">{chart.svg}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
    yield _section("xrefs", "XRef coverage", drawn, listed)


def _properties(report: Report) -> Iterator[str]:
    if report.fields:
        rows = [
            (f.name, f.type, f.searched_as or "not searched",
             "partition" if f.name in report.partition_columns else "")
            for f in report.fields
        ]  # fmt: skip
        yield _section("columns", "Columns", _table(("column", "type", "searched as", ""), rows))
    if report.properties:
        properties = sorted(report.properties.items())
        yield _section("properties", "Properties", _table(("property", "value"), properties))
