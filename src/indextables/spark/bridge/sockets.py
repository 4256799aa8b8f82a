"""Closing connections that the JVM opened for callbacks and no longer uses.

Adaptive execution runs stages on new threads, and each thread that calls back opens a connection of
its own that nobody closes: a Python thread and a socket for every exchange. So a connection that
has been idle for longer than the JVM keeps its threads is given up. One that is in a callback, or
in a call that a callback makes, is never timed out.
"""

from __future__ import annotations

import functools
from typing import Any

from py4j import clientserver, java_gateway  # type: ignore[import-untyped]

# Spark's pools keep an idle thread for a minute; a younger connection may still be used.
IDLE_SECONDS = 75.0


def close_idle_connections() -> None:
    """Limit how long callback connections wait for the next call. Doing it twice does nothing."""
    for owner in (clientserver.ClientServerConnection, java_gateway.CallbackConnection):
        original = owner._call_proxy
        if not getattr(original, "_indextables", False):
            owner._call_proxy = _limited(original)


def _limited(original: Any) -> Any:
    @functools.wraps(original)
    def call(self: Any, *args: Any) -> Any:
        if getattr(self, "initiated_from_client", False) or self.socket is None:
            return original(self, *args)
        self.socket.settimeout(None)
        try:
            return original(self, *args)
        finally:
            if self.socket is not None:
                self.socket.settimeout(IDLE_SECONDS)

    call._indextables = True  # type: ignore[attr-defined]
    return call
