"""Every error of the package: one root, one branch per concern.

An error's message says what happened, where, and what to do about it. What a program may want to
decide on (a path, a version, a count) is an attribute. Errors survive pickling, because they
travel from worker processes to the caller.

    >>> ObjectNotFoundError("splits/a.split")
    ObjectNotFoundError('No such object: splits/a.split')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class IndexTablesError(Exception):
    """The root: `except IndexTablesError` catches everything this package raises on purpose."""

    # Some errors are also a KeyError, which would print the repr of the message.
    __str__ = Exception.__str__

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call __init__ with the message only; ours take named fields.
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(
    error_type: type[IndexTablesError], args: tuple[Any, ...], fields: dict[str, Any]
) -> IndexTablesError:
    error = error_type.__new__(error_type, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class ConfigError(IndexTablesError, ValueError):
    """A configuration value that cannot be used."""


class UnknownKeyError(ConfigError, KeyError):
    """A key that does not exist. Accepting it would promise an effect that it does not have."""

    def __init__(self, key: str, *, nearest: Sequence[str] = ()) -> None:
        self.key = key
        self.nearest = tuple(nearest)
        hint = f" Did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(f"Unknown configuration key '{key}'.{hint} See docs/configuration.md.")


class InvalidValueError(ConfigError):
    """A known key with a value that does not parse or lies out of range."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        self.key = key
        self.value = value
        self.expected = expected
        super().__init__(f"Cannot use {value!r} for '{key}': expected {expected}.")


class SynonymsError(ConfigError):
    """A list of synonyms that cannot be used."""

    def __init__(self, reason: str, *, line: int) -> None:
        self.line = line
        super().__init__(
            f"spark.indextables.search.synonyms, line {line}: {reason}. Write words that find each "
            "other as 'car, automobile', and a word that others replace as 'ny => new york', one "
            "rule a line or between semicolons."
        )


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
        super().__init__(f"Cannot use the option '{option}' for '{uri}': {reason}", path=uri)


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


class LogError(IndexTablesError):
    """Something about the transaction log of a table."""


class NotATableError(LogError, FileNotFoundError):
    """There is no transaction log at the place."""

    def __init__(self, uri: str, *, is_file: bool = False, is_missing: bool = False) -> None:
        self.uri = uri
        reason = "there is no such folder" if is_missing else "it has no _transaction_log"
        remedy = "Create it with Table.create or write a DataFrame to it first"
        if is_file:
            reason = "it is a file, and a table is a folder"
            remedy = "Write its rows to a table with write_table"
        super().__init__(f"'{uri}' is not an index table: {reason}. {remedy}.")


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
            "the table. This log was written by mistake or as an attack; inspect it."
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
        can_be_read = (
            "None of its versions can be read"
            if earliest is None
            else f"Versions {earliest} to {latest} can be read"
        )
        super().__init__(
            f"'{uri}' has no {wanted}. {can_be_read}; older ones are removed after "
            "spark.indextables.logRetention.duration."
        )


class PurgedVersionError(LogError, LookupError):
    """What a version changed can no longer be read: its log file or splits of it are gone."""

    def __init__(self, uri: str, version: int) -> None:
        self.uri = uri
        self.version = version
        super().__init__(
            f"What version {version} of '{uri}' changed can no longer be read: retention, a "
            "truncation or a purge removed its log file or splits of it. Ask for later versions; "
            "start a stream with a new checkpoint, from a version that is still there. To keep "
            "them longer, raise spark.indextables.logRetention.duration and purge later."
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


class CommitError(LogError):
    """A commit failed, or its outcome is unknown."""


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


class OtherCheckpointError(CommitError):
    """A stream continues with a batch whose predecessors this table never had."""

    def __init__(self, uri: str, *, batch: int) -> None:
        self.uri = uri
        self.batch = batch
        super().__init__(
            f"The stream would write its batch {batch} to '{uri}', which has none of its earlier "
            "ones: its checkpoint belongs to another table, or the table was dropped and created "
            "again. Nothing was written. Start the stream with a checkpointLocation of its own."
        )


class StreamSourceError(LogError):
    """A stream from a table cannot go on without losing or repeating rows."""

    def __init__(self, uri: str, reason: str) -> None:
        self.uri = uri
        self.reason = reason
        super().__init__(f"The stream from '{uri}' cannot go on: {reason}")


class SplitsPurgedError(CommitError):
    """Files of a write were deleted before it could commit."""

    def __init__(self, uri: str, paths: Sequence[str]) -> None:
        self.uri = uri
        self.paths = tuple(paths)
        super().__init__(
            f"{len(paths):,} files of this write are gone from '{uri}' ({', '.join(paths[:3])}): "
            "a purge deleted them as old files. Nothing was changed. Set the clocks of the "
            "machines that use the table, make the retention of PURGE longer than the longest "
            "write, and write again."
        )


class DeltaMirrorError(CommitError):
    """The `_delta_log` of a mirrored table differs from what its log wrote there."""

    def __init__(self, uri: str, reason: str) -> None:
        self.uri = uri
        self.reason = reason
        super().__init__(
            f"The Delta mirror of '{uri}' cannot be continued: {reason}. Nothing was changed."
        )


class ForeignDeltaCommitError(DeltaMirrorError):
    """Another writer committed to the `_delta_log` of a mirrored table."""

    def __init__(self, uri: str, version: int, writer: str) -> None:
        self.version = version
        super().__init__(
            uri,
            f"version {version} of its _delta_log was written by {writer} and not by its own log, "
            "so its rows are not in the table. Read them as Delta (that version less the one "
            "before) and append them with indextables, then delete the folder _delta_log: the "
            "next commit writes a new one",
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
    """Another commit won, and this one conflicts with it."""

    _event: str
    _remedy: str

    def __init__(self, *, uri: str, version: int, paths: Sequence[str] = ()) -> None:
        self.uri = uri
        self.version = version
        self.paths = tuple(paths)
        shown = f" ({', '.join(paths[:3])}{', …' if len(paths) > 3 else ''})" if paths else ""
        super().__init__(
            f"{self._event}{shown}, committed in version {version} of '{uri}'. {self._remedy}"
        )


class ConcurrentAppendError(ConflictError):
    """Files were added that this transaction should have read."""

    _event = "Another writer added rows that this operation should have seen"
    _remedy = "Run the operation again; it will then include those rows."


class ConcurrentDeleteReadError(ConflictError):
    """Files this transaction read were removed."""

    _event = "Another writer removed files that this operation read"
    _remedy = "Run the operation again on the current version."


class ConcurrentDeleteDeleteError(ConflictError):
    """Files this transaction removes were removed already."""

    _event = "Another writer removed the same files"
    _remedy = "Plan the operation again on the current version; nothing was changed."


class ConcurrentRowChangeError(ConflictError):
    """Rows this transaction replaces were deleted or replaced already."""

    _event = "Another writer deleted or changed the same rows"
    _remedy = "Run the statement again on the current version; nothing was changed."


class MetadataChangedError(ConflictError):
    """Schema, partitioning or properties changed under this transaction."""

    _remedy = "Open the table again and repeat the operation with the new metadata."

    def __init__(self, *, uri: str, version: int, changed: Sequence[str]) -> None:
        self.changed = tuple(changed)
        self._event = f"Another writer changed the table's {', '.join(changed) or 'metadata'}"
        super().__init__(uri=uri, version=version)


class ProtocolChangedError(ConflictError):
    """The protocol was upgraded under this transaction."""

    _event = "Another writer upgraded the table's protocol"
    _remedy = "Open the table again and repeat the operation."


class ConcurrentIndexError(ConflictError):
    """Splits that this transaction indexed were indexed by another one, or are all gone."""

    _event = "Another writer changed the cross-references of the same splits"
    _remedy = "Run INDEX CROSSREFERENCES again; it will then see what is left to do."


class MatchedTwiceError(IndexTablesError, ValueError):
    """Several rows of a merge's source match one row of the table."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"Several rows of the source match the same row of '{uri}', so its new value is "
            "ambiguous. Nothing was changed. Keep only one of them in the source, or match by "
            "more columns."
        )


class SchemaError(IndexTablesError, ValueError):
    """Rows, a mapping or a change of schema that does not fit the table."""


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
    """Only the index of a split is damaged. Its rows can still be read, and searched one by one."""


class DamagedVectorError(SplitFileError):
    """The deletion vector of a split is missing, damaged or for other rows."""

    def __init__(self, path: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            path,
            f"The deletion vector of {path} cannot be used: {reason}. Which rows are deleted is "
            "not known, so none is returned. Restore the vector's file from a backup, or go back "
            "to a version before it with RESTORE.",
        )


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


class XRefError(IndexTablesError):
    """Something about a cross-reference index. The table itself is not harmed."""


class UnusableXRefError(XRefError):
    """An XRef that is missing, damaged or of another format."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"The cross-reference {path} cannot be used: {reason}. Build it again with INDEX "
            "CROSSREFERENCES FOR … FORCE REBUILD."
        )


class XRefTimeoutError(XRefError, TimeoutError):
    """XRefs did not answer in time, and the query may not continue without them."""

    def __init__(self, paths: Sequence[str], timeout_ms: int) -> None:
        self.paths = tuple(paths)
        self.timeout_ms = timeout_ms
        super().__init__(
            f"{len(paths)} cross-references did not answer within {timeout_ms:,} ms, {paths[0]} "
            "among them. Raise spark.indextables.xref.query.timeoutMs, or set "
            "spark.indextables.xref.query.fallbackOnError to true."
        )


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


_MOST_NAMES, _ALIKE = 100, 10


def names_shown(names: Sequence[str], *, like: str = "") -> str:
    """Names for a message: all of them, or those of very many that are spelled most alike.

    >>> names_shown(["a", "b"])
    'a, b'
    >>> names_shown([f"column_{n}" for n in range(200)], like="column_77x").split(", ")[0]
    'column_77'
    """
    if len(names) <= _MOST_NAMES:
        return ", ".join(names) or "none"
    import difflib  # only where it is needed

    near = difflib.get_close_matches(like, names, n=_ALIKE) or list(names[:_ALIKE])
    return f"{', '.join(near)} and {len(names) - len(near):,} others"


class UnknownFieldError(QueryError, KeyError):
    """A search query names a field that the table does not have."""

    def __init__(
        self,
        field: str,
        *,
        available: Sequence[str],
        query: str = "",
        position: int | None = None,
        reason: str = "",
    ) -> None:
        self.field = field
        self.available = tuple(available)
        self.query = query
        self.position = position
        self.reason = reason
        at = "" if position is None else f" at position {position}"
        within = f"{at} in the search query {query[:100]!r}" if query else at
        why = f": {reason}" if reason else ""
        super().__init__(
            f"There is no field '{field}'{within}{why}. "
            f"Fields: {names_shown(available, like=field)}; a path inside one begins with its "
            "name. If the text before the colon is not a field, quote it or write \\: for the "
            "colon."
        )


class SearchValueError(QueryError):
    """A search asks a field for something that is not a value of its type."""

    def __init__(
        self,
        field: str,
        found: str,
        *,
        expected: str,
        query: str = "",
        text: str = "",
        at: int = 0,
    ) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        self.query = query
        position = query.find(text, at) if text else -1
        self.position = None if position < 0 else position
        at_position = "" if position < 0 else f" at position {position}"
        within = f"{at_position} of the search query {query[:100]!r}" if query else ""
        super().__init__(f"The field '{field}' cannot be {found}{within}. Write {expected}.")


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


class TooManyClausesError(QueryError):
    """A search asks for too many words of too many fields."""

    def __init__(self, query: str, *, found: int, fields: int, limit: int) -> None:
        self.query = query
        self.found = found
        self.fields = fields
        self.limit = limit
        over = f" in {fields:,} fields" if fields > 1 else ""
        super().__init__(
            f"The search query {query[:100]!r} asks for {found:,} words{over}; the limit is "
            f"{limit:,}, each word counted once a field. Search in fewer fields, or ask for fewer "
            "words at a time."
        )


class SumOverflowError(QueryError):
    """A sum of whole numbers that is too large for 64 bits."""

    def __init__(self, column: str) -> None:
        self.column = column
        super().__init__(
            f"[ARITHMETIC_OVERFLOW] The sum of '{column}' does not fit into 64 bits. Sum it as a "
            f"decimal: sum(CAST(`{column}` AS DECIMAL(38, 0)))."
        )


class ComputedOverflowError(QueryError):
    """A number that rows are grouped by and that does not fit into its type."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        super().__init__(
            f"[ARITHMETIC_OVERFLOW] A value of {expression} does not fit into its type. Leave such "
            "rows out, or compute it in a wider type."
        )


class IntervalError(QueryError):
    """A histogram's interval does not fit its column."""

    def __init__(self, interval: object, reason: str) -> None:
        super().__init__(f"{interval!r} is not an interval here: {reason}.")
        self.interval = interval


class TooManyValuesError(QueryError):
    """A facet or a histogram would have more entries than are allowed."""

    def __init__(self, what: str, most: int, remedy: str) -> None:
        super().__init__(f"{what} has more than {most:,} different values. {remedy}")
        self.most = most


class VectorError(QueryError):
    """A search for the nearest vectors that cannot be answered."""

    def __init__(self, column: str, reason: str) -> None:
        self.column = column
        self.reason = reason
        super().__init__(f"Cannot search the vectors of '{column}': {reason}.")


class SearchCallError(QueryError):
    """A search in SQL whose arguments cannot be used."""

    def __init__(self, function: str, reason: str, *, position: int | None = None) -> None:
        self.function = function
        self.reason = reason
        self.position = position
        where = "" if position is None else f" at position {position}"
        super().__init__(f"{function}{where} {reason}")


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
            message = (
                f"There is no column '{column}'. Columns: {names_shown(available, like=column)}."
            )
        super().__init__(message)


class UnsupportedPredicateError(QueryError):
    """A condition that is valid SQL, but cannot be computed here for a row."""

    def __init__(self, expression: str, reason: str) -> None:
        self.expression = expression
        self.reason = reason
        super().__init__(
            f"Cannot evaluate {expression[:200]!r}: {reason}. Leave it out and filter the result "
            "instead."
        )


class LiteralError(QueryError):
    """A literal that is not a value of its column's type."""

    def __init__(self, column: str, kind: str, literal: object, reason: str) -> None:
        self.column = column
        self.kind = kind
        self.literal = literal
        self.reason = reason
        super().__init__(
            f"Cannot compare column '{column}' of type {kind} with {literal!r}: {reason}."
        )


class StatementError(IndexTablesError, ValueError):
    """A statement of IndexTables that cannot be executed as it is written."""


class StatementSyntaxError(StatementError):
    """A statement of IndexTables that does not parse. `position` counts characters from 0."""

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


class NotAPartitionError(StatementError):
    """A condition that must choose whole partitions is about other columns."""

    def __init__(self, column: str | None, *, partition_columns: Sequence[str]) -> None:
        self.column = column
        self.partition_columns = tuple(partition_columns)
        if partition_columns:
            message = (
                f"The condition is about {column!r}, which is not a partition column. Use "
                f"{', '.join(partition_columns)}, or DELETE FROM … WHERE … for rows."
            )
        elif column is None:
            message = (
                "Cannot drop partitions from non-partitioned table. Use DELETE FROM … WHERE … to "
                "delete rows."
            )
        else:
            message = (
                f"The condition is about {column!r}, but the table is not partitioned. Leave WHERE "
                "out."
            )
        super().__init__(message)


class ExpressionError(StatementError):
    """An expression of UPDATE … SET that cannot be computed or stored."""

    def __init__(self, expression: str, reason: str) -> None:
        self.expression = expression
        self.reason = reason
        super().__init__(f"Cannot use {expression[:200]!r}: {reason}.")


class SourceFileError(IndexTablesError, ValueError):
    """A file outside the table that rows should come from or go to."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"Cannot use '{path}': {reason}.")


class LakeError(IndexTablesError):
    """An error about a search index, or about the table that it indexes."""


class SearchIndexError(LakeError, ValueError):
    """A search index cannot be used like this."""

    def __init__(self, uri: str, reason: str) -> None:
        self.uri = uri
        self.reason = reason
        super().__init__(f"'{uri}' is a search index: {reason}.")

    @classmethod
    def of_rows(cls, uri: str, source: str) -> SearchIndexError:
        """An operation needs rows in the index, which has none."""
        return cls(
            uri,
            f"it holds no rows, they are in '{source}'. Change rows there, then REFRESH SEARCH "
            "INDEX or SearchIndex.refresh indexes what is new. Rows are read with SQL, with the "
            "format indextables in Spark, or with indextables.SearchIndex.open",
        )


class SourceMissingError(LakeError, FileNotFoundError):
    """The source of a search index, or of a conversion, is not there."""

    def __init__(
        self,
        uri: str,
        source_format: str,
        *,
        is_new: bool = False,
        is_file: bool = False,
        has_parquet: bool = False,
    ) -> None:
        self.uri = uri
        self.source_format = source_format
        if is_file:
            remedy = "It is a file: name the folder of the table."
        elif has_parquet:
            remedy = "There are Parquet files: name the format parquet to use those."
        elif is_new:
            remedy = "Check the path and the format."
        else:
            remedy = (
                "Check the path; if the source was moved, say where it is: REFRESH SEARCH INDEX … "
                "ON …, or open the index with source=… and call refresh()."
            )
        super().__init__(f"There is no {source_format} source at '{uri}'. {remedy}")


class SourceVersionError(LakeError, LookupError):
    """The source does not have a version that was asked for."""

    def __init__(self, uri: str, version: int | str, reason: str) -> None:
        self.uri = uri
        self.version = version
        super().__init__(f"The source '{uri}' has no version {version}: {reason}.")


class UnsupportedSourceError(LakeError):
    """The source uses something that this release cannot read correctly."""

    def __init__(self, uri: str, reason: str) -> None:
        self.uri = uri
        self.reason = reason
        super().__init__(
            f"The source '{uri}' cannot be read: {reason}. Its rows could be wrong, so none are "
            "returned."
        )


class SourceRowsError(LakeError, OSError):
    """A file of a source is damaged, or is not the one that the source's snapshot names."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"The source file '{path}' cannot be read: {reason}. Restore it, or remove it from "
            "the source."
        )


class StoppedError(IndexTablesError):
    """A query that was stopped before its end."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The query was stopped: {reason}.")


class EmbeddedQueryError(QueryError):
    """A query that is wrong, or that needs Spark."""


class MissingPackageError(IndexTablesError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, *, extra: str | None, for_what: str) -> None:
        name = package if extra is None else f"'indextables[{extra}]'"
        super().__init__(f"{for_what} needs {package}: pip install {name}.")
        self.package = package
        self.extra = extra


class JavaMissingError(IndexTablesError, RuntimeError):
    """Spark cannot start."""

    def __init__(self) -> None:
        super().__init__(
            "Spark needs Java 17 or later: JAVA_HOME is not set and there is no `java` on the "
            "PATH. Install one (`apt install openjdk-17-jre-headless`, `brew install "
            "openjdk@17`) and try again. `indextables.Table` and the command line work without it."
        )


class ExecutorError(IndexTablesError, RuntimeError):
    """Executors cannot run the tasks of this package."""

    def __init__(self, python: str, reason: str) -> None:
        self.python = python
        super().__init__(
            f"Executors run the Python '{python}', which cannot run indextables: {reason}. Install "
            "the package there, or name a Python that has it with PYSPARK_PYTHON before the "
            "session starts."
        )


class UnsafeCallbacksError(IndexTablesError, RuntimeError):
    """A stream uses the port to this process, and it is open to every program of the machine."""

    def __init__(self) -> None:
        super().__init__(
            "A stream of this session already calls Python through a port without authentication, "
            "which cannot be changed while it runs: other programs of this machine could call "
            "index tables through it. Stop the streams, or call `indextables.enable(spark)` before "
            "the first stream starts."
        )


class AriadneError(IndexTablesError):
    """An error about an index over external files."""


class AriadneArgumentError(AriadneError, ValueError):
    """An argument that cannot be used. Every problem of a call is in the one message."""

    def __init__(self, what: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{what}: {'; '.join(problems)}")


class NoSessionError(AriadneError, RuntimeError):
    """Ariadne reads files with Spark, and there is no session."""

    def __init__(self) -> None:
        super().__init__(
            "There is no active Spark session. Start one with indextables.session(…) or "
            "SparkSession.builder first."
        )


class StoragePathNotSetError(AriadneError, ValueError):
    """The session does not say where indexes are stored."""

    def __init__(self) -> None:
        super().__init__(
            "spark.ariadne.storagePath is not set. Set the folder where indexes are stored: "
            "spark.conf.set('spark.ariadne.storagePath', '/data/ariadne')."
        )


class IndexNotFoundError(AriadneError, KeyError):
    """There is no index of the name."""

    def __init__(self, name: str, *, root: str) -> None:
        self.name = name
        self.root = root
        super().__init__(
            f"There is no index '{name}' under {root}. IndexCatalog.list() names those that exist; "
            "Index(name, schema, format) creates a new one."
        )


class SchemaNotProvidedError(AriadneError, ValueError):
    """A new index needs the schema of its files."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"The index '{name}' does not exist yet, so it needs the schema of its files: "
            "Index(name, schema, format)."
        )


class MissingFormatError(AriadneError, ValueError):
    """A format that Ariadne does not read."""

    def __init__(self, name: str, found: object, *, supported: Sequence[str]) -> None:
        self.name = name
        self.found = found
        super().__init__(
            f"The index '{name}' has the format {found!r}. Files can be {', '.join(supported)}."
        )


class FormatMismatchError(AriadneError, ValueError):
    """An index exists for files of another format."""

    def __init__(self, name: str, *, stored: str, given: str) -> None:
        self.name = name
        self.stored = stored
        self.given = given
        super().__init__(
            f"The index '{name}' is over {stored} files, not {given}. Leave the format out to "
            "reconnect, or choose another name."
        )


class SchemaMismatchError(AriadneError, ValueError):
    """An index exists with another schema."""

    def __init__(self, name: str, differences: Sequence[str], *, remedy: str = "") -> None:
        self.name = name
        self.differences = tuple(differences)
        super().__init__(
            f"The schema given for the index '{name}' is not the one it has: "
            f"{'; '.join(differences)}. "
            + (
                remedy
                or "Leave the schema out to reconnect, or pass allow_schema_mismatch=True "
                "to replace it."
            )
        )


class IndexNotFoundInNewSchemaError(AriadneError, ValueError):
    """A new schema lacks columns that carry an index."""

    def __init__(self, name: str, missing: Sequence[str]) -> None:
        self.name = name
        self.missing = tuple(missing)
        super().__init__(
            f"The new schema for the index '{name}' lacks what its index columns need: "
            f"{', '.join(missing)}. Keep those columns, or remove the index and create a new one."
        )


class ColumnNotFoundError(AriadneError, KeyError):
    """Columns that the schema, or the selection, does not have."""

    def __init__(self, what: str, problems: Sequence[str], *, available: Sequence[str]) -> None:
        self.problems = tuple(problems)
        self.available = tuple(available)
        super().__init__(f"{what}: {'; '.join(problems)}. Columns: {', '.join(available)}.")


class MetadataMissingOrCorruptError(AriadneError, ValueError):
    """metadata.json does not exist or is damaged."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"The metadata {path} cannot be used: {reason}. Restore the file, or remove the index "
            "and create it again."
        )


class UnsupportedMetadataVersionError(AriadneError):
    """metadata.json was written by a newer release."""

    def __init__(self, path: str, *, found: int, supported: int) -> None:
        self.path = path
        self.found = found
        self.supported = supported
        super().__init__(
            f"{path} has metadata version {found}; this release reads up to {supported}. "
            "Upgrade indextables."
        )


class SchemaParseError(AriadneError, ValueError):
    """The schema in the metadata of an index cannot be read."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(
            f"The stored schema of the index '{name}' is not a Spark schema: {reason} Restore "
            "metadata.json, or remove the index and create it again."
        )


class UnsupportedStorageFormatVersionError(AriadneError):
    """The tables of an index were written by a newer release."""

    def __init__(self, path: str, *, found: int, supported: int) -> None:
        self.path = path
        self.found = found
        self.supported = supported
        super().__init__(
            f"{path} has storage format version {found}; this release reads up to {supported}. "
            "Upgrade indextables."
        )


class StorageMigrationError(AriadneError):
    """Tables of an older layout could not be brought to this one; nothing was changed."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"The index table {path} cannot be brought to the current layout: {reason}. It was "
            "left as it is; remove the index and create it again."
        )


class FileListNotFoundError(AriadneError, FileNotFoundError):
    """There is no file list to remove."""

    def __init__(self, name: str, *, root: str) -> None:
        self.name = name
        super().__init__(f"There is no file list '{name}' under {root}.")


class SourceFileMissingError(AriadneError, FileNotFoundError):
    """Registered files that do not exist any more."""

    def __init__(self, name: str, files: Sequence[str]) -> None:
        self.name = name
        self.files = tuple(files)
        shown = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        super().__init__(
            f"Files of the index '{name}' do not exist: {shown}. Put them back, or remove them "
            "from the index with delete_files."
        )


class ConcurrentUpdateError(AriadneError):
    """Every attempt to commit lost to another writer."""

    def __init__(self, path: str, *, attempts: int) -> None:
        self.path = path
        self.attempts = attempts
        super().__init__(
            f"Gave up writing {path} after {attempts} attempts: other writers were faster. "
            "What they wrote is intact; run the operation again."
        )


def first_line(error: BaseException) -> str:
    """What an error says in its first line that has text; its class if it says nothing.

    >>> first_line(ValueError("\\n[PARSE] no such type\\n\\n== SQL =="))
    '[PARSE] no such type'
    >>> first_line(ValueError())
    'ValueError'
    """
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def is_installed(package: str) -> bool:
    """Whether a package can be imported."""
    import importlib.util

    return importlib.util.find_spec(package) is not None


def require(package: str, *, extra: str | None, for_what: str) -> None:
    """Refuse what cannot be done without a package, and say which extra or package to install."""
    if not is_installed(package):
        raise MissingPackageError(package, extra=extra, for_what=for_what)
