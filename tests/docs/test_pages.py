"""Every block of Python in the docs runs, page by page, in the order it is printed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import indextables as it

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in (ROOT / "docs").glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem
)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)


def test_links_between_pages_lead_somewhere():
    broken = [
        f"{page.name}: {target}"
        for page in [*PAGES, *ROOT.glob("*.md")]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not broken


@pytest.mark.parametrize(
    ("title", "uri"),
    [
        ("S3", "s3://bucket/docs"),
        ("Azure", "abfss://box@acme.dfs.core.windows.net/docs"),
        ("Google Cloud Storage", "gs://bucket/docs"),
        ("Every store", "s3://bucket/docs"),
    ],
)
def test_stores_take_the_options_of_the_page(title, uri):
    from indextables.storage import open_store

    page = (ROOT / "docs" / "stores.md").read_text()
    rows = page.partition(f"\n\n| {title} |")[2].partition("\n\n")[0].splitlines()[2:]
    names = [name for row in rows for name in re.findall(r"`([a-z][\w.<>]+)`", row.split("|")[1])]
    assert len(names) >= 3
    values = {"_timeout": "5s", "_backoff": "1s", "timeout": "5s", "max_retries": "1",
              "enabled": "true", "access": "true", "_request": "false",
              "endpoint": "http://127.0.0.1:1", "_url": "http://127.0.0.1:1",
              "service_account_key": "{}"}  # fmt: skip
    for name in names:
        if name == "google_service_account":  # it is read at once
            continue
        value = next((v for end, v in values.items() if name.endswith(end)), "eA==")
        beside = {"fs.s3a.endpoint": "127.0.0.1:1"} if ".ssl." in name else {}
        try:
            open_store(uri, {name.replace("<account>", "acme"): value, **beside})
        except it.errors.StorageOptionError as error:
            raise AssertionError(f"{name}: {error}") from None
        except it.errors.StorageError:  # a key alone is no credential
            pass


@pytest.mark.parametrize("name", ["split", "log", "route", "commit"])
def test_pictures_of_concepts_are_described_and_follow_light_and_dark(name):
    picture = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
    root = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title").text and root.find(f"{space}desc").text
    assert "prefers-color-scheme: dark" in picture and "http" not in picture.partition("<title")[2]
    assert f"(images/{name}.svg)" in (ROOT / "docs" / "concepts.md").read_text()
