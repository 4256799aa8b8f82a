"""The report's data and its page, without a browser."""

from __future__ import annotations

import html.parser
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.report.data import MAX_VERSIONS, SMALL_SPLIT, SplitSize, advise, gather
from indextables.report.page import Box, escape, page, steps, treemap
from indextables.table import Table

HOSTILE = "</svg><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x1b[31m\u202e"


class _Tags(html.parser.HTMLParser):
    """All tags and attributes of a page, and whether they nest."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text: str) -> _Tags:
    tags = _Tags()
    tags.feed(text)
    assert not tags.open
    return tags


@pytest.fixture
def hostile(tmp_path) -> Table:
    """A table whose every name and value would like to be markup."""
    schema = pa.schema([(HOSTILE, pa.string()), ("part <b>", pa.string())])
    made = Table.create(
        tmp_path / "<i>table</i> & 'co'", schema, partition_by=["part <b>"], name=HOSTILE,
        description=HOSTILE, properties={HOSTILE: HOSTILE, "aws.secret": "hush"},
    )  # fmt: skip
    made.append(pa.table({HOSTILE: ["a", "b"], "part <b>": [HOSTILE, None]}))
    return made


def test_sizes_over_versions_are_those_of_the_snapshots(cli, docs):
    cli.ok("merge", docs)
    table = Table.open(docs)
    table.delete(where="Id < 5")
    cli.ok("checkpoint", docs)
    report = gather(table, config={})
    assert [v.version for v in report.versions] == list(range(table.version + 1))
    for size in report.versions:
        snapshot = table.snapshot(version=size.version)
        then = Table.open(docs, version=size.version)
        assert (size.splits, size.bytes, size.rows) == (
            snapshot.num_files, snapshot.total_bytes, then.count(),
        )  # fmt: skip
    assert report.rows == 55 and not report.versions_left_out


def test_versions_beyond_the_limit_are_left_out_and_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr("indextables.report.data.MAX_VERSIONS", 3)
    table = Table.create(tmp_path, pa.schema([("n", pa.int64())]))
    for n in range(5):
        table.append(pa.table({"n": [n]}))
    report = gather(table, config={})
    assert [v.version for v in report.versions] == [3, 4, 5]
    assert report.versions[-1].rows == 5
    assert "Versions before 3 are not shown" in page(report)
    assert MAX_VERSIONS > 3


def test_partitions_and_fields_add_up(docs):
    table = Table.open(docs)
    report = gather(table, config={})
    assert sum(p.bytes for p in report.partitions) == report.bytes == table.snapshot().total_bytes
    assert [p.values for p in report.partitions if p.rows != 12] == []
    assert {f.name: f.searched_as for f in report.fields}["body"] == "text"
    assert "day" in report.partition_columns
    # What components do not name is what lies between them: a few bytes of Parquet a split.
    named = sum(f.bytes for f in report.fields) + sum(report.shared.values())
    assert 0 <= report.bytes - named < 0.1 * report.bytes


def test_xref_coverage(cli, docs):
    cli.ok("xref", docs)
    report = gather(Table.open(docs), config={})
    assert len(report.covered) == len(report.splits) and report.xrefs
    cli.ok("import", docs, "two.parquet")
    report = gather(Table.open(docs), config={})
    assert 0 < len(report.covered) < len(report.splits)
    commands = [a.command for a in report.advice]
    assert any(c and c.startswith("indextables xref ") for c in commands)


def test_small_files_are_warned_of_with_the_command_that_helps(cli, docs):
    report = gather(Table.open(docs), config={})
    (small,) = [a for a in report.advice if a.title == "Small files"]
    assert "10 of 10 splits" in small.detail and "5 partitions" in small.detail
    assert small.command is not None
    program, *arguments = shlex.split(small.command)
    assert program == "indextables"
    cli.ok(*arguments)
    assert not [a for a in gather(Table.open(docs), config={}).advice if a.title == "Small files"]


def test_checkpoint_and_what_waits_for_a_purge(tmp_path):
    table = Table.create(tmp_path / "t", data=pa.table({"n": range(100)}))
    report = gather(table, config={})
    assert report.checkpoint is None and report.unused == (0, 0)
    assert "<dt>waiting for purge</dt><dd>none</dd>" in page(report)
    before = report.bytes
    table.overwrite(pa.table({"n": [1]}))
    table.checkpoint()
    report = gather(table, config={}, now_ms=report.made_ms + 72 * 3_600_000)
    assert report.unused == (1, before)
    shown = page(report)
    assert re.search(r"<dt>checkpoint of v1</dt><dd>[23] d old</dd>", shown), shown[:3000]
    assert not [one for one in report.advice if "purge" in one.title]  # it is little
    much = replace(report, unused=(7, 1 << 30))
    (advice,) = [one for one in advise(much) if "purge" in one.title]
    assert "1.07 GB in 7 files" in advice.detail and "indextables purge" in advice.command


def test_one_small_split_a_partition_is_no_reason_to_warn(docs):
    report = gather(Table.open(docs), config={})
    one = SplitSize("a", 10, 1, 0, ("x",))
    large = SplitSize("b", SMALL_SPLIT, 1, 0, ("x",))
    quiet = replace(report, splits=(one, large), covered=frozenset({"a", "b"}))
    assert list(advise(quiet)) == []


def test_a_damaged_split_does_not_hide_the_page(docs):
    split = next(Path(docs).rglob("*.split"))
    split.write_bytes(split.read_bytes()[:-50] + bytes(50))
    text = page(gather(Table.open(docs), config={}))
    parsed(text)
    assert "A split cannot be read" in text and "indextables verify" in text


def test_an_empty_table_has_a_page(tmp_path):
    table = Table.create(tmp_path, pa.schema([("n", pa.int64())]))
    text = page(gather(table, config={}))
    parsed(text)
    assert "has no splits" in text and "not partitioned" in text


def test_everything_from_the_table_is_escaped(hostile):
    text = page(gather(hostile, config={}))
    tags = parsed(text)
    names = {tag for tag, _ in tags.tags}
    assert not names & {"script", "img", "iframe", "object", "i"}
    assert not [a for _, attributes in tags.tags for a in attributes if a.startswith("on")]
    assert "&lt;script&gt;" in text and "\x1b" not in text and "\u202e" not in text
    assert "hush" not in text


def test_the_page_needs_nothing_from_outside(docs):
    tags = parsed(page(gather(Table.open(docs), config={})))
    links = [a.get("href") or a.get("src") for _, a in tags.tags if "href" in a or "src" in a]
    assert links == ["data:,"]
    policy = next(a["content"] for tag, a in tags.tags if a.get("http-equiv"))
    assert policy is not None and "default-src 'none'" in policy


def test_drawings_have_names_and_tables(docs):
    text = page(gather(Table.open(docs), config={}))
    tags = parsed(text)
    drawings = [a for tag, a in tags.tags if tag == "svg"]
    assert len(drawings) == 5
    identities = {a["id"] for _, a in tags.tags if "id" in a}
    for drawing in drawings:
        assert drawing["role"] == "img"
        assert set((drawing["aria-labelledby"] or "").split()) <= identities
    assert len(identities) == len([a for _, a in tags.tags if "id" in a])
    assert len(re.findall("<summary>As a table</summary>", text)) == 4


def test_the_command_writes_a_file_or_to_standard_output(cli, docs):
    (facts,) = cli.rows("report", docs)
    assert facts["report"] == "docs-report.html"
    text = Path("docs-report.html").read_text()
    assert text.startswith("<!doctype html>") and facts["bytes"] == len(text.encode())
    cli.ok("report", docs, "-o", "other.html")
    assert Path("other.html").exists()
    assert cli.ok("report", docs, "-o", "-").startswith("<!doctype html>")
    assert "nowhere" in cli.error("report", docs, "-o", "nowhere/x.html")
    assert "nowhere/x.html" in cli.error("report", docs, "-o", "nowhere/x.html")


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60))
def test_a_treemap_fills_its_area(values):
    values.sort(reverse=True)
    boxes = list(treemap(values, Box(0, 0, 900, 300)))
    assert len(boxes) == len(values)
    total = sum(values)
    for value, box in zip(values, boxes, strict=True):
        assert box.width * box.height == pytest.approx(
            900 * 300 * value / total, rel=1e-6, abs=1e-6
        )
        assert box.x >= -1e-6 and box.x + box.width <= 900 + 0.01
        assert box.y >= -1e-6 and box.y + box.height <= 300 + 0.01


@given(st.floats(1e-6, 1e15))
def test_axis_steps_reach_the_value(high):
    marks = steps(high)
    assert marks[0] == 0 and marks[-1] >= high * (1 - 1e-9) and len(marks) <= 6


@given(st.text())
def test_escaped_text_has_no_markup(text):
    assert not set(escape(text)) & set("<>\"'\x00\x1b")
