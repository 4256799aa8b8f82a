"""Commits that did not happen, and why: who won, and whether to try again."""

from __future__ import annotations

from collections.abc import Sequence

from indextables.errors.log import LogError


class CommitError(LogError):
    """A commit did not happen, or nobody can tell."""


class CommitStateUnknownError(CommitError):
    """The store failed in a way that leaves open whether the version was written."""

    def __init__(self, uri: str, *, version: int, transaction_id: str) -> None:
        self.uri = uri
        self.version = version
        self.transaction_id = transaction_id
        super().__init__(
            f"The store did not say whether version {version} of '{uri}' was written. Look for "
            f"txnId {transaction_id} in the table's history before you write the same data again."
        )


class SplitsPurgedError(CommitError):
    """Files of a write were deleted before it could commit."""

    def __init__(self, uri: str, paths: Sequence[str]) -> None:
        self.uri = uri
        self.paths = tuple(paths)
        super().__init__(
            f"{len(paths):,} files of this write are gone from '{uri}' ({', '.join(paths[:3])}): "
            "a purge took them for old ones. Nothing was changed. Set the clocks of the machines "
            "that use the table, make the retention of PURGE longer than the longest write, and "
            "write again."
        )


class RetriesExhaustedError(CommitError):
    """Every attempt lost to another writer."""

    def __init__(self, uri: str, *, attempts: int, version: int) -> None:
        self.uri = uri
        self.attempts = attempts
        self.version = version
        super().__init__(
            f"Gave up committing to '{uri}' after {attempts} attempts; the last one lost version "
            f"{version}. Nothing was changed. Write in fewer, larger commits, or raise "
            "spark.indextables.transaction.retry.maxAttempts."
        )


class ConflictError(CommitError):
    """Another commit won, and this one cannot be true beside it."""

    def __init__(
        self, what: str, *, uri: str, version: int, remedy: str, paths: Sequence[str] = ()
    ) -> None:
        self.uri = uri
        self.version = version
        self.paths = tuple(paths)
        shown = f" ({', '.join(paths[:3])}{', …' if len(paths) > 3 else ''})" if paths else ""
        super().__init__(f"{what}{shown}, committed in version {version} of '{uri}'. {remedy}")


class ConcurrentAppendError(ConflictError):
    """Files were added that this transaction should have read."""

    def __init__(self, *, uri: str, version: int, paths: Sequence[str] = ()) -> None:
        super().__init__(
            "Another writer added rows that this operation should have seen",
            uri=uri,
            version=version,
            paths=paths,
            remedy="Run the operation again; it will then include those rows.",
        )


class ConcurrentDeleteReadError(ConflictError):
    """Files this transaction read were removed."""

    def __init__(self, *, uri: str, version: int, paths: Sequence[str] = ()) -> None:
        super().__init__(
            "Another writer removed files that this operation read",
            uri=uri,
            version=version,
            paths=paths,
            remedy="Run the operation again on the current version.",
        )


class ConcurrentDeleteDeleteError(ConflictError):
    """Files this transaction removes were removed already."""

    def __init__(self, *, uri: str, version: int, paths: Sequence[str] = ()) -> None:
        super().__init__(
            "Another writer removed the same files",
            uri=uri,
            version=version,
            paths=paths,
            remedy="Plan the operation again on the current version; nothing was changed.",
        )


class MetadataChangedError(ConflictError):
    """Schema, partitioning or properties changed under this transaction."""

    def __init__(self, *, uri: str, version: int, changed: Sequence[str] = ()) -> None:
        self.changed = tuple(changed)
        super().__init__(
            f"Another writer changed the table's {', '.join(changed) or 'metadata'}",
            uri=uri,
            version=version,
            remedy="Open the table again and repeat the operation with the new metadata.",
        )


class ProtocolChangedError(ConflictError):
    """The protocol was upgraded under this transaction."""

    def __init__(self, *, uri: str, version: int) -> None:
        super().__init__(
            "Another writer upgraded the table's protocol",
            uri=uri,
            version=version,
            remedy="Open the table again and repeat the operation.",
        )


class ConcurrentIndexError(ConflictError):
    """Splits that this transaction indexed were indexed by another one, or are all gone."""

    def __init__(self, *, uri: str, version: int, paths: Sequence[str] = ()) -> None:
        super().__init__(
            "Another writer changed the cross-references of the same splits",
            uri=uri,
            version=version,
            paths=paths,
            remedy="Run INDEX CROSSREFERENCES again; it will then see what is left to do.",
        )
