"""Stores and the objects in them. Values of storage options are secrets and never shown."""

from __future__ import annotations

from collections.abc import Sequence

from indextables.errors.base import IndexTablesError


class StorageError(IndexTablesError, OSError):
    """A request to a store failed."""

    def __init__(self, message: str, *, path: str = "") -> None:
        self.path = path
        super().__init__(message)


class UnsupportedUriError(StorageError, ValueError):
    """A URI whose scheme no store serves."""

    def __init__(self, uri: str, *, supported: Sequence[str]) -> None:
        self.uri = uri
        super().__init__(
            f"No store for '{uri}'. Use a local path or one of: {', '.join(supported)}.", path=uri
        )


class StorageOptionError(StorageError, ValueError):
    """A storage option that the store does not know or cannot use. Values are never shown."""

    def __init__(self, option: str, *, uri: str, reason: str) -> None:
        self.option = option
        self.uri = uri
        super().__init__(
            f"Cannot use the storage option '{option}' for '{uri}': {reason}", path=uri
        )


class StorageRefusedError(StorageError):
    """A request that failed before it could change anything."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """The object is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(f"No such object: {path}", path=path)


class ObjectExistsError(StorageError, FileExistsError):
    """Put-if-absent found the object there already, or put-if-match found another one."""

    def __init__(self, path: str) -> None:
        super().__init__(f"The object exists already: {path}", path=path)
