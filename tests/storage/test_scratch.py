"""Temporary folders go: with their work, or a day after their process was killed."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pytest

import indextables
from indextables import Table
from indextables.split.format import index as open_index
from indextables.storage.local import PREFIXES, new_folder, remove_folder, sweep_once


def test_a_lock_that_is_taken_during_the_removal_goes_as_well(tmp_path, monkeypatch):
    place = tmp_path / "index"
    place.mkdir()
    (place / "meta.json").write_text("{}")
    real, seen = shutil.rmtree, []

    def slow(folder, **options):
        for file in folder.iterdir():
            file.unlink()
        if not seen:
            (folder / ".tantivy-meta.lock").touch()
        seen.append(folder)
        if len(seen) > 1:
            real(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", slow)
    remove_folder(place)
    assert not place.exists()


def test_folders_of_killed_processes_go_and_others_stay(tmp_path, monkeypatch):
    old = time.time() - 2 * 24 * 3600

    def folder(name, *, age=True, inside=True):
        place = tmp_path / name
        (place / "index").mkdir(parents=True)
        (place / "index" / "file").write_text("x")
        if age:
            if inside:
                os.utime(place / "index" / "file", (old, old))
            os.utime(place / "index", (old, old))
            os.utime(place, (old, old))
        return place

    left = [folder(f"{prefix}abc") for prefix in PREFIXES]
    left += [folder("indextables-k3_x9abz"), folder("ariadne-k3_x9abz")]  # of earlier releases
    cache = folder("indextables-10000001")
    young = folder("indextables-split-young", age=False)
    busy = folder("indextables-split-busy", inside=False)
    foreign = folder("somebody-split-old")
    letters = folder("letters")
    link = tmp_path / "indextables-split-link"
    link.symlink_to(letters)
    os.utime(link, (old, old), follow_symlinks=False)
    inner = folder("indextables-index-links")
    (inner / "copy").symlink_to(letters / "index" / "file")
    os.utime(inner / "copy", (old, old), follow_symlinks=False)
    os.utime(inner, (old, old))
    made = new_folder("split", str(tmp_path))
    assert not [place for place in (*left, inner) if place.exists()]
    assert all(
        p.exists() for p in (young, busy, foreign, made, link, cache, letters / "index" / "file")
    )

    others = folder("indextables-split-others")
    sweep_once.cache_clear()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    new_folder("split", str(tmp_path))
    assert others.exists()


def test_every_temporary_folder_is_made_in_one_place():
    """What another name had would stay for ever after a kill."""
    package = Path(indextables.__file__).parent
    makers = re.compile(r"mkdtemp|mkstemp|TemporaryDirectory|TemporaryFile")
    found = [
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if makers.search(file.read_text())
    ]
    assert found == ["storage/local.py"]


@pytest.mark.parametrize("work", ["write", "search", "merge"])
def test_work_sweeps_the_place_it_works_in(work, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(open_index, "_links_parent", lambda: str(tmp_path))
    rows = pa.table({"id": [1, 2], "body": ["one", "two"]})
    table = Table.create(tmp_path / "t", rows.schema)
    table.append(rows)
    table.append(rows)
    sweep_once.cache_clear()
    left = tmp_path / "indextables-split-left"
    left.mkdir()
    os.utime(left, (0, 0))
    config = {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}
    table = Table.open(tmp_path / "t", config=config)
    if work == "write":
        table.append(rows)
    elif work == "search":
        assert table.count(where="body indexquery 'two'") == 2
    else:
        table.merge_splits()
    assert not left.exists()
