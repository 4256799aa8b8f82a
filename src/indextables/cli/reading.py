"""Commands that read: rows (search, facets, sql), words, a table, plans and scores."""

from __future__ import annotations

import contextlib
import html
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indextables.cells import size
from indextables.cli import settings as o
from indextables.cli.settings import Settings, command, pairs
from indextables.errors import ConfigError, QueryError

if TYPE_CHECKING:
    from indextables.table.arguments import SearchMode

_PANEL = "Look"
_SHOWN = 150
_Column = Annotated[str, typer.Argument(metavar="COLUMN", help="A column that has words.")]
_Limit = Annotated[int, typer.Option("--limit", "-l", min=1, help="How many.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for name, function in _COMMANDS.items():
        command(app, name, panel=_PANEL)(function)


def _search(
    settings: Settings,
    table: o.TableUri,
    *,
    query: Annotated[
        str,
        typer.Argument(metavar="QUERY", help='Words, "phrases", AND, OR, field:word, word~1 …'),
    ],
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field", "-f", help="Search this field, or field^weight, where the query names none."
        ),
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Search text that is not a query as plain words.")
    ] = False,
    where: o.Where = None,
    column: o.Columns = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="How many rows.")] = 10,
    version: o.Version = None,
    as_of: o.AsOf = None,
    snippets: Annotated[bool, typer.Option(help="Show the part of a text that was found.")] = True,
) -> None:
    """Find the best rows for a search, best first, the words found highlighted."""
    import pyarrow as pa
    from rich.text import Text

    from indextables.cli import output
    from indextables.cli.output import highlighted, show_rows
    from indextables.serve.tables import text_columns

    opened = settings.open(table, version=version, as_of=as_of)
    columns = column or opened.schema.names
    shown = [name for name in text_columns(opened) if name in columns] if snippets else []
    hits = opened.search(
        query,
        mode="lenient" if lenient else "query",
        fields=field,
        where=where,
        columns=columns,
        limit=limit,
        snippets=shown,
    )
    if settings.json:
        show_rows(hits, json=True)
        return
    if not output.is_terminal():  # plain text: neither marks nor escapes of HTML
        for name in (f"_snippet_{column}" for column in shown):
            texts = [highlighted(text or "").plain for text in hits.column(name).to_pylist()]
            at = hits.schema.get_field_index(name)
            hits = hits.set_column(at, name, pa.array(texts, pa.string()))
        show_rows(hits, json=False)
        return
    # On a terminal a text shows the part that was found, in its own column.
    styles: dict[str, Any] = {"_score": lambda score: Text(f"{score:.3f}")}
    for name in shown:
        marked, values = hits.column(f"_snippet_{name}"), hits.column(name)
        best = [m or w for m, w in zip(marked.to_pylist(), _beginnings(values), strict=True)]
        at = hits.schema.get_field_index(name)
        hits = hits.set_column(at, name, pa.array(best, pa.string()))
        styles[name] = highlighted
    empty = "nothing found"
    if not hits.num_rows:
        with contextlib.suppress(QueryError):  # text that --lenient took
            better = opened.correct_query(query, fields=field, where=where)
            empty += "" if better is None else f". Did you mean: {better}"
    order = ["_score", *columns]
    show_rows(hits.select(order), json=False, styles=styles, empty=empty)


def _beginnings(column: Any) -> list[str | None]:
    """The first characters of texts, escaped like snippets."""
    return [
        None if t is None else html.escape(t[:_SHOWN] + ("…" if len(t) > _SHOWN else ""))
        for t in column.to_pylist()
    ]


def _facets(
    settings: Settings,
    table: o.TableUri,
    *,
    query: Annotated[
        str | None,
        typer.Argument(metavar="[QUERY]", help="What to search for; all rows without it."),
    ] = None,
    by: Annotated[
        list[str], typer.Option("--by", "-b", help="A column; a,b counts pairs of values.")
    ],
    every: Annotated[
        str | None,
        typer.Option("--every", help="Parts of the column: 1h, 1d, 1 month, or a width: 10."),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--field", "-f", help="Search this field where the query names none."),
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Search text that is not a query as plain words.")
    ] = False,
    where: o.Where = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many values of each.")] = 10,
    timezone: Annotated[str, typer.Option(help="The zone of hours and days.")] = "UTC",
    version: o.Version = None,
    as_of: o.AsOf = None,
) -> None:
    """Count the values of columns, or hours, days and other parts of one, over a search."""
    import pyarrow as pa

    from indextables.cli import output

    opened = settings.open(table, version=version, as_of=as_of)
    mode: SearchMode = "lenient" if lenient else "query"
    if every is not None and len(by) > 1:
        raise typer.BadParameter("it takes one column.", param_hint="--every with --by")
    if every is not None:
        parts = opened.histogram(
            query, column=by[0], interval=every, mode=mode, fields=field, where=where,
            timezone=timezone,
        )  # fmt: skip
        counts_by_column = {by[0]: parts}
    else:
        groups = [name if name in opened.schema.names else name.split(",") for name in by]
        counts_by_column = opened.facets(
            query, by=groups, top=top, mode=mode, fields=field, where=where, timezone=timezone
        )
    for counted in counts_by_column.values():
        rows = counted
        if output.is_terminal() and not settings.json:
            counts: list[Any] = rows[-1].to_pylist()
            rows = rows.append_column("", pa.array(output.bars(counts), pa.string()))
        output.show_rows(rows, json=settings.json, empty="nothing found")


def _sql(
    settings: Settings,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUERY]",
            help="A query or a statement; - reads it from stdin. A terminal has a prompt.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="NAME=TABLE", help="A name for a table."),
    ] = None,
) -> None:
    """Run a query, or a statement such as MERGE SPLITS, in Spark's SQL, without Spark.

    A table is named by its folder (FROM docs), by its place (FROM 's3://bucket/docs') or by a name
    given with --table. Searches work everywhere in a query: WHERE content indexquery
    'spark AND sql' ORDER BY _score DESC. snippet(content) shows the words found. VERSION AS OF 3
    looks back in time. Files are tables too: FROM 'data/*.parquet'. EXPLAIN SELECT …, DESCRIBE
    docs, SHOW TABLES, COLUMNS, PARTITIONS and TBLPROPERTIES look at tables.
    """
    from indextables.cli.queries import Tables, prompt, run_sql

    tables = Tables(settings, pairs(table or (), "--table"))
    if query is not None:
        run_sql(sys.stdin.read() if query == "-" else query, settings, tables)
    elif sys.stdin.isatty():
        prompt(settings, tables)
    else:
        raise typer.BadParameter("say what to run, or - to read it from stdin.", param_hint="QUERY")


def _describe(
    settings: Settings,
    table: o.TableUri,
    *,
    version: o.Version = None,
    as_of: o.AsOf = None,
) -> None:
    """Show what a table is: its columns, how they are searched, its size and properties."""
    from indextables.cli import output
    from indextables.cli.output import show_facts, show_records, show_text
    from indextables.cli.queries import columns_of
    from indextables.jobs.write_target import constraints_of

    opened = settings.open(table, version=version, as_of=as_of)
    snapshot = opened.view.shown.snapshot
    facts: dict[str, Any] = {
        "table": opened.uri,
        "name": snapshot.metadata.name,
        "description": snapshot.metadata.description,
        "version": snapshot.version,
        "rows": opened.count(),
        "splits": snapshot.num_files,
        "bytes": snapshot.total_bytes,
        "deleted_rows": snapshot.deleted_rows,
        "vector_files": len(snapshot.vector_files),
        "xrefs": len(snapshot.xrefs),
        "partition_columns": list(snapshot.partition_columns),
        "protocol": [snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version],
        "constraints": {one.name: one.sql for one in constraints_of(snapshot.metadata)},
        "properties": _properties(snapshot.metadata.configuration),
    }
    columns = columns_of(opened)
    if settings.json:
        show_facts({**facts, "columns": columns}, json=True)
        return
    shown = {name: value for name, value in facts.items() if value not in (None, [], {})}
    if not facts["deleted_rows"]:
        del shown["deleted_rows"], shown["vector_files"]
    if output.is_terminal():
        shown |= {
            "rows": f"{facts['rows']:,}",
            "bytes": f"{facts['bytes']:,} ({size(facts['bytes'])})",
        }
        shown |= {"protocol": "reader {}, writer {}".format(*facts["protocol"])}
        if facts["partition_columns"]:
            shown["partition_columns"] = ", ".join(facts["partition_columns"])
    show_facts(shown, json=False)
    show_text("")
    names = list(columns[0]) if columns else []
    show_records(names, ([c[n] for n in names] for c in columns), json=False)


def _properties(configuration: Any) -> dict[str, str]:
    """Properties that a user set; the mapping and its registry are shown as columns."""
    from indextables.statements.session import redacted

    return {
        name: value
        for name, value in redacted(configuration).items()
        if not name.startswith(("indextables.", "docMapping"))
    }


def _history(
    settings: Settings,
    table: o.TableUri,
    *,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="How many.")] = None,
) -> None:
    """Show the versions of a table, newest first."""
    from indextables.cli.output import show_rows

    show_rows(settings.open(table).history(limit=limit), json=settings.json)


def _explain(
    settings: Settings,
    table: o.TableUri,
    *,
    where: o.Where = None,
    column: o.Columns = None,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1)] = None,
    version: o.Version = None,
    as_of: o.AsOf = None,
) -> None:
    """Show what a scan would read, stage by stage, and why."""
    from indextables.cli.output import show_facts, show_text

    plan = settings.open(table, version=version, as_of=as_of).explain(
        where=where, columns=column, limit=limit
    )
    if settings.json:
        show_facts({"plan": plan.splitlines()}, json=True)
    else:
        show_text(plan)


def _explain_score(
    settings: Settings,
    table: o.TableUri,
    *,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The search.")],
    where: Annotated[
        str, typer.Option("--where", "-w", metavar="CONDITION", help="What one row meets: id = 7")
    ],
    field: Annotated[list[str] | None, typer.Option("--field", "-f", help="As in search.")] = None,
    version: o.Version = None,
    as_of: o.AsOf = None,
) -> None:
    """Show why a row has its score for a search: what each word adds in each column."""
    from indextables.cli.output import show_rows, show_text

    explanation = settings.open(table, version=version, as_of=as_of).explain_score(
        query, where, fields=field
    )
    if not settings.json:
        show_text(f"_score {explanation.score:.6f}")
    show_rows(explanation.parts, json=settings.json, empty="the row does not match")


def _serve(
    settings: Settings,
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE…]", help="Tables, or NAME=TABLE; those of this folder by default."
        ),
    ] = None,
    *,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option("--port", "-p", min=0, max=65535, help="8600, or any if it is taken."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Another name of this server."),
    ] = None,
    token: Annotated[bool, typer.Option(help="Ask for the token of the printed address.")] = True,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long a search may take.")
    ] = 30.0,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Searches at once.")] = 4,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Search tables in a browser, on this machine, and over HTTP for programs; read only."""
    try:
        from indextables.serve import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise ConfigError(
            "The server needs two more packages: pip install 'indextables[serve]'."
        ) from None
    from indextables.cli.output import show_facts

    places = _served_tables(tables or [])
    opened = {name: settings.open(place) for name, place in places.items()}
    listening = app.listen(host, port)
    access = app.access_to(listening, host, allowed=allow_host or (), with_token=token)
    served = app.application(
        places,
        lambda place, version: settings.open(place, version=version),
        access=access,
        limits=app.Limits(threads=threads, timeout_s=timeout),
    )
    address = app.address(listening, host, access)
    listed = ", ".join(f"{name} ({table.count():,} rows)" for name, table in opened.items())
    show_facts({"address": address, "tables": listed}, json=settings.json)
    sys.stdout.flush()
    if open_:
        import webbrowser

        webbrowser.open(address)
    app.run(served, listening)


def _served_tables(tables: list[str]) -> dict[str, str]:
    """Tables by the names that they are served under."""
    if not tables:
        tables = sorted(
            child.name for child in Path.cwd().iterdir() if (child / "_transaction_log").is_dir()
        )
        if not tables:
            raise ConfigError(
                "There is no table in this folder. Name one: indextables serve TABLE; or make one: "
                "indextables import TABLE FILE."
            )
    places: dict[str, str] = {}
    for argument in tables:
        name, separator, place = argument.partition("=")
        if not separator or "/" in name or "\\" in name:
            last = argument.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
            name, place = last or "table", argument
        if name.startswith(("_", ".")) or name in ("api", "static", "tables"):
            name = f"table-{name.lstrip('_.')}"
        if name in places:
            raise ConfigError(f"Two tables are called '{name}'. Name one with NAME=TABLE.")
        places[name] = place
    return places


# --- words -----------------------------------------------------------------------------------


def _analyze(
    settings: Settings,
    table: o.TableUri,
    *,
    column: Annotated[
        str,
        typer.Argument(metavar="COLUMN", help="A column, or an analyzer: 'english', 'html | code'"),
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Any text.")],
) -> None:
    """Show the words that an index holds of a text."""
    from indextables.cli.output import show_rows

    show_rows(settings.open(table).analyze(column, text), json=settings.json, empty="no words")


def _complete(
    settings: Settings,
    table: o.TableUri,
    *,
    column: _Column,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="The first letters of a word.")],
    where: o.Where = None,
    limit: _Limit = 10,
) -> None:
    """Show the words of a column that begin with a text, and how many rows have each."""
    from indextables.cli.output import show_rows

    words = settings.open(table).complete(prefix, column=column, where=where, limit=limit)
    show_rows(words, json=settings.json, empty="nothing found")


def _suggest(
    settings: Settings,
    table: o.TableUri,
    *,
    column: _Column,
    word: Annotated[str, typer.Argument(metavar="WORD", help="A word that may be misspelt.")],
    where: o.Where = None,
    limit: _Limit = 5,
) -> None:
    """Show the words of a column that are spelled nearly so."""
    from indextables.cli.output import show_rows

    words = settings.open(table).suggest(word, column=column, where=where, limit=limit)
    show_rows(words, json=settings.json, empty="nothing found")


def _more_like(
    settings: Settings,
    table: o.TableUri,
    *,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="A text.")] = None,
    row: Annotated[
        str | None, typer.Option("--row", metavar="CONDITION", help="Or one row: \"id = 'a'\".")
    ] = None,
    field: Annotated[
        list[str] | None, typer.Option("--field", "-f", help="Compare this field, or field^weight.")
    ] = None,
    where: o.Where = None,
    column: o.Columns = None,
    limit: _Limit = 10,
) -> None:
    """Find the rows that are about the same as a text or a row, best first."""
    from indextables.cli.output import show_rows

    rows = settings.open(table).more_like_this(
        text, row=row, fields=field, where=where, columns=column, limit=limit
    )
    show_rows(rows, json=settings.json, empty="nothing found")


_COMMANDS: dict[str, Any] = {
    "search": _search,
    "facets": _facets,
    "sql": _sql,
    "describe": _describe,
    "history": _history,
    "explain": _explain,
    "explain-score": _explain_score,
    "serve": _serve,
    "analyze": _analyze,
    "complete": _complete,
    "suggest": _suggest,
    "more-like": _more_like,
}
