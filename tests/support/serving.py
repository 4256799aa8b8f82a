"""A server of tables in a thread of this process, and a client for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from indextables.serve import app
from indextables.table import Table


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True)
class Client:
    """A program that asks a server, with its token unless told otherwise."""

    port: int
    token: str
    address: str

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def request(
        self, method: str, path: str, *, body: bytes | None = None, headers: Any = None,
        with_token: bool = True,
    ) -> Answer:  # fmt: skip
        sent = {"authorization": f"Bearer {self.token}"} if with_token else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers={**sent, **(headers or {})})
            answer = connection.getresponse()
            found = {k.lower(): v for k, v in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None, **options: Any) -> Answer:
        query = f"?{urllib.parse.urlencode(params, doseq=True)}" if params else ""
        return self.request("GET", path + query, **options)

    def post(self, path: str, json: Any, **options: Any) -> Answer:
        return self.request("POST", path, body=_bytes(json), **options)


def _bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


@contextlib.contextmanager
def running(places: dict[str, str], open_: Any = None, **limits: Any) -> Iterator[Client]:
    """A server over these tables, at a free port; `open_` opens a place at a version."""
    listening = app.listen("127.0.0.1", 0)
    access = app.access_to(listening, "127.0.0.1")
    served = app.application(
        places,
        open_ or (lambda place, version: Table.open(place, version=version)),
        access=access,
        limits=app.Limits(**limits),
    )
    server = app.server(served)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    address = app.address(listening, "127.0.0.1", access)
    try:
        yield Client(listening.getsockname()[1], access.token or "", address)
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
