"""The application and its server: pages, the JSON interface, and access control."""

from __future__ import annotations

import contextlib
import importlib.resources
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from indextables.errors import ConfigError
from indextables.serve.api import Api
from indextables.serve.elastic import Elastic
from indextables.serve.http import Access, Guard, Json
from indextables.serve.tables import Open, ServedTables
from indextables.serve.work import Work

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_STATIC = {
    "app.js": "text/javascript",
    "table.js": "text/javascript",
    "parts.js": "text/javascript",
    "style.css": "text/css",
    "report.css": "text/css",
}
_FIRST_PORT = 8600
PATIENCE_S = 30.0
"""How long the headers of a request may take."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server does at once, and for how long."""

    threads: int = 4
    most_waiting: int = 1_000
    timeout_s: float = 30.0


def application(
    places: Mapping[str, str], open_table: Open, *, access: Access, limits: Limits
) -> ASGIApp:
    """The application over tables by name."""
    work = Work(
        threads=limits.threads, most_waiting=limits.most_waiting, timeout_s=limits.timeout_s
    )
    tables = ServedTables(dict(places), open_table)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        work.close()

    routes = [
        *Api(tables, work).routes(),
        Route("/", _root),
        Route("/tables/{name}", _page("table.html")),
        Route("/static/{name}", _static),
        *Elastic(tables, work).routes(),
    ]
    handlers = {HTTPException: _http_error}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)  # type: ignore[arg-type]
    app.router.redirect_slashes = False
    return Guard(app, access)


def _file(name: str) -> bytes:
    if name == "report.css":  # the pages look like the report
        return importlib.resources.files("indextables.report").joinpath("style.css").read_bytes()
    return importlib.resources.files(__package__).joinpath("static", name).read_bytes()


def _page(name: str) -> Callable[[Request], Response]:
    def page(_request: Request) -> Response:
        return Response(_file(name), media_type="text/html")

    return page


def _root(request: Request) -> Response:
    """The page, for browsers: they send the cookie of the printed address, or ask for HTML.

    Clients of Elasticsearch ask here what server this is.
    """
    if request.cookies or "text/html" in request.headers.get("accept", ""):
        return Response(_file("search.html"), media_type="text/html")
    return Elastic.info()


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(404)
    return Response(_file(name), media_type=_STATIC[name], headers={"cache-control": "no-cache"})


def _http_error(request: Request, error: HTTPException) -> Response:
    message = f"{request.method} {request.url.path} is not served: {error.detail}."
    return Json(
        {"error": {"type": "NotServed", "message": message}},
        status_code=error.status_code,
        headers=error.headers,  # which methods there are
    )


# --- the server ----------------------------------------------------------------------------------


def listen(host: str, port: int | None) -> socket.socket:
    """A socket at this address; without a port, at the usual one or any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for tried in (_FIRST_PORT, 0) if port is None else (port,):
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, tried))
            listening.listen(1024)
        except OSError as error:
            listening.close()
            if port is not None or tried == 0:
                raise ConfigError(
                    f"The server cannot listen at {host}:{tried}: {error.strerror}. Choose another "
                    "--host or --port."
                ) from None
        else:
            return listening
    raise AssertionError


def access_to(
    listening: socket.socket, host: str, *, allowed: Sequence[str] = (), with_token: bool = True
) -> Access:
    """Who may ask a server at this socket."""
    if not with_token and host not in _LOOPBACK:
        raise ConfigError(
            f"Without a token anyone who reaches {host} could read the tables. Leave out "
            "--no-token, or listen at 127.0.0.1."
        )
    port = listening.getsockname()[1]
    addresses = _LOOPBACK if host in _LOOPBACK else (host, *_LOOPBACK)
    names = [f"[{name}]" if ":" in name else name for name in addresses]
    hosts = {f"{name}:{port}".lower() for name in names}
    hosts |= {name.lower() for name in allowed} | {f"{name}:{port}".lower() for name in allowed}
    token = secrets.token_urlsafe(24) if with_token else None
    return Access(frozenset(hosts), token, cookie=f"indextables-{port}")


def address(listening: socket.socket, host: str, access: Access) -> str:
    """The address to open in a browser."""
    name = f"[{host}]" if ":" in host else host
    token = f"?token={access.token}" if access.token else ""
    return f"http://{name}:{listening.getsockname()[1]}/{token}"


def run(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until interrupted."""
    server(app).run(sockets=[listening])


class _ImpatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that is closed if no request comes for some time.

    uvicorn waits without end for the rest of a request's headers, and every connection that is held
    so takes a descriptor of the server.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._seen: Any = self
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self.transport.is_closing():
            return
        cycle = self.cycle
        answered = cycle is None or cycle.response_complete
        if answered and cycle is self._seen:  # nothing since the last check
            self.transport.close()
            return
        self._seen = cycle if answered else self
        self.loop.call_later(PATIENCE_S, self._close_if_idle)


def server(app: ASGIApp) -> uvicorn.Server:
    """The server of an application, not yet running."""
    config = uvicorn.Config(
        app,
        http=_ImpatientProtocol,
        log_level="warning",
        access_log=False,  # addresses can hold the token
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)
