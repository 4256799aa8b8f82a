"""The port by which the JVM calls objects of this process, closed to every other process.

PySpark opens it for streams without authentication: another user of the machine could call every
object behind it, and answer the questions that a call asks the JVM. So callbacks have a secret of
their own, which both ends hold before the first object can be called: the JVM sends it on each new
connection, and py4j's server here ends a connection that does not begin with it, in few bytes and
soon. It is not the gateway's own token, which would then be sent to whatever listens on that port.

What may be called is what an object's interfaces declare, as the JVM reports them.

Adaptive execution runs stages on new threads, and each thread that calls back opens a connection of
its own that is never closed: a Python thread and a socket for every exchange. So a connection that
has been idle for longer than the JVM keeps its threads is closed. One that is in a callback, or in
a call that a callback makes, is never timed out.
"""

from __future__ import annotations

import functools
import re
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from py4j import clientserver, java_gateway, protocol  # type: ignore[import-untyped]
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from indextables.errors import UnsafeCallbacksError
from indextables.spark.bridge.patches import wrap

_LOOPBACK = "127.0.0.1"
_OF_EVERY_OBJECT = frozenset(("equals", "hashCode", "toString"))
_METHOD = re.compile(r"\.([\w$]+)\(")
GREETING_BYTES = 256
"""A connection begins with three lines: a command, the secret of 64 letters, an end."""
GREETING_SECONDS = 10.0


def start(spark: SparkSession) -> None:
    """Start the port, or guard one that PySpark opened. Doing it twice does nothing.

    Raises:
        UnsafeCallbacksError: The port is open already and a stream may be using it.
    """
    gateway: Any = spark.sparkContext._gateway
    _guard_connections()
    parameters = gateway.callback_server_parameters
    # Looked up in the dictionary: py4j asks the JVM for an attribute that it does not find.
    server = gateway.__dict__.get("_callback_server")
    if server is None:
        parameters.address = _LOOPBACK
        parameters.auth_token = secrets.token_hex(32)
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        set_java_token(gateway, parameters.auth_token)
    elif parameters.auth_token is None:
        session: Any = spark._jsparkSession
        if session.sharedState().activeStreamingQueries().size():
            raise UnsafeCallbacksError
        parameters.auth_token = secrets.token_hex(32)
        callbacks = _java_server(gateway)
        # A new client of the JVM: the old one holds connections that are closed below.
        callbacks.resetCallbackClient(callbacks.getCallbackClient().getAddress(), server.port)
        set_java_token(gateway, parameters.auth_token)
        for connection in list(server.connections):
            java_gateway.quiet_shutdown(connection.socket)
    parameters.propagate_java_exceptions = True


def set_java_token(gateway: Any, token: str | None) -> None:
    """Let the JVM begin each connection to this process with a token.

    py4j has no method for it: its client forgets the token whenever its port is set.
    """
    classes = gateway.jvm.java.lang.Class
    field = classes.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(_java_server(gateway).getCallbackClient(), token)


def _java_server(gateway: Any) -> Any:
    return java_gateway.JavaObject("GATEWAY_SERVER", gateway._gateway_client)


def _guard_connections() -> None:
    """Check who connects, which methods are called, and how long a connection is idle."""
    java_side, python_side = clientserver.ClientServerConnection, java_gateway.CallbackConnection
    for owner in (java_side, python_side):
        wrap(owner, "_call_proxy", _call_declared_method)
        wrap(owner, "_call_proxy", _call_without_timeout)
    wrap(java_side, "wait_for_commands", _listen_after_greeting)
    wrap(python_side, "run", _listen_after_greeting)


def _listen_after_greeting(original: Any, self: Any) -> Any:
    parameters = getattr(self, "python_parameters", None) or self.callback_server_parameters
    stream = "stream" if isinstance(self, clientserver.ClientServerConnection) else "input"
    if parameters.auth_token is not None:
        setattr(self, stream, _Greeting(self.socket, getattr(self, stream)))
    return original(self)


class _Greeting:
    """A stream whose first three lines are short and arrive soon; py4j would read without end."""

    def __init__(self, socket: Any, stream: Any) -> None:
        self._socket, self._stream = socket, stream
        self._timeout = socket.gettimeout()
        self._until = time.monotonic() + GREETING_SECONDS
        self._bytes, self._lines = GREETING_BYTES, 3

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def readline(self) -> bytes:
        if not self._lines:
            line: bytes = self._stream.readline()
            return line
        greeting = bytearray()
        while not greeting.endswith(b"\n"):
            left = self._until - time.monotonic()
            if left <= 0 or len(greeting) >= self._bytes:
                raise protocol.Py4JAuthenticationError("A connection did not begin with a token.")
            self._socket.settimeout(left)
            byte = self._stream.read(1)
            if not byte:
                break
            greeting += byte
        self._bytes -= len(greeting)
        self._lines -= 1
        self._socket.settimeout(self._timeout)
        return bytes(greeting)


def _call_declared_method(original: Any, self: Any, obj_id: str, lines: Any) -> Any:
    if obj_id not in self.pool:
        return original(self, obj_id, lines)
    first = lines.readline()
    method = first.decode()[:-1]
    client = getattr(self, "java_client", None) or self.gateway_client
    declared = tuple(self.pool[obj_id].Java.implements)
    if method in _OF_EVERY_OBJECT or method in _methods(declared, client):
        return original(self, obj_id, _Again(first, lines))
    self._get_params(lines)  # what follows is the next command
    refusal = f"'{method}' is not a method of {', '.join(declared)}."
    return protocol.RETURN_MESSAGE + protocol.ERROR + protocol.get_command_part(refusal)


@functools.lru_cache(maxsize=256)
def _methods(interfaces: tuple[str, ...], client: Any) -> frozenset[str]:
    """The names of all methods of some interfaces, inherited ones too.

    py4j sends what a callback asks to its caller. This question is asked on another thread, which
    has a connection to the JVM of its own.
    """

    def ask() -> str:
        find = java_gateway.JavaClass("py4j.reflection.ReflectionUtil", client).classForName
        show = java_gateway.JavaClass("scala.runtime.ScalaRunTime", client).stringOf
        return "".join(show(find(name).getMethods()) for name in interfaces)

    with ThreadPoolExecutor(1) as thread:
        return frozenset(_METHOD.findall(thread.submit(ask).result()))


class _Again:
    """Lines of which the first one was read already."""

    def __init__(self, first: bytes, following: Any) -> None:
        self._first: bytes | None = first
        self._rest = following

    def readline(self) -> bytes:
        first, self._first = self._first, None
        line: bytes = self._rest.readline() if first is None else first
        return line


# --- idle connections ----------------------------------------------------------------------------


# Spark's pools keep an idle thread for a minute; a younger connection may still be used.
IDLE_SECONDS = 75.0


def _call_without_timeout(original: Any, self: Any, *args: Any) -> Any:
    """A call of a callback connection, which is given up after it has been idle for long."""
    if getattr(self, "initiated_from_client", False) or self.socket is None:
        return original(self, *args)
    self.socket.settimeout(None)
    try:
        return original(self, *args)
    finally:
        if self.socket is not None:
            self.socket.settimeout(IDLE_SECONDS)
