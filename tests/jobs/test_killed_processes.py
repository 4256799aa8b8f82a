"""Processes that end by `kill -9` at random moments: nothing is lost, doubled or there by half."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import killed_jobs
import pytest


def killed(job: str, folder: Path, lives: int, seed: int) -> int:
    """How many turns a job finished in so many lives."""
    command = [sys.executable, killed_jobs.__file__, job, str(folder), str(lives), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_killed_refresh_and_merge_of_an_index(tmp_path):
    """The sink and vectors are killed in the long run; short tests simulate that at each write."""
    assert killed("index", tmp_path, lives=2, seed=1) > killed_jobs.TURNS_OF_A_LIFE


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("job", killed_jobs.JOBS)
def test_jobs_that_are_killed_often(job, seed, tmp_path):
    killed(job, tmp_path, lives=50, seed=seed)
