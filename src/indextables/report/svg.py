"""Drawing SVG as text: elements that escape what they are given, scales and round axis steps.

Colours are classes, so that the page's style sheet decides them for light and dark. Every figure
has a title and a description for those who do not see it.
"""

from __future__ import annotations

import datetime
import html
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

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
    """A time for a person.

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
