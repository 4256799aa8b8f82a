"""What `indextables sql` and the commands of statements run, and the tables that they name.

Queries go to `indextables.query`, our statements to `indextables.statements`. EXPLAIN, DESCRIBE and
SHOW are answered here, because there is no catalog that could. Without a query a terminal has a
prompt with a history.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer

from indextables.cli import output
from indextables.cli.output import show_facts, show_records, show_rows, show_text
from indextables.cli.settings import Format, Settings, fail
from indextables.cli.source_files import is_file_name
from indextables.cli.sources import rows_of_files
from indextables.config import Config
from indextables.errors import EmbeddedQueryError, IndexTablesError, StatementError
from indextables.plan.access import TableAccess
from indextables.schema import type_name
from indextables.statements.execute import execute
from indextables.statements.forms import Target
from indextables.statements.session import Session, named_source, redacted
from indextables.statements.statements import Statement, parse
from indextables.storage import open_store
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
    from indextables.query import run_query

    statement = parse(text)
    if statement is not None:
        run_statement(statement, settings, tables=tables)
        return
    plain = text.strip().rstrip(";").rstrip()
    if match := _EXPLAIN.fullmatch(plain):
        _explain(match["query"], settings, tables)
    elif match := _DESCRIBE.fullmatch(plain):
        _show_columns(_named(match["name"], tables), settings)
    elif match := _SHOW.fullmatch(plain):
        _show(match["what"].upper(), match["name"], settings, tables)
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
    """Show what the scan of each table of a query would read."""
    from indextables.query.rewrite import rewrite

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


def _show(listing: str, name: str | None, settings: Settings, tables: Tables) -> None:
    if listing == "TABLES":
        folder = Path("." if name is None else name.strip("'`"))
        places = dict(tables.names) if name is None else {}
        places |= {p.parent.name: str(p.parent) for p in folder.glob("*/_transaction_log")}
        show_records(["table", "place"], sorted(places.items()), json=settings.json,
                     empty="no tables in this folder")  # fmt: skip
        return
    if name is None:
        raise EmbeddedQueryError(f"SHOW {listing} needs a table: SHOW {listing} IN docs.")
    table = _named(name, tables)
    if listing == "COLUMNS" or not isinstance(table, Table):
        _show_columns(table, settings)
    elif listing == "TBLPROPERTIES":
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
                    except KeyboardInterrupt:
                        show_text("interrupted")


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


# --- our statements --------------------------------------------------------------------------

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
        return self.settings.open_itself(self._uri_of(target))

    def _uri_of(self, target: Target) -> str:
        return self.uri(target.name) if target.path is None else target.path

    # --- search indexes, which have no names here but their places -------------------------------

    def source(self, target: Target) -> tuple[str, TableAccess]:
        """A source in a format."""
        named = named_source(target)
        if named is None:
            raise StatementError(
                f"The source {target} has no format. Write delta.`{target}`, iceberg.`{target}` or "
                f"parquet.`{target}`; there is no catalog here."
            )
        return named[0], self.settings.access(named[1])

    def find(self, target: Target) -> TableAccess:
        """The index at a place."""
        return self.settings.access(self._uri_of(target))

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
        """The session in which a statement is executed."""
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
"""Names of outcomes in rows of statements, and how a terminal shows them."""


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
    """Exit with an error if a row reports a failure."""
    if "status" not in rows.schema.names:
        return
    failed = [row for row in rows.to_pylist() if str(row["status"]).upper().startswith(_FAILURES)]
    if failed:
        row = failed[0]
        reason = row.get("message") or str(row["status"]).partition(":")[2].strip()
        check = f"{row['check']}: " if row.get("check") else ""
        more = f" ({len(failed) - 1:,} more checks failed)" if len(failed) > 1 else ""
        fail(f"{check}{reason or row['status']}{more}")
