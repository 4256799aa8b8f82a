"""Figures about time: how the table grew, and how old and large its splits are."""

from __future__ import annotations

from collections.abc import Sequence

from indextables.cli.cells import size
from indextables.cli.report_advice import SMALL_SPLIT
from indextables.cli.report_data import Report, VersionSize
from indextables.cli.report_svg import (
    LEFT,
    RIGHT,
    Chart,
    Scale,
    element,
    figure,
    moment,
    steps,
    text,
    titled,
)

# --- size over versions ----------------------------------------------------------------------


def versions_chart(report: Report) -> Chart:
    """Bytes and splits of the table at each retained version."""
    points = report.versions
    top, middle, bottom, height = 14.0, 190.0, 300.0, 344.0
    across = Scale(0, len(points), LEFT + 6, RIGHT)
    parts = [_panel(points, across, top, middle, "bytes"),
             _panel(points, across, middle + 34, bottom, "splits")]  # fmt: skip
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
    points: Sequence[VersionSize], across: Scale, top: float, bottom: float, what: str
) -> str:
    values = [getattr(point, what) for point in points]
    marks = steps(max(values), count=4 if bottom - top > 100 else 2)
    up = Scale(0, marks[-1], bottom, top)
    parts = []
    for mark in marks:
        shown = size(mark) if what == "bytes" else f"{mark:,.0f}"
        if what == "splits" and mark != int(mark):
            continue
        parts.append(element("line", x1=LEFT, x2=RIGHT, y1=up(mark), y2=up(mark), class_="grid"))
        parts.append(text(shown, x=LEFT - 8, y=up(mark) + 4, class_="tick end"))
    # A version holds until the next one, so the line is made of steps.
    path = [f"M{across(0):.1f},{up(values[0]):.1f}"]
    for at, value in enumerate(values[1:], 1):
        path.append(f"H{across(at):.1f}V{up(value):.1f}")
    path.append(f"H{across(len(values)):.1f}")
    line = "".join(path)
    colour = "c1" if what == "bytes" else "c3"
    area = f"{line}V{bottom:.1f}H{across(0):.1f}Z"
    parts.append(element("path", d=area, class_=f"area {colour}"))
    parts.append(element("path", d=line, class_=f"line {colour}"))
    for at, (point, value) in enumerate(zip(points, values, strict=True)):
        shown = size(value) if what == "bytes" else f"{value:,} splits"
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
