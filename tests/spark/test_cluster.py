"""A cluster of several processes: executors share nothing with the driver but the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[1] / "support" / "spark_cluster_check.py"


@pytest.mark.long
def test_a_cluster_writes_and_searches_and_survives_a_lost_executor(tmp_path):
    done = subprocess.run(
        [sys.executable, str(CHECK), str(tmp_path / "t")],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
    assert lines, done.stderr[-3000:]
    outcome = json.loads(lines[0].removeprefix("OUTCOME "))
    assert outcome == {
        "written": 2000,
        "found": [7, 8],
        "executors": 2,
        "after_kill": 2400,
        "distinct": 2400,
        "searched": 2400,
    }
