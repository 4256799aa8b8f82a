"""Where tables are kept: one `Store` interface, opened by URI.

>>> store = open_store("memory://example/docs")
>>> store.put_if_absent("a/b.txt", b"one")
>>> [meta.path for meta in store.list("a")], open_store("memory://example").get("docs/a/b.txt")
(['a/b.txt'], b'one')
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from indextables.errors import ConfigError, StorageOptionError
from indextables.storage.location import canonical_uri, own_names, parse_location
from indextables.storage.store import ObjectMeta, Store

__all__ = ["ObjectMeta", "Store", "canonical_uri", "open_store"]


def open_store(
    uri: str | os.PathLike[str], storage_options: Mapping[str, object] | None = None
) -> Store:
    """Open the store below a URI or a local path. Nothing is created or contacted yet.

    `storage_options` are credentials, endpoints and timeouts; see `indextables.storage.location`.
    An option that is None counts as not given.
    """
    location = parse_location(uri)
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise ConfigError(  # whose text has no value, which may be a secret
            "storage_options must be a mapping of names to values, not a "
            f"{type(storage_options).__name__}."
        )
    options = {k: v for k, v in (storage_options or {}).items() if v is not None}
    options = own_names(options, location.scheme)
    if location.scheme == "file":
        from indextables.storage.local import LocalStore

        for name in options:
            raise StorageOptionError(
                name,
                uri=location.uri,
                reason="index tables do not have it (docs/configuration.md lists theirs), and a "
                "local folder takes no options. Leave it out.",
            )
        return LocalStore(location.uri)
    if location.scheme == "hdfs":
        from indextables.storage.arrow_filesystem import open_hdfs

        return open_hdfs(location, options)
    from indextables.storage.remote import open_remote

    return open_remote(location, options)
