"""Our statements on the command line: the tables they name, their rows, and their failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from indextables.cli import output
from indextables.cli.options import Format
from indextables.cli.output import show_facts, show_rows
from indextables.cli.settings import Settings, fail
from indextables.cli.source_files import is_file_name
from indextables.cli.sources import rows_of_files
from indextables.config import Config
from indextables.errors import StatementError
from indextables.plan.access import TableAccess
from indextables.statements.execute import execute
from indextables.statements.forms import Target
from indextables.statements.session import Session, named_source
from indextables.statements.statements import Statement
from indextables.storage import open_store
from indextables.table import Table

_CATALOGS = ("indextables", "tantivy4spark")
_FORMATS: dict[str, Format] = {"parquet": "parquet", "csv": "csv", "json": "jsonl"}


@dataclass(frozen=True, slots=True)
class Tables:
    """Opens tables by the names that a statement or a query uses."""

    settings: Settings
    names: Mapping[str, str] = field(default_factory=dict)

    def open(
        self, parts: tuple[str, ...], version: int | None = None, as_of: str | None = None
    ) -> Any:
        """The table of a name: `docs`, or indextables.`s3://bucket/docs`; or the rows of files."""
        files = self._files(parts)
        if files is not None:
            if version is not None or as_of is not None:
                raise StatementError(f"Files have no versions: '{files[0]}'.")
            return rows_of_files(files[0], files[1])
        return self.settings.open(self.uri(parts), version=version, as_of=as_of)

    def _files(self, parts: tuple[str, ...]) -> tuple[str, Format | None] | None:
        """The files that a name means, and their format if it says one."""
        if len(parts) == 2 and parts[0].lower() in _FORMATS:
            return parts[1], _FORMATS[parts[0].lower()]
        place = self.names.get(parts[0], parts[0])
        return (place, None) if len(parts) == 1 and is_file_name(place) else None

    def uri(self, parts: tuple[str, ...]) -> str:
        """The place of a table.

        >>> Tables(Settings(), {"d": "s3://bucket/docs"}).uri(("d",))
        's3://bucket/docs'
        """
        if len(parts) == 2 and parts[0].lower() in _CATALOGS:
            return self.names.get(parts[1], parts[1])
        if len(parts) == 1:
            return self.names.get(parts[0], parts[0])
        name = ".".join(parts)
        raise StatementError(
            f"There is no catalog here for '{name}'. Write the name of a folder, a place in "
            "quotes, or a name defined with --table."
        )

    def resolve(self, target: Target) -> Table:
        """The table of a statement."""
        return self.settings.open_itself(self._place(target))

    def _place(self, target: Target) -> str:
        return self.uri(target.name) if target.path is None else target.path

    def _access(self, uri: str) -> TableAccess:
        return self.settings.access(uri)

    # --- search indexes, which have no names here but their places -------------------------------

    def source(self, target: Target) -> tuple[str, TableAccess]:
        """A source in a format."""
        named = named_source(target)
        if named is None:
            raise StatementError(
                f"The source {target} has no format. Write delta.`{target}`, iceberg.`{target}` or "
                f"parquet.`{target}`; there is no catalog here."
            )
        return named[0], self._access(named[1])

    def find(self, target: Target) -> TableAccess:
        """The index at a place."""
        return self._access(self._place(target))

    def new(self, target: Target, location: str | None) -> TableAccess:
        """The place of an index that is created."""
        if location is not None:
            raise StatementError(
                "LOCATION is for a name in Spark's catalog. Here the name of an index is its place."
            )
        return self.find(target)

    def created(self, target: Target, access: TableAccess) -> None:
        """The place is the name."""

    def dropped(self, target: Target, access: TableAccess) -> None:
        """The place was the name."""

    @property
    def session(self) -> Session:
        """What executing a statement needs."""
        options = self.settings.storage_options
        return Session(
            resolve=self.resolve,
            config=Config(self.settings.config),
            open_store=lambda uri: open_store(uri, options),
            indexes=self,
        )


_FAILURES = ("ERROR", "FAILED")
_STATUSES = {
    "SUCCESS": "done",
    "DROPPED": "done",
    "PARTIAL": "partly done",
    "PARTIAL_SUCCESS": "partly done",
    "INCOMPLETE": "partly done",
    "NO_ACTION": "nothing to do",
    "NO_SPLITS": "nothing to do",
    "EXISTS": "nothing to do",
    "NOT FOUND": "nothing to do",
    "DRY_RUN": "dry run",
    "OK": "ok",
    "ERROR": "failed",
    "FAILED": "failed",
}
"""What statements of the two origins call an outcome, and what a person reads."""


def run_statement(
    statement: Statement,
    settings: Settings,
    *,
    tables: Tables | None = None,
    empty: str = "no rows",
) -> None:
    """Execute a statement and print its rows. `--json` prints them in the shape that SQL has."""
    rows = execute(statement, (tables or Tables(settings)).session)
    flat = _flat(rows)
    shown = _in_plain_words(flat)
    if settings.json:
        show_rows(rows, json=True)
    elif shown.num_rows == 1 and output.is_terminal():
        show_facts({n: v for n, v in shown.to_pylist()[0].items() if v is not None}, json=False)
    else:
        show_rows(shown, json=False, empty=empty)
    _check(flat)


def _in_plain_words(rows: pa.Table) -> pa.Table:
    """The rows with one vocabulary of outcomes; `ERROR: …` is a failure with its reason."""
    at = rows.schema.get_field_index("status")
    if at < 0:
        return rows
    shown = []
    for status in rows.column(at).to_pylist():
        name, colon, reason = str(status).partition(":")
        shown.append(_STATUSES.get(name.upper(), name) + colon + reason)
    return rows.set_column(at, "status", pa.array(shown, pa.string()))


def _flat(rows: pa.Table) -> pa.Table:
    """The rows with the fields of a `metrics` struct as columns."""
    if "metrics" not in rows.schema.names or not pa.types.is_struct(rows.field("metrics").type):
        return rows
    flat = rows.flatten()
    return flat.rename_columns([name.removeprefix("metrics.") for name in flat.schema.names])


def _check(rows: pa.Table) -> None:
    """Fail if a row says that something did."""
    if "status" not in rows.schema.names:
        return
    failed = [row for row in rows.to_pylist() if str(row["status"]).upper().startswith(_FAILURES)]
    if failed:
        row = failed[0]
        reason = row.get("message") or str(row["status"]).partition(":")[2].strip()
        what = f"{row['check']}: " if row.get("check") else ""
        more = f" ({len(failed) - 1:,} more checks failed)" if len(failed) > 1 else ""
        fail(f"{what}{reason or row['status']}{more}")
