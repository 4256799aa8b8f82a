"""Object stores over HTTP, and the one in memory: S3, Azure Blob Storage, Google Cloud Storage.

The work is done by obstore, the Python binding of Rust's object_store. Conditional writes are
`If-None-Match` and `If-Match` headers there. This module adds what a table needs beside that:
every path relative to the table's root, listings in one order whatever the service, our errors
instead of the library's, and no secret in any of them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
)
from indextables.storage.location import Location, parse_location
from indextables.storage.options import client_settings, original_name, scrub
from indextables.storage.ranges import read_ranges
from indextables.storage.store import ObjectMeta, Store, check_path, check_prefix

if TYPE_CHECKING:
    from obstore import ObjectMeta as ForeignMeta
    from obstore.store import ObjectStore

_UNKNOWN_KEY = re.compile(r"(?:Configuration|Invalid) key: '?([^'\s]+?)'?(?: is not|\.|$)")
_PART_BYTES = 8 << 20
_MAX_PARTS = 9_000  # S3 allows 10,000

_memory_stores: dict[str, MemoryStore] = {}


class RemoteStore(Store):
    """A prefix of a bucket or container, reached through obstore."""

    def __init__(
        self, location: Location, options: Mapping[str, object], client: ObjectStore
    ) -> None:
        self.uri = location.uri
        self._location = location
        self._options = dict(options)
        self._client = client
        self._base = location.prefix + "/" if location.prefix else ""
        # Azure with a hierarchical namespace and S3 directory buckets list in an order of their
        # own, and the latter cannot start in the middle.
        self._sorted = location.scheme != "az" and not location.container.endswith("--x-s3")

    def __reduce__(self) -> tuple[Any, ...]:
        process = os.getpid() if self._location.scheme == "memory" else None
        return _rebuild, (self.uri, self._options, process)

    def get(self, path: str) -> bytes:
        return self.get_with_etag(path)[0]

    def get_with_etag(self, path: str) -> tuple[bytes, str | None]:
        with self._errors("read", path):
            result = obstore.get(self._client, self._key(path))
            return bytes(result.bytes()), result.meta["e_tag"]

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self.get_ranges(path, [(start, end)])[0]

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        key = self._key(path)

        def read(blocks: Sequence[tuple[int, int]]) -> list[bytes]:
            starts, ends = zip(*blocks, strict=True)
            # Joined by us: obstore panics when it cuts a block that came back too short.
            found = obstore.get_ranges(self._client, key, starts=starts, ends=ends, coalesce=0)
            return [bytes(b) for b in found]

        with self._errors("read", path):
            return read_ranges(ranges, read, shown=self._shown(path))

    def head(self, path: str) -> ObjectMeta:
        with self._errors("read", path):
            return self._meta(obstore.head(self._client, self._key(path)))

    def list_directory(self, prefix: str) -> tuple[list[ObjectMeta], list[str]]:
        folder = self._folder(prefix)
        with self._errors("list", prefix):
            found = obstore.list_with_delimiter(self._client, folder)
        inside = len(folder) + 1 if folder else 0
        objects = [self._meta(m) for m in found["objects"] if not _hidden(m["path"][inside:])]
        names = {p.rstrip("/")[inside:] for p in found["common_prefixes"]}
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

    def _key(self, path: str) -> str:
        return self._base + check_path(path)

    def _folder(self, prefix: str) -> str | None:
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
        except FileNotFoundError:
            raise ObjectNotFoundError(shown) from None
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise ObjectExistsError(shown) from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise StorageError(
                f"Not allowed to {verb} {shown}: {scrub(str(error), self._options)} "
                "Check the credentials in storage_options or the environment.",
                path=shown,
            ) from None
        except (exceptions.BaseError, ValueError, OSError) as error:
            raise StorageError(
                f"Cannot {verb} {shown}: {scrub(str(error), self._options)} "
                "Check the endpoint, the network and the storage_options.",
                path=shown,
            ) from None

    # Last, because its name hides the built-in type in the annotations that follow.
    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        folder = self._folder(prefix)
        offset = self._base + start_after if start_after and self._sorted else None
        pages = obstore.list(self._client, folder, offset=offset, chunk_size=1000)
        found = self._listed(prefix, pages, inside=folder + "/" if folder else "")
        if not self._sorted:
            found = iter(sorted(found, key=lambda m: m.path))
        return (m for m in found if start_after is None or m.path > start_after)

    def _listed(
        self, prefix: str, pages: Iterable[Sequence[ForeignMeta]], *, inside: str
    ) -> Iterator[ObjectMeta]:
        pages = iter(pages)
        while True:
            with self._errors("list", prefix):
                page = next(pages, None)
            if page is None:
                return
            for meta in page:
                # The root itself may be an object: the marker some tools write for a folder.
                if meta["path"].startswith(inside) and not _hidden(meta["path"][len(inside) :]):
                    yield self._meta(meta)


def open_remote(location: Location, options: Mapping[str, object]) -> RemoteStore:
    """The store of a parsed URI. Stores of one bucket with equal options share a client."""
    if location.scheme == "memory":
        for name in options:
            raise StorageOptionError(
                name, uri=location.uri, reason="a store in memory takes no options."
            )
        return RemoteStore(
            location, {}, _memory_stores.setdefault(location.container, MemoryStore())
        )
    fixed = tuple(sorted((str(k), v) for k, v in options.items()))
    root = Location(
        location.uri.removesuffix("/" + location.prefix) if location.prefix else location.uri,
        location.scheme,
        location.container,
        "",
        location.azure_account,
        location.azure_suffix,
    )
    return RemoteStore(location, options, _client(root, fixed))


@lru_cache(maxsize=64)
def _client(root: Location, fixed: tuple[tuple[str, object], ...]) -> ObjectStore:
    # Reading the system's certificates takes longer than many a request; hence the cache.
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
                reason="the store does not know it. See docs/configuration.md.",
            ) from None
        raise StorageError(
            f"Cannot open '{root.uri}': a storage option has no usable value "
            f"(given: {', '.join(sorted(options)) or 'none'}; read from the environment as well).",
            path=root.uri,
        ) from None
    return store


def _rebuild(uri: str, options: Mapping[str, object], process: int | None) -> RemoteStore:
    location = parse_location(uri)
    if process is not None and process != os.getpid():
        raise StorageError(
            f"'{uri}' lives in the memory of another process. Use a local folder or an object "
            "store when several processes work on a table.",
            path=uri,
        )
    return open_remote(location, options)


def _hidden(path: str) -> bool:
    return any(s.startswith(".") for s in path.split("/"))
