"""Copies of remote objects on the local disk, so that a split can be mapped into memory.

A copy is downloaded under a temporary name and renamed when it is whole, so no half file is ever
served, whoever is killed. Between processes:

- a lock per object makes the second one wait for the download of the first;
- a download holds a lock on its temporary file; one that nobody locks was left by the dead;
- all copies belong to a *generation*, a folder that the file `generation` names. `flush` names a
  new one, and every process looks there before each use.

The least recently used copies are unlinked when the folder grows over its limit. A process that has
one open or mapped keeps reading it. A folder that cannot be written is replaced by a private one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
import uuid
import warnings
import weakref
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from indextables.config import CACHE_DISK_MAX_SIZE, CACHE_DISK_PATH, Config
from indextables.errors import StorageError
from indextables.storage.store import Store

_PIECE = 8 << 20
_ATTEMPTS = 5
_UNUSABLE = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOTDIR,
    errno.EEXIST,
}


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What this process has done with the cache since it opened it."""

    hits: int = 0
    misses: int = 0
    bytes_fetched: int = 0
    evictions: int = 0


class DiskCache:
    """A folder of copies, limited to `max_bytes`. Safe between threads and processes."""

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int) -> None:
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        self._statistics = CacheStatistics()
        self._mutex = threading.Lock()
        self._verified: set[tuple[str, int, int]] = set()
        self._private = False

    @classmethod
    def from_config(cls, config: Config) -> DiskCache:
        """The cache that `spark.indextables.cache.disk.*` describes."""
        path = config[CACHE_DISK_PATH] or default_folder()
        return cls(path, config[CACHE_DISK_MAX_SIZE])

    def __reduce__(self) -> tuple[type[DiskCache], tuple[Path, int]]:
        return DiskCache, (self.folder, self.max_bytes)

    @property
    def statistics(self) -> CacheStatistics:
        return self._statistics

    def fetch(
        self,
        store: Store,
        path: str,
        size: int,
        *,
        etag: str | None = None,
        checksum: str | None = None,
    ) -> Path:
        """A local file with the whole object: the object itself, a copy, or a new copy.

        `size` is what the log says; `checksum` is `sha256:<hex>` or `crc32:<hex>`. A copy that does
        not agree is downloaded again; an object that does not agree is a `StorageError`. Another
        process may unlink the file before it is opened: `open` copes with that.
        """
        local = store.local_path(path)
        if local is not None:
            return local
        identity = "\0".join((store.uri, path, str(size), etag or ""))
        key = hashlib.sha256(identity.encode()).hexdigest()
        for attempt in range(_ATTEMPTS):
            try:
                return self._fetch(store, path, size, etag, checksum, key)
            except StorageError:
                raise
            except FileNotFoundError:  # a flush or a sweep removed the folder under us
                if attempt == _ATTEMPTS - 1:
                    raise
            except OSError as error:
                if error.errno not in _UNUSABLE or self._private:
                    raise StorageError(
                        f"Cannot keep a copy of {store.uri}/{path} in {self.folder}: "
                        f"{error.strerror}. Choose another spark.indextables.cache.disk.path.",
                        path=path,
                    ) from error
                self._fall_back(error)
        raise AssertionError("unreachable")

    def open(
        self,
        store: Store,
        path: str,
        size: int,
        *,
        etag: str | None = None,
        checksum: str | None = None,
    ) -> BinaryIO:
        """Fetch and open in one step; the file stays readable whatever happens to the cache."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):
                return self.fetch(store, path, size, etag=etag, checksum=checksum).open("rb")
        raise StorageError(
            f"The copy of {store.uri}/{path} vanished {_ATTEMPTS} times before it could be opened. "
            "Raise spark.indextables.cache.disk.maxSize.",
            path=path,
        )

    def flush(self) -> None:
        """Forget all copies, for every process that uses the folder."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        old = self._generation()
        self._name_generation()
        shutil.rmtree(old, ignore_errors=True)

    # --- one object --------------------------------------------------------------------------

    def _fetch(
        self, store: Store, path: str, size: int, etag: str | None, checksum: str | None, key: str
    ) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        entry = self._generation() / key
        if self._usable(entry, size, checksum):
            self._count(hits=1)
            return entry
        with self._locked(f"lock-{key[:2]}"):
            if self._usable(entry, size, checksum):  # somebody else was faster
                self._count(hits=1)
                return entry
            entry.parent.mkdir(exist_ok=True, mode=0o700)
            temporary = self.folder / f"tmp-{uuid.uuid4().hex}"
            try:
                with temporary.open("x+b") as file:
                    fcntl.flock(file, fcntl.LOCK_SH)
                    _download(store, path, size, file)
                    _check_object(store, path, file, etag=etag, checksum=checksum)
                    file.flush()
                    os.fsync(file.fileno())
                    temporary.replace(entry)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        self._count(misses=1, bytes_fetched=size)
        self._evict(keep=entry)
        return entry

    def _usable(self, entry: Path, size: int, checksum: str | None) -> bool:
        try:
            if entry.stat().st_size != size:
                return False
            os.utime(entry)  # the order of eviction
            if checksum is None:
                return True
            status = entry.stat()
            mark = (f"{entry}\0{checksum}", status.st_ino, status.st_size)
            if mark not in self._verified:
                with entry.open("rb") as file:
                    if _digest(file, checksum) != checksum:
                        return False
                self._verified.add(mark)
            return True
        except FileNotFoundError:
            return False

    # --- the folder --------------------------------------------------------------------------

    def _generation(self) -> Path:
        """The folder of the current generation."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):
                name = (self.folder / "generation").read_text("ascii", "replace").strip()
                if name.isalnum():
                    return self.folder / f"copies-{name}"
            with self._locked("lock-generation"):
                if not (self.folder / "generation").exists():
                    self._name_generation()
                    continue
            self._name_generation()  # unreadable: nothing below it can be trusted
        raise StorageError(f"The cache folder {self.folder} keeps changing. Choose another one.")

    def _name_generation(self) -> None:
        temporary = self.folder / f"tmp-{uuid.uuid4().hex}"
        temporary.write_text(uuid.uuid4().hex, "ascii")
        temporary.replace(self.folder / "generation")

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with (self.folder / name).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _evict(self, *, keep: Path) -> None:
        with self._locked("lock-eviction"):
            self._sweep()
            copies = []
            for folder in self.folder.glob("copies-*"):
                for copy in folder.iterdir():
                    with contextlib.suppress(FileNotFoundError):
                        status = copy.stat()
                        copies.append((status.st_mtime_ns, status.st_size, copy))
            total = sum(size for _, size, _ in copies)
            evicted = 0
            for _, size, copy in sorted(copies):
                if total <= self.max_bytes:
                    break
                if copy != keep:
                    copy.unlink(missing_ok=True)
                    total -= size
                    evicted += 1
        self._count(evictions=evicted)

    def _sweep(self) -> None:
        """Delete downloads that nobody locks: their process is dead."""
        for temporary in self.folder.glob("tmp-*"):
            with contextlib.suppress(OSError), temporary.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                temporary.unlink()

    def _fall_back(self, error: OSError) -> None:
        with self._mutex:
            if self._private:
                return
            unusable, self.folder = self.folder, Path(tempfile.mkdtemp(prefix="indextables-cache-"))
            self._private = True
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        warnings.warn(
            f"Cannot write to the cache folder {unusable} ({error.strerror}). Using {self.folder} "
            "for this process instead; set spark.indextables.cache.disk.path.",
            RuntimeWarning,
            stacklevel=4,
        )

    def _count(
        self, *, hits: int = 0, misses: int = 0, bytes_fetched: int = 0, evictions: int = 0
    ) -> None:
        with self._mutex:
            now = self._statistics
            self._statistics = CacheStatistics(
                now.hits + hits,
                now.misses + misses,
                now.bytes_fetched + bytes_fetched,
                now.evictions + evictions,
            )


def default_folder() -> Path:
    """The user's cache folder for copies of splits."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "indextables" / "objects"


def _download(store: Store, path: str, size: int, file: BinaryIO) -> None:
    """Copy the object into the file, a few pieces at once."""
    descriptor = file.fileno()
    file.truncate(size)

    def copy(start: int) -> None:
        data = store.get_range(path, start, min(start + _PIECE, size))
        os.pwrite(descriptor, data, start)

    starts = range(0, size, _PIECE)
    if len(starts) <= 1:
        for start in starts:
            copy(start)
        return
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(copy, starts))


def _check_object(
    store: Store, path: str, file: BinaryIO, *, etag: str | None, checksum: str | None
) -> None:
    """Refuse an object that is not the one the caller means."""
    shown = f"{store.uri}/{path}"
    if etag is not None and store.head(path).etag != etag:
        raise StorageError(f"{shown} was replaced since it was listed. List it again.", path=shown)
    if checksum is not None and _digest(file, checksum) != checksum:
        raise StorageError(
            f"{shown} is damaged: its {checksum.partition(':')[0]} checksum is not the recorded "
            "one. Restore it from a backup.",
            path=shown,
        )


def _digest(file: BinaryIO, checksum: str) -> str:
    """The file's checksum of the same kind as the given one."""
    kind = checksum.partition(":")[0]
    file.seek(0)
    if kind == "sha256":
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    if kind == "crc32":
        value = 0
        while piece := file.read(_PIECE):
            value = zlib.crc32(piece, value)
        return f"crc32:{value:08x}"
    raise ValueError(f"Unknown checksum {kind!r}: expected sha256:<hex> or crc32:<hex>.")
