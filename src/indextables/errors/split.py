"""Splits, and rows that do not fit into one."""

from __future__ import annotations

from indextables.errors.base import IndexTablesError


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
