from __future__ import annotations

import io
import json
import os
import stat
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables as it
from indextables.jobs import progress as progress_module
from indextables.jobs.progress import Note, progress, running_jobs
from indextables.runner import LocalRunner


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """The folder of notes, away from those of other tests."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(progress_module, "_EVERY_S", 0.0)
    return tmp_path / "indextables"


def test_a_bar_is_drawn_on_a_terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress("Writing rows", 10, size=3_000) as advance:
        advance(4, 1_000)
        advance(6, 2_000)
    assert "Writing rows" in screen.getvalue()
    assert "10 of 10 splits, 3 kB of 3 kB" in screen.getvalue()


def test_nothing_is_drawn_elsewhere(monkeypatch):
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with progress("Writing rows") as advance:
        advance(4)
    assert pipe.getvalue() == ""


def test_a_job_is_seen_while_it_runs(notes):
    with progress("Merging", 4, table="s3://key:secret@bucket/logs", size=400) as advance:
        advance(1, 100)
        (job,) = running_jobs()
        assert (job.title, job.done, job.total, job.bytes) == ("Merging", 1, 4, 100)
        assert job.table == "s3://bucket/logs" and job.process == os.getpid()
        assert job.remaining_s(job.begun + 10) == 30
        (note,) = notes.iterdir()
        assert b"secret" not in note.read_bytes()
        assert stat.S_IMODE(notes.stat().st_mode) == 0o700
    assert running_jobs() == [] and list(notes.iterdir()) == []


def test_a_job_that_fails_is_forgotten(notes):
    with pytest.raises(ValueError, match="no"), progress("Merging"):
        raise ValueError("no")
    assert list(notes.iterdir()) == []


def test_notes_of_the_dead_and_of_others_are_not_shown(notes):
    with progress("Merging"):
        (note,) = notes.iterdir()
        text = note.read_bytes()
        dead = notes / "4194305-0.json"  # above the highest number of a process
        dead.write_bytes(text)
        (notes / f"{os.getpid()}-901.json").write_bytes(b"{")
        (notes / f"{os.getpid()}-902.json").write_bytes(b"[]")
        wrong = {**json.loads(text), "done": "many"}
        (notes / f"{os.getpid()}-903.json").write_bytes(json.dumps(wrong).encode())
        assert [job.title for job in running_jobs()] == ["Merging"]
        assert not dead.exists()


@pytest.mark.parametrize("spoil", ["open to all", "a link", "a file", "read only"])
def test_a_job_goes_on_without_its_note(tmp_path, notes, spoil):
    match spoil:
        case "open to all":
            notes.mkdir(mode=0o777)
            notes.chmod(0o777)
        case "a link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            notes.symlink_to(tmp_path / "elsewhere")
        case "a file":
            notes.write_bytes(b"")
        case "read only":
            Note()
            for name in ("part", "json"):  # nothing can be put where folders are
                for number in range(100):
                    (notes / f"{os.getpid()}-{number}.{name}").mkdir(parents=True, exist_ok=True)
    with progress("Merging", 2) as advance:
        advance(1)
    assert running_jobs() == []


def test_many_threads_count_together(notes):
    with progress("Verifying", 200) as advance:
        LocalRunner(8).map(lambda _: None, list(range(200)), ended=lambda _: advance(1, 10))
        (job,) = running_jobs()
        assert (job.done, job.bytes) == (200, 2_000)


def test_every_long_job_reports(notes, tmp_path, monkeypatch):
    """The titles and totals that jobs leave, and that all of them come to their end."""
    seen = {}

    def remember(self, job):
        seen[job.title] = job

    monkeypatch.setattr(Note, "write", remember)
    table = it.write_table(tmp_path / "t", pa.table({"n": [0], "s": ["a"]}))
    for n in range(1, 4):
        table.append(pa.table({"n": [n], "s": ["b"]}))
    assert seen["Writing"].done == 1 and seen["Writing"].bytes > 0
    table.update({"s": "'c'"}, where="n = 2")
    table.index_crossreferences()
    table.merge_splits()
    assert all(check.passed for check in table.verify())
    unchecked = {"spark.indextables.purge.retentionCheckEnabled": "false"}
    it.Table.open(tmp_path / "t", config=unchecked).purge(older_than_hours=0)
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"s": ["a"]}), tmp_path / "files" / "a.parquet")
    it.SearchIndex.create(tmp_path / "index", source=tmp_path / "files", format="parquet")
    with_bytes = {"Changing rows", "Merging", "Verifying", "Deleting", "Indexing"}
    assert {"Writing", "Building cross-references", *with_bytes} == set(seen)
    for job in seen.values():
        assert job.done == (1 if job.total is None else job.total), job
        assert job.bytes == (job.bytes_total or job.bytes), job
        assert (job.title in with_bytes) == (job.bytes_total is not None), job
        assert job.table.endswith(("/t", "/index")), job


def test_jobs_of_other_threads_are_listed_oldest_first(notes):
    began, release = threading.Event(), threading.Event()

    def other():
        with progress("Purging"):
            began.set()
            release.wait(30)

    with progress("Importing"):
        thread = threading.Thread(target=other)
        thread.start()
        assert began.wait(30)
        assert [job.title for job in running_jobs()] == ["Importing", "Purging"]
        release.set()
        thread.join()


def test_a_place_with_brackets_can_be_written(notes):
    """They are no address of IPv6, for which Python's urlsplit takes them."""
    table = it.write_table("memory://logs[1]", pa.table({"n": [1]}))
    table.append(pa.table({"n": [2]}))
    assert table.count() == 2
