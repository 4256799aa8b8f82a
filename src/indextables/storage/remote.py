"""Object stores over HTTP, and the one in memory: S3, Azure Blob Storage, Google Cloud Storage.

The work is done by obstore, the Python binding of Rust's object_store; its clients are built from a
location and storage options. Conditional writes are `If-None-Match` and `If-Match` headers there.
This module adds what a table needs beside that: every path relative to the table's root, listings
in one order whatever the service, our errors instead of the library's, and no secret in any of
them.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from indextables.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageOptionError,
    StorageRefusedError,
)
from indextables.storage.location import (
    Location,
    client_settings,
    original_name,
    parse_location,
    scrub,
    text_of,
)
from indextables.storage.store import ObjectMeta, Store, check_path, check_prefix, read_ranges

if TYPE_CHECKING:
    from obstore import ObjectMeta as ForeignMeta
    from obstore.store import ObjectStore


_UNKNOWN_KEY = re.compile(r"(?:Configuration|Invalid) key: '?([^'\s]+?)'?(?: is not|\.|$)")

_memory_stores: dict[str, MemoryStore] = {}


def client_of(location: Location, options: Mapping[str, object]) -> ObjectStore:
    """The client of a bucket or container; those with equal options are one."""
    if location.scheme == "memory":
        for name in options:
            raise StorageOptionError(
                name, uri=location.uri, reason="a store in memory takes no options."
            )
        return _memory_stores.setdefault(location.container, MemoryStore())
    root = location.uri.removesuffix(f"/{location.prefix}") if location.prefix else location.uri
    fixed = tuple(sorted((k, text_of(v)) for k, v in options.items()))
    return _client(replace(location, uri=root, prefix=""), fixed)


@lru_cache(maxsize=64)
def _client(root: Location, fixed: tuple[tuple[str, str], ...]) -> ObjectStore:
    # Reading the system's certificates takes longer than most requests, so they are cached.
    options = dict(fixed)
    config, retry = client_settings(options, uri=root.uri)
    kinds: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    if root.azure_account:
        if not any(k.endswith("account_name") for k in config):
            config["azure_storage_account_name"] = root.azure_account
        if root.azure_suffix != "core.windows.net" and not any(
            k.endswith("endpoint") for k in config
        ):
            config["endpoint"] = f"https://{root.azure_account}.blob.{root.azure_suffix}"
    try:
        store: ObjectStore = kinds[root.scheme](root.container, config=config, retry_config=retry)
    except (exceptions.BaseError, ValueError, TypeError) as error:
        if match := _UNKNOWN_KEY.search(str(error)):
            raise StorageOptionError(
                original_name(match[1], options),
                uri=root.uri,
                reason="neither index tables nor the store have it. docs/configuration.md lists "
                "what there is.",
            ) from None
        raise StorageError(
            f"Cannot open '{root.uri}': a storage option has no usable value "
            f"(given: {', '.join(sorted(options)) or 'none'}; read from the environment as well).",
            path=root.uri,
        ) from None
    return store


_PART_BYTES = 8 << 20
_MAX_PARTS = 9_000  # S3 allows 10,000
_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:.*?<Message>([^<]*)</Message>)?", re.DOTALL)
# Statuses that a service returns instead of doing what was asked; others of them may be passing.
_REFUSED = re.compile(r"status code: (?!408|409|412|429)([34]\d\d)|redirect without LOCATION")
_REPEATED = re.compile(r"after [1-9]\d* retries")
_WHOLE_OBJECT = "Received non-partial response"
_NO_CONTAINER = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")

# A process id may be used again; this name of a process is not.
_PROCESS = uuid.uuid4().hex
_runtime_process: int | None = None


class _Fetched:
    """Reads of object stores by this process, for DESCRIBE INDEXTABLES STORAGE STATS."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = self.bytes = 0

    def add(self, parts: Sequence[bytes]) -> None:
        with self._lock:
            self.requests += len(parts)
            self.bytes += sum(map(len, parts))


_fetched = _Fetched()


def fetched() -> tuple[int, int]:
    """How many bytes this process read of object stores, and by how many requests."""
    return _fetched.bytes, _fetched.requests


class RemoteStore(Store):
    """A prefix of a bucket or container, reached through obstore."""

    def __init__(
        self, location: Location, options: Mapping[str, object], client: ObjectStore
    ) -> None:
        self.uri = location.uri
        self._location = location
        self._options = dict(options)
        self._client = client
        self._foreign = False
        self._base = location.prefix + "/" if location.prefix else ""
        # Azure with a hierarchical namespace and S3 directory buckets list in an order of their
        # own, and the latter cannot start in the middle.
        self._sorted = location.scheme != "az" and not location.container.endswith("--x-s3")

    @property
    def options(self) -> Mapping[str, object]:
        """The options that the store was opened with."""
        return self._options

    def __reduce__(self) -> tuple[Any, ...]:
        process = _PROCESS if self._location.scheme == "memory" else None
        if self._foreign:
            process = "foreign"
        return _rebuild, (self.uri, self._options, process)

    @property
    def identity(self) -> str:
        if self._location.scheme == "memory":
            return f"{self.uri}\0{_PROCESS}"
        places = ("endpoint", "account_name")
        endpoints = [
            (k, v) for k, v in self._options.items() if any(p in k.lower() for p in places)
        ]
        return "\0".join((self.uri, *sorted(f"{k}={v}" for k, v in endpoints)))

    def get(self, path: str) -> bytes:
        return self.get_with_etag(path)[0]

    def get_with_etag(self, path: str) -> tuple[bytes, str | None]:
        with self._errors("read", path):
            result = obstore.get(self._client, self._key(path))
            data = bytes(result.bytes())
            _fetched.add([data])
            return data, result.meta["e_tag"]

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self.get_ranges(path, [(start, end)])[0]

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        key = self._key(path)

        def read(blocks: Sequence[tuple[int, int]]) -> list[bytes]:
            starts, ends = zip(*blocks, strict=True)
            # Joined by us: obstore panics when it cuts a block that came back too short.
            try:
                buffers = obstore.get_ranges(
                    self._client, key, starts=starts, ends=ends, coalesce=0
                )
            except exceptions.BaseError as error:
                if _WHOLE_OBJECT not in str(error):
                    raise
                # Some gateways ignore ranges. What they send instead holds what was asked for.
                content = bytes(obstore.get(self._client, key).bytes())
                _fetched.add([content])
                return [content[start:end] for start, end in blocks]
            parts = [bytes(b) for b in buffers]
            _fetched.add(parts)
            return parts

        with self._errors("read", path):
            return read_ranges(ranges, read, shown=self._shown(path))

    def head(self, path: str) -> ObjectMeta:
        with self._errors("read", path):
            return self._meta(obstore.head(self._client, self._key(path)))

    def list_directory(self, prefix: str) -> tuple[list[ObjectMeta], list[str]]:
        folder = self._folder(prefix)
        with self._errors("list", prefix):
            listing = obstore.list_with_delimiter(self._client, folder)
        inside = len(folder) + 1 if folder else 0
        named = ((m["path"][inside:], m) for m in listing["objects"])
        # An empty name is the folder itself: the marker some tools write for one.
        objects = [self._meta(m) for name, m in named if name and not _hidden(name)]
        names = {p.rstrip("/")[inside:] for p in listing["common_prefixes"]}
        return (
            sorted(objects, key=lambda m: m.path),
            sorted(n for n in names if not _hidden(n)),
        )

    def put(self, path: str, data: bytes) -> None:
        with self._errors("write", path):
            obstore.put(self._client, self._key(path), data, mode="overwrite", use_multipart=False)

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self._errors("write", path):
            obstore.put(self._client, self._key(path), data, mode="create", use_multipart=False)

    def put_if_match(self, path: str, data: bytes, etag: str | None) -> None:
        if etag is None:
            self.put_if_absent(path, data)
            return
        try:
            with self._errors("write", path):
                obstore.put(
                    self._client,
                    self._key(path),
                    data,
                    mode={"e_tag": etag},
                    use_multipart=False,
                )
        except ObjectNotFoundError:
            raise ObjectExistsError(self._shown(path)) from None

    def put_file(self, path: str, source: Path) -> None:
        part = max(_PART_BYTES, -(-source.stat().st_size // _MAX_PARTS))
        with self._errors("write", path):
            obstore.put(self._client, self._key(path), source, chunk_size=part, max_concurrency=4)

    def delete(self, paths: Sequence[str]) -> None:
        keys = [self._key(p) for p in paths]
        if not keys:
            return
        try:
            with self._errors("delete", paths[0]):
                obstore.delete(self._client, keys)
        except ObjectNotFoundError:
            # The bulk request stopped at one that is gone, and does not say which others it did.
            with ThreadPoolExecutor(min(16, len(keys))) as pool:
                list(pool.map(self._delete_one, paths))

    def local_path(self, path: str) -> Path | None:
        check_path(path)
        return None

    # --- keys and errors ---------------------------------------------------------------------

    def _delete_one(self, path: str) -> None:
        with contextlib.suppress(ObjectNotFoundError), self._errors("delete", path):
            obstore.delete(self._client, self._key(path))

    def _require_own_process(self) -> None:
        """Refuse the memory of another process, and a fork in which requests would never end."""
        global _runtime_process  # noqa: PLW0603
        if self._foreign:
            raise StorageError(
                f"'{self.uri}' lives in the memory of another process. Use a local folder or an "
                "object store when several processes work on a table.",
                path=self.uri,
            )
        # obstore's threads do not survive a fork; a request in the child would never end.
        if _runtime_process is None:
            _runtime_process = os.getpid()
        elif _runtime_process != os.getpid():
            raise StorageError(
                f"Cannot use '{self.uri}' in a forked process after its parent used a store. "
                "Start processes with the method 'spawn' or 'forkserver'.",
                path=self.uri,
            )

    def _key(self, path: str) -> str:
        self._require_own_process()
        return self._base + check_path(path)

    def _folder(self, prefix: str) -> str | None:
        self._require_own_process()
        return (self._base + check_prefix(prefix)).rstrip("/") or None

    def _shown(self, path: str) -> str:
        return f"{self.uri}/{path}"

    def _meta(self, foreign: ForeignMeta) -> ObjectMeta:
        etag = foreign["e_tag"]
        if etag is not None and not etag.endswith('"'):
            etag = f'"{etag}"'  # Azure leaves the quotes out in listings, and wants them back
        return ObjectMeta(
            foreign["path"][len(self._base) :],
            foreign["size"],
            int(foreign["last_modified"].timestamp() * 1000),
            etag,
        )

    @contextlib.contextmanager
    def _errors(self, verb: str, path: str) -> Iterator[None]:
        """Translate obstore's errors; the originals may show a signed URL and are not chained."""
        shown = self._shown(path)
        try:
            yield
        except StorageError:  # an OSError as well
            raise
        except FileNotFoundError as error:
            if verb == "write" and _NO_CONTAINER.search(str(error)):
                raise self._failed(verb, shown, str(error)) from None
            raise ObjectNotFoundError(shown) from None
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise ObjectExistsError(shown) from None
        except (exceptions.BaseError, ValueError, OSError) as error:
            raise self._failed(verb, shown, str(error)) from None

    def _failed(self, verb: str, shown: str, text: str) -> StorageError:
        """One sentence of what a service answered.

        Of the document in its answer the code and the message: the rest may repeat the request,
        with a token that was read from the environment.
        """
        if _INSTANCE_METADATA.search(text):
            # Without credentials the client asks the machine it runs on, as one in a cloud would.
            return StorageRefusedError(
                f"Cannot {verb} {shown}: no credentials were found for it. Pass them as "
                "storage_options (in Spark: as options), or set the environment variables of the "
                "vendor.",
                path=shown,
            )
        reason = scrub(text, self._options)
        if answer := _ANSWER.search(text):
            answers = ": ".join(part.split("\n")[0] for part in answer.groups() if part)
            reason = scrub(f"the store answered {answers}", self._options)
        status = _REFUSED.search(text)
        problem, advice = "Cannot", "the endpoint, the network and the storage_options"
        error_type = StorageError
        if status is not None:
            problem = "Not allowed to" if status[1] in ("401", "403") else "Cannot"
            advice = "the credentials, which may have expired, and the other storage_options"
            if _NO_CONTAINER.search(text):
                advice = "the name of the bucket or container; make it first"
            # Of several attempts an earlier one may have taken effect.
            error_type = StorageError if _REPEATED.search(text) else StorageRefusedError
        return error_type(f"{problem} {verb} {shown}: {reason}. Check {advice}.", path=shown)

    # Last, because its name hides the built-in type in the annotations that follow.
    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        folder = self._folder(prefix)
        offset = self._base + start_after if start_after and self._sorted else None
        pages = obstore.list(self._client, folder, offset=offset, chunk_size=1000)
        listed = self._listed(prefix, pages, inside=folder + "/" if folder else "")
        if not self._sorted:
            listed = iter(sorted(listed, key=lambda m: m.path))
        return (m for m in listed if start_after is None or m.path > start_after)

    def _listed(
        self, prefix: str, pages: Iterable[Sequence[ForeignMeta]], *, inside: str
    ) -> Iterator[ObjectMeta]:
        pages = iter(pages)
        while True:
            with self._errors("list", prefix):
                page = next(pages, None)
            if page is None:
                return
            for foreign in page:
                path = foreign["path"]
                if path.startswith(inside) and not _hidden(path[len(inside) :]):
                    meta = self._meta(foreign)
                    if meta.size > 0 or not self._is_folder_marker(meta):
                        yield meta

    def _is_folder_marker(self, meta: ObjectMeta) -> bool:
        """Hadoop and web consoles write empty objects `a/`, which obstore lists as `a`."""
        if self._location.scheme == "memory":
            return False
        try:
            self.head(meta.path)
        except ObjectNotFoundError:
            return True
        return False


_INSTANCE_METADATA = re.compile(r"169\.254\.1\d+\.\d+|metadata\.google\.internal|fd00:ec2::")


def open_remote(location: Location, options: Mapping[str, object]) -> RemoteStore:
    """The store of a parsed URI."""
    return RemoteStore(location, options, client_of(location, options))


def _rebuild(uri: str, options: Mapping[str, object], process: str | None) -> RemoteStore:
    store = open_remote(parse_location(uri), options)
    # Not an error yet: one that is raised while a worker unpickles its task breaks the pool.
    store._foreign = process not in (None, _PROCESS)
    return store


def _hidden(path: str) -> bool:
    return any(s.startswith(".") for s in path.split("/"))
