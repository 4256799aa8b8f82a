"""Errors of Ariadne: indexes over external files."""

from __future__ import annotations

from collections.abc import Sequence

from indextables.errors.base import IndexTablesError


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
