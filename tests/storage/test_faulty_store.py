"""The liar must lie as described: the tests of the log rely on it."""

from __future__ import annotations

import pytest
from faulty_store import Crash, Faults, FaultyStore, SimulatedCrash

from indextables.errors import ObjectExistsError, StorageError
from indextables.storage import Store, open_store


@pytest.fixture
def inner(request: pytest.FixtureRequest) -> Store:
    return open_store(f"memory://{request.node.name}")


def test_without_faults_it_is_the_store_and_counts(inner: Store) -> None:
    store = FaultyStore(inner)
    store.put_if_absent("a/x", b"1")
    assert store.get("a/x") == b"1"
    assert [m.path for m in store.list("a")] == ["a/x"]
    assert store.operations == [("put_if_absent", "a/x"), ("get", "a/x"), ("list", "a")]
    assert store.count("get", "x") == 1


def test_before_and_after(inner: Store) -> None:
    store = FaultyStore(inner)
    store.inject("put_if_absent", "before")
    with pytest.raises(StorageError):
        store.put_if_absent("x", b"1")
    assert list(inner.list()) == []
    store.inject("put_if_absent", "after")
    with pytest.raises(StorageError) as caught:
        store.put_if_absent("x", b"1")
    assert type(caught.value) is StorageError
    assert inner.get("x") == b"1"


def test_a_lost_response_looks_like_a_lost_race(inner: Store) -> None:
    store = FaultyStore(inner)
    store.inject("put_if_absent", "lost_response", path="x")
    store.put_if_absent("y", b"1")
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("x", b"mine")
    assert inner.get("x") == b"mine"


def test_stale_listings_miss_the_newest(inner: Store) -> None:
    store = FaultyStore(inner, 0, Faults(stale=1.0, stale_by=2))
    for name in "abcd":
        inner.put(name, b"")
    assert len(list(store.list())) == 2
    assert len(store.list_directory("")[0]) == 2
    assert len(list(inner.list())) == 4


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_is_for_ever(inner: Store, after: bool) -> None:
    store = FaultyStore(inner, crash=Crash(1, "put", after_effect=after))
    store.put("a", b"")
    with pytest.raises(SimulatedCrash):
        store.put("b", b"")
    assert [m.path for m in inner.list()] == (["a", "b"] if after else ["a"])
    with pytest.raises(SimulatedCrash):
        store.get("a")
    assert inner.get("a") == b""


def test_a_numbered_crash_counts_all_operations(inner: Store) -> None:
    store = FaultyStore(inner, crash=Crash(2))
    store.put("a", b"")
    store.get("a")
    with pytest.raises(SimulatedCrash):
        store.get("a")


def outcomes(seed: int, inner: Store) -> list[str]:
    store = FaultyStore(inner, seed, Faults(before=0.2, after=0.2, lost_response=0.2))
    found = []
    for number in range(50):
        try:
            store.put_if_absent(f"{seed}/{number}", b"")
            found.append("ok")
        except StorageError as error:
            found.append(f"{type(error).__name__} {error}".replace(f"{seed}/", ""))
    return found


def test_one_seed_is_one_story(inner: Store) -> None:
    first = outcomes(7, inner)
    inner.delete([m.path for m in inner.list()])
    assert outcomes(7, inner) == first
    assert outcomes(8, inner) != first
    assert len({f.split(":")[0] for f in first}) == 4  # ok, before, after, exists


def test_a_failed_delete_may_have_deleted_some(inner: Store) -> None:
    names = [f"{i}" for i in range(40)]
    for name in names:
        inner.put(name, b"")
    store = FaultyStore(inner, 1)
    store.inject("delete", "before")
    with pytest.raises(StorageError):
        store.delete(names)
    assert 0 < len(list(inner.list())) < 40


def test_latency_is_told_not_waited(inner: Store) -> None:
    waits: list[float] = []
    store = FaultyStore(inner, latency=lambda operation, path, seconds: waits.append(seconds))
    store.put("x", b"")
    store.get("x")
    assert len(waits) == 2
    assert all(w > 0 for w in waits)
