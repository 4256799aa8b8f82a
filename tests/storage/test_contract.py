"""What every store promises, asked of every store."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from racing import create_all, create_all_meeting, increment, race_processes, race_threads

from indextables.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from indextables.storage import Store, open_store

NAMES = [
    "a b",
    "a%20b",
    "a+b",
    "a#b",
    "a#1",
    "a=b",
    "a&b",
    "a;b",
    "a~b",
    "a'b",
    "a(b)",
    "a@b",
    "a:b",
    "%",
    "%zz",
    "été",
    "e\u0301",
    "数据",
    "🙂",
    "col=a%2Fb",
    "-x",
    "_x",
    "x.",
    "CON",
]


def paths(store: Store, prefix: str = "", **options: str) -> list[str]:
    return [meta.path for meta in store.list(prefix, **options)]


def test_an_object_is_read_back(store: Store) -> None:
    store.put("a/b/c.txt", b"hello")
    assert store.get("a/b/c.txt") == b"hello"
    data, etag = store.get_with_etag("a/b/c.txt")
    assert data == b"hello"
    assert etag
    meta = store.head("a/b/c.txt")
    assert (meta.path, meta.size) == ("a/b/c.txt", 5)
    assert meta.modified_ms > 1_600_000_000_000
    assert meta.etag in (etag, None)


def test_put_replaces(store: Store) -> None:
    store.put("x", b"one")
    store.put("x", b"two, longer")
    assert store.get("x") == b"two, longer"


def test_an_empty_object(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    store.put("x", b"")
    store.put_if_absent("y", b"")
    store.put_file("z", tmp_path / "empty")
    for path in "xyz":
        assert store.get(path) == b""
        assert store.head(path).size == 0
        assert store.get_range(path, 0, 0) == b""
    assert paths(store) == ["x", "y", "z"]


def test_missing_objects(store: Store) -> None:
    store.put("folder/x", b"1")
    for path in ("nope", "folder", "folder/nope", "folder/x/below"):
        for read in (store.get, store.get_with_etag, store.head):
            with pytest.raises(ObjectNotFoundError, match=path):
                read(path)
        with pytest.raises(ObjectNotFoundError):
            store.get_range(path, 0, 1)


@pytest.mark.parametrize(
    "path", ["", "/x", "x/", "a//b", "../x", "a/../b", "./x", "a/.hidden", "x\0y"]
)
def test_paths_that_are_none(store: Store, path: str) -> None:
    for call in (store.get, store.head, store.local_path):
        with pytest.raises(StorageError, match="is not a path of an object"):
            call(path)
    for put in (store.put, store.put_if_absent):
        with pytest.raises(StorageError, match="is not a path of an object"):
            put(path, b"")
    with pytest.raises(StorageError, match="is not a path of an object"):
        store.delete([path])


def test_ranges(store: Store) -> None:
    data = bytes(range(256)) * 8192
    size = len(data)
    store.put("x", data)
    ranges = [(0, 1), (size - 1, size), (0, size), (5, 5), (size, size), (1000, 1010), (3, 1005)]
    for start, end in ranges:
        assert store.get_range("x", start, end) == data[start:end]
    assert store.get_ranges("x", ranges) == [data[s:e] for s, e in ranges]
    assert store.get_ranges("x", []) == []


@pytest.mark.parametrize(("start", "end"), [(0, 11), (9, 12), (10, 11), (50, 60), (-1, 3), (5, 2)])
def test_ranges_outside(store: Store, start: int, end: int) -> None:
    store.put("x", b"0123456789")
    with pytest.raises(StorageError, match="x"):
        store.get_range("x", start, end)
    with pytest.raises(StorageError, match="x"):
        store.get_ranges("x", [(0, 3), (start, end)])


@pytest.mark.parametrize("name", NAMES)
def test_names_are_literal(store: Store, name: str) -> None:
    path = f"{name}/deep {name}/{name}"
    store.put_if_absent(path, name.encode())
    assert store.get(path) == name.encode()
    assert paths(store) == paths(store, name) == paths(store, f"{name}/deep {name}") == [path]
    assert store.list_directory("") == ([], [name])
    assert [m.path for m in store.list_directory(f"{name}/deep {name}")[0]] == [path]
    assert store.head(path).path == path
    store.delete([path])
    assert paths(store) == []


def test_names_are_distinct(store: Store) -> None:
    for name in NAMES:
        store.put(name, name.encode())
    assert paths(store) == sorted(NAMES)
    assert [store.get(n).decode() for n in NAMES] == NAMES


def test_listing_is_recursive_and_sorted_by_whole_path(store: Store) -> None:
    names = ["a", "a-b/1", "a.b", "a/b", "a/b-c", "a/b.x/1", "a0", "aa/x", "b", "z/y/x/w"]
    names.remove("a")  # a file cannot have the name of a folder on a disk
    names.remove("a/b")
    for name in reversed(names):
        store.put(name, b"")
    assert paths(store) == sorted(names)
    for after in (*names, "a", "a/", "a/b", "a/b.x", "a1", "0", "zz", "z/y"):
        assert paths(store, start_after=after) == [n for n in sorted(names) if n > after]
    assert paths(store, "a") == ["a/b-c", "a/b.x/1"]
    assert paths(store, "a/") == ["a/b-c", "a/b.x/1"]
    assert paths(store, "a", start_after="a/b-c") == ["a/b.x/1"]
    assert paths(store, "a", start_after="b") == []
    assert paths(store, "a", start_after="0") == ["a/b-c", "a/b.x/1"]
    assert paths(store, "nope") == paths(store, "a/b") == paths(store, "b") == []


def test_listing_describes(store: Store) -> None:
    store.put("f/x", b"123")
    (listed,) = store.list()
    assert listed == store.head("f/x")
    assert store.list_directory("f") == ([listed], [])


def test_a_directory_has_objects_and_folders(store: Store) -> None:
    for name in ("f/b", "f/a", "f/d/x", "f/c/x/y", "f/c/z", "g", "ff/x"):
        store.put(name, b"")
    objects, folders = store.list_directory("f")
    assert [m.path for m in objects] == ["f/a", "f/b"]
    assert folders == ["c", "d"]
    assert store.list_directory("f/") == (objects, folders)
    assert [m.path for m in store.list_directory("")[0]] == ["g"]
    assert store.list_directory("")[1] == ["f", "ff"]
    assert store.list_directory("nope") == ([], [])


def test_a_folder_ends_with_its_last_object(store: Store) -> None:
    store.put("f/c/x", b"")
    store.put("f/d/x", b"")
    store.delete(["f/c/x"])
    assert store.list_directory("f")[1] == ["d"]
    store.put("f/c/y", b"")
    assert store.list_directory("f")[1] == ["c", "d"]


def test_more_objects_than_one_page(store: Store, kind: str) -> None:
    # A page of S3 has 1,000 objects. Azure's have 5,000, and it deletes 256 at a time.
    names = [f"p/{i:05}" for i in range(300 if kind == "azure" else 1_100)]
    most = len(names) - 10
    race_threads(
        lambda some: [store.put(n, b"x") for n in some], [(names[i::8],) for i in range(8)]
    )
    assert paths(store) == paths(store, "p") == names
    assert paths(store, "p", start_after=names[3]) == names[4:]
    assert paths(store, start_after=names[most]) == names[most + 1 :]
    assert len(store.list_directory("p")[0]) == len(names)
    store.delete(names[:most])
    assert paths(store) == names[most:]


def test_delete(store: Store) -> None:
    for name in ("a", "b", "c/d"):
        store.put(name, b"")
    store.delete([])
    store.delete(["nope", "a", "c/nope", "nope/x", "c/d"])
    assert paths(store) == ["b"]
    store.delete(["a", "b"])
    assert paths(store) == []


def test_put_if_absent(store: Store) -> None:
    store.put_if_absent("x", b"first")
    with pytest.raises(ObjectExistsError, match="x"):
        store.put_if_absent("x", b"second")
    assert store.get("x") == b"first"
    store.delete(["x"])
    store.put_if_absent("x", b"third")
    assert store.get("x") == b"third"


def test_put_if_match(store: Store) -> None:
    store.put_if_match("x", b"1", None)
    with pytest.raises(ObjectExistsError):
        store.put_if_match("x", b"no", None)
    _, first = store.get_with_etag("x")
    store.put_if_match("x", b"2", first)
    with pytest.raises(ObjectExistsError):
        store.put_if_match("x", b"no", first)
    assert store.get("x") == b"2"
    _, second = store.get_with_etag("x")
    store.delete(["x"])
    with pytest.raises(ObjectExistsError):
        store.put_if_match("x", b"no", second)
    assert paths(store) == []


def test_put_file_in_pieces(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "big"
    data = bytes(range(251)) * 100_000  # 25 MB: several parts of 8 MB
    source.write_bytes(data)
    store.put("x", b"before")
    store.put_file("x", source)
    assert store.head("x").size == len(data)
    assert store.get("x") == data


def test_local_path(store: Store, kind: str) -> None:
    store.put("f/a%20b", b"literal")
    local = store.local_path("f/a%20b")
    if kind in ("local", "arrow"):
        assert local is not None
        assert local.name == "a%20b"
        assert local.read_bytes() == b"literal"
    else:
        assert local is None


def test_of_many_threads_one_creates(store: Store, kind: str) -> None:
    count = 8
    names = [f"v/{i:020}.json" for i in range(10)]
    won = race_threads(create_all, [(store, names, bytes([i]) * 10_000) for i in range(count)])
    assert sorted(n for some in won for n in some) == names


def test_threads_lose_no_update(store: Store) -> None:
    store.put("counter", b"0")
    race_threads(increment, [(store, "counter", 5)] * 6)
    assert store.get("counter") == b"30"


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_of_many_processes_one_creates(store: Store, kind: str) -> None:
    count = 16 if kind == "local" else 4
    names = [f"v/{i:020}.json" for i in range(50 if kind == "local" else 15)]
    won = race_processes(
        create_all_meeting, [(store, names, bytes([i]) * 300_000) for i in range(count)]
    )
    assert sorted(n for some in won for n in some) == names
    assert paths(store) == names


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_processes_lose_no_update(store: Store, kind: str) -> None:
    store.put("counter", b"0")
    race_processes(increment, [(store, "counter", 20)] * 4)
    assert store.get("counter") == b"80"


def test_a_store_is_pickled_by_its_uri(store: Store) -> None:
    store.put("x", b"1")
    again = pickle.loads(pickle.dumps(store))
    assert again.uri == store.uri
    assert again.get("x") == b"1"


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_two_stores_of_one_place(store: Store) -> None:
    store.put("a/b", b"1")
    assert open_store(f"{store.uri}/a").get("b") == b"1"


def test_repr_and_errors_name_the_place_without_secrets(store: Store) -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        store.get("x")
    for shown in (repr(store), str(caught.value)):
        assert store.uri in shown
        assert "test-secret" not in shown
        assert "Eby8vdM02xNOcq" not in shown
