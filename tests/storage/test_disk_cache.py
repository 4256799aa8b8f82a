from __future__ import annotations

import errno
import gc
import hashlib
import mmap
import os
import pickle
import signal
import subprocess
import sys
import uuid
import zlib
from pathlib import Path

import cache_processes
import pytest
from faulty_store import FaultyStore
from racing import race_processes, race_threads
from servers import Server

from indextables.config import Config
from indextables.errors import ObjectNotFoundError, StorageError
from indextables.storage import disk_cache as download
from indextables.storage import disk_cache as module
from indextables.storage import open_store
from indextables.storage.disk_cache import DiskCache, default_folder

DATA = bytes(range(251)) * 100


@pytest.fixture
def store(request: pytest.FixtureRequest) -> FaultyStore:
    store = FaultyStore(open_store(f"memory://{uuid.uuid4().hex}"))
    for name in "abcdef":
        store.inner.put(name, name.encode() * 1000)
    store.inner.put("data", DATA)
    return store


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", 1 << 30)


def copies(cache: DiskCache) -> list[Path]:
    return sorted(cache.folder.glob("copies-*/*"))


def reads(store: FaultyStore) -> int:
    return store.count("get_range")


def test_the_second_fetch_asks_nobody(store: FaultyStore, cache: DiskCache) -> None:
    first = cache.fetch(store, "data", len(DATA))
    asked = len(store.operations)
    assert cache.fetch(store, "data", len(DATA)) == first
    assert first.read_bytes() == DATA
    assert len(store.operations) == asked
    assert (cache.statistics.hits, cache.statistics.misses) == (1, 1)
    assert cache.statistics.bytes_fetched == len(DATA)


def test_another_instance_finds_the_copy(store: FaultyStore, cache: DiskCache) -> None:
    cache.fetch(store, "a", 1000)
    again = pickle.loads(pickle.dumps(cache))
    again.fetch(store, "a", 1000)
    assert again.statistics.hits == 1
    assert reads(store) == 1


def test_a_local_object_is_its_own_copy(tmp_path: Path, cache: DiskCache) -> None:
    local = open_store(tmp_path / "table")
    local.put("x", b"1")
    assert cache.fetch(local, "x", 1) == tmp_path / "table" / "x"
    assert not cache.folder.exists()


def test_many_pieces(store: FaultyStore, cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_PIECE", 1000)
    assert cache.fetch(store, "data", len(DATA)).read_bytes() == DATA
    assert reads(store) == -(-len(DATA) // 1000)


def test_an_empty_object(store: FaultyStore, cache: DiskCache) -> None:
    store.put("empty", b"")
    assert cache.fetch(store, "empty", 0).read_bytes() == b""


def test_stores_with_one_uri_are_told_apart(s3: Server, cache: DiskCache) -> None:
    here = open_store(s3.uri + "/told", s3.options)
    here.put("x", b"1")
    cache.fetch(here, "x", 1)
    gone = {**s3.options, "aws_endpoint": "http://127.0.0.1:1", "max_retries": "0"}
    with pytest.raises(StorageError):
        cache.fetch(open_store(s3.uri + "/told", gone), "x", 1)


def test_failures_leave_nothing(store: FaultyStore, cache: DiskCache) -> None:
    with pytest.raises(ObjectNotFoundError):
        cache.fetch(store, "nope", 5)
    with pytest.raises(StorageError, match="data"):
        cache.fetch(store, "data", len(DATA) + 1)
    store.inject("get_range", "before")
    with pytest.raises(StorageError):
        cache.fetch(store, "data", len(DATA))
    assert copies(cache) == []
    assert list(cache.folder.glob("tmp-*")) == []
    assert cache.fetch(store, "data", len(DATA)).read_bytes() == DATA


SHA = "sha256:" + hashlib.sha256(DATA).hexdigest()
CRC = f"crc32:{zlib.crc32(DATA):08x}"


@pytest.mark.parametrize("checksum", [SHA, CRC])
def test_checksums(store: FaultyStore, cache: DiskCache, checksum: str) -> None:
    path = cache.fetch(store, "data", len(DATA), checksum=checksum)
    cache.fetch(store, "data", len(DATA), checksum=checksum)
    assert reads(store) == 1
    path.write_bytes(b"\xff" + DATA[1:])  # the disk forgot a byte
    again = DiskCache(cache.folder, 1 << 30)
    assert again.fetch(store, "data", len(DATA), checksum=checksum).read_bytes() == DATA
    store.inner.put("data", b"\xff" + DATA[1:])
    cache.flush()
    with pytest.raises(StorageError, match="damaged"):
        cache.fetch(store, "data", len(DATA), checksum=checksum)
    assert copies(cache) == []


def test_an_unknown_checksum(store: FaultyStore, cache: DiskCache) -> None:
    with pytest.raises(ValueError, match="md5"):
        cache.fetch(store, "data", len(DATA), checksum="md5:00")


def test_a_copy_of_another_size_is_not_served(store: FaultyStore, cache: DiskCache) -> None:
    path = cache.fetch(store, "data", len(DATA))
    path.write_bytes(DATA[:-1])
    assert cache.fetch(store, "data", len(DATA)).read_bytes() == DATA


def test_tags(store: FaultyStore, cache: DiskCache) -> None:
    etag = store.head("a").etag
    cache.fetch(store, "a", 1000, etag=etag)
    store.put("a", b"A" * 1000)
    with pytest.raises(StorageError, match="replaced"):
        cache.fetch(store, "a", 1000, etag='"other"')
    path = cache.fetch(store, "a", 1000, etag=store.head("a").etag)
    assert path.read_bytes() == b"A" * 1000


def test_the_least_recently_used_go_first(store: FaultyStore, cache: DiskCache) -> None:
    small = DiskCache(cache.folder, 3_500)
    kept = {name: small.fetch(store, name, 1000) for name in "abc"}
    for age, name in enumerate("abc"):
        os.utime(kept[name], ns=(age, age))
    small.fetch(store, "a", 1000)  # which makes b the oldest
    kept["d"] = small.fetch(store, "d", 1000)
    assert [n for n, p in kept.items() if p.exists()] == ["a", "c", "d"]
    assert small.statistics.evictions == 1


def test_an_object_larger_than_the_cache(store: FaultyStore, cache: DiskCache) -> None:
    small = DiskCache(cache.folder, 10)
    first = small.fetch(store, "data", len(DATA))
    assert first.read_bytes() == DATA
    small.fetch(store, "a", 1000)
    assert not first.exists()
    with small.open(store, "data", len(DATA)) as file:
        assert file.read() == DATA


def test_an_evicted_copy_stays_readable_where_it_is_mapped(
    store: FaultyStore, cache: DiskCache
) -> None:
    small = DiskCache(cache.folder, 10)
    with (
        small.open(store, "data", len(DATA)) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        small.fetch(store, "a", 1000)
        assert len(copies(small)) == 1
        assert mapped[:] == DATA


def test_nobody_writes_to_a_copy(store: FaultyStore, cache: DiskCache) -> None:
    copy = cache.fetch(store, "a", 1000)
    assert copy.stat().st_mode & 0o777 == 0o400
    assert copy.parent.stat().st_mode & 0o777 == 0o700


def test_open_copes_with_a_copy_that_vanishes(
    store: FaultyStore, cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = DiskCache.fetch
    stolen = []

    def steal(self: DiskCache, *args: object, **options: object) -> Path:
        path = fetch(self, *args, **options)  # type: ignore[arg-type]
        if len(stolen) < 2:
            stolen.append(path)
            path.unlink()
        return path

    monkeypatch.setattr(DiskCache, "fetch", steal)
    with cache.open(store, "data", len(DATA)) as file:
        assert file.read() == DATA
    assert reads(store) == 3


def test_flush_is_for_everybody(store: FaultyStore, cache: DiskCache) -> None:
    other = DiskCache(cache.folder, 1 << 30)
    cache.fetch(store, "a", 1000)
    other.fetch(store, "a", 1000)
    store.inner.put("a", b"A" * 1000)
    cache.flush()
    assert copies(cache) == []
    assert other.fetch(store, "a", 1000).read_bytes() == b"A" * 1000


def test_a_damaged_stamp_trusts_nothing(store: FaultyStore, cache: DiskCache) -> None:
    old = cache.fetch(store, "a", 1000)
    (cache.folder / "generation").write_text("../evil")
    assert cache.fetch(store, "a", 1000) != old


def test_threads_share_one_download(store: FaultyStore, cache: DiskCache) -> None:
    found = race_threads(lambda: cache.fetch(store, "data", len(DATA)), [()] * 8)
    assert len(set(found)) == 1
    assert reads(store) == 1


def test_processes_share_one_download(s3: Server, tmp_path: Path) -> None:
    remote = open_store(f"{s3.uri}/{uuid.uuid4().hex}", s3.options)
    objects = []
    for number in range(6):
        remote.put(f"{number}", bytes([number]) * 200_000)
        objects.append((f"{number}", 200_000))
    cache = DiskCache(tmp_path / "cache", 1 << 30)
    results = race_processes(cache_processes.fetch_all, [(remote, cache, objects)] * 3)
    for found, _ in results:
        assert found == [bytes([n]) * 200_000 for n in range(6)]
    assert sum(statistics.misses for _, statistics in results) == 6
    assert sum(statistics.hits for _, statistics in results) == 12


def test_processes_that_evict_each_other(s3: Server, tmp_path: Path) -> None:
    remote = open_store(f"{s3.uri}/{uuid.uuid4().hex}", s3.options)
    objects = [(f"{number}", 50_000) for number in range(6)]
    for name, size in objects:
        remote.put(name, name.encode() * size)
    cache = DiskCache(tmp_path / "cache", 60_000)
    results = race_processes(cache_processes.fetch_all, [(remote, cache, objects * 3)] * 3)
    for found, _ in results:
        assert found == [name.encode() * size for name, size in objects] * 3
    assert sum(p.stat().st_size for p in copies(cache)) <= 100_000


def test_a_process_killed_in_the_middle(tmp_path: Path) -> None:
    local = open_store(tmp_path / "table")
    size = 3 * download._PIECE
    local.put("x", b"x" * size)
    cache = DiskCache(tmp_path / "cache", 1 << 30)
    script = cache_processes.__file__
    command = [sys.executable, script, local.uri, str(cache.folder), "x", str(size)]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = cache.folder.glob("tmp-*")
    assert copies(cache) == []
    remote = FaultyStore(open_store("memory://killed"))
    remote.put("x", b"x")
    assert cache.fetch(remote, "x", 1).read_bytes() == b"x"
    assert not left.exists()


def test_a_running_download_is_not_swept(store: FaultyStore, cache: DiskCache) -> None:
    class Nested(FaultyStore):
        """In the middle of one download, another one ends and sweeps."""

        def get_range(self, path: str, start: int, end: int) -> bytes:
            if path == "data":
                cache.fetch(store, "a", 1000)
                assert len(list(cache.folder.glob("tmp-*"))) == 1
            return super().get_range(path, start, end)

    nested = Nested(store.inner)
    # The two need different locks; these two names do.
    assert cache.fetch(nested, "data", len(DATA)).read_bytes() == DATA
    assert nested.count("get_range") == 1


def test_a_folder_that_cannot_be_written(store: FaultyStore, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = DiskCache(tmp_path / "file" / "cache", 1 << 30)
    with pytest.warns(RuntimeWarning, match=r"cache\.disk\.path") as warned:
        assert cache.fetch(store, "data", len(DATA)).read_bytes() == DATA
        cache.fetch(store, "a", 1000)
    assert len(warned) == 1
    private = cache.folder
    assert private != tmp_path / "file" / "cache"
    cache.fetch(store, "data", len(DATA))
    assert cache.statistics.hits == 1
    del cache
    gc.collect()
    assert not private.exists()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_folder(
    store: FaultyStore, cache: DiskCache, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    folder, real = cache.folder, Path.open

    def refuse(self: Path, mode: str = "r", *args: object, **options: object) -> object:
        if self.is_relative_to(folder) and mode != "r":
            raise OSError(code, os.strerror(code))
        return real(self, mode, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.warns(RuntimeWarning):
        assert cache.fetch(store, "data", len(DATA)).read_bytes() == DATA


def test_a_full_disk_gives_back_the_other_copies(
    store: FaultyStore, cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.fetch(store, "a", 1000)
    real = os.pwrite

    def full(descriptor: int, data: memoryview, offset: int) -> int:
        if copies(cache):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    assert cache.fetch(store, "data", len(DATA)).read_bytes() == DATA
    assert len(copies(cache)) == 1


def test_a_disk_that_stays_full(
    store: FaultyStore, cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: memoryview, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(StorageError, match="No space left on device"),
    ):
        cache.fetch(store, "data", len(DATA))


def test_flushing_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Cannot flush"):
        DiskCache(tmp_path / "file" / "cache", 1).flush()


def test_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, object] = {
        "spark.indextables.cache.disk.path": str(tmp_path / "here"),
        "spark.indextables.cache.disk.maxSize": "1K",
    }
    cache = DiskCache.from_config(Config(options))
    assert (cache.folder, cache.max_bytes) == (tmp_path / "here", 1024)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert DiskCache.from_config(Config()).folder == default_folder()
    assert default_folder().is_relative_to(tmp_path)


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    assert default_folder().parent == tmp_path


# --- other users of the machine ------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722])
def test_a_folder_that_others_can_write_is_refused(
    store: FaultyStore, tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    cache = DiskCache(folder, 1 << 30)
    with pytest.raises(StorageError, match=r"can be written by other users .* chmod 700"):
        cache.fetch(store, "a", 1000)
    with pytest.raises(StorageError, match="can be written by other users"):
        cache.flush()
    folder.chmod(0o755)
    assert cache.fetch(store, "a", 1000).read_bytes() == b"a" * 1000


def test_a_folder_of_another_user_is_refused(
    store: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(StorageError, match=f"belongs to another user .number {owner}"):
        DiskCache(tmp_path / "cache", 1 << 30).fetch(store, "a", 1000)


def test_a_link_made_in_advance_in_the_temporary_folder_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads to a folder of the victim's own, where the cache would delete."""
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    (tmp_path / "home").mkdir(mode=0o700)
    shared = tmp_path / f"indextables-{os.geteuid()}"
    shared.symlink_to(tmp_path / "home")
    chosen = default_folder()
    assert chosen.parent == tmp_path
    assert chosen not in (shared, tmp_path / "home")
    assert not chosen.is_symlink()


def test_links_in_the_folder_are_not_followed_to_delete(store: FaultyStore, tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    letters.mkdir()
    (letters / "letter").write_bytes(b"dear" * 100)
    cache = DiskCache(tmp_path / "cache", 1)
    cache.fetch(store, "a", 1000)
    (cache.folder / "copies-of-letters").symlink_to(letters)
    (cache.folder / "tmp-letter").symlink_to(letters / "letter")
    cache.fetch(store, "b", 1000)
    cache.flush()
    assert (letters / "letter").exists()
