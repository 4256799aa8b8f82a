"""The transaction log: is there a table, can its files be read, may this release use it."""

from __future__ import annotations

from collections.abc import Sequence

from indextables.errors.base import IndexTablesError


class LogError(IndexTablesError):
    """Something about the transaction log of a table."""


class NotATableError(LogError, FileNotFoundError):
    """There is no transaction log at the place."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(
            f"'{uri}' is not an index table: it has no _transaction_log. "
            "Create it with Table.create or write a DataFrame to it first."
        )


class TableExistsError(LogError, FileExistsError):
    """Create found a table there already."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(f"'{uri}' is an index table already. Open it, or choose another place.")


class CorruptLogError(LogError, ValueError):
    """A file of the log cannot be read as what it should be."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"The log file {path} is damaged: {reason}. Restore it from a backup, or rebuild the "
            "log with REPAIR INDEXFILES TRANSACTION LOG."
        )


class UnsafePathError(LogError, ValueError):
    """A path in the log leads outside the table. Nothing is read from such a table."""

    def __init__(self, path: str, *, where: str) -> None:
        self.path = path
        self.where = where
        super().__init__(
            f"Refusing the path {path!r} in {where}: paths in a log are relative and stay inside "
            "the table. Whoever wrote this log made a mistake or an attack; inspect it."
        )


class LogTooLargeError(LogError, ValueError):
    """A compressed log file expands beyond the configured limit."""

    def __init__(self, path: str, *, limit: int) -> None:
        self.path = path
        self.limit = limit
        super().__init__(
            f"The log file {path} expands to more than {limit:,} bytes. If it is genuine, raise "
            "spark.indextables.transaction.maxFileSize."
        )


class VersionGapError(LogError):
    """A version between two others is missing and no checkpoint covers it."""

    def __init__(self, uri: str, *, missing: int, found: int) -> None:
        self.uri = uri
        self.missing = missing
        self.found = found
        super().__init__(
            f"Version {missing} of '{uri}' is missing although version {found} exists, and no "
            "checkpoint covers it. Restore the version file, or rebuild the log with REPAIR "
            "INDEXFILES TRANSACTION LOG."
        )


class VersionNotFoundError(LogError, LookupError):
    """A version that never was, or that retention removed."""

    def __init__(self, uri: str, wanted: str, *, earliest: int | None, latest: int | None) -> None:
        self.uri = uri
        self.wanted = wanted
        self.earliest = earliest
        self.latest = latest
        super().__init__(
            f"'{uri}' has no {wanted}. Versions {earliest} to {latest} can be read; older ones are "
            "removed after spark.indextables.logRetention.duration."
        )


class UnsupportedProtocolError(LogError):
    """The table needs a newer reader or writer than this one."""

    def __init__(self, uri: str, *, role: str, required: int, supported: int) -> None:
        self.uri = uri
        self.role = role
        self.required = required
        self.supported = supported
        super().__init__(
            f"Table requires {role} version {required} but this client supports version "
            f"{supported}. Please upgrade to {'read' if role == 'reader' else 'write'} this table. "
            f"(Table: '{uri}')"
        )


class UnsupportedFeatureError(LogError):
    """The table names a feature this release does not know."""

    def __init__(self, uri: str, *, role: str, features: Sequence[str]) -> None:
        self.uri = uri
        self.role = role
        self.features = tuple(features)
        super().__init__(
            f"Table '{uri}' requires the {role} features {', '.join(features)}, which this release "
            "does not support. Upgrade indextables."
        )


class UpgradeRefusedError(LogError):
    """An operation needs a feature that the table lacks, and may not add it."""

    def __init__(self, uri: str, *, feature: str) -> None:
        self.uri = uri
        self.feature = feature
        super().__init__(
            f"'{uri}' does not have the feature {feature}, and spark.indextables.protocol."
            "autoUpgrade is false. Set it to true to let this operation upgrade the table; older "
            "writers are refused then."
        )
