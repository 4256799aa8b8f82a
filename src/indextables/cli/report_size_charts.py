"""Figures about what is where: partitions, fields by component, cross-references."""

from __future__ import annotations

from indextables.cli.cells import size
from indextables.cli.report_advice import SMALL_SPLIT
from indextables.cli.report_data import PartitionSize, Report
from indextables.cli.report_svg import (
    RIGHT,
    WIDTH,
    Box,
    Chart,
    Scale,
    element,
    figure,
    moment,
    steps,
    text,
    titled,
    treemap,
)

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
    rest = report.partitions[_MAX_PARTITIONS:]
    names = [partition_name(report, p) for p in shown]
    if rest:
        shown.append(PartitionSize((), sum(p.splits for p in rest), sum(p.bytes for p in rest),
                                   sum(p.rows for p in rest)))  # fmt: skip
        names.append(f"{len(rest):,} more partitions")
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
        for number, whole in enumerate(lines):
            line = whole
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
    for number, (name, how, components) in enumerate(bars):
        y = top + number * tall + (6 if number == len(bars) - 1 else 0)
        cut = name if len(name) <= 26 else name[:25] + "…"
        parts.append(titled(text(cut, x=left - 10, y=y + 15, class_="end strong"), name))
        parts.append(text(how, x=left - 10, y=y + 28, class_="tick end"))
        done = 0
        for kind, count in sorted(components.items(), key=lambda item: -item[1]):
            colour, meaning = COMPONENTS.get(kind, _OTHER)
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


def _component(kind: str) -> str:
    return COMPONENTS.get(kind, (_OTHER[0], kind))[1]


def legend(report: Report) -> list[tuple[str, str]]:
    """Colour and meaning of the components that the field chart shows."""
    kinds = {kind for f in report.fields for kind in f.components} | set(report.shared)
    meanings: dict[str, list[str]] = {}
    for kind, (colour, meaning) in COMPONENTS.items():
        if kind in kinds:
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
