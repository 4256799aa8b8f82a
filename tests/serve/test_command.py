"""`indextables serve` itself: three commands from Parquet files to a page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import indextables.serve
from indextables.cli.app import app
from indextables.cli.reading import _served_tables
from indextables.errors import ConfigError

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def test_tables_have_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _served_tables(["docs", "a/logs/", "s3://bucket/deep/t", "mine=s3://b/x=1"]) == {
        "docs": "docs", "logs": "a/logs/", "t": "s3://bucket/deep/t", "mine": "s3://b/x=1",
    }  # fmt: skip
    assert _served_tables(["s3://b/day=1"]) == {"day=1": "s3://b/day=1"}
    assert list(_served_tables(["api", "_search"])) == ["table-api", "table-search"]
    with pytest.raises(ConfigError, match="NAME=TABLE"):
        _served_tables(["a/docs", "b/docs"])
    with pytest.raises(ConfigError, match="no table in this folder"):
        _served_tables([])
    (tmp_path / "docs" / "_transaction_log").mkdir(parents=True)
    assert _served_tables([]) == {"docs": "docs"}


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
    for name in ("demo.png", "serve.png", "serve-table.png", "notebook.png"):
        picture = (IMAGES / name).read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) < 200_000
