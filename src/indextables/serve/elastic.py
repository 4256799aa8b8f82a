"""A part of Elasticsearch's interface, so that its clients can read the tables.

`_search`, `_msearch`, `_count` and `_mapping`: queries are in `elastic_query`, the rest of an
answer in `elastic_hits` and `elastic_aggregations`. What is not understood is an error in
Elasticsearch's form.
"""

from __future__ import annotations

import dataclasses
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
from indextables.serve.http_json import body_of, logger, status_of
from indextables.serve.tables import NoSuchTableError, ServedTables
from indextables.serve.work import RequestError, Work

_HEADERS = {"x-elastic-product": "Elasticsearch"}
_SHARDS = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
_KNOWN = {"query", "size", "from", "sort", "search_after", "highlight", "aggs", "aggregations",
          "_source", "track_total_hits", "timeout"}  # fmt: skip


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
            ("/{table}/_mapping", self.mapping, ["GET"]),
        ]
        return [Route(path, self._guarded(to), methods=methods) for path, to, methods in listed]

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
            table = self.tables.get(name)
            question = Question.of(table, body)
            return {"count": count_rows(table.view, question.stored), "_shards": _SHARDS}

        return await self.work.run(work, request, what=f"_count of {name}")

    async def mapping(self, request: Request) -> Any:
        """The columns, as Elasticsearch calls their types."""
        name = request.path_params["table"]

        def work() -> dict[str, Any]:
            table = self.tables.get(name)
            mapping = table.mapping
            types = {f.name: {"type": _type(f.type, mapping.get(f.name))} for f in table.schema}
            return {name: {"mappings": {"properties": types}}}

        return await self.work.run(work, request, what=f"_mapping of {name}")

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
            if len(names) != 1:
                raise UnsupportedError("a search is of one table here")
            return {**self._search(str(names[0]), body), "status": 200}
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
