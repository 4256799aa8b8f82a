"""Copies of remote objects on the local disk, so that a split can be mapped into memory.

A copy is downloaded under a temporary name and renamed when it is whole, so no half file is ever
served, even if a process is killed. Between processes:

- a lock per object makes the second one wait for the download of the first;
- a download holds a lock on its temporary file; one without a lock was left by a killed process;
- all copies belong to a *generation*, a folder that the file `generation` names. `flush` names a
  new one, and every process looks there before each use.

The least recently used copies are unlinked when the folder grows over its limit. A process that has
one open or mapped keeps reading it. A folder that cannot be written is replaced by a private one. A
folder that other users can write to is refused, and links in it are not followed to delete.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import time
import uuid
import warnings
import weakref
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from indextables.config import CACHE_DISK_MAX_SIZE, CACHE_DISK_PATH, Config
from indextables.errors import StorageError
from indextables.storage.local import new_folder
from indextables.storage.sparse_copy import SparseCopy
from indextables.storage.store import Store

_LONGEST_NAME = 256
_PIECE = 8 << 20


@dataclass(frozen=True, slots=True)
class Download:
    """One object as the log describes it, not the store."""

    store: Store
    path: str
    size: int
    etag: str | None
    checksum: str | None

    @property
    def shown(self) -> str:
        """The object's name in messages."""
        return f"{self.store.uri}/{self.path}"

    def key(self) -> str:
        """A file name that no other object has."""
        identity = "\0".join((self.store.identity, self.path, str(self.size), self.etag or ""))
        return hashlib.sha256(identity.encode()).hexdigest()

    def copy_to(self, file: BinaryIO) -> None:
        """Copy the object into an empty file, a few pieces at once."""
        file.truncate(self.size)
        starts = range(0, self.size, _PIECE)
        if len(starts) <= 1:
            for start in starts:
                self._copy_piece(file, start)
            return
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda start: self._copy_piece(file, start), starts))

    def _copy_piece(self, file: BinaryIO, start: int) -> None:
        data = memoryview(self.store.get_range(self.path, start, min(start + _PIECE, self.size)))
        while data:
            written = os.pwrite(file.fileno(), data, start)
            data, start = data[written:], start + written

    def check(self, file: BinaryIO) -> None:
        """Refuse an object that is not the one the caller means."""
        if self.etag is not None and self.store.head(self.path).etag != self.etag:
            raise StorageError(
                f"{self.shown} was replaced since it was listed. List it again.", path=self.shown
            )
        if self.checksum is not None and checksum_like(file, self.checksum) != self.checksum:
            raise StorageError(
                f"{self.shown} is damaged: its {self.checksum.partition(':')[0]} checksum is not "
                "the recorded one. Restore it from a backup.",
                path=self.shown,
            )


def checksum_like(file: BinaryIO, checksum: str) -> str:
    """The file's checksum of the same kind as the given one."""
    algorithm = checksum.partition(":")[0]
    file.seek(0)
    if algorithm == "sha256":
        sha = hashlib.sha256()
        while piece := file.read(_PIECE):
            sha.update(piece)
        return f"sha256:{sha.hexdigest()}"
    if algorithm == "crc32":
        crc = 0
        while piece := file.read(_PIECE):
            crc = zlib.crc32(piece, crc)
        return f"crc32:{crc:08x}"
    raise ValueError(f"Unknown checksum {algorithm!r}: expected sha256:<hex> or crc32:<hex>.")


_ATTEMPTS = 5
_SPARSE = ".sparse"
_UNSEEN_SHARE = 0.01
"""The folder may grow over its limit by this share before it is swept."""
_SAME_USE_S = 10.0
"""A copy that was used so lately need not be marked as used again."""
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
    """Counters of this process since it opened the cache."""

    hits: int = 0
    misses: int = 0
    bytes_fetched: int = 0
    evictions: int = 0


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """How many copies there are, and their size."""

    files: int = 0
    bytes: int = 0


class DiskCache:
    """A folder of copies, limited to `max_bytes`. Safe between threads and processes."""

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int) -> None:
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        self._statistics = CacheStatistics()
        self._mutex = threading.Lock()
        self._verified: set[tuple[str, int]] = set()
        self._private = False
        self._looked = False
        self._unseen = 0

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
        download = Download(store, path, size, etag, checksum)
        for attempt in range(_ATTEMPTS):
            folder = self.folder
            try:
                return self._fetch(download)
            except StorageError:  # an OSError as well
                raise
            except OSError as error:
                # Another thread may have given the folder up meanwhile: then try the new one.
                if self.folder == folder or attempt == _ATTEMPTS - 1:
                    self._recover(error, download, attempt)
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

    def sparse(
        self, store: Store, path: str, size: int, *, block: int, checksums: Sequence[int]
    ) -> SparseCopy:
        """A file of an object's size that holds the blocks of it that were fetched so far."""
        download = Download(store, path, size, None, None)
        for attempt in range(_ATTEMPTS):
            folder = self.folder
            try:
                return SparseCopy(
                    self._sparse_file(download),
                    shown=download.shown,
                    block=block,
                    checksums=checksums,
                    recover=functools.partial(self._writable, download),
                    filled=self._filled,
                )
            except StorageError:
                raise
            except OSError as error:
                if self.folder == folder or attempt == _ATTEMPTS - 1:
                    self._recover(error, download, attempt)
        raise AssertionError("unreachable")

    @property
    def generation(self) -> str | None:
        """The name of the current generation: another one after every flush."""
        with contextlib.suppress(OSError):
            return self._stamp()
        return None

    def usage(self) -> DiskUsage:
        """The contents of the folder now, from all processes."""
        sizes = [size for _, size, _ in self._copies()]
        return DiskUsage(len(sizes), sum(sizes))

    def flush(self) -> DiskUsage:
        """Forget all copies, for every process that uses the folder; returns what was there."""
        try:
            self._prepare()
            old = self._generation()
            freed = self.usage()
            self._name_generation()
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(
                f"Cannot flush the cache folder {self.folder}: {error.strerror}. Check its owner "
                "and permissions."
            ) from error
        for copies in {old, *self.folder.glob("copies-*")} - {self._generation()}:
            shutil.rmtree(copies, ignore_errors=True)
        return freed

    def _prepare(self) -> None:
        """Make the folder, or refuse one that other users can write to."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        reason = reason_against(self.folder)
        if reason is not None:
            raise StorageError(
                f"The cache folder {self.folder} {reason}, who could replace the indexes in it. "
                "Choose another spark.indextables.cache.disk.path, or make it your own: "
                f"chown it, then chmod 700 {self.folder}."
            )

    # --- one object --------------------------------------------------------------------------

    def _fetch(self, download: Download) -> Path:
        self._prepare()
        key = download.key()
        entry = self._generation() / key
        if self._usable(entry, download):
            self._count(hits=1)
            return entry
        with self._locked(f"lock-{key[:2]}"):
            if self._usable(entry, download):  # another process was faster
                self._count(hits=1)
                return entry
            entry.parent.mkdir(exist_ok=True, mode=0o700)
            temporary = self.folder / f"tmp-{uuid.uuid4().hex}"
            try:
                with temporary.open("x+b") as file:
                    fcntl.flock(file, fcntl.LOCK_SH)
                    download.copy_to(file)
                    download.check(file)
                    # Nobody writes to it again: cutting off a mapped file ends the process.
                    os.fchmod(file.fileno(), stat.S_IRUSR)
                    if download.checksum is None:
                        os.fsync(file.fileno())  # otherwise a torn copy is found at its next use
                    temporary.replace(entry)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        self._count(misses=1, bytes_fetched=download.size)
        self._make_room(entry, download.size)
        return entry

    def _sparse_file(self, download: Download) -> Path:
        """The file of a sparse copy; an empty one is created if there is none."""
        self._prepare()
        key = download.key()
        entry = self._generation() / f"{key}{_SPARSE}"
        with contextlib.suppress(FileNotFoundError):
            if entry.stat().st_size == download.size:
                os.utime(entry)
                return entry
        with self._locked(f"lock-{key[:2]}"):
            if not entry.exists() or entry.stat().st_size != download.size:
                entry.parent.mkdir(exist_ok=True, mode=0o700)
                temporary = self.folder / f"tmp-{uuid.uuid4().hex}"
                with temporary.open("x+b") as file:
                    fcntl.flock(file, fcntl.LOCK_SH)
                    os.fchmod(file.fileno(), stat.S_IRUSR | stat.S_IWUSR)
                    file.truncate(download.size)
                    temporary.replace(entry)
        return entry

    def keep(self, store: Store, path: str, data: bytes) -> None:
        """Keep bytes that can be told from damaged ones, if that is possible."""
        with contextlib.suppress(OSError):
            self._prepare()
            entry = self._generation() / Download(store, path, len(data), None, None).key()
            entry.parent.mkdir(exist_ok=True, mode=0o700)
            temporary = self.folder / f"tmp-{uuid.uuid4().hex}"
            try:
                with temporary.open("xb") as file:
                    fcntl.flock(file, fcntl.LOCK_SH)
                    file.write(data)
                    file.flush()
                    temporary.replace(entry)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise

    def kept(self, store: Store, path: str, size: int) -> bytes | None:
        """The bytes that `keep` stored, if they are still there; the caller checks them."""
        with contextlib.suppress(OSError):
            self._prepare()  # a file that other users could have written is not read
            entry = self._generation() / Download(store, path, size, None, None).key()
            data = entry.read_bytes()
            os.utime(entry)
            return data if len(data) == size else None
        return None

    def _filled(self, entry: Path, size: int) -> None:
        """Count what was written to a sparse copy, and make room for it."""
        self._count(misses=1, bytes_fetched=size)
        self._make_room(entry, size)

    def _writable(self, download: Download, error: OSError, attempt: int) -> bool:
        """After a sparse copy could not be written: make room, or use another folder."""
        folder = self.folder
        self._recover(error, download, attempt)
        return not attempt and self.folder == folder

    def _make_room(self, entry: Path, size: int) -> None:
        """Look at the whole folder, but not for every small copy."""
        with self._mutex:
            self._unseen += size
            if self._looked and self._unseen < self.max_bytes * _UNSEEN_SHARE:
                return
            self._looked, self._unseen = True, 0
        self._evict(keep=entry, limit=self.max_bytes)

    def _usable(self, entry: Path, download: Download) -> bool:
        try:
            status = entry.stat()
            if status.st_size != download.size:
                return False
            if time.time() - status.st_mtime > _SAME_USE_S:
                os.utime(entry)  # the order of eviction
            if download.checksum is None:
                return True
            mark = (f"{entry}\0{download.checksum}", entry.stat().st_ino)
            if mark not in self._verified:
                with entry.open("rb") as file:
                    if checksum_like(file, download.checksum) != download.checksum:
                        return False
                self._verified.add(mark)
            return True
        except FileNotFoundError:
            return False

    def _recover(self, error: OSError, download: Download, attempt: int) -> None:
        """Make the next attempt possible, or give up."""
        last = attempt == _ATTEMPTS - 1
        if isinstance(error, FileNotFoundError) and not last:
            return  # a flush or a sweep removed a file under us
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and attempt == 0:
            with contextlib.suppress(OSError):
                self._evict(keep=None, limit=0)
            return
        if error.errno not in _UNUSABLE or self._private or last:
            raise StorageError(
                f"Cannot keep a copy of {download.shown} in {self.folder}: {error.strerror}. "
                "Choose another spark.indextables.cache.disk.path.",
                path=download.shown,
            ) from error
        self._fall_back(error)

    # --- the folder --------------------------------------------------------------------------

    def _generation(self) -> Path:
        """The folder of the current generation."""
        name = self._stamp()
        if name is None:
            with self._locked("lock-generation"):
                name = self._stamp() or self._name_generation()
        return self.folder / f"copies-{name}"

    def _stamp(self) -> str | None:
        """The current generation's name; None if there is none, or a damaged one."""
        try:
            file = os.open(f"{self.folder}/generation", os.O_RDONLY)  # every query asks for it
        except FileNotFoundError:
            return None
        try:
            name = os.read(file, _LONGEST_NAME).decode("ascii", "replace")
        finally:
            os.close(file)
        return name if name.isalnum() else None

    def _name_generation(self) -> str:
        name = uuid.uuid4().hex
        temporary = self.folder / f"stamp-{name}"  # not a tmp-: it is not swept
        temporary.write_text(name, "ascii")
        temporary.replace(self.folder / "generation")
        return name

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with (self.folder / name).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _evict(self, *, keep: Path | None, limit: int) -> None:
        with self._locked("lock-eviction"):
            self._sweep()
            copies = self._copies()
            total = sum(size for _, size, _ in copies)
            evicted = 0
            for _, size, copy in sorted(copies):
                if total <= limit:
                    break
                if copy != keep:
                    copy.unlink(missing_ok=True)
                    total -= size
                    evicted += 1
        self._count(evictions=evicted)

    def _copies(self) -> list[tuple[int, int, Path]]:
        """The last use, the size and the place of every copy, of old generations too."""
        copies = []
        for folder in self.folder.glob("copies-*"):
            if folder.is_symlink():  # its target is not ours to delete
                continue
            with contextlib.suppress(FileNotFoundError):
                for copy in folder.iterdir():
                    with contextlib.suppress(FileNotFoundError):
                        status = copy.lstat()
                        # The holes of a sparse copy take no room.
                        size = status.st_blocks * 512 if copy.suffix == _SPARSE else status.st_size
                        copies.append((status.st_mtime_ns, size, copy))
        return copies

    def _sweep(self) -> None:
        """Delete downloads without a lock: their process is dead."""
        for temporary in self.folder.glob("tmp-*"):
            if not stat.S_ISREG(temporary.lstat().st_mode):  # not a download of this package
                continue
            with contextlib.suppress(OSError), temporary.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                temporary.unlink()

    def _fall_back(self, error: OSError) -> None:
        with self._mutex:
            if self._private:
                return
            unusable, self.folder = self.folder, new_folder("cache")
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
    with contextlib.suppress(RuntimeError):
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "indextables" / "objects"
    # A container may run under a user without a home. Somebody else's folder is never trusted.
    shared = Path(tempfile.gettempdir()) / f"indextables-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        shared.mkdir(mode=0o700)
    trusted = not shared.is_symlink() and reason_against(shared) is None
    return shared if trusted else new_folder("cache")


def reason_against(folder: Path) -> str | None:
    """Why a folder is not safe to keep files in that are trusted later; None if it is."""
    link, there = folder.lstat(), folder.stat()
    if not stat.S_ISDIR(there.st_mode):
        return None  # using it raises the error
    strangers = {link.st_uid, there.st_uid} - {os.geteuid()}
    if strangers:
        return f"belongs to another user (number {min(strangers)})"
    if there.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by other users (its mode is {stat.S_IMODE(there.st_mode):o})"
    return None
