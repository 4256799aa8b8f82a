"""moto's S3 as a process of its own: `python s3_server.py PORT`.

moto checks the headers of a conditional write and stores the object in two steps. A real store does
that in one, so conditional requests are served one at a time here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.server import create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

_one_at_a_time = threading.Lock()


class _QuietHandler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        """One line a request would hide the tests' own output."""


def main(port: int) -> None:
    # Not moto's dispatcher: it lists the folders of all services at every request.
    moto = create_backend_app("s3")

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" in environ or "HTTP_IF_MATCH" in environ:
            with _one_at_a_time:
                return list(moto(environ, start_response))
        return moto(environ, start_response)  # type: ignore[no-any-return]

    run_simple("127.0.0.1", port, app, threaded=True, request_handler=_QuietHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]))
