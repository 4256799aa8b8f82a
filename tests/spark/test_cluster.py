"""A cluster of several processes: executors share nothing with the driver but the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[1] / "support" / "spark_cluster_check.py"


def outcome_of(script, *arguments, timeout=550):
    """What a script that runs in a process of its own says at its end."""
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[0].removeprefix("OUTCOME "))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["local-cluster", "standalone"])
def test_a_cluster_writes_searches_and_merges_and_survives_lost_executors(tmp_path, kind):
    from spark_standalone import standalone

    place = str(tmp_path / "t")
    if kind == "local-cluster":
        outcome = outcome_of(CHECK, place)
    else:
        with standalone(tmp_path) as master:
            outcome = outcome_of(CHECK, place, master)
    assert outcome == {
        "written": 2000,
        "found": [7, 8],
        "executors": 2,
        "write_killed": True,
        "after_kill": 2400,
        "read_killed": True,
        "read": [2400, 2400],
        "searched": 2400,
        "splits": 3,
        "merged": [7, 7, 8, 8],
    }


@pytest.mark.long
def test_two_thousand_queries_leave_nothing_behind(tmp_path):
    outcome = outcome_of(
        CHECK.with_name("spark_leak_check.py"), str(tmp_path), "2000", timeout=3000
    )
    before, after = outcome["before"], outcome["after"]
    for what in ("threads", "sockets", "descriptors"):
        assert after[what] <= before[what] + 5, outcome
        assert after[f"jvm_{what}"] <= before[f"jvm_{what}"] + 5, outcome
    for what in ("megabytes", "jvm_megabytes"):
        assert after[what] <= before[what] + 60, outcome


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
