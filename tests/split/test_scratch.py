"""Folders of Tantivy's go, whatever it does in them meanwhile."""

from __future__ import annotations

import shutil

from indextables.split.scratch import remove_folder


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
