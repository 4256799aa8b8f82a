"""An update killed by the system: what was committed is used, and the next update does the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import killed_update
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

FILES, ROWS = 8, 5
LINES = {"early": 1, "between batches": 4, "after a merge": 8}
"""How many commits are seen before the kill. Values and rows of a file are two of them."""


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(FILES):
        ids = list(range(number * 10, number * 10 + ROWS))
        pq.write_table(pa.table({"id": pa.array(ids, pa.int32())}), folder / f"{number}.parquet")
    return folder


def kill_after(lines: int, storage: Path, temporary: Path) -> list[str]:
    """Update in another process, and kill it and its JVM when it has told so many commits."""
    command = [sys.executable, killed_update.__file__, str(storage), "t", str(temporary)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        told = [process.stdout.readline() for _ in range(lines)]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        rest, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    assert all(told), errors
    assert "done" not in rest
    return told


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(lines, id=name, marks=() if name == "after a merge" else pytest.mark.long)
        for name, lines in LINES.items()
    ],
)
def test_a_killed_update_loses_nothing(spark, storage, tmp_path, data, lines):
    from indextables.ariadne import Index
    from indextables.ariadne.store.index_rows import staged_batches

    index = Index("t", "id INT")
    index.add_file(str(data))
    index.add_index("id")
    kill_after(lines, storage, tmp_path / "warehouse")

    whole = spark.read.parquet(str(data))
    keys = spark.createDataFrame([(3,), (44,), (72,), (99,)], "id INT")
    assert sorted(index.join(keys, "id").collect()) == sorted(whole.join(keys, "id").collect())
    index.update()
    assert not index.data().pending
    for number in range(FILES):
        assert index.locate_files({"id": [number * 10 + 4]}) == {str(data / f"{number}.parquet")}
    assert sorted(index.join(keys, "id").collect()) == sorted(whole.join(keys, "id").collect())
    assert not index.update().batches
    # What the dead one staged is merged and gone; what it never committed is swept up.
    assert not staged_batches(index._place)
    index.vacuum(0)
    assert not list(index._place.store.list("staging"))
    assert sorted(index.join(keys, "id").collect()) == sorted(whole.join(keys, "id").collect())
