"""What `indextables sql` runs: queries, our statements, and Spark's that look at tables.

EXPLAIN, DESCRIBE and SHOW are answered here, because there is no catalog that could. Without a
query a terminal has a prompt with a history.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from indextables.cli.output import show_facts, show_records, show_rows, show_text
from indextables.cli.settings import Settings, fail
from indextables.cli.statements import Tables, run_statement
from indextables.errors import EmbeddedQueryError, IndexTablesError
from indextables.query import run_query
from indextables.query.rewrite import rewrite
from indextables.schema import type_name
from indextables.statements.environment import redacted
from indextables.statements.statements import parse
from indextables.table import Table

_NAME = r"(?:(?:TABLE|EXTENDED|FORMATTED)\s+)*(?P<name>'[^']+'|\S+)"
_EXPLAIN = re.compile(r"EXPLAIN\s+(?:EXTENDED\s+|FORMATTED\s+)?(?P<query>(?:SELECT|WITH)\b.*)",
                      re.I | re.S)  # fmt: skip
_DESCRIBE = re.compile(rf"(?:DESCRIBE|DESC)\s+{_NAME}", re.I)
_SHOW = re.compile(
    r"SHOW\s+(?P<what>TABLES|COLUMNS|PARTITIONS|TBLPROPERTIES)"
    r"(?:\s+(?:IN\s+|FROM\s+)?(?P<name>'[^']+'|\S+))?",
    re.I,
)


def run_sql(text: str, settings: Settings, tables: Tables) -> None:
    """Run one query or statement and print its rows."""
    statement = parse(text)
    if statement is not None:
        run_statement(statement, settings, tables=tables)
        return
    plain = text.strip().rstrip(";").rstrip()
    if found := _EXPLAIN.fullmatch(plain):
        _explain(found["query"], settings, tables)
    elif found := _DESCRIBE.fullmatch(plain):
        _show_columns(_named(found["name"], tables), settings)
    elif found := _SHOW.fullmatch(plain):
        _show(found["what"].upper(), found["name"], settings, tables)
    else:
        rows = run_query(text, tables.open)
        names = rows.schema.names
        if settings.json and (twice := [name for name in names if names.count(name) > 1]):
            raise EmbeddedQueryError(
                f"Two columns are called '{twice[0]}', and an object of JSON has one of a name. "
                "Name one of them with AS."
            )
        show_rows(rows, json=settings.json)


def _explain(query: str, settings: Settings, tables: Tables) -> None:
    """What the scan of each table of a query would read."""
    lines: list[str] = []
    for relation in rewrite(query, tables.open).relations:
        plan = relation.table.explain(where=relation.condition)
        condition = "" if relation.condition is None else f" WHERE {relation.condition}"
        lines += [f"{relation.table.uri}{condition}", *(f"  {line}" for line in plan.splitlines())]
    if settings.json:
        show_facts({"plan": lines}, json=True)
    else:
        show_text("\n".join(lines or ["no index table is read"]))


def _named(name: str, tables: Tables) -> Any:
    text = name.strip("'")
    catalog, dot, place = text.partition(".`")
    parts = (catalog, place.rstrip("`")) if dot else (text.strip("`"),)
    return tables.open(parts)


def _show_columns(table: Any, settings: Settings) -> None:
    if isinstance(table, Table):
        columns = columns_of(table)
    else:
        columns = [{"column": f.name, "type": type_name(f.type)} for f in table.schema]
    names = list(columns[0]) if columns else []
    show_records(names, ([c[n] for n in names] for c in columns), json=settings.json)


def _show(what: str, name: str | None, settings: Settings, tables: Tables) -> None:
    if what == "TABLES":
        folder = Path("." if name is None else name.strip("'`"))
        found = dict(tables.names) if name is None else {}
        found |= {p.parent.name: str(p.parent) for p in folder.glob("*/_transaction_log")}
        show_records(["table", "place"], sorted(found.items()), json=settings.json,
                     empty="no tables in this folder")  # fmt: skip
        return
    if name is None:
        raise EmbeddedQueryError(f"SHOW {what} needs a table: SHOW {what} IN docs.")
    table = _named(name, tables)
    if what == "COLUMNS" or not isinstance(table, Table):
        _show_columns(table, settings)
    elif what == "TBLPROPERTIES":
        properties = sorted(redacted(table.view.shown.snapshot.metadata.configuration).items())
        show_records(["key", "value"], properties, json=settings.json, empty="no properties")
    else:
        if not (columns := list(table.partition_columns)):
            raise EmbeddedQueryError(f"'{table.uri}' has no partition columns.")
        rows = table.scan(columns=columns).group_by(columns).aggregate([([], "count_all")])
        rows = rows.rename_columns([*columns, "rows"])
        show_rows(rows.sort_by([(c, "ascending") for c in columns]), json=settings.json)


def columns_of(table: Table) -> list[dict[str, Any]]:
    """The columns of a table and how they are searched."""
    mapping = table.view.shown.mapping.by_name
    columns = []
    for column in table.schema:
        how = mapping.get(column.name)
        columns.append(
            {
                "column": column.name,
                "type": type_name(column.type),
                "searched_as": "" if how is None or not how.indexed else how.kind,
                "tokenizer": how.tokenizer if how is not None and how.has_words else "",
                "partition": column.name in table.partition_columns,
                "nullable": column.nullable,
            }
        )
    return columns


# --- the prompt ----------------------------------------------------------------------------------


def prompt(settings: Settings, tables: Tables, ask: Callable[[str], str] = input) -> None:
    """Read queries, each ended by a semicolon, until the end of input."""
    with _history():
        lines: list[str] = []
        while True:
            try:
                line = ask("... " if lines else "sql> ")
            except EOFError:
                return
            except KeyboardInterrupt:
                lines = []
                show_text("")
                continue
            if not lines and line.strip().rstrip(";").lower() in ("quit", "exit", "\\q"):
                return
            if line.strip() or lines:
                lines.append(line)
            if lines and line.rstrip().endswith(";"):
                text, lines = "\n".join(lines).rstrip().rstrip(";"), []
                with contextlib.suppress(typer.Exit):
                    try:
                        run_sql(text, settings, tables)
                    except (IndexTablesError, OSError) as error:
                        fail(str(error))


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Line editing with the queries of earlier sessions, where Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(state, "indextables", "history")
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(1_000)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.write_history_file(file)
            file.chmod(0o600)
