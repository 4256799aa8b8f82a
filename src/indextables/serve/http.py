"""HTTP of the server: authorisation, and requests and responses in JSON.

Requests are read within bounds, answers are written exactly, errors included.

Everything but the page's own files needs the token: in the address that is printed at the start,
which sets a cookie and is redirected to the same address without it, or in a header for programs.
The Host header has to be one that the server is meant to have, so that another name that points to
this machine (DNS rebinding) is not served. A browser says where a request comes from; whatever
another site sends is refused, and a cookie alone changes nothing without the page's own origin.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    fields: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    for name in ("position", "reason", "query", "field"):
        value = getattr(error, name, None)
        if isinstance(value, str | int):
            fields[name] = value
    return fields


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
        document = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError as error:
        raise RequestError(f"The request is not JSON: {error}.") from None
    if not isinstance(document, dict):
        raise RequestError("The request is an object of JSON.")
    return document


def parameters(request: Request) -> dict[str, Any]:
    """The parameters of an address as the JSON of a search: lists are said by repeating them."""
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in ("columns", "facets"):
            values.setdefault(name, []).append(value)
        elif name == "filters":
            try:
                values.setdefault(name, []).append(orjson.loads(value))
            except orjson.JSONDecodeError:
                raise RequestError("A filter in an address is an object of JSON.") from None
        else:
            values[name] = value
    return values


# --- who may ask -----------------------------------------------------------------------------

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'self'; sandbox allow-same-origin"
)
"""Of the report: it has no script and is shown in a frame of the page."""
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "content-security-policy": POLICY,
}
_READS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Access:
    """Who may send requests. Without a token: anyone who reaches the port."""

    hosts: frozenset[str]
    """Values of the Host header, in lower case, with the port."""
    token: str | None
    cookie: str


@dataclass(frozen=True)
class Guard:
    """An application that answers authorised requests only."""

    app: ASGIApp
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope, Headers(scope=scope))
        await (refusal or self.app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "").lower()
        if host not in self.access.hosts:
            return PlainTextResponse(
                "This server does not answer to that name. Use the address that it printed, or "
                "start it with --allow-host NAME.\n",
                status_code=421,
            )
        path: str = scope["path"]
        if _is_foreign(headers, host=host, path=path):
            return _refused(403, "Requests of other sites are refused.")
        if path.startswith("/static/") or self.access.token is None:
            return None
        return self._unless_known(scope, headers, self.access.token)

    def _unless_known(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        sent = _sent_tokens(headers, self.access.cookie)
        if sent.get("header") is not None:
            if _same(sent["header"], token):
                return None
            return _refused(401, "The token is wrong. Use the one of the printed address.")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        offered = dict(query).get("token")
        if offered is not None and scope["method"] in _READS and _same(offered, token):
            remaining = urlencode([pair for pair in query if pair[0] != "token"])
            # Two slashes would name another host.
            path = "/" + scope["path"].lstrip("/")
            answer = RedirectResponse(f"{path}?{remaining}" if remaining else path, status_code=303)
            answer.set_cookie(self.access.cookie, token, httponly=True, samesite="lax", path="/")
            return answer
        if _same(sent.get("cookie"), token):
            return None
        if "text/html" in headers.get("accept", ""):
            return PlainTextResponse(
                "This page needs its token. Open the whole address that `indextables serve` "
                "printed in the terminal.\n",
                status_code=401,
            )
        return _refused(
            401,
            "A token is missing. Send the one of the printed address in the header "
            "'Authorization: Bearer TOKEN'.",
        )


def _is_foreign(headers: Headers, *, host: str, path: str) -> bool:
    """Whether a browser says that another site asks."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    # A proxy may speak HTTPS for us: the host decides.
    if origin is not None and origin.lower().partition("://")[2] != host:
        return True
    # A link elsewhere may open the page; what it shows it asks for itself.
    page = path == "/" or path.startswith("/tables/")
    return site not in (None, "same-origin", "none") and not (
        page and headers.get("sec-fetch-mode") == "navigate"
    )


def _sent_tokens(headers: Headers, cookie: str) -> Mapping[str, str]:
    """Tokens that a request carries, by where."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    sent = {}
    if scheme.lower() == "bearer":
        sent["header"] = value.strip()
    elif scheme.lower() == "basic":  # the token is the password, whatever the user is called
        try:
            text = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            text = ""
        sent["header"] = text.partition(":")[2]
    elif scheme:
        sent["header"] = ""
    try:
        jar: SimpleCookie = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return sent
    if cookie in jar:
        sent["cookie"] = jar[cookie].value
    return sent


def _same(sent: str | None, token: str) -> bool:
    return sent is not None and hmac.compare_digest(sent.encode(), token.encode())


def _refused(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": {"type": "Refused", "message": reason}}, status_code=status)
