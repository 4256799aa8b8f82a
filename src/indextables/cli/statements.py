"""Statements of ours on the command line: carried out, their rows printed, failures noticed."""

from __future__ import annotations

import pyarrow as pa

from indextables.cli import output
from indextables.cli.output import show_facts, show_rows
from indextables.cli.settings import Settings, fail
from indextables.cli.tables import Tables
from indextables.statements.execute import execute
from indextables.statements.statements import Statement

_FAILURES = ("ERROR", "FAILED")


def run_statement(
    statement: Statement,
    settings: Settings,
    *,
    tables: Tables | None = None,
    empty: str = "no rows",
) -> None:
    """Carry out a statement and print its rows. `--json` prints them in the shape that SQL has."""
    rows = execute(statement, (tables or Tables(settings)).session)
    flat = _flat(rows)
    if settings.json:
        show_rows(rows, json=True)
    elif flat.num_rows == 1 and output.is_terminal():
        show_facts({n: v for n, v in flat.to_pylist()[0].items() if v is not None}, json=False)
    else:
        show_rows(flat, json=False, empty=empty)
    _check(flat)


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
