"""Files beside the table, and queries without Spark."""

from __future__ import annotations

from indextables.errors.base import IndexTablesError
from indextables.errors.query import QueryError


class SourceFileError(IndexTablesError, ValueError):
    """A file outside the table that rows should come from or go to."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"Cannot use '{path}': {reason}.")


class EmbeddedQueryError(QueryError):
    """A query that is wrong, or that needs Spark."""
