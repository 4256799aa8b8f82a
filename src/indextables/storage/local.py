"""Objects as files in a local folder, under their literal names.

Spark and other tools read the same files, so a name on disk is the object's name, character by
character. A file is written under a dot-name beside its target, flushed to the disk, and published
in one step: by rename over the old one, or by a hard link, which the kernel refuses when the target
exists. No reader ever sees half a file, and of any number of racing writers one wins.

An empty folder is not a folder, as in an object store: deleting its last object removes it.

All temporary folders of this package are made here as well. A process that is killed leaves its
folder behind; the next one of the same user that makes a folder in the same place removes it first,
once for each process, because it takes a listing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO, Literal, get_args

from indextables.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageRefusedError,
)
from indextables.storage.store import ObjectMeta, Store, check_path, check_prefix, read_ranges

# --- temporary folders -----------------------------------------------------------------------

Purpose = Literal[
    "split", "merge", "index", "xref", "cache", "manifest", "values", "export", "import"
]
"""The purpose of a folder; its name begins with `indextables-` and this."""
PREFIXES = tuple(f"indextables-{purpose}-" for purpose in get_args(Purpose))
_OLDER_NAME = re.compile(r"(indextables|ariadne)-(?!\d+$)[a-z0-9_]{8}")
"""Folders of earlier releases. With digits alone it would be the cache of a user without a home."""
_OLD_S = 24 * 3600
"""Nothing was written in a folder for so long: its process is dead, or does not need it."""


def new_folder(purpose: Purpose, parent: str | None = None) -> Path:
    """A new private folder, once those of killed processes are gone."""
    place = parent or tempfile.gettempdir()
    sweep_once(place, os.getpid())
    return Path(tempfile.mkdtemp(prefix=f"indextables-{purpose}-", dir=place))


@contextlib.contextmanager
def temporary_folder(purpose: Purpose, parent: str | None = None) -> Iterator[Path]:
    """A new private folder that is removed at the end."""
    folder = new_folder(purpose, parent)
    try:
        yield folder
    finally:
        remove_folder(folder)


def temporary_file(purpose: Purpose) -> IO[bytes]:
    """A new file that is removed when it is closed or forgotten."""
    return tempfile.NamedTemporaryFile(prefix=f"indextables-{purpose}-")


@functools.cache
def sweep_once(place: str, process: int) -> None:  # noqa: ARG001 - a forked process sweeps again
    """Remove folders that killed processes of this user left in a place."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            is_temporary = entry.name.startswith(PREFIXES) or _OLDER_NAME.fullmatch(entry.name)
            if is_temporary and _is_abandoned(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    """Whether a folder is ours and nothing in it is new. Links are not followed."""
    with contextlib.suppress(OSError):
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        newest = status.st_mtime
        for folder, folders, files in os.walk(entry.path):
            for name in (*folders, *files):
                newest = max(newest, Path(folder, name).lstat().st_mtime)
        return time.time() - newest > _OLD_S
    return False


def remove_folder(folder: Path) -> None:
    """Remove a folder, also when a thread of Tantivy takes or releases a lock in it meanwhile.

    Each time it may find a lock file that was not there when it looked.
    """
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


# --- objects ---------------------------------------------------------------------------------

_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_FOLDER_ATTEMPTS = 100
_TEMPORARY = ".tmp-"


class LocalStore(Store):
    """A folder of the local disk, or of a file system mounted there."""

    def __init__(self, root: str) -> None:
        self.uri = root
        self._root = Path(root)

    def __reduce__(self) -> tuple[type[LocalStore], tuple[str]]:
        return LocalStore, (self.uri,)

    def get(self, path: str) -> bytes:
        return self.get_with_etag(path)[0]

    def get_with_etag(self, path: str) -> tuple[bytes, str | None]:
        with self._reading(path) as file:
            return file.read(), _etag(os.fstat(file.fileno()))

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self.get_ranges(path, [(start, end)])[0]

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        with self._reading(path) as file:
            return read_ranges(
                ranges,
                lambda blocks: [_read_block(file, start, end) for start, end in blocks],
                shown=self._shown(path),
            )

    def head(self, path: str) -> ObjectMeta:
        target = self._target(path)
        try:
            status = target.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectNotFoundError(self._shown(path)) from None
        except OSError as error:
            raise self._failed("read", path, error) from error
        if not stat.S_ISREG(status.st_mode):
            raise ObjectNotFoundError(self._shown(path))
        return _meta(path, status)

    def list_directory(self, prefix: str) -> tuple[list[ObjectMeta], list[str]]:
        prefix = check_prefix(prefix)
        objects, folders = [], []
        for name, entry in self._entries(prefix):
            if name.endswith("/"):
                if entry.is_symlink() and self._leads_up(prefix, entry):
                    continue
                if next(self._walk(_join(prefix, entry.name), ""), None) is not None:
                    folders.append(entry.name)
            elif meta := self._described(_join(prefix, name), entry):
                objects.append(meta)
        return objects, sorted(folders)

    def put(self, path: str, data: bytes) -> None:
        self._write(path, lambda file: _write_all(file, data), os.replace)

    def put_if_absent(self, path: str, data: bytes) -> None:
        # Spares a loser the write; the publishing step decides.
        try:
            self.head(path)
        except StorageError:  # it is not there, or the write raises the error
            self._write(path, lambda file: _write_all(file, data), self._publish_new)
        else:
            raise ObjectExistsError(self._shown(path))

    def put_if_match(self, path: str, data: bytes, etag: str | None) -> None:
        if etag is None:
            self.put_if_absent(path, data)
            return
        with self._locked(self._target(path)):
            try:
                current = self.head(path).etag
            except ObjectNotFoundError:
                current = None
            if current != etag:
                raise ObjectExistsError(self._shown(path))
            self.put(path, data)

    def put_file(self, path: str, source: Path) -> None:
        def copy(file: BinaryIO) -> None:
            with source.open("rb") as original:
                shutil.copyfileobj(original, file, 1 << 20)

        self._write(path, copy, os.replace)

    def delete(self, paths: Sequence[str]) -> None:
        by_folder: dict[str, list[str]] = {}
        for path in paths:
            folder, _, name = check_path(path).rpartition("/")
            by_folder.setdefault(folder, []).append(name)
        for folder, names in by_folder.items():
            with self._own_folder(folder) as descriptor:
                if descriptor is None:
                    continue
                for name in names:
                    try:
                        os.unlink(name, dir_fd=descriptor)
                    except (FileNotFoundError, IsADirectoryError):
                        continue
                    except OSError as error:
                        raise self._failed("delete", _join(folder, name), error) from error
                    _remove_lock(name, descriptor)
            self._remove_empty(self._root / folder)

    def owns(self, path: str) -> bool:
        with self._own_folder(check_path(path).rpartition("/")[0]) as descriptor:
            return descriptor is not None

    @contextlib.contextmanager
    def _own_folder(self, folder: str) -> Iterator[int | None]:
        """A folder to delete from; None if it is not there, or if a link leads to it.

        A table follows links to read, and never to delete: what lies there may be another table.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY
        descriptor = None
        try:
            descriptor = os.open(self._root, flags)
            for part in folder.split("/") if folder else ():
                outer = descriptor
                try:
                    descriptor = os.open(part, flags | os.O_NOFOLLOW, dir_fd=outer)
                finally:
                    os.close(outer)
        except (FileNotFoundError, NotADirectoryError):
            descriptor = None
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EMLINK):
                raise self._failed("delete", folder, error) from error
            descriptor = None
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def sweep(self, *, older_than_ms: int, dry_run: bool) -> Sequence[ObjectMeta]:
        swept = []
        for folder, _, names in os.walk(self._root):
            for name in names:
                if not name.startswith(_TEMPORARY):
                    continue
                file = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):  # its writer is alive after all
                    meta = _meta(file.relative_to(self._root).as_posix(), file.stat())
                    if meta.modified_ms <= older_than_ms:
                        if not dry_run:
                            file.unlink()
                            self._remove_empty(file.parent)
                        swept.append(meta)
        return swept

    def local_path(self, path: str) -> Path | None:
        return self._target(path)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        return self._walk(check_prefix(prefix), start_after or "")

    # --- reading -----------------------------------------------------------------------------

    def _target(self, path: str) -> Path:
        return self._root / check_path(path)

    def _shown(self, path: str) -> str:
        return f"{self.uri}/{path}"

    def _failed(self, verb: str, path: str, error: OSError) -> StorageError:
        reason = f"{error.strerror or type(error).__name__}. Check the permissions and the disk"
        if isinstance(error, NotADirectoryError):
            file = next((p for p in self._target(path).parents if p.is_file()), self._root)
            reason = f"'{file}' is a file, not a folder. Choose another place"
        return StorageError(f"Cannot {verb} {self._shown(path)}: {reason}.", path=self._shown(path))

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[BinaryIO]:
        target = self._target(path)
        try:
            with target.open("rb") as file:
                yield file
        except StorageError:  # an OSError as well
            raise
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectNotFoundError(self._shown(path)) from None
        except OSError as error:
            raise self._failed("read", path, error) from error

    def _walk(self, prefix: str, after: str) -> Iterator[ObjectMeta]:
        """Depth first, ordered by whole path; sub-trees that end before `after` are skipped."""
        for name, entry in self._entries(prefix):
            path = _join(prefix, name)
            if name.endswith("/"):
                if path < after and not after.startswith(path):
                    continue
                if entry.is_symlink() and self._leads_up(prefix, entry):
                    continue
                yield from self._walk(path[:-1], after)
            elif path > after and (meta := self._described(path, entry)):
                yield meta

    def _leads_up(self, folder: str, link: os.DirEntry[str]) -> bool:
        """Whether a link in a folder is to that folder or one above it, which would never end."""
        inside = self._root / folder
        above = [inside, *inside.parents][: len(inside.parts) - len(self._root.parts) + 1]
        return any(os.path.samestat(link.stat(), one.stat()) for one in above)

    def _entries(self, prefix: str) -> Sequence[tuple[str, os.DirEntry[str]]]:
        """A folder's entries by name; a sub-folder's name ends in '/', which makes paths sort."""
        try:
            with os.scandir(self._root / prefix) as scanned:
                named = [(e.name + "/" if e.is_dir() else e.name, e) for e in scanned]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._failed("list", prefix, error) from error
        return sorted((n for n in named if not n[0].startswith(".")), key=lambda n: n[0])

    def _described(self, path: str, entry: os.DirEntry[str]) -> ObjectMeta | None:
        try:
            return _meta(path, entry.stat())
        except FileNotFoundError:  # deleted since, or a dangling link
            return None

    # --- writing -----------------------------------------------------------------------------

    def _write(
        self,
        path: str,
        fill: Callable[[BinaryIO], None],
        publish: Callable[[Path, Path], object],
    ) -> None:
        """Write a file and publish it. A failure before that has certainly changed nothing."""
        target = self._target(path)
        is_certain = True
        try:
            with self._temporary(target.parent) as file:
                temporary = Path(file.name)
                try:
                    fill(file)
                    file.flush()
                    _make_etag_unique(file.fileno())
                    os.fsync(file.fileno())
                    is_certain = False
                    publish(temporary, target)
                finally:
                    with contextlib.suppress(OSError):
                        temporary.unlink()
            _sync_folder(target.parent)
        except StorageError:  # an OSError as well
            raise
        except OSError as error:
            failed = self._failed("write", path, error)
            if is_certain:
                failed = StorageRefusedError(str(failed), path=failed.path)
            raise failed from error

    def _temporary(self, folder: Path) -> BinaryIO:
        """A new dot-file, which keeps the folder from being removed.

        Until it exists, deleting the last object of the folder removes the folder as well.
        """
        name = folder / f"{_TEMPORARY}{uuid.uuid4().hex}"
        for _ in range(_FOLDER_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                folder.mkdir(parents=True, exist_ok=True)
                return name.open("xb")
        folder.mkdir(parents=True, exist_ok=True)
        return name.open("xb")

    def _publish_new(self, temporary: Path, target: Path) -> None:
        shown = self._shown(target.relative_to(self._root).as_posix())
        try:
            target.hardlink_to(temporary)
        except FileExistsError:
            raise ObjectExistsError(shown) from None
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            # Some file systems have no hard links. All their writers use this branch.
            with self._locked(target):
                if target.exists():
                    raise ObjectExistsError(shown) from None
                temporary.replace(target)

    @contextlib.contextmanager
    def commits_held(self, path: str, *, alone: bool) -> Iterator[bool]:
        target = self._target(path)
        try:
            folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # no log yet, so a purge has nothing to look at
            yield True
            return
        try:
            # The folder itself is locked where that is possible: no file is left behind.
            with contextlib.ExitStack() as stack:
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
                except OSError:  # a network file system locks files only
                    stack.enter_context(self._locked(target, alone=alone))
                yield True
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _locked(self, target: Path, *, alone: bool = True) -> Iterator[None]:
        """Hold the object's lock file, which stays until the object is deleted."""
        path = target.parent / _lock_name(target.name)
        while True:
            try:
                lock = path.open("ab")
            except FileNotFoundError:  # no folder, so no object can match
                raise ObjectExistsError(f"{target}") from None
            except OSError as error:
                raise self._failed("lock", target.name, error) from error
            with lock:
                fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
                # Removed while this one waited: others hold, or will hold, a new file.
                if not _has_name(lock.fileno(), path):
                    continue
                yield
                return

    def _remove_empty(self, folder: Path) -> None:
        while folder != self._root and self._root in folder.parents:
            try:
                folder.rmdir()
            except OSError:  # not empty, or gone
                return
            folder = folder.parent


def _lock_name(name: str) -> str:
    digest = hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()
    return f".lock-{digest}"


def _remove_lock(name: str, folder: int) -> None:
    """Remove the lock file of an object that was deleted, unless it is held.

    Only the holder of a lock removes its file, and those that waited for it see that it is gone.
    """
    try:
        lock = os.open(_lock_name(name), os.O_RDWR | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:  # most objects have none
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _has_name(lock, _lock_name(name), folder):
            os.unlink(_lock_name(name), dir_fd=folder)
    except OSError:  # held; it is used again
        return
    finally:
        os.close(lock)


def _has_name(descriptor: int, name: str | Path, folder: int | None = None) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=folder))
    except FileNotFoundError:
        return False


def _make_etag_unique(descriptor: int) -> None:
    """Keep the file system's time and choose the part of it that is below a millisecond.

    The clock of a file system ticks every few milliseconds, and an inode is used again: two
    versions of a file could have the same tag. The time of this process would make ages wrong
    where its clock is.
    """
    dated = os.fstat(descriptor).st_mtime_ns // 1_000_000 * 1_000_000 + secrets.randbelow(1_000_000)
    os.utime(descriptor, ns=(dated, dated))


def _join(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _meta(path: str, status: os.stat_result) -> ObjectMeta:
    return ObjectMeta(path, status.st_size, status.st_mtime_ns // 1_000_000, _etag(status))


def _write_all(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _read_block(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


def _sync_folder(folder: Path) -> None:
    # A published name survives a power failure only if its folder is flushed too.
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:  # the object was deleted since, and its folder with it
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # not every file system can
            raise
    finally:
        os.close(descriptor)
