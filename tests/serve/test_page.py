"""The pages in a real browser: typing, errors, facets, brushing, links, exports, hostile data."""

from __future__ import annotations

import io
import json
import threading
import time
import urllib.parse

import pyarrow.parquet as pq
import pytest
from browser import BrowserMissingError, browser

from indextables.runner import check_stop

SHORT = """
window.one = selector => document.querySelector(selector);
window.all = selector => [...document.querySelectorAll(selector)];
"""
HOSTILE = "<img src=x onerror=alert(1)>"
READY = "!one('#results').hasAttribute('aria-busy') && document.readyState === 'complete'"
RESULTS = f"{READY} && all('#results .card, #results tbody tr').length"


@pytest.fixture(scope="module")
def tab(tmp_path_factory, client):
    """A tab of a browser that has the cookie of the server."""
    try:
        with browser(tmp_path_factory.mktemp("profile")) as opened:
            opened.call("Page.addScriptToEvaluateOnNewDocument", source=SHORT)
            go(opened, client.address)
            yield opened
    except BrowserMissingError as reason:
        pytest.skip(str(reason))


def wait(tab, condition, *, seconds=60):
    end = time.monotonic() + seconds
    guarded = f"(() => {{ try {{ return {condition}; }} catch {{ return null; }} }})()"
    while not (found := tab.evaluate(guarded)):
        assert time.monotonic() < end, (condition, tab.evaluate("document.body.innerText"))
        time.sleep(0.02)
    return found


def go(tab, address, *, width=1200, height=900, dark=False, until=RESULTS):
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
             deviceScaleFactor=1, mobile=False)  # fmt: skip
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    tab.call("Emulation.setEmulatedMedia", features=[scheme])
    tab.complaints.clear()
    tab.requests.clear()
    tab.call("Page.navigate", url=address)
    wait(tab, until)


def page(client, **state):
    given = [(k, json.dumps(v) if k == "f" else v) for k, v in state.items()]
    return f"http://{client.host}/?{urllib.parse.urlencode([('table', 'logs'), *given])}"


def type_query(tab, text):
    tab.evaluate("one('#query').focus(); one('#query').select()")
    tab.call("Input.insertText", text=text)


def press(tab, key, code=0):
    named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
    text = {"text": "\r"} if key == "Enter" else {}
    tab.call("Input.dispatchKeyEvent", type="keyDown", **named, **text)
    tab.call("Input.dispatchKeyEvent", type="keyUp", **named)


def text_of(tab, selector):
    return tab.evaluate(f"one({selector!r})?.textContent ?? null")


def total(tab):
    return int(text_of(tab, "#summary").split(" row")[0].replace(",", ""))


def box_of(tab, selector):
    found = f"one({selector!r}).getBoundingClientRect()"
    return tab.evaluate(f"(() => {{ const b = {found}; return [b.x, b.y, b.width, b.height]; }})()")


def test_typing_searches_and_marks_words(tab, client, table):
    go(tab, page(client))
    assert total(tab) == 119
    type_query(tab, "lazy")
    press(tab, "Enter", 13)
    wait(tab, "all('mark').length && " + RESULTS)
    assert total(tab) == table.search("lazy", limit=None).num_rows
    marked = tab.evaluate("[...new Set(all('mark').map(m => m.textContent))]")
    assert marked == ["lazy"]
    assert tab.evaluate("location.search").endswith("q=lazy")
    hits = table.search("lazy", limit=1)
    assert text_of(tab, ".score").startswith(f"{hits['_score'][0].as_py():.2f}")
    assert "splits/split-" in text_of(tab, ".behind dl")
    tab.evaluate("one('.behind').open = true")
    wait(tab, "all('.why li').length")
    assert text_of(tab, ".why li").startswith("body: lazy+")
    assert tab.complaints == []


def test_it_asks_nobody_else(tab, client):
    go(tab, page(client, q="fox"))
    assert {urllib.parse.urlparse(u).netloc for u in tab.requests if not u.startswith("data:")} == {
        client.host
    }
    assert tab.complaints == []


def test_fields_and_words_are_suggested(tab, client):
    go(tab, page(client))
    type_query(tab, "bo")
    wait(tab, "all('#suggestions li').length")
    assert "body:" in text_of(tab, "#suggestions li")
    press(tab, "ArrowDown", 40)
    press(tab, "Enter", 13)
    assert tab.evaluate("one('#query').value") == "body:"
    tab.call("Input.insertText", text="fo")
    wait(tab, "all('#suggestions li').some(l => l.dataset.text === 'fox')")
    press(tab, "Escape", 27)
    assert tab.evaluate("one('#suggestions').hidden")


def test_an_error_is_underlined_where_it_is(tab, client):
    problem = "!one('#problem').hidden"
    go(tab, page(client, q="lazy body:(fox"), until=problem)
    assert "never closed" in text_of(tab, "#problem")
    assert (text_of(tab, ".wrong"), text_of(tab, "#mirror")) == ("(", "lazy body:(fox")
    assert tab.evaluate("one('#query').getAttribute('aria-invalid')") == "true"
    # The line is under the character: the text before it is as wide in the box as in the mirror.
    assert box_of(tab, "#mirror")[0] == pytest.approx(box_of(tab, "#query")[0], abs=1)
    fonts = "[...['query', 'mirror']].map(i => getComputedStyle(one('#' + i)).font)"
    assert len(set(tab.evaluate(fonts))) == 1
    type_query(tab, "nope:x")
    press(tab, "Enter", 13)
    wait(tab, "one('.wrong')?.textContent === 'nope'")
    type_query(tab, "fox")
    press(tab, "Enter", 13)
    wait(tab, f"one('#problem').hidden && {RESULTS}")
    assert text_of(tab, ".wrong") is None


def test_a_misspelt_word_is_one_click_away(tab, client, table):
    go(tab, page(client, q="lasy"), until="all('.instead').length")
    assert text_of(tab, "#summary") == "Nothing found. Did you mean lazy?"
    assert not tab.evaluate("all('.facet').length")
    tab.evaluate("one('.instead').click()")
    wait(tab, "one('#results').children.length")
    assert total(tab) == table.count(where="body indexquery 'lazy'")
    assert tab.evaluate("one('#query').value") == "lazy"


def test_a_facet_becomes_a_chip_that_can_be_removed(tab, client, table):
    go(tab, page(client, q="disk"))
    names = tab.evaluate("all('.facet h2').map(h => h.textContent)")
    assert names == ["day", "level"]
    tab.evaluate("all('.facet .value').find(b => b.ariaLabel.startsWith('level is warn')).click()")
    wait(tab, "one('.chip')?.textContent.startsWith('level is warn')")
    wanted = table.search("disk", where="level = 'warn'", limit=None).num_rows
    wait(tab, f"one('#summary').textContent.startsWith('{wanted} row')")
    assert wanted > 0
    tab.evaluate("one('.facet .hide').click()")
    wait(tab, "all('.chip').length === 2")
    tab.evaluate("history.back()")
    wait(tab, "all('.chip').length === 1")
    tab.evaluate("one('.chip button').click()")
    wait(tab, "all('.chip').length === 0")
    every = table.search("disk", limit=None).num_rows
    wait(tab, f"one('#summary').textContent.startsWith('{every} row')")


def test_a_brush_over_the_histogram_narrows(tab, client, table):
    go(tab, page(client))
    bars = tab.evaluate("all('#histogram .bar').length")
    assert bars == 40
    x, y, width, height = box_of(tab, "#histogram svg")
    for kind, part in (("mousePressed", 10.5), ("mouseMoved", 15), ("mouseReleased", 19.5)):
        tab.call("Input.dispatchMouseEvent", type=kind, x=x + width * part / bars, y=y + height / 2,
                 button="left", buttons=1, clickCount=1)  # fmt: skip
    wait(tab, f"all('.chip').length === 1 && {RESULTS}")
    wait(tab, "one('#summary').textContent.startsWith('30 row')")
    assert text_of(tab, ".chip .clip") == "ts: 2024-01-02 06:00 to 2024-01-03 12:00"
    # By keys: the second of the new parts, and the one after it.
    tab.evaluate("one('#histogram .bar').focus()")
    press(tab, "ArrowRight", 39)
    press(tab, "Enter", 13)
    wait(tab, "one('#summary').textContent.startsWith('1 row')")
    assert text_of(tab, ".chip .clip") == "ts: 2024-01-02 07:00 to 2024-01-02 08:00"


def test_a_link_is_a_search(tab, client, table):
    state = {"q": "disk", "f": {"column": "level", "values": ["info"]}, "w": "id > 10",
             "view": "table", "page": "2", "v": "1", "c": "id"}  # fmt: skip
    go(tab, page(client, **state))
    where = "level = 'info' AND id > 10"
    hits = it_open(table, 1).search("disk", where=where, limit=40).slice(20)
    ids = tab.evaluate("all('tbody tr').map(r => r.lastChild.textContent)")
    assert ids == [str(n) for n in hits["id"].to_pylist()]
    assert len(tab.evaluate("all('.chip').map(c => c.textContent)")) == 3
    before = tab.evaluate("one('#results').textContent")
    tab.call("Page.reload")
    wait(tab, RESULTS)
    assert tab.evaluate("one('#results').textContent") == before


def it_open(table, version):
    return type(table).open(table.uri, version=version)


def test_the_page_sees_new_versions_and_leaves_old_ones(tab, client):
    go(tab, page(client, v="0"))
    assert "version 0" in text_of(tab, "#facts") and total(tab) == 60
    tab.evaluate("one('.chip button').click()")
    wait(tab, "one('#facts').textContent.includes('version 2')")
    wait(tab, "one('#summary').textContent.startsWith('119 row')")
    tab.evaluate("history.back()")
    wait(tab, "one('#facts').textContent.includes('version 0')")


def test_a_slow_search_can_be_stopped(tab, client, monkeypatch):
    begun, ended = threading.Event(), threading.Event()

    def endless(*_):
        begun.set()
        try:
            while True:
                check_stop()
                time.sleep(0.005)
        finally:
            ended.set()

    go(tab, page(client))
    monkeypatch.setattr("indextables.serve.answers.count_rows", endless)
    type_query(tab, "fox")
    press(tab, "Enter", 13)
    wait(tab, "!one('#stop').hidden")
    assert begun.wait(60)
    tab.evaluate("one('#stop').click()")
    wait(tab, "one('#summary').textContent === 'Stopped.' && one('#stop').hidden")
    assert ended.wait(60)


def test_columns_paging_and_the_same_elsewhere(tab, client):
    go(tab, page(client))
    assert "1 to 20 shown" in text_of(tab, "#summary")
    tab.evaluate("all('#paging button').at(-1).click()")
    wait(tab, "one('#summary').textContent.includes('21 to 40')")
    tab.evaluate("one('#choose input[value=body]').click()")
    wait(tab, "new URLSearchParams(location.search).getAll('c').length === 5 && " + RESULTS)
    assert "lazy" not in text_of(tab, "#results")
    assert "OFFSET 20" in text_of(tab, "#same")
    tab.evaluate("one('[data-same=python]').click()")
    assert "it.Table.open(" in text_of(tab, "#same")


def test_the_plan_is_a_picture(tab, client):
    go(tab, page(client, w="day = DATE '2024-01-02'"))
    label = tab.evaluate("one('#plan svg').getAttribute('aria-label')")
    assert "table: " in label and "partitions: " in label and "read: " in label
    assert tab.evaluate("all('#plan path').length") >= 4


def test_exports_are_those_of_the_search(tab, client, table):
    go(tab, page(client, q="disk", f={"column": "level", "values": ["warn"]}))
    address = tab.evaluate("one('#export-parquet').getAttribute('href')")
    read = pq.read_table(io.BytesIO(client.get(address).content))
    wanted = table.search("disk", where="level = 'warn'", limit=None)
    assert sorted(read["id"].to_pylist()) == sorted(wanted["id"].to_pylist())
    # The browser itself may fetch it: by its cookie, from its own page.
    fetched = f"fetch({address!r}).then(a => window.exported = a.status)"
    tab.evaluate(f"void {fetched}")
    assert wait(tab, "window.exported") == 200


@pytest.mark.parametrize("view", ["cards", "table"])
def test_hostile_data_is_text(tab, client, view):
    go(tab, page(client, q=f'disk OR "{HOSTILE}"', view=view))
    assert "<script>alert(" in text_of(tab, "#results") and "<img src=x" in text_of(tab, "#results")
    address = f"http://{client.host}/?{urllib.parse.urlencode({'table': HOSTILE, 'view': view})}"
    go(tab, address)
    assert HOSTILE in text_of(tab, "body")
    made = "all('img, #results script, iframe, [onerror]').length"
    assert tab.evaluate(made) == 0
    assert tab.complaints == []


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_are_legible(tab, client, dark):
    go(tab, page(client, q="disk", f={"column": "level", "values": ["info"]}), dark=dark)
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(18, 22, 28)") == dark
    assert tab.illegible("title, desc, #mirror, :disabled, [hidden], .hide, .skip") == []


@pytest.mark.parametrize("width", [360, 800, 1600])
@pytest.mark.parametrize("view", ["cards", "table"])
def test_it_fits_the_window(tab, client, width, view):
    go(tab, page(client, q="disk", view=view), width=width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_screen_reader_hears_names(tab, client):
    go(tab, page(client, q="disk", f={"column": "level", "values": ["info"]}))
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    roles = {
        (n.get("role", {}).get("value"), n.get("name", {}).get("value"))
        for n in nodes
        if not n.get("ignored")
    }
    unnamed = [
        r
        for r, name in roles
        if r in ("button", "link", "combobox", "textbox", "image") and not name
    ]
    assert not unnamed
    assert ("combobox", "Search query") in roles and ("button", "Search") in roles
    assert ("button", "Remove the filter level is info") in roles
    assert any(r == "status" for r, _ in roles) and any(r == "main" for r, _ in roles)
    headings = {name for r, name in roles if r == "heading"}
    assert {"level", "How it was found", "Take it with you"} <= headings


INSIDE = "one('#report').contentDocument"


def test_the_table_page_travels_in_time(tab, client):
    shown = f"{INSIDE}.querySelectorAll('svg').length >= 3"
    go(tab, f"http://{client.host}/tables/logs", until=shown)
    rows = f"[...{INSIDE}.querySelectorAll('.tiles div')][0].textContent"
    assert tab.evaluate(rows) == "rows119"
    tab.evaluate(
        "(() => { const s = one('#version'); s.value = 0;"
        "s.dispatchEvent(new Event('input')); s.dispatchEvent(new Event('change')); })()"
    )
    wait(tab, f"{shown} && {rows} === 'rows60'")
    assert "version=0" in tab.evaluate("location.search")
    assert tab.evaluate("one('#then').getAttribute('href')") == "/?table=logs&v=0"
    assert tab.complaints == []
    # What changed for a search since a version.
    go(tab, f"http://{client.host}/tables/logs", until=shown)
    tab.evaluate(
        "one('#since').value = 1; one('#query').value = 'disk';one('#diff button').click()"
    )
    wait(tab, "all('#changes tbody tr').length === 1")
    assert "1 change since version 1" in text_of(tab, "#changes")
    assert "delete" in text_of(tab, "#changes tbody")
    go(tab, f"http://{client.host}/tables/logs", width=360, until=shown)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_hostile_table_has_a_page(tab, client):
    name = urllib.parse.quote(HOSTILE, safe="")
    go(tab, f"http://{client.host}/tables/{name}", until=f"{INSIDE}.querySelectorAll('h1').length")
    assert tab.evaluate(f"{INSIDE}.querySelector('h1').textContent") == HOSTILE
    assert tab.evaluate(f"{INSIDE}.querySelectorAll('img, script').length") == 0
    assert tab.complaints == []
