"""The report page in a real browser: what it asks for, how it looks, what a reader of it hears."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from browser import BrowserMissingError, Page, browser

from indextables.report.data import gather
from indextables.report.page import page
from indextables.table import Table

# Texts that leave their drawing, and texts of one drawing that lie on each other.
MISPLACED = """
[...document.querySelectorAll('svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')]
    .map(t => [t.getBoundingClientRect(), t.textContent]);
  const outside = texts.filter(([r]) => r.left < frame.left - 1 || r.right > frame.right + 1
      || r.top < frame.top - 1 || r.bottom > frame.bottom + 1).map(([, t]) => 'outside: ' + t);
  const over = texts.flatMap(([a, s], i) => texts.slice(i + 1)
      .filter(([b]) => a.left + 1 < b.right && b.left + 1 < a.right
              && a.top + 3 < b.bottom && b.top + 3 < a.bottom)
      .map(([, t]) => 'over: ' + s + ' / ' + t));
  return [...outside, ...over];
})
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """The page of a table with a history, partitions, words, an XRef and hostile names."""
    folder = tmp_path_factory.mktemp("report")
    hostile = "<img src=https://example.com/x onerror=alert(1)>"
    schema = pa.schema([
        ("id", pa.int64()), (hostile, pa.string()), ("body", pa.string()), ("day", pa.date32()),
        ("a_column_with_a_very_long_name_that_does_not_fit_anywhere", pa.string()),
    ])  # fmt: skip
    table = Table.create(folder / "documents", schema, partition_by=["day"], name=hostile)
    for turn in range(12):
        numbers = range(turn * 50, turn * 50 + 50)
        days = [
            datetime.date(2024, 1, 1) + datetime.timedelta(days=n % (turn + 1)) for n in numbers
        ]
        texts = [" ".join(f"word{n * k % 97}" for k in range(60)) for n in numbers]
        table.append(pa.table({"id": numbers, hostile: texts, "body": texts, "day": days}))
    table.delete(where="id < 20")
    file = folder / "report.html"
    file.write_text(page(gather(table, config={})), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def tab(tmp_path_factory) -> Page:
    """A tab of a browser."""
    try:
        with browser(tmp_path_factory.mktemp("profile")) as opened:
            yield opened
    except BrowserMissingError as reason:
        pytest.skip(str(reason))


def test_it_asks_for_nothing_and_complains_of_nothing(tab, report):
    tab.requests.clear()
    tab.open(report)
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    asked = [url for url in tab.requests if not url.startswith("data:")]
    assert asked == [report.resolve().as_uri()]
    assert tab.complaints == []
    assert tab.evaluate("document.querySelectorAll('img, script').length") == 0
    assert tab.evaluate("document.querySelector('h1').textContent").startswith("<img src=")


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_is_legible(tab, report, dark):
    tab.open(report, dark=dark)
    dark_page = tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
    assert dark_page == dark
    assert tab.illegible("title, desc, .value") == []


def test_no_text_leaves_its_drawing_or_lies_on_another(tab, report):
    tab.open(report)
    assert tab.evaluate(MISPLACED) == []
    assert tab.evaluate("document.querySelectorAll('svg').length") == 5


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_the_page_fits_the_window(tab, report, width):
    tab.open(report, width=width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_screen_reader_hears_what_is_drawn(tab, report):
    tab.open(report)
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    named = {
        (node.get("role", {}).get("value"), node.get("name", {}).get("value"))
        for node in nodes
        if not node.get("ignored")
    }
    images = [name for role, name in named if role in ("image", "img", "graphics-document")]
    for title in ("Size over versions", "Splits by size and age", "Partition map",
                  "Field sizes by component", "XRef coverage"):  # fmt: skip
        assert any(name and name.startswith(title) for name in images), (title, images)
        assert ("heading", title) in named


def test_it_can_be_photographed(tab, report):
    tab.open(report)
    picture = tab.screenshot()
    assert picture.startswith(b"\x89PNG") and len(picture) > 30_000
