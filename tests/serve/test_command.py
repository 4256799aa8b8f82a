"""`indextables serve` itself: three commands from Parquet files to a page."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import indextables.serve
from indextables.cli.app import app
from indextables.cli.reading import _places
from indextables.errors import ConfigError

README = Path(__file__).parents[2] / "README.md"
PAGE = README.parent / "docs" / "serve.md"


def test_the_commands_of_the_page_lead_to_a_page(tmp_path):
    pq.write_table(pa.table({"title": ["red fox", "lazy dog"]}), tmp_path / "one.parquet")
    pq.write_table(pa.table({"title": ["fox and dog"]}), tmp_path / "two.parquet")
    first = re.search(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)[1].splitlines()
    assert first[0] == "pip install 'indextables[serve]'"  # as in the README
    flat = " ".join(README.read_text().split())
    assert all(f"`{line}`" in flat for line in first)
    run = f"{sys.executable} -c 'from indextables.cli import main; main()' "
    subprocess.run(run + first[1].removeprefix("indextables "), shell=True, cwd=tmp_path,
                   check=True, capture_output=True)  # fmt: skip
    server = subprocess.Popen(
        f"exec {run}{first[2].removeprefix('indextables ')} --json",
        shell=True, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ,
    )  # fmt: skip
    try:
        address = json.loads(server.stdout.readline())["address"]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert "<title>IndexTables</title>" in opener.open(address).read().decode()
        place = address.partition("?")[0] + "api/tables/docs/search?query=fox"
        found = json.load(opener.open(place))
        assert (found["total"], found["version"]) == (2, 0)
    finally:
        server.send_signal(signal.SIGINT)
        _, complaints = server.communicate(timeout=60)
    assert "Traceback" not in complaints
    assert address.partition("token=")[2] not in complaints


def test_tables_have_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _places(["docs", "a/logs/", "s3://bucket/deep/t", "mine=s3://b/x=1"]) == {
        "docs": "docs", "logs": "a/logs/", "t": "s3://bucket/deep/t", "mine": "s3://b/x=1",
    }  # fmt: skip
    assert _places(["s3://b/day=1"]) == {"day=1": "s3://b/day=1"}
    assert list(_places(["api", "_search"])) == ["table-api", "table-search"]
    with pytest.raises(ConfigError, match="NAME=TABLE"):
        _places(["a/docs", "b/docs"])
    with pytest.raises(ConfigError, match="no table in this folder"):
        _places([])
    (tmp_path / "docs" / "_transaction_log").mkdir(parents=True)
    assert _places([]) == {"docs": "docs"}


def test_mistakes_are_sentences(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, sentence in (
        (["serve", "nope"], "nope"),
        (["serve"], "no table in this folder"),
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 1 and sentence in result.stderr
        assert "Traceback" not in result.output


def test_without_the_packages_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "indextables.serve.app", raising=False)
    monkeypatch.delattr(indextables.serve, "app", raising=False)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["serve", "docs"])
    assert result.exit_code == 1 and "pip install 'indextables[serve]'" in result.stderr


def test_the_pictures_are_small():
    for name in ("serve.png", "serve-table.png"):
        picture = (README.parent / "docs" / "images" / name).read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) < 200_000
