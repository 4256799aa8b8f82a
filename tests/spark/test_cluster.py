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


@pytest.mark.long
def test_applications_that_write_at_once_leave_one_serial_order(tmp_path):
    import pyarrow as pa

    from indextables import Table

    path = str(tmp_path / "t")
    Table.create(path, pa.schema([("id", pa.int64()), ("s", pa.string())]))
    application = CHECK.with_name("spark_application.py")
    running = [
        subprocess.Popen([sys.executable, str(application), path, mode, str(first), "3"])
        for mode, first in (("append", 1000), ("append", 2000), ("overwrite", 3000))
    ]
    assert [process.wait(timeout=500) for process in running] == [0, 0, 0]
    table = Table.open(path)
    assert table.version == 9
    # Replaying the history by hand gives what the table holds: no write was lost or doubled.
    rows: set[int] = set()
    for version in range(1, 10):
        now = set(Table.open(path, version=version).scan()["id"].to_pylist())
        new = now - rows
        assert len(new) == 10
        assert now == new or now == rows | new
        rows = now
