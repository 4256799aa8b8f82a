"""A part of Elasticsearch's interface, so that its clients can read the tables.

`_search`, `_msearch`, `_count` and `_mapping`: queries are in `elastic_query`, the rest of an
answer in `elastic_hits` and `elastic_aggregations`. What is not understood is an error in
Elasticsearch's form.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import time
from typing import Any

import orjson
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from indextables import __version__
from indextables.cells import to_json
from indextables.errors import IndexTablesError
from indextables.plan.execute import count_rows
from indextables.serve.elastic_aggregations import aggregations
from indextables.serve.elastic_hits import hits as hits_of
from indextables.serve.elastic_query import Question, UnsupportedError
from indextables.serve.http import body_of, logger, status_of
from indextables.serve.tables import NoSuchTableError, ServedTables, facts
from indextables.serve.work import RequestError, Work

_HEADERS = {"x-elastic-product": "Elasticsearch"}
_SHARDS = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
_KNOWN = {"query", "size", "from", "sort", "search_after", "highlight", "aggs", "aggregations",
          "_source", "track_total_hits", "timeout", "fields", "docvalue_fields",
          "script_fields"}  # fmt: skip


class Answer(Response):
    """JSON as Elasticsearch's clients expect it."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200) -> None:
        super().__init__(content, status_code=status_code, headers=dict(_HEADERS))

    def render(self, content: Any) -> bytes:
        """As bytes."""
        return b"" if content is None else to_json(content)


def failure(error: Exception) -> dict[str, Any]:
    """An error in Elasticsearch's form."""
    match error:
        case NoSuchTableError():
            kind = "index_not_found_exception"
        case RequestError():
            kind = "parsing_exception"
        case IndexTablesError():
            kind = "search_phase_execution_exception"
        case _:
            kind = "exception"
    known = isinstance(error, IndexTablesError)
    unknown = "This should not have happened; the server's terminal says more."
    reason = str(error) if known else unknown
    cause = {"type": kind, "reason": reason}
    return {"error": {"root_cause": [cause], **cause}, "status": status_of(error)}


@dataclasses.dataclass(frozen=True)
class Elastic:
    """The handlers, over some tables."""

    tables: ServedTables
    work: Work

    def routes(self) -> list[Route]:
        """Addresses and their handlers."""
        both = ["GET", "POST"]
        listed = [
            ("/_msearch", self.msearch, both),
            ("/_cluster/health", self.health, ["GET"]),
            ("/{table}/_msearch", self.msearch, both),
            ("/{table}/_search", self.search, both),
            ("/{table}/_count", self.count, both),
            ("/_cat/indices", self.indices, ["GET"]),
            ("/_mapping", self.mapping, ["GET"]),
            ("/_field_caps", self.field_caps, both),
            ("/{table}/_mapping", self.mapping, ["GET"]),
            ("/{table}/_field_caps", self.field_caps, both),
        ]
        every = ["GET", "POST", "PUT", "DELETE"]
        # Whatever else their clients ask for is refused as Elasticsearch would.
        rest = [("/_{path:path}", self.nothing, every),
                ("/{table}/_{path:path}", self.nothing, every),
                ("/{table}", self.table, ["GET", "PUT", "DELETE"])]  # fmt: skip
        return [
            Route(path, self._guarded(to), methods=methods) for path, to, methods in listed + rest
        ]

    def _guarded(self, handler: Any) -> Any:
        async def run(request: Request) -> Response:
            try:
                return Answer(await handler(request))
            except Exception as raised:
                error: Exception = raised
                if isinstance(raised, RecursionError):
                    error = UnsupportedError("the request is nested too deeply")
                elif not isinstance(raised, IndexTablesError):
                    logger.exception("%s %s failed", request.method, request.url.path)
                found = failure(error)
                return Answer(found, status_code=found["status"])

        return run

    @staticmethod
    def info() -> Response:
        """What answers here."""
        version = {"number": "9.0.0", "build_flavor": f"indextables-{__version__}",
                   "minimum_wire_compatibility_version": "8.0.0",
                   "minimum_index_compatibility_version": "8.0.0"}  # fmt: skip
        return Answer({"name": "indextables", "cluster_name": "indextables", "version": version,
                       "tagline": "You Know, for Search"})  # fmt: skip

    async def health(self, request: Request) -> Any:  # noqa: ARG002
        """That the server answers."""
        return {"cluster_name": "indextables", "status": "green", "timed_out": False}

    async def search(self, request: Request) -> Any:
        """The hits of a query."""
        body = await _body(request)
        name = request.path_params["table"]
        return await self.work.run(
            lambda: self._search(name, body), request, what=f"_search of {name}"
        )

    async def count(self, request: Request) -> Any:
        """How many rows match."""
        body, name = await _body(request), request.path_params["table"]
        if unknown := sorted(set(body) - {"query"}):
            raise UnsupportedError(f"request does not support [{unknown[0]}]")

        def work() -> dict[str, Any]:
            table = self.tables.get(self._only(name))
            question = Question.of(table, body)
            return {"count": count_rows(table.view, question.stored), "_shards": _SHARDS}

        return await self.work.run(work, request, what=f"_count of {name}")

    async def mapping(self, request: Request) -> Any:
        """The columns, as Elasticsearch calls their types."""
        given = request.path_params.get("table", "*")

        def work() -> dict[str, Any]:
            return {
                name: {"mappings": {"properties": {c: {"type": t} for c, t in types.items()}}}
                for name, types in self._types(given).items()
            }

        return await self.work.run(work, request, what=f"_mapping of {given}")

    async def field_caps(self, request: Request) -> Any:
        """What can be done with each column."""
        given, body = request.path_params.get("table", "*"), await _body(request)
        asked = request.query_params.get("fields") or body.get("fields") or "*"
        patterns = asked if isinstance(asked, list) else str(asked).split(",")

        def work() -> dict[str, Any]:
            tables = self._types(given)
            fields: dict[str, dict[str, Any]] = {}
            for types in tables.values():
                for column, kind in types.items():
                    if any(fnmatch.fnmatchcase(column, str(one)) for one in patterns):
                        counted = kind not in ("text", "object", "binary")
                        fields.setdefault(column, {})[kind] = {
                            "type": kind, "metadata_field": False, "searchable": True,
                            "aggregatable": counted,
                        }  # fmt: skip
            return {"indices": list(tables), "fields": fields}

        return await self.work.run(work, request, what=f"_field_caps of {given}")

    async def indices(self, request: Request) -> Any:
        """The tables, with their rows and bytes."""

        def work() -> list[dict[str, Any]]:
            found = []
            for name in list(self.tables):
                known = facts(name, self.tables.get(name))
                found.append({"health": "green", "status": "open", "index": name,
                              "docs.count": str(known["rows"]),
                              "store.size": str(known["bytes"])})  # fmt: skip
            return found

        return await self.work.run(work, request, what="_cat/indices")

    async def table(self, request: Request) -> Any:
        """Whether there is a table, and its columns."""
        if request.method not in ("GET", "HEAD"):
            return await self.nothing(request)
        return await self.mapping(request)

    async def nothing(self, request: Request) -> Any:
        """What Elasticsearch has and this server has not."""
        path = request.url.path
        if request.method in ("PUT", "DELETE"):
            raise UnsupportedError(f"{request.method} [{path}]: nothing is written here")
        advice = ""
        if "scroll" in path or path.endswith("/_pit"):
            advice = "; sort by [_doc] and turn pages with [search_after]"
        raise UnsupportedError(f"[{path}] is not supported{advice}")

    def _named(self, given: str) -> list[str]:
        """The tables of a name, of several with commas between, or of a pattern."""
        if given in list(self.tables) or not set(given) & set("*,"):
            return [given]
        patterns = given.replace("_all", "*").split(",")
        return [name for name in list(self.tables)
                if any(fnmatch.fnmatchcase(name, one) for one in patterns)]  # fmt: skip

    def _types(self, given: str) -> dict[str, dict[str, str]]:
        found = {}
        for name in self._named(given):
            table = self.tables.get(name)
            mapping = table.mapping
            found[name] = {f.name: _type(f.type, mapping.get(f.name)) for f in table.schema}
        return found

    def _only(self, given: str) -> str:
        """The one table that is meant."""
        names = self._named(given)
        if not names:
            raise NoSuchTableError(given, list(self.tables))
        if len(names) > 1:
            raise UnsupportedError(f"a search is of one table here; [{given}] are: {names}")
        return names[0]

    async def msearch(self, request: Request) -> Any:
        """Several searches, each with its own outcome."""
        lines = [line for line in (await body_of(request)).split(b"\n") if line.strip()]
        if len(lines) % 2:
            raise UnsupportedError("[_msearch] has two lines for each search")
        pairs = [(_object(a), _object(b)) for a, b in zip(lines[::2], lines[1::2], strict=True)]
        if len(pairs) > 50:
            raise UnsupportedError("[_msearch] has at most 50 searches")
        default = request.path_params.get("table")

        def work() -> dict[str, Any]:
            begun = time.perf_counter()
            found = [self._one(head.get("index", default), body) for head, body in pairs]
            return {"took": _milliseconds(begun), "responses": found}

        return await self.work.run(work, request, what="_msearch")

    def _one(self, index: Any, body: dict[str, Any]) -> dict[str, Any]:
        names = index if isinstance(index, list) else [index]
        try:
            return {**self._search(",".join(map(str, names)), body), "status": 200}
        except RequestError as error:
            return failure(error)
        except IndexTablesError as error:
            if status_of(error) in (499, 504):
                raise
            return failure(error)

    def _search(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        begun = time.perf_counter()
        if unknown := sorted(set(body) - _KNOWN):
            raise UnsupportedError(f"unknown key [{unknown[0]}] in a search")
        name = self._only(name)
        table = self.tables.get(name)
        question = Question.of(table, body)
        total = count_rows(table.view, question.stored)
        hits = list(hits_of(name, question, body))
        scores = [hit["_score"] for hit in hits if hit["_score"] is not None]
        answer: dict[str, Any] = {
            "took": 0,
            "timed_out": False,
            "_shards": _SHARDS,
            "hits": {
                "total": {"value": total, "relation": "eq"},
                "max_score": max(scores, default=None),
                "hits": hits,
            },
        }
        wanted = body.get("aggs", body.get("aggregations"))
        if wanted:
            answer["aggregations"] = aggregations(wanted, question)
        return {**answer, "took": _milliseconds(begun)}


def _milliseconds(begun: float) -> int:
    return int((time.perf_counter() - begun) * 1000)


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError as error:
        raise UnsupportedError(f"the request is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnsupportedError("a request is an object of JSON")
    return found


async def _body(request: Request) -> dict[str, Any]:
    body, given = _object(await body_of(request)), request.query_params
    for name in ("scroll", "typed_keys"):
        if given.get(name) not in (None, "false"):
            raise UnsupportedError(f"[{name}] is not supported")
    if "q" in given:
        body["query"] = {"query_string": {"query": given["q"]}}
    for name in ("size", "from"):
        if name in given:
            body[name] = int(given[name]) if given[name].isdigit() else given[name]
    return body


def _type(kind: pa.DataType, searched_as: str | None) -> str:
    types = pa.types
    if types.is_string(kind):
        return {"text": "text", "json": "object", "ip": "ip"}.get(searched_as or "", "keyword")
    if types.is_list(kind):
        return _type(kind.value_type, searched_as)
    named = ((types.is_boolean, "boolean"), (types.is_integer, "long"), (types.is_float32, "float"),
             (types.is_floating, "double"), (types.is_decimal, "double"),
             (types.is_temporal, "date"), (types.is_binary, "binary"))  # fmt: skip
    return next((name for is_kind, name in named if is_kind(kind)), "object")
