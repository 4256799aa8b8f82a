"""Writing: every verb is one commit, or none if it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from indextables.errors import ConfigError, SchemaError
from indextables.jobs import alter_columns, write_rows
from indextables.jobs.after_write import after_write
from indextables.jobs.assignments import parse_assignments
from indextables.jobs.commit_write import Written
from indextables.jobs.partitions import Dropped, drop_partitions
from indextables.jobs.restore import restore
from indextables.jobs.update_rows import update_rows
from indextables.plan.column_names import names_of
from indextables.table.open_table import OpenTable, Timestamp


class Writing(OpenTable):
    """The verbs that change rows."""

    def append(
        self, data: Any, *, merge_schema: bool = False, config: Mapping[str, object] | None = None
    ) -> Written:
        """Add rows: an Arrow table, batches or a reader, a pandas or Polars DataFrame.

        With `merge_schema`, new columns are added to the table and types are widened.
        """
        self._check_writable()
        settings = self._with(config)
        written = write_rows.append_rows(
            self._log, data, config=settings, merge_schema=merge_schema
        )
        after_write(self._log, settings)
        return written

    def overwrite(
        self,
        data: Any,
        *,
        where: str | None = None,
        partitions: Literal["all", "dynamic"] = "all",
        merge_schema: bool = False,
        config: Mapping[str, object] | None = None,
    ) -> Written:
        """Replace rows: all of them, those that meet `where`, or the partitions that `data` has."""
        self._check_writable()
        settings = self._with(config)
        if partitions not in ("all", "dynamic"):
            raise ConfigError(f"partitions is 'all' or 'dynamic', not {partitions!r}.")
        if where is not None:
            if partitions == "dynamic":
                raise ConfigError("Use either `where` or partitions='dynamic', not both.")
            predicate = self._predicate(where, self.snapshot())
            written = write_rows.overwrite_where(
                self._log, data, predicate, config=settings, merge_schema=merge_schema
            )
        elif partitions == "dynamic":
            written = write_rows.overwrite_partitions(
                self._log, data, config=settings, merge_schema=merge_schema
            )
        else:
            written = write_rows.overwrite_all(
                self._log, data, config=settings, merge_schema=merge_schema
            )
        after_write(self._log, settings)
        return written

    def delete(self, *, where: str, timezone: str = "UTC") -> Written:
        """Delete the rows that meet a condition, searches included.

        Times in `where` that name no time zone are meant in `timezone`.
        """
        self._check_writable()
        _check_where(where)
        predicate = self._predicate(where, self.snapshot(), timezone=timezone)
        return write_rows.delete_rows(self._log, predicate, config=self._config)

    def update(
        self,
        assignments: str | Mapping[str, str],
        *,
        where: str | None = None,
        timezone: str = "UTC",
    ) -> Written:
        """Give the rows that meet a condition, or all, new values.

        `assignments` are `"n = n + 1, tag = upper(tag)"`, or expressions by column.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://update-example", pa.schema([("n", pa.int64())]))
        >>> _ = table.append(pa.table({"n": [1, 2, 3]}))
        >>> table.update({"n": "n * 10"}, where="n > 1").rows
        2
        >>> sorted(table.scan()["n"].to_pylist())
        [1, 20, 30]
        """
        self._check_writable()
        if isinstance(assignments, Mapping):
            _check_expressions(assignments)
        snapshot = self.snapshot()
        predicate = self._predicate(where, snapshot, timezone=timezone)
        changes = parse_assignments(assignments, names_of(snapshot).shown, timezone=timezone)
        return update_rows(self._log, snapshot, predicate, changes, config=self._config)

    def drop_partitions(self, *, where: str, timezone: str = "UTC") -> Dropped:
        """Remove the partitions that meet a condition on partition columns."""
        self._check_writable()
        _check_where(where)
        predicate = self._predicate(where, self.snapshot(), timezone=timezone)
        return drop_partitions(self._log, predicate)

    def rename_column(self, old: str, new: str) -> int:
        """Rename a column. No split is rewritten, and older versions keep the older name.

        Args:
            old: The column, in any case.
            new: Its new name.

        Returns:
            The version of the table in which the column has the new name.

        Raises:
            UnknownColumnError: The table has no column `old`.
            SchemaError: Another column has the name `new`.

        Example:
            >>> import pyarrow as pa
            >>> from indextables import Table
            >>> table = Table.create("memory://rename-example", pa.schema([("n", pa.int64())]))
            >>> _ = table.append(pa.table({"n": [1, 2]}))
            >>> table.rename_column("n", "amount")
            2
            >>> table.scan(where="amount > 1").to_pydict()
            {'amount': [2]}
        """
        self._check_writable()
        return alter_columns.rename_column(self._log, old, new, config=self._config)

    def drop_columns(self, columns: Sequence[str]) -> int:
        """Drop columns. Their values stay in the splits, unread, until those are merged.

        Args:
            columns: The columns, in any case. A partition column cannot be dropped.

        Returns:
            The version of the table that no longer has them.

        Raises:
            UnknownColumnError: The table has no such column.
            SchemaError: It is a partition column, or no column would be left.

        Example:
            >>> import pyarrow as pa
            >>> from indextables import Table
            >>> schema = pa.schema([("n", pa.int64()), ("tag", pa.string())])
            >>> table = Table.create("memory://drop-example", schema)
            >>> table.drop_columns(["tag"])
            1
            >>> table.schema.names
            ['n']
        """
        self._check_writable()
        if isinstance(columns, str):
            raise SchemaError(f"columns is a list of names. Write columns=[{columns!r}].")
        return alter_columns.drop_columns(self._log, columns, config=self._config)

    def restore(self, *, version: int | None = None, timestamp: Timestamp | None = None) -> int:
        """Make the table what it was, as a new version; gives that version."""
        self._check_writable()
        if (version is None) == (timestamp is None):
            raise ConfigError("Say either version=… or timestamp=… to restore.")
        return restore(self._log, self.snapshot(version=version, timestamp=timestamp)).version


def _check_where(where: object) -> None:
    """A condition that somebody failed to make must not stand for all rows."""
    if where is None:
        raise ConfigError("where is None. Write the condition, or where='true' for everything.")


def _check_expressions(assignments: Mapping[str, object]) -> None:
    if not assignments:
        raise ConfigError("assignments is empty. Name a column and its new value.")
    for column, value in assignments.items():
        if not isinstance(value, str):
            raise ConfigError(
                f"The new value of '{column}' is an expression of SQL, as text, not {value!r}: "
                "write {'n': '5', 'tag': \"'red'\"}."
            )
