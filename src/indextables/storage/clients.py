"""Building obstore's clients from a location and storage options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from obstore import exceptions
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from indextables.errors import StorageError, StorageOptionError
from indextables.storage.location import Location
from indextables.storage.options import client_settings, original_name, text_of

if TYPE_CHECKING:
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
