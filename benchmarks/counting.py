"""A proxy on loopback that counts what passes: requests, and bytes of answers."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class Traffic:
    """What passed since the last `clear`."""

    requests: list[str] = field(default_factory=list)
    received: int = 0
    times: list[tuple[float, float]] = field(default_factory=list)
    """When each request began and was answered."""
    delay: float = 0.0
    """Seconds before an answer, as a far store has: requests made side by side overlap."""

    def clear(self) -> None:
        self.requests.clear()
        self.times.clear()
        self.received = 0

    @property
    def rounds(self) -> int:
        """How many requests waited for each other: the most that do not overlap."""
        count, last = 0, 0.0
        for began, ended in sorted(self.times, key=lambda time: time[1]):
            if began >= last:
                count, last = count + 1, ended
        return count

    def copy(self) -> Traffic:
        return Traffic(list(self.requests), self.received, list(self.times))

    def __str__(self) -> str:
        return f"{len(self.requests)} requests, {self.received / 1e6:.2f} MB"


@contextlib.contextmanager
def counted(options: dict[str, str]) -> Iterator[tuple[dict[str, str], Traffic]]:
    """Storage options that lead through a proxy to the server of some options."""
    host, port = options["aws_endpoint"].removeprefix("http://").split(":")
    traffic, lock, local = Traffic(), threading.Lock(), threading.local()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            began = time.monotonic()
            time.sleep(traffic.delay)
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size) if size else None
            for attempt in range(2):
                try:
                    if not hasattr(local, "connection"):
                        local.connection = http.client.HTTPConnection(host, int(port), timeout=60)
                    local.connection.request(
                        self.command, self.path, body=body, headers=dict(self.headers)
                    )
                    answer = local.connection.getresponse()
                    data = answer.read()
                    break
                except (http.client.HTTPException, OSError):
                    del local.connection
                    if attempt:
                        raise
            with lock:
                wanted = self.headers.get("Range", "")
                traffic.requests.append(f"{self.command} {self.path} {wanted} {len(data)}")
                traffic.received += len(data)
                traffic.times.append((began, time.monotonic()))
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else len(data)
            self.send_header("Content-Length", str(length or 0))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = forward  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """One line a request would hide the results."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield options | {"aws_endpoint": f"http://127.0.0.1:{server.server_port}"}, traffic
    finally:
        server.shutdown()
        server.server_close()
