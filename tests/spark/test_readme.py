"""What the README shows of Spark, run as printed."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_quick_start_with_spark_runs_as_printed(spark, tmp_path, capsys):
    (block,) = re.findall(r"```py\n(.*?)```", README.read_text(), re.DOTALL)
    exec(block, {"spark": spark, "path": str(tmp_path / "docs")})
    shown = capsys.readouterr().out
    assert "machine learning" in shown
    assert "_score" in shown
