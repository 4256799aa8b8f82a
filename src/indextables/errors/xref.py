"""Cross-references. A query can be answered without them, so the table is not harmed."""

from __future__ import annotations

from collections.abc import Sequence

from indextables.errors.base import IndexTablesError


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
    """XRefs that did not answer in time, in a query that is not to go on without them."""

    def __init__(self, paths: Sequence[str], timeout_ms: int) -> None:
        self.paths = tuple(paths)
        self.timeout_ms = timeout_ms
        super().__init__(
            f"{len(paths)} cross-references did not answer within {timeout_ms:,} ms, {paths[0]} "
            "among them. Raise spark.indextables.xref.query.timeoutMs, or set "
            "spark.indextables.xref.query.fallbackOnError to true."
        )
