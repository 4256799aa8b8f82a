"""Requests and answers in JSON over HTTP: read within bounds, written exactly, errors included."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from indextables.cells import to_json
from indextables.errors import (
    IndexTablesError,
    LogError,
    QueryError,
    SchemaError,
    StoppedError,
    VersionNotFoundError,
)
from indextables.serve.tables import NoSuchTableError
from indextables.serve.work import BusyError, RequestError, TimeLimitError

logger = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Of a request's body."""
PATIENCE_S = 30.0
"""How long the body of a request may take."""

Handler = Callable[[Request], Awaitable[Response]]


class Json(Response):
    """An answer as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """As bytes."""
        return to_json(content)


def status_of(error: Exception) -> int:
    """The status of HTTP that says what kind of error it is."""
    match error:
        case NoSuchTableError() | VersionNotFoundError():
            return 404
        case BusyError():
            return 503
        case TimeLimitError():
            return 504
        case StoppedError():
            return 499
        case QueryError() | SchemaError() | RequestError():
            return 400
        case LogError():
            return 502
        case _:
            return 500


def described(error: Exception) -> dict[str, Any]:
    """An error for a program, with its place in the query where it has one."""
    found: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    for name in ("position", "reason", "query", "field"):
        value = getattr(error, name, None)
        if isinstance(value, str | int):
            found[name] = value
    return found


def guarded(handler: Handler) -> Handler:
    """A handler whose errors are answers."""

    async def run(request: Request) -> Response:
        try:
            return await handler(request)
        except IndexTablesError as error:
            return Json({"error": described(error)}, status_code=status_of(error))
        except Exception:
            logger.exception("%s %s failed", request.method, request.url.path)
            message = "This should not have happened; the terminal of the server says more."
            return Json({"error": {"type": "InternalError", "message": message}}, status_code=500)

    return run


async def body_of(request: Request) -> bytes:
    """The body of a request, within bounds."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for part in request.stream():
                size += len(part)
                if size > MOST_BYTES:
                    raise RequestError(f"A request has at most {MOST_BYTES:,} bytes.")
                parts.append(part)
    except TimeoutError:
        raise RequestError(f"The request did not arrive within {PATIENCE_S:g} seconds.") from None
    return b"".join(parts)


async def json_of(request: Request) -> dict[str, Any]:
    """The object that a request carries."""
    text = await body_of(request)
    try:
        given = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError as error:
        raise RequestError(f"The request is not JSON: {error}.") from None
    if not isinstance(given, dict):
        raise RequestError("The request is an object of JSON.")
    return given


def parameters(request: Request) -> dict[str, Any]:
    """The parameters of an address as the JSON of a search: lists are said by repeating them."""
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in ("columns", "facets"):
            given.setdefault(name, []).append(value)
        elif name == "filters":
            try:
                given.setdefault(name, []).append(orjson.loads(value))
            except orjson.JSONDecodeError:
                raise RequestError("A filter in an address is an object of JSON.") from None
        else:
            given[name] = value
    return given
