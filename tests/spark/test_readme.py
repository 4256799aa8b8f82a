"""What the README and the docs show of Spark, run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```py\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def test_the_quick_start_with_spark_runs_as_printed(spark, tmp_path, capsys):
    (block,) = blocks(ROOT / "README.md")
    exec(block, {"spark": spark, "path": str(tmp_path / "docs")})
    shown = capsys.readouterr().out
    assert "machine learning" in shown
    assert "_score" in shown


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(spark, page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"spark": spark, "path": str(tmp_path / "docs")}
    try:
        for block in blocks(page):
            exec(compile(block, page.name, "exec"), names)
    finally:
        spark.conf.unset("spark.ariadne.storagePath")
