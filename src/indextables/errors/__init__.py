"""Every error of the package: one root, one branch per concern.

An error's message says what happened, where, and what to do about it. What a program may want to
decide on (a path, a version, a count) is an attribute. Errors survive pickling, because they
travel from worker processes to the caller.

Each branch is a module here, and all names are imported from the package::

    >>> from indextables.errors import ObjectNotFoundError
    >>> ObjectNotFoundError("splits/a.split")
    ObjectNotFoundError('No such object: splits/a.split')
"""

from __future__ import annotations

from indextables.errors.ariadne import (
    AriadneArgumentError,
    AriadneError,
    ColumnNotFoundError,
    ConcurrentUpdateError,
    FileListNotFoundError,
    FormatMismatchError,
    IndexNotFoundError,
    IndexNotFoundInNewSchemaError,
    MetadataMissingOrCorruptError,
    MissingFormatError,
    NoSessionError,
    SchemaMismatchError,
    SchemaNotProvidedError,
    SchemaParseError,
    SourceFileMissingError,
    StorageMigrationError,
    StoragePathNotSetError,
    UnsupportedMetadataVersionError,
    UnsupportedStorageFormatVersionError,
)
from indextables.errors.base import (
    IndexTablesError,
)
from indextables.errors.cli import (
    EmbeddedQueryError,
    SourceFileError,
)
from indextables.errors.commit import (
    CommitError,
    CommitStateUnknownError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentIndexError,
    ConflictError,
    MetadataChangedError,
    ProtocolChangedError,
    RetriesExhaustedError,
    SplitsPurgedError,
)
from indextables.errors.config import (
    ConfigError,
    InvalidValueError,
    UnknownKeyError,
)
from indextables.errors.log import (
    CorruptLogError,
    LogError,
    LogTooLargeError,
    NotATableError,
    TableExistsError,
    UnsafePathError,
    UnsupportedFeatureError,
    UnsupportedProtocolError,
    UpgradeRefusedError,
    VersionGapError,
    VersionNotFoundError,
)
from indextables.errors.query import (
    LiteralError,
    PredicateSyntaxError,
    QueryError,
    QuerySyntaxError,
    SearchCallError,
    SearchValueError,
    SumOverflowError,
    TooManyClausesError,
    TooManyExpansionsError,
    UnknownColumnError,
    UnknownFieldError,
    UnsupportedPredicateError,
)
from indextables.errors.spark import (
    ExecutorError,
    JavaMissingError,
    UnsafeCallbacksError,
)
from indextables.errors.split import (
    DamagedIndexError,
    DamagedSplitError,
    ForeignSplitError,
    SchemaError,
    SplitError,
    SplitFileError,
    SplitWriteError,
)
from indextables.errors.sql import (
    ExpressionError,
    NotAPartitionError,
    StatementError,
    StatementSyntaxError,
)
from indextables.errors.storage import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageOptionError,
    StorageRefusedError,
    UnsupportedUriError,
)
from indextables.errors.xref import (
    UnusableXRefError,
    XRefError,
    XRefTimeoutError,
)

__all__ = [
    "AriadneArgumentError",
    "AriadneError",
    "ColumnNotFoundError",
    "CommitError",
    "CommitStateUnknownError",
    "ConcurrentAppendError",
    "ConcurrentDeleteDeleteError",
    "ConcurrentDeleteReadError",
    "ConcurrentIndexError",
    "ConcurrentUpdateError",
    "ConfigError",
    "ConflictError",
    "CorruptLogError",
    "DamagedIndexError",
    "DamagedSplitError",
    "EmbeddedQueryError",
    "ExecutorError",
    "ExpressionError",
    "FileListNotFoundError",
    "ForeignSplitError",
    "FormatMismatchError",
    "IndexNotFoundError",
    "IndexNotFoundInNewSchemaError",
    "IndexTablesError",
    "InvalidValueError",
    "JavaMissingError",
    "LiteralError",
    "LogError",
    "LogTooLargeError",
    "MetadataChangedError",
    "MetadataMissingOrCorruptError",
    "MissingFormatError",
    "NoSessionError",
    "NotAPartitionError",
    "NotATableError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "PredicateSyntaxError",
    "ProtocolChangedError",
    "QueryError",
    "QuerySyntaxError",
    "RetriesExhaustedError",
    "SchemaError",
    "SchemaMismatchError",
    "SchemaNotProvidedError",
    "SchemaParseError",
    "SearchCallError",
    "SearchValueError",
    "SourceFileError",
    "SourceFileMissingError",
    "SplitError",
    "SplitFileError",
    "SplitWriteError",
    "SplitsPurgedError",
    "StatementError",
    "StatementSyntaxError",
    "StorageError",
    "StorageMigrationError",
    "StorageOptionError",
    "StoragePathNotSetError",
    "StorageRefusedError",
    "SumOverflowError",
    "TableExistsError",
    "TooManyClausesError",
    "TooManyExpansionsError",
    "UnknownColumnError",
    "UnknownFieldError",
    "UnknownKeyError",
    "UnsafeCallbacksError",
    "UnsafePathError",
    "UnsupportedFeatureError",
    "UnsupportedMetadataVersionError",
    "UnsupportedPredicateError",
    "UnsupportedProtocolError",
    "UnsupportedStorageFormatVersionError",
    "UnsupportedUriError",
    "UnusableXRefError",
    "UpgradeRefusedError",
    "VersionGapError",
    "VersionNotFoundError",
    "XRefError",
    "XRefTimeoutError",
]

# A traceback, and what Spark reports of one, names an error by the place it is imported from.
for _name in __all__:
    globals()[_name].__module__ = __name__
