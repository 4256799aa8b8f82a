"""moto's S3 as a process of its own: `python s3_server.py`. It prints the port that it listens on.

moto checks the headers of a conditional write and stores the object in two steps. A real store does
that in one, so conditional requests are served one at a time here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.server import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

_one_at_a_time = threading.Lock()


class _QuietHandler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        """One line a request would hide the tests' own output."""


def main() -> None:
    # Not moto's dispatcher: it lists the folders of all services at every request.
    moto = create_backend_app("s3")

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" in environ or "HTTP_IF_MATCH" in environ:
            with _one_at_a_time:
                return list(moto(environ, start_response))
        return moto(environ, start_response)  # type: ignore[no-any-return]

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_QuietHandler)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
