"""A writer killed at random points: what was acknowledged is there, nothing is there by half."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import killed_writer
import pytest

from indextables import Table

TABLES, LIVES = 8, 25


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=[pytest.mark.long] * (seed > 0)) for seed in range(TABLES)],
)
def test_killed_writers(seed, tmp_path, config):
    uri, acknowledged = tmp_path / "table", tmp_path / "acknowledged"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    acknowledged.touch()
    Table.create(uri, killed_writer.SCHEMA, config=config)
    script = Path(killed_writer.__file__)
    command = [sys.executable, str(script), str(uri), str(acknowledged), str(temporary)]
    done = subprocess.run(
        [*command, "0", str(LIVES), str(seed)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    confirmed = {tuple(map(int, line.split())) for line in acknowledged.read_text().splitlines()}
    table = Table.open(uri, config=config)
    found = table.scan()
    counts = Counter(zip(found["life"].to_pylist(), found["turn"].to_pylist(), strict=True))
    assert set(counts.values()) <= {killed_writer.ROWS}, "a part of an append is visible"
    assert confirmed <= counts.keys(), "an acknowledged append is lost"
    in_flight = defaultdict(set)
    for life, turn in counts.keys() - confirmed:
        in_flight[life].add(turn)
    for life, turns in in_flight.items():
        assert turns == {sum(one == life for one, _ in confirmed)}, "not the append in flight"
    # The index of every split can be searched, and the next writer goes on.
    assert table.count(where="text indexquery 'row1'") == len(counts)
    table.append(killed_writer.rows(LIVES, 0))
    assert table.search(f"life{LIVES}", limit=None).num_rows == killed_writer.ROWS
    assert Table.open(uri, config=config).count() == found.num_rows + killed_writer.ROWS
