"""A copy in the disk cache that is cut off while its index is open.

The system ends a process that reads a mapped file behind its end, so each case has its own process.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
from pathlib import Path
import pyarrow as pa
import indextables as it
from indextables.storage.local import LocalStore

folder, cache, is_remote = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "remote"
rows = pa.table({"id": range(4_000), "body": [f"every word{n % 7} fox{n}" for n in range(4_000)]})
config = {"spark.indextables.cache.disk.path": str(cache)}
for start in range(0, 4_000, 1_000):
    it.write_table(folder, rows.slice(start, 1_000), mode="append", config=config)
if is_remote:
    LocalStore.local_path = lambda self, path: None
table = it.Table.open(folder, config=config)

def answers():
    return (
        table.search("every", limit=5).column("id").to_pylist(),
        table.scan(where="body indexquery 'word3 OR fox12'").num_rows,
        table.count(where="body indexquery '\\"every word5\\"'"),
    )

first = answers()
copies = [copy for copy in cache.glob("copies-*/*") if copy.stat().st_size]
assert len(copies) > 8, copies
for copy in copies:
    copy.chmod(0o600)
    os.truncate(copy, 0)
assert answers() == first, (answers(), first)
print("the same")
"""


@pytest.mark.parametrize("place", ["local", "remote"])
def test_an_index_whose_copies_were_cut_off_is_opened_again(tmp_path, place):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "t"), str(tmp_path / "cache"), place]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "the same"), done.stderr[-2_000:]
