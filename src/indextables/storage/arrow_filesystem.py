"""A store over any file system of pyarrow, which is how `hdfs://` is reached.

What it can promise is less than the other stores do. HDFS itself can create a file without
overwriting, but pyarrow exposes neither that nor a rename that refuses an existing target: its
`move` deletes the target and tries again. So:

- an object is written under a dot-name and moved into place: a reader never sees half of it, but
  while an object is *replaced* a reader may for a moment find none;
- `put_if_absent` and `put_if_match` look first and move then. That is safe between the threads of
  one process, and not between processes. They refuse to work until the storage option
  `single_writer=true` says that no other process commits to the table.

Reading needs no such promise.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyarrow import fs

from indextables.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageOptionError,
)
from indextables.storage.location import Location
from indextables.storage.store import ObjectMeta, Store, check_path, check_prefix, read_ranges

_PIECE = 8 << 20
_commit_lock = threading.Lock()


class ArrowStore(Store):
    """A folder of a pyarrow file system. Objects have a tag only where they are read whole."""

    def __init__(
        self, filesystem: fs.FileSystem, root: str, *, uri: str, single_writer: bool = False
    ) -> None:
        self.uri = uri
        self._fs = filesystem
        self._root = root.rstrip("/")
        self._single_writer = single_writer

    def get(self, path: str) -> bytes:
        with self._reading(path) as file:
            return bytes(file.read())

    def get_with_etag(self, path: str) -> tuple[bytes, str | None]:
        # Times have the resolution of a second in HDFS; the content is the only reliable tag.
        data = self.get(path)
        return data, _etag(data)

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self.get_ranges(path, [(start, end)])[0]

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        with self._reading(path) as file:
            return read_ranges(
                ranges,
                lambda blocks: [bytes(file.read_at(end - start, start)) for start, end in blocks],
                shown=self._shown(path),
            )

    def head(self, path: str) -> ObjectMeta:
        with self._errors("read", path):
            info = self._fs.get_file_info(self._full(path))
        if info.type != fs.FileType.File:
            raise ObjectNotFoundError(self._shown(path))
        return _meta(path, info)

    def list_directory(self, prefix: str) -> tuple[list[ObjectMeta], list[str]]:
        objects, folders = [], set()
        inside = len(check_prefix(prefix)) + 1 if prefix else 0
        for meta in self.list(prefix):
            name, slash, _ = meta.path[inside:].partition("/")
            if slash:
                folders.add(name)
            else:
                objects.append(meta)
        return objects, sorted(folders)

    def put(self, path: str, data: bytes) -> None:
        with self._staged(path) as (temporary, target), self._errors("write", path):
            with self._fs.open_output_stream(temporary, compression=None) as file:
                file.write(data)
            self._fs.move(temporary, target)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.put_if_match(path, data, None)

    def put_if_match(self, path: str, data: bytes, etag: str | None) -> None:
        if not self._single_writer:
            raise StorageError(
                f"Cannot commit {self._shown(path)}: this file system has no atomic put-if-absent. "
                "If no other process writes to the table, say so with the storage option "
                "single_writer=true.",
                path=self._shown(path),
            )
        with _commit_lock:
            try:
                current: str | None = self.get_with_etag(path)[1]
            except ObjectNotFoundError:
                current = None
            if current != etag:
                raise ObjectExistsError(self._shown(path))
            self.put(path, data)

    def put_file(self, path: str, source: Path) -> None:
        with self._staged(path) as (temporary, target), self._errors("write", path):
            with (
                source.open("rb") as original,
                self._fs.open_output_stream(temporary, compression=None) as file,
            ):
                while piece := original.read(_PIECE):
                    file.write(piece)
            self._fs.move(temporary, target)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with contextlib.suppress(ObjectNotFoundError):
                self.head(path)
                with self._errors("delete", path):
                    self._fs.delete_file(self._full(path))

    def local_path(self, path: str) -> Path | None:
        full = self._full(path)
        return Path(full) if isinstance(self._fs, fs.LocalFileSystem) else None

    # --- names and errors --------------------------------------------------------------------

    def _full(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _shown(self, path: str) -> str:
        return f"{self.uri}/{path}"

    @contextlib.contextmanager
    def _errors(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectNotFoundError(self._shown(path)) from None
        except OSError as error:
            raise StorageError(
                f"Cannot {verb} {self._shown(path)}: {str(error)[:300]} Check the name node, the "
                "permissions and the Hadoop configuration.",
                path=self._shown(path),
            ) from error

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[Any]:
        self.head(path)  # opening a folder fails differently in every file system
        with self._errors("read", path), self._fs.open_input_file(self._full(path)) as file:
            yield file

    @contextlib.contextmanager
    def _staged(self, path: str) -> Iterator[tuple[str, str]]:
        target = self._full(path)
        folder = target.rpartition("/")[0]
        temporary = f"{folder}/.tmp-{uuid.uuid4().hex}"
        with self._errors("write", path):
            self._fs.create_dir(folder, recursive=True)
        try:
            yield temporary, target
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.delete_file(temporary)
            raise

    # Last, because its name hides the built-in type in the annotations that follow.
    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        folder = check_prefix(prefix)
        base = f"{self._root}/{folder}".rstrip("/")
        with self._errors("list", prefix):
            if self._fs.get_file_info(base).type != fs.FileType.Directory:
                return iter(())
            entries = self._fs.get_file_info(
                fs.FileSelector(base, recursive=True, allow_not_found=True)
            )
        files = ((i.path[len(self._root) + 1 :], i) for i in entries if i.type == fs.FileType.File)
        metas = [_meta(p, i) for p, i in files if not any(s[:1] == "." for s in p.split("/"))]
        metas.sort(key=lambda m: m.path)
        return (m for m in metas if start_after is None or m.path > start_after)


def open_hdfs(location: Location, options: Mapping[str, object]) -> ArrowStore:
    """The store of an `hdfs://host:port/path` URI. No host means Hadoop's `fs.defaultFS`."""
    converters = {"user": str, "replication": int, "buffer_size": int, "default_block_size": int}
    converters |= {"kerb_ticket": str, "single_writer": str}
    arguments: dict[str, Any] = {}
    for name, value in options.items():
        if name not in converters:
            raise StorageOptionError(
                name,
                uri=location.uri,
                reason=f"hdfs has the options {', '.join(sorted(converters))}.",
            )
        try:
            arguments[name] = converters[name](value)
        except ValueError:
            raise StorageOptionError(
                name, uri=location.uri, reason="expected a whole number."
            ) from None
    single_writer = str(arguments.pop("single_writer", "false")).lower()
    if single_writer not in ("true", "false"):
        raise StorageOptionError(
            "single_writer", uri=location.uri, reason="expected true or false."
        )
    host, _, port = location.container.partition(":")
    try:
        # Port 0 leaves it to the configuration, which knows the nodes of a logical host.
        filesystem = fs.HadoopFileSystem(host or "default", int(port or 0), **arguments)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"Cannot connect to '{location.uri}': {str(error)[:300]} HDFS needs a Hadoop client: "
            "set JAVA_HOME, HADOOP_HOME and CLASSPATH=$(hadoop classpath --glob).",
            path=location.uri,
        ) from error
    return ArrowStore(
        filesystem, "/" + location.prefix, uri=location.uri, single_writer=single_writer == "true"
    )


def _etag(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _meta(path: str, info: fs.FileInfo) -> ObjectMeta:
    return ObjectMeta(path, info.size or 0, (info.mtime_ns or 0) // 1_000_000, None)
