"""The JSON interface of the server. Every address reads; none changes a table."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from indextables import __version__
from indextables.errors import IndexTablesError, QueryError
from indextables.plan.execute import count_rows
from indextables.serve import answers
from indextables.serve.answers import (
    MOST_FACETS,
    MOST_ROWS,
    MOST_TEXT,
    SEARCH_PARTS,
    SearchRequest,
    requested_version,
    whole_number,
)
from indextables.serve.http import (
    REPORT_POLICY,
    Handler,
    Json,
    described,
    guarded,
    json_of,
    parameters,
)
from indextables.serve.tables import NoSuchTableError, ServedTables, columns_of, facts
from indextables.serve.work import RequestError, Work
from indextables.storage.local import new_folder, remove_folder
from indextables.table import Table

MOST_EXPORTED = 5_000_000
"""Rows of one export."""
_SQL_AT_ONCE = 2
"""The engine of SQL may take half of the machine's memory for a query."""
_FORMATS = {"parquet": "parquet", "csv": "csv", "json": "jsonl"}
_KINDS = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "json": "application/x-ndjson",
}
_SEARCH_PARTS_OF = {
    "instead": ("query", "where", "filters", "version", "timezone"),
    "why": ("query", "version"),
    "changes": ("query", "where", "filters", "version"),
    "export": ("query", "where", "filters", "columns", "version", "timezone"),
}
"""The parts of a search that a handler takes, if not all."""


def _search_in(sent: dict[str, Any], handler: str) -> SearchRequest:
    return SearchRequest.parsed({k: sent[k] for k in _SEARCH_PARTS_OF[handler] if k in sent})


@dataclasses.dataclass(frozen=True)
class Api:
    """The handlers, over some tables."""

    tables: ServedTables
    work: Work
    sql_free: asyncio.Semaphore = dataclasses.field(
        default_factory=lambda: asyncio.Semaphore(_SQL_AT_ONCE), repr=False
    )

    def routes(self) -> list[Route]:
        """Addresses and their handlers."""
        table = "/api/tables/{name}"
        listed: list[tuple[str, Handler, list[str]]] = [
            ("/api/tables", self.list_tables, ["GET"]),
            (table, self.table, ["GET"]),
            (f"{table}/search", self.search, ["GET", "POST"]),
            (f"{table}/words", self.words, ["GET"]),
            (f"{table}/instead", self.instead, ["GET"]),
            (f"{table}/why", self.why, ["GET"]),
            (f"{table}/history", self.history, ["GET"]),
            (f"{table}/report", self.report, ["GET"]),
            (f"{table}/changes", self.changes, ["GET"]),
            (f"{table}/export", self.export, ["GET"]),
            ("/api/sql", self.sql, ["POST"]),
            ("/api/searches", self.searches, ["GET"]),
            ("/api/searches/{id}", self.stop, ["DELETE"]),
            ("/api/openapi.json", self.openapi, ["GET"]),
            ("/tables/{name}/report", self.report_page, ["GET"]),
        ]
        return [
            Route(path, guarded(to), methods=methods, name=to.__name__)
            for path, to, methods in listed
        ]

    async def _run(self, request: Request, work: Callable[[], Any], *, what: str) -> Any:
        name = request.headers.get("x-search-id")
        return await self.work.run(work, request, what=what, name=name[:64] if name else None)

    async def _answer(self, request: Request, work: Callable[[], Any], *, what: str) -> Response:
        return Json(await self._run(request, work, what=what))

    async def list_tables(self, request: Request) -> Response:
        """All tables, and what each is."""

        def work() -> dict[str, Any]:
            return {"tables": [self._facts(name) for name in self.tables]}

        return await self._answer(request, work, what="tables")

    def _facts(self, name: str) -> dict[str, Any]:
        try:
            return facts(name, self.tables.get(name))
        except IndexTablesError as error:  # one that is broken does not hide the others
            return {"name": name, "error": described(error)}

    async def table(self, request: Request) -> Response:
        """What a table is, its columns, and which are worth counting."""
        name, version = request.path_params["name"], requested_version(parameters(request))

        def work() -> dict[str, Any]:
            table = self.tables.get(name, version)
            suggested = self.tables.suggested(name, table)
            return {
                **facts(name, table),
                "columns": columns_of(table),
                "facets": list(suggested.facets),
                "time": suggested.time,
            }

        return await self._answer(request, work, what=f"table {name}")

    async def search(self, request: Request) -> Response:
        """Rows, their number, facets, a histogram, and how the plan narrowed."""
        name = request.path_params["name"]
        sent = parameters(request) if request.method == "GET" else await json_of(request)
        search = SearchRequest.parsed(sent)

        def work() -> dict[str, Any]:
            return answers.search(name, self.tables.get(name, search.version), search)

        return await self._answer(request, work, what=f"search of {name}")

    async def words(self, request: Request) -> Response:
        """Words that begin like this."""
        name, sent = request.path_params["name"], request.query_params
        prefix, field = sent.get("prefix", ""), sent.get("field")

        def work() -> dict[str, Any]:
            return {"words": answers.words(self.tables.get(name), prefix, field or None)}

        return await self._answer(request, work, what=f"words of {name}")

    async def instead(self, request: Request) -> Response:
        """The query with its words corrected to words of the table, if that finds rows."""
        name, search = request.path_params["name"], _search_in(parameters(request), "instead")

        def work() -> dict[str, Any]:
            return {"instead": answers.corrected(self.tables.get(name, search.version), search)}

        return await self._answer(request, work, what=f"words of {name}")

    async def why(self, request: Request) -> Response:
        """What each word of a query adds to the score of a row."""
        name, sent = request.path_params["name"], parameters(request)
        search = _search_in(sent, "why")
        split, row = sent.get("split", ""), whole_number(sent, "row")
        if not search.query:
            raise RequestError("'query' is missing: without one rows have no scores.")

        def work() -> dict[str, Any]:
            table = self.tables.get(name, search.version)
            return answers.why(table, str(search.query), split, row)

        return await self._answer(request, work, what=f"score of {name}")

    async def history(self, request: Request) -> Response:
        """The retained versions, newest first."""
        name = request.path_params["name"]

        def work() -> dict[str, Any]:
            versions = self.tables.get(name).history(limit=MOST_ROWS)
            kept = versions.select(["version", "timestamp", "operation"])
            return {"versions": kept.to_pylist()}

        return await self._answer(request, work, what=f"history of {name}")

    async def report(self, request: Request) -> Response:
        """The figures of the report page."""
        name, version = request.path_params["name"], requested_version(parameters(request))

        def work() -> dict[str, Any]:
            from indextables.report import gather

            report = gather(self.tables.get(name, version), config={})
            data = {
                f.name: getattr(report, f.name)
                for f in dataclasses.fields(report)
                if f.name not in ("splits", "covered")
            }
            data |= {
                "bytes": report.bytes,
                "splits": len(report.splits),
                "covered": len(report.covered),
                "largest_splits": sorted(report.splits, key=lambda s: -s.bytes)[:MOST_ROWS],
            }
            return {key: _plain(value) for key, value in data.items()}

        return await self._answer(request, work, what=f"report of {name}")

    async def report_page(self, request: Request) -> Response:
        """The report as a page without scripts, for a frame."""
        name, version = request.path_params["name"], requested_version(parameters(request))

        def work() -> str:
            from indextables.report import gather, page

            return page(gather(self.tables.get(name, version), config={}))

        text = await self._run(request, work, what=f"report of {name}")
        headers = {"content-security-policy": REPORT_POLICY}
        return Response(text, media_type="text/html", headers=headers)

    async def changes(self, request: Request) -> Response:
        """Rows of a search that came or went between two versions."""
        name, sent = request.path_params["name"], parameters(request)
        limit = whole_number(sent, "limit", 100, most=MOST_ROWS)
        search = _search_in(sent, "changes")
        if "since" not in sent:
            raise RequestError("'since' is the older version, 'version' the newer one.")
        since = whole_number(sent, "since")

        def work() -> dict[str, Any]:
            newer = self.tables.get(name, search.version)
            if newer.view.elsewhere is not None:
                raise RequestError(
                    f"'{name}' is a search index: its source '{newer.view.elsewhere.uri}' records "
                    "what changed, the index does not."
                )
            condition = search.condition(newer.schema)
            view, predicate = newer.matching(search.query, where=condition)
            where = view.names.shown_predicate(predicate)
            older = self.tables.get(name, since)
            changed = (
                newer.changes(from_version=since + 1, where=where)
                if since < newer.version
                else newer.schema.empty_table()
            )
            return {
                "since": since,
                "version": newer.version,
                "total": count_rows(view, predicate),
                "total_since": _count(older, search),
                "changes": changed.num_rows,
                "rows": changed.slice(0, limit).to_pylist(),
            }

        return await self._answer(request, work, what=f"changes of {name}")

    async def export(self, request: Request) -> Response:
        """All rows of a search as a file: whole, or an error."""
        name, sent = request.path_params["name"], parameters(request)
        file_format = sent.pop("format", "parquet")
        if file_format not in _FORMATS:
            raise RequestError(f"A format is one of {', '.join(_FORMATS)}, not {file_format!r}.")
        search = _search_in(sent, "export")

        def work() -> Path:
            return self._exported(
                self.tables.get(name, search.version), search, _FORMATS[file_format]
            )

        path = await self._run(request, work, what=f"export of {name}")
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name)
        return FileResponse(
            path,
            media_type=_KINDS[file_format],
            filename=f"{plain or 'rows'}.{file_format}",
            background=BackgroundTask(remove_folder, path.parent),
        )

    def _exported(self, table: Table, search: SearchRequest, file_format: str) -> Path:
        """The path of a temporary file with the rows."""
        from indextables.sinks import write_rows

        view, predicate = table.matching(
            search.query, where=search.condition(table.schema), timezone=search.timezone
        )
        total = count_rows(view, predicate)
        if total > MOST_EXPORTED:
            raise RequestError(
                f"{total:,} rows match; at most {MOST_EXPORTED:,} are exported at once. Narrow the "
                "search, or use `indextables export`."
            )
        rows = table.scan_batches(
            columns=search.columns, where=view.names.shown_predicate(predicate)
        )
        folder = new_folder("export")
        try:
            with (folder / "rows").open("wb") as file:
                write_rows(rows, file, file_format, lambda _done: None)
        except BaseException:
            remove_folder(folder)
            raise
        return folder / "rows"

    async def sql(self, request: Request) -> Response:
        """The rows of one SELECT over the tables that are served."""
        sent = await json_of(request)
        query, limit = sent.get("query"), whole_number(sent, "limit", MOST_ROWS, most=MOST_ROWS)
        if not isinstance(query, str) or len(query) > MOST_TEXT:
            raise RequestError(f"'query' is a text of at most {MOST_TEXT:,} characters.")

        def work() -> dict[str, Any]:
            return self._sql(query, limit)

        async with self.sql_free:
            return await self._answer(request, work, what="SQL")

    def _sql(self, query: str, limit: int) -> dict[str, Any]:
        import pyarrow as pa

        from indextables.query import run_query

        rows = run_query(query, self._opened)
        parts, count = [rows.schema.empty_table()], 0
        for batch in rows:
            parts.append(pa.Table.from_batches([batch]))
            count += batch.num_rows
            if count > limit:
                break
        table = answers.within_bytes(pa.concat_tables(parts).slice(0, limit))
        values = answers.column_values(table)
        names = list(table.schema.names)
        return {
            "columns": names,
            "rows": [list(row) for row in zip(*values, strict=True)],
            "truncated": count > limit,
        }

    def _opened(self, parts: tuple[str, ...], version: int | None, at: str | None) -> Table:
        name = ".".join(parts)
        names = {served.lower(): served for served in self.tables}
        if name.lower() not in names:
            raise NoSuchTableError(name, list(self.tables))
        table = self.tables.get(names[name.lower()], version)
        return table if at is None else Table.of_log(table.log, timestamp=at)

    async def searches(self, request: Request) -> Response:  # noqa: ARG002
        """What runs or waits."""
        return Json({"searches": self.work.running()})

    async def stop(self, request: Request) -> Response:
        """Stop a search by the id that its request had in the header X-Search-Id."""
        key = request.path_params["id"]
        if not self.work.stop(key):
            return Json(
                {"error": {"type": "NoSuchSearch", "message": f"No search {key!r} runs."}},
                status_code=404,
            )
        return Json({"stopped": key})

    async def openapi(self, request: Request) -> Response:  # noqa: ARG002
        """This interface, for programs that make clients."""
        return Json(_openapi(self))


def _count(table: Table, search: SearchRequest) -> int | None:
    """How many rows an older version had; None if it could not be asked this."""
    try:
        view, predicate = table.matching(search.query, where=search.condition(table.schema))
    except (QueryError, RequestError):
        return None
    return count_rows(view, predicate)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return dict(value) if hasattr(value, "items") else value


def _openapi(api: Api) -> dict[str, Any]:
    bounds: dict[str, dict[str, Any]] = {
        "integer": {"minimum": 0},
        "array": {"items": {"type": "string"}},
    }
    properties: dict[str, dict[str, Any]] = {
        name: {"type": type_name, "description": text} | bounds.get(type_name, {})
        for name, (type_name, text) in SEARCH_PARTS.items()
    }
    properties["filters"] |= {"items": {"type": "object"}}
    properties["facets"] |= {"maxItems": MOST_FACETS}
    declared = {
        "format": {"type": "string", "enum": list(_FORMATS)},
        "since": {"type": "integer", "minimum": 0},
        "row": {"type": "integer", "minimum": 0},
    }
    required = {"changes": ("since",), "why": ("query", "split", "row")}
    bodies = {
        "search": {"type": "object", "properties": properties},
        "sql": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1},
                "limit": {"type": "integer", "minimum": 0},
            },
            "required": ["query"],
        },
    }
    inputs = {
        "search": tuple(SEARCH_PARTS),
        "export": ("format", *_SEARCH_PARTS_OF["export"]),
        "changes": ("since", *_SEARCH_PARTS_OF["changes"], "limit"),
        "words": ("prefix", "field"),
        "instead": _SEARCH_PARTS_OF["instead"],
        "why": (*_SEARCH_PARTS_OF["why"], "split", "row"),
        **dict.fromkeys(("table", "report", "report_page"), ("version",)),
    }
    paths: dict[str, Any] = {}
    for route in api.routes():
        handler = route.name
        for method in sorted((route.methods or set()) - {"HEAD"}):
            named = [
                {"name": part, "in": "path", "required": True, "schema": {"type": "string"}}
                for part in route.param_convertors
            ]
            if method == "GET":
                named += [
                    {
                        "name": p,
                        "in": "query",
                        "required": p in required.get(handler, ()),
                        "schema": declared.get(p) or properties.get(p) or {"type": "string"},
                    }
                    for p in inputs.get(handler, ())
                ]
            operation: dict[str, Any] = {
                "operationId": f"{method.lower()}_{handler}",
                "summary": getattr(Api, handler).__doc__,
                "parameters": named,
                "responses": {"200": {"description": "The answer."},
                              "default": {"description": "An error: its type and message."}},
            }  # fmt: skip
            if method == "POST":
                schema = bodies[handler]
                operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
            paths.setdefault(route.path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "IndexTables", "version": __version__},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
