"""Delta tables through delta-rs: open, append, upsert, delete, commit files that tasks wrote.

A commit that loses to another writer's is done again on what won; nothing waits for a lock. A
folder that is not a Delta table is left alone, whatever is in it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import ConcurrentUpdateError, StorageError
from indextables.runner import pause_s
from indextables.storage.location import scrub

if TYPE_CHECKING:
    from deltalake import DeltaTable

T = TypeVar("T")

_ATTEMPTS = 20
_NAMES = 500
"""File names in one DELETE statement."""
_LOST = re.compile(
    r"Generic error: A (Delta Lake )?table already exists at"
    r"|Delta transaction failed, version \d+ already exists"
)
"""The messages of delta-rs when another writer created the table or the version."""
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|↳")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that a task wrote into the folder of a table."""

    path: str
    size: int
    stats: str


@dataclass(frozen=True)
class DeltaPlace:
    """Where a Delta table is, or will be. Pickled with the credentials, shown without."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(self) -> DeltaTable | None:
        """The newest version of the table; None if it does not exist."""
        from deltalake import DeltaTable

        with _Errors(self):
            if not DeltaTable.is_deltatable(self.uri, self._options):
                return None
            return DeltaTable(self.uri, storage_options=self._options)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table | None:
        """All rows; None if there is no table."""
        table = self.open()
        return None if table is None else self.rows(table, columns)

    def rows(
        self,
        table: DeltaTable,
        columns: Sequence[str] | None = None,
        *,
        among: tuple[str, Sequence[str]] | None = None,
    ) -> pa.Table:
        """The rows of an opened table; `among` is a column and the texts it must have."""
        with _Errors(self):
            dataset: Any = table.to_pyarrow_dataset()
            names = dataset.schema.names if columns is None else list(columns)
            if among is None:
                every_row: pa.Table = dataset.to_table(columns=names)
                return every_row
            key, values = among
            # Not as a filter of the read: delta-rs writes text in a type whose statistics Arrow
            # cannot compare.
            parts = [
                batch.filter(pc.is_in(batch.column(key), pa.array(values, pa.string())))
                for batch in dataset.to_batches(columns=list(dict.fromkeys([*names, key])))
            ]
            fields = [dataset.schema.field(n) for n in dict.fromkeys([*names, key])]
            return pa.Table.from_batches(parts, pa.schema(fields)).select(names)

    def append(self, rows: pa.Table) -> None:
        """Add rows; creates the table, and columns that it lacks."""
        from deltalake import write_deltalake

        self._retried(
            lambda: write_deltalake(
                self.uri, rows, mode="append", schema_mode="merge", storage_options=self._options
            )
        )

    def upsert(self, key: str, rows_of: Callable[[DeltaTable | None], pa.Table | None]) -> bool:
        """Replace the rows with the keys of new ones, and add those with new keys, in one commit.

        `rows_of` makes the new rows from the table as it is (None if it does not exist) and is
        called again when another writer was faster. False if it returned no rows.
        """
        return self._retried(lambda: self._upsert(key, rows_of))

    def _upsert(self, key: str, rows_of: Callable[[DeltaTable | None], pa.Table | None]) -> bool:
        from deltalake import CommitProperties, write_deltalake

        table = self.open()
        rows = rows_of(table)
        if rows is None or not rows.num_rows:
            return False
        with _Errors(self):
            if table is None:
                # Of two writers that both create the table, one has to read the other's rows first.
                # A retry inside delta-rs would add its rows beside them.
                write_deltalake(
                    self.uri,
                    rows,
                    mode="error",
                    storage_options=self._options,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                return True
            quoted = key.replace('"', '""')
            (
                table.merge(
                    rows,
                    f'old."{quoted}" = new."{quoted}"',
                    source_alias="new",
                    target_alias="old",
                    merge_schema=True,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )
        return True

    def delete(self, column: str, values: Sequence[str]) -> None:
        """Delete the rows whose column has one of the values."""
        for start in range(0, len(values), _NAMES):
            quoted = ", ".join(_literal(v) for v in values[start : start + _NAMES])
            self.delete_where(f'"{column}" IN ({quoted})')

    def delete_where(self, predicate: str) -> None:
        """Delete the rows that a condition holds for."""

        def attempt() -> None:
            table = self.open()
            if table is not None:
                with _Errors(self):
                    table.delete(predicate)

        self._retried(attempt)

    def commit(
        self, files: Sequence[DataFile], schema: pa.Schema, *, removed: Sequence[str] = ()
    ) -> None:
        """Add data files that tasks wrote into the table's folder, and remove others."""
        if files or removed:
            self._retried(lambda: self._commit(files, schema, removed))

    def _commit(self, files: Sequence[DataFile], schema: pa.Schema, removed: Sequence[str]) -> None:
        from deltalake import CommitProperties, Schema
        from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

        now = time.time_ns() // 1_000_000
        adds = [AddAction(f.path, f.size, {}, now, True, f.stats) for f in files]
        table = self.open()
        with _Errors(self):
            if table is None:
                create_table_with_add_actions(
                    self.uri,
                    Schema.from_arrow(schema),
                    adds,
                    mode="error",
                    storage_options=self._options,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                return
            live = {meta["path"]: meta["size_bytes"] for meta in data_files(table)}
            removes = [
                RemoveAction(path, True, now, size=live[path], partition_values={})
                for path in removed
                if path in live
            ]
            if adds or removes:
                table.create_write_transaction(
                    [*adds, *removes], mode="append", schema=table.schema(), partition_by=[]
                )

    def compact(self) -> None:
        """Merge small data files into larger ones."""

        def attempt() -> None:
            table = self.open()
            if table is not None:
                with _Errors(self):
                    table.optimize.compact()

        self._retried(attempt)

    def vacuum(self, retention_hours: int) -> list[str]:
        """Delete data files that no version younger than this needs; returns their names."""

        def attempt() -> list[str]:
            table = self.open()
            if table is None:
                return []
            with _Errors(self):
                return table.vacuum(
                    retention_hours=retention_hours, dry_run=False, enforce_retention_duration=False
                )

        return self._retried(attempt)

    @property
    def _options(self) -> dict[str, str] | None:
        return dict(self.options) or None

    def _retried(self, attempt: Callable[[], T]) -> T:
        from deltalake.exceptions import DeltaError

        for number in range(1, _ATTEMPTS + 1):
            try:
                return attempt()
            except _LostError:
                pass
            except StorageError:  # an OSError as well
                raise
            except (DeltaError, OSError) as error:
                if not _is_lost(error):
                    raise _failed(self, error) from None
            time.sleep(pause_s(number, base_s=0.02, longest_s=2, spread=(0, 1)))
        raise ConcurrentUpdateError(self.uri, attempts=_ATTEMPTS)


def data_files(table: DeltaTable) -> list[dict[str, Any]]:
    """The live data files of a table: `path`, `size_bytes`, `modification_time`."""
    actions: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return actions


class _LostError(Exception):
    """Another writer's commit came first."""


class _Errors:
    """Turns errors of delta-rs into `StorageError`; its messages may show a signed URL."""

    def __init__(self, place: DeltaPlace) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, _trace: Any) -> None:
        from deltalake.exceptions import DeltaError

        if isinstance(error, DeltaError | OSError) and not isinstance(error, StorageError):
            if _is_lost(error):
                raise _LostError from None
            raise _failed(self._place, error) from None


def _is_lost(error: BaseException) -> bool:
    """Whether another writer's commit came first. Messages name paths, so they are not searched."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    text = str(error)
    if isinstance(error, CommitFailedError):
        return not text.startswith("Unsupported")
    return isinstance(error, DeltaError) and _LOST.match(text) is not None


def _failed(place: DeltaPlace, error: BaseException) -> StorageError:
    # delta-rs prints causes as coloured lines with arrows.
    text = " ".join(_DECORATION.sub(" ", str(error)).split())
    return StorageError(
        f"Cannot use the Delta table {place.uri}: {scrub(text, place.options).rstrip('.')}. "
        "Check the credentials, the network and the files of the table.",
        path=place.uri,
    )


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
