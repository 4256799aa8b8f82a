from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from indextables.errors import ObjectNotFoundError, StorageError
from indextables.storage import open_store
from indextables.storage.arrow_filesystem import ArrowStore


def test_without_the_promise_of_a_single_writer_nothing_is_committed(tmp_path: Path) -> None:
    store = ArrowStore(fs.LocalFileSystem(), str(tmp_path), uri="hdfs://node/x")
    for commit in (
        lambda: store.put_if_absent("v", b"1"),
        lambda: store.put_if_match("v", b"1", None),
    ):
        with pytest.raises(StorageError, match="single_writer=true"):
            commit()
    assert list(tmp_path.iterdir()) == []
    store.put("v", b"1")
    assert store.get("v") == b"1"


def test_a_machine_without_a_hadoop_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_client(*args: object, **options: object) -> None:
        raise OSError("Unable to load libhdfs")

    monkeypatch.setattr(fs, "HadoopFileSystem", no_client)
    with pytest.raises(StorageError, match=r"hdfs://node/x.*Unable to load libhdfs.*CLASSPATH"):
        open_store("hdfs://node/x", {"user": "somebody"})


def test_options_reach_hadoop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = []

    def connect(*args: object, **options: object) -> fs.FileSystem:
        seen.append((args, options))
        return fs.LocalFileSystem()

    monkeypatch.setattr(fs, "HadoopFileSystem", connect)
    store = open_store(
        f"hdfs://node:8020{tmp_path}", {"replication": "2", "user": "u", "single_writer": "true"}
    )
    store.put_if_absent("x", b"1")
    assert (tmp_path / "x").read_bytes() == b"1"
    open_store("hdfs:///x")
    assert seen == [(("node", 8020), {"replication": 2, "user": "u"}), (("default", 0), {})]


def test_no_temporary_file_is_left_or_listed(tmp_path: Path) -> None:
    store = ArrowStore(fs.LocalFileSystem(), str(tmp_path / "r"), uri="hdfs://x")
    with pytest.raises(ObjectNotFoundError):
        store.put_file("a/x", tmp_path / "nothing")
    (tmp_path / "r" / "a" / ".tmp-left").touch()
    assert list(store.list()) == []
