"""Every error of the package: one root, one branch per concern.

An error's message says what happened, where, and what to do about it. What a program may want to
decide on (a path, a version, a count) is an attribute. Errors survive pickling, because they
travel from worker processes to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class IndexTablesError(Exception):
    """The root: `except IndexTablesError` catches everything this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call __init__ with the message only; ours take named fields.
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(
    kind: type[IndexTablesError], args: tuple[Any, ...], fields: dict[str, Any]
) -> IndexTablesError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


# --- configuration ---------------------------------------------------------------------------


class ConfigError(IndexTablesError, ValueError):
    """A configuration value that cannot be used."""


class UnknownKeyError(ConfigError, KeyError):
    """A key nobody reads. Accepting it would promise an effect that does not exist."""

    def __init__(self, key: str, *, nearest: Sequence[str] = ()) -> None:
        self.key = key
        self.nearest = tuple(nearest)
        hint = f" Did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(f"Unknown configuration key '{key}'.{hint} See docs/configuration.md.")

    # KeyError would print the repr of the message.
    __str__ = Exception.__str__


class InvalidValueError(ConfigError):
    """A known key with a value that does not parse or lies out of range."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        self.key = key
        self.value = value
        self.expected = expected
        super().__init__(f"Cannot use {value!r} for '{key}': expected {expected}.")


# --- storage ---------------------------------------------------------------------------------


class StorageError(IndexTablesError, OSError):
    """A request to a store failed."""

    def __init__(self, message: str, *, path: str = "") -> None:
        self.path = path
        super().__init__(message)

    __str__ = Exception.__str__


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """The object is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(f"No such object: {path}", path=path)


class ObjectExistsError(StorageError, FileExistsError):
    """Put-if-absent found the object there already, or put-if-match found another one."""

    def __init__(self, path: str) -> None:
        super().__init__(f"The object exists already: {path}", path=path)


class StorageOptionError(StorageError, ValueError):
    """A storage option that the store does not know or cannot use. Values are never shown."""

    def __init__(self, option: str, *, uri: str, reason: str) -> None:
        self.option = option
        self.uri = uri
        super().__init__(
            f"Cannot use the storage option '{option}' for '{uri}': {reason}", path=uri
        )


class UnsupportedUriError(StorageError, ValueError):
    """A URI whose scheme no store serves."""

    def __init__(self, uri: str, *, supported: Sequence[str]) -> None:
        self.uri = uri
        super().__init__(
            f"No store for '{uri}'. Use a local path or one of: {', '.join(supported)}.", path=uri
        )


# --- the transaction log ---------------------------------------------------------------------


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

    __str__ = Exception.__str__


class TableExistsError(LogError, FileExistsError):
    """Create found a table there already."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(f"'{uri}' is an index table already. Open it, or choose another place.")

    __str__ = Exception.__str__


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


# --- commits ---------------------------------------------------------------------------------


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


class ConflictError(CommitError):
    """Another commit won, and this one cannot be true beside it."""

    def __init__(
        self, what: str, *, uri: str, version: int, remedy: str, paths: Sequence[str] = ()
    ):
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


# --- predicates and search queries -----------------------------------------------------------


class QueryError(IndexTablesError, ValueError):
    """A predicate or a search query that cannot be answered."""


class QuerySyntaxError(QueryError):
    """A search query that does not parse. `position` counts characters from 0."""

    def __init__(
        self, query: str, reason: str, *, position: int | None = None, field: str | None = None
    ) -> None:
        self.query = query
        self.reason = reason
        self.position = position
        self.field = field
        start = max(0, min(position or 0, len(query)) - 50)
        shown = query[start : start + 100]
        shown = ("…" if start else "") + shown + ("…" if start + 100 < len(query) else "")
        where = "" if position is None else f" at position {position}"
        on = "" if field is None else f" on {field}"
        super().__init__(f"Cannot parse the search query {shown!r}{on}: {reason}{where}.")


class UnknownFieldError(QueryError, KeyError):
    """A search query names a field that the table does not have."""

    def __init__(self, field: str, *, available: Sequence[str], query: str = "") -> None:
        self.field = field
        self.available = tuple(available)
        self.query = query
        within = f" in the search query {query[:100]!r}" if query else ""
        super().__init__(
            f"There is no field '{field}'{within}. Fields: {', '.join(available) or 'none'}. "
            "If the text before the colon is no field, quote it or write \\: for the colon."
        )

    __str__ = Exception.__str__


class PredicateSyntaxError(QueryError):
    """A condition that is not SQL."""

    def __init__(self, sql: str, reason: str) -> None:
        self.sql = sql
        self.reason = reason
        super().__init__(f"Cannot parse the condition {sql[:200]!r}: {reason}")


class UnknownColumnError(QueryError, KeyError):
    """A condition names a column that the table does not have, or that several could be."""

    def __init__(
        self, column: str, *, available: Sequence[str], candidates: Sequence[str] = ()
    ) -> None:
        self.column = column
        self.available = tuple(available)
        self.candidates = tuple(candidates)
        if candidates:
            message = (
                f"The column '{column}' is ambiguous: it could be {' or '.join(candidates)}. "
                "Write the name in its exact case."
            )
        else:
            message = f"There is no column '{column}'. Columns: {', '.join(available) or 'none'}."
        super().__init__(message)

    __str__ = Exception.__str__


class UnsupportedPredicateError(QueryError):
    """A condition that is SQL but more than a column compared with a literal."""

    def __init__(self, expression: str, reason: str) -> None:
        self.expression = expression
        self.reason = reason
        super().__init__(
            f"Cannot evaluate {expression[:200]!r}: {reason}. Leave it out and filter the result "
            "instead."
        )


class LiteralError(QueryError):
    """A literal that is no value of its column's type."""

    def __init__(self, column: str, kind: str, literal: object, reason: str) -> None:
        self.column = column
        self.kind = kind
        self.literal = literal
        self.reason = reason
        super().__init__(
            f"Cannot compare column '{column}' of type {kind} with {literal!r}: {reason}."
        )


# --- splits and rows -------------------------------------------------------------------------


class SplitError(IndexTablesError):
    """Something about the file of a split."""


class SplitFileError(SplitError):
    """The file of one split cannot be used."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(message)


class DamagedSplitError(SplitFileError):
    """A split whose bytes are not what was written."""

    def __init__(self, path: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            path,
            f"The split {path} is damaged: {reason}. Restore the file from a backup, or remove it "
            "from the table with REPAIR INDEXFILES TRANSACTION LOG.",
        )


class DamagedIndexError(DamagedSplitError):
    """Only the index inside a split is damaged. Its rows can still be read and searched flat."""


class ForeignSplitError(SplitFileError):
    """A split that the Scala product wrote: a Quickwit bundle, which holds no Parquet rows."""

    def __init__(self, path: str) -> None:
        super().__init__(
            path,
            f"The split {path} was written by the Scala product. Its log entry can be read, its "
            "rows cannot: they are stored in a Quickwit bundle. Export the table with that product "
            "and write the rows again with this one.",
        )


class SplitWriteError(SplitError, OSError):
    """Writing a split failed; its temporary files are gone and nothing was committed."""

    def __init__(self, directory: str, reason: str) -> None:
        self.directory = directory
        super().__init__(
            f"Cannot write a split under {directory}: {reason}. Nothing was committed. Free space "
            "there, or set spark.indextables.indexWriter.tempDirectoryPath to a larger disk."
        )

    __str__ = Exception.__str__


class TooManyExpansionsError(QueryError):
    """A wildcard, pattern, fuzzy term or range of words matches more words than allowed."""

    def __init__(self, text: str, *, field: str, found: int, limit: int) -> None:
        self.text = text
        self.field = field
        self.found = found
        self.limit = limit
        super().__init__(
            f"'{text}' matches {found:,} different words of '{field}'; the limit is {limit:,}. "
            "Ask for something narrower, or raise spark.indextables.indexquery.maxExpansions."
        )


class SchemaError(IndexTablesError, ValueError):
    """Rows, a mapping or a change of schema that does not fit the table."""


# --- SQL statements --------------------------------------------------------------------------


class StatementError(IndexTablesError, ValueError):
    """A statement of ours that cannot be carried out as it is written."""


class StatementSyntaxError(StatementError):
    """A statement of ours that does not parse. `position` counts characters from 0."""

    def __init__(
        self,
        sql: str,
        *,
        position: int,
        found: str | None,
        expected: Sequence[str],
        forms: Sequence[str],
    ) -> None:
        self.sql = sql
        self.position = position
        self.expected = tuple(expected)
        self.forms = tuple(forms)
        there = "the statement ends" if found is None else f"there is {found[:50]!r}"
        super().__init__(
            f"Cannot read the statement at position {position}: expected "
            f"{' or '.join(expected)}, but {there}. Write {' or '.join(forms)}"
        )


class SearchCallError(QueryError):
    """A search in SQL whose arguments cannot be used."""

    def __init__(self, function: str, reason: str, *, position: int | None = None) -> None:
        self.function = function
        self.reason = reason
        self.position = position
        where = "" if position is None else f" at position {position}"
        super().__init__(f"{function}{where} {reason}")
