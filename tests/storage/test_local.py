"""What is special about files: names on the disk, links, file systems without hard links."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from racing import create_all, race_processes, race_threads

from indextables.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageRefusedError,
)
from indextables.storage import Store, open_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def files(root: Path) -> Store:
    return open_store(root)


def test_names_on_the_disk_are_the_names_of_the_objects(files: Store, root: Path) -> None:
    for name in ("a b", "a%20b", "c#1", "d=é%2F"):
        files.put(f"p/{name}", name.encode())
    assert {p.name for p in (root / "p").iterdir()} == {"a b", "a%20b", "c#1", "d=é%2F"}
    (root / "p" / "by hand%").write_bytes(b"x")
    assert files.get("p/by hand%") == b"x"
    assert "p/by hand%" in [m.path for m in files.list()]


def test_dot_files_and_dot_folders_are_not_listed(files: Store, root: Path) -> None:
    files.put("x", b"1")
    _, etag = files.get_with_etag("x")
    files.put_if_match("x", b"2", etag)
    (root / ".tmp-left-by-the-dead").touch()
    (root / ".git").mkdir()
    (root / ".git" / "config").touch()
    assert any(p.name.startswith(".lock-") for p in root.iterdir())
    assert [m.path for m in files.list()] == ["x"]
    assert [m.path for m in files.list_directory("")[0]] == ["x"]
    assert files.list_directory("")[1] == []


def test_no_temporary_file_is_left(files: Store, root: Path, tmp_path: Path) -> None:
    files.put("x", b"1")
    with pytest.raises(ObjectExistsError):
        files.put_if_absent("x", b"2")
    with pytest.raises(StorageError):
        files.put_file("y", tmp_path / "no such source")
    with pytest.raises(StorageError):
        files.put("x/below-a-file", b"")
    assert os.listdir(root) == ["x"]  # noqa: PTH208


def test_files_are_readable_by_the_umask(files: Store, root: Path) -> None:
    (root).mkdir()
    (root / "plain").touch()
    files.put("x", b"1")
    files.put_if_absent("y", b"1")
    modes = {(root / n).stat().st_mode for n in ("plain", "x", "y")}
    assert len(modes) == 1


def test_the_tag_changes_with_every_write(files: Store) -> None:
    tags = set()
    for _ in range(200):
        files.put("x", b"same")
        tags.add(files.head("x").etag)
    assert len(tags) == 200


def test_links(files: Store, root: Path, tmp_path: Path) -> None:
    files.put("a/x", b"1")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "y").write_bytes(b"22")
    (root / "b").symlink_to(tmp_path / "elsewhere")
    (root / "a" / "dangling").symlink_to(root / "nothing")
    assert [(m.path, m.size) for m in files.list()] == [("a/x", 1), ("b/y", 2)]
    (root / "a" / "up").symlink_to(root)  # would never end
    (tmp_path / "elsewhere" / "back").symlink_to(root / "b")
    assert [m.path for m in files.list()] == ["a/x", "b/y"]
    assert files.list_directory("a")[1] == []


def test_a_file_system_without_hard_links(
    files: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    names = [f"v/{i}" for i in range(20)]
    won = race_threads(create_all, [(files, names, bytes([i]) * 5_000) for i in range(8)])
    assert sorted(n for some in won for n in some) == sorted(names)
    assert sorted(m.path for m in files.list()) == sorted(names)


def test_a_full_disk_is_an_error_with_the_path(
    files: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"root/x: No space left on device"):
        files.put_if_absent("x", b"1")
    assert list(root.iterdir()) == []


def test_what_fails_before_it_is_published_is_certain_not_to_be_there(
    files: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageRefusedError, match="File name too long"):
        files.put_if_absent("x" * 300 + "/y", b"1")

    def full(file: object, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("indextables.storage.local._write_all", full)
    with pytest.raises(StorageRefusedError, match="No space left"):
        files.put_if_absent("x", b"1")


def churn(store: Store, path: str, times: int) -> None:
    for _ in range(times):
        store.put(path, b"x")
        store.delete([path])


def test_deleting_a_folder_never_breaks_a_writer_in_it(files: Store, root: Path) -> None:
    race_threads(churn, [(files, f"f/g/{i}", 100) for i in range(4)])
    assert [m.path for m in files.list()] == []
    assert list(root.iterdir()) == []


def read_until_absent(store: Store, path: str, size: int, times: int) -> int:
    """Read while others replace; every read must be whole."""
    seen = 0
    for _ in range(times):
        try:
            data = store.get(path)
        except ObjectNotFoundError:
            continue
        assert len(data) == size
        assert len(set(data)) == 1
        seen += 1
    return seen


def test_a_reader_sees_whole_objects_while_they_are_replaced(files: Store) -> None:
    size = 500_000
    files.put("x", bytes(size))

    def work(number: int) -> int:
        if number < 2:
            for value in range(30):
                files.put("x", bytes([value]) * size)
            return 1
        return read_until_absent(files, "x", size, 30)

    assert all(race_threads(work, [(n,) for n in range(5)]))


def test_memory_does_not_travel_to_another_process() -> None:
    store = open_store("memory://travel")
    with pytest.raises(StorageError, match="memory of another process"):
        race_processes(create_all, [(store, ["x"], b"1")])


def test_a_lock_goes_with_its_object_and_lets_one_in(files: Store, root: Path) -> None:
    files.put("f/x", b"0")
    files.put_if_match("f/x", b"1", files.head("f/x").etag)
    assert list((root / "f").glob(".lock-*"))
    files.delete(["f/x"])
    assert list(root.iterdir()) == []

    inside = 0

    def work(number: int) -> int:
        nonlocal inside
        for _ in range(100):
            files.put("f/x", b"1")
            if number:
                with files._locked(root / "f/x"):  # type: ignore[attr-defined]
                    inside += 1
                    assert inside == 1
                    os.sched_yield()
                    inside -= 1
            else:
                files.delete(["f/x"])
                files.put("f/y", b"keeps the folder")
        return 1

    assert all(race_threads(work, [(n,) for n in range(4)]))
    # A lock may have been the last thing that was made; it goes with an object that is there.
    files.put("f/x", b"1")
    files.delete(["f/x", "f/y"])
    assert list(root.iterdir()) == []
