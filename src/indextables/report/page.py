"""The report as one HTML page that needs nothing else: no script, no font, no network.

Everything that comes from the table is escaped, and the page's own policy forbids scripts and
requests, should that ever fail. Light and dark follow the reader's system. Every drawing is
followed by the table it was drawn from.

Drawings are SVG written as text: elements that escape what they are given, scales and round axis
steps. Colours are classes, so that the style sheet decides them for light and dark. Every figure
has a title and a description for those who do not see it.
"""

from __future__ import annotations

import datetime
import html
import importlib.resources
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from indextables.cells import size
from indextables.report.data import SAMPLED_SPLITS, SMALL_SPLIT, PartitionSize, Report, VersionSize

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
    time, program = escape(moment(report.made_ms)), escape(report.made_with)
    sizes = "Sizes are decimal: 1 MB is 1,000,000 bytes."
    return f"<footer><p>Made {time} with {program}. {sizes}</p></footer>"


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


_MAX_PARTITIONS = 60
_MAX_FIELDS = 40

COMPONENTS = {
    "column": ("c1", "rows (Parquet column)"),
    "terms": ("c2", "word list"),
    "values": ("c7", "value list"),
    "term": ("c3", "word dictionary"),
    "postings": ("c4", "postings"),
    "positions": ("c5", "positions"),
    "fieldnorm": ("c8", "field lengths"),
    "fastfield": ("c9", "fast fields"),
    "store": ("c6", "store"),
    "metadata": ("c6", "metadata"),
    "footer": ("c6", "footer"),
}
_OTHER = ("c6", "other")


# --- partitions ------------------------------------------------------------------------------


def partitions_chart(report: Report) -> Chart:
    """Partitions as areas, by their bytes; those of small splits are marked."""
    shown = list(report.partitions[:_MAX_PARTITIONS])
    unshown = report.partitions[_MAX_PARTITIONS:]
    names = [partition_name(report, p) for p in shown]
    if unshown:
        sums = (sum(getattr(p, name) for p in unshown) for name in ("splits", "bytes", "rows"))
        shown.append(PartitionSize((), *sums))
        names.append(f"{len(unshown):,} more partitions")
    height = 320.0
    order = sorted(range(len(shown)), key=lambda i: -shown[i].bytes)
    boxes = treemap([max(1, shown[i].bytes) for i in order], Box(0, 0, WIDTH, height))
    parts = []
    for i, box in zip(order, boxes, strict=True):
        partition, name = shown[i], names[i]
        small = partition.splits > 1 and partition.bytes / partition.splits < SMALL_SPLIT
        inner = element("rect", x=box.x + 1, y=box.y + 1, width=max(0.5, box.width - 2),
                        height=max(0.5, box.height - 2), rx=4,
                        class_="small tile" if small else "large tile")  # fmt: skip
        lines = [name, f"{size(partition.bytes)}, {partition.splits:,} "
                 + ("split" if partition.splits == 1 else "splits")]  # fmt: skip
        for number, text_line in enumerate(lines):
            line = text_line
            room = int((box.width - 14) / (8.6 if number == 0 else 7.6))
            if box.height > 20 + 17 * number + 8 and room >= 4:
                if number == 0 and len(line) > room:  # the columns' names go first
                    line = "/".join("null" if v is None else v for v in partition.values) or line
                cut = line if len(line) <= room else line[: room - 1] + "…"
                inner += text(cut, x=box.x + 9, y=box.y + 20 + 17 * number,
                              class_="strong label" if number == 0 else "label")  # fmt: skip
        parts.append(titled(inner, f"{lines[0]}: {partition.rows:,} rows, {lines[1]}"))
    rows = [
        (name, f"{p.rows:,}", f"{p.splits:,}", size(p.bytes), size(p.bytes / max(1, p.splits)))
        for p, name in zip(shown, names, strict=True)
    ]
    drawn = figure(
        "".join(parts),
        height=height,
        title="Partition map",
        description=f"{len(report.partitions):,} partitions; the area of each is its size.",
    )
    return Chart(drawn, ("partition", "rows", "splits", "size", "size of a split"), tuple(rows))


def partition_name(report: Report, partition: PartitionSize) -> str:
    """A partition as a folder would be called."""
    pairs = zip(report.partition_columns, partition.values, strict=False)
    return "/".join(f"{name}={'null' if v is None else v}" for name, v in pairs) or "all rows"


# --- fields and components -------------------------------------------------------------------


def fields_chart(report: Report) -> Chart:
    """The bytes of each column by component, then those of the files that all columns share."""
    fields = sorted(report.fields, key=lambda f: -f.bytes)[:_MAX_FIELDS]
    shared_total = sum(report.shared.values())
    bars = [(f.name, f.searched_as or "not searched", f.components) for f in fields]
    bars.append(("shared by all fields", "files of the index", report.shared))
    left, tall, top = 230.0, 34.0, 8.0
    most = max([f.bytes for f in fields] + [shared_total, 1])
    marks = steps(most, count=5)
    across = Scale(0, marks[-1], left, RIGHT - 70)
    bottom = top + tall * len(bars) + 6
    parts = []
    for mark in marks:
        x = across(mark)
        parts.append(element("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        parts.append(text(size(mark), x=x, y=bottom + 18, class_="tick mid"))
    parts.append(text("bytes", x=left - 28, y=bottom + 18, class_="tick end strong"))
    for number, (name, how, components) in enumerate(bars):
        y = top + number * tall + (6 if number == len(bars) - 1 else 0)
        cut = name if len(name) <= 26 else name[:25] + "…"
        parts.append(titled(text(cut, x=left - 10, y=y + 15, class_="end strong"), name))
        parts.append(text(how, x=left - 10, y=y + 28, class_="tick end"))
        done = 0
        for component, count in sorted(components.items(), key=lambda item: -item[1]):
            colour, meaning = COMPONENTS.get(component, _OTHER)
            bar = element("rect", x=across(done), y=y + 5, height=tall - 12,
                          width=max(0.5, across(done + count) - across(done)),
                          class_=f"bar {colour}")  # fmt: skip
            parts.append(titled(bar, f"{name}, {meaning}: {size(count)}"))
            done += count
        parts.append(text(size(done), x=across(done) + 6, y=y + 21, class_="tick"))
    rows = [
        (f.name, f.type, f.searched_as or "not searched", _component(c), size(n))
        for f in fields
        for c, n in sorted(f.components.items(), key=lambda item: -item[1])
    ]
    rows += [
        ("shared by all fields", "", "", _component(c), size(n))
        for c, n in sorted(report.shared.items(), key=lambda item: -item[1])
    ]
    drawn = figure(
        "".join(parts),
        height=bottom + 26,
        title="Field sizes by component",
        description=f"{len(report.fields):,} fields and the files of the index.",
    )
    return Chart(drawn, ("field", "type", "searched as", "component", "size"), tuple(rows))


def _component(component: str) -> str:
    return COMPONENTS.get(component, (_OTHER[0], component))[1]


def legend(report: Report) -> list[tuple[str, str]]:
    """Colour and meaning of the components that the field chart shows."""
    kinds = {component for f in report.fields for component in f.components} | set(report.shared)
    meanings: dict[str, list[str]] = {}
    for component, (colour, meaning) in COMPONENTS.items():
        if component in kinds:
            meanings.setdefault(colour, []).append(meaning)
    if kinds - COMPONENTS.keys():
        meanings.setdefault(_OTHER[0], []).append(_OTHER[1])
    return [(colour, ", ".join(several)) for colour, several in meanings.items()]


# --- cross-references ------------------------------------------------------------------------


def xrefs_chart(report: Report) -> Chart:
    """Which share of the splits a cross-reference covers."""
    total, covered = len(report.splits), len(report.covered)
    across = Scale(0, max(1, total), 0, WIDTH)
    bar = element("rect", x=0, y=4, width=WIDTH, height=30, rx=6, class_="empty")
    if covered:
        bar += element("rect", x=0, y=4, width=across(covered), height=30, rx=6, class_="bar c3")
    share = f"{100 * covered / total:.0f} %" if total else "no splits"
    bar += text(f"{covered:,} of {total:,} splits ({share})", x=0, y=56, class_="strong")
    rows = [
        (x.path, f"{x.splits:,}", f"{x.live_splits:,}", f"{x.terms:,}", size(x.bytes),
         moment(x.created_ms))
        for x in report.xrefs
    ]  # fmt: skip
    drawn = figure(
        bar,
        height=64,
        title="XRef coverage",
        description=f"{covered:,} of {total:,} splits are in a cross-reference.",
    )
    return Chart(drawn, ("XRef", "splits", "still live", "words", "size", "built"), tuple(rows))


# --- size over versions ----------------------------------------------------------------------


def versions_chart(report: Report) -> Chart:
    """Bytes and splits of the table at each retained version."""
    points = report.versions
    top, middle, bottom, height = 22.0, 190.0, 300.0, 344.0
    across = Scale(0, len(points), LEFT + 6, RIGHT)
    parts = [_panel(points, across, top, middle, "bytes"),
             _panel(points, across, middle + 34, bottom, "splits"),
             text("version", x=(LEFT + RIGHT) / 2, y=bottom + 36,
                  class_="tick mid strong")]  # fmt: skip
    every = max(1, len(points) // 10)
    for at, point in enumerate(points):
        if at % every == 0 or at == len(points) - 1:
            if at != len(points) - 1 and len(points) - 1 - at < every:
                continue
            parts.append(text(f"v{point.version}", x=across(at), y=bottom + 18, class_="tick mid"))
    ends = [(points[0], "start"), (points[-1], "end")] if len(points) > 1 else []
    for point, anchor in ends:
        edge = LEFT if anchor == "start" else RIGHT
        parts.append(
            text(moment(point.at_ms), x=edge, y=bottom + 36, class_="tick", text_anchor=anchor)
        )
    last = points[-1]
    description = (
        f"{len(points)} versions; {size(last.bytes)} in {last.splits} splits at version "
        f"{last.version}."
    )
    rows = [
        (str(p.version), moment(p.at_ms), p.operation, f"{p.rows:,}", f"{p.splits:,}",
         size(p.bytes))
        for p in reversed(points)
    ]  # fmt: skip
    return Chart(
        figure("".join(parts), height=height, title="Size over versions", description=description),
        ("version", "time", "operation", "rows", "splits", "size"),
        tuple(rows),
    )


def _panel(
    points: Sequence[VersionSize], across: Scale, top: float, bottom: float, measure: str
) -> str:
    values = [getattr(point, measure) for point in points]
    marks = steps(max(values), count=4 if bottom - top > 100 else 2)
    up = Scale(0, marks[-1], bottom, top)
    parts = [text(measure, x=LEFT + 4, y=top - 4, class_="tick strong")]
    for mark in marks:
        shown = size(mark) if measure == "bytes" else f"{mark:,.0f}"
        if measure == "splits" and mark != int(mark):
            continue
        parts.append(element("line", x1=LEFT, x2=RIGHT, y1=up(mark), y2=up(mark), class_="grid"))
        parts.append(text(shown, x=LEFT - 8, y=up(mark) + 4, class_="tick end"))
    # A version holds until the next one, so the line is made of steps.
    path = [f"M{across(0):.1f},{up(values[0]):.1f}"]
    for at, value in enumerate(values[1:], 1):
        path.append(f"H{across(at):.1f}V{up(value):.1f}")
    path.append(f"H{across(len(values)):.1f}")
    line = "".join(path)
    colour = "c1" if measure == "bytes" else "c3"
    area = f"{line}V{bottom:.1f}H{across(0):.1f}Z"
    parts.append(element("path", d=area, class_=f"area {colour}"))
    parts.append(element("path", d=line, class_=f"line {colour}"))
    for at, (point, value) in enumerate(zip(points, values, strict=True)):
        shown = size(value) if measure == "bytes" else f"{value:,} splits"
        dot = element("circle", cx=across(at), cy=up(value), r=3.5 if len(points) <= 60 else 2,
                      class_=f"dot {colour}")  # fmt: skip
        parts.append(
            titled(
                dot, f"version {point.version}: {point.operation}, {moment(point.at_ms)}, {shown}"
            )
        )
    return "".join(parts)


# --- splits by size and age ------------------------------------------------------------------

_SIZES = [(1 << 20, "under 1 MB"), (8 << 20, "1 to 8 MB"), (32 << 20, "8 to 32 MB"),
          (128 << 20, "32 to 128 MB"), (512 << 20, "128 to 512 MB"),
          (2 << 30, "0.5 to 2 GB"), (1 << 62, "over 2 GB")]  # fmt: skip
_HOUR = 3_600_000
_AGES = [(_HOUR, "last hour"), (24 * _HOUR, "last day"), (7 * 24 * _HOUR, "last week"),
         (30 * 24 * _HOUR, "last month"), (90 * 24 * _HOUR, "last 3 months"),
         (1 << 62, "older")]  # fmt: skip


def splits_chart(report: Report) -> Chart:
    """How many splits there are of which size and age."""
    counts = [[0] * len(_AGES) for _ in _SIZES]
    for split in report.splits:
        row = next(i for i, (limit, _) in enumerate(_SIZES) if split.bytes < limit)
        column = next(i for i, (limit, _) in enumerate(_AGES) if split.age_ms < limit)
        counts[row][column] += 1
    left, top, tall = 130.0, 30.0, 34.0
    wide = (RIGHT - left - 80) / len(_AGES)
    most = max(max(row) for row in counts) or 1
    parts = [
        text(name, x=left + wide * (at + 0.5), y=top - 10, class_="tick mid")
        for at, (_, name) in enumerate(_AGES)
    ]
    parts.append(text("all", x=RIGHT - 36, y=top - 10, class_="tick mid strong"))
    parts.append(text("size, by age", x=left - 10, y=top - 10, class_="tick end strong"))
    for at, (limit, name) in enumerate(_SIZES):
        y = top + at * tall
        parts.append(text(name, x=left - 10, y=y + tall / 2 + 4, class_="tick end"))
        for column, count in enumerate(counts[at]):
            colour = "small" if limit <= SMALL_SPLIT else "large"
            share = 0.12 + 0.78 * (count / most) ** 0.5 if count else 0
            cell = element("rect", x=left + column * wide + 1.5, y=y + 1.5, width=wide - 3,
                           height=tall - 3, rx=4, class_="empty")  # fmt: skip
            if count:
                cell += element("rect", x=left + column * wide + 1.5, y=y + 1.5, width=wide - 3,
                                height=tall - 3, rx=4, class_=colour,
                                fill_opacity=round(share, 2))  # fmt: skip
                over = "on" if share > 0.55 else "off"
                cell += text(f"{count:,}", x=left + (column + 0.5) * wide, y=y + tall / 2 + 5,
                             class_=f"mid value {over}")  # fmt: skip
            parts.append(titled(cell, f"{count:,} splits of {name}, {_AGES[column][1]}"))
        parts.append(
            text(f"{sum(counts[at]):,}", x=RIGHT - 36, y=y + tall / 2 + 5, class_="mid strong")
        )
    y = top + len(_SIZES) * tall
    parts.append(text("all", x=left - 10, y=y + tall / 2 + 4, class_="tick end strong"))
    for column in range(len(_AGES)):
        total = sum(row[column] for row in counts)
        parts.append(text(f"{total:,}", x=left + (column + 0.5) * wide, y=y + tall / 2 + 5,
                          class_="mid strong"))  # fmt: skip
    header = ("size", *(name for _, name in _AGES), "all")
    rows = [
        (name, *(f"{c:,}" for c in counts[at]), f"{sum(counts[at]):,}")
        for at, (_, name) in enumerate(_SIZES)
    ]
    drawn = figure(
        "".join(parts),
        height=y + tall + 4,
        title="Splits by size and age",
        description=f"{len(report.splits):,} splits. Sizes that a merge would help are marked.",
    )
    return Chart(drawn, header, tuple(rows))


# --- SVG as text -----------------------------------------------------------------------------

WIDTH = 920
LEFT = 78.0
RIGHT = WIDTH - 16.0
_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing, and the same as rows of a table."""

    svg: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def moment(ms: int) -> str:
    """A readable time.

    >>> moment(0)
    '1970-01-01 00:00 UTC'
    """
    at = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return f"{at:%Y-%m-%d %H:%M} UTC"


def escape(value: object) -> str:
    """Text for the page: markup and control characters lose their meaning.

    >>> escape('<script>"x"')
    '&lt;script&gt;&quot;x&quot;'
    """
    text = str(value).encode("utf-8", "replace").decode()
    visible = "".join(c if c in "\n\t" or c.isprintable() else "\ufffd" for c in text)
    return html.escape(visible, quote=True)


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """An element; `content` is markup already, attributes are escaped."""
    parts = [f'{key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
             for key, value in attributes.items() if value is not None]  # fmt: skip
    opening = " ".join([name, *parts])
    return f"<{opening}>{content}</{name}>" if content else f"<{opening}/>"


def text(content: object, *, x: float, y: float, **attributes: object) -> str:
    """A line of text."""
    return element("text", escape(content), x=x, y=y, **attributes)


def titled(shape: str, title: object) -> str:
    """A shape that says what it is when a pointer rests on it."""
    return element("g", element("title", escape(title)) + shape)


def figure(content: str, *, height: float, title: str, description: str) -> str:
    """A whole drawing."""
    number = next(_ids)
    head = element("title", escape(title), id=f"t{number}")
    head += element("desc", escape(description), id=f"d{number}")
    return element(
        "svg",
        head + content,
        viewBox=f"0 0 {WIDTH} {_short(height)}",
        role="img",
        aria_labelledby=f"t{number} d{number}",
    )


def _short(value: object) -> object:
    return f"{value:.1f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places.

    >>> Scale(0, 10, 100, 200)(5)
    150.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = (self.high - self.low) or 1
        return self.start + (value - self.low) / span * (self.end - self.start)


def steps(high: float, *, count: int = 4) -> list[float]:
    """Round numbers from 0 to at least `high`.

    >>> steps(37)
    [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    if high <= 0:
        return [0.0, 1.0]
    rough = high / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    return [step * i for i in range(math.ceil(high / step - 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


def treemap(values: list[float], box: Box) -> Iterator[Box]:
    """A rectangle for each value, of its share of the area, as square as possible.

    Values come in descending order (Bruls, Huizing and van Wijk: squarified treemaps).
    """
    total = sum(values)
    if total <= 0:
        return
    factor = box.width * box.height / total
    areas = [value * factor for value in values]
    at = 0
    while at < len(areas):
        side = min(box.width, box.height)
        end = at + 1
        while end < len(areas) and _worst(areas[at : end + 1], side) <= _worst(areas[at:end], side):
            end += 1
        row = areas[at:end]
        thickness = sum(row) / side if side else 0
        offset = 0.0
        for area in row:
            length = area / thickness if thickness else 0
            if box.width >= box.height:
                yield Box(box.x, box.y + offset, thickness, length)
            else:
                yield Box(box.x + offset, box.y, length, thickness)
            offset += length
        if box.width >= box.height:
            box = Box(box.x + thickness, box.y, max(0, box.width - thickness), box.height)
        else:
            box = Box(box.x, box.y + thickness, box.width, max(0, box.height - thickness))
        at = end


def _worst(areas: list[float], side: float) -> float:
    """The most elongated rectangle of a row."""
    total = sum(areas)
    if not total or not side or not min(areas):
        return math.inf
    return max(side**2 * max(areas) / total**2, total**2 / (side**2 * min(areas)))
