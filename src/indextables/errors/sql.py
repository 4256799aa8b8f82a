"""Statements of our own in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from indextables.errors.base import IndexTablesError


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


class NotAPartitionError(StatementError):
    """A condition that has to choose whole partitions and does not."""

    def __init__(self, column: str | None, *, partition_columns: Sequence[str]) -> None:
        self.column = column
        self.partition_columns = tuple(partition_columns)
        if partition_columns:
            message = (
                f"The condition is about {column!r}, which is no partition column. Use "
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
